//! The calibration of this host in the cache folder: the last result of `matrix calibrate`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Result, Tried, atomic, layout};
use crate::base::unfinished;
use crate::results::record::client::Calibration;

/// Prefix of the folders that calibrations write to while they run.
const FOLDER: &str = ".calibration-";

/// A temporary folder of a calibration, in the cache. It is removed on drop, or by [`sweep`] if this process
/// is killed.
pub(crate) struct Folder {
    folder: TempDir,
    _held: File,
}

impl Folder {
    pub(crate) fn make(cache: &Path) -> Result<Self> {
        fs::create_dir_all(cache).tried("make the folder", cache)?;
        let folder = tempfile::Builder::new().prefix(FOLDER).tempdir_in(cache);
        let folder = folder.tried("make a folder in", cache)?;
        let held = File::open(folder.path()).tried("open", folder.path())?;
        unfinished::hold(&held);
        Ok(Self { folder, _held: held })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes the folders of killed calibrations.
pub(crate) fn sweep(cache: &Path) {
    unfinished::sweep(cache, FOLDER);
}

/// Writes the calibration and returns the path.
pub(crate) fn keep(cache: &Path, calibration: &Calibration) -> Result<PathBuf> {
    fs::create_dir_all(cache).tried("make the folder", cache)?;
    let path = cache.join(layout::CALIBRATION);
    let text = serde_json::to_string_pretty(calibration).expect("numbers and texts are JSON");
    atomic::write(&path, format!("{text}\n").as_bytes()).tried("write", &path)?;
    Ok(path)
}

/// Reads the calibration; `None` if there is none or it cannot be read.
pub(crate) fn kept(cache: &Path) -> Option<Calibration> {
    let text = fs::read_to_string(cache.join(layout::CALIBRATION)).ok()?;
    serde_json::from_str(&text).ok()
}
