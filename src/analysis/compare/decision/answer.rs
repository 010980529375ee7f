//! The answer to a question: its verdict and its values, the reason in words, the loss that its starts could
//! show and the starts that would decide.

use super::limits::{ALPHA, EQUIVALENCE_CONFIDENCE, MAX_RECOMMENDED_STARTS, MIN_STARTS_NOISE_KNOWN, POWER};
use super::moderation::Variance;
use super::question::{Design, MetricQuestion, NoVerdict};
use super::variance::add_night_variance;
use crate::analysis::compare::t_test::{self, Interval};
use crate::analysis::compare::verdict::{Verdict, p_in_words, relative_change};
use crate::analysis::metrics::Direction;
use crate::base::text::pluralize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Judged(Verdict),
    /// There is no verdict, for this reason.
    NotJudged(NoVerdict),
}

/// How precise a difference is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Precision {
    /// Standard deviation of one start, of logarithms, that the test uses.
    pub(crate) sigma: f64,
    pub(crate) error: f64,
    pub(crate) df: f64,
    /// Two-sided p-value of this question alone.
    pub(crate) p: f64,
    /// p-value adjusted for all tested questions. `None` if this one was not tested.
    pub(crate) adjusted_p: Option<f64>,
    /// Degrees of freedom that the variance takes from stored noise and from other questions (other metrics or
    /// pairs of cells), beyond those of its own starts.
    pub(super) borrowed_df: f64,
}

/// The difference of the sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// Mean logarithm of the candidate minus that of the baseline.
    pub(crate) log_change: f64,
    /// Largest error that the resolution of both sides causes, of logarithms.
    pub(crate) resolution: f64,
    /// `None` if the variance is unknown.
    pub(crate) precision: Option<Precision>,
}

impl Estimate {
    /// Returns the relative change from baseline to candidate: -0.05 is five percent less.
    pub(crate) fn change(&self) -> f64 {
        relative_change(self.log_change)
    }

    /// Returns the confidence interval of the change, as shares.
    pub(crate) fn interval(&self, level: f64) -> Option<Interval> {
        let reach = self.half_width(level)?;
        Some(Interval {
            low: relative_change(self.log_change - reach),
            high: relative_change(self.log_change + reach),
        })
    }

    /// Returns half the width of that interval, of logarithms.
    fn half_width(&self, level: f64) -> Option<f64> {
        let precision = self.precision?;
        Some(self.resolution + precision.error * t_test::quantile(precision.df, f64::midpoint(1.0, level)))
    }
}

/// The result of one question, and the values behind it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) outcome: Outcome,
    /// Number of starts of the baseline and of the candidate.
    pub(crate) starts: [usize; 2],
    pub(crate) estimate: Option<Estimate>,
    pub(crate) family: usize,
    /// The floor that was applied.
    pub(crate) bound: f64,
    pub(super) better: Direction,
    pub(super) design: Design,
    pub(super) night_variance: Option<Variance>,
    pub(super) is_at_jump: bool,
}

impl Outcome {
    pub(crate) const fn no_verdict(&self) -> Option<&NoVerdict> {
        match self {
            Self::Judged(_) => None,
            Self::NotJudged(gap) => Some(gap),
        }
    }
}

impl Answer {
    /// Returns the reason not to judge the question, checked before the test.
    pub(super) fn no_verdict_reason(&self, question: &MetricQuestion) -> Option<NoVerdict> {
        if let Some(gap) = &question.no_verdict {
            return Some(gap.clone());
        }
        let (min_starts, [first, second]) = (question.min_starts(), self.starts);
        if first == 0 || second == 0 {
            let side = if first == 0 { "baseline" } else { "candidate" };
            return Some(NoVerdict::Missing(format!("the {side} has no usable start")));
        }
        if first.min(second) < min_starts || self.estimate.and_then(|estimate| estimate.precision).is_none() {
            let noise = match min_starts {
                MIN_STARTS_NOISE_KNOWN => "",
                _ => {
                    "; three starts are enough if `matrix noise` has measured the variation between starts on this host"
                }
            };
            return Some(NoVerdict::TooFewStarts(format!(
                "the two sides have {first} and {}; a verdict needs {} starts on each side{noise}",
                pluralize(second, "start", "starts"),
                if min_starts == MIN_STARTS_NOISE_KNOWN {
                    "three"
                } else {
                    "five"
                }
            )));
        }
        None
    }

    pub(crate) const fn verdict(&self) -> Option<Verdict> {
        match &self.outcome {
            Outcome::Judged(verdict) => Some(*verdict),
            Outcome::NotJudged(_) => None,
        }
    }

    /// Downgrades *better* or *worse* to *unclear* if `other`, another answer to the same question, finds
    /// neither.
    pub(super) fn unclear_unless_confirmed(mut self, other: &Self) -> Self {
        let is_found = |answer: &Self| matches!(answer.verdict(), Some(Verdict::Better | Verdict::Worse));
        if !is_found(&self) || is_found(other) {
            return self;
        }
        self.outcome = Outcome::Judged(Verdict::Unclear);
        let chance = other.estimate.and_then(|estimate| estimate.precision?.adjusted_p);
        if let Some(precision) = self
            .estimate
            .as_mut()
            .and_then(|estimate| estimate.precision.as_mut())
        {
            precision.adjusted_p = [precision.adjusted_p, chance]
                .into_iter()
                .flatten()
                .reduce(f64::max);
        }
        self
    }

    /// Returns whether the error includes all differences between two measurements at different times: the
    /// sides alternated, or the variance between nightly runs is known.
    pub(crate) const fn knows_drift(&self) -> bool {
        matches!(self.design, Design::Rounds) || self.night_variance.is_some()
    }

    pub(crate) const fn verdict_word(&self) -> &'static str {
        match &self.outcome {
            Outcome::Judged(verdict) => verdict.name(),
            Outcome::NotJudged(_) => "not judged",
        }
    }

    /// Returns the smallest loss that these starts show with probability [`POWER`], as a share, corrected for
    /// the family. `None` if the precision is unknown.
    pub(crate) fn smallest_detectable_loss(&self) -> Option<f64> {
        self.visible_loss_at_tail(ALPHA / self.family.max(1) as f64 / 2.0)
    }

    /// Returns the same loss with a one-sided error probability of `tail`, whatever the family.
    pub(crate) fn visible_loss_at_tail(&self, tail: f64) -> Option<f64> {
        let reach = self.detectable_change_at_tail(self.starts, tail)?;
        Some(match self.better {
            Direction::Higher => -relative_change(-reach),
            Direction::Lower => relative_change(reach),
        })
    }

    /// Returns whether the answer is unclear and its 90 % interval includes a loss of this share.
    pub(crate) fn may_hide(&self, loss: f64) -> bool {
        let interval = self
            .estimate
            .and_then(|estimate| estimate.interval(EQUIVALENCE_CONFIDENCE));
        let is_held = interval.is_none_or(|Interval { low, high }| match self.better {
            Direction::Higher => low <= -loss,
            Direction::Lower => high >= loss,
        });
        self.verdict() == Some(Verdict::Unclear) && is_held
    }

    /// Returns the number of starts per side that would decide if the true change is the estimate. `None` if
    /// it is decided already, or if [`MAX_RECOMMENDED_STARTS`] would not decide, for example because the change is close
    /// to the floor.
    pub(crate) fn starts_to_decide(&self) -> Option<usize> {
        let estimate = self.estimate?;
        if matches!(
            self.verdict(),
            Some(Verdict::Worse | Verdict::Same | Verdict::Better)
        ) {
            return None;
        }
        let decides = |starts: usize| {
            let change = estimate.log_change.abs();
            let Some((error, df)) = self.standard_error([starts, starts]) else {
                return false;
            };
            let is_found = self
                .detectable_change([starts, starts])
                .is_some_and(|reach| change >= reach);
            let bound = if estimate.log_change > 0.0 {
                self.bound.ln_1p()
            } else {
                -(-self.bound).ln_1p()
            };
            let reach = error * t_test::quantile(df, f64::midpoint(1.0, EQUIVALENCE_CONFIDENCE));
            // The interval has to end within the floor on either side.
            let beyond = |change: f64| {
                let room = (bound - change - estimate.resolution - reach) / error;
                let outside = t_test::two_sided_p(room, df) / 2.0;
                if room > 0.0 { outside } else { 1.0 - outside }
            };
            is_found || beyond(change) + beyond(-change) <= 1.0 - POWER
        };
        let fewest = self.starts[0].min(self.starts[1]).max(MIN_STARTS_NOISE_KNOWN);
        let mut range = (fewest, MAX_RECOMMENDED_STARTS);
        if !decides(range.1) {
            return None;
        }
        // Binary search: more starts never decide less.
        while range.0 < range.1 {
            let middle = usize::midpoint(range.0, range.1);
            range = if decides(middle) {
                (range.0, middle)
            } else {
                (middle + 1, range.1)
            };
        }
        Some(range.0)
    }

    /// Returns the standard error of the difference for these numbers of starts, and its degrees of freedom.
    fn standard_error(&self, [first, second]: [usize; 2]) -> Option<(f64, f64)> {
        let precision = self.estimate?.precision?;
        let own = match self.design {
            Design::Rounds => first.saturating_sub(1),
            Design::Separate => (first + second).saturating_sub(2),
        };
        let df = own as f64 + precision.borrowed_df;
        let squared = precision.sigma.powi(2) * (1.0 / first as f64 + 1.0 / second as f64);
        (df > 0.0).then(|| {
            let (squared, df) = add_night_variance(squared, df, self.night_variance);
            (squared.sqrt(), df)
        })
    }

    /// Returns the difference of logarithms that these numbers of starts can show.
    fn detectable_change(&self, starts: [usize; 2]) -> Option<f64> {
        self.detectable_change_at_tail(starts, ALPHA / self.family.max(1) as f64 / 2.0)
    }

    /// Returns the same difference with a one-sided error probability of `tail`.
    fn detectable_change_at_tail(&self, starts: [usize; 2], tail: f64) -> Option<f64> {
        let (error, df) = self.standard_error(starts)?;
        let certain = error * t_test::quantile(df, 1.0 - tail) + self.estimate?.resolution;
        Some(certain.max(self.bound.ln_1p()) + error * t_test::quantile(df, POWER))
    }

    pub(crate) fn reason(&self) -> String {
        self.reason_for_change(None)
    }

    /// Returns the reason with `change` as the text of the change, if it is no share.
    pub(crate) fn reason_for_change(&self, change: Option<&str>) -> String {
        let verdict = match &self.outcome {
            Outcome::NotJudged(gap) => return gap.reason().to_owned(),
            Outcome::Judged(verdict) => *verdict,
        };
        let Some((estimate, precision)) = self
            .estimate
            .and_then(|estimate| Some((estimate, estimate.precision?)))
        else {
            return String::new();
        };
        let bound = format!("the bound of {}", share_in_words(self.bound));
        let between = |level: f64| {
            let interval = estimate.interval(level);
            interval.map_or_else(String::new, |Interval { low, high }| {
                format!("{} to {}", percent(low), percent(high))
            })
        };
        let change = change.map_or_else(|| percent(estimate.change()), str::to_owned);
        let among = match self.family {
            1 => String::new(),
            family => format!(" among {family} tests"),
        };
        let p = match p_in_words(precision.adjusted_p.unwrap_or(precision.p)) {
            less if less.starts_with('<') => less,
            p => format!("= {p}"),
        };
        match verdict {
            Verdict::Worse | Verdict::Better => {
                format!("{change} is beyond {bound}, and chance does not explain it (p {p}{among})")
            }
            Verdict::Same => format!(
                "the 90 % interval of the change, {}, is within {bound}",
                between(EQUIVALENCE_CONFIDENCE)
            ),
            Verdict::Unclear if self.is_at_jump => format!(
                "{change} is uncertain: within a single start, this percentile is known only to a factor of 1.5 or more, because the times of its \
                 requests differ widely; look at the means and the other percentiles"
            ),
            Verdict::Unclear => {
                let why = if estimate.change().abs() <= self.bound {
                    format!(
                        "{change} is within {bound}, but its 90 % interval, {}, is not",
                        between(EQUIVALENCE_CONFIDENCE)
                    )
                } else {
                    format!("{change} is beyond {bound}, but chance may explain it (p {p}{among})")
                };
                format!("{why}; {}", self.power_in_words())
            }
        }
    }

    /// Says what loss the starts could show and how many starts would decide.
    fn power_in_words(&self) -> String {
        let [first, second] = self.starts;
        let visible = self.smallest_detectable_loss().map_or_else(String::new, |loss| {
            format!(
                "with {first} and {second} starts on the two sides, a loss of {} is detected in nine of ten cases",
                share_in_words(loss)
            )
        });
        let decide = self.starts_to_decide().map_or_else(
            || {
                format!(
                    "if the change is as large as it seems, a verdict needs more than {MAX_RECOMMENDED_STARTS} starts per side"
                )
            },
            |starts| {
                format!(
                    "if the change is as large as it seems, about {starts} starts per side would be enough for a verdict"
                )
            },
        );
        format!("{visible}; {decide}")
    }
}

fn percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

fn share_in_words(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
