//! Records of a measurement that is under way, written as requests end: a crash loses about a second of them.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::redact_json::{Form, json};
use super::writer::{LEVEL, set_aside};
use super::{Result, Store, Tried, layout};
use crate::base::clock;
use crate::base::own::open_file;
use crate::base::secrets::Redactor;
use crate::plan::Measurement;
use crate::results::record::request::Request;

/// How long records may wait in memory.
const FLUSH: Duration = Duration::from_secs(1);

impl Store {
    /// Keeps the records that `records` brings until its other end is gone, on a thread of its own. What an earlier try left is set aside;
    /// all of it goes when the measurement is written.
    ///
    /// # Errors
    /// The disk refuses.
    pub(crate) fn keep_partial(&self, measurement: &Measurement, records: Receiver<Request>) -> Result<()> {
        let folder = self.cell_dir(measurement);
        self.make(&folder)?;
        let path = folder.join(layout::PARTIAL);
        if path.exists() {
            set_aside(&path)?;
        }
        let file = create(&path)?;
        let redactor = self.redactor().clone();
        beside(&path, move || {
            let mut lines = zstd::Encoder::new(file, LEVEL)?;
            keep(&mut lines, &records, &redactor)?;
            lines.finish()?.flush()
        })
    }
}

/// Keeps the records that `records` brings until its other end is gone, as lines of JSON without secrets in a file of its own, on a thread of its own.
/// A file of that name that an earlier load left is set aside.
///
/// # Errors
/// The disk refuses.
pub(crate) fn keep_at(path: &Path, records: Receiver<Request>, redactor: Redactor) -> Result<()> {
    if path.exists() {
        set_aside(path)?;
    }
    let file = create(path)?;
    beside(path, move || keep(&mut BufWriter::new(file), &records, &redactor))
}

fn create(path: &Path) -> Result<File> {
    open_file(OpenOptions::new().write(true).create(true).truncate(true), path).tried("make", path)
}

/// Runs `work` on a thread of its own. A disk that is full is reported when the measurement is written.
fn beside(path: &Path, work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<()> {
    let spawned = thread::Builder::new()
        .name("records".to_owned())
        .spawn(move || drop(work()));
    spawned.map(drop).tried("keep records in", path)
}

fn keep(lines: &mut impl Write, records: &Receiver<Request>, redactor: &Redactor) -> io::Result<()> {
    let mut flushed = clock::now();
    let mut is_new = false;
    loop {
        match records.recv_timeout(FLUSH) {
            Ok(record) => {
                lines.write_all(json(&record, Form::Line, redactor).as_bytes())?;
                is_new = true;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if is_new && clock::now().since(flushed) >= FLUSH {
            lines.flush()?;
            (flushed, is_new) = (clock::now(), false);
        }
    }
    lines.flush()
}

/// The records of a measurement that was not finished, in the order in which they ended: as many as were written before it broke off.
///
/// # Errors
/// There are none, or the disk refuses.
pub fn read(folder: &Path) -> Result<Vec<Request>> {
    let lines = lines(folder)?;
    Ok(lines.map_while(|line| serde_json::from_str(&line).ok()).collect())
}

/// The lines that can be read. The last one, and the end of the compressed stream, may be cut.
fn lines(folder: &Path) -> Result<impl Iterator<Item = String>> {
    let path = folder.join(layout::PARTIAL);
    let file = File::open(&path).tried("open", &path)?;
    let lines = zstd::Decoder::new(file).tried("read", &path)?;
    Ok(BufReader::new(lines).lines().map_while(io::Result::ok))
}

/// How far a measurement came that was not finished.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Reached {
    /// Requests whose records can be read.
    pub requests: usize,
    /// When the last of them ended, in seconds after the load began.
    pub last_end_s: f64,
}

/// How far a measurement came that was not finished, by the records that can be read; they are not held in memory together.
///
/// # Errors
/// There are none, or the disk refuses.
pub(crate) fn reached(folder: &Path) -> Result<Reached> {
    #[derive(serde::Deserialize)]
    struct Ended {
        end_ns: u64,
    }
    let mut reached = Reached::default();
    for line in lines(folder)? {
        let Ok(Ended { end_ns }) = serde_json::from_str(&line) else {
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
    fn what_ended_a_second_ago_survives_a_kill_and_a_cut_file() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::create(root.path(), &RunId::new("r"), Redactor::default()).unwrap();
        let measurement = plan().starts[0].cells[0].clone();
        let (sender, receiver) = sync_channel(8);
        store.keep_partial(&measurement, receiver).unwrap();
        let record = requests().swap_remove(0);
        (0..3).for_each(|_| sender.send(record.clone()).unwrap());
        let folder = store.cell_dir(&measurement);
        let deadline = clock::now().plus(FLUSH * 10);
        let survived = loop {
            let records = read(&folder).unwrap();
            if records.len() == 3 || clock::now() > deadline {
                break records;
            }
            thread::sleep(FLUSH / 20);
        };
        assert_eq!(survived, vec![record.clone(); 3]);
        let last_end_s = record.end_ns as f64 / 1e9;
        let expected = Reached {
            requests: 3,
            last_end_s,
        };
        assert_eq!(reached(&folder).unwrap(), expected);
        // The writer still has the file: a kill leaves it like this, or shorter.
        let path = folder.join(layout::PARTIAL);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
        assert!(read(&folder).unwrap().len() < 4);
        drop(sender);
    }
}
