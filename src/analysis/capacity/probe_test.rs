//! The sequential test of one probe: does the system meet the target at this load?
//!
//! Requests of one queue are not independent: misses come in clusters, the longer the nearer the system is to
//! its capacity. The test therefore works with means of long batches. Its error was measured on simulated
//! queues (`tests/capacity.sh`), not derived: a probe at the capacity itself is decided wrongly in
//! about 5 % of cases, one further away less often. A search uses a level as an end of its interval only
//! if two probes agree.

/// Number of batches of consecutive requests.
const BATCHES: usize = 16;

/// The first requests, which a system that was empty before serves faster, are left out: one in this many.
const START_SHARE: usize = 8;

/// Quantiles of Student's distribution with [`BATCHES`] - 1 degrees of freedom, for one look: 1 % for a level
/// that holds, 1.5 % for one that fails. The first is stricter because misses that have not yet come are
/// unseen, and those that came are not.
const HOLDS_BEYOND: f64 = 2.6;
const FAILS_BEYOND: f64 = 2.4;

/// Two-sided 95 % quantile of the same distribution.
const T_95: f64 = 2.131;

/// A trend of the severity beyond this many standard errors is a queue that still grows.
const MAX_TREND: f64 = 3.5;

/// Largest share of a series' variance that the means of the batches may have. A batch is then several
/// correlation times long: eight of the requests in flight, four of the severities.
const MAX_IN_FLIGHT_SHARE: f64 = 0.125;
const MAX_SEVERITY_SHARE: f64 = 0.25;
/// The same for a level that fails, where the series may still grow.
const MAX_FAILING_SHARE: f64 = 0.5;

/// Largest growth of the variance per request from half batches to whole ones.
const MAX_VARIANCE_GROWTH: f64 = 1.6;

/// Severities are cut here: one failure does not outweigh all other requests, and changes far below the limit mean nothing.
const SEVERITIES: [f64; 2] = [0.5, 3.0];

/// A closed loop is far below the limit if the severity could rise by as many standard deviations of the means of its batches.
const FAR_BELOW: f64 = 4.0;

/// The same for requests that come at a rate: a severity below this one, while the number in flight does not grow.
const FAR_BELOW_AT_A_RATE: f64 = 0.125;

/// The share of misses is near the allowed one if they differ by no more than this part of the allowed one.
const NEAR_TARGET: f64 = 0.5;

/// Growth of the number of requests from one look to the next.
const LOOK_GROWTH: f64 = 1.5;

/// How one request went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ProbeOutcome {
    /// The largest share of a limit of the SLO that it used: above 1 it missed; infinite if it failed.
    pub(crate) severity: f64,
    /// Number of other requests under way when it was due; the same for all in a closed loop.
    pub(crate) in_flight: f64,
}

/// What a probe shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeDecision {
    Holds,
    Fails,
    /// Too close to call, or not enough requests.
    Undecided,
}

/// Why a probe is undecided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// The share of good requests is near the target: so many requests cannot tell one from the other.
    NearTarget,
    /// The share is not near the target, but misses may come together, so that so many requests show nothing.
    TooFew,
    /// Latencies or the number in flight still grow.
    Growing,
    /// Latencies change so slowly that the requests show too few independent ones.
    Unsettled,
}

/// The judgement of the requests so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ProbeEstimate {
    pub(crate) decision: ProbeDecision,
    /// Why it does not hold, unless it fails.
    pub(crate) doubt: Option<Doubt>,
    /// The severity that the target share of requests does not exceed; 1 at the capacity.
    pub(crate) severity: f64,
    /// Requests that count as one, because their misses come together: at least 1.
    pub(crate) dispersion: f64,
    /// The number of requests that were judged: those after the first ones.
    pub(crate) judged: u64,
    /// The number of them that met the SLO.
    pub(crate) judged_good: u64,
    /// The dispersion by the variance of the share of misses that were seen.
    design_effect: f64,
}

impl ProbeEstimate {
    /// The 95 % confidence interval of the share of good requests: Wilson's, of as many requests as are independent.
    pub(crate) fn interval(&self, good: usize, requests: usize) -> [f64; 2] {
        let count = requests as f64 / self.design_effect.max(self.dispersion);
        let share = good as f64 / requests as f64;
        let square = T_95 * T_95 / count;
        let center = (share + square / 2.0) / (1.0 + square);
        let half = (square * (share * (1.0 - share) + square / 4.0)).sqrt() / (1.0 + square);
        [(center - half).max(0.0), (center + half).min(1.0)]
    }
}

/// Returns the number of requests for the first look at a probe.
pub(crate) fn first_look(target: f64) -> usize {
    const MIN: f64 = 150.0;
    const MISSES: f64 = 3.0;
    (MISSES / (1.0 - target)).ceil().max(MIN) as usize
}

/// Returns the number of requests for the look after one with `requests`.
pub(crate) fn next_look(requests: usize) -> usize {
    (requests as f64 * LOOK_GROWTH) as usize
}

/// Judges the requests of a probe in the order in which they were due. `None` if they are too few for batches.
pub(crate) fn judge(outcomes: &[ProbeOutcome], target: f64) -> Option<ProbeEstimate> {
    let series = judged_part(outcomes)?;
    let count = series.len() as f64;
    let allowed = 1.0 - target;
    let in_flight: Vec<f64> = series.iter().map(|outcome| outcome.in_flight).collect();
    let flags = |is_set: &dyn Fn(f64) -> bool| -> Vec<f64> {
        let flag = |outcome: &ProbeOutcome| f64::from(u8::from(is_set(outcome.severity)));
        series.iter().map(flag).collect()
    };
    let misses = flags(&|severity| severity > 1.0);
    let missed = mean(&misses);
    let severity = quantile(series, target);
    // The misses themselves may not have come yet. As many requests as may miss exceed this quantile, and come in clusters likewise.
    let dispersion = dispersion(&flags(&|other| other > severity.max(SEVERITIES[0])));
    let expected = dispersion * allowed;
    let seen = BatchVariance::of(&misses, BATCHES).long_run();
    let beyond_chance = |difference: f64, variance: f64| difference / (variance / count).sqrt();
    let clamped: Vec<f64> = series
        .iter()
        .map(|outcome| outcome.severity.clamp(SEVERITIES[0], SEVERITIES[1]))
        .collect();
    let level = BatchVariance::of(&clamped, BATCHES);
    let severity_share = batch_share(&clamped);
    let is_closed = variance(&in_flight) == 0.0;
    let is_settled = |share: f64| severity_share <= share && level.growth() <= MAX_VARIANCE_GROWTH;
    let is_missed = beyond_chance(missed - allowed, expected.max(seen)) > FAILS_BEYOND;
    let fails = is_missed && (is_settled(MAX_FAILING_SHARE) || missed > 0.5);
    // No queue grows in a closed loop. What is far below the limit may change slowly, as with the speed of a busy host.
    let is_far_below = match is_closed {
        true => severity + FAR_BELOW * level.deviation(count / BATCHES as f64) < 1.0,
        false => severity < FAR_BELOW_AT_A_RATE && trend(&in_flight) < MAX_TREND,
    };
    let is_beyond = match is_far_below {
        true => beyond_chance(allowed - missed, seen.max(allowed)) > HOLDS_BEYOND,
        false => beyond_chance(allowed - missed, expected) > HOLDS_BEYOND,
    };
    let is_growing = !is_far_below && trend(&clamped) >= MAX_TREND;
    let is_steady = is_far_below
        || is_settled(MAX_SEVERITY_SHARE) && (is_closed || batch_share(&in_flight) <= MAX_IN_FLIGHT_SHARE);
    let is_near = (missed - allowed).abs() <= NEAR_TARGET * allowed;
    let doubt = match (is_growing, is_beyond) {
        (true, _) => Some(Doubt::Growing),
        (false, true) => (!is_steady).then_some(Doubt::Unsettled),
        (false, false) if is_missed => Some(Doubt::Unsettled),
        (false, false) if is_near => Some(Doubt::NearTarget),
        (false, false) => Some(Doubt::TooFew),
    };
    Some(ProbeEstimate {
        decision: match doubt {
            _ if fails => ProbeDecision::Fails,
            None => ProbeDecision::Holds,
            Some(_) => ProbeDecision::Undecided,
        },
        doubt: doubt.filter(|_| !fails),
        severity,
        dispersion,
        judged: series.len() as u64,
        judged_good: misses.iter().filter(|miss| **miss == 0.0).count() as u64,
        design_effect: match missed * (1.0 - missed) {
            share if share > 0.0 => seen / share,
            _ => 1.0,
        },
    })
}

/// Leaves out the start, and as many more requests as batches of equal length need.
fn judged_part(outcomes: &[ProbeOutcome]) -> Option<&[ProbeOutcome]> {
    let judged = &outcomes[outcomes.len() / START_SHARE..];
    let surplus = judged.len() % (2 * BATCHES);
    (judged.len() >= 4 * BATCHES).then(|| &judged[surplus..])
}

fn quantile(series: &[ProbeOutcome], share: f64) -> f64 {
    let mut values: Vec<f64> = series.iter().map(|outcome| outcome.severity).collect();
    let place = ((values.len() as f64 * share).ceil() as usize).clamp(1, values.len()) - 1;
    *values.select_nth_unstable_by(place, f64::total_cmp).1
}

/// Returns the variance of a count over its mean: 1 for independent rare events, the size of clusters
/// otherwise. The larger one of two lengths of batches counts.
fn dispersion(flags: &[f64]) -> f64 {
    let share = mean(flags);
    if share == 0.0 {
        return 1.0;
    }
    let at = |batches: usize| BatchVariance::of(flags, batches).long_run() / share;
    at(BATCHES).max(at(BATCHES / 2)).max(1.0)
}

/// Variance per request of the sums of batches and of half batches.
struct BatchVariance {
    whole: f64,
    half: f64,
}

impl BatchVariance {
    fn of(series: &[f64], batches: usize) -> Self {
        let half = batch_sums(series, 2 * batches);
        let whole: Vec<f64> = half.chunks_exact(2).map(|pair| pair[0] + pair[1]).collect();
        let length = series.len() as f64 / batches as f64;
        Self {
            whole: variance(&whole) / length,
            half: variance(&half) / (length / 2.0),
        }
    }

    /// The variance per request of an endless sum: its error falls with the length of a batch, so two lengths
    /// give its limit.
    fn long_run(&self) -> f64 {
        self.whole.max(2.0 * self.whole - self.half)
    }

    /// The standard deviation of the means of batches of this length.
    fn deviation(&self, length: f64) -> f64 {
        (self.whole / length).sqrt()
    }

    fn growth(&self) -> f64 {
        match self.half > 0.0 {
            true => self.whole / self.half,
            false => 1.0,
        }
    }
}

fn batch_sums(series: &[f64], batches: usize) -> Vec<f64> {
    let length = series.len() / batches;
    series
        .chunks_exact(length)
        .take(batches)
        .map(|batch| batch.iter().sum())
        .collect()
}

/// Returns the share of a series' variance that the means of the batches have beyond that of independent values: about the
/// correlation time over the length of a batch.
fn batch_share(series: &[f64]) -> f64 {
    let length = series.len() as f64 / BATCHES as f64;
    match variance(series) {
        all if all > 0.0 => (BatchVariance::of(series, BATCHES).whole / all - 1.0) / length,
        _ => 0.0,
    }
}

/// Returns the slope of the means of half batches over its standard error.
fn trend(series: &[f64]) -> f64 {
    let means = batch_sums(series, 2 * BATCHES);
    let middle = (means.len() as f64 - 1.0) / 2.0;
    let center = mean(&means);
    let (mut products, mut squares) = (0.0, 0.0);
    for (place, value) in means.iter().enumerate() {
        products += (place as f64 - middle) * (value - center);
        squares += (place as f64 - middle).powi(2);
    }
    let slope = products / squares;
    let rest: f64 = means
        .iter()
        .enumerate()
        .map(|(place, value)| (value - center - slope * (place as f64 - middle)).powi(2))
        .sum();
    let error = (rest / (means.len() as f64 - 2.0) / squares).sqrt();
    if slope > 0.0 { slope / error } else { 0.0 }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn variance(values: &[f64]) -> f64 {
    let center = mean(values);
    values.iter().map(|value| (value - center).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)
}

#[cfg(test)]
mod tests;
