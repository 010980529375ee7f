#!/usr/bin/env bash
# The long form of every Monte-Carlo test, with optimised code and the seeds printed: the error rates of the decision function on two thousand runs
# per condition (or as many as given), and two thousand synthetic nights (or as many as given). Ends with 101 where a promised rate is missed.
#   tests/montecarlo.sh [RUNS [NIGHTS]]
#
# With --planted it shows that the tests find what they are for: each of a few bugs is planted in a copy of the sources, and the tests must fail on it
# (a thousand runs each). Ends with 1 where a bug is not found.
#   tests/montecarlo.sh --planted
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_PROFILE_DEV_OPT_LEVEL=2
CARGO_TARGET_DIR="$(realpath -m "${CARGO_TARGET_DIR:-target}")/montecarlo"
export CARGO_TARGET_DIR
tests=(judge::compare::montecarlo judge::compare::decision::rates)

if [ "${1:-}" != --planted ]; then
  export MATRIX_RUNS="${1:-2000}" MATRIX_NIGHTS="${2:-2000}"
  exec cargo test --lib -- "${tests[@]}" --nocapture --test-threads 2
fi

export MATRIX_RUNS=1000 MATRIX_NIGHTS=1000
decision=src/judge/compare/decision/mod.rs
copy="$(mktemp -d)"
trap 'rm -rf "$copy"' EXIT
git ls-files -z | tar --null --files-from=- --create | tar --extract --directory="$copy"
missed=0

# planted NAME FILE SED TEST: the test must fail once the bug is in the file.
planted() {
  local name=$1 file=$2 bug=$3 test=$4
  cp "$file" "$copy/$file"
  sed -i "$bug" "$copy/$file"
  if cmp -s "$file" "$copy/$file"; then
    echo "cannot plant: $name: the line is no longer there"
    missed=1
    return
  fi
  diff "$file" "$copy/$file" | grep '^[<>]' || true
  # A bug that does not compile is none.
  (cd "$copy" && cargo test --quiet --lib --no-run)
  if (cd "$copy" && cargo test --quiet --lib -- "$test") >"$copy/output" 2>&1; then
    echo "NOT FOUND: $name"
    missed=1
  else
    echo "found: $name; $(grep -c '^    "' "$copy/output") conditions fail, such as"
    grep -m 2 '^    "' "$copy/output"
  fi
  cp "$file" "$copy/$file"
}

planted "noise widens the bound" "$decision" \
  's/verdict(estimate, terms.bound, questions/verdict(estimate, terms.bound + 2.34 * questions[at].noise.map_or(0.0, |noise| noise.sigma), questions/' \
  a_loss_of_five_percent_is_never_called_the_same
planted "p = 0" "$decision" 's/p: student::two_sided(.*$/p: 0.0,/' builds_that_do_not_differ
planted "no correction for many cells" "$decision" 's/let adjusted = multiplicity::holm_adjusted(&p, family);/let adjusted = p.clone();/' builds_that_do_not_differ
planted "starts that a stopping rule asked for tell the variance" "$decision" 's/self.first_stage.unwrap_or(self.logs.len())/self.logs.len()/' stopping_when_it_is_known
planted "noise alone tells the variance" "$decision" 's/Some(if own.value > borrowed.value {/Some(if own.value > 1e9 * borrowed.value {/' cells_that_are_unlike
exit "$missed"
