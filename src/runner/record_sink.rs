//! Stores the records of a load while it runs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::secrets::Redactor;
use crate::loadgen::{Sink, Spill};
use crate::plan::Measurement;
use crate::results::store::{Store, StoreError, partial};

/// Where records are stored during a load, so that a crash loses at most seconds.
#[derive(Clone, Copy)]
pub(crate) enum RecordSink<'a> {
    /// The folder of a run.
    Run(&'a Store),
    /// A file, if one is named.
    File(Option<&'a RecordsFile>),
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
    ) -> Result<Option<Sink>, StoreError> {
        let (sink, records) = Sink::new(Sink::CAPACITY, keeps_text && matches!(self, Self::Run(_)));
        match self {
            Self::Run(store) => store.save_partial(measurement, records)?,
            Self::File(Some(file)) => partial::save_records(&file.path, records, file.redactor.clone())?,
            Self::File(None) => return Ok(None),
        }
        Ok(Some(sink))
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
