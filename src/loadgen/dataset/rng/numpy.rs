//! numpy's legacy generator: `np.random.seed` and the functions of `np.random`.

use rand_mt::Mt;

use super::{CountingTwister, unit_f64, weighted_index};

/// numpy's `RandomState`: MT19937, seeded with one word.
#[derive(Clone, PartialEq)]
pub(crate) struct Numpy {
    core: CountingTwister,
    /// The second value of the polar method, kept for the next call as in numpy.
    spare: Option<f64>,
}

impl std::fmt::Debug for Numpy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Numpy(MT19937)")
    }
}

impl Numpy {
    /// `np.random.seed(seed)`; numpy accepts no seed above 32 bits.
    pub(crate) fn new(seed: u32) -> Self {
        Self {
            core: CountingTwister::new(Mt::new(seed)),
            spare: None,
        }
    }

    /// Returns the next 32-bit word.
    pub(crate) fn word(&mut self) -> u32 {
        self.core.next_u32()
    }

    /// Returns how many words were drawn since the seed; `None` while a spare normal value is kept, because
    /// then the count does not determine the state.
    pub(crate) const fn draw_count(&self) -> Option<u64> {
        match self.spare {
            None => Some(self.core.draw_count),
            Some(_) => None,
        }
    }

    /// Draws words and discards them.
    pub(crate) fn skip(&mut self, words: u64) {
        self.core.skip(words);
    }

    /// `np.random.random_sample()`: a number in `0..1`.
    pub(crate) fn random(&mut self) -> f64 {
        unit_f64(&mut self.core)
    }

    /// Returns an integer from 0 to `most` by mask and rejection. For 0 nothing is drawn.
    fn bounded(&mut self, max: u64) -> u64 {
        if max == 0 {
            return 0;
        }
        let mask = u64::MAX >> max.leading_zeros();
        loop {
            let drawn = if max <= u64::from(u32::MAX) {
                u64::from(self.word())
            } else {
                let high = u64::from(self.word());
                (high << 32) | u64::from(self.word())
            } & mask;
            if drawn <= max {
                return drawn;
            }
        }
    }

    /// `np.random.randint(low, high)`: an integer in `low..high`; the range must not be empty.
    pub(crate) fn randint(&mut self, low: u64, high: u64) -> u64 {
        assert!(low < high, "the range of a random draw must not be empty");
        low + self.bounded(high - 1 - low)
    }

    #[cfg(test)]
    pub(crate) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.random()
    }

    pub(crate) fn exponential(&mut self, scale: f64) -> f64 {
        scale * self.standard_exponential()
    }

    fn standard_exponential(&mut self) -> f64 {
        -(1.0 - self.random()).ln()
    }

    pub(crate) fn gamma(&mut self, shape: f64, scale: f64) -> f64 {
        scale * self.standard_gamma(shape)
    }

    /// `np.random.standard_gamma(shape)`: Marsaglia and Tsang's method for a shape above 1, Ahrens and
    /// Dieter's below 1.
    pub(crate) fn standard_gamma(&mut self, shape: f64) -> f64 {
        if shape == 1.0 {
            self.standard_exponential()
        } else if shape == 0.0 {
            0.0
        } else if shape < 1.0 {
            self.gamma_below_one(shape)
        } else {
            self.gamma_above_one(shape)
        }
    }

    fn gamma_below_one(&mut self, shape: f64) -> f64 {
        loop {
            let u = self.random();
            let v = self.standard_exponential();
            if u <= 1.0 - shape {
                let x = u.powf(1.0 / shape);
                if x <= v {
                    return x;
                }
            } else {
                let y = -((1.0 - u) / shape).ln();
                let x = (1.0 - shape + shape * y).powf(1.0 / shape);
                if x <= v + y {
                    return x;
                }
            }
        }
    }

    fn gamma_above_one(&mut self, shape: f64) -> f64 {
        let b = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * b).sqrt();
        loop {
            let (x, v) = loop {
                let x = self.normal();
                let v = 1.0 + c * x;
                if v > 0.0 {
                    break (x, v * v * v);
                }
            };
            let u = self.random();
            if u < 1.0 - 0.0331 * (x * x) * (x * x) || u.ln() < 0.5 * x * x + b * (1.0 - v + v.ln()) {
                return b * v;
            }
        }
    }

    /// `np.random.normal(0, 1)`, by the polar method.
    pub(crate) fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let x = 2.0 * self.random() - 1.0;
            let y = 2.0 * self.random() - 1.0;
            let square = x * x + y * y;
            if square < 1.0 && square != 0.0 {
                let factor = (-2.0 * square.ln() / square).sqrt();
                self.spare = Some(factor * x);
                return factor * y;
            }
        }
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other =
                usize::try_from(self.bounded(last as u64)).expect("a number below a length is an index");
            items.swap(last, other);
        }
    }

    pub(crate) fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        self.shuffle(&mut order);
        order
    }

    /// `np.random.choice(n, count, replace=False)`: `count` distinct numbers below `n`.
    pub(crate) fn choice_distinct(&mut self, n: usize, count: usize) -> Vec<usize> {
        let mut order = self.permutation(n);
        order.truncate(count);
        order
    }

    /// `np.random.choice(len(weights), p=weights)`: an index with probability proportional to its weight.
    pub(crate) fn choice_weighted(&mut self, weights: &[f64]) -> usize {
        let u = self.random();
        weighted_index(weights, u)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each<T: std::fmt::Debug + PartialEq>(expected: [T; 3], draw: impl Fn(&mut Numpy) -> T) {
        for (seed, expected) in [0, 1, 42].into_iter().zip(expected) {
            assert_eq!(draw(&mut Numpy::new(seed)), expected, "seed {seed}");
        }
    }

    fn whole(numpy: &mut Numpy, low: u64, high: u64, count: usize) -> Vec<u64> {
        (0..count).map(|_| numpy.randint(low, high)).collect()
    }

    #[test]
    fn words_are_numpys() {
        each(
            [
                [2357136044, 2546248239, 3071714933, 3626093760, 2588848963],
                [1791095845, 4282876139, 3093770124, 4005303368, 491263],
                [1608637542, 3421126067, 4083286876, 787846414, 3143890026],
            ],
            |numpy| std::array::from_fn(|_| numpy.word()),
        );
    }

    #[test]
    fn numbers_between_zero_and_one_are_numpys() {
        each(
            [
                [
                    0.5488135039273248,
                    0.7151893663724195,
                    0.6027633760716439,
                    0.5448831829968969,
                    0.4236547993389047,
                ],
                [
                    0.417022004702574,
                    0.7203244934421581,
                    0.00011437481734488664,
                    0.30233257263183977,
                    0.14675589081711304,
                ],
                [
                    0.3745401188473625,
                    0.9507143064099162,
                    0.7319939418114051,
                    0.5986584841970366,
                    0.15601864044243652,
                ],
            ],
            |numpy| std::array::from_fn(|_| numpy.random()),
        );
    }

    #[test]
    fn whole_numbers_are_numpys() {
        each(
            [
                vec![684, 559, 629, 192, 835],
                vec![37, 235, 908, 72, 767],
                vec![102, 435, 860, 270, 106],
            ],
            |numpy| whole(numpy, 0, 1000, 5),
        );
        each(
            [
                vec![685, 560, 630, 193, 836, 764, 708, 360],
                vec![38, 236, 909, 73, 768, 906, 716, 646],
                vec![103, 436, 861, 271, 107, 72, 701, 21],
            ],
            |numpy| whole(numpy, 1, 1025, 8),
        );
        each(
            [
                vec![43567, 117952, 95939, 97639],
                vec![128037, 5192, 50057, 109259],
                vec![121958, 146867, 131932, 103694],
            ],
            |numpy| whole(numpy, 0, 151_643, 4),
        );
        each(
            [
                vec![741280623151, 506137267392],
                vec![163196666091, 605300724808],
                vec![441507790259, 395924837646],
            ],
            |numpy| whole(numpy, 0, 1 << 40, 2),
        );
    }

    #[test]
    fn whole_numbers_carry_on_where_numpys_do() {
        let mut numpy = Numpy::new(1);
        whole(&mut numpy, 1, 1025, 8);
        assert_eq!(
            whole(&mut numpy, 1, 1025, 8),
            [848, 961, 145, 130, 973, 584, 750, 509]
        );
        let mut numpy = Numpy::new(42);
        whole(&mut numpy, 1, 1025, 8);
        assert_eq!(
            whole(&mut numpy, 1, 1025, 8),
            [615, 122, 467, 215, 331, 459, 88, 373]
        );
    }

    #[test]
    fn a_range_that_is_no_power_of_two_rejects_as_numpy_does() {
        each(
            [
                vec![704, 871, 521, 789, 582, 984, 908, 826, 998, 599, 686, 584],
                vec![549, 747, 584, 656, 641, 1020, 902, 793, 690, 788, 766, 869],
                vec![614, 947, 782, 618, 583, 532, 633, 978, 726, 842, 970, 599],
            ],
            |numpy| whole(numpy, 512, 1025, 12),
        );
    }

    #[test]
    fn a_range_of_one_number_costs_no_draw() {
        let mut numpy = Numpy::new(1);
        assert_eq!(numpy.randint(7, 8), 7);
        assert_eq!(numpy, Numpy::new(1));
    }

    #[test]
    fn exponential_gaps_are_numpys() {
        each(
            [
                [
                    0.397937254081555,
                    0.6279653814829189,
                    0.4616115729020344,
                    0.39360057615863536,
                    0.2755242455477496,
                ],
                [
                    0.2698029186295927,
                    0.6370626265066521,
                    5.719067932154296e-05,
                    0.1800063774269595,
                    0.07935479759733695,
                ],
                [
                    0.23463404498842955,
                    1.5050607154587605,
                    0.6583728467727247,
                    0.4564712768879766,
                    0.08481243523117314,
                ],
            ],
            |numpy| std::array::from_fn(|_| numpy.exponential(0.5)),
        );
    }

    #[test]
    fn uniform_numbers_are_numpys() {
        each(
            [
                [3.6464405117819743, 4.145568099117258, 3.8082901282149315],
                [3.251066014107722, 4.160973480326474, 2.0003431244520344],
                [3.1236203565420873, 4.852142919229749, 4.195981825434215],
            ],
            |numpy| std::array::from_fn(|_| numpy.uniform(2.0, 5.0)),
        );
    }

    #[test]
    fn permutations_shuffles_and_distinct_choices_are_numpys() {
        let expected = [
            vec![2, 8, 4, 9, 1, 6, 7, 3, 0, 5],
            vec![2, 9, 6, 4, 0, 3, 1, 7, 8, 5],
            vec![8, 1, 5, 0, 7, 2, 9, 4, 3, 6],
        ];
        each(expected.clone(), |numpy| numpy.permutation(10));
        each(expected.map(|order| order[..5].to_vec()), |numpy| {
            numpy.choice_distinct(10, 5)
        });
        each(
            [vec![5, 0, 3, 3, 7], vec![5, 8, 9, 5, 0], vec![6, 3, 7, 4, 6]],
            |numpy| whole(numpy, 0, 10, 5),
        );
    }

    #[test]
    fn weighted_choices_are_numpys() {
        each(
            [
                [1, 2, 1, 1, 1, 1, 1, 2, 3, 0, 2, 1],
                [1, 2, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1],
                [0, 3, 2, 1, 0, 0, 0, 2, 1, 2, 0, 3],
            ],
            |numpy| std::array::from_fn(|_| numpy.choice_weighted(&[0.4, 0.3, 0.2, 0.1])),
        );
    }

    #[test]
    fn normal_numbers_are_numpys() {
        each(
            [
                [1.764052345967664, 0.4001572083672233, 0.9787379841057392],
                [1.6243453636632417, -0.6117564136500754, -0.5281717522634557],
                [0.4967141530112327, -0.13826430117118466, 0.6476885381006925],
            ],
            |numpy| std::array::from_fn(|_| numpy.normal()),
        );
    }

    #[test]
    fn gamma_numbers_are_numpys_below_at_and_above_one() {
        // Printed by numpy 2.4.6: `np.random.gamma(b, 1 / (4 * b), 4)`, then `np.random.random_sample()`.
        let gaps = |numpy: &mut Numpy, shape: f64| {
            let drawn: [f64; 4] = std::array::from_fn(|_| numpy.gamma(shape, 1.0 / (4.0 * shape)));
            (drawn, numpy.random())
        };
        each(
            [
                (
                    [
                        0.1520009448803522,
                        0.18913586003390778,
                        0.0897416945014438,
                        0.09574128373033014,
                    ],
                    0.9636627605010293,
                ),
                (
                    [
                        0.08695367620307683,
                        6.54079942133809e-09,
                        0.010768645744762202,
                        0.017346433171227322,
                    ],
                    0.39676747423066994,
                ),
                (
                    [
                        0.07014015031309821,
                        0.32950901642109254,
                        0.012170908082753144,
                        0.0016868530012529043,
                    ],
                    0.6011150117432088,
                ),
            ],
            |numpy| gaps(numpy, 0.5),
        );
        each(
            [
                (
                    [
                        0.6423536970425305,
                        0.2798101139740668,
                        0.6783915342998432,
                        0.08707330556936792,
                    ],
                    0.9636627605010293,
                ),
                (
                    [
                        0.595767752930966,
                        0.12438411909834564,
                        0.13419516040821444,
                        0.07872321451355757,
                    ],
                    0.4191945144032948,
                ),
                (
                    [
                        0.29920992373365457,
                        0.18680809127694845,
                        0.1727854480463692,
                        0.17278778679147508,
                    ],
                    0.6011150117432088,
                ),
            ],
            |numpy| gaps(numpy, 2.0),
        );
        each(
            [
                [7.45736787022153, 3.9334605059335597, 7.788169465592803],
                [7.0259108066994, 2.1980217015703705, 2.31669998742921],
                [4.135368302324849, 2.9269408654916536, 2.7679964168944413],
            ],
            |numpy| std::array::from_fn(|_| numpy.standard_gamma(3.5)),
        );
        each(
            std::array::from_fn(|at| Numpy::new([0, 1, 42][at]).exponential(0.25)),
            |numpy| numpy.gamma(1.0, 0.25),
        );
    }

    #[test]
    fn pixels_drawn_as_a_block_are_numpys() {
        let mut numpy = Numpy::new(1);
        let pixels: Vec<u8> = (0..18).map(|_| (numpy.random() * 255.0) as u8).collect();
        assert_eq!(
            pixels,
            [
                106, 183, 0, 77, 37, 23, 47, 88, 101, 137, 106, 174, 52, 223, 6, 170, 106, 142
            ]
        );
    }
}
