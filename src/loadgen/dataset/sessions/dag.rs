//! Conversations that fork and spawn sub-agents, as in AIPerf's `dag_jsonl`: a conversation per line. A session is a
//! conversation that no other names, with all that it names.
//!
//! A forked conversation continues the messages and the answer of the turn that forks it; a spawned one begins with
//! its own messages, and a later turn waits for its end.
//!
//! Source: the guide to DAG files of ai-dynamo/aiperf 0.13.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::{Map, Value};

use super::recorded::{Place, RecordedPrompt, RecordedRequest, RecordedSession, seconds, token_number};
use crate::loadgen::dataset::DatasetError;

/// Most requests of a session; conversations that are spawned often by others multiply.
const MAX_REQUESTS: usize = 100_000;
/// Most conversations that begin within one another.
const MAX_DEPTH: usize = 64;
/// The keys that name other conversations in ways that are not replayed.
const UNSUPPORTED: [&str; 2] = ["orchestrator", "pre_session_spawns"];

struct Conversation<'v> {
    name: &'v str,
    place: &'v Place,
    turns: Vec<Turn<'v>>,
    /// Whether each turn has the whole prompt, and continues no other.
    is_whole: bool,
}

struct Turn<'v> {
    messages: &'v [Value],
    delay: Duration,
    output_tokens: Option<u32>,
    body: Map<String, Value>,
    forks: Vec<&'v str>,
    /// Spawned conversations, with the turn that waits for each; `None` if none does.
    spawns: Vec<(&'v str, Option<usize>)>,
}

/// Reads the sessions of a file, at most `most`.
pub(super) fn sessions(values: &[(Value, Place)], most: usize) -> Result<Vec<RecordedSession>, DatasetError> {
    let mut conversations: Vec<Conversation<'_>> = Vec::with_capacity(values.len());
    let mut by_name = HashMap::new();
    for (value, place) in values {
        let conversation = conversation(value, place)?;
        if let Some(first) = by_name.insert(conversation.name, conversations.len()) {
            return Err(place.malformed(format!(
                "the `session_id` `{}` is already used in line {}; rename one of them",
                conversation.name,
                conversations[first].place.line.unwrap_or(1)
            )));
        }
        conversations.push(conversation);
    }
    let all = Conversations {
        all: &conversations,
        by_name: &by_name,
    };
    let named = all.named()?;
    let roots: Vec<usize> = (0..conversations.len())
        .filter(|index| !named.contains(index))
        .collect();
    if roots.is_empty()
        && let Some(first) = conversations.first()
    {
        return Err(first
            .place
            .malformed("every conversation is forked or spawned by another one, so none can be the first; remove the cycle"));
    }
    let sessions = roots.into_iter().take(most).map(|root| {
        let mut session = RecordedSession::default();
        all.add(root, Start::default(), &mut Vec::new(), &mut session)?;
        Ok(session)
    });
    sessions.collect()
}

struct Conversations<'a, 'v> {
    all: &'a [Conversation<'v>],
    by_name: &'a HashMap<&'v str, usize>,
}

/// What the first turn of a conversation waits for.
#[derive(Clone, Copy, Default)]
struct Start {
    after: Option<usize>,
    continues: Option<usize>,
}

impl Conversations<'_, '_> {
    fn find(&self, name: &str, place: &Place) -> Result<usize, DatasetError> {
        self.by_name.get(name).copied().ok_or_else(|| {
            place.malformed(format!(
                "a turn forks or spawns `{name}`, but no line has this `session_id`; add the line, or correct the name"
            ))
        })
    }

    /// Returns all conversations that others fork or spawn.
    fn named(&self) -> Result<HashSet<usize>, DatasetError> {
        let (mut named, mut forked) = (HashSet::new(), HashSet::new());
        for conversation in self.all {
            for turn in &conversation.turns {
                for child in &turn.forks {
                    let child = self.find(child, conversation.place)?;
                    named.insert(child);
                    if !forked.insert(child) {
                        return Err(conversation.place.malformed(format!(
                            "several entries of `forks` start the conversation `{}`, but a conversation can start from one turn only; keep one of these entries",
                            self.all[child].name
                        )));
                    }
                }
                for (child, _) in &turn.spawns {
                    named.insert(self.find(child, conversation.place)?);
                }
            }
        }
        Ok(named)
    }

    /// Adds a conversation with all that it forks and spawns, and returns the index of its last request.
    fn add(
        &self,
        index: usize,
        start: Start,
        open: &mut Vec<usize>,
        session: &mut RecordedSession,
    ) -> Result<Option<usize>, DatasetError> {
        let conversation = &self.all[index];
        if open.contains(&index) || open.len() >= MAX_DEPTH {
            return Err(conversation.place.malformed(format!(
                "the conversation `{}` starts itself through `forks` or `spawns`, or is nested more than {MAX_DEPTH} levels \
                 deep; remove the cycle or the levels",
                conversation.name
            )));
        }
        open.push(index);
        let mut last = None;
        // The last requests of spawned conversations, by the turn that waits for them.
        let mut joins: HashMap<usize, Vec<usize>> = HashMap::new();
        for (number, turn) in conversation.turns.iter().enumerate() {
            if session.requests.len() >= MAX_REQUESTS {
                return Err(conversation.place.malformed(format!(
                    "the conversation `{}`, with all conversations that it spawns, has more than {MAX_REQUESTS} requests; spawn fewer from it",
                    self.all[open[0]].name
                )));
            }
            let (after, continues) = match last {
                None => (start.after, start.continues),
                Some(_) => (last, last),
            };
            let mut after: Vec<usize> = after.into_iter().collect();
            after.extend(joins.remove(&number).unwrap_or_default());
            let own = session.requests.len();
            session.requests.push(RecordedRequest {
                place: conversation.place.clone(),
                after,
                delay: turn.delay,
                continues: continues.filter(|_| !conversation.is_whole),
                prompt: RecordedPrompt::Messages(turn.messages.to_vec()),
                output_tokens: turn.output_tokens,
                body: turn.body.clone(),
            });
            last = Some(own);
            for child in &turn.forks {
                let start = Start {
                    after: last,
                    continues: last,
                };
                self.add(self.find(child, conversation.place)?, start, open, session)?;
            }
            for (child, join) in &turn.spawns {
                let start = Start {
                    after: last,
                    continues: None,
                };
                let end = self.add(self.find(child, conversation.place)?, start, open, session)?;
                if let (Some(join), Some(end)) = (join, end) {
                    joins.entry(*join).or_default().push(end);
                }
            }
        }
        open.pop();
        Ok(last)
    }
}

fn conversation<'v>(value: &'v Value, place: &'v Place) -> Result<Conversation<'v>, DatasetError> {
    let name = value.get("session_id").and_then(Value::as_str);
    let name = name.ok_or_else(|| place.malformed("the conversation has no `session_id`; write a string"))?;
    if let Some(key) = UNSUPPORTED
        .iter()
        .find(|key| value.get(key).is_some_and(|value| !value.is_null()))
    {
        return Err(place.malformed(format!(
            "`{key}` is not supported; list the conversations that a turn starts in its `spawns`, or leave `{key}` out: then each conversation is a session of its own"
        )));
    }
    let list = value
        .get("turns")
        .and_then(Value::as_array)
        .filter(|turns| !turns.is_empty());
    let list = list
        .ok_or_else(|| place.malformed("the conversation has no list of `turns` with at least one turn"))?;
    let is_whole = match value.get("context_mode").and_then(Value::as_str) {
        None | Some("deltas_without_responses") => false,
        Some("message_array_with_responses") => true,
        Some(other) => {
            return Err(place.malformed(format!(
                "`context_mode` is `{other}`; write `deltas_without_responses` or `message_array_with_responses`"
            )));
        }
    };
    let turns = list.iter().enumerate().map(|(number, value)| {
        turn(value, number, list.len()).map_err(|reason| place.malformed(format!("turn {number}: {reason}")))
    });
    Ok(Conversation {
        name,
        place,
        turns: turns.collect::<Result<_, _>>()?,
        is_whole,
    })
}

fn turn(value: &Value, number: usize, count: usize) -> Result<Turn<'_>, String> {
    let messages = value.get("messages").and_then(Value::as_array);
    let messages = messages
        .filter(|messages| !messages.is_empty())
        .ok_or("the turn has no list of `messages`")?;
    if messages
        .iter()
        .any(|message| message.get("role").and_then(Value::as_str).is_none())
    {
        return Err("a message has no `role`".to_owned());
    }
    let delay = match value.get("delay").filter(|delay| !delay.is_null()) {
        None => Duration::ZERO,
        Some(delay) => {
            let milliseconds = delay
                .as_f64()
                .ok_or_else(|| format!("`delay` is `{delay}`; write a number of milliseconds"))?;
            seconds(milliseconds / 1000.0, "delay")?
        }
    };
    let mut body = match value.get("extra").filter(|extra| !extra.is_null()) {
        None => Map::new(),
        Some(Value::Object(extra)) => extra.clone(),
        Some(_) => return Err("`extra` is not an object".to_owned()),
    };
    if let Some(tools) = value.get("tools").filter(|tools| !tools.is_null()) {
        body.insert("tools".to_owned(), tools.clone());
    }
    Ok(Turn {
        messages,
        delay,
        output_tokens: token_number(value.get("max_tokens"), "max_tokens")?.filter(|tokens| *tokens > 0),
        body,
        forks: forks(value, number + 1 == count)?,
        spawns: spawns(value, number, count)?,
    })
}

fn list<'v>(value: &'v Value, key: &str) -> Result<&'v [Value], String> {
    match value.get(key) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(_) => Err(format!("`{key}` is not a list")),
    }
}

fn forks(value: &Value, is_last: bool) -> Result<Vec<&str>, String> {
    let check = |entry: &Value| {
        match (entry.as_str(), entry.get("child").and_then(Value::as_str)) {
        (Some(_), _) if !is_last => Err(
            "a plain name in `forks` ends the conversation, so only the last turn may have one. To continue \
             the conversation after the fork, write `{\"child\": …, \"background\": true}` instead of the name"
                .to_owned(),
        ),
        (Some(_), _) | (_, Some(_)) => Ok(()),
        _ => Err("an entry of `forks` must be a name or an object with `child`".to_owned()),
    }
    };
    let entries = list(value, "forks")?;
    entries.iter().try_for_each(check)?;
    Ok(entries
        .iter()
        .filter_map(|entry| entry.as_str().or_else(|| entry.get("child")?.as_str()))
        .collect())
}

/// The turn after the one that spawns waits, or that of `join_at`.
fn spawns(value: &Value, number: usize, count: usize) -> Result<Vec<(&str, Option<usize>)>, String> {
    let mut spawns = Vec::new();
    for entry in list(value, "spawns")? {
        let next = Some(number + 1).filter(|next| *next < count);
        if let Some(name) = entry.as_str() {
            spawns.push((name, next));
            continue;
        }
        let join = match entry.get("join_at").filter(|join| !join.is_null()) {
            None => next,
            Some(join) => {
                let turn = join.as_u64().and_then(|turn| usize::try_from(turn).ok());
                let turn = turn.filter(|turn| *turn > number && *turn < count);
                Some(turn.ok_or_else(|| {
                    format!("`join_at` is `{join}`; write the index of a later turn of the conversation")
                })?)
            }
        };
        for child in list(entry, "children")? {
            let name = child
                .as_str()
                .ok_or("an entry of `children` is not the name of a conversation")?;
            spawns.push((name, join));
        }
    }
    Ok(spawns)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(text: &str) -> Result<Vec<RecordedSession>, String> {
        let values: Vec<(Value, Place)> = text
            .lines()
            .enumerate()
            .map(|(line, text)| {
                let place = Place::new(Path::new("trace.jsonl"), Some(line + 1));
                (serde_json::from_str(text).unwrap(), place)
            })
            .collect();
        let sessions = sessions(&values, usize::MAX).map_err(|error| error.to_string())?;
        sessions
            .into_iter()
            .map(|session| session.sort().map_err(|error| error.to_string()))
            .collect()
    }

    /// The text of each request, what it waits for, and what it continues.
    fn graph(session: &RecordedSession) -> Vec<(String, Vec<usize>, Option<usize>)> {
        let text = |prompt: &RecordedPrompt| match prompt {
            RecordedPrompt::Messages(messages) => messages[0]["content"].as_str().unwrap().to_owned(),
            RecordedPrompt::Blocks { .. } => panic!("{prompt:?}"),
        };
        let requests = session.requests.iter();
        requests
            .map(|request| (text(&request.prompt), request.after.clone(), request.continues))
            .collect()
    }

    fn line(name: &str, turns: &[(&str, &str)]) -> String {
        let turns: Vec<String> = turns
            .iter()
            .map(|(text, more)| {
                format!(r#"{{"messages": [{{"role": "user", "content": "{text}"}}], "max_tokens": 9{more}}}"#)
            })
            .collect();
        format!(r#"{{"session_id": "{name}", "turns": [{}]}}"#, turns.join(", ")) + "\n"
    }

    #[test]
    fn forks_continue_and_spawns_are_joined() {
        let text = line(
            "root",
            &[
                ("r0", r#", "spawns": ["s", {"children": ["t"], "join_at": 2}]"#),
                ("r1", ""),
                ("r2", r#", "forks": ["f"]"#),
            ],
        ) + &line("s", &[("s0", ""), ("s1", r#", "delay": 250"#)])
            + &line("t", &[("t0", "")])
            + &line("f", &[("f0", r#", "extra": {"top_p": 0.5}"#)])
            + &line("alone", &[("a0", "")]);
        let sessions = read(&text).unwrap();
        let name = str::to_owned;
        let expected = [
            (name("r0"), vec![], None),
            (name("s0"), vec![0], None),
            (name("s1"), vec![1], Some(1)),
            (name("t0"), vec![0], None),
            (name("r1"), vec![0, 2], Some(0)),
            (name("r2"), vec![3, 4], Some(4)),
            (name("f0"), vec![5], Some(5)),
        ];
        assert_eq!(graph(&sessions[0]), expected);
        assert_eq!(sessions[0].requests[2].delay.as_millis(), 250);
        assert_eq!(sessions[0].requests[6].body["top_p"], 0.5);
        assert_eq!(graph(&sessions[1]), [(name("a0"), vec![], None)]);
    }

    #[test]
    fn a_spawned_conversation_may_be_used_twice() {
        let text = line(
            "a",
            &[("a0", r#", "spawns": ["s"]"#), ("a1", r#", "spawns": ["s"]"#)],
        ) + &line("s", &[("s0", "")]);
        assert_eq!(read(&text).unwrap()[0].requests.len(), 4);
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_line() {
        let user = r#""messages": [{"role": "user", "content": "a"}]"#;
        for (text, why) in [
            (
                line("a", &[("a", "")]) + &line("a", &[("b", "")]),
                "line 2: the `session_id` `a` is already used in line 1",
            ),
            (
                line("a", &[("a", r#", "spawns": ["x"]"#)]),
                "line 1: a turn forks or spawns `x`",
            ),
            (
                line("r", &[("r", r#", "spawns": ["a"]"#)])
                    + &line("a", &[("a", r#", "spawns": ["b"]"#)])
                    + &line("b", &[("b", r#", "spawns": ["a"]"#)]),
                "starts itself through `forks` or `spawns`",
            ),
            (
                line("a", &[("a", r#", "forks": ["b"]"#)]) + &line("b", &[("b", r#", "forks": ["a"]"#)]),
                "every conversation is forked",
            ),
            (
                line("a", &[("a", r#", "delay": -1"#)]),
                "turn 0: `delay` is negative",
            ),
            (
                line("a", &[("a", r#", "forks": ["b"]"#), ("c", "")]) + &line("b", &[("b", "")]),
                "only the last turn may have one",
            ),
            (
                line(
                    "a",
                    &[
                        ("a", r#", "spawns": [{"children": ["b"], "join_at": 7}]"#),
                        ("c", ""),
                    ],
                ) + &line("b", &[("b", "")]),
                "`join_at` is `7`",
            ),
            ("{\"turns\": []}".to_owned(), "no `session_id`"),
            (
                "{\"session_id\": \"a\", \"turns\": []}".to_owned(),
                "no list of `turns`",
            ),
            (
                "{\"session_id\": \"a\", \"turns\": [{}]}".to_owned(),
                "turn 0: the turn has no list of `messages`",
            ),
            (
                format!("{{\"session_id\": \"a\", \"orchestrator\": true, \"turns\": [{{{user}}}]}}"),
                "`orchestrator` is not supported",
            ),
            (
                format!("{{\"session_id\": \"a\", \"turns\": [{{{user}, \"max_tokens\": 99999999999}}]}}"),
                "more than",
            ),
        ] {
            let error = read(&text).unwrap_err();
            assert!(
                error.contains(why) && error.contains("trace.jsonl"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn conversations_that_multiply_are_refused() {
        let spawn = |next: usize| format!(r#", "spawns": ["c{next}", "c{next}", "c{next}"]"#);
        let text: String = (0..12)
            .map(|number| line(&format!("c{number}"), &[("a", &spawn(number + 1)), ("b", "")]))
            .collect();
        let error = read(&(text + &line("c12", &[("a", "")]))).unwrap_err();
        assert!(error.contains("has more than 100000 requests"), "{error}");
    }
}
