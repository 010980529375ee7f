//! YAML text to checked values that remember where they were written.

pub mod api;
pub mod arrival;
pub mod builtin_scenarios;
pub mod container;
pub mod dataset;
pub mod engine;
pub mod forms;
pub mod gpus;
pub mod log_patterns;
pub mod lora;
pub mod matrix;
pub mod metrics;
mod profile;
pub mod repeats;
pub mod scenario;
pub mod search;
pub mod select;
pub(crate) mod shipped;
pub mod template;
pub mod validity;
pub mod workload;
pub mod yaml;
