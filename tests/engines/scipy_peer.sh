#!/usr/bin/env bash
# Install what the statistics and the schedules are checked with, scipy and check-jsonschema, into DIR/scipy.
#
#     tests/engines/scipy_peer.sh [DIR]     DIR defaults to $MATRIX_PEERS, else target/peers
#
# Needs Python 3.10 or newer and PyPI; a finished DIR is left as it is.
set -Eeuo pipefail

SCIPY=1.15.3
NUMPY=2.2.6
CHECK_JSONSCHEMA=0.33.3

dir=${1:-${MATRIX_PEERS:-$PWD/target/peers}}/scipy
mkdir -p "$dir"
stamp=$dir/stamp
made=$(sha256sum <"${BASH_SOURCE[0]}")
if [ -x "$dir/bin/check-jsonschema" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$made" ]; then
  exit 0
fi
python=/usr/bin/python3
"$python" -c 'import ensurepip' 2>/dev/null || python=$(command -v python3)
[ -x "$dir/bin/python" ] || "$python" -m venv "$dir"
"$dir/bin/pip" install --quiet --disable-pip-version-check \
  "scipy==$SCIPY" "numpy==$NUMPY" "check-jsonschema==$CHECK_JSONSCHEMA"
printf '%s\n' "$made" >"$stamp"
