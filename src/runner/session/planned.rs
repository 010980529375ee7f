//! A run whose starts other processes measure. This host is not prepared for it: the run is planned here, what was measured elsewhere is merged into
//! it, and it is finished.

use std::path::PathBuf;
use std::sync::Arc;

use super::abort;
use super::answers;
use super::observer::{Notice, Observer};
use super::outcome::RunOutcome;
use super::plans::{RunPlans, count_measurements};
use super::preparation;
use super::request::RunRequest;
use super::resume;
use super::stored_reference;
use super::{SessionError, finished, open_store, run_outcome, write_plan, write_stored_answers};
use crate::base::secrets::Redactor;
use crate::base::text::error_chain;
use crate::plan::selection::select;
use crate::plan::{Plan, Start};
use crate::results::record::event::Event;
use crate::results::record::machine::Machine;
use crate::results::store::{self, Store};

/// A run whose folder exists and has the whole plan.
pub(crate) struct PlannedRun {
    plans: RunPlans,
    store: Arc<Store>,
    results: PathBuf,
    redactor: Redactor,
    repeat_failed: bool,
}

impl PlannedRun {
    /// Creates or reopens the folder of the run.
    pub(crate) fn open(mut request: RunRequest<'_>, observer: &dyn Observer) -> Result<Self, SessionError> {
        if request.resume.is_none() {
            for note in &request.matrix.notes {
                observer.notice(Notice::Matrix(note.clone()));
            }
        }
        let resumed = resume::find_resumed(&request)?;
        let plan = &mut request.matrix.plan;
        let stored = stored_reference::resolve(plan, &request.results, resumed.as_ref(), observer)?;
        let (_, redactor) = preparation::plan_secrets(plan, &request.environment, observer);
        let whole = plan.clone();
        if let Some(only) = &request.only {
            for note in select(plan, only)? {
                observer.notice(Notice::Note(note));
            }
        }
        let store = open_store(&request, &whole.matrix, resumed.as_ref(), &redactor)?;
        if resumed.is_some() {
            resume::confirm_replacement(&store, &whole, observer)?;
        }
        // The host that measures is known once the first start has been merged.
        let machine = store::Run::read(store.folder()).map_or_else(
            |_| Machine {
                tool: request.environment.tool.clone(),
                ..Machine::default()
            },
            |run| run.machine,
        );
        let run = Self {
            plans: RunPlans {
                whole,
                selected: request.matrix.plan,
            },
            store: Arc::new(store),
            results: request.results,
            redactor,
            repeat_failed: request.repeat_failed,
        };
        let written = write_plan(&run.store, &request.matrix.sources, &run.plans.whole, &machine)
            .and_then(|_| write_stored_answers(&run.store, stored.as_ref()));
        match written {
            Ok(()) => Ok(run),
            Err(error) => Err(run.abort_error(&error)),
        }
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The plan of the selected cells.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plans.selected
    }

    /// The whole plan.
    pub(crate) fn whole_plan(&self) -> &Plan {
        &self.plans.whole
    }

    /// The starts of the selected cells with what remains to be measured, in the order of the plan.
    pub(crate) fn remaining(&self) -> Result<Vec<Start>, SessionError> {
        let finished =
            finished(&self.store, &self.plans.selected).map_err(|error| self.abort_error(&error))?;
        Ok(resume::remaining(
            &self.plans.selected.starts,
            &finished,
            self.repeat_failed,
        ))
    }

    /// The event that the run began or was resumed, with this number of measurements to come.
    pub(crate) fn began(&self, open: usize) -> Event {
        let measurements = count_measurements(&self.plans.selected.starts);
        Event::RunBegan {
            run: self.store.run().clone(),
            matrix: self.plans.whole.matrix.clone(),
            measurements,
            finished: measurements - open,
        }
    }

    /// Counts the measurements. `unstopped` is the number of engines that could not be stopped.
    pub(crate) fn finish(&self, unstopped: usize) -> Result<RunOutcome, SessionError> {
        // The starts were judged without the others.
        answers::judge(&self.store, &self.plans.selected).map_err(|error| self.abort_error(&error))?;
        run_outcome(&self.store, &self.plans.selected, unstopped, false)
            .map_err(|error| self.abort_error(&error))
    }

    /// Creates the error of a run that cannot continue.
    pub(crate) fn abort_error(&self, reason: &(dyn std::error::Error + 'static)) -> SessionError {
        let reason = self.redactor.redact(&error_chain(reason)).into_owned();
        abort::abort(&self.store, &self.results, reason)
    }
}
