#![doc = include_str!("ARCHITECTURE.md")]

pub mod analysis;
pub mod base;
pub mod cli;
pub mod commands;
pub mod config;
pub mod engine;
pub mod exit;
pub mod import;
pub mod loadgen;
pub mod plan;
pub mod progress;
pub mod report;
pub mod results;
pub mod runner;
pub mod sim;
pub mod telemetry;
