#!/usr/bin/env bash
# The long form of the nightly procedure on synthetic cells: a thousand nights (or as many as given), the seed printed.
#   tests/montecarlo.sh [NIGHTS]
set -euo pipefail
cd "$(dirname "$0")/.."
export MATRIX_NIGHTS="${1:-1000}"
cargo test --lib judge::compare::montecarlo -- --nocapture
