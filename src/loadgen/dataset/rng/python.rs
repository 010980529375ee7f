//! CPython's `random` module.

use rand_mt::Mt;

use super::{CountingTwister, unit_f64};

/// CPython's `random.Random`: MT19937, seeded with an array.
#[derive(Clone, PartialEq, Eq)]
pub struct Python {
    core: CountingTwister,
}

impl std::fmt::Debug for Python {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Python(MT19937)")
    }
}

impl Python {
    /// `random.seed(seed)`.
    pub fn new(seed: u64) -> Self {
        let (low, high) = (seed as u32, (seed >> 32) as u32);
        let core = if high == 0 {
            Mt::new_with_key([low])
        } else {
            Mt::new_with_key([low, high])
        };
        Self {
            core: CountingTwister::new(core),
        }
    }

    /// Returns the next 32-bit word.
    pub(crate) fn word(&mut self) -> u32 {
        self.core.next_u32()
    }

    /// Returns how many words were drawn since the seed.
    pub(crate) const fn draw_count(&self) -> u64 {
        self.core.draw_count
    }

    /// Draws words and discards them.
    pub(crate) fn skip(&mut self, words: u64) {
        self.core.skip(words);
    }

    /// `random.random()`: a number in `0..1`.
    pub fn random(&mut self) -> f64 {
        unit_f64(&mut self.core)
    }

    /// `random.getrandbits(bits)` for 1 to 64 bits.
    pub(crate) fn bits(&mut self, bits: u32) -> u64 {
        debug_assert!((1..=64).contains(&bits));
        if bits <= 32 {
            return u64::from(self.word() >> (32 - bits));
        }
        let low = u64::from(self.word());
        let high = u64::from(self.word() >> (64 - bits));
        (high << 32) | low
    }

    /// Returns an integer in `0..n`; `n` is above zero.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "the upper limit of a random draw must be above 0");
        let bits = u64::BITS - n.leading_zeros();
        loop {
            let drawn = self.bits(bits);
            if drawn < n {
                return drawn;
            }
        }
    }

    /// `random.randint(low, high)`: an integer from `low` to `high` inclusive.
    pub fn randint(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// `random.choice(items)`; `items` is not empty.
    pub(crate) fn choice<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.index(items.len())]
    }

    /// `random.shuffle(items)`.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.index(last + 1);
            items.swap(last, other);
        }
    }

    /// `random.choices(items, k=count)` without weights; `items` is not empty.
    pub(crate) fn choices<T: Clone>(&mut self, items: &[T], count: usize) -> Vec<T> {
        (0..count)
            .map(|_| items[(self.random() * items.len() as f64) as usize].clone())
            .collect()
    }

    /// `random.sample(items, count)`: `count` distinct entries; `count` is at most the number of items.
    pub(crate) fn sample<T: Clone>(&mut self, items: &[T], count: usize) -> Vec<T> {
        assert!(
            count <= items.len(),
            "a sample must not be larger than the list that it is drawn from"
        );
        let mut limit = 21.0;
        if count > 5 {
            // The quotient of two logarithms, as in CPython: an exact power of 4 may round up.
            limit += 4f64.powf((((count * 3) as f64).ln() / 4f64.ln()).ceil());
        }
        if items.len() as f64 <= limit {
            self.sample_pool(items, count)
        } else {
            self.sample_set(items, count)
        }
    }

    fn sample_pool<T: Clone>(&mut self, items: &[T], count: usize) -> Vec<T> {
        let mut pool = items.to_vec();
        (0..count)
            .map(|position| {
                let remaining = pool.len() - position;
                let at = self.index(remaining);
                let drawn = pool[at].clone();
                pool[at] = pool[remaining - 1].clone();
                drawn
            })
            .collect()
    }

    fn sample_set<T: Clone>(&mut self, items: &[T], count: usize) -> Vec<T> {
        let mut chosen = std::collections::HashSet::with_capacity(count);
        (0..count)
            .map(|_| {
                loop {
                    let at = self.index(items.len());
                    if chosen.insert(at) {
                        return items[at].clone();
                    }
                }
            })
            .collect()
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("a number below a length is an index")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seeds of all test vectors.
    const SEEDS: [u64; 3] = [0, 1, 42];

    fn range(n: u32) -> Vec<u32> {
        (0..n).collect()
    }

    fn each<T: std::fmt::Debug + PartialEq>(expected: [T; 3], draw: impl Fn(&mut Python) -> T) {
        for (seed, expected) in SEEDS.into_iter().zip(expected) {
            assert_eq!(draw(&mut Python::new(seed)), expected, "seed {seed}");
        }
    }

    #[test]
    fn words_are_cpythons() {
        each(
            [
                vec![3626764237, 1654615998, 3255389356, 3823568514, 1806341205],
                vec![577090037, 2444712010, 3639700191, 3445702192, 3280387012],
                vec![2746317213, 478163327, 107420369, 3184935163, 1181241943],
            ],
            |python| (0..5).map(|_| python.word()).collect::<Vec<u32>>(),
        );
    }

    #[test]
    fn numbers_between_zero_and_one_are_cpythons() {
        each(
            [
                [
                    0.8444218515250481,
                    0.7579544029403025,
                    0.420571580830845,
                    0.25891675029296335,
                    0.5112747213686085,
                ],
                [
                    0.13436424411240122,
                    0.8474337369372327,
                    0.763774618976614,
                    0.2550690257394217,
                    0.49543508709194095,
                ],
                [
                    0.6394267984578837,
                    0.025010755222666936,
                    0.27502931836911926,
                    0.22321073814882275,
                    0.7364712141640124,
                ],
            ],
            |python| std::array::from_fn(|_| python.random()),
        );
    }

    #[test]
    fn shuffles_are_cpythons_and_leave_the_generator_where_python_does() {
        each(
            [
                vec![7, 8, 1, 5, 3, 4, 2, 0, 9, 6],
                vec![6, 8, 9, 7, 5, 3, 0, 4, 1, 2],
                vec![7, 3, 2, 8, 5, 6, 9, 4, 0, 1],
            ],
            |python| {
                let mut items = range(10);
                python.shuffle(&mut items);
                items
            },
        );
        each(
            [
                (
                    vec![
                        10, 18, 16, 14, 0, 17, 11, 2, 3, 9, 5, 7, 4, 19, 6, 15, 8, 1, 13, 12,
                    ],
                    0.3101475693193326,
                ),
                (
                    vec![
                        11, 5, 17, 19, 9, 0, 16, 1, 15, 6, 10, 13, 14, 12, 7, 3, 8, 2, 18, 4,
                    ],
                    0.6958328667684435,
                ),
                (
                    vec![
                        19, 5, 14, 4, 9, 13, 15, 18, 6, 12, 17, 10, 1, 11, 2, 16, 7, 8, 0, 3,
                    ],
                    0.561245062938613,
                ),
            ],
            |python| {
                let mut items = range(20);
                python.shuffle(&mut items);
                (items, python.random())
            },
        );
    }

    #[test]
    fn a_shuffle_of_the_size_of_sharegpt_is_cpythons() {
        each(
            [
                (
                    vec![35774, 9897, 49889, 90736, 23354, 10123, 19380, 579],
                    vec![33936, 5306, 55125, 50494],
                    0.9889867747914056,
                ),
                (
                    vec![79539, 2570, 31055, 67500, 65606, 50988, 13038, 32550],
                    vec![33432, 8271, 74606, 17611],
                    0.6896024512215794,
                ),
                (
                    vec![394, 90188, 80946, 32917, 77246, 92523, 30685, 55922],
                    vec![36048, 3278, 14592, 83810],
                    0.6979050030010252,
                ),
            ],
            |python| {
                let mut items = range(94145);
                python.shuffle(&mut items);
                (items[..8].to_vec(), items[94141..].to_vec(), python.random())
            },
        );
    }

    #[test]
    fn samples_are_cpythons_from_the_pool_and_from_the_set() {
        each([vec![6, 9, 0], vec![2, 1, 4], vec![1, 0, 4]], |python| {
            python.sample(&range(10), 3)
        });
        each(
            [
                vec![49, 97, 53, 5, 33, 65],
                vec![17, 72, 97, 8, 32, 15],
                vec![81, 14, 3, 94, 35, 31],
            ],
            |python| python.sample(&range(100), 6),
        );
        each(
            [
                vec![394, 430, 41, 265, 523, 497, 414, 310],
                vec![137, 64, 261, 120, 507, 460, 483, 388],
                vec![114, 25, 281, 250, 228, 142, 104, 89],
            ],
            |python| python.sample(&range(540), 8),
        );
    }

    #[test]
    fn choices_are_cpythons() {
        each(
            [
                vec![844, 757, 420, 258, 511, 404],
                vec![134, 847, 763, 255, 495, 449],
                vec![639, 25, 275, 223, 736, 676],
            ],
            |python| python.choices(&range(1000), 6),
        );
        let mut python = Python::new(1);
        assert_eq!(python.choices(&range(256), 5), [34, 216, 195, 65, 126]);
        assert_eq!(python.choices(&range(256), 3), [115, 166, 201]);
    }

    #[test]
    fn a_choice_is_cpythons() {
        let letters = |seed: u64, of: &[char], count: usize| -> String {
            let mut python = Python::new(seed);
            (0..count).map(|_| *python.choice(of)).collect()
        };
        let five = ['a', 'b', 'c', 'd', 'e'];
        assert_eq!(letters(0, &five, 8), "ddaceddc");
        assert_eq!(letters(1, &five, 8), "beacaddd");
        assert_eq!(letters(42, &five, 8), "aacbbbae");
        assert_eq!(letters(1, &five[..3], 10), "acababbbcb");
    }

    #[test]
    fn whole_numbers_are_cpythons() {
        each(
            [
                [4, 4, 1, 3, 5, 4, 4, 3, 4, 3],
                [2, 5, 1, 3, 1, 4, 4, 4, 6, 4],
                [6, 1, 1, 6, 3, 2, 2, 2, 6, 1],
            ],
            |python| std::array::from_fn(|_| python.randint(1, 6)),
        );
        each(
            [
                [864, 394, 776, 911, 430],
                [137, 582, 867, 821, 782],
                [654, 114, 25, 759, 281],
            ],
            |python| std::array::from_fn(|_| python.below(1000)),
        );
        each(
            [
                [424533559245, 978212965548],
                [623347347957, 884107995871],
                [123005401501, 811856239313],
            ],
            |python| std::array::from_fn(|_| python.bits(40)),
        );
    }

    #[test]
    fn a_seed_of_more_than_32_bits_is_cut_into_words_low_first() {
        let mut python = Python::new(1 << 32);
        assert_eq!(
            [python.random(), python.random()],
            [0.11299430095636409, 0.41782886486292836]
        );
        let mut python = Python::new((1 << 32) + 1);
        assert_eq!(
            [python.random(), python.random()],
            [0.2309331037176915, 0.5124118614342635]
        );
    }
}
