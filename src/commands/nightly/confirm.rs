//! Fresh starts of suspects: baseline and candidate alternate in a run of their own.

use std::collections::BTreeMap;

use anyhow::Context;

use crate::analysis::compare::arms::{self, Arms};
use crate::analysis::compare::decision::Question;
use crate::analysis::compare::environment_diff;
use crate::analysis::compare::nightly_gate::{self, Fresh, Look, Suspected};
use crate::analysis::metrics::Metric;
use crate::base::ids::CellKey;
use crate::cli::RunArgs;
use crate::cli::regression::NightlyArgs;
use crate::commands::compare::of_run;
use crate::commands::error::CommandError;
use crate::commands::output::{Colors, complain};
use crate::commands::rounds::Further;
use crate::commands::run::measure;
use crate::exit::Exit;
use crate::plan::arms::baseline_of;
use crate::plan::{Launch, Plan};
use crate::results::record::cell_stats::{Baseline, Side, SideCell};
use crate::results::record::night::Finding;
use crate::results::store::Run;

/// What confirmations start from.
pub(super) struct Confirmation<'a> {
    pub(super) args: &'a NightlyArgs,
    pub(super) colors: Colors,
    pub(super) gates: &'a [Metric],
    pub(super) baseline: &'a Baseline,
    pub(super) night: &'a Run,
    pub(super) tonight: &'a Side,
}

/// What fresh starts came to: of each suspect, and what failed while they were made.
pub(super) struct Started {
    pub(super) fresh: Vec<Fresh>,
    pub(super) failures: Vec<Finding>,
}

/// The launches of the baseline that can be started beside these cells, pinned to the builds that were measured; of the others, why not.
pub(super) fn baselines<'a>(
    baseline: &Baseline,
    cells: impl Iterator<Item = (&'a CellKey, &'a CellKey)>,
) -> (BTreeMap<CellKey, Launch>, BTreeMap<CellKey, String>) {
    let (mut launches, mut not) = (BTreeMap::new(), BTreeMap::new());
    for (cell, of_baseline) in cells {
        match startable(baseline, of_baseline) {
            Ok(launch) => {
                launches.insert(cell.clone(), launch);
            }
            Err(why) => {
                not.insert(cell.clone(), why);
            }
        }
    }
    (launches, not)
}

fn startable(baseline: &Baseline, key: &CellKey) -> Result<Launch, String> {
    let unknown = || {
        "the baseline's file does not tell how its engine was started; `matrix baseline accept` writes one that does".to_owned()
    };
    let cell = baseline.side.cells.get(key).ok_or_else(unknown)?;
    let id = cell.launch.as_ref().ok_or_else(unknown)?;
    let launch = baseline.launches.iter().find(|launch| launch.id == *id);
    let image = cell.engine.get("image").map(String::as_str);
    let pinned = launch.ok_or_else(unknown)?.pinned(image);
    pinned.map_err(|why| format!("the baseline's engine cannot be started: {why}"))
}

impl Confirmation<'_> {
    /// Starts the suspects afresh, each so often, in turn with their baselines; `None` if that was interrupted.
    pub(super) fn start(
        &self,
        look: &Look,
        wanted: &BTreeMap<CellKey, u32>,
    ) -> Result<Option<Started>, CommandError> {
        let none = || Started {
            fresh: vec![Fresh::None; look.suspects.len()],
            failures: Vec::new(),
        };
        if wanted.is_empty() {
            return Ok(Some(none()));
        }
        let of_suspects = look
            .suspects
            .iter()
            .map(|suspect| (&suspect.cell, &suspect.baseline));
        let (mut launches, mut not) = baselines(self.baseline, of_suspects);
        for suspect in &look.suspects {
            let kept = self.baseline.side.cells.get(&suspect.baseline);
            let candidate = self.tonight.cells.get(&suspect.cell);
            if let (Some(kept), Some(candidate)) = (kept, candidate)
                && let Some(why) = unknown_build(kept, candidate)
            {
                launches.remove(&suspect.cell);
                not.insert(suspect.cell.clone(), why);
            }
        }
        let mut plan = self.pinned(self.night.plan.confirmation(wanted, &launches));
        let mut measured = self.measure(&plan);
        if let (Err(refusal), false) = (&measured, launches.is_empty()) {
            let why = refusal.message.trim();
            complain(&format!(
                "note: the baseline cannot be started beside the candidate, which is started alone: {why}\n"
            ));
            not.extend(
                launches
                    .into_keys()
                    .map(|cell| (cell, format!("the baseline cannot be started: {why}"))),
            );
            plan = self.pinned(self.night.plan.confirmation(wanted, &BTreeMap::new()));
            measured = self.measure(&plan);
        }
        let run = match measured {
            Ok(Some(run)) => run,
            Ok(None) => return Ok(None),
            // The night is measured, and what it found is told.
            Err(refusal) => {
                complain(&format!(
                    "warning: nothing was confirmed: {}\n",
                    refusal.message.trim()
                ));
                return Ok(Some(none()));
            }
        };
        let side = of_run(&run, self.gates);
        let fresh = look
            .suspects
            .iter()
            .map(|suspect| match wanted.contains_key(&suspect.cell) {
                true => self.fresh(suspect, &run, &side, not.get(&suspect.cell)),
                false => Fresh::None,
            });
        let fresh = fresh.collect();
        let mut candidates = side.clone();
        candidates.cells.retain(|key, _| wanted.contains_key(key));
        Ok(Some(Started {
            fresh,
            failures: nightly_gate::failures(&candidates),
        }))
    }

    /// The run of a plan; `None` if it was interrupted.
    fn measure(&self, plan: &Plan) -> Result<Option<Run>, CommandError> {
        let args = RunArgs {
            resume: None,
            only: None,
            ..self.args.run.clone()
        };
        let change = |read: &mut Plan| read.clone_from(plan);
        let measured = measure(
            &args,
            self.colors,
            &change,
            &Further::Nothing,
            self.args.judging.floor,
        )?;
        if measured.exit == Exit::Interrupted {
            return Ok(None);
        }
        let run = Run::read(&measured.folder).context("the fresh starts cannot be read")?;
        Ok(Some(run))
    }

    /// The plan with its candidates pinned to the builds that the night measured.
    fn pinned(&self, mut plan: Plan) -> Plan {
        for launch in &mut plan.launches {
            let cells = self.tonight.cells.values();
            let of_launch = cells.filter(|cell| cell.launch.as_ref() == Some(&launch.id));
            let image = of_launch.filter_map(|cell| cell.engine.get("image")).next();
            if let Ok(pinned) = launch.pinned(image.map(String::as_str)) {
                *launch = pinned;
            }
        }
        plan
    }

    fn fresh(&self, suspect: &Suspected, run: &Run, side: &Side, not: Option<&String>) -> Fresh {
        let Some(candidate) = side.cells.get_key_value(&suspect.cell) else {
            return Fresh::None;
        };
        let alone = |why: String| Fresh::Alone(suspect.against(candidate.1), why);
        let twin = run
            .plan
            .cells
            .iter()
            .find(|cell| cell.key == suspect.cell)
            .map(baseline_of);
        let twin = twin.and_then(|key| side.cells.get_key_value(&key));
        let (Some(twin), Some(kept)) = (twin, self.baseline.side.cells.get(&suspect.baseline)) else {
            return alone(
                not.cloned()
                    .unwrap_or_else(|| "the baseline was not started".to_owned()),
            );
        };
        match other_build(kept, twin.1) {
            Some(why) => alone(why),
            None => {
                let arms = Arms {
                    baseline: twin,
                    candidate,
                };
                Fresh::Alternated(Question {
                    noise: suspect.noise,
                    ..arms::question(&run.plan, &run.summaries, arms, suspect.metric, suspect.noise)
                })
            }
        }
    }
}

/// Why a baseline that is started now may be the candidate itself: one command starts both, and nothing tells which build it is.
pub(super) fn unknown_build(kept: &SideCell, candidate: &SideCell) -> Option<String> {
    let is_told = |fact: &str| kept.engine.contains_key(fact) && candidate.engine.contains_key(fact);
    let is_one_command = kept.settings == candidate.settings;
    (is_one_command && !is_told("version") && !is_told("image")).then(|| {
        "nothing tells the baseline's build from tonight's: the engine has no version, and one command starts both".to_owned()
    })
}

/// Why what was started as the baseline is not what the baseline measured, where it is not.
pub(super) fn other_build(kept: &SideCell, started: &SideCell) -> Option<String> {
    if started.engine.is_empty() {
        return None;
    }
    let differences = environment_diff::of_engines(&kept.engine, &started.engine);
    let told: Vec<String> = differences
        .iter()
        .map(environment_diff::Difference::told)
        .collect();
    (!told.is_empty()).then(|| {
        format!(
            "the baseline's build is no longer what starts: {}",
            told.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cell(engine: &serde_json::Value, argument: &str) -> SideCell {
        let cell = json!({
            "axes": {}, "content": "c", "engine": engine, "settings": { "--itl": argument }, "devices": 1, "origin": "measured", "gates": [],
            "figures": {},
        });
        serde_json::from_value(cell).expect("it is a cell")
    }

    #[test]
    fn one_command_without_a_version_may_start_the_candidate_as_the_baseline() {
        let (untold, told) = (json!({}), json!({ "version": "1.2" }));
        assert!(unknown_build(&cell(&untold, "5ms"), &cell(&untold, "5ms")).is_some());
        assert!(unknown_build(&cell(&told, "5ms"), &cell(&untold, "5ms")).is_some());
        // Another command, or a build that both sides name.
        assert_eq!(unknown_build(&cell(&untold, "5ms"), &cell(&untold, "6ms")), None);
        assert_eq!(unknown_build(&cell(&told, "5ms"), &cell(&told, "5ms")), None);
    }
}
