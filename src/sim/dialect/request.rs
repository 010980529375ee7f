//! Parses generation requests of all dialects.

use serde::Deserialize;
use serde_json::Value;

use crate::config::quality::generated;
use crate::sim::dialect::{Endpoint, FinishReason};
use crate::sim::options::{Dialect, Options};
use crate::sim::rng::{Rng, mix};
use crate::sim::structure::{Demand, Structure};
use crate::sim::text;

/// Default number of output tokens, the same as in the engines.
const COMPLETION_TOKENS: usize = 16;
const CHAT_TOKENS: usize = 128;

/// A valid generation request.
#[derive(Clone, Debug)]
pub(crate) struct GenerationRequest {
    pub(crate) model: String,
    pub(crate) prompt: Vec<u64>,
    /// Key of the answer's words.
    pub(crate) key: u64,
    /// Index of the first token that belongs to another answer; `None` if all are the usual ones.
    pub(crate) varied_from: Option<u64>,
    /// Number of requested tokens.
    pub(crate) requested_tokens: usize,
    /// Number of tokens of the answer.
    pub(crate) output_tokens: usize,
    /// Whether the answer ends before the requested limit.
    pub(crate) is_early: bool,
    /// The answer, if the request demands a structure; otherwise the answer is words.
    pub(crate) structure: Option<Structure>,
    pub(crate) stream: bool,
    /// Whether a last event contains the usage.
    pub(crate) final_usage: bool,
    /// Whether every event contains the usage.
    pub(crate) continuous_usage: bool,
    /// Length of the recording to transcribe.
    pub(crate) audio_seconds: Option<f64>,
}

impl GenerationRequest {
    pub(crate) fn finish_reason(&self) -> FinishReason {
        match &self.structure {
            Some(structure) if structure.len() > self.output_tokens => FinishReason::Length,
            Some(Structure { tool: Some(_), .. }) => FinishReason::ToolCalls,
            Some(_) => FinishReason::Stop,
            None if self.is_early => FinishReason::Stop,
            None => FinishReason::Length,
        }
    }

    /// Makes the answer wrong; `nth` chooses how.
    pub(crate) fn spoil(&mut self, nth: u64) {
        if let Some(structure) = &mut self.structure {
            structure.spoil(nth);
            self.output_tokens = structure.len().min(self.requested_tokens);
        }
    }
}

/// A generation request that is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestError {
    pub(crate) status: u16,
    pub(crate) message: String,
}

impl RequestError {
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self {
            status: 400,
            message: message.into(),
        }
    }
}

#[derive(Deserialize)]
struct Body {
    model: Option<String>,
    prompt: Option<Value>,
    /// The prompt of SGLang's own API; in Responses the format of the answer.
    text: Option<Value>,
    input_ids: Option<Vec<u32>>,
    messages: Option<Vec<Message>>,
    /// The system prompt of Messages.
    system: Option<Value>,
    /// The prompt of Responses: a text, or a list of items.
    input: Option<Value>,
    max_tokens: Option<Value>,
    max_output_tokens: Option<Value>,
    max_completion_tokens: Option<Value>,
    sampling_params: Option<Sampling>,
    ignore_eos: Option<bool>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<u32>,
    response_format: Option<Value>,
    structured_outputs: Option<Value>,
    tools: Option<Vec<Value>>,
    tool_choice: Option<Value>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Option<Value>,
}

impl Body {
    /// The fields of this API that demand a structure of the answer.
    fn demand(&self, endpoint: Endpoint) -> Demand<'_> {
        let all = Demand {
            response_format: self.response_format.as_ref(),
            structured_outputs: self.structured_outputs.as_ref(),
            tools: self.tools.as_deref(),
            tool_choice: self.tool_choice.as_ref(),
        };
        match endpoint {
            Endpoint::Native | Endpoint::Transcription => Demand::default(),
            Endpoint::Completions => Demand {
                tools: None,
                tool_choice: None,
                ..all
            },
            Endpoint::Chat => all,
            Endpoint::Messages => Demand {
                response_format: None,
                ..all
            },
            Endpoint::Responses => Demand {
                response_format: self.text.as_ref().and_then(|text| text.get("format")),
                ..all
            },
        }
    }
}

#[derive(Default, Deserialize)]
struct Sampling {
    max_new_tokens: Option<Value>,
    ignore_eos: Option<bool>,
    n: Option<u32>,
}

#[derive(Default, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
    continuous_usage_stats: Option<bool>,
}

impl GenerationRequest {
    pub(crate) fn parse(endpoint: Endpoint, body: &[u8], options: &Options) -> Result<Self, RequestError> {
        let body: Body = serde_json::from_slice(body)
            .map_err(|error| RequestError::bad_request(format!("the body is not a JSON request: {error}")))?;
        let model = check_model(body.model.as_deref(), options)?;
        let demand = body.demand(endpoint);
        let sampling = body.sampling_params.as_ref();
        if body.n.or(sampling.and_then(|sampling| sampling.n)).unwrap_or(1) != 1 {
            return Err(RequestError::bad_request(
                "the simulated engine returns one answer per request; set `n` to 1",
            ));
        }
        let longest = options.max_model_len;
        let mut prompt = Vec::new();
        match endpoint {
            Endpoint::Native => {
                native_prompt(
                    body.text.as_ref(),
                    body.input_ids.as_deref(),
                    longest,
                    &mut prompt,
                )?;
            }
            Endpoint::Completions => completion_prompt(body.prompt.as_ref(), longest, &mut prompt)?,
            Endpoint::Chat => chat_prompt(None, body.messages.as_deref(), longest, &mut prompt)?,
            Endpoint::Messages => {
                chat_prompt(
                    body.system.as_ref(),
                    body.messages.as_deref(),
                    longest,
                    &mut prompt,
                )?;
            }
            Endpoint::Responses => input_prompt(body.input.as_ref(), longest, &mut prompt)?,
            Endpoint::Transcription => {
                return Err(RequestError::bad_request(
                    "the request body must be a form (`multipart/form-data`)",
                ));
            }
        }
        prompt.truncate(options.faults.truncate_prompts.unwrap_or(usize::MAX).max(1));
        if prompt.is_empty() {
            return Err(RequestError::bad_request(
                "the prompt is empty; send at least one token",
            ));
        }
        let (limit, ignores_eos) = match endpoint {
            Endpoint::Native => (
                sampling.and_then(|sampling| Limit::of("max_new_tokens", &sampling.max_new_tokens)),
                sampling.and_then(|sampling| sampling.ignore_eos),
            ),
            Endpoint::Completions | Endpoint::Transcription => {
                (Limit::of("max_tokens", &body.max_tokens), body.ignore_eos)
            }
            Endpoint::Chat => {
                let limit = Limit::of("max_completion_tokens", &body.max_completion_tokens);
                (
                    limit.or(Limit::of("max_tokens", &body.max_tokens)),
                    body.ignore_eos,
                )
            }
            Endpoint::Messages if body.max_tokens.is_none() => {
                return Err(RequestError::bad_request("`max_tokens` is missing"));
            }
            // The protocol has no field to ignore the end token.
            Endpoint::Messages => (Limit::of("max_tokens", &body.max_tokens), None),
            Endpoint::Responses => {
                let limit = Limit::of("max_output_tokens", &body.max_output_tokens);
                (limit, body.ignore_eos)
            }
        };
        let requested_tokens = output_limit(endpoint, limit, prompt.len(), longest)?;
        let key = text::answer_key(options.seed, &prompt);
        let structure = match solution(endpoint, &body, options) {
            Some(structure) => Some(structure),
            None => Structure::generate(demand, key, requested_tokens).map_err(RequestError::bad_request)?,
        };
        let output = match &structure {
            // Its end ends the answer, whether or not the end token is ignored.
            Some(structure) => structure.len().min(requested_tokens),
            None => answer_length(requested_tokens, ignores_eos.unwrap_or(false), key, options),
        };
        let stream_options = body.stream_options.unwrap_or_default();
        Ok(Self {
            model,
            prompt,
            key,
            varied_from: None,
            requested_tokens,
            output_tokens: output,
            is_early: output < requested_tokens && !options.faults.claim_full_length,
            structure,
            stream: body.stream.unwrap_or(false),
            final_usage: stream_options.include_usage.unwrap_or(false),
            continuous_usage: stream_options.continuous_usage_stats.unwrap_or(false),
            audio_seconds: None,
        })
    }
}

pub(super) fn check_model(requested_model: Option<&str>, options: &Options) -> Result<String, RequestError> {
    let served = served_models(options);
    match requested_model {
        Some(name) if served.iter().any(|model| model == name) => Ok(name.to_owned()),
        // SGLang accepts any model name.
        Some(name) if options.dialect != Dialect::Sglang => Err(RequestError {
            status: 404,
            message: format!("The model `{name}` does not exist."),
        }),
        _ => Ok(served[0].clone()),
    }
}

/// The names under which the model is served, after faults.
pub(crate) fn served_models(options: &Options) -> Vec<String> {
    if options.faults.wrong_model {
        vec!["sim/another-model".to_owned()]
    } else {
        options.models.clone()
    }
}

/// The right answer, if the prompt is an item of a graded task, as far as the model sees it.
fn solution(endpoint: Endpoint, body: &Body, options: &Options) -> Option<Structure> {
    let faults = &options.faults;
    if faults.wrong_template {
        return None;
    }
    let last = |messages: &[Message]| content_text(messages.last()?.content.as_ref()).into();
    let text: Option<String> = match endpoint {
        Endpoint::Native => body.text.as_ref()?.as_str().map(str::to_owned),
        Endpoint::Completions => body.prompt.as_ref()?.as_str().map(str::to_owned),
        Endpoint::Chat | Endpoint::Messages => last(body.messages.as_deref()?),
        Endpoint::Responses => match body.input.as_ref()? {
            Value::Array(items) => Some(content_text(items.last()?.get("content"))),
            input => input.as_str().map(str::to_owned),
        },
        Endpoint::Transcription => None,
    };
    let mut text = text?;
    if let Some(most) = faults.truncate_prompts {
        let pieces = text::pieces(&text);
        text = pieces.into_iter().take(most).collect();
    }
    let solution = generated::solve(&text)?;
    let has_tools = body.tools.is_some() && !faults.broken_tool_parser;
    Some(Structure::of_solution(solution, has_tools))
}

fn native_prompt(
    text: Option<&Value>,
    ids: Option<&[u32]>,
    longest: usize,
    prompt: &mut Vec<u64>,
) -> Result<(), RequestError> {
    match (text, ids) {
        (Some(Value::String(text)), None) => text::append_pieces(text, longest, prompt),
        (None, Some(ids)) => prompt.extend(ids.iter().map(|id| u64::from(*id))),
        _ => return Err(RequestError::bad_request("send either `text` or `input_ids`")),
    }
    Ok(())
}

fn completion_prompt(
    sent: Option<&Value>,
    longest: usize,
    prompt: &mut Vec<u64>,
) -> Result<(), RequestError> {
    match sent {
        Some(Value::String(text)) => text::append_pieces(text, longest, prompt),
        Some(Value::Array(ids)) => {
            for id in ids {
                let id = id.as_u64().ok_or_else(|| {
                    RequestError::bad_request("`prompt` must be one text or one list of token ids")
                })?;
                prompt.push(id);
            }
        }
        _ => {
            return Err(RequestError::bad_request(
                "`prompt` must be one text or one list of token ids",
            ));
        }
    }
    Ok(())
}

fn chat_prompt(
    system: Option<&Value>,
    messages: Option<&[Message]>,
    longest: usize,
    prompt: &mut Vec<u64>,
) -> Result<(), RequestError> {
    let messages = messages.ok_or_else(|| RequestError::bad_request("`messages` is missing"))?;
    let system = system.map(|system| ("system", content_text(Some(system))));
    let contents = messages
        .iter()
        .map(|message| (message.role.as_str(), content_text(message.content.as_ref())));
    append_chat(system.into_iter().chain(contents), longest, prompt);
    Ok(())
}

/// The prompt of Responses; an item without content counts as nothing.
fn input_prompt(input: Option<&Value>, longest: usize, prompt: &mut Vec<u64>) -> Result<(), RequestError> {
    match input {
        Some(Value::String(text)) => append_chat([("user", text.clone())].into_iter(), longest, prompt),
        Some(Value::Array(items)) => {
            let messages = items.iter().map(|item| {
                let role = item.get("role").and_then(Value::as_str);
                (role.unwrap_or("user"), content_text(item.get("content")))
            });
            append_chat(messages, longest, prompt);
        }
        _ => {
            return Err(RequestError::bad_request(
                "`input` must be a string or a list of items",
            ));
        }
    }
    Ok(())
}

fn append_chat<'m>(messages: impl Iterator<Item = (&'m str, String)>, longest: usize, prompt: &mut Vec<u64>) {
    let messages: Vec<_> = messages.collect();
    let pairs = messages.iter().map(|(role, content)| (*role, content.as_str()));
    text::append_chat(pairs, longest, prompt);
}

/// The text of a message; for a list of parts, their texts. Images are not simulated and count as nothing.
fn content_text(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts
            .iter()
            .filter_map(|part| part.get("text")?.as_str())
            .collect(),
        _ => String::new(),
    }
}

/// The field that limits the output tokens.
#[derive(Clone, Copy)]
struct Limit<'b> {
    field: &'static str,
    value: &'b Value,
}

impl<'b> Limit<'b> {
    fn of(field: &'static str, value: &'b Option<Value>) -> Option<Self> {
        value.as_ref().map(|value| Self { field, value })
    }

    fn tokens(self, longest: usize) -> Result<usize, RequestError> {
        let tokens = self
            .value
            .as_u64()
            .and_then(|tokens| usize::try_from(tokens).ok());
        tokens.filter(|tokens| *tokens > 0).ok_or_else(|| {
            RequestError::bad_request(format!(
                "`{}` must be a whole number from 1 to {longest}, the maximum context length, but is {}",
                self.field, self.value
            ))
        })
    }
}

fn output_limit(
    endpoint: Endpoint,
    limit: Option<Limit<'_>>,
    prompt: usize,
    longest: usize,
) -> Result<usize, RequestError> {
    let asked = match limit {
        Some(limit) => limit.tokens(longest)?,
        None if endpoint == Endpoint::Completions => COMPLETION_TOKENS,
        None => CHAT_TOKENS.min(longest.saturating_sub(prompt)).max(1),
    };
    if prompt.saturating_add(asked) > longest {
        return Err(context_error(longest, prompt, asked));
    }
    Ok(asked)
}

pub(super) fn context_error(longest: usize, prompt: usize, asked: usize) -> RequestError {
    // Longer prompts are not counted to their end.
    let at_least = if prompt > longest { "at least " } else { "" };
    RequestError::bad_request(format!(
        "This model's maximum context length is {longest} tokens. However, you requested {at_least}{} tokens ({prompt} in the \
         prompt, {asked} in the output). Please reduce the length of either one.",
        prompt.saturating_add(asked)
    ))
}

pub(super) fn answer_length(
    requested_tokens: usize,
    ignores_eos: bool,
    key: u64,
    options: &Options,
) -> usize {
    let mut output = requested_tokens;
    if let Some(share) = options.faults.early_end {
        output = output.min(((requested_tokens as f64 * share).ceil() as usize).max(1));
    }
    if let Some(share) = options.faults.extra_output {
        output += (requested_tokens as f64 * share).ceil() as usize;
    }
    if !ignores_eos && options.eos_rate > 0.0 {
        // The number of tokens up to the first end token has a geometric distribution, so one draw suffices.
        let unit = Rng::new(mix(key), 0xe05).next_unit();
        let tokens = ((1.0 - unit).ln() / (1.0 - options.eos_rate).ln()).floor() + 1.0;
        output = output.min(if tokens.is_finite() { tokens as usize } else { 1 });
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(dialect: Dialect) -> Options {
        Options {
            dialect,
            models: vec!["m".to_owned()],
            ..Options::default()
        }
    }

    fn ask(endpoint: Endpoint, body: &str) -> Result<GenerationRequest, RequestError> {
        GenerationRequest::parse(endpoint, body.as_bytes(), &options(Dialect::Vllm))
    }

    #[test]
    fn prompts_are_texts_ids_or_messages() {
        let ids = ask(
            Endpoint::Completions,
            r#"{"model":"m","prompt":[5,6,7],"max_tokens":4}"#,
        )
        .unwrap();
        assert_eq!(
            (ids.prompt, ids.output_tokens, ids.is_early),
            (vec![5, 6, 7], 4, false)
        );
        assert_eq!(
            ask(Endpoint::Completions, r#"{"prompt":"a b"}"#)
                .unwrap()
                .output_tokens,
            16
        );
        let native =
            r#"{"text":"a b","sampling_params":{"max_new_tokens":3,"ignore_eos":true},"stream":true}"#;
        let native = ask(Endpoint::Native, native).unwrap();
        assert_eq!(
            (native.prompt.len(), native.output_tokens, native.stream),
            (2, 3, true)
        );
        let chat = r#"{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"max_completion_tokens":9,
            "stream_options":{"include_usage":true}}"#;
        let chat = ask(Endpoint::Chat, chat).unwrap();
        assert_eq!(
            (chat.prompt.len(), chat.output_tokens, chat.final_usage),
            (9, 9, true)
        );
    }

    #[test]
    fn what_cannot_be_answered_is_refused_with_its_reason() {
        let refusal = |body| ask(Endpoint::Completions, body).unwrap_err();
        assert_eq!(refusal(r#"{"model":"other","prompt":"a"}"#).status, 404);
        assert!(
            refusal(r#"{"prompt":"a","max_tokens":99999999}"#)
                .message
                .contains("maximum context length is 32768")
        );
        for body in [
            "",
            "{}",
            r#"{"prompt":""}"#,
            r#"{"prompt":"a","max_tokens":0}"#,
            r#"{"prompt":"a","n":2}"#,
        ] {
            assert_eq!(refusal(body).status, 400, "{body}");
        }
        let sglang = GenerationRequest::parse(
            Endpoint::Chat,
            br#"{"model":"x","messages":[]}"#,
            &options(Dialect::Sglang),
        );
        assert_eq!(sglang.unwrap().model, "m");
    }

    #[test]
    fn a_limit_that_is_no_number_of_tokens_is_named() {
        for limit in ["1e30", "2.5", "-1", "0", "\"9\"", "true"] {
            for (endpoint, field, prompt) in [
                (Endpoint::Completions, "max_tokens", r#""prompt":"a""#),
                (Endpoint::Chat, "max_completion_tokens", r#""messages":[]"#),
                (Endpoint::Messages, "max_tokens", r#""messages":[]"#),
                (Endpoint::Responses, "max_output_tokens", r#""input":"a""#),
            ] {
                let refused = ask(endpoint, &format!("{{{prompt},\"{field}\":{limit}}}")).unwrap_err();
                assert_eq!(refused.status, 400);
                let shown = limit.replace("1e30", "1e+30");
                let says = format!(
                    "`{field}` must be a whole number from 1 to 32768, the maximum context length, but is {shown}"
                );
                assert_eq!(refused.message, says);
            }
        }
        let unlimited = ask(Endpoint::Completions, r#"{"prompt":"a","max_tokens":null}"#);
        assert_eq!(unlimited.unwrap().output_tokens, 16);
    }

    #[test]
    fn answers_end_early_only_where_that_is_allowed() {
        let mut options = Options {
            eos_rate: 0.1,
            ..options(Dialect::Openai)
        };
        let output = |options: &Options, prompt: u32, ignore: bool| {
            let body = format!(r#"{{"prompt":[{prompt}],"max_tokens":1000,"ignore_eos":{ignore}}}"#);
            GenerationRequest::parse(Endpoint::Completions, body.as_bytes(), options)
                .unwrap()
                .output_tokens
        };
        let mean = (0..2000)
            .map(|prompt| output(&options, prompt, false))
            .sum::<usize>() as f64
            / 2000.0;
        assert!((9.0..11.0).contains(&mean), "{mean}");
        assert_eq!(output(&options, 1, false), output(&options, 1, false));
        assert_eq!(output(&options, 1, true), 1000);
        options.faults.early_end = Some(0.25);
        assert_eq!(output(&options, 1, true), 250);
    }
}
