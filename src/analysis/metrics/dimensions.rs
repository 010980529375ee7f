//! What metrics are made of: whose count, what flows, which target, which sample, which statistic.

use super::metric::Unit;

/// Whose count of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Count {
    /// Of prompts, as the data set counts.
    Input,
    /// Of prompts, those that stand for pictures.
    InputVision,
    /// Of prompts, as the server reports.
    InputReported,
    /// Of prompts, those the server took from its prefix cache.
    InputCached,
    /// Of answers: the count that throughput is made of.
    Output,
    /// Of answers, as the server reports.
    OutputReported,
    /// Of answers, as our tokenizer counts the text.
    OutputCounted,
    /// Of answers, as they were asked for.
    OutputAsked,
    /// Of answers, those that are reasoning: as the server reports, else as our tokenizer counts.
    OutputReasoning,
}

/// What flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flow {
    /// Completed requests.
    Requests,
    /// Prompt tokens of completed requests.
    Input,
    /// Output tokens of completed requests.
    Output,
    /// Both kinds of tokens.
    Total,
}

/// A target of an SLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Time to the first token.
    Ttft,
    /// Time per output token after the first.
    Tpot,
    /// Time to the end.
    E2e,
}

/// A sample of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sample {
    /// To the first token, reasoning or answer, from the moment of sending.
    Ttft,
    /// To the first token of the answer, reasoning left out, from the moment of sending.
    TtftAnswer,
    /// To the first token, from the moment the connection stood.
    TtftConnected,
    /// To the first token, from the moment the request was due.
    TtftDue,
    /// To the last token, from the moment of sending; under `classic` and `current` to the last line.
    E2e,
    /// To the last line that was not empty, from the moment of sending.
    E2eLine,
    /// To the last token, from the moment the request was due.
    E2eDue,
    /// To the last line that was not empty, from the moment the request was due.
    E2eLineDue,
    /// Per output token after the first, one value per request.
    Tpot,
    /// Between tokens; under `classic` between events.
    Itl,
    /// Between events that carry output.
    ChunkGap,
    /// From due to sent: our own lag, and the wait for a slot.
    Lag,
}

/// A statistic of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Statistic {
    /// The mean.
    Mean,
    /// The median.
    Median,
    /// The standard deviation of the population.
    Std,
    /// The 50th percentile.
    P50,
    /// The 90th percentile.
    P90,
    /// The 95th percentile.
    P95,
    /// The 99th percentile.
    P99,
    /// The 99.9th percentile.
    P999,
    /// The largest value.
    Max,
}

impl Count {
    pub(super) const ALL: [Self; 9] = [
        Self::Input,
        Self::InputVision,
        Self::InputReported,
        Self::InputCached,
        Self::Output,
        Self::OutputReported,
        Self::OutputCounted,
        Self::OutputAsked,
        Self::OutputReasoning,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::InputVision => "vision_input",
            Self::InputReported => "reported_input",
            Self::InputCached => "cached_input",
            Self::Output => "output",
            Self::OutputReported => "reported_output",
            Self::OutputCounted => "counted_output",
            Self::OutputAsked => "asked_output",
            Self::OutputReasoning => "reasoning_output",
        }
    }
}

impl Flow {
    pub(crate) const ALL: [Self; 4] = [Self::Requests, Self::Input, Self::Output, Self::Total];

    /// Flows that are also told per joule.
    pub(super) const OF_EFFICIENCY: [Self; 2] = [Self::Output, Self::Total];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Requests => "request",
            Self::Input => "input",
            Self::Output => "output",
            Self::Total => "total",
        }
    }

    pub(super) const fn unit(self) -> (Unit, &'static str) {
        match self {
            Self::Requests => (Unit::RequestsPerSecond, "req_s"),
            Self::Input | Self::Output | Self::Total => (Unit::TokensPerSecond, "tok_s"),
        }
    }
}

impl Target {
    /// Every target, in the order of reports.
    pub(crate) const ALL: [Self; 3] = [Self::Ttft, Self::Tpot, Self::E2e];

    /// The target as bench_serving writes it.
    pub(crate) const fn compat_name(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
            Self::E2e => "e2el",
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
            Self::E2e => "e2e",
        }
    }
}

impl Sample {
    /// Every sample, in the order of reports.
    pub(crate) const ALL: [Self; 12] = [
        Self::Ttft,
        Self::TtftAnswer,
        Self::TtftConnected,
        Self::TtftDue,
        Self::E2e,
        Self::E2eLine,
        Self::E2eDue,
        Self::E2eLineDue,
        Self::Tpot,
        Self::Itl,
        Self::ChunkGap,
        Self::Lag,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::TtftAnswer => "ttft_answer",
            Self::TtftConnected => "ttft_connected",
            Self::TtftDue => "ttft_due",
            Self::E2e => "e2e",
            Self::E2eLine => "e2e_line",
            Self::E2eDue => "e2e_due",
            Self::E2eLineDue => "e2e_line_due",
            Self::Tpot => "tpot",
            Self::Itl => "itl",
            Self::ChunkGap => "chunk_gap",
            Self::Lag => "lag",
        }
    }

    /// The sample for people.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Ttft => "TTFT",
            Self::TtftAnswer => "TTFT of the answer",
            Self::TtftConnected => "TTFT without connecting",
            Self::TtftDue => "TTFT from due",
            Self::E2e => "E2E",
            Self::E2eLine => "E2E to the last line",
            Self::E2eDue => "E2E from due",
            Self::E2eLineDue => "E2E from due to the last line",
            Self::Tpot => "TPOT",
            Self::Itl => "ITL",
            Self::ChunkGap => "chunk gap",
            Self::Lag => "send lag",
        }
    }
}

impl Statistic {
    /// Every statistic, in the order of reports.
    pub(crate) const ALL: [Self; 9] = [
        Self::Mean,
        Self::Median,
        Self::Std,
        Self::P50,
        Self::P90,
        Self::P95,
        Self::P99,
        Self::P999,
        Self::Max,
    ];

    /// The share of values that lie below it, where it is a percentile.
    pub(crate) const fn share(self) -> Option<f64> {
        match self {
            Self::Median | Self::P50 => Some(0.5),
            Self::P90 => Some(0.9),
            Self::P95 => Some(0.95),
            Self::P99 => Some(0.99),
            Self::P999 => Some(0.999),
            Self::Mean | Self::Std | Self::Max => None,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Median => "median",
            Self::Std => "std",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::P999 => "p999",
            Self::Max => "max",
        }
    }

    /// The statistic for people.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::P999 => "p99.9",
            _ => self.name(),
        }
    }
}
