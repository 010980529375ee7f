//! Files in the layout of the hub's cache: blobs, links to them, references.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::base::ids::hex;

/// Computes SHA-256 if the hub's digest has that length, else git's SHA-1 of a blob.
pub(super) fn digest(path: &Path, length: usize) -> io::Result<String> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut block = vec![0; 1 << 20];
    if length == 64 {
        let mut sum = Sha256::new();
        read(&mut file, &mut block, |bytes| sum.update(bytes))?;
        return Ok(hex(&sum.finalize()));
    }
    let mut sum = Sha1::new();
    sum.update(format!("blob {size}\0").as_bytes());
    read(&mut file, &mut block, |bytes| sum.update(bytes))?;
    Ok(hex(&sum.finalize()))
}

fn read(file: &mut File, block: &mut [u8], mut take: impl FnMut(&[u8])) -> io::Result<()> {
    loop {
        match file.read(block)? {
            0 => return Ok(()),
            count => take(&block[..count]),
        }
    }
}

/// Links a blob under its file's name with a relative link, as the hub's own tools do.
pub(super) fn link_blob(blob: &Path, link: &Path) -> io::Result<()> {
    let Some(folder) = link.parent() else {
        return Ok(());
    };
    fs::create_dir_all(folder)?;
    if link.exists() {
        return Ok(());
    }
    let _ = fs::remove_file(link);
    let repository = blob.parent().and_then(Path::parent).unwrap_or(folder);
    let depth = folder
        .strip_prefix(repository)
        .map_or(2, |below| below.components().count());
    let name = blob.file_name().unwrap_or_default();
    let target: PathBuf = std::iter::repeat_n("..", depth)
        .collect::<PathBuf>()
        .join("blobs")
        .join(name);
    std::os::unix::fs::symlink(target, link)
}

pub(super) fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    // The umask still applies. Other users of a shared cache can read the file.
    let mut file = tempfile::Builder::new()
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.persist(path).map(|_| ()).map_err(|error| error.error)
}
