//! The table of a client calibration.

use super::table::{Align, Column, Row, Table, Value};
use crate::results::record::client::Calibration;

/// Draws the client's error for each number of streams.
pub(crate) fn table(calibration: &Calibration) -> Table {
    let column = |head: &str, unit: &'static str| Column {
        head: head.to_owned(),
        unit,
        align: Align::Right,
        better: None,
        rank: 0,
    };
    let number = |value: f64, decimals: usize| Value::Number { value, decimals };
    let rows = calibration.points.iter().map(|point| Row {
        cells: vec![
            Value::Count(u64::from(point.streams)),
            number(point.gap_ms(), 0),
            number(point.events_per_s, 0),
            number(point.ttft_ms.bias, 3),
            number(point.ttft_ms.p99, 3),
            number(point.itl_ms.bias, 3),
            number(point.itl_ms.p99, 3),
            number(point.send_lag_p99_ms, 3),
            number(point.cpu_share * 100.0, 1),
        ],
        marks: Vec::new(),
    });
    let mut notes = vec![
        "errors are the measured times minus the true times of the simulated engine; bias: mean of the errors; p99: 99 % of the errors are at most this large, in either direction"
            .to_owned(),
        format!("timestamps of arrivals: {} clock", calibration.timestamp_source),
    ];
    if let Some(flood) = &calibration.flood {
        let limit = match flood.is_limit {
            true => "the client limits this load, not the server",
            false => "not the client but the server limits this load",
        };
        notes.push(format!(
            "maximum load: {} streams with {:.0} events/s, busiest client thread at {:.0} % of a CPU; {limit}",
            flood.streams,
            flood.events_per_s,
            flood.cpu_share * 100.0
        ));
    }
    Table {
        title: format!("Client error on {}", calibration.machine),
        columns: vec![
            column("streams", ""),
            column("gap", "ms"),
            column("events", "/s"),
            column("TTFT bias", "ms"),
            column("TTFT p99", "ms"),
            column("ITL bias", "ms"),
            column("ITL p99", "ms"),
            column("send lag p99", "ms"),
            column("thread", "% CPU"),
        ],
        rows: rows.collect(),
        notes,
    }
}
