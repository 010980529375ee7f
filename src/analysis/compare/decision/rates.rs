//! Measures the error rates of [`super::decide`] on synthetic cells: false verdicts, missed losses, coverage
//! and width of intervals.
//!
//! `MATRIX_RUNS` sets the number of runs per condition. `tests/montecarlo.sh` sets two thousand. Every test
//! prints its rates.

mod condition;
mod reports;

use condition::{
    CELLS, Condition, LAYOUTS, NOISE_STARTS, PLAIN, Rates, SEED, SIZES, conditions, max_count, run_count,
};

use super::synthetic::{SHAPES, Shape};

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
        wrong.push(format!(
            "{:.1} % of the confidence intervals contain the true value",
            covered * 100.0
        ));
    }
    // A few runs with heavy tails have intervals that are many times wider than usual.
    if rates.mean_df() >= 9.0 && rates.mean_width() > 1.4 + 4.0 * slack {
        wrong.push(format!(
            "the confidence intervals are {:.2} times as wide as needed",
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
    println!(
        "the simulation makes {} runs of {CELLS} cells per condition, with the seed {SEED}",
        run_count()
    );
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
    println!(
        "the simulation makes {} runs of {CELLS} cells per condition, with the seed {SEED}",
        run_count()
    );
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
    println!(
        "the simulation makes {} runs per condition, with the seed {SEED}",
        run_count()
    );
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
    println!(
        "the simulation makes {} runs per condition, with the seed {SEED}",
        run_count()
    );
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
                        "{}: {} runs with a false verdict; {:.1} % of the confidence intervals contain the true value",
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

#[test]
fn rounds_take_drift_out_of_the_comparison() {
    println!(
        "the simulation makes {} runs of {CELLS} cells per condition, with the seed {SEED}",
        run_count()
    );
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
    println!(
        "the simulation makes {} runs of {CELLS} cells per condition, with the seed {SEED}",
        run_count()
    );
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
    println!(
        "the simulation makes {} runs per condition, with the seed {SEED}",
        run_count()
    );
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
    println!(
        "the simulation makes {} runs of {CELLS} cells per condition, with the seed {SEED}",
        run_count()
    );
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
    println!(
        "the simulation makes {} runs of {CELLS} cells per condition, with the seed {SEED}",
        run_count()
    );
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
