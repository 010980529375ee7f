//! Tables of latencies side by side: mean and percentiles of each latency.

use super::columns::{self, Measured};
use super::family::Group;
use super::{Row, Shown, Table, Value, misread, rough, units};
use crate::analysis::metrics::{Metric, Sample, Statistic};

/// The statistics, with the end of their heading and their rank.
const STATISTICS: [(Statistic, &str, u8); 6] = [
    (Statistic::Mean, "mean", 1),
    (Statistic::Median, "p50", 2),
    (Statistic::P90, "p90", 4),
    (Statistic::P95, "p95", 5),
    (Statistic::P99, "p99", 3),
    (Statistic::P999, "p99.9", 6),
];

/// The latencies, with their name and digits after the point.
const SAMPLES: [(Sample, &str, usize); 4] = [
    (Sample::Ttft, "TTFT", 1),
    (Sample::Tpot, "TPOT", 2),
    (Sample::Itl, "ITL", 2),
    (Sample::E2e, "E2E", 1),
];

/// Draws a table for each model and scenario, with the same rows as the comparison.
pub(crate) fn latencies(groups: &[Group<'_, '_>]) -> Vec<Table> {
    groups.iter().map(table).collect()
}

fn table(of: &Group<'_, '_>) -> Table {
    let group = &of.rows[..];
    let heads: Vec<(Metric, String, usize, u8)> = SAMPLES
        .iter()
        .flat_map(|(sample, name, decimals)| {
            STATISTICS.iter().map(move |(statistic, end, rank)| {
                (
                    Metric::Time(*statistic, *sample),
                    format!("{name} {end}"),
                    *decimals,
                    *rank,
                )
            })
        })
        .collect();
    let measured = heads
        .iter()
        .map(|(metric, head, decimals, rank)| (*metric, head.as_str(), *decimals, *rank));
    let measured: Vec<Measured<'_>> = columns::shown_of(group, measured).collect();
    let mut columns = vec![columns::words("engine", 0)];
    columns.extend(columns::figures(&measured));
    let row = |(one, name): (&&Shown<'_>, &String)| {
        let mut cells = vec![Value::text(name)];
        cells.extend(columns::values(one, &measured));
        Row {
            cells,
            marks: one.marks(),
        }
    };
    let named: Vec<(String, &Shown<'_>)> = of.names.iter().cloned().zip(group.iter().copied()).collect();
    let rows: Vec<Row> = group.iter().zip(&of.names).map(row).collect();
    let mut notes = misread(&named);
    notes.extend(rough(&rows));
    units::fit(Table {
        title: format!("{}: latencies", of.title),
        columns,
        rows,
        notes,
    })
}
