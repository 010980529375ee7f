//! Python's and numpy's random numbers, draw for draw, so that a seed gives the prompts the Python tool sends.
//!
//! Each generator offers only the draws the tool makes, under their Python names. Refuses to be a general source of
//! randomness: nothing here is better than what CPython and numpy do, only equal to it.

mod numpy;
mod numpy_generator;
mod python;

pub(crate) use numpy::Numpy;
pub(crate) use numpy_generator::Modern;
pub use python::Python;

use rand_mt::Mt;

/// The Mersenne Twister, which counts what it gave, so that its place can be found again.
#[derive(Clone, PartialEq, Eq)]
struct Core {
    twister: Mt,
    drawn: u64,
}

impl Core {
    const fn of(twister: Mt) -> Self {
        Self { twister, drawn: 0 }
    }

    fn next_u32(&mut self) -> u32 {
        self.drawn += 1;
        self.twister.next_u32()
    }

    fn skip(&mut self, words: u64) {
        for _ in 0..words {
            self.next_u32();
        }
    }
}

/// The next number in `0..1`: 53 bits out of two words, the same in CPython and in numpy.
fn unit(core: &mut Core) -> f64 {
    let high = core.next_u32() >> 5;
    let low = core.next_u32() >> 6;
    (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
}

/// Which of the weighted entries a number in `0..1` falls on: numpy's `searchsorted(cdf, u, side="right")`.
fn weighted(weights: &[f64], u: f64) -> usize {
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
