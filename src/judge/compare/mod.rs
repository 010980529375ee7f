//! Two sides to verdicts: did it get worse?
//!
//! The unit is the start of an engine: requests of one start are correlated, ten thousand of them are still one observation. Everything
//! here is a function of values, without any draw: the same figures give the same verdict. Every verdict comes from [`decision::decide`].

pub mod arms;
pub mod between;
pub mod cells;
pub mod certainty;
pub mod change;
pub mod comparable;
mod conditions;
pub mod decision;
pub mod fingerprint;
pub mod fresh;
pub mod gates;
pub mod held;
pub mod machines;
#[cfg(test)]
mod montecarlo;
pub mod multiplicity;
pub mod night;
pub mod percentile;
pub mod question;
pub mod reliability;
pub mod resolution;
pub mod series;
pub mod settings;
pub mod side;
pub mod spread;
pub mod stored;
pub mod student;
#[cfg(test)]
mod tests;
pub mod verdict;
