//! The claim of a run on this host's GPUs: two runs at once do not share them. It lies beside no results, for runs with different
//! results folders, of different users, meet on the same host; it ends with the process, however that ends.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;

/// Where every user of a host may lay a lock, the usual place first.
const PLACES: [&str; 2] = ["/run/lock", "/tmp"];

/// GPUs that no other run of this host may use until this is dropped.
#[derive(Debug)]
pub struct Claim {
    _locks: Vec<File>,
}

/// Why GPUs cannot be claimed.
#[derive(Debug, Error)]
pub enum ClaimError {
    /// Another run has them.
    #[error("GPU {gpu} belongs to another run of matrix on this host ({by})")]
    Taken {
        /// The GPU.
        gpu: u32,
        /// Which process, where it left its id.
        by: String,
    },
    /// The lock cannot be laid.
    #[error("GPU {gpu} cannot be claimed: {}: {source}", path.display())]
    Lock {
        /// The GPU.
        gpu: u32,
        /// The lock's file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

impl Claim {
    /// Claims these GPUs, with locks in `folder`, or where all users of a host lay them.
    ///
    /// # Errors
    /// Another run has one of them, or no lock can be laid.
    pub fn take(gpus: &[u32], folder: Option<&Path>) -> Result<Self, ClaimError> {
        let usual = || {
            let mut places = PLACES.iter().map(Path::new);
            places
                .find(|place| rustix::fs::access(*place, rustix::fs::Access::WRITE_OK).is_ok())
                .unwrap_or(Path::new("/tmp"))
        };
        let folder = folder.unwrap_or_else(usual);
        let locks = gpus.iter().map(|&gpu| lock(gpu, folder.join(format!("matrix-gpu-{gpu}.lock"))));
        Ok(Self {
            _locks: locks.collect::<Result<_, _>>()?,
        })
    }
}

fn lock(gpu: u32, path: PathBuf) -> Result<File, ClaimError> {
    let failed = |source: std::io::Error| ClaimError::Lock {
        gpu,
        path: path.clone(),
        source,
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let open = |create: bool| {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(create)
            .truncate(false)
            .mode(0o666)
            .open(&path)
    };
    // Where files in a folder for all are protected, another user's file can be opened but not made again.
    let mut file = open(true).or_else(|_| open(false)).map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            let by = match file.read_to_string(&mut pid) {
                Ok(_) if !pid.trim().is_empty() => format!("process {}", pid.trim()),
                _ => "another process".to_owned(),
            };
            return Err(ClaimError::Taken { gpu, by });
        }
        Err(error) => return Err(failed(error.into())),
    }
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| write!(file, "{}", std::process::id()))
        .map_err(failed)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_run_has_another_cannot_claim_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let first = Claim::take(&[0, 1], Some(folder.path())).unwrap();
        let said = Claim::take(&[0], Some(folder.path())).unwrap_err().to_string();
        let pid = std::process::id();
        assert_eq!(
            said,
            format!("GPU 0 belongs to another run of matrix on this host (process {pid})")
        );
        drop(first);
        Claim::take(&[0, 1], Some(folder.path())).unwrap();
    }
}
