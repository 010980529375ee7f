#!/usr/bin/env bash
# The long form of every Monte-Carlo test of verdicts, with optimised code and the seeds printed: the error rates of the decision function and of the paired
# comparison of graded answers on two thousand runs per condition (or as many as given), and two thousand synthetic nights (or as many as given). Ends with 101 where a promised rate is missed. Four
# minutes on one core: the modules of the decision, of nights and their tests are built as a crate of their own, from the same files as `matrix`.
#   tests/montecarlo.sh [RUNS [NIGHTS]]
#
# With --planted it shows that the tests find what they are for: each of a few bugs is planted in a copy of these files, and a test must fail on it (a
# thousand runs each, two minutes). Ends with 1 where a bug is not found.
#   tests/montecarlo.sh --planted
#
# With --build it only compiles this crate, so that a renamed item is noticed.
#   tests/montecarlo.sh --build
set -euo pipefail
cd "$(dirname "$0")/.."
from=src/analysis/compare
crate="$(mktemp -d)"
trap 'rm -rf "$crate"' EXIT
CARGO_TARGET_DIR="$(realpath -m "${CARGO_TARGET_DIR:-target}")/montecarlo"
export CARGO_TARGET_DIR

# Copies the modules as they are.
fresh() {
  mkdir -p "$crate/$from" "$crate/src/base"
  cp src/base/text.rs "$crate/src/base/"
  mkdir -p "$crate/src/analysis/graded"
  cp -r src/analysis/graded/paired src/analysis/graded/paired.rs "$crate/src/analysis/graded/"
  cp -r "$from"/{between,change_point,montecarlo,multiple_testing,gate_policy,power,t_test,verdict}.rs "$from/decision" "$from/montecarlo" "$crate/$from/"
}

fresh
for module in between change_point decision multiple_testing gate_policy power t_test verdict; do
  echo "pub mod $module;"
done >"$crate/$from/mod.rs"
echo '#[cfg(test)] mod montecarlo;' >>"$crate/$from/mod.rs"
cat >"$crate/src/lib.rs" <<'RUST'
// `matrix` uses what this crate does not.
#![allow(dead_code, unused_imports)]
pub mod base {
    pub mod text;
}
pub mod analysis {
    pub mod compare;
    pub mod graded {
        pub mod paired;
    }
    pub mod metrics {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Direction {
            Higher,
            Lower,
        }
    }
}
RUST
cp Cargo.lock "$crate/"
{
  printf '[package]\nname = "montecarlo"\nversion = "0.0.0"\nedition = "2024"\n[profile.dev]\nopt-level = 3\n[dependencies]\n'
  grep -E '^(statrs|rand_mt) = ' Cargo.toml
} >"$crate/Cargo.toml"
cd "$crate"

if [ "${1:-}" = --build ]; then
  cargo test --quiet --lib --no-run
  exit
fi
if [ "${1:-}" != --planted ]; then
  export MATRIX_RUNS="${1:-2000}" MATRIX_NIGHTS="${2:-2000}"
  cargo test --lib -- analysis::compare::montecarlo analysis::compare::decision::rates analysis::graded --nocapture --test-threads "${THREADS:-2}"
  exit
fi

export MATRIX_RUNS=1000 MATRIX_NIGHTS=1000
missed=0
decision=$from/decision/mod.rs

# planted NAME FILE SED TEST: the test must fail once the bug is in the file.
planted() {
  local name=$1 file=$2 bug=$3 test=$4
  cp "$file" before
  sed -i "$bug" "$file"
  if cmp -s before "$file"; then
    echo "NOT PLANTED: $name: the line is no longer there"
    missed=1
    return
  fi
  echo "planted: $name"
  diff before "$file" | grep '^[<>]' || true
  # A bug that does not compile is none.
  cargo test --quiet --lib --no-run
  if cargo test --quiet --lib -- "$test" >output 2>&1; then
    echo "NOT FOUND: $name"
    missed=1
  else
    echo "found by $test: $(grep -c '^    "' output) conditions fail, such as"
    grep -m 2 '^    "' output
  fi
  cp before "$file"
}

planted "noise widens the bound" "$decision" \
  's/verdict(estimate, options.bound, questions/verdict(estimate, options.bound + 2.34 * questions[at].noise.map_or(0.0, |noise| noise.sigma), questions/' \
  a_loss_of_five_percent_is_never_called_the_same
planted "p = 0" "$decision" 's/p: t_test::two_sided_p(.*$/p: 0.0,/' builds_that_do_not_differ
planted "no correction for many cells" "$decision" 's/let adjusted = multiple_testing::holm_adjusted(&p, family);/let adjusted = p.clone();/' \
  builds_that_do_not_differ
planted "graded answers: as if every answer were an item" src/analysis/graded/paired.rs 's/\[size\] => upper_tail(differing\[size\], self.lost\[size\])/[size] => upper_tail(differing[size] * (size as u32 + 1), self.lost[size] * (size as u32 + 1))/' \
  healthy_runs_rarely_raise_an_alarm
planted "starts that a stopping rule asked for tell the variance" "$from/decision/question.rs" 's/self.first_stage.unwrap_or(self.logs.len())/self.logs.len()/' \
  stopping_when_it_is_known
planted "starts after the first stage tell nothing" "$from/decision/variance.rs" 's/all_starts.value.max(staged.value)/all_starts.value.min(staged.value)/' \
  a_slow_start_after_the_first_stage
planted "noise alone tells the variance" "$from/decision/variance.rs" 's/Some(if own.value > borrowed.value {/Some(if own.value > 1e9 * borrowed.value {/' \
  cells_that_are_unlike
planted "stored noise counts in full, whatever the starts show" "$from/decision/noise.rs" 's/(2.0 \* ratios.sf(own.value \/ stored.value)).min(1.0)/1.0/' \
  noise_that_the_starts_contradict
exit "$missed"
