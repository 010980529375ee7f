#!/usr/bin/env bash
# What it costs to ask eight devices whose calls take milliseconds, with optimized code: less than a hundredth of a processor. Wants a
# machine with nothing else to do.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo test --release --test nvml cost -- --nocapture
