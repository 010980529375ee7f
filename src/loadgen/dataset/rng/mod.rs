//! Python's and numpy's random numbers, draw for draw, so that a seed gives the same prompts as the Python
//! tool.
//!
//! Each generator has only the draws that the tool makes, under their Python names. They are not meant as
//! general random number generators: their only merit is that they equal CPython and numpy.

mod numpy;
mod numpy_generator;
mod python;
mod string_hash;

pub(crate) use numpy::Numpy;
pub(crate) use numpy_generator::NumpyGenerator;
pub use python::Python;
pub(crate) use string_hash::string_hash;

use rand_mt::Mt;

/// A Mersenne Twister that counts its draws, so that its state can be restored.
#[derive(Clone, PartialEq, Eq)]
struct CountingTwister {
    twister: Mt,
    draw_count: u64,
}

impl CountingTwister {
    const fn new(twister: Mt) -> Self {
        Self {
            twister,
            draw_count: 0,
        }
    }

    fn next_u32(&mut self) -> u32 {
        self.draw_count += 1;
        self.twister.next_u32()
    }

    fn skip(&mut self, words: u64) {
        for _ in 0..words {
            self.next_u32();
        }
    }
}

/// Returns a number in `0..1`: 53 bits from two words, as in CPython and numpy.
fn unit_f64(core: &mut CountingTwister) -> f64 {
    let high = core.next_u32() >> 5;
    let low = core.next_u32() >> 6;
    (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
}

/// Returns the index of the weighted entry that `u` in `0..1` selects: numpy's `searchsorted(cdf, u,
/// side="right")`.
fn weighted_index(weights: &[f64], u: f64) -> usize {
    let mut sum = 0.0;
    let running: Vec<f64> = weights
        .iter()
        .map(|weight| {
            sum += weight;
            sum
        })
        .collect();
    running.iter().filter(|upto| **upto / sum <= u).count()
}
