#!/usr/bin/env bash
# The long form of the load that is killed: `matrix run` and `matrix bench --records` at 20 requests/s for an hour (or as many seconds
# as given), then kill -9; everything up to the last seconds must be readable.
#   tests/long-load.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."
export MATRIX_LONG_LOAD="${1:-3600}"
cargo test --test e2e a_load_killed_late -- --nocapture
