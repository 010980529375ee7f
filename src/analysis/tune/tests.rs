use std::collections::BTreeSet;

use super::draws::Draws;
use super::*;

fn knob(is_ordered: bool, values: usize, default: usize) -> Knob {
    Knob {
        name: format!("{values} values"),
        is_ordered,
        values,
        default,
    }
}

fn space() -> Space {
    Space {
        knobs: vec![
            knob(true, 6, 1),
            knob(true, 5, 2),
            knob(false, 2, 0),
            knob(false, 3, 0),
        ],
    }
}

fn tuner(space: Space, seed: u64) -> Tuner {
    Tuner {
        space,
        seed,
        trials: Vec::new(),
        begins_short: false,
    }
}

/// An engine that is best with the highest value of the first knob, and with the second value of the third one.
fn engine(point: &[usize]) -> TrialOutcome {
    let log = 0.15 * point[0] as f64 + 0.1 * point[2] as f64;
    TrialOutcome::Measured(100.0 * log.exp())
}

/// Runs a search to its end; each start varies by `noise`.
fn search(tuner: &mut Tuner, starts: usize, noise: f64, engine: impl Fn(&[usize]) -> TrialOutcome) {
    let mut draws = Draws::new(tuner.seed, 77);
    while tuner.trials.len() < starts {
        let Some(next) = tuner.next(starts - tuner.trials.len()) else {
            return;
        };
        let outcome = match engine(&next.point) {
            TrialOutcome::Measured(figure) => TrialOutcome::Measured(figure * (noise * draws.normal()).exp()),
            other => other,
        };
        tuner.trials.push(Trial {
            point: next.point,
            size: next.size,
            outcome,
        });
    }
}

#[test]
fn the_default_is_first_and_the_best_knob_is_found() {
    for seed in 1..=3 {
        let mut tuner = tuner(space(), seed);
        assert_eq!(tuner.next(20).unwrap().point, [1, 2, 0, 0]);
        search(&mut tuner, 20, 0.01, engine);
        let winner = tuner.winner().unwrap();
        assert_eq!((winner[0], winner[2]), (5, 1), "seed {seed}");
    }
}

#[test]
fn a_search_depends_on_space_seed_and_trials_only() {
    let run = |seed| {
        let mut tuner = tuner(space(), seed);
        search(&mut tuner, 12, 0.01, engine);
        tuner.trials
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let mut resumed = tuner(space(), 1);
    resumed.trials = run(1)[..7].to_vec();
    assert_eq!(resumed.next(5).unwrap().point, run(1)[7].point);
}

#[test]
fn configurations_that_crash_are_avoided_and_never_win() {
    let crashes = |point: &[usize]| point[0] + point[1] > 6;
    for seed in 1..=3 {
        let mut tuner = tuner(space(), seed);
        search(&mut tuner, 24, 0.01, |point| {
            if crashes(point) {
                TrialOutcome::Infeasible
            } else {
                engine(point)
            }
        });
        let winner = tuner.winner().unwrap();
        assert!(!crashes(&winner) && winner[0] == 5, "seed {seed}: {winner:?}");
        let crashed = tuner.trials.iter().filter(|trial| crashes(&trial.point));
        let crashed: Vec<&Point> = crashed.map(|trial| &trial.point).collect();
        let mut different = crashed.clone();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), crashed.len(), "none crashes twice");
        assert!(crashed.len() <= 7, "seed {seed}: {} crashes", crashed.len());
    }
}

#[test]
fn the_default_may_crash() {
    let mut tuner = tuner(space(), 1);
    search(&mut tuner, 16, 0.01, |point| {
        if point[2] == 0 {
            TrialOutcome::Infeasible
        } else {
            engine(point)
        }
    });
    assert_eq!(tuner.winner().unwrap()[2], 1);
    assert_eq!(self::tuner(space(), 1).winner(), None);
}

#[test]
fn nothing_wins_where_nothing_runs() {
    let mut tuner = tuner(space(), 1);
    search(&mut tuner, 12, 0.0, |_| TrialOutcome::Infeasible);
    assert_eq!(tuner.trials.len(), 12);
    assert_eq!((tuner.winner(), tuner.contributions()), (None, Vec::new()));
}

#[test]
fn the_default_wins_where_nothing_differs() {
    let defaults = (1..=10).filter(|seed| {
        let mut tuner = tuner(space(), *seed);
        search(&mut tuner, 16, 0.01, |_| TrialOutcome::Measured(50.0));
        tuner.winner().unwrap() == [1, 2, 0, 0]
    });
    let defaults = defaults.count();
    assert!(defaults >= 5, "{defaults} of 10");
}

/// One start is 20 % faster than the configuration is; its repeats and its neighbours are not.
#[test]
fn a_lucky_start_does_not_win() {
    let mut tuner = tuner(space(), 1);
    let trial = |point: &[usize], figure| Trial {
        point: point.to_vec(),
        size: TrialSize::Full,
        outcome: TrialOutcome::Measured(figure),
    };
    tuner.trials = vec![
        trial(&[1, 2, 0, 0], 100.0),
        trial(&[2, 2, 0, 0], 101.0),
        trial(&[5, 2, 0, 0], 115.0),
        trial(&[5, 1, 0, 0], 116.0),
        trial(&[5, 3, 1, 0], 114.0),
        trial(&[2, 1, 0, 0], 122.0),
        trial(&[2, 3, 0, 1], 99.0),
    ];
    let next = tuner.next(2).unwrap();
    tuner.trials.push(trial(&[2, 1, 0, 0], 101.0));
    tuner.trials.push(trial(&[2, 1, 0, 0], 100.0));
    assert_eq!(tuner.winner().unwrap()[0], 5);
    assert_eq!(next.size, TrialSize::Full);
}

#[test]
fn nothing_is_repeated_while_all_can_be_tried() {
    let knob = |name: &str, values| Knob {
        name: name.to_owned(),
        is_ordered: true,
        values,
        default: 0,
    };
    for seed in 1..=5 {
        let small = Space {
            knobs: vec![knob("a", 4), knob("b", 2)],
        };
        let mut tuner = tuner(small, seed);
        search(&mut tuner, 8, 0.01, |point| {
            TrialOutcome::Measured(100.0 + point[0] as f64)
        });
        let tried: BTreeSet<&Point> = tuner.trials.iter().map(|trial| &trial.point).collect();
        assert_eq!((tried.len(), tuner.trials.len()), (8, 8));
    }
}

#[test]
fn the_last_starts_repeat_the_best_configuration() {
    // A repeat may also show that another one is the best.
    let is_repeated = |seed: &u64| {
        let mut tuner = tuner(space(), *seed);
        search(&mut tuner, 20, 0.01, engine);
        let winner = tuner.winner().unwrap();
        tuner.trials.iter().filter(|trial| trial.point == winner).count() >= 2
    };
    let repeated = (1..=8).filter(is_repeated).count();
    assert!(repeated >= 6, "{repeated}");
}

#[test]
fn contributions_are_ratios_of_single_knobs() {
    let mut tuner = tuner(space(), 2);
    search(&mut tuner, 24, 0.005, engine);
    assert_eq!(tuner.winner().unwrap()[0], 5);
    let contributions = tuner.contributions();
    assert_eq!(contributions[0].knob, 0);
    let ratio = contributions[0].ratio.unwrap();
    assert!((ratio / 0.6_f64.exp() - 1.0).abs() < 0.15, "{ratio}");
    let third = contributions
        .iter()
        .find(|contribution| contribution.knob == 2)
        .unwrap();
    assert!(
        (third.ratio.unwrap() / 0.1_f64.exp() - 1.0).abs() < 0.06,
        "{third:?}"
    );
}

#[test]
fn a_knob_whose_default_does_not_run_has_no_ratio() {
    let mut tuner = tuner(space(), 1);
    let trial = |point: &[usize], outcome| Trial {
        point: point.to_vec(),
        size: TrialSize::Full,
        outcome,
    };
    tuner.trials = vec![
        trial(&[1, 2, 0, 0], TrialOutcome::Measured(100.0)),
        trial(&[5, 2, 0, 0], TrialOutcome::Infeasible),
        trial(&[5, 2, 1, 0], TrialOutcome::Measured(160.0)),
        trial(&[5, 2, 1, 0], TrialOutcome::Measured(161.0)),
    ];
    let contributions = tuner.contributions();
    let third = contributions
        .iter()
        .find(|contribution| contribution.knob == 2)
        .unwrap();
    assert_eq!(third.ratio, None);
}

#[test]
fn short_trials_come_first_and_a_winner_has_a_full_one() {
    for seed in 1..=3 {
        let mut tuner = Tuner {
            begins_short: true,
            ..tuner(space(), seed)
        };
        search(&mut tuner, 24, 0.01, engine);
        for (at, trial) in tuner.trials.iter().enumerate() {
            let is_first = !tuner.trials[..at].iter().any(|other| other.point == trial.point);
            assert!(
                !is_first || trial.size == TrialSize::Short,
                "seed {seed}: {trial:?}"
            );
        }
        let full = tuner.trials.iter().filter(|trial| trial.size == TrialSize::Full);
        let full: Vec<&Point> = full.map(|trial| &trial.point).collect();
        assert!(full.contains(&&vec![1, 2, 0, 0]), "the default has a full trial");
        assert!(full.len() < 14, "seed {seed}: {} full trials", full.len());
        let winner = tuner.winner().unwrap();
        assert!(full.contains(&&winner));
        assert_eq!(winner[0], 5, "seed {seed}");
    }
}

#[test]
fn unknown_outcomes_are_not_proposed_for_ever() {
    let mut tuner = tuner(space(), 1);
    search(&mut tuner, 12, 0.0, |_| TrialOutcome::Unknown);
    let default = [1, 2, 0, 0];
    let tries = |point: &[usize]| tuner.trials.iter().filter(|trial| trial.point == point).count();
    assert_eq!((tuner.trials.len(), tries(&default)), (12, 2));
    assert!(
        tuner
            .trials
            .iter()
            .all(|trial| trial.point == default || tries(&trial.point) == 1)
    );
}

/// Full trials are lost to the host, except those of the default.
#[test]
fn full_trials_without_an_outcome_are_not_repeated_for_ever() {
    let default = [1, 2, 0, 0];
    let mut tuner = Tuner {
        begins_short: true,
        ..tuner(space(), 1)
    };
    for left in (1..=20).rev() {
        let next = tuner.next(left).unwrap();
        let is_lost = next.size == TrialSize::Full && next.point != default;
        let outcome = if is_lost {
            TrialOutcome::Unknown
        } else {
            engine(&next.point)
        };
        tuner.trials.push(Trial {
            point: next.point,
            size: next.size,
            outcome,
        });
    }
    let lost = tuner
        .trials
        .iter()
        .filter(|trial| trial.outcome == TrialOutcome::Unknown);
    let mut lost: Vec<&Point> = lost.map(|trial| &trial.point).collect();
    let count = lost.len();
    lost.sort();
    lost.dedup();
    assert!(
        count > 0 && lost.len() == count,
        "{count} lost, {} different",
        lost.len()
    );
    assert_eq!(tuner.winner().unwrap(), default);
}

#[test]
fn a_small_space_is_measured_and_then_left() {
    let one = Space {
        knobs: vec![knob(true, 1, 0), knob(false, 1, 0)],
    };
    for space in [one, Space::default()] {
        let mut tuner = tuner(space, 1);
        search(&mut tuner, 24, 0.01, |_| TrialOutcome::Measured(10.0));
        assert!((1..=3).contains(&tuner.trials.len()), "{}", tuner.trials.len());
        assert_eq!(tuner.winner(), Some(tuner.trials[0].point.clone()));
        assert_eq!(tuner.contributions(), []);
    }
    let mut tuner = tuner(
        Space {
            knobs: vec![knob(true, 4, 0)],
        },
        1,
    );
    search(&mut tuner, 24, 0.01, |point| {
        TrialOutcome::Measured(1.0 + point[0] as f64)
    });
    for value in 0..4 {
        assert!(tuner.trials.iter().any(|trial| trial.point == [value]), "{value}");
    }
    assert!(tuner.trials.len() <= 12);
    assert_eq!(tuner.winner(), Some(vec![3]));
}

#[test]
fn spaces_with_billions_of_points_are_searched_in_time() {
    let space = Space {
        knobs: (0..12).map(|at| knob(at % 3 != 0, 10, 5)).collect(),
    };
    let mut tuner = tuner(space, 1);
    let begin = crate::base::clock::now();
    search(&mut tuner, 20, 0.01, |point| {
        TrialOutcome::Measured((0.1 * point[1] as f64 - 0.05 * point[2] as f64).exp())
    });
    let took = crate::base::clock::now().since(begin);
    assert!(took.as_secs() < 60, "{took:?}");
    let figure = |point: &[usize]| 0.1 * point[1] as f64 - 0.05 * point[2] as f64;
    let winner = tuner.winner().unwrap();
    assert!(figure(&winner) > figure(&[5; 12]) + 0.2, "{winner:?}");
}
