//! A real engine: SGLang on CPU, installed by `tests/engines/cpu.sh`. Without it the test is skipped by name, and where
//! `MATRIX_REQUIRE_ENGINES` is set, as CI does, that is a failure.

use crate::harness::Desk;
use crate::real_engine::{self, PAIRS, RealEngine, cross_encoder};

/// SGLang ranks with a list of results, each with the tokens of its pair of query and document.
#[test]
#[ignore = "a long form; tests/peers.sh runs it"]
fn real_sglang_counts_each_pair_of_query_and_document() {
    let Some(engines) = real_engine::folder("sglang") else {
        return;
    };
    let desk = Desk::new();
    let (model, log) = (desk.path().join("cross-encoder"), desk.path().join("sglang.log"));
    cross_encoder(&engines, &model);
    let sglang = RealEngine::sglang(&engines, &model, &log, &["--is-embedding"]);
    let counters = ["sglang:prompt_tokens_total", "sglang:generation_tokens_total"];
    for load in PAIRS {
        let flags = [&["--backend", "sglang-rerank"], load].concat();
        let figures = sglang.counts_alike(&engines, counters, &flags);
        assert_eq!(
            figures["input_tokens"], figures["reported_input_tokens"],
            "{load:?}"
        );
        assert_eq!(figures["output_tokens"], 0.0);
    }
}
