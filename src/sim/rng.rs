//! Seeded random numbers and hashes of the simulated engine. Every random value comes from here, so that a
//! seed determines it. Not for workloads, which need Python's generators.

/// A generator of uniform random numbers (SplitMix64, <https://prng.di.unimi.it/splitmix64.c>).
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A generator for one purpose. Different `stream`s of one seed are independent.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed ^ mix(stream)))
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// The next number in [0, 1).
    pub(crate) fn next_unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A uniform factor between 1 − `share` and 1 + `share`.
    pub(crate) fn factor(&mut self, share: f64) -> f64 {
        1.0 + share * (2.0 * self.next_unit() - 1.0)
    }

    /// A uniform integer from 0 to `below` − 1; `below` must be above 0.
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(below)) >> 64) as u64
    }
}

/// The finalizer of SplitMix64.
pub(crate) const fn mix(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// The hash of a sequence with hash `before` extended by `next`.
pub(crate) const fn chain_hash(before: u64, next: u64) -> u64 {
    mix(before.rotate_left(17).wrapping_add(0x9e37_79b9_7f4a_7c15) ^ mix(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_even_and_fixed_by_the_seed() {
        let mut rng = Rng::new(1, 2);
        let mean = (0..10_000).map(|_| rng.next_unit()).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
        assert_eq!(Rng::new(1, 2).next_u64(), Rng::new(1, 2).next_u64());
        assert_ne!(Rng::new(1, 2).next_u64(), Rng::new(1, 3).next_u64());
        assert!((0..1000).all(|_| rng.below(7) < 7));
    }
}
