#!/usr/bin/env bash
# Compares `matrix import` with tools whose results it reads: each measures the simulated engine for some seconds, its file is imported, and
# the figures must be those that the tool prints or that follow from its list of requests (tests/import_peers.py).
#
#     tests/import_peers.sh [TOOL…]     aiperf, guidellm, inference-perf and genai-bench by default; about two minutes
#
# The tools lie in MATRIX_PEERS (tests/engines/import_peers.sh installs them there); MATRIX names a built binary, else it is built.
set -Eeuo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[ $# -gt 0 ] || set -- aiperf guidellm inference-perf genai-bench
peers=${MATRIX_PEERS:-$root/target/peers}
"$root/tests/engines/import_peers.sh" "$peers" "$@"
matrix=${MATRIX:-}
if [ -z "$matrix" ]; then
  (cd "$root" && cargo build --quiet --locked --bin matrix)
  matrix=${CARGO_TARGET_DIR:-$root/target}/debug/matrix
fi

work=$(mktemp -d)
server=
cleanup() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
cd "$work"

# A folder as of Hugging Face with the tokenizer of the demonstration.
"$matrix" init project >init.log
mkdir model
cp project/matrices/data/tokenizer.json model/
cat >model/tokenizer_config.json <<'JSON'
{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "pad_token": "<|end|>", "model_max_length": 32768,
 "chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}"}
JSON
echo '{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 2838, "n_positions": 32768}' >model/config.json

"$matrix" sim --port 0 --model demo-8b --step 8ms >sim.log 2>&1 &
server=$!
url=
for _ in $(seq 100); do
  url=$(grep -o 'http://[0-9.]*:[0-9]*' sim.log | head -1 || true)
  [ -z "$url" ] || break
  sleep 0.1
done
[ -n "$url" ] || { cat sim.log >&2; exit 1; }

bin() { # TOOL
  printf '%s/import/%s/bin/%s\n' "$peers" "$1" "$1"
}

measure_aiperf() {
  "$(bin aiperf)" profile --model demo-8b --url "$url" --endpoint-type chat --streaming --tokenizer "$work/model" \
    --concurrency 4 --request-count 40 --synthetic-input-tokens-mean 128 --output-tokens-mean 32 --use-server-token-count \
    --goodput 'time_to_first_token:500 inter_token_latency:50' --random-seed 7 --ui none --artifact-dir "$work/aiperf"
  file=$work/aiperf/profile_export_aiperf.json
}

measure_guidellm() {
  mkdir guidellm
  "$(bin guidellm)" run --backend "kind=openai_http,target=$url,model=demo-8b" --profile kind=concurrent \
    --override profile.streams 2,4 --constraint kind=max_requests,count=30 --tokenizer "kind=hf_auto,model=$work/model" \
    --data kind=synthetic_text,prompt_tokens=100,output_tokens=24 --output "kind=json,path=$work/guidellm/benchmarks.json" \
    --disable-console-interactive
  file=$work/guidellm/benchmarks.json
}

measure_inference_perf() {
  cat >inference-perf.yml <<YAML
load: {type: constant, num_workers: 1, stages: [{rate: 10, duration: 4}]}
api: {type: completion, streaming: true}
server: {type: vllm, model_name: demo-8b, base_url: "$url", ignore_eos: true}
tokenizer: {pretrained_model_name_or_path: $work/model}
data:
  type: random
  input_distribution: {min: 50, max: 150, mean: 100, total_count: 60}
  output_distribution: {min: 16, max: 32, mean: 24, total_count: 60}
report: {request_lifecycle: {summary: true, per_stage: true, per_request: true, use_server_output_tokens: true}}
storage: {local_storage: {path: $work/inference-perf}}
YAML
  "$(bin inference-perf)" --config_file inference-perf.yml
  file=$work/inference-perf/summary_lifecycle_metrics.json
}

measure_genai_bench() {
  "$(bin genai-bench)" benchmark --api-backend vllm --api-base "$url" --api-key none --task text-to-text --api-model-name demo-8b \
    --model-tokenizer "$work/model" --num-concurrency 4 --traffic-scenario 'D(100,24)' --max-requests-per-run 40 --max-time-per-run 1 \
    --experiment-folder-name genai-bench --experiment-base-dir "$work" --log-dir "$work/genai-bench-log"
  file=$(echo "$work"/genai-bench/D*_*.json)
}

for tool in "$@"; do
  printf '%s: ' "$tool"
  file=
  "measure_${tool//-/_}" >"$tool.log" 2>&1 || { tail -40 "$tool.log" >&2; exit 1; }
  "$matrix" import "$file" --name "$tool" >import.log 2>&1 || { cat import.log >&2; exit 1; }
  "$peers/import/$tool/bin/python" "$root/tests/import_peers.py" "$tool" "$file" "$work/results/$tool" || { cat import.log >&2; exit 1; }
done
