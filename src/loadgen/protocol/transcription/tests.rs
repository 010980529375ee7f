use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::base::audio::wav_file;
use crate::loadgen::dataset::{AudioClip, Content, Extras};
use crate::loadgen::protocol::{Decoded, Decoder, EncodeError, LineKind, RequestParams, encode_body};
use crate::plan::{ClientStyle, Protocol, ProtocolSpec, UsageRequest};
use crate::results::record::request::{RequestFailureClass, Usage};

fn clip(name: &str) -> Content {
    let bytes = wav_file(1, 8000, &[300; 800]);
    Content::Audio(Arc::new(
        AudioClip::from_file(Path::new(name), bytes, None).unwrap(),
    ))
}

/// Returns the content type, and the body with the file's samples as `FILE`.
fn encoded(
    prompt: &Content,
    style: ClientStyle,
    tokens: u32,
    body: &Value,
    extras: Option<&Extras>,
) -> Result<(String, String), EncodeError> {
    let dialect = ProtocolSpec {
        protocol: Protocol::Transcription,
        path: None,
        usage: UsageRequest::StreamOptions,
        body: Map::new(),
        style,
        routing_key_header: None,
        embeddings: Default::default(),
    };
    let fields = body.as_object().unwrap();
    let params = RequestParams {
        extras,
        ..RequestParams::without_extras("m", tokens, true, fields)
    };
    let body = encode_body(&dialect, prompt, &params)?;
    let file = body.file.unwrap();
    if let Content::Audio(clip) = prompt {
        // The file is not copied.
        assert_eq!(file.bytes.as_ptr(), clip.bytes().as_ptr());
    }
    let text = [&body.own[..file.at], b"FILE", &body.own[file.at..]].concat();
    let boundary = body.media_type.rsplit_once("boundary=").unwrap().1.to_owned();
    let text = String::from_utf8(text)
        .unwrap()
        .replace(&boundary, "B")
        .replace("\r\n", "\n");
    Ok((body.media_type.replace(&boundary, "B"), text))
}

fn field(name: &str, value: &str) -> String {
    format!("--B\nContent-Disposition: form-data; name=\"{name}\"\n\n{value}\n")
}

#[test]
fn a_form_has_the_fields_and_then_the_file() {
    let extras = Extras {
        body: Map::from_iter([
            ("language".to_owned(), json!("en")),
            ("prompt".to_owned(), json!("a \"b\"")),
        ]),
        ..Extras::default()
    };
    let body = json!({"temperature": null, "timestamp_granularities[]": ["word", "segment"], "vllm_xargs": {"a": 1}});
    let (media_type, text) = encoded(
        &clip("x/a.wav"),
        ClientStyle::BenchServing,
        5,
        &body,
        Some(&extras),
    )
    .unwrap();
    assert_eq!(media_type, "multipart/form-data; boundary=B");
    let expected = [
        field("model", "m"),
        field("response_format", "json"),
        field("stream", "true"),
        field("max_completion_tokens", "5"),
        field("stream_include_usage", "true"),
        field("timestamp_granularities[]", "word"),
        field("timestamp_granularities[]", "segment"),
        field("vllm_xargs", "{\"a\":1}"),
        field("language", "en"),
        field("prompt", "a \"b\""),
        "--B\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\nContent-Type: audio/wav\n\nFILE\n--B--\n".to_owned(),
    ];
    assert_eq!(text, expected.concat());
}

#[test]
fn an_answer_that_is_not_streamed_is_not_asked_for_counts() {
    let (_, text) = encoded(
        &clip("a.flac.wav"),
        ClientStyle::BenchServing,
        0,
        &json!({"stream": false}),
        None,
    )
    .unwrap();
    assert!(text.contains(&field("stream", "false")), "{text}");
    assert!(
        !text.contains("stream_include_usage") && !text.contains("max_completion_tokens"),
        "{text}"
    );
}

#[test]
fn a_prompt_without_a_recording_becomes_silence() {
    let prompt = Content::Text("hello".to_owned().into());
    let (_, text) = encoded(&prompt, ClientStyle::BenchServing, 1, &json!({}), None).unwrap();
    assert!(text.contains("filename=\"silence.wav\""), "{text}");
}

#[test]
fn a_form_of_vllm_begins_with_the_file_and_has_pythons_words() {
    let (_, text) = encoded(&clip("a.wav"), ClientStyle::VllmServe, 5, &json!({}), None).unwrap();
    let expected = [
        "--B\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\nContent-Type: audio/wav\n\nFILE\n".to_owned(),
        field("model", "m"),
        field("max_completion_tokens", "5"),
        field("stream", "True"),
        field("language", "en"),
        field("stream_include_usage", "True"),
        field("stream_continuous_usage_stats", "True"),
        "--B--\n".to_owned(),
    ];
    assert_eq!(text, expected.concat());
}

#[test]
fn a_name_cannot_break_the_head_of_its_part() {
    let (_, text) = encoded(
        &clip("a\"\r\nb.wav"),
        ClientStyle::BenchServing,
        5,
        &json!({}),
        None,
    )
    .unwrap();
    assert!(
        text.contains("filename=\"a%22%0A%0Ab.wav\"\nContent-Type"),
        "{text}"
    );
}

#[test]
fn an_answer_that_is_no_json_is_refused_before_it_is_asked_for() {
    for format in ["text", "srt", "vtt"] {
        let body = json!({"response_format": format});
        let refused = encoded(&clip("a.wav"), ClientStyle::BenchServing, 5, &body, None);
        assert_eq!(refused, Err(EncodeError::ResponseFormat), "{format}");
    }
    let body = json!({"response_format": "verbose_json"});
    assert!(encoded(&clip("a.wav"), ClientStyle::BenchServing, 5, &body, None).is_ok());
}

fn decode(events: &[Value], kind: LineKind, may_be_empty: bool) -> Decoded {
    let mut decoder = Decoder::new(Protocol::Transcription, 1 << 20).allow_empty(may_be_empty);
    for (event, at) in events.iter().zip(1..) {
        let event = event.to_string();
        if kind == LineKind::Plain || !decoder.push_fast(event.as_bytes(), at) {
            decoder.push(kind, event.as_bytes(), at);
        }
    }
    decoder.finish(true)
}

fn chunk(text: &str, more: &Value) -> Value {
    let mut event = json!({"id": "i", "object": "transcription.chunk", "created": 1, "model": "m",
        "choices": [{"delta": {"content": text}}]});
    for (key, value) in more.as_object().unwrap() {
        match key.as_str() {
            "usage" => event["usage"] = value.clone(),
            key => event["choices"][0][key] = value.clone(),
        }
    }
    event
}

fn counts(prompt: u32, output: u32) -> Value {
    json!({"prompt_tokens": prompt, "total_tokens": prompt + output, "completion_tokens": output})
}

#[test]
fn chunks_of_vllm_are_read_with_a_finish_reason_for_each_piece() {
    let bare = json!({});
    let decoded = decode(
        &[
            chunk("a", &bare),
            chunk(" b", &bare),
            chunk(" c", &bare),
            chunk("", &json!({"finish_reason": "stop", "stop_reason": null})),
            chunk(" d", &json!({"finish_reason": "length"})),
            json!({"object": "transcription.chunk", "choices": [], "usage": counts(354, 5)}),
        ],
        LineKind::Event,
        true,
    );
    assert_eq!(decoded.failure, None);
    assert_eq!((decoded.text.in_memory(), decoded.chunks.len()), ("a b c d", 4));
    assert_eq!(decoded.finish.as_deref(), Some("length"));
    // Only `[DONE]` ends the stream.
    assert!(!decoded.is_ended);
    let usage = Usage {
        prompt: Some(354),
        completion: Some(5),
        ..Usage::default()
    };
    assert_eq!(
        (decoded.usage, decoded.models),
        (Some(usage), vec!["m".to_owned()])
    );
}

#[test]
fn a_count_in_each_event_counts_its_tokens() {
    let events: Vec<Value> = (1..4)
        .map(|at| chunk("a", &json!({"usage": counts(10, 2 * at)})))
        .collect();
    let decoded = decode(&events, LineKind::Event, true);
    let tokens: Vec<_> = decoded.chunks.iter().map(|chunk| chunk.tokens).collect();
    assert_eq!(tokens, [Some(2), Some(4), Some(6)]);
}

#[test]
fn events_of_openai_end_with_the_whole_text() {
    let done = |text: &str| {
        json!({"type": "transcript.text.done", "text": text, "usage": {"type": "tokens", "input_tokens": 14,
            "input_token_details": {"text_tokens": 10, "audio_tokens": 4}, "output_tokens": 3, "total_tokens": 17}})
    };
    let delta = |text: &str| json!({"type": "transcript.text.delta", "delta": text});
    let segment = json!({"type": "transcript.text.segment", "id": "s", "text": "I see", "speaker": "A"});
    for (events, text, chunks) in [
        (
            vec![delta("I"), delta(" see"), segment, done("I see")],
            "I see",
            2,
        ),
        (vec![done("I see")], "I see", 1),
        (vec![done("")], "", 0),
    ] {
        let decoded = decode(&events, LineKind::Event, true);
        assert_eq!((decoded.failure.as_ref(), decoded.is_ended), (None, true));
        assert_eq!((decoded.text.in_memory(), decoded.chunks.len()), (text, chunks));
        let usage = decoded.usage.unwrap();
        assert_eq!((usage.prompt, usage.completion), (Some(14), Some(3)));
    }
}

#[test]
fn seconds_are_no_tokens() {
    let answer = json!({"text": "I see", "usage": {"type": "duration", "seconds": 4}});
    let verbose =
        json!({"task": "transcribe", "duration": 3.5, "language": "en", "text": "I see", "segments": []});
    for answer in [answer, verbose] {
        let decoded = decode(std::slice::from_ref(&answer), LineKind::Plain, true);
        assert_eq!(
            (decoded.failure.as_ref(), decoded.usage),
            (None, None),
            "{answer}"
        );
        assert_eq!((decoded.text.in_memory(), decoded.is_ended), ("I see", true));
    }
}

#[test]
fn silence_is_an_answer_and_an_answer_without_a_text_is_none() {
    let empty = json!({"text": "", "usage": {"type": "duration", "seconds": 4}});
    assert_eq!(decode(&[empty], LineKind::Plain, true).failure, None);
    for (answer, class, message) in [
        (
            json!({"usage": {"type": "duration", "seconds": 4}}),
            RequestFailureClass::Empty,
            "no output",
        ),
        (
            json!({"error": {"message": "too long"}}),
            RequestFailureClass::ErrorEvent,
            "too long",
        ),
        (
            json!({"error": "too long"}),
            RequestFailureClass::ErrorEvent,
            "too long",
        ),
        (
            json!({"object": "error", "message": "too long"}),
            RequestFailureClass::ErrorEvent,
            "too long",
        ),
        (
            json!({"type": "error", "message": "too long"}),
            RequestFailureClass::ErrorEvent,
            "too long",
        ),
        (
            json!({"detail": "Not Found"}),
            RequestFailureClass::ErrorEvent,
            "Not Found",
        ),
        (
            json!({"status": "failed", "message": "x"}),
            RequestFailureClass::ErrorEvent,
            "x",
        ),
    ] {
        let failure = decode(std::slice::from_ref(&answer), LineKind::Plain, true)
            .failure
            .unwrap();
        assert_eq!(failure.class, class, "{answer}");
        assert!(failure.message.contains(message), "{answer}: {}", failure.message);
    }
}

#[test]
fn the_seconds_that_an_answer_reports_are_kept() {
    let usage = |seconds: Value| json!({"type": "duration", "seconds": seconds});
    for (answer, seconds) in [
        (json!({"text": "a", "usage": usage(json!(30))}), Some(30.0)),
        (json!({"text": "a", "duration": 30.5}), Some(30.5)),
        (json!({"text": "a", "duration": "30.5"}), Some(30.5)),
        (
            json!({"text": "a", "duration": 60.0, "usage": usage(json!(30))}),
            Some(30.0),
        ),
        (
            json!({"text": "a", "duration": "long", "usage": usage(json!(-1))}),
            None,
        ),
        (json!({"text": "a", "usage": {"input_tokens": 4}}), None),
    ] {
        let decoded = decode(std::slice::from_ref(&answer), LineKind::Plain, true);
        assert_eq!(decoded.audio_seconds, seconds, "{answer}");
        assert_eq!(decoded.failure, None, "{answer}");
    }
    let stream = [
        json!({"type": "transcript.text.delta", "delta": "a"}),
        json!({"type": "transcript.text.done", "text": "a", "usage": usage(json!(30))}),
    ];
    assert_eq!(decode(&stream, LineKind::Event, true).audio_seconds, Some(30.0));
}
