//! Answers with a structure: JSON of a schema, or the call of a tool, as tokens.
//!
//! A request demands one by `response_format` (`text.format` of Responses), or by `tools` with a `tool_choice` that requires a
//! call. Where the model may decide, the answer is words.

mod json;
mod schema;

use serde_json::{Map, Value, json as value};

use crate::config::quality::generated::Solution;
use crate::sim::rng::Rng;
use crate::sim::text;

/// The answer to a request that demands a structure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Structure {
    /// Name of the called tool; `None` for a text.
    pub(crate) tool: Option<String>,
    /// The text, or the arguments of the call.
    pub(crate) tokens: Vec<String>,
    /// Whether it is the right answer to an item of a graded task.
    pub(crate) is_solution: bool,
}

/// The fields of a request that demand a structure.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand<'d> {
    pub(crate) response_format: Option<&'d Value>,
    pub(crate) structured_outputs: Option<&'d Value>,
    pub(crate) tools: Option<&'d [Value]>,
    pub(crate) tool_choice: Option<&'d Value>,
}

impl Structure {
    /// Generates what the fields demand, within `limit` tokens if that is possible; `None` if they demand nothing.
    ///
    /// # Errors
    /// The fields demand something that is not simulated.
    pub(crate) fn generate(demand: Demand<'_>, key: u64, limit: usize) -> Result<Option<Self>, String> {
        if let Some(structure) = called_tool(demand, key, limit)? {
            return Ok(Some(structure));
        }
        let schema = demanded_schema(demand)?;
        let tokens = schema
            .map(|schema| tokens_within(&schema, key, limit))
            .transpose()?;
        Ok(tokens.map(|tokens| Self {
            tool: None,
            tokens,
            is_solution: false,
        }))
    }

    /// The right answer to an item of a graded task. `has_tools` is whether the request offers tools; without them, and
    /// with a parser that misses calls, a call is written as text.
    pub(crate) fn of_solution(solution: Solution, has_tools: bool) -> Self {
        let (tool, text) = match solution {
            Solution::Text(text) => (None, text),
            Solution::Call(name, arguments) if has_tools => (Some(name), arguments.to_string()),
            Solution::Call(name, arguments) => {
                (None, value!({"name": name, "arguments": arguments}).to_string())
            }
        };
        Self {
            tool,
            tokens: text::pieces(&text),
            is_solution: true,
        }
    }

    /// Number of tokens of the answer; the name of a tool is one.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len() + usize::from(self.tool.is_some())
    }

    /// The text of the `nth` token; the name of a tool is not part of the arguments.
    pub(crate) fn token(&self, nth: usize) -> &str {
        let skipped = usize::from(self.tool.is_some());
        let place = nth.checked_sub(skipped);
        place
            .and_then(|place| self.tokens.get(place))
            .map_or("", String::as_str)
    }

    /// Makes the answer wrong, in one of several ways: text before the JSON, a missing end, or another tool or another type.
    pub(crate) fn spoil(&mut self, nth: u64) {
        if self.is_solution {
            self.falsify();
            return;
        }
        let is_open = self
            .tokens
            .first()
            .is_some_and(|first| first.starts_with(['{', '[']));
        match nth % 3 {
            0 => self.tokens.insert(0, "sure".to_owned()),
            1 if is_open => {
                self.tokens.pop();
                // An object without members is one token.
                if self.tokens.is_empty() {
                    self.tokens.push("{".to_owned());
                }
            }
            _ => match &mut self.tool {
                Some(name) => name.push_str("_of_another_request"),
                // A value of another type.
                None => {
                    let is_array = self.tokens.first().is_some_and(|first| first.starts_with('['));
                    let other = if is_array { "null" } else { "[[[null]]]" };
                    self.tokens = vec![other.to_owned()];
                }
            },
        }
    }
}

impl Structure {
    /// Changes the last letter or digit.
    fn falsify(&mut self) {
        for token in self.tokens.iter_mut().rev() {
            let Some(place) = token.rfind(|letter: char| letter.is_ascii_alphanumeric()) else {
                continue;
            };
            let other = match token.as_bytes()[place] {
                b'9' => "0".to_owned(),
                digit @ b'0'..=b'8' => char::from(digit + 1).to_string(),
                b'x' => "y".to_owned(),
                _ => "x".to_owned(),
            };
            token.replace_range(place..=place, &other);
            return;
        }
    }
}

/// Generates the call that the fields require.
fn called_tool(demand: Demand<'_>, key: u64, limit: usize) -> Result<Option<Structure>, String> {
    let Some(choice) = demand.tool_choice else {
        return Ok(None);
    };
    let tools = demand.tools.unwrap_or_default();
    let function = |tool: &Value| tool.get("function").unwrap_or(tool).clone();
    let name_of = |function: &Value| function.get("name").and_then(Value::as_str).map(str::to_owned);
    let named = name_of(&function(choice));
    let word = choice.as_str().or_else(|| choice.get("type")?.as_str());
    let tool = match (&named, word) {
        (Some(name), _) => {
            let mut offered = tools.iter().map(function);
            let tool = offered.find(|tool| name_of(tool).as_ref() == Some(name));
            tool.ok_or_else(|| format!("`tool_choice` names `{name}`, which is not among the tools"))?
        }
        (None, Some("required" | "any")) if tools.is_empty() => {
            return Err("`tool_choice` requires a call, but the request has no `tools`".to_owned());
        }
        (None, Some("required" | "any")) => {
            let place = Rng::new(key, 0x7001).below(tools.len() as u64);
            function(&tools[usize::try_from(place).expect("it is an index")])
        }
        _ => return Ok(None),
    };
    let name = name_of(&tool).ok_or("a tool has no name")?;
    let parameters = ["parameters", "input_schema"]
        .iter()
        .find_map(|key| tool.get(*key));
    let no_parameters = value!({"type": "object"});
    let parameters = parameters
        .filter(|schema| !schema.is_null())
        .unwrap_or(&no_parameters);
    let tokens = tokens_within(parameters, key, limit.saturating_sub(1))
        .map_err(|why| format!("the parameters of the tool `{name}` cannot be used: {why}"))?;
    Ok(Some(Structure {
        tool: Some(name),
        tokens,
        is_solution: false,
    }))
}

/// Returns the schema that the fields demand of the text.
fn demanded_schema(demand: Demand<'_>) -> Result<Option<Value>, String> {
    if let Some(outputs) = demand.structured_outputs.filter(|outputs| !outputs.is_null()) {
        return match outputs.get("json") {
            Some(Value::Object(schema)) => Ok(Some(Value::Object(schema.clone()))),
            _ => Err(
                "in `structured_outputs` the simulated engine supports only `json` with a schema that is an object"
                    .to_owned(),
            ),
        };
    }
    let Some(format) = demand.response_format.filter(|format| !format.is_null()) else {
        return Ok(None);
    };
    match format.get("type").and_then(Value::as_str) {
        None | Some("text") => Ok(None),
        Some("json_object") => {
            let properties = Map::from_iter([("answer".to_owned(), value!({"type": "string"}))]);
            Ok(Some(
                value!({"type": "object", "properties": properties, "required": ["answer"]}),
            ))
        }
        Some("json_schema") => {
            let holder = format.get("json_schema").unwrap_or(format);
            let schema = holder.get("schema").cloned();
            schema
                .map(Some)
                .ok_or_else(|| "`response_format` has no `schema`".to_owned())
        }
        Some(other) => Err(format!(
            "the simulated engine does not support the format `{other}`"
        )),
    }
}

/// Generates JSON of a schema: of drawn length if that fits, or else as short as possible.
fn tokens_within(schema: &Value, key: u64, limit: usize) -> Result<Vec<String>, String> {
    schema::check(schema)?;
    let too_large = || {
        format!(
            "the schema demands an answer of more than {} characters and items, which the simulated engine does not generate",
            json::MAX_SIZE
        )
    };
    if schema::smallest_size(schema) > json::MAX_SIZE {
        return Err(too_large());
    }
    let drawn = json::generate(schema, key, json::Size::Drawn);
    let fitting = drawn.filter(|tokens| tokens.len() <= limit);
    fitting
        .or_else(|| json::generate(schema, key, json::Size::Smallest))
        .ok_or_else(too_large)
}

#[cfg(test)]
mod tests;
