//! NVIDIA's library as the real crate sees it, in the place of which a stub of ours is loaded.

mod cost;
mod sampled;
mod stub;
mod told;
