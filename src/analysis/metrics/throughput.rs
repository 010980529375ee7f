//! Counts, and their rates per second, per device and per user.

use super::bench_serving::SuccessfulRequest;
use super::dimensions::{Quantity, TokenCount};
use super::inputs::MetricInputs;
use super::latency::Times;
use super::metric::Metric;
use super::metric_set::MetricSet;
use super::stats;
use super::token_totals;
use crate::config::workload::Profile;
use crate::results::record::request::{Request, RequestFailureClass};

/// Computes counts and rates under the definitions of `matrix`, over the window of [`Window::from_requests`].
pub(super) fn add_throughput(metrics: &mut MetricSet, requests: &[Request], inputs: &MetricInputs) {
    let span = Window::from_requests(requests);
    let window = span.and_then(Window::seconds);
    metrics.insert(Metric::Duration, window);
    add_counts(metrics, requests);
    let (input, output) = token_totals::add_token_totals(metrics, requests);
    let completed = requests.iter().filter(|request| request.is_completed()).count();
    let total = input.zip(output).map(|(input, output)| input + output);
    // Source: docs/bench-serving.md 7.1.
    let per_second = |amount: Option<u64>| Some(amount? as f64 / window?);
    for (flow, amount) in [
        (Quantity::Requests, Some(completed as u64)),
        (Quantity::Input, input),
        (Quantity::Output, output),
        (Quantity::Total, total),
    ] {
        let rate = per_second(amount);
        let devices = (inputs.devices > 0).then_some(f64::from(inputs.devices));
        metrics.insert(Metric::Throughput(flow), rate);
        metrics.insert(
            Metric::PerDevice(flow),
            rate.zip(devices).map(|(rate, devices)| rate / devices),
        );
    }
    metrics.insert(Metric::PerUser, output_per_user(requests, output));
    metrics.insert(
        Metric::MeanConcurrency,
        span.and_then(|span| mean_concurrency(requests, span)),
    );
    token_totals::add_tokens_per_chunk(metrics, requests);
}

/// Computes counts and rates as bench_serving prints them.
///
/// Source: docs/bench-serving.md 7.1 and 7.3. `classic` has no total throughput and no concurrency (8.2).
pub(super) fn add_bench_serving_throughput(
    metrics: &mut MetricSet,
    answers: &[SuccessfulRequest<'_>],
    profile: Profile,
    duration_s: Option<f64>,
) {
    let sum = |count: &dyn Fn(&SuccessfulRequest<'_>) -> u32| {
        answers.iter().map(|answer| u64::from(count(answer))).sum()
    };
    let input: u64 = sum(&|answer| answer.prompt);
    let output: u64 = sum(&|answer| answer.output);
    let counted: Option<u64> = answers.iter().map(|answer| answer.counted.map(u64::from)).sum();
    metrics.insert(Metric::Duration, duration_s);
    metrics.insert(Metric::Completed, Some(answers.len() as f64));
    metrics.insert(Metric::Tokens(TokenCount::Input), Some(input as f64));
    let vision: u64 = sum(&|answer| answer.vision);
    metrics.insert(
        Metric::Tokens(TokenCount::InputVision),
        (vision > 0).then_some(vision as f64),
    );
    metrics.insert(Metric::Tokens(TokenCount::Output), Some(output as f64));
    metrics.insert(
        Metric::Tokens(TokenCount::OutputCounted),
        counted.map(|tokens| tokens as f64),
    );
    let mut rate = |flow: Quantity, amount: u64| {
        metrics.insert(
            Metric::Throughput(flow),
            duration_s.map(|duration| amount as f64 / duration),
        );
    };
    rate(Quantity::Requests, answers.len() as u64);
    rate(Quantity::Input, input);
    rate(Quantity::Output, output);
    if profile == Profile::Current {
        rate(Quantity::Total, input + output);
        let vision: u64 = sum(&|answer| answer.vision);
        metrics.insert(Metric::Tokens(TokenCount::InputVision), Some(vision as f64));
        let latencies: Vec<f64> = answers.iter().map(|answer| answer.latency).collect();
        let concurrency = duration_s.map(|duration| stats::sum(&latencies) / duration);
        metrics.insert(Metric::MeanConcurrency, concurrency);
    }
}

/// The time over which rates are computed under the definitions of `matrix`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    start_ns: u64,
    end_ns: u64,
}

impl Window {
    /// Returns the time from the first due time to the last end of a completed request. The wait for a failed
    /// request is excluded, because it is no work: otherwise one lost request with a late timeout could halve
    /// every rate. If no request completed, the window ends at the last end of all.
    fn from_requests(requests: &[Request]) -> Option<Self> {
        let start_ns = requests.iter().map(|request| request.due_ns).min()?;
        let completed = requests.iter().filter(|request| request.is_completed());
        let end_ns = completed
            .map(|request| request.end_ns)
            .max()
            .or_else(|| requests.iter().map(|request| request.end_ns).max())?;
        Some(Self { start_ns, end_ns })
    }

    /// Returns the length in seconds. `None` if it is 0.
    fn seconds(self) -> Option<f64> {
        let length = self.end_ns.saturating_sub(self.start_ns);
        (length > 0).then(|| length as f64 / 1e9)
    }
}

/// Returns the seconds over which rates are computed ([`Window::from_requests`]). `None` if they are 0.
pub(super) fn measured_window_s(requests: &[Request]) -> Option<f64> {
    Window::from_requests(requests)?.seconds()
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rates {
    pub(crate) due: f64,
    pub(crate) sent: f64,
}

/// Computes the rates of a load whose requests have their own due times. `None` if there are too few requests
/// for a rate.
pub(crate) fn request_rates(requests: &[Request]) -> Option<Rates> {
    let per_second = |mut moments: Vec<u64>| {
        moments.sort_unstable();
        let span = moments.last()?.checked_sub(*moments.first()?)?;
        (span > 0).then(|| (moments.len() - 1) as f64 * 1e9 / span as f64)
    };
    Some(Rates {
        due: per_second(requests.iter().map(|request| request.due_ns).collect())?,
        sent: per_second(requests.iter().filter_map(|request| request.sent_ns).collect())?,
    })
}

/// Counts due, completed, failed and cancelled requests, and the failures by class. Requests that the client
/// cancelled are no part of the share of failed ones.
fn add_counts(metrics: &mut MetricSet, requests: &[Request]) {
    let failed = |class: RequestFailureClass| {
        let failures = requests.iter().filter_map(|request| request.failure.as_ref());
        failures.filter(|failure| failure.class == class).count()
    };
    let due = requests.len();
    let completed = requests.iter().filter(|request| request.is_completed()).count();
    metrics.insert(Metric::Due, Some(due as f64));
    metrics.insert(Metric::Completed, Some(completed as f64));
    let cancelled = requests.iter().filter(|request| request.cancelled).count();
    let lost = due - completed - cancelled;
    metrics.insert(Metric::Failed, Some(lost as f64));
    if cancelled > 0 {
        metrics.insert(Metric::Cancelled, Some(cancelled as f64));
    }
    for class in RequestFailureClass::ALL {
        metrics.insert(Metric::FailedBy(class), Some(failed(class) as f64));
    }
    let judged = due - cancelled;
    let share = (judged > 0).then(|| lost as f64 / judged as f64);
    metrics.insert(Metric::ErrorShare, share);
    // Without a token count it is unknown whether an answer is short.
    let short = requests
        .iter()
        .filter(|request| request.is_completed())
        .map(|request| {
            request
                .output_tokens()
                .map(|tokens| u32::from(tokens < request.max_output_tokens()))
        })
        .sum::<Option<u32>>();
    metrics.insert(Metric::ShortResponses, short.map(f64::from));
}

/// Returns the output tokens of completed requests divided by the time that their users waited. This equals
/// throughput divided by the mean number of waiting users (docs/glossary.md, "per user").
fn output_per_user(requests: &[Request], output: Option<u64>) -> Option<f64> {
    let waits: Vec<f64> = requests
        .iter()
        .filter(|request| request.is_completed())
        .map(Times::e2e_ms)
        .collect::<Option<_>>()?;
    let waited_ms = stats::sum(&waits);
    (waited_ms > 0.0).then_some(output? as f64 / (waited_ms / 1e3))
}

/// Returns the mean number of requests in flight in the window, failed ones included.
///
/// Source: docs/bench-serving.md 7.3. Unlike there, failed requests count, because the engine processed them
/// too.
fn mean_concurrency(requests: &[Request], window: Window) -> Option<f64> {
    let spent: Vec<f64> = requests
        .iter()
        .filter_map(|request| {
            let end = request.end_ns.min(window.end_ns);
            Some(end.saturating_sub(request.sent_ns?) as f64 / 1e9)
        })
        .collect();
    Some(stats::sum(&spent) / window.seconds()?)
}
