//! Compares searches over many seeds, and judges them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use std::thread;

use super::search::{Found, normal};
use super::surfaces::{KINDS, Kind, Surface};
use crate::analysis::compare::decision::{DEFAULT_BOUND, DecisionOptions, Design, MetricQuestion, Outcome, Sample, decide};
use crate::analysis::compare::verdict::Verdict;
use crate::analysis::metrics::Direction;
use crate::sim::rng::Rng;

/// Starts of a search.
const STARTS: usize = 24;

/// Starts per side of a confirmation, alternating.
const CONFIRMING: usize = 5;

/// Most false claims, as a share of the searches.
const FALSE_CLAIMS: f64 = 0.05;

/// Fewest confirmed winners, as a share, where this share can be gained.
const CONFIRMED: f64 = 0.8;
const GAIN: f64 = 0.1;

/// Fewest starts that are saved until a regret of 5 %, and the number of surfaces on which they must be.
const SAVING: f64 = 0.25;
const SAVING_SURFACES: usize = 3;

/// The chance with which a search that just holds a line misses it in a sample.
const LUCK: f64 = 0.05;

/// One seed on one surface.
struct Run {
    tuned: Found,
    random: Found,
    verdict: Option<Verdict>,
    /// The winner's true figure divided by the default's, and the best one's.
    ratio: f64,
    gain: f64,
    feasible: f64,
    took_ms: f64,
}

/// Judges all surfaces.
pub fn run(seeds: u64, seed: u64) -> bool {
    println!("{seeds} seeds from {seed} on, {STARTS} starts per search, {CONFIRMING} starts per side of a confirmation");
    println!("{}", HEADER);
    let (mut is_good, mut savings, mut claims, mut searches) = (true, 0, 0, 0);
    for kind in KINDS {
        let runs = runs(kind, seeds, seed);
        let (line, is_met, saving) = judge(kind, &runs);
        println!("{line}");
        is_good &= is_met;
        savings += usize::from(saving >= SAVING);
        claims += runs.iter().filter(|run| run.ratio < 1.0 && run.verdict == Some(Verdict::Better)).count();
        searches += runs.len();
    }
    if savings < SAVING_SURFACES {
        println!("MISSED: {:.0} % fewer starts to 5 % regret on {savings} surfaces, not on {SAVING_SURFACES}", 100.0 * SAVING);
        is_good = false;
    }
    let is_few = claims <= most_by_luck(searches, FALSE_CLAIMS);
    println!("worse than the default and confirmed as better: {claims} of {searches}{}", if is_few { "" } else { " MISSED" });
    is_good && is_few
}

const HEADER: &str = "surface                 runs  best    median regret    mean regret      not worse  starts to 5 % regret     confirmed  crashes   ms per
                        %     gain    tuner random     tuner random     p          tuner  random saved    %          tuner random  search";

fn runs(kind: Kind, seeds: u64, seed: u64) -> Vec<Run> {
    let next = AtomicU64::new(0);
    let runs = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from).min(seeds as usize);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut surface: Option<(u64, Surface)> = None;
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= seeds {
                        return;
                    }
                    let variant = kind.variant(seed + at);
                    if surface.as_ref().is_none_or(|(known, _)| *known != variant) {
                        surface = Some((variant, cached(kind, variant)));
                    }
                    let (_, surface) = surface.as_ref().expect("it was just made");
                    let run = search(surface, seed + at);
                    runs.lock().expect("no thread panicked").push((at, run));
                }
            });
        }
    });
    let mut runs = runs.into_inner().expect("no thread panicked");
    runs.sort_by_key(|(at, _)| *at);
    runs.into_iter().map(|(_, run)| run).collect()
}

/// The surfaces of the engine take a second or more each, and are few.
fn cached(kind: Kind, variant: u64) -> Surface {
    static KNOWN: Mutex<Vec<(Kind, u64, Surface)>> = Mutex::new(Vec::new());
    if kind.variant(u64::MAX) == u64::MAX {
        return kind.surface(variant);
    }
    let mut known = KNOWN.lock().expect("no thread panicked");
    if let Some((_, _, surface)) = known.iter().find(|(other, number, _)| (*other, *number) == (kind, variant)) {
        return surface.clone();
    }
    let surface = kind.surface(variant);
    known.push((kind, variant, surface.clone()));
    surface
}

fn search(surface: &Surface, seed: u64) -> Run {
    let begin = std::time::Instant::now();
    let tuned = surface.tuned(STARTS, seed);
    let took_ms = begin.elapsed().as_secs_f64() * 1e3;
    let random = surface.random(STARTS, seed);
    let default = surface.default_point();
    let default_log = surface.figure(&default).expect("the default runs");
    let winner_log = surface.figure(&tuned.winner).unwrap_or(f64::NEG_INFINITY);
    let is_other = tuned.winner != default;
    Run {
        verdict: is_other.then(|| confirm(default_log, winner_log, surface.noise, seed)),
        ratio: (winner_log - default_log).exp(),
        gain: (surface.best() - default_log).exp() - 1.0,
        feasible: surface.feasible(),
        tuned,
        random,
        took_ms,
    }
}

/// The verdict of a comparison of the winner with the default over fresh starts in turn.
fn confirm(default: f64, winner: f64, noise: f64, seed: u64) -> Verdict {
    let mut rng = Rng::new(seed, 0xc04f);
    let mut sample = |level: f64| Sample {
        logs: (0..CONFIRMING).map(|_| level + noise * normal(&mut rng)).collect(),
        ..Sample::default()
    };
    let question = MetricQuestion {
        better: Direction::Higher,
        baseline: sample(default),
        candidate: sample(winner),
        design: Design::Rounds,
        noise: None,
        night_variance: None,
        no_verdict: None,
    };
    let options = DecisionOptions { bound: DEFAULT_BOUND, family: 0 };
    match &decide(&[question], &options)[0].outcome {
        Outcome::Judged(verdict) => *verdict,
        Outcome::NotJudged(reason) => panic!("five starts per side are judged: {reason:?}"),
    }
}

/// The line of a surface, whether it holds its demands, and the share of starts that are saved.
fn judge(kind: Kind, runs: &[Run]) -> (String, bool, f64) {
    let regrets = |of: fn(&Run) -> &Found| runs.iter().map(|run| of(run).regret).collect::<Vec<f64>>();
    let (tuned, random) = (regrets(|run| &run.tuned), regrets(|run| &run.random));
    let (to_tuned, to_random) = (expected_starts(runs, |run| &run.tuned), expected_starts(runs, |run| &run.random));
    let saving = if kind == Kind::Flat { 0.0 } else { 1.0 - to_tuned / to_random };
    let p = p_of_worse(&tuned, &random);
    let is_better = |run: &&Run| run.verdict == Some(Verdict::Better);
    let confirmed = runs.iter().filter(is_better).count();
    let promising: Vec<&Run> = runs.iter().filter(|run| run.gain >= GAIN).collect();
    let of_promising = promising.iter().copied().filter(is_better).count();
    let mut missed = Vec::new();
    if kind == Kind::Flat && confirmed > most_by_luck(runs.len(), FALSE_CLAIMS) {
        missed.push("the default is beaten too often");
    }
    if kind != Kind::Flat && p < LUCK {
        missed.push("regret is worse than that of random search");
    }
    if promising.len() - of_promising > most_by_luck(promising.len(), 1.0 - CONFIRMED) {
        missed.push("too few winners are confirmed");
    }
    let mean_of = |of: &dyn Fn(&Run) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
    let line = format!(
        "{:<22} {:>5.0} {:>6.0} %  {:>6.1} {:>6.1}   {:>6.1} {:>6.1}     {:<9.4} {:>6.1} {:>7.1} {:>4.0} %   {:>5.0}      {:>5.1} {:>6.1} {:>7.0}{}",
        kind.name(), 100.0 * mean_of(&|run| run.feasible), 100.0 * mean_of(&|run| run.gain),
        100.0 * median(&tuned), 100.0 * median(&random), 100.0 * mean(&tuned), 100.0 * mean(&random), p,
        to_tuned, to_random, 100.0 * saving, 100.0 * confirmed as f64 / runs.len() as f64,
        mean_of(&|run| run.tuned.crashes as f64), mean_of(&|run| run.random.crashes as f64), mean_of(&|run| run.took_ms),
        missed.iter().map(|text| format!("\n    MISSED: {text}")).collect::<String>(),
    );
    (line, missed.is_empty(), saving)
}

/// The starts of all searches per search that arrived: the expected number if searches are repeated until one arrives.
fn expected_starts(runs: &[Run], of: fn(&Run) -> &Found) -> f64 {
    let starts: usize = runs.iter().map(|run| of(run).starts.unwrap_or(STARTS)).sum();
    let arrived = runs.iter().filter(|run| of(run).starts.is_some()).count();
    starts as f64 / arrived as f64
}

/// The probability of differences as far above zero by chance, if their signs are random (a permutation test of the mean).
fn p_of_worse(tuned: &[f64], random: &[f64]) -> f64 {
    const DRAWS: usize = 20_000;
    let differences: Vec<f64> = tuned.iter().zip(random).map(|(one, other)| one - other).collect();
    let observed: f64 = differences.iter().sum();
    let mut rng = Rng::new(1, 0x9e4);
    let as_large = (0..DRAWS).filter(|_| {
        let signed = differences.iter().map(|value| if rng.next_u64() & 1 == 1 { *value } else { -value });
        signed.sum::<f64>() >= observed - 1e-12
    });
    (as_large.count() + 1) as f64 / (DRAWS + 1) as f64
}

/// The most of `count` events of this probability, but for luck.
fn most_by_luck(count: usize, probability: f64) -> usize {
    let (mut term, mut sum, mut events) = ((1.0 - probability).powi(count as i32), 0.0, 0);
    loop {
        sum += term;
        if sum >= 1.0 - LUCK || events >= count {
            return events;
        }
        term *= (count - events) as f64 / (events + 1) as f64 * probability / (1.0 - probability);
        events += 1;
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { 0.5 * (sorted[half - 1] + sorted[half]) }
}
