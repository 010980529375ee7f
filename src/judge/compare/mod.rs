//! Two cells, or two runs of them, held against each other. Pure.

pub mod comparable;
