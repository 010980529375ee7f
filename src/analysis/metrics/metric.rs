//! Metrics with their names on disk and for users, their unit, and their better direction.

use super::dimensions::{LatencyKind, Quantity, Statistic, Target, TokenCount};
use crate::config::search::{SearchVariable, Tier};
use crate::results::record::request::RequestFailureClass;

/// A metric that a cell can have. Its name is stable, because reports, comparisons and scripts use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// Length of the measurement. Under the definitions of `matrix`: to the last end of a completed request.
    Duration,
    /// Requests that were due.
    Due,
    /// Number of requests that completed.
    Completed,
    /// Number of requests that failed.
    Failed,
    /// Requests that the client cancelled as planned, which neither completed nor failed.
    Cancelled,
    /// Requests that failed with this class.
    FailedBy(RequestFailureClass),
    /// Failed requests as a share of those that were due.
    ErrorShare,
    /// Completed answers that are shorter than requested.
    ShortResponses,
    /// Number of tokens, by count.
    Tokens(TokenCount),
    /// A quantity per second, over the whole measurement.
    Throughput(Quantity),
    /// Seconds of the recordings of completed requests.
    AudioDuration,
    /// Seconds of recordings per second (RTFx, the inverse real-time factor).
    AudioThroughput,
    /// A quantity per second and device.
    PerDevice(Quantity),
    /// Output tokens per second that one user received while waiting for answers.
    PerUser,
    /// Output tokens per second for one user while an answer streams: 1 / TPOT.
    Interactivity,
    /// Output tokens per event of a stream.
    TokensPerChunk,
    /// Mean number of requests in flight.
    MeanConcurrency,
    /// Highest number of requests in flight.
    PeakConcurrency,
    /// Highest number of output tokens within one second.
    PeakOutput,
    /// Length of the steady state: from the first to the last moment with at least nine tenths of the peak
    /// concurrency.
    SteadyDuration,
    /// Output tokens per second in the steady state.
    SteadyOutput,
    /// Mean number of requests in flight in the steady state.
    SteadyConcurrency,
    /// Tokens accepted per step of speculative decoding, as the server reports it.
    AcceptLength,
    /// Share of draft tokens that were accepted, by the engine's counters.
    AcceptRate,
    /// Share of prompt tokens from the prefix cache, by the answers, or else by the engine's counters.
    CacheHitShare,
    /// Share of prompt tokens that an unlimited prefix cache would hold, in loads of sessions.
    TheoreticalHitShare,
    /// Requests per second that met every target.
    Goodput,
    /// Share of requests that met every target.
    Attainment,
    /// Answers that are what their requests demand.
    Correct,
    /// Answers that are not.
    Incorrect,
    /// Answers of which that is not known, such as ones that the limit of output tokens cut.
    Unchecked,
    /// Share of correct answers among the correct and the incorrect ones.
    CorrectShare,
    /// Share of requests that met one target.
    AttainmentOf(Target),
    /// Energy of all devices.
    Energy,
    /// Energy above the idle energy of the same devices.
    EnergyAboveIdle,
    /// Energy per completed request, or per token of completed requests.
    EnergyPer(Quantity),
    /// Tokens of completed requests per joule.
    PerEnergy(Quantity),
    /// Mean power of all devices.
    MeanPower,
    /// Highest power of all devices at one moment.
    PeakPower,
    /// Highest value that a search found for a tier of the SLO.
    Found(SearchVariable, Tier),
    /// A statistic of a sample of times.
    Time(Statistic, LatencyKind),
}

/// The part of a name that distinguishes a further tier from the first.
fn tier_infix(tier: Tier) -> String {
    match tier {
        Tier::FIRST => String::new(),
        further => format!("tier{further}_"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Millis,
    Seconds,
    Requests,
    Sessions,
    Tokens,
    RequestsPerSecond,
    TokensPerSecond,
    Joules,
    Watts,
    TokensPerJoule,
    /// A multiple of real time.
    RealTime,
    Share,
}

impl Unit {
    /// Returns the symbol for users. Empty for a share.
    pub(crate) const fn symbol(self) -> &'static str {
        match self {
            Self::Millis => "ms",
            Self::Seconds => "s",
            Self::Requests => "requests",
            Self::Sessions => "sessions",
            Self::Tokens => "tokens",
            Self::RequestsPerSecond => "req/s",
            Self::TokensPerSecond => "tok/s",
            Self::Joules => "J",
            Self::Watts => "W",
            Self::TokensPerJoule => "tok/J",
            Self::RealTime => "x",
            Self::Share => "",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Higher,
    Lower,
}

impl Metric {
    /// Returns whether the metric counts requests or tokens and is a whole number.
    pub(crate) const fn is_count(self) -> bool {
        matches!(
            self,
            Self::Completed
                | Self::Failed
                | Self::Cancelled
                | Self::Correct
                | Self::Incorrect
                | Self::Unchecked
                | Self::Tokens(_)
                | Self::PeakConcurrency
        )
    }

    /// Returns every metric, in the order of reports.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let counts = [
            Self::Duration,
            Self::Due,
            Self::Completed,
            Self::Failed,
            Self::Cancelled,
        ];
        let flows = [
            Self::AudioDuration,
            Self::AudioThroughput,
            Self::PerUser,
            Self::Interactivity,
            Self::TokensPerChunk,
            Self::MeanConcurrency,
            Self::PeakConcurrency,
            Self::PeakOutput,
            Self::SteadyDuration,
            Self::SteadyOutput,
            Self::SteadyConcurrency,
            Self::AcceptLength,
            Self::AcceptRate,
            Self::CacheHitShare,
            Self::TheoreticalHitShare,
            Self::Goodput,
            Self::Attainment,
            Self::Correct,
            Self::Incorrect,
            Self::Unchecked,
            Self::CorrectShare,
        ];
        let times = LatencyKind::ALL
            .into_iter()
            .flat_map(|kind| Statistic::ALL.map(|statistic| Self::Time(statistic, kind)));
        counts
            .into_iter()
            .chain(RequestFailureClass::ALL.map(Self::FailedBy))
            .chain([Self::ErrorShare, Self::ShortResponses])
            .chain(TokenCount::ALL.map(Self::Tokens))
            .chain(Quantity::ALL.map(Self::Throughput))
            .chain(Quantity::ALL.map(Self::PerDevice))
            .chain(flows)
            .chain(Target::ALL.map(Self::AttainmentOf))
            .chain([Self::Energy, Self::EnergyAboveIdle])
            .chain(Quantity::ALL.map(Self::EnergyPer))
            .chain(Quantity::PER_JOULE.map(Self::PerEnergy))
            .chain([Self::MeanPower, Self::PeakPower])
            .chain(Tier::all().flat_map(|tier| SearchVariable::ALL.map(|by| Self::Found(by, tier))))
            .chain(times)
    }

    /// Finds the metric with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|metric| metric.name() == name)
    }

    /// Returns the name on disk. It ends in the unit, except for shares, which have none.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Duration => "duration_s".to_owned(),
            Self::Due => "due_requests".to_owned(),
            Self::Completed => "completed_requests".to_owned(),
            Self::Failed => "failed_requests".to_owned(),
            Self::Cancelled => "cancelled_requests".to_owned(),
            Self::FailedBy(class) => format!("failed_{}_requests", class.name().replace('-', "_")),
            Self::ErrorShare => "error_share".to_owned(),
            Self::ShortResponses => "short_requests".to_owned(),
            Self::Tokens(count) => format!("{}_tokens", count.name()),
            Self::Throughput(flow) => format!("{}_throughput_{}", flow.name(), flow.unit().1),
            Self::PerDevice(flow) => format!("{}_throughput_per_gpu_{}", flow.name(), flow.unit().1),
            Self::AudioDuration => "audio_s".to_owned(),
            Self::AudioThroughput => "audio_throughput_x".to_owned(),
            Self::PerUser => "output_throughput_per_user_tok_s".to_owned(),
            Self::Interactivity => "interactivity_tok_s".to_owned(),
            Self::TokensPerChunk => "mean_chunk_tokens".to_owned(),
            Self::MeanConcurrency => "mean_concurrency_requests".to_owned(),
            Self::PeakConcurrency => "peak_concurrency_requests".to_owned(),
            Self::PeakOutput => "peak_output_throughput_tok_s".to_owned(),
            Self::SteadyDuration => "steady_duration_s".to_owned(),
            Self::SteadyOutput => "steady_output_throughput_tok_s".to_owned(),
            Self::SteadyConcurrency => "steady_mean_concurrency_requests".to_owned(),
            Self::AcceptLength => "accept_length_tokens".to_owned(),
            Self::AcceptRate => "accept_rate_share".to_owned(),
            Self::CacheHitShare => "prefix_cache_hit_share".to_owned(),
            Self::TheoreticalHitShare => "theoretical_prefix_cache_hit_share".to_owned(),
            Self::Goodput => "goodput_req_s".to_owned(),
            Self::Attainment => "slo_attainment_share".to_owned(),
            Self::Correct => "correct_requests".to_owned(),
            Self::Incorrect => "incorrect_requests".to_owned(),
            Self::Unchecked => "unchecked_requests".to_owned(),
            Self::CorrectShare => "correct_share".to_owned(),
            Self::AttainmentOf(target) => format!("slo_attainment_{}_share", target.name()),
            Self::Energy => "energy_j".to_owned(),
            Self::EnergyAboveIdle => "energy_above_idle_j".to_owned(),
            Self::EnergyPer(Quantity::Requests) => "energy_per_request_j".to_owned(),
            Self::EnergyPer(Quantity::Total) => "energy_per_token_j".to_owned(),
            Self::EnergyPer(flow) => format!("energy_per_{}_token_j", flow.name()),
            Self::PerEnergy(flow) => format!("{}_efficiency_tok_j", flow.name()),
            Self::MeanPower => "mean_power_w".to_owned(),
            Self::PeakPower => "peak_power_w".to_owned(),
            Self::Found(SearchVariable::Rate, tier) => format!("found_rate_{}req_s", tier_infix(tier)),
            Self::Found(SearchVariable::Concurrency, tier) => {
                format!("found_concurrency_{}requests", tier_infix(tier))
            }
            Self::Found(SearchVariable::Sessions, tier) => format!("found_{}sessions", tier_infix(tier)),
            Self::Time(statistic, kind) => format!("{}_{}_ms", statistic.name(), kind.name()),
        }
    }

    pub(crate) fn label(self) -> String {
        let plain = match self {
            Self::Duration => "duration",
            Self::Due => "requests due",
            Self::Completed => "requests completed",
            Self::Failed => "requests failed",
            Self::Cancelled => "requests cancelled by the client",
            Self::FailedBy(class) => return format!("requests failed: {}", class.name()),
            Self::ErrorShare => "share of failed requests",
            Self::ShortResponses => "answers shorter than requested",
            Self::Tokens(TokenCount::Input) => "prompt tokens",
            Self::Tokens(TokenCount::InputVision) => "prompt tokens of images, by the server's count",
            Self::Tokens(TokenCount::InputReported) => "prompt tokens, reported by the server",
            Self::Tokens(TokenCount::InputCached) => "prompt tokens from the prefix cache",
            Self::Tokens(TokenCount::Output) => "output tokens",
            Self::Tokens(TokenCount::OutputReported) => "output tokens, reported by the server",
            Self::Tokens(TokenCount::OutputCounted) => "output tokens, counted by our tokenizer",
            Self::Tokens(TokenCount::OutputRequested) => "output tokens, requested",
            Self::Tokens(TokenCount::OutputCancelled) => "output tokens of cancelled requests",
            Self::Tokens(TokenCount::OutputReasoning) => "output tokens of reasoning",
            Self::Throughput(flow) => return format!("{} throughput", flow.name()),
            Self::PerDevice(flow) => return format!("{} throughput per GPU", flow.name()),
            Self::AudioDuration => "audio transcribed",
            Self::AudioThroughput => "audio throughput (RTFx)",
            Self::PerUser => "output throughput per user",
            Self::Interactivity => "interactivity",
            Self::TokensPerChunk => "tokens per chunk",
            Self::MeanConcurrency => "mean concurrency",
            Self::PeakConcurrency => "peak concurrency",
            Self::PeakOutput => "peak output throughput",
            Self::SteadyDuration => "duration of the steady state",
            Self::SteadyOutput => "output throughput in the steady state",
            Self::SteadyConcurrency => "mean concurrency in the steady state",
            Self::AcceptLength => "accept length",
            Self::AcceptRate => "accept rate",
            Self::CacheHitShare => "prefix-cache hit rate",
            Self::TheoreticalHitShare => "theoretical prefix-cache hit rate",
            Self::Goodput => "goodput",
            Self::Attainment => "SLO attainment",
            Self::Correct => "correct answers",
            Self::Incorrect => "incorrect answers",
            Self::Unchecked => "answers that could not be checked",
            Self::CorrectShare => "share of correct answers",
            Self::AttainmentOf(Target::Ttft) => "TTFT attainment",
            Self::AttainmentOf(Target::Tpot) => "TPOT attainment",
            Self::AttainmentOf(Target::E2e) => "E2E attainment",
            Self::Energy => "energy",
            Self::EnergyAboveIdle => "energy above idle",
            Self::EnergyPer(Quantity::Requests) => "energy per request",
            Self::EnergyPer(Quantity::Total) => "energy per token",
            Self::EnergyPer(flow) => return format!("energy per {} token", flow.name()),
            Self::PerEnergy(flow) => return format!("{} tokens per joule", flow.name()),
            Self::MeanPower => "mean power",
            Self::PeakPower => "peak power",
            Self::Found(by, tier) => {
                let of = if tier == Tier::FIRST {
                    String::new()
                } else {
                    format!("tier {tier} of ")
                };
                return format!("highest {} that meets {of}the SLO", by.name());
            }
            Self::Time(statistic, kind) => return format!("{} {}", statistic.label(), kind.label()),
        };
        plain.to_owned()
    }

    pub(crate) const fn unit(self) -> Unit {
        match self {
            Self::Duration | Self::SteadyDuration | Self::AudioDuration => Unit::Seconds,
            Self::AudioThroughput => Unit::RealTime,
            Self::Due
            | Self::Completed
            | Self::Failed
            | Self::Cancelled
            | Self::Correct
            | Self::Incorrect
            | Self::Unchecked
            | Self::FailedBy(_)
            | Self::ShortResponses
            | Self::MeanConcurrency
            | Self::SteadyConcurrency
            | Self::Found(SearchVariable::Concurrency, _)
            | Self::PeakConcurrency => Unit::Requests,
            Self::ErrorShare
            | Self::AcceptRate
            | Self::CacheHitShare
            | Self::TheoreticalHitShare
            | Self::Attainment
            | Self::CorrectShare
            | Self::AttainmentOf(_) => Unit::Share,
            Self::Tokens(_) | Self::TokensPerChunk | Self::AcceptLength => Unit::Tokens,
            Self::Throughput(flow) | Self::PerDevice(flow) => flow.unit().0,
            Self::PerUser | Self::Interactivity | Self::PeakOutput | Self::SteadyOutput => {
                Unit::TokensPerSecond
            }
            Self::Found(SearchVariable::Sessions, _) => Unit::Sessions,
            Self::Goodput | Self::Found(SearchVariable::Rate, _) => Unit::RequestsPerSecond,
            Self::Energy | Self::EnergyAboveIdle | Self::EnergyPer(_) => Unit::Joules,
            Self::PerEnergy(_) => Unit::TokensPerJoule,
            Self::MeanPower | Self::PeakPower => Unit::Watts,
            Self::Time(..) => Unit::Millis,
        }
    }

    /// Returns the better direction. `None` for a metric that only describes.
    pub(crate) const fn direction(self) -> Option<Direction> {
        match self {
            Self::Failed
            | Self::FailedBy(_)
            | Self::ErrorShare
            | Self::Incorrect
            | Self::ShortResponses
            | Self::Duration
            | Self::Energy
            | Self::EnergyAboveIdle
            | Self::EnergyPer(_)
            | Self::Time(..) => Some(Direction::Lower),
            Self::Completed
            | Self::Throughput(_)
            | Self::PerDevice(_)
            | Self::AudioThroughput
            | Self::PerUser
            | Self::Interactivity
            | Self::PeakOutput
            | Self::SteadyOutput
            | Self::AcceptLength
            | Self::AcceptRate
            | Self::Goodput
            | Self::Attainment
            | Self::Correct
            | Self::CorrectShare
            | Self::AttainmentOf(_)
            | Self::PerEnergy(_)
            | Self::Found(..) => Some(Direction::Higher),
            Self::Due
            | Self::Cancelled
            | Self::AudioDuration
            | Self::Unchecked
            | Self::Tokens(_)
            | Self::TokensPerChunk
            | Self::CacheHitShare
            | Self::TheoreticalHitShare
            | Self::MeanPower
            | Self::PeakPower
            | Self::MeanConcurrency
            | Self::SteadyDuration
            | Self::SteadyConcurrency
            | Self::PeakConcurrency => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_is_unique_finds_its_metric_and_ends_in_its_unit() {
        let mut seen = BTreeSet::new();
        for metric in Metric::all() {
            let name = metric.name();
            let ending = match metric.unit() {
                Unit::Millis => "_ms",
                Unit::Seconds => "_s",
                Unit::Requests => "_requests",
                Unit::Sessions => "_sessions",
                Unit::Tokens => "_tokens",
                Unit::RequestsPerSecond => "_req_s",
                Unit::TokensPerSecond => "_tok_s",
                Unit::Joules => "_j",
                Unit::Watts => "_w",
                Unit::TokensPerJoule => "_tok_j",
                Unit::RealTime => "_x",
                Unit::Share => "_share",
            };
            assert!(name.ends_with(ending), "{name} does not end in {ending}");
            assert_eq!(Metric::from_name(&name), Some(metric));
            assert!(seen.insert(name));
            assert!(!metric.label().is_empty());
        }
        assert!(seen.contains("mean_ttft_ms") && seen.contains("output_throughput_tok_s"));
        assert_eq!(Metric::from_name("mean_tfft_ms"), None);
    }
}
