//! Records of a load that is under way, beside the file of `--records`: a crash after hours loses about a second of them.

use std::fs;
use std::path::{Path, PathBuf};

use super::config::BenchConfig;
use crate::commands::output::redactor;
use crate::runner::record_sink::RecordsFile;

/// Where records go while the load runs, if `--records` names a file.
pub(super) fn records_file(config: &BenchConfig) -> Option<RecordsFile> {
    Some(RecordsFile {
        path: partial_path(config.output.records.as_ref()?)?,
        redactor: redactor().clone(),
    })
}

/// Removes what was kept during the load: the records are in their file.
pub(super) fn remove_partial(records: &Path) {
    // A file that stays is set aside by the next load.
    let _ = partial_path(records).map(fs::remove_file);
}

/// `<file>.partial`; none beside a device or a pipe.
fn partial_path(records: &Path) -> Option<PathBuf> {
    let is_special = fs::metadata(records).is_ok_and(|found| !found.is_file());
    let mut name = records.as_os_str().to_owned();
    name.push(".partial");
    (!is_special).then(|| name.into())
}
