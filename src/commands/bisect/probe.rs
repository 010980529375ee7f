//! Measures two versions at a time, alternating in a run of their own.

use std::path::Path;

use anyhow::Context;

use crate::analysis::compare::bisection::{self, VERSION_AXIS};
use crate::analysis::compare::loss::Loss;
use crate::analysis::compare::machines;
use crate::analysis::compare::pairwise::row::Row;
use crate::analysis::compare::pairwise::{CompareOptions, Comparison};
use crate::analysis::compare::reliability::Failure;
use crate::analysis::metrics::Metric;
use crate::analysis::upgrade::Upgrade;
use crate::cli::regression::{BisectArgs, BisectCriterion};
use crate::commands::compare::{compare_run_arms, run_stats, saved_noise};
use crate::commands::error::CommandError;
use crate::commands::measure::{RunView, measure, run_request};
use crate::commands::output::{Colors, print};
use crate::commands::upgrade_page::{Sides, judge, write};
use crate::exit::Exit;
use crate::plan::Plan;
use crate::results::record::cell_stats::Facts;
use crate::results::store::{self, RunEntry};
use crate::runner::load_matrix::LoadedMatrix;
use crate::runner::session::request::ExtraStarts;

pub(super) struct Probe<'a> {
    pub(super) args: &'a BisectArgs,
    /// The folder of the job that executes the search on a node of a cluster.
    pub(super) job_folder: Option<&'a Path>,
    pub(super) colors: Colors,
    /// Starts of each version.
    pub(super) starts: u32,
    pub(super) gates: Vec<Metric>,
    pub(super) matrix: LoadedMatrix,
    /// When the resumed search began; set once its first run is found.
    pub(super) began: Option<String>,
    /// The hosts that measured the first and the last version; empty before.
    pub(super) hosts: Vec<Facts>,
}

/// Two versions, compared in a run of their own.
pub(super) struct Step {
    pub(super) compared: Compared,
    /// Says which other machine measured this step, if it may not be compared with that of the first and the last version.
    pub(super) elsewhere: Option<String>,
}

/// How two versions compare, by the criterion of the search.
pub(super) enum Compared {
    Metrics(Comparison),
    Upgrade(Box<Upgrade>),
}

impl Compared {
    /// The metrics and the reliability.
    pub(super) fn comparison(&self) -> &Comparison {
        match self {
            Self::Metrics(comparison) => comparison,
            Self::Upgrade(upgrade) => &upgrade.speed,
        }
    }

    /// The loss that decides the search; `None` if there is none.
    pub(super) fn worst_loss(&self) -> Option<Loss> {
        match self {
            Self::Metrics(comparison) => bisection::worst_loss(comparison),
            Self::Upgrade(upgrade) => upgrade.losses().into_iter().map(|(loss, _)| loss).next(),
        }
    }

    /// Whether the later version has a loss, which the last version has according to `ends`; `None` if the data do not decide.
    pub(super) fn has_loss(&self, loss: &Loss, ends: &Self) -> Option<bool> {
        match (self, ends) {
            (Self::Upgrade(upgrade), Self::Upgrade(ends)) => upgrade.has_loss(loss, ends),
            _ => bisection::is_found_in(loss, self.comparison()),
        }
    }
}

impl Probe<'_> {
    /// Compares two versions, in the cell with the loss if it is known; `None` if a signal interrupted it.
    pub(super) fn compare(
        &mut self,
        versions: [&str; 2],
        loss: Option<&Loss>,
    ) -> Result<Option<Step>, CommandError> {
        let args = &self.args.run;
        let mut request = run_request(args, self.matrix.clone());
        request.resume = self.earlier_run(versions)?;
        request.extra_starts = ExtraStarts::None;
        request.matrix.plan.set_starts(self.starts);
        let plan = &mut request.matrix.plan;
        bisection::keep_versions(plan, versions, loss);
        if self.args.criterion == BisectCriterion::Upgrade {
            plan.compare_answers_of_arms(VERSION_AXIS, versions)
                .map_err(|why| CommandError::usage(format!("error: {why}\n")))?;
        }
        let folder = request.matrix.folder.clone();
        let bound = self.args.judging.floor;
        let view = RunView {
            args,
            // A search is resumed by the run of its first and last version.
            job_folder: self.job_folder.filter(|_| loss.is_none()),
            min_change: bound,
            colors: self.colors,
        };
        let measured = measure(request, view)?;
        if measured.exit == Exit::Interrupted {
            return Ok(None);
        }
        let run = measured.records;
        let side = run_stats(&run, &self.gates);
        let hosts = machines::hosts_of_run(&side);
        let elsewhere = match self.hosts.as_slice() {
            [] => {
                self.hosts = hosts;
                None
            }
            of_ends => machines::forbidding_differences(of_ends, &hosts),
        };
        let compared = match self.args.criterion {
            BisectCriterion::Metrics => {
                let noise = saved_noise(&args.places.cache(), &side);
                let terms = CompareOptions {
                    bound,
                    noise: noise.as_ref(),
                    allow_environment: false,
                    further_questions: 0,
                };
                let comparison = compare_run_arms(&run, &self.gates, VERSION_AXIS, versions, &terms)?;
                print(&comparison_rows(&comparison, versions[1]));
                Compared::Metrics(comparison)
            }
            BisectCriterion::Upgrade => {
                let named = versions.map(str::to_owned);
                let sides = Sides {
                    engine: engine_of(&run.plan),
                    setting: VERSION_AXIS.to_owned(),
                    given: named.clone(),
                    axis: VERSION_AXIS.to_owned(),
                    values: named,
                };
                let (record, upgrade) = judge(&view, &run, &self.gates, sides, &folder)?;
                let (page, path) = write(&measured.folder, &record, &upgrade)?;
                print(&format!("{}\npage: {}\n", page.headline, path.display()));
                Compared::Upgrade(Box::new(upgrade))
            }
        };
        Ok(Some(Step { compared, elsewhere }))
    }

    /// The run of these versions that a resumed search already has. For the first and last version it is the
    /// named or the newest run, for a later step the newest run that began after that one.
    fn earlier_run(&mut self, versions: [&str; 2]) -> Result<Option<String>, CommandError> {
        let Some(resume) = &self.args.run.resume else {
            return Ok(None);
        };
        let root = &self.args.run.results;
        let runs = store::list_runs(root).context("cannot read the results")?;
        let measures = |run: &RunEntry| {
            let plan = store::read_plan(&run.folder);
            plan.is_ok_and(|plan| bisection::versions(&plan) == versions)
        };
        let name = Path::new(resume).file_name();
        let is_asked = |run: &RunEntry| match &self.began {
            Some(began) => run.info.began > *began,
            None => resume == "latest" || name == Some(run.info.run.as_str().as_ref()),
        };
        let earlier_run = runs
            .into_iter()
            .find(|run| run.info.matrix == self.matrix.plan.matrix && is_asked(run) && measures(run));
        if let (None, None) = (&earlier_run, &self.began) {
            let [first, last] = versions;
            return Err(CommandError::usage(format!(
                "error: `--resume {resume}` selects no run in {} that measures {first} and {last}, the first and the last version of the search\n  = help: give `--resume` without a name for the newest search, or leave it out to start a search\n",
                root.display()
            )));
        }
        if let (Some(run), None) = (&earlier_run, &self.began) {
            self.began = Some(run.info.began.clone());
        }
        Ok(earlier_run.map(|run| run.info.run.to_string()))
    }
}

/// The engine whose versions are compared; `None` if there are several.
fn engine_of(plan: &Plan) -> Option<String> {
    let mut engines = plan.cells.iter().map(|cell| cell.axes.get("engine"));
    let first = engines.next()??;
    engines.all(|engine| engine == Some(first)).then(|| first.clone())
}

/// Formats a comparison, with a line for each metric and each loss of reliability.
fn comparison_rows(comparison: &Comparison, version: &str) -> String {
    let row = |row: &Row| format!("  {}: {}: {}\n", row.verdict_word(), row.cell, row.reason());
    let metrics: String = comparison.rows.iter().map(row).collect();
    let failure = |failure: &Failure| format!("  less reliable: {}: {}\n", failure.cell, failure.text);
    let failures: String = comparison.failures.iter().map(failure).collect();
    format!("{version}:\n{metrics}{failures}")
}
