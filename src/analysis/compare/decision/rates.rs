//! Measures the error rates of [`super::decide`] on synthetic cells: false verdicts, missed losses, coverage
//! and width of intervals.
//!
//! `MATRIX_RUNS` sets the number of runs per condition. `tests/montecarlo.sh` sets two thousand. Every test
//! prints its rates.

use super::super::power;
use super::super::t_test;
use super::super::verdict::Verdict;
use super::synthetic::{Layout, SHAPES, SeededRng, Shape};
use super::{
    Answer, CONFIDENCE, DecisionOptions, Design, KnownNoise, Question, Sample, decide, decide_by_pairs,
};
use crate::analysis::metrics::Direction;

const CELLS: usize = 24;
/// Starts of a noise measurement: the default of `matrix noise`.
const NOISE_STARTS: usize = 10;
/// Starts of the first stage of a candidate with a stopping rule.
const STAGE: usize = 5;
const SEED: u64 = 20_261_122;
const BOUND: f64 = 0.02;

fn run_count() -> usize {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test is told its length by its surroundings"
    )]
    let setting = std::env::var("MATRIX_RUNS").ok();
    setting.map_or(100, |text| text.parse().expect("MATRIX_RUNS is a number"))
}

/// Returns the highest accepted count of an event of probability `rate` in this number of runs: 2.36 standard
/// deviations above the mean, which is 123 of 2000 at 5 %.
fn max_count(rate: f64, runs: usize) -> usize {
    let n = runs as f64;
    (rate * n + 2.36 * (rate * (1.0 - rate) * n).sqrt()) as usize
}

#[derive(Clone, Copy, Debug)]
struct Condition {
    shape: Shape,
    sigma: f64,
    starts: usize,
    /// Starts of the noise measurement.
    noise: Option<usize>,
    layout: Layout,
    /// Target half width of the stopping rule for both sides.
    target_ci: Option<f64>,
    /// Relative loss of the candidate in every cell.
    lost_share: f64,
    /// How much the standard deviations of cells differ: each is multiplied by a factor between 1 / `unlike`
    /// and `unlike`.
    variance_ratio: f64,
    /// Standard deviation when the noise was measured, relative to today's.
    noise_age_factor: f64,
    /// Standard deviation that both sides of a round share. The sides are then compared round by round.
    drift: Option<f64>,
    /// Starts of the candidate if their number differs from the baseline's, and its standard deviation
    /// relative to the baseline's.
    candidate: Option<(usize, f64)>,
    cells: usize,
}

/// Normal noise of 3 %, cells on separate launches, five starts, noise unknown, no loss.
const PLAIN: Condition = Condition {
    shape: Shape::Normal,
    sigma: 0.03,
    starts: 5,
    noise: None,
    layout: LAYOUTS[0],
    target_ci: None,
    lost_share: 0.0,
    variance_ratio: 1.0,
    noise_age_factor: 1.0,
    drift: None,
    candidate: None,
    cells: CELLS,
};

impl Condition {
    fn name(&self) -> String {
        let noise = self
            .noise
            .map_or("unknown".to_owned(), |starts| format!("of {starts} starts"));
        let target_in_words = self
            .target_ci
            .map_or(String::new(), |target| format!(", until ±{} %", target * 100.0));
        let Layout { cells, shared } = self.layout;
        let mut more = String::new();
        if self.variance_ratio > 1.0 {
            more += &format!(", cells unlike by up to {}", self.variance_ratio);
        }
        if self.noise_age_factor < 1.0 {
            more += &format!(", noise was {} of today's", self.noise_age_factor);
        }
        if let Some(drift) = self.drift {
            more += &format!(", rounds that drift by {} %", drift * 100.0);
        }
        if let Some((starts, scale)) = self.candidate {
            more += &format!(
                ", {} cells, the candidate with {starts} starts that vary {scale} times as much",
                self.cells
            );
        }
        format!(
            "{:?}, sigma {} %, {} starts{target_in_words}, noise {noise}, {cells} cells a launch sharing {shared} of the variance, loss {} %{more}",
            self.shape,
            self.sigma * 100.0,
            self.starts,
            self.lost_share * 100.0
        )
    }

    fn questions(&self, rng: &mut SeededRng) -> Vec<Question> {
        let scales: Vec<f64> = (0..self.cells)
            .map(|_| self.variance_ratio.powf(2.0 * rng.uniform() - 1.0))
            .collect();
        let draw = |rng: &mut SeededRng, starts, by: f64| {
            let mut drawn = self
                .layout
                .starts(rng, self.shape, self.sigma * by, self.cells, starts);
            for (cell, scale) in drawn.iter_mut().zip(&scales) {
                cell.iter_mut().for_each(|log| *log *= scale);
            }
            drawn
        };
        let noise = self.noise.map(|starts| draw(rng, starts, self.noise_age_factor));
        let stop_target = self.target_ci.filter(|_| self.candidate.is_none());
        let mut sides = [0, 1].map(|_| draw(rng, stop_target.map_or(self.starts, |_| 20), 1.0));
        if let Some((starts, scale)) = self.candidate {
            sides[1] = draw(rng, starts, scale);
        }
        match (self.target_ci, self.candidate) {
            (None, _) => {}
            (Some(target), None) => sides
                .iter_mut()
                .for_each(|side| self.apply_stop_rule(side, target)),
            // Only the candidate has a stopping rule, and its first five starts decide how many of `starts`
            // it makes.
            (Some(target), Some(_)) => Self {
                starts: STAGE,
                ..*self
            }
            .apply_stop_rule(&mut sides[1], target),
        }
        if let Some(drift) = self.drift {
            for round in 0..self.starts {
                let shared = drift * rng.normal();
                for cell in sides.iter_mut().flatten() {
                    cell[round] += shared;
                }
            }
        }
        let stages = match (self.target_ci, self.candidate) {
            (None, _) => [None, None],
            (Some(_), None) => [Some(self.starts); 2],
            (Some(_), Some(_)) => [None, Some(STAGE)],
        };
        let sample = |at: usize, cell: usize, level: f64| Sample {
            logs: sides[at][cell].iter().map(|log| log + level).collect(),
            launch: Some(self.layout.launch(cell).to_string()),
            first_stage: stages[at],
            resolution: 0.0,
            is_at_jump: false,
            counting_variance: None,
        };
        let question = |cell| Question {
            better: Direction::Higher,
            baseline: sample(0, cell, 0.0),
            candidate: sample(1, cell, (-self.lost_share).ln_1p()),
            design: self.drift.map_or(Design::Separate, |_| Design::Rounds),
            noise: noise
                .as_ref()
                .and_then(|noise| KnownNoise::from_starts(&noise[cell])),
            night_variance: None,
            no_verdict: None,
        };
        (0..self.cells).map(question).collect()
    }

    /// Truncates the starts of each launch to the number that `target_ci` asks for.
    fn apply_stop_rule(&self, side: &mut [Vec<f64>], target: f64) {
        for launch in side.chunks_mut(self.layout.cells) {
            let needed = launch.iter().map(|cell| {
                let sigma = t_test::variance(&cell[..self.starts]).sqrt();
                power::two_stage_starts(sigma, self.starts, target.ln_1p())
            });
            let needed = needed.max().unwrap_or(self.starts);
            for cell in launch {
                cell.truncate(needed);
            }
        }
    }

    fn simulate(&self, runs: usize, salt: u64) -> Rates {
        let mut rng = SeededRng::new(SEED + salt);
        let mut rates = Rates::default();
        let terms = DecisionOptions {
            bound: BOUND,
            family: 0,
        };
        for _ in 0..runs {
            let questions = self.questions(&mut rng);
            let answers = decide(&questions, &terms);
            rates.add(&answers, &questions, self);
        }
        println!("{}: {rates:?}", self.name());
        rates
    }
}

#[derive(Debug, Default)]
struct Rates {
    runs: usize,
    cells: usize,
    /// Runs with a *better* or *worse*.
    runs_with_verdict: usize,
    verdicts: usize,
    same: usize,
    covered: usize,
    /// Sum of widths relative to those for a known standard deviation.
    width: f64,
    df: f64,
}

impl Rates {
    fn add(&mut self, answers: &[Answer], questions: &[Question], condition: &Condition) {
        let truth = (-condition.lost_share).ln_1p();
        let is_found = |answer: &&Answer| matches!(answer.verdict(), Some(Verdict::Better | Verdict::Worse));
        self.runs += 1;
        self.cells += answers.len();
        self.runs_with_verdict += usize::from(answers.iter().any(|answer| is_found(&answer)));
        self.verdicts += answers.iter().filter(is_found).count();
        self.same += answers
            .iter()
            .filter(|answer| answer.verdict() == Some(Verdict::Same))
            .count();
        for (answer, question) in answers.iter().zip(questions) {
            let estimate = answer.estimate.expect("there are starts");
            let precision = estimate.precision.expect("there are several");
            let half = precision.error * t_test::quantile(precision.df, f64::midpoint(1.0, CONFIDENCE));
            self.covered += usize::from((estimate.log_change - truth).abs() <= half);
            let starts = [&question.baseline, &question.candidate].map(|side| side.logs.len() as f64);
            self.width += half / (1.959_964 * condition.sigma * (1.0 / starts[0] + 1.0 / starts[1]).sqrt());
            self.df += precision.df;
        }
    }

    fn share(&self, count: usize) -> f64 {
        count as f64 / self.cells as f64
    }

    fn mean_width(&self) -> f64 {
        self.width / self.cells as f64
    }

    fn mean_df(&self) -> f64 {
        self.df / self.cells as f64
    }
}

/// Starts per side, and starts of the noise measurement.
const SIZES: [(usize, Option<usize>); 5] = [
    (3, Some(NOISE_STARTS)),
    (5, None),
    (5, Some(NOISE_STARTS)),
    (8, None),
    (8, Some(NOISE_STARTS)),
];

/// Each cell on its own launch, or six or all cells on one launch, whose starts they share fully, half or not
/// at all.
const LAYOUTS: [Layout; 6] = [
    Layout {
        cells: 1,
        shared: 0.0,
    },
    Layout {
        cells: 6,
        shared: 1.0,
    },
    Layout {
        cells: 6,
        shared: 0.5,
    },
    Layout {
        cells: CELLS,
        shared: 1.0,
    },
    Layout {
        cells: CELLS,
        shared: 0.5,
    },
    Layout {
        cells: CELLS,
        shared: 0.0,
    },
];

fn conditions() -> impl Iterator<Item = Condition> {
    SHAPES.into_iter().flat_map(|shape| {
        SIZES.into_iter().flat_map(move |(starts, noise)| {
            LAYOUTS.into_iter().map(move |layout| Condition {
                shape,
                starts,
                noise,
                layout,
                ..PLAIN
            })
        })
    })
}

/// Says which rates of identical builds are too high.
fn rate_violations(condition: &Condition, rates: &Rates) -> Vec<String> {
    let mut wrong = Vec::new();
    if rates.runs_with_verdict > max_count(0.05, rates.runs) {
        wrong.push(format!(
            "{} of {} runs have a false verdict",
            rates.runs_with_verdict, rates.runs
        ));
    }
    let covered = rates.share(rates.covered);
    let promised = match condition.shape {
        Shape::Normal | Shape::Heavy => 0.93,
        Shape::TwoLevels | Shape::SlowStarts | Shape::SeldomSlow => 0.92,
    };
    // Cells of one run are not independent, so runs are counted.
    let slack = 2.36 * (0.05f64 * 0.95 / rates.runs as f64).sqrt();
    let slack = if rates.runs < 2000 { slack } else { 0.0 };
    if covered < promised - slack {
        wrong.push(format!("intervals hold the truth in {:.1} %", covered * 100.0));
    }
    // A few runs with heavy tails have intervals that are many times wider than usual.
    if rates.mean_df() >= 9.0 && rates.mean_width() > 1.4 + 4.0 * slack {
        wrong.push(format!(
            "intervals are {:.2} times as wide as needed",
            rates.mean_width()
        ));
    }
    wrong
        .into_iter()
        .map(|what| format!("{}: {what}", condition.name()))
        .collect()
}

#[test]
fn builds_that_do_not_differ_seldom_get_a_verdict_and_intervals_hold_the_truth() {
    println!("{} runs of {CELLS} cells per condition, seed {SEED}", run_count());
    let mut wrong = Vec::new();
    for (salt, condition) in conditions().enumerate() {
        wrong.extend(rate_violations(
            &condition,
            &condition.simulate(run_count(), salt as u64),
        ));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn cells_that_are_unlike_and_noise_that_has_changed_raise_few_alarms() {
    println!("{} runs of {CELLS} cells per condition, seed {SEED}", run_count());
    let mut wrong = Vec::new();
    let mut salt = 500;
    for shape in SHAPES {
        for (starts, noise) in SIZES {
            for layout in [LAYOUTS[0], LAYOUTS[2]] {
                let plain = Condition {
                    shape,
                    starts,
                    noise,
                    layout,
                    ..PLAIN
                };
                let unlike = Condition {
                    variance_ratio: 3.0,
                    ..plain
                };
                let stale = noise.map(|_| Condition {
                    noise_age_factor: 0.5,
                    ..plain
                });
                for condition in [Some(unlike), stale].into_iter().flatten() {
                    salt += 1;
                    let rates = condition.simulate(run_count(), salt);
                    // Two levels that happen to split the sides look like a change if no other cell is
                    // similar. The rate exceeds the promise here and is bounded.
                    let rate = match shape {
                        Shape::Normal | Shape::Heavy => 0.05,
                        Shape::TwoLevels | Shape::SlowStarts | Shape::SeldomSlow => 0.15,
                    };
                    if rates.runs_with_verdict > max_count(rate, rates.runs) {
                        wrong.push(format!("{}: {} runs", condition.name(), rates.runs_with_verdict));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Noise that was measured precisely, on a much quieter day.
#[test]
fn noise_that_the_starts_contradict_makes_no_verdict_easier() {
    println!("{} runs per condition, seed {SEED}", run_count());
    let (mut wrong, mut salt) = (Vec::new(), 9000);
    for shape in [Shape::Normal, Shape::Heavy] {
        for starts in [3, 5] {
            for (noise, stale) in [(51, 0.1), (16, 0.25), (51, 0.33), (51, 0.5), (51, 0.7), (10, 0.5)] {
                for (cells, drift) in [
                    (1, None),
                    (3, None),
                    (CELLS, None),
                    (1, Some(0.02)),
                    (CELLS, Some(0.02)),
                ] {
                    salt += 1;
                    let condition = Condition {
                        shape,
                        starts,
                        noise: Some(noise),
                        noise_age_factor: stale,
                        cells,
                        drift,
                        ..PLAIN
                    };
                    let rates = condition.simulate(run_count(), salt);
                    // Three starts are judged with stored noise only. The rate exceeds the promise if that
                    // noise is too small, and is bounded here. Five rounds have half the degrees of freedom
                    // of five starts per side, too few to contradict noise that is half of today's.
                    let rate = match (starts, drift) {
                        (3, _) => 0.12,
                        (_, Some(_)) => 0.075,
                        (_, None) => 0.05,
                    };
                    if rates.runs_with_verdict > max_count(rate, rates.runs) {
                        wrong.push(format!("{}: {} runs", condition.name(), rates.runs_with_verdict));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn sides_with_unlike_numbers_of_starts_and_unlike_noise_raise_few_alarms() {
    println!("{} runs per condition, seed {SEED}", run_count());
    let (mut wrong, mut salt) = (Vec::new(), 7000);
    let uneven = [
        (20, 5, 5.0),
        (10, 5, 2.0),
        (8, 5, 4.0),
        (20, 5, 1.0),
        (5, 20, 0.2),
        (5, 8, 4.0),
    ];
    let without = uneven.map(|uneven| (uneven, None));
    let with = [(8, 3, 3.0), (8, 3, 1.0), (20, 5, 5.0), (5, 20, 0.2), (3, 3, 3.0)];
    let with = with.map(|uneven| (uneven, Some(NOISE_STARTS)));
    for shape in [Shape::Normal, Shape::Heavy] {
        let fixed = without.into_iter().chain(with).map(|case| (case, None));
        // A stopping rule on one side alone, with the highest number of starts.
        let until = [
            ((20, 6, 5.0), None),
            ((20, 6, 5.0), Some(NOISE_STARTS)),
            ((20, 8, 2.0), Some(NOISE_STARTS)),
        ];
        let until = until.map(|case| (case, Some(0.02)));
        for (((starts, of_candidate, scale), noise), until) in fixed.chain(until) {
            for cells in [1, CELLS] {
                salt += 1;
                let condition = Condition {
                    target_ci: until,
                    shape,
                    sigma: 0.01,
                    starts,
                    noise,
                    candidate: Some((of_candidate, scale)),
                    cells,
                    ..PLAIN
                };
                let rates = condition.simulate(run_count(), salt);
                let covered = rates.share(rates.covered);
                let slack = 2.36 * (0.05f64 * 0.95 / rates.runs as f64).sqrt();
                // Three starts that vary three times as much as the known noise may be alike by chance. The
                // rate exceeds the promise and is bounded here.
                let (rate, promised) = match (noise, scale > 1.0 && of_candidate == 3) {
                    (Some(_), true) if starts == 3 => (0.12, 0.88),
                    (Some(_), true) => (0.1, 0.9),
                    _ => (0.05, 0.93),
                };
                if rates.runs_with_verdict > max_count(rate, rates.runs) || covered < promised - slack {
                    wrong.push(format!(
                        "{}: {} runs with a false verdict, intervals hold the truth in {:.1} %",
                        condition.name(),
                        rates.runs_with_verdict,
                        covered * 100.0
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Counts runs with a false verdict in a report of several identical engines, in which each cell is compared
/// with that of every other engine.
fn false_reports(shape: Shape, engines: usize, models: usize, condition: &Condition, salt: u64) -> usize {
    let mut rng = SeededRng::new(SEED + salt);
    let terms = DecisionOptions {
        bound: BOUND,
        family: 0,
    };
    let mut reports = 0;
    for _ in 0..run_count() {
        let noise = condition.noise.map(|starts| {
            condition
                .layout
                .starts(&mut rng, shape, condition.sigma, models, starts)
        });
        let drawn: Vec<Vec<Vec<f64>>> = (0..engines)
            .map(|_| {
                let (sigma, starts) = (condition.sigma, condition.starts);
                condition.layout.starts(&mut rng, shape, sigma, models, starts)
            })
            .collect();
        let (mut questions, mut pairs) = (Vec::new(), Vec::new());
        let sample = |engine: usize, model: usize| Sample {
            logs: drawn[engine][model].clone(),
            launch: Some(format!("{engine}/{}", condition.layout.launch(model))),
            ..Sample::default()
        };
        for (one, other) in (0..engines).flat_map(|one| (one + 1..engines).map(move |other| (one, other))) {
            for model in 0..models {
                questions.push(Question {
                    better: Direction::Higher,
                    baseline: sample(one, model),
                    candidate: sample(other, model),
                    design: Design::Separate,
                    noise: noise
                        .as_ref()
                        .and_then(|noise| KnownNoise::from_starts(&noise[model])),
                    night_variance: None,
                    no_verdict: None,
                });
                pairs.push((one, other));
            }
        }
        let answers = decide_by_pairs(&questions, &pairs, &terms);
        let is_found = |answer: &Answer| matches!(answer.verdict(), Some(Verdict::Better | Verdict::Worse));
        reports += usize::from(answers.iter().any(is_found));
    }
    reports
}

#[test]
fn reports_of_several_engines_that_do_not_differ_seldom_tell_a_winner() {
    println!("{} runs per condition, seed {SEED}", run_count());
    let (mut wrong, mut salt) = (Vec::new(), 5000);
    for shape in SHAPES {
        for (starts, noise) in SIZES {
            for (engines, models, layout) in [(3, 8, LAYOUTS[0]), (3, 12, LAYOUTS[2]), (6, 1, LAYOUTS[0])] {
                salt += 1;
                let condition = Condition {
                    starts,
                    noise,
                    layout,
                    ..PLAIN
                };
                let reports = false_reports(shape, engines, models, &condition, salt);
                let name = format!(
                    "{shape:?}, {engines} engines, {models} models, {starts} starts, noise {noise:?}, {} cells a launch",
                    layout.cells
                );
                println!("{name}: {reports} of {} runs", run_count());
                if reports > max_count(0.05, run_count()) {
                    wrong.push(format!("{name}: {reports} runs"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn rounds_take_drift_out_of_the_comparison() {
    println!("{} runs of {CELLS} cells per condition, seed {SEED}", run_count());
    let mut wrong = Vec::new();
    let mut salt = 700;
    for shape in SHAPES {
        for (starts, noise) in SIZES {
            for layout in [LAYOUTS[0], LAYOUTS[2], LAYOUTS[3]] {
                salt += 1;
                let condition = Condition {
                    shape,
                    sigma: 0.01,
                    starts,
                    noise,
                    layout,
                    drift: Some(0.03),
                    ..PLAIN
                };
                let rates = condition.simulate(run_count(), salt);
                if rates.runs_with_verdict > max_count(0.05, rates.runs) {
                    wrong.push(format!("{}: {} runs", condition.name(), rates.runs_with_verdict));
                }
            }
        }
    }
    let lost = Condition {
        sigma: 0.01,
        starts: 8,
        lost_share: 0.05,
        drift: Some(0.05),
        ..PLAIN
    };
    let rates = lost.simulate(run_count(), 999);
    if rates.share(rates.verdicts) < 0.9 {
        wrong.push(lost.name());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn stopping_when_it_is_known_well_enough_costs_no_confidence() {
    println!("{} runs of {CELLS} cells per condition, seed {SEED}", run_count());
    let mut wrong = Vec::new();
    let mut salt = 1000;
    for shape in SHAPES {
        for sigma in [0.015, 0.02, 0.03] {
            for layout in [LAYOUTS[0], LAYOUTS[2], LAYOUTS[3]] {
                for noise in [None, Some(NOISE_STARTS)] {
                    salt += 1;
                    let condition = Condition {
                        shape,
                        sigma,
                        noise,
                        layout,
                        target_ci: Some(0.02),
                        ..PLAIN
                    };
                    wrong.extend(rate_violations(
                        &condition,
                        &condition.simulate(run_count(), salt),
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// One start is far slower than all others, and most first stages do not include it.
#[test]
fn a_slow_start_after_the_first_stage_widens_what_is_said() {
    println!("{} runs per condition, seed {SEED}", run_count());
    let mut wrong = Vec::new();
    let mut salt = 8000;
    for cells in [1, 6, CELLS] {
        for noise in [None, Some(NOISE_STARTS)] {
            salt += 1;
            let condition = Condition {
                shape: Shape::SeldomSlow,
                sigma: 0.087,
                noise,
                cells,
                target_ci: Some(0.02),
                ..PLAIN
            };
            let rates = condition.simulate(run_count(), salt);
            if rates.runs_with_verdict > max_count(0.05, rates.runs) || rates.share(rates.covered) < 0.92 {
                wrong.push(condition.name());
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_loss_of_five_percent_is_never_called_the_same() {
    println!("{} runs of {CELLS} cells per condition, seed {SEED}", run_count());
    let mut wrong = Vec::new();
    let mut salt = 2000;
    for shape in SHAPES {
        for sigma in [0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08] {
            for (starts, noise) in SIZES {
                for layout in [LAYOUTS[0], LAYOUTS[3]] {
                    salt += 1;
                    let condition = Condition {
                        shape,
                        sigma,
                        starts,
                        noise,
                        layout,
                        lost_share: 0.05,
                        ..PLAIN
                    };
                    // Cells are counted, so the short form needs fewer runs.
                    let runs = if run_count() < 2000 {
                        run_count().div_ceil(4)
                    } else {
                        run_count()
                    };
                    let rates = condition.simulate(runs, salt);
                    if rates.share(rates.same) > 0.05 {
                        let same = 100.0 * rates.share(rates.same);
                        wrong.push(format!("{}: the same in {same:.1} %", condition.name()));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn noise_of_one_percent_lets_equal_builds_be_the_same_and_a_loss_be_found() {
    println!("{} runs of {CELLS} cells per condition, seed {SEED}", run_count());
    let mut wrong = Vec::new();
    let mut salt = 3000;
    for shape in SHAPES {
        for layout in LAYOUTS {
            for (starts, noise) in SIZES.into_iter().filter(|(starts, _)| *starts >= 5) {
                salt += 2;
                let equal = Condition {
                    shape,
                    sigma: 0.01,
                    starts,
                    noise,
                    layout,
                    ..PLAIN
                };
                let lost = Condition {
                    lost_share: 0.05,
                    ..equal
                };
                let (equal_rates, found) = (
                    equal.simulate(run_count(), salt),
                    lost.simulate(run_count(), salt + 1),
                );
                let (same, found) = (equal_rates.share(equal_rates.same), found.share(found.verdicts));
                let promised = if starts == 5 { 0.6 } else { 0.9 };
                if noise.is_some() && same < promised {
                    wrong.push(format!("{}: the same in {:.1} %", equal.name(), same * 100.0));
                }
                if found < 0.9 {
                    wrong.push(format!("{}: found in {:.1} %", lost.name(), found * 100.0));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
