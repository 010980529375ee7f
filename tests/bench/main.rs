//! `matrix bench` as people use it: the real binary against the simulated engine, as processes, over real sockets.

mod answers;
mod arrivals;
mod audio;
#[path = "../support/authority.rs"]
mod authority;
#[path = "../support/binary.rs"]
mod binary;
mod cancelled;
mod connections;
mod correctness;
mod course;
mod encrypted;
mod guard;
mod harness;
mod imports;
mod lengths;
mod limits;
mod memory;
#[path = "../nvml/stub.rs"]
mod nvml;
mod pictures;
mod protocols;
mod python;
mod real_engine;
mod real_sessions;
mod real_transcriptions;
mod recorder;
mod rows;
mod run;
mod scripted;
mod sessions;
mod sglang;
#[path = "../support/shared_memory.rs"]
mod shared_memory;
mod sharegpt;
#[path = "../support/skip.rs"]
mod skip;
mod vllm;
mod vllm_serve;
mod warm;
