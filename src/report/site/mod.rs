//! The content of a static site of many runs: a row for each cell, curves over versions, and figures over dates. Pure.
//!
//! [`Site`] takes runs one by one, so that their records need not be in memory at once.

pub(crate) mod data;
pub(crate) mod frontier;
pub(crate) mod history;
mod hosts;
pub(crate) mod row;
#[cfg(test)]
mod tests;

use crate::plan::Plan;
use crate::report::ReportCell;
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::cell_stats::Facts;
use crate::results::record::machine::Machine;
use crate::results::record::nightly::NightlyRun;
use crate::results::record::run::RunInfo;

use hosts::{HostId, Hosts};
use row::SiteRow;

/// Many runs, each with a page.
#[derive(Debug, Default)]
pub(crate) struct Site {
    /// The newest first; sorted by [`Site::sort`].
    pub(crate) runs: Vec<SiteRun>,
    hosts: Hosts,
    nights: Vec<SiteNight>,
}

/// A run with a row for each of its cells.
#[derive(Debug)]
pub(crate) struct SiteRun {
    /// Its name.
    pub(crate) name: String,
    /// Name of its matrix.
    pub(crate) matrix: String,
    /// Start time, RFC 3339.
    pub(crate) began: String,
    /// Version of `matrix` that began it.
    pub(crate) tool: String,
    /// Address of its page, relative to the index.
    pub(crate) page: String,
    /// A row for each cell, in the order of the plan.
    pub(crate) rows: Vec<SiteRow>,
}

/// A nightly run of which only the entry in the history is there.
#[derive(Debug)]
struct SiteNight {
    host: HostId,
    machine: Facts,
    night: NightlyRun,
}

/// A run as input of a site.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunOfSite<'a> {
    /// Address of its page, relative to the index.
    pub(crate) page: &'a str,
    pub(crate) info: &'a RunInfo,
    pub(crate) plan: &'a Plan,
    pub(crate) machine: &'a Machine,
    pub(crate) summaries: &'a [MeasurementSummary],
}

impl Site {
    /// Adds a run with all cells of its plan.
    pub(crate) fn add_run(&mut self, run: RunOfSite<'_>) {
        let cells = ReportCell::from_run("", Some(run.machine), run.plan, run.summaries);
        let rows = cells
            .iter()
            .map(|cell| row::row(cell, run.machine, &mut self.hosts))
            .collect();
        self.runs.push(SiteRun {
            name: run.info.run.to_string(),
            matrix: run.plan.matrix.clone(),
            began: run.info.began.clone(),
            tool: run.info.tool.clone(),
            page: run.page.to_owned(),
            rows,
        });
    }

    /// Adds a nightly run of the history, unless the site has the run itself. Call it after all runs were added.
    pub(crate) fn add_night(&mut self, night: NightlyRun) {
        if self.runs.iter().any(|run| run.name == night.run.as_str()) {
            return;
        }
        let machine = night.machine.clone();
        self.nights.push(SiteNight {
            host: self.hosts.find_or_add(&machine),
            machine,
            night,
        });
    }

    /// Puts runs and nightly runs into their order, which does not depend on the order in which they were added.
    pub(crate) fn sort(&mut self) {
        self.runs
            .sort_by(|a, b| (&b.began, &b.name, &a.page).cmp(&(&a.began, &a.name, &b.page)));
        self.nights
            .sort_by(|a, b| (&a.night.at, a.night.run.as_str()).cmp(&(&b.night.at, b.night.run.as_str())));
    }

    /// All rows with their runs, those of the newest run first.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&SiteRun, &SiteRow)> {
        self.runs
            .iter()
            .flat_map(|run| run.rows.iter().map(move |row| (run, row)))
    }
}

/// The day of a moment in RFC 3339, such as `2026-11-21`.
pub(crate) fn day(moment: &str) -> &str {
    moment.get(..10).unwrap_or(moment)
}
