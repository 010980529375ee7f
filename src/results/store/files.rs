//! Reads files of any origin, which may be broken, huge or no plain files.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::{IoContext, Result, StoreError};
use crate::results::record::FORMAT;

/// Longest line of compressed JSON that is read; records are far shorter.
const MAX_LINE_BYTES: u64 = 64 << 20;

const MAX_FILE_BYTES: u64 = 4 << 30;

/// Opens a plain file for reading. Refuses a pipe, whose opening would block, and a device, which may never
/// end.
pub(super) fn open_regular_file(path: &Path) -> io::Result<File> {
    let waits_for_nobody =
        i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of `open` is a small number");
    let file = File::options()
        .read(true)
        .custom_flags(waits_for_nobody)
        .open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path is not a regular file",
        )),
    }
}

/// Reads compressed JSON lines.
pub(super) fn read_lines<T: DeserializeOwned>(file: File, path: &Path) -> Result<Vec<T>> {
    let lines = zstd::Decoder::new(file).io_context("read", path)?;
    let mut values = Vec::new();
    let mut lines = BufReader::new(lines);
    let mut line = Vec::new();
    for number in 1.. {
        let broken = |reason: String| StoreError::Malformed {
            path: path.to_owned(),
            why: format!("line {number}: {reason}"),
        };
        line.clear();
        // A few compressed bytes may expand to any length.
        let mut bounded = (&mut lines).take(MAX_LINE_BYTES);
        let read = bounded.read_until(b'\n', &mut line);
        if read.map_err(|error| broken(error.to_string()))? == 0 {
            break;
        }
        if line.len() as u64 == MAX_LINE_BYTES && line.last() != Some(&b'\n') {
            return Err(broken(format!(
                "the line is longer than {} MiB",
                MAX_LINE_BYTES >> 20
            )));
        }
        values.push(serde_json::from_slice(&line).map_err(|error| broken(error.to_string()))?);
    }
    Ok(values)
}

/// The folders in `root`, by name; empty if `root` does not exist.
pub(crate) fn folders(root: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.io_context("list", root)?,
    };
    let mut folders = Vec::new();
    for entry in entries {
        let path = entry.io_context("list", root)?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

/// The format that a file declares; none if it has the format of the run.
#[derive(Deserialize)]
struct FormatHeader {
    #[serde(default)]
    format: Option<u32>,
}

/// Reads a JSON file; `help` says what to do if it is missing.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path, help: &'static str) -> Result<T> {
    let path = path.to_owned();
    let bytes = open_regular_file(&path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    match bytes {
        Ok(bytes) if bytes.len() as u64 > MAX_FILE_BYTES => Err(StoreError::Malformed {
            path,
            why: format!("the file is larger than {} GiB", MAX_FILE_BYTES >> 30),
        }),
        Ok(bytes) => {
            // The version is parsed first and alone, because the rest of a newer format may differ.
            if let Ok(FormatHeader { format: Some(theirs) }) = serde_json::from_slice(&bytes)
                && theirs > FORMAT
            {
                let ours = FORMAT;
                return Err(StoreError::Newer { path, theirs, ours });
            }
            serde_json::from_slice(&bytes).map_err(|error| StoreError::Malformed {
                path,
                why: error.to_string(),
            })
        }
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Err(StoreError::Missing { path, help })
        }
        Err(error) => Err(error).io_context("read", &path),
    }
}
