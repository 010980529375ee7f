//! Checks that recordings have the length that was sent.

use super::input::{MAX_OUTLIER_SHARE, Responses};
use crate::analysis::validity::reason::{new_reason, percent};
use crate::results::record::validity::{Reason, ReasonCode, Verdict};

/// Servers round seconds up.
const SLACK_SECONDS: f64 = 1.0;

/// Share of a recording that may be missing or be added: decoding and resampling pad and trim.
const SLACK_SHARE: f64 = 0.02;

/// Reports recordings that are shorter or longer by the server's answers. A server that transcribes less than was sent is fast
/// for the wrong reason.
pub(crate) fn recordings_reason(responses: &Responses<'_>) -> Option<Reason> {
    let lengths: Vec<(f64, f64)> = responses
        .completed_requests()
        .filter_map(|request| {
            let audio = request.audio?;
            Some((audio.seconds?, audio.reported_seconds?))
        })
        .collect();
    let slack = |sent: f64| SLACK_SECONDS + SLACK_SHARE * sent;
    let is_shorter = |(sent, reported): &&(f64, f64)| sent - reported > slack(*sent);
    let is_longer = |(sent, reported): &&(f64, f64)| reported - sent > slack(*sent);
    let (shorter, longer) = (
        lengths.iter().filter(is_shorter).count(),
        lengths.iter().filter(is_longer).count(),
    );
    let stray = MAX_OUTLIER_SHARE * lengths.len() as f64;
    let (count, word, weight) = match (shorter as f64 > stray, longer as f64 > stray) {
        (true, _) => (shorter, "shorter", Verdict::Invalid),
        (false, true) => (longer, "longer", Verdict::Suspect),
        (false, false) => return None,
    };
    let (sent, reported) = lengths
        .iter()
        .fold((0.0, 0.0), |sum, length| (sum.0 + length.0, sum.1 + length.1));
    let mut reason = new_reason(
        ReasonCode::AudioSecondsDisagree,
        format!(
            "by the server's answers, {count} of {} recordings are {word} than the sent recordings: the server reported {reported:.1} s in total, but {sent:.1} s were sent",
            lengths.len()
        ),
        Some(format!(
            "for each recording, the reported length may differ from the sent length by {SLACK_SECONDS} s plus {} of the sent length",
            percent(SLACK_SHARE)
        )),
    );
    reason.weight = weight;
    Some(reason)
}
