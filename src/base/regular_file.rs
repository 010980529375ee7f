//! Distinguishes regular files from devices and pipes, which can be read without end or wait for a writer.

use std::path::Path;
use std::{fs, io};

/// Fails if the path is not a regular file, or a link to one.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    match fs::metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("the path is not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_no_regular_file_and_a_link_to_a_file_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(check(&file).is_ok() && check(&link).is_ok());
        for other in [Path::new("/dev/zero"), folder.path()] {
            assert_eq!(
                check(other).unwrap_err().to_string(),
                "the path is not a regular file"
            );
        }
    }
}
