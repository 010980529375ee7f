use super::*;
use crate::base::units::HumanDuration;
use crate::config::scenario::Slo;
use crate::config::search::{Search, SearchVariable};
use crate::report::testing::Case;
use crate::results::record::search::SearchStopReason;
use crate::results::record::validity::Verdict;

/// The record of a search that found this value, low and high, or none.
fn record(found: Option<[f64; 3]>) -> SearchRecord {
    SearchRecord {
        by: SearchVariable::Rate,
        target: 0.95,
        resolution: None,
        points: Vec::new(),
        found: found.map(|[_, low, _]| low),
        attainment: None,
        fails_at: found.map(|[_, _, high]| high),
        capacity: found.map(|[value, low, high]| Capacity { value, low, high }),
        ending: match found {
            Some(_) => SearchStopReason::Bracketed,
            None => SearchStopReason::Stopped,
        },
        further_tiers: Vec::new(),
        reported: None,
    }
}

/// A cell on `gpus` GPUs with the search of each start.
fn case(gpus: u32, starts: &[Option<[f64; 3]>]) -> Case {
    let mut case = Case::new("vllm@0.10.1", "bf16", gpus, 5000.0);
    for _ in 1..starts.len() {
        case = case.measured_again(5000.0);
    }
    case.cell.scenario.search = Some(Search::new(SearchVariable::Rate));
    case.cell.scenario.slo = Some(Slo {
        ttft: Some(HumanDuration::from_secs(1)),
        ..Slo::default()
    });
    for ((summary, found), start) in case.summaries.iter_mut().zip(starts).zip(1..) {
        (summary.start, summary.repeat) = (start, 1);
        summary.search = Some(record(*found));
    }
    case
}

fn only_tier(case: &Case) -> TierCapacity {
    let mut tiers = tier_capacities(&case.report_cell());
    assert_eq!(tiers.len(), 1, "{tiers:?}");
    tiers.remove(0)
}

#[test]
fn three_starts_have_a_capacity_with_the_interval_over_starts() {
    let case = case(
        2,
        &[
            Some([10.0, 9.0, 11.0]),
            Some([10.5, 9.5, 11.5]),
            Some([9.5, 9.0, 10.5]),
        ],
    );
    let tier = only_tier(&case);
    let capacity = tier.capacity.expect("all starts have one");
    assert_eq!((capacity.starts, capacity.confidence), (3, 0.95));
    assert!(
        9.0 <= capacity.low && capacity.low < capacity.value && capacity.value < capacity.high,
        "{capacity:?}"
    );
    let per_gpu = tier.per_gpu.expect("the GPUs are known");
    assert_eq!(
        [per_gpu.value, per_gpu.low, per_gpu.high],
        [capacity.value, capacity.low, capacity.high].map(|value| value / 2.0)
    );
    assert_eq!(tier.figure, "found_rate_req_s");
    let text = search_value(&case.report_cell()).to_string();
    assert!(text.ends_with("per GPU over 3 starts"), "{text}");
}

#[test]
fn the_capacity_is_that_of_the_starts_that_count() {
    let sound = [[10.0, 9.0, 11.0], [10.5, 9.5, 11.5], [9.5, 9.0, 10.5]].map(Some);
    let mut case = case(1, &[&sound[..], &[Some([90.0, 80.0, 100.0])]].concat());
    case.summaries[3].validity.get_or_insert_default().verdict = Verdict::Invalid;
    let tier = only_tier(&case);
    assert_eq!(tier.searches.len(), 4, "each is listed");
    let capacity = tier.capacity.expect("the others have one");
    assert_eq!(capacity.starts, 3);
    let of_sound = only_tier(&self::case(1, &sound)).capacity;
    assert_eq!(Some(capacity.value), of_sound.map(|found| found.value));
}

/// The starts that have a capacity are those that were slow enough, or quick enough, to show one.
#[test]
fn a_start_without_a_capacity_leaves_none_for_all() {
    let known = Some([10.0, 9.0, 11.0]);
    let case = case(1, &[known, known, known, None]);
    let tier = only_tier(&case);
    assert_eq!((tier.capacity, tier.per_gpu), (None, None));
    assert_eq!(tier.searches.len(), 4);
    let text = search_value(&case.report_cell()).to_string();
    assert!(
        text.starts_with("3 of 4 starts found the exact capacity: 10 req/s [9 .. 11] | ")
            && text.ends_with(" | no load was shown to meet the SLO; the exact capacity was not found"),
        "{text}"
    );
}

/// Too few requests decide nothing, even if each of them met the SLO.
#[test]
fn an_undecided_load_is_not_one_that_missed_the_slo() {
    let mut case = case(1, &[None]);
    let point = serde_json::json!({
        "value": 32.0, "schedule_hash": crate::base::ids::ContentHash::from_bytes(b""), "figures": {},
        "judged": {
            "requests": 146, "good": 146, "attainment": 1.0, "interval": [0.88, 1.0], "holds": false,
            "decision": "undecided", "doubt": "near-target",
        },
    });
    let record = case.summaries[0].search.as_mut().expect("it searches");
    record.points = vec![serde_json::from_value(point).expect("it is a point of an older version")];
    assert_eq!(
        search_value(&case.report_cell()).to_string(),
        "no load was shown to meet the SLO: undecided at 32 req/s, where 146 of 146 requests met it"
    );
}

#[test]
fn one_start_has_its_own_and_two_starts_share_none() {
    let known = Some([10.0, 9.0, 11.0]);
    let single = only_tier(&case(1, &[known]));
    let capacity = single.capacity.expect("the start has one");
    assert_eq!((capacity.starts, [capacity.low, capacity.high]), (1, [9.0, 11.0]));
    let pair = only_tier(&case(1, &[known, known]));
    assert_eq!(pair.capacity, None);
    assert!(pair.searches.iter().all(|search| search.capacity.is_some()));
}
