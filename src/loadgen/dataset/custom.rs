//! The `custom` data set: conversations in a JSON lines file. The first turns are sent.

use serde_json::Value;

use super::conversations::TurnPair;
use super::jsonl::{Lines, malformed_line, row_timestamp};
use super::sharegpt::pair_rows;
use super::{DatasetError, MakeRows, RngState, RowInputs, Rows};
use crate::config::dataset::DatasetName;
use crate::config::dataset::custom::Custom;

impl MakeRows for Custom {
    fn rows(&self, inputs: &RowInputs<'_>, draws: &mut RngState) -> Result<Rows, DatasetError> {
        pair_rows(self, inputs, read(self, inputs)?, draws)
    }
}

/// Reads the first two turns of every line with at least two, and its timestamp if times are replayed. Lines
/// that are not JSON are skipped, as in the Python tool.
fn read(custom: &Custom, inputs: &RowInputs<'_>) -> Result<Vec<TurnPair<'static>>, DatasetError> {
    let path = inputs.path()?;
    let mut pairs = Vec::new();
    for (number, record) in Lines::read(path)?.values() {
        let malformed_row = |reason: &str| malformed_line(DatasetName::Custom, path, number, reason);
        let Value::Object(record) = record else {
            return Err(malformed_row("the row is not a JSON object with `conversations`"));
        };
        let turns = record.get("conversations").or_else(|| record.get("conversation"));
        let turns = match turns {
            None | Some(Value::Null) => continue,
            Some(Value::Array(turns)) => turns,
            Some(_) => return Err(malformed_row("`conversations` must be a list of turns")),
        };
        if let [first, second, ..] = &turns[..] {
            let silent = "a turn has no text in `content` or `value`";
            let at = custom
                .trace_timestamps
                .then(|| row_timestamp(record.get("timestamp")).map_err(malformed_row));
            pairs.push(TurnPair {
                prompt: turn_text(first).ok_or_else(|| malformed_row(silent))?.into(),
                completion: turn_text(second).ok_or_else(|| malformed_row(silent))?.into(),
                timestamp: at.transpose()?,
            });
        }
    }
    Ok(pairs)
}

/// The text of a turn; empty if the turn has none.
fn turn_text(turn: &Value) -> Option<String> {
    let turn = turn.as_object()?;
    match turn.get("content").or_else(|| turn.get("value")) {
        None => Some(String::new()),
        Some(text) => text.as_str().map(str::to_owned),
    }
}
