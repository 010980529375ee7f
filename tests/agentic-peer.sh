#!/usr/bin/env bash
# Processor time per output token of an agentic replay, of `matrix bench` and of AIPerf: the same trace of sessions, the same
# simulated engine, one after the other. Fails if `matrix bench` takes more than an eighth of AIPerf's.
#
#   AIPERF=venv/bin/aiperf TOKENIZER=folder [MATRIX=target/release/matrix] [SESSIONS=1000] tests/agentic-peer.sh
#
# TOKENIZER is a folder with tokenizer.json and tokenizer_config.json. AIPerf 0.13.0 comes from PyPI.
set -euo pipefail
: "${AIPERF:?set it to the aiperf command of a virtual environment}" "${TOKENIZER:?set it to a folder with a tokenizer}"
matrix=${MATRIX:-target/release/matrix} sessions=${SESSIONS:-1000} concurrency=${CONCURRENCY:-64} output=100
folder=$(mktemp -d)
engine=
trap '[ -z "$engine" ] || kill "$engine"; rm -rf "$folder"' EXIT

# A session is an agent of three turns, of which the first spawns two sub-agents and the second waits for them.
awk -v sessions="$sessions" -v output="$output" '
    BEGIN {
        count = split("the of and to in is that for it as was with be by on not he his but at are this have from", words, " ")
        for (session = 0; session < sessions; session++) {
            spawns = sprintf(", \"spawns\": [\"s%d-a\", \"s%d-b\"]", session, session)
            printf "{\"session_id\": \"s%d\", \"turns\": [%s, %s, %s]}\n", session, turn(spawns), turn(""), turn("")
            printf "{\"session_id\": \"s%d-a\", \"turns\": [%s]}\n", session, turn("")
            printf "{\"session_id\": \"s%d-b\", \"turns\": [%s]}\n", session, turn("")
        }
    }
    function turn(more, text, word) {
        for (word = 0; word < 400; word++) text = text " " words[1 + int(rand() * count)]
        return sprintf("{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}], \"max_tokens\": %d, \"extra\": {\"ignore_eos\": true}%s}", text, output, more)
    }' >"$folder/trace.jsonl"

start_engine() {
    "$matrix" sim --dialect vllm --port 0 --model m --kv-tokens 16000000 >"$folder/engine.log" 2>&1 &
    engine=$!
    until port=$(grep -oP 'running on http://127.0.0.1:\K[0-9]+' "$folder/engine.log"); do
        kill -0 "$engine" || { cat "$folder/engine.log"; exit 1; }
        sleep 0.1
    done
}

stop_engine() {
    kill "$engine"
    wait "$engine" || true
    engine=
}

# Prints the user and system seconds of a command with all its processes.
cpu_of() {
    local TIMEFORMAT='%U %S'
    { time "$@" >"$folder/$1.out" 2>"$folder/$1.err" || true; } 2>&1 | awk '{print $1 + $2}'
}

ours() {
    "$matrix" bench --backend vllm-chat --host 127.0.0.1 --port "$port" --model m --tokenizer "$TOKENIZER" --dataset-name agentic-sessions \
        --dataset-path "$folder/trace.jsonl" --num-prompts 0 --max-sessions "$concurrency" --output-file "$folder/ours.jsonl"
}

theirs() {
    "$AIPERF" profile --model m --url "127.0.0.1:$port" --endpoint-type chat --streaming --use-server-token-count --tokenizer "$TOKENIZER" \
        --input-file "$folder/trace.jsonl" --custom-dataset-type dag_jsonl --concurrency "$concurrency" \
        --conversation-num "$sessions" --ui none --artifact-dir "$folder/aiperf"
}

# Tokens that the engine generated.
generated() {
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf 'GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n' >&3
    awk '/^vllm:generation_tokens_total/ {printf "%d", $NF}' <&3
    exec 3>&-
}

for tool in ours theirs; do
    start_engine
    seconds=$(cpu_of $tool)
    tokens=$(generated)
    stop_engine
    [ "${tokens:-0}" -gt 0 ] || { echo "$tool sent nothing:"; tail -20 "$folder/$tool.err" "$folder/$tool.out"; exit 1; }
    declare "$tool=$(awk "BEGIN {print $seconds / $tokens * 1e6}")"
    echo "$tool: $seconds CPU-s for $tokens tokens, ${!tool} CPU-s per million"
done
awk "BEGIN {ratio = $theirs / $ours; printf \"AIPerf takes %.1f times as much\n\", ratio; exit !(ratio >= 8)}"
