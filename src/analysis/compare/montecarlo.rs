//! Simulates the whole nightly procedure on synthetic cells: false alarms, missed losses and cost.
//!
//! `MATRIX_NIGHTS` sets the number of nights per condition. `tests/montecarlo.sh` sets 2000.

mod condition;

use super::change_point;
use super::decision::synthetic::Shape;
use condition::{BOUND, CELLS, Condition, FreshStartDesign, PLAIN, SEED, STARTS, SeededRng, night_count};

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
    println!(
        "the simulation has {nights} nights of {CELLS} cells with {STARTS} starts per side, and the seed {SEED}"
    );
    let conditions = [
        PLAIN,
        Condition {
            offset: 0.0,
            noise_starts: Some(10),
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
            noise_starts: Some(10),
            ..PLAIN
        },
        Condition {
            shape: Shape::Heavy,
            ..PLAIN
        },
        Condition {
            shape: Shape::SlowStarts,
            offset: 0.005,
            noise_starts: Some(10),
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
    println!(
        "the simulation has {series} series and the seed {SEED}; each series has {NIGHTS_BEFORE} nights without a change, then up to {NIGHTS_WATCHED} more nights"
    );
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
            "{course:?}: {alarms} of {series} series raised an alarm ({:.1} %)",
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
            "{course:?}: {} of {series} series raised an alarm within 20 nights; half of these alarms came by night {median:?}",
            alarm_nights.len()
        );
        if alarm_nights.len() * 100 < series * 95 {
            wrong.push(format!("{course:?}: {} of {series}", alarm_nights.len()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
