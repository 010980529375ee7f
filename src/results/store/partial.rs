//! Records of a measurement in progress, written as requests end, so that a crash loses about one second of
//! them.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use super::backup::move_to_backup;
use super::error::{IoContext, Result};
use super::layout;
use super::redact_json::{JsonLayout, to_redacted_json};
use super::writer::Store;
use super::writer::ZSTD_LEVEL;
use crate::base::clock;
use crate::base::private_files::open_file;
use crate::base::secrets::Redactor;
use crate::plan::Measurement;
use crate::results::record::request::Request;

/// A thread that writes the records of a load.
pub(crate) struct RecordWriter {
    failure: Arc<OnceLock<io::Error>>,
    /// Closed when the thread ends.
    running: Receiver<()>,
}

impl RecordWriter {
    /// Why the records could not be written; set when writing ends with an error, before the queue of records is closed.
    pub(crate) fn failure(&self) -> Option<&io::Error> {
        self.failure.get()
    }

    /// Waits until every record is written or writing has failed, at most [`MAX_WAIT`]. The queue of records must have been
    /// closed.
    pub(crate) fn wait(&self) {
        let _ = self.running.recv_timeout(MAX_WAIT);
    }
}

/// Longest wait for the last records; a disk that hangs costs no more.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Longest time that records stay in memory.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

impl Store {
    /// Writes records on a separate thread until the channel closes. The file of an earlier attempt is
    /// renamed. The file is removed when the measurement is written.
    pub(crate) fn save_partial(
        &self,
        measurement: &Measurement,
        records: Receiver<Request>,
    ) -> Result<RecordWriter> {
        let folder = self.cell_dir(measurement);
        self.create_folder(&folder)?;
        let path = folder.join(layout::PARTIAL);
        if path.exists() {
            move_to_backup(&path)?;
        }
        let file = create(&path)?;
        let redactor = self.redactor().clone();
        spawn_writer(&path, records, move |records| {
            let mut lines = zstd::Encoder::new(file, ZSTD_LEVEL)?;
            write_records(&mut lines, records, &redactor)?;
            lines.finish()?.flush()
        })
    }
}

/// Writes records as redacted JSON lines to a separate file, on a separate thread, until the channel closes.
/// A file of that name from an earlier load is renamed.
pub(crate) fn save_records(
    path: &Path,
    records: Receiver<Request>,
    redactor: Redactor,
) -> Result<RecordWriter> {
    if path.exists() {
        move_to_backup(path)?;
    }
    let file = create(path)?;
    spawn_writer(path, records, move |records| {
        write_records(&mut BufWriter::new(file), records, &redactor)
    })
}

fn create(path: &Path) -> Result<File> {
    open_file(OpenOptions::new().write(true).create(true).truncate(true), path).io_context("make", path)
}

/// Runs `work` on a separate thread. Its error does not end the load, because the records stay in memory.
fn spawn_writer(
    path: &Path,
    records: Receiver<Request>,
    work: impl FnOnce(&Receiver<Request>) -> io::Result<()> + Send + 'static,
) -> Result<RecordWriter> {
    let failure = Arc::new(OnceLock::new());
    let to_set = Arc::clone(&failure);
    let (end, running) = sync_channel(0);
    let writing = move || {
        if let Err(error) = work(&records) {
            let _ = to_set.set(error);
        }
        drop(end);
    };
    let spawned = thread::Builder::new().name("records".to_owned()).spawn(writing);
    let writer = RecordWriter { failure, running };
    spawned.map(|_| writer).io_context("keep records in", path)
}

fn write_records(lines: &mut impl Write, records: &Receiver<Request>, redactor: &Redactor) -> io::Result<()> {
    let mut flushed = clock::now();
    let mut is_new = false;
    loop {
        match records.recv_timeout(FLUSH_INTERVAL) {
            Ok(record) => {
                lines.write_all(to_redacted_json(&record, JsonLayout::Line, redactor).as_bytes())?;
                is_new = true;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if is_new && clock::now().since(flushed) >= FLUSH_INTERVAL {
            lines.flush()?;
            (flushed, is_new) = (clock::now(), false);
        }
    }
    lines.flush()
}

/// Reads the records of an unfinished measurement, in the order in which they ended, up to the first
/// unreadable line.
///
/// # Errors
/// There is no file, or it cannot be read.
pub fn read_requests(folder: &Path) -> Result<Vec<Request>> {
    let lines = lines(folder)?;
    Ok(lines
        .map_while(|line| serde_json::from_slice(line.as_bytes()).ok())
        .collect())
}

/// The readable lines. The last line and the end of the compressed stream may be cut off.
fn lines(folder: &Path) -> Result<impl Iterator<Item = String>> {
    let path = folder.join(layout::PARTIAL);
    let file = File::open(&path).io_context("open", &path)?;
    let lines = zstd::Decoder::new(file).io_context("read", &path)?;
    Ok(BufReader::new(lines).lines().map_while(io::Result::ok))
}

/// Progress of an unfinished measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PartialProgress {
    /// Number of readable records.
    pub(crate) requests: usize,
    /// End of the last request, in seconds after the start of the load.
    pub(crate) last_end_s: f64,
}

/// Reads the progress of an unfinished measurement without holding its records in memory. Fails if there is
/// no file.
pub(crate) fn partial_progress(folder: &Path) -> Result<PartialProgress> {
    #[derive(serde::Deserialize)]
    struct RecordEnd {
        end_ns: u64,
    }
    let mut reached = PartialProgress::default();
    for line in lines(folder)? {
        let Ok(RecordEnd { end_ns }) = serde_json::from_slice(line.as_bytes()) else {
            break;
        };
        reached.requests += 1;
        reached.last_end_s = reached.last_end_s.max(end_ns as f64 / 1e9);
    }
    Ok(reached)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::base::ids::RunId;
    use crate::results::store::testing::{plan, requests};

    #[test]
    fn a_full_disk_is_known_once_the_queue_is_closed() {
        let (sender, receiver) = sync_channel(1);
        let writer = save_records_into(Path::new("/dev/full"), receiver);
        let record = requests().swap_remove(0);
        // The writer gives up when its buffer is full.
        while sender.send(record.clone()).is_ok() {}
        let kind = writer.failure().map(io::Error::kind);
        assert_eq!(kind, Some(io::ErrorKind::StorageFull));
    }

    #[test]
    fn after_the_wait_every_record_is_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl.partial");
        let record = requests().swap_remove(0);
        for _ in 0..20 {
            let (sender, receiver) = sync_channel(200);
            let writer = save_records(&path, receiver, Redactor::default()).unwrap();
            (0..200).for_each(|_| sender.send(record.clone()).unwrap());
            drop(sender);
            writer.wait();
            assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 200);
            fs::remove_file(&path).unwrap();
        }
    }

    /// As [`save_records`] into a file that exists.
    fn save_records_into(path: &Path, records: Receiver<Request>) -> RecordWriter {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        spawn_writer(path, records, move |records| {
            write_records(&mut BufWriter::new(file), records, &Redactor::default())
        })
        .unwrap()
    }

    #[test]
    fn what_ended_a_second_ago_survives_a_kill_and_a_cut_file() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::create(root.path(), &RunId::new("r"), Redactor::default()).unwrap();
        let measurement = plan().starts[0].cells[0].clone();
        let (sender, receiver) = sync_channel(8);
        store.save_partial(&measurement, receiver).unwrap();
        let record = requests().swap_remove(0);
        (0..3).for_each(|_| sender.send(record.clone()).unwrap());
        let folder = store.cell_dir(&measurement);
        let deadline = clock::now().plus(FLUSH_INTERVAL * 10);
        let survived = loop {
            let records = read_requests(&folder).unwrap();
            if records.len() == 3 || clock::now() > deadline {
                break records;
            }
            thread::sleep(FLUSH_INTERVAL / 20);
        };
        assert_eq!(survived, vec![record.clone(); 3]);
        let last_end_s = record.end_ns as f64 / 1e9;
        let expected = PartialProgress {
            requests: 3,
            last_end_s,
        };
        assert_eq!(partial_progress(&folder).unwrap(), expected);
        // The file is still being written; after a kill it looks like this, or is shorter.
        let path = folder.join(layout::PARTIAL);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
        assert!(read_requests(&folder).unwrap().len() < 4);
        drop(sender);
    }
}
