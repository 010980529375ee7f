//! Spans of OpenTelemetry with the attributes of its conventions for generative AI: a trace is a session, a span of a
//! model call a request.
//!
//! Calls below the same span follow one another, or run in parallel if their times overlap; so do sub-agents, which
//! are spans with calls below them. A call waits for what ended last before it began.
//!
//! Source: the semantic conventions for generative AI of OpenTelemetry, its OTLP/JSON encoding, and
//! the guide to the replay of OpenTelemetry traces of kubernetes-sigs/inference-perf.

mod span;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use serde_json::{Map, Value, json};

use self::span::{Span, spans_of};
use super::recorded::{Place, RecordedPrompt, RecordedRequest, RecordedSession, token_number};
use super::timeline::{Interval, predecessors};
use crate::loadgen::dataset::DatasetError;

/// Most spans within one another.
const MAX_DEPTH: usize = 256;
/// Tokens of a block of prompts whose text was not recorded.
const BLOCK: u32 = 16;
/// Names of the operations that are model calls.
const CALLS: [&str; 3] = ["chat", "text_completion", "generate_content"];

/// Reads the sessions of a file, at most `most`, in the order of their first spans.
pub(super) fn sessions(
    values: &[(Value, Place)],
    before: u64,
    most: usize,
) -> Result<Vec<RecordedSession>, DatasetError> {
    let mut traces: Vec<Vec<Span<'_>>> = Vec::new();
    let mut by_id: HashMap<String, usize> = HashMap::new();
    for (value, place) in values {
        for span in spans_of(value, place)? {
            let trace = *by_id.entry(span.trace.clone()).or_insert(traces.len());
            if trace == traces.len() {
                traces.push(Vec::new());
            }
            traces[trace].push(span);
        }
    }
    let sessions = (before + 1..)
        .zip(traces)
        .map(|(number, spans)| Tree::new(spans)?.session(number));
    let with_calls = sessions.filter(|session| {
        session
            .as_ref()
            .map_or(true, |session| !session.requests.is_empty())
    });
    with_calls.take(most).collect()
}

/// The spans of a trace.
struct Tree<'v> {
    spans: Vec<Span<'v>>,
    /// The spans below each span.
    children: Vec<Vec<usize>>,
    roots: Vec<usize>,
}

impl<'v> Tree<'v> {
    fn new(spans: Vec<Span<'v>>) -> Result<Self, DatasetError> {
        let mut by_id: HashMap<&str, usize> = HashMap::new();
        for (index, span) in spans.iter().enumerate() {
            if by_id.insert(&span.id, index).is_some() {
                return Err(span.place.malformed(format!(
                    "two spans of the trace have the id `{}`; remove one of them",
                    span.id
                )));
            }
        }
        let (mut children, mut roots) = (vec![Vec::new(); spans.len()], Vec::new());
        // The caller of the whole trace may be part of another system, whose spans are not there.
        let mut remote: Option<&str> = None;
        for (index, span) in spans.iter().enumerate() {
            match span.parent.as_deref().map(|parent| (parent, by_id.get(parent))) {
                None => roots.push(index),
                Some((_, Some(parent))) => children[*parent].push(index),
                Some((parent, None)) if remote.is_none_or(|remote| remote == parent) => {
                    remote = Some(parent);
                    roots.push(index);
                }
                Some((parent, None)) => {
                    return Err(span.place.malformed(format!(
                        "the span `{}` has the parent `{parent}`, which is not in the file. Another span has the \
                         parent `{}`, which is missing too, but only one parent may be missing; export the whole trace",
                        span.id,
                        remote.unwrap_or_default()
                    )));
                }
            }
        }
        let tree = Self {
            spans,
            children,
            roots,
        };
        tree.check_reach()?;
        Ok(tree)
    }

    /// Fails if spans are below themselves, or too deep.
    fn check_reach(&self) -> Result<(), DatasetError> {
        let mut depth = vec![None; self.spans.len()];
        let mut open: Vec<(usize, usize)> = self.roots.iter().map(|root| (*root, 0)).collect();
        while let Some((index, own)) = open.pop() {
            depth[index] = Some(own);
            open.extend(self.children[index].iter().map(|child| (*child, own + 1)));
        }
        for (span, depth) in self.spans.iter().zip(depth) {
            let reason = match depth {
                None => format!(
                    "the span `{}` is its own ancestor; remove the cycle of parents",
                    span.id
                ),
                Some(depth) if depth > MAX_DEPTH => {
                    format!(
                        "the span `{}` is nested in more than {MAX_DEPTH} other spans; remove some of them",
                        span.id
                    )
                }
                Some(_) => continue,
            };
            return Err(span.place.malformed(reason));
        }
        Ok(())
    }

    fn session(&self, scope: u64) -> Result<RecordedSession, DatasetError> {
        let mut reader = Reader {
            tree: self,
            scope,
            session: RecordedSession::default(),
            times: Vec::new(),
        };
        reader.add_group(&self.roots, None, &[])?;
        reader.set_delays();
        Ok(reader.session)
    }
}

struct Reader<'t, 'v> {
    tree: &'t Tree<'v>,
    scope: u64,
    session: RecordedSession,
    /// The time of each request on the clock of the trace.
    times: Vec<Interval>,
}

impl Reader<'_, '_> {
    /// Adds spans below the same span, which itself may be a call, and returns the requests for which no other of them
    /// waits. What waits for none of them waits for `after`.
    fn add_group(
        &mut self,
        spans: &[usize],
        own_call: Option<usize>,
        after: &[usize],
    ) -> Result<Vec<usize>, DatasetError> {
        let mut members: Vec<(Interval, usize, bool)> = Vec::new();
        for index in spans.iter().copied().filter(|index| self.has_calls(*index)) {
            members.push((self.tree.spans[index].interval, index, false));
        }
        if let Some(index) = own_call {
            members.push((self.tree.spans[index].interval, index, true));
        }
        members.sort_by_key(|(interval, index, _)| (interval.start, *index));
        let intervals: Vec<Interval> = members.iter().map(|(interval, ..)| *interval).collect();
        let before = predecessors(&intervals);
        let mut last: Vec<Vec<usize>> = Vec::new();
        let mut is_awaited = vec![false; members.len()];
        for (place, (_, index, is_own_call)) in members.iter().enumerate() {
            before[place].iter().for_each(|before| is_awaited[*before] = true);
            let waits_for: Vec<usize> = match before[place].is_empty() {
                true => after.to_vec(),
                false => before[place]
                    .iter()
                    .flat_map(|before| last[*before].iter().copied())
                    .collect(),
            };
            let is_call = self.tree.spans[*index].is_call();
            let children = &self.tree.children[*index];
            last.push(if *is_own_call || (is_call && children.is_empty()) {
                vec![self.add_call(*index, waits_for)?]
            } else {
                self.add_group(children, is_call.then_some(*index), &waits_for)?
            });
        }
        let ends = last
            .into_iter()
            .zip(is_awaited)
            .filter(|(_, is_awaited)| !is_awaited);
        Ok(ends.flat_map(|(last, _)| last).collect())
    }

    fn has_calls(&self, index: usize) -> bool {
        let mut open = vec![index];
        while let Some(index) = open.pop() {
            if self.tree.spans[index].is_call() {
                return true;
            }
            open.extend(&self.tree.children[index]);
        }
        false
    }

    fn add_call(&mut self, index: usize, after: Vec<usize>) -> Result<usize, DatasetError> {
        let span = &self.tree.spans[index];
        let malformed = |reason: String| span.place.malformed(format!("span `{}`: {reason}", span.id));
        let tokens = |key: &str| token_number(span.attributes.get(key), key).map_err(malformed);
        let output = tokens("gen_ai.usage.output_tokens")?.or(tokens("gen_ai.usage.completion_tokens")?);
        let output = output
            .filter(|tokens| *tokens > 0)
            .or(tokens("gen_ai.request.max_tokens")?);
        let input = tokens("gen_ai.usage.input_tokens")?.or(tokens("gen_ai.usage.prompt_tokens")?);
        let messages = span::messages(&span.attributes).map_err(malformed)?;
        let prompt = match (messages, input.filter(|tokens| *tokens > 0)) {
            (Some(messages), _) => RecordedPrompt::Messages(messages),
            (None, Some(tokens)) => RecordedPrompt::Blocks {
                scope: self.scope,
                ids: self.grown_prompt(span.parent.as_deref(), tokens),
                block: BLOCK,
                tokens,
            },
            (None, None) => {
                return Err(malformed(
                    "the span has neither messages (`gen_ai.input.messages`) nor `gen_ai.usage.input_tokens`; record one of them"
                        .to_owned(),
                ));
            }
        };
        self.times.push(span.interval);
        self.session.requests.push(RecordedRequest {
            place: span.place.clone(),
            after,
            delay: Duration::ZERO,
            continues: None,
            prompt,
            output_tokens: output,
            body: Map::new(),
        });
        Ok(self.session.requests.len() - 1)
    }

    /// Ids for a prompt whose text was not recorded. Calls below the same span are taken to begin with the same
    /// text, each as far as it goes, as those of an agent whose context grows.
    fn grown_prompt(&self, parent: Option<&str>, tokens: u32) -> Vec<u64> {
        let agent = self.tree.spans.iter().position(|span| Some(&*span.id) == parent);
        let agent = agent.map_or(0, |agent| agent as u64 + 1);
        (0..u64::from(tokens.div_ceil(BLOCK)))
            .map(|block| (agent << 32) | block)
            .collect()
    }

    /// Sets the pauses between the end of what a call waited for and its start; without such, from the first call.
    fn set_delays(&mut self) {
        let begins = self
            .times
            .iter()
            .map(|times| times.start)
            .min()
            .unwrap_or_default();
        for (request, times) in self.session.requests.iter_mut().zip(&self.times) {
            let ended = request.after.iter().map(|before| self.times[*before].end).max();
            request.delay = times.start.saturating_sub(ended.unwrap_or(begins));
        }
    }
}

#[cfg(test)]
mod tests;
