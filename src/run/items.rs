//! Prompts to requests: when each goes, which adapter it asks for, and what warms up.

use std::sync::Arc;
use std::time::Duration;

use crate::base::ids::ContentHash;
use crate::load::dataset::{Prepared, Prompt};
use crate::load::{Item, schedule};
use crate::matrix::spec::arrival::Arrival;
use crate::matrix::spec::scenario::Scenario;

/// What is sent and when: arrivals and adapters are drawn where the data set's draws ended. With a digest of both.
pub(super) fn items(scenario: &Scenario, prepared: &Prepared) -> (Vec<Item>, ContentHash) {
    let all = Part {
        from: 0,
        count: prepared.prompts.len(),
        before: None,
    };
    part(scenario, prepared, all)
}

/// Some of the prompts, as if the data set began with them and had no more.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// The place of the first one; beyond the end it begins again.
    pub(super) from: usize,
    /// How many; no more than there are.
    pub(super) count: usize,
    /// Only what falls due before this moment.
    pub(super) before: Option<Duration>,
}

/// What is sent of a part, and when.
pub(super) fn part(scenario: &Scenario, prepared: &Prepared, part: Part) -> (Vec<Item>, ContentHash) {
    let prompts = &prepared.prompts;
    let mut draws = prepared.draws.clone();
    let moments = moments(prompts);
    let arrival = match moments {
        // A trace has its moments, and no gap is drawn.
        Some(_) => Arrival {
            rate: crate::base::units::RequestRate::INFINITE,
            pace: None,
            ..scenario.arrival.clone()
        },
        None => scenario.arrival.clone(),
    };
    let (due, mut adapters) = match &scenario.lora {
        Some(lora) => schedule::dealt(&arrival, lora, part.count, &mut draws),
        None => (schedule::due(&arrival, part.count, &mut draws.numpy), Vec::new()),
    };
    let mut due = match moments {
        Some(moments) => {
            let mut due = schedule::replayed(&moments, scenario.workload.mooncake().slowdown);
            due.truncate(part.count);
            due
        }
        None => due,
    };
    if let Some(end) = part.before {
        due.retain(|due| *due < end);
    }
    adapters.truncate(due.len());
    let hash = schedule::hash(&due, &adapters);
    let names = names(scenario);
    let items = due.into_iter().enumerate().map(|(row, due)| {
        let lora = adapters.get(row).map(|place| Arc::clone(&names[*place]));
        item(&prompts[(part.from + row) % prompts.len()], due, lora)
    });
    (items.collect(), hash)
}

/// The request that warms up, its answer cut to `limit` tokens; `None` if there is nothing to send.
///
/// As by the Python tool it is the first request, or what the data set has for it, without the row's own fields and later turns,
/// and with the first adapter.
pub(super) fn warm_up(scenario: &Scenario, prepared: &Prepared, limit: Option<u32>) -> Option<Item> {
    let prompt = prepared.warmup.as_ref().or(prepared.prompts.first())?;
    let mut item = item(prompt, Duration::ZERO, names(scenario).into_iter().next());
    item.extras = None;
    item.asked_tokens = item.asked_tokens.min(limit.unwrap_or(u32::MAX));
    Some(item)
}

/// The moments of a trace, if every row has one.
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
