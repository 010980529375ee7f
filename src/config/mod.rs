//! Reads YAML files into validated values that remember their places.

pub(crate) mod api;
pub(crate) mod arrival;
pub(crate) mod backend;
pub(crate) mod builtin_scenarios;
pub(crate) mod cancel;
pub(crate) mod cluster;
pub(crate) mod connections;
pub(crate) mod container;
pub mod dataset;
pub(crate) mod engine;
pub(crate) mod forms;
pub(crate) mod gpus;
pub(crate) mod log_patterns;
pub(crate) mod lora;
pub(crate) mod matrix;
pub(crate) mod metrics;
pub(crate) mod pacing;
mod profile;
pub(crate) mod repeats;
pub mod scenario;
pub mod search;
pub(crate) mod select;
pub(crate) mod shipped;
pub(crate) mod template;
pub(crate) mod validity;
pub mod workload;
pub(crate) mod yaml;
