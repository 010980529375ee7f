//! Checks the scenarios of a matrix.

use super::axes::{check_selector_axes, empty_axis};
use super::diagnostics::with_place;
use crate::config::arrival::RateProfile;
use crate::config::builtin_scenarios;
use crate::config::dataset::length_distribution::Lengths;
use crate::config::dataset::{DatasetName, WorkloadError};
use crate::config::forms::Named;
use crate::config::lora::Lora;
use crate::config::matrix::{Matrix, ScenarioEntry};
use crate::config::scenario::Slo;
use crate::config::search::{SearchVariable, Tier};
use crate::config::workload::{CHECKABLE_ANSWERS, Workload, unread_option};
use crate::config::yaml::{Diagnostic, backtick_list, nearest_name};

/// The errors of all scenarios.
pub(super) fn check_scenarios(matrix: &Matrix, diagnostics: &mut Vec<Diagnostic>) {
    for named in matrix.scenarios.iter() {
        check_scenario(matrix, named, diagnostics);
    }
    check_quality(matrix, diagnostics);
}

fn check_scenario(matrix: &Matrix, named: &Named<ScenarioEntry>, diagnostics: &mut Vec<Diagnostic>) {
    let entry = &named.value;
    let prompts = entry.prompts.as_ref().map_or(1, |prompts| prompts.value);
    let Ok(workload) = builtin_scenarios::completed(named).workload(prompts) else {
        let message = format!("invalid `dataset` in the scenario `{}`", named.name);
        let why = "an option of the data set is infinite; write a finite number";
        diagnostics.push(with_place(
            Diagnostic::new(message),
            named.name.place.as_ref(),
            why,
        ));
        return;
    };
    let Some(workload) = workload else {
        diagnostics.push(missing_dataset(named));
        return;
    };
    let dataset = workload.dataset.name();
    let mut errors = workload.find_errors(matrix.profile);
    errors.extend(zero_lengths(&workload, &errors));
    if entry.range_ratio.is_some() && !dataset.reads("range_ratio") {
        errors.push(WorkloadError {
            field: "range_ratio".to_owned(),
            message: unread_option(dataset, "range_ratio"),
        });
    }
    let sets_lengths = entry.lengths.as_ref().is_some_and(Lengths::sets_both);
    if entry.range_ratio.is_some() && sets_lengths {
        errors.push(WorkloadError {
            field: "range_ratio".to_owned(),
            message:
                "`range_ratio` has no effect, because `lengths` sets both lengths; remove one of the two"
                    .to_owned(),
        });
    }
    for error in errors {
        let place = match error.field.as_str() {
            "prompts" => entry.prompts.as_ref().and_then(|prompts| prompts.place.as_ref()),
            "range_ratio" => entry.range_ratio.as_ref().and_then(|ratio| ratio.place.as_ref()),
            _ => None,
        };
        let message = format!("invalid `{}` in the scenario `{}`", error.field, named.name);
        diagnostics.push(with_place(
            Diagnostic::new(message),
            place.or(named.name.place.as_ref()),
            error.message,
        ));
    }
    check_load_keys(named, &workload, diagnostics);
    check_dataset_keys(named, dataset, diagnostics);
    check_answer_demands(named, &workload, diagnostics);
    check_error_shares(entry, diagnostics);
    check_rate_profile(named, diagnostics);
    check_drain(named, diagnostics);
    if dataset == DatasetName::Mooncake {
        check_trace_arrival(named, diagnostics);
    }
    if entry.rate.as_ref().is_some_and(|list| list.0.is_empty()) {
        diagnostics.push(empty_axis(
            entry.rate.as_ref().and_then(|list| list.place.as_ref()),
        ));
    }
    if entry.concurrency.as_ref().is_some_and(|list| list.0.is_empty()) {
        diagnostics.push(empty_axis(
            entry.concurrency.as_ref().and_then(|list| list.place.as_ref()),
        ));
    }
}

/// The errors of graded tasks.
fn check_quality(matrix: &Matrix, diagnostics: &mut Vec<Diagnostic>) {
    let Some(quality) = &matrix.quality else {
        return;
    };
    if quality.tasks.is_empty() && !quality.probes {
        let message = "`quality` has no tasks and no probes";
        let diagnostic = with_place(Diagnostic::new(message), quality.tasks.place.as_ref(), "empty");
        diagnostics.push(diagnostic.with_help(
            "name a task, such as `tasks: [arithmetic]`, set `probes: true`, or remove `quality`",
        ));
    }
    for (name, what, fix) in quality.find_errors() {
        let message = format!("invalid task `{name}` in `quality`");
        diagnostics.push(with_place(Diagnostic::new(message), name.place.as_ref(), what).with_help(fix));
    }
    if let Some(reference) = &quality.reference {
        check_selector_axes(&reference.value.cells, diagnostics);
        if let Some((run, what)) = reference.run_error() {
            let diagnostic = Diagnostic::new("`run` in the `reference` of `quality` is invalid");
            let diagnostic = with_place(diagnostic, run.place.as_ref(), what);
            diagnostics.push(
                diagnostic
                    .with_help("name a stored run in the same way as for `matrix report`, or remove `run`"),
            );
        }
    }
}

/// Errors about adapters, pauses, cancellation and a search, which some workloads do not allow.
fn check_load_keys(named: &Named<ScenarioEntry>, workload: &Workload, diagnostics: &mut Vec<Diagnostic>) {
    let entry = &named.value;
    if let Some(why) = entry.lora.as_ref().and_then(Lora::find_error) {
        let message = format!("invalid `lora` in the scenario `{}`", named.name);
        diagnostics.push(with_place(
            Diagnostic::new(message),
            named.name.place.as_ref(),
            why,
        ));
    }
    for (key, why) in entry.pacing().find_errors(workload) {
        diagnostics.push(with_place(
            Diagnostic::new(format!("invalid `{key}` in the scenario `{}`", named.name)),
            named.name.place.as_ref(),
            why,
        ));
    }
    if let Some(cancel) = &entry.cancel
        && let Some(why) = cancel.value.find_error()
    {
        let message = format!("invalid `cancel` in the scenario `{}`", named.name);
        diagnostics.push(
            with_place(Diagnostic::new(message), cancel.place.as_ref(), why)
                .with_help("for example `cancel: { share: 0.2, after_tokens: 50 }` or `cancel: { share: 0.2, after: 2s }`"),
        );
    }
    let Some(search) = &entry.search else { return };
    let is_by_sessions = search.by == SearchVariable::Sessions;
    let name = workload.dataset.bench_serving_name();
    let no_turns = || {
        let help =
            "use `generated-shared-prefix` with `shared_prefix: { turns: 3, … }`, or search by `concurrency`";
        (is_by_sessions && !workload.facts().has_turns()).then(|| {
            format!(
                "the data set `{name}` has no conversations, so the search cannot vary their number; {help}"
            )
        })
    };
    let is_set = is_by_sessions && entry.sessions.is_some();
    let set =
        || is_set.then(|| "the search varies `sessions`, so remove `sessions` from the scenario".to_owned());
    if let Some(why) = workload.search_error().or_else(no_turns).or_else(set) {
        diagnostics.push(with_place(
            Diagnostic::new(format!("invalid `search` in the scenario `{}`", named.name)),
            search.place.as_ref().or(named.name.place.as_ref()),
            why,
        ));
    }
}

/// Errors about lengths of 0 that no other check reports. `matrix bench` draws none for them, as the Python tool does.
fn zero_lengths(workload: &Workload, others: &[WorkloadError]) -> Vec<WorkloadError> {
    let facts = workload.facts();
    let lengths = [
        ("input_len", facts.input_len(), "prompt"),
        ("output_len", facts.output_len, "answer"),
    ];
    let zero = lengths
        .into_iter()
        .filter(|(field, length, _)| *length == Some(0) && !others.iter().any(|other| other.field == *field));
    zero.map(|(field, _, thing)| WorkloadError {
        field: field.to_owned(),
        message: format!("the length of the {thing} is 0; write at least 1 token"),
    })
    .collect()
}

/// Errors about keys that set send times, which a trace has already.
fn check_trace_arrival(named: &Named<ScenarioEntry>, diagnostics: &mut Vec<Diagnostic>) {
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
        let diagnostic = Diagnostic::new(format!("invalid `{key}` in the scenario `{}`", named.name));
        diagnostics.push(
            with_place(diagnostic, place, "a trace already sets all send times").with_help(format!(
                "remove `{key}`, or change the speed of the trace with `mooncake: {{ slowdown: 2 }}`"
            )),
        );
    }
}

/// The error for a scenario without a data set.
fn missing_dataset(named: &Named<ScenarioEntry>) -> Diagnostic {
    let diagnostic = with_place(
        Diagnostic::new(format!("the scenario `{}` has no data set", named.name)),
        named.name.place.as_ref(),
        "this is not a standard scenario, and it has no `dataset`",
    );
    match nearest_name(&named.name, builtin_scenarios::NAMES) {
        Some(near) => {
            let diagnostic = diagnostic.with_help(format!("did you mean `{near}`?"));
            match &named.name.place {
                Some(place) => diagnostic.with_replacement(place, near),
                None => diagnostic,
            }
        }
        None => diagnostic.with_help(format!(
            "add `dataset:`, or use a standard scenario: {}",
            backtick_list(builtin_scenarios::NAMES)
        )),
    }
}

/// Errors about keys whose values the data set determines.
fn check_dataset_keys(named: &Named<ScenarioEntry>, dataset: DatasetName, diagnostics: &mut Vec<Diagnostic>) {
    let entry = &named.value;
    if dataset == DatasetName::GeneratedSharedPrefix && entry.prompts.is_some() {
        diagnostics.push(
            with_place(
                Diagnostic::new(format!("invalid `prompts` in the scenario `{}`", named.name)),
                entry.prompts.as_ref().and_then(|prompts| prompts.place.as_ref()),
                "the data set `generated-shared-prefix` computes the number of prompts itself",
            )
            .with_help("set `groups` and `prompts_per_group` of `shared_prefix`; their product is the number of prompts"),
        );
    }
    if dataset == DatasetName::Mooncake && (entry.rate.is_some() || entry.rate_profile().is_some()) {
        diagnostics.push(
            with_place(
                Diagnostic::new(format!("the scenario `{}` cannot have a rate", named.name)),
                entry.rate.as_ref().and_then(|list| list.place.as_ref()),
                "`mooncake` takes the send times from its trace",
            )
            .with_help("remove the rate; to send the trace more slowly, set `mooncake: { slowdown: 2 }`"),
        );
    }
}

/// The error for a check of answers of which no request demands anything.
fn check_answer_demands(
    named: &Named<ScenarioEntry>,
    workload: &Workload,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let entry = &named.value;
    let Some(check) = entry.check_answers.as_ref().filter(|check| check.value) else {
        return;
    };
    if !workload.may_demand_answers(&entry.body.0) {
        diagnostics.push(
            with_place(
                Diagnostic::new(format!(
                    "invalid `check_answers` in the scenario `{}`",
                    named.name
                )),
                check.place.as_ref().or(named.name.place.as_ref()),
                "no request says what its answer must be",
            )
            .with_help(format!("{CHECKABLE_ANSWERS}, or remove it")),
        );
    }
}

fn check_error_shares(entry: &ScenarioEntry, diagnostics: &mut Vec<Diagnostic>) {
    for (key, share) in [
        ("error_share", &entry.error_share),
        ("abort_error_share", &entry.abort_error_share),
    ] {
        let Some(share) = share.as_ref().filter(|share| !(0.0..=1.0).contains(&share.value)) else {
            continue;
        };
        diagnostics.push(
            with_place(
                Diagnostic::new(format!("`{key}` is {}", share.value)),
                share.place.as_ref(),
                "not between 0 and 1",
            )
            .with_help(format!("`{key}` is a share of the requests, such as 0.01")),
        );
    }
}

/// The error for a drain period after a load that has no fixed end.
fn check_drain(named: &Named<ScenarioEntry>, diagnostics: &mut Vec<Diagnostic>) {
    let entry = &named.value;
    let searches_for_a_time = || {
        let search = entry.search.as_ref();
        search.is_some_and(|search| search.value.duration.is_some())
    };
    if entry.drain.is_some() && entry.duration.is_none() && !searches_for_a_time() {
        diagnostics.push(
            with_place(
                Diagnostic::new(format!(
                    "the scenario `{}` sets `drain`, but no `duration`",
                    named.name
                )),
                named.name.place.as_ref(),
                "`drain` starts at the end of `duration`",
            )
            .with_help("add `duration:`, or limit each request with `timeout:`"),
        );
    }
}

/// Errors about changing rates and searches, and about keys that cannot be combined with them.
fn check_rate_profile(named: &Named<ScenarioEntry>, diagnostics: &mut Vec<Diagnostic>) {
    let (entry, name) = (&named.value, &named.name);
    let ramp = entry.ramp.as_ref().map(|ramp| ramp.place.as_ref());
    let stages = entry.stages.as_ref().map(|stages| stages.place.as_ref());
    if ramp.is_some()
        && let Some(place) = stages
    {
        diagnostics.push(
            with_place(
                Diagnostic::new(format!("the scenario `{name}` has both `ramp` and `stages`")),
                place,
                "`ramp` sets the rate already",
            )
            .with_help("remove `ramp` or `stages`, or write two scenarios"),
        );
    }
    if let Some(pace) = entry.rate_profile() {
        let place = ramp.or(stages).flatten();
        let prompts = entry.prompts.as_ref().map(|prompts| prompts.value);
        if let Some(why) = pace.find_error(prompts.unwrap_or(u32::MAX)) {
            let diagnostic = Diagnostic::new(format!("invalid `{}` in the scenario `{name}`", pace.name()));
            diagnostics.push(with_place(diagnostic, place, why).with_help(match pace {
                RateProfile::Ramp(_) => "for example `ramp: { from: 1, to: 16, over: 60s }`",
                RateProfile::Stages(_) => {
                    "for example `stages: [{ rate: 2, duration: 30s }]`, with enough `prompts` for all stages"
                }
            }));
        }
    }
    if let Some(tiers) = &entry.slo
        && let Some((why, help)) = tier_error(tiers, entry.search.is_some())
    {
        let diagnostic = Diagnostic::new(format!("invalid `slo` in the scenario `{name}`"));
        diagnostics.push(with_place(diagnostic, tiers.place.as_ref(), why).with_help(help));
    }
    let Some(search) = &entry.search else { return };
    let mut reject = |why: String, help: &str| {
        let diagnostic = Diagnostic::new(format!("invalid `search` in the scenario `{name}`"));
        diagnostics.push(with_place(diagnostic, search.place.as_ref(), why).with_help(help));
    };
    if let Some(why) = search.find_error() {
        reject(
            why,
            "for example `search: { by: rate, from: 16, to: 64, target: 0.99, duration: 10m }`",
        );
    }
    if entry.slo.is_none() {
        reject(
            "a search needs an SLO".to_owned(),
            "add `slo:`, such as `slo: { ttft: 500ms, tpot: 50ms }`",
        );
    }
    if entry.rate_profile().is_some() {
        reject(
            "a search needs a rate that does not change during a measurement".to_owned(),
            "remove `ramp` and `stages`, or remove `search`",
        );
    }
}

/// Says why these tiers of an SLO are impossible, and the fix.
fn tier_error(tiers: &[Slo], is_search: bool) -> Option<(String, &'static str)> {
    let is_both = |slo: &Slo| slo.tpot.is_some() && slo.speed.is_some();
    let is_known = |(place, slo): (usize, &Slo)| tiers[..place].contains(slo);
    if tiers.is_empty() {
        return Some(("the list is empty".to_owned(), "write one SLO, or remove `slo`"));
    }
    if tiers.len() > 1 && !is_search {
        return Some((
            "several tiers need a search, which finds the capacity of each tier".to_owned(),
            "write one SLO, or add `search`",
        ));
    }
    if tiers.len() > usize::from(Tier::MAX) {
        return Some((
            format!("{} tiers are too many", tiers.len()),
            "write at most six tiers in `slo`, or write several scenarios",
        ));
    }
    if tiers.iter().any(is_both) {
        return Some((
            "`speed` and `tpot` both limit the time per output token".to_owned(),
            "remove `speed` or `tpot`: `speed: 20 tok/s` means the same as `tpot: 50ms`",
        ));
    }
    let is_repeated = tiers.len() > 1 && tiers.iter().enumerate().any(is_known);
    is_repeated.then(|| ("two tiers of `slo` are the same".to_owned(), "remove one of them"))
}
