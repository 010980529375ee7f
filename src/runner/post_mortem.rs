//! Collects the post-mortem of a cell as soon as it is known to be failed or invalid.

use crate::base::clock::{self, Moment};
use crate::plan::Launch;
use crate::results::record::cell::{Ending, FailureClass, Phase, Summary};
use crate::results::record::post_mortem::{End, PostMortem};
use crate::telemetry::dmesg;

/// Number of the engine's last log lines that are kept.
pub(super) const LINES: usize = 200;

/// State of an engine after its cell.
#[derive(Default)]
pub(super) struct Remains {
    /// How it ended, if it did.
    pub(super) end: Option<End>,
    /// Its last log lines, at most [`LINES`].
    pub(super) log: Vec<String>,
}

/// Creates the post-mortem of a cell that failed, or that is invalid for the reason `doubt`; `None`
/// for other cells. `began` is when its launch began.
pub(super) fn of(
    launch: &Launch,
    summary: &Summary,
    doubt: Option<String>,
    remains: Remains,
    began: Moment,
) -> Option<PostMortem> {
    let (phase, class, reason) = match (&summary.ending, doubt) {
        (
            Ending::Failed {
                phase, class, reason, ..
            },
            _,
        ) => (*phase, *class, reason.clone()),
        (Ending::Done, Some(doubt)) => (Phase::Measure, FailureClass::Validity, doubt),
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
        end: remains.end,
        retries: summary.retries.clone(),
        command: {
            let engine = &summary.engine;
            let ran = engine.exact_command.as_ref().or(engine.command.as_ref());
            ran.cloned().unwrap_or_default()
        },
        image_digest: summary.engine.image_digest.clone(),
        devices: summary.engine.devices.clone(),
        kernel: dmesg::told_since(clock::now().since(began)),
        log: remains.log,
    })
}
