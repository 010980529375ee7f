use rand_mt::Mt64;

use super::*;
use crate::analysis::compare::multiple_testing::holm_adjusted;

const SEED: u64 = 20_261_127;

/// Items of one measurement of each side, of which `lost` and `gained` differ.
fn once(items: u32, lost: u32, gained: u32) -> PairedItems {
    PairedItems {
        items,
        measurements: 1,
        lost: vec![lost],
        gained: vec![gained],
        reference_right: u64::from(items),
    }
}

/// Number of runs of each simulation; `tests/montecarlo.sh` sets it.
fn run_count() -> u32 {
    #[expect(
        clippy::disallowed_methods,
        reason = "an environment variable sets the length of a test"
    )]
    let setting = std::env::var("MATRIX_RUNS").ok();
    setting.map_or(300, |text| text.parse().expect("MATRIX_RUNS is a number"))
}

/// The largest number of so many runs with an event of this probability that chance explains, at about one of a thousand.
fn at_most(share: f64, runs: u32) -> u32 {
    let runs = f64::from(runs);
    (share * runs + 3.1 * (share * (1.0 - share) * runs).sqrt()).floor() as u32
}

struct Draws(Mt64);

impl Draws {
    fn new(salt: u64) -> Self {
        Self(Mt64::new(SEED + salt))
    }

    fn happens(&mut self, chance: f64) -> bool {
        ((self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64) < chance
    }

    /// The number of lost and gained items of a paired comparison with these proportions.
    fn pair(&mut self, items: u32, differing: f64, loss: f64) -> [u32; 2] {
        let mut counts = [0, 0];
        for _ in 0..items {
            if self.happens(differing) {
                let is_lost = self.happens(f64::midpoint(1.0, loss / differing));
                counts[usize::from(!is_lost)] += 1;
            }
        }
        counts
    }
}

fn is_near(ours: f64, theirs: f64) -> bool {
    (ours - theirs).abs() < 1e-9 * theirs.abs().max(1e-3)
}

#[test]
fn one_measurement_gives_mcnemars_exact_test() {
    // scipy.stats.binomtest(lost, lost + gained, alternative="greater").pvalue, SciPy 1.16
    for (lost, gained, p) in [
        (30, 10, 0.001_110_716_886_614_682_2),
        (12, 3, 0.017_578_125),
        (5, 0, 0.031_25),
        (4, 0, 0.062_5),
        (20, 20, 0.562_685_343_809_769_6),
        (66, 40, 0.007_389_705_258_519_205),
        (300, 250, 0.018_289_372_774_551_414),
        (0, 7, 1.0),
        (0, 0, 1.0),
    ] {
        let ours = once(1319, lost, gained).p_worse();
        assert!(is_near(ours, p), "{lost} {gained}: {ours}");
    }
}

#[test]
fn several_measurements_count_each_item_once() {
    let paired = PairedItems {
        items: 40,
        measurements: 3,
        lost: vec![4, 3, 2],
        gained: vec![3, 1, 0],
        reference_right: 120,
    };
    // All 2^13 signs, counted in Python.
    assert!(is_near(paired.p_worse(), 490.0 / 8192.0), "{}", paired.p_worse());
    assert!(is_near(paired.difference(), -(16.0 - 5.0) / 120.0));
    // The same answers in every measurement say no more than one measurement does.
    let repeated = PairedItems {
        items: 1319,
        measurements: 3,
        lost: vec![0, 0, 30],
        gained: vec![0, 0, 10],
        reference_right: 3 * 1319,
    };
    let single = once(1319, 30, 10);
    assert!(is_near(repeated.p_worse(), single.p_worse()));
    assert!(is_near(repeated.difference(), single.difference()));
    for (ours, theirs) in repeated.interval().into_iter().zip(single.interval()) {
        assert!(is_near(ours, theirs));
    }
    assert_eq!(repeated.smallest_loss(ALPHA), single.smallest_loss(ALPHA));
}

#[test]
fn outcomes_are_paired_by_item_and_unknown_ones_left_out() {
    let paired = PairedItems::count(&["10011", "10001"], &["11010", "1100-"]);
    // The second item is lost twice, the others are equal, and the fifth is unknown.
    let expected = PairedItems {
        items: 4,
        measurements: 2,
        lost: vec![0, 1],
        gained: vec![0, 0],
        reference_right: 5,
    };
    assert_eq!(paired, expected);
    // Outcomes that are missing at the end are unknown.
    assert_eq!(PairedItems::count(&["11"], &["1"]).items, 1);
    assert_eq!(PairedItems::count(&[], &[]).items, 0);
}

#[test]
fn the_interval_is_bonetts_and_prices() {
    // Their formula, in Python.
    for (items, lost, gained, low, high) in [
        (
            1319,
            30,
            10,
            -0.024_720_777_930_693_855,
            -0.005_559_312_909_578_663,
        ),
        (100, 5, 0, -0.098_960_632_000_678_98, 0.000_921_416_314_404_476),
        (50, 0, 0, -0.053_303_993_244_218_376, 0.053_303_993_244_218_376),
    ] {
        let ours = once(items, lost, gained).interval();
        assert!(is_near(ours[0], low) && is_near(ours[1], high), "{ours:?}");
    }
}

#[test]
fn the_smallest_loss_is_that_of_the_exact_power() {
    // Sums of scipy.stats.binom, solved for a power of 0.8 with scipy.optimize.brentq.
    for (items, lost, gained, level, loss) in [
        (100, 0, 0, 0.05, Some(0.066_296_704_134_841_18)),
        (200, 5, 5, 0.05, Some(0.060_744_400_849_585_46)),
        (4, 0, 0, 0.05, None),
    ] {
        let ours = once(items, lost, gained).smallest_loss(level);
        match loss {
            Some(loss) => assert!((ours.unwrap() - loss).abs() < 2e-5, "{items}: {ours:?}"),
            None => assert_eq!(ours, None),
        }
    }
    // A reference that answers few items right can lose no more than these.
    let few = |reference_right| PairedItems {
        reference_right,
        ..once(100, 0, 0)
    };
    assert!(few(7).smallest_loss(0.05).is_some());
    assert_eq!(few(6).smallest_loss(0.05), None);
    for (differing, level, loss) in [
        (0.03, 0.05, 0.015_063_291_616_367_101),
        (0.05, 0.05, 0.018_557_865_995_764_64),
        (0.03, 0.01, 0.019_895_882_052_334_84),
    ] {
        let ours = smallest_loss(1319, differing, level).unwrap();
        assert!((ours - loss).abs() < 2e-5, "{differing} {level}: {ours}");
    }
}

/// Answers of several cells to the same items, in each of which `flips` of the answers differ from what they usually are,
/// or always differ in the same way (`is_stuck`).
fn answers(draws: &mut Draws, usual: &[bool], measurements: u32, flips: f64, is_stuck: bool) -> Vec<String> {
    let mut texts = vec![String::new(); measurements as usize];
    for usual in usual {
        let mut is_correct = usual ^ draws.happens(flips);
        for text in &mut texts {
            if !is_stuck {
                is_correct = usual ^ draws.happens(flips);
            }
            text.push(if is_correct { '1' } else { '0' });
        }
    }
    texts
}

fn compare(candidate: &[String], reference: &[String]) -> PairedItems {
    let candidate: Vec<&str> = candidate.iter().map(String::as_str).collect();
    let reference: Vec<&str> = reference.iter().map(String::as_str).collect();
    PairedItems::count(&candidate, &reference)
}

#[test]
fn healthy_runs_rarely_raise_an_alarm() {
    let runs = run_count();
    println!("{runs} runs per condition, seed {SEED}");
    let mut wrong = Vec::new();
    let conditions = [
        (1, 0.02, false),
        (1, 0.1, false),
        (3, 0.05, false),
        (3, 0.05, true),
        (2, 0.2, false),
    ];
    for (salt, (measurements, flips, is_stuck)) in (0..).zip(conditions) {
        let mut draws = Draws::new(salt);
        let (mut alarms, mut held, mut compared) = (0, 0, 0);
        for _ in 0..runs {
            // Four tasks of a hundred items; three cells against one reference.
            let mut p = Vec::new();
            for _ in 0..4 {
                let usual: Vec<bool> = (0..100).map(|_| draws.happens(0.8)).collect();
                let reference = answers(&mut draws, &usual, measurements, flips, is_stuck);
                for _ in 0..3 {
                    let candidate = answers(&mut draws, &usual, measurements, flips, is_stuck);
                    let paired = compare(&candidate, &reference);
                    p.push(paired.p_worse());
                    let [low, high] = paired.interval();
                    compared += 1;
                    held += u32::from(low <= 0.0 && high >= 0.0);
                }
            }
            alarms += u32::from(holm_adjusted(&p, p.len()).iter().any(|p| *p <= ALPHA));
        }
        let coverage = f64::from(held) / f64::from(compared);
        println!(
            "{measurements} measurements, {:.0} % flips{}: {alarms} of {runs} runs with an alarm, intervals hold zero in {:.2} %",
            100.0 * flips,
            if is_stuck { ", the same in each" } else { "" },
            100.0 * coverage
        );
        if alarms > at_most(ALPHA, runs) || coverage < 0.94 {
            wrong.push(format!("{measurements} {flips} {is_stuck}: {alarms}, {coverage}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn losses_are_found_and_their_intervals_hold_them() {
    let runs = run_count();
    println!("{runs} runs per condition, seed {SEED}");
    for (salt, (differing, loss)) in (100..).zip([(0.03, 0.015), (0.05, 0.02), (0.1, 0.0), (0.01, 0.01)]) {
        let mut draws = Draws::new(salt);
        let (mut found, mut held) = (0, 0);
        for _ in 0..runs {
            let [lost, gained] = draws.pair(1319, differing, loss);
            let paired = once(1319, lost, gained);
            found += u32::from(paired.p_worse() <= ALPHA);
            let [low, high] = paired.interval();
            held += u32::from(low <= -loss && high >= -loss);
        }
        println!(
            "a loss of {:.1} points at {:.0} % discordance: found in {found} of {runs}, intervals hold it in {held}",
            100.0 * loss,
            100.0 * differing
        );
        assert!(runs - held <= at_most(0.055, runs), "{differing} {loss}: {held}");
        if loss > 0.0 {
            assert!(
                f64::from(found) >= POWER * f64::from(runs),
                "{differing} {loss}: {found}"
            );
        }
    }
}

#[test]
fn the_smallest_loss_is_found_as_often_as_promised() {
    let runs = run_count();
    println!("{runs} runs per condition, seed {SEED}");
    for (salt, (items, differing)) in (200..).zip([(1319, 0.03), (1319, 0.05), (300, 0.05), (1319, 0.0)]) {
        let smallest = smallest_loss(items, differing, ALPHA).unwrap();
        let mut draws = Draws::new(salt);
        let mut rate = |loss: f64| {
            let mut found = 0;
            for _ in 0..runs {
                let [lost, gained] = draws.pair(items, differing + loss, loss);
                let paired = once(items, lost, gained);
                found += u32::from(paired.p_worse() <= ALPHA);
            }
            f64::from(found) / f64::from(runs)
        };
        let at_least = rate(smallest);
        // A tenth of a point more and less, if the number of items is large enough for that to matter.
        let (more, less) = (rate(smallest + 0.001), rate(smallest - 0.001));
        println!(
            "{items} items, {:.0} % discordance: {:.2} points are found in {:.1} %, 0.1 more in {:.1} %, 0.1 less in {:.1} %",
            100.0 * differing,
            100.0 * smallest,
            100.0 * at_least,
            100.0 * more,
            100.0 * less
        );
        let slack = 3.1 * (POWER * (1.0 - POWER) / f64::from(runs)).sqrt();
        assert!(
            (at_least - POWER).abs() <= slack,
            "{items} {differing}: {at_least}"
        );
        assert!(
            more >= POWER - slack && less <= POWER + slack,
            "{items}: {more} {less}"
        );
    }
}

/// With several measurements the smallest loss rests on an approximation.
#[test]
fn the_smallest_loss_of_several_measurements_is_found_about_as_often() {
    let runs = run_count();
    println!("{runs} runs per condition, seed {SEED}");
    for (salt, flips) in (300..).zip([0.005, 0.02]) {
        let mut draws = Draws::new(salt);
        let (mut found, mut sum) = (0, 0.0);
        for _ in 0..runs {
            let usual: Vec<bool> = (0..400).map(|_| draws.happens(0.8)).collect();
            let reference = answers(&mut draws, &usual, 3, flips, false);
            let healthy = answers(&mut draws, &usual, 3, flips, false);
            let smallest = compare(&healthy, &reference).smallest_loss(ALPHA).unwrap();
            sum += smallest;
            let lossy: Vec<bool> = usual
                .iter()
                .map(|usual| *usual && !draws.happens(smallest / 0.8))
                .collect();
            let candidate = answers(&mut draws, &lossy, 3, flips, false);
            found += u32::from(compare(&candidate, &reference).p_worse() <= ALPHA);
        }
        let share = f64::from(found) / f64::from(runs);
        println!(
            "3 measurements of 400 items, {:.1} % flips: on average {:.2} points, found in {:.1} %",
            100.0 * flips,
            100.0 * sum / f64::from(runs),
            100.0 * share
        );
        assert!((0.72..=0.9).contains(&share), "{flips}: {share}");
    }
}
