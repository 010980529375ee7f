//! From the launch of `matrix bench` to its first request: files read, prompts drawn and tokenized.

use std::io::{BufWriter, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use matrix::base::clock;

use crate::median;

/// Conversations in the file, about as many bytes each as in ShareGPT.
const CONVERSATIONS: u64 = 20_000;

/// Prints both rows: the first time, and again with what was kept.
pub fn bench(rounds: usize) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("conversations.json");
    write(&file);
    let bytes = std::fs::metadata(&file).expect("it was written").len();
    println!("start: {CONVERSATIONS} conversations, {} MB", bytes / 1_000_000);
    let path = file.to_str().expect("it is UTF-8");
    let sharegpt = [
        "--dataset-name",
        "sharegpt",
        "--num-prompts",
        "10000",
        "--dataset-path",
        path,
    ];
    let random = [
        "--dataset-name",
        "random",
        "--num-prompts",
        "2000",
        "--random-input-len",
        "1024",
        "--random-output-len",
        "16",
        "--random-range-ratio",
        "1",
        "--dataset-path",
        path,
    ];
    for (name, args) in [
        ("sharegpt, 10 000 of 20 000", &sharegpt[..]),
        ("random, 2000 x 1024", &random),
    ] {
        let mut first = Vec::new();
        let mut again = Vec::new();
        for round in 0..rounds {
            let cache = folder.path().join(format!("cache-{name}-{round}"));
            first.push(seconds(args, &cache));
            again.push(seconds(args, &cache));
        }
        println!(
            "start, {name}: {:.2} s to the first request, repeated {:.2} s",
            median(first.into_iter()),
            median(again.into_iter())
        );
    }
}

/// Seconds from the launch until the first request for tokens has come.
fn seconds(args: &[&str], cache: &Path) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it listens").port().to_string();
    let tokenizer = concat!(env!("CARGO_MANIFEST_DIR"), "/matrices/data/tokenizer.json");
    let began = clock::now();
    let mut process = Command::new(env!("CARGO_BIN_EXE_matrix"))
        .args([
            "bench",
            "--backend",
            "vllm",
            "--host",
            "127.0.0.1",
            "--port",
            &port,
            "--model",
            "m",
        ])
        .args([
            "--tokenizer",
            tokenizer,
            "--ready-check-timeout-sec",
            "0",
            "--warmup-requests",
            "0",
        ])
        .args(args)
        .env("MATRIX_CACHE", cache)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let span = loop {
        let (mut stream, _) = listener.accept().expect("it listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a time can be set");
        let mut head = [0; 4];
        if stream.read_exact(&mut head).is_ok() && &head == b"POST" {
            break clock::now().since(began);
        }
    };
    let _ = process.kill();
    let _ = process.wait();
    span.as_secs_f64()
}

/// Conversations of words; the same ones every time.
fn write(file: &Path) {
    let words: Vec<&str> = include_str!("../../LICENSE").split_whitespace().collect();
    let file = std::fs::File::create(file).expect("a file can be made");
    let mut out = BufWriter::new(file);
    let mut state = 1_u64;
    let mut draw = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut written = || -> std::io::Result<()> {
        for conversation in 0..CONVERSATIONS {
            write!(out, "{}", if conversation == 0 { "[" } else { ",\n" })?;
            write!(out, "{{\"id\": \"{conversation}\", \"conversations\": [")?;
            for turn in 0..2 + draw(7) {
                let text: Vec<&str> = (0..10 + draw(200))
                    .map(|_| words[draw(words.len() as u64) as usize])
                    .collect();
                let from = ["human", "gpt"][(turn % 2) as usize];
                let comma = if turn == 0 { "" } else { ", " };
                let value = serde_json::to_string(&text.join(" "))?;
                write!(out, "{comma}{{\"from\": \"{from}\", \"value\": {value}}}")?;
            }
            write!(out, "]}}")?;
        }
        write!(out, "]")?;
        out.flush()
    };
    written().expect("the disk has room");
}
