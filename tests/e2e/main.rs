//! The real binary against simulated and real engines, as processes, over real sockets.

mod calibrate;
mod chaos;
mod demo;
mod faults;
mod gpus;
mod harness;
mod nightly;
mod report;
mod resume;
mod rows;
mod search;
mod secrets;
mod sglang;
mod stop;
mod telemetry;
mod validity;
mod vllm;
