//! The page of a search: the answer, the winner as an entry of a matrix, what each setting contributes, what cannot win, the frontier
//! and all trials.

mod entry;
mod frontier;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use entry::entry_yaml;
pub(crate) use frontier::frontier_table;

use super::comparison::{number_column, percent, text_column};
use super::markdown;
use super::table::{Row, Table, Value, single_line};
use super::terminal::{self, PageLayout};
use crate::base::text::pluralize;
use crate::results::record::tune::{
    Confirmation, TrialRecord, TrialResult, TuneRecord, TuneResult, TuneResultKind,
};

/// Everything that the page of a search shows.
pub(crate) struct TunePage {
    headline: String,
    lines: Vec<String>,
    /// The winner as an entry of a matrix; empty if it is the default.
    entry: String,
    tables: Vec<Table>,
    spent: String,
}

impl TunePage {
    pub(crate) fn new(record: &TuneRecord) -> Self {
        let result = record.result.as_ref();
        let tables = [
            result.map(contributions_table),
            Some(failures_table(record)),
            Some(frontier_table(record)),
            Some(trials_table(record)),
        ];
        let tables = tables
            .into_iter()
            .flatten()
            .filter(|table| !table.rows.is_empty());
        Self {
            headline: headline(record),
            lines: lines(record),
            entry: result.map_or_else(String::new, entry),
            tables: tables.collect(),
            spent: spent(record),
        }
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n", markdown::escape(&self.headline));
        for line in &self.lines {
            text.push_str(&format!("{}\n\n", markdown::escape(line)));
        }
        if !self.entry.is_empty() {
            text.push_str(&format!("{}\n", markdown::code_block(&self.entry, "yaml")));
        }
        for table in &self.tables {
            text.push_str(&format!("{}\n", markdown::draw(table, 2)));
        }
        text.push_str(&format!("{}\n", markdown::escape(&self.spent)));
        text
    }

    pub(crate) fn terminal(&self, layout: PageLayout) -> String {
        let mut text = format!("{}\n", self.headline);
        for line in &self.lines {
            text.push_str(&format!("{line}\n"));
        }
        if !self.entry.is_empty() {
            text.push_str(&format!("\n{}", self.entry));
        }
        for table in &self.tables {
            text.push_str(&format!(
                "\n{}",
                terminal::draw(table, layout.width, layout.colors)
            ));
        }
        text.push_str(&format!("\n{}\n", self.spent));
        text
    }
}

/// The winner as an entry to paste.
fn entry(result: &TuneResult) -> String {
    let entry = result.entry.clone().unwrap_or_default();
    match result.kind {
        TuneResultKind::NotDecided if !entry.is_empty() => {
            format!("# These settings are not confirmed as better than the default.\n{entry}")
        }
        _ => entry,
    }
}

/// The answer in one line.
pub(crate) fn headline(record: &TuneRecord) -> String {
    let goal = match record.gpu_hour_price {
        Some(_) => format!("the lowest cost of tokens ({})", record.metric),
        None => record.metric.clone(),
    };
    let subject = format!("flags of {} for {goal}", record.engine);
    let Some(result) = &record.result else {
        return single_line(&format!("The search for the best {subject} has not ended"));
    };
    let winner = settings_of_winner(record, result);
    let text = match result.kind {
        TuneResultKind::Confirmed => {
            let gain = result
                .confirmation
                .as_ref()
                .map_or_else(String::new, gain_in_words);
            format!("Best {subject}? {winner}: {gain}, confirmed by fresh starts")
        }
        TuneResultKind::NoBetter => format!(
            "Best {subject}? The default: fresh starts did not confirm that {winner} is better: {}",
            result.reason
        ),
        TuneResultKind::DefaultIsBest => format!("Best {subject}? The default: {}", result.reason),
        TuneResultKind::NotDecided if winner.is_empty() => {
            format!("Best {subject}? Not decided: {}", result.reason)
        }
        TuneResultKind::NotDecided => {
            format!("Best {subject}? Not decided, perhaps {winner}: {}", result.reason)
        }
    };
    single_line(&text)
}

fn settings_of_winner(record: &TuneRecord, result: &TuneResult) -> String {
    let winner = result.winner.as_deref();
    winner.map_or_else(String::new, |winner| settings_of_set(record, winner))
}

fn settings_of_set(record: &TuneRecord, set: &str) -> String {
    let trial = record.trials.iter().find(|trial| set_name(&trial.set) == set);
    trial.map_or_else(String::new, settings_in_words)
}

fn is_rejected(record: &TuneRecord, trial: &TrialRecord) -> bool {
    let mut confirmations = record.confirmations.iter();
    confirmations.any(|confirmation| confirmation.is_rejected && confirmation.set == set_name(&trial.set))
}

fn settings_in_words(trial: &TrialRecord) -> String {
    let words = trial.settings.iter();
    let words: Vec<String> = words.map(|(name, value)| format!("{name}={value}")).collect();
    words.join(" ")
}

fn set_name(set: &str) -> &str {
    set.strip_suffix("-short").unwrap_or(set)
}

fn gain_in_words(confirmation: &Confirmation) -> String {
    let Some(change) = confirmation.change else {
        return confirmation.verdict.clone();
    };
    let interval = confirmation.interval.map_or_else(String::new, |[low, high]| {
        format!(" (95 % interval {} to {})", percent(low), percent(high))
    });
    format!("{}{interval}", percent(change))
}

/// What belongs to the answer.
fn lines(record: &TuneRecord) -> Vec<String> {
    let mut lines = Vec::new();
    if record.is_simulated {
        lines.push(
            "Every figure was measured on the simulated engine: such figures say nothing about a real one."
                .to_owned(),
        );
    }
    let result = record.result.as_ref();
    if let Some(confirmation) = result.and_then(|result| result.confirmation.as_ref()) {
        let value = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"));
        let [of_default, of_winner] = confirmation.values.map(value);
        lines.push(single_line(&format!(
            "Confirmation: {}: {of_winner} {} with these settings, {of_default} with the default, {}. Alternating starts: {} with these settings, {} with the default. Verdict: {} (run {}).",
            confirmation.metric,
            record.unit,
            gain_in_words(confirmation),
            confirmation.starts[1],
            confirmation.starts[0],
            confirmation.verdict,
            confirmation.run,
        )));
        for (side, doubts) in ["the default", "these settings"]
            .into_iter()
            .zip(&confirmation.doubts)
        {
            lines.extend(
                doubts
                    .as_ref()
                    .map(|doubts| format!("Findings with {side}: {doubts}.")),
            );
        }
        if let (Some(price), [Some(of_default), Some(of_winner)]) =
            (record.gpu_hour_price, confirmation.values)
        {
            let cost = |per_second: f64| price / (3600.0 * per_second) * 1e6;
            lines.push(format!(
                "Cost of a million output tokens at {price} per GPU-hour: {:.4} with these settings, {:.4} with the default.",
                cost(of_winner),
                cost(of_default)
            ));
        }
    }
    let last = result.and_then(|result| result.confirmation.as_ref());
    for earlier in &record.confirmations {
        if last.is_none_or(|last| last.run != earlier.run) {
            lines.push(single_line(&format!(
                "{} {} ({}) in {} starts: {} (run {}).",
                if earlier.is_rejected {
                    "Rejected:"
                } else {
                    "Earlier confirmation:"
                },
                earlier.set,
                settings_of_set(record, &earlier.set),
                earlier.starts,
                earlier.finding,
                earlier.run
            )));
        }
    }
    let judged = record
        .confirmations
        .iter()
        .filter(|confirmation| !confirmation.is_rejected)
        .count();
    if judged > 1 {
        lines.push(format!(
            "{judged} configurations were tested for confirmation one after another, so a false winner is more likely than with one test."
        ));
    }
    lines.extend(record.notes.iter().map(|note| format!("Note: {note}.")));
    lines
}

fn contributions_table(result: &TuneResult) -> Table {
    let rows = result.contributions.iter().map(|contribution| Row {
        cells: vec![
            Value::text(&contribution.setting),
            Value::text(&contribution.default),
            Value::text(&contribution.value),
            contribution
                .change
                .map_or(Value::Missing, |change| Value::text(percent(change))),
        ],
        marks: Vec::new(),
    });
    let several = (result.contributions.len() > 1)
        .then_some("the contributions are estimated from the trials; fresh starts confirmed only the gain of all settings together, so the contributions may not add up to it");
    let unknown = result
        .contributions
        .iter()
        .any(|contribution| contribution.change.is_none())
        .then_some("–: unknown, because the trials do not separate this setting from others, or do not show whether the engine runs without it");
    Table {
        title: "What each setting contributes".to_owned(),
        columns: vec![
            text_column("setting", 0),
            text_column("default", 0),
            text_column("winner", 0),
            number_column("change", "", 0),
        ],
        rows: rows.collect(),
        notes: [several, unknown]
            .into_iter()
            .flatten()
            .map(str::to_owned)
            .collect(),
    }
}

/// Configurations that cannot win, and those of which nothing is known, grouped by the reason.
fn failures_table(record: &TuneRecord) -> Table {
    let mut groups: BTreeMap<(bool, &str), Vec<&TrialRecord>> = BTreeMap::new();
    for trial in &record.trials {
        let is_unknown = trial.outcome == TrialResult::Unknown;
        if let (TrialResult::Infeasible | TrialResult::Unknown, Some(reason)) = (trial.outcome, &trial.reason)
        {
            groups
                .entry((is_unknown, reason.as_str()))
                .or_default()
                .push(trial);
        }
    }
    let rows = groups.iter().map(|((is_unknown, reason), trials)| {
        let names: Vec<String> = trials
            .iter()
            .map(|trial| format!("{} ({})", trial.set, settings_or_default(trial)))
            .collect();
        Row {
            cells: vec![
                Value::text(if *is_unknown { "unknown" } else { "cannot win" }),
                Value::text(single_line(reason)),
                Value::Count(trials.len() as u64),
                Value::text(single_line(&names.join(", "))),
            ],
            marks: Vec::new(),
        }
    });
    Table {
        title: "What failed, and why".to_owned(),
        columns: vec![
            text_column("outcome", 0),
            text_column("why", 0),
            number_column("starts", "", 0),
            text_column("configurations", 0),
        ],
        rows: rows.collect(),
        notes: Vec::new(),
    }
}

fn settings_or_default(trial: &TrialRecord) -> String {
    match trial.settings.is_empty() {
        true => "default".to_owned(),
        false => settings_in_words(trial),
    }
}

/// The name of a trial, with the number of its start if that is not the first one.
fn name_of_start(record: &TuneRecord, at: usize) -> String {
    let set = &record.trials[at].set;
    match record.trials[..at]
        .iter()
        .filter(|trial| trial.set == *set)
        .count()
    {
        0 => set.clone(),
        earlier => format!("{set}, start {}", earlier + 1),
    }
}

fn trials_table(record: &TuneRecord) -> Table {
    let rows = record.trials.iter().enumerate().map(|(at, trial)| {
        let outcome = match trial.outcome {
            TrialResult::Measured if is_rejected(record, trial) => "rejected in its confirmation",
            TrialResult::Measured => "measured",
            TrialResult::Infeasible => "cannot win",
            TrialResult::Unknown => "unknown",
            TrialResult::Open => "not measured",
        };
        Row {
            cells: vec![
                Value::text(name_of_start(record, at)),
                match trial.figure {
                    Some(value) => Value::Number { value, decimals: 2 },
                    None => Value::Missing,
                },
                Value::text(outcome),
                Value::text(settings_or_default(trial)),
            ],
            marks: Vec::new(),
        }
    });
    let short = record.trials.iter().any(|trial| trial.is_short);
    let note = short.then(|| {
        "`-short`: measured with a quarter of the prompts; compare such trials only with other short trials".to_owned()
    });
    let unit = match record.unit.as_str() {
        "" => record.metric.clone(),
        unit => format!("{}, {unit}", record.metric),
    };
    Table {
        title: "Trials".to_owned(),
        columns: vec![
            text_column("trial", 0),
            number_column(&unit, "", 0),
            text_column("outcome", 0),
            text_column("settings", 0),
        ],
        rows: rows.collect(),
        notes: note.into_iter().collect(),
    }
}

fn spent(record: &TuneRecord) -> String {
    let spent = &record.spent;
    let points: BTreeSet<&Vec<usize>> = record.trials.iter().map(|trial| &trial.point).collect();
    let space = record
        .space
        .iter()
        .fold(1, |size: usize, row| size.saturating_mul(row.values.len()));
    let repeated = match spent.repeated_starts {
        0 => String::new(),
        more => format!(
            ", {} (interrupted, or measured again)",
            pluralize(more as usize, "more start", "more starts")
        ),
    };
    format!(
        "Search: {} of {space} in {}; confirmation: {}{repeated}; {:.2} GPU-minutes in total; budget: {}; seed {}.",
        pluralize(points.len(), "configuration", "configurations"),
        pluralize(spent.trial_starts as usize, "start", "starts"),
        pluralize(spent.confirm_starts as usize, "start", "starts"),
        spent.gpu_minutes,
        record.budget,
        record.seed,
    )
}
