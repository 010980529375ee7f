//! How far answers to greedy probes agree, and their table.

use serde::Serialize;

use super::columns;
use super::report_cell::ReportCell;
use crate::analysis::graded::agreement::{Agreement, CellAgreement};
use crate::config::quality::probes;
use crate::report::table::{Row, Table, Value};

/// How far the answers of a cell to greedy probes agree. It is never judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ProbeAgreement {
    /// Number of measurements with probes.
    pub(crate) measurements: u32,
    /// Answers under load with those of a lone request on the same engine.
    pub(crate) under_load: AgreementFigures,
    /// Answers of lone requests on two starts, over all pairs of starts: what is normal. Absent with one start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) between_starts: Option<StartAgreement>,
    /// Answers of lone requests with those of the reference; absent if there is none, and for the reference itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) versus_reference: Option<ReferenceAgreement>,
}

/// How far answers to the same probes agree.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct AgreementFigures {
    /// Pairs of answers; those without a text on either side are left out.
    pub(crate) probes: u32,
    /// Share of identical texts; absent without a pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identical_share: Option<f64>,
    /// Mean length of the common beginnings in characters.
    pub(crate) common_characters: f64,
    /// Mean length of the longer texts in characters.
    pub(crate) characters: f64,
}

/// How far answers of lone requests agree between starts.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct StartAgreement {
    /// Pairs of starts.
    pub(crate) pairs: u32,
    /// Over all pairs.
    pub(crate) all: AgreementFigures,
    /// The smallest and the largest share of identical texts of a pair.
    pub(crate) identical_share_range: [f64; 2],
}

/// How far answers of lone requests agree with those of the reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ReferenceAgreement {
    /// Key of the cell of the reference.
    pub(crate) reference: String,
    /// Name of the stored run of that cell; absent if it is a cell of the same run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<String>,
    pub(crate) result: ProbeResult,
}

/// The result of comparing answers to probes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProbeResult {
    /// Why they cannot be compared.
    NotCompared(String),
    Compared(AgreementFigures),
}

impl From<&Agreement> for AgreementFigures {
    fn from(agreement: &Agreement) -> Self {
        Self {
            probes: agreement.probes,
            identical_share: agreement.identical_share(),
            common_characters: agreement.common_characters(),
            characters: agreement.characters(),
        }
    }
}

impl From<&CellAgreement> for ProbeAgreement {
    fn from(cell: &CellAgreement) -> Self {
        let shares = cell.between_starts.iter().filter_map(Agreement::identical_share);
        let range = shares.fold(None, |range: Option<[f64; 2]>, share| {
            let [low, high] = range.unwrap_or([share, share]);
            Some([low.min(share), high.max(share)])
        });
        Self {
            measurements: cell.measurements,
            under_load: (&cell.under_load).into(),
            between_starts: range.map(|identical_share_range| StartAgreement {
                pairs: u32::try_from(cell.between_starts.len()).unwrap_or(u32::MAX),
                all: (&cell.all_starts()).into(),
                identical_share_range,
            }),
            versus_reference: cell.versus_reference.as_ref().map(|versus| ReferenceAgreement {
                reference: versus.reference.to_string(),
                run: versus.run.as_ref().map(ToString::to_string),
                result: match &versus.result {
                    Ok(agreement) => ProbeResult::Compared(agreement.into()),
                    Err(why) => ProbeResult::NotCompared(why.clone()),
                },
            }),
        }
    }
}

/// The agreement of a cell's answers to probes; `None` if none were sent.
pub(crate) fn probe_agreement(cell: &ReportCell<'_>) -> Option<ProbeAgreement> {
    let mut agreements = cell.agreements.iter();
    let found = agreements.find(|agreement| agreement.cell == cell.cell.key)?;
    Some(found.into())
}

/// Draws a row for each cell with probes; `None` if no probes were sent.
pub(crate) fn probe_table(cells: &[ReportCell<'_>]) -> Option<Table> {
    let found: Vec<(&ReportCell<'_>, ProbeAgreement)> = cells
        .iter()
        .filter_map(|cell| Some((cell, probe_agreement(cell)?)))
        .collect();
    if found.is_empty() {
        return None;
    }
    let has_runs = cells.iter().any(|cell| cell.run != cells[0].run);
    let has_reference = found
        .iter()
        .any(|(_, agreement)| agreement.versus_reference.is_some());
    let mut columns = vec![columns::text_column("engine", 0)];
    columns.extend(has_runs.then(|| columns::text_column("run", 0)));
    columns.extend([
        columns::text_column("model", 0),
        columns::text_column("scenario", 0),
        columns::number_column("starts", 2),
        columns::text_column("under load and alone", 0),
        columns::text_column("common beginning", 1),
        columns::text_column("alone on two starts (normal)", 0),
    ]);
    columns.extend(has_reference.then(|| columns::text_column("alone, with the reference", 0)));
    let row = |(cell, agreement): &(&ReportCell<'_>, ProbeAgreement)| {
        let mut row = vec![Value::Text(cell.engine())];
        row.extend(has_runs.then(|| Value::text(cell.run)));
        row.extend([
            Value::text(&cell.launch.model),
            Value::Text(cell.scenario()),
            Value::Count(u64::from(agreement.measurements)),
            identical(&agreement.under_load),
            common_beginning(&agreement.under_load),
            agreement.between_starts.as_ref().map_or(Value::Missing, normal),
        ]);
        row.extend(has_reference.then(|| versus(agreement.versus_reference.as_ref())));
        Row {
            cells: row,
            marks: cell.marks(),
        }
    };
    Some(Table {
        title: "Greedy probes".to_owned(),
        columns,
        rows: found.iter().map(row).collect(),
        notes: notes(&found),
    })
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// The share of identical texts, with the number of pairs.
fn identical(figures: &AgreementFigures) -> Value {
    let share = figures.identical_share;
    share.map_or(Value::Missing, |share| {
        Value::Text(format!("{} of {}", percent(share), figures.probes))
    })
}

fn common_beginning(figures: &AgreementFigures) -> Value {
    match figures.probes {
        0 => Value::Missing,
        _ => Value::Text(format!(
            "{:.0} of {:.0} characters",
            figures.common_characters, figures.characters
        )),
    }
}

fn normal(starts: &StartAgreement) -> Value {
    let [low, high] = starts.identical_share_range.map(percent);
    Value::Text(match starts.pairs {
        1 => format!("{low} of {}", starts.all.probes),
        pairs => format!("{low} to {high} ({pairs} pairs of starts)"),
    })
}

fn versus(versus: Option<&ReferenceAgreement>) -> Value {
    match versus.map(|versus| &versus.result) {
        None => Value::Missing,
        Some(ProbeResult::NotCompared(_)) => Value::text("not comparable"),
        Some(ProbeResult::Compared(figures)) => identical(figures),
    }
}

fn notes(found: &[(&ReportCell<'_>, ProbeAgreement)]) -> Vec<String> {
    let mut notes = vec![
        format!(
            "{} prompts were answered greedily, under load and again alone; the table shows the shares of identical answers and the mean length of the common beginnings of the answers",
            probes::COUNT
        ),
        "agreement is not judged, because healthy engines answer some prompts differently from batch to batch. The normal agreement is that of two starts of the same launch, with requests sent alone".to_owned(),
    ];
    for (cell, agreement) in found {
        let Some(versus) = &agreement.versus_reference else {
            continue;
        };
        let note = match (&versus.result, &versus.run) {
            (ProbeResult::NotCompared(why), _) => {
                format!("{}, probes: not comparable: {why}", cell.engine())
            }
            (_, Some(run)) => format!("reference: {} of the stored run {run}", versus.reference),
            (_, None) => format!("reference: {}", versus.reference),
        };
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}
