//! Chat messages and fields of a chat request in the form of OpenAI Responses.

use serde_json::{Value, json};

/// Returns the items of an input: the messages, and calls of tools and their results as items of their own.
pub(super) fn input_items(messages: &[Value]) -> Vec<Value> {
    let mut items = Vec::with_capacity(messages.len());
    for message in messages {
        let role = message.get("role").and_then(Value::as_str).unwrap_or("user");
        let content = message.get("content").unwrap_or(&Value::Null);
        if role == "tool" {
            let id = message.get("tool_call_id");
            let output = content_text(content);
            items.push(json!({"type": "function_call_output", "call_id": id, "output": output}));
            continue;
        }
        let calls = message.get("tool_calls").and_then(Value::as_array);
        let calls = calls.map_or(&[][..], Vec::as_slice);
        if calls.is_empty() || !content_text(content).is_empty() {
            items.push(json!({"role": role, "content": converted_content(role, content)}));
        }
        items.extend(calls.iter().map(|call| {
            json!({
                "type": "function_call",
                "call_id": call.get("id"),
                "name": call.pointer("/function/name"),
                "arguments": call.pointer("/function/arguments"),
            })
        }));
    }
    items
}

/// Returns a text as it is, and parts with the types of this protocol. Servers accept parts of an assistant only
/// with the id of the answer that had them, and otherwise a text.
fn converted_content(role: &str, content: &Value) -> Value {
    match content {
        Value::Array(_) if role == "assistant" => Value::from(content_text(content)),
        Value::Array(parts) => parts.iter().map(converted_part).collect(),
        Value::Null => Value::from(""),
        other => other.clone(),
    }
}

fn converted_part(part: &Value) -> Value {
    if let Some(url) = part.pointer("/image_url/url").and_then(Value::as_str) {
        return image(url);
    }
    match (part.get("type").and_then(Value::as_str), part.get("text")) {
        (Some("text"), Some(text)) => json!({"type": "input_text", "text": text}),
        _ => part.clone(),
    }
}

pub(super) fn image(url: &str) -> Value {
    json!({"type": "input_image", "image_url": url, "detail": "auto"})
}

/// Returns the text of a message's content; of parts, their texts together.
fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part.get("text")?.as_str())
            .collect(),
        _ => String::new(),
    }
}

/// Returns the format of a text: the members of `json_schema` are next to the type.
fn text_format(format: &Value) -> Value {
    match (format.get("type"), format.get("json_schema")) {
        (Some(kind), Some(Value::Object(members))) => {
            let mut flat = members.clone();
            flat.insert("type".to_owned(), kind.clone());
            Value::Object(flat)
        }
        _ => format.clone(),
    }
}

/// Returns a field of a chat request as this protocol writes it; a field that it does not know is unchanged.
pub(super) fn row_field(key: &str, value: &Value) -> (String, Value) {
    /// A function without the object around it.
    fn flat(tool: &Value) -> Value {
        match tool.get("function") {
            Some(Value::Object(function)) => {
                let mut function = function.clone();
                function.insert("type".to_owned(), json!("function"));
                Value::Object(function)
            }
            _ => tool.clone(),
        }
    }
    if key == "response_format" {
        return ("text".to_owned(), json!({"format": text_format(value)}));
    }
    let value = match (key, value) {
        ("tools", Value::Array(tools)) => tools.iter().map(flat).collect(),
        ("tool_choice", choice) => flat(choice),
        _ => value.clone(),
    };
    (key.to_owned(), value)
}
