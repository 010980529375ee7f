//! The folder of a site. Only files that `matrix site` wrote are replaced or removed; a marker file lists them.

use std::collections::BTreeSet;
use std::fs;
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

/// An opened folder of a site.
#[derive(Debug)]
pub(super) struct SiteFolder {
    root: PathBuf,
    /// Files of the site that was there before.
    before: BTreeSet<String>,
    written: BTreeSet<String>,
}

impl SiteFolder {
    /// Opens the folder, which need not exist. Fails if it has files but no marker.
    pub(super) fn open(root: &Path) -> Result<Self, CommandError> {
        let before = match fs::read_to_string(root.join(MARKER)) {
            Ok(text) => listed(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                refuse_foreign(root)?;
                BTreeSet::new()
            }
            Err(error) => return Err(unusable(root, &error)),
        };
        Ok(Self {
            root: root.to_owned(),
            before,
            written: BTreeSet::new(),
        })
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
        self.write_marker(self.before.union(&wanted))
    }

    /// Writes a file of the site.
    pub(super) fn write(&mut self, name: &str, text: &str) -> Result<(), CommandError> {
        self.put(name, text)?;
        self.written.insert(name.to_owned());
        Ok(())
    }

    /// Removes the files of the earlier site that were not written again.
    pub(super) fn finish(self) -> Result<(), CommandError> {
        for name in self.before.difference(&self.written) {
            let path = self.root.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unusable(&path, &error)),
                Ok(()) | Err(_) => {}
            }
        }
        self.write_marker(self.written.iter())
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
    fn a_changed_marker_removes_nothing_outside_the_site() {
        let names =
            "head\nindex.html\nruns/a.html\n../mine.html\nruns/../../mine.html\n/etc/passwd\nnotes.txt\n";
        assert_eq!(
            listed(names).into_iter().collect::<Vec<_>>(),
            ["index.html", "runs/a.html"]
        );
    }
}
