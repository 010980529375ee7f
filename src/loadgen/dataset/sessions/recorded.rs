//! Recorded sessions: what every format of a trace is read into.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use super::super::DatasetError;
use crate::config::dataset::{DatasetName, MAX_DRAWN_TOKENS};

/// A session of a trace.
#[derive(Debug, Default)]
pub(super) struct RecordedSession {
    /// Its requests, in any order.
    pub(super) requests: Vec<RecordedRequest>,
}

#[derive(Debug)]
pub(super) struct RecordedRequest {
    /// Where it is written.
    pub(super) place: Place,
    /// Indices of the requests that must end before it.
    pub(super) after: Vec<usize>,
    /// The pause after these have ended, or after the start of the session.
    pub(super) delay: Duration,
    /// Index of the request whose messages and answer come before its own; one of `after`.
    pub(super) continues: Option<usize>,
    pub(super) prompt: RecordedPrompt,
    /// Output tokens; `None` if the trace does not say.
    pub(super) output_tokens: Option<u32>,
    /// Further fields of the request body.
    pub(super) body: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum RecordedPrompt {
    /// The ids of its KV blocks, and its length in tokens.
    Blocks {
        /// Equal ids mean equal tokens within a scope.
        scope: u64,
        ids: Vec<u64>,
        block: u32,
        tokens: u32,
    },
    Messages(Vec<Value>),
}

/// A file, and a line of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    /// From 1; `None` for a file that is one value.
    pub(super) line: Option<usize>,
}

impl Place {
    pub(super) fn new(path: &Path, line: Option<usize>) -> Self {
        Self {
            path: path.to_owned(),
            line,
        }
    }

    /// The error about what is written here.
    pub(super) fn malformed(&self, reason: impl std::fmt::Display) -> DatasetError {
        DatasetError::Malformed {
            dataset: DatasetName::AgenticSessions,
            path: self.path.clone(),
            reason: match self.line {
                Some(line) => format!("line {line}: {reason}"),
                None => reason.to_string(),
            },
        }
    }
}

/// Most tokens that a request may have, far above every context.
const MAX_TOKENS: u64 = 100_000_000;
/// Longest recorded pause, far above every session.
const MAX_PAUSE_S: f64 = 366.0 * 86_400.0;

/// Reads a pause or a time in seconds.
pub(super) fn seconds(value: f64, name: &str) -> Result<Duration, String> {
    if value < 0.0 {
        return Err(format!(
            "`{name}` is negative ({value}); a pause must be at least 0"
        ));
    }
    match value <= MAX_PAUSE_S {
        true => Ok(Duration::from_secs_f64(value)),
        false => Err(format!(
            "`{name}` is {value} s, which is longer than a year; correct it"
        )),
    }
}

/// Reads a number of tokens.
pub(super) fn token_number(value: Option<&Value>, name: &str) -> Result<Option<u32>, String> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    let tokens = value
        .as_u64()
        .ok_or_else(|| format!("`{name}` is `{value}`; write a whole number of tokens"))?;
    let is_usual = u32::try_from(tokens).ok().filter(|_| tokens <= MAX_TOKENS);
    let tokens = is_usual.ok_or_else(|| {
        format!("`{name}` is {tokens} tokens, more than the maximum of {MAX_TOKENS}; correct it or remove the request")
    })?;
    Ok(Some(tokens))
}

/// Reads a list of ids of KV blocks and checks that it fits the number of tokens: a block for each full one,
/// and at most one more for the rest.
pub(super) fn block_ids(value: Option<&Value>, block: u32, tokens: u32) -> Result<Vec<u64>, String> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Ok(Vec::new());
    };
    let ids: Option<Vec<u64>> = value
        .as_array()
        .and_then(|ids| ids.iter().map(Value::as_u64).collect());
    let ids = ids.ok_or("`hash_ids` must be a list of whole numbers of at least 0")?;
    let (full, all) = (tokens / block, tokens.div_ceil(block));
    let count = ids.len() as u64;
    if count != 0 && (count < u64::from(full) || count > u64::from(all)) {
        let needed = if full == all {
            format!("{all}")
        } else {
            format!("{full} or {all}")
        };
        return Err(format!(
            "{count} `hash_ids` do not match {tokens} input tokens: each id stands for a block of {block} tokens, so the \
             number of ids must be {needed}; correct `hash_ids` or the number of input tokens"
        ));
    }
    Ok(ids)
}

impl RecordedSession {
    /// Puts the requests in an order in which each comes after those that it waits for, else in the given order.
    pub(super) fn sort(self) -> Result<Self, DatasetError> {
        let count = self.requests.len();
        let after: Vec<BTreeSet<usize>> = self
            .requests
            .iter()
            .map(|request| request.after.iter().copied().collect())
            .collect();
        let mut waiting = vec![Vec::new(); count];
        for (index, before) in after.iter().enumerate() {
            for before in before {
                waiting[*before].push(index);
            }
        }
        let mut open: Vec<usize> = after.iter().map(BTreeSet::len).collect();
        let mut ready: BinaryHeap<Reverse<usize>> = (0..count)
            .filter(|index| open[*index] == 0)
            .map(Reverse)
            .collect();
        let mut order = Vec::with_capacity(count);
        while let Some(Reverse(index)) = ready.pop() {
            order.push(index);
            for next in &waiting[index] {
                open[*next] -= 1;
                if open[*next] == 0 {
                    ready.push(Reverse(*next));
                }
            }
        }
        if order.len() < count {
            let stuck = open.iter().position(|open| *open > 0).unwrap_or_default();
            return Err(self.requests[stuck].place.malformed(
                "a request waits for its own end, directly or through other requests; remove the cycle of dependencies",
            ));
        }
        let mut position = vec![0; count];
        for (new, old) in order.iter().enumerate() {
            position[*old] = new;
        }
        let mut requests: Vec<Option<RecordedRequest>> = self.requests.into_iter().map(Some).collect();
        let sorted = order.iter().zip(order.iter().map(|old| &after[*old]));
        let sorted = sorted.map(|(old, after)| {
            let request = requests[*old].take().expect("each index is in the order once");
            RecordedRequest {
                after: after.iter().map(|before| position[*before]).collect(),
                continues: request.continues.map(|before| position[before]),
                ..request
            }
        });
        Ok(Self {
            requests: sorted.collect(),
        })
    }
}

/// Counts the tokens of all prompts, so that they fit in memory.
#[derive(Default)]
pub(super) struct TokenBudget(u64);

impl TokenBudget {
    pub(super) fn add(&mut self, request: &RecordedRequest) -> Result<(), DatasetError> {
        if let RecordedPrompt::Blocks { tokens, .. } = request.prompt {
            self.0 += u64::from(tokens);
        }
        if self.0 > MAX_DRAWN_TOKENS {
            return Err(request.place.malformed(format!(
                "the prompts up to this request have {} tokens in total, more than the maximum of {MAX_DRAWN_TOKENS}; request \
                 fewer sessions with `prompts` (in `matrix bench`, `--num-prompts`)",
                self.0
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn session(after: &[&[usize]]) -> RecordedSession {
        let request = |(index, after): (usize, &&[usize])| RecordedRequest {
            place: Place::new(Path::new("trace.jsonl"), Some(index + 1)),
            after: after.to_vec(),
            delay: Duration::from_secs(index as u64),
            continues: after.first().copied(),
            prompt: RecordedPrompt::Messages(Vec::new()),
            output_tokens: None,
            body: Map::new(),
        };
        RecordedSession {
            requests: after.iter().enumerate().map(request).collect(),
        }
    }

    #[test]
    fn requests_come_after_those_that_they_wait_for() {
        let sorted = session(&[&[2, 3, 3], &[], &[1], &[1]]).sort().unwrap();
        let lines: Vec<_> = sorted.requests.iter().map(|request| request.place.line).collect();
        assert_eq!(lines, [Some(2), Some(3), Some(4), Some(1)]);
        assert_eq!(sorted.requests[3].after, [1, 2]);
        assert_eq!(sorted.requests[3].continues, Some(1));
    }

    #[test]
    fn a_cycle_is_refused_with_its_line() {
        let error = session(&[&[], &[3], &[0], &[1]]).sort().unwrap_err().to_string();
        assert!(error.contains("trace.jsonl"), "{error}");
        assert!(
            error.contains("line 2: a request waits for its own end"),
            "{error}"
        );
        session(&[&[0]]).sort().unwrap_err();
    }

    #[test]
    fn ids_of_blocks_fit_the_tokens() {
        let ids = |count: usize, tokens: u32| {
            let list: Vec<u64> = (0..count as u64).collect();
            block_ids(Some(&list.into()), 64, tokens).map(|ids| ids.len())
        };
        assert_eq!(
            (ids(2, 128), ids(2, 100), ids(1, 100), ids(0, 100)),
            (Ok(2), Ok(2), Ok(1), Ok(0))
        );
        for (count, tokens) in [(3, 128), (1, 128), (3, 100)] {
            let error = ids(count, tokens).unwrap_err();
            assert!(
                error.contains(&format!("do not match {tokens} input tokens")),
                "{error}"
            );
        }
        for wrong in ["[-1]", "[1.5]", "[\"a\"]", "{}", "3"] {
            let value: Value = serde_json::from_str(wrong).unwrap();
            block_ids(Some(&value), 64, 64).unwrap_err();
        }
    }

    #[test]
    fn huge_counts_and_pauses_are_refused() {
        assert!(
            token_number(Some(&(MAX_TOKENS + 1).into()), "in")
                .unwrap_err()
                .contains("more than")
        );
        assert!(
            token_number(Some(&Value::from(-1)), "in")
                .unwrap_err()
                .contains("whole number")
        );
        assert_eq!(token_number(None, "in"), Ok(None));
        for wrong in [f64::NAN, f64::INFINITY, 1e300, -0.5] {
            seconds(wrong, "delay").unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn every_graph_without_cycle_is_sorted(edges in prop::collection::vec((0..12_usize, 0..12_usize), 0..40), shift in 0..12_usize) {
            // An edge from a smaller to a larger number makes no cycle; the numbers are then rotated.
            let mut after = vec![Vec::new(); 12];
            for (a, b) in edges.into_iter().filter(|(a, b)| a < b) {
                after[(b + shift) % 12].push((a + shift) % 12);
            }
            let borrowed: Vec<&[usize]> = after.iter().map(Vec::as_slice).collect();
            let sorted = session(&borrowed).sort().unwrap();
            for (position, request) in sorted.requests.iter().enumerate() {
                prop_assert!(request.after.iter().all(|before| *before < position));
                let line = request.place.line.unwrap() - 1;
                let own: BTreeSet<usize> = after[line].iter().copied().collect();
                let found: BTreeSet<usize> = request.after.iter().map(|before| sorted.requests[*before].place.line.unwrap() - 1).collect();
                prop_assert_eq!(own, found);
            }
        }
    }
}
