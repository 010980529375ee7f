//! Creates and opens the folder of a run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::Store;
use crate::base::clock;
use crate::base::ids::RunId;
use crate::base::secrets::Redactor;
use crate::results::store::error::{IoContext, Result, StoreError};
use crate::results::store::lock::{self, Lock};
use crate::results::store::open_folder::OpenFolder;
use crate::results::store::{atomic, layout, run_folder};

impl Store {
    /// Creates and locks the folder of a new run of a matrix below `root`: `<matrix>-<UTC stamp>`, with a
    /// number if that name is taken.
    pub(crate) fn create_new(root: &Path, matrix: &str, redactor: &Redactor) -> Result<Self> {
        sweep_incomplete_runs(root);
        let mut tries = 0;
        loop {
            let run = Self::new_run_id(root, matrix, redactor);
            match Self::create(root, &run, redactor.clone()) {
                // Another process took the name.
                Err(StoreError::Exists { .. }) if tries < 100 => tries += 1,
                made => return made,
            }
        }
    }

    /// Checks that `run` can name a new run below `root`: it must not exist and must be a plain name that the
    /// store does not use.
    pub(crate) fn check_new(root: &Path, run: &RunId) -> Result<()> {
        let folder = run_folder(root, run)?;
        match folder.exists() {
            true => Err(StoreError::Exists { path: folder }),
            false => Ok(()),
        }
    }

    /// A free name for a new run of a matrix below `root`: `<matrix>-<UTC stamp>`, with a number if that name
    /// is taken.
    pub(crate) fn new_run_id(root: &Path, matrix: &str, redactor: &Redactor) -> RunId {
        let name = format!("{}-{}", layout::slug(matrix, redactor), clock::stamp());
        let free = (2..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.clone())
            .chain(free)
            .find(|name| !root.join(name).exists());
        RunId::new(free.unwrap_or(name))
    }

    /// Creates and locks the folder of a new run. It stays empty until [`Store::begin_run`].
    pub(crate) fn create(root: &Path, run: &RunId, redactor: Redactor) -> Result<Self> {
        let folder = run_folder(root, run)?;
        fs::create_dir_all(root).io_context("make the folder", root)?;
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(StoreError::Exists { path: folder });
            }
            result => result.io_context("make the folder", &folder)?,
        }
        let result = atomic::sync_folder(root)
            .io_context("sync", root)
            .and_then(|()| Self::open_locked(run, folder.clone(), redactor));
        if result.is_err() {
            // The folder is empty, and removing it frees the name for the next attempt.
            let _ = fs::remove_dir_all(folder);
        }
        result
    }

    /// Opens an existing run to resume it. Fails if it does not exist, another process writes it, or its
    /// format is newer.
    pub(crate) fn open(root: &Path, run: &RunId, redactor: Redactor) -> Result<Self> {
        let folder = run_folder(root, run)?;
        let about = run_folder::read_run_info(&folder)?;
        let store = Self::open_locked(run, folder, redactor)?;
        let _ = store.info.set(about);
        for folder in [store.folder().to_owned(), store.folder().join(layout::RECIPES)] {
            if folder.is_dir() {
                atomic::sweep(&folder).io_context("sweep", &folder)?;
            }
        }
        Ok(store)
    }

    fn open_locked(run: &RunId, folder: PathBuf, redactor: Redactor) -> Result<Self> {
        let place = OpenFolder::open(folder)?;
        let lock = Lock::acquire(place.path())?;
        place.check_path()?;
        Ok(Self {
            run: run.clone(),
            folder: place,
            redactor,
            info: OnceLock::new(),
            lock,
        })
    }
}

fn run_folder(root: &Path, run: &RunId) -> Result<PathBuf> {
    if !layout::is_run_name(run.as_str()) {
        return Err(StoreError::InvalidName {
            name: run.to_string(),
            what: "a run",
        });
    }
    Ok(root.join(run.as_str()))
}

/// Removes temporary files of runs below `root` that were killed before they began. Such a folder cannot be
/// resumed; its other files stay.
fn sweep_incomplete_runs(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let folder = entry.path();
        if folder.join(layout::RUN).exists() {
            continue;
        }
        // With the lock held no process writes there, so that every temporary file is an orphan.
        let Some(_lock) = lock::exclude_writers(&folder) else {
            continue;
        };
        for folder in [folder.join(layout::RECIPES), folder] {
            let _ = atomic::sweep(&folder);
        }
    }
}
