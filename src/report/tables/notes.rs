//! The notes below tables.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{Row, Shown, Value};
use crate::analysis::compare::gates::Load;
use crate::analysis::compare::percentile;
use crate::analysis::compare::precision::Outlook;
use crate::analysis::metrics::{self, Count, Metric};
use crate::base::ids::LaunchId;
use crate::base::text::counted;
use crate::report::caveats::{Itl, counted_prompts, prompt_count_note, traps};
use crate::results::record::cell::{Definitions, Ending, Origin, Summary};
use crate::results::record::prompt::are_apart;
use crate::results::record::validity::{Code, Reason, Verdict};

/// Notes on rows: failures, warnings, retries, validity, and whether they are simulated or imported.
pub(super) fn notes(named: &[(String, &Shown<'_>)]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut found = Findings::default();
    for (name, shown) in named {
        for summary in &shown.summaries {
            let which = if shown.summaries.len() > 1 {
                format!("{name} (start {}, repeat {})", summary.start, summary.repeat)
            } else {
                name.clone()
            };
            notes.extend(of_measurement(summary).map(|note| format!("{which}: {note}")));
            for reason in doubts(summary) {
                found.add(name, &which, reason);
            }
        }
    }
    notes.extend(found.told());
    let has = |origin| named.iter().any(|(_, shown)| shown.origin() == origin);
    if has(Origin::Simulated) || named.iter().any(|(_, shown)| shown.launch.engine.simulated) {
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
                "{name}: {} of {done} measurements {} invalid and left out",
                done - counted,
                if done - counted == 1 { "is" } else { "are" }
            ));
        }
    }
    notes.extend(named.iter().filter_map(other_prompts));
    notes.extend(unique_prefixes(named));
    notes.extend(attached(named));
    if named.iter().any(|(_, shown)| shown.counted().count() > 1) {
        notes.push(
            "n measurements: the mean over starts, with the least and the most of the measurements; ok/failed counts them together"
                .to_owned(),
        );
    }
    notes
}

/// The note on rows that were measured repeatedly on attached servers.
fn attached(named: &[(String, &Shown<'_>)]) -> Option<String> {
    let is_repeated = |shown: &Shown<'_>| shown.launch.is_attached() && shown.counted().count() > 1;
    let with = named.iter().filter(|(_, shown)| is_repeated(shown));
    let names: Vec<&str> = with.map(|(name, _)| name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{}: servers that someone else started: their measurements are repeats, and say nothing of another start",
            names.join(", ")
        )
    })
}

/// The note on rows whose prompts had unique prefixes.
fn unique_prefixes(named: &[(String, &Shown<'_>)]) -> Option<String> {
    let has = |summary: &&Summary| {
        let proof = summary.reset.as_ref();
        proof.is_some_and(|proof| proof.unique_prefix.is_some())
    };
    let with = named.iter().filter(|(_, shown)| shown.summaries.iter().any(has));
    let names: Vec<&str> = with.map(|(name, _)| name.as_str()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "{}: nothing empties the engine's caches, so the prompts of each measurement begin with letters of its own in the place of as many \
             tokens",
            names.join(", ")
        )
    })
}

/// Notes on one measurement, apart from its validity.
fn of_measurement(summary: &Summary) -> impl Iterator<Item = String> {
    let ending = match &summary.ending {
        Ending::Done | Ending::Interrupted => None,
        Ending::Failed { phase, reason, .. } => Some(format!("failed in {}: {reason}", phase.name())),
        Ending::Skipped { reason } => Some(format!("skipped: {reason}")),
    };
    let beside = (!summary.beside.is_empty()).then(|| beside(&summary.beside));
    let retries = summary.retries.iter().map(|retry| {
        format!(
            "tried again after a failure of class {} in {}: {}",
            retry.class.name(),
            retry.phase.name(),
            retry.reason
        )
    });
    let ending = ending.into_iter().chain(beside);
    ending.chain(retries).chain(summary.warnings.iter().cloned())
}

/// A reason with the names of its row and of its measurement.
type Of<'a> = (&'a str, String, &'a Reason);

/// Validity findings of a table's measurements. A finding that several measurements share is printed once.
#[derive(Default)]
struct Findings<'a> {
    /// By weight, the worst first, then by code and advice: row, measurement, reason.
    all: BTreeMap<(Reverse<Verdict>, Code, &'a str), Vec<Of<'a>>>,
}

impl<'a> Findings<'a> {
    fn add(&mut self, name: &'a str, which: &str, reason: &'a Reason) {
        let key = (Reverse(reason.weight), reason.code, reason.advice.as_str());
        let rows = self.all.entry(key).or_default();
        rows.push((name, which.to_owned(), reason));
    }

    fn told(self) -> impl Iterator<Item = String> {
        self.all.into_values().map(|rows| match &rows[..] {
            [(_, which, reason)] => format!("{which}: {}", told(reason)),
            several => told_of(several),
        })
    }
}

/// Number of rows that a shared finding names.
const NAMED: usize = 6;

/// A finding that several measurements share, in one sentence. The table of findings has the measured values.
fn told_of(rows: &[Of<'_>]) -> String {
    let reason = rows[0].2;
    let mut names: Vec<&str> = rows.iter().map(|(name, ..)| *name).collect();
    names.dedup();
    let more = match names.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names.truncate(NAMED);
    format!(
        "{} ({}) in {}, of {}{more}: {}",
        reason.weight_in_words(),
        reason.code.name(),
        counted(rows.len(), "measurement", "measurements"),
        names.join(", "),
        reason.advice
    )
}

/// The reasons with weight suspect or invalid.
pub(crate) fn doubts(summary: &Summary) -> impl Iterator<Item = &Reason> {
    let reasons = summary.validity.iter().flat_map(|validity| &validity.reasons);
    reasons.filter(|reason| reason.weight > Verdict::Valid)
}

pub(crate) fn told(reason: &Reason) -> String {
    let bound = reason.bound.as_ref();
    let bound = bound.map_or_else(String::new, |bound| format!(" against {bound}"));
    format!(
        "{} ({}): {}{bound}; {}",
        reason.weight_in_words(),
        reason.code.name(),
        reason.measured,
        reason.advice
    )
}

/// Says which launches ran on the same host at the same time.
pub(crate) fn beside(launches: &[LaunchId]) -> String {
    let names: Vec<&str> = launches.iter().map(LaunchId::as_str).collect();
    format!("measured beside {} on the same host", names.join(", "))
}

/// The note on the mark of rough values, if there are any.
pub(super) fn rough(rows: &[Row]) -> Option<String> {
    let mut cells = rows.iter().flat_map(|row| &row.cells);
    cells
        .any(|cell| matches!(cell, Value::Rough(_)))
        .then(rough_explained)
}

pub(super) fn rough_explained() -> String {
    format!(
        "~: rough: fewer than {:.0} requests lie beyond this percentile",
        percentile::BEYOND
    )
}

/// The note that the server counts other prompt tokens than were sent, by more than a few for each prompt, as
/// a chat template may add them. There is none if validity reports this already, for imports, for the
/// simulated engine (it has no tokenizer), and for prompts with images (their token count is unknown).
fn other_prompts((name, shown): &(String, &Shown<'_>)) -> Option<String> {
    let is_found = |reason: &Reason| reason.code == Code::PromptTokensDisagree;
    let is_simulated = shown.origin() != Origin::Measured || shown.launch.engine.simulated;
    if is_simulated || shown.counted().flat_map(doubts).any(is_found) {
        return None;
    }
    let figure = |metric| median(shown, metric);
    let vision = figure(Metric::Tokens(Count::InputVision)).unwrap_or(0.0);
    let prompts = figure(Metric::Completed)?;
    counted_prompts(&figure)
        .filter(|(reported, input)| vision <= 0.0 && are_apart(*reported, *input, prompts))
        .map(|counts| format!("{name}: {}", prompt_count_note(counts)))
}

/// The median of a metric over the measurements of a row, under the definitions `matrix` only: imports carry
/// their own notes.
fn median(shown: &Shown<'_>, metric: Metric) -> Option<f64> {
    let of = |summary: &Summary| metrics::figure(summary.figures.get(&Definitions::Matrix)?, metric);
    let values: Vec<f64> = shown.counted().filter_map(of).collect();
    metrics::Statistics::of(&values).map(|statistics| statistics.median)
}

/// Caveats of rows that show latencies.
pub(super) fn misread(named: &[(String, &Shown<'_>)]) -> Vec<String> {
    let told = |(name, shown): &(String, &Shown<'_>)| {
        let figure = |metric| median(shown, metric);
        let told = traps(&figure, Itl::Token).into_iter();
        told.map(|trap| format!("{name}: {trap}")).collect::<Vec<_>>()
    };
    named.iter().flat_map(told).collect()
}

/// Notes on the precision of rows and on why no further starts were made, if the matrix asks for a precision.
/// Rows with the same ending share a sentence.
pub(super) fn certain(named: &[(String, &Shown<'_>)]) -> Vec<String> {
    let mut alike: Vec<(String, Vec<String>)> = Vec::new();
    for (name, shown) in named {
        let Some(certainty) = shown.certainty.filter(|_| !shown.summaries.is_empty()) else {
            continue;
        };
        let until = &certainty.until;
        let why = match &certainty.outlook {
            Outlook::Enough
                if certainty
                    .known
                    .as_ref()
                    .is_some_and(|known| known.half_width > until.half_width.share()) =>
            {
                format!(
                    "not within {}, later starts vary more than the first ones, from which the number of starts was computed",
                    until.half_width
                )
            }
            Outlook::Enough => format!("narrow enough, within {}", until.half_width),
            Outlook::Wants(_) => format!("not yet within {}, `--resume` goes on", until.half_width),
            Outlook::Most => format!(
                "not within {}, {} starts are the most",
                until.half_width, until.most
            ),
            Outlook::Budget => {
                let budget = until.budget.map_or_else(String::new, |budget| budget.to_string());
                format!(
                    "not within {}, the budget of {budget} of GPU time is spent",
                    until.half_width
                )
            }
            Outlook::Hopeless(why) => format!("not started again, {why}"),
        };
        let known = certainty.known.as_ref().map(|known| {
            format!(
                "{name}: {} ±{:.1} % after {}",
                known.figure,
                known.half_width * 100.0,
                counted(known.starts, "start", "starts")
            )
        });
        let row = known.unwrap_or_else(|| name.clone());
        match alike.iter_mut().find(|(ending, _)| *ending == why) {
            Some((_, rows)) => rows.push(row),
            None => alike.push((why, vec![row])),
        }
    }
    let told = alike
        .into_iter()
        .map(|(why, rows)| format!("{why}: {}", rows.join("; ")));
    told.collect()
}

/// The note that TTFT is not shown for bursts.
pub(super) fn queue_bound(named: &[(String, &Shown<'_>)]) -> Option<String> {
    let is_burst = |shown: &&Shown<'_>| Load::of(&shown.cell.scenario) == Load::Burst;
    let rows = named.iter().map(|(_, shown)| *shown);
    let measured: Vec<&Shown<'_>> = rows.filter(|shown| shown.done().next().is_some()).collect();
    let bursts = measured.iter().copied().filter(is_burst).count();
    (bursts > 0).then(|| {
        let which = match bursts == measured.len() {
            true => "",
            false => " in rows without a rate and a limit",
        };
        format!(
            "every request is sent at once{which}: the time to the first token is the wait in the engine's queue, and is not shown as TTFT"
        )
    })
}
