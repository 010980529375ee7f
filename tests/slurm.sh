#!/bin/bash
# Runs as jobs of a real Slurm cluster, in the tests that CI has no time for: signals, requeued and cancelled jobs, jobs that wait for ever,
# and MATRIX_CHAOS_ROUNDS (default 50) disturbances at random moments, whose seed is printed.
#
#     tests/slurm.sh [DIR]     DIR, short, is the folder of the cluster; takes about fifteen minutes after the build
set -Eeuo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
dir=${1:-$(mktemp -d /tmp/matrix-slurm.XXXXXX)}
trap 'bash tests/slurm/cluster.sh down "$dir"' EXIT
MATRIX_SLURM_CONF=$(bash tests/slurm/cluster.sh up "$dir")
export MATRIX_SLURM_CONF MATRIX_REQUIRE_SLURM=1 MATRIX_CHAOS_ROUNDS="${MATRIX_CHAOS_ROUNDS:-50}"
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=false RUST_TEST_THREADS=1
cargo test --locked --test e2e -- slurm:: --include-ignored --nocapture
