#!/usr/bin/env bash
# The long form of the chaos test in containers: kill -9 and stolen containers at 50 random moments (or as many as given), a log of
# 1 GB, seed printed. It needs a daemon: tests/docker/dockerd.sh up, and MATRIX_DOCKER_HOST set to what that prints.
#   tests/docker-chaos.sh [ROUNDS [SEED]]
set -euo pipefail
cd "$(dirname "$0")/.."
export MATRIX_REQUIRE_DOCKER=1 RUST_TEST_THREADS=1
export MATRIX_CHAOS_ROUNDS="${1:-50}" MATRIX_CHAOS_FLOOD_MB=1000
[ -z "${2:-}" ] || export MATRIX_CHAOS_SEED="$2"
cargo test --test docker chaos -- --nocapture
