//! Checks numbers of requests and tokens against what the client was to send.

use super::Checks;
use crate::analysis::metrics::{Metric, TokenCount};
use crate::config::validity::ValidityBounds;
use crate::config::workload::Profile;
use crate::import::result_block::WarningSubject;
use crate::results::record::provenance::Tool;

/// Maximum relative difference between the output tokens counted from the text and those that throughput
/// uses.
const MAX_RECOUNT_DIFFERENCE: f64 = 0.1;
/// Minimum share of the requested tokens that prompts of one length have.
const MIN_PROMPT_TOKEN_SHARE: f64 = 0.8;

impl Checks<'_> {
    pub(super) fn check_counts(&mut self) {
        let options = &self.result.options;
        let completed = self.printed(Metric::Completed);
        let Some((completed, line)) = completed.map(|(range, line)| (range.midpoint().round(), line)) else {
            return;
        };
        if let Some(prompts) = options.prompts.filter(|prompts| completed > *prompts as f64) {
            let message = format!(
                "{completed} requests succeeded, but the client was configured to send only {prompts}"
            );
            self.warn(line, WarningSubject::Identity, message);
        }
        let failed = self.result.figure(Metric::Failed).unwrap_or(0.0);
        if let Some(prompts) = options.prompts
            && completed <= prompts as f64
            && completed + failed > prompts as f64
        {
            let message = format!(
                "{completed} requests succeeded and {failed} failed, but the client was configured to \
                 send only {prompts}"
            );
            self.warn(line, WarningSubject::Figures, message);
        }
        let is_whole = options.prompts.is_some_and(|prompts| completed == prompts as f64);
        let sums = [
            (options.input_tokens, TokenCount::Input, true),
            // Only LMDeploy's fork counts the requested tokens as output.
            (
                options.output_tokens,
                TokenCount::Output,
                self.result.profile == Profile::Classic,
            ),
        ];
        for (sum, count, is_kept) in sums {
            if let (Some((line, sum)), Some(total)) = (sum, self.result.figure(Metric::Tokens(count)))
                && is_whole
                && is_kept
                && sum as f64 != total
            {
                let what = Metric::Tokens(count).label();
                let message = format!(
                    "the client prepared requests with {sum} {what}, but the result block counts {total}"
                );
                self.warn(line, WarningSubject::Figures, message);
            }
        }
        if let (Some(length), Some(output)) = (
            options.output_len,
            self.result.figure(Metric::Tokens(TokenCount::Output)),
        ) && options.is_random()
            && output > completed * f64::from(length)
        {
            let message = format!(
                "{output} output tokens are more than {completed} answers of at most \
                {length} tokens can have"
            );
            self.warn(line, WarningSubject::Figures, message);
        }
        self.check_prompt_lengths(completed);
        self.check_response_lengths(completed);
        if let Some((recounted, line)) = self.printed(Metric::Tokens(TokenCount::OutputCounted))
            && let Some(output) = self.result.figure(Metric::Tokens(TokenCount::Output))
            && (recounted.midpoint() - output).abs() > MAX_RECOUNT_DIFFERENCE * output
        {
            let message = format!(
                "{} output tokens are counted in the texts of the answers, but throughput is computed from {output}",
                recounted.midpoint().round()
            );
            self.warn(line, WarningSubject::Nothing, message);
        }
    }

    /// Warns if prompts have fewer tokens than requested.
    fn check_prompt_lengths(&mut self, completed: f64) {
        let options = &self.result.options;
        if let (true, Some(length), Some((input, line))) = (
            options.is_random() && options.range_ratio == Some(1.0) && !self.result.is_from_matrix,
            options.input_len,
            self.printed(Metric::Tokens(TokenCount::Input)),
        ) && input.high < MIN_PROMPT_TOKEN_SHARE * completed * f64::from(length)
        {
            let message = format!(
                "{} input tokens are {:.0} tokens for each of {completed} prompts, but {length} tokens each were requested",
                input.midpoint(),
                input.midpoint() / completed,
            );
            self.warn(line, WarningSubject::Figures, message);
        }
    }

    /// Warns if answers have fewer tokens than requested, although all should have one length.
    fn check_response_lengths(&mut self, completed: f64) {
        let (result, options) = (self.result, &self.result.options);
        let is_cut = options.stop_at_eos || options.body.get("ignore_eos") == Some(&false.into());
        // Other tools stop at the end token by default. `matrix` checks its own answers when it measures.
        let is_exact = result.tool == Tool::BenchServing
            && !result.is_from_matrix
            && options.is_random()
            && options.range_ratio == Some(1.0)
            && !is_cut;
        if let (true, Some(length), Some((output, line))) = (
            is_exact,
            options.output_len,
            self.printed(Metric::Tokens(TokenCount::Output)),
        ) && output.high < completed * f64::from(length) * (1.0 - ValidityBounds::default().short_outputs)
        {
            let message = format!(
                "{} output tokens are {:.0} tokens for each of {completed} answers, but {length} tokens each were \
                 requested. This is too short, unless the client ran with `--disable-ignore-eos`",
                output.midpoint(),
                output.midpoint() / completed,
            );
            self.warn(line, WarningSubject::Figures, message);
        }
    }

    /// Whether all answers have the requested length.
    pub(super) fn has_equal_lengths(&self) -> bool {
        let options = &self.result.options;
        let completed = self.result.figure(Metric::Completed);
        let output = self.result.figure(Metric::Tokens(TokenCount::Output));
        let is_sum = |length: u32| output == completed.map(|completed| completed * f64::from(length));
        options.is_random() && options.range_ratio == Some(1.0) && options.output_len.is_some_and(is_sum)
    }
}
