//! Converts prompts to requests: due times, adapters, and warm-up requests.

use std::sync::Arc;
use std::time::Duration;

use crate::base::ids::ContentHash;
use crate::base::units::RequestRate;
use crate::config::arrival::Arrival;
use crate::config::scenario::Scenario;
use crate::loadgen::dataset::images::with_placeholders;
use crate::loadgen::dataset::template::{ChatTemplate, TemplateError};
use crate::loadgen::dataset::tokenizer::Tokenizer;
use crate::loadgen::dataset::{Content, Draws, Extras, Prepared, Prompt};
use crate::loadgen::schedule::{self, Drawn};
use crate::loadgen::{Driven, Item};
use crate::plan::Protocol;
use crate::results::record::request::Request;

/// The requests of a load.
pub(super) struct Sending {
    pub(super) items: Vec<Item>,
    /// Digest of due times and adapters.
    pub(super) schedule: ContentHash,
    /// When one more request would fall due, if there were another prompt; `None` if none would, or at once.
    pub(super) next: Option<Duration>,
}

/// A part of the prompts, treated as if the data set consisted of it.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    /// Index of the first prompt; the data set is repeated after its end.
    pub(crate) from: usize,
    /// Number of prompts, at most the size of the data set.
    pub(crate) count: usize,
    /// Requests that fall due later are left out.
    pub(crate) before: Option<Duration>,
}

impl Part {
    pub(super) fn whole(prepared: &Prepared) -> Self {
        Self {
            from: 0,
            count: prepared.prompts.len(),
            before: None,
        }
    }
}

/// The requests of a part with their due times. Arrivals and adapters are drawn from `draws`, which continues
/// the draws of the data set.
pub(super) fn part(scenario: &Scenario, prepared: &Prepared, part: Part, draws: &mut Draws) -> Sending {
    let prompts = &prepared.prompts;
    let moments = moments(prompts);
    let arrival = match moments {
        // A trace has due times of its own, and no gap is drawn.
        Some(_) => Arrival {
            rate: RequestRate::INFINITE,
            pace: None,
            ..scenario.arrival.clone()
        },
        None => scenario.arrival.clone(),
    };
    let Drawn {
        due,
        mut adapters,
        next,
    } = schedule::drawn(&arrival, scenario.lora.as_ref(), part.count, draws);
    let mut due = match moments {
        Some(moments) => {
            let mut due = schedule::replayed(&moments, scenario.workload.facts().slowdown.unwrap_or(1.0));
            due.truncate(part.count);
            due
        }
        None => due,
    };
    if let Some(end) = part.before {
        due.retain(|due| *due < end);
    }
    adapters.truncate(due.len());
    let schedule = schedule::hash(&due, &adapters);
    let names = names(scenario);
    let items = due.into_iter().enumerate().map(|(row, due)| {
        let lora = adapters.get(row).map(|place| Arc::clone(&names[*place]));
        item(&prompts[(part.from + row) % prompts.len()], due, lora)
    });
    Sending {
        items: items.collect(),
        schedule,
        next,
    }
}

/// The prompts ran out before the sending time was over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RanOut {
    /// Number of prompts.
    sent: usize,
    /// Time until the prompts ran out.
    pub(crate) after: Duration,
    /// Planned sending time.
    window: Duration,
}

impl RanOut {
    /// Describes it; `key` is the setting to raise.
    pub(crate) fn says(&self, key: &str) -> String {
        format!(
            "the {} prompts ran out after {:.1} of {} s: nothing was sent for the rest of the time; raise {key}",
            self.sent,
            self.after.as_secs_f64(),
            self.window.as_secs_f64()
        )
    }
}

/// Whether the prompts ran out before the sending time was over. `sent` is the number of prompts, `next` the
/// due time of one more.
pub(super) fn ran_out(
    scenario: &Scenario,
    sent: usize,
    next: Option<Duration>,
    driven: &Driven,
) -> Option<RanOut> {
    let window = scenario.arrival.window(scenario.limits.duration)?;
    let is_closed_loop = scenario.arrival.concurrency.is_some() && !scenario.arrival.is_paced();
    let after = match is_closed_loop && !scenario.workload.is_replayed() {
        // In a closed loop, prompts remain if not all conversations were begun.
        true => {
            let first_rounds = driven
                .requests
                .iter()
                .filter(|request| request.round.unwrap_or(0) == 0);
            (first_rounds.count() == sent).then_some(driven.wall)?
        }
        false => next?,
    };
    (after < window).then_some(RanOut { sent, after, window })
}

/// Puts images where the protocol expects them: SGLang's native protocol needs them in the text that the chat
/// template makes. Fails with a message if there is no such text.
pub(super) fn placed(
    items: Vec<Item>,
    protocol: Protocol,
    tokenizer: &Tokenizer,
) -> Result<Vec<Item>, String> {
    let has_pictures = |item: &Item| matches!(item.content, Content::Pictures { .. });
    if protocol != Protocol::SglangNative || !items.iter().any(has_pictures) {
        return Ok(items);
    }
    let placed = || {
        let template = ChatTemplate::open(tokenizer)?;
        let item = |item: Item| {
            Ok(Item {
                content: with_placeholders(&item.content, &template)?,
                ..item
            })
        };
        items.into_iter().map(item).collect::<Result<_, TemplateError>>()
    };
    placed().map_err(|error| error.to_string())
}

/// Sets the vision tokens of prompts with images: the server's count beyond our count of the text.
pub(super) fn see(requests: &mut [Request], prompts: &[Prompt]) {
    for request in requests {
        let prompt = usize::try_from(request.index)
            .ok()
            .and_then(|row| prompts.get(row));
        let has_pictures = prompt.is_some_and(|prompt| matches!(prompt.content, Content::Pictures { .. }));
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
/// prompt. It has no fields of the row and uses the first adapter.
pub(super) fn warm_up_item(scenario: &Scenario, prepared: &Prepared, limit: Option<u32>) -> Option<Item> {
    let prompt = prepared.warmup.as_ref().or(prepared.prompts.first())?;
    let mut item = item(prompt, Duration::ZERO, names(scenario).into_iter().next());
    let turns = prompt.extras.as_ref().and_then(|extras| extras.turns.clone());
    item.extras = turns.map(|turns| {
        Arc::new(Extras {
            turns: Some(turns),
            ..Extras::default()
        })
    });
    item.asked_tokens = item.asked_tokens.min(limit.unwrap_or(u32::MAX));
    Some(item)
}

/// The due times of a trace, if every row has one.
fn moments(prompts: &[Prompt]) -> Option<Vec<Duration>> {
    prompts.iter().map(|prompt| prompt.extras.as_ref()?.at).collect()
}

fn names(scenario: &Scenario) -> Vec<Arc<str>> {
    let names = scenario.lora.iter().flat_map(|lora| &lora.names);
    names.map(|name| Arc::from(name.as_str())).collect()
}

fn item(prompt: &Prompt, due: Duration, lora: Option<Arc<str>>) -> Item {
    Item {
        content: prompt.content.clone(),
        prompt_tokens: prompt.prompt_tokens,
        asked_tokens: prompt.output_tokens,
        due,
        lora,
        extras: prompt.extras.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loadgen::dataset::rng;
    use crate::results::store::testing;

    fn prepared(count: usize) -> Prepared {
        Prepared {
            prompts: vec![
                Prompt {
                    content: Content::Text("a".to_owned().into()),
                    prompt_tokens: 1,
                    output_tokens: 1,
                    extras: None,
                };
                count
            ],
            hash: ContentHash::of(&"a"),
            draws: Draws {
                python: rng::Python::new(1),
                numpy: rng::Numpy::new(1),
            },
            input_tokens: 0,
            output_tokens: 0,
            said: Vec::new(),
            warmup: None,
        }
    }

    /// Source: docs/bench-serving.md 5.1. Its third gap is the first one that the second load waits for.
    #[test]
    fn draws_run_on_from_one_load_to_the_next() {
        let plan = testing::plan();
        let mut scenario = plan.cells[0].scenario.clone();
        scenario.arrival.rate = RequestRate::new(4.0).unwrap();
        let prepared = prepared(2);
        let mut draws = prepared.draws.clone();
        let all = Part::whole(&prepared);
        let mut second = || {
            part(&scenario, &prepared, all, &mut draws).items[1]
                .due
                .as_secs_f64()
        };
        assert!((second() - 0.134_901_459_314_796_36).abs() < 1e-9);
        assert!((second() - 2.859_533_966_077_148e-5).abs() < 1e-9);
    }
}
