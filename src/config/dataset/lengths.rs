//! Lengths that are chosen or drawn: what is wrong with them, and how they read.

use super::common_prefix::CommonPrefix;
use super::error::{NOT_CLASSIC, ReportError};
use super::length_distribution::Lengths;
use crate::config::profile::Profile;

/// Maximum number of tokens that a workload draws. Drawn prompts take about 8 bytes for each token.
pub(crate) const MAX_DRAWN_TOKENS: u64 = 4_000_000_000;

/// Lengths of prompts and answers, drawn between a share of the longest and the longest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Drawn {
    pub(crate) input_len: Option<u32>,
    pub(crate) output_len: Option<u32>,
    pub(crate) range_ratio: f64,
}

impl Drawn {
    /// `None` where a length is unknown.
    pub(super) fn in_words(self, profile: Profile) -> Option<String> {
        let [input, output] = self.sides_in_words(profile)?;
        Some(format!("{input} in / {output} out"))
    }

    fn sides_in_words(self, profile: Profile) -> Option<[String; 2]> {
        let input = range(self.input_len?, self.range_ratio, 1);
        let shortest = u32::from(profile == Profile::Current);
        Some([input, range(self.output_len?, self.range_ratio, shortest)])
    }

    /// Takes down what is wrong with the lengths of the data set `name`.
    pub(crate) fn find_errors(self, name: &str, report: &mut ReportError<'_>) {
        for (field, length) in [("input_len", self.input_len), ("output_len", self.output_len)] {
            if length.is_none() {
                report(
                    field,
                    format!("`{name}` needs `{field}`, the maximum number of tokens; add it"),
                );
            }
        }
        if !(0.0..=1.0).contains(&self.range_ratio) {
            report(
                "range_ratio",
                format!(
                    "`range_ratio` is {}; write a number from 0 to 1",
                    self.range_ratio
                ),
            );
        }
    }
}

/// The options of data sets that draw lengths and common tokens.
pub(super) struct DrawnOptions<'o> {
    pub(super) drawn: Drawn,
    pub(super) lengths: Option<&'o Lengths>,
    pub(super) common_prefix: Option<CommonPrefix>,
}

impl DrawnOptions<'_> {
    pub(super) fn in_words(&self, profile: Profile) -> String {
        let drawn = self.drawn;
        let Some(sides) = drawn.sides_in_words(profile) else {
            return "lengths of the data set".to_owned();
        };
        let words = match self.lengths {
            Some(lengths) => lengths.in_words([drawn.input_len, drawn.output_len], sides),
            None => sides[0].clone() + " in / " + &sides[1] + " out",
        };
        match self.common_prefix {
            Some(prefix) => format!("{words}; {prefix}"),
            None => words,
        }
    }

    /// Takes down what is wrong with distributions and common tokens.
    pub(super) fn find_errors(&self, profile: Profile, report: &mut ReportError<'_>) {
        let drawn = self.drawn;
        if let Some(lengths) = self.lengths {
            let errors = lengths.find_errors(drawn.input_len, drawn.output_len);
            errors.into_iter().for_each(|why| report("lengths", why));
        }
        if let Some(why) = self
            .common_prefix
            .and_then(|prefix| prefix.find_error(drawn.input_len))
        {
            report("common_prefix", why);
        }
        if profile == Profile::Classic {
            for (field, is_given) in [
                ("lengths", self.lengths.is_some()),
                ("common_prefix", self.common_prefix.is_some()),
            ] {
                if is_given {
                    report(field, NOT_CLASSIC.to_owned());
                }
            }
        }
    }
}

/// The share at which drawn lengths begin where a matrix does not say: rows are exactly as long as given. `matrix bench` draws from 1 on, as the
/// Python tool does.
pub(super) const fn exact() -> f64 {
    1.0
}

/// Lengths that are drawn, each as likely as the others. Source: docs/bench-serving.md 4.2.
pub(super) fn range(longest: u32, ratio: f64, shortest: u32) -> String {
    let low = ((f64::from(longest) * ratio) as u32).max(shortest).min(longest);
    match low == longest {
        true => longest.to_string(),
        false => format!(
            "{low} to {longest} (mean {})",
            f64::midpoint(low.into(), longest.into())
        ),
    }
}

/// Why prompts with this many tokens together are refused; `None` if they fit in memory.
pub(crate) fn too_many_tokens(tokens: u64) -> Option<String> {
    (tokens > MAX_DRAWN_TOKENS).then(|| {
        format!(
            "the prompts would have up to {tokens} tokens in total, more than {MAX_DRAWN_TOKENS}; request fewer or shorter prompts"
        )
    })
}

/// Takes down that answers cannot be of this length.
pub(super) fn no_answer(output_len: Option<u32>, report: &mut ReportError<'_>) {
    if output_len == Some(0) {
        report("output_len", "`output_len` is 0; write at least 1".to_owned());
    }
}

/// Takes down that answers are shorter than any row that is sent.
pub(super) fn too_few(name: &str, output_len: Option<u32>, report: &mut ReportError<'_>) {
    if let Some(tokens) = output_len.filter(|tokens| *tokens < 4) {
        report(
            "output_len",
            format!("`output_len` is {tokens}, too few tokens for `{name}`; write at least 4"),
        );
    }
}
