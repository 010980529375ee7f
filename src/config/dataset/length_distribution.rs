//! Distributions of lengths, and files with pairs of lengths. Draws nothing and reads no file.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How the lengths of prompts and answers are drawn, instead of evenly.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Lengths {
    /// Distribution of prompt lengths, such as `{ lognormal: { median: 512, sigma: 1.0 } }`. `input_len` is the maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<LengthDistribution>,
    /// Distribution of output lengths, such as `{ normal: { mean: 200, stddev: 50 } }`. `output_len` is the maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<LengthDistribution>,
    /// File with pairs of lengths instead of distributions, relative to the matrix file: CSV (two columns, a first line of
    /// names is optional) or JSON lines (`{"input": 512, "output": 128}` or `[512, 128]`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    /// How pairs are taken from the file; default `sampled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) order: Option<PairOrder>,
}

/// How pairs of lengths are taken from a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PairOrder {
    /// Drawn with replacement, each with equal probability.
    #[default]
    Sampled,
    /// In the order of the file, from the beginning again after its end.
    InOrder,
}

/// A distribution of lengths. Drawn numbers are rounded and clipped between `min` and the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum LengthDistribution {
    /// The logarithm of the length is normally distributed.
    Lognormal(Lognormal),
    /// The length is normally distributed.
    Normal(Normal),
}

/// A lognormal distribution: `median` or `mean`, and `sigma` or `stddev`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Lognormal {
    /// Median of the lengths in tokens, before clipping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) median: Option<f64>,
    /// Mean of the lengths in tokens, before clipping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mean: Option<f64>,
    /// Standard deviation of the logarithm of the lengths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sigma: Option<f64>,
    /// Standard deviation of the lengths in tokens, before clipping; with `mean`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stddev: Option<f64>,
    /// Shortest length; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) min: Option<u32>,
}

/// A normal distribution.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Normal {
    /// Mean of the lengths in tokens, before clipping.
    pub(crate) mean: f64,
    /// Standard deviation of the lengths in tokens, before clipping.
    pub(crate) stddev: f64,
    /// Shortest length; default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) min: Option<u32>,
}

/// What a standard normal number `z` becomes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LengthTransform {
    /// `exp(mu + sigma · z)`.
    Exponential { mu: f64, sigma: f64 },
    /// `mean + stddev · z`.
    Linear { mean: f64, stddev: f64 },
}

impl LengthTransform {
    pub(crate) fn apply(self, z: f64) -> f64 {
        match self {
            Self::Exponential { mu, sigma } => (mu + sigma * z).exp(),
            Self::Linear { mean, stddev } => mean + stddev * z,
        }
    }
}

impl LengthDistribution {
    /// The shortest length.
    pub(crate) fn min(self) -> u32 {
        let min = match self {
            Self::Lognormal(lognormal) => lognormal.min,
            Self::Normal(normal) => normal.min,
        };
        min.unwrap_or(1)
    }

    /// Returns how lengths are made of standard normal numbers, or why they cannot be.
    pub(crate) fn transform(self) -> Result<LengthTransform, String> {
        let positive = |name: &str, value: f64| match value.is_finite() && value > 0.0 {
            true => Ok(value),
            false => Err(format!("`{name}` is {value}; write a number above 0")),
        };
        let spread = |name: &str, value: f64| match value.is_finite() && value >= 0.0 {
            true => Ok(value),
            false => Err(format!("`{name}` is {value}; write a number of at least 0")),
        };
        let Lognormal {
            median,
            mean,
            sigma,
            stddev,
            ..
        } = match self {
            Self::Normal(normal) => {
                return Ok(LengthTransform::Linear {
                    mean: positive("mean", normal.mean)?,
                    stddev: spread("stddev", normal.stddev)?,
                });
            }
            Self::Lognormal(lognormal) => lognormal,
        };
        match (median, mean, sigma, stddev) {
            (Some(median), None, Some(sigma), None) => Ok(LengthTransform::Exponential {
                mu: positive("median", median)?.ln(),
                sigma: spread("sigma", sigma)?,
            }),
            (None, Some(mean), Some(sigma), None) => {
                let sigma = spread("sigma", sigma)?;
                Ok(LengthTransform::Exponential {
                    mu: positive("mean", mean)?.ln() - sigma * sigma / 2.0,
                    sigma,
                })
            }
            (None, Some(mean), None, Some(stddev)) => {
                let (mean, stddev) = (positive("mean", mean)?, spread("stddev", stddev)?);
                let variance = (stddev / mean).powi(2).ln_1p();
                Ok(LengthTransform::Exponential {
                    mu: mean.ln() - variance / 2.0,
                    sigma: variance.sqrt(),
                })
            }
            _ => {
                Err("a log-normal distribution needs `median` and `sigma`, or `mean` and `stddev`, or `mean` and `sigma`".to_owned())
            }
        }
    }

    /// Describes what is wrong with it for lengths of at most `max` tokens.
    fn find_error(self, max: Option<u32>) -> Option<String> {
        if let Err(why) = self.transform() {
            return Some(why);
        }
        let min = self.min();
        match max {
            _ if min == 0 => Some("`min` is 0; write at least 1".to_owned()),
            Some(max) if min > max => Some(format!(
                "`min` is {min}, above the maximum length of {max} tokens"
            )),
            _ => None,
        }
    }
}

impl fmt::Display for LengthDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, parts) = match self {
            Self::Lognormal(lognormal) => (
                "lognormal",
                [
                    ("median", lognormal.median),
                    ("mean", lognormal.mean),
                    ("sigma", lognormal.sigma),
                    ("stddev", lognormal.stddev),
                ],
            ),
            Self::Normal(normal) => (
                "normal",
                [
                    ("mean", Some(normal.mean)),
                    ("stddev", Some(normal.stddev)),
                    ("", None),
                    ("", None),
                ],
            ),
        };
        let parts = parts
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name} {}", value?)));
        write!(f, "{name} ({})", parts.collect::<Vec<_>>().join(", "))
    }
}

/// Reads a distribution as a flag has it: `lognormal:median=512,sigma=1.0,min=4` or `normal:mean=512,stddev=100`.
impl std::str::FromStr for LengthDistribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = || {
            format!(
                "`{text}` is not a distribution; write it like `lognormal:median=512,sigma=1.0` or `normal:mean=512,stddev=100`"
            )
        };
        let (name, fields) = text.split_once(':').ok_or_else(form)?;
        let mut values = serde_json::Map::new();
        for field in fields.split(',') {
            let (key, value) = field.split_once('=').ok_or_else(form)?;
            let number: serde_json::Number = value.trim().parse().map_err(|_| form())?;
            if values.insert(key.trim().to_owned(), number.into()).is_some() {
                return Err(format!("`{text}` sets `{}` twice; write it once", key.trim()));
            }
        }
        let tagged = serde_json::json!({ name.trim(): values });
        serde_json::from_value(tagged).map_err(|error| format!("`{text}`: {error}"))
    }
}

impl Lengths {
    /// Describes everything that is wrong with it, for lengths of at most these tokens.
    pub(crate) fn find_errors(&self, max_input: Option<u32>, max_output: Option<u32>) -> Vec<String> {
        let mut errors = Vec::new();
        for (side, distribution, max) in [
            ("input", self.input, max_input),
            ("output", self.output, max_output),
        ] {
            let error = distribution.and_then(|distribution| distribution.find_error(max));
            errors.extend(error.map(|why| format!("the distribution of {side} lengths: {why}")));
        }
        let draws = self.input.is_some() || self.output.is_some();
        match (&self.file, draws) {
            (Some(_), true) => errors
                .push("lengths come from a file or from distributions, not from both; remove one".to_owned()),
            (None, false) => {
                errors.push("lengths need a distribution or a file; give one of them".to_owned())
            }
            _ => {}
        }
        if self.file.is_none() && self.order.is_some() {
            errors.push("an order has no effect without a file of length pairs; remove the order".to_owned());
        }
        errors
    }

    /// Whether both lengths of each request come from here, so that no other option draws one.
    pub(crate) fn sets_both(&self) -> bool {
        self.file.is_some() || (self.input.is_some() && self.output.is_some())
    }

    /// The lengths in words, with the maxima.
    pub(crate) fn in_words(&self, max: [Option<u32>; 2], others: [String; 2]) -> String {
        if let Some(file) = &self.file {
            let order = match self.order.unwrap_or_default() {
                PairOrder::Sampled => "sampled from",
                PairOrder::InOrder => "in the order of",
            };
            return format!("{order} {file}");
        }
        let [input_max, output_max] = max.map(|max| max.map_or_else(String::new, |max| format!(" to {max}")));
        let side = |distribution: Option<LengthDistribution>, max: String, other: String| {
            distribution.map_or(other, |distribution| {
                format!("{distribution}, {}{max}", distribution.min())
            })
        };
        let [input_other, output_other] = others;
        format!(
            "{} in / {} out",
            side(self.input, input_max, input_other),
            side(self.output, output_max, output_other)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(json: &str) -> Lengths {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_lognormal_distribution_is_given_by_median_or_mean() {
        let transform = |text: &str| text.parse::<LengthDistribution>().unwrap().transform().unwrap();
        // exp(ln 500 + z) has the mean 500 · exp(1/2), and its standard deviation is that times √(e − 1).
        let mean = 500.0 * 0.5f64.exp();
        let stddev = mean * (1f64.exp() - 1.0).sqrt();
        for text in [
            "lognormal:median=500,sigma=1".to_owned(),
            format!("lognormal:mean={mean},sigma=1"),
            format!("lognormal:mean={mean},stddev={stddev}"),
        ] {
            for z in [-1.5, 0.0, 2.0] {
                let expected = 500.0 * f64::exp(z);
                assert!(
                    (transform(&text).apply(z) / expected - 1.0).abs() < 1e-9,
                    "{text} {z}"
                );
            }
        }
        assert_eq!(transform("normal:mean=100,stddev=7").apply(-2.0), 86.0);
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        for text in [
            "lognormal",
            "lognormal:median",
            "lognormal:median=x",
            "gamma:mean=1",
            "normal:mean=1,stddev=1,max=9",
            "normal:mean=1,mean=2,stddev=1",
        ] {
            assert!(text.parse::<LengthDistribution>().is_err(), "{text}");
        }
        for (json, count) in [
            (r#"{"input": {"lognormal": {"median": 5}}}"#, 1),
            (
                r#"{"input": {"lognormal": {"median": 5, "mean": 6, "sigma": 1}}}"#,
                1,
            ),
            (
                r#"{"input": {"lognormal": {"median": 0, "sigma": 1}}, "output": {"normal": {"mean": 5, "stddev": -1}}}"#,
                2,
            ),
            (
                r#"{"input": {"normal": {"mean": 5, "stddev": 1, "min": 200}}}"#,
                1,
            ),
            (r#"{"input": {"normal": {"mean": 5, "stddev": 1, "min": 0}}}"#, 1),
            (
                r#"{"input": {"normal": {"mean": 5, "stddev": 1}}, "file": "a.csv"}"#,
                1,
            ),
            (r#"{"order": "in-order"}"#, 2),
            (r#"{"file": "a.csv", "order": "in-order"}"#, 0),
            (r#"{"output": {"lognormal": {"mean": 50, "stddev": 9}}}"#, 0),
        ] {
            let errors = lengths(json).find_errors(Some(100), Some(100));
            assert_eq!(errors.len(), count, "{json}: {errors:?}");
        }
    }

    #[test]
    fn lengths_are_described() {
        let both = lengths(r#"{"input": {"lognormal": {"median": 512, "sigma": 1.5, "min": 4}}}"#);
        assert_eq!(
            both.in_words([Some(8192), Some(64)], [String::new(), "64".to_owned()]),
            "lognormal (median 512, sigma 1.5), 4 to 8192 in / 64 out"
        );
    }
}
