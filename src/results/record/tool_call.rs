//! The calls of tools that an answer consists of.

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
}

/// The part of a call that one event carries; parts that it does not have are empty.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ToolCallPart<'a> {
    pub(crate) index: Option<u32>,
    pub(crate) id: &'a str,
    pub(crate) name: &'a str,
    pub(crate) arguments: &'a str,
}

impl ToolCallPart<'_> {
    pub(crate) const fn bytes(&self) -> usize {
        self.name.len() + self.arguments.len()
    }
}

impl ToolCall {
    /// Whether a part belongs to this call, which is the last one with its index. A name begins another call, unless a server
    /// repeats id and name in every part.
    fn continues_with(&self, part: &ToolCallPart<'_>) -> bool {
        part.name.is_empty()
            || self.name.is_empty()
            || (!part.id.is_empty() && self.id == part.id && self.name == part.name)
    }
}

/// Adds the part of a call. A part without an index belongs to the last call.
pub(crate) fn push_tool_call(calls: &mut Vec<ToolCall>, part: &ToolCallPart<'_>) {
    let mut latest = calls.iter_mut().rev();
    let known = latest.find(|call| part.index.is_none() || call.index == part.index);
    let Some(call) = known.filter(|call| call.continues_with(part)) else {
        calls.push(ToolCall {
            index: part.index,
            id: part.id.to_owned(),
            name: part.name.to_owned(),
            arguments: part.arguments.to_owned(),
        });
        return;
    };
    if call.name.is_empty() {
        part.name.clone_into(&mut call.name);
    }
    if call.id.is_empty() {
        part.id.clone_into(&mut call.id);
    }
    call.arguments.push_str(part.arguments);
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
        // The same tool twice, with ids of their own and without any.
        let twice = [pair("a", "1"), pair("a", "2")];
        assert_eq!(
            joined(&[(Some(0), "x", "a", "1"), (Some(0), "y", "a", "2")]),
            twice
        );
        assert_eq!(joined(&[(None, "", "a", "1"), (None, "", "a", "2")]), twice);
        // Arguments before their name.
        let late = [(Some(0), "", "", "{"), (Some(0), "x", "a", "}")];
        assert_eq!(joined(&late), [pair("a", "{}")]);
    }
}
