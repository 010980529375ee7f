#!/usr/bin/env bash
# The long form of every Monte-Carlo test, with optimised code and the seeds printed: the error rates of the decision function on two thousand runs
# per condition (or as many as given), and a thousand synthetic nights (or as many as given).
#   tests/montecarlo.sh [RUNS [NIGHTS]]
set -euo pipefail
cd "$(dirname "$0")/.."
export MATRIX_RUNS="${1:-2000}" MATRIX_NIGHTS="${2:-1000}"
export CARGO_PROFILE_DEV_OPT_LEVEL=2 CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/montecarlo"
cargo test --lib -- judge::compare::montecarlo judge::compare::decision::rates --nocapture --test-threads 2
