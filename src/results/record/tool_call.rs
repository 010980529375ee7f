//! The calls of tools that an answer consists of.

use serde::de::IgnoredAny;

/// A call of a tool, put together from the events of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// Position among the calls of the answer, as the server numbers them.
    index: Option<u32>,
    id: String,
    /// Name of the tool.
    pub(crate) name: String,
    /// The arguments, which should be a JSON object.
    pub(crate) arguments: String,
    /// Whether the arguments came at once, so that parts that follow replace them.
    is_whole: bool,
    /// Whether an event ended it, so that no parts count that follow.
    has_ended: bool,
    /// Whether it calls something else than an offered function, such as a tool that the server runs itself.
    pub(crate) is_foreign: bool,
    /// Whether the list of all calls at the end of the answer does not have it.
    pub(crate) is_superseded: bool,
}

/// The part of a call that one event carries; parts that it does not have are empty.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ToolCallPart<'a> {
    pub(crate) index: Option<u32>,
    pub(crate) id: &'a str,
    pub(crate) name: &'a str,
    pub(crate) arguments: &'a str,
    /// Whether these are all arguments of the call. Where a call begins, they count only if no parts of them arrive.
    pub(crate) is_whole: bool,
    pub(crate) is_foreign: bool,
}

impl ToolCallPart<'_> {
    pub(crate) const fn bytes(&self) -> usize {
        self.name.len() + self.arguments.len()
    }
}

impl From<&ToolCallPart<'_>> for ToolCall {
    fn from(part: &ToolCallPart<'_>) -> Self {
        Self {
            index: part.index,
            id: part.id.to_owned(),
            name: part.name.to_owned(),
            arguments: part.arguments.to_owned(),
            is_whole: part.is_whole,
            has_ended: false,
            is_foreign: part.is_foreign,
            is_superseded: false,
        }
    }
}

impl ToolCall {
    /// Whether a part belongs to this call, which is the last one with its index. A name begins another call, unless a server
    /// repeats id and name, or index and name, in every part.
    fn continues_with(&self, part: &ToolCallPart<'_>) -> bool {
        if part.name.is_empty() || self.name.is_empty() {
            return true;
        }
        let is_repeated = match part.id.is_empty() {
            true => part.index.is_some() && (part.arguments.is_empty() || !self.has_whole_arguments()),
            false => self.id == part.id,
        };
        is_repeated && self.name == part.name
    }

    /// Whether nothing can follow the arguments so far.
    fn has_whole_arguments(&self) -> bool {
        self.arguments.trim_end().ends_with('}')
            && serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
    }

    fn has_id(&self, part: &ToolCallPart<'_>) -> bool {
        !part.id.is_empty() && self.id == part.id
    }

    fn has_other_id(&self, part: &ToolCallPart<'_>) -> bool {
        !part.id.is_empty() && !self.id.is_empty() && self.id != part.id
    }

    /// Whether this may be the call of a part that names it, if it has a name at all.
    fn may_be(&self, part: &ToolCallPart<'_>) -> bool {
        !self.is_foreign && (part.name.is_empty() || self.name.is_empty() || self.name == part.name)
    }

    fn bytes(&self) -> usize {
        self.name.len() + self.arguments.len()
    }

    /// Adds a part.
    fn add(&mut self, part: &ToolCallPart<'_>) {
        if self.name.is_empty() {
            part.name.clone_into(&mut self.name);
        }
        if self.id.is_empty() {
            part.id.clone_into(&mut self.id);
        }
        let has_parts = !self.is_whole && !self.arguments.is_empty();
        if !(part.arguments.is_empty() || part.is_whole && has_parts || self.has_ended) {
            if self.is_whole || part.is_whole {
                self.arguments.clear();
            }
            self.is_whole = part.is_whole;
            self.arguments.push_str(part.arguments);
        }
    }

    /// Ends the call with what it has as a whole, which clients use instead of the parts. Returns by how many bytes it grows.
    fn end(&mut self, whole: &ToolCallPart<'_>) -> usize {
        let before = self.bytes();
        for (text, whole) in [
            (&mut self.name, whole.name),
            (&mut self.arguments, whole.arguments),
        ] {
            if !whole.is_empty() {
                whole.clone_into(text);
            }
        }
        if self.id.is_empty() {
            whole.id.clone_into(&mut self.id);
        }
        self.has_ended |= !whole.arguments.is_empty();
        self.is_superseded = false;
        self.bytes().saturating_sub(before)
    }
}

/// Adds the part of a call. A part without an index belongs to the call with its id, or else to the last one.
pub(crate) fn push_tool_call(calls: &mut Vec<ToolCall>, part: &ToolCallPart<'_>) {
    let known = match part.index {
        Some(_) => calls.iter().rposition(|call| call.index == part.index),
        None => calls
            .iter()
            .rposition(|call| call.has_id(part))
            .or_else(|| calls.iter().rposition(|call| call.is_foreign || !part.is_foreign)),
    };
    match known.map(|at| &mut calls[at]) {
        Some(call) if call.continues_with(part) => call.add(part),
        _ => calls.push(part.into()),
    }
}

/// Ends the call that began before with what it has as a whole, or adds another call. Of several ends the last one counts.
/// Returns by how many bytes the calls grow.
pub(crate) fn complete_tool_call(calls: &mut Vec<ToolCall>, whole: &ToolCallPart<'_>) -> usize {
    let is_open = |call: &ToolCall| match (call.index, whole.index) {
        (Some(index), Some(of_whole)) => index == of_whole && !call.is_foreign,
        _ => call.may_be(whole),
    };
    let at = position_of(calls, whole).or_else(|| {
        calls
            .iter()
            .rposition(|call| is_open(call) && !call.has_other_id(whole))
    });
    complete(calls, at, whole)
}

/// Ends the calls that began before with the list of all calls of an answer, which clients use instead of any events before:
/// calls that it does not have are superseded. Servers give some calls other ids and indices at the end; calls of the same tool
/// are then in the same order. Returns by how many bytes the calls grow.
pub(crate) fn complete_tool_calls(calls: &mut Vec<ToolCall>, whole: &[ToolCallPart<'_>]) -> usize {
    let mut open: Vec<usize> = (0..calls.len()).collect();
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    for part in whole {
        let at = position_of(calls, part).filter(|at| !calls[*at].has_other_id(part));
        match at.and_then(|at| open.iter().position(|other| *other == at)) {
            Some(nth) => found.push((Some(open.remove(nth)), part)),
            None => unknown.push(part),
        }
    }
    for part in unknown {
        let nth = open.iter().position(|at| calls[*at].may_be(part));
        found.push((nth.map(|nth| open.remove(nth)), part));
    }
    for at in open {
        calls[at].is_superseded = true;
    }
    let mut grown = 0;
    for (at, part) in found {
        // What an event ended before has arrived.
        let had_ended = at.is_some_and(|at| calls[at].has_ended);
        let more = complete(calls, at, part);
        grown += if had_ended { 0 } else { more };
    }
    grown
}

/// Returns the place of the call with the id and the index of a part, or else with one of them.
fn position_of(calls: &[ToolCall], part: &ToolCallPart<'_>) -> Option<usize> {
    let has_index = |call: &ToolCall| part.index.is_some() && call.index == part.index;
    let last = |is_it: &dyn Fn(&ToolCall) -> bool| calls.iter().rposition(is_it);
    last(&|call| call.has_id(part) && has_index(call))
        .or_else(|| last(&|call| call.has_id(part)))
        .or_else(|| last(&|call| has_index(call) && call.may_be(part)))
}

fn complete(calls: &mut Vec<ToolCall>, at: Option<usize>, part: &ToolCallPart<'_>) -> usize {
    match at.map(|at| &mut calls[at]) {
        Some(call) => call.end(part),
        None => {
            let mut call = ToolCall::from(part);
            call.has_ended = !part.arguments.is_empty();
            calls.extend((part.bytes() > 0).then_some(call));
            part.bytes()
        }
    }
}

/// The text of all calls: name and arguments, call by call.
pub(crate) fn tool_calls_text(calls: &[ToolCall]) -> String {
    let parts = calls
        .iter()
        .flat_map(|call| [call.name.as_str(), &call.arguments]);
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calls of these parts: index, id, name and arguments.
    fn joined(parts: &[(Option<u32>, &str, &str, &str)]) -> Vec<(String, String)> {
        let mut calls = Vec::new();
        for &(index, id, name, arguments) in parts {
            push_tool_call(
                &mut calls,
                &ToolCallPart {
                    index,
                    id,
                    name,
                    arguments,
                    ..ToolCallPart::default()
                },
            );
        }
        calls
            .into_iter()
            .map(|call| (call.name, call.arguments))
            .collect()
    }

    #[test]
    fn parts_are_joined_by_index_or_else_by_order() {
        let pair = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
        let both = [pair("a", "{}"), pair("b", "[]")];
        for parts in [
            // Two calls at once.
            &[
                (Some(0), "x", "a", ""),
                (Some(1), "y", "b", ""),
                (Some(0), "", "", "{}"),
                (Some(1), "", "", "[]"),
            ][..],
            &[
                (Some(0), "", "a", "{"),
                (Some(0), "", "", "}"),
                (Some(1), "", "b", "[]"),
            ],
            // Without numbers, or with the same one for all calls.
            &[(None, "", "a", "{"), (None, "", "", "}"), (None, "", "b", "[]")],
            &[
                (Some(0), "x", "a", "{"),
                (Some(0), "", "", "}"),
                (Some(0), "y", "b", "[]"),
            ],
            // Id and name in every part.
            &[
                (Some(0), "x", "a", "{"),
                (Some(0), "x", "a", "}"),
                (Some(1), "y", "b", "["),
                (Some(1), "y", "b", "]"),
            ],
        ] {
            assert_eq!(joined(parts), both, "{parts:?}");
        }
        // The name in every part, without an id.
        let repeated = [
            (Some(0), "x", "a", "{"),
            (Some(0), "", "a", "\"b\": {}"),
            (Some(0), "", "a", "}"),
            (Some(0), "", "a", ""),
        ];
        assert_eq!(joined(&repeated), [pair("a", "{\"b\": {}}")]);
        // The same tool twice, with ids of their own and without any.
        let twice = [pair("a", "1"), pair("a", "2")];
        assert_eq!(
            joined(&[(Some(0), "x", "a", "1"), (Some(0), "y", "a", "2")]),
            twice
        );
        assert_eq!(joined(&[(None, "", "a", "1"), (None, "", "a", "2")]), twice);
        let whole = [(Some(0), "", "a", "{}"), (Some(0), "", "a", "{}")];
        assert_eq!(joined(&whole), [pair("a", "{}"), pair("a", "{}")]);
        // Arguments before their name.
        let late = [(Some(0), "", "", "{"), (Some(0), "x", "a", "}")];
        assert_eq!(joined(&late), [pair("a", "{}")]);
    }

    #[test]
    fn a_part_without_an_index_belongs_to_the_call_with_its_id() {
        let parts = [
            (None, "x", "a", ""),
            (None, "y", "b", ""),
            (None, "x", "", "{}"),
            (None, "", "", "[]"),
        ];
        let pair = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
        assert_eq!(joined(&parts), [pair("a", "{}"), pair("b", "[]")]);
    }

    #[test]
    fn the_end_of_a_call_counts_whatever_its_parts_were() {
        let begun = ToolCallPart {
            index: Some(0),
            id: "x",
            name: "a",
            ..ToolCallPart::default()
        };
        let part = |arguments| ToolCallPart {
            index: Some(0),
            arguments,
            ..ToolCallPart::default()
        };
        let whole = |arguments| ToolCallPart {
            is_whole: true,
            arguments,
            ..begun
        };
        let mut calls = Vec::new();
        push_tool_call(&mut calls, &begun);
        assert_eq!(complete_tool_call(&mut calls, &whole("{1}")), 3);
        assert_eq!(complete_tool_call(&mut calls, &whole("{1}")), 0);
        push_tool_call(&mut calls, &part("{"));
        assert_eq!(tool_calls_text(&calls), "a{1}");
        // The last of several ends counts, and the list of all calls, which adds nothing that arrived, more than any.
        assert_eq!(complete_tool_call(&mut calls, &whole("{22}")), 1);
        assert_eq!(complete_tool_calls(&mut calls, &[whole("{333}")]), 0);
        assert_eq!(tool_calls_text(&calls), "a{333}");
        // Arguments at the beginning count only without parts.
        let mut calls = Vec::new();
        push_tool_call(&mut calls, &whole("{1}"));
        push_tool_call(&mut calls, &part("{"));
        assert_eq!(tool_calls_text(&calls), "a{");
        assert_eq!(complete_tool_calls(&mut calls, &[whole("{2}")]), 2);
        assert_eq!(tool_calls_text(&calls), "a{2}");
    }

    #[test]
    fn the_end_of_a_call_may_name_another_tool() {
        let call = |id, name, arguments| ToolCallPart {
            index: Some(0),
            id,
            name,
            arguments,
            is_whole: true,
            ..ToolCallPart::default()
        };
        for id in ["x", ""] {
            let mut calls = Vec::new();
            push_tool_call(&mut calls, &call("x", "a", ""));
            complete_tool_call(&mut calls, &call(id, "b", "{}"));
            assert_eq!(
                (calls.len(), tool_calls_text(&calls).as_str()),
                (1, "b{}"),
                "{id:?}"
            );
        }
        let mut calls = Vec::new();
        push_tool_call(&mut calls, &call("x", "a", "{}"));
        complete_tool_call(&mut calls, &call("y", "b", "{}"));
        assert_eq!(tool_calls_text(&calls), "a{}b{}");
    }

    #[test]
    fn all_calls_of_an_answer_are_found_by_id_place_or_order() {
        let call = |index, id, name, arguments| ToolCallPart {
            index: Some(index),
            id,
            name,
            arguments,
            is_whole: true,
            ..ToolCallPart::default()
        };
        let mut calls = Vec::new();
        for (index, id) in [(1, "x"), (2, "y")] {
            push_tool_call(&mut calls, &call(index, id, "a", ""));
        }
        let known = [call(0, "x", "a", "1"), call(1, "y", "a", "2")];
        assert_eq!(complete_tool_calls(&mut calls, &known), 2);
        // Other ids and places, and one call that did not begin.
        let renamed = [call(0, "v", "a", "1"), call(1, "w", "a", "2")];
        assert_eq!(complete_tool_calls(&mut calls, &renamed), 0);
        let more = [known[0], known[1], call(2, "z", "b", "3")];
        assert_eq!(complete_tool_calls(&mut calls, &more), 2);
        assert_eq!(tool_calls_text(&calls), "a1a2b3");
        // Another tool in the place of the first call, and nothing in that of the others.
        assert_eq!(complete_tool_calls(&mut calls, &[call(0, "x", "c", "1")]), 0);
        let kept: Vec<bool> = calls.iter().map(|call| !call.is_superseded).collect();
        assert_eq!((calls[0].name.as_str(), kept), ("c", vec![true, false, false]));
    }
}
