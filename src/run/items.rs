//! Prompts to requests: when each goes, which adapter it asks for, and what warms up.

use std::sync::Arc;
use std::time::Duration;

use crate::base::ids::ContentHash;
use crate::base::units::RequestRate;
use crate::load::dataset::{Draws, Extras, Prepared, Prompt};
use crate::load::{Item, schedule};
use crate::matrix::spec::arrival::Arrival;
use crate::matrix::spec::scenario::Scenario;

/// What is sent and when, with a digest of both: arrivals and adapters are drawn from `draws`, where the data set's draws ended.
pub(super) fn items(scenario: &Scenario, prepared: &Prepared, draws: &mut Draws) -> (Vec<Item>, ContentHash) {
    let prompts = &prepared.prompts;
    let moments = moments(prompts);
    let arrival = match moments {
        // A trace has its moments, and no gap is drawn.
        Some(_) => Arrival {
            rate: RequestRate::INFINITE,
            pace: None,
            ..scenario.arrival.clone()
        },
        None => scenario.arrival.clone(),
    };
    let (due, adapters) = match &scenario.lora {
        Some(lora) => schedule::dealt(&arrival, lora, prompts.len(), draws),
        None => (
            schedule::due(&arrival, prompts.len(), &mut draws.numpy),
            Vec::new(),
        ),
    };
    let due = match moments {
        Some(moments) => schedule::replayed(&moments, scenario.workload.mooncake().slowdown),
        None => due,
    };
    let hash = schedule::hash(&due, &adapters);
    let names = names(scenario);
    let items = prompts.iter().zip(due).enumerate().map(|(row, (prompt, due))| {
        let lora = adapters.get(row).map(|place| Arc::clone(&names[*place]));
        item(prompt, due, lora)
    });
    (items.collect(), hash)
}

/// The request that warms up, its answer cut to `limit` tokens; `None` if there is nothing to send.
///
/// As by the Python tool it is the first request or the whole first conversation, or what the data set has in their place, without
/// the row's own fields and with the first adapter.
pub(super) fn warm_up(scenario: &Scenario, prepared: &Prepared, limit: Option<u32>) -> Option<Item> {
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
