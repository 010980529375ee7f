//! Records of a measurement that is under way, written as requests end: a crash loses about a second of them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::clean::{Form, json};
use super::writer::{LEVEL, set_aside};
use super::{Result, Store, Tried, layout};
use crate::base::clock;
use crate::base::secrets::Redactor;
use crate::matrix::plan::Measurement;
use crate::results::record::request::Request;

/// How long records may wait in memory.
const FLUSH: Duration = Duration::from_secs(1);

impl Store {
    /// Keeps the records that `records` brings until its other end is gone, on a thread of its own. What an earlier try left is set aside;
    /// all of it goes when the measurement is written.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn keep_partial(&self, measurement: &Measurement, records: Receiver<Request>) -> Result<()> {
        let folder = self.cell_dir(measurement);
        fs::create_dir_all(&folder).tried("make the folder", &folder)?;
        let path = folder.join(layout::PARTIAL);
        if path.exists() {
            set_aside(&path)?;
        }
        let file = File::create(&path).tried("make", &path)?;
        let redactor = self.redactor().clone();
        let work = move || {
            // A disk that is full is told when the measurement is written.
            let _ = keep(file, &records, &redactor);
        };
        thread::Builder::new()
            .name("records".to_owned())
            .spawn(work)
            .tried("keep records in", &path)?;
        Ok(())
    }
}

fn keep(file: File, records: &Receiver<Request>, redactor: &Redactor) -> std::io::Result<()> {
    let mut lines = zstd::Encoder::new(file, LEVEL)?;
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
    lines.finish()?.flush()
}

/// The records of a measurement that was not finished, in the order in which they ended: as many as were written before it broke off.
///
/// # Errors
/// There are none, or the disk refuses.
pub fn read(folder: &Path) -> Result<Vec<Request>> {
    let path = folder.join(layout::PARTIAL);
    let file = File::open(&path).tried("open", &path)?;
    let lines = zstd::Decoder::new(file).tried("read", &path)?;
    // The last line, and the end of the compressed stream, may be cut.
    let lines = BufReader::new(lines).lines().map_while(std::io::Result::ok);
    Ok(lines.map_while(|line| serde_json::from_str(&line).ok()).collect())
}

#[cfg(test)]
mod tests {
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
        assert_eq!(survived, vec![record; 3]);
        // The writer still has the file: a kill leaves it like this, or shorter.
        let path = folder.join(layout::PARTIAL);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
        assert!(read(&folder).unwrap().len() < 4);
        drop(sender);
    }
}
