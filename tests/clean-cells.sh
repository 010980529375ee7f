#!/bin/bash
# Measures simulated engines with which nothing is wrong, cell after cell, and prints every finding with its evidence. Findings that are true
# of any machine and of short cells are counted only: `simulated`, `few-samples`, `window-short`, `rate-drawn`, `client-shares-cpus`. Of all others at
# most one may come; what came is to be looked at, for it may be true: a host that is not quiet is `host-busy`.
#
#     tests/clean-cells.sh [CELLS [SEED]]     300 and 1; takes about 4 s for each cell
#
# MATRIX_BINARY names the binary, else target/debug/matrix. ALLOW="host-busy …" names codes that are known to be true meanwhile. What other
# processes used of the processors is printed at the end.
set -Eeuo pipefail

cells_wanted=${1:-300} seed=${2:-1}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
binary=${MATRIX_BINARY:-$root/target/debug/matrix}
# shellcheck source=tests/support/flags.sh
. "$root/tests/support/flags.sh"
folder=$(mktemp -d "${TMPDIR:-/tmp}/clean-cells.XXXXXX")
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/matrices"
ln -s "$root/matrices/data" "$folder/matrices/data"
ln -s "$root/engines" "$folder/engines"

# Twelve cells: three kinds of engine, and requests all at once, one after another, at a rate, and in a search.
matrix() { # SEED
  cat <<YAML
name: clean-$1
engines:
  - sim: { as: vllm, variant: vllm, args: [--preset, fast, --step, 8ms, --seed, "$1"] }
  - sim: { as: sglang, variant: sglang-oai, args: [--preset, fast, --step, 10ms, --seed, "$1"] }
  - sim: { as: lmdeploy, variant: lmdeploy-unique, args: [--preset, fast, --step, 6ms, --jitter, 5%, --seed, "$1"] }
models:
  - m: { tokenizer: data/tokenizer.json }
scenarios:
  - burst: { dataset: random, prompts: 96, input_len: 64, output_len: 120, range_ratio: 0.5, seed: $1 }
  - closed: { dataset: random-ids, prompts: 64, input_len: 128, output_len: 60, concurrency: 16, range_ratio: 1.0, tokenize_prompt: true, seed: $1 }
  - rate: { dataset: random, prompts: 60, input_len: 48, output_len: 40, range_ratio: 0.5, rate: 20, seed: $1 }
  - found: { dataset: random-ids, prompts: 200, input_len: 32, output_len: 16, range_ratio: 1.0, seed: $1, slo: { e2e: 2s }, search: { by: concurrency, to: 8, target: 0.9, prompts: 24 } }
datasets: { sharegpt: data/conversations.json }
YAML
}

others_s() { # Seconds of processor time that all processes of this host but ours used.
  awk -v hz="$(getconf CLK_TCK)" '
    FNR == NR { sub(/.*\) /, ""); ours = $12 + $13 + $14 + $15; next }
    /^cpu / { print ($2 + $3 + $4 + $7 + $8 - ours) / hz }' "/proc/$$/stat" /proc/stat
}

began=$(date +%s) before=$(others_s) runs=() done_cells=0
while [ "$done_cells" -lt "$cells_wanted" ]; do
  matrix "$seed" >"$folder/matrices/m.yaml"
  only=()
  [ $((cells_wanted - done_cells)) -ge 12 ] || only=(--only "engine=vllm")
  if ! (cd "$folder" && MATRIX_CACHE=$folder/cache "$binary" run matrices/m.yaml "${only[@]}" >"$folder/out" 2>"$folder/err"); then
    echo "the run of seed $seed ended with an error or an invalid cell:"
    tail -5 "$folder/err"
  fi
  run=$(ls -d "$folder"/results/clean-"$seed"-*)
  runs+=("$run")
  done_cells=$((done_cells + $(ls "$run"/cells/*/summary.json | wc -l)))
  seed=$((seed + 1))
done
judge "simulated few-samples window-short rate-drawn client-shares-cpus ${ALLOW:-}" "${runs[@]}"
took=$(($(date +%s) - began))
echo "-- $took s; other processes used $(awk -v a="$before" -v b="$(others_s)" -v s="$took" 'BEGIN { printf "%.2f", (b - a) / s }') of $(nproc) processors on average"
echo "-- $others other findings in $cells cells"
[ "$others" -le 1 ]
