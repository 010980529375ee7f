#!/usr/bin/env bash
# The long form of the fuzz test: ten million bent answers (or as many as given), seed printed.
#   tests/fuzz.sh [EXECUTIONS [SEED]]
set -euo pipefail
cd "$(dirname "$0")/.."
export MATRIX_FUZZ_EXECUTIONS="${1:-10000000}"
[ -z "${2:-}" ] || export MATRIX_FUZZ_SEED="$2"
cargo test --release --test fuzz -- --nocapture
