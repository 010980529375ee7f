//! Records of a running load, in a file next to that of `--records`, so that a crash loses about a second of
//! records.

use std::fs;
use std::path::{Path, PathBuf};

use super::config::BenchConfig;
use crate::commands::output::redactor;
use crate::runner::record_sink::RecordsFile;

/// Returns the file for records during the load, if `--records` is set.
pub(super) fn records_file(config: &BenchConfig) -> Option<RecordsFile> {
    Some(RecordsFile {
        path: partial_path(config.output.records.as_ref()?)?,
        redactor: redactor().clone(),
    })
}

/// Removes the partial file after the records were written to their own file.
pub(super) fn remove_partial(records: &Path) {
    // If it cannot be removed, the next load renames it.
    let _ = partial_path(records).map(fs::remove_file);
}

/// Returns `<file>.partial`; `None` if the file is a device or a pipe.
fn partial_path(records: &Path) -> Option<PathBuf> {
    let is_special = fs::metadata(records).is_ok_and(|found| !found.is_file());
    let mut name = records.as_os_str().to_owned();
    name.push(".partial");
    (!is_special).then(|| name.into())
}
