//! The trials of a search: cells of one run whose plan grows by one start at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::budget::{self, TrialCosts};
use super::page;
use super::search::Search;
use super::space::load_sets;
use crate::analysis::compare::extra_starts;
use crate::analysis::tune::{Knob, Point, Proposal, Space, Trial, TrialOutcome, TrialSize, Tuner};
use crate::analysis::tuning::outcome::Goal;
use crate::base::ids::RunId;
use crate::commands::error::CommandError;
use crate::commands::measure::{measure, run_request};
use crate::config::select::Selector;
use crate::config::tune::{SET_AXIS, TrialSet};
use crate::config::yaml::Spanned;
use crate::exit::Exit;
use crate::plan::{Plan, Start};
use crate::results::record::cell::{MeasurementStatus, MeasurementSummary};
use crate::results::record::tune::{TrialRecord, TrialResult, TuneRecord};
use crate::results::store::{self, Run, StoreError};
use crate::runner::session::request::ExtraStarts;
use crate::runner::shutdown::is_command_stopping;

/// Number of prompts of a short trial: the scenario's divided by this.
const SHORTENED_BY: u32 = 4;

/// The name of the default configuration.
pub(super) const DEFAULT_SET: &str = "default";

/// How the trials ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrialsEnd {
    /// The budget is spent, or nothing is left to measure.
    Finished,
    /// A signal stopped them.
    Interrupted,
}

/// The trials of a search, with what is known of them.
pub(super) struct Trials<'a> {
    pub(super) search: &'a Search<'a>,
    pub(super) record: TuneRecord,
    /// The run that measures them, once it exists.
    pub(super) run: Option<RunId>,
    /// When that run began.
    pub(super) began: Option<String>,
    pub(super) folder: Option<PathBuf>,
    costs: TrialCosts,
    /// Starts of trials that were interrupted or measured again.
    repeated_starts: u32,
    /// The first valid trial of the default with all prompts.
    pub(super) default_trial: Option<MeasurementSummary>,
}

impl<'a> Trials<'a> {
    /// Trials that begin, or continue those of the run that `--resume` names.
    pub(super) fn open(search: &'a Search<'a>) -> Result<Self, CommandError> {
        let mut trials = Self {
            search,
            record: search.record.clone(),
            run: None,
            began: None,
            folder: None,
            costs: TrialCosts::default(),
            repeated_starts: 0,
            default_trial: None,
        };
        let args = &search.args.run;
        let Some(resume) = &args.resume else {
            return Ok(trials);
        };
        let runs = store::list_runs(&args.results).context("cannot read the results")?;
        let name = Path::new(resume).file_name();
        let is_named = |run: &RunId| resume == "latest" || name == Some(run.as_str().as_ref());
        let found = runs
            .into_iter()
            .find(|entry| entry.info.matrix == search.name && is_named(&entry.info.run));
        let Some(entry) = found else {
            return Err(CommandError::usage(format!(
                "error: `--resume {resume}` selects no run in {} that belongs to this search, `{}`\n  = help: a search with other settings, another objective, load or seed is a new search; leave `--resume` out to start it\n",
                args.results.display(),
                search.name
            )));
        };
        trials.run = Some(entry.info.run);
        trials.began = Some(entry.info.began);
        match Run::read(&entry.folder) {
            Ok(run) => trials.continue_from(run)?,
            // It was stopped before it had a plan.
            Err(StoreError::Missing { .. }) if !entry.folder.join(store::TUNE).exists() => {}
            Err(error) => return Err(damaged(&error.to_string())),
        }
        trials.folder = Some(entry.folder);
        Ok(trials)
    }

    /// Whether a configuration turned out in its confirmation to be one that cannot win.
    fn is_rejected(&self, set: &str) -> bool {
        let mut confirmations = self.record.confirmations.iter();
        confirmations.any(|confirmation| confirmation.is_rejected && confirmation.set == full_name(set))
    }

    /// The mean figure of a configuration's trials with all prompts.
    pub(super) fn full_figure(&self, set: &str) -> Option<f64> {
        let trials = self.record.trials.iter().filter(|trial| trial.set == set);
        let figures: Vec<f64> = trials.filter_map(|trial| trial.figure).collect();
        (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
    }

    /// The configuration of that name.
    pub(super) fn point_of(&self, set: &str) -> Option<Point> {
        let mut trials = self.record.trials.iter();
        let trial = trials.find(|trial| full_name(&trial.set) == set)?;
        Some(trial.point.clone())
    }

    /// Whether every configuration of the space had a trial.
    pub(super) fn has_tried_all(&self) -> bool {
        let tried: BTreeSet<&Point> = self.record.trials.iter().map(|trial| &trial.point).collect();
        let knobs = self.search.knobs.iter();
        tried.len() >= knobs.fold(1, |size: usize, knob| size.saturating_mul(knob.values.len()))
    }

    /// Takes over what a stopped search measured.
    fn continue_from(&mut self, run: Run) -> Result<(), CommandError> {
        // Without a record at most the first trial has ended; it is proposed again, and found.
        let has_record = run.tune.is_some() || run.summaries.len() <= 1;
        if run.is_journal_damaged || !has_record {
            return Err(damaged(&run.warnings.join("; ")));
        }
        check_journal(&run)?;
        if let Some(earlier) = &run.tune {
            self.record.trials.clone_from(&earlier.trials);
            self.record.confirmations.clone_from(&earlier.confirmations);
        }
        self.update(&run);
        Ok(())
    }

    pub(super) fn tuner(&self) -> Tuner {
        let knobs = self.search.knobs.iter().map(|knob| Knob {
            name: knob.name.clone(),
            is_ordered: knob.is_ordered,
            values: knob.values.len(),
            default: knob.default,
        });
        let finished = self.record.trials.iter().filter_map(|trial| {
            let outcome = match (trial.outcome, trial.figure) {
                (TrialResult::Open, _) => return None,
                _ if self.is_rejected(&trial.set) => TrialOutcome::Infeasible,
                (TrialResult::Measured, Some(figure)) => TrialOutcome::Measured(figure),
                (TrialResult::Infeasible, _) => TrialOutcome::Infeasible,
                (TrialResult::Measured | TrialResult::Unknown, _) => TrialOutcome::Unknown,
            };
            Some(Trial {
                point: trial.point.clone(),
                size: size_of(trial),
                outcome,
            })
        });
        Tuner {
            space: Space {
                knobs: knobs.collect(),
            },
            seed: self.search.args.seed,
            trials: finished.collect(),
            begins_short: self.search.begins_short,
        }
    }

    /// Measures proposed configurations until the budget is spent.
    pub(super) fn run(&mut self) -> Result<TrialsEnd, CommandError> {
        loop {
            if !self.has_open_trial() {
                let left = budget::trials_left(self.search.budget, self.search.confirm_starts, &self.costs());
                if left == 0 {
                    return Ok(TrialsEnd::Finished);
                }
                let Some(proposal) = self.tuner().next(left) else {
                    return Ok(TrialsEnd::Finished);
                };
                let trial = self.new_trial(proposal);
                self.record.trials.push(trial);
            }
            self.save()?;
            if self.measure_last()? == TrialsEnd::Interrupted {
                return Ok(TrialsEnd::Interrupted);
            }
            budget::check_minutes(self.search.budget, self.search.confirm_starts, &self.costs())?;
        }
    }

    /// What trials and finished confirmations cost.
    pub(super) fn costs(&self) -> TrialCosts {
        let confirmations = || self.record.confirmations.iter();
        TrialCosts {
            confirming_starts: confirmations().map(|confirmation| confirmation.starts).sum(),
            confirming_minutes: confirmations().map(|confirmation| confirmation.gpu_minutes).sum(),
            ..self.costs.clone()
        }
    }

    fn has_open_trial(&self) -> bool {
        let last = self.record.trials.last();
        last.is_some_and(|trial| trial.outcome == TrialResult::Open)
    }

    fn new_trial(&self, proposal: Proposal) -> TrialRecord {
        let is_short = proposal.size == TrialSize::Short && self.search.begins_short;
        let name = self.set_name(&proposal.point);
        let knobs = self.search.knobs.iter().zip(&proposal.point);
        let changed = knobs.filter(|(knob, at)| knob.default != **at);
        TrialRecord {
            set: if is_short { format!("{name}-short") } else { name },
            is_short,
            settings: changed
                .map(|(knob, at)| (knob.name.clone(), knob.values[*at].label.clone()))
                .collect(),
            point: proposal.point,
            outcome: TrialResult::Open,
            figure: None,
            reason: None,
            throughput_per_gpu: None,
            interactivity: None,
            ttft_ms: None,
        }
    }

    /// The name of a configuration: that of its earlier trials, otherwise the next one.
    pub(super) fn set_name(&self, point: &Point) -> String {
        if *point == self.search.default_point() {
            return DEFAULT_SET.to_owned();
        }
        let trials = &self.record.trials;
        if let Some(known) = trials.iter().find(|trial| trial.point == *point) {
            return full_name(&known.set).to_owned();
        }
        let points: BTreeSet<&Point> = trials
            .iter()
            .map(|trial| &trial.point)
            .filter(|point| **point != self.search.default_point())
            .collect();
        format!("t{:02}", points.len() + 1)
    }

    /// Every configuration that was proposed, in the order of its first trial.
    fn sets(&self) -> Vec<TrialSet> {
        let mut sets: Vec<TrialSet> = Vec::new();
        for trial in &self.record.trials {
            if sets.iter().any(|set| set.name == trial.set) {
                continue;
            }
            let prompts = trial
                .is_short
                .then(|| self.search.scenario.workload.prompts.div_ceil(SHORTENED_BY));
            sets.push(self.search.set(&trial.set, &trial.point, prompts));
        }
        sets
    }

    /// Continues the run with the last trial.
    fn measure_last(&mut self) -> Result<TrialsEnd, CommandError> {
        let search = self.search;
        let sets = self.sets();
        let mut loaded = load_sets(search.args, &search.tuned, &sets, search.colors)?;
        let starts: Vec<&str> = self
            .record
            .trials
            .iter()
            .map(|trial| trial.set.as_str())
            .collect();
        let excluded = loaded.plan.plan_tune(&search.name, &search.tuned, &sets, &starts);
        let last = self.record.trials.last_mut().expect("a trial was proposed");
        if excluded.contains(&last.set) {
            last.outcome = TrialResult::Infeasible;
            last.reason = Some("the matrix excludes it".to_owned());
            return Ok(TrialsEnd::Finished);
        }
        let mut request = run_request(&search.args.run, loaded);
        let set = last.set.clone();
        request.only = Some(Selector(vec![(Spanned::from(SET_AXIS.to_owned()), vec![set])]));
        request.resume = self.run.as_ref().map(|run| run.as_str().to_owned());
        request.calibrate &= self.run.is_none();
        request.extra_starts = ExtraStarts::None;
        let measured = measure(request, search.view())?;
        self.began = Some(measured.records.info.began.clone());
        self.run = Some(measured.run);
        self.folder = Some(measured.folder);
        self.update(&measured.records);
        self.save()?;
        Ok(
            match measured.exit == Exit::Interrupted || is_command_stopping() {
                true => TrialsEnd::Interrupted,
                false => TrialsEnd::Finished,
            },
        )
    }

    /// Reads the outcomes of the trials from their run.
    fn update(&mut self, run: &Run) {
        let search = self.search;
        let goal = Goal {
            objective: search.objective,
            scenario: &search.scenario,
            has_gpus: search.has_gpus,
        };
        let costs = extra_starts::start_costs(&run.plan, &run.journal);
        self.costs = TrialCosts::default();
        let mut used: BTreeMap<String, usize> = BTreeMap::new();
        let default = search.default_point();
        // With all prompts, and with fewer.
        let mut of_default: [Option<&MeasurementSummary>; 2] = [None, None];
        for trial in &mut self.record.trials {
            let earlier = used.entry(trial.set.clone()).or_default();
            let Some((start, cell)) = start_of(&run.plan, &trial.set, *earlier) else {
                continue;
            };
            *earlier += 1;
            if let Some(cost) = costs.get(&(start.launch.clone(), start.start)) {
                let of_size = match trial.is_short {
                    true => &mut self.costs.short,
                    false => &mut self.costs.full,
                };
                of_size.push(cost / 60.0);
            }
            let measurement = &start.cells[cell];
            let summary = run
                .summaries
                .iter()
                .find(|summary| summary.measurement() == *measurement);
            let Some(summary) = summary.filter(|summary| !is_stopped(summary)) else {
                trial.outcome = TrialResult::Open;
                continue;
            };
            let of_default = &mut of_default[usize::from(trial.is_short)];
            let finding = goal.finding(summary, *of_default);
            if trial.point == default && finding.reason.is_none() {
                of_default.get_or_insert(summary);
            }
            (trial.outcome, trial.figure) = match finding.outcome {
                TrialOutcome::Measured(figure) => (TrialResult::Measured, Some(figure)),
                TrialOutcome::Infeasible => (TrialResult::Infeasible, None),
                TrialOutcome::Unknown => (TrialResult::Unknown, None),
            };
            trial.reason = finding.reason;
            let figures = goal.frontier_figures(summary);
            trial.throughput_per_gpu = figures.throughput_per_gpu;
            trial.interactivity = figures.interactivity;
            trial.ttft_ms = figures.ttft_ms;
        }
        self.default_trial = of_default[0].cloned();
        let is_started = |trial: &&TrialRecord| trial.outcome != TrialResult::Open;
        self.record.spent.trial_starts = self.record.trials.iter().filter(is_started).count() as u32;
        self.repeated_starts = extra_starts::engine_starts(&run.journal).saturating_sub(costs.len()) as u32;
        self.count_spent();
    }

    /// Notes what trials and confirmations cost together.
    pub(super) fn count_spent(&mut self) {
        let costs = self.costs();
        self.record.spent.confirm_starts = costs.confirming_starts;
        self.record.spent.gpu_minutes = costs.total();
        let confirmations = self.record.confirmations.iter();
        let confirming: u32 = confirmations
            .map(|confirmation| confirmation.repeated_starts)
            .sum();
        self.record.spent.repeated_starts = self.repeated_starts + confirming;
    }

    /// Why the default configuration has no figure; `None` if it has one.
    pub(super) fn why_default_fails(&self) -> Option<String> {
        let default = self.search.default_point();
        let mut trials = self.record.trials.iter().filter(|trial| trial.point == default);
        let reason = trials.clone().find_map(|trial| trial.reason.clone());
        let is_measured = trials.any(|trial| trial.outcome == TrialResult::Measured);
        (!is_measured).then(|| reason.unwrap_or_else(|| "it was not measured".to_owned()))
    }

    /// Writes the record, once the run has a folder.
    pub(super) fn save(&self) -> Result<(), CommandError> {
        match &self.folder {
            Some(folder) => page::write(folder, &self.record),
            None => Ok(()),
        }
    }
}

/// Refuses a run whose journal lacks starts that have results.
pub(super) fn check_journal(run: &Run) -> Result<(), CommandError> {
    let known = extra_starts::start_costs(&run.plan, &run.journal);
    let is_measured =
        |summary: &&MeasurementSummary| !matches!(summary.status, MeasurementStatus::Skipped { .. });
    let mut measured = run.summaries.iter().filter(is_measured);
    let lost = measured.find(|summary| !known.contains_key(&(summary.launch.clone(), summary.start)));
    lost.map_or(Ok(()), |lost| {
        Err(damaged(&format!(
            "`journal.jsonl` of {} has no entry for start {} of {}, although this start has a result",
            run.info.run, lost.start, lost.launch
        )))
    })
}

/// Without a run's plan and journal a search would forget what it has spent.
pub(super) fn damaged(why: &str) -> CommandError {
    // What the store advises is for other commands.
    let why = why.split("; ").next().unwrap_or_default();
    CommandError::cannot_continue(format!(
        "error: the search cannot be continued, because it is unknown how much of the budget is used: {why}\n  = help: restore the damaged file of the run from a backup, or leave `--resume` out to start the search anew\n"
    ))
}

fn is_stopped(summary: &MeasurementSummary) -> bool {
    matches!(
        summary.status,
        MeasurementStatus::Interrupted | MeasurementStatus::Skipped { .. }
    )
}

fn size_of(trial: &TrialRecord) -> TrialSize {
    match trial.is_short {
        true => TrialSize::Short,
        false => TrialSize::Full,
    }
}

/// The name of a configuration without what says that a trial of it is short.
pub(super) fn full_name(set: &str) -> &str {
    set.strip_suffix("-short").unwrap_or(set)
}

/// The start number `index`, from 0, of the cell of a set, with the position of its measurement.
fn start_of<'p>(plan: &'p Plan, set: &str, index: usize) -> Option<(&'p Start, usize)> {
    let cell = plan.cells.iter().find(|cell| {
        let own = cell.axes.get(SET_AXIS);
        own.is_some_and(|own| own == set)
    })?;
    let mut starts = plan.starts.iter().filter_map(|start| {
        let at = start
            .cells
            .iter()
            .position(|measurement| measurement.cell == cell.key)?;
        Some((start, at))
    });
    starts.nth(index)
}
