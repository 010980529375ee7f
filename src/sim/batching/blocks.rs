//! The blocks of the KV cache: held, cached, and free ones.
//!
//! A block is *private* while a sequence fills it. Once full it is *sealed* under the hash of all tokens up
//! to its end, and sealed blocks are shared. Sealed blocks that no sequence holds stay cached until their
//! space is needed, least recently used first. This type knows nothing about sequences and time.

use std::collections::{BTreeMap, HashMap};

/// Hash of all tokens up to the end of a block.
pub(crate) type BlockHash = u64;

#[derive(Debug)]
pub(crate) struct Blocks {
    total: usize,
    private_count: usize,
    in_use_blocks: HashMap<BlockHash, u32>,
    cached: HashMap<BlockHash, u64>,
    by_age: BTreeMap<u64, BlockHash>,
    tick: u64,
}

impl Blocks {
    pub(crate) fn new(total: usize) -> Self {
        Self {
            total,
            private_count: 0,
            in_use_blocks: HashMap::new(),
            cached: HashMap::new(),
            by_age: BTreeMap::new(),
            tick: 0,
        }
    }

    /// Number of blocks that sequences hold.
    pub(crate) fn in_use(&self) -> usize {
        self.private_count + self.in_use_blocks.len()
    }

    /// Number of blocks that can still be taken, including cached ones.
    pub(crate) fn available(&self) -> usize {
        self.total - self.in_use()
    }

    /// Length of the leading part of `prefix` that is held or cached, in blocks.
    pub(crate) fn cached_prefix_len(&self, prefix: &[BlockHash]) -> usize {
        prefix
            .iter()
            .take_while(|hash| self.in_use_blocks.contains_key(hash) || self.cached.contains_key(hash))
            .count()
    }

    /// Number of these blocks that are cached but not held. Holding them reduces [`Blocks::available`] by as
    /// much.
    pub(crate) fn unused_prefix_len(&self, prefix: &[BlockHash]) -> usize {
        prefix
            .iter()
            .filter(|hash| !self.in_use_blocks.contains_key(hash))
            .count()
    }

    pub(crate) fn acquire(&mut self, prefix: &[BlockHash]) {
        for hash in prefix {
            self.evict(*hash);
            *self.in_use_blocks.entry(*hash).or_insert(0) += 1;
        }
    }

    /// Takes `count` private blocks, or none if there are too few. Evicts least recently used cached blocks
    /// if necessary.
    pub(crate) fn allocate(&mut self, count: usize) -> bool {
        if count > self.available() {
            return false;
        }
        self.private_count += count;
        while self.in_use() + self.cached.len() > self.total {
            let (_, oldest) = self
                .by_age
                .pop_first()
                .expect("the room that is short is taken by remembered blocks");
            self.cached.remove(&oldest);
        }
        true
    }

    /// Turns one private block into a sealed one. If the sealed block exists already, the space becomes free.
    pub(crate) fn seal(&mut self, hash: BlockHash) {
        self.private_count -= 1;
        self.acquire(&[hash]);
    }

    /// Releases private and sealed blocks. Sealed ones stay cached; the end of the prefix is evicted first.
    pub(crate) fn release(&mut self, sealed: &[BlockHash], private: usize) {
        self.private_count -= private;
        for hash in sealed.iter().rev() {
            let holders = self
                .in_use_blocks
                .get_mut(hash)
                .expect("a sealed block is held until it is released");
            *holders -= 1;
            if *holders == 0 {
                self.in_use_blocks.remove(hash);
                self.tick += 1;
                self.cached.insert(*hash, self.tick);
                self.by_age.insert(self.tick, *hash);
            }
        }
    }

    /// Evicts every cached block.
    pub(crate) fn evict_all(&mut self) {
        self.cached.clear();
        self.by_age.clear();
    }

    fn evict(&mut self, hash: BlockHash) {
        if let Some(tick) = self.cached.remove(&hash) {
            self.by_age.remove(&tick);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_prefix_is_found_again() {
        let mut blocks = Blocks::new(4);
        assert!(blocks.allocate(2));
        blocks.seal(10);
        blocks.seal(11);
        blocks.release(&[10, 11], 0);
        assert_eq!((blocks.in_use(), blocks.available()), (0, 4));
        assert_eq!(blocks.cached_prefix_len(&[10, 11, 12]), 2);
        assert_eq!(blocks.cached_prefix_len(&[9, 10]), 0);
    }

    #[test]
    fn the_end_of_the_oldest_prefix_is_forgotten_first() {
        let mut blocks = Blocks::new(3);
        assert!(blocks.allocate(3));
        for hash in [1, 2, 3] {
            blocks.seal(hash);
        }
        blocks.release(&[1, 2, 3], 0);
        assert!(blocks.allocate(1));
        assert_eq!(blocks.cached_prefix_len(&[1, 2, 3]), 2);
    }

    #[test]
    fn held_blocks_are_never_forgotten() {
        let mut blocks = Blocks::new(2);
        assert!(blocks.allocate(1));
        blocks.seal(1);
        assert!(blocks.allocate(1));
        assert!(!blocks.allocate(1));
        blocks.evict_all();
        assert_eq!(blocks.cached_prefix_len(&[1]), 1);
    }

    #[test]
    fn twins_share_one_block() {
        let mut blocks = Blocks::new(2);
        assert!(blocks.allocate(2));
        blocks.seal(5);
        blocks.seal(5);
        assert_eq!(blocks.in_use(), 1);
        blocks.release(&[5], 0);
        assert_eq!(blocks.in_use(), 1);
    }
}
