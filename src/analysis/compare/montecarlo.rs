//! Simulates the whole nightly procedure on synthetic cells: false alarms, missed losses and cost.
//!
//! `MATRIX_NIGHTS` sets the number of nights per condition. `tests/montecarlo.sh` sets a thousand.

use super::between::{self, Between, Past};
use super::change_point;
use super::decision::synthetic::{Dice as Source, Layout, Shape};
use super::decision::{Design, KnownNoise, Question, Sample};
use super::gate_policy::{self, Asked, Confirmed, Policy, Screened};
use super::t_test;
use crate::analysis::metrics::Better;

const CELLS: usize = 24;
const STARTS: usize = 5;
const HISTORY: usize = 20;
const BOUND: f64 = 0.02;
/// Cells with a real loss, in a night with losses.
const LOSSES: usize = 4;
const SEED: u64 = 20_260_914;

fn nights() -> usize {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test is told its length by its surroundings"
    )]
    let told = std::env::var("MATRIX_NIGHTS").ok();
    told.map_or(40, |text| text.parse().expect("MATRIX_NIGHTS is a number"))
}

struct Dice(Source);

impl Dice {
    fn new(salt: u64) -> Self {
        Self(Source::new(SEED + salt))
    }

    fn even(&mut self) -> f64 {
        self.0.even()
    }

    fn normal(&mut self) -> f64 {
        self.0.normal()
    }
}

/// How a suspected loss gets fresh starts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fresh {
    /// Baseline and candidate in turn.
    Alternated,
    /// The candidate alone, compared with the starts of the baseline from its night.
    Alone,
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
    fresh: Fresh,
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
    fresh: Fresh::Alternated,
    most: 16,
};

#[derive(Debug, Default)]
struct Told {
    nights: usize,
    /// Nights with a false loss.
    false_alarms: usize,
    /// For each night, the share of unchanged cells that got fresh starts.
    unchanged: Vec<f64>,
    fresh: usize,
    lost: usize,
    found: usize,
    /// Losses that fresh starts refuted.
    refuted: usize,
}

impl Condition {
    fn starts(&self, dice: &mut Dice, n: usize) -> Vec<Vec<f64>> {
        let alone = Layout {
            cells: 1,
            shared: 0.0,
        };
        alone.starts(&mut dice.0, self.shape, self.sigma, CELLS, n)
    }

    fn offsets(&self, dice: &mut Dice) -> Vec<f64> {
        let shared = dice.normal();
        let of_cell = |_| self.offset * if self.is_shared { shared } else { dice.normal() };
        (0..CELLS).map(of_cell).collect()
    }

    fn night(&self, dice: &mut Dice, offsets: &[f64], n: usize) -> Vec<Vec<f64>> {
        let starts = self.starts(dice, n);
        let moved = starts.into_iter().zip(offsets);
        moved
            .map(|(logs, by)| logs.iter().map(|log| log + by).collect())
            .collect()
    }

    fn simulate(&self, nights: usize, salt: u64) -> Told {
        let mut dice = Dice::new(salt);
        let mut told = Told::default();
        for _ in 0..nights {
            self.tonight(&mut dice, &mut told);
        }
        println!("{self:?}\n    {told}");
        told
    }

    fn tonight(&self, dice: &mut Dice, told: &mut Told) {
        let policy = Policy {
            most: self.most,
            ..Policy::of_bound(BOUND)
        };
        let lost = |cell: usize| {
            if self.loss > 0.0 && cell < LOSSES {
                (-self.loss).ln_1p()
            } else {
                0.0
            }
        };
        let offsets = self.offsets(dice);
        let baseline = self.night(dice, &offsets, STARTS);
        let past: Vec<Vec<Vec<f64>>> = (0..self.history)
            .map(|night| {
                let mut offsets = self.offsets(dice);
                if self.is_broken && night == self.history / 2 {
                    offsets.iter_mut().for_each(|offset| *offset += 2f64.ln());
                }
                self.night(dice, &offsets, STARTS)
            })
            .collect();
        let offsets = self.offsets(dice);
        let candidate = self.night(dice, &offsets, STARTS);
        let noise = self.noise.map(|starts| self.starts(dice, starts));
        let sample = |cell: usize, logs: &[f64], level: f64| Sample {
            logs: logs.iter().map(|log| log + level).collect(),
            launch: Some(cell.to_string()),
            ..Sample::default()
        };
        let asked: Vec<Asked> = (0..CELLS)
            .map(|cell| Asked {
                question: Question {
                    better: Better::Higher,
                    baseline: sample(cell, &baseline[cell], 0.0),
                    candidate: sample(cell, &candidate[cell], lost(cell)),
                    design: Design::Separate,
                    noise: noise
                        .as_ref()
                        .and_then(|noise| KnownNoise::of_starts(&noise[cell])),
                    between: None,
                    gap: None,
                },
                past: past
                    .iter()
                    .map(|night| Past {
                        logs: night[cell].clone(),
                        series: 0,
                    })
                    .collect(),
            })
            .collect();
        let screened = gate_policy::screen(&asked, &policy);
        let family = screened.iter().filter(|one| one.is_tested()).count();
        let suspects: Vec<(usize, &Screened)> = screened
            .iter()
            .enumerate()
            .filter(|(_, one)| one.suspicion.is_some())
            .collect();
        let mut questions = Vec::new();
        for (cell, screened) in &suspects {
            let suspicion = screened.suspicion.as_ref().expect("it is a suspect");
            let mut starts = || self.night(dice, &offsets, suspicion.starts).swap_remove(*cell);
            told.fresh += suspicion.starts;
            let fresh = sample(*cell, &starts(), lost(*cell));
            questions.push(match self.fresh {
                Fresh::Alternated => Question {
                    baseline: sample(*cell, &starts(), 0.0),
                    candidate: fresh,
                    design: Design::Rounds,
                    noise: suspicion.noise,
                    ..asked[*cell].question.clone()
                },
                Fresh::Alone => Question {
                    candidate: fresh,
                    noise: suspicion.noise,
                    between: screened
                        .between
                        .and_then(|between: Between| between::of_two(between.largest)),
                    ..asked[*cell].question.clone()
                },
            });
        }
        let answers = gate_policy::confirm(&questions, family, &policy);
        let losses = if self.loss > 0.0 { LOSSES } else { 0 };
        let unchanged = suspects.iter().filter(|(cell, _)| *cell >= losses).count();
        told.unchanged.push(unchanged as f64 / (CELLS - losses) as f64);
        let mut is_false = false;
        for ((cell, _), answer) in suspects.iter().zip(&answers) {
            match Confirmed::of(answer) {
                Confirmed::Worse if *cell < losses => told.found += 1,
                Confirmed::Worse => is_false = true,
                Confirmed::Refuted if *cell < losses => told.refuted += 1,
                Confirmed::Refuted | Confirmed::Undecided => {}
            }
        }
        told.nights += 1;
        told.lost += losses;
        told.false_alarms += usize::from(is_false);
    }
}

impl std::fmt::Display for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (suspected, error) = self.suspected();
        write!(
            f,
            "nights with a false alarm {} of {} ({:.1} %), unchanged cells started afresh {:.2} % (±{:.2}), fresh starts a night {:.1}",
            self.false_alarms,
            self.nights,
            100.0 * self.false_alarms as f64 / self.nights as f64,
            100.0 * suspected,
            100.0 * error,
            self.fresh as f64 / self.nights as f64,
        )?;
        match self.lost {
            0 => Ok(()),
            lost => write!(
                f,
                ", losses found {} of {lost} ({:.1} %), called none {} ({:.1} %)",
                self.found,
                100.0 * self.found as f64 / lost as f64,
                self.refuted,
                100.0 * self.refuted as f64 / lost as f64,
            ),
        }
    }
}

impl Told {
    /// Returns the mean share of unchanged cells that got fresh starts, and its standard error.
    fn suspected(&self) -> (f64, f64) {
        let mean = t_test::mean(&self.unchanged);
        (
            mean,
            (t_test::variance(&self.unchanged) / self.nights as f64).sqrt(),
        )
    }
}

/// Returns the tolerance of a rate for short simulations. Long ones have none.
fn slack(nights: usize, error: f64) -> f64 {
    if nights < 1000 { 2.5 * error } else { 0.0 }
}

/// Returns whether a count is compatible with a probability of 5 %: at most two and a half standard
/// deviations above it.
fn is_at_most_five_percent(count: usize, of: usize) -> bool {
    let n = of as f64;
    count as f64
        <= 0.05 * n
            + if of < 1000 {
                2.5 * (0.05 * 0.95 * n).sqrt()
            } else {
                0.0
            }
}

#[test]
fn nights_that_differ_by_up_to_one_percent_seldom_cry_wolf_and_find_a_loss_of_five() {
    let nights = nights();
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
        let (share, error) = quiet.suspected();
        assert!(share <= 0.05 + slack(nights, error), "{condition:?}: {share}");
        let lossy = Condition {
            loss: 0.05,
            ..condition
        };
        let told = lossy.simulate(nights, salt + 1);
        let found = told.found as f64 / told.lost as f64;
        // The cells of a night are not independent.
        let error = (0.9 * 0.1 / nights as f64).sqrt();
        assert!(found >= 0.9 - slack(nights, error), "{lossy:?}: {found}");
        assert!(is_at_most_five_percent(told.false_alarms, nights), "{lossy:?}");
    }
}

#[test]
fn restless_nights_short_histories_and_a_baseline_that_cannot_be_started_do_not_cry_wolf() {
    let nights = nights();
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
            fresh: Fresh::Alone,
            ..PLAIN
        },
        Condition {
            fresh: Fresh::Alone,
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
        let told = lossy.simulate(nights, salt + 1);
        assert!(is_at_most_five_percent(told.false_alarms, nights), "{lossy:?}");
        assert!(is_at_most_five_percent(told.refuted, told.lost), "{lossy:?}");
    }
}

/// How a series of nights continues.
#[derive(Clone, Copy, Debug)]
enum Course {
    White,
    /// Autocorrelated: each night keeps this share of the deviation of the last one.
    Remembering(f64),
    /// Two levels with this distance. Each night switches with a probability of a quarter.
    Switching(f64),
    /// After the quiet nights, lower by this much every night.
    Leaking(f64),
    /// After the quiet nights, lower by this much once.
    Stepping(f64),
}

const QUIET: usize = 20;
const WATCHED: usize = 40;

/// Returns the first night after the quiet ones on which a change is reported, counted from 1.
fn alarm(course: Course, watched: usize, dice: &mut Dice) -> Option<usize> {
    let mut series = Vec::new();
    let (mut memory, mut is_low) = (dice.normal(), false);
    for night in 0..QUIET + watched {
        let since = night.saturating_sub(QUIET) as f64;
        let noise = 0.01 * dice.normal();
        series.push(match course {
            Course::White => noise,
            Course::Remembering(share) => {
                memory = share * memory + (1.0 - share * share).sqrt() * dice.normal();
                0.01 * memory
            }
            Course::Switching(apart) => {
                is_low ^= dice.even() < 0.25;
                noise / 2.0 - if is_low { apart } else { 0.0 }
            }
            Course::Leaking(loss) => noise - loss * since,
            Course::Stepping(loss) => noise - if night >= QUIET { loss } else { 0.0 },
        });
        if night >= QUIET && change_point::recent(&series, BOUND).is_some() {
            return Some(night + 1 - QUIET);
        }
    }
    None
}

#[test]
fn wandering_and_switching_series_do_not_alarm_and_a_slow_leak_does() {
    let series = nights();
    println!("{series} series of {QUIET} quiet nights and up to {WATCHED} more, seed {SEED}");
    let courses = [
        Course::White,
        Course::Remembering(0.6),
        Course::Remembering(0.7),
        Course::Remembering(0.8),
        Course::Remembering(0.9),
        Course::Switching(0.03),
        Course::Switching(0.06),
    ];
    let mut wrong: Vec<String> = Vec::new();
    for (salt, course) in courses.into_iter().enumerate() {
        let mut dice = Dice::new(200 + salt as u64);
        let alarms = (0..series)
            .filter(|_| alarm(course, WATCHED, &mut dice).is_some())
            .count();
        println!(
            "{course:?}: {alarms} of {series} alarm ({:.1} %)",
            100.0 * alarms as f64 / series as f64
        );
        if !is_at_most_five_percent(alarms, series) {
            wrong.push(format!("{course:?}: {alarms} of {series}"));
        }
    }
    for (salt, course) in [Course::Leaking(0.005), Course::Stepping(0.05)]
        .into_iter()
        .enumerate()
    {
        let mut dice = Dice::new(300 + salt as u64);
        let mut found: Vec<usize> = (0..series).filter_map(|_| alarm(course, 20, &mut dice)).collect();
        found.sort_unstable();
        let median = found.get(found.len() / 2).copied();
        println!(
            "{course:?}: {} of {series} found within 20 nights, the median on night {median:?}",
            found.len()
        );
        if found.len() * 100 < series * 95 {
            wrong.push(format!("{course:?}: {} of {series}", found.len()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
