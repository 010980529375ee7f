//! Conditions of the simulation, and the counts that a condition gives.

use crate::analysis::compare::between::{self, NightVariance, PastNight};
use crate::analysis::compare::decision::synthetic::{Layout, SeededRng as Source, Shape};
use crate::analysis::compare::decision::{Design, KnownNoise, MetricQuestion, Sample};
use crate::analysis::compare::gate_policy::{
    self, ConfirmationOutcome, NightlyMetric, Policy, ScreenedMetric,
};
use crate::analysis::compare::t_test;
use crate::analysis::metrics::Direction;

pub(super) const CELLS: usize = 24;
pub(super) const STARTS: usize = 5;
pub(super) const HISTORY: usize = 20;
pub(super) const BOUND: f64 = 0.02;
/// Cells with a real loss, in a night with losses.
pub(super) const CELLS_WITH_LOSS: usize = 4;
pub(super) const SEED: u64 = 20_260_914;

pub(super) fn night_count() -> usize {
    #[expect(
        clippy::disallowed_methods,
        reason = "an environment variable sets the length of a test"
    )]
    let nights = std::env::var("MATRIX_NIGHTS").ok();
    nights.map_or(40, |text| text.parse().expect("MATRIX_NIGHTS is a number"))
}

pub(super) struct SeededRng(Source);

impl SeededRng {
    pub(super) fn new(salt: u64) -> Self {
        Self(Source::new(SEED + salt))
    }

    pub(super) fn uniform(&mut self) -> f64 {
        self.0.uniform()
    }

    pub(super) fn normal(&mut self) -> f64 {
        self.0.normal()
    }
}

/// How a suspected loss gets fresh starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum FreshStartDesign {
    /// Baseline and candidate in turn.
    Alternating,
    /// The candidate alone, compared with the starts of the baseline from its night.
    CandidateOnly,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Condition {
    pub(super) shape: Shape,
    pub(super) sigma: f64,
    /// Standard deviation of a night.
    pub(super) offset: f64,
    /// Whether a night moves all cells equally, or each independently.
    pub(super) is_shared: bool,
    pub(super) history: usize,
    /// One night of the history is broken: all cells are at twice their usual level.
    pub(super) is_broken: bool,
    /// Starts of the stored noise measurement; `None` if no noise is stored.
    pub(super) noise_starts: Option<usize>,
    /// Loss of the candidate in some cells.
    pub(super) loss: f64,
    pub(super) fresh: FreshStartDesign,
    pub(super) most: usize,
}

/// Normal noise of 1 % that is not stored, nights that move all cells by 1 %, 20 nights of history, no loss.
pub(super) const PLAIN: Condition = Condition {
    shape: Shape::Normal,
    sigma: 0.01,
    offset: 0.01,
    is_shared: true,
    history: HISTORY,
    is_broken: false,
    noise_starts: None,
    loss: 0.0,
    fresh: FreshStartDesign::Alternating,
    most: 16,
};

#[derive(Debug, Default)]
pub(super) struct SimulationCounts {
    pub(super) nights: usize,
    /// Nights with a false loss.
    pub(super) false_alarms: usize,
    /// For each night, the share of unchanged cells that got fresh starts.
    pub(super) unchanged: Vec<f64>,
    pub(super) fresh_starts: usize,
    pub(super) true_losses: usize,
    pub(super) confirmed: usize,
    /// Losses that fresh starts refuted.
    pub(super) refuted_losses: usize,
}

pub(super) fn sample(cell: usize, logs: &[f64], level: f64) -> Sample {
    Sample {
        logs: logs.iter().map(|log| log + level).collect(),
        launch: Some(cell.to_string()),
        ..Sample::default()
    }
}

impl Condition {
    pub(super) fn starts(&self, rng: &mut SeededRng, n: usize) -> Vec<Vec<f64>> {
        let alone = Layout {
            cells: 1,
            shared: 0.0,
        };
        alone.starts(&mut rng.0, self.shape, self.sigma, CELLS, n)
    }

    pub(super) fn offsets(&self, rng: &mut SeededRng) -> Vec<f64> {
        let shared = rng.normal();
        let of_cell = |_| self.offset * if self.is_shared { shared } else { rng.normal() };
        (0..CELLS).map(of_cell).collect()
    }

    pub(super) fn night(&self, rng: &mut SeededRng, offsets: &[f64], n: usize) -> Vec<Vec<f64>> {
        let starts = self.starts(rng, n);
        let moved = starts.into_iter().zip(offsets);
        moved
            .map(|(logs, by)| logs.iter().map(|log| log + by).collect())
            .collect()
    }

    pub(super) fn simulate(&self, nights: usize, salt: u64) -> SimulationCounts {
        let mut rng = SeededRng::new(salt);
        let mut counts = SimulationCounts::default();
        for _ in 0..nights {
            self.simulate_night(&mut rng, &mut counts);
        }
        println!("{self:?}\n    {counts}");
        counts
    }

    /// The level of the candidate in a cell, as a logarithm.
    pub(super) fn lost(&self, cell: usize) -> f64 {
        if self.loss > 0.0 && cell < CELLS_WITH_LOSS {
            (-self.loss).ln_1p()
        } else {
            0.0
        }
    }

    pub(super) fn past_nights(&self, rng: &mut SeededRng) -> Vec<Vec<Vec<f64>>> {
        (0..self.history)
            .map(|night| {
                let mut offsets = self.offsets(rng);
                if self.is_broken && night == self.history / 2 {
                    offsets.iter_mut().for_each(|offset| *offset += 2f64.ln());
                }
                self.night(rng, &offsets, STARTS)
            })
            .collect()
    }

    /// The question of a night, asked again with fresh starts.
    pub(super) fn fresh_question(
        &self,
        cell: usize,
        question: MetricQuestion,
        night_variance: Option<NightVariance>,
        mut starts: impl FnMut() -> Vec<f64>,
    ) -> MetricQuestion {
        let candidate = sample(cell, &starts(), self.lost(cell));
        match self.fresh {
            FreshStartDesign::Alternating => MetricQuestion {
                baseline: sample(cell, &starts(), 0.0),
                candidate,
                design: Design::Rounds,
                ..question
            },
            FreshStartDesign::CandidateOnly => MetricQuestion {
                candidate,
                night_variance: night_variance
                    .and_then(|between| between::variance_of_difference(between.upper_bound)),
                ..question
            },
        }
    }

    pub(super) fn simulate_night(&self, rng: &mut SeededRng, counts: &mut SimulationCounts) {
        let policy = Policy {
            max_starts: self.most,
            ..Policy::with_bound(BOUND)
        };
        let offsets = self.offsets(rng);
        let baseline = self.night(rng, &offsets, STARTS);
        let past = self.past_nights(rng);
        let offsets = self.offsets(rng);
        let candidate = self.night(rng, &offsets, STARTS);
        let noise = self.noise_starts.map(|starts| self.starts(rng, starts));
        let screened_metrics: Vec<NightlyMetric> = (0..CELLS)
            .map(|cell| NightlyMetric {
                question: MetricQuestion {
                    better: Direction::Higher,
                    baseline: sample(cell, &baseline[cell], 0.0),
                    candidate: sample(cell, &candidate[cell], self.lost(cell)),
                    design: Design::Separate,
                    noise: noise
                        .as_ref()
                        .and_then(|noise| KnownNoise::from_starts(&noise[cell])),
                    night_variance: None,
                    no_verdict: None,
                },
                past_nights: past
                    .iter()
                    .map(|night| PastNight {
                        logs: night[cell].clone(),
                        series: 0,
                    })
                    .collect(),
            })
            .collect();
        let screened = gate_policy::screen(&screened_metrics, &policy);
        let family = screened.iter().filter(|one| one.is_tested()).count();
        let suspects: Vec<(usize, &ScreenedMetric)> = screened
            .iter()
            .enumerate()
            .filter(|(_, one)| one.suspicion.is_some())
            .collect();
        let mut questions = Vec::new();
        for (cell, screened) in &suspects {
            let suspicion = screened.suspicion.as_ref().expect("it is a suspect");
            let starts = || self.night(rng, &offsets, suspicion.starts).swap_remove(*cell);
            counts.fresh_starts += suspicion.starts;
            let question = screened_metrics[*cell].question.clone();
            questions.push(MetricQuestion {
                noise: suspicion.noise,
                ..self.fresh_question(*cell, question, screened.night_variance, starts)
            });
        }
        let answers = gate_policy::confirm(&questions, family, &policy);
        let losses = if self.loss > 0.0 { CELLS_WITH_LOSS } else { 0 };
        let unchanged = suspects.iter().filter(|(cell, _)| *cell >= losses).count();
        counts.unchanged.push(unchanged as f64 / (CELLS - losses) as f64);
        let mut is_false = false;
        for ((cell, _), answer) in suspects.iter().zip(&answers) {
            match ConfirmationOutcome::from_answer(answer) {
                ConfirmationOutcome::Worse if *cell < losses => counts.confirmed += 1,
                ConfirmationOutcome::Worse => is_false = true,
                ConfirmationOutcome::Refuted if *cell < losses => counts.refuted_losses += 1,
                ConfirmationOutcome::Refuted | ConfirmationOutcome::Undecided => {}
            }
        }
        counts.nights += 1;
        counts.true_losses += losses;
        counts.false_alarms += usize::from(is_false);
    }
}

impl std::fmt::Display for SimulationCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (suspected, error) = self.suspected_share();
        write!(
            f,
            "false alarms in {} of {} nights ({:.1} %); {:.2} % (±{:.2}) of the unchanged cells were started again; {:.1} fresh starts per night",
            self.false_alarms,
            self.nights,
            100.0 * self.false_alarms as f64 / self.nights as f64,
            100.0 * suspected,
            100.0 * error,
            self.fresh_starts as f64 / self.nights as f64,
        )?;
        match self.true_losses {
            0 => Ok(()),
            lost => write!(
                f,
                "; of {lost} simulated losses, {} were confirmed ({:.1} %), and {} were wrongly refuted ({:.1} %)",
                self.confirmed,
                100.0 * self.confirmed as f64 / lost as f64,
                self.refuted_losses,
                100.0 * self.refuted_losses as f64 / lost as f64,
            ),
        }
    }
}

impl SimulationCounts {
    /// Returns the mean share of unchanged cells that got fresh starts, and its standard error.
    pub(super) fn suspected_share(&self) -> (f64, f64) {
        let mean = t_test::mean(&self.unchanged);
        (
            mean,
            (t_test::variance(&self.unchanged) / self.nights as f64).sqrt(),
        )
    }
}
