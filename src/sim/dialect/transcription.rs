//! Requests for transcriptions: forms with a recording. The longer it is, the more tokens the prompt and the answer have.

use std::collections::BTreeMap;

use crate::base::audio::Wav;
use crate::sim::dialect::request::{
    GenerationRequest, RequestError, answer_length, check_model, context_error,
};
use crate::sim::options::Options;
use crate::sim::text;

/// Prompt tokens per second of a recording: one for each step of 10 ms, as vLLM counts for Whisper.
const TOKENS_PER_SECOND: f64 = 100.0;
/// Prompt tokens before the recording: start, language, task and the token for no timestamps.
const OPENING: [u64; 4] = [1, 2, 3, 4];
/// Output tokens per second of a recording, about as fast as speech.
const SPOKEN_PER_SECOND: f64 = 4.0;

/// The parts of a form.
#[derive(Debug, Default, PartialEq)]
struct Form<'a> {
    fields: BTreeMap<String, String>,
    file: Option<&'a [u8]>,
}

/// Parses a request; `content_type` is that of the body.
pub(crate) fn parse(
    content_type: Option<&str>,
    body: &[u8],
    options: &Options,
) -> Result<GenerationRequest, RequestError> {
    let boundary = content_type.and_then(boundary).ok_or_else(|| {
        RequestError::bad_request("the `Content-Type` must be `multipart/form-data` with a `boundary`")
    })?;
    let form = parse_form(boundary, body).ok_or_else(|| {
        RequestError::bad_request("the body is not a complete form (`multipart/form-data`)")
    })?;
    let text = |name: &str| form.fields.get(name).map(String::as_str);
    let is_set = |name: &str| text(name).is_some_and(|value| matches!(value, "true" | "True" | "1"));
    let model = check_model(text("model"), options)?;
    if text("response_format").is_some_and(|format| format != "json") {
        return Err(RequestError::bad_request(
            "the simulated engine supports only the `response_format` `json`",
        ));
    }
    let (stream, usage) = (is_set("stream"), is_set("stream_include_usage"));
    let continuous_usage = is_set("stream_continuous_usage_stats");
    if (usage || continuous_usage) && !stream {
        return Err(RequestError::bad_request(
            "Stream options can only be defined when `stream=True`.",
        ));
    }
    let file = form.file.ok_or_else(|| RequestError {
        status: 422,
        message: "the form has no field `file`".to_owned(),
    })?;
    let unsupported = || RequestError::bad_request("Invalid or unsupported audio file.");
    let wav = Wav::read(file).map_err(|_| unsupported())?;
    let seconds = wav.seconds().ok_or_else(unsupported)?;
    let limit = text("max_completion_tokens").map(output_limit).transpose()?;
    let longest = options.max_model_len;
    // A head may claim billions of steps: they are counted before a prompt of them is made.
    let steps = steps(seconds);
    let least = OPENING.len().saturating_add(steps);
    if least >= longest {
        return Err(context_error(longest, least, limit.unwrap_or(0)));
    }
    let prompt = prompt(text("prompt"), &file[wav.samples], steps, longest);
    let room = longest.saturating_sub(prompt.len());
    let limit = limit.unwrap_or(room);
    if room == 0 || limit > room {
        return Err(context_error(longest, prompt.len(), limit));
    }
    let spoken = ((seconds * SPOKEN_PER_SECOND).round() as usize).max(1);
    let requested_tokens = spoken.min(limit);
    let key = text::answer_key(options.seed, &prompt);
    let output_tokens = answer_length(requested_tokens, true, key, options);
    Ok(GenerationRequest {
        model,
        key,
        varied_from: None,
        requested_tokens,
        output_tokens,
        is_early: output_tokens < limit && !options.faults.claim_full_length,
        stream,
        final_usage: usage,
        continuous_usage: usage && continuous_usage,
        audio_seconds: Some(seconds),
        prompt,
        structure: None,
    })
}

fn output_limit(text: &str) -> Result<usize, RequestError> {
    let limit = text.parse().ok().filter(|limit: &usize| *limit > 0);
    limit.ok_or_else(|| RequestError::bad_request("`max_completion_tokens` must be a whole number above 0"))
}

/// The number of prompt tokens of a recording.
fn steps(seconds: f64) -> usize {
    ((seconds * TOKENS_PER_SECOND).ceil() as usize).max(1)
}

/// The ids of a prompt: those of its text, and one for each step of the samples.
fn prompt(said: Option<&str>, samples: &[u8], steps: usize, longest: usize) -> Vec<u64> {
    let mut prompt = OPENING.to_vec();
    text::append_pieces(said.unwrap_or_default(), longest, &mut prompt);
    let step = samples.len().div_ceil(steps).max(1);
    prompt.extend((0..steps).map(|at| {
        let begin = (at * step).min(samples.len());
        let end = (begin + step).min(samples.len());
        text::piece_id(&samples[begin..end])
    }));
    prompt
}

/// Returns the boundary that a content type names; it has at least one character (RFC 2046, section 5.1.1).
fn boundary(content_type: &str) -> Option<&str> {
    let (kind, parameters) = content_type.split_once(';')?;
    let is_form = kind.trim().eq_ignore_ascii_case("multipart/form-data");
    let mut parameters = parameters.split(';').filter(|_| is_form);
    let boundary = parameters.find_map(|parameter| parameter.trim().strip_prefix("boundary="))?;
    Some(boundary.trim_matches('"')).filter(|boundary| !boundary.is_empty())
}

/// Parses a body up to its last boundary; `None` if that is missing.
fn parse_form<'a>(boundary: &str, body: &'a [u8]) -> Option<Form<'a>> {
    let mark = format!("\r\n--{boundary}").into_bytes();
    // The first boundary has no line before it.
    let mut rest = body.strip_prefix(&mark[2..])?;
    let mut form = Form::default();
    loop {
        if rest.starts_with(b"--") {
            return Some(form);
        }
        rest = rest.strip_prefix(b"\r\n")?;
        let head_length = find(rest, b"\r\n\r\n")?;
        let head = std::str::from_utf8(&rest[..head_length]).ok()?;
        let content = &rest[head_length + 4..];
        let length = find(content, &mark)?;
        match quoted(head, "name=\"")? {
            "file" => form.file = Some(&content[..length]),
            name => {
                let value = String::from_utf8_lossy(&content[..length]).into_owned();
                form.fields.insert(name.to_owned(), value);
            }
        }
        rest = &content[length + mark.len()..];
    }
}

fn quoted<'h>(head: &'h str, before: &str) -> Option<&'h str> {
    let begin = head.find(before)? + before.len();
    head[begin..].split('"').next()
}

/// Returns where the text begins in the bytes. Candidates are found by the first byte, because a recording is long.
fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    let first = *text.first()?;
    let mut from = 0;
    loop {
        let at = from + bytes.get(from..)?.iter().position(|byte| *byte == first)?;
        if bytes[at..].starts_with(text) {
            return Some(at);
        }
        from = at + 1;
    }
}

/// The seconds of a recording as the usage of a whole answer has them: rounded up.
pub(super) fn billed_seconds(seconds: f64) -> u64 {
    seconds.ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::audio::wav_file;
    use crate::sim::options::Dialect;

    fn options() -> Options {
        Options {
            dialect: Dialect::Vllm,
            models: vec!["m".to_owned()],
            ..Options::default()
        }
    }

    fn form(fields: &[(&str, &str)], file: Option<&[u8]>) -> Vec<u8> {
        let mut body = Vec::new();
        for (name, value) in fields {
            let field = format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
            body.extend_from_slice(field.as_bytes());
        }
        if let Some(file) = file {
            body.extend_from_slice(
                b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n",
            );
            body.extend_from_slice(file);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--b--\r\n");
        body
    }

    fn ask(fields: &[(&str, &str)], file: Option<&[u8]>) -> Result<GenerationRequest, RequestError> {
        parse(
            Some("multipart/form-data; boundary=b"),
            &form(fields, file),
            &options(),
        )
    }

    #[test]
    fn prompt_and_answer_are_as_long_as_the_recording() {
        let wav = |seconds: usize| wav_file(1, 8000, &vec![7; seconds * 8000]);
        for seconds in [1, 5, 30] {
            let asked = ask(&[("model", "m")], Some(&wav(seconds))).unwrap();
            assert_eq!(asked.prompt.len(), 4 + 100 * seconds);
            assert_eq!((asked.output_tokens, asked.is_early), (4 * seconds, true));
            assert_eq!((asked.stream, asked.audio_seconds), (false, Some(seconds as f64)));
        }
        let fields = [
            ("stream", "True"),
            ("stream_include_usage", "true"),
            ("max_completion_tokens", "3"),
            ("prompt", "two words"),
        ];
        let asked = ask(&fields, Some(&wav(5))).unwrap();
        assert_eq!(
            (asked.prompt.len(), asked.output_tokens, asked.is_early),
            (506, 3, false)
        );
        assert!(asked.stream && asked.final_usage && !asked.continuous_usage);
    }

    #[test]
    fn a_recording_longer_than_the_context_is_refused_before_its_prompt_is_made() {
        // One sample per second, 48 days long: a prompt of it would take gigabytes.
        let mut wav = wav_file(1, 8000, &vec![0; 1 << 22]);
        wav[24..28].copy_from_slice(&1_u32.to_le_bytes());
        let refused = ask(&[("model", "m"), ("max_completion_tokens", "5")], Some(&wav)).unwrap_err();
        assert_eq!(refused.status, 400);
        let says = "maximum context length is 32768 tokens. However, you requested at least 419430409 tokens (419430404 in the prompt, 5 \
                    in the output)";
        assert!(refused.message.contains(says), "{}", refused.message);
        // The longest recording that fits with one token of the answer.
        let fitting = wav_file(1, 100, &[7; 32_763]);
        assert_eq!(ask(&[], Some(&fitting)).unwrap().output_tokens, 1);
        let longer = wav_file(1, 100, &[7; 32_764]);
        assert!(
            ask(&[], Some(&longer))
                .unwrap_err()
                .message
                .contains("(32768 in the prompt, 0")
        );
    }

    #[test]
    fn what_cannot_be_transcribed_is_refused_with_its_reason() {
        let wav = wav_file(1, 8000, &[7; 8000]);
        let refused = |fields: &[(&str, &str)], file: Option<&[u8]>| {
            let error = ask(fields, file).unwrap_err();
            (error.status, error.message)
        };
        for (fields, file, status, reason) in [
            (&[("model", "other")][..], Some(&wav[..]), 404, "does not exist"),
            (&[], None, 422, "no field `file`"),
            (&[], Some(&b"ID3"[..]), 400, "Invalid or unsupported audio file"),
            (
                &[("stream_include_usage", "true")],
                Some(&wav),
                400,
                "stream=True",
            ),
            (
                &[("response_format", "srt")],
                Some(&wav),
                400,
                "only the `response_format`",
            ),
            (&[("max_completion_tokens", "0")], Some(&wav), 400, "whole number"),
            (
                &[("max_completion_tokens", "99999")],
                Some(&wav),
                400,
                "maximum context length",
            ),
        ] {
            let (found, message) = refused(fields, file);
            assert_eq!(found, status, "{message}");
            assert!(message.contains(reason), "{message}");
        }
        let body = form(&[("model", "m")], Some(&wav));
        for content_type in [
            None,
            Some("application/json"),
            Some("multipart/form-data; boundary=c"),
            Some("multipart/form-data"),
        ] {
            assert_eq!(parse(content_type, &body, &options()).unwrap_err().status, 400);
        }
        // An empty boundary would be that of a body whose lines are `--`.
        let lines = String::from_utf8_lossy(&form(&[("model", "m")], None)).replace("--b", "--");
        for content_type in [
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=\"\"",
        ] {
            let refused = parse(Some(content_type), lines.as_bytes(), &options()).unwrap_err();
            assert_eq!(refused.status, 400);
            assert!(
                refused.message.contains("with a `boundary`"),
                "{}",
                refused.message
            );
        }
        // Without its last boundary the body was cut.
        let cut = &body[..body.len() - 4];
        assert!(parse(Some("multipart/form-data; boundary=b"), cut, &options()).is_err());
    }
}
