//! Series over time and latency distributions, from the histograms of each second and telemetry samples.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cells::measurement;
use crate::analysis::metrics::{self, HistogramKind, Metric};
use crate::plan::Measurement;
use crate::report::tables::{ReportCell, is_burst};
use crate::results::record::cell::{Definitions, MeasurementSummary};
use crate::results::record::histogram::SecondHistogram;
use crate::results::record::telemetry::{Sample, TelemetrySource};

/// Maximum number of points of a series; longer series are averaged over neighbours.
const MAX_POINTS: usize = 180;

/// The shares at which a distribution is evaluated.
const SHARES: [f64; 17] = [
    0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 1.0,
];

/// What was recorded of a measurement over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MeasurementTimeSeries {
    pub(crate) seconds: Vec<SecondHistogram>,
    pub(crate) samples: Vec<Sample>,
}

/// Distribution of a latency.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Distribution {
    /// `TTFT`, `TPOT`, `ITL` or `E2E`, under the definitions `matrix`.
    pub(crate) latency: String,
    /// Pairs of a value in milliseconds and the share of values, 0 to 1, that do not exceed it.
    pub(crate) points: Vec<[f64; 2]>,
}

/// Quantity that a series shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SeriesQuantity {
    /// Output tokens received per second.
    Output,
    /// Requests in flight: as counted by the client at the end of each second, and as sampled from the engine.
    Running,
    /// Requests that wait in the queue of the engine.
    Waiting,
    /// Used share of the engine's KV cache.
    KvUse,
    /// Power of a GPU in watts.
    Power,
    /// Share of time in which a GPU was busy.
    Utilisation,
    /// SM clock of a GPU in MHz.
    Clock,
}

impl SeriesQuantity {
    /// In the order of reports.
    pub(crate) const ALL: [Self; 7] = [
        Self::Output,
        Self::Running,
        Self::Waiting,
        Self::KvUse,
        Self::Power,
        Self::Utilisation,
        Self::Clock,
    ];

    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Output => "Output throughput",
            Self::Running => "Running requests",
            Self::Waiting => "Waiting requests",
            Self::KvUse => "KV cache",
            Self::Power => "Power",
            Self::Utilisation => "Utilisation",
            Self::Clock => "SM clock",
        }
    }

    /// Empty for a share.
    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::Output => "tok/s",
            Self::Running | Self::Waiting => "requests",
            Self::Power => "W",
            Self::Utilisation | Self::KvUse => "",
            Self::Clock => "MHz",
        }
    }

    /// The name in telemetry samples; `None` for what the histograms give.
    const fn telemetry_name(self) -> Option<&'static str> {
        match self {
            Self::Output => None,
            Self::Running => Some("running"),
            Self::Waiting => Some("waiting"),
            Self::KvUse => Some("kv_cache_usage"),
            Self::Power => Some("power_w"),
            Self::Utilisation => Some("gpu_util_share"),
            Self::Clock => Some("sm_clock_mhz"),
        }
    }
}

/// A quantity over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Series {
    /// Quantity of the values.
    pub(crate) quantity: SeriesQuantity,
    /// Index of the GPU; absent if the quantity does not belong to a GPU.
    pub(crate) device: Option<u32>,
    /// Source of the values: `client`, or the name of a telemetry source.
    pub(crate) source: String,
    /// Pairs of seconds after the start of the measurement and the value.
    pub(crate) points: Vec<[f64; 2]>,
}

/// Latency distributions over the measurements of a cell that count. A histogram that cannot be read gives
/// none. A burst has no TTFT: its time to the first token is the wait in the engine's queue.
pub(super) fn distributions(
    cell: &ReportCell<'_>,
    traces: &BTreeMap<Measurement, MeasurementTimeSeries>,
) -> Vec<Distribution> {
    let seconds: Vec<&SecondHistogram> = cell
        .counted_summaries()
        .filter_map(|summary| traces.get(&measurement(summary)))
        .flat_map(|trace| &trace.seconds)
        .collect();
    let distribution = |kind: HistogramKind| {
        let values = metrics::values_at_shares(&seconds, kind, &SHARES).unwrap_or_default();
        let latency = match kind {
            HistogramKind::Ttft => "TTFT",
            HistogramKind::Tpot => "TPOT",
            HistogramKind::Itl => "ITL",
            HistogramKind::E2e => "E2E",
        };
        (!values.is_empty()).then(|| Distribution {
            latency: latency.to_owned(),
            points: values
                .into_iter()
                .zip(SHARES)
                .map(|(value, share)| [value, share])
                .collect(),
        })
    };
    let is_burst = is_burst(cell);
    let has_meaning = |kind: &HistogramKind| !(is_burst && *kind == HistogramKind::Ttft);
    HistogramKind::ALL
        .into_iter()
        .filter(has_meaning)
        .filter_map(distribution)
        .collect()
}

/// Length of the measured window in seconds.
pub(super) fn window_s(summary: &MeasurementSummary) -> Option<f64> {
    metrics::metric_value(summary.figures.get(&Definitions::Matrix)?, Metric::Duration)
}

pub(super) fn all_series(trace: &MeasurementTimeSeries) -> Vec<Series> {
    let of_client = |quantity, points: Vec<[f64; 2]>| Series {
        quantity,
        device: None,
        source: "client".to_owned(),
        points: thin(&points),
    };
    let mut series_list = Vec::new();
    if !trace.seconds.is_empty() {
        series_list
            .extend(output_points(&trace.seconds).map(|points| of_client(SeriesQuantity::Output, points)));
        series_list.push(of_client(SeriesQuantity::Running, running_points(&trace.seconds)));
    }
    for quantity in SeriesQuantity::ALL {
        series_list.extend(sampled_series(quantity, &trace.samples));
    }
    series_list
}

/// A value for every second from the first to the last, including seconds without events, at the middle of
/// its second.
fn per_second<'a, T>(
    seconds: &'a [SecondHistogram],
    mut value: impl FnMut(Option<&'a SecondHistogram>) -> T,
) -> Vec<(f64, T)> {
    let last = seconds.iter().map(|second| second.second).max().unwrap_or(0);
    let by_number: BTreeMap<u32, &SecondHistogram> =
        seconds.iter().map(|second| (second.second, second)).collect();
    (0..=last)
        .map(|number| (f64::from(number) + 0.5, value(by_number.get(&number).copied())))
        .collect()
}

fn output_points(seconds: &[SecondHistogram]) -> Option<Vec<[f64; 2]>> {
    let second_tokens = per_second(seconds, |second| {
        second.map_or(Some(0), |second| second.output_tokens)
    });
    second_tokens
        .into_iter()
        .map(|(at, tokens)| Some([at, tokens? as f64]))
        .collect()
}

fn running_points(seconds: &[SecondHistogram]) -> Vec<[f64; 2]> {
    let mut under_way: i64 = 0;
    let counts = per_second(seconds, |second| {
        if let Some(second) = second {
            under_way += i64::from(second.sent) - i64::from(second.completed) - i64::from(second.failed);
        }
        // A request that failed before it was sent is counted as failed but not as sent.
        under_way.max(0) as f64
    });
    counts
        .into_iter()
        .map(|(at, running)| [at + 0.5, running])
        .collect()
}

fn sampled_series(quantity: SeriesQuantity, samples: &[Sample]) -> Vec<Series> {
    let Some(name) = quantity.telemetry_name() else {
        return Vec::new();
    };
    let mut lines: BTreeMap<(Option<u32>, &str), Vec<[f64; 2]>> = BTreeMap::new();
    // Other sources use the same names for other quantities.
    let is_of_engine = matches!(
        quantity,
        SeriesQuantity::Running | SeriesQuantity::Waiting | SeriesQuantity::KvUse
    );
    let samples = samples
        .iter()
        .filter(|sample| !is_of_engine || sample.source == TelemetrySource::Engine);
    for sample in samples {
        if let Some(value) = sample.values.get(name).filter(|value| value.is_finite()) {
            let line = lines.entry((sample.device, sample.source.name())).or_default();
            line.push([sample.at_ns as f64 / 1e9, *value]);
        }
    }
    let line = |((device, source), mut points): ((Option<u32>, &str), Vec<[f64; 2]>)| {
        points.sort_by(|a, b| a[0].total_cmp(&b[0]));
        Series {
            quantity,
            device,
            source: source.to_owned(),
            points: thin(&points),
        }
    };
    lines.into_iter().map(line).collect()
}

/// Averages neighbours so that at most [`MAX_POINTS`] points remain, rounded to three decimals.
fn thin(points: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let per = points.len().div_ceil(MAX_POINTS).max(1);
    let mean =
        |some: &[[f64; 2]], at: usize| some.iter().map(|point| point[at]).sum::<f64>() / some.len() as f64;
    let rounded = |value: f64| (value * 1e3).round() / 1e3;
    points
        .chunks(per)
        .map(|some| [rounded(mean(some, 0)), rounded(mean(some, 1))])
        .collect()
}
