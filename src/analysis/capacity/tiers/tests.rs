use super::*;
use crate::config::search::SearchVariable;
use crate::results::record::search::PointJudgement;

/// A point whose tiers hold up to these values. A point is decided for the tier that it is measured for, and for others only if
/// they lie far from it.
fn judged(next: NextPoint, capacities: &[f64]) -> Vec<Point> {
    let judge = |(tier, capacity): (usize, &f64)| {
        let is_far = !(0.5..2.0).contains(&(next.value / capacity));
        let decision = match (tier == next.tier || is_far, next.value <= *capacity) {
            (false, _) => PointDecision::Undecided,
            (true, true) => PointDecision::Holds,
            (true, false) => PointDecision::Fails,
        };
        let judged: PointJudgement = serde_json::from_value(serde_json::json!({
            "requests": 1000, "good": 990, "attainment": 0.99, "interval": [0.98, 1.0],
            "holds": decision == PointDecision::Holds, "decision": decision,
            "severity": next.value / capacity, "dispersion": 1.0,
        }))
        .unwrap();
        Point {
            value: next.value,
            judged,
            schedule_hash: crate::base::ids::ContentHash::from_bytes(b""),
            figures: Default::default(),
            failures: Default::default(),
            caches: Vec::new(),
        }
    };
    capacities.iter().enumerate().map(judge).collect()
}

#[test]
fn every_tier_gets_its_capacity_from_shared_points() {
    let search = Search {
        prompts: Some(100_000),
        ..Search::new(SearchVariable::Rate)
    };
    let capacities = [100.0, 30.0, 7.0];
    let run = |capacities: &[f64]| {
        let mut state = TieredSearch::new(&search, capacities.len());
        let mut points = 0;
        while let Some(next) = state.next() {
            state.add_point(next.tier, judged(next, capacities));
            points += 1;
        }
        (state.record(), points)
    };
    let (record, shared) = run(&capacities);
    for ((_, record), truth) in record.tiers().zip(capacities) {
        let found = record.capacity.unwrap_or_else(|| panic!("{record:?}"));
        assert!(found.low <= truth && truth <= found.high, "{truth}: {found:?}");
    }
    assert_eq!(record.tiers().count(), 3);
    let alone: usize = capacities.iter().map(|capacity| run(&[*capacity]).1).sum();
    assert!(shared < alone, "{shared} points instead of {alone}");
}
