//! Converts prompts to requests: due times, adapters, and warm-up requests.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Map;

use crate::base::ids::ContentHash;
use crate::base::units::RequestRate;
use crate::config::api::{ClientStyle, Feature};
use crate::config::arrival::Arrival;
use crate::config::scenario::Scenario;
use crate::loadgen::dataset::images::with_placeholders;
use crate::loadgen::dataset::template::{ChatTemplate, TemplateError};
use crate::loadgen::dataset::tokenizer::Tokenizer;
use crate::loadgen::dataset::{Content, Extras, PreparedPrompts, Prompt, RngState, sessions};
use crate::loadgen::schedule::{self, DrawnSchedule};
use crate::loadgen::{LoadResult, PlannedRequest};
use crate::plan::Protocol;
use crate::results::record::request::Request;
use crate::runner::pauses::Pauses;

/// The requests of a load.
pub(super) struct PreparedRequests {
    pub(super) items: Vec<PlannedRequest>,
    /// Digest of due times and adapters.
    pub(super) schedule: ContentHash,
    /// When one more request would fall due, if there were another prompt; `None` if none would, or at once.
    pub(super) next: Option<Duration>,
}

/// A part of the prompts, treated as if the data set consisted of it.
#[derive(Clone, Copy)]
pub(crate) struct PromptRange {
    /// Index of the first prompt; the data set is repeated after its end.
    pub(crate) first_prompt: usize,
    /// Number of prompts, at most the size of the data set.
    pub(crate) count: usize,
    /// Requests that fall due later are left out.
    pub(crate) due_before: Option<Duration>,
}

impl PromptRange {
    pub(super) fn full(prepared: &PreparedPrompts) -> Self {
        Self {
            first_prompt: 0,
            count: prepared.prompts.len(),
            due_before: None,
        }
    }
}

/// The requests of a part with their due times. Arrivals and adapters are drawn from `draws`, which continues
/// the draws of the data set.
pub(super) fn prepare_requests(
    scenario: &Scenario,
    prepared: &PreparedPrompts,
    part: PromptRange,
    draws: &mut RngState,
) -> PreparedRequests {
    if let Some(items) = session_requests(scenario, prepared, draws) {
        return items;
    }
    let prompts = &prepared.prompts;
    let moments = trace_moments(prompts);
    let arrival = match moments {
        // A trace has due times of its own, and no gap is drawn.
        Some(_) => Arrival {
            rate: RequestRate::INFINITE,
            pace: None,
            ..scenario.arrival.clone()
        },
        None => scenario.arrival.clone(),
    };
    let DrawnSchedule {
        due,
        mut adapters,
        next,
    } = match scenario.client_style() {
        ClientStyle::BenchServing => {
            schedule::draw_schedule(&arrival, scenario.lora.as_ref(), part.count, draws)
        }
        ClientStyle::VllmServe => {
            schedule::draw_vllm_schedule(&arrival, scenario.lora.as_ref(), part.count, draws)
        }
    };
    let mut due = match moments {
        Some(moments) if scenario.client_style() == ClientStyle::VllmServe => {
            schedule::ordered_times(moments.into_iter().take(part.count))
        }
        Some(moments) => {
            let mut due = schedule::replay_times(&moments, scenario.workload.facts().slowdown.unwrap_or(1.0));
            due.truncate(part.count);
            due
        }
        None => due,
    };
    if let Some(end) = part.due_before {
        due.retain(|due| *due < end);
    }
    adapters.truncate(due.len());
    let schedule = schedule::schedule_hash(&due, &adapters);
    let names = adapter_names(scenario);
    let mut pauses = Pauses::new(scenario);
    let items = due.into_iter().enumerate().map(|(row, due)| {
        let lora = adapters.get(row).map(|place| Arc::clone(&names[*place]));
        let prompt = &prompts[(part.first_prompt + row) % prompts.len()];
        pauses.set(planned_request(prompt, due, lora))
    });
    PreparedRequests {
        items: items.collect(),
        schedule,
        next,
    }
}

/// The requests of sessions, all due at the arrival of their session; `None` for prompts without sessions.
fn session_requests(
    scenario: &Scenario,
    prepared: &PreparedPrompts,
    draws: &mut RngState,
) -> Option<PreparedRequests> {
    let session = |prompt: &Prompt| Some(prompt.extras.as_ref()?.session.as_ref()?.session);
    let last = prepared.prompts.iter().filter_map(session).max()?;
    let drawn = schedule::draw_schedule(
        &scenario.arrival,
        scenario.lora.as_ref(),
        last as usize + 1,
        draws,
    );
    let names = adapter_names(scenario);
    let mut pauses = Pauses::new(scenario);
    let items = prepared.prompts.iter().filter_map(|prompt| {
        let number = session(prompt)? as usize;
        let lora = drawn.adapters.get(number).map(|place| Arc::clone(&names[*place]));
        // A session that the last stage leaves out never falls due.
        let due = *drawn.due.get(number)?;
        Some(pauses.set(planned_request(prompt, due, lora)))
    });
    Some(PreparedRequests {
        items: items.collect(),
        schedule: schedule::schedule_hash(&drawn.due, &drawn.adapters),
        next: drawn.next,
    })
}

/// The prompts ran out before the sending time was over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PromptsExhausted {
    sent: usize,
    /// Time until the prompts ran out.
    pub(crate) duration: Duration,
    window: Duration,
}

impl PromptsExhausted {
    /// Describes it; `key` is the setting to raise.
    pub(crate) fn describe(&self, key: &str) -> String {
        format!(
            "the {} prompts ran out after {:.1} of {} s: no request was sent for the rest of the time; raise {key}",
            self.sent,
            self.duration.as_secs_f64(),
            self.window.as_secs_f64()
        )
    }
}

/// Whether the prompts ran out before the sending time was over. `sent` is the number of prompts, `next` the
/// due time of one more.
pub(super) fn prompts_exhausted(
    scenario: &Scenario,
    sent: usize,
    next: Option<Duration>,
    driven: &LoadResult,
) -> Option<PromptsExhausted> {
    let window = scenario.arrival.sending_window(scenario.limits.duration)?;
    let is_closed_loop = scenario.arrival.concurrency.is_some() && !scenario.arrival.is_paced();
    let after = match is_closed_loop && !scenario.workload.is_replayed() {
        // In a closed loop, prompts remain if not all conversations were begun.
        true => {
            let first_rounds = driven
                .records
                .iter()
                .filter(|request| request.round.unwrap_or(0) == 0);
            (first_rounds.count() == sent).then_some(driven.wall)?
        }
        false => next?,
    };
    (after < window).then_some(PromptsExhausted {
        sent,
        duration: after,
        window,
    })
}

/// Sends token ids as text where the protocol takes no ids: as a message where it takes messages. Fails with a
/// message if the tokenizer reads other tokens in the text.
pub(super) fn replace_session_ids(
    items: Vec<PlannedRequest>,
    protocol: Protocol,
    tokenizer: &Tokenizer,
) -> Result<Vec<PlannedRequest>, String> {
    if protocol.carries(Feature::TokenIds) {
        return Ok(items);
    }
    let replace = |item: PlannedRequest| {
        let Content::Ids(ids) = &item.content else {
            return Ok(item);
        };
        let text = sessions::as_text(ids, tokenizer)?;
        let content = match protocol.carries(Feature::Messages) {
            true => Content::Messages(vec![sessions::user_message(text)]),
            false => Content::Text(text.into()),
        };
        Ok(PlannedRequest { content, ..item })
    };
    items.into_iter().map(replace).collect()
}

/// Puts images where the protocol expects them: SGLang's native protocol needs them in the text that the chat
/// template makes. Fails with a message if there is no such text.
pub(super) fn insert_image_placeholders(
    items: Vec<PlannedRequest>,
    protocol: Protocol,
    tokenizer: &Tokenizer,
) -> Result<Vec<PlannedRequest>, String> {
    let has_pictures = |item: &PlannedRequest| matches!(item.content, Content::Images { .. });
    if protocol != Protocol::SglangNative || !items.iter().any(has_pictures) {
        return Ok(items);
    }
    let placed = || {
        let template = ChatTemplate::open(tokenizer)?;
        let item = |item: PlannedRequest| {
            Ok(PlannedRequest {
                content: with_placeholders(&item.content, &template)?,
                ..item
            })
        };
        items.into_iter().map(item).collect::<Result<_, TemplateError>>()
    };
    placed().map_err(|error| error.to_string())
}

/// Sets the vision tokens of prompts with images: the server's count beyond our count of the text.
pub(super) fn reconcile_vision_tokens(requests: &mut [Request], prompts: &[Prompt]) {
    for request in requests {
        let prompt = usize::try_from(request.index)
            .ok()
            .and_then(|row| prompts.get(row));
        let has_pictures = prompt.is_some_and(|prompt| matches!(prompt.content, Content::Images { .. }));
        let reported = request.usage.and_then(|usage| usage.prompt);
        if let Some(reported) = reported.filter(|reported| has_pictures && *reported > request.prompt_tokens)
        {
            request.vision_tokens = reported - request.prompt_tokens;
            request.prompt_tokens = reported;
        }
    }
}

/// The warm-up request, its answer limited to `limit` tokens; `None` if there is no prompt.
///
/// As in the Python tool it is the first request, the whole first conversation, or the data set's own warm-up
/// prompt. It has no fields of the row and uses the first adapter; that of `vllm bench serve` has the fields and uses
/// no adapter.
pub(super) fn warm_up_item(
    scenario: &Scenario,
    prepared: &PreparedPrompts,
    limit: Option<u32>,
) -> Option<PlannedRequest> {
    let prompt = prepared.warmup.as_ref().or(prepared.prompts.first())?;
    let adapter = match scenario.client_style() {
        ClientStyle::BenchServing => adapter_names(scenario).into_iter().next(),
        ClientStyle::VllmServe => None,
    };
    let mut item = planned_request(prompt, Duration::ZERO, adapter);
    let turns = prompt.extras.as_ref().and_then(|extras| extras.turns.clone());
    let body = match (scenario.client_style(), &prompt.extras) {
        (ClientStyle::VllmServe, Some(extras)) => extras.body.clone(),
        _ => Map::new(),
    };
    item.extras = (turns.is_some() || !body.is_empty()).then(|| {
        Arc::new(Extras {
            turns,
            body,
            ..Extras::default()
        })
    });
    item.requested_tokens = item.requested_tokens.min(limit.unwrap_or(u32::MAX));
    Some(item)
}

/// The due times of a trace, if every row has one.
fn trace_moments(prompts: &[Prompt]) -> Option<Vec<Duration>> {
    prompts.iter().map(|prompt| prompt.extras.as_ref()?.at).collect()
}

/// The requests that fill the prefix cache before the load.
pub(super) fn priming_items(scenario: &Scenario, prepared: &PreparedPrompts) -> Vec<PlannedRequest> {
    let lora = adapter_names(scenario).into_iter().next();
    let item = |prompt: &Prompt| planned_request(prompt, Duration::ZERO, lora.clone());
    prepared.priming.iter().map(item).collect()
}

fn adapter_names(scenario: &Scenario) -> Vec<Arc<str>> {
    let names = scenario.lora.iter().flat_map(|lora| &lora.names);
    names.map(|name| Arc::from(name.as_str())).collect()
}

fn planned_request(prompt: &Prompt, due: Duration, lora: Option<Arc<str>>) -> PlannedRequest {
    PlannedRequest {
        content: prompt.content.clone(),
        prompt_tokens: prompt.prompt_tokens,
        requested_tokens: prompt.output_tokens,
        due,
        lora_adapter: lora,
        extras: prompt.extras.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loadgen::dataset::rng;
    use crate::results::store::testing;

    fn prepared(count: usize) -> PreparedPrompts {
        PreparedPrompts {
            prompts: vec![
                Prompt {
                    content: Content::Text("a".to_owned().into()),
                    prompt_tokens: 1,
                    output_tokens: 1,
                    extras: None,
                };
                count
            ],
            hash: ContentHash::from_value(&"a"),
            rng: RngState {
                python: rng::Python::new(1),
                numpy: rng::Numpy::new(1),
            },
            input_tokens: 0,
            output_tokens: 0,
            printed_lines: Vec::new(),
            warmup: None,
            priming: Vec::new(),
        }
    }

    /// Source: docs/bench-serving.md 5.1. Its third gap is the first one that the second load waits for.
    #[test]
    fn draws_run_on_from_one_load_to_the_next() {
        let plan = testing::plan();
        let mut scenario = plan.cells[0].scenario.clone();
        scenario.arrival.rate = RequestRate::new(4.0).unwrap();
        let prepared = prepared(2);
        let mut draws = prepared.rng.clone();
        let all = PromptRange::full(&prepared);
        let mut second = || {
            prepare_requests(&scenario, &prepared, all, &mut draws).items[1]
                .due
                .as_secs_f64()
        };
        assert!((second() - 0.134_901_459_314_796_36).abs() < 1e-9);
        assert!((second() - 2.859_533_966_077_148e-5).abs() < 1e-9);
    }
}
