//! Sentences beside figures that are easily misread because they do not mean what their names suggest.
//!
//! Source: docs/bench-serving.md T1, T2 and T5.

use crate::analysis::metrics::{LatencyKind, Metric, Statistic, TokenCount, divides_gaps};
use crate::config::workload::Profile;
use crate::plan::Protocol;

/// From this many tokens per chunk on, the chunk gap is not the time of a token.
const MULTI_TOKEN_FACTOR: f64 = 1.05;
/// If mean TPOT and mean ITL differ by more than this factor, a caveat explains why.
const MAX_TPOT_ITL_FACTOR: f64 = 1.25;

/// The meaning of ITL in the output that a caveat belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Itl {
    /// Time per token, under the definitions `matrix`.
    Token,
    /// Chunk gap, as in a block for OpenAI protocols.
    Event,
    /// Chunk gap divided by the tokens of the later chunk, as in a block for `/generate`.
    Divided,
}

impl Itl {
    /// The meaning of ITL in a bench_serving block.
    pub(crate) fn for_block(
        profile: Profile,
        protocol: Protocol,
        backend: &str,
        accept_length: Option<f64>,
    ) -> Self {
        let is_divided = protocol == Protocol::SglangNative || divides_gaps(backend, accept_length);
        match (profile, is_divided) {
            (Profile::Current, true) => Self::Divided,
            _ => Self::Event,
        }
    }
}

/// Caveats of latencies, from figures under the definitions `matrix`.
pub(crate) fn latency_caveats(figure: &dyn Fn(Metric) -> Option<f64>, itl: Itl) -> Vec<String> {
    let mean = |sample| figure(Metric::Time(Statistic::Mean, sample));
    let mut notes = Vec::new();
    if let Some(tokens) = figure(Metric::TokensPerChunk).filter(|tokens| *tokens > MULTI_TOKEN_FACTOR) {
        let with_label = |what: &str, value: Option<f64>| {
            value.map_or_else(String::new, |value| {
                format!("; the mean time {what} is {value:.2} ms")
            })
        };
        let meaning = match itl {
            Itl::Token => format!(
                "ITL is the time between events, divided evenly among the tokens of an event{}",
                with_label("between events", mean(LatencyKind::ChunkGap))
            ),
            Itl::Event => format!(
                "ITL is the time between events{}",
                with_label("per token", mean(LatencyKind::Itl))
            ),
            Itl::Divided => "ITL is the time between events divided by the tokens of an event, \
                             which smooths bursts; this ITL cannot be compared with that of OpenAI's \
                             protocols, which is not divided"
                .to_owned(),
        };
        notes.push(format!(
            "an event of the stream carries {tokens:.2} tokens on average, and {meaning}"
        ));
    }
    if let (Some(tpot), Some(per_token)) = (mean(LatencyKind::Tpot), mean(LatencyKind::Itl))
        && tpot.max(per_token) > MAX_TPOT_ITL_FACTOR * tpot.min(per_token)
    {
        notes.push(format!(
            "mean TPOT is {tpot:.2} ms, but the mean time per token is {per_token:.2} ms: in mean TPOT, short \
             answers count as much as long ones; in the mean time per token, each token counts equally"
        ));
    }
    notes
}

/// Prompt tokens as counted by the server and by the data set, if both are known.
pub(crate) fn prompt_counts(figure: &dyn Fn(Metric) -> Option<f64>) -> Option<(f64, f64)> {
    let reported = figure(Metric::Tokens(TokenCount::InputReported))?;
    Some((reported, figure(Metric::Tokens(TokenCount::Input))?))
}

/// The note that the two counts differ.
pub(crate) fn prompt_count_note((reported, input): (f64, f64)) -> String {
    format!(
        "the server counts {reported} prompt tokens, but the data set has {input}; throughput uses the count of the data set"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The notes for these tokens per chunk and means of TPOT, ITL and chunk gap, in this order.
    fn caveats_for(values: [f64; 4], itl: Itl) -> Vec<String> {
        let mean = |sample| Metric::Time(Statistic::Mean, sample);
        let [per_event, tpot, per_token, between] = values;
        let known = [
            (Metric::TokensPerChunk, per_event),
            (mean(LatencyKind::Tpot), tpot),
            (mean(LatencyKind::Itl), per_token),
            (mean(LatencyKind::ChunkGap), between),
        ];
        let figure = |metric| {
            known
                .iter()
                .find(|(name, _)| *name == metric)
                .map(|(_, value)| *value)
        };
        latency_caveats(&figure, itl)
    }

    #[test]
    fn merged_tokens_are_explained_by_what_is_shown() {
        let merged = [2.1, 50.0, 50.0, 105.0];
        let one = |itl| caveats_for(merged, itl).join("");
        assert_eq!(
            one(Itl::Token),
            "an event of the stream carries 2.10 tokens on average, and ITL is the time between events, divided evenly among the tokens of an event; the mean time between events is \
             105.00 ms"
        );
        assert_eq!(
            one(Itl::Event),
            "an event of the stream carries 2.10 tokens on average, and ITL is the time between events; the mean time per token is 50.00 ms"
        );
        assert!(one(Itl::Divided).contains("divided by the tokens"));
        assert!(caveats_for([1.04, 50.0, 50.0, 52.0], Itl::Event).is_empty());
    }

    /// Source: docs/bench-serving.md T5; these are the means of its run.
    #[test]
    fn a_mean_over_answers_that_is_far_from_the_mean_over_tokens_is_explained() {
        let notes = caveats_for([1.0, 6661.0, 1850.0, 1850.0], Itl::Token);
        assert_eq!(notes.len(), 1);
        assert!(
            notes[0].starts_with("mean TPOT is 6661.00 ms, but the mean time per token is 1850.00 ms: "),
            "{notes:?}"
        );
        assert!(caveats_for([1.0, 60.0, 50.0, 50.0], Itl::Token).is_empty());
    }

    #[test]
    fn a_block_divides_gaps_only_under_the_current_rules() {
        let itl_for = |profile, protocol, backend, length| Itl::for_block(profile, protocol, backend, length);
        let native = Protocol::SglangNative;
        assert_eq!(itl_for(Profile::Current, native, "sglang", None), Itl::Divided);
        assert_eq!(itl_for(Profile::Classic, native, "sglang", None), Itl::Event);
        assert_eq!(
            itl_for(Profile::Current, Protocol::Chat, "sglang-oai-chat", None),
            Itl::Event
        );
        assert_eq!(
            itl_for(Profile::Current, Protocol::Chat, "sglang-oai-chat", Some(2.5)),
            Itl::Divided
        );
    }
}
