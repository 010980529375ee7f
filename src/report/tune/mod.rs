//! The page of a search: the answer, the winner as an entry of a matrix, what each setting contributes, what cannot win, the frontier
//! and all trials.

mod entry;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;

pub(crate) use entry::entry_yaml;

use super::comparison::{number_column, percent, text_column};
use super::markdown;
use super::table::{Row, Table, Value, single_line};
use super::terminal::{self, PageLayout};
use crate::analysis::tuning::frontier::is_on_frontier;
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
            entry: result.and_then(|result| result.entry.clone()).unwrap_or_default(),
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

/// The answer in one line.
pub(crate) fn headline(record: &TuneRecord) -> String {
    let subject = format!("flags of {} for {}", record.engine, record.metric);
    let Some(result) = &record.result else {
        return single_line(&format!("Best {subject}? The search has not ended"));
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
            "Best {subject}? The default: {winner} was not confirmed as better: {}",
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
    let trial = record
        .trials
        .iter()
        .find(|trial| Some(set_name(&trial.set)) == result.winner.as_deref());
    trial.map_or_else(String::new, settings_in_words)
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
            "Confirmation: {} {of_winner} {} with these settings, {of_default} with the default, {}; {} and {} starts in turn, verdict: {} (run {}).",
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
                "Cost of a million output tokens at {price} for a GPU-hour: {:.4} with these settings, {:.4} with the default.",
                cost(of_winner),
                cost(of_default)
            ));
        }
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
    Table {
        title: "What each setting contributes".to_owned(),
        columns: vec![
            text_column("setting", 0),
            text_column("default", 0),
            text_column("winner", 0),
            number_column("change", "", 0),
        ],
        rows: rows.collect(),
        notes: vec![
            "estimated by the model of the search from all trials; only the settings together were confirmed; –: the trials do not separate it from other settings, or it is not known to run without"
                .to_owned(),
        ],
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

/// The trials with all prompts that no other beats in throughput and latency.
pub(crate) fn frontier_table(record: &TuneRecord) -> Table {
    let full: Vec<&TrialRecord> = record
        .trials
        .iter()
        .filter(|trial| trial.outcome == TrialResult::Measured && !trial.is_short)
        .collect();
    let speed = full
        .iter()
        .map(|trial| Some([trial.throughput_per_gpu?, trial.interactivity?]));
    let ttft = full
        .iter()
        .map(|trial| Some([trial.throughput_per_gpu?, -trial.ttft_ms?]));
    let by_speed = is_on_frontier(&speed.collect::<Vec<_>>());
    let by_ttft = is_on_frontier(&ttft.collect::<Vec<_>>());
    let number = |value: Option<f64>, decimals| match value {
        Some(value) => Value::Number { value, decimals },
        None => Value::Missing,
    };
    let mut rows: Vec<(f64, Row)> = Vec::new();
    for (at, trial) in full.iter().enumerate() {
        let best_for = match (by_speed[at], by_ttft[at]) {
            (false, false) => continue,
            (true, false) => "interactivity",
            (false, true) => "TTFT",
            (true, true) => "interactivity, TTFT",
        };
        let cells = vec![
            Value::text(&trial.set),
            number(trial.throughput_per_gpu, 1),
            number(trial.interactivity, 1),
            number(trial.ttft_ms, 1),
            Value::text(best_for),
            Value::text(settings_or_default(trial)),
        ];
        let marks = Vec::new();
        rows.push((trial.throughput_per_gpu.unwrap_or(0.0), Row { cells, marks }));
    }
    rows.sort_by(|one, other| other.0.total_cmp(&one.0));
    Table {
        title: "Frontier".to_owned(),
        columns: vec![
            text_column("trial", 0),
            number_column("throughput per GPU", "tok/s", 0),
            number_column("interactivity", "tok/s", 0),
            number_column("median TTFT", "ms", 0),
            text_column("on the frontier of", 1),
            text_column("settings", 0),
        ],
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        notes: vec![
            "single starts that no other start beats in throughput and in interactivity or TTFT; an engine without GPUs counts as one"
                .to_owned(),
        ],
    }
}

fn trials_table(record: &TuneRecord) -> Table {
    let rows = record.trials.iter().map(|trial| {
        let outcome = match trial.outcome {
            TrialResult::Measured => "measured",
            TrialResult::Infeasible => "cannot win",
            TrialResult::Unknown => "unknown",
            TrialResult::Open => "not measured",
        };
        Row {
            cells: vec![
                Value::text(&trial.set),
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
        "`-short`: measured with a quarter of the prompts; compare it with other short trials only".to_owned()
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
    let points: std::collections::BTreeSet<&Vec<usize>> =
        record.trials.iter().map(|trial| &trial.point).collect();
    format!(
        "{} in {}, {} of the confirmation, {:.2} GPU-minutes together; budget: {}; seed {}.",
        pluralize(points.len(), "configuration", "configurations"),
        pluralize(spent.trial_starts as usize, "start", "starts"),
        pluralize(spent.confirm_starts as usize, "start", "starts"),
        spent.gpu_minutes,
        record.budget,
        record.seed,
    )
}
