//! Tables of latencies side by side: mean and percentiles of each latency.

use super::columns::{self, MetricColumn};
use super::family::Group;
use super::notes::{approximate_note, caveat_notes};
use super::report_cell::ReportCell;
use super::units;
use crate::analysis::metrics::{LatencyKind, Metric, Statistic};
use crate::report::table::{Row, Table, Value};

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
const SAMPLES: [(LatencyKind, &str, usize); 4] = [
    (LatencyKind::Ttft, "TTFT", 1),
    (LatencyKind::Tpot, "TPOT", 2),
    (LatencyKind::Itl, "ITL", 2),
    (LatencyKind::E2e, "E2E", 1),
];

/// Draws a table for each model and scenario, with the same rows as the comparison.
pub(crate) fn latency_tables(groups: &[Group<'_, '_>]) -> Vec<Table> {
    groups.iter().map(table).collect()
}

fn table(comparison_group: &Group<'_, '_>) -> Table {
    let group = &comparison_group.rows[..];
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
    let measured: Vec<MetricColumn<'_>> = columns::meaningful_columns(group, measured).collect();
    let mut columns = vec![columns::text_column("engine", 0)];
    columns.extend(columns::metric_columns(&measured));
    let row = |(cell, name): (&&ReportCell<'_>, &String)| {
        let mut cells = vec![Value::text(name)];
        cells.extend(columns::metric_values(cell, &measured));
        Row {
            cells,
            marks: cell.marks(),
        }
    };
    let named: Vec<(String, &ReportCell<'_>)> = comparison_group
        .names
        .iter()
        .cloned()
        .zip(group.iter().copied())
        .collect();
    let rows: Vec<Row> = group.iter().zip(&comparison_group.names).map(row).collect();
    let mut notes = caveat_notes(&named);
    notes.extend(approximate_note(&rows));
    units::fit_time_units(Table {
        title: format!("{}: latencies", comparison_group.title),
        columns,
        rows,
        notes,
    })
}
