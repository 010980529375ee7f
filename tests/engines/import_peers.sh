#!/usr/bin/env bash
# Install tools whose results `matrix import` reads into DIR/import/TOOL, each in an environment of its own.
#
#     tests/engines/import_peers.sh DIR [TOOL…]     aiperf, guidellm, inference-perf and genai-bench by default
#
# Needs Python 3.11, for inference-perf 3.12 or newer, and PyPI; a finished environment is left as it is. GuideLLM needs torch: 5 GB, or
# 1 GB with PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu. The others take about 1 GB together.
set -Eeuo pipefail

declare -A VERSIONS=([aiperf]=0.13.0 [guidellm]=0.8.1 [inference-perf]=0.7.0 [genai-bench]=0.0.5)

dir=$1
shift
[ $# -gt 0 ] || set -- aiperf guidellm inference-perf genai-bench

# The newest Python of these versions that can make environments.
python_of() { # VERSION…
  local version place
  for version in "$@"; do
    for place in /usr/bin/python"$version" "$(command -v python"$version" || true)" "$HOME"/.pyenv/versions/"$version".*/bin/python; do
      if [ -x "$place" ] && "$place" -c 'import ensurepip' 2>/dev/null; then
        printf '%s\n' "$place"
        return
      fi
    done
  done
  printf 'error: no Python %s with ensurepip; install one of them\n' "$*" >&2
  return 1
}

for tool in "$@"; do
  version=${VERSIONS[$tool]:?is no tool whose results are imported}
  venv=$dir/import/$tool
  if [ "$(cat "$venv/stamp" 2>/dev/null)" = "$version" ]; then
    continue
  fi
  case $tool in
    inference-perf) python=$(python_of 3.13 3.12) ;;
    *) python=$(python_of 3.11 3.12) ;;
  esac
  mkdir -p "$dir/import"
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "$tool==$version"
  printf '%s\n' "$version" >"$venv/stamp"
done
