#!/bin/bash
# Plants errors in the answers of simulated engines, through the command line: wrong above a number of requests at once, beyond a length of
# prompts, in a share of answers, with a wrong template, in the parser of tool calls, with prompts that are cut, with requests that fail, and
# combinations of these. Each must be found at the loads at which it is and at no other, with the right code and the tasks that it concerns:
# against a reference of the same run or a stored one, below a smallest share, or only under load. Then healthy engines are measured, of whose
# answers up to 30 % are wrong by chance whatever the load is; of 300 cells at most one may be blamed.
#
#     tests/answers.sh [SEED [CLEAN_RUNS]]     1 and 5 (60 cells each); takes about ten minutes
#
# MATRIX_BINARY names the binary, else the one that cargo builds. The kinds are in tests/e2e/planted_answers.rs, whose short form runs in CI.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export ANSWERS_SEED=${1:-1} ANSWERS_CLEAN_RUNS=${2:-5}
began=$(date +%s)
trap 'echo "-- $(($(date +%s) - began)) s"' EXIT
cargo test --locked --test e2e -- --ignored --nocapture \
  planted_answers::every_planted_error_is_found_and_at_most_one_of_three_hundred_clean_cells_is_blamed
