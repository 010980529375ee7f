//! Checks whether the result of a search is reliable enough for a ratio to another result.

use crate::results::record::search::SearchRecord;

/// Says why the result of a search gives no ratio: it has no interval. `None` if it gives one. Searches of older
/// versions have none: they compared the attainment of one point with the target.
pub(crate) fn unreliable_search_reason(record: &SearchRecord) -> Option<String> {
    let Some(capacity) = record.capacity else {
        return Some(match record.resolution {
            Some(_) => "the search did not find both a lower and an upper limit of its result".to_owned(),
            None => {
                "the search was made by an older version of `matrix`, which gave no interval; measure again"
                    .to_owned()
            }
        });
    };
    (capacity.high <= capacity.low).then(|| {
        "the search contradicts itself: one load met the SLO, but the same or a lower load missed it"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_that_contradicts_itself_gives_no_ratio() {
        let record = |best: f64, fails_at: f64| -> SearchRecord {
            serde_json::from_value(serde_json::json!({
                "by": "concurrency", "target": 0.9, "points": [], "found": best, "attainment": 1.0,
                "fails_at": fails_at, "capacity": { "value": best, "low": best, "high": fails_at }, "ending": "bracketed",
            }))
            .unwrap()
        };
        assert_eq!(unreliable_search_reason(&record(4.0, 5.0)), None);
        for fails_at in [4.0, 2.0] {
            let doubt = unreliable_search_reason(&record(4.0, fails_at)).unwrap();
            assert!(doubt.contains("the same or a lower load missed it"), "{doubt}");
        }
    }
}
