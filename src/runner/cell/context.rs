//! What a measurement is given beside its cell.

use std::time::Duration;

use crate::config::validity::Bounds;
use crate::plan::Launch;
use crate::results::record::client::Calibration;
use crate::runner::profiler::Profiler;
use crate::runner::record_sink::RecordSink;
use crate::runner::shutdown::Shutdown;

/// What a measurement is given beside its cell and its engine.
#[derive(Clone, Copy)]
pub(crate) struct CellContext<'a> {
    pub(crate) launch: &'a Launch,
    pub(crate) bounds: &'a Bounds,
    pub(crate) procedure: &'a Procedure,
    pub(crate) records: RecordSink<'a>,
    /// The error of the client on this machine, if it was measured.
    pub(crate) calibration: Option<&'a Calibration>,
    pub(crate) stop: &'a Shutdown,
}

/// How a load is measured, beyond what its scenario and its launch say.
pub(crate) struct Procedure {
    /// How long the engine may take to empty its caches.
    pub(crate) reset_limit: Duration,
    /// Whether a measurement ends if the caches could not be emptied. Without it they are judged afterwards.
    pub(crate) requires_reset: bool,
    /// How long the engine may settle after it was warmed up and its caches were emptied.
    pub(crate) settle: Duration,
    pub(crate) profiler: Option<Profiler>,
    /// How often progress is reported.
    pub(crate) report_every: Duration,
    /// Whether the caller derives the metrics and shows them, also of a load that was stopped or is incomplete.
    pub(crate) is_raw: bool,
}

impl Default for Procedure {
    /// That of a run.
    fn default() -> Self {
        Self {
            reset_limit: Duration::from_secs(60),
            requires_reset: false,
            settle: Duration::ZERO,
            profiler: None,
            report_every: Duration::from_secs(1),
            is_raw: false,
        }
    }
}
