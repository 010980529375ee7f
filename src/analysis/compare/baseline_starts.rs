//! Fresh starts of a baseline in turn with the candidate: selects the launches that can be started and checks
//! that they are the same builds.

use std::collections::BTreeMap;

use super::arms::{self, Arms};
use super::decision::{KnownNoise, MetricQuestion, NoVerdict};
use super::difference::Difference;
use super::nightly_gate::confirmation::FreshStarts;
use super::nightly_gate::paired::PairedMetric;
use super::nightly_gate::screen_result::{ScreenResult, SuspectedLoss};
use super::{environment_diff, machines, pairwise};
use crate::analysis::metrics::Metric;
use crate::base::ids::CellKey;
use crate::plan::arms::baseline_key;
use crate::plan::{Launch, Plan};
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::cell_stats::{Baseline, CellStats, RunStats};

/// A run in which the baseline was started in turn with the candidate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairedRun<'a> {
    pub(crate) baseline: &'a Baseline,
    pub(crate) plan: &'a Plan,
    pub(crate) summaries: &'a [MeasurementSummary],
    /// The cells of the run, including those of the baseline.
    pub(crate) side: &'a RunStats,
}

impl<'a> PairedRun<'a> {
    /// Returns the cell of this run that measured the baseline of `candidate`.
    fn baseline_cell(&self, candidate: &CellKey) -> Option<(&'a CellKey, &'a CellStats)> {
        let cell = self.plan.cells.iter().find(|cell| cell.key == *candidate)?;
        self.side.cells.get_key_value(&baseline_key(cell))
    }

    /// Returns what fresh starts measured for a suspected loss. `missing` says why its baseline was not
    /// started.
    pub(crate) fn fresh_starts(&self, suspect: &SuspectedLoss, missing: Option<&String>) -> FreshStarts {
        let Some(candidate) = self.side.cells.get_key_value(&suspect.cell) else {
            return FreshStarts::NotStarted;
        };
        let hosts = self.side.hosts(candidate.1);
        let is_same_host = machines::have_one_noise(&suspect.hosts, hosts);
        // A loss on one machine is neither confirmed nor refuted by another that may be compared with nothing.
        let elsewhere = machines::forbidding_differences(&suspect.hosts, hosts);
        let on_its_machine = |question: MetricQuestion| {
            MetricQuestion {
            no_verdict: elsewhere
                .as_ref()
                .map(|why| {
                    NoVerdict::NotComparable(format!(
                        "the nightly run and its fresh starts were measured on hosts that cannot be compared: {why}"
                    ))
                })
                .or(question.no_verdict),
            ..question
        }
        };
        let alone = |why: String| {
            let question = on_its_machine(suspect.compare_to(candidate.1));
            FreshStarts::CandidateOnly(
                MetricQuestion {
                    no_verdict: question.no_verdict.or_else(|| {
                        // How much hosts of one kind differ is not known.
                        (!is_same_host).then(|| {
                            NoVerdict::NotComparable(format!(
                                "the fresh starts were measured on {}, and the nightly run on {}",
                                machines::names(hosts),
                                machines::names(&suspect.hosts)
                            ))
                        })
                    }),
                    ..question
                },
                why,
            )
        };
        let measured = self.baseline.side.cells.get(&suspect.baseline);
        let (Some(twin), Some(measured)) = (self.baseline_cell(&suspect.cell), measured) else {
            return alone(
                missing
                    .cloned()
                    .unwrap_or_else(|| "the baseline was not started again in this run".to_owned()),
            );
        };
        if let Some(why) = other_build_reason(measured, twin.1) {
            return alone(why);
        }
        let noise = suspect.noise.filter(|_| is_same_host);
        let question = on_its_machine(self.arms_question([twin, candidate], suspect.metric, noise));
        let names = [hosts, &suspect.hosts].map(machines::names);
        let is_elsewhere = !is_same_host && names[0] != names[1];
        FreshStarts::Alternating(
            MetricQuestion { noise, ..question },
            is_elsewhere.then(|| {
                format!(
                    "the fresh starts were measured on {}, and the nightly run on {}",
                    names[0], names[1]
                )
            }),
        )
    }

    /// Builds the question whether a metric changed, or says why it cannot be answered.
    pub(crate) fn question(&self, pairing: &PairedMetric<'_>) -> Result<MetricQuestion, String> {
        let twin = self
            .baseline_cell(pairing.cell)
            .ok_or_else(|| "the baseline of the cell was not started in this nightly run".to_owned())?;
        let candidate = self
            .side
            .cells
            .get_key_value(pairing.cell)
            .ok_or_else(|| "it was not measured".to_owned())?;
        let measured = self.baseline.side.cells.get(pairing.baseline);
        if let Some(why) = measured.and_then(|measured| {
            other_build_reason(measured, twin.1).or_else(|| unknown_build_reason(measured, candidate.1))
        }) {
            return Err(why);
        }
        Ok(self.arms_question([twin, candidate], pairing.metric, pairing.noise))
    }

    /// Builds the question about two cells of this run, which is not judged if more than the engine differs.
    fn arms_question(
        &self,
        [baseline, candidate]: [(&CellKey, &CellStats); 2],
        metric: Metric,
        noise: Option<KnownNoise>,
    ) -> MetricQuestion {
        let arms = Arms { baseline, candidate };
        let question = arms::arms_question(self.plan, self.summaries, arms, metric, noise);
        let is_missing = baseline.1.is_missing() || candidate.1.is_missing();
        let differences = match is_missing {
            true => Vec::new(),
            false => environment_diff::cell_differences(baseline.1, candidate.1),
        };
        let differences: Vec<&Difference> = differences.iter().collect();
        MetricQuestion {
            no_verdict: question
                .no_verdict
                .or_else(|| pairwise::forbidden_reason(&differences, false).map(NoVerdict::NotComparable)),
            ..question
        }
    }
}

/// Selects the baseline launches to start in turn with the suspected losses. For the other suspected losses,
/// returns the reason that there is none.
pub(crate) fn suspect_launches(
    look: &ScreenResult,
    baseline: &Baseline,
    candidate_run: &RunStats,
) -> (BTreeMap<CellKey, Launch>, BTreeMap<CellKey, String>) {
    let of_suspects = look
        .suspects
        .iter()
        .map(|suspect| (&suspect.cell, &suspect.baseline));
    let (mut launches, mut missing) = baseline_launches(baseline, of_suspects);
    for suspect in &look.suspects {
        let measured = baseline.side.cells.get(&suspect.baseline);
        let candidate = candidate_run.cells.get(&suspect.cell);
        if let (Some(measured), Some(candidate)) = (measured, candidate)
            && let Some(why) = unknown_build_reason(measured, candidate)
        {
            launches.remove(&suspect.cell);
            missing.insert(suspect.cell.clone(), why);
        }
    }
    (launches, missing)
}

/// Adds the baseline to a plan for every cell whose baseline can be started.
pub(crate) fn add_baseline_starts(plan: &mut Plan, baseline: &Baseline) {
    let keys: Vec<_> = plan.cells.iter().map(|cell| cell.key.clone()).collect();
    let paired = keys
        .iter()
        .filter_map(|key| Some((key, baseline.side.matching_key(key)?)));
    let (launches, _) = baseline_launches(baseline, paired);
    plan.pair_with_baselines(&launches);
    if plan.answer_references.is_empty() && plan.stored_reference.is_none() {
        plan.compare_answers_with_baselines();
    }
}

/// Pins the candidates of a plan to the builds that a nightly run measured.
pub(crate) fn pin_candidates(mut plan: Plan, candidate_run: &RunStats) -> Plan {
    for launch in &mut plan.launches {
        let cells = candidate_run.cells.values();
        let of_launch = cells.filter(|cell| cell.launch.as_ref() == Some(&launch.id));
        let image = of_launch.filter_map(|cell| cell.engine.get("image")).next();
        if let Ok(pinned) = launch.pin(image.map(String::as_str)) {
            *launch = pinned;
        }
    }
    plan
}

/// Selects the baseline launches that can be started, pinned to the measured builds. `cells` are pairs of a
/// cell and its cell in the baseline. For the other cells, returns the reason that there is none.
pub(crate) fn baseline_launches<'a>(
    baseline: &Baseline,
    cells: impl Iterator<Item = (&'a CellKey, &'a CellKey)>,
) -> (BTreeMap<CellKey, Launch>, BTreeMap<CellKey, String>) {
    let (mut launches, mut missing) = (BTreeMap::new(), BTreeMap::new());
    for (cell, of_baseline) in cells {
        match startable_launch(baseline, of_baseline) {
            Ok(launch) => {
                launches.insert(cell.clone(), launch);
            }
            Err(why) => {
                missing.insert(cell.clone(), why);
            }
        }
    }
    (launches, missing)
}

fn startable_launch(baseline: &Baseline, key: &CellKey) -> Result<Launch, String> {
    let unknown = || {
        "the baseline file does not record how its engine was started; `matrix baseline accept` writes one that does".to_owned()
    };
    let cell = baseline.side.cells.get(key).ok_or_else(unknown)?;
    let id = cell.launch.as_ref().ok_or_else(unknown)?;
    let launch = baseline.launches.iter().find(|launch| launch.id == *id);
    let image = cell.engine.get("image").map(String::as_str);
    let pinned = launch.ok_or_else(unknown)?.pin(image);
    pinned.map_err(|why| format!("the baseline's engine cannot be started: {why}"))
}

/// Says why a baseline that is started now may be the candidate itself: both have the same command, and
/// neither version nor image is known.
pub(crate) fn unknown_build_reason(baseline_cell: &CellStats, candidate: &CellStats) -> Option<String> {
    let is_known =
        |fact: &str| baseline_cell.engine.contains_key(fact) && candidate.engine.contains_key(fact);
    let is_one_command = baseline_cell.settings == candidate.settings;
    (is_one_command && !is_known("version") && !is_known("image")).then(|| {
        "the builds of the baseline and of this nightly run cannot be distinguished: the engine reports no version, and the same command starts both".to_owned()
    })
}

/// Says why the engine that was started as the baseline is not the build that the baseline measured. `None`
/// if it is.
pub(crate) fn other_build_reason(baseline_cell: &CellStats, started: &CellStats) -> Option<String> {
    if started.engine.is_empty() {
        return None;
    }
    let differences = environment_diff::engine_differences(&baseline_cell.engine, &started.engine);
    let changes: Vec<String> = differences.iter().map(Difference::in_words).collect();
    (!changes.is_empty()).then(|| {
        format!(
            "the engine that starts now is another build than the one that the baseline measured: {}",
            changes.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cell(engine: &serde_json::Value, argument: &str) -> CellStats {
        let cell = json!({
            "axes": {}, "content": "c", "engine": engine, "settings": { "--itl": argument }, "devices": 1, "origin": "measured", "gates": [],
            "figures": {},
        });
        serde_json::from_value(cell).expect("it is a cell")
    }

    #[test]
    fn one_command_without_a_version_may_start_the_candidate_as_the_baseline() {
        let (unknown, known) = (json!({}), json!({ "version": "1.2" }));
        assert!(unknown_build_reason(&cell(&unknown, "5ms"), &cell(&unknown, "5ms")).is_some());
        assert!(unknown_build_reason(&cell(&known, "5ms"), &cell(&unknown, "5ms")).is_some());
        // Different commands, or a build that both sides name.
        assert_eq!(
            unknown_build_reason(&cell(&unknown, "5ms"), &cell(&unknown, "6ms")),
            None
        );
        assert_eq!(
            unknown_build_reason(&cell(&known, "5ms"), &cell(&known, "5ms")),
            None
        );
    }
}
