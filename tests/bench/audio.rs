//! Transcriptions: against the simulated engine, and against servers that do not keep to the protocol.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::answers::whole;
use crate::harness::{Desk, Ran, Sim};
use crate::scripted::figure;

/// The load of these tests: three recordings of half a second, without a warm-up request.
const RECORDINGS: [&str; 10] = [
    "--dataset-name",
    "random-audio",
    "--audio-seconds",
    "0.5",
    "--num-prompts",
    "3",
    "--warmup-requests",
    "0",
    "--max-concurrency",
    "1",
];

fn transcribe(desk: &Desk, port: u16, more: &[&str]) -> Ran {
    desk.random(
        "vllm-transcription",
        port,
        &[&RECORDINGS[..], &["--dataset-path", ""], more].concat(),
    )
}

/// A WAV file of one channel with 16-bit samples.
fn wav(rate: u32, samples: usize) -> Vec<u8> {
    let length = u32::try_from(2 * samples).expect("a short recording");
    let mut file = b"RIFF".to_vec();
    file.extend((36 + length).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    file.extend(rate.to_le_bytes());
    file.extend((2 * rate).to_le_bytes());
    file.extend(b"\x02\0\x10\0data");
    file.extend(length.to_le_bytes());
    file.extend((0..samples).flat_map(|at| ((at % 200) as i16 * 50).to_le_bytes()));
    file
}

/// A chunk of vLLM's stream.
fn chunk(text: &str) -> String {
    format!(
        "data: {}\n\n",
        json!({"object": "transcription.chunk", "model": "m", "choices": [{"delta": {"content": text}}]})
    )
}

/// An answer that lasts until the connection ends.
fn open(kind: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{body}").into_bytes()
}

fn streamed(body: &str) -> Vec<u8> {
    open("text/event-stream", body)
}

/// A server that answers every transcription so once it has read so much of its body; `None`: all of it. Its threads end with
/// the process.
fn serve(answer: Vec<u8>, reads: Option<usize>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it has one").port();
    let answer: &'static [u8] = answer.leak();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || say(stream, answer, reads));
        }
    });
    port
}

fn say(mut stream: TcpStream, answer: &[u8], reads: Option<usize>) -> Option<()> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    let head = loop {
        let length = stream.read(&mut buffer).ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(&buffer[..length]);
        if let Some(end) = bytes.windows(4).position(|end| end == b"\r\n\r\n") {
            break String::from_utf8_lossy(&bytes[..end + 4]).into_owned();
        }
    };
    if head.starts_with("GET") {
        let models = json!({"data": [{"id": "m"}]}).to_string();
        return stream.write_all(&whole("200 OK", "", &models)).ok();
    }
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let length: usize = length?.parse().ok()?;
    let wanted = head.len() + reads.unwrap_or(length).min(length);
    while bytes.len() < wanted {
        let length = stream.read(&mut buffer).ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(&buffer[..length]);
    }
    stream.write_all(answer).ok()?;
    // An answer before the end of the body stays readable while the connection is open.
    if bytes.len() < head.len() + length {
        std::thread::sleep(Duration::from_secs(2));
    }
    Some(())
}

fn line(desk: &Desk) -> Map<String, Value> {
    desk.lines().remove(0)
}

#[test]
fn recordings_are_transcribed_and_their_seconds_counted() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    let more = [
        "--audio-seconds",
        "2",
        "--audio-range-ratio",
        "0.5",
        "--num-prompts",
        "8",
    ];
    let ran = transcribe(&desk, sim.port, &more)
        .exits(0)
        .shows("#Recordings: 8\n#Audio seconds: ");
    assert_eq!(ran.value("Successful requests"), "8");
    let line = line(&desk);
    let seconds = figure(&line, "audio_s");
    assert!((8.0..=16.0).contains(&seconds), "{seconds}");
    // The simulated engine counts as vLLM: a token for each 10 ms, and four before.
    let (input, expected) = (figure(&line, "input_tokens"), 8.0 * 4.0 + 100.0 * seconds);
    assert!((input - expected).abs() <= 8.0, "{input} {expected}");
    assert_eq!(figure(&line, "reported_input_tokens"), input);
    let output = figure(&line, "output_tokens");
    assert!((output - 4.0 * seconds).abs() <= 8.0, "{output} {seconds}");
    let rate = figure(&line, "audio_throughput_x");
    let expected = seconds / figure(&line, "duration_s");
    assert!((rate / expected - 1.0).abs() < 1e-9, "{rate} {expected}");
    assert_eq!(ran.value("Audio duration (s)"), format!("{seconds:.2}"));
    assert_eq!(ran.value("Audio throughput (RTFx)"), format!("{rate:.2}"));
    assert!(figure(&line, "mean_ttft_ms") > 0.0 && figure(&line, "mean_tpot_ms") > 0.0);
    assert_eq!(line["total_input_text_tokens"], Value::Null);
    // The same seed sends the same recordings, another one others.
    let seconds_of = |seed: &str| {
        let desk = Desk::new();
        transcribe(&desk, sim.port, &[&more[..], &["--seed", seed]].concat()).exits(0);
        figure(&self::line(&desk), "audio_s")
    };
    assert_eq!(seconds_of("42"), seconds);
    assert_ne!(seconds_of("43"), seconds);
}

#[test]
fn tokens_that_no_answer_reports_are_unknown_and_not_zero() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    let ran = transcribe(&desk, sim.port, &["--disable-stream"]).exits(0);
    let line = line(&desk);
    let figures = &line["matrix"]["figures"];
    for name in ["input_tokens", "input_throughput_tok_s", "total_throughput_tok_s"] {
        assert_eq!(figures[name], Value::Null, "{name}");
    }
    assert_eq!(line["total_input_tokens"], Value::Null);
    assert_eq!(ran.value("Total input tokens"), "–");
    assert_eq!(ran.value("Input token throughput (tok/s)"), "–");
    // The text is there to be counted.
    assert!(figure(&line, "output_tokens") >= 6.0);
    assert_eq!(figure(&line, "audio_s"), 1.5);
}

#[test]
fn files_are_sent_as_they_are_and_unknown_lengths_stay_unknown() {
    let (sim, desk) = (Sim::start("vllm", &[]), Desk::new());
    let folder = desk.path().join("speech/a");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    for (name, bytes) in [("one.wav", wav(8000, 8000)), ("two.wav", wav(16_000, 8000))] {
        std::fs::write(folder.join(name), bytes).expect("a file can be written");
    }
    let args = [
        "--dataset-name",
        "audio",
        "--dataset-path",
        "speech",
        "--num-prompts",
        "0",
    ];
    let bench = |more: &[&str]| desk.random("vllm-transcription", sim.port, &[&args[..], more].concat());
    bench(&[])
        .exits(0)
        .shows("#Recordings: 2\n#Audio seconds: 1.50\n");
    let line = desk.lines().remove(0);
    assert_eq!(
        (figure(&line, "audio_s"), figure(&line, "input_tokens")),
        (1.5, 158.0)
    );
    // The simulated engine reads no MP3, as its answer says; the others are still counted.
    std::fs::write(folder.join("three.mp3"), b"ID3").expect("a file can be written");
    let ran = bench(&["--warmup-requests", "0"])
        .exits(3)
        .says("Invalid or unsupported audio file");
    assert!(
        ran.stdout
            .contains("Number of recordings with an unknown length: 1"),
        "{}",
        ran.stdout
    );
    // With a server that reads it, the sum of the lengths is unknown.
    let port = serve(
        whole("200 OK", "", &json!({"text": "the words"}).to_string()),
        None,
    );
    let other = Desk::new();
    std::fs::create_dir(other.path().join("speech")).expect("a folder can be made");
    std::fs::write(other.path().join("speech/three.mp3"), b"ID3").expect("a file can be written");
    other
        .random(
            "vllm-transcription",
            port,
            &[&args[..], &["--warmup-requests", "0"]].concat(),
        )
        .exits(0);
    let figures = &other.lines()[0]["matrix"]["figures"];
    assert_eq!(
        (&figures["audio_s"], &figures["audio_throughput_x"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn an_answer_that_is_cut_broken_or_an_error_has_failed() {
    let finish = format!(
        "data: {}\n\n",
        json!({"choices": [{"delta": {"content": " c"}, "finish_reason": "stop"}]})
    );
    let error = json!({"error": {"message": "no room for the encoder", "code": 500}}).to_string();
    let done = "data: [DONE]\n\n";
    for (answer, message) in [
        // A finish reason ends one piece of a long recording, not the answer.
        (
            streamed(&[&chunk("a"), &*finish].concat()),
            "before the end mark of the response arrived",
        ),
        (
            streamed(&chunk("a")),
            "before the end mark of the response arrived",
        ),
        (streamed(""), "no output"),
        (streamed(done), "no output"),
        (
            streamed(&[&chunk("a"), "data: ", &error, "\n\n", done].concat()),
            "no room for the encoder",
        ),
        (whole("200 OK", "", &error), "no room for the encoder"),
        (whole("200 OK", "", "{\"detail\": \"Not Found\"}"), "Not Found"),
        (whole("400 Bad Request", "", &error), "no room for the encoder"),
        (
            whole("413 Payload Too Large", "", "too long"),
            "Payload Too Large: too long",
        ),
        (
            whole("415 Unsupported Media Type", "", &error),
            "Unsupported Media Type",
        ),
        (open("text/plain", "the words of the recording\n"), "not"),
        (open("text/html", "<html>busy</html>"), "not"),
        (
            whole("200 OK", "", "{\"text\": \"the wo"),
            "neither an event stream nor JSON",
        ),
    ] {
        let text = String::from_utf8_lossy(&answer).into_owned();
        let desk = Desk::new();
        let ran = transcribe(&desk, serve(answer, None), &[]).exits(3);
        assert!(ran.stderr.contains(message), "{text}\n{message}: {}", ran.stderr);
        let line = line(&desk);
        assert_eq!(line["completed"], json!(0), "{text}");
        // Nothing was transcribed, so how fast is unknown.
        let figures = &line["matrix"]["figures"];
        assert_eq!(figures["audio_throughput_x"], Value::Null, "{text}");
        assert_eq!(figures["audio_s"].to_string(), "0.0", "{text}");
        assert!(!ran.stdout.contains("-0.00"), "{}", ran.stdout);
        assert!(!ran.stdout.contains("RTFx"), "{}", ran.stdout);
    }
}

#[test]
fn servers_that_answer_otherwise_but_whole_are_understood() {
    let usage = format!(
        "data: {}\n\n",
        json!({"choices": [], "usage": {"prompt_tokens": 54, "completion_tokens": 2}})
    );
    let done = "data: [DONE]\n\n";
    let openai = [
        json!({"type": "transcript.text.delta", "delta": "the"}),
        json!({"type": "transcript.text.delta", "delta": " of"}),
        json!({"type": "transcript.text.done", "text": "the of", "usage": {"type": "tokens", "input_tokens": 54, "output_tokens": 2}}),
    ]
    .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().expect("a name")));
    for (answer, input) in [
        (
            streamed(&[&chunk("the"), &chunk(" of"), &*usage, done].concat()),
            Some(162.0),
        ),
        // Without a report of tokens.
        (streamed(&[&*chunk("the"), &chunk(" of"), done].concat()), None),
        (streamed(&openai.concat()), Some(162.0)),
        // A server that ignores `stream`.
        (whole("200 OK", "", "{\"text\": \"the of\"}"), None),
        (
            whole(
                "200 OK",
                "",
                "{\n  \"text\": \"the of\",\n  \"usage\": {\"type\": \"duration\", \"seconds\": 1}\n}\n",
            ),
            None,
        ),
        // A wrong content type.
        (open("text/plain", "{\"text\": \"the of\"}"), None),
        (
            open(
                "application/json",
                &[&chunk("the"), &chunk(" of"), &*usage, done].concat(),
            ),
            Some(162.0),
        ),
    ] {
        let text = String::from_utf8_lossy(&answer).into_owned();
        let desk = Desk::new();
        transcribe(&desk, serve(answer, None), &[]).exits(0);
        let line = line(&desk);
        assert_eq!(line["completed"], json!(3), "{text}");
        assert_eq!(
            line["matrix"]["figures"]["input_tokens"].as_f64(),
            input,
            "{text}"
        );
        // Our own tokenizer, which counts what is not reported, may make several tokens of a word.
        let output = figure(&line, "output_tokens");
        assert!(
            output == 6.0 || input.is_none() && output > 6.0,
            "{text}: {output}"
        );
    }
}

#[test]
fn silence_is_an_answer_but_many_silent_ones_are_doubted() {
    let body = json!({"text": "", "usage": {"type": "duration", "seconds": 1}}).to_string();
    let desk = Desk::new();
    let ran = transcribe(&desk, serve(whole("200 OK", "", &body), None), &[]).exits(0);
    assert_eq!(ran.value("Successful requests"), "3");
    assert!(ran.stderr.contains("3 of 3 answers are empty"), "{}", ran.stderr);
}

/// Ten megabytes do not fit into the buffers of a connection, so the answer arrives while the body is being written.
#[test]
fn an_answer_before_the_whole_body_was_read_is_the_answer() {
    let desk = Desk::new();
    std::fs::write(desk.path().join("big.wav"), wav(16_000, 5 << 20)).expect("a file can be written");
    std::fs::write(desk.path().join("rows.jsonl"), "{\"audio\": \"big.wav\"}\n")
        .expect("a file can be written");
    let args = [
        "--dataset-name",
        "audio",
        "--dataset-path",
        "rows.jsonl",
        "--num-prompts",
        "0",
    ];
    let args = [&args[..], &["--warmup-requests", "0"]].concat();
    for (answer, code, message) in [
        (
            whole("413 Payload Too Large", "", "Maximum file size exceeded"),
            3,
            "Maximum file size exceeded",
        ),
        (
            whole("400 Bad Request", "", "{\"error\": {\"message\": \"bad\"}}"),
            3,
            "Bad Request",
        ),
        // What has not been read cannot have been transcribed.
        (
            whole("200 OK", "", "{\"text\": \"the words\"}"),
            3,
            "the server answered before the whole request was sent",
        ),
    ] {
        let ran = desk
            .random("vllm-transcription", serve(answer, Some(1000)), &args)
            .exits(code);
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
    }
}

/// The most memory that a bench has had, MiB.
fn peak(desk: &Desk, port: u16, more: &[&str]) -> f64 {
    let args = [
        &RECORDINGS[..2],
        &["--warmup-requests", "0", "--disable-tqdm"],
        more,
    ]
    .concat();
    let mut child = desk
        .random_command("vllm-transcription", port, &args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0.0f64;
    let code = loop {
        let now = std::fs::read_to_string(Path::new(&status)).unwrap_or_default();
        let line = now.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
        peak = kib.map_or(peak, |kib| peak.max(kib / 1024.0));
        if let Some(status) = child.try_wait().expect("it is a child of ours") {
            break status.code();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(code, Some(0));
    peak
}

/// Forty requests with ten megabytes each are under way at once. Copies would take 400 MB.
#[test]
fn requests_share_the_bytes_of_a_recording() {
    let desk = Desk::new();
    std::fs::write(desk.path().join("big.wav"), wav(16_000, 5 << 20)).expect("a file can be written");
    let rows = |count: usize| {
        let name = format!("{count}.jsonl");
        std::fs::write(
            desk.path().join(&name),
            "{\"audio\": \"big.wav\"}\n".repeat(count),
        )
        .expect("a file can be written");
        name
    };
    let port = serve(whole("200 OK", "", "{\"text\": \"the of\"}"), None);
    let load = |count: usize| {
        let rows = rows(count);
        peak(
            &desk,
            port,
            &[
                "--dataset-name",
                "audio",
                "--dataset-path",
                &rows,
                "--num-prompts",
                "0",
            ],
        )
    };
    let (one, many) = (load(1), load(40));
    assert!(many - one < 100.0, "{one:.0} and {many:.0} MiB");
}

#[test]
fn recordings_and_other_prompts_are_not_mixed() {
    let refuse = |backend: &str, data_set: &str, more: &[&str], message: &str| {
        let args = [
            "--backend",
            backend,
            "--dataset-name",
            data_set,
            "--model",
            "m",
            "--port",
            "1",
        ];
        Desk::new()
            .call(&[&args[..], more].concat())
            .exits(2)
            .says(message);
    };
    refuse(
        "vllm-transcription",
        "random-ids",
        &[],
        "cannot be used with the data set",
    );
    refuse("vllm", "random-audio", &[], "cannot be used with the data set");
    refuse(
        "vllm-chat",
        "random-audio",
        &[],
        "cannot be used with the data set",
    );
    refuse("vllm", "random-ids", &["--audio-seconds", "1"], "`random-audio`");
    refuse(
        "vllm",
        "random-ids",
        &["--audio-output-len", "1"],
        "`--audio-output-len`",
    );
    for flags in [
        ["--audio-seconds", "0"],
        ["--audio-range-ratio", "2"],
        ["--audio-sample-rate", "5"],
    ] {
        refuse("vllm-transcription", "random-audio", &flags, "`--audio-*`");
    }
    refuse(
        "vllm-transcription",
        "audio",
        &["--dataset-path", "missing"],
        "missing",
    );
    let format = ["--extra-request-body", "{\"response_format\": \"srt\"}"];
    let ran = transcribe(&Desk::new(), serve(whole("200 OK", "", "{}"), None), &format);
    assert!(ran.stderr.contains("`response_format`"), "{}", ran.stderr);
    assert_ne!(ran.code, Some(0));
}
