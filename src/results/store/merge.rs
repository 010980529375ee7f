//! Merges runs that measured a part of a plan into the run of the whole plan. A merge that was interrupted is repeated and adds
//! nothing twice.

use std::fs;
use std::io;
use std::path::Path;

use super::backup::{move_to_backup, replace_with_backup};
use super::error::{IoContext, Result, StoreError};
use super::files::{open_regular_file, read_json};
use super::journal::{Journal, JournalLine, read_journal};
use super::writer::Store;
use super::{atomic, layout};
use crate::plan::{Measurement, Plan};
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::client::Calibration;
use crate::results::record::event::Event;
use crate::results::record::machine::Machine;

/// What a merge added.
#[derive(Debug, Default)]
pub(crate) struct MergedPart {
    pub(crate) summaries: Vec<MeasurementSummary>,
    /// The events of the part, except those of its run.
    pub(crate) events: Vec<JournalLine>,
    /// Measurements of cells that the plan defines differently, which were left out.
    pub(crate) outdated: Vec<Measurement>,
}

/// The right to merge parts into a run.
#[derive(Debug)]
pub(crate) struct Merger<'a> {
    store: &'a Store,
    plan: &'a Plan,
    /// The events that the journal of the run has, with their times.
    known: Vec<(String, Event)>,
    journal: Journal,
}

impl<'a> Merger<'a> {
    pub(crate) fn open(store: &'a Store, plan: &'a Plan) -> Result<Self> {
        let path = store.folder().join(layout::JOURNAL);
        let known = read_journal(&path).io_context("read", &path)?.events;
        Ok(Self {
            store,
            plan,
            known,
            journal: store.journal()?,
        })
    }

    /// Journals an event of the whole run.
    pub(crate) fn note(&mut self, event: &Event) -> Result<()> {
        self.journal.append(event)
    }

    /// Merges the finished measurements of the run in `part`: files of its start, measurements, then events.
    pub(crate) fn merge(&mut self, part: &Path, measurements: &[Measurement]) -> Result<MergedPart> {
        self.store.check_place()?;
        let mut merged = MergedPart::default();
        let machine: Machine = read_json(&part.join(layout::MACHINE), "the machine is unknown")?;
        self.merge_machine(&machine)?;
        self.merge_calibration(part)?;
        for measurement in measurements {
            self.merge_launch(part, measurement)?;
            self.merge_cell(part, measurement, &machine, &mut merged)?;
        }
        let path = part.join(layout::JOURNAL);
        let events = read_journal(&path).io_context("read", &path)?.events;
        for (at, event) in events {
            let is_of_part = matches!(event, Event::RunBegan { .. } | Event::RunEnded { .. });
            if is_of_part
                || self
                    .known
                    .iter()
                    .any(|(known_at, known)| *known_at == at && *known == event)
            {
                continue;
            }
            let line = JournalLine { at, event };
            self.journal.append_line(&line)?;
            self.known.push((line.at.clone(), line.event.clone()));
            merged.events.push(line);
        }
        Ok(merged)
    }

    /// The host of the first part is that of the run; each measurement has its own.
    fn merge_machine(&self, machine: &Machine) -> Result<()> {
        let path = self.store.folder().join(layout::MACHINE);
        let known: Machine = read_json(&path, "the machine is unknown").unwrap_or_default();
        match known.host.is_none() && known.node.is_none() {
            true => {
                atomic::write(&path, self.store.to_pretty_json(machine).as_bytes()).io_context("write", &path)
            }
            false => Ok(()),
        }
    }

    fn merge_calibration(&self, part: &Path) -> Result<()> {
        if self.store.folder().join(layout::CALIBRATION).exists() {
            return Ok(());
        }
        match read_json::<Calibration>(&part.join(layout::CALIBRATION), "") {
            Ok(calibration) => self.store.write_calibration(&calibration),
            Err(StoreError::Missing { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Copies the logs of the start. A different log of an earlier job of this start is kept.
    fn merge_launch(&self, part: &Path, measurement: &Measurement) -> Result<()> {
        let launch = &self.plan.cell(&measurement.cell).launch;
        let name = layout::launch_folder(launch, measurement.start, self.store.redactor());
        let (from, to) = [part, self.store.folder()]
            .map(|run| run.join(layout::LAUNCHES).join(&name))
            .into();
        let entries = match fs::read_dir(&from) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.io_context("list", &from)?,
        };
        self.store.create_folder(&to)?;
        for entry in entries {
            let path = entry.io_context("list", &from)?.path();
            let Some(name) = path.file_name().filter(|_| path.is_file()) else {
                continue;
            };
            let text = fs::read(&path).io_context("read", &path)?;
            replace_with_backup(&to.join(name), &String::from_utf8_lossy(&text))?;
        }
        Ok(())
    }

    fn merge_cell(
        &self,
        part: &Path,
        measurement: &Measurement,
        machine: &Machine,
        merged: &mut MergedPart,
    ) -> Result<()> {
        let name = layout::cell_folder(measurement, self.store.redactor());
        let from = part.join(layout::CELLS).join(name);
        let mut summary: MeasurementSummary = match read_json(&from.join(layout::SUMMARY), "") {
            Ok(summary) => summary,
            Err(StoreError::Missing { .. } | StoreError::Malformed { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let redact = |text: &str| self.store.redactor().redact(text).into_owned();
        let planned = &self.plan.cell(&measurement.cell).content;
        if redact(summary.content.as_str()) != redact(planned.as_str()) {
            merged.outdated.push(measurement.clone());
            return Ok(());
        }
        // A job that continued on another node has noted the earlier one.
        summary.machine.get_or_insert_with(|| Box::new(machine.clone()));
        let to = self.store.cell_dir(measurement);
        if let Ok(known) = read_json::<MeasurementSummary>(&to.join(layout::SUMMARY), "") {
            // An interrupted merge had written it.
            if (&known.began, &known.ended, &known.machine)
                == (&summary.began, &summary.ended, &summary.machine)
            {
                return Ok(());
            }
            move_to_backup(&to)?;
        }
        self.store.create_folder(&to)?;
        for entry in fs::read_dir(&from).io_context("list", &from)? {
            let path = entry.io_context("list", &from)?.path();
            let Some(name) = path.file_name().filter(|_| path.is_file()) else {
                continue;
            };
            if name != layout::SUMMARY && name != layout::PARTIAL {
                copy(&path, &to.join(name))?;
            }
        }
        let path = to.join(layout::SUMMARY);
        atomic::write(&path, self.store.to_pretty_json(&summary).as_bytes()).io_context("write", &path)?;
        let cells = self.store.folder().join(layout::CELLS);
        atomic::sync_folder(&cells).io_context("sync", &cells)?;
        merged.summaries.push(summary);
        Ok(())
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut source = open_regular_file(from).io_context("read", from)?;
    atomic::write_with(to, |file| io::copy(&mut source, file).map(drop)).io_context("write", to)
}
