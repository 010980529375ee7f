//! Five nights on the simulated engine: quiet ones, a loss on one model, its acceptance, and what is told of them.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use crate::harness::{Bench, Ran};

/// Two models of one engine whose speed is exact, `starts` starts each; `itl` of the second in milliseconds, times a thousand.
fn matrix(starts: u32, itl: u32) -> String {
    format!(
        "name: t
engines:
  - sim: {{ variant: vllm }}
models:
  - a: {{ tokenizer: data/tokenizer.json, args: [--ttft, 10ms, --itl, 10ms] }}
  - b: {{ tokenizer: data/tokenizer.json, args: [--ttft, 10ms, --itl, {itl}us] }}
scenarios:
  - random-1k-1k: {{ prompts: 4, input_len: 16, output_len: 40, warmup: 0 }}
repeats: {{ starts: {starts}, interleave: true }}
datasets: {{ sharegpt: data/conversations.json }}
"
    )
}

fn nightly(bench: &Bench, more: &[&str]) -> Ran {
    let mut args = vec!["nightly", "matrices/m.yaml", "--no-calibration"];
    args.extend(more);
    bench.call(&args)
}

/// The newest run's folder.
fn newest(bench: &Bench) -> PathBuf {
    let entries = fs::read_dir(bench.results()).expect("there are results");
    let mut runs: Vec<PathBuf> = entries
        .map(|entry| entry.expect("results can be read").path())
        .filter(|path| path.join("run.json").exists())
        .collect();
    runs.sort_by_key(|run| {
        fs::metadata(run.join("run.json"))
            .and_then(|about| about.modified())
            .expect("it has a time")
    });
    runs.pop().expect("there is a run")
}

/// A receiver of webhooks: what was posted, one body each.
fn receiver() -> (String, mpsc::Receiver<serde_json::Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!(
        "http://{}/hook/secret",
        listener.local_addr().expect("it has an address")
    );
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("somebody calls");
            stream
                .set_read_timeout(Some(Duration::from_secs(5)))
                .expect("it can wait");
            let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
            let body = loop {
                let count = stream.read(&mut piece).expect("a request comes");
                bytes.extend_from_slice(&piece[..count]);
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else {
                    continue;
                };
                let length = head
                    .lines()
                    .filter_map(|line| {
                        line.to_lowercase()
                            .strip_prefix("content-length:")
                            .map(str::to_owned)
                    })
                    .next()
                    .and_then(|length| length.trim().parse::<usize>().ok())
                    .expect("it has a length");
                if body.len() >= length {
                    break body.to_owned();
                }
            };
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                .expect("an answer goes");
            let _ = send.send(serde_json::from_str(&body).expect("it is JSON"));
        }
    });
    (url, receive)
}

#[test]
fn a_loss_on_one_model_is_confirmed_told_once_and_quiet_when_accepted() {
    let bench = Bench::of(&matrix(3, 10_000));
    let (url, posted) = receiver();
    let bench = bench.variable("MATRIX_WEBHOOK", &url);
    // The first night has nothing to be held against.
    nightly(&bench, &[])
        .exits(0)
        .says("there is no baseline")
        .shows("nothing to hold it against");
    let first = newest(&bench).display().to_string();
    bench
        .call(&[
            "baseline",
            "set",
            "matrices/m.yaml",
            &first,
            "--reason",
            "the first night",
        ])
        .exits(0)
        .shows("now holds 2 of 2 cells");
    bench
        .call(&["baseline", "set", "matrices/m.yaml", &first, "--reason", "again"])
        .exits(2)
        .says("is there already");
    for _ in 0..2 {
        nightly(&bench, &[]).exits(0).shows("t: nothing got worse");
    }
    assert!(posted.try_recv().is_err(), "quiet nights are not told");

    bench.rewrite(&matrix(3, 10_650));
    let slow = nightly(&bench, &["--junit", "junit.xml"]).exits(1);
    let alarms: Vec<&str> = slow
        .stdout
        .lines()
        .filter(|line| line.starts_with("  worse: "))
        .collect();
    assert_eq!(alarms.len(), 1, "{}", slow.stdout);
    assert!(
        alarms[0].contains("model=b") && alarms[0].contains("fresh starts"),
        "{}",
        alarms[0]
    );
    slow.says("suspect: ");
    let page = fs::read_to_string(newest(&bench).join("nightly.md")).expect("there is a page");
    assert!(
        page.contains("| **worse** | ") && page.contains("model=b"),
        "{page}"
    );
    let junit = fs::read_to_string(
        bench
            .results()
            .parent()
            .expect("it lies somewhere")
            .join("junit.xml"),
    )
    .expect("there is a file");
    assert!(junit.contains("tests=\"2\" failures=\"1\""), "{junit}");
    assert!(junit.contains("<failure type=\"worse\""), "{junit}");
    let message = posted
        .recv_timeout(Duration::from_secs(5))
        .expect("the loss is told");
    let text = message["text"].as_str().expect("it has a text");
    assert!(text.contains("1 worse") && text.contains("model=b"), "{text}");

    let compared = bench
        .call(&["compare", &first, &newest(&bench).display().to_string()])
        .exits(1);
    assert!(compared.stdout.contains("worse"), "{}", compared.stdout);

    let accepted = [
        "baseline",
        "accept",
        "matrices/m.yaml",
        "--reason",
        "the model answers better now",
    ];
    bench.call(&accepted).exits(0);
    nightly(&bench, &[]).exits(0).shows("t: nothing got worse");
    let message = posted
        .recv_timeout(Duration::from_secs(5))
        .expect("its end is told");
    assert!(
        message["text"]
            .as_str()
            .expect("it has a text")
            .contains("no longer: 1"),
        "{message}"
    );
    let shown = bench
        .call(&["baseline", "show", "matrices/m.yaml"])
        .exits(0)
        .stdout;
    assert!(
        shown.contains("the model answers better now") && shown.contains("the first night"),
        "{shown}"
    );
    bench
        .call(&["history", "t"])
        .exits(0)
        .shows("Nights of t")
        .shows("baseline: ");
    bench.leaves_no_process();
}
