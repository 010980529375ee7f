//! Everything that a report shows, independent of its format. [`Document`] is what `report.json` holds and
//! what `matrix schema report` describes; the other formats draw it and compute nothing.
//!
//! A document holds no time and no place of its making: the same results give the same document.

mod cells;
mod comparisons;
mod conclusions;
mod facts;
mod interpolation;
mod legend;
mod load_curves;
mod tables;
#[cfg(test)]
pub(crate) mod tests;
mod time_series;
mod tradeoffs;

use std::collections::BTreeMap;

use serde::Serialize;

pub(crate) use cells::{CellFacts, Figure, label, unit};
#[cfg(test)]
pub(crate) use comparisons::VersusReference;
pub(crate) use comparisons::{ComparisonRow, ComparisonTable, Ranking};
pub(crate) use conclusions::{Conclusion, ConclusionOutcome, Headline, NO_WINNER};
pub(crate) use facts::{Fact, HOSTS, LeftOutFact, RunFacts, machine_facts};
pub(crate) use load_curves::LoadCurve;
pub(crate) use tables::ReportTables;
pub(crate) use time_series::{MeasurementTimeSeries, Series, SeriesQuantity};
pub(crate) use tradeoffs::{OperatingPoint, Tradeoff};

use interpolation::interpolation_table;

use super::ReportCell;
use super::table::Table;
use super::tables::compare_groups;
use super::tune::{self, frontier_table};
use crate::analysis::compare::precision::CellPrecision;
use crate::analysis::graded::agreement::{CellAgreement, agreements};
use crate::analysis::graded::reference::{AnswerComparison, compare_answers};
use crate::base::ids::CellKey;
use crate::config::prices::Prices;
use crate::plan::{Measurement, Plan};
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::cell_stats::Noise;
use crate::results::record::machine::Machine;
use crate::results::record::run::RunInfo;
use crate::results::record::stored_answers::StoredAnswers;
use crate::results::record::tune::TuneRecord;

/// The version of the layout of `report.json`.
pub(crate) const FORMAT: u32 = 1;

/// A run as input of a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportedRun<'a> {
    pub(crate) run_info: &'a RunInfo,
    pub(crate) plan: &'a Plan,
    pub(crate) machine: &'a Machine,
    pub(crate) summaries: &'a [MeasurementSummary],
    /// Answers of a stored run with which those of this run are compared.
    pub(crate) stored_answers: Option<&'a StoredAnswers>,
    /// What was recorded of each measurement over time.
    pub(crate) traces: &'a BTreeMap<Measurement, MeasurementTimeSeries>,
    /// Warnings about files that could not be read and were skipped.
    pub(crate) warnings: &'a [String],
    /// Precision of the cells; empty unless the matrix asks for a precision.
    pub(crate) precisions: &'a BTreeMap<CellKey, CellPrecision>,
    /// The search for the best configuration whose trials the run has, if it has.
    pub(crate) tune: Option<&'a TuneRecord>,
    /// Noise of this machine's figures, if `matrix noise` measured it.
    pub(crate) noise: Option<&'a Noise>,
    /// Prices of its GPUs and of energy.
    pub(crate) prices: &'a Prices,
}

/// Everything that a report shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Document {
    /// Version of this layout.
    pub(crate) format: u32,
    /// Names of the matrices, joined by commas.
    pub(crate) title: String,
    /// The runs of the report.
    pub(crate) runs: Vec<RunFacts>,
    /// What the report says about each model and load, in the order of the comparisons.
    pub(crate) conclusions: Vec<Conclusion>,
    /// All cells of all runs, in the order of the plans.
    pub(crate) cells: Vec<CellFacts>,
    /// Comparisons with the reference, one for each model and scenario.
    pub(crate) comparisons: Vec<ComparisonTable>,
    /// Results of each engine over all comparisons.
    pub(crate) standings: Vec<Ranking>,
    /// Output per user against output per GPU, one entry for each model and scenario name.
    pub(crate) tradeoffs: Vec<Tradeoff>,
    /// Latencies against the load, for scenarios with several rates or concurrencies.
    pub(crate) load_curves: Vec<LoadCurve>,
    /// The tables that Markdown, HTML and the terminal show.
    #[serde(skip)]
    pub(crate) tables: ReportTables,
}

impl Document {
    /// Creates the document of these runs.
    ///
    /// Ratios refer to the engine `reference`, without it to the one that the first run's plan names. If
    /// neither is given, they refer to the engine of the first cell, and in a comparison that lacks that
    /// engine to the one of its first row. `bound` is the smallest change that counts, as a share.
    pub(crate) fn from_runs(sources: &[ReportedRun<'_>], reference: Option<&str>, bound: f64) -> Self {
        let has_several = sources.len() > 1;
        let answers: Vec<Vec<AnswerComparison>> = sources
            .iter()
            .map(|source| compare_answers(source.plan, source.summaries, source.stored_answers))
            .collect();
        let probes: Vec<Vec<CellAgreement>> = sources
            .iter()
            .map(|source| agreements(source.plan, source.summaries, source.stored_answers))
            .collect();
        let report_cells: Vec<ReportCell<'_>> = sources
            .iter()
            .zip(answers.iter().zip(&probes))
            .flat_map(|(source, (answers, probes))| {
                let run = if has_several {
                    source.run_info.run.as_str()
                } else {
                    ""
                };
                let machine = has_several.then_some(source.machine);
                let report_cells = ReportCell::from_run(run, machine, source.plan, source.summaries);
                report_cells.into_iter().map(|cell| {
                    cell.with_precisions(source.precisions)
                        .with_noise(source.noise)
                        .with_prices(source.prices, source.machine)
                        .with_answer_comparisons(answers)
                        .with_agreements(probes)
                })
            })
            .collect();
        let traces: Vec<&BTreeMap<Measurement, MeasurementTimeSeries>> = sources
            .iter()
            .flat_map(|source| source.plan.cells.iter().map(|_| source.traces))
            .collect();
        let runs: Vec<&str> = sources
            .iter()
            .flat_map(|source| source.plan.cells.iter().map(|_| source.run_info.run.as_str()))
            .collect();
        let reference = reference.or_else(|| sources.first()?.plan.reference.as_deref());
        let cells = report_cells.iter().zip(traces).zip(runs);
        let groups = compare_groups(&report_cells, reference, bound);
        let comparisons = comparisons::comparisons(&report_cells, &groups);
        let run = (!has_several).then(|| sources.first().map(|source| source.run_info.run.as_str()));
        let conclusions = conclusions::conclusions(&groups, run.flatten());
        let tradeoffs = tradeoffs::tradeoffs(&report_cells, &groups, &conclusions);
        let (standings, of_means) = comparisons::rankings(&report_cells, &comparisons);
        Self {
            format: FORMAT,
            title: title(sources),
            runs: sources.iter().map(facts::run_facts).collect(),
            conclusions,
            cells: cells
                .map(|((cell, traces), run)| cells::cell(cell, run, traces))
                .collect(),
            load_curves: load_curves::load_curves(&report_cells),
            tables: ReportTables {
                interpolations: tradeoffs.iter().filter_map(interpolation_table).collect(),
                searches: sources
                    .iter()
                    .filter_map(|source| search_table(source.tune?))
                    .collect(),
                ..ReportTables::build(&report_cells, &groups, &standings, of_means, bound)
            },
            tradeoffs,
            comparisons,
            standings,
        }
    }

    /// What the report says first. The trials of a search have no conclusions but its answer, which its table has.
    pub(crate) fn headlines(&self) -> Vec<Headline> {
        match self.tables.searches.is_empty() {
            true => conclusions::headlines(&self.conclusions),
            false => Vec::new(),
        }
    }

    pub(crate) fn json(&self) -> String {
        let text = serde_json::to_string(self).expect("a document has text keys");
        format!("{text}\n")
    }
}

/// The frontier of a search for the best configuration, with its answer; `None` without a measured trial.
fn search_table(record: &TuneRecord) -> Option<Table> {
    let frontier = frontier_table(record);
    let mut notes = vec![format!("{}; tune.md has all trials", tune::headline(record))];
    notes.extend(frontier.notes);
    let table = Table {
        title: format!(
            "Frontier: the best configurations of {} that were tried",
            record.engine
        ),
        notes,
        ..frontier
    };
    (!table.rows.is_empty()).then_some(table)
}

fn title(sources: &[ReportedRun<'_>]) -> String {
    let mut names: Vec<&str> = sources.iter().map(|source| source.plan.matrix.as_str()).collect();
    names.dedup();
    names.join(", ")
}
