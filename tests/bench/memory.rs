//! What loads take in memory: the short form of `cargo bench --bench client -- memory`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;

use crate::harness::{Desk, data};

/// A server that answers each request with so many events at once; its threads end with the process.
fn serve(tokens: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it has one").port();
    let events: String = (0..tokens)
        .map(|word| {
            format!(
                "data: {{\"choices\":[{{\"text\":\" w{:03x}\"}}]}}\n\n",
                word % 4096
            )
        })
        .collect();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{events}data: [DONE]\n\n"
    );
    let answer: &'static str = answer.leak();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || say(stream, answer.as_bytes()));
        }
    });
    port
}

fn say(mut stream: TcpStream, answer: &[u8]) -> Option<()> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = stream.read(&mut buffer).ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(&buffer[..length]);
        let head = bytes.windows(4).position(|end| end == b"\r\n\r\n");
        let Some(head) = head else { continue };
        let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length = length.map_or(0, |length| length.trim().parse::<usize>().unwrap_or(0));
        if bytes.len() >= head + 4 + length {
            break;
        }
    }
    stream.write_all(answer).ok()
}

/// The most memory that a bench of so many prompts has had, MiB.
fn peak(desk: &Desk, port: u16, prompts: usize, input: usize, output: usize) -> f64 {
    let (port, tokenizer) = (port.to_string(), data("tokenizer.json"));
    let [prompts, input, output] = [prompts, input, output].map(|number| number.to_string());
    let mut args = vec![
        "--backend",
        "vllm",
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--model",
        "m",
    ];
    args.extend(["--ready-check-timeout-sec", "0", "--tokenizer", &tokenizer]);
    args.extend(["--dataset-name", "random-ids", "--num-prompts", &prompts]);
    args.extend(["--random-input-len", &input, "--random-output-len", &output]);
    args.extend(["--random-range-ratio", "1", "--max-concurrency", "32"]);
    args.extend([
        "--warmup-requests",
        "0",
        "--disable-tqdm",
        "--output-file",
        "out.jsonl",
    ]);
    let mut command = desk.command(&args);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0.0f64;
    let code = loop {
        let actual = std::fs::read_to_string(&status).unwrap_or_default();
        let line = actual.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
        peak = kib.map_or(peak, |kib| peak.max(kib / 1024.0));
        if let Some(status) = child.try_wait().expect("it is a child of ours") {
            break status.code();
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    assert_eq!(code, Some(0));
    peak
}

/// Events and texts take some ten bytes for each token until the load is over, and what is computed of them takes little more. The
/// smaller load already takes more than the start, whose own peak differs by some 20 MiB.
#[test]
fn tokens_take_tens_of_bytes_each() {
    const TOKENS: usize = 4000;
    let desk = Desk::new();
    let port = serve(TOKENS);
    let (few, many) = (
        peak(&desk, port, 160, 8, TOKENS),
        peak(&desk, port, 416, 8, TOKENS),
    );
    let each = (many - few) * f64::from(1 << 20) / (256 * TOKENS) as f64;
    assert!(
        each < 60.0,
        "{each:.0} bytes for each token: {few:.0} and {many:.0} MiB"
    );
}

/// Texts of prompts are in memory once; beside them are the bodies that are made ahead.
#[test]
fn prompts_are_held_once() {
    let desk = Desk::new();
    let port = serve(2);
    let (few, many) = (peak(&desk, port, 10, 4000, 2), peak(&desk, port, 3000, 4000, 2));
    let kept = std::fs::read_dir(desk.path().join("cache/prompts")).expect("prompts are kept");
    let sizes = kept.map(|file| {
        file.expect("it can be listed")
            .metadata()
            .map_or(0, |about| about.len())
    });
    let text = sizes.max().unwrap_or(0) as f64 / f64::from(1 << 20);
    // Twice 16 MiB of bodies, and what is under way.
    let bound = 2.0 * text + 32.0 + 60.0;
    assert!(
        many - few < bound,
        "{:.0} MiB for {text:.0} MiB of text",
        many - few
    );
}
