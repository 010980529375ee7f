//! The bodies of `vllm bench serve`: its fields, in its order.

use serde_json::{Map, Value, json};

use super::params::{EncodeError, RequestParams, prompt_value};
use crate::config::api::EmbeddingsForm;
use crate::loadgen::dataset::Content;
use crate::plan::{Protocol, ProtocolSpec};

/// Returns the fields of the body of one request. Fields of the dialect, of the scenario and of the row replace those before
/// them as they are: unlike in other bodies, `null` is sent.
pub(super) fn fields(
    dialect: &ProtocolSpec,
    prompt: &Content,
    params: &RequestParams<'_>,
) -> Result<Map<String, Value>, EncodeError> {
    let mut body = protocol_fields(dialect, prompt, params)?;
    // The tool sends no other fields with rerank.
    if dialect.protocol == Protocol::Rerank {
        return Ok(body);
    }
    if !params.stop_at_eos {
        body.insert("ignore_eos".to_owned(), Value::Bool(true));
    }
    let row = params.extras.map(|extras| &extras.body);
    for fields in [Some(&dialect.body), Some(params.body), row]
        .into_iter()
        .flatten()
    {
        body.extend(fields.clone());
    }
    Ok(body)
}

fn protocol_fields(
    dialect: &ProtocolSpec,
    prompt: &Content,
    params: &RequestParams<'_>,
) -> Result<Map<String, Value>, EncodeError> {
    let model = json!(params.lora.unwrap_or(params.model));
    let usage = json!({"include_usage": true});
    let uncut = ("truncate_prompt_tokens", json!(-1));
    let fields = match dialect.protocol {
        Protocol::Chat => vec![
            ("model", model),
            ("messages", messages(prompt)?),
            ("max_completion_tokens", json!(params.tokens)),
            ("stream", json!(true)),
            ("stream_options", usage),
        ],
        Protocol::Responses => vec![
            ("model", model),
            ("input", prompt_value(prompt)?),
            ("max_output_tokens", json!(params.tokens)),
            ("stream", json!(true)),
            ("store", json!(false)),
        ],
        Protocol::Transcription => vec![
            ("model", model),
            ("max_completion_tokens", json!(params.tokens)),
            ("stream", json!(true)),
            ("language", json!("en")),
            ("stream_include_usage", json!(true)),
            ("stream_continuous_usage_stats", json!(true)),
        ],
        Protocol::Rerank => vec![
            ("model", model),
            ("query", prompt_value(prompt)?),
            (
                "documents",
                json!(params.extras.and_then(|extras| extras.documents())),
            ),
            uncut,
        ],
        Protocol::Embeddings => match dialect.embeddings {
            EmbeddingsForm::Input => vec![("model", model), ("input", prompt_value(prompt)?), uncut],
            EmbeddingsForm::Messages => vec![("model", model), ("messages", messages(prompt)?), uncut],
            EmbeddingsForm::Infinity => vec![("model", model), ("input", prompt_value(prompt)?)],
            EmbeddingsForm::Pooling => vec![("model", model), uncut, ("input", prompt_value(prompt)?)],
        },
        _ => vec![
            ("model", model),
            ("prompt", prompt_value(prompt)?),
            ("repetition_penalty", json!(1.0)),
            ("max_tokens", json!(params.tokens)),
            ("logprobs", Value::Null),
            ("stream", json!(true)),
            ("stream_options", usage),
        ],
    };
    Ok(fields
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect())
}

fn messages(prompt: &Content) -> Result<Value, EncodeError> {
    match prompt {
        Content::Messages(messages) => Ok(json!(messages)),
        Content::Ids(_) => Err(EncodeError::Ids(Protocol::Chat)),
        prompt => Ok(json!([
            {"role": "user", "content": [{"type": "text", "text": prompt_value(prompt)?}]}
        ])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{ClientStyle, UsageRequest};

    fn body(protocol: Protocol, stop_at_eos: bool, extra: Value) -> String {
        body_in(protocol, EmbeddingsForm::Input, stop_at_eos, extra)
    }

    fn body_in(protocol: Protocol, embeddings: EmbeddingsForm, stop_at_eos: bool, extra: Value) -> String {
        let dialect = ProtocolSpec {
            protocol,
            path: None,
            usage: UsageRequest::StreamOptions,
            body: Map::new(),
            routing_key_header: None,
            embeddings,
            style: ClientStyle::VllmServe,
        };
        let extra = extra.as_object().cloned().unwrap_or_default();
        let params = RequestParams::without_extras("m", 7, stop_at_eos, &extra);
        let body = super::super::encode(&dialect, &Content::Text("hi".to_owned().into()), &params);
        String::from_utf8(body.unwrap()).unwrap()
    }

    #[test]
    fn bodies_have_the_fields_of_vllm_in_its_order() {
        assert_eq!(
            body(
                Protocol::Completions,
                false,
                json!({"temperature": 0.5, "logprobs": 3})
            ),
            r#"{"model":"m","prompt":"hi","repetition_penalty":1.0,"max_tokens":7,"logprobs":3,"stream":true,"stream_options":{"include_usage":true},"ignore_eos":true,"temperature":0.5}"#
        );
        assert_eq!(
            body(Protocol::Chat, true, json!({"stop": null})),
            r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"max_completion_tokens":7,"stream":true,"stream_options":{"include_usage":true},"stop":null}"#
        );
        assert_eq!(
            body(Protocol::Embeddings, true, json!({})),
            r#"{"model":"m","input":"hi","truncate_prompt_tokens":-1}"#
        );
        assert_eq!(
            body(Protocol::Responses, false, json!({"temperature": 0})),
            r#"{"model":"m","input":"hi","max_output_tokens":7,"stream":true,"store":false,"ignore_eos":true,"temperature":0}"#
        );
        for (form, expected) in [
            (
                EmbeddingsForm::Messages,
                r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"truncate_prompt_tokens":-1}"#,
            ),
            (EmbeddingsForm::Infinity, r#"{"model":"m","input":"hi"}"#),
            (
                EmbeddingsForm::Pooling,
                r#"{"model":"m","truncate_prompt_tokens":-1,"input":"hi"}"#,
            ),
        ] {
            assert_eq!(body_in(Protocol::Embeddings, form, true, json!({})), expected);
        }
    }
}
