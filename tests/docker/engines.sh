#!/bin/bash
# Images of real engines without a registry: vLLM and SGLang out of what tests/engines/cpu.sh installed, llama-server out of
# Debian's packages. The daemon is the one that DOCKER_HOST names.
#
#     tests/docker/engines.sh [DIR]     DIR defaults to $MATRIX_ENGINES, else target/engines
#
# Makes matrix-test/vllm:1, matrix-test/sglang:1 and matrix-test/llama-server:1, whose entrypoints are those of the
# published images. As root, with apt-get.
set -Eeuo pipefail

dir=$(cd "${1:-${MATRIX_ENGINES:-$PWD/target/engines}}" && pwd)
venv=$dir/venv
roots=$dir/roots

say() { echo "engines.sh: $*" >&2; }

root() { # NAME SUITE PACKAGES: the packages unpacked in $roots/NAME
  [ -e "$roots/$1" ] && return
  command -v mmdebstrap >/dev/null || {
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends mmdebstrap >/dev/null
  }
  rm -rf "$roots/$1.part"
  # A mirror may lag behind for days.
  mmdebstrap --quiet --format=directory --variant=extract --aptopt='Acquire::Check-Valid-Until "false"' \
    --include="$3" "$2" "$roots/$1.part"
  mv "$roots/$1.part" "$roots/$1"
}

has() { docker image inspect "$1" >/dev/null 2>&1; }

derive() { # FROM NAME LINE...: an image that differs in its settings only
  local from=$1 name=$2
  shift 2
  { echo "FROM $from"; printf '%s\n' "$@"; } | docker build --quiet -t "$name" - >/dev/null
}

mkdir -p "$roots"
if ! has matrix-test/llama-server:1; then
  root llama-server sid base-files,llama.cpp
  tar -C "$roots/llama-server" -c . |
    docker import -c 'ENTRYPOINT ["/usr/bin/llama-server"]' - matrix-test/llama-server:1 >/dev/null
  say "matrix-test/llama-server:1 is made after $SECONDS s"
fi
if ! has matrix-test/vllm:1 || ! has matrix-test/sglang:1; then
  # The environment lies at the same path inside, for its scripts and its Python are named by it. Engines compile, hence gcc.
  root python bookworm base-files,coreutils,dash,gcc,libc6-dev,libgomp1,libnuma1,libstdc++6,procps,python3,util-linux
  # A compiler's sources that came along are left out: they are the tenth part of it, and no engine here compiles them.
  tar --exclude='*/tilelang/3rdparty' -C "$roots/python" -c . -C / "${venv#/}" |
    docker import \
      -c "ENV PATH=$venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
      -c 'ENV PYTHONUNBUFFERED=1' -c 'ENV VLLM_NO_USAGE_STATS=1' \
      - matrix-test/engines:1 >/dev/null
  derive matrix-test/engines:1 matrix-test/vllm:1 'ENTRYPOINT ["vllm", "serve"]'
  # The published image has no entrypoint: the recipe's command names the program.
  docker tag matrix-test/engines:1 matrix-test/sglang:1
  say "matrix-test/vllm:1 and matrix-test/sglang:1 are made after $SECONDS s"
fi
