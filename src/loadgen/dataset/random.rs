//! The `random` and `random-ids` data sets: rows of drawn lengths, cut from conversations or made of
//! consecutive ids.

use std::path::Path;

use super::conversations;
use super::length_pairs::{self, LengthPair};
use super::rng::Numpy;
use super::tokenizer::{CleanUp, Tokenizer};
use super::{Content, DatasetError, MakeRows, Prompt, RngState, RowInputs, Rows, token_count};
use crate::config::dataset::common_prefix::CommonPrefix;
use crate::config::dataset::length_distribution::{self, LengthDistribution, PairOrder};
use crate::config::dataset::random::Random;
use crate::config::dataset::random_ids::RandomIds;
use crate::config::workload::Profile;

/// Maximum number of conversations that are tokenized at once.
const MAX_BATCH: usize = 1024;

/// Maximum number of ids that are decoded at once, to bound the memory for ids and texts.
const MAX_BATCH_IDS: usize = 1 << 18;

/// Lengths that are drawn evenly.
const NO_DISTRIBUTION: length_distribution::Lengths = length_distribution::Lengths {
    input: None,
    output: None,
    file: None,
    order: None,
};

/// The options that lengths are drawn from.
struct LengthOptions<'o> {
    /// The maxima of prompts and answers.
    longest: [Option<u32>; 2],
    ratio: f64,
    sends_ids: bool,
    lengths: Option<&'o length_distribution::Lengths>,
}

/// The tokens that each row has in common with its group.
struct RowPrefixes {
    /// The group of each row; empty without common tokens.
    groups: Vec<usize>,
    /// Number of common tokens of each row.
    tokens: Vec<u32>,
    /// Number of groups that need a prefix.
    group_count: usize,
}

impl RowPrefixes {
    /// Draws the group of each row: `np.random.randint(0, groups)` for each.
    fn draw(prefix: Option<CommonPrefix>, lengths: &[u32], numpy: &mut Numpy) -> Self {
        let Some(prefix) = prefix else {
            return Self {
                groups: Vec::new(),
                tokens: vec![0; lengths.len()],
                group_count: 0,
            };
        };
        let count = u64::from(prefix.groups());
        let group = |_| usize::try_from(numpy.randint(0, count)).expect("a group is a small number");
        Self {
            groups: lengths.iter().map(group).collect(),
            tokens: lengths
                .iter()
                .map(|length| prefix.shared_tokens(*length))
                .collect(),
            group_count: prefix.groups() as usize,
        }
    }

    /// The number of tokens that prefixes need.
    fn longest(&self) -> u32 {
        self.tokens.iter().copied().max().unwrap_or(0)
    }

    /// Returns the ids of a row: the common ones of its group, then its own.
    fn with_prefix(
        &self,
        row: usize,
        prefixes: &[Vec<u32>],
        length: u32,
        own: impl Iterator<Item = u32>,
    ) -> Vec<u32> {
        let common = match self.groups.get(row) {
            Some(group) => &prefixes[*group][..self.tokens[row] as usize],
            None => &[],
        };
        let rest = length as usize - common.len();
        common.iter().copied().chain(own.take(rest)).collect()
    }
}

/// Draws lengths from a distribution: numpy's `np.clip(np.rint(transform(np.random.normal(size=count))), min, longest)`,
/// after which one more normal number is drawn if `count` is odd.
fn draw_distribution(
    distribution: LengthDistribution,
    longest: u32,
    count: usize,
    numpy: &mut Numpy,
) -> Vec<u32> {
    let (min, max) = (f64::from(distribution.min()), f64::from(longest));
    let drawn = draw_unclipped(distribution, count, numpy).into_iter();
    drawn.map(|length| length.clamp(min, max) as u32).collect()
}

/// Draws rounded lengths from a distribution, as [`draw_distribution`] does before it clips them.
pub(super) fn draw_unclipped(distribution: LengthDistribution, count: usize, numpy: &mut Numpy) -> Vec<f64> {
    let transform = distribution
        .transform()
        .expect("a valid workload has valid distributions");
    let lengths = (0..count)
        .map(|_| transform.apply(numpy.normal()).round_ties_even())
        .collect();
    // numpy makes two normal numbers at a time; a kept one would not be part of the stored state.
    if count % 2 == 1 {
        numpy.normal();
    }
    lengths
}

/// Takes pairs of lengths, drawn with `np.random.randint(0, len(pairs))` or in order.
fn take_pairs(pairs: &[LengthPair], order: PairOrder, count: usize, numpy: &mut Numpy) -> [Vec<u32>; 2] {
    let taken: Vec<LengthPair> = (0..count)
        .map(|row| match order {
            PairOrder::Sampled => {
                let at = numpy.randint(0, pairs.len() as u64);
                pairs[usize::try_from(at).expect("it is an index")]
            }
            PairOrder::InOrder => pairs[row % pairs.len()],
        })
        .collect();
    [0, 1].map(|side| taken.iter().map(|pair| pair[side]).collect())
}

struct Lengths {
    input: Vec<u32>,
    output: Vec<u32>,
}

impl Lengths {
    /// Draws the lengths of prompts and answers.
    fn draw(
        options: &LengthOptions<'_>,
        inputs: &RowInputs<'_>,
        numpy: &mut Numpy,
    ) -> Result<Self, DatasetError> {
        let (profile, sends_ids) = (inputs.profile, options.sends_ids);
        let longest = options
            .longest
            .map(|length| length.expect("a valid workload has both lengths"));
        let lengths = options.lengths.unwrap_or(&NO_DISTRIBUTION);
        let [mut input, output] = match &lengths.file {
            Some(file) => {
                let pairs = length_pairs::read(inputs.dataset, Path::new(file), longest)?;
                take_pairs(&pairs, lengths.order.unwrap_or_default(), inputs.prompts, numpy)
            }
            None => {
                let shortest_output = match profile {
                    Profile::Classic => 0,
                    Profile::Current => 1,
                };
                let sides = [(lengths.input, 1), (lengths.output, shortest_output)];
                let mut side = |at: usize| match sides[at] {
                    (Some(distribution), _) => {
                        draw_distribution(distribution, longest[at], inputs.prompts, numpy)
                    }
                    (None, shortest) => {
                        draw_lengths(longest[at], options.ratio, shortest, inputs.prompts, numpy)
                    }
                };
                [side(0), side(1)]
            }
        };
        if profile == Profile::Current && !sends_ids {
            let special = token_count(inputs.tokenizer.special_token_count());
            for length in &mut input {
                *length = length.saturating_sub(special).max(1);
            }
        }
        Ok(Self { input, output })
    }

    fn rows(&self, prompts: Vec<Prompt>) -> Rows {
        let sum = |lengths: &[u32]| lengths.iter().copied().map(u64::from).sum();
        Rows::with_sums(prompts, sum(&self.input), sum(&self.output))
    }
}

/// Draws `count` lengths from `ratio` × `longest` to `longest`; draws nothing if `longest` is 0.
pub(super) fn draw_lengths(
    longest: u32,
    ratio: f64,
    shortest: u32,
    count: usize,
    numpy: &mut Numpy,
) -> Vec<u32> {
    if longest == 0 {
        return vec![0; count];
    }
    let low = u64::from(((f64::from(longest) * ratio) as u32).max(shortest));
    let lengths = (0..count).map(|_| numpy.randint(low, u64::from(longest) + 1));
    lengths
        .map(|length| u32::try_from(length).expect("a drawn length is at most the longest"))
        .collect()
}

impl MakeRows for Random {
    /// Cuts rows out of shuffled conversations.
    ///
    /// A prompt without tokens is skipped; the Python tool of the `classic` profile crashes on one.
    fn rows(&self, inputs: &RowInputs<'_>, rng: &mut RngState) -> Result<Rows, DatasetError> {
        let (profile, tokenizer) = (inputs.profile, inputs.tokenizer);
        let file = conversations::ConversationFile::open(inputs.path()?)?;
        let mut pairs = file.pairs(profile)?;
        let options = LengthOptions {
            longest: [self.input_len, self.output_len],
            ratio: self.range_ratio,
            sends_ids: self.tokenize_prompt,
            lengths: self.lengths.as_ref(),
        };
        let lengths = Lengths::draw(&options, inputs, &mut rng.numpy)?;
        let row_prefixes = RowPrefixes::draw(self.common_prefix, &lengths.input, &mut rng.numpy);
        if profile == Profile::Classic {
            // The length of the list determines the shuffle, so this must come first.
            pairs.retain(|pair| !pair.prompt.is_empty());
        }
        rng.python.shuffle(&mut pairs);
        let count = lengths.input.len();
        if profile == Profile::Classic && pairs.len() < count {
            return Err(DatasetError::TooFew {
                available: pairs.len(),
                requested: count,
            });
        }
        let mut prompts: Vec<Prompt> = Vec::with_capacity(count.min(pairs.len()));
        let mut pairs = pairs.into_iter();
        let longest_prefix = row_prefixes.longest() as usize;
        let mut prefixes: Vec<Vec<u32>> = Vec::with_capacity(row_prefixes.group_count);
        while prefixes.len() < row_prefixes.group_count
            && let Some(pair) = pairs.next()
        {
            let text = pair.prompt.into_text();
            let ids = tokenizer.encode_batch(&[&text], true)?.remove(0);
            if !ids.is_empty() {
                prefixes.push(ids.into_iter().cycle().take(longest_prefix).collect());
            }
        }
        if prefixes.len() < row_prefixes.group_count {
            return Err(DatasetError::TooFew {
                available: prefixes.len(),
                requested: row_prefixes.group_count + count,
            });
        }
        while prompts.len() < count && pairs.len() > 0 {
            let block = (count - prompts.len()).min(MAX_BATCH);
            let texts: Vec<String> = pairs
                .by_ref()
                .take(block)
                .map(|pair| pair.prompt.into_text())
                .collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let encoded = tokenizer.encode_batch(&texts, true)?;
            // A block is never larger than the number of missing prompts, so every usable prompt gets a
            // length.
            let from = prompts.len();
            let cut: Vec<Vec<u32>> = encoded
                .into_iter()
                .filter(|ids| !ids.is_empty())
                .zip(from..)
                .map(|(ids, row)| {
                    row_prefixes.with_prefix(row, &prefixes, lengths.input[row], ids.into_iter().cycle())
                })
                .collect();
            let contents = contents(cut, self.tokenize_prompt, profile, tokenizer)?;
            for (row, content) in (from..).zip(contents) {
                prompts.push(Prompt::new(content, lengths.input[row], lengths.output[row]));
            }
        }
        Ok(lengths.rows(prompts))
    }
}

impl MakeRows for RandomIds {
    /// Makes rows of consecutive ids, each from its own offset.
    fn rows(&self, inputs: &RowInputs<'_>, rng: &mut RngState) -> Result<Rows, DatasetError> {
        let (profile, tokenizer) = (inputs.profile, inputs.tokenizer);
        let options = LengthOptions {
            longest: [self.input_len, self.output_len],
            ratio: self.range_ratio,
            sends_ids: self.tokenize_prompt,
            lengths: self.lengths.as_ref(),
        };
        let lengths = Lengths::draw(&options, inputs, &mut rng.numpy)?;
        let row_prefixes = RowPrefixes::draw(self.common_prefix, &lengths.input, &mut rng.numpy);
        let vocabulary = tokenizer.vocab_size() as u64;
        let prefixes: Vec<Vec<u32>> = (0..row_prefixes.group_count)
            .map(|_| {
                consecutive_ids(
                    rng.numpy.randint(0, vocabulary),
                    row_prefixes.longest(),
                    vocabulary,
                )
            })
            .collect();
        let offsets: Vec<u64> = lengths
            .input
            .iter()
            .map(|_| rng.numpy.randint(0, vocabulary))
            .collect();
        let mut prompts = Vec::with_capacity(offsets.len());
        let longest = lengths.input.iter().max().copied().unwrap_or(0).max(1);
        let rows = (MAX_BATCH_IDS / longest as usize).clamp(1, MAX_BATCH);
        for block in (0..offsets.len()).collect::<Vec<usize>>().chunks(rows) {
            let counted: Vec<Vec<u32>> = block
                .iter()
                .map(|row| {
                    let (length, first) = (lengths.input[*row], offsets[*row] + *row as u64);
                    let own = consecutive_ids(first, length - row_prefixes.tokens[*row], vocabulary);
                    row_prefixes.with_prefix(*row, &prefixes, length, own.into_iter())
                })
                .collect();
            let contents = contents(counted, self.tokenize_prompt, profile, tokenizer)?;
            for (row, content) in block.iter().zip(contents) {
                prompts.push(Prompt::new(content, lengths.input[*row], lengths.output[*row]));
            }
        }
        Ok(lengths.rows(prompts))
    }
}

/// Returns `length` ids from `first`; after the last id of the vocabulary follows 0.
pub(super) fn consecutive_ids(first: u64, length: u32, vocabulary: u64) -> Vec<u32> {
    (0..u64::from(length))
        .map(|step| {
            u32::try_from((first + step) % vocabulary)
                .expect("a vocabulary has fewer than four billion entries")
        })
        .collect()
}

/// Converts ids to the content that is sent: the ids, or their text.
fn contents(
    ids: Vec<Vec<u32>>,
    tokenize_prompt: bool,
    profile: Profile,
    tokenizer: &Tokenizer,
) -> Result<Vec<Content>, DatasetError> {
    if tokenize_prompt {
        return Ok(ids.into_iter().map(|ids| Content::Ids(ids.into())).collect());
    }
    let texts = texts(&ids, profile, tokenizer)?.into_iter();
    Ok(texts.map(|text| Content::Text(text.into())).collect())
}

/// Returns the texts of lists of ids.
pub(super) fn texts(
    ids: &[Vec<u32>],
    profile: Profile,
    tokenizer: &Tokenizer,
) -> Result<Vec<String>, DatasetError> {
    // transformers 4 for `classic`, 5 for `current`.
    let clean_up = match profile {
        Profile::Classic => CleanUp::AsConfigured,
        Profile::Current => CleanUp::ExceptBpe,
    };
    let lists: Vec<&[u32]> = ids.iter().map(Vec::as_slice).collect();
    Ok(tokenizer.decode_batch(&lists, clean_up)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sums of input and output lengths of `count` rows.
    fn sums(seed: u32, count: usize, (input, output): (u32, u32), ratio: f64, shortest: u32) -> (u64, u64) {
        let mut numpy = Numpy::new(seed);
        let mut sum = |longest, shortest| {
            draw_lengths(longest, ratio, shortest, count, &mut numpy)
                .into_iter()
                .map(u64::from)
                .sum()
        };
        (sum(input, 1), sum(output, shortest))
    }

    #[test]
    fn drawn_lengths_have_the_published_sums() {
        for (seed, count, lengths, ratio, input, classic, current) in [
            (1, 100, (1024, 1024), 0.0, 50561, 52135, 52444),
            (1, 10, (1000, 1000), 0.0, 6101, 4210, 4220),
            (1, 1000, (1024, 1024), 0.0, 512842, 509295, 510855),
            (1, 1000, (1024, 256), 0.0, 512842, 126919, 128903),
            (1, 2000, (1024, 1024), 0.0, 1023697, 1009258, 1010480),
            (1, 3000, (1024, 1024), 0.5, 2310016, 2302612, 2302612),
            (42, 1000, (1024, 1024), 0.0, 516554, 518282, 508442),
            (42, 3000, (1024, 1024), 0.5, 2300744, 2302924, 2302924),
        ] {
            assert_eq!(
                sums(seed, count, lengths, ratio, 0),
                (input, classic),
                "classic {seed} {count} {lengths:?}"
            );
            assert_eq!(
                sums(seed, count, lengths, ratio, 1),
                (input, current),
                "current {seed} {count} {lengths:?}"
            );
        }
    }

    #[test]
    fn a_ratio_of_one_and_a_length_of_zero_draw_nothing() {
        let mut numpy = Numpy::new(1);
        assert_eq!(draw_lengths(16, 1.0, 1, 3, &mut numpy), [16, 16, 16]);
        assert_eq!(draw_lengths(0, 0.5, 1, 3, &mut numpy), [0, 0, 0]);
        assert_eq!(numpy, Numpy::new(1));
    }

    /// 10 000 draws; the bounds are five standard errors of the statistics of the distribution.
    #[test]
    fn distributions_have_their_statistics_and_are_drawn_by_the_seed() {
        const COUNT: usize = 10_000;
        let draw = |text: &str, longest: u32, seed| {
            let distribution = text.parse().unwrap();
            draw_distribution(distribution, longest, COUNT, &mut Numpy::new(seed))
        };
        let mean =
            |lengths: &[u32]| lengths.iter().map(|length| f64::from(*length)).sum::<f64>() / COUNT as f64;
        let normal = draw("normal:mean=500,stddev=50", 100_000, 1);
        assert!(
            (mean(&normal) - 500.0).abs() < 5.0 * 50.0 / 100.0,
            "{}",
            mean(&normal)
        );
        let squares: Vec<f64> = normal
            .iter()
            .map(|length| (f64::from(*length) - 500.0).powi(2))
            .collect();
        let stddev = (squares.iter().sum::<f64>() / COUNT as f64).sqrt();
        // The standard error of a standard deviation is stddev / √(2n).
        assert!(
            (stddev - 50.0).abs() < 5.0 * 50.0 / (2.0 * COUNT as f64).sqrt(),
            "{stddev}"
        );
        let lognormal = draw("lognormal:median=512,sigma=1", 10_000_000, 1);
        let below = lognormal.iter().filter(|length| **length < 512).count();
        // The count below the median is binomial; 250 is five of its standard deviations.
        assert!(below.abs_diff(COUNT / 2) < 250, "{below}");
        // 84.1 % lie below median · e^sigma.
        let below = lognormal
            .iter()
            .filter(|length| f64::from(**length) < 512.0 * 1f64.exp())
            .count();
        assert!(below.abs_diff(8413) < 5 * 37, "{below}");
        assert_eq!(draw("lognormal:median=512,sigma=1", 10_000_000, 1), lognormal);
        assert_ne!(draw("lognormal:median=512,sigma=1", 10_000_000, 2), lognormal);
    }

    #[test]
    fn drawn_lengths_are_clipped_and_leave_no_spare_number() {
        let mut numpy = Numpy::new(1);
        let distribution = "normal:mean=100,stddev=90,min=40".parse().unwrap();
        let lengths = draw_distribution(distribution, 150, 999, &mut numpy);
        assert!(lengths.iter().all(|length| (40..=150).contains(length)));
        assert!(lengths.contains(&40) && lengths.contains(&150));
        assert!(numpy.draw_count().is_some());
        let equal = "normal:mean=7,stddev=0".parse().unwrap();
        assert_eq!(draw_distribution(equal, 150, 3, &mut Numpy::new(1)), [7, 7, 7]);
    }

    #[test]
    fn pairs_of_a_file_stay_together_in_order_or_sampled() {
        let pairs = [[1, 10], [2, 20], [3, 30]];
        let mut numpy = Numpy::new(1);
        let before = numpy.clone();
        let [input, output] = take_pairs(&pairs, PairOrder::InOrder, 5, &mut numpy);
        assert_eq!((input, output), (vec![1, 2, 3, 1, 2], vec![10, 20, 30, 10, 20]));
        assert_eq!(numpy, before);
        let [input, output] = take_pairs(&pairs, PairOrder::Sampled, 3000, &mut numpy);
        assert!(
            input
                .iter()
                .zip(&output)
                .all(|(input, output)| input * 10 == *output)
        );
        for length in 1..=3 {
            let count = input.iter().filter(|input| **input == length).count();
            // Five standard deviations: 5 · √(3000 · 2 / 9) = 129.
            assert!(count.abs_diff(1000) < 129, "{length}: {count}");
        }
    }

    #[test]
    fn rows_of_a_group_begin_alike_and_go_on_by_themselves() {
        let prefix: CommonPrefix =
            serde_json::from_str(r#"{"share": 0.5, "groups": 2, "block_tokens": 4}"#).unwrap();
        let lengths = [16, 9, 7, 32];
        let rows = RowPrefixes::draw(Some(prefix), &lengths, &mut Numpy::new(3));
        assert_eq!((rows.tokens.as_slice(), rows.longest()), (&[8, 4, 0, 16][..], 16));
        let prefixes = [vec![1; 16], vec![2; 16]];
        for (row, length) in lengths.into_iter().enumerate() {
            let ids = rows.with_prefix(row, &prefixes, length, std::iter::repeat(9));
            let common = rows.tokens[row] as usize;
            assert_eq!(ids.len(), length as usize);
            assert!(
                ids[..common]
                    .iter()
                    .all(|id| *id as usize == rows.groups[row] + 1)
            );
            assert!(ids[common..].iter().all(|id| *id == 9));
        }
        let none = RowPrefixes::draw(None, &lengths, &mut Numpy::new(3));
        assert_eq!(none.with_prefix(0, &[], 3, std::iter::repeat(9)), [9, 9, 9]);
    }

    #[test]
    fn ids_count_up_and_begin_again_after_the_last() {
        assert_eq!(consecutive_ids(254, 4, 256), [254, 255, 0, 1]);
        assert_eq!(consecutive_ids(600, 2, 256), [88, 89]);
    }
}
