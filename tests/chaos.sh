#!/usr/bin/env bash
# The long form of the chaos test: kill -9 at 50 random moments (or as many as given), seed printed.
#   tests/chaos.sh [ROUNDS [SEED]]
set -euo pipefail
cd "$(dirname "$0")/.."
export MATRIX_CHAOS_ROUNDS="${1:-50}"
[ -z "${2:-}" ] || export MATRIX_CHAOS_SEED="$2"
cargo test --test e2e chaos -- --nocapture
