//! A search that was prepared.

use crate::analysis::tune::Point;
use crate::cli::tune::TuneArgs;
use crate::commands::measure::RunView;
use crate::commands::output::Colors;
use crate::config::scenario::Scenario;
use crate::config::tune::{Objective, TrialSet, TuneBudget, TunedCell, TunedKnob};
use crate::results::record::tune::TuneRecord;

/// A search, with what it was asked for.
pub(super) struct Search<'a> {
    pub(super) args: &'a TuneArgs,
    pub(super) colors: Colors,
    pub(super) tuned: TunedCell,
    pub(super) knobs: Vec<TunedKnob>,
    pub(super) objective: Objective,
    /// The scenario of the default cell.
    pub(super) scenario: Scenario,
    /// Whether the engine has GPUs.
    pub(super) has_gpus: bool,
    pub(super) budget: TuneBudget,
    /// Starts of each side in the confirmation.
    pub(super) confirm_starts: u32,
    /// The name under which the trials run.
    pub(super) name: String,
    /// Whether configurations are measured with fewer prompts first.
    pub(super) begins_short: bool,
    /// The record without trials and result.
    pub(super) record: TuneRecord,
}

impl Search<'_> {
    /// How its runs are shown.
    pub(super) fn view(&self) -> RunView<'_> {
        RunView {
            args: &self.args.run,
            job_folder: None,
            min_change: self.args.floor,
            colors: self.colors,
        }
    }

    /// The position of every value of the default configuration.
    pub(super) fn default_point(&self) -> Point {
        self.knobs.iter().map(|knob| knob.default).collect()
    }

    /// The configuration of a point, under a name.
    pub(super) fn set(&self, name: &str, point: &[usize], prompts: Option<u32>) -> TrialSet {
        let changes = self.knobs.iter().zip(point);
        TrialSet {
            name: name.to_owned(),
            changes: changes
                .filter_map(|(knob, at)| Some(knob.values.get(*at)?.change.clone()))
                .collect(),
            prompts,
        }
    }
}
