//! The hits of a prefix cache that forgets nothing.

use std::collections::HashSet;

/// A prefix cache of unlimited size that holds full blocks of prompts.
#[derive(Debug)]
pub(crate) struct UnlimitedCache {
    block: usize,
    /// Hashes of all tokens up to the end of each block.
    known: HashSet<u64>,
}

impl UnlimitedCache {
    /// An empty cache with blocks of this many tokens.
    pub(crate) fn new(block: u32) -> Self {
        Self {
            block: block.max(1) as usize,
            known: HashSet::new(),
        }
    }

    /// Adds a prompt, and returns how many of its tokens were found: those of its leading blocks, but never its
    /// last token, which engines compute again.
    pub(crate) fn add(&mut self, prompt: &[u32]) -> usize {
        let reusable = prompt.len().saturating_sub(1) / self.block;
        let (mut found, mut is_found, mut hash) = (0, true, 0);
        for (index, block) in prompt.chunks_exact(self.block).enumerate() {
            hash = block.iter().fold(hash, |hash, id| chain(hash, *id));
            let is_new = self.known.insert(hash);
            is_found &= !is_new && index < reusable;
            found += usize::from(is_found);
        }
        found * self.block
    }
}

/// Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014.
fn chain(hash: u64, id: u32) -> u64 {
    let mut bits = (hash ^ u64::from(id)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn leading_full_blocks_are_found_again_except_the_last_token() {
        let mut cache = UnlimitedCache::new(4);
        assert_eq!(cache.add(&[1, 2, 3, 4, 5, 6, 7, 8]), 0);
        assert_eq!(
            cache.add(&[1, 2, 3, 4, 5, 6, 7, 8]),
            4,
            "the last block holds the last token"
        );
        assert_eq!(cache.add(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), 8);
        assert_eq!(cache.add(&[5, 6, 7, 8, 9]), 0, "the same block after others");
        assert_eq!(cache.add(&[1, 2, 3, 4, 0, 6, 7, 8, 5, 6, 7, 8, 1]), 4);
        assert_eq!(cache.add(&[1, 2, 3]), 0);
        assert_eq!(cache.add(&[]), 0);
    }

    proptest! {
        #[test]
        fn it_finds_the_longest_prefix_of_any_earlier_prompt(prompts in prop::collection::vec(prop::collection::vec(0..2_u32, 0..24), 1..12), block in 1..5_u32) {
            let mut cache = UnlimitedCache::new(block);
            for (count, prompt) in prompts.iter().enumerate() {
                let common = |other: &Vec<u32>| prompt.iter().zip(other).take_while(|(a, b)| a == b).count();
                let block = block as usize;
                let longest = prompts[..count].iter().map(common).max().unwrap_or(0) / block * block;
                let most = prompt.len().saturating_sub(1) / block * block;
                prop_assert_eq!(cache.add(prompt), longest.min(most));
            }
        }
    }
}
