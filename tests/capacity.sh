#!/usr/bin/env bash
# Searches for the capacity of simulated systems that is known: three kinds of queues and the simulated engine, near saturation, with targets of 95 and 99 %.
# For each it prints how many intervals contain the capacity, their width and the time of their probes; and the same over five starts that differ. With
# 60 searches or more, next to them a bisection whose probes were made longer until 95 % of its intervals, as wide, contain the capacity. Ends with 1 if fewer
# intervals contain it than 95 % can be in a sample (185 of 200), or if a search takes more than half of the time of that bisection. Built with optimised
# code from the files of `matrix` itself; the systems are in tests/capacity.
#   tests/capacity.sh [SEARCHES [SEED]]     200 searches take about 14 minutes on two cores
# With `engines` it searches five times each on real llama-server and vLLM in containers instead (MATRIX_DOCKER_HOST, tests/docker/dockerd.sh; MATRIX_ENGINES,
# tests/engines/cpu.sh), and ends with 101 where two searches disagree. Half an hour on an idle host.
#   tests/capacity.sh engines
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
if [ "${1:-}" = engines ]; then
  cd "$root"
  export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=false RUST_TEST_THREADS=1 MATRIX_REQUIRE_ENGINES=1 MATRIX_REQUIRE_DOCKER=1
  exec cargo test --locked --test docker -- --ignored searches_of_real --nocapture
fi
crate="$(mktemp -d)"
trap 'rm -rf "$crate"' EXIT
cat >"$crate/main.rs" <<RUST
// \`matrix\` uses what this program does not.
#![allow(dead_code)]
mod sim {
    #[path = "$root/src/sim/batching/mod.rs"]
    pub mod batching;
    #[path = "$root/src/sim/rng.rs"]
    pub mod rng;
    #[path = "$root/src/sim/text.rs"]
    pub mod text;
}
mod analysis {
    pub mod capacity {
        #[path = "$root/tests/capacity/harness.rs"]
        pub mod harness;
        #[path = "$root/src/analysis/capacity/probe_test.rs"]
        mod probe_test;
        #[path = "$root/src/analysis/capacity/starts.rs"]
        mod starts;
        #[path = "$root/src/analysis/capacity/strategy.rs"]
        mod strategy;
        #[path = "$root/tests/capacity/systems.rs"]
        mod systems;
    }
}
fn main() {
    let mut args = std::env::args().skip(1);
    let mut number = |default: u64| args.next().map_or(default, |word| word.parse().expect("a number"));
    let (searches, seed) = (number(200), number(1));
    let is_good = analysis::capacity::harness::run(searches, seed);
    std::process::exit(if is_good { 0 } else { 1 });
}
RUST
rustc --edition 2024 -C opt-level=3 "$crate/main.rs" -o "$crate/capacity"
"$crate/capacity" "$@"
