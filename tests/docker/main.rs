//! The container executor against a real Docker daemon: the simulated engine in a container, by `matrix run`.
//!
//! `tests/docker/dockerd.sh up` starts a daemon of our own, and `MATRIX_DOCKER_HOST` says where it listens. Without it the tests are
//! skipped by name, and where `MATRIX_REQUIRE_DOCKER` is set, as CI does, that is a failure.

mod attacks;
mod away;
mod beside;
#[path = "../support/binary.rs"]
mod binary;
mod chaos;
mod creation;
mod daemon;
mod engines;
mod flags;
mod gate;
#[path = "../e2e/harness.rs"]
#[expect(dead_code, reason = "the tests of processes use the rest")]
mod harness;
mod images;
mod leftovers;
#[path = "../nvml/stub.rs"]
mod nvml;
mod pasted;
mod refusals;
mod registry;
mod remote;
mod runs;
#[path = "../support/shared_memory.rs"]
mod shared_memory;
#[path = "../support/skip.rs"]
mod skip;
mod strangers;
mod table;
mod users;
