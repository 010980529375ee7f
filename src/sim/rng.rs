//! Seeded draws and hashes: everything in the simulated engine that looks random comes from here, so that a seed
//! fixes it. Not meant for workloads: those need Python's generators.

/// A generator of uniform draws (SplitMix64, <https://prng.di.unimi.it/splitmix64.c>).
#[derive(Clone, Debug)]
pub(crate) struct Draw(u64);

impl Draw {
    /// The generator for one purpose: different `stream`s of one seed are independent.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed ^ mix(stream)))
    }

    /// The next 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// The next number in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A factor drawn evenly from 1 − `share` to 1 + `share`.
    pub(crate) fn around_one(&mut self, share: f64) -> f64 {
        1.0 + share * (2.0 * self.unit() - 1.0)
    }

    /// A whole number drawn evenly from 0 to `below` − 1; `below` must be above 0.
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(below)) >> 64) as u64
    }
}

/// Scatters the bits of a number.
pub(crate) const fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The hash of a sequence that continues one with hash `before` by `next`.
pub(crate) const fn chain(before: u64, next: u64) -> u64 {
    mix(before.rotate_left(17).wrapping_add(0x9e37_79b9_7f4a_7c15) ^ mix(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_even_and_fixed_by_the_seed() {
        let mut draw = Draw::new(1, 2);
        let mean = (0..10_000).map(|_| draw.unit()).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
        assert_eq!(Draw::new(1, 2).bits(), Draw::new(1, 2).bits());
        assert_ne!(Draw::new(1, 2).bits(), Draw::new(1, 3).bits());
        assert!((0..1000).all(|_| draw.below(7) < 7));
    }
}
