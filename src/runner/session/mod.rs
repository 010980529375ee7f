//! One run, from a request to its outcome: [`Session::open`], [`Session::run`], [`Session::finish`].
//!
//! A session reports to an observer while it opens and by events while it runs. It prints nothing and knows
//! no exit codes.

mod abort;
mod answers;
mod batches;
pub(crate) mod error;
pub(crate) mod examination;
pub(crate) mod gpus;
pub(crate) mod observer;
pub(crate) mod outcome;
pub(crate) mod planned;
mod plans;
mod preparation;
pub(crate) mod request;
mod resume;
mod stored_reference;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::base::ids::RunId;
use crate::base::secrets::Redactor;
use crate::base::text::error_chain;
use crate::base::threads::{self, InterruptibleRuntime};
use crate::config::yaml::Source;
use crate::engine;
use crate::plan::selection::select;
use crate::plan::{Measurement, Plan};
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::event::Event;
use crate::results::record::machine::Machine;
use crate::results::record::stored_answers::StoredAnswers;
use crate::results::store::{self, Journal, RunManifest, Store};
use crate::runner::check_flags;
use crate::runner::context::{EventBus, HostEnv};
use crate::runner::gpu_lock::GpuLock;
use crate::runner::session::batches::{BatchError, BatchRunner, RunTotals};
use crate::runner::session::error::{ResumeError, SessionError};
use crate::runner::session::observer::{Notice, Observer};
use crate::runner::session::outcome::{MeasurementCounts, RunOutcome};
use crate::runner::session::plans::{Batch, RunPlans, count_measurements};
use crate::runner::session::preparation::PreparedHost;
use crate::runner::session::request::{ExtraStarts, RunRequest};
use crate::runner::shutdown::Shutdown;

/// A run whose folder exists, on a host that is ready.
pub(crate) struct Session<'a> {
    // The runtime is the first field, because fields are dropped in order: no task may outlive what it uses.
    runtime: InterruptibleRuntime,
    plans: RunPlans,
    /// The planned starts that are not finished.
    first_batch: Option<Batch>,
    sources: Vec<Source>,
    results: PathBuf,
    extra_starts: ExtraStarts<'a>,
    retry_invalid: u32,
    calibrate: bool,
    host: HostEnv,
    store: Arc<Store>,
    events: EventBus,
    shutdown: Shutdown,
    /// Orphans of earlier runs that this run removed.
    removed: Vec<String>,
    /// Engines that could not be stopped.
    unstopped: usize,
    _gpu_lock: Option<GpuLock>,
}

impl<'a> Session<'a> {
    /// Checks the request and the host, and creates or reopens the run's folder. On failure no engine was
    /// started.
    pub(crate) fn open(mut request: RunRequest<'a>, observer: &dyn Observer) -> Result<Self, SessionError> {
        // A resumed run reported its notes when it began.
        if request.resume.is_none() {
            for note in &request.matrix.notes {
                observer.notice(Notice::Matrix(note.clone()));
            }
        }
        let resumed = resume::find_resumed(&request)?;
        let earlier = resumed
            .as_ref()
            .and_then(|run| store::read_plan(&request.results.join(run.as_str())).ok());
        let plan = &mut request.matrix.plan;
        request.extra_starts.prepare(plan, earlier.as_ref());
        let stored = stored_reference::resolve(plan, &request.results, resumed.as_ref(), observer)?;
        let (secrets, redactor) = preparation::plan_secrets(plan, &request.environment, observer);
        let whole = plan.clone();
        if let Some(only) = &request.only {
            for note in select(plan, only)? {
                observer.notice(Notice::Note(note));
            }
        }
        let runtime = threads::runtime()?;
        check_flags(&request, observer)?;
        let host = preparation::host_env(&request, secrets, redactor.clone(), observer)?;
        let mut selected = request.matrix.plan.clone();
        let prepared = runtime.block_on(preparation::prepare(host, &mut selected, &request, observer))?;
        let store = open_store(&request, &whole.matrix, resumed.as_ref(), &redactor)?;
        if resumed.is_some() {
            resume::confirm_replacement(&store, &whole, observer)?;
        }
        let PreparedHost {
            host,
            removed,
            gpu_lock,
        } = prepared;
        let mut session = Self {
            runtime,
            plans: RunPlans { whole, selected },
            first_batch: None,
            sources: request.matrix.sources,
            results: request.results,
            extra_starts: request.extra_starts,
            retry_invalid: request.retry_invalid,
            calibrate: request.calibrate,
            host: HostEnv {
                run: store.run().clone(),
                ..host
            },
            store: Arc::new(store),
            events: EventBus::new(redactor),
            shutdown: Shutdown::default(),
            removed,
            unstopped: 0,
            _gpu_lock: gpu_lock,
        };
        match session.begin(request.repeat_failed, stored.as_ref()) {
            Ok(()) => Ok(session),
            Err(error) => Err(session.abort_error(&error)),
        }
    }

    /// Writes the files of the run and plans its first batch.
    fn begin(&mut self, repeat_failed: bool, stored: Option<&StoredAnswers>) -> Result<(), BatchError> {
        let finished = write_plan(&self.store, &self.sources, &self.plans.whole, &self.host.machine)?;
        write_stored_answers(&self.store, stored)?;
        // Keep the images with which the run began, even if their names now refer to other images.
        for summary in finished.values() {
            let mut launches = self.plans.whole.launches.iter();
            let launch = launches.find(|launch| launch.id == summary.launch);
            if let Some(image) = launch.and_then(engine::image_name)
                && let Some(digest) = &summary.engine.image_digest
            {
                self.host.images.pin_digest(image, digest);
            }
        }
        let selected = &self.plans.selected;
        self.first_batch = Some(Batch {
            plan: selected.clone(),
            starts: resume::remaining(&selected.starts, &finished, repeat_failed),
        });
        let journal = self
            .store
            .journal()
            .map_err(BatchError::store("cannot open the journal"))?;
        self.events.subscribe(journal_listener(journal));
        Ok(())
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The plan of the selected cells.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plans.selected
    }

    /// The measurements of the first batch.
    pub(crate) fn open_measurements(&self) -> BTreeSet<&Measurement> {
        let starts = self.first_batch.iter().flat_map(|batch| &batch.starts);
        starts.flat_map(|start| &start.cells).collect()
    }

    pub(crate) fn listen(&mut self, listener: impl Fn(&Event) + Send + Sync + 'static) {
        self.events.subscribe(listener);
    }

    /// Runs the planned starts, then extra starts in batches, until there are no more or a signal stops the
    /// run. Fails if results cannot be saved.
    pub(crate) fn run(&mut self) -> Result<(), SessionError> {
        let Some(first) = self.first_batch.take() else {
            return Ok(());
        };
        let planned = count_measurements(&self.plans.selected.starts);
        let totals = RunTotals {
            finished: planned - first.measurement_count(),
            total: planned,
        };
        let runner = BatchRunner {
            store: &self.store,
            host: &self.host,
            events: &self.events,
            shutdown: &self.shutdown,
            retry_invalid: self.retry_invalid,
        };
        let (plans, extra_starts) = (&mut self.plans, self.extra_starts);
        let (store, sources, host) = (&self.store, &self.sources, &self.host);
        let mut add_starts = || add_starts(plans, extra_starts, store, sources, host);
        let removed = std::mem::take(&mut self.removed);
        let ran = self.runtime.block_on(runner.run_with_signals(
            first,
            removed,
            totals,
            self.calibrate,
            &mut add_starts,
        ));
        match ran {
            Ok(unstopped) => {
                self.unstopped = unstopped;
                Ok(())
            }
            Err(error) => Err(self.abort_error(&error)),
        }
    }

    /// Completes the files of the run and counts its measurements.
    pub(crate) fn finish(&self) -> Result<RunOutcome, SessionError> {
        let is_interrupted = self.shutdown.is_requested();
        run_outcome(&self.store, &self.plans.selected, self.unstopped, is_interrupted)
            .map_err(|error| self.abort_error(&error))
    }

    /// Creates the error of a run that cannot continue. Removes the run's folder if it has no `run.json` yet.
    pub(crate) fn abort_error(&self, reason: &(dyn std::error::Error + 'static)) -> SessionError {
        let reason = self.host.redactor.redact(&error_chain(reason)).into_owned();
        abort::abort(&self.store, &self.results, reason)
    }
}

/// The run that a request resumes; `None` for a new run.
pub(crate) fn resumed_run(request: &RunRequest<'_>) -> Result<Option<RunId>, SessionError> {
    resume::find_resumed(request)
}

/// Checks the flags of the selected launches against the engines' `--help`.
fn check_flags(request: &RunRequest<'_>, observer: &dyn Observer) -> Result<(), SessionError> {
    let checked = check_flags::check(&request.matrix, &request.environment, &request.dirs.cache)?;
    for note in checked.notes {
        observer.notice(Notice::Note(note));
    }
    match checked.unknown.is_empty() {
        true => Ok(()),
        false => Err(SessionError::UnknownFlags {
            diagnostics: checked.unknown,
            sources: request.matrix.sources.clone(),
        }),
    }
}

/// Opens the store of a new run or of the resumed run.
fn open_store(
    request: &RunRequest<'_>,
    matrix: &str,
    resumed: Option<&RunId>,
    redactor: &Redactor,
) -> Result<Store, SessionError> {
    let store = match resumed {
        Some(run) => Store::open(&request.results, run, redactor.clone()).map_err(ResumeError::Store)?,
        None => Store::create_new(&request.results, matrix, redactor).map_err(SessionError::Results)?,
    };
    let of_job = |name| request.environment.variable(name);
    if let (Some(job), Some(node)) = (of_job("SLURM_JOB_ID"), of_job("SLURMD_NODENAME")) {
        let place = format!("job {job} on {node}");
        store.note_place(&place).map_err(SessionError::Results)?;
    }
    Ok(store)
}

/// Writes the plan and its sources; returns the finished measurements.
fn write_plan(
    store: &Store,
    sources: &[Source],
    plan: &Plan,
    machine: &Machine,
) -> Result<BTreeMap<Measurement, MeasurementSummary>, BatchError> {
    let recipes = sources[1..]
        .iter()
        .filter_map(|source| {
            let file = source.name.trim_end_matches(" (shipped)");
            let name = Path::new(file).file_stem()?.to_string_lossy().into_owned();
            Some((name, source.text.to_string()))
        })
        .collect();
    let beginning = RunManifest {
        source: &sources[0].text,
        recipes: &recipes,
        plan,
        machine,
    };
    store
        .begin_run(&beginning)
        .map_err(BatchError::store("cannot create the run"))?;
    finished(store, plan)
}

/// Writes the answers of the stored run with which those of this run are compared.
fn write_stored_answers(store: &Store, answers: Option<&StoredAnswers>) -> Result<(), BatchError> {
    let Some(answers) = answers else { return Ok(()) };
    let written = store.write_stored_answers(answers);
    written.map_err(BatchError::store("cannot copy the answers of the stored run"))
}

fn finished(store: &Store, plan: &Plan) -> Result<BTreeMap<Measurement, MeasurementSummary>, BatchError> {
    store
        .finished(plan)
        .map_err(BatchError::store("cannot read the finished measurements"))
}

/// Completes the files of a run and counts its measurements.
fn run_outcome(
    store: &Store,
    selected: &Plan,
    unstopped: usize,
    is_interrupted: bool,
) -> Result<RunOutcome, BatchError> {
    store
        .restore_run_info()
        .map_err(BatchError::store("cannot write `run.json` again"))?;
    let finished = finished(store, selected)?;
    Ok(RunOutcome {
        run: store.run().clone(),
        folder: store.folder().to_owned(),
        measurements: MeasurementCounts::of(finished.values(), count_measurements(&selected.starts)),
        unstopped,
        is_interrupted,
    })
}

/// Plans the next batch from the results so far; `None` if no starts are added.
fn add_starts(
    plans: &mut RunPlans,
    extra_starts: ExtraStarts<'_>,
    store: &Store,
    sources: &[Source],
    host: &HostEnv,
) -> Result<Option<Batch>, BatchError> {
    if !extra_starts.may_add(&plans.whole) {
        return Ok(None);
    }
    let run =
        store::Run::read(store.folder()).map_err(BatchError::store("cannot read the results of the run"))?;
    let added = plans.add_starts(extra_starts.choose(&run));
    if added.is_empty() {
        return Ok(None);
    }
    let finished = write_plan(store, sources, &plans.whole, &host.machine)?;
    Ok(Some(Batch {
        plan: plans.selected.clone(),
        // An interrupted run may have measured some of them.
        starts: resume::remaining(&added, &finished, false),
    }))
}

/// Writes all events except progress to the log and the journal.
fn journal_listener(journal: Journal) -> impl Fn(&Event) + Send + Sync + 'static {
    let journal = Mutex::new(journal);
    move |event| {
        if !event.is_persisted() {
            return;
        }
        tracing::info!("{}", serde_json::to_string(event).expect("events are JSON"));
        let written = journal
            .lock()
            .expect("writing the journal does not panic")
            .append(event);
        if let Err(error) = written {
            tracing::error!("cannot write the journal: {error}");
        }
    }
}
