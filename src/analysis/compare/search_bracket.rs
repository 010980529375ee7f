//! Checks whether the result of a search is reliable enough for a ratio to another result.

use crate::results::record::search::{SearchRecord, SearchStopReason};

/// Says why the result of a search gives no ratio: it has no bracket, or an end of the bracket rests on too
/// few requests to decide whether the target is met (five may miss it). `None` if it gives one.
pub(crate) fn unreliable_search_reason(record: &SearchRecord) -> Option<String> {
    if record.ending != SearchStopReason::Bracketed {
        return Some("the search did not bracket its result".to_owned());
    }
    if record
        .found
        .zip(record.fails_at)
        .is_none_or(|(best, fails_at)| fails_at <= best)
    {
        return Some("the value that the search found is not below the value that failed".to_owned());
    }
    let (fewest, needed) = record.few_requests()?;
    Some(format!(
        "a point that bounds the search has only {fewest} requests, and {needed:.0} are needed"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_that_contradicts_itself_gives_no_ratio() {
        let record = |best: f64, fails_at: f64| -> SearchRecord {
            serde_json::from_value(serde_json::json!({
                "by": "concurrency", "target": 0.9, "points": [], "found": best, "attainment": 1.0,
                "fails_at": fails_at, "ending": "bracketed",
            }))
            .unwrap()
        };
        assert_eq!(unreliable_search_reason(&record(4.0, 5.0)), None);
        for fails_at in [4.0, 2.0] {
            let doubt = unreliable_search_reason(&record(4.0, fails_at)).unwrap();
            assert!(doubt.contains("not below"), "{doubt}");
        }
    }
}
