//! Runs searches and counts.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::probe_test::{self, ProbeDecision};
use super::starts::over_starts;
use super::strategy::{Interval, Probe, ProbeSize, Progress, SearchSpace, Step};
use super::systems::{Service, System};
use crate::sim::rng::Rng;

/// A system with its SLO, whose capacity is known.
struct Case {
    name: &'static str,
    system: System,
    target: f64,
    /// The rate at which exactly the target share of requests meets the limit.
    capacity: f64,
    /// Largest number of requests of a probe.
    probe: usize,
}

const CASES: [Case; 10] = [
    Case { name: "M/M/1, load 0.7", system: System::Queue(1, Service::Exponential), target: 0.95, capacity: 0.7, probe: 20_000 },
    Case { name: "M/M/1, load 0.7", system: System::Queue(1, Service::Exponential), target: 0.99, capacity: 0.7, probe: 60_000 },
    Case { name: "M/M/1, load 0.9", system: System::Queue(1, Service::Exponential), target: 0.95, capacity: 0.9, probe: 40_000 },
    Case { name: "M/M/1, load 0.9", system: System::Queue(1, Service::Exponential), target: 0.99, capacity: 0.9, probe: 80_000 },
    Case { name: "M/G/8 lognormal, load 0.8", system: System::Queue(8, Service::LogNormal(1.0)), target: 0.95, capacity: 6.4, probe: 30_000 },
    Case { name: "M/G/8 lognormal, load 0.8", system: System::Queue(8, Service::LogNormal(1.0)), target: 0.99, capacity: 6.4, probe: 60_000 },
    Case { name: "M/G/4 hyperexponential, load 0.8", system: System::Queue(4, Service::Hyperexponential), target: 0.95, capacity: 3.2, probe: 30_000 },
    Case { name: "M/G/4 hyperexponential, load 0.8", system: System::Queue(4, Service::Hyperexponential), target: 0.99, capacity: 3.2, probe: 60_000 },
    Case { name: "simulated engine", system: System::Engine, target: 0.95, capacity: 48.0, probe: 30_000 },
    Case { name: "simulated engine", system: System::Engine, target: 0.99, capacity: 48.0, probe: 60_000 },
];

/// Requests of the long run that gives the limit of an SLO from the capacity.
const TRUTH: usize = 2_000_000;

/// Fewest searches with which a bisection is compared: with fewer ones a cheap bisection covers by luck.
const COMPARED: u64 = 60;

/// Largest cost of a search, as a share of that of a bisection that covers as well.
const MAX_COST: f64 = 0.5;

/// Share of all searches whose intervals contain the capacity.
const COVERAGE: f64 = 0.95;

/// Fewest of `searches` intervals that contain it, but for one sample in twenty: 185 of 200.
fn least_covered(searches: u64) -> u64 {
    const BEYOND: f64 = 1.65;
    let count = searches as f64;
    (COVERAGE * count - BEYOND * (COVERAGE * (1.0 - COVERAGE) * count).sqrt()).ceil() as u64
}

/// Judges all cases, one at a time on each core.
pub fn run(searches: u64, seed: u64) -> bool {
    println!("seed {seed}; the interval must contain the capacity in {} of {searches} searches", least_covered(searches));
    let (next, is_good) = (AtomicUsize::new(0), AtomicBool::new(true));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(case) = CASES.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (text, is_met) = case.judge(searches, seed);
                    println!("{text}");
                    is_good.fetch_and(is_met, Ordering::Relaxed);
                }
            });
        }
    });
    is_good.into_inner()
}

/// What one search came to, and its cost.
struct Found {
    interval: Option<Interval>,
    requests: f64,
    seconds: f64,
}

impl Case {
    /// Returns what was found, and whether it is good enough.
    fn judge(&self, searches: u64, seed: u64) -> (String, bool) {
        let limit = self.limit(seed);
        let found: Vec<Found> = (0..searches).map(|search| self.search(limit, 1.0, seed << 32 | search << 12)).collect();
        let covered = found.iter().filter(|found| found.contains(self.capacity)).count() as u64;
        let mean = |of: fn(&Found) -> f64| found.iter().map(of).sum::<f64>() / searches as f64;
        let (requests, seconds) = (mean(|found| found.requests), mean(|found| found.seconds));
        let widths: Vec<f64> = found.iter().filter_map(|found| found.interval).map(|interval| interval.high / interval.low).collect();
        let width = median(widths);
        let none = found.iter().filter(|found| found.interval.is_none()).count();
        let mut text = format!(
            "{}, target {}: {covered} of {searches} cover (none in {none}), median width {:.1} %, {requests:.0} requests and {seconds:.0} time units per search",
            self.name, self.target, 100.0 * (width - 1.0)
        );
        let mut is_good = covered >= least_covered(searches);
        if searches >= COMPARED {
            let (compared, is_dearer) = self.bisection(limit, width - 1.0, searches, seed, seconds / MAX_COST);
            text += &format!("\n    {compared}");
            is_good &= is_dearer;
        }
        let (covered, width) = self.starts(limit, searches, seed);
        text += &format!("\n    five starts with 1 to 5 % noise between them: {covered} of {searches} cover, median width {:.1} %", 100.0 * (width - 1.0));
        is_good &= covered >= least_covered(searches);
        if !is_good {
            text += "\n    MISSED";
        }
        (text, is_good)
    }

    /// The limit that the target share meets at the capacity.
    fn limit(&self, seed: u64) -> f64 {
        if let System::Queue(1, Service::Exponential) = self.system {
            return (1.0 / (1.0 - self.target)).ln() / (1.0 - self.capacity);
        }
        let mut probe = self.system.probe(self.capacity, 1.0, seed ^ 0x7ea1);
        (0..TRUTH / 40).for_each(|_| {
            probe.next(1.0);
        });
        let mut times: Vec<f64> = (0..TRUTH).map(|_| probe.next(1.0).severity).collect();
        let place = (times.len() as f64 * self.target) as usize;
        *times.select_nth_unstable_by(place, f64::total_cmp).1
    }

    fn space(&self, seed: u64) -> SearchSpace {
        SearchSpace {
            from: self.capacity * (0.04 + 0.08 * Rng::new(seed, 1).next_unit()),
            to: 30.0 * self.capacity,
            is_whole: false,
            target: self.target,
            resolution: 0.05,
            probes: 24,
            size: ProbeSize::Requests(self.probe as f64),
        }
    }

    fn search(&self, limit: f64, speed: f64, seed: u64) -> Found {
        let (mut probes, mut requests, mut seconds): (Vec<Probe>, f64, f64) = (Vec::new(), 0.0, 0.0);
        loop {
            let progress = Progress::new(self.space(seed), probes.iter().copied());
            let Step::Probe(value) = progress.next() else {
                return Found { interval: progress.interval(), requests, seconds };
            };
            let (probe, sent) = self.probe(value, limit, speed, seed + 1 + probes.len() as u64);
            requests += sent as f64;
            seconds += sent as f64 / value;
            probes.push(probe);
        }
    }

    /// One probe until it is decided, or as long as it may be.
    fn probe(&self, value: f64, limit: f64, speed: f64, seed: u64) -> (Probe, usize) {
        let mut system = self.system.probe(value, speed, seed);
        let (mut outcomes, mut look) = (Vec::new(), probe_test::first_look(self.target));
        loop {
            look = look.min(self.probe);
            outcomes.extend((outcomes.len()..look).map(|_| system.next(limit)));
            let estimate = probe_test::judge(&outcomes, self.target).expect("there are enough requests");
            if estimate.decision != ProbeDecision::Undecided || look == self.probe {
                let probe = Probe {
                    value,
                    decision: estimate.decision,
                    requests: look as f64,
                    severity: estimate.severity,
                    dispersion: estimate.dispersion,
                };
                return (probe, look);
            }
            look = probe_test::next_look(look);
        }
    }

    /// Raises the length of the probes of a bisection, to an interval as wide, until it covers as often as it should or costs more than `most`.
    fn bisection(&self, limit: f64, resolution: f64, searches: u64, seed: u64, most: f64) -> (String, bool) {
        let mut length = 1000;
        loop {
            let (mut covered, mut cost) = (0, 0.0);
            for search in 0..searches {
                let (interval, seconds) = self.bisect(limit, resolution, length, seed << 32 | search << 12 | 1 << 11);
                covered += u64::from(interval.is_some_and(|(low, high)| low <= self.capacity && self.capacity <= high));
                cost += seconds / searches as f64;
            }
            let text = format!("a bisection with {length} requests per probe: {covered} of {searches} cover, {cost:.0} time units");
            match (covered as f64 >= COVERAGE * searches as f64, cost >= most) {
                (false, true) => return (text + ", and covers less for more than twice the time", true),
                (true, is_dear) => return (text, is_dear),
                (false, false) => length = length * 3 / 2,
            }
        }
    }

    fn bisect(&self, limit: f64, resolution: f64, length: usize, seed: u64) -> (Option<(f64, f64)>, f64) {
        let space = self.space(seed);
        let (mut low, mut high, mut seconds, mut probes): (Option<f64>, Option<f64>, f64, u64) = (None, None, 0.0, 0);
        loop {
            let value = match (low, high) {
                (None, None) => space.from,
                (None, Some(_)) => return (None, seconds),
                (Some(low), None) => 2.0 * low,
                (Some(low), Some(high)) if high <= low * (1.0 + resolution) => return (Some((low, high)), seconds),
                (Some(low), Some(high)) => (low * high).sqrt(),
            };
            let mut system = self.system.probe(value, 1.0, seed + probes);
            let good = (0..length).filter(|_| system.next(limit).severity <= 1.0).count();
            probes += 1;
            seconds += length as f64 / value;
            *(if good as f64 >= self.target * length as f64 { &mut low } else { &mut high }) = Some(value);
        }
    }

    /// How often the interval over five starts contains the capacity, whose speeds differ; and its median width.
    fn starts(&self, limit: f64, searches: u64, seed: u64) -> (u64, f64) {
        let mut widths = Vec::new();
        let mut covered = 0;
        for group in 0..searches {
            let mut rng = Rng::new(seed << 32 | group, 2);
            let noise = 0.01 + 0.04 * rng.next_unit();
            let starts: Vec<Interval> = (0..5)
                .filter_map(|start| {
                    let normal: f64 = (0..12).map(|_| rng.next_unit()).sum::<f64>() - 6.0;
                    let speed = (noise * normal).exp();
                    // A slower engine with the SLO of its speed has the capacity of its speed.
                    let found = self.search(limit / speed, speed, (seed << 32 | group << 12 | start << 8) ^ 0x5a5a << 40);
                    found.interval
                })
                .collect();
            if let Some(interval) = over_starts(&starts) {
                covered += u64::from(interval.low <= self.capacity && self.capacity <= interval.high);
                widths.push(interval.high / interval.low);
            }
        }
        (covered, median(widths))
    }
}

impl Found {
    fn contains(&self, capacity: f64) -> bool {
        self.interval.is_some_and(|interval| interval.low <= capacity && capacity <= interval.high)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(1.0)
}
