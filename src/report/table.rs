//! A table that is independent of its output format.

use std::fmt;

use crate::analysis::metrics::Direction;
use crate::base::text::is_control;
use crate::results::record::provenance::Tool;
use crate::results::record::validity::MetricFamily;

/// What a missing value prints as.
pub(crate) const MISSING: &str = "–";

/// A table that is independent of its output format.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    pub(crate) title: String,
    /// Every row has one cell for each column.
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
    /// Sentences below the table.
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    pub(crate) head: String,
    /// Empty if the values have no unit.
    pub(crate) unit: &'static str,
    pub(crate) align: Align,
    pub(crate) better: Option<Direction>,
    /// Columns with the highest rank are dropped first in a narrow terminal; rank 0 always stays.
    pub(crate) rank: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// One cell for each column.
    pub(crate) cells: Vec<Value>,
    pub(crate) marks: Vec<Mark>,
}

impl Row {
    /// Texts of the cells without control characters. The words of the marks follow the first text.
    pub(crate) fn texts(&self) -> Vec<String> {
        let mut texts: Vec<String> = self
            .cells
            .iter()
            .map(|cell| single_line(&cell.to_string()))
            .collect();
        if let Some(first) = texts.first_mut() {
            for word in self.marks.iter().filter_map(|mark| mark.word()) {
                first.push_str(&format!(" [{word}]"));
            }
        }
        texts
    }
}

/// A property of a row that readers must see at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mark {
    Simulated,
    /// Read from the output of this tool, if it is known.
    Imported(Option<Tool>),
    Warning,
    /// Suspect as a whole; a note below the table says why.
    Suspect,
    /// Suspect in the metrics of this family only; a note below the table says why.
    SuspectIn(MetricFamily),
    /// The figures do not measure what was asked.
    Invalid,
    /// Better than every other row that it can be compared with, by the decision function.
    Best,
    /// The cell or a part of it failed. It has no word, because the status column says so.
    Failed,
}

impl Mark {
    /// The word beside the row's name; `None` prints nothing.
    pub(crate) const fn word(self) -> Option<&'static str> {
        match self {
            Self::Simulated => Some("simulated"),
            Self::Imported(None | Some(Tool::BenchServing)) => Some("imported"),
            Self::Imported(Some(Tool::VllmBench)) => Some("imported from vllm bench serve"),
            Self::Imported(Some(Tool::Aiperf)) => Some("imported from AIPerf"),
            Self::Imported(Some(Tool::Guidellm)) => Some("imported from GuideLLM"),
            Self::Imported(Some(Tool::Inferencex)) => Some("imported from InferenceX"),
            Self::Imported(Some(Tool::InferencePerf)) => Some("imported from inference-perf"),
            Self::Imported(Some(Tool::GenaiBench)) => Some("imported from genai-bench"),
            Self::Imported(Some(Tool::LlmdReport)) => Some("imported from an llm-d report"),
            Self::Warning => Some("warned"),
            Self::Suspect => Some("suspect"),
            Self::SuspectIn(MetricFamily::Ttft) => Some("TTFT suspect"),
            Self::SuspectIn(MetricFamily::Itl) => Some("ITL suspect"),
            Self::SuspectIn(MetricFamily::Tpot) => Some("TPOT suspect"),
            Self::SuspectIn(MetricFamily::Goodput) => Some("goodput suspect"),
            Self::SuspectIn(MetricFamily::Energy) => Some("energy suspect"),
            Self::Invalid => Some("invalid"),
            Self::Best => Some("best"),
            Self::Failed => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Missing,
    Text(String),
    Count(u64),
    Number {
        value: f64,
        decimals: usize,
    },
    /// A value with a range: the mean of several measurements with the smallest and the largest of them, or a
    /// percentile with its bounds.
    Spread {
        median: f64,
        least: f64,
        most: f64,
        decimals: usize,
    },
    /// A percentile that rests on few requests.
    Approximate(Box<Self>),
    Ratio {
        value: f64,
        /// 95 % confidence interval, if one can be computed.
        interval: Option<[f64; 2]>,
        /// Whether a side has a single start, so that the error of the ratio is unknown.
        is_of_one_start: bool,
    },
}

impl Value {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// The number that the value is sorted by; `None` for text.
    pub(crate) fn sort_key(&self) -> Option<f64> {
        match self {
            Self::Missing | Self::Text(_) => None,
            Self::Count(count) => Some(*count as f64),
            Self::Number { value, .. } | Self::Ratio { value, .. } => Some(*value),
            Self::Spread { median, .. } => Some(*median),
            Self::Approximate(value) => value.sort_key(),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str(MISSING),
            Self::Text(text) => f.write_str(text),
            Self::Count(count) => write!(f, "{count}"),
            Self::Number { value, decimals } => write!(f, "{value:.decimals$}"),
            Self::Spread {
                median,
                least,
                most,
                decimals,
            } => {
                let [median, least, most] = [median, least, most].map(|value| format!("{value:.decimals$}"));
                // At these digits the range has no width, so it is left out.
                if least == most {
                    f.write_str(&median)
                } else {
                    write!(f, "{median} ({least}–{most})")
                }
            }
            Self::Approximate(value) => write!(f, "~{value}"),
            Self::Ratio {
                value,
                interval,
                is_of_one_start,
            } => {
                write!(f, "{value:.2}")?;
                if let Some([low, high]) = interval {
                    write!(f, " [{low:.2}, {high:.2}]")?;
                }
                if *is_of_one_start {
                    f.write_str(" n=1")?;
                }
                Ok(())
            }
        }
    }
}

/// Text from elsewhere on one line, without control characters and characters that change the writing
/// direction.
pub(crate) fn single_line(text: &str) -> String {
    let harmless = |character: char| match character {
        '\n' | '\r' | '\t' => ' ',
        other if is_control(other) => '\u{fffd}',
        other => other,
    };
    text.chars().map(harmless).collect()
}

/// Text from elsewhere for one line on a terminal.
pub(crate) fn sanitize(text: &str) -> String {
    single_line(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_print_as_they_are_meant() {
        let texts = [
            Value::Missing,
            Value::Count(12_345),
            Value::Number {
                value: 1.005,
                decimals: 1,
            },
            Value::Spread {
                median: 2.0,
                least: 1.5,
                most: 2.25,
                decimals: 2,
            },
            Value::Spread {
                median: 2.0,
                least: 1.99,
                most: 2.01,
                decimals: 1,
            },
            Value::Approximate(Box::new(Value::Number {
                value: 180.0,
                decimals: 1,
            })),
            Value::Ratio {
                value: 1.254,
                interval: Some([1.2, 1.301]),
                is_of_one_start: false,
            },
            Value::Ratio {
                value: 1.254,
                interval: None,
                is_of_one_start: true,
            },
        ]
        .map(|value| value.to_string());
        assert_eq!(
            texts,
            [
                "–",
                "12345",
                "1.0",
                "2.00 (1.50–2.25)",
                "2.0",
                "~180.0",
                "1.25 [1.20, 1.30]",
                "1.25 n=1"
            ]
        );
    }

    #[test]
    fn foreign_text_cannot_steer_a_terminal() {
        assert_eq!(
            single_line("a\u{1b}[31mb\nc\u{202e}d"),
            "a\u{fffd}[31mb c\u{fffd}d"
        );
    }

    #[test]
    fn marks_stand_beside_the_name() {
        let row = Row {
            cells: vec![Value::text("sim@1"), Value::Count(1)],
            marks: vec![Mark::Simulated, Mark::Failed],
        };
        assert_eq!(row.texts(), ["sim@1 [simulated]", "1"]);
    }
}
