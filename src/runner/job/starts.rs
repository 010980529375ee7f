//! Runs a matrix as jobs of which each measures one start. This side plans the run, submits the jobs in the order of the plan, merges what each has
//! measured once it has ended, and holds nothing that their folders do not hold: it can be killed at any time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};

use super::folder::{JobFolder, QuotedError, record_run};
use super::follow::POLL_INTERVAL;
use super::notice::JobNotice;
use super::start_folder;
use super::{FILE_INTERVAL, JobError, JobRequest, Signals, cancel_command, submit_in};
use crate::base::clock;
use crate::base::text::pluralize;
use crate::base::threads::InterruptibleRuntime;
use crate::config::cluster::{ClusterProfile, JobPer};
use crate::plan::job::{Job, TIME_LIMIT_NEAR, size_of};
use crate::plan::{Measurement, Plan, Start};
use crate::results::record::cell::MeasurementStatus;
use crate::results::record::event::Event;
use crate::results::store::{MergedPart, Merger, StoreError};
use crate::runner::session::error::SessionError;
use crate::runner::session::planned::PlannedRun;
use crate::runner::shutdown::Handler;
use crate::slurm::{self, JobEnd, JobId, JobStatus, SlurmError};

/// Largest number of folders of jobs that one look reads, because file systems that nodes share are slow.
const FOLDERS_PER_LOOK: usize = 50;
/// Exit code of a run of which cells failed or engines were not stopped.
const CELL_FAILED: u8 = 3;
/// Number of starts that ended before they measured, for the same cause, after which no more jobs are submitted.
const MAX_NOT_READY: usize = 2;
/// Number of lines that are quoted of what a job said.
const QUOTED_LINES: usize = 3;

/// What the jobs of a run need besides the request that they share.
pub(crate) struct StartJobs<'a> {
    pub(crate) request: &'a JobRequest<'a>,
    pub(crate) run: &'a PlannedRun,
    /// The profile of the job that measures a part of the plan.
    pub(crate) profile_of: &'a dyn Fn(&Plan) -> ClusterProfile,
    pub(crate) notice: &'a dyn Fn(JobNotice<'_>),
    /// Called with all that is added to the run.
    pub(crate) on_merge: &'a dyn Fn(&MergedPart),
}

/// Why jobs are no longer followed.
pub(crate) enum StartsOutcome {
    Ended {
        /// Jobs that could not stop their engine.
        unstopped: usize,
        /// Jobs that did not measure all of their cells, and why.
        lost: Vec<String>,
        /// Why no job could begin to measure, if that is what became of all.
        not_ready: Option<QuotedError>,
    },
    /// A signal stopped this side; the jobs continue.
    Detached {
        jobs: usize,
        waiting: usize,
        /// The command that ends them.
        cancel: String,
        /// Answers the signal until the command has said what becomes of the jobs.
        handler: Handler,
    },
}

#[derive(Debug, Error)]
pub(crate) enum StartsError {
    #[error(transparent)]
    Job(#[from] JobError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<SlurmError> for StartsError {
    fn from(error: SlurmError) -> Self {
        Self::Job(error.into())
    }
}

/// A job that has not ended, as far as this side knows.
struct Active {
    folder: JobFolder,
    start: Start,
    job: Option<JobId>,
    state: String,
    /// Where it runs or ran last.
    nodes: Option<String>,
}

struct Follower<'a> {
    jobs: &'a StartJobs<'a>,
    merger: Merger<'a>,
    submission: Option<JobFolder>,
    submitted: usize,
    /// Number of folders of jobs in this submission.
    tries: usize,
    max: usize,
    waiting: VecDeque<Start>,
    active: Vec<Active>,
    ended: usize,
    unstopped: usize,
    lost: Vec<String>,
    /// What the nodes of jobs lacked that ended before they measured.
    not_ready: Vec<QuotedError>,
    /// The next folder that a look reads.
    next_look: usize,
    last_states: String,
    warnings: BTreeSet<String>,
    /// Nothing is submitted before, because the controller did not respond.
    submit_after: Instant,
}

/// Submits a job for each start that remains, merges what they measure, and returns when all have ended.
pub(crate) fn run_starts(
    runtime: &InterruptibleRuntime,
    jobs: &StartJobs<'_>,
) -> Result<StartsOutcome, StartsError> {
    runtime.block_on(async {
        let mut signals = Signals::catch().map_err(JobError::Signals)?;
        let mut follower = Follower::open(jobs)?;
        follower.refuse_whole_job().await?;
        follower.find_earlier().await?;
        let open = follower.plan_rest()?;
        follower.merger.note(&jobs.run.began(open))?;
        let _handler = Handler::new();
        let outcome = follower.follow(&mut signals).await?;
        if matches!(outcome, StartsOutcome::Ended { .. }) {
            let counts = jobs.run.finish(0)?.measurements;
            follower.merger.note(&Event::RunEnded {
                done: counts.done + counts.invalid,
                failed: counts.failed,
                skipped: 0,
                interrupted: counts.interrupted,
                invalid: counts.invalid,
            })?;
        }
        Ok(outcome)
    })
}

impl<'a> Follower<'a> {
    fn open(jobs: &'a StartJobs<'a>) -> Result<Self, StartsError> {
        let max = jobs.request.profile.max_jobs;
        Ok(Self {
            merger: Merger::open(jobs.run.store(), jobs.run.whole_plan())?,
            jobs,
            submission: None,
            submitted: 0,
            tries: 0,
            max: max.map_or(usize::MAX, |max| max.get() as usize),
            waiting: VecDeque::new(),
            active: Vec::new(),
            ended: 0,
            unstopped: 0,
            lost: Vec::new(),
            not_ready: Vec::new(),
            next_look: 0,
            last_states: String::new(),
            warnings: BTreeSet::new(),
            submit_after: Instant::now(),
        })
    }

    fn note(&self, text: String) {
        (self.jobs.notice)(JobNotice::Note(text));
    }

    fn warn(&mut self, text: String) {
        if self.warnings.insert(text.clone()) {
            (self.jobs.notice)(JobNotice::Warning(text));
        }
    }

    /// Fails if one job for the whole run has not ended.
    async fn refuse_whole_job(&self) -> Result<(), StartsError> {
        let request = self.jobs.request;
        let run = self.jobs.run.store().run();
        let Some(folder) = JobFolder::find(request.results, request.matrix, request.command, run.as_str())
        else {
            return Ok(());
        };
        match slurm::find_job(&Job::label(&folder.path)).await? {
            Some(job) => Err(JobError::OtherForm {
                cancel: cancel_command(&[job], request.matrix),
                folder: folder.path,
                form: "`job_per: run`",
            }
            .into()),
            None => Ok(()),
        }
    }

    /// Finds the jobs of earlier invocations: merges those that have ended, and follows the others.
    async fn find_earlier(&mut self) -> Result<(), StartsError> {
        let request = self.jobs.request;
        let run = self.jobs.run.store().run().clone();
        let submissions = JobFolder::all(
            request.results,
            request.matrix,
            request.command,
            JobPer::Launch,
            run.as_str(),
        );
        let folders: Vec<JobFolder> = submissions.iter().flat_map(start_folder::unmerged).collect();
        if folders.is_empty() {
            return Ok(());
        }
        let states = slurm::own_states().await?;
        for folder in folders {
            let Some(Ok(part)) = start_folder::part_of(&folder.path) else {
                self.warn(format!(
                    "the job's folder {} cannot be read, so the measurements of this job are not merged into the run",
                    folder.path.display()
                ));
                continue;
            };
            let Some(start) = part.starts.into_iter().next() else {
                continue;
            };
            let status = states.get(&Job::label(&folder.path));
            let job = folder.submitted().or_else(|| status.map(|(job, _)| job.clone()));
            let active = Active {
                folder,
                start,
                job,
                state: String::new(),
                nodes: None,
            };
            match status {
                Some((_, JobStatus::Queued(_))) if active.folder.final_exit().is_none() => {
                    self.active.push(active);
                }
                Some((_, JobStatus::Ended(end))) => self.end(active, Some(end))?,
                _ => self.end(active, None)?,
            }
        }
        // What they lack is measured now.
        self.lost.clear();
        if !self.active.is_empty() {
            self.note(format!(
                "jobs of this run that have not ended: {}",
                self.active.len()
            ));
        }
        Ok(())
    }

    /// Plans the jobs for what neither is measured nor has a job, and returns the number of open measurements.
    fn plan_rest(&mut self) -> Result<usize, StartsError> {
        let active = self.active.iter().map(|active| &active.start);
        let starts = active.chain(&self.waiting);
        let taken: BTreeSet<Measurement> = starts.flat_map(|start| start.cells.clone()).collect();
        let mut open = 0;
        for mut start in self.jobs.run.remaining()? {
            open += start.cells.len();
            start.cells.retain(|measurement| !taken.contains(measurement));
            if !start.cells.is_empty() {
                self.waiting.push_back(start);
            }
        }
        Ok(open)
    }

    /// Submits and merges until all jobs have ended.
    async fn follow(&mut self, signals: &mut Signals) -> Result<StartsOutcome, StartsError> {
        if !self.submit_all(signals).await? {
            return Ok(self.detached());
        }
        let mut polls = interval_at(Instant::now() + Duration::from_secs(1), POLL_INTERVAL);
        let mut looks = interval(FILE_INTERVAL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.active.is_empty() || !self.waiting.is_empty() {
            tokio::select! {
                () = signals.received() => return Ok(self.detached()),
                _ = looks.tick() => self.look()?,
                _ = polls.tick() => self.poll().await?,
            }
            if !self.submit_all(signals).await? {
                return Ok(self.detached());
            }
        }
        let is_all = self.not_ready.len() == self.ended;
        Ok(StartsOutcome::Ended {
            unstopped: self.unstopped,
            lost: std::mem::take(&mut self.lost),
            not_ready: self.not_ready.first().filter(|_| is_all).cloned(),
        })
    }

    fn detached(&self) -> StartsOutcome {
        let ids = self.active.iter().filter_map(|active| active.job.clone());
        let ids: Vec<JobId> = ids.collect();
        StartsOutcome::Detached {
            jobs: self.active.len(),
            cancel: cancel_command(&ids, self.jobs.request.matrix),
            waiting: self.waiting.len(),
            handler: Handler::new(),
        }
    }

    /// Submits jobs up to the largest number at once. Returns `false` if a signal came.
    async fn submit_all(&mut self, signals: &mut Signals) -> Result<bool, StartsError> {
        let (began, mut in_sbatch, mut count) = (clock::now(), Duration::ZERO, 0);
        let is_first = self.submission.is_none();
        while self.active.len() < self.max && !self.waiting.is_empty() && Instant::now() >= self.submit_after
        {
            if self.submission.as_ref().is_some_and(start_folder::is_stopped) {
                self.give_up_waiting(
                    "the job was not submitted, because the jobs were cancelled by `matrix clean --jobs`",
                );
                break;
            }
            let submitted = tokio::select! {
                biased;
                () = signals.received() => return Ok(false),
                submitted = self.submit_next() => submitted,
            };
            match submitted {
                Ok(took) => {
                    in_sbatch += took;
                    count += 1;
                }
                // Jobs that were submitted continue without it.
                Err(StartsError::Job(JobError::Slurm(error))) if error.is_temporary() && self.has_begun() => {
                    self.warn(error.to_string());
                    self.submit_after = Instant::now() + POLL_INTERVAL;
                    return Ok(true);
                }
                // Limits of an account or user let some jobs in and refuse more.
                Err(StartsError::Job(JobError::Slurm(error))) if !self.active.is_empty() => {
                    self.max = self.active.len();
                    self.warn(format!(
                        "{error}\n  = note: {} queued or running; the other jobs are submitted when these end",
                        pluralize(self.active.len(), "job is", "jobs are")
                    ));
                }
                Err(error) => return Err(error),
            }
        }
        if count > 0 && is_first {
            let seconds = clock::now().since(began).as_secs_f64();
            self.note(format!(
                "submitted {} in {seconds:.1} s (`sbatch` took {:.1} s of it); their files are in {}; `matrix` asks the Slurm controller for their states every {} s",
                pluralize(count, "job", "jobs"),
                in_sbatch.as_secs_f64(),
                self.submission.as_ref().map_or_else(PathBuf::new, |folder| folder.path.clone()).display(),
                POLL_INTERVAL.as_secs(),
            ));
        }
        Ok(true)
    }

    /// Whether jobs were submitted or merged.
    fn has_begun(&self) -> bool {
        self.submitted > 0 || self.ended > 0 || !self.active.is_empty()
    }

    fn give_up_waiting(&mut self, why: &str) {
        for start in self.waiting.drain(..) {
            self.lost.push(format!("{}: {why}", start_name(&start)));
        }
    }

    /// Submits the next job, and returns how long `sbatch` took.
    async fn submit_next(&mut self) -> Result<Duration, StartsError> {
        let unwritable = |source| JobError::Files {
            folder: JobFolder::parent(self.jobs.request.results),
            source,
        };
        let request = self.jobs.request;
        let Some(start) = self.waiting.front().cloned() else {
            return Ok(Duration::ZERO);
        };
        if self.submission.is_none() {
            let folder = JobFolder::create(request.results, request.matrix, request.command, JobPer::Launch)
                .map_err(unwritable)?;
            record_run(&folder.path, self.jobs.run.store().run()).map_err(unwritable)?;
            self.submission = Some(folder);
        }
        let submission = self.submission.as_ref().expect("it was created above");
        let part = self.jobs.run.plan().part(&start);
        let profile = (self.jobs.profile_of)(&part);
        // A try whose outcome is unknown keeps its folder.
        self.tries += 1;
        let folder = start_folder::create(submission, self.tries, &part).map_err(unwritable)?;
        let request = request.for_part(&profile, size_of(&part, &profile));
        let began = clock::now();
        let submitted = submit_in(&request, &folder).await;
        let job = match submitted {
            Ok(job) => Some(job),
            Err(JobError::Unconfirmed { source, .. }) => {
                self.warn(format!(
                    "{source}\n  = note: `matrix` will check whether the job was submitted"
                ));
                None
            }
            Err(error) => {
                if !self.has_begun() {
                    submission.discard();
                    self.submission = None;
                }
                return Err(error.into());
            }
        };
        self.submitted += 1;
        self.waiting.pop_front();
        self.active.push(Active {
            folder,
            start,
            job,
            state: "pending".to_owned(),
            nodes: None,
        });
        Ok(clock::now().since(began))
    }

    /// Looks for jobs that wrote their exit code.
    fn look(&mut self) -> Result<(), StartsError> {
        for _ in 0..FOLDERS_PER_LOOK.min(self.active.len()) {
            if self.next_look >= self.active.len() {
                self.next_look = 0;
            }
            match self.active.get(self.next_look) {
                Some(active) if active.folder.final_exit().is_some() => {
                    let active = self.active.remove(self.next_look);
                    self.end(active, None)?;
                }
                _ => self.next_look += 1,
            }
        }
        Ok(())
    }

    /// Asks the controller for the states of all jobs at once.
    async fn poll(&mut self) -> Result<(), StartsError> {
        let states = match slurm::own_states().await {
            Ok(states) => states,
            Err(error) if error.is_temporary() => {
                self.warn(error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let mut forgotten = Vec::new();
        for active in std::mem::take(&mut self.active) {
            match states.get(&Job::label(&active.folder.path)) {
                _ if active.folder.final_exit().is_some() => self.end(active, None)?,
                Some((job, JobStatus::Queued(state))) => {
                    if let Some(reason) = state.endless_reason() {
                        self.warn(format!(
                            "job {job} cannot start until someone changes this: {reason}"
                        ));
                    }
                    let moved = active.nodes.as_ref().zip(state.nodes.as_ref());
                    if let Some((before, now)) = moved.filter(|(before, now)| before != now) {
                        let start = start_name(&active.start);
                        self.note(format!(
                            "job {job}, {start}, continues on {now}; before, it ran on {before}"
                        ));
                    }
                    self.active.push(Active {
                        job: Some(job.clone()),
                        state: state.state.to_lowercase(),
                        nodes: state.nodes.clone().or(active.nodes),
                        ..active
                    });
                }
                Some((_, JobStatus::Ended(end))) => self.end(active, Some(end))?,
                // A submission that was not answered. If the job appears later, it measures nothing.
                None if active.job.is_none() => {
                    self.abandon(&active.folder)?;
                    self.waiting.push_front(active.start);
                }
                None => forgotten.push(active),
            }
        }
        if !forgotten.is_empty() {
            let ids: Vec<&JobId> = forgotten
                .iter()
                .filter_map(|active| active.job.as_ref())
                .collect();
            let ends = slurm::accounted_ends(&ids).await;
            for active in forgotten {
                let id = active.job.as_ref().map(JobId::as_str);
                let end = id.and_then(|id| ends.get(id)).cloned();
                self.end(active, end.as_ref())?;
            }
        }
        self.show_states();
        Ok(())
    }

    /// Shows how many jobs are in which state, if that changed.
    fn show_states(&mut self) {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for active in &self.active {
            *counts.entry(active.state.as_str()).or_default() += 1;
        }
        let mut parts: Vec<String> = counts
            .into_iter()
            .map(|(state, count)| format!("{count} {state}"))
            .collect();
        if !self.waiting.is_empty() {
            parts.push(format!("{} not yet submitted", self.waiting.len()));
        }
        parts.push(format!("{} ended", self.ended));
        let text = format!("jobs: {}", parts.join(", "));
        if text != self.last_states {
            self.note(text.clone());
            self.last_states = text;
        }
    }

    /// Marks a job as over.
    fn abandon(&self, folder: &JobFolder) -> Result<(), StartsError> {
        start_folder::mark_merged(folder).map_err(|source| {
            let folder = folder.path.clone();
            JobError::Files { folder, source }.into()
        })
    }

    /// Merges what an ended job has measured.
    fn end(&mut self, active: Active, end: Option<&JobEnd>) -> Result<(), StartsError> {
        let Active {
            folder, start, job, ..
        } = active;
        let name = match &job {
            Some(job) => format!("job {job}, {}", start_name(&start)),
            None => start_name(&start),
        };
        let merged = match start_folder::part_run(&folder) {
            Some(run) => self.merger.merge(&run, &start.cells)?,
            None => MergedPart::default(),
        };
        (self.jobs.on_merge)(&merged);
        self.abandon(&folder)?;
        self.ended += 1;
        if !merged.outdated.is_empty() {
            self.warn(format!(
                "{name}: {} not merged into the run, because the matrix has changed; this start of the engine is measured again",
                pluralize(merged.outdated.len(), "cell is", "cells are")
            ));
            self.plan_rest()?;
            return Ok(());
        }
        let store = self.jobs.run.store();
        let is_measured = |measurement: &&Measurement| {
            let summary = store.summary(measurement);
            summary.is_ok_and(|summary| summary.status != MeasurementStatus::Interrupted)
        };
        let missing = start.cells.len() - start.cells.iter().filter(is_measured).count();
        let exit = folder.exit();
        let is_good = merged
            .summaries
            .iter()
            .all(|summary| summary.status == MeasurementStatus::Done && !summary.is_invalid());
        if exit == Some(CELL_FAILED) && missing == 0 && is_good && !merged.summaries.is_empty() {
            self.unstopped += 1;
        }
        if missing == 0 && exit.is_some() {
            self.note(format!(
                "{name}: {} merged",
                pluralize(merged.summaries.len(), "cell", "cells")
            ));
            return Ok(());
        }
        let is_in_prolog = exit.is_none()
            && end.is_some_and(JobEnd::is_failure)
            && folder.may_have_ended_in_prolog(self.jobs.request.profile);
        let error = match (is_in_prolog, folder.final_exit()) {
            (true, _) => Some(folder.prolog_error()),
            (false, Some(_)) => folder.first_error(),
            (false, None) => None,
        };
        let why = match (end, exit, &error) {
            _ if folder.says(TIME_LIMIT_NEAR) => {
                "the time limit of the job stopped the run; if the limit is too short for one cell, raise `time_limit` of the profile".to_owned()
            }
            (_, Some(code), Some(error)) => format!("exit code {code}: {}", error.text),
            (Some(end), None, Some(error)) => format!("{}; {}", end.describe(), error.text),
            (Some(end), ..) => end.describe(),
            (None, Some(code), None) => format!("exit code {code}"),
            (None, None, _) => JobEnd::UNKNOWN.describe(),
        };
        let quoted = error.as_ref().map(|error| error.notes.clone());
        let text = format!(
            "{name}: {} not measured: {why}; the files of the job are in {}{}",
            pluralize(missing, "cell is", "cells are"),
            folder.path.display(),
            quoted.unwrap_or_else(|| folder.last_errors(QUOTED_LINES))
        );
        (self.jobs.notice)(JobNotice::Warning(text.clone()));
        self.lost.push(text);
        if merged.summaries.is_empty() {
            self.not_ready.extend(error);
            self.stop_if_never_ready();
        }
        Ok(())
    }

    /// Submits no more jobs if the last ones ended for the same cause before they measured.
    fn stop_if_never_ready(&mut self) {
        let last = self.not_ready.iter().rev();
        let Some(cause) = self.not_ready.last().cloned() else {
            return;
        };
        let same = last.take_while(|error| error.is_same_cause(&cause)).count();
        if same < MAX_NOT_READY || self.waiting.is_empty() {
            return;
        }
        self.warn(format!(
            "no more jobs are submitted, because {same} jobs ended with the same error before they measured anything: {}; {} not submitted",
            cause.text,
            pluralize(self.waiting.len(), "start is", "starts are")
        ));
        self.give_up_waiting(
            "the job was not submitted, because other jobs ended before they measured anything",
        );
    }
}

fn start_name(start: &Start) -> String {
    format!("start {} of `{}`", start.start, start.launch)
}
