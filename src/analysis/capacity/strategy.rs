//! Chooses the next probe of a search from the probes so far. All functions are pure: nothing is measured here.
//!
//! The search doubles the load until a level fails, and repeats that level. Then it estimates where the
//! capacity lies, and probes one level below and one above it: each as near as the probes can decide. Both ends
//! of the resulting interval are probed again. A level whose probes disagree, or that is too close to call, is
//! no end: the interval extends beyond it.

use super::probe_test::ProbeDecision;

/// Significant digits of a rate between two measured ones.
const ROUNDED_DIGITS: i32 = 4;
/// Probes that must agree on an end of the interval.
const AGREEING: usize = 2;
/// While the ends lie further apart, their mean is probed.
const MAX_GAP: f64 = 1.6;
/// Standard errors by which the attainment of a level must differ from the target to be decided soon.
const DECIDED_BEYOND: f64 = 3.0;
/// Share of the requests of a probe that count when it is planned.
const JUDGED_SHARE: f64 = 0.7;
/// Largest distance of a planned level from the estimate, as a share.
const MAX_OFFSET: f64 = 0.6;
/// Tolerance of comparisons between ratios.
const ROUNDING: f64 = 1.0001;

/// Where a search looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchSpace {
    /// Lowest value, probed first.
    pub(super) from: f64,
    /// Highest value.
    pub(super) to: f64,
    /// Whether values are whole numbers.
    pub(super) is_whole: bool,
    /// Share of requests that must meet the SLO.
    pub(super) target: f64,
    /// Share by which the ends of the interval may differ.
    pub(super) resolution: f64,
    /// Maximum number of probes.
    pub(super) probes: usize,
    pub(super) size: ProbeSize,
}

/// The largest size of a probe.
#[derive(Clone, Copy, Debug)]
pub(super) enum ProbeSize {
    Requests(f64),
    /// Seconds at a rate.
    Seconds(f64),
    /// As large as the largest so far.
    Unknown,
}

/// One probe, as far as the next one depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) value: f64,
    pub(super) decision: ProbeDecision,
    pub(super) requests: f64,
    /// The severity that the target share of requests does not exceed.
    pub(super) severity: f64,
    pub(super) dispersion: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Probe(f64),
    /// Both ends of the interval are known.
    Bracketed,
    /// The lowest value fails.
    NoneHeld,
    /// The highest value holds.
    AllHeld,
    /// An end is too close to call.
    Undecided,
    OutOfProbes,
}

/// The capacity, with the ends on which two probes each agree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// The probes at one value.
#[derive(Clone, Copy, Debug)]
struct Level {
    value: f64,
    holds: usize,
    fails: usize,
    undecided: usize,
    /// Of the probe with the most requests.
    severity: f64,
    dispersion: f64,
    requests: f64,
}

impl Level {
    const fn new(value: f64) -> Self {
        Self {
            value,
            holds: 0,
            fails: 0,
            undecided: 0,
            severity: f64::INFINITY,
            dispersion: 1.0,
            requests: 0.0,
        }
    }

    fn add(&mut self, probe: &Probe) {
        match probe.decision {
            ProbeDecision::Holds => self.holds += 1,
            ProbeDecision::Fails => self.fails += 1,
            ProbeDecision::Undecided => self.undecided += 1,
        }
        if probe.requests >= self.requests {
            self.requests = probe.requests;
            self.severity = probe.severity;
            self.dispersion = probe.dispersion;
        }
    }

    const fn only_holds(&self) -> bool {
        self.holds > 0 && self.fails + self.undecided == 0
    }

    const fn only_fails(&self) -> bool {
        self.fails > 0 && self.holds + self.undecided == 0
    }
}

/// Everything probed so far.
pub(super) struct Progress {
    space: SearchSpace,
    /// Ascending by value.
    levels: Vec<Level>,
    probes: usize,
}

impl Progress {
    pub(super) fn new(space: SearchSpace, probes: impl IntoIterator<Item = Probe>) -> Self {
        let (mut levels, mut count): (Vec<Level>, usize) = (Vec::new(), 0);
        for probe in probes {
            let at = levels.partition_point(|level| level.value < probe.value);
            if levels.get(at).is_none_or(|level| level.value != probe.value) {
                levels.insert(at, Level::new(probe.value));
            }
            levels[at].add(&probe);
            count += 1;
        }
        Self {
            space,
            levels,
            probes: count,
        }
    }

    /// The highest level that holds, below every one that fails.
    pub(super) fn low(&self) -> Option<f64> {
        self.low_level().map(|level| level.value)
    }

    /// The lowest level that fails, above every one that holds.
    pub(super) fn high(&self) -> Option<f64> {
        self.high_level().map(|level| level.value)
    }

    fn low_level(&self) -> Option<&Level> {
        let failing = self.levels.iter().find(|level| level.only_fails());
        let is_below = |level: &&Level| failing.is_none_or(|failing| level.value < failing.value);
        self.levels
            .iter()
            .filter(is_below)
            .rfind(|level| level.only_holds())
    }

    fn high_level(&self) -> Option<&Level> {
        let holding = self.levels.iter().rfind(|level| level.only_holds());
        let is_above = |level: &&Level| holding.is_none_or(|holding| level.value > holding.value);
        self.levels
            .iter()
            .filter(is_above)
            .find(|level| level.only_fails())
    }

    /// The capacity, if enough probes agree on both ends.
    pub(super) fn interval(&self) -> Option<Interval> {
        let (low, high) = self.low_level().zip(self.high_level())?;
        let is_confirmed = low.holds >= AGREEING && high.fails >= AGREEING;
        is_confirmed.then(|| Interval {
            value: self
                .rounded(self.crossing(low, high).at, f64::floor)
                .clamp(low.value, high.value),
            low: low.value,
            high: high.value,
        })
    }

    pub(super) fn next(&self) -> Step {
        match self.choose() {
            Step::Probe(_) if self.probes >= self.space.probes => Step::OutOfProbes,
            step => step,
        }
    }

    fn choose(&self) -> Step {
        let [Some(bottom), Some(top)] = [self.levels.first(), self.levels.last()] else {
            return Step::Probe(self.space.from);
        };
        match (self.low_level(), self.high_level()) {
            (None, Some(high)) if high.fails < AGREEING => Step::Probe(high.value),
            (None, Some(high)) if high.value == bottom.value => Step::NoneHeld,
            (None, _) => Step::Undecided,
            (Some(_), None) if top.value < self.space.to => Step::Probe((top.value * 2.0).min(self.space.to)),
            (Some(low), None) if low.value == top.value => Step::AllHeld,
            (Some(_), None) => Step::Undecided,
            (Some(low), Some(high)) => self.choose_between(low, high),
        }
    }

    fn choose_between(&self, low: &Level, high: &Level) -> Step {
        let mut failing = self.levels.iter().filter(|level| level.only_fails());
        // The first failure may be an accident that would cost the search its upper half.
        if high.fails < AGREEING && failing.all(|level| level.value == high.value) {
            return Step::Probe(high.value);
        }
        let missing = [low.holds, high.fails].map(|agreeing| AGREEING.saturating_sub(agreeing));
        let left = self.space.probes.saturating_sub(self.probes);
        if left > missing.iter().sum()
            && let Some(value) = self.level_between(low, high)
        {
            return Step::Probe(value);
        }
        match missing {
            [0, 0] => Step::Bracketed,
            [0, _] => Step::Probe(high.value),
            _ => Step::Probe(low.value),
        }
    }

    /// Returns a level that would narrow the interval. `None` if it is as narrow as asked for or as can be
    /// decided.
    fn level_between(&self, low: &Level, high: &Level) -> Option<f64> {
        let step = 1.0 + self.space.resolution;
        if high.value <= low.value * step * ROUNDING {
            return None;
        }
        let inside = self.inside(low, high);
        let undecided = &inside[1..inside.len() - 1];
        let is_new = |value: &f64| {
            low.value < *value && *value < high.value && inside.iter().all(|level| level.value != *value)
        };
        let mean = self.rounded((low.value * high.value).sqrt(), f64::floor);
        let mean = if self.space.is_whole {
            mean.max(low.value + 1.0)
        } else {
            mean
        };
        if high.value > MAX_GAP * low.value && undecided.is_empty() && is_new(&mean) {
            return Some(mean);
        }
        let half_step = step.sqrt();
        let crossing = self.crossing(low, high);
        let offsets = self.offsets(&crossing);
        let nearest = undecided
            .first()
            .map_or(high.value, |level| level.value / half_step);
        let below = self.rounded((crossing.at / (1.0 + offsets.below)).min(nearest), f64::floor);
        if is_new(&below) && below > low.value * half_step {
            return Some(below);
        }
        let nearest = undecided
            .last()
            .map_or(low.value, |level| level.value * half_step);
        let above = self.rounded((crossing.at * (1.0 + offsets.above)).max(nearest), f64::ceil);
        if is_new(&above) && above < high.value / half_step {
            return Some(above);
        }
        let is_decidable = undecided.is_empty() && offsets.below.max(offsets.above) <= half_step - 1.0;
        (is_decidable && is_new(&mean)).then_some(mean)
    }

    fn inside(&self, low: &Level, high: &Level) -> Vec<&Level> {
        let is_inside = |level: &&Level| low.value <= level.value && level.value <= high.value;
        self.levels.iter().filter(is_inside).collect()
    }

    /// Estimates where the severity crosses 1. Near saturation the load falls linearly with its reciprocal.
    fn crossing(&self, low: &Level, high: &Level) -> Crossing {
        const SEVERITIES: [f64; 2] = [0.05, 20.0];
        const INSIDE: [f64; 2] = [0.05, 0.95];
        let inside = self.inside(low, high);
        let below = inside
            .iter()
            .rev()
            .find(|level| level.value < high.value && level.severity < 1.0);
        let low = below.copied().unwrap_or(low);
        let above = inside
            .iter()
            .find(|level| level.value > low.value && level.severity >= 1.0);
        let high = above.copied().unwrap_or(high);
        let [below, above] =
            [low, high].map(|level| 1.0 / level.severity.clamp(SEVERITIES[0], SEVERITIES[1]));
        let share = ((below - 1.0) / (below - above)).clamp(INSIDE[0], INSIDE[1]);
        let at = match below > above {
            true => low.value + (high.value - low.value) * share,
            false => (low.value * high.value).sqrt(),
        };
        Crossing {
            at,
            slope: ((below - above) / (high.value - low.value)).max(1e-9) * at,
            dispersion: low.dispersion.max(high.dispersion.min(3.0 * low.dispersion)),
        }
    }

    /// Returns the distances from the estimate at which the probes can decide. The share of misses at a
    /// severity follows from an exponential tail.
    fn offsets(&self, crossing: &Crossing) -> Offsets {
        let allowed = 1.0 - self.space.target;
        let requests = JUDGED_SHARE * self.max_requests(crossing.at);
        let needed = DECIDED_BEYOND * (crossing.dispersion * allowed / requests).sqrt();
        let least = 0.98 * ((1.0 + self.space.resolution).sqrt() - 1.0);
        let grow = |difference: &dyn Fn(f64) -> f64| {
            let mut offset = least;
            while offset < MAX_OFFSET && difference(offset) < needed {
                offset *= 1.1;
            }
            offset
        };
        let slope = crossing.slope;
        Offsets {
            below: grow(&|offset| allowed - allowed.powf(1.0 + slope * offset)),
            above: grow(&|offset| allowed.powf((1.0 - slope * offset).max(0.0)) - allowed),
        }
    }

    fn max_requests(&self, value: f64) -> f64 {
        match self.space.size {
            ProbeSize::Requests(requests) => requests,
            ProbeSize::Seconds(seconds) => value * seconds,
            ProbeSize::Unknown => self.levels.iter().map(|level| level.requests).fold(1.0, f64::max),
        }
    }

    fn rounded(&self, value: f64, whole: fn(f64) -> f64) -> f64 {
        if self.space.is_whole {
            return whole(value);
        }
        let scale = 10f64.powi(ROUNDED_DIGITS - 1 - value.log10().floor() as i32);
        (value * scale).round() / scale
    }
}

/// The estimated capacity.
struct Crossing {
    at: f64,
    /// Change of the reciprocal severity for a relative change of the load.
    slope: f64,
    dispersion: f64,
}

/// Relative distances of two levels from the estimate.
struct Offsets {
    below: f64,
    above: f64,
}
