//! The dimensions of metrics: token counts, quantities, SLO targets, samples and statistics.

use super::metric::Unit;

/// A count of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TokenCount {
    /// Prompt tokens, as the data set counts them.
    Input,
    /// Prompt tokens that stand for images.
    InputVision,
    /// Prompt tokens, as the server reports them.
    InputReported,
    /// Prompt tokens that the server took from its prefix cache.
    InputCached,
    /// Output tokens, by the count that throughput uses.
    Output,
    /// Output tokens, as the server reports them.
    OutputReported,
    /// Output tokens, as our tokenizer counts the text.
    OutputCounted,
    /// Output tokens that were requested.
    OutputRequested,
    /// Reasoning tokens, as the server reports them, or else as our tokenizer counts them.
    OutputReasoning,
    /// Output tokens that arrived of requests that the client cancelled.
    OutputCancelled,
}

/// A quantity that has a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    Requests,
    /// Prompt tokens of completed requests.
    Input,
    /// Output tokens of completed requests.
    Output,
    /// Prompt and output tokens.
    Total,
}

/// A target of an SLO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Time to the first token.
    Ttft,
    /// Time per output token after the first.
    Tpot,
    /// Time to the end of the answer.
    E2e,
}

/// A sample of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LatencyKind {
    /// From sending to the first token, reasoning or answer.
    Ttft,
    /// From sending to the first token of the answer, without reasoning.
    TtftAnswer,
    /// From the established connection to the first token.
    TtftConnected,
    /// From due to the first token.
    TtftDue,
    /// From sending to the last token. Under `classic` and `current`: to the last line.
    E2e,
    /// From sending to the last line that was not empty.
    E2eLine,
    /// From due to the last token.
    E2eDue,
    /// From due to the last line that was not empty.
    E2eLineDue,
    /// Time per output token after the first, one value per request.
    Tpot,
    /// Time between tokens. Under `classic`: between events.
    Itl,
    /// Time between events with output.
    ChunkGap,
    /// From due to sent: the client's lag and the wait for a slot.
    Lag,
}

/// A statistic of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Statistic {
    Mean,
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
    Max,
}

impl TokenCount {
    pub(super) const ALL: [Self; 10] = [
        Self::Input,
        Self::InputVision,
        Self::InputReported,
        Self::InputCached,
        Self::Output,
        Self::OutputReported,
        Self::OutputCounted,
        Self::OutputRequested,
        Self::OutputReasoning,
        Self::OutputCancelled,
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
            Self::OutputRequested => "asked_output",
            Self::OutputReasoning => "reasoning_output",
            Self::OutputCancelled => "cancelled_output",
        }
    }
}

impl Quantity {
    pub(crate) const ALL: [Self; 4] = [Self::Requests, Self::Input, Self::Output, Self::Total];

    /// Quantities that are also reported per joule.
    pub(super) const PER_JOULE: [Self; 2] = [Self::Output, Self::Total];

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
    pub(crate) const ALL: [Self; 3] = [Self::Ttft, Self::Tpot, Self::E2e];

    pub(crate) const fn bench_serving_name(self) -> &'static str {
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

impl LatencyKind {
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

    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Ttft => "TTFT",
            Self::TtftAnswer => "TTFT of the answer",
            Self::TtftConnected => "TTFT without connecting",
            Self::TtftDue => "TTFT from due",
            Self::E2e => "E2E",
            Self::E2eLine => "E2E to the last line",
            Self::E2eDue => "E2E from due",
            Self::E2eLineDue => "E2E from due time to the last line",
            Self::Tpot => "TPOT",
            Self::Itl => "ITL",
            Self::ChunkGap => "chunk gap",
            Self::Lag => "send lag",
        }
    }
}

impl Statistic {
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

    /// Returns the share of values below the statistic. `None` if it is no percentile.
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

    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::P999 => "p99.9",
            _ => self.name(),
        }
    }
}
