//! Seconds of recordings that were transcribed, and how many of them per second.

use super::dimensions::{Quantity, TokenCount};
use super::metric::Metric;
use super::metric_set::metric_value;
use crate::results::record::cell::MetricValues;
use crate::results::record::request::Request;

/// Adds the length of all recordings of completed requests, and its ratio to the duration of the measurement (RTFx, the
/// inverse real-time factor). Both are `None` if the length of one recording is unknown; the ratio also if no request was
/// completed. Loads without recordings have no
/// such metric.
///
/// Only the server knows how many tokens a recording has. If it does not report them, metrics of prompt tokens become `None`.
pub(super) fn add_audio(metrics: &mut MetricValues, requests: &[Request]) {
    if requests.iter().all(|request| request.audio.is_none()) {
        return;
    }
    let completed = || requests.iter().filter(|request| request.is_completed());
    let seconds = completed().try_fold(0.0, |sum, request| Some(sum + request.audio?.seconds?));
    let duration = metric_value(metrics, Metric::Duration);
    let ratio = seconds
        .zip(duration)
        .filter(|_| completed().next().is_some())
        .map(|(seconds, duration)| seconds / duration);
    metrics.insert(Metric::AudioDuration.name(), seconds);
    metrics.insert(Metric::AudioThroughput.name(), ratio);
    if completed().any(|request| request.known_prompt().is_none()) {
        let of_prompts = [Quantity::Input, Quantity::Total]
            .into_iter()
            .flat_map(|quantity| {
                [
                    Metric::Throughput(quantity),
                    Metric::PerDevice(quantity),
                    Metric::EnergyPer(quantity),
                    Metric::PerEnergy(quantity),
                ]
            });
        for metric in of_prompts.chain([Metric::Tokens(TokenCount::Input)]) {
            if let Some(value) = metrics.get_mut(&metric.name()) {
                *value = None;
            }
        }
    }
}
