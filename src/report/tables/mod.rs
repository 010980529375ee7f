//! What stands beside what: the comparison of engines, the results of one engine, the overview at the end of a run.
//!
//! All figures in these tables follow the definitions `matrix`. A row is marked as the best one only where repeats show that it is.

mod across;
mod columns;
mod comparison;
mod latencies;
mod overview;
mod ratio;

pub use across::across;
pub(crate) use comparison::names;
pub use comparison::{comparison, groups, reference_of};
pub use latencies::latencies;
pub use overview::{engine_results, overview};
pub(crate) use ratio::compared;
pub use ratio::{Held, Ratio, Standing, best, held};

use std::collections::BTreeMap;

use super::traps::{Itl, traps};
use super::{Mark, Row, Table, Value};
use crate::base::ids::{ContentHash, LaunchId};
use crate::judge::metrics::{self, Metric};
use crate::matrix::plan::{Cell, Launch, Plan};
use crate::results::record::cell::{Definitions, Ending, Origin, Phase, Summary};
use crate::results::record::imported::Unknown;
use crate::results::record::machine::Machine;
use crate::results::record::validity::{Reason, Verdict};

/// One cell with every measurement of it.
#[derive(Clone, Debug)]
pub struct Shown<'a> {
    /// The run it was measured in; empty where there is only one.
    pub run: &'a str,
    /// The machine it was measured on, where cells of several runs meet.
    pub machine: Option<&'a Machine>,
    /// The launch it was measured on.
    pub launch: &'a Launch,
    /// The cell.
    pub cell: &'a Cell,
    /// Its measurements, in any order; none if nothing was measured yet.
    pub summaries: Vec<&'a Summary>,
}

impl<'a> Shown<'a> {
    /// Every cell of a plan with the measurements that belong to it, in the order of the plan.
    pub fn of_plan(plan: &'a Plan, summaries: &'a [Summary]) -> Vec<Self> {
        Self::of_run("", None, plan, summaries)
    }

    /// The same for one of several runs.
    pub fn of_run(
        run: &'a str,
        machine: Option<&'a Machine>,
        plan: &'a Plan,
        summaries: &'a [Summary],
    ) -> Vec<Self> {
        let shown = plan.cells.iter().map(|cell| Self {
            run,
            machine,
            launch: plan.launch(&cell.launch),
            cell,
            summaries: summaries
                .iter()
                .filter(|summary| summary.cell == cell.key)
                .collect(),
        });
        shown.collect()
    }

    /// The engine with its version: the one asked for, else the one it reports.
    pub fn engine(&self) -> String {
        let engine = &self.launch.engine;
        let reported = || {
            self.summaries
                .iter()
                .find_map(|summary| summary.engine.version.as_deref())
        };
        match engine.version.as_deref().or_else(reported) {
            Some(version) => format!("{}@{version}", engine.name),
            None => engine.name.clone(),
        }
    }

    /// The measurements that came to their end.
    pub fn done(&self) -> impl Iterator<Item = &'a Summary> {
        self.summaries
            .iter()
            .copied()
            .filter(|summary| summary.ending == Ending::Done)
    }

    /// The measurements that its figures come from: those that came to their end and are not invalid, or all that came to their end
    /// if every one is.
    pub fn counted(&self) -> impl Iterator<Item = &'a Summary> {
        let verdict = self.verdict();
        self.done().filter(move |summary| verdict_of(summary) <= verdict)
    }

    /// Whether the figures that are shown can be believed: the worst verdict of the measurements that count.
    pub fn verdict(&self) -> Verdict {
        let verdicts = || self.done().map(verdict_of);
        let sound = verdicts().filter(|verdict| *verdict < Verdict::Invalid).max();
        sound.or_else(|| verdicts().max()).unwrap_or_default()
    }

    /// The digest of what was sent, if all measurements sent the same.
    pub fn prompts_hash(&self) -> Option<&'a ContentHash> {
        let first = self.summaries.first()?.prompts_hash.as_ref()?;
        let is_same = |summary: &&Summary| summary.prompts_hash.as_ref() == Some(first);
        self.summaries.iter().all(is_same).then_some(first)
    }

    /// What the cell is called where cells of several runs may meet.
    pub fn name(&self) -> String {
        match self.run {
            "" => self.cell.key.to_string(),
            run => format!("{run}: {}", self.cell.key),
        }
    }

    /// Whether it was measured and every measurement came to its end.
    pub fn is_done(&self) -> bool {
        !self.summaries.is_empty() && self.done().count() == self.summaries.len()
    }

    /// The scenario with what an axis may have changed of it.
    pub fn scenario(&self) -> String {
        let scenario = &self.cell.scenario;
        let mut words = scenario.name.clone();
        if !scenario.arrival.rate.is_infinite() {
            words.push_str(&format!(", {} req/s", scenario.arrival.rate));
        }
        if let Some(pace) = &scenario.arrival.pace {
            words.push_str(&format!(", {pace} req/s"));
        }
        if let Some(search) = &scenario.search {
            words.push_str(&format!(", {search}"));
        }
        if let Some(limit) = scenario.arrival.concurrency {
            words.push_str(&format!(", at most {limit} at once"));
        }
        words
    }

    /// The values of a figure over the measurements that count and have it.
    pub(crate) fn values(&self, metric: Metric) -> Vec<f64> {
        self.counted()
            .filter_map(|summary| value_of(summary, metric))
            .collect()
    }

    /// The median of a figure over the measurements that count.
    pub(crate) fn median(&self, metric: Metric) -> Option<f64> {
        metrics::Statistics::of(&self.values(metric)).map(|statistics| statistics.median)
    }

    /// The median of a figure by given definitions, over the measurements that count.
    fn median_by(&self, definitions: Definitions, metric: Metric) -> Option<f64> {
        let values: Vec<f64> = self
            .counted()
            .filter_map(|summary| metrics::figure(summary.figures.get(&definitions)?, metric))
            .collect();
        metrics::Statistics::of(&values).map(|statistics| statistics.median)
    }

    /// Of the measurements that count the one with the median of what cells are compared by, the lower one of two in the middle.
    pub fn middle(&self) -> Option<&'a Summary> {
        let value = |summary: &Summary| value_of(summary, ratio::COMPARED).unwrap_or(0.0);
        let mut counted: Vec<&Summary> = self.counted().collect();
        counted.sort_by(|a, b| value(a).total_cmp(&value(b)));
        let middle = counted.len().checked_sub(1)? / 2;
        counted.get(middle).copied()
    }

    /// Where its figures come from.
    pub fn origin(&self) -> Origin {
        match self.summaries.first() {
            Some(summary) => summary.origin,
            None if self.launch.engine.simulated => Origin::Simulated,
            None => Origin::Measured,
        }
    }

    fn marks(&self) -> Vec<Mark> {
        let mut marks = Vec::new();
        match self.origin() {
            Origin::Measured => {}
            Origin::Imported => marks.push(Mark::Imported),
            Origin::Simulated => marks.push(Mark::Simulated),
        }
        match self.verdict() {
            Verdict::Valid => {}
            Verdict::Suspect => marks.push(Mark::Suspect),
            Verdict::Invalid => marks.push(Mark::Invalid),
        }
        let is_doubtful = |summary: &&Summary| {
            !summary.warnings.is_empty() || !summary.retries.is_empty() || !summary.beside.is_empty()
        };
        if self.summaries.iter().any(is_doubtful) {
            marks.push(Mark::Warned);
        }
        let is_failed = |summary: &&Summary| matches!(summary.ending, Ending::Failed { .. });
        if self.summaries.iter().any(is_failed) {
            marks.push(Mark::Failed);
        }
        marks
    }
}

/// Whether the figures of a measurement can be believed; of one that nobody judged nothing speaks against it.
pub(crate) fn verdict_of(summary: &Summary) -> Verdict {
    summary
        .validity
        .as_ref()
        .map_or_else(Verdict::default, |validity| validity.verdict)
}

/// Whether what was imported does not tell that of a cell.
pub(crate) fn lacks(shown: &Shown<'_>, what: Unknown) -> bool {
    let imported = shown
        .summaries
        .iter()
        .filter_map(|summary| summary.imported.as_ref());
    imported.into_iter().any(|imported| imported.lacks(what))
}

/// A figure by the definitions `matrix`; of what was imported, where these have none, by those that it follows.
fn value_of(summary: &Summary, metric: Metric) -> Option<f64> {
    let by = |definitions| metrics::figure(summary.figures.get(definitions)?, metric);
    let others = || match summary.origin {
        Origin::Imported => [Definitions::Classic, Definitions::Current].iter().find_map(by),
        Origin::Measured | Origin::Simulated => None,
    };
    by(&Definitions::Matrix).or_else(others)
}

/// One value, or the median with the least and the most of several.
pub(super) fn spread(values: &[f64], decimals: usize) -> Value {
    match values {
        [] => Value::Missing,
        [value] => Value::Number {
            value: *value,
            decimals,
        },
        several => {
            let statistics = metrics::Statistics::of(several).expect("there are several values");
            Value::Spread {
                median: statistics.median,
                least: several.iter().copied().fold(f64::INFINITY, f64::min),
                most: statistics.max,
                decimals,
            }
        }
    }
}

/// How a cell ended, in a few words.
pub(crate) fn status(shown: &Shown<'_>) -> String {
    let all = shown.summaries.len();
    let done = shown.done().count();
    match (done, all) {
        (_, 0) => "not measured".to_owned(),
        (1, 1) => "done".to_owned(),
        (0, _) => shown
            .summaries
            .last()
            .map_or_else(String::new, |summary| ended(summary)),
        (done, all) if done == all => format!("done, n={all}"),
        (done, all) => format!("{done} of {all} done"),
    }
}

fn ended(summary: &Summary) -> String {
    match &summary.ending {
        Ending::Failed { phase, .. } => format!("failed in {}", phase.name()),
        other => other.word().to_owned(),
    }
}

/// What must be said of rows: why they failed, what they were warned of, whether they are simulated.
fn notes(named: &[(String, &Shown<'_>)]) -> Vec<String> {
    let mut notes = Vec::new();
    // What was found of many rows is said once.
    let mut found: BTreeMap<_, Vec<(String, &Reason)>> = BTreeMap::new();
    for (name, shown) in named {
        for summary in &shown.summaries {
            let which = if shown.summaries.len() > 1 {
                format!(" (start {}, repeat {})", summary.start, summary.repeat)
            } else {
                String::new()
            };
            match &summary.ending {
                Ending::Done | Ending::Interrupted => {}
                Ending::Failed { phase, reason, .. } => {
                    notes.push(format!(
                        "{name}{which}: failed in {}: {reason}",
                        Phase::name(*phase)
                    ));
                }
                Ending::Skipped { reason } => notes.push(format!("{name}{which}: skipped: {reason}")),
            }
            for reason in doubts(summary) {
                found
                    .entry((
                        std::cmp::Reverse(reason.weight),
                        reason.code,
                        reason.advice.as_str(),
                    ))
                    .or_default()
                    .push((format!("{name}{which}"), reason));
            }
            if !summary.beside.is_empty() {
                notes.push(format!("{name}{which}: {}", beside(&summary.beside)));
            }
            for retry in &summary.retries {
                notes.push(format!(
                    "{name}{which}: tried again after a failure of class {} in {}: {}",
                    retry.class.name(),
                    retry.phase.name(),
                    retry.reason
                ));
            }
            for warning in &summary.warnings {
                notes.push(format!("{name}{which}: {warning}"));
            }
        }
    }
    notes.extend(found.into_values().map(|rows| match &rows[..] {
        [(name, reason)] => format!("{name}: {}", told(reason)),
        several => told_of(several),
    }));
    let has = |origin| named.iter().any(|(_, shown)| shown.origin() == origin);
    if has(Origin::Simulated) {
        notes.push("[simulated]: measured on the simulated engine; says nothing about a real one".to_owned());
    }
    if has(Origin::Imported) {
        notes.push(
            "[imported]: read from what another tool wrote; E2E and TPOT up to the last line, ITL between events, as that tool has them"
                .to_owned(),
        );
    }
    for (name, shown) in named {
        let (done, counted) = (shown.done().count(), shown.counted().count());
        if counted < done {
            notes.push(format!(
                "{name}: {} of {done} measurements are invalid and left out",
                done - counted
            ));
        }
    }
    if named.iter().any(|(_, shown)| shown.counted().count() > 1) {
        notes.push(
            "n measurements: the median, with the least and the most of them; ok/failed counts them together"
                .to_owned(),
        );
    }
    notes
}

/// The reasons for which a measurement is not simply valid.
pub(crate) fn doubts(summary: &Summary) -> impl Iterator<Item = &Reason> {
    let reasons = summary.validity.iter().flat_map(|validity| &validity.reasons);
    reasons.filter(|reason| reason.weight > Verdict::Valid)
}

/// A finding in one sentence.
pub(crate) fn told(reason: &Reason) -> String {
    let bound = reason.bound.as_ref();
    let bound = bound.map_or_else(String::new, |bound| format!(" against {bound}"));
    format!(
        "{} ({}): {}{bound}; {}",
        reason.weight.name(),
        reason.code.name(),
        reason.measured,
        reason.advice
    )
}

/// A finding that several rows share, in one sentence.
fn told_of(rows: &[(String, &Reason)]) -> String {
    let reason = rows[0].1;
    let each = rows.iter().map(|(name, reason)| {
        let bound = reason.bound.as_ref();
        let bound = bound.map_or_else(String::new, |bound| format!(" against {bound}"));
        format!("{name}: {}{bound}", reason.measured)
    });
    let each: Vec<String> = each.collect();
    format!(
        "{} ({}) in {} measurements: {} – {}",
        reason.weight.name(),
        reason.code.name(),
        rows.len(),
        reason.advice,
        each.join("; ")
    )
}

/// That a row was measured beside others, in words.
pub(crate) fn beside(launches: &[LaunchId]) -> String {
    let names: Vec<&str> = launches.iter().map(LaunchId::as_str).collect();
    format!("measured beside {} on the same host", names.join(", "))
}

/// What must be said of rows that show latencies.
fn misread(named: &[(String, &Shown<'_>)]) -> Vec<String> {
    let told = |(name, shown): &(String, &Shown<'_>)| {
        // Figures of other definitions are other figures, and imports say themselves what is wrong with them.
        let figure = |metric| shown.median_by(Definitions::Matrix, metric);
        let told = traps(&figure, Itl::Token).into_iter();
        told.map(|trap| format!("{name}: {trap}")).collect::<Vec<_>>()
    };
    named.iter().flat_map(told).collect()
}

/// That the time to the first token is mostly the wait for others, where all requests are sent at once.
fn queue_bound(named: &[(String, &Shown<'_>)]) -> Option<String> {
    let is_bound = |shown: &&Shown<'_>| {
        let scenario = &shown.cell.scenario;
        let arrival = &scenario.arrival;
        let is_at_once =
            arrival.rate.is_infinite() && arrival.pace.is_none() && arrival.concurrency.is_none();
        is_at_once && !scenario.workload.is_replayed() && scenario.search.is_none()
    };
    let rows = named.iter().map(|(_, shown)| *shown);
    let measured: Vec<&Shown<'_>> = rows.filter(|shown| shown.done().next().is_some()).collect();
    let bound = measured.iter().copied().filter(is_bound).count();
    (bound > 0).then(|| {
        let which = match bound == measured.len() {
            true => "",
            false => " in rows without a rate and a limit",
        };
        format!("every request is sent at once{which}: TTFT is mostly the wait in the engine's queue")
    })
}

const DEFINITIONS: &str = "definitions: matrix (TTFT and E2E from sending to the first and last token, ITL per token); ±: the client's own error, 99 of 100 moments lie within it";

/// Rows that would read alike get the axis values in which they differ.
fn told_apart(shown: &[&Shown<'_>], names: &mut [String], is_alike: &dyn Fn(usize, usize) -> bool) {
    const AXES: [&str; 4] = ["executor", "variant", "args", "env"];
    let value = |at: usize, axis: &str| shown[at].cell.axes.get(axis).map_or("", String::as_str);
    let all: Vec<usize> = (0..shown.len()).collect();
    for (at, name) in names.iter_mut().enumerate() {
        let alike: Vec<usize> = all.iter().copied().filter(|&other| is_alike(at, other)).collect();
        for axis in AXES {
            if alike.iter().any(|&other| value(other, axis) != value(at, axis)) {
                let value = match value(at, axis) {
                    "" => "none",
                    value => value,
                };
                name.push_str(&format!(" {axis}={value}"));
            }
        }
        // Cells of two runs are told apart by nothing but the run, where all else is the same.
        let run = shown[at].run;
        if alike.iter().any(|&other| shown[other].run != run) {
            name.push_str(&format!(" run={run}"));
        }
    }
}

#[cfg(test)]
mod tests;
