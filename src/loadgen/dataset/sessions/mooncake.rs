//! Traces as Mooncake's, whose lines may belong to sessions: a request per line, with ids of KV blocks.
//!
//! Source: the guide to trace replay of ai-dynamo/aiperf 0.13.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::recorded::{
    Place, RecordedPrompt, RecordedRequest, RecordedSession, block_ids, seconds, token_number,
};
use crate::loadgen::dataset::DatasetError;

/// Collects the lines of a trace.
pub(super) struct Lines {
    block: u32,
    sessions: Vec<RecordedSession>,
    /// The session of each `session_id`, and the time of its last line.
    by_name: HashMap<String, (usize, Option<Duration>)>,
}

impl Lines {
    pub(super) fn new(block: u32) -> Self {
        Self {
            block,
            sessions: Vec::new(),
            by_name: HashMap::new(),
        }
    }

    pub(super) fn finish(self) -> Vec<RecordedSession> {
        self.sessions
    }

    /// Reads a line; one without `session_id` is a session of its own. At most `most` sessions begin.
    pub(super) fn read(&mut self, line: &Value, place: &Place, most: usize) -> Result<(), DatasetError> {
        let malformed = |reason: String| place.malformed(reason);
        let name = match line.get("session_id") {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name.clone()),
            Some(Value::Number(name)) => Some(name.to_string()),
            Some(other) => return Err(place.malformed(format!("`session_id` is `{other}`; write a string"))),
        };
        let known = name.as_ref().and_then(|name| self.by_name.get(name)).copied();
        if known.is_none() && self.sessions.len() >= most {
            return Ok(());
        }
        let ids = line.get("hash_ids");
        let stated = token_number(line.get("input_length"), "input_length").map_err(malformed)?;
        let full = ids
            .and_then(Value::as_array)
            .map(|ids| ids.len() as u64 * u64::from(self.block));
        let tokens = match (stated, full) {
            (Some(tokens), _) => tokens,
            (None, Some(full)) => token_number(Some(&full.into()), "hash_ids")
                .map_err(malformed)?
                .unwrap_or(0),
            (None, None) => 0,
        };
        if tokens == 0 {
            return Err(place
                .malformed("the request has neither `input_length` nor `hash_ids`, so its prompt is empty"));
        }
        let ids = block_ids(ids, self.block, tokens).map_err(malformed)?;
        let at = self.milliseconds(line, "timestamp", place)?;
        let pause = self.milliseconds(line, "delay", place)?;
        let (index, last) = known.unwrap_or_else(|| {
            self.sessions.push(RecordedSession::default());
            (self.sessions.len() - 1, None)
        });
        let session = &mut self.sessions[index];
        let before = session.requests.len().checked_sub(1);
        let gap = at.zip(last).map(|(at, last)| at.saturating_sub(last));
        let delay = match before {
            Some(_) => pause.or(gap).unwrap_or_default(),
            None => pause.unwrap_or_default(),
        };
        session.requests.push(RecordedRequest {
            place: place.clone(),
            after: before.into_iter().collect(),
            delay,
            continues: None,
            prompt: RecordedPrompt::Blocks {
                scope: 0,
                ids,
                block: self.block,
                tokens,
            },
            output_tokens: token_number(line.get("output_length"), "output_length")
                .map_err(malformed)?
                .map(|tokens| tokens.max(1)),
            body: Map::new(),
        });
        if let Some(name) = name {
            self.by_name.insert(name, (index, at));
        }
        Ok(())
    }

    fn milliseconds(&self, line: &Value, key: &str, place: &Place) -> Result<Option<Duration>, DatasetError> {
        let Some(value) = line.get(key).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let number = value
            .as_f64()
            .ok_or_else(|| format!("`{key}` is `{value}`; write a number of milliseconds"));
        let duration = number.and_then(|number| seconds(number / 1000.0, key));
        duration.map(Some).map_err(|reason| place.malformed(reason))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(text: &str, most: usize) -> Result<Vec<RecordedSession>, String> {
        let mut lines = Lines::new(16);
        for (number, line) in text.lines().enumerate() {
            let value = serde_json::from_str(line).unwrap();
            let place = Place::new(Path::new("trace.jsonl"), Some(number + 1));
            lines
                .read(&value, &place, most)
                .map_err(|error| error.to_string())?;
        }
        Ok(lines.finish())
    }

    const TRACE: &str = r#"{"session_id": "a", "timestamp": 1000, "input_length": 20, "output_length": 5, "hash_ids": [1, 2]}
{"timestamp": 1500, "input_length": 16, "output_length": 0, "hash_ids": [9]}
{"session_id": "a", "timestamp": 4000, "input_length": 40, "output_length": 5, "hash_ids": [1, 2, 3]}
{"session_id": "a", "delay": 250, "input_length": 48, "output_length": 5, "hash_ids": [1, 2, 3]}"#;

    #[test]
    fn lines_of_a_session_follow_one_another() {
        let sessions = read(TRACE, 10).unwrap();
        let facts = |request: &RecordedRequest| (request.after.clone(), request.delay.as_millis());
        let first: Vec<_> = sessions[0].requests.iter().map(facts).collect();
        assert_eq!(first, [(vec![], 0), (vec![0], 3000), (vec![1], 250)]);
        assert_eq!((sessions.len(), sessions[1].requests.len()), (2, 1));
        assert_eq!(sessions[1].requests[0].output_tokens, Some(1));
    }

    #[test]
    fn a_session_that_began_is_read_to_its_end() {
        let sessions = read(TRACE, 1).unwrap();
        assert_eq!((sessions.len(), sessions[0].requests.len()), (1, 3));
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_line() {
        for (line, why) in [
            (
                r#"{"delay": -1, "input_length": 16}"#,
                "line 1: `delay` is negative",
            ),
            (
                r#"{"timestamp": "x", "input_length": 16}"#,
                "write a number of milliseconds",
            ),
            (
                r#"{"input_length": 16, "hash_ids": [1, 2]}"#,
                "do not match 16 input tokens",
            ),
            (r#"{"output_length": 3}"#, "neither `input_length` nor `hash_ids`"),
            (r#"{"input_length": 1e99}"#, "whole number"),
            (
                r#"{"session_id": [], "input_length": 16}"#,
                "`session_id` is `[]`",
            ),
        ] {
            let error = read(line, 10).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
    }
}
