//! Collects the post-mortem of a cell as soon as it is known to be failed or invalid.

use crate::base::clock::{self, MonotonicTime};
use crate::plan::Launch;
use crate::results::record::cell::{FailureClass, MeasurementStatus, MeasurementSummary, Phase};
use crate::results::record::post_mortem::{EngineExitStatus, PostMortem};
use crate::telemetry::dmesg;

/// Number of the engine's last log lines that are kept.
pub(super) const MAX_LOG_LINES: usize = 200;

/// State of an engine after its cell.
#[derive(Default)]
pub(super) struct FailureArtifacts {
    /// How it ended, if it did.
    pub(super) exit: Option<EngineExitStatus>,
    /// Its last log lines, at most [`MAX_LOG_LINES`].
    pub(super) log: Vec<String>,
}

/// Creates the post-mortem of a cell that failed, or that is invalid for the reason `doubt`; `None`
/// for other cells. `began` is when its launch began.
pub(super) fn create(
    launch: &Launch,
    summary: &MeasurementSummary,
    doubt: Option<String>,
    remains: FailureArtifacts,
    began: MonotonicTime,
) -> Option<PostMortem> {
    let (phase, class, reason) = match (&summary.status, doubt) {
        (
            MeasurementStatus::Failed {
                phase, class, reason, ..
            },
            _,
        ) => (*phase, *class, reason.clone()),
        (MeasurementStatus::Done, Some(doubt)) => (Phase::Measure, FailureClass::Validity, doubt),
        _ => return None,
    };
    Some(PostMortem {
        cell: summary.cell.clone(),
        start: summary.start,
        repeat: summary.repeat,
        phase,
        class,
        reason,
        is_attached: launch.is_attached(),
        end: remains.exit,
        retries: summary.retries.clone(),
        command: {
            let engine = &summary.engine;
            let ran = engine.exact_command.as_ref().or(engine.command.as_ref());
            ran.cloned().unwrap_or_default()
        },
        image_digest: summary.engine.image_digest.clone(),
        devices: summary.engine.devices.clone(),
        kernel: dmesg::read_since(clock::now().since(began)),
        log: remains.log,
    })
}
