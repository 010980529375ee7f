#!/usr/bin/env bash
# Install the tools with which `matrix tune` is compared, optuna and SMAC3, into DIR/tune.
#
#     tests/engines/tune_peers.sh [DIR]     DIR defaults to $MATRIX_PEERS, else target/peers
#
# Needs Python 3.10 or newer and PyPI; a finished DIR is left as it is.
set -Eeuo pipefail

OPTUNA=5.0.0
SMAC=2.4.1
CONFIGSPACE=1.2.2
SCIKIT_LEARN=1.9.1

dir=${1:-${MATRIX_PEERS:-$PWD/target/peers}}/tune
mkdir -p "$dir"
stamp=$dir/stamp
made=$(sha256sum <"${BASH_SOURCE[0]}")
if [ -x "$dir/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$made" ]; then
  exit 0
fi
python=/usr/bin/python3
"$python" -c 'import ensurepip' 2>/dev/null || python=$(command -v python3)
[ -x "$dir/bin/python" ] || "$python" -m venv "$dir"
"$dir/bin/pip" install --quiet --disable-pip-version-check \
  "optuna==$OPTUNA" "smac==$SMAC" "ConfigSpace==$CONFIGSPACE" "scikit-learn==$SCIKIT_LEARN"
printf '%s\n' "$made" >"$stamp"
