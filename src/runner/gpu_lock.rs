//! The lock of a run on this host's GPUs, so that two runs do not share them. It does not lie in the results
//! folder, because runs of other users with other results folders use the same host. It ends with the process
//! in any case.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

use crate::base::private_files::open_file;

/// Folders in which every user of a host may create a lock, in order of preference.
const LOCK_FOLDERS: [&str; 2] = ["/run/lock", "/tmp"];

/// Locked GPUs; the lock ends on drop.
#[derive(Debug)]
pub(crate) struct GpuLock {
    _locks: Vec<File>,
}

/// Why GPUs cannot be locked.
#[derive(Debug, Error)]
pub(crate) enum GpuLockError {
    /// Another run has locked the GPU.
    #[error("GPU {gpu} is locked by another run of matrix on this host ({by})")]
    Taken {
        gpu: u32,
        /// The process of the other run, if it recorded its id.
        by: String,
    },
    /// The lock file cannot be created or locked.
    #[error("GPU {gpu} cannot be locked: {}: {source}", path.display())]
    Lock {
        gpu: u32,
        path: PathBuf,
        source: std::io::Error,
    },
}

impl GpuLock {
    /// Locks these GPUs with files in `folder`, or in the folder that all users of the host share.
    pub(crate) fn acquire(gpus: &[u32], folder: Option<&Path>) -> Result<Self, GpuLockError> {
        let shared_folder = || {
            let mut places = LOCK_FOLDERS.iter().map(Path::new);
            places
                .find(|place| rustix::fs::access(*place, rustix::fs::Access::WRITE_OK).is_ok())
                .unwrap_or(Path::new("/tmp"))
        };
        let folder = folder.unwrap_or_else(shared_folder);
        let locks = gpus
            .iter()
            .map(|&gpu| lock_gpu(gpu, folder.join(format!("matrix-gpu-{gpu}.lock"))));
        Ok(Self {
            _locks: locks.collect::<Result<_, _>>()?,
        })
    }
}

fn lock_gpu(gpu: u32, path: PathBuf) -> Result<File, GpuLockError> {
    let failed = |source: std::io::Error| GpuLockError::Lock {
        gpu,
        path: path.clone(),
        source,
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut file = open_lock_file(&path).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            // Another user may have written the file.
            let mut text = String::new();
            let read = file.take(MAX_PID_BYTES).read_to_string(&mut text);
            let pid = read.ok().and_then(|_| text.trim().parse::<u32>().ok());
            let by = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
            return Err(GpuLockError::Taken { gpu, by });
        }
        Err(error) => return Err(failed(error.into())),
    }
    // Another user's file may not be writable. The lock holds; only the process id is missing.
    let _ = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| write!(file, "{}", std::process::id()));
    Ok(file)
}

/// Largest number of characters read as a process id.
const MAX_PID_BYTES: u64 = 16;

/// Opens a lock file, or creates it for all users of the host. A link is refused. A read-only file of another
/// user can be locked as well.
fn open_lock_file(path: &Path) -> std::io::Result<File> {
    let open = |options: &mut OpenOptions| open_file(options.read(true), path);
    match open(OpenOptions::new().write(true).create_new(true).mode(0o666)) {
        Ok(file) => {
            // The umask must not restrict the file.
            file.set_permissions(Permissions::from_mode(0o666))?;
            return Ok(file);
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    open(OpenOptions::new().write(true)).or_else(|error| match error.kind() {
        ErrorKind::PermissionDenied => open(&mut OpenOptions::new()),
        _ => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_run_has_another_cannot_claim_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let first = GpuLock::acquire(&[0, 1], Some(folder.path())).unwrap();
        let said = GpuLock::acquire(&[0], Some(folder.path()))
            .unwrap_err()
            .to_string();
        let pid = std::process::id();
        assert_eq!(
            said,
            format!("GPU 0 is locked by another run of matrix on this host (process {pid})")
        );
        drop(first);
        GpuLock::acquire(&[0, 1], Some(folder.path())).unwrap();
    }

    fn path(folder: &Path) -> PathBuf {
        folder.join("matrix-gpu-0.lock")
    }

    #[test]
    fn what_a_link_points_to_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let precious = folder.path().join("precious");
        std::fs::write(&precious, "data").unwrap();
        std::os::unix::fs::symlink(&precious, path(folder.path())).unwrap();
        GpuLock::acquire(&[0], Some(folder.path())).unwrap_err();
        assert_eq!(std::fs::read_to_string(&precious).unwrap(), "data");
    }

    #[test]
    fn a_lock_is_made_for_all_users_and_one_that_may_only_be_read_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        drop(GpuLock::acquire(&[0], Some(folder.path())).unwrap());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path(folder.path())), 0o666);
        std::fs::set_permissions(path(folder.path()), Permissions::from_mode(0o444)).unwrap();
        let first = GpuLock::acquire(&[0], Some(folder.path())).unwrap();
        GpuLock::acquire(&[0], Some(folder.path())).unwrap_err();
        drop(first);
    }

    #[test]
    fn what_others_write_into_a_lock_is_not_told() {
        let folder = tempfile::tempdir().unwrap();
        let _first = GpuLock::acquire(&[0], Some(folder.path())).unwrap();
        std::fs::write(path(folder.path()), "1 (it is root) \u{1b}[31m").unwrap();
        let said = GpuLock::acquire(&[0], Some(folder.path()))
            .unwrap_err()
            .to_string();
        assert!(said.ends_with("(another process)"), "{said}");
    }
}
