//! What `matrix bench` did when it was recorded, set of flags by set of flags: every request, what stdout said, the keys of the lines, the exit
//! code and the files. `tests/bench/guard/recorded.txt` is the recording; with `MATRIX_RECORD=1` it is made anew, which no commit may do that
//! changes what `bench` does.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use matrix::cli::env_variable;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::harness::{Desk, data, repository};
use crate::recorder::{Heard, Recorder};

/// One request after another, so that their order is a fact.
const IN_TURN: [&str; 2] = ["--max-concurrency", "1"];

/// Sets of flags, one in a line. `@name` is a file of `tests/bench/guard`. Those that end in `&` send at once, in any order.
const CASES: &str = include_str!("guard/cases.txt");

fn file(name: &str) -> String {
    repository()
        .join("tests/bench/guard")
        .join(name)
        .display()
        .to_string()
}

/// A line of stdout without the numbers that a clock decides, and without the width that they take: in the block what follows a label, else every
/// number.
fn masked(line: &str) -> String {
    if line.starts_with(['=', '-']) {
        return line.to_owned();
    }
    // The name of a request is drawn.
    let line = match line.strip_prefix("rid=").and_then(|rest| rest.split_once(' ')) {
        Some((_, rest)) => &format!("rid=0 {rest}"),
        None => line,
    };
    let (label, rest) = match line.split_once(": ") {
        Some((label, _)) if !label.contains("http") => line.split_at(label.len()),
        _ => ("", line),
    };
    let (mut out, mut is_number) = (label.to_owned(), false);
    // Python writes less than 0.0001 with an exponent.
    for char in rest.replace("e-0", "0").chars() {
        let is_digit = char.is_ascii_digit() || char == '–' || char == '.' && is_number;
        if is_digit && !is_number {
            out.push('0');
        }
        is_number = is_digit;
        if !(is_digit || char == ' ' && out.ends_with(' ')) {
            out.push(char);
        }
    }
    out.trim_end_matches(' ').to_owned()
}

/// Whether the numbers of a line are facts of the load.
fn is_fact(line: &str) -> bool {
    const FACTS: [&str; 16] = [
        "Successful requests",
        "Failed requests",
        "Total input",
        "Total generated tokens:",
        "Total output",
        "Total prompts",
        "Max request concurrency",
        "Traffic request rate",
        "Backend",
        "Number of",
        "Prompts per group",
        "Average",
        "#",
        "Generating",
        "Group distribution",
        "Zipf alpha",
    ];
    FACTS.iter().any(|begin| line.starts_with(begin))
}

fn hashed(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The keys of an object in their order, those of objects inside it behind them.
fn keys(value: &Map<String, Value>) -> String {
    let key = |(key, value): (&String, &Value)| match value {
        // What a host tells is another matter.
        Value::Object(inner) if key != "telemetry" => format!("{key}{{{}}}", keys(inner)),
        _ => key.clone(),
    };
    value.iter().map(key).collect::<Vec<_>>().join(" ")
}

/// The files below a folder, their digits masked.
fn files(folder: &Path, inside: &str, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder)
        .expect("the folder can be read")
        .flatten()
    {
        let name = format!("{inside}{}", entry.file_name().to_string_lossy());
        match entry.path().is_dir() {
            true if name == "cache" => {}
            true => files(&entry.path(), &format!("{name}/"), found),
            false => found.push(masked(&name)),
        }
    }
    found.sort();
}

/// A request by its path and the digest of what it carries.
fn digest(heard: &Heard) -> String {
    let is_chosen = |header: &&String| {
        let names = ["authorization:", "content-type:", "accept:", "x-"];
        names.iter().any(|name| header.starts_with(name))
    };
    let mut headers: Vec<&String> = heard.headers.iter().filter(is_chosen).collect();
    headers.sort();
    let mut body = heard.body.clone();
    // A profiler writes into a folder that is named after the time.
    if let Some(Value::String(folder)) = body.get_mut("output_dir") {
        *folder = masked(folder);
    }
    format!(
        "request {} {}",
        heard.path,
        hashed(&format!("{headers:?} {body}"))
    )
}

/// What one set of flags came to, line by line. Long texts are kept once each in `texts`, under their digests.
fn recorded(flags: &str, texts: &Mutex<BTreeMap<String, String>>) -> Vec<String> {
    let is_in_turn = !flags.ends_with(" &");
    // A search for a concurrency ends where an answer comes before the next request is sent.
    let delay = Duration::from_millis(if is_in_turn { 0 } else { 200 });
    let (recorder, desk) = (Recorder::delayed(delay), Desk::new());
    let (port, tokenizer) = (recorder.port.to_string(), data("tokenizer.json"));
    let word = |word: &str| match word.strip_prefix('@') {
        Some("conversations") => data("conversations.json"),
        Some(name) => file(name),
        None => word.to_owned(),
    };
    let mut words: Vec<String> = flags.trim_end_matches(" &").split(' ').map(word).collect();
    words.extend(["--host", "127.0.0.1", "--port", &port, "--tokenizer", &tokenizer].map(str::to_owned));
    if is_in_turn {
        words.extend(IN_TURN.map(str::to_owned));
    }
    let ran = desk.call(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let mut requests: Vec<String> = recorder.take().iter().map(digest).collect();
    if !is_in_turn {
        requests.sort();
    }
    let keep = |kind: &str, long: String| {
        let digest = hashed(&long);
        let line = format!("{kind} {digest}");
        texts.lock().expect("no holder panics").insert(digest, long);
        line
    };
    let code = ran
        .code
        .map_or_else(|| "by a signal".to_owned(), |code| code.to_string());
    let mut lines = vec![format!("exit {code}")];
    lines.extend(requests);
    let stdout = ran
        .stdout
        .replace(&desk.path().display().to_string(), "DESK")
        .replace(&repository().display().to_string(), "REPOSITORY")
        .replace(&format!(":{port}"), ":PORT");
    let (facts, others): (Vec<&str>, Vec<&str>) = stdout.lines().partition(|line| is_fact(line));
    lines.extend(facts.iter().map(|fact| format!("fact {fact}")));
    lines.push(keep(
        "stdout",
        others.iter().map(|line| masked(line) + "\n").collect(),
    ));
    let mut found = Vec::new();
    files(desk.path(), "", &mut found);
    lines.extend(found.iter().map(|name| format!("file {name}")));
    let appended = std::fs::read_to_string(desk.path().join("out.jsonl")).unwrap_or_default();
    for line in appended.lines() {
        // As Python writes it.
        let line = line.replace(": Infinity", ": 0");
        let line: Map<String, Value> = serde_json::from_str(&line).expect("a line is JSON");
        lines.push(keep("keys", keys(&line) + "\n"));
    }
    lines
}

#[test]
fn what_bench_sends_and_says_is_what_was_recorded() {
    let path = file("recorded.txt");
    let flags: Vec<&str> = CASES.lines().filter(|line| !line.is_empty()).collect();
    assert!(flags.len() >= 80, "{}", flags.len());
    let texts = Mutex::new(BTreeMap::new());
    let all = |flags: &[&str]| -> Vec<String> {
        let case = |flags: &&str| format!("== {flags}\n{}\n", recorded(flags, &texts).join("\n"));
        flags.iter().map(case).collect()
    };
    // Most of their time they wait.
    let mut now: Vec<String> = std::thread::scope(|scope| {
        let parts = flags.chunks(flags.len().div_ceil(4));
        let parts: Vec<_> = parts.map(|part| scope.spawn(|| all(part))).collect();
        let joined = parts
            .into_iter()
            .flat_map(|part| part.join().expect("it did not panic"));
        joined.collect()
    });
    let texts = texts.into_inner().expect("no holder panics");
    now.extend(
        texts
            .iter()
            .map(|(digest, text)| format!("== text {digest}\n{text}")),
    );
    if env_variable("MATRIX_RECORD").is_some() {
        std::fs::write(&path, now.concat()).expect("the recording can be written");
        return;
    }
    let before = std::fs::read_to_string(&path).expect("there is a recording");
    let before: Vec<&str> = before.split_inclusive('\n').collect();
    let now = now.concat();
    for (at, line) in now.split_inclusive('\n').enumerate() {
        let case = now
            .split_inclusive('\n')
            .take(at + 1)
            .filter(|line| line.starts_with("== "))
            .last();
        let said = line
            .trim_end()
            .rsplit(' ')
            .next()
            .and_then(|digest| texts.get(digest));
        assert_eq!(
            before.get(at),
            Some(&line),
            "line {} of the recording, of {case:?}: {}",
            at + 1,
            said.map_or("", String::as_str)
        );
    }
    assert_eq!(before.len(), now.split_inclusive('\n').count());
}

#[test]
fn a_number_is_masked_with_its_exponent() {
    assert_eq!(masked("itl=[9.5e-05, 0.1]"), masked("itl=[0.2, 0.1]"));
}
