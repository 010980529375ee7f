//! Checks the times of tokens (TPOT, ITL) against the durations of the answers.

use super::{Checks, MAX_GAPS_PER_TOKEN, MAX_TPOT_WEIGHT_FACTOR, time};
use crate::analysis::metrics::{LatencyKind, Metric, Statistic::Mean, TokenCount};
use crate::config::validity::ValidityBounds;
use crate::config::workload::Profile;
use crate::import::result_block::WarningSubject;

/// From this many tokens per chunk on, the chunk gap is not the time of a token.
const MULTI_TOKEN_FACTOR: f64 = 1.05;
/// Maximum factor of mean ITL over mean TPOT that different answer lengths can explain.
const MAX_ITL_FACTOR: f64 = 1.5;

impl Checks<'_> {
    /// If all answers have one length, mean E2E must be mean TTFT plus mean TPOT for each further token.
    pub(super) fn check_e2e_parts(&mut self) {
        self.check_tpot();
        let length = self.result.options.output_len.map(f64::from);
        let Some(length) = length.filter(|length| self.has_equal_lengths() && *length >= 2.0) else {
            return;
        };
        let whole = self
            .range(time(Mean, LatencyKind::Ttft))
            .zip(self.range(time(Mean, LatencyKind::Tpot)))
            .map(|(first, each)| first.plus(each.times(length - 1.0)));
        self.check_equal(
            time(Mean, LatencyKind::E2e),
            whole,
            &format!("mean TTFT + {} × mean TPOT", length - 1.0),
        );
    }

    /// Warns if mean TPOT is far too small for the duration of the answers.
    fn check_tpot(&mut self) {
        let value = |metric| self.result.figure(metric);
        let mean = |sample| value(time(Mean, sample));
        if let (Some(completed), Some(output), Some(e2e), Some(ttft), Some((tpot, line))) = (
            value(Metric::Completed),
            value(Metric::Tokens(TokenCount::Output)),
            mean(LatencyKind::E2e),
            mean(LatencyKind::Ttft),
            self.printed(time(Mean, LatencyKind::Tpot)),
        ) {
            let each = (e2e - ttft) * completed / (output - completed);
            if output > completed && tpot.high * MAX_TPOT_WEIGHT_FACTOR < each {
                let message = format!(
                    "mean TPOT is {:.2} ms, but mean E2E, mean TTFT and the output tokens imply {each:.2} \
                     ms per token",
                    tpot.midpoint()
                );
                self.warn(line, WarningSubject::Figures, message);
            }
        }
    }

    /// Warns if mean ITL is far above mean TPOT, as events then carry several tokens. For results that lack
    /// E2E, TTFT, or the counts of requests and tokens. `is_explained` suppresses the warning: the tool divides
    /// gaps by tokens, or the server uses speculative decoding.
    fn check_multi_token_gaps(&mut self, is_explained: bool) {
        let (Some((itl, line)), Some(tpot)) = (
            self.printed(time(Mean, LatencyKind::Itl)),
            self.range(time(Mean, LatencyKind::Tpot)),
        ) else {
            return;
        };
        if !is_explained && tpot.low > 0.0 && itl.low > MAX_ITL_FACTOR * tpot.high {
            let message = format!(
                "mean ITL is {:.2} ms, but mean TPOT is {:.2} ms: streamed events carry about {:.1} tokens, \
                 so ITL is the time between events, not between tokens",
                itl.midpoint(),
                tpot.midpoint(),
                itl.midpoint() / tpot.midpoint(),
            );
            self.warn(line, WarningSubject::Chunks, message);
        }
    }

    /// Warns if chunks carry several tokens, so that chunk gaps are no times per token.
    ///
    /// Source: docs/bench-serving.md 13.3.
    pub(super) fn check_chunk_gaps(&mut self) {
        let value = |metric| self.result.figure(metric);
        let mean = |sample| value(time(Mean, sample));
        let backend = self.result.options.backend.as_deref().unwrap_or_default();
        let is_divided =
            self.result.profile == Profile::Current && ["sglang", "sglang-native"].contains(&backend);
        let accepts_more = value(Metric::AcceptLength).is_some_and(|length| length > 1.0);
        let (Some(completed), Some(output), Some(e2e), Some(ttft), Some((itl, line))) = (
            value(Metric::Completed),
            value(Metric::Tokens(TokenCount::Output)),
            mean(LatencyKind::E2e),
            mean(LatencyKind::Ttft),
            self.printed(time(Mean, LatencyKind::Itl)),
        ) else {
            self.check_multi_token_gaps(is_divided || accepts_more);
            self.check_gap_count();
            return;
        };
        let gaps = completed * (e2e - ttft) / itl.midpoint();
        let rest = output - completed;
        if itl.low > 0.0 && rest > 0.0 && gaps > MAX_GAPS_PER_TOKEN * rest {
            let message = format!(
                "mean ITL is {:.2} ms, but the answers took {:.2} ms on average after their first token. At \
                 this ITL, an answer would have {:.0} further tokens, but it has {:.0} on average",
                itl.midpoint(),
                e2e - ttft,
                gaps / completed,
                rest / completed,
            );
            self.warn(line, WarningSubject::Figures, message);
        }
        if itl.low <= 0.0 || gaps < 1.0 {
            return;
        }
        let tokens = (output - completed) / gaps;
        if is_divided && tokens > MAX_ITL_FACTOR {
            let message = format!(
                "mean ITL, which the benchmark client computes per token, is {:.2} ms, but mean E2E, mean TTFT \
                 and the number of output tokens imply {:.2} ms",
                itl.midpoint(),
                itl.midpoint() / tokens
            );
            self.warn(line, WarningSubject::Chunks, message);
        }
        if !is_divided && !accepts_more && tokens > MULTI_TOKEN_FACTOR {
            let message = format!(
                "streamed events carry {tokens:.2} tokens on average (computed from output tokens and mean E2E, \
                 TTFT and ITL). So ITL is the time between events; the time per token is about {:.2} ms",
                itl.midpoint() / tokens
            );
            // A few percent are only noted. A larger share makes the measurement suspect as chunked.
            let is_chunked = tokens > ValidityBounds::default().tokens_per_chunk;
            let about = if is_chunked {
                WarningSubject::Chunks
            } else {
                WarningSubject::Nothing
            };
            self.warn(line, about, message);
        }
    }
}
