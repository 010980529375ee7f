//! Moves events and texts of answers that exceed the memory budget to an unnamed file, which a separate
//! thread writes.
//!
//! The thread that takes times of arrival never waits for the disk. A block stays in memory and is counted if
//! the queue is full or the disk refuses it. Nothing is written below the budget, which most loads do not
//! reach.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::results::record::spilled::{BlockRange, BlockStore, SpilledBytes};

/// Bytes in a block; slightly less than a power of two, so that a buffer that grows to it allocates no more
/// than that.
const BLOCK_BYTES: usize = 4000;
/// Maximum number of blocks that wait to be written.
const QUEUE_BLOCKS: usize = 2048;
/// How often a waiting reader checks by itself whether all blocks are written.
const WAIT_INTERVAL: Duration = Duration::from_millis(50);

/// The sending end of the spill file.
#[derive(Debug)]
pub struct Spill {
    file: Arc<SpillFile>,
    queue: SyncSender<(u64, Vec<u8>)>,
    next_offset: AtomicU64,
    /// Bytes of answers in memory; `budget` is their maximum.
    held_bytes: AtomicUsize,
    budget: usize,
}

/// The blocks that were moved out of memory.
#[derive(Debug)]
struct SpillFile {
    file: File,
    blocks_queued: AtomicU64,
    blocks_written: Mutex<u64>,
    written_more: Condvar,
    /// Blocks that the disk refused, by their offset.
    refused_blocks: Mutex<HashMap<u64, Vec<u8>>>,
    missed_blocks: AtomicU64,
    /// How often a block could not be read back.
    lost_blocks: AtomicU64,
}

/// The number of bytes that count as held in memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeldBytes(usize);

impl Spill {
    /// Bytes of answers that are held in memory before any are moved to the file.
    pub(crate) const DEFAULT_BUDGET: usize = 64 << 20;

    /// Creates an unnamed file in a folder; the system deletes it when the process ends.
    ///
    /// # Errors
    /// The disk refuses, or the thread cannot start.
    pub(crate) fn new(folder: &Path, budget: usize) -> io::Result<Arc<Self>> {
        let file = Arc::new(SpillFile::new(tempfile::tempfile_in(folder)?));
        let (queue, blocks) = sync_channel(QUEUE_BLOCKS);
        let writer = Arc::clone(&file);
        thread::Builder::new()
            .name("answers".to_owned())
            .spawn(move || writer.write(&blocks))?;
        Ok(Arc::new(Self {
            file,
            queue,
            next_offset: AtomicU64::new(0),
            held_bytes: AtomicUsize::new(0),
            budget,
        }))
    }

    /// Describes blocks that stayed in memory because the queue was full or the disk refused them.
    pub(crate) fn missed_warning(&self) -> Option<String> {
        let missed = self.file.missed_blocks.load(Ordering::Relaxed);
        (missed > 0).then(|| {
            format!(
                "{missed} blocks of response data stayed in memory during the load, because the disk was too slow or \
                the write failed"
            )
        })
    }

    /// Describes blocks that could not be read back. Results computed from them are incomplete.
    pub(crate) fn lost_warning(&self) -> Option<String> {
        let lost = self.file.lost_blocks.load(Ordering::Relaxed);
        (lost > 0).then(|| format!("{lost} parts of answers could not be read back from the disk"))
    }

    /// Returns true if `length` bytes hold at least one block more than `held`.
    pub(super) fn is_block(&self, length: usize, held_bytes: HeldBytes) -> bool {
        length >= held_bytes.0 + BLOCK_BYTES
    }

    /// Moves growing bytes to the file if they make a block and the budget is used up. Returns true if it
    /// moved them.
    pub(super) fn spill_if_full(&self, bytes: &mut SpilledBytes, held_bytes: &mut HeldBytes) -> bool {
        if !self.is_block(bytes.in_memory().len(), *held_bytes) {
            return false;
        }
        if self.has_room(BLOCK_BYTES) || !self.spill(bytes, held_bytes) {
            self.held_bytes.fetch_add(BLOCK_BYTES, Ordering::Relaxed);
            held_bytes.0 += BLOCK_BYTES;
            return false;
        }
        true
    }

    /// Moves the rest of bytes that no longer grow to the file, if the budget is used up.
    pub(super) fn spill_rest(&self, bytes: &mut SpilledBytes, held_bytes: &mut HeldBytes) {
        let rest = bytes.in_memory().len().saturating_sub(held_bytes.0);
        if rest == 0 || !self.has_room(rest) && self.spill(bytes, held_bytes) {
            return;
        }
        self.held_bytes.fetch_add(rest, Ordering::Relaxed);
        held_bytes.0 += rest;
        bytes.shrink_to_fit();
    }

    fn has_room(&self, more: usize) -> bool {
        self.held_bytes.load(Ordering::Relaxed) + more <= self.budget
    }

    fn spill(&self, bytes: &mut SpilledBytes, held_bytes: &mut HeldBytes) -> bool {
        let block = std::mem::take(bytes.memory_mut());
        let Ok(length) = u32::try_from(block.len()) else {
            *bytes.memory_mut() = block;
            return false;
        };
        let at = self.next_offset.fetch_add(length.into(), Ordering::Relaxed);
        // This comes before sending, because a reader waits for all announced blocks.
        self.file.blocks_queued.fetch_add(1, Ordering::AcqRel);
        match self.queue.try_send((at, block)) {
            Ok(()) => {
                let file: Arc<dyn BlockStore> = Arc::clone(&self.file) as Arc<dyn BlockStore>;
                bytes.mark_spilled(&file, BlockRange { at, length });
                self.held_bytes.fetch_sub(held_bytes.0, Ordering::Relaxed);
                *held_bytes = HeldBytes(0);
                true
            }
            Err(TrySendError::Full((_, block)) | TrySendError::Disconnected((_, block))) => {
                self.file.blocks_queued.fetch_sub(1, Ordering::AcqRel);
                self.file.missed_blocks.fetch_add(1, Ordering::Relaxed);
                *bytes.memory_mut() = block;
                false
            }
        }
    }
}

impl SpillFile {
    fn new(file: File) -> Self {
        Self {
            file,
            blocks_queued: AtomicU64::new(0),
            blocks_written: Mutex::new(0),
            written_more: Condvar::new(),
            refused_blocks: Mutex::default(),
            missed_blocks: AtomicU64::new(0),
            lost_blocks: AtomicU64::new(0),
        }
    }

    fn write(&self, blocks: &Receiver<(u64, Vec<u8>)>) {
        for (at, block) in blocks {
            if self.file.write_all_at(&block, at).is_err() {
                self.missed_blocks.fetch_add(1, Ordering::Relaxed);
                let mut refused_blocks = self.refused_blocks.lock().unwrap_or_else(PoisonError::into_inner);
                refused_blocks.insert(at, block);
            }
            *self.blocks_written.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            self.written_more.notify_all();
        }
    }

    /// Waits until all blocks that were handed over are written.
    fn wait_until_written(&self) {
        let mut written = self.blocks_written.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = self.blocks_queued.load(Ordering::Acquire);
        while *written < sent.min(self.blocks_queued.load(Ordering::Acquire)) {
            // A block that found the queue full is withdrawn without a notification, hence the timeout.
            let waited = self.written_more.wait_timeout(written, WAIT_INTERVAL);
            written = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl BlockStore for SpillFile {
    fn read(&self, place: BlockRange, into: &mut Vec<u8>) {
        self.wait_until_written();
        {
            let refused_blocks = self.refused_blocks.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(block) = refused_blocks.get(&place.at) {
                return into.extend_from_slice(block);
            }
        }
        let from = into.len();
        into.resize(from + place.length as usize, 0);
        if let Err(error) = self.file.read_exact_at(&mut into[from..], place.at) {
            tracing::error!("cannot read a part of an answer back from the disk: {error}");
            self.lost_blocks.fetch_add(1, Ordering::Relaxed);
            into.truncate(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outsourced(content: &[u8]) -> SpilledBytes {
        let mut bytes = SpilledBytes::default();
        bytes.memory_mut().extend_from_slice(content);
        bytes
    }

    #[test]
    fn beyond_the_budget_blocks_lie_in_the_file_and_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let spill = Spill::new(folder.path(), BLOCK_BYTES).unwrap();
        let mut held_bytes = HeldBytes::default();
        let mut first = outsourced(&[1; BLOCK_BYTES]);
        assert!(
            !spill.spill_if_full(&mut first, &mut held_bytes),
            "there is room for it"
        );
        let mut other = HeldBytes::default();
        let mut second = outsourced(&[2; BLOCK_BYTES - 1]);
        assert!(
            !spill.spill_if_full(&mut second, &mut other),
            "it is no block yet"
        );
        second.memory_mut().extend([3; 10]);
        assert!(spill.spill_if_full(&mut second, &mut other));
        assert!(second.in_memory().is_empty());
        second.memory_mut().push(4);
        spill.spill_rest(&mut second, &mut other);
        assert_eq!((second.block_count(), second.in_memory().len()), (2, 0));
        let expected = [&[2; BLOCK_BYTES - 1][..], &[3; 10], &[4]].concat();
        assert_eq!(second.read_all(), expected);
        // Bytes that continue to grow take their held part along.
        first.memory_mut().extend([5; BLOCK_BYTES]);
        assert!(spill.spill_if_full(&mut first, &mut held_bytes));
        assert_eq!(first.read_all(), [[1; BLOCK_BYTES], [5; BLOCK_BYTES]].concat());
        let mut third = outsourced(&[6; 8]);
        spill.spill_rest(&mut third, &mut HeldBytes::default());
        assert_eq!(
            (third.block_count(), third.read_all()),
            (0, vec![6; 8]),
            "there is room again"
        );
        assert_eq!((spill.missed_warning(), spill.lost_warning()), (None, None));
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            0,
            "it has no name"
        );
    }

    #[test]
    fn what_finds_the_queue_full_or_the_disk_unwilling_stays_in_memory_and_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"").unwrap();
        let file = Arc::new(SpillFile::new(
            // A file opened this way cannot be written.
            File::open(path).unwrap(),
        ));
        let (queue, blocks) = sync_channel(1);
        let spill = Spill {
            file: Arc::clone(&file),
            queue,
            next_offset: AtomicU64::new(0),
            held_bytes: AtomicUsize::new(0),
            budget: 0,
        };
        let (mut one, mut other) = (outsourced(&[1; BLOCK_BYTES]), outsourced(&[2; BLOCK_BYTES]));
        assert!(spill.spill_if_full(&mut one, &mut HeldBytes::default()));
        assert!(
            !spill.spill_if_full(&mut other, &mut HeldBytes::default()),
            "nobody writes yet"
        );
        let missed = || file.missed_blocks.load(Ordering::Relaxed);
        assert_eq!((missed(), other.in_memory().len()), (1, BLOCK_BYTES));
        drop(spill);
        file.write(&blocks);
        assert_eq!(missed(), 2);
        assert_eq!(
            (one.read_all(), other.read_all()),
            (vec![1; BLOCK_BYTES], vec![2; BLOCK_BYTES])
        );
    }

    #[test]
    fn what_the_disk_does_not_give_back_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let spill = Spill::new(folder.path(), 0).unwrap();
        let mut block = outsourced(&[1; BLOCK_BYTES]);
        assert!(spill.spill_if_full(&mut block, &mut HeldBytes::default()));
        assert_eq!(
            (block.read_all(), spill.lost_warning()),
            (vec![1; BLOCK_BYTES], None)
        );
        spill.file.file.set_len(10).unwrap();
        assert!(block.read_all().is_empty());
        assert!(spill.lost_warning().is_some());
    }
}
