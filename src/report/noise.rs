//! Draws the noise of a machine.

use super::comparison::{number_column, percent, text_column};
use super::labels::Labels;
use super::table::{Row, Table, Value};
use crate::analysis::metrics::Metric;
use crate::base::ids::CellKey;
use crate::results::record::cell_stats::NoiseEstimate;

/// Noise of figures between unchanged runs: cell, metric, noise, and the smallest change that five starts
/// against five can show.
pub(crate) fn noise_table<'a>(
    rows: impl Iterator<Item = (&'a CellKey, &'a str, &'a NoiseEstimate, f64)>,
) -> Table {
    let share = |share: f64| Value::Text(format!("{:.2} %", share * 100.0));
    let rows: Vec<_> = rows.collect();
    let labels = Labels::from_keys(rows.iter().map(|(cell, ..)| *cell));
    let row = |(cell, figure, varies, visible): (&CellKey, &str, &NoiseEstimate, f64)| Row {
        cells: vec![
            Value::Text(labels.name(cell)),
            Value::Text(Metric::from_name(figure).map_or_else(|| figure.to_owned(), Metric::label)),
            Value::Count(varies.starts.into()),
            varies.within_share.map_or(Value::Missing, share),
            share(varies.between_share),
            varies.bound_share.map_or(Value::Missing, share),
            Value::text(percent(varies.difference_share)),
            share(visible),
        ],
        marks: Vec::new(),
    };
    Table {
        title: "Noise of this machine".to_owned(),
        columns: vec![
            text_column("cell", 0),
            text_column("figure", 0),
            number_column("starts", "", 2),
            number_column("within starts", "", 1),
            number_column("between starts", "", 1),
            number_column("at most", "", 1),
            number_column("A against B", "", 1),
            number_column("visible change", "", 0),
        ],
        notes: labels
            .left_out
            .clone()
            .into_iter()
            .chain(["at most: upper bound of the variation between starts, at 80 % confidence; visible change: the smallest change that a comparison of five starts with five other starts detects with 90 % probability, given this variation".to_owned()])
            .collect(),
        rows: rows.into_iter().map(row).collect(),
    }
}
