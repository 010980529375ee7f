#![doc = include_str!("ARCHITECTURE.md")]

pub mod analysis;
pub mod base;
pub mod cli;
pub mod commands;
pub mod config;
pub mod engine;
pub(crate) mod exit;
pub(crate) mod import;
pub mod loadgen;
pub mod plan;
pub(crate) mod progress;
pub(crate) mod report;
pub mod results;
pub(crate) mod runner;
pub(crate) mod sim;
pub(crate) mod slurm;
pub mod telemetry;

pub use commands::main;
