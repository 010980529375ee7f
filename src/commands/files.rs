//! Output files of a command: their names, and checks before its work begins.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// Returns the first of `NAME`, `NAME~2`, `NAME~3` … that is not in `taken`, and adds it. Letter case is ignored, as some file
/// systems ignore it.
pub(super) fn free_name(name: &str, taken: &mut BTreeSet<String>) -> String {
    let numbered = |number: usize| match number {
        1 => name.to_owned(),
        number => format!("{name}~{number}"),
    };
    let free = (1..)
        .map(numbered)
        .find(|name| taken.insert(name.to_ascii_lowercase()));
    free.expect("there is always a further number")
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_get_a_number() {
        let mut taken = BTreeSet::new();
        let names = ["a", "b", "A", "a"].map(|name| free_name(name, &mut taken));
        assert_eq!(names, ["a", "b", "A~2", "a~3"]);
    }
}
