//! YAML text to checked values that remember where they were written.

pub mod arrival;
pub mod engine;
pub mod gpus;
pub mod lora;
pub mod matrix;
pub mod metrics;
pub mod pictures;
pub mod repeats;
pub mod rows;
pub mod scenario;
pub mod search;
pub mod select;
pub mod shape;
pub mod source;
pub mod standard;
pub mod text;
pub mod validity;
pub mod workload;
