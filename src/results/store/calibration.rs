//! The calibration of this host in the cache folder: the last result of `matrix calibrate`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::error::{IoContext, Result};
use super::{atomic, layout};
use crate::base::unfinished;
use crate::results::record::client::Calibration;

/// Prefix of the folders that calibrations write to while they run.
const FOLDER_PREFIX: &str = ".calibration-";

/// A temporary folder of a calibration, in the cache. It is removed on drop, or by [`sweep`] if this process
/// is killed.
pub(crate) struct CalibrationFolder {
    folder: TempDir,
    _lock: File,
}

impl CalibrationFolder {
    pub(crate) fn create(cache: &Path) -> Result<Self> {
        fs::create_dir_all(cache).io_context("make the folder", cache)?;
        let folder = tempfile::Builder::new().prefix(FOLDER_PREFIX).tempdir_in(cache);
        let folder = folder.io_context("make a folder in", cache)?;
        let held = File::open(folder.path()).io_context("open", folder.path())?;
        unfinished::lock(&held);
        Ok(Self { folder, _lock: held })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes the folders of killed calibrations.
pub(crate) fn sweep(cache: &Path) {
    unfinished::sweep(cache, FOLDER_PREFIX);
}

/// Writes the calibration and returns the path.
pub(crate) fn save(cache: &Path, calibration: &Calibration) -> Result<PathBuf> {
    fs::create_dir_all(cache).io_context("make the folder", cache)?;
    let path = cache.join(layout::CALIBRATION);
    let text = serde_json::to_string_pretty(calibration).expect("numbers and texts are JSON");
    atomic::write(&path, format!("{text}\n").as_bytes()).io_context("write", &path)?;
    Ok(path)
}

/// Reads the calibration; `None` if there is none or it cannot be read.
pub(crate) fn load(cache: &Path) -> Option<Calibration> {
    let text = fs::read_to_string(cache.join(layout::CALIBRATION)).ok()?;
    serde_json::from_str(&text).ok()
}
