//! Output files of a command, checked before its work begins.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// Refuses a named pipe, because writing may wait for its reader forever.
pub(super) fn refuse_pipe(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    match fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_fifo() => Err(io::Error::other(
            "this is a named pipe; give the name of a regular file",
        )),
        _ => Ok(()),
    }
}

/// Checks that a file can be opened as [`open`] does, without changing it. A pipe or device is not opened,
/// because this may wait for its reader.
pub(super) fn try_open(path: &Path) -> io::Result<()> {
    let metadata = fs::metadata(path);
    if metadata
        .as_ref()
        .is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
    {
        return Ok(());
    }
    open(path)?;
    match metadata {
        Ok(_) => Ok(()),
        Err(_) => fs::remove_file(path),
    }
}

/// Opens a file for appending.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}
