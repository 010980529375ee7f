//! Answers bent at random: nothing panics, and how an answer is cut into reads never changes what is understood.
//!
//! A fuzzer that needs no toolchain of its own: it bends a corpus of real answers (`tests/fixtures/streams`). Short here;
//! `tests/fuzz.sh` is the long form.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use matrix::base::clock;
use matrix::base::http1::response::{ResponsePart, ResponseReader};
use matrix::cli::env_variable;
use matrix::loadgen::dataset::rng::Python;
use matrix::loadgen::protocol::{Decoded, Decoder, LineKind};
use matrix::loadgen::sse::{Line, LineScanner};
use matrix::plan::Protocol;

const PROTOCOLS: [Protocol; 6] = [
    Protocol::SglangNative,
    Protocol::Completions,
    Protocol::Chat,
    Protocol::Messages,
    Protocol::Responses,
    Protocol::Transcription,
];

/// The longest line: low, so that bent lengths reach it.
const LINE: usize = 4096;

/// Pieces that answers are made of; bending puts them where they do not belong.
const PIECES: [&[u8]; 28] = [
    b"data:",
    b"data: ",
    b"\n",
    b"\r\n",
    b"\n\n",
    b"[DONE]",
    b"{",
    b"}",
    b"\"",
    b"\\u0000",
    b"\\ud800",
    b"null",
    b"1e999",
    b"-1",
    b"\xff\xfe",
    b"\xf0\x9f\x98\x80",
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 0\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"\"choices\":[]",
    b"event: error\n",
    b"\"type\":\"content_block_delta\"",
    b"data: {\"type\":\"message_stop\"}\n\n",
    b"\"delta\":\"x\"",
    b"\"usage\":{\"completion_tokens\":4294967296}",
    b": comment\n",
];

#[test]
fn bent_answers_never_panic_and_cuts_never_matter() {
    let executions: u64 = env_variable("MATRIX_FUZZ_EXECUTIONS")
        .and_then(|text| text.parse().ok())
        .unwrap_or(60_000);
    let seed: u64 = env_variable("MATRIX_FUZZ_SEED")
        .and_then(|text| text.parse().ok())
        .unwrap_or((clock::unix_seconds() * 1e3) as u64 % 1_000_000);
    let corpus = corpus();
    assert!(corpus.len() >= 8, "the corpus is there");
    let _ = writeln!(
        std::io::stderr(),
        "fuzz: {executions} executions, seed {seed} (set MATRIX_FUZZ_SEED to repeat)"
    );
    let mut draws = Python::new(seed);
    let mut understood = 0u64;
    for execution in 0..executions {
        let answer = bend(&corpus, &mut draws);
        let protocol = PROTOCOLS[draws.below(PROTOCOLS.len() as u64) as usize];
        let whole = decode(&answer, protocol, |rest| rest);
        let cut = decode(&answer, protocol, |rest| {
            1 + draws.below(rest as u64) as usize % rest.min(97)
        });
        assert_eq!(
            whole,
            cut,
            "seed {seed}, execution {execution}: {:?}",
            String::from_utf8_lossy(&answer)
        );
        understood += u64::from(whole.contains("bytes:"));
    }
    assert!(
        understood > executions / 100,
        "bending leaves some answers alive: {understood}"
    );
}

#[test]
fn the_corpus_itself_is_understood() {
    for (name, protocol, tokens) in [
        ("vllm-completions", Protocol::Completions, Some(6)),
        ("vllm-chat", Protocol::Chat, Some(6)),
        ("vllm-chat-whole", Protocol::Chat, Some(6)),
        ("vllm-messages", Protocol::Messages, Some(6)),
        ("vllm-messages-whole", Protocol::Messages, Some(6)),
        ("vllm-responses", Protocol::Responses, Some(6)),
        ("vllm-responses-whole", Protocol::Responses, Some(6)),
        ("vllm-transcription", Protocol::Transcription, Some(6)),
        // It reports seconds.
        ("vllm-transcription-whole", Protocol::Transcription, None),
        ("sglang-native", Protocol::SglangNative, Some(6)),
        ("sim-completions", Protocol::Completions, Some(6)),
    ] {
        let answer = fs::read(folder().join(format!("{name}.http"))).expect("the corpus is there");
        let (decoded, whole) = understand(&answer, protocol, |rest| rest);
        assert!(whole, "{name}");
        let decoded = decoded.expect("it has a body");
        assert_eq!(decoded.usage.and_then(|usage| usage.completion), tokens, "{name}");
        assert!(
            decoded.failure.is_none() && !decoded.chunks.is_empty(),
            "{name}: {decoded:?}"
        );
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/streams")
}

fn corpus() -> Vec<Vec<u8>> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder())
        .expect("the corpus is there")
        .map(|entry| entry.expect("it can be read").path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| fs::read(file).expect("it can be read"))
        .collect()
}

/// One answer of the corpus with some bytes changed, doubled, dropped, swapped with another's or strewn with pieces.
fn bend(corpus: &[Vec<u8>], draws: &mut Python) -> Vec<u8> {
    let pick = |draws: &mut Python, below: usize| draws.below(below.max(1) as u64) as usize;
    let mut answer = corpus[pick(draws, corpus.len())].clone();
    for _ in 0..pick(draws, 5) {
        let at = pick(draws, answer.len());
        match draws.below(7) {
            0 if !answer.is_empty() => answer[at] = draws.below(256) as u8,
            1 => {
                let piece = PIECES[pick(draws, PIECES.len())];
                answer.splice(at..at, piece.iter().copied());
            }
            2 => {
                let end = (at + pick(draws, 40)).min(answer.len());
                answer.drain(at..end);
            }
            3 => {
                let end = (at + pick(draws, 300)).min(answer.len());
                let twice = answer[at..end].to_vec();
                answer.splice(at..at, twice);
            }
            4 => answer.truncate(at),
            5 => {
                let other = &corpus[pick(draws, corpus.len())];
                answer.truncate(at);
                answer.extend(&other[pick(draws, other.len())..]);
            }
            _ => {
                let long = vec![b'x'; pick(draws, 2 * LINE)];
                answer.splice(at..at, long);
            }
        }
    }
    answer
}

/// What is understood of an answer, as text that can be compared; moments are all the same.
fn decode(answer: &[u8], protocol: Protocol, cut: impl FnMut(usize) -> usize) -> String {
    let (decoded, whole) = understand(answer, protocol, cut);
    format!("{decoded:?} {whole}")
}

/// Feeds an answer in pieces of `cut(rest)` bytes through framing, lines and events.
fn understand(
    answer: &[u8],
    protocol: Protocol,
    mut cut: impl FnMut(usize) -> usize,
) -> (Option<Decoded>, bool) {
    let (mut reader, mut scanner) = (ResponseReader::new(), LineScanner::new(LINE));
    let mut decoder = Decoder::new(protocol, LINE);
    let (mut rest, mut is_whole, mut is_sound) = (answer, false, true);
    'answer: while !rest.is_empty() && !is_whole {
        let (mut piece, later) = rest.split_at(cut(rest.len()).clamp(1, rest.len()));
        rest = later;
        loop {
            match reader.next(&mut piece) {
                Ok(Some(ResponsePart::Head)) => {}
                Ok(Some(ResponsePart::Body(mut body))) => {
                    if !lines(&mut scanner, &mut decoder, &mut body) {
                        is_sound = false;
                        break 'answer;
                    }
                }
                Ok(Some(ResponsePart::End)) => {
                    is_whole = true;
                    break;
                }
                Ok(None) => break,
                Err(_) => {
                    is_sound = false;
                    break 'answer;
                }
            }
        }
    }
    if is_sound && !is_whole {
        is_whole = reader.close().is_ok();
    }
    if is_sound
        && is_whole
        && let Some(line) = scanner.finish()
    {
        push(&mut decoder, &line);
    }
    (
        reader.head().map(|_| decoder.finish(is_sound && is_whole)),
        is_whole,
    )
}

fn lines(scanner: &mut LineScanner, decoder: &mut Decoder, body: &mut &[u8]) -> bool {
    loop {
        match scanner.next(body) {
            Ok(Some(line)) => push(decoder, &line),
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

fn push(decoder: &mut Decoder, line: &Line<'_>) {
    match line {
        Line::Event(text) => decoder.push(LineKind::Event, text, 0),
        Line::Error(text) => decoder.push(LineKind::Error, text, 0),
        Line::Plain(text) => decoder.push(LineKind::Plain, text, 0),
        _ => {}
    }
}
