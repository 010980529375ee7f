#!/usr/bin/env bash
# The long form of the chaos tests, seed printed. Commands are attacked at random moments: by `kill -9` (200 times, or as often as given), by
# SIGTERM to the command and all processes of its engines (50), and by Ctrl-C twice (50). Then one run is killed again and again (50).
#   tests/chaos.sh [KILLS [TERMS [INTERRUPTS [SEED]]]]
# Containers are among them where there is a daemon: tests/docker/dockerd.sh up, and MATRIX_DOCKER_HOST set to what that prints. It needs
# root for what belongs to other users.
set -euo pipefail
cd "$(dirname "$0")/.."
export RUST_TEST_THREADS=1
export MATRIX_ATTACK_KILLS="${1:-200}" MATRIX_ATTACK_TERMS="${2:-50}" MATRIX_ATTACK_INTERRUPTS="${3:-50}" MATRIX_CHAOS_ROUNDS=50
[ -z "${4:-}" ] || export MATRIX_ATTACK_SEED="$4" MATRIX_CHAOS_SEED="$4"
git describe --always --dirty
time cargo test --test docker attacks -- --nocapture
cargo test --test e2e chaos -- --nocapture
