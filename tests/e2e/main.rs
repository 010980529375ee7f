//! The real binary against simulated and real engines, as processes, over real sockets.

mod alternation;
mod attached;
#[path = "../support/authority.rs"]
mod authority;
#[path = "../support/binary.rs"]
mod binary;
mod calibrate;
mod chaos;
mod connections;
mod correctness;
mod demo;
mod devices;
mod disturbed;
mod duration;
mod early;
mod fake;
mod faults;
mod fresh;
mod gpus;
mod graded;
mod harness;
mod hosts;
mod long_load;
mod nightly;
mod nights;
#[path = "../nvml/stub.rs"]
mod nvml;
mod planted;
mod planted_answers;
mod probes;
mod report;
mod responses;
mod resume;
mod roles;
mod rows;
mod search;
mod secrets;
mod server;
mod sessions;
mod sglang;
mod sim_processes;
mod site;
mod situations;
#[path = "../support/skip.rs"]
mod skip;
mod slurm;
mod steady;
mod stop;
mod stored_answers;
mod strangers;
mod telemetry;
mod tune;
mod unreadable;
mod until;
mod upgrade;
mod users;
mod validity;
mod vllm;
