#!/bin/bash
# Measures the four standard workloads on real engines on a CPU (vLLM, SGLang and llama-server, by their shipped recipes) and prints every
# finding with its evidence. Findings that are true of such a machine are counted only; each other one is looked at by whoever runs this, and
# makes the script fail.
#
#     tests/engines/four-workloads.sh [DIR [PROMPTS]]     DIR defaults to $MATRIX_ENGINES, else target/engines; 24 prompts of each workload
#
# DIR is what tests/engines/cpu.sh made; llama-server is taken from DIR/roots/llama-server (tests/docker/engines.sh puts it there), else from
# PATH. The shapes are those of the standard workloads at a quarter of their lengths: the tiny model holds 4096 tokens. MATRIX_BINARY
# names the binary, else target/debug/matrix. ONLY=vllm measures one engine. KEEP=1 keeps the results.
set -Eeuo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
dir=$(cd "${1:-${MATRIX_ENGINES:-$root/target/engines}}" && pwd)
prompts=${2:-24}
binary=${MATRIX_BINARY:-$root/target/debug/matrix}
# shellcheck source=tests/support/flags.sh
. "$root/tests/support/flags.sh"
folder=$(mktemp -d "${TMPDIR:-/tmp}/four-workloads.XXXXXX")
[ -n "${KEEP:-}" ] || trap 'rm -rf "$folder"' EXIT
mkdir "$folder/matrices"
ln -s "$root/matrices/data" "$folder/matrices/data"
ln -s "$root/engines" "$folder/engines"

llama=$dir/roots/llama-server
if [ -x "$llama/usr/bin/llama-server" ]; then
  # Of a newer Debian: with its own loader and libraries.
  loader=$(ls "$llama"/lib64/ld-linux-x86-64.so.2 "$llama"/usr/lib64/ld-linux-x86-64.so.2 2>/dev/null | head -1)
  libraries=$(find "$llama/usr/lib" -name '*.so*' -printf '%h\n' | sort -u | paste -sd :)
  # Its kernels lie at a path of their own; these run wherever AVX2 does.
  kernels=$llama/usr/lib/x86_64-linux-gnu/ggml/backends0/libggml-cpu-haswell.so
  llama_command="env, GGML_BACKEND_PATH=$kernels, $loader, --library-path, \"$libraries\", $llama/usr/bin/llama-server"
elif command -v llama-server >/dev/null; then
  llama_command=llama-server kernels=
else
  llama_command=
  echo "llama-server is not here: tests/docker/engines.sh puts it into $dir/roots" >&2
fi

model=$dir/models/tiny-qwen3
engines() {
  cat <<YAML
  - vllm:
      version: 0.32.0
      executor: process
      variant: cpu
      venv: $dir/venv
      args: [--max-model-len, 4096, --enforce-eager]
      env: { VLLM_SERVER_DEV_MODE: "1", HF_HUB_OFFLINE: "1", VLLM_CPU_KVCACHE_SPACE: "1" }
      served_model_name: tiny
      command: [vllm, serve, "{model}", --served-model-name, "{served}", --host, 127.0.0.1]
  - sglang:
      executor: process
      version: 0.5.23
      venv: $dir/venv
      args: [--device, cpu, --attention-backend, torch_native, --sampling-backend, pytorch, --disable-overlap-schedule, --max-total-tokens, 32768, --mem-fraction-static, 0.2, --context-length, 4096]
      env: { HF_HUB_OFFLINE: "1" }
      served_model_name: tiny
      devices: none
      command: [python, -m, sglang.launch_server, --model-path, "{model}", --served-model-name, "{served}", --host, 127.0.0.1]
YAML
  [ -z "$llama_command" ] || cat <<YAML
  - llama.cpp:
      executor: process
      version: 0.7.0
      devices: none
      served_model_name: tiny
      command: [$llama_command, -m, $model.gguf, --alias, "{served}", --host, 127.0.0.1, --port, "{port}", --metrics]
      args: [-c, 16384, -np, 4]
YAML
}
cat >"$folder/matrices/m.yaml" <<YAML
name: four-workloads
engines:
$(engines)
models:
  - $model: { tokenizer: $model }
scenarios:
  - sharegpt: { prompts: $prompts }
  - random-1k-1k: { prompts: $prompts, input_len: 256, output_len: 256 }
  - random-2k-6k: { prompts: $prompts, input_len: 512, output_len: 1536 }
  - random-6k-2k: { prompts: $prompts, input_len: 1536, output_len: 512 }
datasets: { sharegpt: data/conversations.json }
YAML
only=()
[ -z "${ONLY:-}" ] || only=(--only "engine=$ONLY")
cd "$folder"
MATRIX_CACHE=$folder/cache "$binary" run matrices/m.yaml "${only[@]}" || code=$?
judge "few-samples window-short client-shares-cpus ${ALLOW:-}" "$folder"/results/*/
echo "-- $others findings in $cells cells that are not those of the machine"
echo "-- the run ended with code ${code:-0}"
[ "$others" -eq 0 ] && [ -z "${code:-}" ]
