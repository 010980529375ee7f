use proptest::prelude::*;

use super::*;
use crate::base::ids::ContentHash;
use crate::results::record::search::{PointDoubt, PointJudgement};

fn point(value: f64, decision: PointDecision) -> Point {
    let holds = decision == PointDecision::Holds;
    Point {
        value,
        judged: PointJudgement {
            requests: 1000,
            good: if holds { 1000 } else { 0 },
            attainment: if holds { 1.0 } else { 0.0 },
            interval: [0.0, 1.0],
            holds,
            decision: Some(decision),
            doubt: None,
            after_start: None,
            severity: (decision != PointDecision::Fails).then_some(0.5),
            dispersion: Some(1.0),
            due_per_s: None,
            unreached: None,
            peak_concurrency: None,
            ran_out_s: None,
        },
        schedule_hash: ContentHash::from_bytes(b""),
        figures: Default::default(),
        failures: Default::default(),
        caches: Vec::new(),
    }
}

/// Runs a search with `shows` as the result of each point. Panics if the search does not end.
fn run_search(search: Search, mut shows: impl FnMut(f64) -> PointDecision) -> SearchRecord {
    let mut state = SloSearch::new(search);
    for _ in 0..10_000 {
        match state.next() {
            Next::Try(value) => state.add_point(point(value, shows(value))),
            Next::Finished(_) => return state.record(),
        }
    }
    panic!("the search does not end");
}

fn up_to(bound: f64) -> impl Fn(f64) -> PointDecision {
    move |value| match value <= bound {
        true => PointDecision::Holds,
        false => PointDecision::Fails,
    }
}

#[test]
fn it_doubles_repeats_the_first_failure_and_both_ends() {
    let search = Search {
        prompts: Some(100_000),
        ..Search::new(SearchVariable::Concurrency)
    };
    let record = run_search(search, up_to(23.0));
    let values: Vec<f64> = record.points.iter().map(|point| point.value).collect();
    assert_eq!(values[..7], [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 32.0]);
    let times = |value: f64| values.iter().filter(|other| **other == value).count();
    assert_eq!((times(23.0), times(24.0)), (2, 2));
    assert_eq!((record.found, record.fails_at), (Some(23.0), Some(24.0)));
    assert_eq!(record.ending, SearchStopReason::Bracketed);
    let capacity = record.capacity.unwrap();
    assert_eq!((capacity.low, capacity.high), (23.0, 24.0));
    assert_eq!(
        record.describe(),
        "the highest concurrency at which 99 % of requests meet the SLO is 23 at once, between 23 and 24 (95 % confidence, for this start)"
    );
}

#[test]
fn a_bound_outside_of_the_range_has_no_interval() {
    let usual = || Search {
        to: 10.0,
        ..Search::new(SearchVariable::Rate)
    };
    let above = run_search(usual(), up_to(100.0));
    assert_eq!(
        (above.found, above.ending, above.capacity),
        (Some(10.0), SearchStopReason::AllHeld, None)
    );
    assert!(
        above.describe().ends_with("was not found"),
        "{}",
        above.describe()
    );
    let below = run_search(usual(), up_to(0.0));
    assert_eq!(
        (below.found, below.ending, below.points.len()),
        (None, SearchStopReason::NoneHeld, 2)
    );
    assert!(below.describe().contains("even 1 req/s is too high"));
    let few = run_search(Search { points: 2, ..usual() }, up_to(100.0));
    assert_eq!(
        (few.found, few.ending),
        (Some(2.0), SearchStopReason::OutOfPoints)
    );
    assert!(
        few.describe()
            .ends_with("the points ran out, and the exact capacity was not found")
    );
}

#[test]
fn what_is_too_close_to_call_is_no_end() {
    let close = |low: f64, high: f64| {
        move |value: f64| match (value <= low, value < high) {
            (true, _) => PointDecision::Holds,
            (_, true) => PointDecision::Undecided,
            _ => PointDecision::Fails,
        }
    };
    let record = run_search(Search::new(SearchVariable::Rate), close(9.0, 13.0));
    let capacity = record.capacity.unwrap();
    assert!(capacity.low <= 9.0 && capacity.high >= 13.0, "{capacity:?}");
    assert!(
        record.describe().contains("to find the capacity more precisely"),
        "{}",
        record.describe()
    );
    let record = run_search(Search::new(SearchVariable::Rate), close(0.5, 4.0));
    assert_eq!(
        (record.ending, record.capacity),
        (SearchStopReason::Undecided, None)
    );
    let text = record.describe();
    assert!(text.contains("1 req/s is undecided: 0 of 1000"), "{text}");
}

/// A share of 100 % is not near a target of 99 %.
#[test]
fn a_load_that_every_request_met_is_undecided_for_want_of_requests() {
    let mut state = SloSearch::new(Search::new(SearchVariable::Rate));
    while let Next::Try(value) = state.next() {
        let mut undecided = point(value, PointDecision::Undecided);
        undecided.judged.good = 1000;
        undecided.judged.doubt = Some(PointDoubt::Clustered);
        state.add_point(undecided);
    }
    let record = state.record();
    let text = record.describe();
    assert!(
        text.contains(
            "1000 of 1000 requests meet the SLO, and the target is 99 %: there are too few requests"
        ),
        "{text}"
    );
    assert_eq!(
        record.describe_undecided_load().as_deref(),
        Some("undecided at 1 req/s, where 1000 of 1000 requests met it")
    );
}

/// A disturbance during one probe of an end: the other probe contradicts it, so that the level is no end.
#[test]
fn an_end_whose_second_probe_disagrees_is_none() {
    for disturbed in 1..6 {
        let mut seen = 0;
        let record = run_search(Search::new(SearchVariable::Rate), |value| {
            let is_above = value > 20.0;
            seen += usize::from(is_above);
            match is_above && seen != disturbed {
                true => PointDecision::Fails,
                false => PointDecision::Holds,
            }
        });
        let capacity = record.capacity.unwrap();
        assert!(
            capacity.low <= 20.0 && 20.0 <= capacity.high,
            "{disturbed}: {capacity:?}"
        );
    }
}

#[test]
fn a_search_that_is_not_over_was_stopped() {
    let mut state = SloSearch::new(Search::new(SearchVariable::Rate));
    assert_eq!(state.record().describe(), "no rate was measured");
    state.add_point(point(1.0, PointDecision::Holds));
    assert_eq!(state.record().ending, SearchStopReason::Stopped);
}

/// Points may agree on both ends before the search is over: where the points disagree, it looks again.
#[test]
fn a_search_that_was_stopped_has_no_capacity() {
    let mut held_back = 0;
    for seed in 0..200 {
        let mut draws = rand_mt::Mt::new(seed);
        let mut state = SloSearch::new(Search::new(SearchVariable::Rate));
        while let Next::Try(value) = state.next() {
            assert_eq!(state.record().capacity, None);
            held_back += usize::from(state.progress().interval().is_some());
            let decision = match draws.next_u32() % 10 {
                0..2 => PointDecision::Undecided,
                2 => up_to(60.0)(value),
                3 => up_to(6.0)(value),
                _ => up_to(20.0)(value),
            };
            state.add_point(point(value, decision));
        }
    }
    assert!(held_back > 0, "no interval was held back");
}

#[test]
fn a_concurrency_that_was_not_reached_ends_the_search_without_an_interval() {
    let mut state = SloSearch::new(Search::new(SearchVariable::Concurrency));
    state.add_point(point(1.0, PointDecision::Holds));
    let mut short = point(2.0, PointDecision::Undecided);
    short.judged.peak_concurrency = Some(1.0);
    state.add_point(short);
    let record = state.record();
    assert_eq!(
        (record.found, record.fails_at, record.ending),
        (Some(1.0), None, SearchStopReason::NotReached)
    );
    let text = record.describe();
    assert!(text.contains("at most 1 of the required 2 requests"), "{text}");
}

#[test]
fn a_point_whose_connections_nobody_took_ends_the_search_and_is_no_end() {
    let failed = |class: &str, count: u32| {
        let failures = serde_json::json!({ class: count });
        Point {
            failures: serde_json::from_value(failures).unwrap(),
            ..point(2.0, PointDecision::Fails)
        }
    };
    let next = |above: &Point| {
        let mut state = SloSearch::new(Search::new(SearchVariable::Concurrency));
        state.add_point(point(1.0, PointDecision::Holds));
        while let Next::Try(value) = state.next() {
            state.add_point(match value {
                1.0 => point(1.0, PointDecision::Holds),
                _ => above.clone(),
            });
        }
        state.record()
    };
    for class in ["refused", "connect"] {
        let record = next(&failed(class, 100));
        assert_eq!(
            (record.ending, record.found, record.fails_at),
            (SearchStopReason::Unanswered, Some(1.0), None)
        );
        let text = record.describe();
        assert!(
            text.contains("requests failed (") && text.contains("was not found"),
            "{text}"
        );
    }
    // An overloaded server rejects requests and is late.
    for class in ["status", "reset", "timeout-before-first"] {
        let record = next(&failed(class, 100));
        assert_eq!(
            (record.ending, record.fails_at),
            (SearchStopReason::Bracketed, Some(2.0))
        );
        let text = record.describe();
        assert!(text.contains("where 100 of 1000 requests failed"), "{text}");
    }
}

fn search() -> impl Strategy<Value = Search> {
    (prop::bool::ANY, 1u32..50, 0u32..2000, 0.001..0.5f64, 1u32..60).prop_map(
        |(is_rate, from, more, resolution, points)| Search {
            from: f64::from(from),
            to: f64::from(from + more),
            resolution,
            points,
            ..Search::new(if is_rate {
                SearchVariable::Rate
            } else {
                SearchVariable::Concurrency
            })
        },
    )
}

proptest! {
    #[test]
    fn where_points_do_not_contradict_each_other_the_interval_contains_the_bound(search in search(), bound in 0.5..4000.0f64) {
        let search = Search { points: 1000, prompts: Some(1_000_000), ..search };
        let record = run_search(search.clone(), up_to(bound));
        match record.ending {
            SearchStopReason::NoneHeld => prop_assert!(bound < search.from),
            SearchStopReason::AllHeld => prop_assert!(bound >= search.to && record.found == Some(search.to)),
            SearchStopReason::Bracketed => {
                let capacity = record.capacity.unwrap();
                prop_assert!(capacity.low <= bound && bound < capacity.high);
                prop_assert!(capacity.low <= capacity.value && capacity.value <= capacity.high);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn whatever_points_show_it_ends_within_its_points_and_its_range(
        search in search(), answers in prop::collection::vec(0..3, 64),
    ) {
        let mut answers = answers.into_iter().cycle();
        let limits = search.clone();
        let record = run_search(search, |_| match answers.next() {
            Some(0) => PointDecision::Holds,
            Some(1) => PointDecision::Fails,
            _ => PointDecision::Undecided,
        });
        prop_assert!(record.points.len() <= limits.points as usize);
        let values: Vec<f64> = record.points.iter().map(|point| point.value).collect();
        prop_assert!(values.iter().all(|value| (limits.from..=limits.to).contains(value)));
        prop_assert!(limits.by == SearchVariable::Rate || values.iter().all(|value| value.fract() == 0.0));
        if let Some((best, fails)) = record.found.zip(record.fails_at) {
            prop_assert!(best < fails);
        }
        if let Some(capacity) = record.capacity {
            let points = |value: f64| record.points.iter().filter(move |point| point.value == value);
            prop_assert!(points(capacity.low).count() >= 2 && points(capacity.low).all(|point| point.judged.holds));
            prop_assert!(points(capacity.high).count() >= 2 && points(capacity.high).all(|point| !point.judged.holds));
        }
        prop_assert!(!record.describe().is_empty());
    }
}
