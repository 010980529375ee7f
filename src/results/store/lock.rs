//! A file lock that allows one writer. The system releases it when its holder ends in any way.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use super::error::{IoContext, Result, StoreError};
use super::layout;
use crate::base::private_files::{is_foreign_link, open_file};

/// Largest length of what the holder of a lock wrote about itself.
const MAX_NOTE_BYTES: u64 = 500;

/// Number of attempts to take a lock.
const MAX_TRIES: u32 = 4;

/// The exclusive right to write a run, held until dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock of the run in `folder`. Fails if another process holds it, or if the folder is a link
    /// of another user.
    pub(crate) fn acquire(folder: &Path) -> Result<Self> {
        let path = folder.join(layout::LOCK);
        if is_foreign_link(folder) {
            return Err(io::Error::other(
                "the folder is a symbolic link that belongs to another user",
            ))
            .io_context("write to", folder);
        }
        let mut file = open_lock_file(&path)?;
        let mut tries = 1;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                // `writer_of` may hold the lock for a moment.
                Err(TryLockError::WouldBlock) if tries < MAX_TRIES => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(StoreError::Locked {
                        path: folder.to_owned(),
                        pid: read_pid(&mut file),
                        place: read_place(&mut file),
                    });
                }
                Err(TryLockError::Error(error)) => return Err(error).io_context("lock", &path),
            }
        }
        file.set_len(0)
            .and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()))
            .io_context("write", &path)?;
        Ok(Self { file })
    }

    /// Records where the holder runs, for those that it excludes.
    pub(crate) fn note_place(&self, place: &str) -> io::Result<()> {
        // The process id is before it.
        (&self.file).write_all(format!("{place}\n").as_bytes())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Clear the process id, so that it is not reported as the holder. The file stays, because a process
        // that has opened it must lock the same file.
        let _ = self.file.set_len(0);
        let _ = self.file.unlock();
    }
}

/// Locks a folder that no process writes, until the returned file is dropped. The lock file is opened for
/// reading only, because another user may have made it a link.
pub(crate) fn exclude_writers(folder: &Path) -> Option<File> {
    let file = File::open(folder.join(layout::LOCK)).ok()?;
    file.try_lock().ok()?;
    Some(file)
}

/// The process that writes the run in `folder`: `None` if there is none, `Some(None)` if its id cannot be
/// read.
pub(crate) fn writer_pid(folder: &Path) -> Option<Option<u32>> {
    let mut file = File::open(folder.join(layout::LOCK)).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(read_pid(&mut file)),
        _ => None,
    }
}

fn open_lock_file(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    open_file(&mut options, path).io_context("open", path)
}

fn read_pid(file: &mut File) -> Option<u32> {
    read_note(file)?.lines().next()?.trim().parse().ok()
}

fn read_place(file: &mut File) -> Option<String> {
    read_note(file)?.lines().nth(1).map(str::to_owned)
}

fn read_note(file: &mut File) -> Option<String> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(MAX_NOTE_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_writer_is_refused_and_told_who_the_first_is() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(writer_pid(folder.path()), None);
        let first = Lock::acquire(folder.path()).unwrap();
        let me = std::process::id();
        let refused = Lock::acquire(folder.path()).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains(&format!("is being written by process {me};")),
            "{refused}"
        );
        assert_eq!(writer_pid(folder.path()), Some(Some(me)));
        first.note_place("job 7 on node2").unwrap();
        let refused = Lock::acquire(folder.path()).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains(&format!("by process {me} of job 7 on node2;")),
            "{refused}"
        );
        assert_eq!(writer_pid(folder.path()), Some(Some(me)));
        drop(first);
        assert_eq!(writer_pid(folder.path()), None);
        Lock::acquire(folder.path()).unwrap();
    }

    #[test]
    fn the_lock_of_a_killed_process_is_free_although_its_id_stands_there() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(layout::LOCK), "4194304000\n").unwrap();
        assert_eq!(writer_pid(folder.path()), None);
        let lock = Lock::acquire(folder.path()).unwrap();
        assert_eq!(writer_pid(folder.path()), Some(Some(std::process::id())));
        drop(lock);
    }
}
