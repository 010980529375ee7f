//! The folder of an open run, recognised even if its path changes.

use std::fs::{self, File, Metadata};
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::{IoContext, Result, StoreError};

/// An open folder and the path by which it was opened.
#[derive(Debug)]
pub(super) struct OpenFolder {
    path: PathBuf,
    handle: File,
}

impl OpenFolder {
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let opened = File::open(&path).io_context("open", &path)?;
        Ok(Self { path, handle: opened })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the path still leads to the open folder.
    pub(super) fn check_path(&self) -> Result<()> {
        let is_same = match (fs::metadata(&self.path), self.handle.metadata()) {
            // Some network file systems change the inode number of a folder; then the name decides.
            (Ok(named), Ok(opened)) => file_identity(&named) == file_identity(&opened) || self.is_at_path(),
            (Err(error), _) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
            // The next write reports the error.
            (Ok(_), Err(_)) => true,
        };
        match is_same {
            true => Ok(()),
            false => Err(StoreError::Moved {
                path: self.path.clone(),
                now: self.current_path(),
            }),
        }
    }

    /// Creates a folder below this one with its parents, but never this one. Fails if this one was moved or
    /// removed.
    pub(super) fn create_subfolder(&self, folder: &Path) -> Result<()> {
        self.check_path()?;
        let below = folder.strip_prefix(&self.path).expect("it lies below this one");
        let mut path = self.path.clone();
        for part in below {
            path.push(part);
            match fs::create_dir(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => {}
                made => made.io_context("make the folder", &path)?,
            }
        }
        Ok(())
    }

    fn is_at_path(&self) -> bool {
        let named = fs::canonicalize(&self.path).ok();
        named.is_some() && named == self.current_path()
    }

    /// The current path of the open folder; `None` if it was removed.
    fn current_path(&self) -> Option<PathBuf> {
        let path = fs::read_link(format!("/proc/self/fd/{}", self.handle.as_raw_fd())).ok()?;
        path.is_dir().then_some(path)
    }
}

fn file_identity(about: &Metadata) -> (u64, u64) {
    (about.dev(), about.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_was_moved_or_removed_is_never_made_again() {
        let root = tempfile::tempdir().unwrap();
        let [path, moved] = ["run", "moved"].map(|name| root.path().join(name));
        fs::create_dir(&path).unwrap();
        let place = OpenFolder::open(path.clone()).unwrap();
        place.create_subfolder(&path.join("cells/one")).unwrap();
        place.create_subfolder(&path.join("cells/one")).unwrap();
        fs::rename(&path, &moved).unwrap();
        let now = |place: &OpenFolder| match place.create_subfolder(&path.join("cells/two")) {
            Err(StoreError::Moved { now, .. }) => now,
            other => panic!("{other:?}"),
        };
        let real = fs::canonicalize(&moved).unwrap();
        assert_eq!(now(&place), Some(real.clone()));
        assert!(!path.exists());
        // Another folder of that name is not mistaken for it.
        fs::create_dir(&path).unwrap();
        assert_eq!(now(&place), Some(real));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        fs::remove_dir(&path).unwrap();
        fs::rename(&moved, &path).unwrap();
        place.create_subfolder(&path.join("cells/two")).unwrap();
        fs::remove_dir_all(&path).unwrap();
        assert_eq!(now(&place), None);
    }

    #[test]
    fn a_link_to_the_folder_leads_to_it() {
        let root = tempfile::tempdir().unwrap();
        let [path, link] = ["run", "link"].map(|name| root.path().join(name));
        fs::create_dir(&path).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let place = OpenFolder::open(link.clone()).unwrap();
        place.create_subfolder(&link.join("cells")).unwrap();
        assert!(path.join("cells").is_dir());
    }
}
