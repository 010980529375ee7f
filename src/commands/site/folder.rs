//! The folder of a site. Only files that `matrix site` wrote are replaced or removed; a marker file lists them.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::commands::error::CommandError;
use crate::results::store::atomic;

/// The first page of a site.
pub(super) const INDEX: &str = "index.html";
/// The folder of the pages of runs.
pub(super) const PAGES: &str = "runs";
/// Lists the files that `matrix site` wrote.
const MARKER: &str = ".matrix-site";
/// First line of the marker.
const MARKER_HEAD: &str = "files that `matrix site` wrote and may replace:";
/// Ending of the pages of runs.
const PAGE_ENDING: &str = ".html";

/// An opened folder of a site. It is locked until dropped. If it is dropped before the index is written, the pages that were
/// added are removed: the index that is there does not have them, and they may be what fills the disk.
#[derive(Debug)]
pub(super) struct SiteFolder {
    root: PathBuf,
    /// Files of the site that was there before.
    before: BTreeSet<String>,
    /// Files that the site has now: those that were written, and pages that stay.
    current: BTreeSet<String>,
    /// Whether the folder was made here.
    is_new: bool,
    /// Whether the folder had no site.
    is_first: bool,
    is_claimed: bool,
    /// Whether the index was written, which has the new pages.
    has_index: bool,
    _lock: File,
}

impl SiteFolder {
    /// Opens and locks the folder, and makes it if it does not exist. Fails if it has files but no marker, or if another
    /// process writes it.
    pub(super) fn open(root: &Path) -> Result<Self, CommandError> {
        let is_new = root.symlink_metadata().is_err();
        if is_new {
            fs::create_dir_all(root)
                .with_context(|| format!("cannot create the folder {}", root.display()))
                .map_err(CommandError::unwritable)?;
        }
        let mut folder = Self {
            root: root.to_owned(),
            before: BTreeSet::new(),
            current: BTreeSet::new(),
            is_new,
            is_first: false,
            is_claimed: false,
            has_index: false,
            _lock: lock(root)?,
        };
        match fs::read_to_string(root.join(MARKER)) {
            Ok(text) => folder.before = listed(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                refuse_foreign(root)?;
                folder.is_first = true;
            }
            Err(error) => return Err(unusable(root, &error)),
        }
        Ok(folder)
    }

    /// Makes the folders, and writes the marker for these pages and the index, before any of them is written. Fails if one
    /// of them is a file of someone else.
    pub(super) fn claim(&mut self, pages: &[String]) -> Result<(), CommandError> {
        let wanted: BTreeSet<String> = pages.iter().cloned().chain([INDEX.to_owned()]).collect();
        for name in wanted.difference(&self.before) {
            let path = self.root.join(name);
            if path.symlink_metadata().is_ok() {
                return Err(CommandError::usage(format!(
                    "error: `{}` was not written by `matrix site` and is not replaced\n  = help: move it away, or choose another folder\n",
                    path.display()
                )));
            }
        }
        let pages = self.root.join(PAGES);
        if pages.symlink_metadata().is_ok_and(|about| !about.is_dir()) {
            return Err(CommandError::usage(format!(
                "error: `{}` is not a folder\n  = help: move it away, or choose another folder\n",
                pages.display()
            )));
        }
        fs::create_dir_all(&pages)
            .with_context(|| format!("cannot create the folder {}", pages.display()))
            .map_err(CommandError::unwritable)?;
        for folder in [&self.root, &pages] {
            atomic::sweep_killed(folder);
        }
        self.is_claimed = true;
        self.write_marker(self.before.union(&wanted))
    }

    /// Writes a file of the site.
    pub(super) fn write(&mut self, name: &str, text: &str) -> Result<(), CommandError> {
        self.put(name, text)?;
        self.current.insert(name.to_owned());
        self.has_index |= name == INDEX;
        Ok(())
    }

    /// Keeps a page of the earlier site; returns `false` if there is none.
    pub(super) fn keep(&mut self, page: &str) -> bool {
        let is_there = self.before.contains(page) && self.root.join(page).is_file();
        if is_there {
            self.current.insert(page.to_owned());
        }
        is_there
    }

    /// Removes the files of the earlier site that were neither written again nor kept.
    pub(super) fn finish(self) -> Result<(), CommandError> {
        for name in self.before.difference(&self.current) {
            let path = self.root.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unusable(&path, &error)),
                Ok(()) | Err(_) => {}
            }
        }
        self.write_marker(self.current.iter())
    }

    fn write_marker<'a>(&self, names: impl Iterator<Item = &'a String>) -> Result<(), CommandError> {
        let lines: String = names.map(|name| format!("{name}\n")).collect();
        self.put(MARKER, &format!("{MARKER_HEAD}\n{lines}"))
    }

    fn put(&self, name: &str, text: &str) -> Result<(), CommandError> {
        let path = self.root.join(name);
        atomic::write(&path, text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))
            .map_err(CommandError::unwritable)
    }

    /// Removes the files that were added. Errors are ignored: the command reports the one that ended it.
    fn roll_back(&self) {
        for name in self.current.difference(&self.before) {
            let _ = fs::remove_file(self.root.join(name));
        }
        match self.is_first {
            true => {
                let _ = fs::remove_file(self.root.join(MARKER));
                let _ = fs::remove_dir(self.root.join(PAGES));
            }
            false => {
                let _ = self.write_marker(self.before.iter());
            }
        }
    }
}

impl Drop for SiteFolder {
    fn drop(&mut self) {
        if self.has_index {
            return;
        }
        if self.is_claimed {
            self.roll_back();
        }
        if self.is_new {
            // Fails if it is not empty, as it should.
            let _ = fs::remove_dir(&self.root);
        }
    }
}

/// Locks the folder itself, so that no file of a lock is published.
fn lock(root: &Path) -> Result<File, CommandError> {
    if !root.is_dir() {
        return Err(unusable(root, &io::ErrorKind::NotADirectory.into()));
    }
    let folder = File::open(root).map_err(|error| unusable(root, &error))?;
    match folder.try_lock() {
        Err(TryLockError::WouldBlock) => Err(CommandError::host_not_ready(format!(
            "error: another `matrix site` is writing the folder `{}`\n  = help: wait until it ends, then run this command again\n",
            root.display()
        ))),
        // Some network file systems have no locks.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(folder),
    }
}

/// The files that a marker lists. Names of files that a site never has are ignored, so that a changed marker cannot make
/// the command remove them.
fn listed(marker: &str) -> BTreeSet<String> {
    let is_page = |name: &str| {
        let page = name.strip_prefix(PAGES).and_then(|name| name.strip_prefix('/'));
        page.is_some_and(|page| page.ends_with(PAGE_ENDING) && !page.contains(['/', '\\']))
    };
    let lines = marker.lines().skip(1);
    lines
        .filter(|name| *name == INDEX || is_page(name))
        .map(str::to_owned)
        .collect()
}

fn refuse_foreign(root: &Path) -> Result<(), CommandError> {
    let first = match fs::read_dir(root) {
        Ok(mut entries) => entries.next(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(unusable(root, &error)),
    };
    match first {
        None => Ok(()),
        Some(_) => Err(CommandError::usage(format!(
            "error: the folder `{}` is not empty and was not written by `matrix site`\n  = help: name a new or an empty folder\n",
            root.display()
        ))),
    }
}

fn unusable(path: &Path, error: &io::Error) -> CommandError {
    CommandError::usage(format!("error: cannot use `{}`: {error}\n", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    fn write(root: &Path, pages: &[&str]) -> Result<(), CommandError> {
        let mut folder = SiteFolder::open(root)?;
        let pages: Vec<String> = pages.iter().map(|page| (*page).to_owned()).collect();
        folder.claim(&pages)?;
        for page in &pages {
            folder.write(page, "page")?;
        }
        folder.write(INDEX, "index")?;
        folder.finish()
    }

    #[test]
    fn a_folder_of_others_is_refused_and_unchanged() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("mine.txt"), "mine").unwrap();
        let refusal = write(root.path(), &["runs/a.html"]).unwrap_err();
        assert!(refusal.message.contains("not empty"), "{}", refusal.message);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_site_is_written_again_and_only_its_own_files_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let site = root.path().join("site");
        write(&site, &["runs/a.html", "runs/b.html"]).unwrap();
        fs::write(site.join("CNAME"), "mine").unwrap();
        fs::write(site.join("runs/mine.html"), "mine").unwrap();
        write(&site, &["runs/b.html", "runs/c.html"]).unwrap();
        let is_there = |name: &str| site.join(name).exists();
        assert!(!is_there("runs/a.html"));
        for name in ["runs/b.html", "runs/c.html", "runs/mine.html", "CNAME", INDEX] {
            assert!(is_there(name), "{name}");
        }
        let refusal = write(&site, &["runs/mine.html"]).unwrap_err();
        assert!(refusal.message.contains("mine.html"), "{}", refusal.message);
        assert_eq!(fs::read_to_string(site.join("runs/mine.html")).unwrap(), "mine");
    }

    #[test]
    fn a_second_writer_is_refused_until_the_first_ends() {
        let root = tempfile::tempdir().unwrap();
        let site = root.path().join("site");
        let first = SiteFolder::open(&site).unwrap();
        let refusal = write(&site, &["runs/a.html"]).unwrap_err();
        assert_eq!(refusal.exit, Exit::HostNotReady);
        assert!(
            refusal.message.contains("another `matrix site`"),
            "{}",
            refusal.message
        );
        drop(first);
        assert!(!site.exists(), "a folder without a site is left");
        write(&site, &["runs/a.html"]).unwrap();
        let names: BTreeSet<_> = fs::read_dir(&site)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(names, [MARKER, INDEX, PAGES].map(str::to_owned).into());
    }

    #[test]
    fn a_site_that_fails_leaves_no_page_without_a_link() {
        let root = tempfile::tempdir().unwrap();
        let site = root.path().join("site");
        let fail = |pages: &[&str]| {
            let mut folder = SiteFolder::open(&site).unwrap();
            let pages: Vec<String> = pages.iter().map(|page| (*page).to_owned()).collect();
            folder.claim(&pages).unwrap();
            for page in &pages {
                folder.write(page, "new").unwrap();
            }
        };
        fail(&["runs/a.html"]);
        assert!(!site.exists());
        write(&site, &["runs/a.html"]).unwrap();
        let marker = || fs::read_to_string(site.join(MARKER)).unwrap();
        let before = marker();
        fail(&["runs/a.html", "runs/b.html"]);
        assert!(site.join("runs/a.html").exists() && site.join(INDEX).exists());
        assert!(!site.join("runs/b.html").exists());
        assert_eq!(marker(), before);
    }

    #[test]
    fn a_page_that_stays_is_still_a_file_of_the_site() {
        let root = tempfile::tempdir().unwrap();
        let site = root.path().join("site");
        write(&site, &["runs/a.html", "runs/b.html"]).unwrap();
        let mut folder = SiteFolder::open(&site).unwrap();
        folder.claim(&["runs/b.html".to_owned()]).unwrap();
        assert!(folder.keep("runs/a.html") && !folder.keep("runs/c.html"));
        folder.write("runs/b.html", "page").unwrap();
        folder.write(INDEX, "index").unwrap();
        folder.finish().unwrap();
        assert!(site.join("runs/a.html").exists());
        write(&site, &["runs/b.html"]).unwrap();
        assert!(!site.join("runs/a.html").exists());
    }

    #[test]
    fn a_changed_marker_removes_nothing_outside_the_site() {
        let names =
            "head\nindex.html\nruns/a.html\n../mine.html\nruns/../../mine.html\n/etc/passwd\nnotes.txt\n";
        assert_eq!(
            listed(names).into_iter().collect::<Vec<_>>(),
            ["index.html", "runs/a.html"]
        );
    }
}
