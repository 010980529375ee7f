//! The whole nightly procedure on synthetic cells: how often it cries wolf, what it misses, what it costs.
//!
//! `MATRIX_NIGHTS` sets the number of nights; `tests/montecarlo.sh` runs a thousand.

use rand_mt::Mt64;

use super::change;
use super::night::{Policy, Suspect};
use crate::judge::metrics::Better;

const CELLS: usize = 360;
const STARTS: usize = 5;
/// Cells that really lost something in a night with losses.
const LOSSES: usize = 6;
const SEED: u64 = 20_260_914;

fn nights() -> usize {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test is told its length by its surroundings"
    )]
    let told = std::env::var("MATRIX_NIGHTS").ok();
    told.map_or(60, |text| text.parse().expect("MATRIX_NIGHTS is a number"))
}

struct Dice(Mt64);

impl Dice {
    fn new(salt: u64) -> Self {
        Self(Mt64::new(SEED + salt))
    }

    /// Evenly from 0 to 1, neither included.
    fn even(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Normal, by Box and Muller.
    fn normal(&mut self) -> f64 {
        (-2.0 * self.even().ln()).sqrt() * (std::f64::consts::TAU * self.even()).cos()
    }
}

/// How starts of one cell differ.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Normal.
    Normal(f64),
    /// Student's t with three degrees of freedom, scaled to the standard deviation.
    Heavy(f64),
    /// One of two levels at each start, with a little noise.
    TwoLevels(f64),
}

impl Kind {
    fn sigma(self) -> f64 {
        match self {
            Self::Normal(sigma) | Self::Heavy(sigma) | Self::TwoLevels(sigma) => sigma,
        }
    }

    fn draw(self, dice: &mut Dice) -> f64 {
        match self {
            Self::Normal(sigma) => sigma * dice.normal(),
            Self::Heavy(sigma) => {
                let squares: f64 = (0..3).map(|_| dice.normal().powi(2)).sum();
                sigma * dice.normal() / squares.sqrt()
            }
            Self::TwoLevels(sigma) => {
                sigma * (if dice.even() < 0.5 { 1.0 } else { -1.0 } + 0.1 * dice.normal())
            }
        }
    }

    fn starts(self, dice: &mut Dice, n: usize, level: f64) -> Vec<f64> {
        (0..n).map(|_| level + self.draw(dice)).collect()
    }
}

#[derive(Default)]
struct Told {
    nights_with_false_alarm: usize,
    suspects: usize,
    fresh: usize,
    found: usize,
    lost: usize,
}

/// `nights` nights of 360 cells, `losses` of which lost `loss` of their throughput.
fn simulate(kind: Kind, is_known: bool, nights: usize, losses: usize, loss: f64, salt: u64) -> Told {
    let policy = Policy::default();
    let floor = if is_known {
        policy.noise_floor(kind.sigma(), STARTS, STARTS)
    } else {
        0.0
    };
    let mut dice = Dice::new(salt);
    let mut told = Told::default();
    let better = Better::Higher;
    for _ in 0..nights {
        let level = |cell: usize| if cell < losses { (-loss).ln_1p() } else { 0.0 };
        let mut suspects = Vec::new();
        for cell in 0..CELLS {
            let first = kind.starts(&mut dice, STARTS, 0.0);
            let second = kind.starts(&mut dice, STARTS, level(cell));
            if policy.suspects(&first, &second, better, floor) {
                let n = policy.fresh_starts(kind.sigma(), STARTS, CELLS);
                let fresh = kind.starts(&mut dice, n, level(cell));
                told.fresh += n;
                suspects.push((cell, first, fresh));
            }
        }
        told.suspects += suspects.len();
        let asked: Vec<Suspect<'_>> = suspects
            .iter()
            .map(|(_, first, fresh)| Suspect {
                first,
                fresh,
                better,
                floor,
            })
            .collect();
        let confirmed = policy.confirm(&asked, CELLS);
        let alarms = || {
            suspects
                .iter()
                .zip(&confirmed)
                .filter(|(_, is)| **is)
                .map(|((cell, ..), _)| *cell)
        };
        told.found += alarms().filter(|cell| *cell < losses).count();
        told.lost += losses;
        told.nights_with_false_alarm += usize::from(alarms().any(|cell| cell >= losses));
    }
    told
}

/// Whether so many of so many may come of a chance of 5 %: at most two and a half standard deviations above it.
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
fn a_night_of_360_cells_seldom_cries_wolf_and_finds_a_loss_of_five_percent() {
    let nights = nights();
    println!("{nights} nights of {CELLS} cells, {STARTS} starts a side, seed {SEED}");
    // The last two with nothing known of their noise: only the family's bound holds them, and at many fresh starts.
    let kinds = [
        (Kind::Normal(0.01), true),
        (Kind::Normal(0.03), true),
        (Kind::Heavy(0.02), true),
        (Kind::TwoLevels(0.02), true),
        (Kind::Normal(0.03), false),
        (Kind::TwoLevels(0.02), false),
    ];
    for (salt, (kind, is_known)) in kinds.into_iter().enumerate() {
        let told = simulate(kind, is_known, nights, 0, 0.0, salt as u64);
        println!(
            "{kind:?}, noise known {is_known}: nothing changed: nights with a false alarm {} of {nights} ({:.1} %), suspects a night {:.2}, fresh starts a night {:.1}",
            told.nights_with_false_alarm,
            100.0 * told.nights_with_false_alarm as f64 / nights as f64,
            told.suspects as f64 / nights as f64,
            told.fresh as f64 / nights as f64,
        );
        assert!(
            is_at_most_five_percent(told.nights_with_false_alarm, nights),
            "{kind:?}"
        );
    }
    let told = simulate(Kind::Normal(0.01), true, nights, LOSSES, 0.05, 99);
    let power = told.found as f64 / told.lost as f64;
    println!(
        "Normal(0.01): {LOSSES} cells lost 5 %: power {power:.4} ({} of {}), nights with a false alarm {}, fresh starts a night {:.1}",
        told.found,
        told.lost,
        told.nights_with_false_alarm,
        told.fresh as f64 / nights as f64,
    );
    assert!(power >= 0.9, "power {power}");
    assert!(is_at_most_five_percent(told.nights_with_false_alarm, nights));
}

/// How a series of nights goes on.
#[derive(Clone, Copy, Debug)]
enum Course {
    White,
    /// Each night remembers this share of the last one's deviation.
    Remembering(f64),
    /// Two levels this far apart, each night leaving with a chance of a quarter.
    Switching(f64),
    /// After the quiet nights, this much less every night.
    Leaking(f64),
    /// After the quiet nights, this much less.
    Stepping(f64),
}

const QUIET: usize = 20;
const WATCHED: usize = 40;

/// The night after the quiet ones on which a change is told, counted from 1.
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
        if night >= QUIET && change::recent(&series, Policy::default().floor).is_some() {
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
