//! Everything that can happen in a run, in one enum: terminal, journal, `--json` and tests all listen to it.

use serde::{Deserialize, Serialize};

use crate::base::ids::{LaunchId, RunId};
use crate::plan::Measurement;
use crate::results::record::validity::{Code, Verdict};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The run began, or was taken up again.
    RunBegan {
        /// The run.
        run: RunId,
        /// The matrix's name.
        matrix: String,
        /// Measurements in all.
        measurements: usize,
        /// Measurements finished before, when the run was taken up again.
        finished: usize,
    },
    /// An engine's start began.
    LaunchBegan {
        /// The launch.
        launch: LaunchId,
        /// Which start, from 1.
        start: u32,
        /// The command that `plan` prints, with the port and the devices of this start.
        command: String,
    },
    /// An engine's process or container exists.
    EngineStarted {
        /// The launch.
        launch: LaunchId,
        /// Which start.
        start: u32,
        /// What identifies it: a process id or a container id.
        identity: String,
        /// The port it was told to listen on.
        port: u16,
    },
    /// A start goes on.
    LaunchProgress {
        /// The launch.
        launch: LaunchId,
        /// What it does, such as `weights`.
        phase: String,
        /// Seconds since the start began.
        elapsed_s: f64,
        /// The last line of its log.
        last_line: String,
    },
    /// An engine gave its first real token.
    EngineReady {
        /// The launch.
        launch: LaunchId,
        /// Which start.
        start: u32,
        /// Seconds from start to first token.
        seconds: f64,
        /// The version it reports.
        version: Option<String>,
    },
    /// A start failed; the cells that needed it fail with it.
    LaunchFailed {
        /// The launch.
        launch: LaunchId,
        /// Which start.
        start: u32,
        /// What happened.
        reason: String,
        /// The engine's last log lines.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tail: Vec<String>,
    },
    /// A measurement began.
    CellBegan {
        /// The measurement.
        measurement: Measurement,
        /// Requests that will fall due; of random arrivals that a duration ends, the mean number.
        requests: usize,
    },
    /// A measurement goes on.
    CellProgress {
        /// The measurement.
        measurement: Measurement,
        /// What it does: `prepare`, `warmup`, `reset`, `measure`.
        phase: String,
        /// Requests ended so far.
        ended: usize,
        /// Requests in all.
        requests: usize,
        /// Requests under way.
        running: usize,
        /// Failed so far.
        failed: usize,
        /// Seconds since it began.
        elapsed_s: f64,
    },
    /// A measurement ended; its summary is on disk.
    CellEnded {
        /// The measurement.
        measurement: Measurement,
        /// `done`, `failed`, `skipped` or `interrupted`.
        #[serde(rename = "status", alias = "ending")]
        ending: String,
        /// Why, where it is not `done`.
        reason: Option<String>,
        /// Seconds it took.
        seconds: f64,
        /// Output tokens per second, where it has them.
        output_tokens_per_s: Option<f64>,
        /// How far its figures can be believed, where that was judged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        verdict: Option<Verdict>,
        /// What was found in it, notes included.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        codes: Vec<Code>,
        /// The engine's last log lines, where it failed under load.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tail: Vec<String>,
        /// The file that holds everything known of why it is worth nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        post_mortem: Option<String>,
    },
    /// An engine was stopped and is gone.
    EngineStopped {
        /// The launch.
        launch: LaunchId,
        /// Which start.
        start: u32,
        /// How it ended, in words.
        how: String,
        /// Bytes that it left in `/dev/shm` and that were freed, where it left any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shm_freed_bytes: Option<u64>,
        /// Seconds it took.
        seconds: f64,
    },
    /// Cells are started again, because they are not known well enough.
    StartsAdded {
        /// How many starts.
        starts: usize,
        /// Measurements in all by now.
        measurements: usize,
    },
    /// Something that an earlier run left was removed.
    Swept {
        /// What.
        what: String,
    },
    /// Something worth knowing.
    Note {
        /// What.
        message: String,
    },
    /// Something doubtful.
    Warning {
        /// What.
        message: String,
    },
    /// The run was asked to stop.
    Stopping {
        /// Whether everything is killed at once.
        now: bool,
    },
    /// The run ended.
    RunEnded {
        /// Cells that are done.
        done: usize,
        /// Cells that failed.
        failed: usize,
        /// Cells that were skipped.
        skipped: usize,
        /// Cells that were interrupted.
        interrupted: usize,
        /// Cells that are done and invalid.
        #[serde(default)]
        invalid: usize,
    },
}

impl Event {
    /// Whether the journal keeps it; progress is for the moment only.
    pub const fn is_kept(&self) -> bool {
        !matches!(self, Self::LaunchProgress { .. } | Self::CellProgress { .. })
    }
}
