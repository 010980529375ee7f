//! numpy's modern generator: `np.random.default_rng`.

use super::weighted_index;

/// numpy's `Generator` over PCG64 (XSL-RR 128/64), seeded through `SeedSequence`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NumpyGenerator {
    state: u128,
    increment: u128,
    /// The upper half of the last word of which only the lower half was used.
    half: Option<u32>,
}

const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;

impl NumpyGenerator {
    pub(crate) fn new(seed: u64) -> Self {
        let [a, b, c, d] = seed_sequence(seed).map(u128::from);
        let mut pcg = Self {
            state: 0,
            increment: (((c << 64) | d) << 1) | 1,
            half: None,
        };
        pcg.step();
        pcg.state = pcg.state.wrapping_add((a << 64) | b);
        pcg.step();
        pcg
    }

    fn step(&mut self) {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
    }

    /// Returns the next 64-bit word.
    pub(crate) fn word(&mut self) -> u64 {
        self.step();
        let folded = (self.state >> 64) as u64 ^ self.state as u64;
        folded.rotate_right((self.state >> 122) as u32)
    }

    /// Returns the next 32-bit word: the lower half of a 64-bit word, then its upper half.
    fn half_word(&mut self) -> u32 {
        self.half.take().unwrap_or_else(|| {
            let word = self.word();
            self.half = Some((word >> 32) as u32);
            word as u32
        })
    }

    /// `rng.integers(low, high)`: an integer in `low..high`, which must not be empty and must have at most 2³²
    /// numbers. Lemire's method, as numpy draws ranges of 32 bits.
    pub(crate) fn integers(&mut self, low: u64, high: u64) -> u64 {
        assert!(low < high, "the range of a random draw must not be empty");
        let max = u32::try_from(high - 1 - low).expect("the range has at most 32 bits");
        if max == 0 {
            return low;
        }
        if max == u32::MAX {
            return low + u64::from(self.half_word());
        }
        let count = max + 1;
        let mut product = u64::from(self.half_word()) * u64::from(count);
        if (product as u32) < count {
            let threshold = (u32::MAX - max) % count;
            while (product as u32) < threshold {
                product = u64::from(self.half_word()) * u64::from(count);
            }
        }
        low + (product >> 32)
    }

    /// `rng.random()`: a number in `0..1`.
    pub(crate) fn random(&mut self) -> f64 {
        (self.word() >> 11) as f64 / 9_007_199_254_740_992.0
    }

    /// `rng.choice(len(weights), p=weights)`: an index with probability proportional to its weight.
    pub(crate) fn choice_weighted(&mut self, weights: &[f64]) -> usize {
        let u = self.random();
        weighted_index(weights, u)
    }
}

/// Computes the first four 64-bit words of `np.random.SeedSequence(seed)`.
fn seed_sequence(seed: u64) -> [u64; 4] {
    let mut factor = 0x43b0_d7e5_u32;
    let mut hashmix = |mut value: u32| {
        value ^= factor;
        factor = factor.wrapping_mul(0x931e_8875);
        value = value.wrapping_mul(factor);
        value ^ (value >> 16)
    };
    let mix = |x: u32, y: u32| {
        let mixed = 0xca01_f9dd_u32
            .wrapping_mul(x)
            .wrapping_sub(0x4973_f715_u32.wrapping_mul(y));
        mixed ^ (mixed >> 16)
    };
    let mut pool = [seed as u32, (seed >> 32) as u32, 0, 0].map(&mut hashmix);
    for source in 0..4 {
        for target in (0..4).filter(|target| *target != source) {
            pool[target] = mix(pool[target], hashmix(pool[source]));
        }
    }
    let mut factor = 0x8b51_f9dd_u32;
    let mut halves = [0u32; 8];
    for (at, half) in halves.iter_mut().enumerate() {
        let mut value = pool[at % 4] ^ factor;
        factor = factor.wrapping_mul(0x58f3_8ded);
        value = value.wrapping_mul(factor);
        *half = value ^ (value >> 16);
    }
    std::array::from_fn(|at| u64::from(halves[2 * at + 1]) << 32 | u64::from(halves[2 * at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_sequence_is_numpys() {
        assert_eq!(
            seed_sequence(0),
            [
                0xdb2c_d7e7_b0f4_78be,
                0xabf4_641a_2c71_ba49,
                0x20c6_ed6d_9d7b_8d41,
                0x2c40_99de_223c_39d4
            ]
        );
        assert_eq!(
            seed_sequence(1),
            [
                0x672d_8ee5_6d67_91ff,
                0x8ae1_9ca1_4eb1_072c,
                0x4915_796d_1322_fc4a,
                0xd0cc_2bdc_aba0_49bd
            ]
        );
        assert_eq!(
            seed_sequence(42),
            [
                0x9f1e_2e6d_cd54_0ab7,
                0xd578_73dc_79fb_94b6,
                0x7d28_2a1b_64d4_20b7,
                0x3365_7971_4692_d5ff
            ]
        );
    }

    #[test]
    fn numbers_between_zero_and_one_are_numpys() {
        for (seed, expected) in [
            (
                0,
                [
                    0.6369616873214543,
                    0.2697867137638703,
                    0.04097352393619469,
                    0.016527635528529094,
                ],
            ),
            (
                1,
                [
                    0.5118216247002567,
                    0.9504636963259353,
                    0.14415961271963373,
                    0.9486494471372439,
                ],
            ),
            (
                42,
                [
                    0.7739560485559633,
                    0.4388784397520523,
                    0.8585979199113825,
                    0.6973680290593639,
                ],
            ),
        ] {
            let mut generator = NumpyGenerator::new(seed);
            assert_eq!(
                std::array::from_fn(|_| generator.random()),
                expected,
                "seed {seed}"
            );
        }
    }

    #[test]
    fn integers_are_numpys() {
        for (seed, fives, threes, ids, after) in [
            (
                0,
                [14, 13, 12, 11, 11, 10],
                [0, 0, 0],
                [123326, 98479, 138412, 76371, 91992],
                0.7294965609839984,
            ),
            (
                1,
                [12, 12, 13, 14, 10, 10],
                [2, 2, 0],
                [47287, 131781, 64194, 41424, 125515],
                0.4091991363691613,
            ),
            (
                42,
                [10, 13, 13, 12, 12, 14],
                [0, 2, 0],
                [14281, 79836, 147946, 111571, 115421],
                0.7860643052769538,
            ),
        ] {
            let mut generator = NumpyGenerator::new(seed);
            assert_eq!(std::array::from_fn(|_| generator.integers(10, 15)), fives);
            assert_eq!(std::array::from_fn(|_| generator.integers(0, 3)), threes);
            assert_eq!(std::array::from_fn(|_| generator.integers(0, 151643)), ids);
            assert_eq!(
                generator.random(),
                after,
                "a half word does not affect whole ones"
            );
        }
    }

    #[test]
    fn weighted_choices_are_numpys() {
        let zipf = [
            0.5284517432896202,
            0.23002198139779884,
            0.14140339257440876,
            0.10012288273817219,
        ];
        for (seed, expected) in [
            (0, [1, 0, 0, 0, 2, 3, 1, 1, 1, 3, 2, 0]),
            (1, [0, 3, 0, 3, 0, 0, 2, 0, 1, 0, 1, 1]),
            (42, [2, 0, 2, 1, 0, 3, 2, 2, 0, 0, 0, 3]),
        ] {
            let mut generator = NumpyGenerator::new(seed);
            assert_eq!(
                std::array::from_fn(|_| generator.choice_weighted(&zipf)),
                expected,
                "seed {seed}"
            );
        }
    }
}
