#![doc = include_str!("ARCHITECTURE.md")]

pub mod base;
pub mod cli;
pub mod commands;
pub mod engine;
pub mod exit;
pub mod judge;
pub mod load;
pub mod matrix;
pub mod progress;
pub mod report;
pub mod results;
pub mod run;
pub mod sim;
pub mod telemetry;
