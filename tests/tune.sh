#!/usr/bin/env bash
# Searches for the best configuration of simulated engines whose best one is known: flat, with one dominant knob, with interactions, with a narrow region that
# runs, with a cliff of crashes, and noisy; the last two are the batching of `matrix sim`. For each it prints the regret of the tuner's winner and of a random
# search's after 24 starts, the starts until the winner lacks at most 5 %, and how often the winner is confirmed against the default with fresh starts, by the
# decision function of `matrix compare`. Ends with 1 if on a surface with something to gain the regret is worse than at random (paired, one-sided, 5 %), if less
# than a quarter of the starts is saved on three of them, if too few winners are confirmed (80 %), or if the default is beaten too often on the flat one or
# a worse configuration is confirmed as better (5 %); shares are those of a sample. Built with optimised code from the files of `matrix` itself.
#   tests/tune.sh [SEEDS [SEED]]     50 seeds take about a minute on two cores; 10 take a quarter of that
# With `peers` it compares the regret with that of optuna's TPE and of SMAC3 on the same surfaces (tests/engines/tune_peers.sh), and ends with 1 if the median
# is more than one point higher than theirs.
#   tests/tune.sh peers [SEEDS [SEED]]
# With `kills` it kills `matrix tune` at random moments and continues it, until as many kills have been made: nothing may be measured twice, and the result
# must be of the same kind as without kills.
#   tests/tune.sh kills [KILLS [SEED]]     20 kills take about five minutes
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
if [ "${1:-}" = kills ]; then
  cd "$root"
  cargo build --quiet --locked
  binary="$(realpath "${CARGO_TARGET_DIR:-target}")/debug/matrix"
  exec python3 tests/tune/kills.py "$binary" "$root/matrices/data" "${2:-20}" "${3:-1}"
fi
crate="$(mktemp -d)"
trap 'rm -rf "$crate"' EXIT
target="$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")/tune"

mkdir -p "$crate/src"
cp "$root/Cargo.lock" "$crate/"
{
  printf '[package]\nname = "tune"\nversion = "0.0.0"\nedition = "2024"\n[profile.dev]\nopt-level = 3\ndebug = false\n[profile.dev.package."*"]\nopt-level = 3\n[dependencies]\n'
  grep -E '^(statrs|nalgebra) = ' "$root/Cargo.toml"
} >"$crate/Cargo.toml"
module() { printf '#[path = "%s"] pub mod %s;\n' "$root/$2" "$1"; }
{
  cat <<'RUST'
// `matrix` uses what this program does not.
#![allow(dead_code, unused_imports)]
pub mod base {
RUST
  module text src/base/text.rs
  echo '} pub mod sim {'
  module batching src/sim/batching/mod.rs
  module rng src/sim/rng.rs
  module text src/sim/text.rs
  echo '} pub mod analysis {'
  module tune src/analysis/tune/mod.rs
  echo 'pub mod compare {'
  for module in between change_point multiple_testing gate_policy power t_test verdict; do
    module "$module" "src/analysis/compare/$module.rs"
  done
  module decision src/analysis/compare/decision/mod.rs
  cat <<'RUST'
    }
    pub mod metrics {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Direction {
            Higher,
            Lower,
        }
    }
}
mod tune {
RUST
  for module in engine export harness search surfaces; do
    module "$module" "tests/tune/$module.rs"
  done
  cat <<'RUST'
}
fn main() {
    let mut args = std::env::args().skip(1).peekable();
    let is_export = args.next_if_eq("export").is_some();
    let mut number = |default: u64| args.next().map_or(default, |word| word.parse().expect("a number"));
    let (seeds, seed) = (number(50), number(1));
    if is_export {
        tune::export::write(seeds, seed);
    } else if !tune::harness::run(seeds, seed) {
        std::process::exit(1);
    }
}
RUST
} >"$crate/src/main.rs"
CARGO_TARGET_DIR="$target" cargo build --quiet --manifest-path "$crate/Cargo.toml"
program="$target/debug/tune"
if [ "${1:-}" != peers ]; then
  "$program" "$@"
  exit
fi
shift
peers="${MATRIX_PEERS:-$root/target/peers}"
"$root/tests/engines/tune_peers.sh" "$peers"
"$program" export "$@" >"$crate/surfaces.json"
"$peers/tune/bin/python" "$root/tests/tune/peers.py" "$crate/surfaces.json"
