//! Encodes the bodies of requests.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::embeddings::ExpectedVectors;
use super::expected_results::ExpectedResults;
use super::params::{EncodeError, RequestParams};
use super::rerank::ExpectedRanking;
use super::{form, messages, responses, transcription, vllm_serve};
use crate::config::api::{BodyForm, ClientStyle, Feature, SamplingFields};
use crate::loadgen::dataset::Content;
use crate::loadgen::request::SharedFile;
use crate::plan::{Protocol, ProtocolSpec, UsageRequest};

/// The header by which a router recognises requests that belong together.
pub(crate) const ROUTING_KEY_HEADER: &str = "X-SMG-Routing-Key";

/// The header with the id of a request, under which vLLM logs it.
pub(crate) const REQUEST_ID_HEADER: &str = "x-request-id";

pub(crate) fn path(dialect: &ProtocolSpec) -> &str {
    let named = dialect.path.as_deref();
    named.unwrap_or(dialect.protocol.facts().path)
}

/// The body of a request.
pub(crate) struct EncodedBody {
    /// The value of `Content-Type`.
    pub(crate) media_type: Cow<'static, str>,
    /// All bytes but those of a file.
    pub(crate) own: Vec<u8>,
    pub(crate) file: Option<SharedFile>,
}

/// Encodes the body of one request in the form of the protocol.
///
/// # Errors
/// The protocol has no place for something that the row carries.
pub(crate) fn encode_body(
    dialect: &ProtocolSpec,
    prompt: &Content,
    params: &RequestParams<'_>,
) -> Result<EncodedBody, EncodeError> {
    match dialect.protocol.facts().body {
        BodyForm::Json => Ok(EncodedBody {
            media_type: Cow::Borrowed("application/json"),
            own: encode(dialect, prompt, params)?,
            file: None,
        }),
        BodyForm::Multipart => {
            let fields = body_fields(dialect, prompt, params)?;
            transcription::check_format(&fields)?;
            Ok(form::encode(&fields, transcription::clip(prompt), dialect.style))
        }
    }
}

/// Encodes the body of one request as JSON.
///
/// # Errors
/// The protocol has no place for something that the row carries.
pub(crate) fn encode(
    dialect: &ProtocolSpec,
    prompt: &Content,
    params: &RequestParams<'_>,
) -> Result<Vec<u8>, EncodeError> {
    let fields = body_fields(dialect, prompt, params)?;
    Ok(serde_json::to_vec(&fields).expect("a JSON map has string keys"))
}

/// Returns the fields of a body.
///
/// Fields of the scenario replace whole fields, as bench_serving's extra body does, and fields of the row
/// come after them. Fields of the dialect are merged into objects, so that they can set a temperature for
/// `/generate` without knowing the requested length.
fn body_fields(
    dialect: &ProtocolSpec,
    prompt: &Content,
    params: &RequestParams<'_>,
) -> Result<Map<String, Value>, EncodeError> {
    check_supported(dialect.protocol, prompt, params)?;
    if dialect.style == ClientStyle::VllmServe {
        return vllm_serve::fields(dialect, prompt, params);
    }
    let mut body = super::body(dialect.protocol, prompt, params)?;
    const STREAM_OPTIONS: &str = "stream_options";
    // A form has no objects, so its field has another name.
    let (usage_field, usage_value) = match dialect.protocol {
        Protocol::Transcription => ("stream_include_usage", Some(Value::Bool(true))),
        protocol => (
            STREAM_OPTIONS,
            protocol
                .facts()
                .stream_options
                .then(|| json!({"include_usage": true})),
        ),
    };
    let usage_value = usage_value.filter(|_| dialect.usage == UsageRequest::StreamOptions);
    let is_asked = usage_value.is_some();
    if let Some(value) = usage_value {
        body.insert(usage_field.to_owned(), value);
    }
    let mut is_overridden = false;
    for (key, value) in &dialect.body {
        is_overridden |= key == usage_field;
        match (body.get_mut(key), value) {
            (Some(Value::Object(there)), Value::Object(more)) => {
                more.iter().for_each(|(key, value)| set_field(there, key, value));
            }
            _ => set_field(&mut body, key, value),
        }
    }
    for (key, value) in params.body {
        is_overridden |= key == usage_field;
        set_field(&mut body, key, value);
    }
    // The row's own fields are those of a recorded request. A `null` there was sent as `null`.
    for (key, value) in params.extras.iter().flat_map(|extras| &extras.body) {
        is_overridden |= key == usage_field;
        let (key, value) = row_field(dialect.protocol, key, value);
        body.insert(key, value);
    }
    put_lora(&mut body, dialect.protocol, params);
    put_images(&mut body, dialect.protocol, prompt);
    let streams = body.get("stream") == Some(&Value::Bool(true));
    if params.is_conversation() && streams && dialect.protocol.facts().stream_options {
        let options = body.entry(STREAM_OPTIONS).or_insert_with(|| json!({}));
        if let Value::Object(options) = options {
            options.entry("include_usage").or_insert(Value::Bool(true));
        }
    }
    // Servers reject stream options on an answer that does not stream.
    if is_asked && !is_overridden && !streams {
        body.shift_remove(usage_field);
    }
    Ok(body)
}

/// Returns the maximum of output tokens that a body allows, summed over its choices. This is the requested
/// number, unless added fields change it. `None` for embeddings.
pub(crate) fn output_limit(dialect: &ProtocolSpec, params: &RequestParams<'_>) -> Option<u32> {
    let facts = dialect.protocol.facts();
    if !facts.generates_text {
        return None;
    }
    let row = params.extras.map(|extras| &extras.body);
    let (mut tokens, mut choices) = (None, 1);
    for fields in [Some(&dialect.body), Some(params.body), row]
        .into_iter()
        .flatten()
    {
        let fields = match facts.sampling {
            SamplingFields::Nested(parent) => fields.get(parent).and_then(Value::as_object),
            SamplingFields::TopLevel | SamplingFields::None => Some(fields),
        };
        let number = |key: &&str| fields?.get(*key)?.as_u64();
        tokens = facts.limit_fields.iter().find_map(number).or(tokens);
        choices = number(&"n").unwrap_or(choices);
    }
    let all = tokens.unwrap_or(u64::from(params.tokens)).saturating_mul(choices);
    Some(u32::try_from(all).unwrap_or(u32::MAX))
}

/// Returns the model that a body names, if it differs from the load's model.
pub(crate) fn other_model(dialect: &ProtocolSpec, params: &RequestParams<'_>) -> Option<String> {
    let row = params.extras.map(|extras| &extras.body);
    // The last field that names a model wins.
    let named = [row, Some(params.body), Some(&dialect.body)]
        .into_iter()
        .flatten()
        .find_map(|fields| fields.get("model")?.as_str());
    let name = params.lora.or(named)?;
    (name != params.model).then(|| name.to_owned())
}

/// Returns what a complete answer has; `None` where it is not known, and for answers with text.
pub(crate) fn expected_results(
    dialect: &ProtocolSpec,
    params: &RequestParams<'_>,
) -> Option<ExpectedResults> {
    match dialect.protocol {
        Protocol::Rerank => expected_ranking(dialect, params).map(ExpectedResults::Ranking),
        Protocol::Embeddings => {
            // The last field of a name wins.
            let row = params.extras.map(|extras| &extras.body);
            let fields = [row, Some(params.body), Some(&dialect.body)];
            let field = |name: &str| fields.into_iter().flatten().find_map(|fields| fields.get(name));
            Some(ExpectedResults::Vectors(ExpectedVectors::of_body(field)))
        }
        _ => None,
    }
}

/// Returns what a complete ranking has: a result for each document of the row, or as many as the body asks for.
/// `None` for rows without documents, such as that of the warm-up.
fn expected_ranking(dialect: &ProtocolSpec, params: &RequestParams<'_>) -> Option<ExpectedRanking> {
    let documents = params.extras?.documents()?.len();
    let most = [params.body, &dialect.body]
        .into_iter()
        .find_map(|fields| usize::try_from(fields.get("top_n")?.as_u64()?).ok());
    Some(ExpectedRanking {
        results: most.map_or(documents, |most| documents.min(most)),
        documents,
    })
}

/// Rejects what a row carries and the protocol cannot.
fn check_supported(
    protocol: Protocol,
    prompt: &Content,
    params: &RequestParams<'_>,
) -> Result<(), EncodeError> {
    let content = match prompt {
        Content::Text(_) => None,
        Content::Messages(_) => Some((Feature::Messages, EncodeError::MessagesOutsideChat)),
        Content::Images { .. } => Some((Feature::Images, EncodeError::Images)),
        Content::Ids(_) => Some((Feature::TokenIds, EncodeError::Ids(protocol))),
        Content::Audio(_) => Some((Feature::Audio, EncodeError::Audio)),
    };
    let carried = [
        params
            .is_conversation()
            .then_some((Feature::Messages, EncodeError::TurnsOutsideChat)),
        params.lora.map(|_| (Feature::LoraName, EncodeError::Lora)),
        params
            .routing_key()
            .map(|_| (Feature::RoutingKey, EncodeError::RoutingKey)),
        content,
    ];
    let mut carried = carried.into_iter().flatten();
    match carried.find(|(feature, _)| !protocol.carries(*feature)) {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

/// Sets the adapter in the model field of OpenAI's protocols. This overrides the fields of the scenario.
fn put_lora(body: &mut Map<String, Value>, protocol: Protocol, params: &RequestParams<'_>) {
    let keys: &[&str] = match protocol {
        Protocol::Completions | Protocol::Chat => &["model", "lora_path"],
        Protocol::Messages | Protocol::Responses => &["model"],
        _ => &[],
    };
    if let Some(name) = params.lora {
        for key in keys {
            body.insert((*key).to_owned(), json!(name));
        }
    }
}

/// Adds images for protocols that take them next to the prompt.
fn put_images(body: &mut Map<String, Value>, protocol: Protocol, prompt: &Content) {
    if let Content::Images { images, .. } = prompt
        && matches!(protocol, Protocol::Completions | Protocol::SglangNative)
    {
        let images: Vec<&str> = images.iter().map(|image| &**image).collect();
        body.insert("image_data".to_owned(), json!(images));
    }
}

/// Returns a field of a row, which is one of a chat request, as the protocol writes it.
fn row_field(protocol: Protocol, key: &str, value: &Value) -> (String, Value) {
    match protocol {
        Protocol::Messages => messages::row_field(key, value),
        Protocol::Responses => responses::row_field(key, value),
        _ => (key.to_owned(), value.clone()),
    }
}

/// Sets a field; `null` removes it.
fn set_field(fields: &mut Map<String, Value>, key: &str, value: &Value) {
    match value {
        // `remove` would move the last key into the gap.
        Value::Null => drop(fields.shift_remove(key)),
        value => drop(fields.insert(key.to_owned(), value.clone())),
    }
}
