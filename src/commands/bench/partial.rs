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

/// Says where the records are that could not be written to their own file. `count` is the number of requests.
pub(super) fn where_records_are(records: &Path, count: usize) -> String {
    let partial = partial_path(records).and_then(|path| Some((fs::read(&path).ok()?, path)));
    let (written, path) = match &partial {
        // The last line may be cut off.
        Some((bytes, path)) => (bytes.iter().filter(|byte| **byte == b'\n').count(), Some(path)),
        None => (0, None),
    };
    match path {
        Some(path) if written > 0 => format!(
            "  = note: {written} of {count} records are in `{}`, which was written during the load\n  = help: free some space \
             before the next load, or name a file on another disk with `--records`\n",
            path.display()
        ),
        path => {
            if let Some(path) = path {
                // If it cannot be removed, the next load renames it.
                let _ = fs::remove_file(path);
            }
            format!(
                "  = note: the {count} records of this load are lost\n  = help: name a file on a disk with free space with `--records`\n"
            )
        }
    }
}

/// Returns `<file>.partial`; `None` if the file is a device or a pipe.
fn partial_path(records: &Path) -> Option<PathBuf> {
    let is_special = fs::metadata(records).is_ok_and(|found| !found.is_file());
    let mut name = records.as_os_str().to_owned();
    name.push(".partial");
    (!is_special).then(|| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_were_written_during_the_load_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let records = folder.path().join("r.jsonl");
        assert!(where_records_are(&records, 5).contains("the 5 records of this load are lost"));
        fs::write(folder.path().join("r.jsonl.partial"), "{}\n{}\n{\"a\":").unwrap();
        let note = where_records_are(&records, 5);
        assert!(note.contains("2 of 5 records are in `"), "{note}");
        assert!(note.contains("r.jsonl.partial`"), "{note}");
        assert!(where_records_are(Path::new("/dev/full"), 5).contains("are lost"));
    }
}
