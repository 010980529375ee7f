#!/usr/bin/env bash
# The steps of action.yml, one verb each. Inputs are variables INPUT_…; files and folders are those of the runner (GITHUB_…, RUNNER_TEMP).
set -Eeuo pipefail

page=$RUNNER_TEMP/matrix-page.md
output() { printf '%s=%s\n' "$1" "$2" >>"$GITHUB_OUTPUT"; }

install() {
  local place=$RUNNER_TEMP/matrix-tool
  if [ -n "${INPUT_BINARY:-}" ]; then
    mkdir -p "$place/bin"
    ln -sf "$(realpath "$INPUT_BINARY")" "$place/bin/matrix"
  else
    python3 -m venv "$place"
    "$place/bin/pip" install --quiet --disable-pip-version-check "serving-matrix${INPUT_VERSION:+==$INPUT_VERSION}"
  fi
  echo "$place/bin" >>"$GITHUB_PATH"
  "$place/bin/matrix" --version
}

# The baseline of the default branch, as a file; nothing if there is none.
find_baseline() {
  local file=${INPUT_BASELINE:-${INPUT_MATRIX%.yaml}.baseline.json} commit
  if [ -n "${DEFAULT_BRANCH:-}" ] && git fetch --quiet --depth 1 origin "$DEFAULT_BRANCH" 2>/dev/null; then
    commit=FETCH_HEAD
  else
    commit=HEAD
  fi
  if git show "$commit:$file" >"$RUNNER_TEMP/baseline.json" 2>/dev/null; then
    echo "$RUNNER_TEMP/baseline.json"
  fi
}

run() {
  local baseline code=0 args=()
  # Words are separated by spaces.
  read -ra args <<<"${INPUT_ARGS:-}"
  baseline=$(find_baseline)
  if [ -n "$baseline" ]; then
    output compared true
    matrix nightly "$INPUT_MATRIX" --baseline "$baseline" --results "$INPUT_RESULTS" --junit "$INPUT_JUNIT" "${args[@]}" >"$RUNNER_TEMP/matrix.txt" || code=$?
  else
    output compared false
    echo "::notice::no baseline in the default branch; create it with: matrix baseline set $INPUT_MATRIX --reason TEXT"
    matrix run "$INPUT_MATRIX" --results "$INPUT_RESULTS" "${args[@]}" >"$RUNNER_TEMP/matrix.txt" || code=$?
  fi
  cat "$RUNNER_TEMP/matrix.txt"
  output exit-code "$code"
  local newest
  # The newest run is that of this job, also if its exit code is not 0.
  newest=$(matrix list runs --results "$INPUT_RESULTS" --json | python3 -c 'import json, sys; runs = json.load(sys.stdin); print(runs[0]["folder"] if runs else "")')
  {
    echo "### matrix: $INPUT_MATRIX"
    echo
    case $code in
      0) echo 'No regression was found.' ;;
      1) echo '**A regression was confirmed.**' ;;
      3) echo 'Cells failed or are invalid; see the table.' ;;
      5) echo 'Nothing could be judged.' ;;
      *) echo "\`matrix\` ended with exit code $code." ;;
    esac
    [ -n "$baseline" ] || echo 'There is no baseline, so nothing was compared.'
    echo
    if [ -s "$RUNNER_TEMP/matrix.txt" ] && [ -n "$baseline" ]; then
      echo '```text'
      tail -n 40 "$RUNNER_TEMP/matrix.txt"
      echo '```'
    fi
    if [ -n "$newest" ]; then
      echo '<details><summary>Report</summary>'
      echo
      matrix report "$newest" --format markdown
      echo
      echo '</details>'
    fi
  } >"$page"
}

summary() {
  # A summary has at most 1 MiB.
  head -c 1000000 "$page" >>"$GITHUB_STEP_SUMMARY"
}

# One comment for each matrix: a later job replaces its text.
comment() {
  python3 - "$page" <<'PYTHON'
import json, os, sys, urllib.request

mark = f"<!-- matrix {os.environ['INPUT_MATRIX']} -->"
# A comment has at most 65536 characters.
text = mark + "\n" + open(sys.argv[1], encoding="utf-8").read()[:60000]
base = f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}/issues"

def ask(method, url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method)
    request.add_header("Authorization", f"Bearer {os.environ['INPUT_TOKEN']}")
    request.add_header("Accept", "application/vnd.github+json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)

number = os.environ["PULL_REQUEST"]
page = 1
known = None
while known is None:
    comments = ask("GET", f"{base}/{number}/comments?per_page=100&page={page}")
    known = next((comment for comment in comments if comment["body"].startswith(mark)), None)
    if len(comments) < 100:
        break
    page += 1
if known is None:
    ask("POST", f"{base}/{number}/comments", {"body": text})
else:
    ask("PATCH", f"{base}/comments/{known['id']}", {"body": text})
PYTHON
}

outcome() { exit "${EXIT_CODE:-6}"; }

case ${1:-} in
  install | run | summary | comment | outcome) "$1" ;;
  *) echo "there is no step ${1:-}" >&2; exit 2 ;;
esac
