//! Latency against the load, for scenarios with several rates or concurrencies.

use serde::Serialize;

use super::tradeoffs::line_names;
use crate::analysis::metrics::{LatencyKind, Metric, Statistic};
use crate::config::scenario::Slo;
use crate::report::tables::{ReportCell, group_by_name, has_percentile};
use crate::results::record::validity::Verdict;

/// A latency of each engine at the loads of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LoadCurve {
    /// Model and name of the scenario.
    pub(crate) title: String,
    /// `TTFT` or `TPOT`.
    pub(crate) latency: String,
    /// Whether values are 99th percentiles, which a scenario with an SLO for this latency shows; otherwise medians.
    pub(crate) is_p99: bool,
    /// Whether `load` is in requests per second; otherwise it is the number of requests at once.
    pub(crate) is_rate: bool,
    /// The limit of the SLO in milliseconds; absent if it has none for this latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) slo_ms: Option<f64>,
    /// All points, by engine in the order of first appearance, then by load.
    pub(crate) points: Vec<LoadPoint>,
}

/// A latency of one engine at one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LoadPoint {
    /// The engine, as in `tradeoffs`.
    pub(crate) engine: String,
    /// Requests per second, or number of requests at once.
    pub(crate) load: f64,
    /// The latency in milliseconds, as in figures.
    pub(crate) latency_ms: f64,
    /// Validity verdict of the cell.
    pub(crate) validity: Verdict,
}

/// The curves of all scenarios in which an engine was measured at two loads or more.
pub(super) fn load_curves(cells: &[ReportCell<'_>]) -> Vec<LoadCurve> {
    let title = |cell: &ReportCell<'_>| format!("{} · {}", cell.launch.model, cell.cell.scenario.name);
    let groups = group_by_name(cells.iter().map(|cell| (title(cell), cell)));
    groups
        .into_iter()
        .flat_map(|(title, group)| {
            [LatencyKind::Ttft, LatencyKind::Tpot]
                .into_iter()
                .filter_map(move |latency| load_curve(&title, &group, latency))
        })
        .collect()
}

fn load_curve(title: &str, group: &[&ReportCell<'_>], latency: LatencyKind) -> Option<LoadCurve> {
    let limits: Vec<Option<f64>> = group
        .iter()
        .map(|cell| limit_ms(cell.cell.scenario.slo.as_ref()?, latency))
        .collect();
    let slo_ms = limits[0].filter(|_| limits.iter().all(|limit| *limit == limits[0]));
    let statistic = match slo_ms {
        Some(_) => Statistic::P99,
        None => Statistic::Median,
    };
    let metric = Metric::Time(statistic, latency);
    let is_rate = group.iter().any(|cell| cell.cell.scenario.arrival.is_paced());
    let mut engines: Vec<String> = Vec::new();
    let mut points: Vec<LoadPoint> = Vec::new();
    for (cell, engine) in group.iter().zip(line_names(group)) {
        if !engines.contains(&engine) {
            engines.push(engine.clone());
        }
        if let (Some(load), Some(latency_ms)) = (
            load(cell, is_rate),
            cell.value(metric).filter(|_| has_percentile(cell, metric)),
        ) {
            points.push(LoadPoint {
                engine,
                load,
                latency_ms,
                validity: cell.validity(),
            });
        }
    }
    let place = |point: &LoadPoint| engines.iter().position(|engine| *engine == point.engine);
    points.sort_by(|a, b| place(a).cmp(&place(b)).then(a.load.total_cmp(&b.load)));
    let is_curve = points
        .windows(2)
        .any(|pair| pair[0].engine == pair[1].engine && pair[0].load < pair[1].load);
    is_curve.then(|| LoadCurve {
        title: title.to_owned(),
        latency: latency.label().to_owned(),
        is_p99: slo_ms.is_some(),
        is_rate,
        slo_ms,
        points,
    })
}

/// The load of a cell; `None` for a search, for a rate that changes and for all requests at once.
fn load(cell: &ReportCell<'_>, is_rate: bool) -> Option<f64> {
    let scenario = &cell.cell.scenario;
    if scenario.search.is_some() {
        return None;
    }
    match is_rate {
        true => Some(scenario.arrival.rate.per_second()).filter(|rate| rate.is_finite()),
        false => scenario.arrival.concurrency.map(|slots| f64::from(slots.get())),
    }
}

fn limit_ms(slo: &Slo, latency: LatencyKind) -> Option<f64> {
    let limit = match latency {
        LatencyKind::Ttft => slo.ttft.map(|limit| limit.duration()),
        _ => slo.max_tpot(),
    };
    limit.map(|limit| limit.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::tests::TestRun;
    use crate::report::testing::Case;

    fn at(engine: &str, concurrency: u32, slo: &str, ttft_ms: f64) -> Case {
        let mut case = Case::new(engine, "bf16", 1, 1000.0).at_concurrency(concurrency, 10.0);
        case.cell.scenario.slo = serde_json::from_str(slo).unwrap();
        let figures = case.summaries[0]
            .figures
            .get_mut(&crate::results::record::cell::Definitions::Matrix)
            .unwrap();
        for (statistic, factor) in [(Statistic::Median, 1.0), (Statistic::P99, 2.0)] {
            figures.insert(
                Metric::Time(statistic, LatencyKind::Ttft).name(),
                Some(factor * ttft_ms),
            );
        }
        case
    }

    fn ttft_curve(cases: Vec<Case>) -> Option<LoadCurve> {
        let curves = TestRun::new("one", cases).document().load_curves;
        curves.into_iter().find(|curve| curve.latency == "TTFT")
    }

    #[test]
    fn loads_of_an_engine_are_joined_in_their_order() {
        let curve = ttft_curve(vec![
            at("a", 16, "null", 90.0),
            at("b", 4, "null", 50.0),
            at("a", 4, "null", 40.0),
        ]);
        let curve = curve.unwrap();
        let points: Vec<(f64, f64)> = curve
            .points
            .iter()
            .map(|point| (point.load, point.latency_ms))
            .collect();
        assert_eq!(points, [(4.0, 40.0), (16.0, 90.0), (4.0, 50.0)]);
        assert_eq!((curve.is_p99, curve.is_rate, curve.slo_ms), (false, false, None));
    }

    #[test]
    fn a_limit_is_compared_with_the_99th_percentile() {
        let slo = r#"{"ttft": "200ms"}"#;
        let curve = ttft_curve(vec![at("a", 4, slo, 40.0), at("a", 16, slo, 90.0)]).unwrap();
        assert_eq!((curve.is_p99, curve.slo_ms), (true, Some(200.0)));
        assert_eq!(curve.points[1].latency_ms, 180.0);
    }

    #[test]
    fn one_load_is_no_curve() {
        assert_eq!(
            ttft_curve(vec![at("a", 4, "null", 40.0), at("b", 4, "null", 40.0)]),
            None
        );
    }
}
