//! `matrix bench` as people use it: the real binary against the simulated engine, as processes, over real sockets.

mod course;
mod harness;
mod python;
mod recorder;
mod rows;
mod run;
mod vllm;
