//! The notes below tables.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::report_cell::{ReportCell, is_burst};
use crate::analysis::compare::percentile;
use crate::analysis::compare::precision::NextStep;
use crate::analysis::metrics::{self, Metric, TokenCount};
use crate::base::ids::LaunchId;
use crate::base::text::pluralize;
use crate::plan::ExecutorSpec;
use crate::report::caveats::{Itl, latency_caveats, prompt_count_note, prompt_counts};
use crate::report::connection_notes;
use crate::report::table::{Mark, Row, Value};
use crate::results::record::cell::{Definitions, MeasurementStatus, MeasurementSummary, Origin};
use crate::results::record::prompt::counts_differ;
use crate::results::record::provenance::Tool;
use crate::results::record::validity::{Reason, ReasonCode, Verdict};

pub(super) const DEFINITIONS: &str = "definitions: matrix (TTFT and E2E from sending to the first and last token, ITL per token); ±: the client's own error; 99 % of its timestamps are within this error";

/// Notes on rows: failures, warnings, retries, validity, and whether they are simulated or imported.
pub(super) fn row_notes(named: &[(String, &ReportCell<'_>)]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut findings = Findings::default();
    for (name, cell) in named {
        for summary in &cell.summaries {
            let which = if cell.summaries.len() > 1 {
                format!("{name} (start {}, repeat {})", summary.start, summary.repeat)
            } else {
                name.clone()
            };
            notes.extend(measurement_notes(summary).map(|note| format!("{which}: {note}")));
            for reason in suspect_reasons(summary) {
                findings.add(name, &which, reason);
            }
        }
    }
    notes.extend(findings.in_words());
    let has = |origin| named.iter().any(|(_, cell)| cell.origin() == origin);
    if has(Origin::Simulated) || named.iter().any(|(_, cell)| cell.launch.engine.simulated) {
        notes.push("[simulated]: measured on the simulated engine; says nothing about a real one".to_owned());
    }
    if has(Origin::Imported) {
        notes.extend(imported_notes(named));
    }
    for (name, cell) in named {
        let (done, counted) = (cell.completed().count(), cell.counted_summaries().count());
        if counted < done {
            notes.push(format!(
                "{name}: {} of {done} measurements {} invalid and left out",
                done - counted,
                if done - counted == 1 { "is" } else { "are" }
            ));
        }
    }
    notes.extend(named.iter().filter_map(differing_prompts_note));
    notes.extend(unique_prefix_note(named));
    notes.extend(attached_note(named));
    notes.extend(unverified_server_note(named));
    if named.iter().any(|(_, cell)| cell.counted_summaries().count() > 1) {
        notes.push(
            "n in the status: number of measurements; a value is the mean over starts, with minimum and maximum of the measurements; ok/failed is the sum over measurements"
                .to_owned(),
        );
    }
    notes
}

/// How the tools define the imported figures, a note for each definition.
fn imported_notes(named: &[(String, &ReportCell<'_>)]) -> Vec<String> {
    let summaries = named.iter().flat_map(|(_, cell)| &cell.summaries);
    let tools: BTreeSet<Tool> = summaries
        .filter_map(|summary| summary.imported.as_ref())
        .map(|imported| imported.tool)
        .collect();
    let note = |tool: Tool| {
        let mark = Mark::Imported(Some(tool)).word().unwrap_or_default();
        let source = match tool {
            Tool::BenchServing => "bench_serving or one of its forks",
            other => other.name(),
        };
        format!(
            "[{mark}]: read from the output of {source}; {}",
            tool.definitions()
        )
    };
    tools.into_iter().map(note).collect()
}

/// The note on rows that were measured repeatedly on attached servers.
fn attached_note(named: &[(String, &ReportCell<'_>)]) -> Option<String> {
    let is_repeated =
        |cell: &ReportCell<'_>| cell.launch.is_attached() && cell.counted_summaries().count() > 1;
    let with = named.iter().filter(|(_, cell)| is_repeated(cell));
    let names: Vec<&str> = with.map(|(name, _)| name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{}: on attached servers, all measurements repeat the load on one start, so they do not show how starts vary",
            names.join(", ")
        )
    })
}

/// The note on rows whose servers were not authenticated.
fn unverified_server_note(named: &[(String, &ReportCell<'_>)]) -> Option<String> {
    let is_insecure = |cell: &ReportCell<'_>| match &cell.launch.place {
        ExecutorSpec::Attach(attach) => attach.tls.insecure,
        _ => false,
    };
    let with = named.iter().filter(|(_, cell)| is_insecure(cell));
    let names: Vec<&str> = with.map(|(name, _)| name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{}: the certificate of the server was not checked (`insecure`), so another server may have answered",
            names.join(", ")
        )
    })
}

/// The note on rows whose prompts had unique prefixes.
fn unique_prefix_note(named: &[(String, &ReportCell<'_>)]) -> Option<String> {
    let has = |summary: &&MeasurementSummary| {
        let proof = summary.cache_reset.as_ref();
        proof.is_some_and(|proof| proof.unique_prefix.is_some())
    };
    let with = named.iter().filter(|(_, cell)| cell.summaries.iter().any(has));
    let names: Vec<&str> = with.map(|(name, _)| name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{}: the engine's caches cannot be reset, so the prompts of each measurement start with a unique prefix instead of \
             their first tokens",
            names.join(", ")
        )
    })
}

/// Notes on one measurement, apart from its validity.
fn measurement_notes(summary: &MeasurementSummary) -> impl Iterator<Item = String> {
    let ending = match &summary.status {
        MeasurementStatus::Done | MeasurementStatus::Interrupted => None,
        MeasurementStatus::Failed { phase, reason, .. } => {
            Some(format!("failed in {}: {reason}", phase.name()))
        }
        MeasurementStatus::Skipped { reason } => Some(format!("skipped: {reason}")),
    };
    let concurrent = (!summary.concurrent_launches.is_empty())
        .then(|| concurrent_launches_note(&summary.concurrent_launches));
    let retries = summary.retries.iter().map(|retry| {
        format!(
            "the measurement was retried after a failure of class {} in the phase {}: {}",
            retry.class.name(),
            retry.phase.name(),
            retry.reason
        )
    });
    let ending = ending.into_iter().chain(concurrent);
    let connections = summary.connections.iter();
    let connections = connections.flat_map(|counts| connection_notes::notes(counts, &connection_notes::KEYS));
    let noted = ending.chain(retries).chain(connections);
    noted.chain(summary.warnings.iter().cloned())
}

/// A reason with the names of its row and of its measurement.
type RowReason<'a> = (&'a str, String, &'a Reason);

/// Validity findings of a table's measurements. A finding that several measurements share is printed once.
#[derive(Default)]
struct Findings<'a> {
    /// By weight, the worst first, then by code and advice: row, measurement, reason.
    by_code: BTreeMap<(Reverse<Verdict>, ReasonCode, &'a str), Vec<RowReason<'a>>>,
}

impl<'a> Findings<'a> {
    fn add(&mut self, name: &'a str, which: &str, reason: &'a Reason) {
        let key = (Reverse(reason.weight), reason.code, reason.advice.as_str());
        let rows = self.by_code.entry(key).or_default();
        rows.push((name, which.to_owned(), reason));
    }

    fn in_words(self) -> impl Iterator<Item = String> {
        self.by_code.into_values().map(|rows| match &rows[..] {
            [(_, which, reason)] => format!("{which}: {}", reason_in_words(reason)),
            several => shared_finding_in_words(several),
        })
    }
}

/// Number of rows that a shared finding names.
const MAX_NAMED_ROWS: usize = 6;

/// A finding that several measurements share, in one sentence. The table of findings has the measured values.
fn shared_finding_in_words(rows: &[RowReason<'_>]) -> String {
    let reason = rows[0].2;
    let mut names: Vec<&str> = rows.iter().map(|(name, ..)| *name).collect();
    names.dedup();
    let more = match names.len().saturating_sub(MAX_NAMED_ROWS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names.truncate(MAX_NAMED_ROWS);
    format!(
        "{} ({}) in {}, of {}{more}: {}",
        reason.describe_weight(),
        reason.code.name(),
        pluralize(rows.len(), "measurement", "measurements"),
        names.join(", "),
        reason.advice
    )
}

/// The reasons with weight suspect or invalid.
pub(crate) fn suspect_reasons(summary: &MeasurementSummary) -> impl Iterator<Item = &Reason> {
    let reasons = summary.validity.iter().flat_map(|validity| &validity.reasons);
    reasons.filter(|reason| reason.weight > Verdict::Valid)
}

pub(crate) fn reason_in_words(reason: &Reason) -> String {
    let bound = reason.bound.as_ref();
    let bound = bound.map_or_else(String::new, |bound| format!(" (bound: {bound})"));
    format!(
        "{} ({}): {}{bound}; {}",
        reason.describe_weight(),
        reason.code.name(),
        reason.measured,
        reason.advice
    )
}

/// Says which launches ran on the same host at the same time.
pub(crate) fn concurrent_launches_note(launches: &[LaunchId]) -> String {
    let names: Vec<&str> = launches.iter().map(LaunchId::as_str).collect();
    format!(
        "other launches that ran on the same host during the measurement: {}",
        names.join(", ")
    )
}

/// The note on the mark of rough values, if there are any.
pub(super) fn approximate_note(rows: &[Row]) -> Option<String> {
    let mut cells = rows.iter().flat_map(|row| &row.cells);
    cells
        .any(|cell| matches!(cell, Value::Approximate(_)))
        .then(approximate_mark_text)
}

pub(super) fn approximate_mark_text() -> String {
    format!(
        "~: the percentile is rough, because fewer than {:.0} requests are beyond it",
        percentile::MIN_OBSERVATIONS_BEYOND
    )
}

/// The note that the server counts other prompt tokens than were sent, by more than a few for each prompt, as
/// a chat template may add them. There is none if validity reports this already, for imports, for the
/// simulated engine (it has no tokenizer), and for prompts with images (their token count is unknown).
fn differing_prompts_note((name, cell): &(String, &ReportCell<'_>)) -> Option<String> {
    let is_found = |reason: &Reason| reason.code == ReasonCode::PromptTokensDisagree;
    let is_simulated = cell.origin() != Origin::Measured || cell.launch.engine.simulated;
    if is_simulated || cell.counted_summaries().flat_map(suspect_reasons).any(is_found) {
        return None;
    }
    let figure = |metric| median_value(cell, metric);
    let vision = figure(Metric::Tokens(TokenCount::InputVision)).unwrap_or(0.0);
    let prompts = figure(Metric::Completed)?;
    prompt_counts(&figure)
        .filter(|(reported, input)| vision <= 0.0 && counts_differ(*reported, *input, prompts))
        .map(|counts| format!("{name}: {}", prompt_count_note(counts)))
}

/// The median of a metric over the measurements of a row, under the definitions `matrix` only: imports carry
/// their own notes.
fn median_value(cell: &ReportCell<'_>, metric: Metric) -> Option<f64> {
    let read = |summary: &MeasurementSummary| {
        metrics::metric_value(summary.figures.get(&Definitions::Matrix)?, metric)
    };
    let values: Vec<f64> = cell.counted_summaries().filter_map(read).collect();
    metrics::Statistics::from_values(&values).map(|statistics| statistics.median)
}

/// Caveats of rows that show latencies.
pub(super) fn caveat_notes(code_list: &[(String, &ReportCell<'_>)]) -> Vec<String> {
    let row_caveats = |(name, cell): &(String, &ReportCell<'_>)| {
        let figure = |metric| median_value(cell, metric);
        let row_caveats = latency_caveats(&figure, Itl::Token).into_iter();
        row_caveats
            .map(|trap| format!("{name}: {trap}"))
            .collect::<Vec<_>>()
    };
    code_list.iter().flat_map(row_caveats).collect()
}

/// Notes on the precision of rows and on why no further starts were made, if the matrix asks for a precision.
/// Rows with the same ending share a sentence.
pub(super) fn precision_notes(named: &[(String, &ReportCell<'_>)]) -> Vec<String> {
    let mut alike: Vec<(String, Vec<String>)> = Vec::new();
    for (name, cell) in named {
        let Some(precision) = cell.precision.filter(|_| !cell.summaries.is_empty()) else {
            continue;
        };
        let stop_rule = &precision.stop_rule;
        let why = match &precision.next_step {
            NextStep::TargetReached
                if precision
                    .figure
                    .as_ref()
                    .is_some_and(|figure| figure.half_width > stop_rule.half_width.share()) =>
            {
                format!(
                    "precision of {} not reached: the number of starts was computed from the first starts, but later starts vary more",
                    stop_rule.half_width
                )
            }
            NextStep::TargetReached => format!("precise enough, within {}", stop_rule.half_width),
            NextStep::MoreStarts(_) => format!(
                "precision of {} not yet reached; continue with `--resume`",
                stop_rule.half_width
            ),
            NextStep::MaxStartsReached => format!(
                "precision of {} not reached within the maximum of {} starts",
                stop_rule.half_width, stop_rule.most
            ),
            NextStep::BudgetSpent => {
                let budget = stop_rule
                    .budget
                    .map_or_else(String::new, |budget| budget.to_string());
                format!(
                    "precision of {} not reached within the budget of {budget} of GPU time",
                    stop_rule.half_width
                )
            }
            NextStep::NotPossible(why) => format!("no further starts, {why}"),
        };
        let figure = precision.figure.as_ref().map(|figure| {
            format!(
                "{name}: {} ±{:.1} % after {}",
                figure.figure,
                figure.half_width * 100.0,
                pluralize(figure.starts, "start", "starts")
            )
        });
        let row = figure.unwrap_or_else(|| name.clone());
        match alike.iter_mut().find(|(ending, _)| *ending == why) {
            Some((_, rows)) => rows.push(row),
            None => alike.push((why, vec![row])),
        }
    }
    let reached_rows = alike
        .into_iter()
        .map(|(why, rows)| format!("{why}: {}", rows.join("; ")));
    reached_rows.collect()
}

/// The note that TTFT is not shown for bursts.
pub(super) fn burst_ttft_note(named: &[(String, &ReportCell<'_>)]) -> Option<String> {
    let rows = named.iter().map(|(_, cell)| *cell);
    let measured: Vec<&ReportCell<'_>> = rows.filter(|cell| cell.completed().next().is_some()).collect();
    let bursts = measured.iter().filter(|cell| is_burst(cell)).count();
    (bursts > 0).then(|| {
        match bursts == measured.len() {
            true => {
                "every request is sent at once: the time to the first token is the wait in the engine's queue, and is not shown as TTFT"
            }
            false => {
                "rows with neither a rate nor a concurrency limit send all requests at once: the time to the first token is the wait in the engine's queue, and is not shown as TTFT"
            }
        }
        .to_owned()
    })
}
