//! What must be said below a table.

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

/// What must be said of rows: why they failed, what they were warned of, whether they are simulated.
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

/// That somebody else started the servers of some rows.
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

/// That the prompts of some rows began with letters of their measurement.
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

/// What must be said of one measurement besides what was found of its validity.
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

/// A finding with the name of its row and that of its measurement.
type Of<'a> = (&'a str, String, &'a Reason);

/// What was found of the measurements of a table: of many at once it is said once.
#[derive(Default)]
struct Findings<'a> {
    /// By weight, the worst first, then by code and advice: row, measurement, finding.
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

/// Names that are written out where a finding is shared by many.
const NAMED: usize = 6;

/// A finding that several measurements share, in one sentence; what was measured of each is in the table of findings.
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
        reason.weight_in_words(),
        reason.code.name(),
        reason.measured,
        reason.advice
    )
}

/// That a row was measured beside others, in words.
pub(crate) fn beside(launches: &[LaunchId]) -> String {
    let names: Vec<&str> = launches.iter().map(LaunchId::as_str).collect();
    format!("measured beside {} on the same host", names.join(", "))
}

/// What the mark of a rough value means, where there is one.
pub(super) fn rough(rows: &[Row]) -> Option<String> {
    let mut cells = rows.iter().flat_map(|row| &row.cells);
    cells
        .any(|cell| matches!(cell, Value::Rough(_)))
        .then(rough_explained)
}

/// What the mark of a rough value means.
pub(super) fn rough_explained() -> String {
    format!(
        "~: rough: fewer than {:.0} requests lie beyond this percentile",
        percentile::BEYOND
    )
}

/// That the server of a row counts other prompt tokens than were sent, by more than a few of each prompt: a chat template may add them. Nothing
/// is printed where that was found already, or for the simulated engine, which has no tokenizer; pictures have no known count.
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

/// The median of a figure over the measurements of a row. Figures of other definitions are other figures, and imports say themselves what is
/// wrong with them.
fn median(shown: &Shown<'_>, metric: Metric) -> Option<f64> {
    let of = |summary: &Summary| metrics::figure(summary.figures.get(&Definitions::Matrix)?, metric);
    let values: Vec<f64> = shown.counted().filter_map(of).collect();
    metrics::Statistics::of(&values).map(|statistics| statistics.median)
}

/// What must be said of rows that show latencies.
pub(super) fn misread(named: &[(String, &Shown<'_>)]) -> Vec<String> {
    let told = |(name, shown): &(String, &Shown<'_>)| {
        let figure = |metric| median(shown, metric);
        let told = traps(&figure, Itl::Token).into_iter();
        told.map(|trap| format!("{name}: {trap}")).collect::<Vec<_>>()
    };
    named.iter().flat_map(told).collect()
}

/// How well rows are known and why they were started no more, where their matrix says how well they should be known; those that ended alike in
/// one sentence.
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

/// That the time to the first token of a burst is no TTFT and is not shown.
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
