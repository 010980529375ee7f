//! Events that name their type, as Anthropic Messages and OpenAI Responses send them.

use serde_json::{Value, json};

use crate::sim::dialect::response::{FinishReason, Usage};

/// An event with its name.
pub(super) fn event(data: &Value) -> String {
    let name = data["type"].as_str().unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n")
}

/// What the events of one answer have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer<'a> {
    pub(super) id: &'a str,
    pub(super) model: &'a str,
    pub(super) created: u64,
    /// Name of the called tool, if the answer is a call.
    pub(super) tool: Option<&'a str>,
    /// `None` if token counts are hidden.
    pub(super) usage: Option<Usage>,
}

pub(super) mod messages {
    use super::{Answer, FinishReason, Usage, Value, event, json};

    /// The part of an event before its text, and the part after it.
    pub(in super::super) const DELTA: [&str; 2] = [
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\
         \"delta\":{\"type\":\"text_delta\",\"text\":\"",
        "\"}}\n\n",
    ];

    /// The same for the input of a call.
    pub(in super::super) const CALL_DELTA: [&str; 2] = [
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\
         \"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"",
        DELTA[1],
    ];

    const fn stop_reason(finish: FinishReason) -> &'static str {
        match finish {
            FinishReason::Length => "max_tokens",
            FinishReason::Stop => "end_turn",
            FinishReason::ToolCalls => "tool_use",
        }
    }

    /// The block of the content that the answer consists of. The input of a call that is no JSON is a text.
    fn block(answer: Answer<'_>, text: &str) -> Value {
        match answer.tool {
            None => json!({ "type": "text", "text": text }),
            Some(name) => {
                let input = match text {
                    "" => json!({}),
                    text => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
                };
                json!({ "type": "tool_use", "id": format!("toolu_{}", answer.id), "name": name, "input": input })
            }
        }
    }

    /// Prompt tokens from the cache stand beside the others.
    fn usage_json(usage: Usage) -> Value {
        let mut json = json!({ "input_tokens": usage.prompt, "output_tokens": usage.reported() });
        if usage.reports_cached {
            json["input_tokens"] = json!(usage.prompt - usage.cached);
            json["cache_creation_input_tokens"] = json!(0);
            json["cache_read_input_tokens"] = json!(usage.cached);
        }
        json
    }

    fn message(answer: Answer<'_>, content: &Value, stop_reason: Option<&str>) -> Value {
        let mut message = json!({
            "id": answer.id, "type": "message", "role": "assistant", "content": content, "model": answer.model,
            "stop_reason": stop_reason, "stop_sequence": null,
        });
        if let Some(usage) = answer.usage {
            message["usage"] = usage_json(usage);
        }
        message
    }

    pub(in super::super) fn beginning(answer: Answer<'_>) -> String {
        // The cached part is unknown before the prompt is computed.
        let usage = answer.usage.map(Usage::without_cached);
        let message = message(Answer { usage, ..answer }, &json!([]), None);
        let block = block(answer, "");
        [
            json!({ "type": "message_start", "message": message }),
            json!({ "type": "content_block_start", "index": 0, "content_block": block }),
            json!({ "type": "ping" }),
        ]
        .iter()
        .map(event)
        .collect()
    }

    pub(in super::super) fn ending(answer: Answer<'_>, finish: FinishReason) -> Vec<String> {
        let delta = json!({ "stop_reason": stop_reason(finish), "stop_sequence": null });
        let mut last = json!({ "type": "message_delta", "delta": delta });
        if let Some(usage) = answer.usage {
            last["usage"] = usage_json(usage);
        }
        [
            json!({ "type": "content_block_stop", "index": 0 }),
            last,
            json!({ "type": "message_stop" }),
        ]
        .iter()
        .map(event)
        .collect()
    }

    pub(in super::super) fn whole(answer: Answer<'_>, text: &str, finish: FinishReason) -> Value {
        let content = json!([block(answer, text)]);
        message(answer, &content, Some(stop_reason(finish)))
    }
}

pub(super) mod responses {
    use super::{Answer, FinishReason, Value, event, json};

    /// The part of an event before its text, and the part after it.
    pub(in super::super) const DELTA: [&str; 2] = [
        "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"item_id\":\"msg\",\
         \"output_index\":0,\"content_index\":0,\"delta\":\"",
        "\"}\n\n",
    ];

    /// The same for the arguments of a call.
    pub(in super::super) const CALL_DELTA: [&str; 2] = [
        "event: response.function_call_arguments.delta\ndata: {\"type\":\"response.function_call_arguments.delta\",\
         \"item_id\":\"fc\",\"output_index\":0,\"delta\":\"",
        DELTA[1],
    ];

    fn item(answer: Answer<'_>, text: &str, status: &str) -> Value {
        if let Some(name) = answer.tool {
            return json!({
                "id": "fc", "type": "function_call", "call_id": format!("call_{}", answer.id), "name": name,
                "arguments": text, "status": status,
            });
        }
        let content = match status {
            "in_progress" => json!([]),
            _ => json!([{ "type": "output_text", "text": text, "annotations": [] }]),
        };
        json!({ "id": "msg", "type": "message", "role": "assistant", "status": status, "content": content })
    }

    fn response(answer: Answer<'_>, status: &str, output: &Value) -> Value {
        json!({
            "id": answer.id, "object": "response", "created_at": answer.created, "model": answer.model,
            "status": status, "error": null, "incomplete_details": null, "output": output, "usage": null,
        })
    }

    pub(in super::super) fn beginning(answer: Answer<'_>) -> String {
        let begun = response(answer, "in_progress", &json!([]));
        let part = json!({ "type": "output_text", "text": "", "annotations": [] });
        let item = item(answer, "", "in_progress");
        let part = answer.tool.is_none().then(|| {
            json!({
                "type": "response.content_part.added", "item_id": "msg", "output_index": 0, "content_index": 0,
                "part": part,
            })
        });
        let events = [
            json!({ "type": "response.created", "response": begun }),
            json!({ "type": "response.in_progress", "response": begun }),
            json!({ "type": "response.output_item.added", "output_index": 0, "item": item }),
        ];
        events.iter().chain(&part).map(event).collect()
    }

    pub(in super::super) fn ending(answer: Answer<'_>, text: &str, finish: FinishReason) -> Vec<String> {
        let kind = match finish {
            FinishReason::Length => "response.incomplete",
            FinishReason::Stop | FinishReason::ToolCalls => "response.completed",
        };
        let place =
            |kind: &str| json!({ "type": kind, "item_id": "msg", "output_index": 0, "content_index": 0 });
        let done = match answer.tool {
            None => {
                let mut done = place("response.output_text.done");
                done["text"] = json!(text);
                done
            }
            Some(_) => json!({
                "type": "response.function_call_arguments.done", "item_id": "fc", "output_index": 0, "arguments": text,
            }),
        };
        let item = item(answer, text, "completed");
        [
            done,
            json!({ "type": "response.output_item.done", "output_index": 0, "item": item }),
            json!({ "type": kind, "response": whole(answer, text, finish) }),
        ]
        .iter()
        .map(event)
        .collect()
    }

    pub(in super::super) fn whole(answer: Answer<'_>, text: &str, finish: FinishReason) -> Value {
        let status = match finish {
            FinishReason::Length => "incomplete",
            FinishReason::Stop | FinishReason::ToolCalls => "completed",
        };
        let mut response = response(answer, status, &json!([item(answer, text, "completed")]));
        if finish == FinishReason::Length {
            response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        }
        if let Some(usage) = answer.usage {
            response["usage"] = json!({
                "input_tokens": usage.prompt, "output_tokens": usage.reported(),
                "total_tokens": usage.prompt + usage.reported(),
                "output_tokens_details": { "reasoning_tokens": 0 },
            });
            if usage.reports_cached {
                response["usage"]["input_tokens_details"] = json!({ "cached_tokens": usage.cached });
            }
        }
        response
    }
}
