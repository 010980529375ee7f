#!/bin/bash
# Install the Python tool that `matrix bench` replaces, sglang 0.5.23's benchmark client, into DIR, without torch.
#
#     tests/engines/bench_serving_peer.sh [DIR]     DIR defaults to $MATRIX_PEERS, else target/peers
#
# The client needs little of sglang. Its wheel is unpacked, not installed, and packages whose own `__init__` would import
# torch are replaced by empty ones that go on into the wheel. Needs Python 3.11 and PyPI; a finished DIR is left as it is.
#
#     DIR/bench_serving --backend vllm --host 127.0.0.1 --port 8000 …      runs it
set -Eeuo pipefail

SGLANG=0.5.23
AIOHTTP=3.12.15
NUMPY=2.3.5
TOKENIZERS=0.22.1
TRANSFORMERS=4.57.1

dir=${1:-${MATRIX_PEERS:-$PWD/target/peers}}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
stamp=$dir/bench_serving.stamp
made=$(cat "${BASH_SOURCE[0]}" | sha256sum)
if [ -x "$dir/bench_serving" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$made" ]; then
  exit 0
fi

python=/usr/bin/python3.11
[ -x "$python" ] && "$python" -c 'import ensurepip' 2>/dev/null || python=$(command -v python3.11)
venv=$dir/venv
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check \
  "aiohttp==$AIOHTTP" "numpy==$NUMPY" "tokenizers==$TOKENIZERS" "transformers==$TRANSFORMERS" \
  requests tqdm msgspec pillow pybase64 orjson pydantic psutil pyzmq setproctitle jinja2 regex

wheel=$dir/wheel
if [ ! -d "$wheel/sglang" ]; then
  "$venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary :all: --python-version 3.11 \
    --dest "$dir/download" "sglang==$SGLANG"
  rm -rf "$wheel.part"
  "$venv/bin/python" -m zipfile -e "$dir"/download/sglang-"$SGLANG"-*.whl "$wheel.part"
  mv "$wheel.part" "$wheel"
fi

# A package that is empty itself and whose other modules are those of the wheel.
empty() { # PACKAGE
  local place=$dir/empty/${1//.//}
  mkdir -p "$place"
  printf '__path__ = [%s, %s]\n' "'$place'" "'$wheel/${1//.//}'" >"$place/__init__.py"
}
rm -rf "$dir/empty"
empty sglang
empty sglang.srt
empty sglang.srt.utils
mkdir -p "$dir/empty/sglang/srt/disaggregation" "$dir/empty/datasets"
: >"$dir/empty/sglang/srt/disaggregation/__init__.py"
echo "FAKE_BOOTSTRAP_HOST = '2.2.2.2'" >"$dir/empty/sglang/srt/disaggregation/utils.py"
cat >"$dir/empty/datasets/__init__.py" <<'PYTHON'
def load_dataset(*_, **__):
    raise RuntimeError("this stand-in loads nothing")
PYTHON

cat >"$dir/bench_serving" <<SHELL
#!/bin/sh
PYTHONPATH='$dir/empty' HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 exec '$venv/bin/python' -m sglang.benchmark.serving "\$@"
SHELL
chmod +x "$dir/bench_serving"
"$dir/bench_serving" --help >/dev/null
echo "$made" >"$stamp"
