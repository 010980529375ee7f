//! Chat messages and fields of a chat request in the form of Anthropic Messages.

use serde_json::{Map, Value, json};

/// Returns the system prompt and the messages. Messages of the system have no place among the others, so they
/// come first, in their order; tool results become blocks of the user.
pub(super) fn from_chat(messages: &[Value]) -> (Option<Value>, Vec<Value>) {
    let mut system = Vec::new();
    let mut converted: Vec<Value> = Vec::new();
    for message in messages {
        let content = message.get("content").unwrap_or(&Value::Null);
        match message.get("role").and_then(Value::as_str).unwrap_or("user") {
            "system" | "developer" => system.push(content.clone()),
            "tool" => {
                let id = message.get("tool_call_id").unwrap_or(&Value::Null);
                let result =
                    json!({"type": "tool_result", "tool_use_id": id, "content": converted_content(content)});
                match last_results(&mut converted) {
                    Some(results) => results.push(result),
                    None => converted.push(json!({"role": "user", "content": [result]})),
                }
            }
            role => {
                let calls = message.get("tool_calls").and_then(Value::as_array);
                let content = match calls.filter(|calls| !calls.is_empty()) {
                    None => converted_content(content),
                    Some(calls) => {
                        let mut blocks = block_list(content);
                        blocks.extend(calls.iter().map(tool_use));
                        Value::from(blocks)
                    }
                };
                converted.push(json!({"role": role, "content": content}));
            }
        }
    }
    let system = match system.as_slice() {
        [] => None,
        [one] => Some(converted_content(one)),
        several => Some(several.iter().flat_map(block_list).collect()),
    };
    (system, converted)
}

/// Returns the blocks of the last message, if these are the results of tools.
fn last_results(messages: &mut [Value]) -> Option<&mut Vec<Value>> {
    let blocks = messages.last_mut()?.get_mut("content")?.as_array_mut()?;
    blocks
        .iter()
        .all(|block| block.get("type") == Some(&json!("tool_result")))
        .then_some(blocks)
}

/// Returns a text as it is, and parts as blocks.
fn converted_content(content: &Value) -> Value {
    match content {
        Value::Array(_) => Value::from(block_list(content)),
        Value::Null => Value::from(""),
        other => other.clone(),
    }
}

/// Returns the blocks of a message's content. An empty text has none.
pub(super) fn block_list(content: &Value) -> Vec<Value> {
    match content {
        Value::Array(parts) => parts.iter().map(block).collect(),
        Value::String(text) if !text.is_empty() => vec![json!({"type": "text", "text": text})],
        _ => Vec::new(),
    }
}

fn block(part: &Value) -> Value {
    let url = part.pointer("/image_url/url").and_then(Value::as_str);
    url.map_or_else(|| part.clone(), image)
}

/// Returns the block of an image: its data, or its address.
pub(super) fn image(url: &str) -> Value {
    let data = url
        .strip_prefix("data:")
        .and_then(|data| data.split_once(";base64,"));
    let source = match data {
        Some((media_type, data)) => json!({"type": "base64", "media_type": media_type, "data": data}),
        None => json!({"type": "url", "url": url}),
    };
    json!({"type": "image", "source": source})
}

fn tool_use(call: &Value) -> Value {
    let field = |name: &str| call.pointer(&format!("/function/{name}"));
    let arguments = field("arguments").and_then(Value::as_str).unwrap_or_default();
    let input = match serde_json::from_str(arguments) {
        Ok(Value::Object(input)) => input,
        // The protocol knows only objects; a text that is none keeps its tokens.
        _ => Map::from_iter([("arguments".to_owned(), json!(arguments))]),
    };
    json!({"type": "tool_use", "id": call.get("id"), "name": field("name"), "input": input})
}

/// Returns a field of a chat request as this protocol writes it; a field that it does not know is unchanged.
pub(super) fn row_field(key: &str, value: &Value) -> (String, Value) {
    match (key, value) {
        ("tools", Value::Array(tools)) => {
            let tool = |tool: &Value| match tool.get("function") {
                Some(function) => json!({
                    "name": function.get("name"),
                    "description": function.get("description").unwrap_or(&json!("")),
                    "input_schema": function.get("parameters").unwrap_or(&json!({"type": "object"})),
                }),
                None => tool.clone(),
            };
            (key.to_owned(), tools.iter().map(tool).collect())
        }
        ("tool_choice", Value::String(choice)) => {
            let choice = if choice == "required" { "any" } else { choice };
            (key.to_owned(), json!({"type": choice}))
        }
        ("tool_choice", choice) if choice.pointer("/function/name").is_some() => {
            let name = choice.pointer("/function/name");
            (key.to_owned(), json!({"type": "tool", "name": name}))
        }
        ("stop", Value::String(stop)) => ("stop_sequences".to_owned(), json!([stop])),
        ("stop", stops) => ("stop_sequences".to_owned(), stops.clone()),
        _ => (key.to_owned(), value.clone()),
    }
}
