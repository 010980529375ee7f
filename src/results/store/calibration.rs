//! The machine's own calibration, in the cache folder: what `matrix calibrate` measured last.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Result, Tried, atomic, layout};
use crate::results::record::client::Calibration;

/// Keeps it; returns the file.
///
/// # Errors
/// The disk refuses.
pub fn keep(cache: &Path, calibration: &Calibration) -> Result<PathBuf> {
    fs::create_dir_all(cache).tried("make the folder", cache)?;
    let path = cache.join(layout::CALIBRATION);
    let text = serde_json::to_string_pretty(calibration).expect("numbers and texts are JSON");
    atomic::write(&path, format!("{text}\n").as_bytes()).tried("write", &path)?;
    Ok(path)
}

/// The one kept; `None` where there is none, or none that can be read.
pub fn kept(cache: &Path) -> Option<Calibration> {
    let text = fs::read_to_string(cache.join(layout::CALIBRATION)).ok()?;
    serde_json::from_str(&text).ok()
}
