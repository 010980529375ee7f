//! Output throughput of every engine side by side, a row for each model and scenario: the table one looks at first.

use std::collections::BTreeMap;

use super::ratio::{COMPARED, Held, held};
use super::{Row, Shown, Table, Value, columns, lacks, queue_bound};
use crate::report::{Align, Column};
use crate::results::record::imported::Unknown;

/// A model and a scenario with every cell of them.
type Compared<'s> = (String, String, Vec<&'s Shown<'s>>);

/// Output throughput of all engines, a row for each model and scenario that several engines have. `reference` names the engine
/// that ratios refer to; without it that is the first one.
///
/// Beside each value stand precision and number of GPUs, and its ratio to the reference; `≠` where there may be none, with the
/// reasons below the table.
pub fn across(shown: &[Shown<'_>], reference: Option<&str>) -> Table {
    let mut engines: Vec<String> = Vec::new();
    let mut rows: Vec<Compared<'_>> = Vec::new();
    for one in shown {
        let (model, scenario) = (one.launch.model.clone(), one.scenario());
        match rows
            .iter_mut()
            .find(|(a, b, _)| (a.as_str(), b.as_str()) == (&model, &scenario))
        {
            Some((_, _, group)) => group.push(one),
            None => rows.push((model, scenario, vec![one])),
        }
    }
    let all = rows.len();
    rows.retain(|(_, _, group)| group.iter().any(|one| one.engine() != group[0].engine()));
    for one in rows.iter().flat_map(|(_, _, group)| group) {
        let engine = one.engine();
        if !engines.contains(&engine) {
            engines.push(engine);
        }
    }
    let first = || Some(rows.first()?.2.first()?.launch.engine.name.as_str());
    let reference = reference.or_else(first).unwrap_or("");
    let mut columns = vec![columns::words("model", 0), columns::words("scenario", 0)];
    columns.extend(engines.iter().map(|engine| Column {
        align: Align::Right,
        unit: COMPARED.unit().symbol(),
        ..columns::words(engine, 0)
    }));
    let mut said = Reasons::default();
    let drawn = rows.iter().map(|(model, scenario, group)| {
        let mut cells = vec![Value::text(model), Value::text(scenario)];
        cells.extend(engines.iter().map(|engine| {
            let of_engine: Vec<String> = group
                .iter()
                .filter(|one| one.engine() == *engine)
                .map(|one| told(one, group, reference, &mut said))
                .collect();
            match of_engine.is_empty() {
                true => Value::Missing,
                false => Value::Text(of_engine.join("; ")),
            }
        }));
        Row {
            cells,
            marks: Vec::new(),
        }
    });
    let drawn: Vec<Row> = drawn.collect();
    let group: Vec<(String, &Shown<'_>)> = rows
        .iter()
        .flat_map(|(_, _, group)| group.iter().map(|one| (one.engine(), *one)))
        .collect();
    Table {
        title: "Output throughput of all engines".to_owned(),
        columns,
        rows: drawn,
        notes: notes(&group, &engines, reference, all - rows.len(), &said),
    }
}

/// Reasons with the rows that they hold for, in the order of their first row.
#[derive(Default)]
struct Reasons {
    order: Vec<(String, String)>,
    rows: BTreeMap<(String, String), usize>,
}

impl Reasons {
    fn add(&mut self, engine: String, reason: String) {
        let key = (engine, reason);
        if !self.order.contains(&key) {
            self.order.push(key.clone());
        }
        *self.rows.entry(key).or_default() += 1;
    }
}

/// A value with what must be known beside it.
fn told(one: &Shown<'_>, group: &[&Shown<'_>], reference: &str, said: &mut Reasons) -> String {
    let Some(value) = one.median(COMPARED).filter(|_| one.is_done()) else {
        return super::status(one);
    };
    let mut words = vec![format!("{value:.1}")];
    words.extend(one.launch.precision.clone());
    let devices = one.launch.gpus().unwrap_or(0);
    match (lacks(one, Unknown::Gpus), devices) {
        (true, _) => words.push("? GPUs".to_owned()),
        (false, 0) => {}
        (false, 1) => words.push("1 GPU".to_owned()),
        (false, several) => words.push(format!("{several} GPUs")),
    }
    if one.launch.engine.name != reference {
        match held(one, group, reference) {
            Held::Ratio(ratio, beside) => {
                words.push(format!("{:.2}×", ratio.value));
                if !beside.is_empty() {
                    said.add(one.engine(), format!("with differences: {}", beside.join(", ")));
                }
            }
            Held::Refused(why, per_gpu) => {
                let per_gpu = per_gpu.map(|ratio| format!("{ratio:.2}× per GPU"));
                words.push(per_gpu.unwrap_or_else(|| "≠".to_owned()));
                said.add(one.engine(), format!("no ratio: {}", why.join(", ")));
            }
        }
    }
    words.join(" · ")
}

fn notes(
    group: &[(String, &Shown<'_>)],
    engines: &[String],
    reference: &str,
    alone: usize,
    said: &Reasons,
) -> Vec<String> {
    let mut notes = vec![format!(
        "×: of the output throughput of {reference} in the same row; ≠: the two may not be compared"
    )];
    for (engine, reason) in &said.order {
        let rows = said.rows[&(engine.clone(), reason.clone())];
        let rows = if rows == 1 {
            "1 row".to_owned()
        } else {
            format!("{rows} rows")
        };
        notes.push(format!("{engine}, {rows}: {reason}"));
    }
    for engine in engines {
        let mut sources: Vec<String> = group
            .iter()
            .filter(|(name, _)| name == engine)
            .flat_map(|(_, one)| &one.summaries)
            .filter_map(|summary| summary.imported.as_ref())
            .map(|imported| {
                format!(
                    "read from {}, measured with {}",
                    imported.file,
                    imported.tool.name()
                )
            })
            .collect();
        sources.sort();
        sources.dedup();
        notes.extend(sources.into_iter().map(|source| format!("{engine}: {source}")));
    }
    notes.extend(queue_bound(group));
    if alone > 0 {
        notes.push(format!(
            "{alone} more {} of one engine alone",
            if alone == 1 { "row is" } else { "rows are" }
        ));
    }
    notes
}
