//! What a request demands of its answer, read from its fields.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::schema::Schema;

/// What an answer must be.
#[derive(Debug)]
pub(super) struct Constraint {
    pub(super) text: Option<TextRule>,
    pub(super) tools: Option<ToolRule>,
    pub(super) expected: Option<Value>,
}

/// What the text of an answer must be.
#[derive(Clone, Debug)]
pub(super) enum TextRule {
    /// A JSON value that fulfils a schema, and nothing else.
    Json(Schema),
    /// A text that fulfils a schema: one of several, or the whole match of a regular expression.
    Text(Schema),
}

/// What the calls of an answer must be.
#[derive(Debug)]
pub(super) struct ToolRule {
    /// The tools that may be called, by name, with the schema of their parameters.
    pub(super) tools: HashMap<String, Option<Schema>>,
    pub(super) choice: ToolChoice,
    /// Whether one answer may have several calls.
    pub(super) may_be_several: bool,
}

#[derive(Debug, PartialEq)]
pub(super) enum ToolChoice {
    /// The model decides whether it calls a tool.
    Auto,
    /// No call.
    Forbidden,
    /// At least one call of any tool.
    Required,
    /// At least one call, all of this tool.
    Named(String),
}

/// The fields of a request: its own, and those of the scenario's body where it has none.
#[derive(Clone, Copy)]
pub(super) struct RequestFields<'f> {
    row: &'f Map<String, Value>,
    body: &'f Map<String, Value>,
}

impl<'f> RequestFields<'f> {
    pub(super) const fn new(row: &'f Map<String, Value>, body: &'f Map<String, Value>) -> Self {
        Self { row, body }
    }

    fn get(self, key: &str) -> Option<&'f Value> {
        let value = self.row.get(key).or_else(|| self.body.get(key));
        value.filter(|value| !value.is_null())
    }

    fn nested(self, parent: &str, key: &str) -> Option<&'f Value> {
        self.get(parent)?.get(key).filter(|value| !value.is_null())
    }

    /// Returns the value of the first of these fields that the request has, each a field or one within a field.
    fn first(self, places: &[(&str, &str)]) -> Option<&'f Value> {
        places.iter().find_map(|(parent, key)| match *parent {
            "" => self.get(key),
            parent => self.nested(parent, key),
        })
    }
}

/// Compiles constraints, each schema once.
#[derive(Default)]
pub(super) struct Compiler {
    /// Compiled schemas by their text.
    schemas: HashMap<String, Schema>,
}

impl Compiler {
    /// Returns what a request demands of its answer; `None` if that is nothing that can be checked.
    ///
    /// # Errors
    /// A schema is invalid.
    pub(super) fn constraint(
        &mut self,
        fields: RequestFields<'_>,
        expected: Option<&Value>,
    ) -> Result<Option<Arc<Constraint>>, String> {
        let constraint = Constraint {
            text: self.text_rule(fields)?,
            tools: self.tool_rule(fields)?,
            expected: expected.cloned(),
        };
        let is_any = constraint.text.is_some() || constraint.tools.is_some() || expected.is_some();
        Ok(is_any.then(|| Arc::new(constraint)))
    }

    /// Reads `response_format`, its forms in other protocols, and the fields of servers for guided generation.
    fn text_rule(&mut self, fields: RequestFields<'_>) -> Result<Option<TextRule>, String> {
        const FORMATS: [(&str, &str); 3] = [
            ("", "response_format"),
            ("text", "format"),
            ("output_config", "format"),
        ];
        const SCHEMAS: [(&str, &str); 4] = [
            ("", "guided_json"),
            ("structured_outputs", "json"),
            ("", "json_schema"),
            ("sampling_params", "json_schema"),
        ];
        const PATTERNS: [(&str, &str); 5] = [
            ("response_format", "regex_schema"),
            ("", "guided_regex"),
            ("structured_outputs", "regex"),
            ("", "regex"),
            ("sampling_params", "regex"),
        ];
        const CHOICES: [(&str, &str); 2] = [("", "guided_choice"), ("structured_outputs", "choice")];
        let format = fields.first(&FORMATS);
        let kind = format.and_then(|format| format.get("type")?.as_str());
        let of_format = format.filter(|_| kind == Some("json_schema")).map(|format| {
            let holder = format.get("json_schema").unwrap_or(format);
            // Without a schema, any JSON will do.
            holder.get("schema").cloned().unwrap_or(Value::Bool(true))
        });
        let is_object = kind == Some("json_object")
            || fields.nested("structured_outputs", "json_object") == Some(&Value::Bool(true));
        let of_field = || fields.first(&SCHEMAS).map(parsed_schema);
        if let Some(schema) = of_format.or_else(of_field) {
            return Ok(Some(TextRule::Json(self.schema(&schema)?)));
        }
        if is_object {
            return Ok(Some(TextRule::Json(self.schema(&json!({"type": "object"}))?)));
        }
        let pattern = fields.first(&PATTERNS).and_then(Value::as_str);
        let choices = fields.first(&CHOICES).filter(|choices| choices.is_array());
        let schema = match (pattern, choices) {
            (Some(pattern), _) => json!({"pattern": format!("^(?:{pattern})$")}),
            (None, Some(choices)) => json!({"enum": choices}),
            (None, None) => return Ok(None),
        };
        Ok(Some(TextRule::Text(self.schema(&schema)?)))
    }

    fn tool_rule(&mut self, fields: RequestFields<'_>) -> Result<Option<ToolRule>, String> {
        let tools = fields.get("tools").and_then(Value::as_array);
        let Some(offered) = tools.filter(|tools| !tools.is_empty()) else {
            return Ok(None);
        };
        let mut tools = HashMap::with_capacity(offered.len());
        for tool in offered {
            let function = tool.get("function").unwrap_or(tool);
            // Tools that a server runs itself have no name.
            let Some(name) = function.get("name").and_then(Value::as_str) else {
                continue;
            };
            let parameters = ["parameters", "input_schema"]
                .iter()
                .find_map(|key| function.get(*key).filter(|schema| !schema.is_null()));
            let schema = parameters.map(|schema| self.schema(schema)).transpose();
            let schema = schema.map_err(|why| format!("invalid parameters of the tool `{name}`: {why}"))?;
            tools.insert(name.to_owned(), schema);
        }
        let choice = fields.get("tool_choice");
        let allowed = choice.and_then(allowed_tools);
        if let Some(allowed) = allowed.and_then(|allowed| allowed.get("tools")?.as_array()) {
            let names: Vec<&str> = allowed.iter().filter_map(tool_name).collect();
            tools.retain(|name, _| names.contains(&name.as_str()));
        }
        let parallel = [
            fields.get("parallel_tool_calls").and_then(Value::as_bool),
            choice
                .and_then(|choice| choice.get("disable_parallel_tool_use")?.as_bool())
                .map(|is_disabled| !is_disabled),
        ];
        Ok(Some(ToolRule {
            tools,
            choice: allowed.or(choice).map_or(ToolChoice::Auto, tool_choice),
            may_be_several: parallel.into_iter().flatten().all(|may_be| may_be),
        }))
    }

    fn schema(&mut self, schema: &Value) -> Result<Schema, String> {
        let key = schema.to_string();
        if let Some(known) = self.schemas.get(&key) {
            return Ok(known.clone());
        }
        let compiled = Schema::compile(schema)?;
        self.schemas.insert(key, compiled.clone());
        Ok(compiled)
    }
}

/// Returns a schema that may be written as a text.
fn parsed_schema(schema: &Value) -> Value {
    let parsed = schema.as_str().and_then(|text| serde_json::from_str(text).ok());
    parsed.unwrap_or_else(|| schema.clone())
}

/// Returns the name of a tool, which chat has in an object of its own.
fn tool_name(tool: &Value) -> Option<&str> {
    tool.get("function").unwrap_or(tool).get("name")?.as_str()
}

/// Returns the object with the allowed tools and their mode: in chat a field of `tool_choice`, in Responses `tool_choice` itself.
fn allowed_tools(choice: &Value) -> Option<&Value> {
    let is_allowed_tools = choice.get("type").and_then(Value::as_str) == Some("allowed_tools");
    is_allowed_tools.then(|| choice.get("allowed_tools").unwrap_or(choice))
}

/// Reads `tool_choice`: a word, or an object that names a tool or has the word as its type.
fn tool_choice(choice: &Value) -> ToolChoice {
    if let Some(name) = tool_name(choice) {
        return ToolChoice::Named(name.to_owned());
    }
    let word = ["mode", "type"].iter().find_map(|key| choice.get(*key)?.as_str());
    match choice.as_str().or(word) {
        Some("none") => ToolChoice::Forbidden,
        Some("required" | "any") => ToolChoice::Required,
        _ => ToolChoice::Auto,
    }
}
