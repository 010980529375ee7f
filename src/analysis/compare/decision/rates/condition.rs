//! Conditions of the simulation, and the rates that a condition gives.

use crate::analysis::compare::decision::synthetic::{Layout, SHAPES, SeededRng, Shape};
use crate::analysis::compare::decision::{
    Answer, CONFIDENCE, DecisionOptions, Design, KnownNoise, MetricQuestion, Sample, decide,
};
use crate::analysis::compare::verdict::Verdict;
use crate::analysis::compare::{power, t_test};
use crate::analysis::metrics::Direction;

pub(super) const CELLS: usize = 24;
/// Starts of a noise measurement: the default of `matrix noise`.
pub(super) const NOISE_STARTS: usize = 10;
/// Starts of the first stage of a candidate with a stopping rule.
pub(super) const STAGE: usize = 5;
pub(super) const SEED: u64 = 20_261_122;
pub(super) const BOUND: f64 = 0.02;

pub(super) fn run_count() -> usize {
    #[expect(
        clippy::disallowed_methods,
        reason = "an environment variable sets the length of a test"
    )]
    let setting = std::env::var("MATRIX_RUNS").ok();
    setting.map_or(100, |text| text.parse().expect("MATRIX_RUNS is a number"))
}

/// Returns the highest accepted count of an event of probability `rate` in this number of runs: 2.36 standard
/// deviations above the mean, which is 123 of 2000 at 5 %.
pub(super) fn max_count(rate: f64, runs: usize) -> usize {
    let n = runs as f64;
    (rate * n + 2.36 * (rate * (1.0 - rate) * n).sqrt()) as usize
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Condition {
    pub(super) shape: Shape,
    pub(super) sigma: f64,
    pub(super) starts: usize,
    /// Starts of the noise measurement.
    pub(super) noise: Option<usize>,
    pub(super) layout: Layout,
    /// Target half width of the stopping rule for both sides.
    pub(super) target_ci: Option<f64>,
    /// Relative loss of the candidate in every cell.
    pub(super) lost_share: f64,
    /// How much the standard deviations of cells differ: each is multiplied by a factor between 1 / `unlike`
    /// and `unlike`.
    pub(super) variance_ratio: f64,
    /// Standard deviation when the noise was measured, relative to today's.
    pub(super) noise_age_factor: f64,
    /// Standard deviation that both sides of a round share. The sides are then compared round by round.
    pub(super) drift: Option<f64>,
    /// Starts of the candidate if their number differs from the baseline's, and its standard deviation
    /// relative to the baseline's.
    pub(super) candidate: Option<(usize, f64)>,
    pub(super) cells: usize,
}

/// Normal noise of 3 %, cells on separate launches, five starts, noise unknown, no loss.
pub(super) const PLAIN: Condition = Condition {
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
    pub(super) fn name(&self) -> String {
        let noise = self
            .noise
            .map_or("unknown".to_owned(), |starts| format!("of {starts} starts"));
        let target_in_words = self
            .target_ci
            .map_or(String::new(), |target| format!(", until ±{} %", target * 100.0));
        let Layout { cells, shared } = self.layout;
        let mut more = String::new();
        if self.variance_ratio > 1.0 {
            more += &format!(
                "; the variances of the cells differ by a factor of up to {}",
                self.variance_ratio
            );
        }
        if self.noise_age_factor < 1.0 {
            more += &format!(", noise was {} of today's", self.noise_age_factor);
        }
        if let Some(drift) = self.drift {
            more += &format!(", rounds that drift by {} %", drift * 100.0);
        }
        if let Some((starts, scale)) = self.candidate {
            more += &format!(
                "; in {} cells, the {starts} starts of the candidate vary {scale} times as much as those of the baseline",
                self.cells
            );
        }
        format!(
            "simulation: distribution {:?}, standard deviation {} %, {} starts{target_in_words}, noise {noise}, {cells} cells per launch, shared part of their variance {shared}, loss {} %{more}",
            self.shape,
            self.sigma * 100.0,
            self.starts,
            self.lost_share * 100.0
        )
    }

    fn questions(&self, rng: &mut SeededRng) -> Vec<MetricQuestion> {
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
        let question = |cell| MetricQuestion {
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

    pub(super) fn simulate(&self, runs: usize, salt: u64) -> Rates {
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
pub(super) struct Rates {
    pub(super) runs: usize,
    pub(super) cells: usize,
    /// Runs with a *better* or *worse*.
    pub(super) runs_with_verdict: usize,
    pub(super) verdicts: usize,
    pub(super) same: usize,
    pub(super) covered: usize,
    /// Sum of widths relative to those for a known standard deviation.
    pub(super) width: f64,
    pub(super) df: f64,
}

impl Rates {
    fn add(&mut self, answers: &[Answer], questions: &[MetricQuestion], condition: &Condition) {
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

    pub(super) fn share(&self, count: usize) -> f64 {
        count as f64 / self.cells as f64
    }

    pub(super) fn mean_width(&self) -> f64 {
        self.width / self.cells as f64
    }

    pub(super) fn mean_df(&self) -> f64 {
        self.df / self.cells as f64
    }
}

/// Starts per side, and starts of the noise measurement.
pub(super) const SIZES: [(usize, Option<usize>); 5] = [
    (3, Some(NOISE_STARTS)),
    (5, None),
    (5, Some(NOISE_STARTS)),
    (8, None),
    (8, Some(NOISE_STARTS)),
];

/// Each cell on its own launch, or six or all cells on one launch, whose starts they share fully, half or not
/// at all.
pub(super) const LAYOUTS: [Layout; 6] = [
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

pub(super) fn conditions() -> impl Iterator<Item = Condition> {
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
