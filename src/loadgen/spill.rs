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

use crate::results::record::outsourced::{Blocks, Outsourced, Place};

/// Bytes in a block; slightly less than a power of two, so that a buffer that grows to it allocates no more
/// than that.
const BLOCK: usize = 4000;
/// Maximum number of blocks that wait to be written.
const ROOM: usize = 2048;
/// How often a waiting reader checks by itself whether all blocks are written.
const AGAIN: Duration = Duration::from_millis(50);

/// The sending end of the spill file.
#[derive(Debug)]
pub struct Spill {
    file: Arc<SpillFile>,
    queue: SyncSender<(u64, Vec<u8>)>,
    next: AtomicU64,
    /// Bytes of answers in memory; `budget` is their maximum.
    held: AtomicUsize,
    budget: usize,
}

/// The blocks that were moved out of memory.
#[derive(Debug)]
struct SpillFile {
    file: File,
    sent: AtomicU64,
    written: Mutex<u64>,
    more: Condvar,
    /// Blocks that the disk refused, by their offset.
    refused: Mutex<HashMap<u64, Vec<u8>>>,
    missed: AtomicU64,
    /// How often a block could not be read back.
    lost: AtomicU64,
}

/// The number of bytes that count as held in memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held(usize);

impl Spill {
    /// Bytes of answers that are held in memory before any are moved to the file.
    pub(crate) const BUDGET: usize = 64 << 20;

    /// Creates an unnamed file in a folder; the system deletes it when the process ends.
    ///
    /// # Errors
    /// The disk refuses, or the thread cannot start.
    pub(crate) fn new(folder: &Path, budget: usize) -> io::Result<Arc<Self>> {
        let file = Arc::new(SpillFile::new(tempfile::tempfile_in(folder)?));
        let (queue, blocks) = sync_channel(ROOM);
        let writer = Arc::clone(&file);
        thread::Builder::new()
            .name("answers".to_owned())
            .spawn(move || writer.write(&blocks))?;
        Ok(Arc::new(Self {
            file,
            queue,
            next: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            budget,
        }))
    }

    /// Describes blocks that stayed in memory because the queue was full or the disk refused them.
    pub(crate) fn missed(&self) -> Option<String> {
        let missed = self.file.missed.load(Ordering::Relaxed);
        (missed > 0).then(|| {
            format!("{missed} blocks of answers stayed in memory while the load ran: the disk was too slow or refused them")
        })
    }

    /// Describes blocks that could not be read back. Results computed from them are incomplete.
    pub(crate) fn lost(&self) -> Option<String> {
        let lost = self.file.lost.load(Ordering::Relaxed);
        (lost > 0).then(|| format!("{lost} times a part of an answer could not be read from the disk again"))
    }

    /// Returns true if `length` bytes hold at least one block more than `held`.
    pub(super) fn is_block(&self, length: usize, held: Held) -> bool {
        length >= held.0 + BLOCK
    }

    /// Moves growing bytes to the file if they make a block and the budget is used up. Returns true if it
    /// moved them.
    pub(super) fn relieve(&self, bytes: &mut Outsourced, held: &mut Held) -> bool {
        if !self.is_block(bytes.here().len(), *held) {
            return false;
        }
        if self.has_room(BLOCK) || !self.put(bytes, held) {
            self.held.fetch_add(BLOCK, Ordering::Relaxed);
            held.0 += BLOCK;
            return false;
        }
        true
    }

    /// Moves the rest of bytes that no longer grow to the file, if the budget is used up.
    pub(super) fn seal(&self, bytes: &mut Outsourced, held: &mut Held) {
        let rest = bytes.here().len().saturating_sub(held.0);
        if rest == 0 || !self.has_room(rest) && self.put(bytes, held) {
            return;
        }
        self.held.fetch_add(rest, Ordering::Relaxed);
        held.0 += rest;
        bytes.shrink();
    }

    fn has_room(&self, more: usize) -> bool {
        self.held.load(Ordering::Relaxed) + more <= self.budget
    }

    fn put(&self, bytes: &mut Outsourced, held: &mut Held) -> bool {
        let block = std::mem::take(bytes.end());
        let Ok(length) = u32::try_from(block.len()) else {
            *bytes.end() = block;
            return false;
        };
        let at = self.next.fetch_add(length.into(), Ordering::Relaxed);
        // This comes before sending, because a reader waits for all announced blocks.
        self.file.sent.fetch_add(1, Ordering::AcqRel);
        match self.queue.try_send((at, block)) {
            Ok(()) => {
                let file: Arc<dyn Blocks> = Arc::clone(&self.file) as Arc<dyn Blocks>;
                bytes.lies(&file, Place { at, length });
                self.held.fetch_sub(held.0, Ordering::Relaxed);
                *held = Held(0);
                true
            }
            Err(TrySendError::Full((_, block)) | TrySendError::Disconnected((_, block))) => {
                self.file.sent.fetch_sub(1, Ordering::AcqRel);
                self.file.missed.fetch_add(1, Ordering::Relaxed);
                *bytes.end() = block;
                false
            }
        }
    }
}

impl SpillFile {
    fn new(file: File) -> Self {
        Self {
            file,
            sent: AtomicU64::new(0),
            written: Mutex::new(0),
            more: Condvar::new(),
            refused: Mutex::default(),
            missed: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    fn write(&self, blocks: &Receiver<(u64, Vec<u8>)>) {
        for (at, block) in blocks {
            if self.file.write_all_at(&block, at).is_err() {
                self.missed.fetch_add(1, Ordering::Relaxed);
                let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
                refused.insert(at, block);
            }
            *self.written.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            self.more.notify_all();
        }
    }

    /// Waits until all blocks that were handed over are written.
    fn settle(&self) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = self.sent.load(Ordering::Acquire);
        while *written < sent.min(self.sent.load(Ordering::Acquire)) {
            // A block that found the queue full is withdrawn without a notification, hence the timeout.
            let waited = self.more.wait_timeout(written, AGAIN);
            written = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Blocks for SpillFile {
    fn read(&self, place: Place, into: &mut Vec<u8>) {
        self.settle();
        {
            let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(block) = refused.get(&place.at) {
                return into.extend_from_slice(block);
            }
        }
        let from = into.len();
        into.resize(from + place.length as usize, 0);
        if let Err(error) = self.file.read_exact_at(&mut into[from..], place.at) {
            tracing::error!("a part of an answer cannot be read from the disk again: {error}");
            self.lost.fetch_add(1, Ordering::Relaxed);
            into.truncate(from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(of: &[u8]) -> Outsourced {
        let mut bytes = Outsourced::default();
        bytes.end().extend_from_slice(of);
        bytes
    }

    #[test]
    fn beyond_the_budget_blocks_lie_in_the_file_and_come_back() {
        let folder = tempfile::tempdir().unwrap();
        let spill = Spill::new(folder.path(), BLOCK).unwrap();
        let mut held = Held::default();
        let mut first = bytes(&[1; BLOCK]);
        assert!(!spill.relieve(&mut first, &mut held), "there is room for it");
        let mut other = Held::default();
        let mut second = bytes(&[2; BLOCK - 1]);
        assert!(!spill.relieve(&mut second, &mut other), "it is no block yet");
        second.end().extend([3; 10]);
        assert!(spill.relieve(&mut second, &mut other));
        assert!(second.here().is_empty());
        second.end().push(4);
        spill.seal(&mut second, &mut other);
        assert_eq!((second.blocks(), second.here().len()), (2, 0));
        let expected = [&[2; BLOCK - 1][..], &[3; 10], &[4]].concat();
        assert_eq!(second.all(), expected);
        // Bytes that continue to grow take their held part along.
        first.end().extend([5; BLOCK]);
        assert!(spill.relieve(&mut first, &mut held));
        assert_eq!(first.all(), [[1; BLOCK], [5; BLOCK]].concat());
        let mut third = bytes(&[6; 8]);
        spill.seal(&mut third, &mut Held::default());
        assert_eq!(
            (third.blocks(), third.all()),
            (0, vec![6; 8]),
            "there is room again"
        );
        assert_eq!((spill.missed(), spill.lost()), (None, None));
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
            next: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            budget: 0,
        };
        let (mut one, mut other) = (bytes(&[1; BLOCK]), bytes(&[2; BLOCK]));
        assert!(spill.relieve(&mut one, &mut Held::default()));
        assert!(
            !spill.relieve(&mut other, &mut Held::default()),
            "nobody writes yet"
        );
        let missed = || file.missed.load(Ordering::Relaxed);
        assert_eq!((missed(), other.here().len()), (1, BLOCK));
        drop(spill);
        file.write(&blocks);
        assert_eq!(missed(), 2);
        assert_eq!((one.all(), other.all()), (vec![1; BLOCK], vec![2; BLOCK]));
    }

    #[test]
    fn what_the_disk_does_not_give_back_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let spill = Spill::new(folder.path(), 0).unwrap();
        let mut block = bytes(&[1; BLOCK]);
        assert!(spill.relieve(&mut block, &mut Held::default()));
        assert_eq!((block.all(), spill.lost()), (vec![1; BLOCK], None));
        spill.file.file.set_len(10).unwrap();
        assert!(block.all().is_empty());
        assert!(spill.lost().is_some());
    }
}
