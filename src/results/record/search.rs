//! A search: each point that was measured, and what was found.

use serde::{Deserialize, Serialize};

use crate::base::ids::ContentHash;
use crate::matrix::spec::search::By;
use crate::results::record::cell::Figures;

/// A search for the highest rate or concurrency that holds an SLO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchRecord {
    /// What was varied.
    pub by: By,
    /// The share of requests that had to meet the SLO.
    pub target: f64,
    /// Every point, in the order of its measurement.
    pub points: Vec<Point>,
    /// The highest value that held; `None` if none did.
    pub found: Option<f64>,
    /// The share of requests that met the SLO there.
    pub attainment: Option<f64>,
    /// The lowest value above it that failed; `None` if none was seen to fail.
    pub fails_at: Option<f64>,
    /// What ended the search.
    pub ending: SearchEnding,
}

/// What ended a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SearchEnding {
    /// The bound lies between two points within the resolution.
    Bracketed,
    /// The highest value that may be tried still held: the bound lies above.
    AllHeld,
    /// The lowest value failed already: the bound lies below.
    NoneHeld,
    /// As many points were measured as may be; the bound is known less well than asked for.
    OutOfPoints,
    /// It was stopped.
    Stopped,
}

/// One point of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Requests per second, or requests under way at once.
    pub value: f64,
    /// What was judged.
    pub judged: Judged,
    /// A digest of its due times.
    pub schedule_hash: ContentHash,
    /// Its figures under the definitions `matrix`.
    pub figures: Figures,
}

/// How a point met its SLO.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// Requests that fell due, failed ones counted.
    pub requests: u64,
    /// Those that met every target, counted from the moments at which they fell due.
    pub good: u64,
    /// The share of those.
    pub attainment: f64,
    /// Where that share lies with 95 % confidence if requests were independent, by Wilson's interval.
    pub interval: [f64; 2],
    /// Whether the share reaches the target, and the rate was reached.
    pub holds: bool,
    /// The rate that was reached, where it is not the one that was to be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreached: Option<Unreached>,
}

/// A rate that was not reached, in requests per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unreached {
    /// At which requests fell due.
    pub due_per_s: f64,
    /// At which they were sent.
    pub sent_per_s: f64,
}

impl SearchRecord {
    /// What was found, in words.
    pub fn says(&self) -> String {
        let (name, unit) = (self.by.name(), self.by.unit());
        let target = percent(self.target);
        let Some((found, attainment)) = self.found.zip(self.attainment) else {
            let lowest = self.points.first().map(|point| point.value);
            return match lowest {
                Some(lowest) => format!(
                    "no {name} was found that holds {target} attainment: already {lowest} {unit} does not; the bound lies below \
                     and is not bracketed"
                ),
                None => format!("no {name} was measured"),
            };
        };
        let at = format!(
            "the highest {name} that holds {target} attainment is {found} {unit}, with {}",
            percent(attainment)
        );
        let fails = self
            .fails_at
            .map_or_else(String::new, |value| format!("; {value} {unit} does not hold"));
        match self.ending {
            SearchEnding::Bracketed | SearchEnding::NoneHeld => format!("{at}{fails}"),
            SearchEnding::AllHeld => {
                format!("{at}; that is the highest that was allowed, and the bound is not bracketed")
            }
            SearchEnding::OutOfPoints | SearchEnding::Stopped => {
                let why = match self.ending {
                    SearchEnding::Stopped => "the search was stopped",
                    _ => "the points ran out",
                };
                let open = match self.fails_at {
                    Some(_) => "the bound is known less well than asked for",
                    None => "the bound is not bracketed",
                };
                format!("{at}{fails}; {why}, and {open}")
            }
        }
    }
}

fn percent(share: f64) -> String {
    let text = format!("{:.2}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}
