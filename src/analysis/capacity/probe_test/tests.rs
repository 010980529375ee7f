use super::*;

fn outcomes(count: usize, severity: impl Fn(usize) -> f64) -> Vec<ProbeOutcome> {
    let outcome = |place| ProbeOutcome {
        severity: severity(place),
        in_flight: 0.0,
    };
    (0..count).map(outcome).collect()
}

fn decision(outcomes: &[ProbeOutcome], target: f64) -> ProbeDecision {
    judge(outcomes, target)
        .expect("there are enough requests")
        .decision
}

/// Severities without order: every 89th of 97 places apart.
fn scattered(place: usize) -> f64 {
    (place * 89 % 97) as f64 / 97.0
}

#[test]
fn few_requests_show_nothing() {
    assert_eq!(judge(&outcomes(70, |_| 0.1), 0.9), None);
    let holding = |count| decision(&outcomes(count, scattered), 0.99);
    assert_eq!(holding(400), ProbeDecision::Undecided);
    assert_eq!(holding(900), ProbeDecision::Holds);
}

/// As many good requests as there are leave room for misses that did not come: about 4 in so many, as by the rule of three.
#[test]
fn a_share_of_all_requests_has_an_interval() {
    let estimate = judge(&outcomes(900, scattered), 0.99).expect("there are enough requests");
    let [low, high] = estimate.interval(900, 900);
    assert!(0.99 < low && low < 1.0 - 3.0 / 900.0, "{low}");
    assert_eq!(high, 1.0);
}

#[test]
fn misses_beyond_chance_fail() {
    let every = |nth: usize| {
        move |place: usize| {
            if place.is_multiple_of(nth) {
                2.0
            } else {
                scattered(place)
            }
        }
    };
    assert_eq!(decision(&outcomes(2000, every(7)), 0.95), ProbeDecision::Fails);
    assert_eq!(decision(&outcomes(2000, every(101)), 0.95), ProbeDecision::Holds);
    assert_eq!(
        decision(&outcomes(1000, every(20)), 0.95),
        ProbeDecision::Undecided
    );
    assert_eq!(
        decision(&outcomes(200, |_| f64::INFINITY), 0.95),
        ProbeDecision::Fails
    );
}

/// The same share of misses, which come one by one or all together: together, they are one event.
#[test]
fn misses_that_come_together_decide_less() {
    let apart = outcomes(3200, |place| if place % 10 == 5 { 2.0 } else { scattered(place) });
    let together = outcomes(3200, |place| {
        if (1000..1320).contains(&place) {
            2.0
        } else {
            scattered(place)
        }
    });
    let (apart, together) = (judge(&apart, 0.95).unwrap(), judge(&together, 0.95).unwrap());
    assert_eq!(apart.decision, ProbeDecision::Fails);
    assert_eq!(together.decision, ProbeDecision::Undecided);
    assert_eq!((apart.doubt, together.doubt), (None, Some(Doubt::TooFew)));
    let [low, high] = together.interval(2880, 3200);
    assert!(low < 0.85 && 0.95 < high, "{low} {high}");
    let [low, high] = apart.interval(2880, 3200);
    assert!(0.88 < low && high < 0.92, "{low} {high}");
}

/// Every request meets the SLO, but slow ones come together: nothing is near the target.
#[test]
fn only_a_share_near_the_target_is_called_near() {
    let doubt = |count: usize, severity: &dyn Fn(usize) -> f64| {
        let estimate = judge(&outcomes(count, severity), 0.9).expect("there are enough requests");
        (
            estimate.decision,
            estimate.doubt,
            [estimate.judged, estimate.judged_good],
        )
    };
    let all_good = |place: usize| match place {
        100..116 => 0.85 + 0.005 * (place - 100) as f64,
        _ => 0.6,
    };
    assert_eq!(
        doubt(146, &all_good),
        (ProbeDecision::Undecided, Some(Doubt::TooFew), [128, 128])
    );
    let near = |place: usize| if place % 11 == 5 { 2.0 } else { 0.6 };
    let (decision, why, _) = doubt(400, &near);
    assert_eq!(
        (decision, why),
        (ProbeDecision::Undecided, Some(Doubt::NearTarget))
    );
}

/// More requests miss than may by chance, but latencies change slowly.
#[test]
fn what_misses_beyond_chance_but_changes_slowly_is_not_near_the_target() {
    let waves = |place: usize| 0.9 + 0.4 * (place as f64 / 60.0).sin();
    let estimate = judge(&outcomes(3200, waves), 0.9).expect("there are enough requests");
    assert_eq!(
        (estimate.decision, estimate.doubt),
        (ProbeDecision::Undecided, Some(Doubt::Unsettled))
    );
}

#[test]
fn a_queue_that_grows_does_not_hold() {
    let growing = |place: usize| 0.2 + 0.7 * place as f64 / 4000.0 + 0.05 * scattered(place);
    assert_eq!(decision(&outcomes(4000, growing), 0.95), ProbeDecision::Undecided);
    let doubt = judge(&outcomes(4000, growing), 0.95).and_then(|estimate| estimate.doubt);
    assert_eq!(doubt, Some(Doubt::Growing));
    assert_eq!(
        decision(&outcomes(4000, |place| 0.9 * scattered(place)), 0.95),
        ProbeDecision::Holds
    );
}

/// The time of each request is its own, but the number in flight shows that the batches are short next to the
/// fluctuations of the load.
#[test]
fn requests_in_flight_that_change_slowly_ask_for_longer_probes() {
    let with = |period: usize| {
        let outcome = |place: usize| ProbeOutcome {
            severity: scattered(place),
            in_flight: if (place / period).is_multiple_of(2) {
                3.0
            } else {
                9.0
            },
        };
        decision(&(0..4000).map(outcome).collect::<Vec<_>>(), 0.95)
    };
    assert_eq!(with(1), ProbeDecision::Holds);
    assert_eq!(with(300), ProbeDecision::Undecided);
}

/// In a closed loop no queue grows, so that slow changes matter only where they could reach the limit.
#[test]
fn slow_changes_far_below_the_limit_hold_in_a_closed_loop() {
    let at = |level: f64| {
        let outcome = |place: usize| ProbeOutcome {
            severity: level + 0.04 * (place as f64 / 40.0).sin(),
            in_flight: 1.0,
        };
        decision(&(0..80).map(outcome).collect::<Vec<_>>(), 0.5)
    };
    assert_eq!(at(0.8), ProbeDecision::Holds);
    assert_eq!(at(0.95), ProbeDecision::Undecided);
}
