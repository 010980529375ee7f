//! Compares two sides and decides whether the candidate is better or worse.
//!
//! The unit is the start of an engine: requests of one start are correlated, so ten thousand of them are
//! still one observation. All functions are pure and use no random numbers, so the same values give the same
//! verdict. Every verdict comes from [`decision::decide`].

pub(crate) mod arm_comparison;
pub(crate) mod arms;
pub(crate) mod baseline_starts;
pub(crate) mod between;
pub(crate) mod bisection;
pub(crate) mod cell_facts;
pub(crate) mod change_point;
pub(crate) mod comparable;
pub(crate) mod compared_cell;
mod conditions;
pub(crate) mod confirmation_budget;
pub(crate) mod decision;
pub(crate) mod difference;
pub(crate) mod environment_diff;
mod exclusion;
pub(crate) mod extra_starts;
pub(crate) mod from_run;
pub(crate) mod gate_policy;
pub(crate) mod gates;
pub(crate) mod loss;
pub(crate) mod machine_facts;
pub(crate) mod machines;
#[cfg(test)]
mod montecarlo;
pub mod multiple_testing;
pub(crate) mod named_gates;
pub(crate) mod nightly_gate;
pub(crate) mod noise;
pub(crate) mod pairwise;
pub(crate) mod percentile;
pub mod power;
pub(crate) mod precision;
pub(crate) mod question;
pub(crate) mod reliability;
pub(crate) mod resolution;
pub(crate) mod resources;
pub(crate) mod response_length;
mod search_bracket;
pub(crate) mod settings;
pub(crate) mod stored;
pub mod t_test;
#[cfg(test)]
mod tests;
pub(crate) mod time_series;
pub(crate) mod verdict;
