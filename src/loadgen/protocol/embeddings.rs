//! OpenAI embeddings: `POST /v1/embeddings`. An answer is one JSON object. Its vectors are counted and not
//! kept.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::decoded::{BorrowedStr, Decoded, error_text};
use super::lenient;
use super::params::{EncodeError, RequestParams, prompt_value};
use crate::loadgen::dataset::Content;

pub(super) fn body(prompt: &Content, params: &RequestParams<'_>) -> Result<Map<String, Value>, EncodeError> {
    let mut body: Map<String, Value> = [("input", prompt_value(prompt)?), ("model", json!(params.model))]
        .map(|(key, value)| (key.to_owned(), value))
        .into_iter()
        .collect();
    // Unlike in a chat request, the fields of the scenario override the adapter.
    for key in ["model", "lora_path"] {
        if let Some(name) = params.lora {
            body.insert(key.to_owned(), json!(name));
        }
    }
    Ok(body)
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow, default)]
    data: Option<Vec<Embedding<'a>>>,
    #[serde(borrow, default)]
    model: Option<BorrowedStr<'a>>,
    #[serde(default)]
    usage: Option<Counts>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// Older servers send flat errors with `error` here and the text in `message`.
    #[serde(borrow, default)]
    object: Option<BorrowedStr<'a>>,
}

#[derive(Deserialize)]
struct Embedding<'a> {
    /// A vector: a list of numbers, or their bytes as a base64 text. vLLM's `/pooling` names it `data` and may nest lists.
    #[serde(borrow, default, alias = "data")]
    embedding: Option<&'a RawValue>,
}

impl Embedding<'_> {
    fn has_vector(&self) -> bool {
        let vector = self.embedding.map_or("", RawValue::get);
        vector.starts_with(['[', '"', '{']) && vector.bytes().any(|byte| byte.is_ascii_alphanumeric())
    }

    /// Whether a list has something else than numbers, such as the `null` that many servers write for NaN.
    fn has_no_number(&self) -> bool {
        let is_of_numbers = |byte: u8| byte.is_ascii_digit() || b"[], .-+eE\t\r\n".contains(&byte);
        let vector = self.embedding.map_or("", RawValue::get);
        vector.starts_with('[') && !vector.bytes().all(is_of_numbers)
    }

    /// The number of base64 digits of a text; `Err` if it is not base64, such as a message. `None` if it is no text.
    fn base64_digits(&self) -> Option<Result<usize, ()>> {
        let vector = self.embedding.map_or("", RawValue::get);
        let text = vector.strip_prefix('"')?.strip_suffix('"')?;
        // JSON may have a slash as `\/`.
        let digits = text.trim_end_matches('=').bytes().filter(|byte| *byte != b'\\');
        let (mut count, mut is_base64) = (0, true);
        for digit in digits {
            count += 1;
            is_base64 &= digit.is_ascii_alphanumeric() || b"+/-_".contains(&digit);
        }
        // One digit has fewer bits than a byte.
        Some(if is_base64 && count % 4 != 1 {
            Ok(count)
        } else {
            Err(())
        })
    }

    fn is_text(&self) -> bool {
        self.base64_digits() == Some(Err(()))
    }

    /// Whether a text is base64, and not of whole 32-bit floats.
    fn is_odd_base64(&self) -> bool {
        let digits = self.base64_digits().and_then(Result::ok);
        digits.is_some_and(|count| count * 3 / 4 % size_of::<f32>() != 0)
    }
}

/// What a complete answer has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpectedVectors {
    /// The number of vectors, one for each input; `None` if the inputs have an unknown form.
    count: Option<usize>,
    /// Whether they are the base64 text of 32-bit floats.
    is_base64: bool,
}

impl ExpectedVectors {
    /// `field` returns a field of the body; without `input` the prompt is the only one.
    pub(super) fn of_body<'v>(field: impl Fn(&str) -> Option<&'v Value>) -> Self {
        let count = match field("input") {
            None | Some(Value::String(_)) => Some(1),
            Some(Value::Array(inputs)) => match inputs.first() {
                Some(Value::String(_) | Value::Array(_)) => Some(inputs.len()),
                Some(Value::Number(_)) => Some(1),
                _ => None,
            },
            Some(_) => None,
        };
        let is = |name: &str, wanted: &str| field(name).is_some_and(|value| value == wanted);
        let is_float = field("embed_dtype").is_none() || is("embed_dtype", "float32");
        Self {
            count,
            is_base64: is("encoding_format", "base64") && is_float,
        }
    }

    /// Says what an answer with vectors has instead.
    pub(super) fn error(self, decoded: &Decoded) -> Option<String> {
        let count = self.count.filter(|count| *count != decoded.vectors);
        if let Some(count) = count.filter(|_| decoded.vectors > 0) {
            let found = decoded.vectors;
            return Some(format!(
                "the answer has {found} vectors instead of {count}, one for each input"
            ));
        }
        let place = decoded.odd_base64.filter(|_| self.is_base64)?;
        Some(format!(
            "vector {place} of the answer (counted from 0) is not in the requested format, base64 of 32-bit floats"
        ))
    }
}

/// Some servers report only the total, which consists of prompt tokens.
#[derive(Deserialize)]
struct Counts {
    #[serde(default, deserialize_with = "lenient::prompt_count")]
    prompt_tokens: Option<u32>,
    #[serde(default, deserialize_with = "lenient::prompt_count")]
    total_tokens: Option<u32>,
}

/// Reads an answer; returns the server's message if it reports an error.
pub(super) fn read(json: &str, decoded: &mut Decoded) -> Result<Option<String>, serde_json::Error> {
    let answer: Answer<'_> = serde_json::from_str(json)?;
    if let Some(error) = answer.error {
        return Ok(Some(error_text(error.get())));
    }
    if BorrowedStr::as_text(&answer.object) == "error" {
        return Ok(Some(error_text(json)));
    }
    let reported = answer
        .usage
        .and_then(|usage| usage.prompt_tokens.or(usage.total_tokens));
    if let Some(tokens) = reported {
        decoded.usage.get_or_insert_default().prompt = Some(tokens).filter(|tokens| *tokens > 0);
    }
    decoded.note_model(answer.model);
    let embeddings = answer.data.unwrap_or_default();
    let vectors = embeddings.iter().filter(|one| one.has_vector()).count();
    decoded.vectors += vectors;
    decoded.odd_base64 = embeddings.iter().position(Embedding::is_odd_base64);
    let wrong = |place, why| format!("vector {place} of the answer (counted from 0) is invalid: {why}");
    // An answer without any vector has no output.
    if vectors > 0
        && let Some(place) = embeddings.iter().position(|one| !one.has_vector())
    {
        return Ok(Some(wrong(place, "it is empty")));
    }
    if let Some(place) = embeddings.iter().position(Embedding::is_text) {
        return Ok(Some(wrong(
            place,
            "the vector is a text that is not valid base64",
        )));
    }
    let other = embeddings.iter().position(Embedding::has_no_number);
    let why = "some values of the vector are not numbers, for example null instead of NaN";
    Ok(other.map(|place| wrong(place, why)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loadgen::protocol::{Decoder, ExpectedResults, LineKind};
    use crate::plan::Protocol;

    /// What is wrong with an answer to a request with these fields.
    fn error(fields: &Value, data: &str) -> Option<String> {
        let expected = ExpectedVectors::of_body(|name| fields.get(name));
        let mut decoder = Decoder::new(Protocol::Embeddings, 1 << 20)
            .expect_results(Some(ExpectedResults::Vectors(expected)));
        let answer = format!("{{\"data\":{data},\"usage\":{{\"prompt_tokens\":4}}}}");
        decoder.push(LineKind::Plain, answer.as_bytes(), 1);
        decoder.finish(true).failure.map(|failure| failure.message)
    }

    #[test]
    fn each_input_has_one_vector_that_is_not_empty() {
        let vector = r#"{"embedding":[0.5]}"#;
        let pooled = r#"{"data":[[0.5,-1E-3],[2,3]]}"#;
        let empty = r#"{"embedding":[]}"#;
        let ids = json!({"input": [[1, 2], [3]]});
        let texts = json!({"input": ["a", "b"]});
        let unknown = json!({"input": [{"text": "a"}]});
        for (fields, vectors, found) in [
            (&json!({}), vec![vector], None),
            (&json!({"input": "a"}), vec![pooled], None),
            (&json!({"input": [1, 2]}), vec![vector], None),
            (&ids, vec![vector, vector], None),
            (&texts, vec![pooled, pooled], None),
            (&unknown, vec![vector, vector], None),
            (&json!({}), vec![vector, vector], Some("2 vectors instead of 1")),
            (&texts, vec![vector], Some("1 vectors instead of 2")),
            (
                &ids,
                vec![vector, empty],
                Some("vector 1 of the answer (counted from 0) is invalid: it is empty"),
            ),
            (
                &json!({}),
                vec![empty, vector],
                Some("vector 0 of the answer (counted from 0) is invalid: it is empty"),
            ),
            (&texts, vec![empty, empty], Some("the response has no output")),
        ] {
            let message = error(fields, &format!("[{}]", vectors.join(",")));
            match found {
                None => assert_eq!(message, None, "{fields} {vectors:?}"),
                Some(found) => assert!(message.unwrap().contains(found), "{fields} {vectors:?}"),
            }
        }
    }

    #[test]
    fn a_vector_has_numbers_or_the_base64_of_whole_floats_where_that_was_requested() {
        let plain = json!({});
        let base64 = json!({"encoding_format": "base64"});
        let half = json!({"encoding_format": "base64", "embed_dtype": "float16"});
        for (fields, vector, is_right) in [
            (&plain, "[1, -2.5e+3,\n 0]", true),
            (&plain, "[[1],[2]]", true),
            (&plain, "[null,1]", false),
            (&plain, "[NaN]", false),
            (&plain, "[\"a\",\"b\"]", false),
            (&plain, "[true]", false),
            (&plain, "\"AAAA\"", true),
            (&plain, "\"error: out of memory\"", false),
            (&base64, "\"zczMPQ==\"", true),
            (&base64, "\"zczMPQ\"", true),
            (&base64, "\"AACAPwAAgD8AAIA\\/\"", true),
            (&base64, "[1]", true),
            (&base64, "\"AAAA\"", false),
            (&base64, "\"zczMP\"", false),
            (&base64, "\"zcz!PQ==\"", false),
            (&half, "\"AAAA\"", true),
        ] {
            let message = error(fields, &format!("[{{\"embedding\":{vector}}}]"));
            assert_eq!(message.is_none(), is_right, "{fields} {vector}: {message:?}");
        }
    }
}
