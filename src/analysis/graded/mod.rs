//! Whether answers are wrong because of the load: items that were wrong under load and right alone, against those that
//! were right under load and wrong alone.
//!
//! Healthy engines are not invariant to their batch, so that some answers differ either way. Without an effect of the
//! load, as many become right alone as become wrong. Of those that were right under load only a part, the controls, is
//! sent again, which the test accounts for.

pub(crate) mod agreement;
pub mod graders;
pub(crate) mod paired;
pub(crate) mod reference;
pub(crate) mod sides;

use statrs::distribution::{Binomial, DiscreteCDF};

use crate::results::record::graded::TaskScore;

/// Probability with which a measurement without an effect of the load is found to have one, over all its tasks.
pub(crate) const ALPHA: f64 = 0.001;

/// Probability that at least as many of the differing items would have been wrong under load rather than alone, if the
/// load had no effect. `None` if no item was sent again.
pub(crate) fn load_effect_p(score: &TaskScore) -> Option<f64> {
    if score.wrong_again + score.controls == 0 {
        return None;
    }
    let wrong_under_load = u64::from(score.correct_alone);
    let wrong_alone = u64::from(score.controls - score.controls_correct);
    Some(p_value(
        wrong_under_load,
        wrong_alone,
        control_share(score.controls, score.correct),
    ))
}

/// Number of items that were right under load to send again, at least `least`: so many that the effect is significant if
/// none of them is wrong alone, where that is possible. `fixed` is the number of items that were wrong under load and right alone.
pub(crate) fn controls_needed(fixed: u32, correct: u32, least: u32, tasks: usize) -> u32 {
    let level = ALPHA / tasks.max(1) as f64;
    // With share f of them, (1 + f)^-fixed is the probability.
    if 0.5_f64.powf(f64::from(fixed)) > level {
        return least.min(correct);
    }
    let share = (-level.ln() / f64::from(fixed)).exp_m1();
    let needed = (share * f64::from(correct)).ceil();
    // The conversion saturates.
    (needed as u32).max(least).min(correct)
}

/// Wilson's 95 % interval of a share of so many items.
///
/// Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927).
pub(crate) fn wilson_interval(share: f64, items: u32) -> [f64; 2] {
    const Z: f64 = 1.959_963_984_540_054;
    let n = f64::from(items.max(1));
    let centre = (share + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    [(centre - half).max(0.0), (centre + half).min(1.0)]
}

/// The share of right items that was sent again; all, where there is none.
fn control_share(controls: u32, correct: u32) -> f64 {
    match correct {
        0 => 1.0,
        correct => f64::from(controls) / f64::from(correct),
    }
}

fn p_value(wrong_under_load: u64, wrong_alone: u64, share: f64) -> f64 {
    if wrong_under_load == 0 {
        return 1.0;
    }
    let all = wrong_under_load + wrong_alone;
    let chance = 1.0 / (1.0 + share);
    Binomial::new(chance, all).map_or(1.0, |distribution| distribution.sf(wrong_under_load - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(items: u32, correct: u32, correct_alone: u32, controls: u32, controls_wrong: u32) -> TaskScore {
        TaskScore {
            items,
            correct,
            wrong_again: items - correct,
            correct_alone,
            controls,
            controls_correct: controls - controls_wrong,
            ..TaskScore::default()
        }
    }

    #[test]
    fn the_test_is_that_of_a_fair_coin_if_all_items_are_repeated() {
        // Ten of ten heads: 2^-10.
        let p = load_effect_p(&score(20, 10, 10, 10, 0)).unwrap();
        assert!((p - 1.0 / 1024.0).abs() < 1e-12, "{p}");
        // Two of four or more: 11/16.
        let p = load_effect_p(&score(20, 10, 2, 10, 2)).unwrap();
        assert!((p - 11.0 / 16.0).abs() < 1e-12, "{p}");
        assert_eq!(load_effect_p(&score(20, 20, 0, 10, 10)), Some(1.0));
        assert_eq!(load_effect_p(&score(20, 20, 0, 0, 0)), None);
        // All wrong under load and right alone.
        assert!(load_effect_p(&score(20, 0, 20, 0, 0)).unwrap() < 1e-5);
    }

    #[test]
    fn as_many_controls_as_a_clear_effect_needs() {
        assert_eq!(controls_needed(0, 1000, 64, 1), 64);
        assert_eq!(controls_needed(0, 10, 64, 1), 10);
        assert_eq!(controls_needed(9, 1000, 64, 1), 64);
        assert!(controls_needed(10, 1000, 64, 1) > 900);
        for fixed in [11, 20, 50, 200] {
            let controls = controls_needed(fixed, 1000, 0, 1);
            let p = p_value(u64::from(fixed), 0, control_share(controls, 1000));
            assert!(p <= ALPHA && p > ALPHA / 10.0, "{fixed}: {controls} {p}");
        }
    }

    #[test]
    fn the_interval_is_wilsons() {
        // statsmodels.stats.proportion.proportion_confint(81, 263, method="wilson")
        let [low, high] = wilson_interval(81.0 / 263.0, 263);
        assert!(
            (low - 0.255_288_7).abs() < 1e-4 && (high - 0.366_213_5).abs() < 1e-4,
            "{low} {high}"
        );
        assert_eq!(wilson_interval(0.0, 10)[0], 0.0);
        assert!(wilson_interval(1.0, 10)[1] > 1.0 - 1e-12);
    }

    /// Items that differ at random, either way, are found to be an effect of the load in at most about one of a thousand
    /// measurements, whatever their share is.
    #[test]
    fn healthy_engines_are_rarely_blamed() {
        use rand_mt::Mt64;
        let mut draws = Mt64::new(20);
        let mut next = || (draws.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        for (items, flips) in [(100, 0.02), (100, 0.1), (400, 0.05), (1000, 0.02)] {
            let mut alarms = 0;
            const RUNS: u32 = 4000;
            for _ in 0..RUNS {
                // An item is hard with probability 0.2; each answer is another one than usual with probability `flips`.
                let answers: Vec<(bool, bool)> = (0..items)
                    .map(|_| {
                        let is_easy = next() > 0.2;
                        (is_easy ^ (next() < flips), is_easy ^ (next() < flips))
                    })
                    .collect();
                let correct = answers.iter().filter(|(load, _)| *load).count() as u32;
                let fixed = answers.iter().filter(|(load, alone)| !load && *alone).count() as u32;
                let controls = controls_needed(fixed, correct, 64, 1);
                let right = answers.iter().filter(|(load, _)| *load);
                let wrong = right.take(controls as usize).filter(|(_, alone)| !alone).count() as u32;
                let p = load_effect_p(&score(items, correct, fixed, controls, wrong)).unwrap();
                alarms += u32::from(p < ALPHA);
            }
            assert!(
                f64::from(alarms) <= 3.0 * ALPHA * f64::from(RUNS),
                "{items} {flips}: {alarms}"
            );
        }
    }
}
