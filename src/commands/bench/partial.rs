//! Records of a load that is under way, beside the file of `--records`: a crash after hours loses about a second of them.

use std::fs;
use std::path::{Path, PathBuf};

use super::complain;
use super::config::BenchConfig;
use crate::commands::output::secrets;
use crate::loadgen::Sink;
use crate::results::store::partial;

/// Where records go while the load runs, if `--records` names a file. Without a disk that takes them there is only the end.
pub(super) fn begin(config: &BenchConfig) -> Option<Sink> {
    let path = place(config.output.records.as_ref()?)?;
    let (sink, records) = Sink::new(Sink::ROOM, false);
    match partial::keep_at(&path, records, secrets().clone()) {
        Ok(()) => Some(sink),
        Err(error) => {
            complain(&format!("note: no record is kept during the load: {error}\n"));
            None
        }
    }
}

/// Reports the records that were not written while the load ran.
pub(super) fn end(sink: Option<Sink>) {
    let missed = sink.map_or(0, |sink| sink.missed());
    if missed > 0 {
        complain(&format!(
            "note: {missed} records were kept in memory alone while the load ran: the disk was too slow\n"
        ));
    }
}

/// Removes what was kept during the load: the records are in their file.
pub(super) fn forget(records: &Path) {
    // A file that stays is set aside by the next load.
    let _ = place(records).map(fs::remove_file);
}

/// `<file>.partial`; none beside a device or a pipe.
fn place(records: &Path) -> Option<PathBuf> {
    let is_special = fs::metadata(records).is_ok_and(|found| !found.is_file());
    let mut name = records.as_os_str().to_owned();
    name.push(".partial");
    (!is_special).then(|| name.into())
}
