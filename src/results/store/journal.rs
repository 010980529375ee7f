//! The journal: one event per line, append-only. Each line is synced to disk before the caller continues.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::{IoContext, Result};
use super::files::open_regular_file;
use super::redact_json::{JsonLayout, to_redacted_json};
use crate::base::clock;
use crate::base::private_files::open_file;
use crate::base::secrets::Redactor;
use crate::results::record::event::Event;

#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    /// Length of the complete lines in bytes.
    length: u64,
    redactor: Redactor,
}

impl Journal {
    /// Opens the journal for appending. An incomplete last line of a killed process is cut off.
    pub(super) fn open(path: PathBuf, redactor: Redactor) -> Result<Self> {
        let file =
            open_file(OpenOptions::new().create(true).append(true), &path).io_context("open", &path)?;
        let text = std::fs::read(&path).io_context("read", &path)?;
        let length = complete_lines(&text).len() as u64;
        if length < text.len() as u64 {
            file.set_len(length)
                .and_then(|()| file.sync_all())
                .io_context("truncate the end of", &path)?;
        }
        Ok(Self {
            file,
            path,
            length,
            redactor,
        })
    }

    /// Appends an event with the current time and syncs it. Progress events are left out
    /// ([`Event::is_persisted`]). On failure the journal keeps its previous content.
    pub(crate) fn append(&mut self, event: &Event) -> Result<()> {
        if !event.is_persisted() {
            return Ok(());
        }
        self.append_line(&JournalLine::now(event))
    }

    /// Appends an event with the time at which another process journaled it.
    pub(super) fn append_line(&mut self, line: &JournalLine) -> Result<()> {
        let text = to_redacted_json(line, JsonLayout::Line, &self.redactor);
        let written = self
            .file
            .write_all(text.as_bytes())
            .and_then(|()| self.file.sync_data());
        match written {
            Ok(()) => self.length += text.len() as u64,
            Err(error) => {
                // Half a line would corrupt the next one. If truncating fails too, the next opening cuts it
                // off.
                let _ = self.file.set_len(self.length);
                return Err(error).io_context("append to", &self.path);
            }
        }
        Ok(())
    }
}

/// Everything up to the last line end.
fn complete_lines(text: &[u8]) -> &[u8] {
    let end = text
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |last| last + 1);
    &text[..end]
}

/// Content of a journal.
#[derive(Debug, Default)]
pub(crate) struct JournalContents {
    /// Events with their times.
    pub(crate) events: Vec<(String, Event)>,
    /// Lines that could not be read, and the reason.
    pub(crate) warnings: Vec<String>,
}

/// Reads a journal. An incomplete last line is ignored.
pub(crate) fn read_journal(path: &Path) -> io::Result<JournalContents> {
    let mut text = Vec::new();
    open_regular_file(path)?.read_to_end(&mut text)?;
    let mut contents = JournalContents::default();
    for (index, line) in complete_lines(&text)
        .split_inclusive(|byte| *byte == b'\n')
        .enumerate()
    {
        match serde_json::from_slice::<JournalLine>(line) {
            Ok(line) => contents.events.push((line.at, line.event)),
            Err(error) => {
                contents
                    .warnings
                    .push(format!("`{}`:{}: ignored: {error}", path.display(), index + 1))
            }
        }
    }
    Ok(contents)
}

/// An event with its time. Its JSON has the event's fields after `at`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "Value", try_from = "Value")]
pub(crate) struct JournalLine {
    pub(super) at: String,
    pub(super) event: Event,
}

impl JournalLine {
    /// Adds the current time to an event.
    pub(crate) fn now(event: &Event) -> Self {
        Self {
            at: clock::timestamp(),
            event: event.clone(),
        }
    }
}

impl From<JournalLine> for Value {
    fn from(line: JournalLine) -> Self {
        let mut fields = Map::from_iter([("at".to_owned(), Value::String(line.at))]);
        if let Ok(Value::Object(event)) = serde_json::to_value(line.event) {
            fields.extend(event);
        }
        Value::Object(fields)
    }
}

impl TryFrom<Value> for JournalLine {
    type Error = String;

    fn try_from(mut value: Value) -> std::result::Result<Self, String> {
        let at = match value.as_object_mut().and_then(|fields| fields.shift_remove("at")) {
            Some(Value::String(at)) => at,
            _ => {
                return Err(
                    "the field `at` (the time of the event) is missing or is not a string".to_owned(),
                );
            }
        };
        let event = serde_json::from_value(value).map_err(|error| error.to_string())?;
        Ok(Self { at, event })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(message: &str) -> Event {
        Event::Note {
            message: message.to_owned(),
        }
    }

    fn events(path: &Path) -> Vec<Event> {
        let JournalContents { events, warnings } = read_journal(path).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        events.into_iter().map(|(_, event)| event).collect()
    }

    #[test]
    fn a_journal_torn_at_any_byte_of_its_last_line_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let mut journal = Journal::open(path.clone(), Redactor::default()).unwrap();
        journal.append(&note("first")).unwrap();
        let first = std::fs::read(&path).unwrap().len();
        journal.append(&note("second, é")).unwrap();
        drop(journal);
        let all = std::fs::read(&path).unwrap();
        assert!(all.len() > first + 20);
        for end in first..all.len() {
            std::fs::write(&path, &all[..end]).unwrap();
            assert_eq!(events(&path), [note("first")], "read at {end}");
            let mut journal = Journal::open(path.clone(), Redactor::default()).unwrap();
            journal.append(&note("third")).unwrap();
            assert_eq!(events(&path), [note("first"), note("third")], "appended at {end}");
        }
    }

    #[test]
    fn a_file_that_lost_its_bytes_in_a_power_cut_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        std::fs::write(&path, [0; 100]).unwrap();
        let mut journal = Journal::open(path.clone(), Redactor::default()).unwrap();
        journal.append(&note("a")).unwrap();
        assert_eq!(events(&path), [note("a")]);
    }

    #[test]
    fn an_event_of_a_later_version_is_passed_over_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let lines = "{\"at\":\"t\",\"event\":\"dreamt\"}\n{\"at\":\"t\",\"event\":\"note\",\"message\":\"m\",\"more\":1}\n";
        std::fs::write(&path, lines).unwrap();
        let JournalContents { events, warnings } = read_journal(&path).unwrap();
        assert_eq!(events, [("t".to_owned(), note("m"))]);
        assert!(
            warnings.len() == 1 && warnings[0].contains("journal.jsonl`:1: "),
            "{warnings:?}"
        );
    }

    #[test]
    fn progress_is_not_kept_and_a_line_is_flat() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.jsonl");
        let mut journal = Journal::open(path.clone(), Redactor::new(["hunter2"])).unwrap();
        journal
            .append(&Event::LaunchProgress {
                launch: crate::base::ids::LaunchId::new("a"),
                phase: "weights".to_owned(),
                elapsed_s: 1.0,
                last_line: String::new(),
            })
            .unwrap();
        journal.append(&note("key hunter2")).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let line: Value = serde_json::from_str(&text).unwrap();
        let keys: Vec<&String> = line.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["at", "event", "message"]);
        assert_eq!(line["message"], "key ***");
    }
}
