//! A second load on a server that still has the prompts of the first in its prefix cache.

use serde_json::Value;

use crate::harness::{Desk, Sim};

const CODE: &str = "invalid (cache-warm)";

/// Long prompts, so that what a cache rounds to its blocks is little of them.
const LONG: [&str; 2] = ["--random-input-len", "256"];

#[test]
fn prompts_that_an_earlier_bench_sent_are_found_in_the_cache() {
    for (dialect, backend) in [("sglang", "sglang"), ("vllm", "vllm"), ("vllm", "vllm-chat")] {
        let (sim, desk) = (Sim::start(dialect, &[]), Desk::new());
        let bench = |more: &[&str]| {
            desk.random(backend, sim.port, &[&LONG[..], more].concat())
                .exits(0)
        };
        let is_warm = |more: &[&str]| bench(more).stderr.contains(CODE);
        assert!(!is_warm(&[]), "{backend}: the first load");
        let again = bench(&[]).says(CODE).says("`--seed`").says("`--flush-cache`");
        assert!(!again.stdout.contains("cache-warm"), "{}", again.stdout);
        assert!(!is_warm(&["--flush-cache"]), "{backend}: emptied");
        assert!(!is_warm(&["--seed", "43"]), "{backend}: other prompts");
        let notes = &desk.lines()[1]["matrix"]["notes"];
        assert!(notes.to_string().contains(CODE), "{notes}");
    }
}

#[test]
fn what_prompts_share_with_each_other_is_no_warm_cache() {
    let (sim, desk) = (Sim::start("sglang", &[]), Desk::new());
    // One after the other, so that each finds what those before it left.
    let shared = [
        "--max-concurrency",
        "1",
        "--dataset-name",
        "generated-shared-prefix",
        "--gsp-num-groups",
        "2",
        "--gsp-prompts-per-group",
        "10",
        "--gsp-system-prompt-len",
        "256",
        "--gsp-question-len",
        "32",
        "--gsp-output-len",
        "4",
    ];
    let first = desk.random("sglang", sim.port, &shared).exits(0);
    let hits: f64 = first
        .value("Prefix-cache hit rate (%)")
        .parse()
        .expect("a number");
    assert!(hits > 50.0, "{hits} % hits");
    assert!(!first.stderr.contains("cache-warm"), "{}", first.stderr);
    // Sent again, the rest of them is known too.
    let shorter = [
        &shared[..],
        &["--gsp-system-prompt-len", "32", "--gsp-question-len", "256"],
    ]
    .concat();
    assert!(
        !desk
            .random("sglang", sim.port, &shorter)
            .exits(0)
            .stderr
            .contains(CODE)
    );
    desk.random("sglang", sim.port, &shorter).exits(0).says(CODE);
}

#[test]
fn a_server_that_tells_no_cached_tokens_is_not_judged() {
    let (sim, desk) = (Sim::start("vllm", &["--hide-cached-tokens"]), Desk::new());
    for _ in 0..2 {
        let ran = desk.random("vllm", sim.port, &LONG).exits(0);
        assert!(!ran.stderr.contains("cache-warm"), "{}", ran.stderr);
    }
}

#[test]
fn a_search_ends_at_a_point_that_met_a_warm_cache() {
    let (sim, desk) = (Sim::start("sglang", &[]), Desk::new());
    let search = [
        "--search",
        "concurrency",
        "--search-to",
        "4",
        "--search-prompts",
        "80",
        "--search-target",
        "0.5",
        "--num-prompts",
        "240",
        "--goodput",
        "ttft:60000",
        "--disable-warmup",
    ];
    let search = [&LONG[..], &search].concat();
    desk.random("sglang", sim.port, &search).exits(0);
    let ending =
        |desk: &Desk| desk.lines().last().expect("there are points")["matrix"]["search"]["result"].clone();
    assert_eq!(ending(&desk)["ending"], "all-held");
    desk.random("sglang", sim.port, &search)
        .exits(5)
        .says("concurrency 1 met a warm cache")
        .says(CODE)
        .shows(
            "no concurrency was found: at the first point, 1 at once, the prompts were already in the engine's cache",
        );
    let warm = ending(&desk);
    assert_eq!(
        (&warm["ending"], &warm["found"]),
        (&"cache-warm".into(), &Value::Null)
    );
}
