//! How far a bench goes, what it calls a failure, and what it tells beyond the Python tool.

use serde_json::Value;

use crate::harness::{Desk, Ran};
use crate::recorder::{Flush, Recorder};
use crate::scripted::{serve_in_turn, stream, text};

const QUIET: [&str; 3] = ["--warmup-requests", "0", "--disable-tqdm"];

fn failing() -> Vec<String> {
    vec!["data: {\"error\": {\"message\": \"no\"}}".to_owned()]
}

fn sound() -> Vec<String> {
    stream(&["a", " b", " c"].map(text))
}

#[test]
fn more_failures_than_are_allowed_are_no_success() {
    for (more, code) in [
        (&[][..], 3),
        (&["--max-failed", "60%"], 0),
        (&["--compat-figures"], 0),
    ] {
        let desk = Desk::new();
        let port = serve_in_turn(&[sound(), failing()]);
        let ran = desk.random("vllm", port, &[&QUIET[..], more].concat());
        assert_eq!(ran.code, Some(code), "{more:?}: {}", ran.stderr);
        let is_said = ran
            .stderr
            .contains("50 % of the requests failed, but `--max-failed` allows 1 %");
        assert_eq!(is_said, code == 3, "{}", ran.stderr);
    }
}

#[test]
fn a_server_that_fails_every_request_is_left_alone_where_that_is_asked_for() {
    let desk = Desk::new();
    let port = serve_in_turn(&[failing()]);
    let more = [
        "--num-prompts",
        "150",
        "--max-concurrency",
        "1",
        "--abort-error-share",
        "0.5",
    ];
    let ran = desk.random("vllm", port, &[&QUIET[..], &more].concat());
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("the load was stopped early"),
        "{}",
        ran.stderr
    );
    let due = desk.lines()[0]["matrix"]["due_requests"].as_u64();
    assert!(due.is_some_and(|due| (20..150).contains(&due)), "{due:?}");
}

#[test]
fn time_bounds_the_load_and_each_request() {
    let desk = Desk::new();
    let more = ["--request-rate", "40", "--duration", "150ms", "--drain", "5s"];
    let ran = desk.random("vllm", serve_in_turn(&[sound()]), &[&QUIET[..], &more].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let due = desk.lines()[0]["matrix"]["due_requests"].as_u64();
    assert!(due.is_some_and(|due| due < 10), "{due:?}");
    let slow = stream(&vec![text("a"); 100]);
    for (flag, limit, class) in [
        ("--request-timeout", "100ms", "timeout-after-first"),
        ("--first-byte-timeout", "1us", "timeout-before-first"),
    ] {
        let port = serve_in_turn(std::slice::from_ref(&slow));
        let ran = Desk::new().random("vllm", port, &[&QUIET[..], &[flag, limit]].concat());
        assert_eq!(ran.code, Some(3), "{}", ran.stderr);
        assert!(ran.stderr.contains(class), "{}", ran.stderr);
    }
}

/// The Python tool's block ends where it ends; what is ours comes after it.
#[test]
fn figures_of_ours_stand_after_the_block_and_records_in_a_file() {
    let desk = Desk::new();
    let port = serve_in_turn(&[sound()]);
    let more = [
        "--percentiles",
        "75",
        "99.9",
        "--records",
        "records.jsonl",
        "--cache-report",
    ];
    let ran = desk.random("vllm", port, &[&QUIET[..], &more].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let (block, ours) = ran.stdout.split_once("Further Figures").expect("ours");
    assert!(block.contains("Serving Benchmark Result"));
    for line in [
        "Interactivity (tok/s per user):",
        "P99.9 TTFT (ms):",
        "P75 E2E from due (ms):",
        "Mean Wait until Sent (ms):",
    ] {
        assert!(ours.contains(line), "{line}: {ours}");
    }
    // Nobody told of a cache, which is not the same as nothing in it.
    let actual = block.lines().find(|line| line.starts_with("Cache hit rate:"));
    assert!(
        actual.is_some_and(|line| line.trim_end().ends_with('–')),
        "{actual:?}"
    );
    assert!(!ours.contains("Prefix-cache hit rate"));
    let records = std::fs::read_to_string(desk.path().join("records.jsonl")).expect("records");
    let records = records
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let chunks: Vec<usize> = records
        .filter(|record| record["sent_ns"].is_u64())
        .map(|record| record["chunks"].as_array().map_or(0, Vec::len))
        .collect();
    assert_eq!(chunks, [3; 10]);
    let copied = desk.random("vllm", port, &[&QUIET[..], &["--compat-figures"]].concat());
    assert!(!copied.stdout.contains("Further Figures"), "{}", copied.stdout);
}

#[test]
fn flags_without_effect_are_refused() {
    for more in [
        &["--burstiness", "0.5"][..],
        &["--spacing", "constant"],
        &["--sharegpt-context-len", "100"],
        &["--sharegpt-output-len", "100"],
        &["--profile-activities", "CPU"],
        &["--drain", "1s"],
    ] {
        let ran = Desk::new().random("vllm", 9, more);
        assert_eq!(ran.code, Some(2), "{more:?}: {}", ran.stderr);
    }
}

#[test]
fn files_that_cannot_be_written_are_refused_before_anything_is_sent() {
    let desk = Desk::new();
    for flag in ["--output-file", "--records", "--vllm-json"] {
        let more = [flag, "/no/such/folder/file"];
        let ran = desk.random("vllm", serve_in_turn(&[sound()]), &[&QUIET[..], &more].concat());
        assert_eq!(ran.code, Some(2), "{flag}: {}", ran.stderr);
        let error = format!("error: cannot write `/no/such/folder/file` ({flag}): No such file");
        assert!(ran.stderr.contains(&error), "{}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{}", ran.stdout);
    }
}

#[test]
fn a_line_that_cannot_be_kept_after_the_load_is_shown() {
    let desk = Desk::new();
    // A device that takes nothing: the disk is full.
    let more = ["--output-file", "/dev/full"];
    let ran = desk.random("vllm", serve_in_turn(&[sound()]), &[&QUIET[..], &more].concat());
    assert_eq!(ran.code, Some(6), "{}", ran.stderr);
    assert!(
        ran.stderr
            .contains("error: cannot append to `/dev/full`: No space left"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("\"completed\":"), "{}", ran.stderr);
}

#[test]
fn a_result_that_cannot_be_kept_after_the_load_is_shown() {
    let desk = Desk::new();
    let more = ["--output-file", "/dev/null", "--vllm-json", "/dev/full"];
    let ran = desk.random("vllm", serve_in_turn(&[sound()]), &[&QUIET[..], &more].concat());
    let ran = ran
        .exits(6)
        .says("error: cannot write `/dev/full`: No space left")
        .says("the result that was not written:\n{");
    assert!(ran.stderr.contains("\"mean_ttft_ms\""), "{}", ran.stderr);
}

/// Runs a bench that cannot make a file larger than these blocks of 512 or 1024 bytes.
fn run_limited(bench: &std::process::Command, blocks: u32) -> Ran {
    let mut limited = std::process::Command::new("sh");
    limited
        .args(["-c", &format!("ulimit -f {blocks}; exec \"$@\""), "sh"])
        .arg(bench.get_program())
        .args(bench.get_args())
        .current_dir(bench.get_current_dir().expect("a folder"));
    for (name, value) in bench.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    Ran::from(limited.output().expect("it runs"))
}

#[test]
fn a_full_disk_leaves_neither_a_cut_line_nor_a_cut_file() {
    let desk = Desk::new();
    std::fs::write(desk.path().join("kept.jsonl"), "{\"earlier\":1}\n").unwrap();
    let port = serve_in_turn(&[sound()]);
    for file in ["kept.jsonl", "new.jsonl"] {
        // What does not fit leaves the earlier content.
        std::fs::write(desk.path().join("earlier.json"), "{\"earlier\":1}\n").unwrap();
        std::fs::write(desk.path().join("earlier.jsonl"), "{\"earlier\":1}\n").unwrap();
        for (json, records) in [("v.json", "r.jsonl"), ("earlier.json", "earlier.jsonl")] {
            let more = ["--vllm-json", json, "--records", records];
            let bench = desk.random_command("vllm", port, &[&QUIET[..], &more].concat());
            let stderr = run_limited(&bench, 1).exits(6).stderr;
            for error in [
                format!("error: cannot write `{json}`: File too large"),
                format!("error: cannot append to `{records}`: File too large"),
            ] {
                assert!(stderr.contains(&error), "{error}: {stderr}");
            }
        }
        for kept in ["earlier.json", "earlier.jsonl"] {
            let kept = std::fs::read_to_string(desk.path().join(kept)).unwrap();
            assert_eq!(kept, "{\"earlier\":1}\n");
        }
        let more = ["--output-file", file, "--vllm-json", "v.json"];
        let bench = desk.random_command("vllm", port, &[&QUIET[..], &more].concat());
        let stderr = run_limited(&bench, 1).exits(6).stderr;
        for error in [
            format!("error: cannot append to `{file}`: File too large"),
            "the result line that was not written:\n{".to_owned(),
            "error: cannot write `v.json`: File too large".to_owned(),
            "the result that was not written:\n{".to_owned(),
        ] {
            assert!(stderr.contains(&error), "{error}: {stderr}");
        }
        assert!(!stderr.contains("cut off"), "{stderr}");
    }
    let kept = std::fs::read_to_string(desk.path().join("kept.jsonl")).unwrap();
    assert_eq!(kept, "{\"earlier\":1}\n");
    for file in ["new.jsonl", "v.json", "r.jsonl"] {
        assert!(!desk.path().join(file).exists(), "{file}");
    }
}

#[test]
fn a_file_that_cannot_be_written_does_not_keep_the_others_from_being_written() {
    let desk = Desk::new();
    let records = ["--output-file", "/dev/full", "--records", "records.jsonl"];
    let ran = desk.random(
        "vllm",
        serve_in_turn(&[sound()]),
        &[&QUIET[..], &records].concat(),
    );
    assert_eq!(ran.code, Some(6), "{}", ran.stderr);
    let written = std::fs::read_to_string(desk.path().join("records.jsonl")).expect("records");
    assert_eq!(written.lines().count(), 10);
    assert!(!desk.path().join("records.jsonl.partial").exists());
    let records = ["--records", "/dev/full"];
    let ran = desk.random(
        "vllm",
        serve_in_turn(&[sound()]),
        &[&QUIET[..], &records].concat(),
    );
    let ran = ran
        .exits(6)
        .says("error: cannot append to `/dev/full`: No space left")
        .says("the 10 records of this load are lost");
    assert!(
        ran.stderr.contains("the result was appended to `out.jsonl`"),
        "{}",
        ran.stderr
    );
    assert_eq!(desk.lines().len(), 1);
    let both = ["--output-file", "/dev/full", "--records", "/dev/full"];
    let ran = desk.random("vllm", serve_in_turn(&[sound()]), &[&QUIET[..], &both].concat());
    let ran = ran.exits(6).says("the result line that was not written:");
    assert!(
        ran.stderr.contains("records of this load are lost"),
        "{}",
        ran.stderr
    );
}

#[test]
fn records_beyond_the_room_for_them_are_counted() {
    let desk = Desk::new();
    let port = serve_in_turn(&[sound()]);
    let more = ["--records", "records.jsonl", "--output-file", "/dev/null"];
    let bench = desk.random_command("vllm", port, &[&QUIET[..], &more].concat());
    // Ten records are larger.
    let ran = run_limited(&bench, 4).exits(6);
    let partial = std::fs::read_to_string(desk.path().join("records.jsonl.partial")).expect("it is kept");
    let count = partial.matches('\n').count();
    assert!((1..10).contains(&count), "{partial}");
    let note = format!("{count} of 10 records are in `records.jsonl.partial`");
    assert!(ran.stderr.contains(&note), "{}", ran.stderr);
}

/// Its other end may never come, and the load would be over by then.
#[test]
fn output_into_a_named_pipe_is_refused_before_the_load() {
    let desk = Desk::new();
    let pipe = std::env::temp_dir().join(format!("matrix-test-pipe-{}", std::process::id()));
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|made| made.success()), "a pipe can be made");
    let rans = ["--records", "--output-file"]
        .map(|flag| (flag, desk.random("vllm", 9, &[flag, &pipe.to_string_lossy()])));
    let _ = std::fs::remove_file(&pipe);
    for (flag, ran) in rans {
        ran.exits(2).says(&format!("({flag}): this is a named pipe"));
    }
}

/// The filter is wrong, which is logged.
#[test]
fn the_log_has_colors_only_if_all_output_has_them() {
    for (color, is_colored) in [("never", false), ("auto", false), ("always", true)] {
        let more = ["--log", "matrix=loud", "--color", color, "--burstiness", "0"];
        let ran = Desk::new()
            .random("vllm", 9, &more)
            .exits(2)
            .says("the log filter");
        assert_eq!(ran.stderr.contains('\x1b'), is_colored, "{color}: {}", ran.stderr);
    }
}

#[test]
fn a_mistake_is_said_once() {
    let ran = Desk::new().random("vllm", 9, &["--burstiness", "0"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("burstiness").count(), 1, "{}", ran.stderr);
}

#[test]
fn a_server_that_never_answers_a_flush_is_waited_for_as_long_as_the_flag_says() {
    let server = Recorder::flushing(Flush::Silence);
    let flags = ["--flush-cache", "--flush-cache-timeout", "0.5"];
    Desk::new()
        .random("vllm", server.port, &[&QUIET[..], &flags].concat())
        .exits(4)
        .says("/reset_prefix_cache does not respond")
        .says("within the 500ms of `--flush-cache-timeout`");
}

#[test]
fn a_flush_without_success_is_no_flush() {
    for backend in ["vllm", "sglang"] {
        let server = Recorder::flushing(Flush::Answer(r#"{"success": false}"#));
        Desk::new()
            .random(backend, server.port, &[&QUIET[..], &["--flush-cache"]].concat())
            .exits(4)
            .says(r#"returned status 200: {"success": false}"#)
            .says("leave `--flush-cache` out");
    }
    for answer in [r#"{"success": true}"#, "Cache flushed."] {
        let server = Recorder::flushing(Flush::Answer(answer));
        let flags = [&QUIET[..], &["--flush-cache"]].concat();
        Desk::new().random("vllm", server.port, &flags).exits(0);
    }
}

#[test]
fn a_number_that_is_not_finite_is_refused_with_its_flag() {
    for flag in [
        "--random-range-ratio",
        "--gsp-range-ratio",
        "--gsp-zipf-alpha",
        "--mooncake-slowdown-factor",
        "--temperature",
        "--top-p",
    ] {
        for value in ["inf", "nan"] {
            let ran = Desk::new().call(&[flag, value]).exits(2);
            let ran = ran.says(&format!("invalid value '{value}' for '{flag}"));
            ran.says(&format!("`{value}` is not a finite number"));
        }
    }
}

#[test]
fn two_outputs_into_one_file_are_refused() {
    let desk = Desk::new();
    let path = desk.path().join("out.jsonl").display().to_string();
    // The harness names `out.jsonl` as the `--output-file`.
    desk.random("vllm", 1, &["--records", &path])
        .exits(2)
        .says("`--output-file` and `--records` name the same file")
        .says("nothing was sent");
}

#[test]
fn a_folder_as_the_file_of_a_data_set_is_called_a_folder() {
    let (server, desk) = (Recorder::start(), Desk::new());
    let folder = desk.path().display().to_string();
    let ran = desk.random("vllm", server.port, &["--dataset-path", &folder]);
    ran.says("(this is a folder; write the path of a file in it)");
}

#[test]
fn times_of_answers_that_do_not_stream_are_suspect() {
    for more in [
        &["--disable-stream"][..],
        &["--extra-request-body", r#"{"stream": false}"#],
    ] {
        let sim = crate::harness::Sim::start("vllm", &[]);
        let desk = Desk::new();
        let ran = desk.random("vllm", sim.port, &[&QUIET[..], more].concat());
        ran.exits(0).says("suspect for TTFT, ITL, TPOT (chunked-tokens)");
    }
}
