//! Two sides to verdicts: did it get worse?
//!
//! The unit is the start of an engine: requests of one start are correlated, ten thousand of them are still one observation. Everything
//! here is a function of values, without any draw: the same figures give the same verdict. Every verdict comes from [`decision::decide`].

pub(crate) mod arm_comparison;
pub mod arms;
pub(crate) mod baseline_starts;
pub mod between;
pub(crate) mod bisection;
pub mod change_point;
pub mod comparable;
mod conditions;
pub mod confirmation_budget;
pub mod decision;
pub mod environment_diff;
pub(crate) mod extra_starts;
pub mod from_run;
pub mod gate_policy;
pub mod gates;
pub mod machines;
#[cfg(test)]
mod montecarlo;
pub mod multiple_testing;
pub(crate) mod named_gates;
pub mod nightly_gate;
pub(crate) mod noise;
pub mod pairwise;
pub mod percentile;
pub mod power;
pub mod precision;
pub mod question;
pub mod reliability;
pub mod resolution;
pub mod settings;
pub mod stored;
pub mod t_test;
#[cfg(test)]
mod tests;
pub mod time_series;
pub mod verdict;
