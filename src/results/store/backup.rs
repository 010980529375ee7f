//! Earlier versions of files, kept as `.old-<n>`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{IoContext, Result};
use super::{atomic, layout};

/// Writes a text to `path`; a different earlier text is kept as `.old-<n>`.
pub(super) fn replace_with_backup(path: &Path, text: &str) -> Result<()> {
    match fs::read(path) {
        Ok(old) if old == text.as_bytes() => return Ok(()),
        Ok(old) => {
            let aside = backup_path(path);
            atomic::write(&aside, &old).io_context("write", &aside)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).io_context("read", path),
    }
    atomic::write(path, text.as_bytes()).io_context("write", path)
}

/// A free name for the current version of `path`.
fn backup_path(path: &Path) -> PathBuf {
    numbered_backup(path, free_number(path))
}

/// The smallest number that no earlier version of `path` has.
pub(super) fn free_number(path: &Path) -> u32 {
    (1..)
        .find(|number| !numbered_backup(path, *number).exists())
        .expect("a folder never holds as many versions as there are numbers")
}

/// The name of an earlier version of `path`.
pub(super) fn numbered_backup(path: &Path, number: u32) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(layout::backup_name(&name, number))
}

/// The numbers of all earlier versions in a folder, by the name of what they are versions of. A version that was moved back leaves a gap.
pub(super) struct Backups(BTreeMap<String, BTreeSet<u32>>);

impl Backups {
    /// Those in a folder; none if it cannot be read.
    pub(super) fn of_folder(folder: &Path) -> Self {
        let mut versions: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries {
            if let Some((name, number)) = layout::split_backup_name(&entry.file_name().to_string_lossy()) {
                versions.entry(name.to_owned()).or_default().insert(number);
            }
        }
        Self(versions)
    }

    /// The earlier versions of `path`, the one with the highest number first.
    pub(super) fn of<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let numbers = self.0.get(name.as_ref()).into_iter().flatten().rev();
        numbers.map(|number| numbered_backup(path, *number))
    }
}

pub(super) fn move_to_backup(path: &Path) -> Result<()> {
    fs::rename(path, backup_path(path)).io_context("move aside", path)?;
    let folder = atomic::parent_folder(path);
    atomic::sync_folder(folder).io_context("sync", folder)
}
