//! The `random` and `random-ids` data sets: rows of drawn lengths, cut from conversations or made of
//! consecutive ids.

use super::conversations;
use super::rng::Numpy;
use super::tokenizer::{CleanUp, Tokenizer};
use super::{Content, DatasetError, MakeRows, Prompt, RngState, RowInputs, Rows, token_count};
use crate::config::dataset::random::Random;
use crate::config::dataset::random_ids::RandomIds;
use crate::config::workload::Profile;

/// Maximum number of conversations that are tokenized at once.
const MAX_BATCH: usize = 1024;

/// Maximum number of ids that are decoded at once, to bound the memory for ids and texts.
const MAX_BATCH_IDS: usize = 1 << 18;

struct Lengths {
    input: Vec<u32>,
    output: Vec<u32>,
}

impl Lengths {
    /// Draws the lengths of prompts and answers; `longest` has both maxima.
    fn draw(
        longest: [Option<u32>; 2],
        ratio: f64,
        sends_ids: bool,
        inputs: &RowInputs<'_>,
        numpy: &mut Numpy,
    ) -> Self {
        let (count, profile) = (inputs.prompts, inputs.profile);
        let [input, output] = longest.map(|length| length.expect("a valid workload has both lengths"));
        let mut input = draw_lengths(input, ratio, 1, count, numpy);
        let shortest_output = match profile {
            Profile::Classic => 0,
            Profile::Current => 1,
        };
        let output = draw_lengths(output, ratio, shortest_output, count, numpy);
        if profile == Profile::Current && !sends_ids {
            let special = token_count(inputs.tokenizer.special_token_count());
            for length in &mut input {
                *length = length.saturating_sub(special).max(1);
            }
        }
        Self { input, output }
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
        let longest = [self.input_len, self.output_len];
        let lengths = Lengths::draw(
            longest,
            self.range_ratio,
            self.tokenize_prompt,
            inputs,
            &mut rng.numpy,
        );
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
            let cut: Vec<Vec<u32>> = encoded
                .into_iter()
                .filter(|ids| !ids.is_empty())
                .zip(&lengths.input[prompts.len()..])
                .map(|(ids, length)| ids.into_iter().cycle().take(*length as usize).collect())
                .collect();
            let from = prompts.len();
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
        let longest = [self.input_len, self.output_len];
        let lengths = Lengths::draw(
            longest,
            self.range_ratio,
            self.tokenize_prompt,
            inputs,
            &mut rng.numpy,
        );
        let vocabulary = tokenizer.vocab_size() as u64;
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
                .map(|row| consecutive_ids(offsets[*row] + *row as u64, lengths.input[*row], vocabulary))
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

    #[test]
    fn ids_count_up_and_begin_again_after_the_last() {
        assert_eq!(consecutive_ids(254, 4, 256), [254, 255, 0, 1]);
        assert_eq!(consecutive_ids(600, 2, 256), [88, 89]);
    }
}
