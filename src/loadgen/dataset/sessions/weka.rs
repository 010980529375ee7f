//! Traces of Weka's KV cache tester, which AgentX uses: a session per value, with ids of KV blocks and nested
//! requests of sub-agents.
//!
//! A sub-agent begins after the request before it in the list, and the next request waits for its end, unless it
//! was launched in the background.
//!
//! Source: the guide to the replay tester of callanjfox/kv-cache-tester, and that to Weka traces of
//! ai-dynamo/aiperf 0.13.

use std::time::Duration;

use serde_json::{Map, Value};

use super::recorded::{
    Place, RecordedPrompt, RecordedRequest, RecordedSession, block_ids, seconds, token_number,
};
use super::timeline::{Interval, predecessors};
use crate::loadgen::dataset::DatasetError;

/// Tokens of a block where a trace does not say.
const DEFAULT_BLOCK: u32 = 64;
/// The status of a sub-agent for which its parent does not wait.
const BACKGROUND: &str = "async_launched";

/// Reads a session; `number` sets its block ids apart from those of other sessions.
pub(super) fn session(value: &Value, number: u64, place: &Place) -> Result<RecordedSession, DatasetError> {
    let malformed = |reason: String| place.malformed(reason);
    let block = token_number(value.get("block_size"), "block_size")
        .map_err(malformed)?
        .unwrap_or(DEFAULT_BLOCK);
    if block == 0 {
        return Err(place.malformed("`block_size` is 0; it must be at least 1 token"));
    }
    let scope = match value.get("hash_id_scope").and_then(Value::as_str) {
        None | Some("local") => number + 1,
        Some("global") => 0,
        Some(other) => {
            return Err(place.malformed(format!("`hash_id_scope` is `{other}`; write `local` or `global`")));
        }
    };
    let list = entries(value, place)?;
    let mut reader = Reader {
        place,
        scope,
        block,
        are_nested_times_relative: has_relative_times(list),
        session: RecordedSession::default(),
        times: Vec::new(),
    };
    reader.read_main(list)?;
    Ok(reader.session)
}

fn entries<'v>(value: &'v Value, place: &Place) -> Result<&'v Vec<Value>, DatasetError> {
    let list = value.get("requests").and_then(Value::as_array);
    list.ok_or_else(|| place.malformed("the session or sub-agent has no list of `requests`"))
}

fn is_sub_agent(entry: &Value) -> bool {
    entry.get("type").and_then(Value::as_str) == Some("subagent")
}

/// Whether the times of nested requests count from the start of their sub-agent: one of them is before it.
fn has_relative_times(list: &[Value]) -> bool {
    let time = |entry: &Value| entry.get("t").and_then(Value::as_f64);
    list.iter().filter(|entry| is_sub_agent(entry)).any(|agent| {
        let nested = agent.get("requests").and_then(Value::as_array);
        let first = nested.and_then(|nested| time(nested.first()?));
        first
            .zip(time(agent))
            .is_some_and(|(first, begins)| first < begins)
    })
}

struct Reader<'a> {
    place: &'a Place,
    scope: u64,
    block: u32,
    are_nested_times_relative: bool,
    session: RecordedSession,
    /// The recorded time of each request.
    times: Vec<Times>,
}

#[derive(Clone, Copy)]
struct Times {
    start: Duration,
    /// How long the server took; `None` if the trace does not say.
    took: Option<Duration>,
    /// The client's pause before the request.
    think: Option<Duration>,
}

impl Reader<'_> {
    fn read_main(&mut self, list: &[Value]) -> Result<(), DatasetError> {
        let mut main = Vec::new();
        // The sub-agents after each request of the main agent, and whether it waits for them.
        let mut agents: Vec<(Option<usize>, Vec<usize>, bool)> = Vec::new();
        for (number, entry) in list.iter().enumerate() {
            let name = format!("request {number}");
            if !is_sub_agent(entry) {
                main.push(self.read_request(entry, &name, Duration::ZERO)?);
                continue;
            }
            let begins = self.time(entry, "t", &name)?.unwrap_or_default();
            let offset = if self.are_nested_times_relative {
                begins
            } else {
                Duration::ZERO
            };
            let mut own = Vec::new();
            for (inner, entry) in entries(entry, self.place)?.iter().enumerate() {
                own.push(self.read_request(entry, &format!("{name}, nested request {inner}"), offset)?);
            }
            let is_background = entry.get("status").and_then(Value::as_str) == Some(BACKGROUND);
            let after = main.last().copied();
            let sinks = self.link_agent(own, after.as_slice());
            agents.push((after, sinks, is_background));
        }
        let (order, before) = self.order(main.clone());
        for (place, index) in order.iter().enumerate() {
            let mut after: Vec<usize> = before[place].iter().map(|before| order[*before]).collect();
            // It waits for the sub-agents that stand between the request before it in the list and itself.
            let listed = main.iter().position(|other| other == index).unwrap_or_default();
            let previous = listed.checked_sub(1).map(|previous| main[previous]);
            let joined = agents
                .iter()
                .filter(|(parent, _, is_background)| *parent == previous && !is_background);
            after.extend(joined.flat_map(|(_, sinks, _)| sinks));
            self.link(*index, after);
        }
        Ok(())
    }

    /// Links the requests of a sub-agent, and returns those for which no other of them waits.
    fn link_agent(&mut self, own: Vec<usize>, parent: &[usize]) -> Vec<usize> {
        let (order, before) = self.order(own);
        let mut is_awaited = vec![false; order.len()];
        for (place, index) in order.iter().enumerate() {
            before[place].iter().for_each(|before| is_awaited[*before] = true);
            let after = match before[place].is_empty() {
                true => parent.to_vec(),
                false => before[place].iter().map(|before| order[*before]).collect(),
            };
            self.link(*index, after);
        }
        let sinks = order.into_iter().zip(is_awaited);
        sinks
            .filter(|(_, is_awaited)| !is_awaited)
            .map(|(index, _)| index)
            .collect()
    }

    /// Returns the requests of an agent in the order of their times, each with those that it waits for. Without
    /// the time that the server took, each waits for the one before it.
    fn order(&self, mut requests: Vec<usize>) -> (Vec<usize>, Vec<Vec<usize>>) {
        requests.sort_by_key(|index| self.times[*index].start);
        let intervals: Option<Vec<Interval>> = requests
            .iter()
            .map(|index| {
                let times = self.times[*index];
                Some(Interval {
                    start: times.start,
                    end: times.start.saturating_add(times.took?),
                })
            })
            .collect();
        let before = match intervals {
            Some(intervals) => predecessors(&intervals),
            None => (0..requests.len())
                .map(|place| place.checked_sub(1).into_iter().collect())
                .collect(),
        };
        (requests, before)
    }

    /// Sets what a request waits for, and the pause that was recorded: from the last of their ends, else the
    /// recorded think time, else from the last of their starts.
    fn link(&mut self, index: usize, after: Vec<usize>) {
        let times = self.times[index];
        let ends: Option<Vec<Duration>> = after
            .iter()
            .map(|before| {
                let before = self.times[*before];
                Some(before.start.saturating_add(before.took?))
            })
            .collect();
        let begins = after.iter().map(|before| self.times[*before].start).max();
        let last_end = ends.map(|ends| ends.into_iter().max());
        let delay = match (last_end, times.think, begins) {
            (Some(Some(end)), ..) => times.start.saturating_sub(end),
            (None, Some(think), _) => think,
            (None, None, Some(begins)) => times.start.saturating_sub(begins),
            // It begins its session.
            _ => times.start,
        };
        let request = &mut self.session.requests[index];
        (request.after, request.delay) = (after, delay);
    }

    fn read_request(&mut self, entry: &Value, name: &str, offset: Duration) -> Result<usize, DatasetError> {
        let malformed = |reason: String| self.place.malformed(format!("{name}: {reason}"));
        let kind = entry.get("type").and_then(Value::as_str);
        if kind.is_some_and(|kind| !["n", "s"].contains(&kind)) {
            let reason = "`type` must be `n` or `s`; outside of sub-agents it may also be `subagent`";
            return Err(malformed(reason.to_owned()));
        }
        let tokens = token_number(entry.get("in"), "in").map_err(malformed)?;
        let tokens = tokens
            .filter(|tokens| *tokens > 0)
            .ok_or_else(|| malformed("the request has no `in` (the number of input tokens)".to_owned()))?;
        let output_tokens = token_number(entry.get("out"), "out").map_err(malformed)?;
        let ids = block_ids(entry.get("hash_ids"), self.block, tokens).map_err(malformed)?;
        let start = self.time(entry, "t", name)?;
        let start =
            start.ok_or_else(|| malformed("the request has no `t` (the time in seconds)".to_owned()))?;
        self.times.push(Times {
            start: start.saturating_add(offset),
            took: self.time(entry, "api_time", name)?,
            think: self.time(entry, "think_time", name)?,
        });
        self.session.requests.push(RecordedRequest {
            place: self.place.clone(),
            after: Vec::new(),
            delay: Duration::ZERO,
            continues: None,
            prompt: RecordedPrompt::Blocks {
                scope: self.scope,
                ids,
                block: self.block,
                tokens,
            },
            // An answer has at least one token.
            output_tokens: output_tokens.map(|tokens| tokens.max(1)),
            body: Map::new(),
        });
        Ok(self.session.requests.len() - 1)
    }

    fn time(&self, entry: &Value, key: &str, name: &str) -> Result<Option<Duration>, DatasetError> {
        let Some(value) = entry.get(key).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let number = value
            .as_f64()
            .ok_or_else(|| format!("`{key}` is `{value}`; write a number of seconds"));
        let duration = number.and_then(|number| seconds(number, key));
        duration
            .map(Some)
            .map_err(|reason| self.place.malformed(format!("{name}: {reason}")))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(text: &str) -> Result<RecordedSession, String> {
        let value = serde_json::from_str(text).unwrap();
        let place = Place::new(Path::new("trace.json"), Some(3));
        let session = session(&value, 4, &place).and_then(RecordedSession::sort);
        session.map_err(|error| error.to_string())
    }

    /// What each request waits for, and its pause in milliseconds.
    fn graph(text: &str) -> Vec<(Vec<usize>, u128)> {
        let session = read(text).unwrap();
        let facts = |request: &RecordedRequest| (request.after.clone(), request.delay.as_millis());
        session.requests.iter().map(facts).collect()
    }

    #[test]
    fn sub_agents_fan_out_and_are_joined() {
        let text = r#"{"id": "a", "block_size": 64, "hash_id_scope": "local", "requests": [
            {"t": 0, "type": "n", "in": 128, "out": 5, "hash_ids": [1, 2], "api_time": 1},
            {"t": 2, "type": "subagent", "agent_id": "x", "status": "completed", "requests": [
                {"t": 2, "type": "s", "in": 64, "out": 5, "hash_ids": [9], "api_time": 1},
                {"t": 4, "type": "s", "in": 128, "out": 5, "hash_ids": [9, 10], "api_time": 1}]},
            {"t": 3, "type": "subagent", "agent_id": "y", "status": "completed", "requests": [
                {"t": 3, "type": "n", "in": 64, "out": 0, "hash_ids": [11], "api_time": 4}]},
            {"t": 9, "type": "n", "in": 200, "out": 5, "hash_ids": [1, 2, 3, 4], "api_time": 1}]}"#;
        assert_eq!(
            graph(text),
            [
                (vec![], 0),
                (vec![0], 1000),
                (vec![1], 1000),
                (vec![0], 2000),
                (vec![0, 2, 3], 2000)
            ]
        );
        let session = read(text).unwrap();
        let prompt = RecordedPrompt::Blocks {
            scope: 5,
            ids: vec![1, 2, 3, 4],
            block: 64,
            tokens: 200,
        };
        assert_eq!(session.requests[4].prompt, prompt);
        assert_eq!(session.requests[3].output_tokens, Some(1));
    }

    #[test]
    fn no_request_waits_for_what_runs_in_the_background() {
        let text = r#"{"requests": [
            {"t": 0, "type": "n", "in": 64, "out": 5, "api_time": 1},
            {"t": 1, "type": "subagent", "status": "async_launched", "requests": [{"t": 1, "in": 64, "out": 5, "api_time": 9}]},
            {"t": 2, "type": "n", "in": 64, "out": 5, "api_time": 1}]}"#;
        assert_eq!(graph(text), [(vec![], 0), (vec![0], 0), (vec![0], 1000)]);
    }

    #[test]
    fn nested_times_may_count_from_their_sub_agent() {
        let text = r#"{"requests": [
            {"t": 10, "in": 64, "out": 5, "api_time": 1},
            {"t": 12, "type": "subagent", "requests": [{"t": 0, "in": 64, "out": 5, "api_time": 1}]},
            {"t": 15, "in": 64, "out": 5, "api_time": 1}]}"#;
        assert_eq!(
            graph(text),
            [(vec![], 10_000), (vec![0], 1000), (vec![0, 1], 2000)]
        );
    }

    #[test]
    fn requests_in_parallel_without_a_sub_agent_stay_parallel() {
        let text = r#"{"requests": [
            {"t": 0, "in": 64, "out": 5, "api_time": 1}, {"t": 2, "in": 64, "out": 5, "api_time": 3},
            {"t": 3, "in": 64, "out": 5, "api_time": 1}, {"t": 6, "in": 64, "out": 5, "api_time": 1}]}"#;
        assert_eq!(
            graph(text),
            [(vec![], 0), (vec![0], 1000), (vec![0], 2000), (vec![1, 2], 1000)]
        );
    }

    #[test]
    fn without_times_of_the_server_the_think_time_counts() {
        let text = r#"{"requests": [{"t": 0, "in": 64, "out": 5}, {"t": 5, "in": 64, "out": 5, "think_time": 2},
            {"t": 9, "in": 64, "out": 5}]}"#;
        assert_eq!(graph(text), [(vec![], 0), (vec![0], 2000), (vec![1], 4000)]);
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_place() {
        for (entry, why) in [
            (
                r#"{"t": -1, "in": 64, "out": 5}"#,
                "line 3: request 0: `t` is negative",
            ),
            (r#"{"t": 1e300, "in": 64, "out": 5}"#, "longer than a year"),
            (r#"{"t": "a", "in": 64, "out": 5}"#, "write a number of seconds"),
            (r#"{"in": 64, "out": 5}"#, "the request has no `t`"),
            (r#"{"t": 0, "out": 5}"#, "the request has no `in`"),
            (
                r#"{"t": 0, "in": 64, "out": -5}"#,
                "`out` is `-5`; write a whole number",
            ),
            (
                r#"{"t": 0, "in": 640000000000, "out": 5}"#,
                "more than the maximum of 100000000",
            ),
            (
                r#"{"t": 0, "in": 64, "out": 5, "hash_ids": [1, 2]}"#,
                "do not match 64 input tokens",
            ),
            (
                r#"{"t": 0, "in": 64, "out": 5, "hash_ids": ["x"]}"#,
                "`hash_ids` must be a list",
            ),
            (
                r#"{"t": 0, "in": 64, "out": 5, "think_time": -0.1}"#,
                "`think_time` is negative",
            ),
            (
                r#"{"t": 0, "type": "x", "in": 64, "out": 5}"#,
                "`type` must be `n` or `s`",
            ),
            (r#"{"t": 0, "type": "subagent"}"#, "has no list of `requests`"),
        ] {
            let error = read(&format!(r#"{{"requests": [{entry}]}}"#)).unwrap_err();
            assert!(
                error.contains(why) && error.contains("trace.json"),
                "{entry}: {error}"
            );
        }
        assert!(
            read(r#"{"block_size": 0, "requests": []}"#)
                .unwrap_err()
                .contains("at least 1")
        );
        assert!(
            read(r#"{"hash_id_scope": "x", "requests": []}"#)
                .unwrap_err()
                .contains("`global`")
        );
    }
}
