//! Texts that have a given number of tokens when they are encoded again, as far as a tokenizer allows that.

use crate::loadgen::dataset::tokenizer::{CleanUp, Tokenizer, TokenizerError};

/// How often a text is changed to reach its length.
const MAX_CHANGES: usize = 10;

/// Maximum number of ids that are decoded at once, to bound the memory for ids and texts.
const MAX_BATCH_IDS: usize = 1 << 18;

/// A text with the ids into which it is encoded.
pub(super) struct FittedText {
    pub(super) text: String,
    pub(super) ids: Vec<u32>,
}

/// Decodes each list of ids and encodes the text again. A list that is then too long is cut, one that is too
/// short is filled with ids that `draw` returns, in the order of the lists. `target` is the wanted number of
/// tokens of a list.
pub(super) fn fit_all(
    tokenizer: &Tokenizer,
    lists: Vec<Vec<u32>>,
    target: impl Fn(usize) -> usize,
    mut draw: impl FnMut() -> u32,
) -> Result<Vec<FittedText>, TokenizerError> {
    let mut fitted = Vec::with_capacity(lists.len());
    let mut begin = 0;
    while begin < lists.len() {
        let mut ids = 0;
        let is_within = |list: &&Vec<u32>| {
            ids += list.len();
            ids <= MAX_BATCH_IDS
        };
        let count = lists[begin..].iter().take_while(is_within).count().max(1);
        let block: Vec<&[u32]> = lists[begin..begin + count].iter().map(Vec::as_slice).collect();
        // The first round draws nothing, so it is made for many lists at once.
        let texts = tokenizer.decode_batch(&block, CleanUp::ExceptBpe)?;
        let borrowed: Vec<&str> = texts.iter().map(String::as_str).collect();
        let encoded = tokenizer.encode_batch(&borrowed, false)?;
        for (place, (text, ids)) in texts.into_iter().zip(encoded).enumerate() {
            let first = FittedText { text, ids };
            fitted.push(fit(tokenizer, first, target(begin + place), &mut draw)?);
        }
        begin += count;
    }
    Ok(fitted)
}

/// Changes a text until it has `target` tokens, or [`MAX_CHANGES`] times.
fn fit(
    tokenizer: &Tokenizer,
    mut fitted: FittedText,
    target: usize,
    draw: &mut impl FnMut() -> u32,
) -> Result<FittedText, TokenizerError> {
    for _ in 0..MAX_CHANGES {
        if fitted.ids.len() == target {
            break;
        }
        fitted.ids.truncate(target);
        while fitted.ids.len() < target {
            fitted.ids.push(draw());
        }
        fitted.text = tokenizer.decode(&fitted.ids, CleanUp::ExceptBpe)?;
        fitted.ids = tokenizer.encode(&fitted.text, false)?;
    }
    Ok(fitted)
}
