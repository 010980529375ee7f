//! Stores the records of a load while it runs.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::secrets::Redactor;
use crate::loadgen::{Sink, Spill};
use crate::plan::Measurement;
use crate::results::store::partial::{self, RecordWriter};
use crate::results::store::{Store, StoreError};

/// Where records are stored during a load, so that a crash loses at most seconds.
#[derive(Clone, Copy)]
pub(crate) enum RecordSink<'a> {
    /// The folder of a run.
    Run(&'a Store),
    /// A file, if one is named.
    File(Option<&'a RecordsFile>),
}

/// A sink whose records are being written.
pub(crate) struct OpenSink {
    pub(crate) sink: Sink,
    writer: RecordWriter,
}

impl OpenSink {
    /// Waits until the records are written, after the load. Warns about those that were not; `None` if all were
    /// passed on.
    pub(crate) fn finish(self) -> Option<String> {
        let missed = self.sink.dropped();
        drop(self.sink);
        self.writer.wait();
        (missed > 0).then(|| missed_warning(missed, self.writer.failure()))
    }
}

fn missed_warning(missed: u64, failure: Option<&io::Error>) -> String {
    let why = match failure {
        None => "the disk was too slow".to_owned(),
        Some(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
            format!("the disk is full: {error}")
        }
        Some(error) => format!("the records cannot be written: {error}"),
    };
    format!("{missed} records were kept only in memory during the load, because {why}")
}

/// A file for records without texts.
#[derive(Clone)]
pub(crate) struct RecordsFile {
    pub(crate) path: PathBuf,
    pub(crate) redactor: Redactor,
}

impl RecordSink<'_> {
    /// Opens the sink whose records are stored; `None` if no file is named.
    pub(crate) fn open(
        self,
        measurement: &Measurement,
        keeps_text: bool,
    ) -> Result<Option<OpenSink>, StoreError> {
        let (sink, records) = Sink::new(Sink::CAPACITY, keeps_text && matches!(self, Self::Run(_)));
        let writer = match self {
            Self::Run(store) => store.save_partial(measurement, records)?,
            Self::File(Some(file)) => partial::save_records(&file.path, records, file.redactor.clone())?,
            Self::File(None) => return Ok(None),
        };
        Ok(Some(OpenSink { sink, writer }))
    }

    /// Creates the file for responses beyond the memory limit: in the folder of the run; without one, in the
    /// current folder or the folder of temporary files.
    pub(crate) fn spill(self) -> io::Result<Arc<Spill>> {
        match self {
            Self::Run(store) => Spill::new(store.folder(), Spill::DEFAULT_BUDGET),
            Self::File(_) => Spill::new(Path::new("."), Spill::DEFAULT_BUDGET)
                .or_else(|_| Spill::new(&std::env::temp_dir(), Spill::DEFAULT_BUDGET)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_are_not_written_come_with_the_cause() {
        let because = |failure: Option<ErrorKind>| {
            let warning = missed_warning(3, failure.map(io::Error::from).as_ref());
            warning.split_once("because ").unwrap().1.to_owned()
        };
        assert_eq!(because(None), "the disk was too slow");
        assert!(because(Some(ErrorKind::StorageFull)).starts_with("the disk is full: "));
        let other = because(Some(ErrorKind::FileTooLarge));
        assert!(other.starts_with("the records cannot be written: "), "{other}");
    }
}
