//! Recognises files and folders that a killed process left unfinished. A writer locks its file; the system
//! releases the lock when the process ends for any reason.

use std::fs::{self, DirEntry, File};
use std::path::Path;
use std::time::UNIX_EPOCH;

use crate::base::clock;

/// Minimum age, in seconds, at which a missing lock counts. A writer locks a file right after creating it.
const LOCK_GRACE_S: f64 = 0.1;

/// Locks a file or folder for as long as it is open, which marks it as being written.
pub(crate) fn lock(file: &File) {
    // On a file system without locks, unfinished files of killed processes stay.
    let _ = file.try_lock();
}

/// Removes the entries of a folder whose names begin with `prefix` and that no process is writing.
pub(crate) fn sweep(folder: &Path, prefix: &str) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_unfinished = entry.file_name().to_string_lossy().starts_with(prefix);
        if is_unfinished && is_abandoned(&entry).unwrap_or(false) {
            // Another process may have removed it already.
            let _ = match entry.path().is_dir() {
                true => fs::remove_dir_all(entry.path()),
                false => fs::remove_file(entry.path()),
            };
        }
    }
}

fn is_abandoned(entry: &DirEntry) -> Option<bool> {
    let about = entry
        .metadata()
        .ok()
        .filter(|about| about.is_file() || about.is_dir())?;
    let modified = about.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    let is_old = clock::unix_seconds() - modified.as_secs_f64() >= LOCK_GRACE_S;
    Some(is_old && File::open(entry.path()).ok()?.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn only_what_nobody_writes_any_more_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, seconds: u64| {
            let file = File::create(folder.path().join(name)).unwrap();
            let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            file.set_modified(modified).unwrap();
            file
        };
        let now = clock::unix_seconds() as u64;
        drop(file(".new-left", 1));
        drop(file("whole", 1));
        drop(file(".new-young", now + 60));
        let held = file(".new-held", 1);
        lock(&held);
        fs::create_dir_all(folder.path().join(".new-folder/below")).unwrap();
        let held_folder = File::open(folder.path().join(".new-folder")).unwrap();
        held_folder.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        lock(&held_folder);
        sweep(folder.path(), ".new-");
        let left = |name: &str| folder.path().join(name).exists();
        assert!(!left(".new-left"));
        assert!(left("whole") && left(".new-young") && left(".new-held") && left(".new-folder"));
        drop(held_folder);
        drop(held);
        sweep(folder.path(), ".new-");
        assert!(!left(".new-held") && !left(".new-folder"));
    }
}
