//! Renders answers: server-sent events token by token, or one JSON document at the end.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::sim::dialect::typed_events::{self, Answer, messages, responses};
use crate::sim::dialect::{Endpoint, GenerationRequest, transcription};
use crate::sim::faults::Faults;
use crate::sim::options::Dialect;
use crate::sim::rng::mix;
use crate::sim::structure::Structure;
use crate::sim::text;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinishReason {
    /// The requested number of tokens was reached.
    Length,
    /// An end token came earlier.
    Stop,
    /// The call of a tool is complete.
    ToolCalls,
}

impl FinishReason {
    const fn name(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
        }
    }
}

/// Token counts of a request as the server reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) prompt: usize,
    completion: usize,
    pub(super) cached: usize,
    pub(super) reports_cached: bool,
    /// Requested and actual number of tokens, if the fault reports the former in place of the latter.
    claimed_tokens: Option<(usize, usize)>,
}

impl Usage {
    pub(super) const fn without_cached(mut self) -> Self {
        self.reports_cached = false;
        self
    }

    pub(super) fn reported(self) -> usize {
        match self.claimed_tokens {
            Some((asked, output)) => (self.completion * asked).div_ceil(output.max(1)),
            None => self.completion,
        }
    }

    fn json(self) -> Value {
        let mut usage = json!({
            "prompt_tokens": self.prompt,
            "total_tokens": self.prompt + self.reported(),
            "completion_tokens": self.reported(),
        });
        if self.reports_cached {
            usage["prompt_tokens_details"] = json!({ "cached_tokens": self.cached });
        }
        usage
    }
}

/// Renders one answer. Constant parts of an event are built once, because rendering must not slow down a fast
/// stream.
#[derive(Debug)]
pub(crate) struct ResponseWriter {
    dialect: Dialect,
    endpoint: Endpoint,
    key: u64,
    /// Index of the first token with the words of another answer.
    varied_from: Option<u64>,
    usage: Usage,
    final_usage: bool,
    continuous_usage: bool,
    hides_usage: bool,
    reports_one_token: bool,
    id: String,
    created: u64,
    model: String,
    audio_seconds: Option<f64>,
    /// The part of an event before its text.
    event_prefix: String,
    /// The answer, or the arguments of its call.
    text: String,
    /// The answer to generate, if it is not words.
    structure: Option<Structure>,
}

impl ResponseWriter {
    /// `id` is unique; `created` is Unix time in seconds.
    pub(crate) fn new(
        dialect: Dialect,
        endpoint: Endpoint,
        request: &GenerationRequest,
        id: u64,
        created: u64,
    ) -> Self {
        let id = match endpoint {
            Endpoint::Native => format!("{id:032x}"),
            Endpoint::Completions => format!("cmpl-{id:032x}"),
            Endpoint::Chat => format!("chatcmpl-{id:032x}"),
            Endpoint::Messages => format!("msg_{id:032x}"),
            Endpoint::Responses => format!("resp_{id:032x}"),
            Endpoint::Transcription => format!("trsc-{id:032x}"),
        };
        let model = Value::from(request.model.as_str()).to_string();
        let structure = request.structure.clone();
        let calls = structure
            .as_ref()
            .is_some_and(|structure| structure.tool.is_some());
        let opening = match endpoint {
            Endpoint::Native => "data: {\"text\":\"".to_owned(),
            Endpoint::Completions => format!(
                "data: {{\"id\":\"{id}\",\"object\":\"text_completion\",\"created\":{created},\"model\":{model},\
                 \"choices\":[{{\"index\":0,\"text\":\""
            ),
            Endpoint::Chat => format!(
                "data: {{\"id\":\"{id}\",\"object\":\"chat.completion.chunk\",\"created\":{created},\"model\":{model},\
                 \"choices\":[{{\"index\":0,\"delta\":{{"
            ),
            Endpoint::Messages if calls => messages::CALL_DELTA[0].to_owned(),
            Endpoint::Messages => messages::DELTA[0].to_owned(),
            Endpoint::Responses if calls => responses::CALL_DELTA[0].to_owned(),
            Endpoint::Responses => responses::DELTA[0].to_owned(),
            Endpoint::Transcription => format!(
                "data: {{\"id\":\"{id}\",\"object\":\"transcription.chunk\",\"created\":{created},\"model\":{model},\
                 \"choices\":[{{\"delta\":{{"
            ),
        };
        Self {
            dialect,
            endpoint,
            key: request.key,
            varied_from: request.varied_from,
            usage: Usage {
                prompt: request.prompt.len(),
                completion: 0,
                cached: 0,
                reports_cached: true,
                claimed_tokens: None,
            },
            hides_usage: false,
            reports_one_token: false,
            final_usage: request.final_usage,
            continuous_usage: request.continuous_usage,
            id,
            created,
            model: request.model.clone(),
            audio_seconds: request.audio_seconds,
            event_prefix: opening,
            text: String::new(),
            structure,
        }
    }

    /// Leaves out the cached prompt tokens, which OpenAI's usage would include.
    pub(crate) fn hide_cached(&mut self) {
        self.usage.reports_cached = false;
    }

    /// Applies the faults that change the content of answers.
    pub(crate) fn corrupt(&mut self, request: &GenerationRequest, faults: &Faults) {
        self.reports_one_token = faults.same_token;
        self.usage.claimed_tokens = faults
            .claim_full_length
            .then_some((request.requested_tokens, request.output_tokens));
        self.hides_usage = faults.hide_usage;
        if faults.hide_usage {
            (self.final_usage, self.continuous_usage) = (false, false);
        }
    }

    /// Sets the number of prompt tokens found in the prefix cache.
    pub(crate) fn set_cached(&mut self, cached: usize) {
        self.usage.cached = cached;
    }

    /// Appends the words of `count` tokens to the text. Returns the previous length of the text.
    fn generate(&mut self, count: usize) -> usize {
        let from = self.text.len();
        for _ in 0..count {
            if let Some(structure) = &self.structure {
                self.text.push_str(structure.token(self.usage.completion));
                self.usage.completion += 1;
                continue;
            }
            let index = self.usage.completion as u64;
            if self.reports_one_token {
                self.text.push('!');
                self.usage.completion += 1;
                continue;
            }
            if index > 0 {
                self.text.push(' ');
            }
            let key = match self.varied_from {
                Some(first) if index >= first => mix(self.key),
                _ => self.key,
            };
            self.text.push_str(text::word(key, index));
            self.usage.completion += 1;
        }
        from
    }

    /// What the events of Messages and Responses have in common.
    fn answer(&self) -> Answer<'_> {
        Answer {
            tool: self.tool(),
            id: &self.id,
            model: &self.model,
            created: self.created,
            usage: (!self.hides_usage).then_some(self.usage),
        }
    }

    /// The name of the called tool.
    fn tool(&self) -> Option<&str> {
        self.structure.as_ref()?.tool.as_deref()
    }

    /// The text from `from` on as it stands in a JSON string.
    fn escaped(&self, from: usize) -> Cow<'_, str> {
        let text = &self.text[from..];
        match self.structure {
            // Words have nothing to escape.
            None => Cow::Borrowed(text),
            Some(_) => {
                let quoted = Value::from(text).to_string();
                Cow::Owned(quoted[1..quoted.len() - 1].to_owned())
            }
        }
    }

    /// The events before the first token, such as a chat answer's role.
    pub(crate) fn preamble(&mut self) -> Option<String> {
        match self.endpoint {
            Endpoint::Native | Endpoint::Completions | Endpoint::Transcription => None,
            Endpoint::Chat => Some(format!(
                "{}\"role\":\"assistant\",\"content\":\"\"}},\"logprobs\":null,\"finish_reason\":null}}]}}\n\n",
                self.event_prefix
            )),
            Endpoint::Messages => Some(messages::beginning(self.answer())),
            Endpoint::Responses => Some(responses::beginning(self.answer())),
        }
    }

    /// Appends the event with the next `count` tokens to `out`; `finish` is set for the last ones.
    pub(crate) fn event(&mut self, count: usize, finish: Option<FinishReason>, out: &mut Vec<u8>) {
        let is_first = self.usage.completion == 0;
        let from = self.generate(count);
        // SGLang and LMDeploy send the finish reason in a separate event.
        let event_finish = finish.filter(|_| matches!(self.dialect, Dialect::Vllm | Dialect::Openai));
        match self.endpoint {
            Endpoint::Native => {
                let event = self.native_event(&self.escaped(0), finish);
                out.extend_from_slice(event.as_bytes());
            }
            Endpoint::Chat if self.tool().is_some() => {
                let part = self.tool_part(from, is_first);
                self.write_parts(&[&part], event_finish, out);
            }
            Endpoint::Completions | Endpoint::Chat | Endpoint::Transcription => {
                self.write_delta(from, event_finish, out);
            }
            Endpoint::Messages => self.write_text(from, messages::DELTA[1], out),
            Endpoint::Responses => self.write_text(from, responses::DELTA[1], out),
        }
        // These repeat the whole text in later events.
        if !matches!(self.endpoint, Endpoint::Native | Endpoint::Responses) {
            self.text.clear();
        }
    }

    /// The events after the last token, up to the one that marks the end.
    pub(crate) fn final_events(&mut self, finish: FinishReason) -> Vec<String> {
        match self.endpoint {
            Endpoint::Messages => return messages::ending(self.answer(), finish),
            Endpoint::Responses => return responses::ending(self.answer(), &self.text, finish),
            Endpoint::Native | Endpoint::Completions | Endpoint::Chat | Endpoint::Transcription => {}
        }
        let mut events = Vec::new();
        if self.endpoint != Endpoint::Native {
            if matches!(self.dialect, Dialect::Sglang | Dialect::Lmdeploy) || self.usage.completion == 0 {
                let mut event = Vec::new();
                self.write_delta(self.text.len(), Some(finish), &mut event);
                events.push(String::from_utf8_lossy(&event).into_owned());
            }
            if self.final_usage {
                let tail = json!({
                    "id": self.id, "object": self.object_name(true), "created": self.created, "model": self.model,
                    "choices": [], "usage": self.usage.json(),
                });
                events.push(format!("data: {tail}\n\n"));
            }
        } else if self.usage.completion == 0 {
            events.push(self.native_event("", Some(finish)));
        }
        events.push("data: [DONE]\n\n".to_owned());
        events
    }

    /// The complete answer with `count` tokens.
    pub(crate) fn full_response(&mut self, count: usize, finish: FinishReason) -> String {
        self.generate(count);
        let text = &self.text;
        let choice = match self.endpoint {
            Endpoint::Native => {
                let event = self.native_event(&self.escaped(0), Some(finish));
                return event.trim_start_matches("data: ").trim_end().to_owned();
            }
            Endpoint::Completions => {
                json!({ "index": 0, "text": text, "logprobs": null, "finish_reason": finish.name() })
            }
            Endpoint::Chat => json!({
                "index": 0, "message": self.chat_message(),
                "logprobs": null, "finish_reason": finish.name(),
            }),
            Endpoint::Messages => return messages::whole(self.answer(), text, finish).to_string(),
            Endpoint::Responses => return responses::whole(self.answer(), text, finish).to_string(),
            Endpoint::Transcription => return self.whole_transcription(),
        };
        let mut answer = json!({
            "id": self.id, "object": self.object_name(false), "created": self.created, "model": self.model,
            "choices": [choice],
        });
        if !self.hides_usage {
            answer["usage"] = self.usage.json();
        }
        answer.to_string()
    }

    /// A whole transcription reports no tokens, but the seconds of the recording.
    fn whole_transcription(&self) -> String {
        let mut answer = json!({ "text": self.text });
        if let Some(seconds) = self.audio_seconds.filter(|_| !self.hides_usage) {
            answer["usage"] =
                json!({ "type": "duration", "seconds": transcription::billed_seconds(seconds) });
        }
        answer.to_string()
    }

    /// An event with a text of `bytes` bytes that counts no token.
    pub(crate) fn huge_event(&self, bytes: usize) -> Vec<u8> {
        let filler = "x".repeat(bytes);
        match self.endpoint {
            Endpoint::Native => self.native_event(&filler, None).into_bytes(),
            Endpoint::Completions => format!(
                "{}{filler}\",\"logprobs\":null,\"finish_reason\":null}}]}}\n\n",
                self.event_prefix
            )
            .into_bytes(),
            Endpoint::Chat => format!(
                "{}\"content\":\"{filler}\"}},\"logprobs\":null,\"finish_reason\":null}}]}}\n\n",
                self.event_prefix
            )
            .into_bytes(),
            Endpoint::Transcription => {
                format!("{}\"content\":\"{filler}\"}}}}]}}\n\n", self.event_prefix).into_bytes()
            }
            Endpoint::Messages => [&self.event_prefix, &*filler, messages::DELTA[1]]
                .concat()
                .into_bytes(),
            Endpoint::Responses => [&self.event_prefix, &*filler, responses::DELTA[1]]
                .concat()
                .into_bytes(),
        }
    }

    /// An error event in the middle of a stream, and the end of the stream.
    pub(crate) fn error_event(&self) -> String {
        let message = "the engine lost this request before the answer was complete (simulated)";
        if self.endpoint.names_events() {
            let error = json!({ "type": "api_error", "message": message });
            return typed_events::event(&json!({ "type": "error", "error": error }));
        }
        let error = json!({ "error": { "message": message, "type": "InternalServerError", "param": null, "code": 500 } });
        format!("data: {error}\n\ndata: [DONE]\n\n")
    }

    fn object_name(&self, is_chunk: bool) -> &'static str {
        match (self.endpoint, is_chunk) {
            (Endpoint::Chat, true) => "chat.completion.chunk",
            (Endpoint::Chat, false) => "chat.completion",
            (Endpoint::Transcription, _) => "transcription.chunk",
            _ => "text_completion",
        }
    }

    /// Appends an event with the text from `from` on.
    fn write_text(&self, from: usize, after: &str, out: &mut Vec<u8>) {
        for part in [&self.event_prefix, &*self.escaped(from), after] {
            out.extend_from_slice(part.as_bytes());
        }
    }

    fn write_delta(&self, from: usize, finish: Option<FinishReason>, out: &mut Vec<u8>) {
        let (before, after) = match self.endpoint {
            Endpoint::Chat | Endpoint::Transcription if from == self.text.len() => ("", "}"),
            Endpoint::Chat | Endpoint::Transcription => ("\"content\":\"", "\"}"),
            _ => ("", "\""),
        };
        // The space is at the start of each word but the first, so an event never ends with one.
        let text = self.escaped(from);
        self.write_parts(&[before, &text, after], finish, out);
    }

    /// What an event adds to a call in a chat; the first one names the tool.
    fn tool_part(&self, from: usize, is_first: bool) -> String {
        let arguments = &self.text[from..];
        let call = match self.tool().filter(|_| is_first) {
            Some(name) => json!({
                "index": 0, "id": self.call_id(), "type": "function",
                "function": { "name": name, "arguments": arguments },
            }),
            None => json!({ "index": 0, "function": { "arguments": arguments } }),
        };
        format!("\"tool_calls\":[{call}]}}")
    }

    fn call_id(&self) -> String {
        format!("call_{}", self.id)
    }

    /// The message of a complete chat answer.
    fn chat_message(&self) -> Value {
        match self.tool() {
            None => json!({ "role": "assistant", "content": self.text }),
            Some(name) => {
                let function = json!({ "name": name, "arguments": self.text });
                let call = json!({ "id": self.call_id(), "type": "function", "function": function });
                json!({ "role": "assistant", "content": null, "tool_calls": [call] })
            }
        }
    }

    /// Appends an event of a choice, which begins with these parts.
    fn write_parts(&self, parts: &[&str], finish: Option<FinishReason>, out: &mut Vec<u8>) {
        let mut put = |part: &str| out.extend_from_slice(part.as_bytes());
        put(&self.event_prefix);
        parts.iter().for_each(|part| put(part));
        // vLLM leaves out fields without a value here.
        let is_bare = self.endpoint == Endpoint::Transcription;
        match finish {
            None if is_bare => put("}]"),
            Some(finish) if is_bare => {
                put(",\"finish_reason\":\"");
                put(finish.name());
                put("\",\"stop_reason\":null}]");
            }
            None => put(",\"logprobs\":null,\"finish_reason\":null}]"),
            Some(finish) => {
                put(",\"logprobs\":null,\"finish_reason\":\"");
                put(finish.name());
                put("\"}]");
            }
        }
        if self.continuous_usage {
            put(",\"usage\":");
            put(&self.usage.json().to_string());
        }
        put("}\n\n");
    }

    /// An event with this text, as it stands in a JSON string.
    fn native_event(&self, text: &str, finish: Option<FinishReason>) -> String {
        let reason = match finish {
            None => "null".to_owned(),
            Some(FinishReason::Length) => {
                format!("{{\"type\":\"length\",\"length\":{}}}", self.usage.reported())
            }
            Some(FinishReason::Stop | FinishReason::ToolCalls) => {
                "{\"type\":\"stop\",\"matched\":0}".to_owned()
            }
        };
        let counts = match self.hides_usage {
            true => String::new(),
            false => format!(
                ",\"prompt_tokens\":{},\"completion_tokens\":{},\"cached_tokens\":{}",
                self.usage.prompt,
                self.usage.reported(),
                self.usage.cached
            ),
        };
        format!(
            "data: {{\"text\":\"{text}\",\"meta_info\":{{\"id\":\"{}\",\"finish_reason\":{reason},\
             \"weight_version\":\"default\"{counts}}}}}\n\n",
            self.id
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::options::Options;

    fn event_values(dialect: Dialect, endpoint: Endpoint, body: &str, counts: &[usize]) -> Vec<Value> {
        let request = GenerationRequest::parse(
            endpoint,
            body.as_bytes(),
            &Options {
                dialect,
                ..Options::default()
            },
        )
        .unwrap();
        let mut writer = ResponseWriter::new(dialect, endpoint, &request, 1, 1_700_000_000);
        let mut out = writer.preamble().unwrap_or_default().into_bytes();
        for (at, count) in counts.iter().enumerate() {
            writer.event(
                *count,
                (at + 1 == counts.len()).then_some(FinishReason::Length),
                &mut out,
            );
        }
        let ending = writer.final_events(FinishReason::Length);
        let all = String::from_utf8(out).unwrap() + &ending.concat();
        let events: Vec<_> = all
            .split_terminator("\n\n")
            .map(|event| event.strip_prefix("data: ").unwrap())
            .collect();
        assert_eq!(events.last(), Some(&"[DONE]"));
        events[..events.len() - 1]
            .iter()
            .map(|event| serde_json::from_str(event).unwrap())
            .collect()
    }

    #[test]
    fn the_pieces_of_a_stream_are_the_whole_answer() {
        for dialect in [Dialect::Vllm, Dialect::Sglang] {
            let body = r#"{"prompt":"a","max_tokens":5,"stream_options":{"include_usage":true}}"#;
            let events = event_values(dialect, Endpoint::Completions, body, &[1, 3, 1]);
            let text: String = events
                .iter()
                .filter_map(|event| event["choices"][0]["text"].as_str())
                .collect();
            let request =
                GenerationRequest::parse(Endpoint::Completions, body.as_bytes(), &Options::default())
                    .unwrap();
            let whole = ResponseWriter::new(dialect, Endpoint::Completions, &request, 1, 0)
                .full_response(5, FinishReason::Length);
            let whole: Value = serde_json::from_str(&whole).unwrap();
            assert_eq!(whole["choices"][0]["text"], text);
            assert_eq!(text.split(' ').count(), 5);
            let tail = events.last().unwrap();
            assert_eq!((&tail["choices"], &tail["usage"]), (&json!([]), &whole["usage"]));
            let ends = events
                .iter()
                .filter(|event| event["choices"][0]["finish_reason"] == "length")
                .count();
            assert_eq!(ends, 1);
        }
    }

    #[test]
    fn a_chat_opens_with_its_role() {
        let body = r#"{"messages":[{"role":"user","content":"hi"}]}"#;
        let events = event_values(Dialect::Lmdeploy, Endpoint::Chat, body, &[1, 1]);
        assert_eq!(
            events[0]["choices"][0]["delta"],
            json!({ "role": "assistant", "content": "" })
        );
        assert_eq!(events[3]["choices"][0]["delta"], json!({}));
        assert_eq!(events.len(), 4);
    }

    #[test]
    fn native_answers_with_quotes_are_json() {
        let item = crate::config::quality::GeneratedTask::Json.item(1, 0, 0);
        let body = json!({ "text": item.prompt });
        let events = event_values(Dialect::Sglang, Endpoint::Native, &body.to_string(), &[4, 40]);
        let text = events[1]["text"].as_str().unwrap();
        assert!(text.contains('"'), "{text}");
    }

    #[test]
    fn native_events_tell_everything_so_far() {
        let events = event_values(
            Dialect::Sglang,
            Endpoint::Native,
            r#"{"input_ids":[1,2]}"#,
            &[1, 2],
        );
        let texts: Vec<_> = events
            .iter()
            .map(|event| event["text"].as_str().unwrap())
            .collect();
        assert!(texts[1].starts_with(&format!("{} ", texts[0])));
        assert_eq!(events[1]["meta_info"]["completion_tokens"], 3);
        assert_eq!(events[1]["meta_info"]["prompt_tokens"], 2);
        assert_eq!(
            events[1]["meta_info"]["finish_reason"],
            json!({ "type": "length", "length": 3 })
        );
    }
}
