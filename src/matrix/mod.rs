//! What is to be measured: the matrix as written (`spec`) and what it comes to (`plan`). Pure.

pub mod plan;
pub mod spec;
