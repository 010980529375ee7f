//! NVIDIA's library as the real crate sees it, in the place of which a stub of ours is loaded.

mod cost;
mod facts;
mod real;
mod sampled;
#[path = "../support/skip.rs"]
mod skip;
mod stub;
