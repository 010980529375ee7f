//! Files that a command writes when its work is done: tried before it begins.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// A pipe may wait for its reader for ever.
///
/// # Errors
/// It is a named pipe.
pub(super) fn no_pipe(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    match fs::metadata(path) {
        Ok(found) if found.file_type().is_fifo() => Err(io::Error::other("it is a named pipe; name a file")),
        _ => Ok(()),
    }
}

/// Opens a file as [`open`] does and leaves it as it was. A pipe or a device is not opened: that may wait for its reader.
///
/// # Errors
/// It cannot be written.
pub(super) fn try_open(path: &Path) -> io::Result<()> {
    let found = fs::metadata(path);
    if found
        .as_ref()
        .is_ok_and(|found| !found.is_file() && !found.is_dir())
    {
        return Ok(());
    }
    open(path)?;
    match found {
        Ok(_) => Ok(()),
        Err(_) => fs::remove_file(path),
    }
}

/// Opens a file to append to it.
///
/// # Errors
/// It cannot be written.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}
