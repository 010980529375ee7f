//! The real binary against simulated and real engines, as processes, over real sockets.

mod calibrate;
mod chaos;
mod demo;
mod devices;
mod faults;
mod gpus;
mod harness;
mod nightly;
mod nights;
#[path = "../nvml/stub.rs"]
mod nvml;
mod report;
mod resume;
mod rows;
mod search;
mod secrets;
mod sglang;
mod stop;
mod telemetry;
mod until;
mod validity;
mod vllm;
