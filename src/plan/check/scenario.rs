//! Scenarios that cannot be sent.

use super::{at, empty_axis};
use crate::config::arrival::Pace;
use crate::config::builtin_scenarios;
use crate::config::dataset::DatasetName;
use crate::config::forms::Named;
use crate::config::lora::Lora;
use crate::config::matrix::{Matrix, ScenarioEntry};
use crate::config::yaml::{Mistake, listed, nearest};

/// The mistakes of all scenarios.
pub(super) fn all(matrix: &Matrix, mistakes: &mut Vec<Mistake>) {
    for named in matrix.scenarios.iter() {
        scenario(matrix, named, mistakes);
    }
}

fn scenario(matrix: &Matrix, named: &Named<ScenarioEntry>, mistakes: &mut Vec<Mistake>) {
    let entry = &named.value;
    let prompts = entry.prompts.as_ref().map_or(1, |prompts| prompts.value);
    let Ok(workload) = builtin_scenarios::completed(named).workload(prompts) else {
        let message = format!("the scenario `{}` cannot be: `dataset`", named.name);
        let why = "a number among the options of its data set is infinite; write a finite one";
        mistakes.push(at(Mistake::new(message), named.name.place.as_ref(), why));
        return;
    };
    let Some(workload) = workload else {
        let mistake = at(
            Mistake::new(format!("the scenario `{}` does not say what is sent", named.name)),
            named.name.place.as_ref(),
            "no standard scenario, and no `dataset`",
        );
        mistakes.push(match nearest(&named.name, builtin_scenarios::NAMES) {
            Some(near) => {
                let mistake = mistake.help(format!("did you mean `{near}`?"));
                match &named.name.place {
                    Some(place) => mistake.replace(place, near),
                    None => mistake,
                }
            }
            None => mistake.help(format!(
                "add `dataset:`, or use a standard one: {}",
                listed(builtin_scenarios::NAMES)
            )),
        });
        return;
    };
    let dataset = workload.dataset.name();
    for objection in workload.objections(matrix.profile) {
        let place = match objection.field.as_str() {
            "prompts" => entry.prompts.as_ref().and_then(|prompts| prompts.place.as_ref()),
            "range_ratio" => entry.range_ratio.as_ref().and_then(|ratio| ratio.place.as_ref()),
            _ => None,
        };
        let message = format!("the scenario `{}` cannot be: `{}`", named.name, objection.field);
        mistakes.push(at(
            Mistake::new(message),
            place.or(named.name.place.as_ref()),
            objection.says,
        ));
    }
    if let Some(why) = entry.lora.as_ref().and_then(Lora::objection) {
        let message = format!("the scenario `{}` cannot be: `lora`", named.name);
        mistakes.push(at(Mistake::new(message), named.name.place.as_ref(), why));
    }
    if dataset == DatasetName::GeneratedSharedPrefix && entry.prompts.is_some() {
        mistakes.push(
            at(
                Mistake::new(format!("the scenario `{}` cannot be: `prompts`", named.name)),
                entry.prompts.as_ref().and_then(|prompts| prompts.place.as_ref()),
                "`generated-shared-prefix` has a number of its own",
            )
            .help("set `groups` and `prompts_per_group` of `shared_prefix`, whose product it is"),
        );
    }
    if dataset == DatasetName::Mooncake && (entry.rate.is_some() || entry.pace().is_some()) {
        mistakes.push(
            at(
                Mistake::new(format!("the scenario `{}` cannot have a rate", named.name)),
                entry.rate.as_ref().and_then(|list| list.place.as_ref()),
                "`mooncake` has its moments in its trace",
            )
            .help("remove it; `mooncake: { slowdown: 2 }` stretches the trace"),
        );
    }
    for (key, share) in [
        ("error_share", &entry.error_share),
        ("abort_error_share", &entry.abort_error_share),
    ] {
        let Some(share) = share.as_ref().filter(|share| !(0.0..=1.0).contains(&share.value)) else {
            continue;
        };
        mistakes.push(
            at(
                Mistake::new(format!("`{key}` is {}", share.value)),
                share.place.as_ref(),
                "not between 0 and 1",
            )
            .help("it is a share of the requests, such as 0.01"),
        );
    }
    course(named, mistakes);
    let searches_for_a_time = || {
        let search = entry.search.as_ref();
        search.is_some_and(|search| search.value.duration.is_some())
    };
    if entry.drain.is_some() && entry.duration.is_none() && !searches_for_a_time() {
        mistakes.push(
            at(
                Mistake::new(format!(
                    "the scenario `{}` has a `drain` and no `duration`",
                    named.name
                )),
                named.name.place.as_ref(),
                "`drain` counts from the end of `duration`",
            )
            .help("add `duration:`, or bound each request with `timeout:`"),
        );
    }
    if dataset == DatasetName::Mooncake {
        replayed(named, mistakes);
    }
    if entry.rate.as_ref().is_some_and(|list| list.0.is_empty()) {
        mistakes.push(empty_axis(
            entry.rate.as_ref().and_then(|list| list.place.as_ref()),
        ));
    }
    if entry.concurrency.as_ref().is_some_and(|list| list.0.is_empty()) {
        mistakes.push(empty_axis(
            entry.concurrency.as_ref().and_then(|list| list.place.as_ref()),
        ));
    }
}

/// A trace has moments of its own.
fn replayed(named: &Named<ScenarioEntry>, mistakes: &mut Vec<Mistake>) {
    let entry = &named.value;
    let others = [
        ("ramp", entry.ramp.as_ref().map(|ramp| ramp.place.as_ref())),
        (
            "stages",
            entry.stages.as_ref().map(|stages| stages.place.as_ref()),
        ),
        (
            "search",
            entry.search.as_ref().map(|search| search.place.as_ref()),
        ),
    ];
    for (key, place) in others {
        let Some(place) = place else { continue };
        let mistake = Mistake::new(format!("the scenario `{}` cannot be: `{key}`", named.name));
        mistakes.push(
            at(mistake, place, "a trace is sent at its own moments")
                .help("leave it out, or change the speed of the trace with `mooncake: { slowdown: 2 }`"),
        );
    }
}

/// A rate that changes and a search, each with what it cannot stand beside.
fn course(named: &Named<ScenarioEntry>, mistakes: &mut Vec<Mistake>) {
    let (entry, name) = (&named.value, &named.name);
    let ramp = entry.ramp.as_ref().map(|ramp| ramp.place.as_ref());
    let stages = entry.stages.as_ref().map(|stages| stages.place.as_ref());
    if ramp.is_some()
        && let Some(place) = stages
    {
        mistakes.push(
            at(
                Mistake::new(format!("the scenario `{name}` has both `ramp` and `stages`")),
                place,
                "a second course of the rate",
            )
            .help("leave one of them out, or make two scenarios"),
        );
    }
    if let Some(pace) = entry.pace() {
        let place = ramp.or(stages).flatten();
        let prompts = entry.prompts.as_ref().map(|prompts| prompts.value);
        if let Some(why) = pace.objection(prompts.unwrap_or(u32::MAX)) {
            let mistake = Mistake::new(format!("the scenario `{name}` cannot be: `{}`", pace.name()));
            mistakes.push(at(mistake, place, why).help(match pace {
                Pace::Ramp(_) => "for example `ramp: { from: 1, to: 16, over: 60s }`",
                Pace::Stages(_) => {
                    "for example `stages: [{ rate: 2, duration: 30s }]`, with `prompts` for all of them"
                }
            }));
        }
    }
    let Some(search) = &entry.search else { return };
    let mut no = |why: String, help: &str| {
        let mistake = Mistake::new(format!("the scenario `{name}` cannot be: `search`"));
        mistakes.push(at(mistake, search.place.as_ref(), why).help(help));
    };
    if let Some(why) = search.objection() {
        no(
            why,
            "for example `search: { by: rate, from: 1, to: 64, target: 0.99, duration: 60s }`",
        );
    }
    if entry.slo.is_none() {
        no(
            "nothing says what makes a request good".to_owned(),
            "add `slo:`, such as `slo: { ttft: 500ms, tpot: 50ms }`",
        );
    }
    if entry.pace().is_some() {
        no(
            "the rate changes while it is measured".to_owned(),
            "leave `ramp` and `stages` out, or `search`",
        );
    }
}
