//! Reads spans as OTLP/JSON, as the console exporters of the SDKs, and as flat objects have them.

use super::*;

pub(super) struct Span<'v> {
    pub(super) place: &'v Place,
    pub(super) trace: String,
    pub(super) id: String,
    pub(super) parent: Option<String>,
    pub(super) interval: Interval,
    pub(super) attributes: BTreeMap<String, Value>,
}

impl Span<'_> {
    /// Whether it is a call of a model.
    pub(super) fn is_call(&self) -> bool {
        match self
            .attributes
            .get("gen_ai.operation.name")
            .and_then(Value::as_str)
        {
            Some(operation) => CALLS.contains(&operation),
            None => [
                "gen_ai.usage.input_tokens",
                "gen_ai.usage.prompt_tokens",
                "gen_ai.input.messages",
                "gen_ai.prompt.0.content",
            ]
            .iter()
            .any(|key| self.attributes.contains_key(*key)),
        }
    }
}

/// Returns the spans of a value: a span, an object with spans, or an export of resources.
pub(super) fn spans_of<'v>(value: &'v Value, place: &'v Place) -> Result<Vec<Span<'v>>, DatasetError> {
    let list = |value: &'v Value, key: &str| value.get(key).and_then(Value::as_array).map(Vec::as_slice);
    let mut all: Vec<&Value> = Vec::new();
    if let Some(resources) = list(value, "resourceSpans") {
        for resource in resources {
            for scope in list(resource, "scopeSpans").unwrap_or_default() {
                all.extend(list(scope, "spans").unwrap_or_default());
            }
        }
    } else if let Some(spans) = list(value, "spans") {
        all.extend(spans);
    } else {
        all.push(value);
    }
    let trace = text(value, &["trace_id", "traceId"]);
    all.into_iter()
        .enumerate()
        .map(|(number, span)| {
            read(span, trace, place).map_err(|reason| place.malformed(format!("span {number}: {reason}")))
        })
        .collect()
}

fn text<'v>(value: &'v Value, keys: &[&str]) -> Option<&'v str> {
    let found = keys.iter().find_map(|key| value.get(key)?.as_str());
    found.filter(|text| !text.is_empty())
}

fn read<'v>(value: &Value, trace: Option<&str>, place: &'v Place) -> Result<Span<'v>, String> {
    let context = value.get("context").unwrap_or(value);
    let id = text(context, &["spanId", "span_id"]).ok_or("it has no `spanId`")?;
    let trace = text(context, &["traceId", "trace_id"])
        .or(trace)
        .ok_or("it has no `traceId`")?;
    let moment = |keys: &[&str]| {
        let found = keys
            .iter()
            .find_map(|key| Some((key, value.get(key).filter(|value| !value.is_null())?)));
        let (key, found) = found.ok_or_else(|| format!("it has no `{}`", keys[0]))?;
        time(found).ok_or_else(|| {
            format!(
                "`{key}` is `{found}`; write nanoseconds since 1970, or a time such as `2026-01-31T12:00:00Z`"
            )
        })
    };
    let start = moment(&[
        "startTimeUnixNano",
        "start_time_unix_nano",
        "start_time",
        "startTime",
    ])?;
    let end = moment(&["endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime"])?;
    if end < start {
        return Err(format!(
            "the span ends {:?} before it starts; correct its times",
            start - end
        ));
    }
    Ok(Span {
        place,
        trace: trace.to_owned(),
        id: id.to_owned(),
        parent: text(value, &["parentSpanId", "parent_span_id", "parent_id"]).map(str::to_owned),
        interval: Interval { start, end },
        attributes: attributes(value.get("attributes")),
    })
}

/// Reads nanoseconds since 1970, or a time in RFC 3339; without an offset it is UTC.
fn time(value: &Value) -> Option<Duration> {
    match value {
        Value::Number(number) => number.as_u64().map(Duration::from_nanos),
        Value::String(text) => {
            if let Ok(nanos) = text.parse() {
                return Some(Duration::from_nanos(nanos));
            }
            let stamp: jiff::Timestamp = text.parse().or_else(|_| format!("{text}Z").parse()).ok()?;
            Duration::try_from(stamp.as_duration()).ok()
        }
        _ => None,
    }
}

/// Reads attributes as an object, or as a list of keys with typed values.
fn attributes(value: Option<&Value>) -> BTreeMap<String, Value> {
    match value {
        Some(Value::Object(map)) => map
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
        Some(Value::Array(list)) => list
            .iter()
            .filter_map(|entry| Some((entry.get("key")?.as_str()?.to_owned(), plain(entry.get("value")?))))
            .collect(),
        _ => BTreeMap::new(),
    }
}

/// Returns the value of a typed one. OTLP writes whole numbers as texts.
fn plain(value: &Value) -> Value {
    let Some((kind, inner)) = value.as_object().and_then(|map| map.iter().next()) else {
        return value.clone();
    };
    match kind.as_str() {
        "intValue" => {
            let number = inner.as_str().and_then(|text| text.parse::<i64>().ok());
            number.map_or_else(|| inner.clone(), Value::from)
        }
        "arrayValue" => {
            let values = inner.get("values").and_then(Value::as_array);
            values.into_iter().flatten().map(plain).collect()
        }
        "kvlistValue" => attributes(inner.get("values")).into_iter().collect(),
        _ => inner.clone(),
    }
}

/// Returns the messages of a call, in the form of chat requests; `None` if they were not recorded.
pub(super) fn messages(attributes: &BTreeMap<String, Value>) -> Result<Option<Vec<Value>>, String> {
    let parsed = |key: &str| match attributes.get(key) {
        Some(Value::String(json)) => serde_json::from_str(json)
            .map(Some)
            .map_err(|error| format!("`{key}` is not valid JSON: {error}")),
        other => Ok(other.cloned()),
    };
    let mut messages = Vec::new();
    if let Some(system) = parsed("gen_ai.system_instructions")? {
        messages.push(json!({"role": "system", "content": content(&system)}));
    }
    match parsed("gen_ai.input.messages")? {
        Some(Value::Array(list)) if !list.is_empty() => messages.extend(list.iter().map(message)),
        Some(Value::Array(_)) | None => {}
        Some(_) => return Err("`gen_ai.input.messages` is not a list".to_owned()),
    }
    // Spans of older conventions have an attribute for each message.
    for number in 0.. {
        let part = |name: &str| attributes.get(&format!("gen_ai.prompt.{number}.{name}"));
        let Some(text) = part("content") else { break };
        messages.push(message(&json!({"role": part("role"), "content": text})));
    }
    Ok((!messages.is_empty()).then_some(messages))
}

/// A message with role and text. Servers take results of tools only with the calls that they answer, so these become
/// messages of the user.
fn message(value: &Value) -> Value {
    let role = value.get("role").and_then(Value::as_str);
    let role = role
        .filter(|role| ["system", "user", "assistant"].contains(role))
        .unwrap_or("user");
    let found = value.get("content").or_else(|| value.get("parts"));
    json!({"role": role, "content": content(found.unwrap_or(&Value::Null))})
}

/// The text of a content: of each part its text, or its JSON.
fn content(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<String> = parts.iter().map(part).collect();
            texts.join("\n")
        }
        other => part(other),
    }
}

fn part(value: &Value) -> String {
    let text = ["content", "text"]
        .iter()
        .find_map(|key| value.get(key)?.as_str());
    text.or(value.as_str())
        .map_or_else(|| value.to_string(), str::to_owned)
}
