//! A row of the site: one cell of one run, with its figures, its verdict and the conditions that it was measured under.

use std::collections::BTreeSet;

use super::hosts::{self, HostId, Hosts};
use crate::analysis::compare::cell_facts::{limit_facts, load_in_words, question_facts};
use crate::analysis::compare::compared_cell::ComparedCell;
use crate::analysis::compare::from_run::metric_family;
use crate::analysis::compare::machine_facts::facts_of_measurements;
use crate::analysis::compare::settings::launch_settings;
use crate::analysis::compare::t_test::{mean, quantile, variance};
use crate::analysis::compare::verdict::logs;
use crate::analysis::metrics::{LatencyKind, Metric, Quantity, Statistic};
use crate::report::ReportCell;
use crate::report::tables::{is_unknown, mean_of_starts, means_of_starts, status_in_words};
use crate::results::record::cell::{Definitions, MeasurementSummary, Origin};
use crate::results::record::cell_stats::Facts;
use crate::results::record::machine::Machine;
use crate::results::record::provenance::UnknownFact;
use crate::results::record::validity::{MetricFamily, Verdict};

/// The value of a condition that is not known: it equals no other one.
pub(crate) const UNKNOWN: &str = "unknown";

/// Chance below the upper bound of a 95 % confidence interval.
const UPPER: f64 = 0.975;

/// Figures of every row. The first [`MAIN_FIGURES`] are columns of the table and are drawn over dates.
pub(crate) const FIGURES: [Metric; 9] = [
    Metric::Throughput(Quantity::Output),
    Metric::Time(Statistic::Median, LatencyKind::Ttft),
    Metric::Time(Statistic::Median, LatencyKind::Tpot),
    Metric::Time(Statistic::Median, LatencyKind::E2e),
    Metric::PerDevice(Quantity::Output),
    Metric::Interactivity,
    Metric::Throughput(Quantity::Requests),
    Metric::Goodput,
    Metric::Time(Statistic::P99, LatencyKind::Ttft),
];

/// Number of figures with a column.
pub(crate) const MAIN_FIGURES: usize = 4;

/// Index of a figure among [`FIGURES`].
pub(crate) fn figure_index(metric: Metric) -> usize {
    let index = FIGURES.iter().position(|figure| *figure == metric);
    index.expect("only figures of the list are asked for")
}

/// One cell of one run.
#[derive(Clone, Debug)]
pub(crate) struct SiteRow {
    /// Key of the cell.
    pub(crate) cell: String,
    pub(crate) host: HostId,
    /// Name of the host; `None` if it is unknown.
    pub(crate) host_name: Option<String>,
    /// GPUs of the host in words; `None` without GPUs.
    pub(crate) gpu: Option<String>,
    /// Name of the engine in the matrix.
    pub(crate) engine: String,
    /// Recipe of the engine. All settings of two rows are comparable only if it is the same.
    pub(crate) recipe: String,
    /// Version of the engine; `None` if it is unknown.
    pub(crate) version: Option<String>,
    pub(crate) model: String,
    /// Number format of the weights.
    pub(crate) precision: Option<String>,
    /// Tensor-parallel size; `None` if it is unknown.
    pub(crate) tp: Option<u32>,
    /// Number of GPUs of the engine; `None` if it is unknown.
    pub(crate) gpus: Option<u32>,
    /// Name of the scenario.
    pub(crate) scenario: String,
    /// Name of the scenario with its load.
    pub(crate) load: String,
    pub(crate) origin: Origin,
    /// Whether the engine is the simulated one, also where its figures were imported.
    pub(crate) is_simulated: bool,
    pub(crate) state: RowState,
    /// How its measurements ended.
    pub(crate) status: String,
    /// Codes of the reasons for which it is suspect or invalid.
    pub(crate) codes: Vec<String>,
    /// Number of starts that count.
    pub(crate) starts: usize,
    /// One entry for each of [`FIGURES`].
    pub(crate) figures: Vec<Option<SiteFigure>>,
    pub(crate) conditions: Conditions,
    /// Whether all settings of its engine are known, so that one that is not listed is not set.
    pub(crate) has_all_settings: bool,
    /// Digest of its prompts; `None` if it is unknown, or not the same in all measurements.
    pub(crate) prompts: Option<String>,
}

/// Whether the figures of a row can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowState {
    Valid,
    Suspect,
    Invalid,
    /// It has figures, but nothing judged them: results of other tools, or of an old version.
    NotJudged,
    /// No measurement is done.
    NoFigures,
}

impl RowState {
    /// Its name in the table; `None` if the status says it.
    pub(crate) const fn name(self) -> Option<&'static str> {
        match self {
            Self::Valid => Some(Verdict::Valid.name()),
            Self::Suspect => Some(Verdict::Suspect.name()),
            Self::Invalid => Some(Verdict::Invalid.name()),
            Self::NotJudged => Some("not judged"),
            Self::NoFigures => None,
        }
    }
}

/// A figure of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SiteFigure {
    /// Mean over starts.
    pub(crate) value: f64,
    /// 95 % confidence interval over starts; `None` for a single start.
    pub(crate) interval: Option<[f64; 2]>,
    /// Verdict of its family of metrics.
    pub(crate) verdict: Verdict,
}

/// What a row was measured under, by name. Two rows of which all are equal may be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    pub(crate) host: Facts,
    pub(crate) load: Facts,
    pub(crate) settings: Facts,
}

impl SiteRow {
    /// A figure that may be drawn: one that is not invalid.
    pub(crate) fn drawable(&self, metric: Metric) -> Option<SiteFigure> {
        let figure = self.figures[figure_index(metric)]?;
        (figure.verdict < Verdict::Invalid).then_some(figure)
    }

    /// The verdict in words: its name with the codes, or how the cell ended.
    pub(crate) fn verdict(&self) -> String {
        match self.state.name() {
            None => self.status.clone(),
            Some(name) if self.codes.is_empty() => name.to_owned(),
            Some(name) => format!("{name}: {}", self.codes.join(", ")),
        }
    }
}

/// The row of a cell of a run with this machine.
pub(super) fn row(cell: &ReportCell<'_>, machine: &Machine, hosts: &mut Hosts) -> SiteRow {
    let counted: Vec<&MeasurementSummary> = cell.counted_summaries().collect();
    let facts = facts_of_measurements(machine, counted.iter().copied());
    let own = counted.iter().find_map(|summary| summary.machine.as_deref());
    let launch = cell.launch;
    let name = |known: String, fact| match is_unknown(cell, fact) {
        true => "–".to_owned(),
        false => known,
    };
    let state = state(cell, &counted);
    SiteRow {
        cell: cell.cell.key.to_string(),
        host: hosts.find_or_add(&facts),
        host_name: hosts::name(&facts),
        gpu: hosts::gpus_in_words(own.unwrap_or(machine), &facts),
        engine: name(launch.engine.name.clone(), UnknownFact::Engine),
        recipe: launch.engine.recipe.clone(),
        version: version(cell),
        model: name(launch.model.clone(), UnknownFact::Model),
        precision: launch.precision.clone(),
        tp: (!is_unknown(cell, UnknownFact::Tp)).then_some(launch.parallel.tp),
        gpus: launch.gpus().filter(|_| !is_unknown(cell, UnknownFact::Gpus)),
        scenario: cell.cell.scenario.name.clone(),
        load: cell.scenario(),
        origin: cell.origin(),
        is_simulated: launch.engine.simulated || cell.origin() == Origin::Simulated,
        state,
        status: status_in_words(cell),
        codes: codes(&counted),
        starts: cell.values_by_start(FIGURES[0]).len(),
        figures: FIGURES
            .iter()
            .map(|metric| figure(cell, &counted, *metric))
            .collect(),
        conditions: conditions(cell, &counted, &facts),
        has_all_settings: launch.place.settings().command().is_some(),
        prompts: cell.prompts_hash().map(|digest| digest.as_str().to_owned()),
    }
}

/// The requested version of the engine, else the reported one.
fn version(cell: &ReportCell<'_>) -> Option<String> {
    let mut summaries = cell.summaries.iter();
    let reported = || summaries.find_map(|summary| summary.engine.version.clone());
    let requested = cell.launch.engine.version.clone();
    requested
        .or_else(reported)
        .or_else(|| cell.other_engine_version.map(str::to_owned))
        .filter(|_| !is_unknown(cell, UnknownFact::Version))
}

fn state(cell: &ReportCell<'_>, counted: &[&MeasurementSummary]) -> RowState {
    if counted.is_empty() {
        return RowState::NoFigures;
    }
    let families = MetricFamily::ALL.into_iter();
    let worst = families.map(|family| family_verdict(counted, Some(family))).max();
    match cell.validity().max(worst.unwrap_or_default()) {
        Verdict::Invalid => match cell.validity() {
            Verdict::Invalid => RowState::Invalid,
            // Only some families of its figures are.
            Verdict::Valid | Verdict::Suspect => RowState::Suspect,
        },
        Verdict::Suspect => RowState::Suspect,
        Verdict::Valid if counted.iter().any(|summary| summary.validity.is_none()) => RowState::NotJudged,
        Verdict::Valid => RowState::Valid,
    }
}

/// The worst verdict of some measurements on a family of metrics, or on everything.
fn family_verdict(counted: &[&MeasurementSummary], family: Option<MetricFamily>) -> Verdict {
    let validities = counted.iter().filter_map(|summary| summary.validity.as_ref());
    let verdict = validities.map(|validity| match family {
        Some(family) => validity.verdict_for(family),
        None => validity.verdict,
    });
    verdict.max().unwrap_or_default()
}

fn codes(counted: &[&MeasurementSummary]) -> Vec<String> {
    let reasons = counted
        .iter()
        .filter_map(|summary| summary.validity.as_ref())
        .flat_map(|validity| &validity.reasons)
        .filter(|reason| reason.weight > Verdict::Valid);
    let in_words = reasons.map(|reason| {
        let families: Vec<&str> = reason.only.iter().map(|family| family.name()).collect();
        match families.is_empty() {
            true => reason.code.name().to_owned(),
            false => format!("{} ({})", reason.code.name(), families.join(", ")),
        }
    });
    let codes: BTreeSet<String> = in_words.collect();
    codes.into_iter().collect()
}

fn figure(cell: &ReportCell<'_>, counted: &[&MeasurementSummary], metric: Metric) -> Option<SiteFigure> {
    let by_start = cell.values_by_start(metric);
    let value = mean_of_starts(&by_start).filter(|value| value.is_finite())?;
    Some(SiteFigure {
        value,
        interval: interval(&means_of_starts(&by_start)),
        verdict: family_verdict(counted, metric_family(metric)),
    })
}

/// The 95 % confidence interval of the geometric mean over starts, by Student's t of the logarithms; `None` for a single
/// start, or if a value is not above zero.
pub(super) fn interval(starts: &[f64]) -> Option<[f64; 2]> {
    let logs = logs(starts).filter(|logs| logs.len() > 1)?;
    let n = logs.len() as f64;
    let half = quantile(n - 1.0, UPPER) * (variance(&logs) / n).sqrt();
    let bounds = [-half, half].map(|half| (mean(&logs) + half).exp());
    bounds
        .iter()
        .all(|bound| bound.is_finite() && *bound < 1e12)
        .then_some(bounds)
}

fn conditions(cell: &ReportCell<'_>, counted: &[&MeasurementSummary], host: &Facts) -> Conditions {
    let compared = ComparedCell {
        launch: cell.launch,
        cell: cell.cell,
        summaries: &cell.summaries,
        machine: cell.machine,
    };
    let mut load = question_facts(&compared);
    load.extend(limit_facts(&cell.cell.scenario));
    // The same checkpoint has the same precision. What an attached server or another tool loaded is not known so well.
    if !cell.launch.is_attached() && compared.imported().is_none() && load.contains_key("checkpoint") {
        load.remove("precision");
    }
    let digest = cell.prompts_hash();
    load.insert(
        "digest of the prompts".to_owned(),
        digest.map_or(UNKNOWN, |digest| digest.as_str()).to_owned(),
    );
    let imported = compared.imported();
    if imported.is_none() {
        load.insert("prompts".to_owned(), load_in_words(&cell.cell.scenario));
        load.entry("answers that count".to_owned())
            .or_insert_with(|| "all".to_owned());
    }
    let client = imported.map_or("matrix", |imported| imported.tool.name());
    load.insert("client".to_owned(), client.to_owned());
    load.insert(
        "definitions of the figures".to_owned(),
        definitions(cell, counted),
    );
    Conditions {
        host: hosts::conditions(host),
        load,
        settings: settings(cell),
    }
}

/// The definitions that the figures follow.
fn definitions(cell: &ReportCell<'_>, counted: &[&MeasurementSummary]) -> String {
    let has = |set: Definitions| counted.iter().any(|summary| summary.figures.contains_key(&set));
    let own = cell.origin() != Origin::Imported;
    let others = [Definitions::Classic, Definitions::Current]
        .into_iter()
        .find(|set| has(*set));
    match others.filter(|_| !own) {
        Some(set) => set.name().to_owned(),
        None => Definitions::Matrix.name().to_owned(),
    }
}

/// Settings of the engine. Its image is left out: it has the version in its name.
fn settings(cell: &ReportCell<'_>) -> Facts {
    let mut settings = launch_settings(cell.launch, &cell.summaries);
    settings.remove("image name");
    if settings.is_empty() {
        settings.insert("settings".to_owned(), UNKNOWN.to_owned());
    }
    let gpus = cell
        .launch
        .gpus()
        .filter(|_| !is_unknown(cell, UnknownFact::Gpus));
    let gpus = gpus.map_or_else(|| UNKNOWN.to_owned(), |gpus| gpus.to_string());
    settings.insert("GPUs of the engine".to_owned(), gpus);
    let parallel = cell.launch.parallel;
    let parallel = match is_unknown(cell, UnknownFact::Tp) {
        true => UNKNOWN.to_owned(),
        false => format!(
            "tp {} pp {} dp {} ep {}",
            parallel.tp, parallel.pp, parallel.dp, parallel.ep
        ),
    };
    settings.insert("parallelism".to_owned(), parallel);
    settings
}
