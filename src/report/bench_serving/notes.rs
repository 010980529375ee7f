//! Notes beside the figures of `bench`: failures, differences from the Python tool, caveats.

use std::collections::BTreeMap;

use crate::analysis::calibration;
use crate::analysis::metrics::{
    self, CacheHits, LatencyKind, Metric, MetricInputs, MetricSets, Quantity, Statistic, TokenCount,
};
use crate::base::text::is_control;
use crate::config::cancel::Cancel;
use crate::config::dataset::common_prefix::CommonPrefix;
use crate::config::workload::Profile;
use crate::report::caveats::{Itl, latency_caveats, prompt_count_note, prompt_counts};
use crate::results::record::cell::MetricValues;
use crate::results::record::client::{Calibration, ClientFacts, SendLag};
use crate::results::record::request::{Request, RequestFailureClass};
use crate::results::record::telemetry::Telemetry;

/// A client that sends later than this measures itself.
const LATE_MS: f64 = 10.0;
/// An answer that is held open for longer than this after its last token, and by so much of its time, says so.
const MIN_HELD_OPEN_MS: f64 = 5.0;
const HELD_OPEN_FACTOR: f64 = 1.05;
/// Number of characters of a server's message that are repeated.
const MAX_MESSAGE_CHARS: usize = 300;

/// Lines about failed requests: their number, and for each class the first message.
pub(crate) fn failure_lines(requests: &[Request]) -> Vec<String> {
    let mut classes: BTreeMap<RequestFailureClass, (usize, &str)> = BTreeMap::new();
    for failure in requests.iter().filter_map(|request| request.failure.as_ref()) {
        classes.entry(failure.class).or_insert((0, &failure.message)).0 += 1;
    }
    let failed: usize = classes.values().map(|(count, _)| count).sum();
    if failed == 0 {
        return Vec::new();
    }
    let mut lines = vec![format!("{failed} of {} requests failed:\n", requests.len())];
    lines.extend(classes.into_iter().map(|(class, (count, message))| {
        let message: String = message
            .chars()
            .take(MAX_MESSAGE_CHARS)
            .map(|character| if is_control(character) { ' ' } else { character })
            .collect();
        format!("  {count} × {}, such as: {message}\n", class.name())
    }));
    lines
}

/// Notes on the fixed faults of the Python tool that changed a figure of the block.
pub(crate) fn fixed_figure_notes(requests: &[Request], sets: &MetricSets, embeds: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let pair = |metric: Metric| {
        let value = |figures: &MetricValues| metrics::metric_value(figures, metric);
        (value(&sets.block), value(&sets.as_published))
    };
    if let (Some(ours), Some(theirs)) = pair(Metric::Completed)
        && ours != theirs
    {
        notes.push(match theirs > ours {
            true => format!(
                "bench_serving would count {theirs} requests as successful instead of {ours}, because it counts answers without \
                 output or with an error as complete"
            ),
            false => format!(
                "bench_serving would count {theirs} requests as successful instead of {ours}, because it counts a \
                 request as failed if the stream contains an unknown line or event"
            ),
        });
    }
    if let (Some(ours), Some(theirs)) = pair(Metric::Tokens(TokenCount::Output))
        && ours != theirs
    {
        let counted = requests
            .iter()
            .filter(|request| request.is_completed() && is_counted_by_client(request))
            .count();
        let by_us = match counted {
            0 => String::new(),
            counted => {
                format!(
                    " (the client's tokenizer counted {counted} answers for which the server sent no count)"
                )
            }
        };
        notes.push(format!(
            "the number of generated tokens is {ours}, as counted by the server{by_us}; bench_serving would count {theirs}, because it \
             uses the requested length if it finds no count in an answer"
        ));
    }
    let first = Metric::Time(Statistic::Mean, LatencyKind::Ttft);
    if let (Some(ours), Some(theirs)) = pair(first)
        && ours != theirs
    {
        notes.push(format!(
            "mean TTFT is {ours:.2} ms, over answers with output only; bench_serving would print {theirs:.2} ms"
        ));
    }
    let (ours, theirs) = pair(Metric::PeakConcurrency);
    if ours != theirs
        && let (Some(ours), Some(theirs)) = (ours, theirs)
    {
        notes.push(format!(
            "the peak of concurrent requests is {ours}, the largest number at any one moment; bench_serving would print \
             {theirs}, because it counts all requests that run within the same second"
        ));
    }
    let (ours, theirs) = pair(Metric::PeakOutput);
    if ours != theirs
        && !embeds
        && let Some(theirs) = theirs
    {
        notes.push(match ours {
            Some(_) => format!(
                "the peak of output throughput is the largest number of tokens in any one second; bench_serving would \
                 print {theirs:.2}, because it counts stream events in each second of its clock"
            ),
            None => format!(
                "the peak of output throughput is unknown, because the measurement is shorter than one second or tokens \
                 were not counted; bench_serving would print {theirs:.2}, its highest number of stream events in a second"
            ),
        });
    }
    notes
}

/// Whether the number of output tokens comes from our own tokenizer only.
fn is_counted_by_client(request: &Request) -> bool {
    let is_reported =
        request.usage.and_then(|usage| usage.completion).is_some() || request.chunks.last_tokens().is_some();
    !is_reported
}

/// The client's own error in TTFT and ITL: 99 of 100 timestamps lie within it. It comes from a calibration
/// with the same timestamp source and from the load itself. `None` if there is no such calibration.
pub(crate) fn client_error(
    requests: &[Request],
    client: &ClientFacts,
    stamps: &str,
    calibration: &Calibration,
) -> Option<String> {
    let max_streams = calibration::peak_concurrency(requests);
    let gap = calibration::mean_gap_ms(requests);
    let point = calibration::matching_point(calibration, max_streams, gap)
        .filter(|_| stamps == calibration.timestamp_source)?;
    let beyond = match max_streams > point.streams {
        true => format!(
            "; but {max_streams} requests ran at once, so calibrate more streams with `matrix calibrate --streams`"
        ),
        false => String::new(),
    };
    let facts = ClientFacts {
        error: Some(point),
        ..*client
    };
    let [ttft, itl] = facts.error_ms()?;
    Some(format!(
        "the client's own error at {} streams is at most {:.2} ms for TTFT and {:.3} ms for ITL \
         (99 of 100 timestamps, by the calibration of this machine){beyond}",
        point.streams, ttft, itl
    ))
}

/// Describes the requests that the client cancelled.
pub(crate) fn cancellation_note(requests: &[Request], cancel: Cancel) -> String {
    let cancelled: Vec<&Request> = requests.iter().filter(|request| request.cancelled).collect();
    let tokens: u64 = cancelled
        .iter()
        .map(|request| u64::from(request.received_tokens()))
        .sum();
    format!(
        "the client cancelled {} of {} requests, after {tokens} output tokens in total (requested: {cancel}). Cancelled \
         requests count neither as successes nor as failures, and are not part of rates and latencies",
        cancelled.len(),
        requests.len()
    )
}

/// Compares the hit rate of the prefix cache with the share that prompts have in common by design.
pub(crate) fn common_prefix_note(requests: &[Request], common: CommonPrefix, expected: f64) -> String {
    let hits = metrics::cache_hits(requests);
    let is_impossible = requests.iter().any(Request::has_impossible_counts);
    let measured = match (hits.is_reported, is_impossible) {
        (true, true) => {
            "for some prompts, the server reports more cached tokens than the prompt has".to_owned()
        }
        (true, false) => format!(
            "the server reports {:.1} % of the prompt tokens as cached",
            CacheHits::percentage(hits.cached, hits.prompt)
        ),
        (false, _) => "the server reports no cached tokens".to_owned(),
    };
    format!(
        "{:.1} % of the prompt tokens repeat an earlier prompt (requested: {common}); {measured}",
        100.0 * expected
    )
}

/// What qualifies the figures, whoever computes them.
pub(crate) fn figure_notes(
    requests: &[Request],
    basis: &MetricInputs,
    profile: Profile,
    sets: &MetricSets,
    lag: Option<SendLag>,
) -> Vec<String> {
    let mut notes = Vec::new();
    let of_matrix = |metric: Metric| metrics::metric_value(&sets.matrix, metric);
    let (backend, accepted) = (basis.backend.as_str(), basis.accept_length);
    let itl = Itl::for_block(profile, basis.protocol, backend, accepted);
    notes.extend(latency_caveats(&of_matrix, itl));
    if let Some(vision) = of_matrix(Metric::Tokens(TokenCount::InputVision)).filter(|vision| *vision > 0.0) {
        notes.push(format!(
            "{vision} prompt tokens represent images: the server's token count (`usage`) minus the client's count of the text"
        ));
    }
    let mean = |sample: LatencyKind| of_matrix(Metric::Time(Statistic::Mean, sample));
    if let (Some(line), Some(token)) = (mean(LatencyKind::E2eLine), mean(LatencyKind::E2e))
        && line - token > MIN_HELD_OPEN_MS
        && line > HELD_OPEN_FACTOR * token
    {
        notes.push(format!(
            "on average, the server ends its answers {:.1} ms after the last token; with this time, the mean E2E latency is \
             {line:.1} ms (as shown in the block of figures); without it, {token:.1} ms",
            line - token
        ));
    }
    notes.extend(
        prompt_counts(&of_matrix)
            .filter(|(reported, input)| reported != input)
            .map(prompt_count_note),
    );
    if let Some(lag) = lag.filter(|lag| lag.p99_ms > LATE_MS) {
        notes.push(format!(
            "the client sent requests late: {:.1} ms on average, {:.1} ms at the 99th percentile",
            lag.mean_ms, lag.p99_ms
        ));
    }
    let is_own_round = |request: &&Request| {
        request.round.is_some_and(|round| round > 0)
            && request.usage.is_none_or(|usage| usage.prompt.is_none())
    };
    let rounds = requests.iter().filter(|request| request.is_completed());
    let rounds = rounds.filter(is_own_round).count();
    if rounds > 0 {
        notes.push(format!(
            "the prompt tokens of {rounds} later rounds are counted by the client, because the server sent no count (later rounds: \
             all rounds of a conversation but the first); tokens that the chat template of the server adds are not included"
        ));
    }
    let impossible = requests
        .iter()
        .filter(|request| request.has_impossible_counts())
        .count();
    if impossible > 0 {
        notes.push(format!(
            "{impossible} answers report more cached tokens than their prompts have, or more reasoning tokens than output tokens; \
             these counts are left out"
        ));
    }
    let is_uncounted = |request: &&Request| request.is_completed() && request.output_tokens().is_none();
    let uncounted = requests.iter().filter(is_uncounted).count();
    if uncounted > 0 && basis.protocol.facts().generates_text {
        notes.push(format!(
            "the number of output tokens is unknown for {uncounted} answers"
        ));
    }
    notes
}

/// The energy of the server's devices, and output tokens per joule.
pub(crate) fn energy_note(telemetry: &Telemetry, figures: &MetricValues) -> Option<String> {
    let energy = telemetry.energy.as_ref()?;
    let devices: Vec<String> = telemetry.gpus.iter().map(|gpu| gpu.device.to_string()).collect();
    let max_power = energy
        .peak_w
        .map_or_else(String::new, |peak| format!(", {peak:.0} W at most"));
    let each = metrics::metric_value(figures, Metric::PerEnergy(Quantity::Output))
        .map_or_else(String::new, |each| format!("; {each:.3} output tokens per joule"));
    Some(format!(
        "GPU {} used {:.1} J in {:.2} s: {:.0} W on average{max_power}{each}",
        devices.join(", "),
        energy.joules,
        telemetry.seconds,
        energy.mean_w
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::record::request::Failure;

    fn failed(class: RequestFailureClass, message: &str) -> Request {
        let mut request: Request = serde_json::from_value(serde_json::json!({
            "index": 0, "prompt_tokens": 1, "asked_tokens": 1, "due_ns": 0, "chunks": [], "end_ns": 0,
        }))
        .unwrap();
        request.failure = Some(Failure {
            class,
            message: message.to_owned(),
        });
        request
    }

    #[test]
    fn failures_are_told_by_class_with_the_words_of_the_first() {
        let requests = [
            failed(RequestFailureClass::Status, "Internal Server Error:\nboom"),
            failed(RequestFailureClass::Refused, "connection refused"),
            failed(RequestFailureClass::Status, "other"),
        ];
        assert_eq!(
            failure_lines(&requests),
            [
                "3 of 3 requests failed:\n",
                "  1 × refused, such as: connection refused\n",
                "  2 × status, such as: Internal Server Error: boom\n",
            ]
        );
        assert!(failure_lines(&[]).is_empty());
    }
}
