//! Selects the gating metrics of cells, which depend on their load. `compare`, nightly runs and report tables
//! all use this selection, so no cell is judged by two different metrics.

use crate::analysis::metrics::{self, LatencyKind, Metric, Quantity, Statistic};
use crate::config::dataset::PromptForm;
use crate::config::scenario::Scenario;
use crate::config::search::{SearchVariable, Tier};
use crate::results::record::cell::MetricValues;
use crate::results::record::cell_stats::CellStats;

/// Fewest requests per concurrent request. With fewer, the drain takes more than a tenth of the run and
/// decides its throughput.
const MIN_REQUESTS_PER_SLOT: u64 = 10;
/// Fewest requests per concurrent request for a steady state.
const MIN_STEADY_REQUESTS_PER_SLOT: u64 = 2;
/// Fewest requests per slot in a steady state that represents the engine.
const MIN_STEADY_RESPONSES_PER_SLOT: f64 = 3.0;
/// Largest share of a run that ramp and drain may take if the whole run replaces its steady state.
const MAX_DRAIN_SHARE: f64 = 0.25;

/// What decides how fast requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// A search for the highest value that meets the SLO.
    Search(SearchVariable),
    /// A rate, a ramp, stages or the times of a trace. They determine the throughput.
    FixedRate,
    /// The engine, with a limited concurrency.
    ClosedLoop,
    /// The engine, with all requests sent at once. TTFT is then mostly waiting in its queue.
    Burst,
}

impl Load {
    pub(crate) fn from_scenario(scenario: &Scenario) -> Self {
        let (arrival, workload) = (&scenario.arrival, &scenario.workload);
        if let Some(search) = &scenario.search {
            return Self::Search(search.by);
        }
        if arrival.pace.is_some() || !arrival.rate.is_infinite() || workload.is_replayed() {
            return Self::FixedRate;
        }
        // Requests of a session wait for one another.
        let is_session = workload.facts().prompts == PromptForm::Sessions;
        match arrival.concurrency {
            // Imported results do not always name the number of prompts.
            Some(limit) if workload.prompts == 0 || limit.get() < workload.prompts => Self::ClosedLoop,
            _ if is_session => Self::ClosedLoop,
            _ => Self::Burst,
        }
    }
}

/// Returns the default gating metrics of a cell. The first one is used for ratios.
pub(crate) fn gates(scenario: &Scenario) -> Vec<Metric> {
    let tpot = Metric::Time(Statistic::Median, LatencyKind::Tpot);
    match Load::from_scenario(scenario) {
        Load::Search(by) => {
            let tiers = Tier::all().take(scenario.tiers().len());
            tiers.map(|tier| Metric::Found(by, tier)).collect()
        }
        // If the model ends its answers, engines give answers of different lengths. Tokens per second then
        // show how much was written, not how fast.
        Load::FixedRate if scenario.stop_at_eos => {
            let goodput = scenario.slo.as_ref().map(|_| Metric::Goodput);
            std::iter::once(tpot).chain(goodput).collect()
        }
        Load::ClosedLoop | Load::Burst if scenario.stop_at_eos => {
            vec![Metric::Throughput(Quantity::Requests), tpot]
        }
        Load::FixedRate => {
            let latency = Metric::Time(Statistic::Median, LatencyKind::E2e);
            let goodput = scenario.slo.as_ref().map(|_| Metric::Goodput);
            std::iter::once(latency).chain(goodput).collect()
        }
        Load::ClosedLoop if is_decided_by_drain(scenario) => vec![Metric::SteadyOutput],
        Load::ClosedLoop | Load::Burst => vec![Metric::Throughput(Quantity::Output)],
    }
}

/// Replaces a metric of the steady state by that of the whole run. It is used on both sides if one has no
/// steady state, such as an imported result.
pub(crate) const fn full_run_metric(metric: Metric) -> Metric {
    match metric {
        Metric::SteadyOutput => Metric::Throughput(Quantity::Output),
        other => other,
    }
}

/// Returns whether a measurement has a representative value of a metric. A steady state with too few requests
/// per slot is worse than the whole run.
pub(crate) fn has_metric(figures: &MetricValues, metric: Metric) -> bool {
    let is_thin =
        || responses_per_slot(figures).is_some_and(|responses| responses < MIN_STEADY_RESPONSES_PER_SLOT);
    metrics::metric_value(figures, metric).is_some() && (metric != Metric::SteadyOutput || !is_thin())
}

/// Returns the requests that each slot answered in the steady state: its duration divided by the mean E2E
/// time.
fn responses_per_slot(figures: &MetricValues) -> Option<f64> {
    let steady = metrics::metric_value(figures, Metric::SteadyDuration)?;
    let request = metrics::metric_value(figures, Metric::Time(Statistic::Mean, LatencyKind::E2e))? / 1000.0;
    (request > 0.0).then(|| steady / request)
}

/// Says why the whole run, which replaces a short steady state, gives no verdict either: its ramp and drain
/// take too long. `None` if they do not, and for all other metrics.
pub(crate) fn drain_reason<'a>(
    scenario: &Scenario,
    metric: Metric,
    measurements: impl Iterator<Item = &'a MetricValues>,
) -> Option<String> {
    let stands_in = gates(scenario)
        .into_iter()
        .any(|gate| gate != metric && full_run_metric(gate) == metric);
    let of_one = |figures: &MetricValues| {
        let responses =
            responses_per_slot(figures).filter(|responses| *responses < MIN_STEADY_RESPONSES_PER_SLOT)?;
        let steady = metrics::metric_value(figures, Metric::SteadyDuration)?;
        let drain = 1.0 - steady / metrics::metric_value(figures, Metric::Duration)?;
        (drain > MAX_DRAIN_SHARE).then_some((drain, responses))
    };
    let drains = measurements.filter_map(of_one).filter(|_| stands_in);
    let (drain, responses) = drains.max_by(|one, other| one.0.total_cmp(&other.0))?;
    Some(format!(
        "beginning and end of the load dominate this figure: {:.0} % of the run is outside the steady state. In the steady state, each slot of the concurrency has only {responses:.1} requests; raise `prompts`",
        100.0 * drain
    ))
}

/// Returns the metric by which two cells are compared if `metric` gates the candidate.
pub(crate) fn pair_metric(metric: Metric, first: &CellStats, second: &CellStats) -> Metric {
    let name = metric.name();
    let is_gated_by_all =
        first.gates.contains(&full_run_metric(metric).name()) && !first.gates.contains(&name);
    match is_gated_by_all || first.start_values(&name).is_empty() || second.start_values(&name).is_empty() {
        true => full_run_metric(metric),
        false => metric,
    }
}

fn is_decided_by_drain(scenario: &Scenario) -> bool {
    let Some(limit) = scenario.arrival.concurrency else {
        return false;
    };
    let (limit, prompts) = (u64::from(limit.get()), u64::from(scenario.workload.prompts));
    (MIN_STEADY_REQUESTS_PER_SLOT * limit..MIN_REQUESTS_PER_SLOT * limit).contains(&prompts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::units::{HumanDuration, RequestRate};
    use crate::config::arrival::{Arrival, ArrivalProcess};
    use crate::config::dataset::DatasetName;
    use crate::config::dataset::custom::Custom;
    use crate::config::scenario::{LoadLimits, Slo};
    use crate::config::search::Search;
    use crate::config::workload::{Profile, Workload};

    fn scenario(prompts: u32, concurrency: Option<u32>) -> Scenario {
        Scenario {
            name: "s".to_owned(),
            profile: Profile::Classic,
            seed: 1,
            workload: Workload {
                prompts,
                ..Workload::new(DatasetName::Random)
            },
            arrival: Arrival {
                rate: RequestRate::INFINITE,
                pace: None,
                spacing: ArrivalProcess::Poisson,
                concurrency: concurrency.and_then(std::num::NonZeroU32::new),
            },
            limits: LoadLimits::default(),
            slo: None,
            further_tiers: Vec::new(),
            search: None,
            body: serde_json::Map::new(),
            stop_at_eos: false,
            keep_text: false,
            lora: None,
            pacing: Default::default(),
            connections: Default::default(),
            cancel: None,
            check_answers: false,
            quality: None,
        }
    }

    #[test]
    fn a_steady_state_of_few_requests_stands_for_nothing_and_a_long_drain_for_less() {
        let figures = |steady: f64, request_ms: f64| -> MetricValues {
            [
                (Metric::SteadyOutput, 312.0),
                (Metric::SteadyDuration, steady),
                (Metric::Duration, 1.0),
                (Metric::Time(Statistic::Mean, LatencyKind::E2e), request_ms),
            ]
            .map(|(metric, value)| (metric.name(), Some(value)))
            .into()
        };
        let full = Metric::Throughput(Quantity::Output);
        let why = |figures: &MetricValues, prompts, metric| {
            drain_reason(&scenario(prompts, Some(10)), metric, std::iter::once(figures))
        };
        // One wave of four, and a run that is almost all steady state.
        assert!(!has_metric(&figures(0.2, 200.0), Metric::SteadyOutput));
        assert!(has_metric(&figures(0.98, 240.0), Metric::SteadyOutput));
        assert!(has_metric(&figures(0.2, 200.0), Metric::Duration));
        let thin = figures(0.7, 350.0);
        let reason = why(&thin, 40, full).expect("its ends decide");
        assert!(
            reason.contains("30 % of the run") && reason.contains("2.0 requests"),
            "{reason}"
        );
        // Two waves without a drain, a steady state with enough requests, and a metric that is not affected.
        assert_eq!(why(&figures(0.95, 480.0), 20, full), None);
        assert_eq!(why(&figures(0.7, 100.0), 70, full), None);
        assert_eq!(why(&thin, 10, full), None);
        assert_eq!(why(&thin, 100, full), None);
        assert_eq!(why(&thin, 40, Metric::SteadyOutput), None);
    }

    #[test]
    fn the_metric_fits_the_load() {
        let output = Metric::Throughput(Quantity::Output);
        let latency = Metric::Time(Statistic::Median, LatencyKind::E2e);
        assert_eq!(gates(&scenario(1000, None)), [output]);
        assert_eq!(gates(&scenario(1000, Some(100))), [output]);
        assert_eq!(gates(&scenario(999, Some(100))), [Metric::SteadyOutput]);
        // Hardly more requests than the concurrency are a burst.
        assert_eq!(gates(&scenario(199, Some(100))), [output]);
        assert_eq!(Load::from_scenario(&scenario(100, Some(100))), Load::Burst);
        let mut paced = scenario(1000, Some(200));
        paced.arrival.rate = RequestRate::new(4.0).unwrap();
        assert_eq!(gates(&paced), [latency]);
        paced.slo = Some(Slo {
            speed: None,
            ttft: Some(HumanDuration::from_secs(1)),
            tpot: None,
            e2e: None,
        });
        assert_eq!(gates(&paced), [latency, Metric::Goodput]);
        let mut replayed = scenario(1000, None);
        replayed.workload.dataset = Custom {
            trace_timestamps: true,
            ..Custom::default()
        }
        .into();
        assert_eq!(gates(&replayed), [latency]);
        let eos = |scenario: &Scenario| Scenario {
            stop_at_eos: true,
            ..scenario.clone()
        };
        let tpot = Metric::Time(Statistic::Median, LatencyKind::Tpot);
        assert_eq!(gates(&eos(&paced)), [tpot, Metric::Goodput]);
        assert_eq!(
            gates(&eos(&scenario(1000, None))),
            [Metric::Throughput(Quantity::Requests), tpot]
        );
        paced.search = Some(Search::new(SearchVariable::Rate));
        assert_eq!(gates(&paced), [Metric::Found(SearchVariable::Rate, Tier::FIRST)]);
    }
}
