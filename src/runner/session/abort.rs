//! Cleans up after a run that cannot continue.

use std::path::Path;

use crate::results::store::{Store, StoreError};
use crate::runner::session::error::{Aborted, SavedResults, SessionError};

/// Creates the error of a run that cannot continue. Removes the run's folder if it has no `run.json` yet.
pub(super) fn abort(store: &Store, results: &Path, reason: String) -> SessionError {
    let run = store.run().clone();
    let moved = store.check_place().map_err(|error| (error.to_string(), error));
    if let Err((reason, StoreError::Moved { path, now })) = moved {
        let results = match now {
            Some(to) => SavedResults::Moved { from: path, to },
            None => SavedResults::Lost,
        };
        return SessionError::Aborted(Aborted { run, reason, results });
    }
    // If this fails, the measurements are still in the folder that the error names.
    let _ = store.restore_run_info();
    let results = match store.discard_incomplete() {
        true => SavedResults::Removed {
            results: results.to_owned(),
        },
        false => SavedResults::Saved(store.folder().to_owned()),
    };
    SessionError::Aborted(Aborted { run, reason, results })
}
