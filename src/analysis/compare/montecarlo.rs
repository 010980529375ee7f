//! Simulates the whole nightly procedure on synthetic cells: false alarms, missed losses and cost.
//!
//! `MATRIX_NIGHTS` sets the number of nights per condition. `tests/montecarlo.sh` sets a thousand.

use super::between::{self, NightVariance, PastNight};
use super::change_point;
use super::decision::synthetic::{Layout, SeededRng as Source, Shape};
use super::decision::{Design, KnownNoise, Question, Sample};
use super::gate_policy::{self, ConfirmationOutcome, NightlyMetric, Policy, ScreenedMetric};
use super::t_test;
use crate::analysis::metrics::Direction;

const CELLS: usize = 24;
const STARTS: usize = 5;
const HISTORY: usize = 20;
const BOUND: f64 = 0.02;
/// Cells with a real loss, in a night with losses.
const CELLS_WITH_LOSS: usize = 4;
const SEED: u64 = 20_260_914;

fn night_count() -> usize {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test is told its length by its surroundings"
    )]
    let nights = std::env::var("MATRIX_NIGHTS").ok();
    nights.map_or(40, |text| text.parse().expect("MATRIX_NIGHTS is a number"))
}

struct SeededRng(Source);

impl SeededRng {
    fn new(salt: u64) -> Self {
        Self(Source::new(SEED + salt))
    }

    fn uniform(&mut self) -> f64 {
        self.0.uniform()
    }

    fn normal(&mut self) -> f64 {
        self.0.normal()
    }
}

/// How a suspected loss gets fresh starts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum FreshStartDesign {
    /// Baseline and candidate in turn.
    Alternating,
    /// The candidate alone, compared with the starts of the baseline from its night.
    CandidateOnly,
}

#[derive(Clone, Copy, Debug)]
struct Condition {
    shape: Shape,
    sigma: f64,
    /// Standard deviation of a night.
    offset: f64,
    /// Whether a night moves all cells equally, or each independently.
    is_shared: bool,
    history: usize,
    /// One night of the history is broken: all cells are at twice their usual level.
    is_broken: bool,
    /// Starts of the noise measurement.
    noise: Option<usize>,
    /// Loss of the candidate in some cells.
    loss: f64,
    fresh: FreshStartDesign,
    most: usize,
}

/// Normal noise of 1 % that is not stored, nights that move all cells by 1 %, 20 nights of history, no loss.
const PLAIN: Condition = Condition {
    shape: Shape::Normal,
    sigma: 0.01,
    offset: 0.01,
    is_shared: true,
    history: HISTORY,
    is_broken: false,
    noise: None,
    loss: 0.0,
    fresh: FreshStartDesign::Alternating,
    most: 16,
};

#[derive(Debug, Default)]
struct SimulationCounts {
    nights: usize,
    /// Nights with a false loss.
    false_alarms: usize,
    /// For each night, the share of unchanged cells that got fresh starts.
    unchanged: Vec<f64>,
    fresh_starts: usize,
    true_losses: usize,
    confirmed: usize,
    /// Losses that fresh starts refuted.
    refuted_losses: usize,
}

fn sample(cell: usize, logs: &[f64], level: f64) -> Sample {
    Sample {
        logs: logs.iter().map(|log| log + level).collect(),
        launch: Some(cell.to_string()),
        ..Sample::default()
    }
}

impl Condition {
    fn starts(&self, rng: &mut SeededRng, n: usize) -> Vec<Vec<f64>> {
        let alone = Layout {
            cells: 1,
            shared: 0.0,
        };
        alone.starts(&mut rng.0, self.shape, self.sigma, CELLS, n)
    }

    fn offsets(&self, rng: &mut SeededRng) -> Vec<f64> {
        let shared = rng.normal();
        let of_cell = |_| self.offset * if self.is_shared { shared } else { rng.normal() };
        (0..CELLS).map(of_cell).collect()
    }

    fn night(&self, rng: &mut SeededRng, offsets: &[f64], n: usize) -> Vec<Vec<f64>> {
        let starts = self.starts(rng, n);
        let moved = starts.into_iter().zip(offsets);
        moved
            .map(|(logs, by)| logs.iter().map(|log| log + by).collect())
            .collect()
    }

    fn simulate(&self, nights: usize, salt: u64) -> SimulationCounts {
        let mut rng = SeededRng::new(salt);
        let mut counts = SimulationCounts::default();
        for _ in 0..nights {
            self.simulate_night(&mut rng, &mut counts);
        }
        println!("{self:?}\n    {counts}");
        counts
    }

    /// The level of the candidate in a cell, as a logarithm.
    fn lost(&self, cell: usize) -> f64 {
        if self.loss > 0.0 && cell < CELLS_WITH_LOSS {
            (-self.loss).ln_1p()
        } else {
            0.0
        }
    }

    fn past_nights(&self, rng: &mut SeededRng) -> Vec<Vec<Vec<f64>>> {
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
    fn fresh_question(
        &self,
        cell: usize,
        question: Question,
        night_variance: Option<NightVariance>,
        mut starts: impl FnMut() -> Vec<f64>,
    ) -> Question {
        let candidate = sample(cell, &starts(), self.lost(cell));
        match self.fresh {
            FreshStartDesign::Alternating => Question {
                baseline: sample(cell, &starts(), 0.0),
                candidate,
                design: Design::Rounds,
                ..question
            },
            FreshStartDesign::CandidateOnly => Question {
                candidate,
                night_variance: night_variance
                    .and_then(|between| between::variance_of_difference(between.upper_bound)),
                ..question
            },
        }
    }

    fn simulate_night(&self, rng: &mut SeededRng, counts: &mut SimulationCounts) {
        let policy = Policy {
            max_starts: self.most,
            ..Policy::with_bound(BOUND)
        };
        let offsets = self.offsets(rng);
        let baseline = self.night(rng, &offsets, STARTS);
        let past = self.past_nights(rng);
        let offsets = self.offsets(rng);
        let candidate = self.night(rng, &offsets, STARTS);
        let noise = self.noise.map(|starts| self.starts(rng, starts));
        let screened_metrics: Vec<NightlyMetric> = (0..CELLS)
            .map(|cell| NightlyMetric {
                question: Question {
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
            questions.push(Question {
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
            "nights with a false alarm {} of {} ({:.1} %), unchanged cells started afresh {:.2} % (±{:.2}), fresh starts a night {:.1}",
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
                ", losses found {} of {lost} ({:.1} %), called none {} ({:.1} %)",
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
    fn suspected_share(&self) -> (f64, f64) {
        let mean = t_test::mean(&self.unchanged);
        (
            mean,
            (t_test::variance(&self.unchanged) / self.nights as f64).sqrt(),
        )
    }
}

/// Returns the tolerance of a rate for short simulations. Long ones have none.
fn rate_tolerance(nights: usize, error: f64) -> f64 {
    if nights < 1000 { 2.5 * error } else { 0.0 }
}

/// Returns whether a count is compatible with a probability of 5 %: at most two and a half standard
/// deviations above it.
fn is_at_most_five_percent(count: usize, total: usize) -> bool {
    let n = total as f64;
    count as f64
        <= 0.05 * n
            + if total < 1000 {
                2.5 * (0.05 * 0.95 * n).sqrt()
            } else {
                0.0
            }
}

#[test]
fn nights_that_differ_by_up_to_one_percent_seldom_cry_wolf_and_find_a_loss_of_five() {
    let nights = night_count();
    println!("{nights} nights of {CELLS} cells, {STARTS} starts a side, seed {SEED}");
    let conditions = [
        PLAIN,
        Condition {
            offset: 0.0,
            noise: Some(10),
            ..PLAIN
        },
        Condition {
            is_shared: false,
            sigma: 0.005,
            ..PLAIN
        },
        Condition {
            shape: Shape::TwoLevels,
            offset: 0.005,
            noise: Some(10),
            ..PLAIN
        },
        Condition {
            shape: Shape::Heavy,
            ..PLAIN
        },
        Condition {
            shape: Shape::SlowStarts,
            offset: 0.005,
            noise: Some(10),
            ..PLAIN
        },
        Condition {
            is_broken: true,
            ..PLAIN
        },
    ];
    for (at, condition) in conditions.into_iter().enumerate() {
        let salt = 2 * at as u64;
        let quiet = condition.simulate(nights, salt);
        assert!(
            is_at_most_five_percent(quiet.false_alarms, nights),
            "{condition:?}"
        );
        let (share, error) = quiet.suspected_share();
        assert!(
            share <= 0.05 + rate_tolerance(nights, error),
            "{condition:?}: {share}"
        );
        let lossy = Condition {
            loss: 0.05,
            ..condition
        };
        let counts = lossy.simulate(nights, salt + 1);
        let found_share = counts.confirmed as f64 / counts.true_losses as f64;
        // The cells of a night are not independent.
        let error = (0.9 * 0.1 / nights as f64).sqrt();
        assert!(
            found_share >= 0.9 - rate_tolerance(nights, error),
            "{lossy:?}: {found_share}"
        );
        assert!(is_at_most_five_percent(counts.false_alarms, nights), "{lossy:?}");
    }
}

#[test]
fn restless_nights_short_histories_and_a_baseline_that_cannot_be_started_do_not_cry_wolf() {
    let nights = night_count();
    let restless = |offset| Condition { offset, ..PLAIN };
    let conditions = [
        restless(0.02),
        restless(0.03),
        Condition {
            history: 0,
            ..restless(0.02)
        },
        Condition {
            history: 6,
            ..restless(0.01)
        },
        Condition {
            fresh: FreshStartDesign::CandidateOnly,
            ..PLAIN
        },
        Condition {
            fresh: FreshStartDesign::CandidateOnly,
            is_shared: false,
            ..restless(0.02)
        },
        Condition {
            most: 3,
            ..restless(0.02)
        },
    ];
    for (at, condition) in conditions.into_iter().enumerate() {
        let salt = 100 + 2 * at as u64;
        let quiet = condition.simulate(nights, salt);
        assert!(
            is_at_most_five_percent(quiet.false_alarms, nights),
            "{condition:?}"
        );
        let lossy = Condition {
            loss: 0.05,
            ..condition
        };
        // A loss with fresh starts is found or undecided, and never refuted.
        let counts = lossy.simulate(nights, salt + 1);
        assert!(is_at_most_five_percent(counts.false_alarms, nights), "{lossy:?}");
        assert!(
            is_at_most_five_percent(counts.refuted_losses, counts.true_losses),
            "{lossy:?}"
        );
    }
}

/// How a series of nights continues.
#[derive(Clone, Copy, Debug)]
enum SeriesModel {
    White,
    /// Autocorrelated: each night keeps this share of the deviation of the last one.
    Autocorrelated(f64),
    /// Two levels with this distance. Each night switches with a probability of a quarter.
    Switching(f64),
    /// After the quiet nights, lower by this much every night.
    Drifting(f64),
    /// After the quiet nights, lower by this much once.
    Stepping(f64),
}

const NIGHTS_BEFORE: usize = 20;
const NIGHTS_WATCHED: usize = 40;

/// Returns the first night after the quiet ones on which a change is reported, counted from 1.
fn first_alarm(course: SeriesModel, watched: usize, rng: &mut SeededRng) -> Option<usize> {
    let mut series = Vec::new();
    let (mut memory, mut is_low) = (rng.normal(), false);
    for night in 0..NIGHTS_BEFORE + watched {
        let since = night.saturating_sub(NIGHTS_BEFORE) as f64;
        let noise = 0.01 * rng.normal();
        series.push(match course {
            SeriesModel::White => noise,
            SeriesModel::Autocorrelated(share) => {
                memory = share * memory + (1.0 - share * share).sqrt() * rng.normal();
                0.01 * memory
            }
            SeriesModel::Switching(apart) => {
                is_low ^= rng.uniform() < 0.25;
                noise / 2.0 - if is_low { apart } else { 0.0 }
            }
            SeriesModel::Drifting(loss) => noise - loss * since,
            SeriesModel::Stepping(loss) => noise - if night >= NIGHTS_BEFORE { loss } else { 0.0 },
        });
        if night >= NIGHTS_BEFORE && change_point::recent_change(&series, BOUND).is_some() {
            return Some(night + 1 - NIGHTS_BEFORE);
        }
    }
    None
}

#[test]
fn wandering_and_switching_series_do_not_alarm_and_a_slow_leak_does() {
    let series = night_count();
    println!("{series} series of {NIGHTS_BEFORE} quiet nights and up to {NIGHTS_WATCHED} more, seed {SEED}");
    let courses = [
        SeriesModel::White,
        SeriesModel::Autocorrelated(0.6),
        SeriesModel::Autocorrelated(0.7),
        SeriesModel::Autocorrelated(0.8),
        SeriesModel::Autocorrelated(0.9),
        SeriesModel::Switching(0.03),
        SeriesModel::Switching(0.06),
    ];
    let mut wrong: Vec<String> = Vec::new();
    for (salt, course) in courses.into_iter().enumerate() {
        let mut rng = SeededRng::new(200 + salt as u64);
        let alarms = (0..series)
            .filter(|_| first_alarm(course, NIGHTS_WATCHED, &mut rng).is_some())
            .count();
        println!(
            "{course:?}: {alarms} of {series} alarm ({:.1} %)",
            100.0 * alarms as f64 / series as f64
        );
        if !is_at_most_five_percent(alarms, series) {
            wrong.push(format!("{course:?}: {alarms} of {series}"));
        }
    }
    for (salt, course) in [SeriesModel::Drifting(0.005), SeriesModel::Stepping(0.05)]
        .into_iter()
        .enumerate()
    {
        let mut rng = SeededRng::new(300 + salt as u64);
        let mut alarm_nights: Vec<usize> = (0..series)
            .filter_map(|_| first_alarm(course, 20, &mut rng))
            .collect();
        alarm_nights.sort_unstable();
        let median = alarm_nights.get(alarm_nights.len() / 2).copied();
        println!(
            "{course:?}: {} of {series} found within 20 nights, the median on night {median:?}",
            alarm_nights.len()
        );
        if alarm_nights.len() * 100 < series * 95 {
            wrong.push(format!("{course:?}: {} of {series}", alarm_nights.len()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
