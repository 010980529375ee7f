//! What long loads take in memory, and in time when they are over: the whole of `matrix bench`, from its prompts to its files.
//! `MATRIX_BINARY` names another build to be measured instead, `MATRIX_TOKENIZER` another tokenizer.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::{Server, verdict};

/// What a load came to.
struct Row {
    peak_mib: f64,
    /// From the end of the load to the end of the process, s.
    after_s: f64,
    completed: u64,
    tokens: u64,
}

/// A load of `matrix bench`.
#[derive(Clone, Copy)]
struct Load {
    prompts: usize,
    input: usize,
    output: usize,
    concurrency: usize,
}

pub fn bench(is_quick: bool) {
    let base = row(
        Load {
            prompts: 1,
            input: 16,
            output: 16,
            concurrency: 1,
        },
        false,
    );
    println!("memory, the tokenizer and one request: {:.0} MiB", base.peak_mib);
    for (tokens, streams, bound) in [(2_000_000, 2048, 200.0), (100_000_000, 10_000, 500.0)] {
        let tokens: usize = if is_quick { tokens / 10 } else { tokens };
        let load = Load {
            prompts: streams,
            input: 16,
            output: tokens / streams,
            concurrency: streams,
        };
        let row = row(load, false);
        println!(
            "memory, {tokens} tokens over {streams} streams: peak {:.0} MiB (at most {bound}) {}, {} completed, {} tokens; after the load \
             {:.2} s, {:.2} s per million tokens",
            row.peak_mib,
            verdict(row.peak_mib <= bound),
            row.completed,
            row.tokens,
            row.after_s,
            row.after_s * 1e6 / row.tokens as f64
        );
    }
    let prompts = if is_quick { 1000 } else { 10_000 };
    let base = row(
        Load {
            prompts: 1,
            input: 4000,
            output: 2,
            concurrency: 1,
        },
        false,
    );
    for is_kept in [false, true] {
        let row = row(
            Load {
                prompts,
                input: 4000,
                output: 2,
                concurrency: 64,
            },
            is_kept,
        );
        let above = row.peak_mib - base.peak_mib;
        println!(
            "memory, {prompts} prompts of 4000 tokens, {}: {above:.0} MiB above the loaded tokenizer (at most 300) {}, {} completed",
            if is_kept { "kept from before" } else { "drawn" },
            verdict(above <= 300.0),
            row.completed
        );
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "an environment variable selects what the bench measures"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn row(load: Load, keeps_prompts: bool) -> Row {
    let server = Server::flood(64 << 10);
    let folder = std::env::temp_dir().join(format!("matrix-bench-{}", std::process::id()));
    let cache = folder.join("cache");
    std::fs::create_dir_all(&cache).expect("a folder can be made");
    let tokenizer = variable("MATRIX_TOKENIZER")
        .unwrap_or_else(|| format!("{}/matrices/data/tokenizer.json", env!("CARGO_MANIFEST_DIR")));
    let run = |more: &[&str]| {
        let mut command = Command::new(
            variable("MATRIX_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_matrix").to_owned()),
        );
        command
            .args([
                "bench",
                "--backend",
                "vllm",
                "--model",
                "m",
                "--ready-check-timeout-sec",
                "0",
            ])
            .args(["--base-url", &format!("http://127.0.0.1:{}", server.port)])
            .args(["--tokenizer", &tokenizer, "--dataset-name", "random-ids"])
            .args([
                "--random-range-ratio",
                "1",
                "--random-input-len",
                &load.input.to_string(),
            ])
            .args(["--random-output-len", &load.output.to_string()])
            .args(["--num-prompts", &load.prompts.to_string()])
            .args(["--max-concurrency", &load.concurrency.to_string()])
            .args([
                "--warmup-requests",
                "0",
                "--disable-tqdm",
                "--output-file",
                "out.jsonl",
            ])
            .args(more)
            .current_dir(&folder)
            .env("MATRIX_CACHE", &cache)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().expect("the binary runs")
    };
    if keeps_prompts {
        drop(run(&[]).wait());
        let _ = std::fs::remove_file(folder.join("out.jsonl"));
    }
    let began = matrix::base::clock::now();
    let mut child = run(if keeps_prompts { &[] } else { &["--fresh-prompts"] });
    let mut peak_mib = 0.0f64;
    let status = format!("/proc/{}/status", child.id());
    while child.try_wait().expect("it is a child of ours").is_none() {
        let actual = std::fs::read_to_string(&status).unwrap_or_default();
        let line = actual.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
        peak_mib = kib.map_or(peak_mib, |kib| peak_mib.max(kib / 1024.0));
        std::thread::sleep(Duration::from_millis(20));
    }
    let all_s = matrix::base::clock::now().since(began).as_secs_f64();
    let text = std::fs::read_to_string(folder.join("out.jsonl")).unwrap_or_default();
    let line: serde_json::Value =
        serde_json::from_str(text.lines().last().unwrap_or("null")).expect("a line of JSON");
    let _ = std::fs::remove_dir_all(&folder);
    Row {
        peak_mib,
        // The questions before and after the load are in it, as are the prompts: small ones here.
        after_s: all_s - line["duration"].as_f64().unwrap_or(0.0),
        completed: line["completed"].as_u64().unwrap_or(0),
        tokens: line["total_output_tokens"].as_u64().unwrap_or(0),
    }
}
