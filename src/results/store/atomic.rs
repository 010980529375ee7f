//! Writes files atomically.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use tempfile::{NamedTempFile, PersistError};

use crate::base::unfinished;

/// Prefix of temporary files.
const TEMP_PREFIX: &str = ".unfinished-";

/// Read-locked while a file is written, so that the process does not end in between and leave a temporary
/// file.
static WRITE_LOCK: RwLock<()> = RwLock::new(());

/// Waits up to 2 s until no file is being written, and blocks later writes. Called before the process is
/// ended.
pub(crate) fn wait_for_writes() {
    for _ in 0..200 {
        if let Ok(guard) = WRITE_LOCK.try_write() {
            std::mem::forget(guard);
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The folder of a file; for a bare name, the current folder.
pub(crate) fn parent_folder(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Writes `bytes` to `path` atomically, also across a power failure.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_with(path, |file| file.write_all(bytes))
}

/// Writes `bytes` to `path` atomically unless it exists; returns `false` and changes nothing if it does.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    if path.symlink_metadata().is_ok() {
        return Ok(false);
    }
    let put = |file: NamedTempFile| file.persist_noclobber(path);
    match write_temp(path, |file| file.write_all(bytes), put) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        written => written.map(|()| true),
    }
}

/// Like [`write()`], for content that is generated while it is written.
pub(crate) fn write_with(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    write_temp(path, fill, |file| file.persist(path))
}

/// Fills a temporary file in the folder of `path`; `put` then renames it.
fn write_temp(
    path: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
    put: impl FnOnce(NamedTempFile) -> Result<File, PersistError>,
) -> io::Result<()> {
    #[cfg(test)]
    trace::note(path)?;
    let _writing = WRITE_LOCK.read().unwrap_or_else(PoisonError::into_inner);
    let folder = parent_folder(path);
    // The umask still applies: results have the permissions of files that the user writes.
    let mut file = tempfile::Builder::new()
        .prefix(TEMP_PREFIX)
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    unfinished::lock(file.as_file());
    fill(file.as_file_mut())?;
    file.as_file().sync_all()?;
    put(file).map_err(|error| error.error)?;
    sync_folder(folder)
}

/// Syncs a folder, so that renames in it survive a power failure.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Removes temporary files of killed processes, in a folder where other processes may be writing.
pub(crate) fn sweep_killed(folder: &Path) {
    unfinished::sweep(folder, TEMP_PREFIX);
}

/// Removes temporary files of killed processes in `folder`. The caller must hold the run's lock.
pub(crate) fn sweep(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Test support: the files that this thread wrote, in order, and a disk that fails after a number of writes.
#[cfg(test)]
pub(crate) mod trace {
    use std::cell::{Cell, RefCell};
    use std::io;
    use std::path::Path;

    thread_local! {
        static WRITTEN_FILES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
        static REMAINING_WRITES: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// Names of the files written since the last call.
    pub(crate) fn take_written() -> Vec<String> {
        WRITTEN_FILES.take()
    }

    /// Lets the next `writes` writes of this thread succeed and every later one fail; `None` ends the
    /// failure.
    pub(crate) fn fail_after(writes: Option<usize>) {
        REMAINING_WRITES.set(writes);
    }

    pub(super) fn note(path: &Path) -> io::Result<()> {
        match REMAINING_WRITES.get() {
            Some(0) => return Err(io::Error::other("the test's disk failed")),
            remaining => REMAINING_WRITES.set(remaining.map(|remaining| remaining - 1)),
        }
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        WRITTEN_FILES.with_borrow_mut(|written| written.push(name));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_fails_halfway_leaves_the_old_file_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        write(&path, b"old").unwrap();
        let failed = write_with(&path, |file| {
            file.write_all(b"ne")?;
            Err(io::Error::other("no space"))
        });
        assert!(failed.is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        write(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn a_new_file_takes_the_place_of_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        assert!(write_new(&path, b"one").unwrap());
        assert!(!write_new(&path, b"two").unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_bare_name_lies_in_the_present_folder() {
        assert_eq!(parent_folder(Path::new("night.json")), Path::new("."));
        assert_eq!(parent_folder(Path::new("/a/night.json")), Path::new("/a"));
    }

    #[test]
    fn what_a_killed_process_was_writing_is_swept() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(".unfinished-x1"), "half").unwrap();
        std::fs::write(folder.path().join("whole"), "w").unwrap();
        sweep(folder.path()).unwrap();
        let left: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["whole"]);
    }
}
