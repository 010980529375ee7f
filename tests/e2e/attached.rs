//! Servers that somebody else started: what is measured on them are repeats on one start, and caches may be warm.

use std::collections::BTreeSet;

use matrix::results::record::validity::ReasonCode;
use matrix::results::store::Run;

use crate::harness::Bench;
use crate::server::{Server, attached};

/// Short outputs after long prompts, so that a warm cache shows.
const LOAD: &str = "  - load: { dataset: random, prompts: 6, input_len: 400, output_len: 6, concurrency: 2, range_ratio: 1.0 }\nrepeats: { starts: 3 }\n";

fn codes(run: &Run) -> BTreeSet<ReasonCode> {
    let judged = run
        .summaries
        .iter()
        .filter_map(|summary| summary.validity.as_ref());
    let reasons = judged.flat_map(|validity| &validity.reasons);
    reasons.map(|reason| reason.code).collect()
}

/// The same prompts three times on a server that keeps its cache: they begin otherwise each time, and the counters of the server, which
/// no recipe names, prove that they are cold. One server is four times as fast, and wins nothing.
#[test]
fn repeats_on_running_servers_are_cold_and_never_the_best() {
    let (slow, fast) = (
        Server::start(&["--preset", "fast", "--dialect", "vllm", "--step", "8ms"]),
        Server::start(&["--preset", "fast", "--dialect", "vllm", "--step", "2ms"]),
    );
    let bench = Bench::of(&attached(&[("slow", &slow), ("fast", &fast)], LOAD));
    bench
        .call(&["plan", "matrices/m.yaml"])
        .exits(0)
        .shows("unknown GPUs")
        .shows("so its 3 starts are repeats on the running")
        .shows("the prompts of each measurement start with a unique prefix");
    let ran = bench
        .run(&[])
        .exits(0)
        .shows("the number of GPUs is unknown for at least one side")
        .shows("all measurements repeat the load on one start")
        .shows("start with a unique prefix");
    assert!(!ran.stdout.contains("[best]"), "{}", ran.stdout);
    let ran = ran
        .says("  attached: http://")
        .says("  the server is left running, because `matrix` did not start it\n");
    assert!(!ran.stderr.contains("stopped:"), "{}", ran.stderr);
    let run = bench.finished();
    assert_eq!(run.summaries.len(), 6);
    for summary in &run.summaries {
        let proof = summary.cache_reset.as_ref().expect("what is known of its caches");
        assert!(!proof.is_fresh_start, "somebody else started it");
        assert!(proof.unique_prefix.is_some(), "{proof:?}");
        assert_eq!(proof.hits_in_window, Some(0.0), "{proof:?}");
    }
    let found = codes(&run);
    assert!(
        !found.contains(&ReasonCode::CacheWarm) && !found.contains(&ReasonCode::ResetUnproven),
        "{found:?}"
    );
}

/// A server that someone else started remembers the prompts of every earlier run of the same matrix.
#[test]
fn a_second_run_on_a_running_server_begins_its_prompts_otherwise() {
    let server = Server::start(&["--preset", "fast", "--dialect", "vllm"]);
    let matrix = attached(&[("a", &server)], LOAD);
    let mut letters = BTreeSet::new();
    for _ in 0..2 {
        let bench = Bench::of(&matrix);
        bench.run(&[]).exits(0);
        for summary in &bench.finished().summaries {
            let proof = summary.cache_reset.as_ref().expect("what is known of its caches");
            assert_eq!(proof.hits_in_window, Some(0.0), "{proof:?}");
            letters.insert(
                proof
                    .unique_prefix
                    .clone()
                    .expect("its prompts begin with letters")
                    .letters,
            );
        }
    }
    assert_eq!(letters.len(), 6, "{letters:?}");
}

/// Somebody puts another build at the address of a server before the run goes on: its figures stand beside the others, and are not pooled.
#[test]
fn measurements_on_a_server_that_was_replaced_before_a_resume_do_not_count() {
    let arguments = |version: &'static str| {
        [
            "--preset",
            "fast",
            "--dialect",
            "vllm",
            "--version-string",
            version,
        ]
    };
    let mut server = Server::start(&arguments("1.0"));
    let bench = Bench::of(&attached(&[("a", &server)], LOAD));
    bench.run(&[]).exits(0);
    let measure_last_again = |code: i32| {
        let mut cells: Vec<_> = std::fs::read_dir(bench.run_folder().join("cells"))
            .expect("there are cells")
            .map(|cell| cell.expect("it can be read").path())
            .collect();
        cells.sort();
        std::fs::remove_dir_all(cells.pop().expect("there are some")).expect("it can be removed");
        bench.run(&["--resume"]).exits(code)
    };
    // The same server, started again, has not changed.
    server.replace(&arguments("1.0"));
    measure_last_again(0);
    assert!(!codes(&bench.finished()).contains(&ReasonCode::EngineChanged));
    server.replace(&arguments("2.0"));
    measure_last_again(3)
        .says("invalid: engine-changed: version 1.0 → 2.0")
        .shows("1 of 3 measurements is invalid and left out");
}

/// Its health check is open to anyone, as vLLM's is, and nothing else.
#[test]
fn a_server_that_wants_a_key_is_refused_before_anything_starts() {
    let server = Server::start(&[
        "--preset",
        "fast",
        "--dialect",
        "vllm",
        "--api-key",
        "a-key-of-the-server",
    ]);
    let bench = Bench::of(&attached(&[("keyed", &server)], LOAD));
    bench
        .run(&[])
        .exits(4)
        .says("/v1/models returned 401")
        .says("headers: { Authorization: \"Bearer ${KEY}\" }");
}

/// Prompts as they were drawn: the counters tell that they were warm, and where nobody counts, nobody can tell.
#[test]
fn prompts_as_drawn_on_a_running_server_are_warm_or_unproven() {
    let drawn = |server: &Server| {
        let matrix = attached(&[("running", server)], LOAD);
        Bench::of(&matrix.replace("url:", "unique_prefixes: false, url:"))
    };
    let counted = Server::start(&["--preset", "fast", "--dialect", "vllm", "--step", "2ms"]);
    let bench = drawn(&counted);
    bench.run(&[]).exits(3).says("invalid: cache-warm");
    let silent = Server::start(&[
        "--preset",
        "fast",
        "--dialect",
        "openai",
        "--hide-cached-tokens",
        "--step",
        "2ms",
    ]);
    let bench = drawn(&silent);
    bench
        .call(&["plan", "matrices/m.yaml"])
        .exits(0)
        .shows("prompts are sent unchanged");
    bench.run(&[]).exits(0);
    let run = bench.finished();
    for summary in &run.summaries {
        let reasons = &summary.validity.as_ref().expect("it is judged").reasons;
        let codes: Vec<ReasonCode> = reasons.iter().map(|reason| reason.code).collect();
        assert!(codes.contains(&ReasonCode::ResetUnproven), "{codes:?}");
    }
}

#[test]
fn the_gpus_of_a_running_server_are_declared() {
    let servers = [
        Server::start(&["--preset", "fast", "--dialect", "vllm", "--step", "2ms"]),
        Server::start(&["--preset", "fast", "--dialect", "vllm", "--step", "2ms"]),
    ];
    let load = LOAD.replace("repeats: { starts: 3 }\n", "");
    let matrix = attached(&[("one", &servers[0]), ("eight", &servers[1])], &load)
        .replace("as: one,", "as: one, gpus: 1, gpu: H100,")
        .replace("as: eight,", "as: eight, gpus: 8, gpu: H100,");
    let bench = Bench::of(&matrix);
    bench
        .call(&["plan", "matrices/m.yaml"])
        .exits(0)
        .shows("8 GPUs")
        .shows("H100");
    bench.run(&[]).exits(0).shows("8 GPUs against 1");
    let started = matrix
        .replace("- attach:", "- sim:")
        .replace("gpu: H100, url:", "gpu: H100, served_model_name:");
    Bench::of(&started)
        .call(&["check", "matrices/m.yaml"])
        .exits(2)
        .says("describes the GPUs of an attached server");
}

/// A wrong name is said before anything starts, with the names that the server serves.
#[test]
fn a_model_that_a_running_server_does_not_serve_is_refused_before_anything_starts() {
    let server = Server::start(&["--preset", "fast", "--dialect", "vllm", "--model", "org/model-8b"]);
    let matrix = attached(&[("running", &server)], LOAD);
    let named = |model: &str| Bench::of(&matrix.replace("  - m: {", &format!("  - {model}: {{")));
    let bench = named("org/model-8");
    bench
        .run(&[])
        .exits(4)
        .says("engine `running` serves `m` and `org/model-8b`, but `org/model-8` is requested")
        .says("did you mean `org/model-8b`?");
    assert!(!bench.results().exists() || std::fs::read_dir(bench.results()).unwrap().next().is_none());
    named("org/model-8b").run(&["--only", "scenario=load"]).exits(0);
}

/// It ends under load: what is seen from here of its end is said, and nothing else.
#[test]
fn a_running_server_that_died_is_not_said_to_go_on() {
    let server = Server::start(&[
        "--preset",
        "fast",
        "--dialect",
        "vllm",
        "--die-after",
        "8requests",
    ]);
    let load = "  - load: { dataset: random, prompts: 20, input_len: 100, output_len: 6, concurrency: 2, range_ratio: 1.0, warmup: 0 }\n";
    let bench = Bench::of(&attached(&[("dying", &server)], load));
    let ran = bench.run(&[]).exits(3);
    assert!(!ran.stderr.contains("it goes on"), "{}", ran.stderr);
    ran.says("the server no longer accepts connections")
        .shows("refused ");
    let cells = std::fs::read_dir(bench.run_folder().join("cells")).expect("there are cells");
    let pages: Vec<String> = cells
        .map(|cell| {
            std::fs::read_to_string(cell.unwrap().path().join("post-mortem.md")).expect("it is there")
        })
        .collect();
    assert!(
        pages[0].contains("attached server: its exit is not visible"),
        "{}",
        pages[0]
    );
    assert!(pages[0].contains("refused "), "{}", pages[0]);
}

#[test]
fn one_server_under_two_names_is_said_to_be_one() {
    let server = Server::start(&["--preset", "fast", "--dialect", "vllm"]);
    let bench = Bench::of(&attached(&[("one", &server), ("two", &server)], LOAD));
    bench
        .call(&["check", "matrices/m.yaml"])
        .exits(0)
        .says("`one` and `two` attach to the same server");
}

/// Nobody declared a precision; one server reports that its weights are quantized, and is twice as fast.
#[test]
fn what_a_server_reports_of_its_precision_and_settings_is_held_against_the_other() {
    let common = ["--preset", "fast", "--dialect", "sglang", "--step"];
    let with = |more: &[&'static str]| Server::start(&[&common[..], more].concat());
    let plain = with(&["8ms", "--max-model-len", "4096"]);
    let quantized = with(&["4ms", "--quantization", "fp8", "--max-model-len", "4096"]);
    let shorter = with(&["8ms", "--max-model-len", "2048"]);
    let spread = with(&["8ms", "--tp", "2", "--max-model-len", "4096"]);
    let servers = [
        ("plain", &plain),
        ("quantized", &quantized),
        ("shorter", &shorter),
        ("spread", &spread),
    ];
    // Enough requests that neither beginning nor end dominates, where a busy host stretches them.
    let load = LOAD.replace("prompts: 6", "prompts: 24");
    let matrix = attached(&servers, &load).replace("url:", "variant: sglang, url:");
    let bench = Bench::of(&matrix);
    bench
        .run(&[])
        .exits(0)
        .shows("precision fp8 against unknown")
        .shows("context length 2048 against 4096")
        .shows("parallel sizes reported by the server tp 2 pp 1 against tp 1 pp 1");
    let run = bench.run_folder().display().to_string();
    let arms = |arms: &str| bench.call(&["compare", &run, "--arms", arms]);
    arms("engine=plain,quantized").shows("precision: unknown → fp8");
    arms("engine=plain,spread").shows("tp 1 pp 1 → tp 2 pp 1");
    arms("engine=plain,shorter").shows("context length");
    for other in ["quantized", "spread"] {
        arms(&format!("engine=plain,{other}")).shows("1 of 1 metrics not judged");
    }
}
