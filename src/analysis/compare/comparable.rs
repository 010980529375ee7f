//! Decides whether two cells may be compared: what was sent, by which definitions, to what, and who measured.
//!
//! [`comparable`] lists every difference. Two cells that answer different questions (other prompts, weights
//! or definitions) are not comparable. With different numbers of GPUs only metrics per GPU are comparable.
//! All other differences are shown with the ratio. Noise is not considered here.

mod found_differences;
mod machine;
mod prompts;

use std::collections::BTreeSet;

use super::cell_facts::{differing_facts, limit_facts};
use super::compared_cell::{ComparedCell, shared_metric_definitions};
use super::conditions::{ConditionKind, Conditions};
use super::search_bracket::unreliable_search_reason;
use super::settings;
use crate::base::text::pluralize;
use crate::config::workload::Profile;
use crate::plan::Parallel;
use crate::results::record::cell::Definitions;
use crate::results::record::provenance::UnknownFact;
use crate::results::record::validity::Verdict;
use found_differences::FoundDifferences;

/// Which comparison of two cells is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Comparability {
    Comparable,
    WithDifferences(Vec<String>),
    /// A ratio without a verdict, because more than the engine differs. Holds every difference, those of the
    /// environment first.
    DescribedOnly(Vec<String>),
    /// A ratio of metrics per GPU alone, because the numbers of GPUs differ. Holds every difference.
    PerGpuOnly(Vec<String>),
    /// No ratio and no winner. Holds every reason.
    Not(Vec<String>),
}

impl Comparability {
    /// Every difference or reason.
    #[cfg(test)]
    pub(crate) fn reasons(&self) -> &[String] {
        match self {
            Self::Comparable => &[],
            Self::WithDifferences(reasons)
            | Self::DescribedOnly(reasons)
            | Self::PerGpuOnly(reasons)
            | Self::Not(reasons) => reasons,
        }
    }

    /// Returns whether the metrics themselves may be divided.
    pub(crate) const fn allows_ratio(&self) -> bool {
        matches!(
            self,
            Self::Comparable | Self::WithDifferences(_) | Self::DescribedOnly(_)
        )
    }
}

/// Compares the conditions of `one` with those of `other`.
pub(crate) fn comparable(first: &ComparedCell<'_>, second: &ComparedCell<'_>) -> Comparability {
    let mut differences = FoundDifferences::default();
    compare_validity(&mut differences, first, second);
    prompts::compare_prompts(&mut differences, first, second);
    compare_definitions(&mut differences, first, second);
    compare_parallelism(&mut differences, first, second);
    compare_provenance(&mut differences, first, second);
    compare_conditions(&mut differences, first, second);
    machine::compare_machines(&mut differences, first, second);
    compare_searches(&mut differences, first, second);
    let FoundDifferences {
        incomparable: mut apart,
        mut per_gpu,
        mut environment,
        noted: beside,
    } = differences;
    if !apart.is_empty() {
        apart.extend(per_gpu);
        return Comparability::Not(apart);
    }
    if !per_gpu.is_empty() {
        per_gpu.extend(environment);
        per_gpu.extend(beside);
        return Comparability::PerGpuOnly(per_gpu);
    }
    if !environment.is_empty() {
        environment.extend(beside);
        return Comparability::DescribedOnly(environment);
    }
    match beside.is_empty() {
        true => Comparability::Comparable,
        false => Comparability::WithDifferences(beside),
    }
}

fn compare_validity(differences: &mut FoundDifferences, first: &ComparedCell<'_>, second: &ComparedCell<'_>) {
    for (side, name) in [(first, "this row"), (second, "the reference")] {
        let invalid: Vec<_> = side
            .summaries
            .iter()
            .filter_map(|summary| summary.validity.as_ref())
            .filter(|validity| validity.verdict == Verdict::Invalid)
            .collect();
        if invalid.is_empty() {
            continue;
        }
        let reasons = invalid.iter().flat_map(|validity| &validity.reasons);
        let codes: BTreeSet<&str> = reasons
            .filter(|reason| reason.weight == Verdict::Invalid)
            .map(|reason| reason.code.name())
            .collect();
        let codes: Vec<&str> = codes.into_iter().collect();
        differences
            .incomparable
            .push(format!("{name} is invalid ({})", codes.join(", ")));
    }
}

fn compare_definitions(
    differences: &mut FoundDifferences,
    first: &ComparedCell<'_>,
    second: &ComparedCell<'_>,
) {
    // A cell without any metrics differs by its status.
    if shared_metric_definitions(first, second).is_some()
        || first.definitions().is_empty()
        || second.definitions().is_empty()
    {
        return;
    }
    let words = |side: &ComparedCell<'_>| {
        let names = side
            .definitions()
            .into_iter()
            .map(|definitions| match definitions {
                Definitions::Classic => "classic",
                Definitions::Current => "current",
                Definitions::Matrix => "matrix",
            });
        names.collect::<Vec<_>>().join(", ")
    };
    let (first_value, second_value) = (words(first), words(second));
    differences.incomparable.push(format!(
        "the definitions of the metrics differ: {first_value} against {second_value}"
    ));
}

fn compare_parallelism(
    differences: &mut FoundDifferences,
    first: &ComparedCell<'_>,
    second: &ComparedCell<'_>,
) {
    let (first_value, second_value) = (first.launch.gpus(), second.launch.gpus());
    let is_unknown = "the number of GPUs is unknown for at least one side".to_owned();
    match (first_value, second_value) {
        _ if first.is_unknown(UnknownFact::Gpus) || second.is_unknown(UnknownFact::Gpus) => {
            differences.incomparable.push(is_unknown)
        }
        (Some(first_value), Some(second_value)) if first_value != second_value => {
            differences.per_gpu.push(format!(
                "{} against {second_value}",
                pluralize(first_value as usize, "GPU", "GPUs")
            ));
        }
        (Some(_), Some(_)) => {}
        _ => differences.noted.push(is_unknown),
    }
    let is_told = !first.is_unknown(UnknownFact::Tp) && !second.is_unknown(UnknownFact::Tp);
    if is_told && first_value == second_value && first.launch.parallel != second.launch.parallel {
        let words = |parallel: Parallel| {
            let Parallel { tp, pp, dp, ep } = parallel;
            format!("tp {tp} pp {pp} dp {dp} ep {ep}")
        };
        let (first_value, second_value) = (words(first.launch.parallel), words(second.launch.parallel));
        differences
            .noted
            .push(format!("{first_value} against {second_value}"));
    }
}

/// Compares client, profile, timeouts, settings, and the origin of the engine.
fn compare_provenance(
    differences: &mut FoundDifferences,
    first: &ComparedCell<'_>,
    second: &ComparedCell<'_>,
) {
    if first.is_simulated() != second.is_simulated() {
        differences
            .incomparable
            .push("only one side is simulated".to_owned());
    }
    let client = |side: &ComparedCell<'_>| side.imported().map_or("matrix", |imported| imported.tool.name());
    let profile = |side: &ComparedCell<'_>| match side.cell.scenario.profile {
        Profile::Classic => "classic",
        Profile::Current => "current",
    };
    let routing_key = |side: &ComparedCell<'_>| {
        let header = side.launch.api.dialect.routing_key_header.as_ref();
        header.map_or("not sent", |_| "sent")
    };
    let [first_servers, second_servers] =
        [first, second].map(|side| side.launch.place.settings().servers_in_words());
    for (what, first_value, second_value) in [
        ("servers", first_servers.as_str(), second_servers.as_str()),
        ("routing key", routing_key(first), routing_key(second)),
        ("client", client(first), client(second)),
        ("profile", profile(first), profile(second)),
        (
            "engine source",
            first.launch.place.settings().engine_source(),
            second.launch.place.settings().engine_source(),
        ),
    ] {
        if first_value != second_value {
            differences
                .noted
                .push(format!("{what} {first_value} against {second_value}"));
        }
    }
    let limits = [first, second].map(|side| limit_facts(&side.cell.scenario));
    if first.imported().is_none() && second.imported().is_none() {
        let differing = differing_facts(&limits[0], &limits[1]);
        differences.noted.extend(
            differing.map(|(what, first_value, second_value)| {
                format!("{what} {first_value} against {second_value}")
            }),
        );
    }
    let is_one_recipe = first.launch.engine.recipe == second.launch.engine.recipe;
    let (first_value, second_value) = (
        settings::launch_settings(first.launch, first.summaries),
        settings::launch_settings(second.launch, second.summaries),
    );
    if first.launch.is_attached() || second.launch.is_attached() {
        differences
            .noted
            .extend(
                differing_facts(&first_value, &second_value).map(|(name, first_value, second_value)| {
                    format!(
                        "{}{name} {first_value} against {second_value}",
                        settings::lossy_mark(name)
                    )
                }),
            );
        return;
    }
    // The precision distinguishes checkpoints of one model already, and different engines need different
    // checkpoints.
    let differing = settings::differing_settings(&first_value, &second_value, is_one_recipe).into_iter();
    differences
        .noted
        .extend(differing.filter(|differing| !differing.starts_with("checkpoint ") || is_one_recipe));
}

/// Compares clocks, power limits and answers.
fn compare_conditions(
    differences: &mut FoundDifferences,
    first: &ComparedCell<'_>,
    second: &ComparedCell<'_>,
) {
    let [first, second] = [first, second].map(|side| Conditions::from_cell(side.cell, side.summaries));
    for differs in first.differences(&second) {
        let words = format!(
            "{} {} against {}",
            differs.condition, differs.before, differs.after
        );
        match differs.kind {
            ConditionKind::Prompts => differences.incomparable.push(words),
            ConditionKind::Machine | ConditionKind::Answers => differences.environment.push(words),
        }
    }
}

/// Reports searches without a reliable bracket, which give no ratio.
fn compare_searches(differences: &mut FoundDifferences, first: &ComparedCell<'_>, second: &ComparedCell<'_>) {
    for (side, name) in [(first, "this row"), (second, "the reference")] {
        let records = side
            .summaries
            .iter()
            .filter_map(|summary| summary.search.as_ref());
        let doubt = records.filter_map(unreliable_search_reason).next();
        differences
            .incomparable
            .extend(doubt.map(|doubt| format!("{name}: {doubt}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::store::testing;

    #[test]
    fn sides_whose_servers_count_very_different_tokens_for_the_same_prompts_are_not_comparable() {
        let plan = testing::plan();
        let cell = &plan.cells[0];
        let compared = |reported: f64| {
            let [summary, reference] = [reported, 62_892.0].map(|reported| {
                let mut summary = testing::summary(cell);
                let totals = [
                    ("completed_requests", 24.0),
                    ("input_tokens", 49_152.0),
                    ("reported_input_tokens", reported),
                ];
                let totals = totals.map(|(name, value)| (name.to_owned(), Some(value)));
                summary.figures.insert(Definitions::Matrix, totals.into());
                summary
            });
            let side = |summaries| ComparedCell {
                launch: &plan.launches[0],
                cell,
                summaries,
                machine: None,
            };
            comparable(&side(&[&summary]), &side(&[&reference]))
        };
        let difference =
            "mean tokens of a prompt by the server's count 256 (2048 sent) against 2620 (2048 sent)"
                .to_owned();
        assert_eq!(compared(6_144.0), Comparability::Not(vec![difference]));
        assert!(compared(62_870.0).allows_ratio());
    }
}
