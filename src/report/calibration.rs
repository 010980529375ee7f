//! The table of a client calibration.

use super::{Align, Column, Row, Table, Value};
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
        "measured minus the simulated engine's own moments; p99: 99 of 100 lie at most this far away, to either side"
            .to_owned(),
        format!("moments of arrival by the {} clock", calibration.timestamp_source),
    ];
    if let Some(flood) = &calibration.flood {
        let limit = match flood.is_limit {
            true => "saturates",
            false => "is not the limit yet: the server is",
        };
        notes.push(format!(
            "a flood of {} streams brings {:.0} events/s, with {:.0} % of a processor: the client {limit}",
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
