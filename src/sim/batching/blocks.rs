//! The KV cache as blocks: which are held, which are only remembered, which are free.
//!
//! A block is *private* while a sequence fills it and *sealed* under the hash of everything up to its end once it is
//! full; sealed blocks are shared. Those that nobody holds stay remembered until their room is needed, the longest
//! unused first. Knows nothing of sequences and time.

use std::collections::{BTreeMap, HashMap};

/// The hash of a prompt up to the end of a block.
pub(crate) type BlockHash = u64;

/// The blocks of one engine.
#[derive(Debug)]
pub(crate) struct Blocks {
    total: usize,
    private: usize,
    held: HashMap<BlockHash, u32>,
    remembered: HashMap<BlockHash, u64>,
    by_age: BTreeMap<u64, BlockHash>,
    tick: u64,
}

impl Blocks {
    pub(crate) fn new(total: usize) -> Self {
        Self {
            total,
            private: 0,
            held: HashMap::new(),
            remembered: HashMap::new(),
            by_age: BTreeMap::new(),
            tick: 0,
        }
    }

    /// Blocks that some sequence holds.
    pub(crate) fn in_use(&self) -> usize {
        self.private + self.held.len()
    }

    /// Blocks that can still be taken, remembered ones included.
    pub(crate) fn available(&self) -> usize {
        self.total - self.in_use()
    }

    /// How many blocks of this prefix are at hand.
    pub(crate) fn known(&self, prefix: &[BlockHash]) -> usize {
        prefix
            .iter()
            .take_while(|hash| self.held.contains_key(hash) || self.remembered.contains_key(hash))
            .count()
    }

    /// How many of these blocks, known as a prefix, nobody holds: holding them uses up that much room.
    pub(crate) fn unheld(&self, prefix: &[BlockHash]) -> usize {
        prefix.iter().filter(|hash| !self.held.contains_key(hash)).count()
    }

    /// Holds the known blocks of a prefix.
    pub(crate) fn hold(&mut self, prefix: &[BlockHash]) {
        for hash in prefix {
            self.forget_one(*hash);
            *self.held.entry(*hash).or_insert(0) += 1;
        }
    }

    /// Takes `count` private blocks, all or none; forgets the longest unused ones where room is short.
    pub(crate) fn take(&mut self, count: usize) -> bool {
        if count > self.available() {
            return false;
        }
        self.private += count;
        while self.in_use() + self.remembered.len() > self.total {
            let (_, oldest) = self
                .by_age
                .pop_first()
                .expect("the room that is short is taken by remembered blocks");
            self.remembered.remove(&oldest);
        }
        true
    }

    /// Turns one private block into a shared one; a twin that exists already gives the room back.
    pub(crate) fn seal(&mut self, hash: BlockHash) {
        self.private -= 1;
        self.hold(&[hash]);
    }

    /// Gives back `private` blocks, and the sealed ones to be remembered, the end of the prefix being forgotten first.
    pub(crate) fn release(&mut self, sealed: &[BlockHash], private: usize) {
        self.private -= private;
        for hash in sealed.iter().rev() {
            let holders = self
                .held
                .get_mut(hash)
                .expect("a sealed block is held until it is released");
            *holders -= 1;
            if *holders == 0 {
                self.held.remove(hash);
                self.tick += 1;
                self.remembered.insert(*hash, self.tick);
                self.by_age.insert(self.tick, *hash);
            }
        }
    }

    /// Forgets every block that nobody holds.
    pub(crate) fn forget(&mut self) {
        self.remembered.clear();
        self.by_age.clear();
    }

    fn forget_one(&mut self, hash: BlockHash) {
        if let Some(tick) = self.remembered.remove(&hash) {
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
        assert!(blocks.take(2));
        blocks.seal(10);
        blocks.seal(11);
        blocks.release(&[10, 11], 0);
        assert_eq!((blocks.in_use(), blocks.available()), (0, 4));
        assert_eq!(blocks.known(&[10, 11, 12]), 2);
        assert_eq!(blocks.known(&[9, 10]), 0);
    }

    #[test]
    fn the_end_of_the_oldest_prefix_is_forgotten_first() {
        let mut blocks = Blocks::new(3);
        assert!(blocks.take(3));
        for hash in [1, 2, 3] {
            blocks.seal(hash);
        }
        blocks.release(&[1, 2, 3], 0);
        assert!(blocks.take(1));
        assert_eq!(blocks.known(&[1, 2, 3]), 2);
    }

    #[test]
    fn held_blocks_are_never_forgotten() {
        let mut blocks = Blocks::new(2);
        assert!(blocks.take(1));
        blocks.seal(1);
        assert!(blocks.take(1));
        assert!(!blocks.take(1));
        blocks.forget();
        assert_eq!(blocks.known(&[1]), 1);
    }

    #[test]
    fn twins_share_one_block() {
        let mut blocks = Blocks::new(2);
        assert!(blocks.take(2));
        blocks.seal(5);
        blocks.seal(5);
        assert_eq!(blocks.in_use(), 1);
        blocks.release(&[5], 0);
        assert_eq!(blocks.in_use(), 1);
    }
}
