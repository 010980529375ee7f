//! Input of a measurement besides its cell.

use std::time::Duration;

use crate::config::validity::ValidityBounds;
use crate::plan::Launch;
use crate::results::record::client::Calibration;
use crate::runner::profiler::Profiler;
use crate::runner::record_sink::RecordSink;
use crate::runner::shutdown::Shutdown;

/// Input of a measurement besides its cell and its engine.
#[derive(Clone, Copy)]
pub(crate) struct CellContext<'a> {
    pub(crate) launch: &'a Launch,
    pub(crate) bounds: &'a ValidityBounds,
    pub(crate) procedure: &'a Procedure,
    pub(crate) records: RecordSink<'a>,
    /// Calibration of the client on this host, if there is one.
    pub(crate) calibration: Option<&'a Calibration>,
    pub(crate) stop: &'a Shutdown,
}

/// Settings of a measurement that neither the scenario nor the launch defines.
pub(crate) struct Procedure {
    /// Timeout of a cache reset.
    pub(crate) reset_limit: Duration,
    /// Whether a failed cache reset ends the measurement. Otherwise the validity check judges it.
    pub(crate) requires_reset: bool,
    /// Pause after the warm-up and the cache reset.
    pub(crate) settle: Duration,
    pub(crate) profiler: Option<Profiler>,
    /// The page with the server's counters, which is read directly before and after the load.
    pub(crate) counters_path: Option<&'static str>,
    /// Interval of progress reports.
    pub(crate) report_every: Duration,
    /// Whether the caller derives the metrics, also of a load that was stopped or is incomplete.
    pub(crate) is_raw: bool,
}

impl Default for Procedure {
    /// The settings of a run.
    fn default() -> Self {
        Self {
            reset_limit: Duration::from_secs(60),
            requires_reset: false,
            settle: Duration::ZERO,
            profiler: None,
            counters_path: None,
            report_every: Duration::from_secs(1),
            is_raw: false,
        }
    }
}
