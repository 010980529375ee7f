//! Tests of single decisions.

use super::*;

const LEVEL: [f64; 5] = [100.0, 100.6, 99.5, 100.2, 99.8];

fn sample(values: &[f64]) -> Sample {
    let starts: Vec<Vec<f64>> = values.iter().map(|value| vec![*value]).collect();
    Sample::from_starts(&starts).unwrap()
}

fn question(baseline: &[f64], candidate: &[f64]) -> MetricQuestion {
    MetricQuestion {
        better: Direction::Higher,
        baseline: sample(baseline),
        candidate: sample(candidate),
        design: Design::Separate,
        noise: None,
        night_variance: None,
        no_verdict: None,
    }
}

fn scaled_level(by: f64) -> [f64; 5] {
    LEVEL.map(|value| value * by)
}

fn decide_alone(question: MetricQuestion) -> Answer {
    let options = DecisionOptions {
        bound: 0.02,
        family: 0,
    };
    decide(&[question], &options).remove(0)
}

#[test]
fn four_things_can_be_said_and_each_says_why() {
    let word_and_reason = |answer: &Answer| (answer.verdict_word(), answer.reason());
    let worse = decide_alone(question(&LEVEL, &scaled_level(0.94)));
    assert_eq!(
        word_and_reason(&worse),
        (
            "worse",
            "-6.0 % is beyond the bound of 2.0 %, and chance does not explain it (p < 0.0001)".to_owned()
        )
    );
    assert_eq!(
        decide_alone(question(&LEVEL, &scaled_level(1.06))).verdict_word(),
        "better"
    );
    let same = decide_alone(question(&LEVEL, &scaled_level(0.998)));
    assert_eq!(
        word_and_reason(&same),
        (
            "same",
            "the 90 % interval of the change, -0.7 % to +0.3 %, is within the bound of 2.0 %".to_owned()
        )
    );
    let unclear = decide_alone(question(
        &[100.0, 108.0, 93.0, 101.0, 98.0],
        &[97.0, 104.0, 91.0, 99.0, 94.0],
    ));
    assert_eq!(unclear.verdict_word(), "unclear");
    assert!(
        unclear
            .reason()
            .contains("is beyond the bound of 2.0 %, but chance may explain it")
            && unclear.reason().contains("with 5 and 5 starts on")
            && unclear.reason().contains("starts per side would"),
        "{}",
        unclear.reason()
    );
}

#[test]
fn less_is_better_for_times() {
    let mut times = question(&LEVEL, &scaled_level(0.94));
    times.better = Direction::Lower;
    assert_eq!(decide_alone(times).verdict_word(), "better");
}

#[test]
fn a_certain_change_within_the_bound_is_the_same_or_unclear_and_never_worse() {
    let tight = [100.0, 100.1, 99.9, 100.05, 99.95];
    let answer = decide_alone(question(&tight, &tight.map(|value| value * 0.985)));
    assert_eq!(answer.verdict_word(), "same", "{}", answer.reason());
    let answer = decide_alone(question(&LEVEL, &scaled_level(0.981)));
    assert_eq!(answer.verdict_word(), "unclear", "{}", answer.reason());
    assert!(answer.reason().contains("90 % interval"), "{}", answer.reason());
}

#[test]
fn a_noisy_host_never_turns_a_loss_into_the_same() {
    for share in [0.005, 0.01, 0.03, 0.08, 0.2] {
        let mut lost = question(&LEVEL, &scaled_level(0.94));
        lost.noise = Some(KnownNoise {
            sigma: share,
            df: 9.0,
        });
        let word = decide_alone(lost).verdict_word();
        assert!(matches!(word, "worse" | "unclear"), "{share}: {word}");
        let mut equal = question(&LEVEL, &LEVEL);
        equal.noise = Some(KnownNoise {
            sigma: share,
            df: 9.0,
        });
        let word = decide_alone(equal).verdict_word();
        assert_eq!(word, if share < 0.012 { "same" } else { "unclear" }, "{share}");
    }
}

#[test]
fn quiet_noise_of_earlier_never_makes_todays_starts_quieter_than_they_are() {
    let loud = [100.0, 112.0, 91.0, 105.0, 95.0];
    let low = loud.map(|value| value * 0.93);
    let precision = |noise| {
        let mut question = question(&loud, &low);
        question.noise = noise;
        decide_alone(question).estimate.unwrap().precision.unwrap()
    };
    let (alone, with) = (
        precision(None),
        precision(Some(KnownNoise {
            sigma: 0.001,
            df: 9.0,
        })),
    );
    assert!((alone.sigma - with.sigma).abs() < 1e-12, "{alone:?} {with:?}");
}

#[test]
fn too_few_starts_are_described_and_not_judged() {
    for (first, second) in [(1, 1), (2, 2), (3, 3), (4, 5), (5, 4)] {
        let answer = decide_alone(question(&LEVEL[..first], &scaled_level(0.5)[..second]));
        assert!(
            matches!(&answer.outcome, Outcome::NotJudged(NoVerdict::TooFewStarts(why)) if why.contains("five starts on each side")),
            "{answer:?}"
        );
        assert_eq!((answer.verdict_word(), answer.family), ("not judged", 0));
        assert!((answer.estimate.unwrap().change() + 0.5).abs() < 0.01);
    }
    let known = |starts: usize, df| {
        let mut question = question(&LEVEL[..starts], &scaled_level(0.9)[..starts]);
        question.noise = Some(KnownNoise { sigma: 0.006, df });
        decide_alone(question)
    };
    assert_eq!(known(3, 9.0).verdict_word(), "worse");
    assert_eq!(known(3, 3.0).verdict_word(), "not judged");
    assert!(
        known(2, 9.0).reason().contains("three starts on each side"),
        "{}",
        known(2, 9.0).reason()
    );
    assert!(known(1, 9.0).estimate.unwrap().interval(0.95).is_some());
}

#[test]
fn what_is_missing_or_not_comparable_is_not_judged_and_no_part_of_the_family() {
    let mut other_driver = question(&LEVEL, &scaled_level(0.5));
    other_driver.no_verdict = Some(NoVerdict::NotComparable(
        "environment driver: 550 → 560".to_owned(),
    ));
    let questions = [
        other_driver,
        question(&[], &LEVEL),
        question(&LEVEL, &scaled_level(0.9)),
    ];
    let options = DecisionOptions {
        bound: 0.02,
        family: 0,
    };
    let answers = decide(&questions, &options);
    let words: Vec<&str> = answers.iter().map(Answer::verdict_word).collect();
    assert_eq!(words, ["not judged", "not judged", "worse"]);
    assert_eq!(answers[0].reason(), "environment driver: 550 → 560");
    assert!(answers[1].reason().contains("the baseline has no usable start"));
    assert!(answers.iter().all(|answer| answer.family == 1));
    let larger = decide(
        &questions,
        &DecisionOptions {
            family: 300,
            ..options
        },
    );
    assert_eq!(larger[2].family, 300);
}

#[test]
fn many_looks_are_corrected_for() {
    let lost = [98.5, 94.8, 95.0, 97.0, 97.3];
    let one = question(&[100.0, 102.5, 98.5, 101.0, 99.0], &lost);
    assert_eq!(decide_alone(one.clone()).verdict_word(), "worse");
    let mut family = vec![one];
    family.extend((0..60).map(|_| question(&LEVEL, &LEVEL)));
    let options = DecisionOptions {
        bound: 0.02,
        family: 0,
    };
    assert_eq!(decide(&family, &options)[0].verdict_word(), "unclear");
}

#[test]
fn starts_that_do_not_vary_at_all_leave_a_chance_above_zero() {
    let answer = decide_alone(question(&[100.0; 5], &[97.0; 5]));
    let p = answer.estimate.unwrap().precision.unwrap().p;
    assert!(p > 0.0 && answer.verdict_word() == "worse", "{p}");
    assert_eq!(
        decide_alone(question(&[100.0; 5], &[100.0; 5])).verdict_word(),
        "same"
    );
}

#[test]
fn a_step_of_a_grid_is_no_finding_and_widens_what_is_said() {
    // One step of a search that knows its limit to 4.4 %.
    let step = |resolution: f64| {
        let mut question = question(&[76.61; 5], &[73.36; 5]);
        question.baseline.resolution = resolution;
        question.candidate.resolution = resolution;
        decide_alone(question)
    };
    assert_eq!(step(0.0).verdict_word(), "worse");
    let answer = step(0.0222);
    assert_eq!(answer.verdict_word(), "unclear", "{}", answer.reason());
    let interval = answer.estimate.unwrap().interval(0.95).unwrap();
    assert!(interval.high > 0.0 && interval.low < -0.08, "{interval:?}");
    assert_eq!(answer.starts_to_decide(), None);
}

#[test]
fn later_starts_widen_what_the_first_told_where_a_rule_looked_at_them_and_do_not_narrow_it() {
    let mut until = question(
        &[100.0, 101.0, 99.0, 100.5, 99.5, 130.0],
        &[100.0, 101.0, 99.0, 100.5, 99.5],
    );
    until.baseline.first_stage = Some(5);
    until.candidate.first_stage = Some(5);
    let sigma = |later: f64| {
        let mut until = until.clone();
        until.baseline.logs[5] = later.ln();
        let precision = decide_alone(until).estimate.unwrap().precision.unwrap();
        assert_eq!(precision.df, 8.0, "{precision:?}");
        precision.sigma
    };
    assert!(
        sigma(100.0) > 0.007 && sigma(100.0) < 0.009,
        "an even one does not narrow it"
    );
    assert!(sigma(130.0) > 0.05, "one that lies far off widens it");
}

#[test]
fn rounds_are_compared_round_by_round() {
    let drift = [1.0, 1.1, 0.9, 1.2, 0.8];
    let first: Vec<f64> = LEVEL.iter().zip(drift).map(|(value, by)| value * by).collect();
    let second: Vec<f64> = scaled_level(0.94)
        .iter()
        .zip(drift)
        .map(|(value, by)| value * by)
        .collect();
    let mut paired = question(&first, &second);
    assert_eq!(decide_alone(paired.clone()).verdict_word(), "unclear");
    paired.design = Design::Rounds;
    let answer = decide_alone(paired);
    assert_eq!(answer.verdict_word(), "worse", "{}", answer.reason());
    assert_eq!(answer.estimate.unwrap().precision.unwrap().df, 4.0);
}

#[test]
fn a_variance_between_nights_counts_beside_that_of_starts() {
    let mut nights = question(&LEVEL, &scaled_level(0.94));
    nights.night_variance = Some(Variance {
        value: 0.03f64.powi(2),
        df: 20.0,
    });
    let answer = decide_alone(nights);
    assert_eq!(answer.verdict_word(), "unclear", "{}", answer.reason());
    let precision = answer.estimate.unwrap().precision.unwrap();
    assert!(precision.error > 0.03 && precision.df > 20.0, "{precision:?}");
}

#[test]
fn value_change_and_interval_come_from_one_estimator() {
    let skewed = question(
        &[100.0, 100.0, 100.0, 100.0, 40.0],
        &[100.0, 100.0, 100.0, 100.0, 100.0],
    );
    let (first, second) = (
        skewed.baseline.value().unwrap(),
        skewed.candidate.value().unwrap(),
    );
    let estimate = decide_alone(skewed).estimate.unwrap();
    assert!((second / first - 1.0 - estimate.change()).abs() < 1e-12);
    assert!(estimate.interval(0.95).unwrap().contains(estimate.change()));
}

#[test]
fn as_many_starts_as_would_decide_do_decide() {
    let wide = [100.0, 103.0, 97.5, 101.0, 98.5];
    let answer = decide_alone(question(&wide, &wide.map(|value| value * 1.001)));
    let wanted = answer.starts_to_decide().unwrap();
    assert!(answer.verdict_word() == "unclear" && wanted > 5, "{wanted}");
    let many: Vec<f64> = (0..wanted).map(|at| wide[at % 5]).collect();
    let more: Vec<f64> = many.iter().map(|value| value * 1.001).collect();
    assert_eq!(decide_alone(question(&many, &more)).verdict_word(), "same");
    // A loss of the visible size is found.
    let visible = decide_alone(question(&LEVEL, &LEVEL))
        .smallest_detectable_loss()
        .unwrap();
    assert_eq!(
        decide_alone(question(&LEVEL, &scaled_level(1.0 - visible))).verdict_word(),
        "worse"
    );
}

#[test]
fn a_start_without_a_value_above_zero_has_no_logarithm() {
    assert_eq!(Sample::from_starts(&[vec![1.0], vec![0.0]]), None);
    assert_eq!(Sample::from_starts(&[vec![f64::NAN]]), None);
    assert_eq!(Sample::from_starts(&[vec![1.0], vec![]]).unwrap().logs, [0.0]);
    let repeats = Sample::from_starts(&[vec![1.0, std::f64::consts::E]]).unwrap();
    assert!((repeats.logs[0] - 0.5).abs() < 1e-12);
}

#[test]
fn one_figure_that_collapses_hides_no_certain_loss_of_another() {
    let quiet = LEVEL.map(|value| 100.0 + 0.5 * (value - 100.0));
    let lost = question(&quiet, &quiet.map(|value| value * 0.93));
    let mut goodput = question(&LEVEL, &[100.0, 100.0, 100.0, 2.5, 2.5]);
    goodput.baseline.counting_variance = Some(0.0);
    goodput.candidate.counting_variance = Some(0.1);
    let options = DecisionOptions {
        bound: 0.02,
        family: 0,
    };
    let interval = |answer: &Answer| answer.estimate.unwrap().interval(0.95).unwrap();
    let expected = interval(&decide_alone(lost.clone()));
    let answers = decide(&[lost.clone(), goodput.clone()], &options);
    assert_eq!(answers[0].verdict_word(), "worse", "{}", answers[0].reason());
    assert_eq!(interval(&answers[0]), expected);
    // A metric that is no count may have such starts, too. It only widens the intervals.
    goodput.baseline.counting_variance = None;
    goodput.candidate.counting_variance = None;
    let answers = decide(&[lost, goodput.clone()], &options);
    assert_eq!(answers[0].verdict_word(), "worse", "{}", answers[0].reason());
    let answers = decide(&[question(&quiet, &quiet), goodput], &options);
    assert_eq!(answers[0].verdict_word(), "same", "{}", answers[0].reason());
}

#[test]
fn neighbours_on_the_grid_of_a_search_are_no_change_however_coarse_it_is() {
    // Value found and first value that failed: 64 and 68 against 60 and 64; 64 and 72 against 56 and 64.
    for (baseline, candidate) in [((64.0, 68.0), (60.0, 64.0)), ((64.0, 72.0), (56.0, 64.0))] {
        let side = |(searched, fails_at): (f64, f64)| Sample {
            resolution: (fails_at / searched).sqrt() - 1.0,
            ..sample(&[searched; 5])
        };
        let mut searched = question(&LEVEL, &LEVEL);
        (searched.baseline, searched.candidate) = (side(baseline), side(candidate));
        let answer = decide_alone(searched);
        assert_eq!(answer.verdict_word(), "unclear", "{}", answer.reason());
    }
}
