#!/bin/bash
# Compares the load generator with the Python tools whose flags it has, in their long forms: the same arguments, the same requests one by
# one. Then compares grades with those of lm-eval, and counts with those of real engines on CPU, in the tests that CI has no time for. At last
# it compares the search of `matrix tune` with optuna's TPE and SMAC3 on simulated surfaces (tests/tune.sh), and imported figures with those
# of the tools that measured them (tests/import_peers.sh).
#
#     tests/peers.sh [SEEDS]     3, at most 3; takes about two minutes for each seed, and six for the engines
#
# `vllm bench serve` is that of MATRIX_ENGINES (tests/engines/cpu.sh), `sglang.bench_serving` that of MATRIX_PEERS
# (tests/engines/bench_serving_peer.sh), and lm-eval too (tests/engines/lm_eval_peer.sh),
# optuna and SMAC3 (tests/engines/tune_peers.sh), and the tools whose results are imported (tests/engines/import_peers.sh).
set -Eeuo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export MATRIX_VLLM_SEEDS=${1:-3}
export MATRIX_ENGINES="${MATRIX_ENGINES:-$PWD/target/engines}" MATRIX_PEERS="${MATRIX_PEERS:-$PWD/target/peers}"
export MATRIX_REQUIRE_ENGINES=1 MATRIX_REQUIRE_PEERS=1
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=false RUST_TEST_THREADS=1
cargo test --locked --test bench -- vllm_serve:: python:: --nocapture
for seed in $(seq "$MATRIX_VLLM_SEEDS"); do
  MATRIX_LM_EVAL_SEED=$seed cargo test --locked --test compare -- --ignored lm_eval:: --nocapture
done
cargo test --locked --test bench -- --ignored real_sessions:: real_transcriptions:: vllm:: sglang:: --nocapture
tests/tune.sh peers 20
tests/import_peers.sh
