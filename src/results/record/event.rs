//! Events of a run, for terminal, journal, `--json` and tests.

use serde::{Deserialize, Serialize};

use crate::base::ids::{LaunchId, RunId};
use crate::plan::Measurement;
use crate::results::record::search::{PointDecision, PointDoubt, PointProgress};
use crate::results::record::validity::{ReasonCode, Verdict};

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The run began or was resumed.
    RunBegan {
        /// Name of the run, also its folder.
        run: RunId,
        /// Name of the matrix.
        matrix: String,
        /// Total number of measurements.
        measurements: usize,
        /// Measurements that were finished before the run was resumed.
        finished: usize,
    },
    /// A start of a launch began.
    LaunchBegan {
        /// The launch that is started.
        launch: LaunchId,
        /// Index of the start, from 1.
        start: u32,
        /// The command that `plan` prints, with port and GPUs of this start.
        command: String,
    },
    /// The engine's process or container exists.
    EngineStarted {
        /// The launch that is started.
        launch: LaunchId,
        /// Index of the start.
        start: u32,
        /// Process id or container id.
        identity: String,
        /// The port that the engine was told to listen on.
        port: u16,
    },
    /// Progress of a start.
    LaunchProgress {
        /// The launch that is started.
        launch: LaunchId,
        /// Current phase, such as `weights`.
        phase: String,
        /// Seconds since the start began.
        elapsed_s: f64,
        /// Last line of the engine's log.
        last_line: String,
    },
    /// The engine returned its first real token.
    EngineReady {
        /// The launch that is ready.
        launch: LaunchId,
        /// Index of the start.
        start: u32,
        /// Seconds from start to first token.
        seconds: f64,
        /// The version that the engine reports.
        version: Option<String>,
    },
    /// A start failed, and so did the cells that needed it.
    LaunchFailed {
        /// The launch that failed.
        launch: LaunchId,
        /// Index of the start.
        start: u32,
        /// What happened, in words.
        reason: String,
        /// Last lines of the engine's log.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tail: Vec<String>,
    },
    /// A measurement of a cell began.
    CellBegan {
        /// The measurement that began.
        measurement: Measurement,
        /// Number of requests that will fall due; the mean number for random arrivals limited by a duration.
        requests: usize,
    },
    /// Progress of a measurement.
    CellProgress {
        /// The measurement that continues.
        measurement: Measurement,
        /// Current phase: `prepare`, `warmup`, `reset`, `measure`.
        phase: String,
        /// Requests that have ended.
        ended: usize,
        /// Total number of requests.
        requests: usize,
        /// Number of requests in flight.
        running: usize,
        /// Requests that have failed.
        failed: usize,
        /// Seconds since it began.
        elapsed_s: f64,
        /// Output tokens per second since the last report, as far as events show them; absent before there are two.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output_tokens_per_s: Option<f64>,
        /// Mean time to the first token of the answers that ended, in milliseconds; absent before the first has.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ttft_ms: Option<f64>,
        /// The point that is measured, in a search.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        point: Option<PointProgress>,
    },
    /// A point of a search was judged.
    PointJudged {
        /// The measurement that searches.
        measurement: Measurement,
        /// The point with its judged requests.
        #[serde(flatten)]
        point: PointProgress,
        /// Share of requests that must meet the SLO.
        target: f64,
        /// What it shows; absent if it says nothing about its value.
        decision: Option<PointDecision>,
        /// Why it is too close to call; absent if it is not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        doubt: Option<PointDoubt>,
    },
    /// A measurement ended and its summary is on disk.
    CellEnded {
        /// The measurement that ended.
        measurement: Measurement,
        /// `done`, `failed`, `skipped` or `interrupted`.
        #[serde(rename = "status", alias = "ending")]
        status: String,
        /// The reason if it is not `done`.
        reason: Option<String>,
        /// Duration in seconds.
        seconds: f64,
        /// Output tokens per second, if known.
        output_tokens_per_s: Option<f64>,
        /// Validity, if it was judged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        verdict: Option<Verdict>,
        /// Reason codes, including notes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        codes: Vec<ReasonCode>,
        /// Last lines of the engine's log, if it failed under load.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tail: Vec<String>,
        /// Path of the post-mortem of a failed cell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        post_mortem: Option<String>,
    },
    /// An engine was stopped and is gone.
    EngineStopped {
        /// The launch that was stopped.
        launch: LaunchId,
        /// Index of the start.
        start: u32,
        /// How it ended, in words.
        how: String,
        /// Bytes that it left in `/dev/shm` and that were freed, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shm_freed_bytes: Option<u64>,
        /// Seconds that stopping took.
        seconds: f64,
    },
    /// Starts were added because metrics are not precise enough.
    StartsAdded {
        /// Number of added starts.
        starts: usize,
        /// New total number of measurements.
        measurements: usize,
    },
    /// An orphan of an earlier run was removed.
    Swept {
        /// Name of what was removed.
        what: String,
    },
    /// A note for the user.
    Note {
        /// The text of the note.
        message: String,
    },
    /// A warning for the user.
    Warning {
        /// The text of the warning.
        message: String,
    },
    /// The run received a request to stop.
    Stopping {
        /// Whether everything is killed at once.
        now: bool,
    },
    /// The run ended, completely or not.
    RunEnded {
        /// Number of cells that completed.
        done: usize,
        /// Number of cells that failed.
        failed: usize,
        /// Cells that were skipped.
        skipped: usize,
        /// Cells that were interrupted.
        interrupted: usize,
        /// Cells that completed but are invalid.
        #[serde(default)]
        invalid: usize,
    },
}

impl Event {
    /// Whether the journal stores the event; progress events are only displayed.
    pub(crate) const fn is_persisted(&self) -> bool {
        !matches!(self, Self::LaunchProgress { .. } | Self::CellProgress { .. })
    }
}
