//! The page of an upgrade: whether to upgrade, what changed, figures and answers.

mod json;

use std::collections::{BTreeMap, BTreeSet};

use super::comparison::{number_column, percent, text_column};
use super::labels::axis_words;
use super::markdown;
use super::table::{Row, Table, Value, single_line};
use super::terminal::{self, PageLayout};
use crate::analysis::compare::decision::{Answer, CONFIDENCE};
use crate::analysis::compare::reliability::StartHistory;
use crate::analysis::compare::resources::{READY_BOUND, READY_DIFFERENCE};
use crate::analysis::graded::reference::AnswerComparison;
use crate::analysis::upgrade::{Change, ChangeKind, Conclusion, MayUpgrade, Upgrade};
use crate::base::ids::CellKey;
use crate::base::text::pluralize;
use crate::config::select::{self, AxisValues};

/// Changes of one kind that are listed outside of the HTML page.
const MAX_LISTED_CHANGES: usize = 20;

/// Axes that every name of a cell has.
const ALWAYS_SHOWN: [&str; 2] = ["model", "scenario"];

/// Everything that a page of an upgrade shows.
pub(crate) struct UpgradePage {
    /// The question with its answer, in one line.
    pub(crate) headline: String,
    /// The answer alone.
    pub(crate) answer: MayUpgrade,
    /// The answer with its first reason and where the page is, for the page of a nightly run.
    pub(crate) summary: String,
    /// Why, the most serious first.
    pub(crate) reasons: Vec<String>,
    pub(crate) warnings: Vec<String>,
    /// All changes, or a note that there are none.
    pub(crate) changes: Table,
    pub(crate) figures: Table,
    pub(crate) answers: Option<Table>,
    /// The run with its tables.
    pub(crate) run: String,
    changes_by_kind: BTreeMap<ChangeKind, usize>,
}

impl UpgradePage {
    /// The page about an engine, measured in that run.
    pub(crate) fn new(upgrade: &Upgrade, axis: &str, engine: Option<&str>, run: &str) -> Self {
        let names = CellNames::new(cells(upgrade), axis);
        let name = |key: &CellKey| names.name(key);
        let Conclusion { answer, reasons } = upgrade.conclusion(&name);
        let [from, to] = &upgrade.sides;
        let subject = engine.map_or_else(String::new, |engine| format!("{engine} "));
        let first = reasons
            .first()
            .map_or_else(String::new, |reason| format!(": {reason}"));
        let more = match (answer, reasons.len()) {
            (_, 0 | 1) | (MayUpgrade::Yes, _) => String::new(),
            (_, count) => format!(" (and {} more)", count - 1),
        };
        let headline = single_line(&format!(
            "May I upgrade {subject}from {from} to {to}? {}{first}{more}",
            capitalized(answer.word())
        ));
        let of_whom = engine.map_or_else(String::new, |engine| format!(" of {engine}"));
        let summary = single_line(&format!(
            "upgrade{of_whom}: {} ({}{more}), see upgrade.html",
            answer.word(),
            reasons.first().map_or("", String::as_str),
        ));
        let mut changes_by_kind = BTreeMap::new();
        for change in &upgrade.changes.changes {
            *changes_by_kind.entry(change.kind).or_default() += 1;
        }
        let simulated = upgrade.is_simulated.then(|| {
            "Every figure was measured on the simulated engine: such figures say nothing about a real one."
                .to_owned()
        });
        let sequential = upgrade.is_sequential.then(|| {
            "The sides were measured one after the other, in two runs. The figures include the effects of anything else that changed between the runs. Resources were not compared."
                .to_owned()
        });
        Self {
            headline,
            answer,
            summary,
            reasons: reasons.iter().map(|reason| single_line(reason)).collect(),
            warnings: simulated
                .into_iter()
                .chain(sequential)
                .chain(replaced_results(upgrade, &name))
                .collect(),
            changes: changes_table(upgrade),
            figures: figures_table(upgrade, &name),
            answers: answers_table(upgrade, &name),
            run: run.to_owned(),
            changes_by_kind,
        }
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n", markdown::escape(&self.headline));
        for warning in &self.warnings {
            text.push_str(&format!("{}\n\n", markdown::escape(warning)));
        }
        if self.reasons.len() > 1 {
            text.push_str(&format!("{}\n", markdown::list(&self.reasons)));
        }
        for table in self.listed_tables() {
            text.push_str(&format!("{}\n", markdown::draw(&table, 2)));
        }
        text.push_str(&format!("The report of the run `{}` has all tables.\n", self.run));
        text
    }

    pub(crate) fn terminal(&self, layout: PageLayout) -> String {
        let mut text = format!("{}\n", self.headline);
        for warning in &self.warnings {
            text.push_str(&format!("{warning}\n"));
        }
        for reason in self.reasons.iter().skip(1) {
            text.push_str(&format!("- {reason}\n"));
        }
        for table in self.listed_tables() {
            text.push_str(&format!(
                "\n{}",
                terminal::draw(&table, layout.width, layout.colors)
            ));
        }
        text
    }

    /// The tables, with the first changes of each kind.
    fn listed_tables(&self) -> impl Iterator<Item = Table> {
        let mut changes = self.changes.clone();
        let mut listed: BTreeMap<String, usize> = BTreeMap::new();
        changes.rows.retain(|row| {
            let count = listed.entry(row.cells[0].to_string()).or_default();
            *count += 1;
            *count <= MAX_LISTED_CHANGES
        });
        for (kind, count) in &self.changes_by_kind {
            if *count > MAX_LISTED_CHANGES {
                changes.notes.push(format!(
                    "{} more changes of the kind `{}` are in upgrade.html",
                    count - MAX_LISTED_CHANGES,
                    kind.name()
                ));
            }
        }
        [changes, self.figures.clone()]
            .into_iter()
            .chain(self.answers.clone())
    }
}

/// Names of cells: model, scenario and the axes in which cells differ, except that of the sides.
struct CellNames(BTreeSet<String>);

impl CellNames {
    fn new<'a>(cells: impl Iterator<Item = &'a CellKey>, side_axis: &str) -> Self {
        let cells: Vec<AxisValues> = cells.map(|key| select::parse_key(key.as_str())).collect();
        let differs = |axis: &str| cells.iter().any(|cell| cell.get(axis) != cells[0].get(axis));
        let shown = select::AXES
            .into_iter()
            .filter(|axis| *axis != side_axis && (ALWAYS_SHOWN.contains(axis) || differs(axis)));
        Self(shown.map(str::to_owned).collect())
    }

    fn name(&self, key: &CellKey) -> String {
        let mut values = select::parse_key(key.as_str());
        values.retain(|axis, _| self.0.contains(axis));
        axis_words(&values).join(" ")
    }
}

/// All cells that the page names.
fn cells(upgrade: &Upgrade) -> impl Iterator<Item = &CellKey> {
    let rows = upgrade.speed.rows.iter().map(|row| &row.cell);
    let unpaired = upgrade.speed.unpaired_cells.iter().map(|unpaired| &unpaired.cell);
    rows.chain(unpaired)
}

/// Names the results that count against a side and that were measured again.
fn replaced_results(upgrade: &Upgrade, name: &dyn Fn(&CellKey) -> String) -> Vec<String> {
    let of_side = |history: &StartHistory, side: usize| {
        let results = history.replaced[side].iter();
        let words = |result: &String| {
            single_line(&format!(
                "Measured again for {} ({}): {result}.",
                upgrade.sides[side],
                name(&history.cell)
            ))
        };
        results.map(words).collect::<Vec<String>>()
    };
    let histories = upgrade.speed.start_histories.iter();
    histories
        .flat_map(|history| [0, 1].map(|side| of_side(history, side)).concat())
        .collect()
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn changes_table(upgrade: &Upgrade) -> Table {
    let [from, to] = &upgrade.sides;
    let side = |value: &Option<String>, change: &Change, has: ChangeKind| match (value, change.kind) {
        (Some(value), _) => Value::text(value),
        (None, kind) if kind == has => Value::text("yes"),
        (None, ChangeKind::RemovedFlag | ChangeKind::AddedFlag) => Value::text("no"),
        (None, _) => Value::Missing,
    };
    let row = |change: &Change| Row {
        cells: vec![
            Value::text(change.kind.name()),
            Value::text(&change.what),
            side(&change.before, change, ChangeKind::RemovedFlag),
            side(&change.after, change, ChangeKind::AddedFlag),
        ],
        marks: Vec::new(),
    };
    let mut notes: Vec<String> = upgrade
        .changes
        .unknown
        .iter()
        .map(|unknown| format!("not compared: {unknown}"))
        .collect();
    if upgrade.changes.changes.is_empty() {
        notes.insert(
            0,
            "no difference between the settings of the two sides was found".to_owned(),
        );
    }
    Table {
        title: "What changed".to_owned(),
        columns: vec![
            text_column("kind", 0),
            text_column("what", 0),
            text_column(from, 0),
            text_column(to, 0),
        ],
        rows: upgrade.changes.changes.iter().map(row).collect(),
        notes,
    }
}

fn figures_table(upgrade: &Upgrade, name: &dyn Fn(&CellKey) -> String) -> Table {
    let speed = upgrade.speed.rows.iter().map(|row| {
        let label = match row.metric.unit().symbol() {
            "" => row.metric.label(),
            unit => format!("{}, {unit}", row.metric.label()),
        };
        let change = row.change_from_zero().map(str::to_owned);
        let values = [row.value(0), row.value(1)];
        figure_row(
            &name(&row.cell),
            &label,
            values,
            &row.answer,
            change,
            row.verdict_word(),
        )
    });
    let resources = upgrade.resources.iter().map(|row| {
        let label = format!("{}, {}", row.resource.label(), row.resource.unit());
        let word = row.answer.verdict_word();
        figure_row(&name(&row.cell), &label, row.values, &row.answer, None, word)
    });
    let mut notes: Vec<String> = Vec::new();
    for row in &upgrade.speed.rows {
        if row.verdict().is_none() {
            notes.push(format!(
                "{}: {}: {}",
                name(&row.cell),
                row.verdict_word(),
                row.reason()
            ));
        }
    }
    notes.dedup();
    notes.extend(verdict_notes(upgrade));
    let [from, to] = &upgrade.sides;
    Table {
        title: "Figures".to_owned(),
        columns: vec![
            text_column("cell", 0),
            text_column("figure", 0),
            number_column(from, "", 0),
            number_column(to, "", 0),
            number_column("change", "", 0),
            number_column("95 % interval", "", 1),
            number_column("starts", "", 2),
            text_column("verdict", 0),
        ],
        rows: speed.chain(resources).collect(),
        notes,
    }
}

/// What the words of the verdicts mean, and what they are corrected for.
fn verdict_notes(upgrade: &Upgrade) -> Vec<String> {
    let together = upgrade.figures_judged_together();
    let mut notes = Vec::new();
    let what = match upgrade.is_nightly {
        true => {
            notes.push(
                "the verdicts on metrics are those of the nightly run, which judged all its metrics together"
                    .to_owned(),
            );
            pluralize(together, "resource", "resources")
        }
        false => pluralize(together, "figure", "figures"),
    };
    if together > 0 {
        notes.push(format!(
            "worse, better: the change is significant in the joint test of {what}, and it is larger than the bound of {:.0} %; same: with 90 % confidence, the change is within this bound; unclear: all other changes. The bound of the time to ready is {:.0} % or {:.0} ms, whichever is larger",
            100.0 * upgrade.speed.bound,
            100.0 * upgrade.speed.bound.max(READY_BOUND),
            1000.0 * READY_DIFFERENCE,
        ));
    }
    notes
}

fn figure_row(
    cell: &str,
    figure: &str,
    values: [Option<f64>; 2],
    answer: &Answer,
    change: Option<String>,
    verdict: &str,
) -> Row {
    let value = |value: Option<f64>| {
        value.map_or(Value::Missing, |value| Value::Number {
            value,
            decimals: decimals(value),
        })
    };
    let estimate = answer.estimate;
    let change = change.or_else(|| Some(percent(estimate?.change())));
    let interval = estimate.and_then(|estimate| estimate.interval(CONFIDENCE));
    Row {
        cells: vec![
            Value::text(cell),
            Value::text(figure),
            value(values[0]),
            value(values[1]),
            change.map_or(Value::Missing, Value::Text),
            interval.map_or(Value::Missing, |interval| {
                Value::Text(format!("{} … {}", percent(interval.low), percent(interval.high)))
            }),
            Value::Text(format!("{} / {}", answer.starts[0], answer.starts[1])),
            Value::text(verdict),
        ],
        marks: Vec::new(),
    }
}

/// Digits after the point that show a change of a percent.
fn decimals(value: f64) -> usize {
    match value.abs() {
        0.0..0.1 => 5,
        0.1..10.0 => 3,
        10.0..1000.0 => 2,
        _ => 0,
    }
}

fn answers_table(upgrade: &Upgrade, name: &dyn Fn(&CellKey) -> String) -> Option<Table> {
    if upgrade.answers.is_empty() {
        return None;
    }
    let mut notes = Vec::new();
    let rows = upgrade
        .answers
        .iter()
        .map(|answers| answer_row(answers, name, &mut notes))
        .collect();
    notes.push(
        "each item is compared with the same item of the baseline, which is the reference (McNemar's exact test, corrected over all comparisons)".to_owned(),
    );
    let [from, to] = &upgrade.sides;
    Some(Table {
        title: format!("Answers of {to}, compared with {from}"),
        columns: vec![
            text_column("cell", 0),
            text_column("task", 0),
            number_column("items", "", 1),
            number_column("lost", "", 1),
            number_column("gained", "", 1),
            number_column("difference", "points", 0),
            number_column("95 % interval", "points", 1),
            number_column("found loss", "points", 0),
            text_column("verdict", 0),
        ],
        rows,
        notes,
    })
}

fn answer_row(answers: &AnswerComparison, name: &dyn Fn(&CellKey) -> String, notes: &mut Vec<String>) -> Row {
    let points = |share: f64| format!("{:+.1}", 100.0 * share);
    let mut cells = vec![Value::Text(name(&answers.cell)), Value::text(&answers.task)];
    match &answers.result {
        Ok(compared) => {
            let paired = &compared.paired;
            let [low, high] = paired.interval();
            cells.extend([
                Value::Count(paired.items.into()),
                Value::Count(paired.lost().into()),
                Value::Count(paired.gained().into()),
                Value::Text(points(paired.difference())),
                Value::Text(format!("{} … {}", points(low), points(high))),
                compared
                    .smallest_loss
                    .map_or(Value::Missing, |loss| Value::Text(format!("{:.1}", 100.0 * loss))),
                Value::text(if compared.is_worse() {
                    "worse"
                } else {
                    "no loss found"
                }),
            ]);
        }
        Err(why) => {
            cells.extend([const { Value::Missing }; 6]);
            cells.push(Value::text("not compared"));
            notes.push(format!("{} {}: {why}", name(&answers.cell), answers.task));
        }
    }
    Row {
        cells,
        marks: Vec::new(),
    }
}
