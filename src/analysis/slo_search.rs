//! Chooses the next point of a search and judges whether a point holds. All functions are pure: nothing is
//! measured here.

use crate::analysis::metrics;
use crate::config::scenario::Slo;
use crate::config::search::{Search, SearchVariable};
use crate::config::validity::ValidityBounds;
use crate::results::record::request::{Request, judged_requests};
use crate::results::record::search::{Point, PointJudgement, SearchRecord, SearchStopReason, UnreachedRate};

/// Two-sided 95 % quantile of the normal distribution.
const Z_95: f64 = 1.959_963_984_540_054;
/// Fewest requests for which a rate is meaningful.
const MIN_REQUESTS: usize = 8;
/// Significant digits of a rate between two measured ones.
const ROUNDED_DIGITS: i32 = 4;

/// Judges whether enough requests met the SLO, counted from when they were due. Failed requests are misses; requests that the client cancelled as
/// planned are not judged. A
/// point without requests does not hold. A rate that was not reached does not hold either, because another
/// load was measured.
pub(crate) fn judge(requests: &[Request], slo: &Slo, search: &Search) -> PointJudgement {
    let total = judged_requests(requests);
    let good = metrics::good_requests(requests, slo);
    let attainment = if total == 0 {
        0.0
    } else {
        good as f64 / total as f64
    };
    let rates = metrics::request_rates(requests)
        .filter(|_| search.by == SearchVariable::Rate && total >= MIN_REQUESTS);
    let is_reached =
        rates.is_none_or(|rates| rates.sent >= rates.due * (1.0 - ValidityBounds::default().rate));
    PointJudgement {
        requests: total as u64,
        good: good as u64,
        attainment,
        interval: wilson_interval(good as f64, total as f64),
        due_per_s: (search.by == SearchVariable::Rate)
            .then(|| due_per_s(requests, search))
            .flatten(),
        holds: total > 0 && attainment >= search.target && is_reached,
        unreached: rates.filter(|_| !is_reached).map(|rates| UnreachedRate {
            due_per_s: rates.due,
            sent_per_s: rates.sent,
        }),
        peak_concurrency: None,
        ran_out_s: None,
    }
}

/// Judges a point at a concurrency. `peak` is the highest number of requests in flight. A concurrency that
/// was not reached does not hold.
pub(crate) fn judge_concurrency(judged: PointJudgement, value: f64, peak: f64) -> PointJudgement {
    let is_reached = peak >= value * (1.0 - ValidityBounds::default().rate);
    PointJudgement {
        holds: judged.holds && is_reached,
        peak_concurrency: (!is_reached).then_some(peak),
        ..judged
    }
}

/// Returns the rate at which requests were due: over the duration of the point if it has one, otherwise over
/// the gaps between the requests.
fn due_per_s(requests: &[Request], search: &Search) -> Option<f64> {
    let seconds = search.duration.map(|duration| duration.duration().as_secs_f64());
    match seconds.filter(|seconds| *seconds > 0.0) {
        Some(seconds) => (!requests.is_empty()).then(|| requests.len() as f64 / seconds),
        None => metrics::request_rates(requests).map(|rates| rates.due),
    }
}

/// Returns the Wilson score interval of the share `good / all`.
fn wilson_interval(good: f64, total: f64) -> [f64; 2] {
    if total == 0.0 {
        return [0.0, 1.0];
    }
    let share = good / total;
    let scale = 1.0 + Z_95 * Z_95 / total;
    let middle = (share + Z_95 * Z_95 / (2.0 * total)) / scale;
    let half = Z_95 * (share * (1.0 - share) / total + Z_95 * Z_95 / (4.0 * total * total)).sqrt() / scale;
    [(middle - half).max(0.0), (middle + half).min(1.0)]
}

/// State of a search. It doubles the value until a point fails, then bisects between the highest value that
/// held and the lowest that failed.
///
/// Each point ends the search or moves one of these two values, so the search always ends.
#[derive(Clone, Debug)]
pub(crate) struct SloSearch {
    search: Search,
    points: Vec<Point>,
    /// Index of the highest point that held.
    best: Option<usize>,
    fails_at: Option<f64>,
    /// Why the search ended early at a point that does not judge its value: a warm cache, too few prompts, a
    /// concurrency that was not reached, or a server that does not answer. Further points would end the same
    /// way.
    ended: Option<SearchStopReason>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Next {
    Try(f64),
    Finished(SearchStopReason),
}

impl SloSearch {
    /// Starts a search. It must have no [error](Search::find_error).
    pub(crate) const fn new(search: Search) -> Self {
        Self {
            search,
            points: Vec::new(),
            best: None,
            fails_at: None,
            ended: None,
        }
    }

    pub(crate) fn next(&self) -> Next {
        if let Some(ending) = self.ended {
            return Next::Finished(ending);
        }
        let Search { from, to, points, .. } = self.search;
        let passing = self.best.map(|best| self.points[best].value);
        let value = match (passing, self.fails_at) {
            (None, None) => Some(from),
            (None, Some(_)) => return Next::Finished(SearchStopReason::NoneHeld),
            (Some(passing), None) if passing >= to => return Next::Finished(SearchStopReason::AllHeld),
            (Some(passing), None) => Some((passing * 2.0).min(to)),
            (Some(passing), Some(fails)) => self.midpoint(passing, fails),
        };
        match value {
            None => Next::Finished(SearchStopReason::Bracketed),
            Some(_) if self.points.len() >= points as usize => Next::Finished(SearchStopReason::OutOfPoints),
            Some(value) => Next::Try(value),
        }
    }

    /// Returns a value between the two. `None` if they are closer than the resolution or no value lies
    /// between them.
    fn midpoint(&self, passing: f64, failing: f64) -> Option<f64> {
        if failing <= passing * (1.0 + self.search.resolution) {
            return None;
        }
        let value = match self.search.by {
            SearchVariable::Concurrency => f64::midpoint(passing, failing).floor(),
            // The geometric mean, because the resolution is a ratio.
            SearchVariable::Rate => round_value((passing * failing).sqrt()),
        };
        (passing < value && value < failing).then_some(value)
    }

    /// Adds the result of the point at the value that [`SloSearch::next`] returned.
    pub(crate) fn add_point(&mut self, point: Point) {
        // A point that misses the SLO with fewer requests in flight would also miss it at the full
        // concurrency.
        let holds_with_fewer = point.judged.attainment >= self.search.target;
        if point.has_warm_cache() {
            self.ended = Some(SearchStopReason::CacheWarm);
        } else if point.is_unanswered() {
            self.ended = Some(SearchStopReason::Unanswered);
        } else if point.judged.peak_concurrency.is_some() && holds_with_fewer {
            self.ended = Some(SearchStopReason::NotReached);
        } else if point.judged.holds {
            self.best = Some(self.points.len());
        } else if point.judged.ran_out_s.is_some() {
            self.ended = Some(SearchStopReason::OutOfPrompts);
        } else {
            self.fails_at = Some(point.value);
        }
        self.points.push(point);
    }

    /// Everything measured so far, and what it comes to. A search that is not over was stopped.
    pub(crate) fn record(&self) -> SearchRecord {
        let best = self.best.map(|best| &self.points[best]);
        SearchRecord {
            by: self.search.by,
            target: self.search.target,
            points: self.points.clone(),
            found: best.map(|point| point.value),
            attainment: best.map(|point| point.judged.attainment),
            fails_at: self.fails_at,
            ending: match self.next() {
                Next::Finished(ending) => ending,
                Next::Try(_) => SearchStopReason::Stopped,
            },
            reported: None,
        }
    }
}

fn round_value(value: f64) -> f64 {
    let scale = 10f64.powi(ROUNDED_DIGITS - 1 - value.log10().floor() as i32);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::ids::ContentHash;
    use crate::base::units::HumanDuration;

    fn request(ttft_ms: Option<u64>) -> Request {
        let failure = match ttft_ms {
            Some(_) => serde_json::Value::Null,
            None => serde_json::json!({"class": "reset", "message": ""}),
        };
        let at = ttft_ms.unwrap_or(0) * 1_000_000;
        serde_json::from_value(serde_json::json!({
            "index": 0, "prompt_tokens": 1, "asked_tokens": 1, "due_ns": 0, "sent_ns": 0,
            "chunks": [[at, "a", 1, 4]], "end_ns": at, "failure": failure,
        }))
        .unwrap()
    }

    fn search_by(by: SearchVariable, target: f64) -> Search {
        Search {
            target,
            ..Search::new(by)
        }
    }

    fn slo() -> Slo {
        Slo {
            ttft: Some(HumanDuration::from_secs(1)),
            tpot: None,
            e2e: None,
        }
    }

    #[test]
    fn failed_requests_count_as_misses() {
        let requests = [
            request(Some(500)),
            request(Some(1000)),
            request(Some(1001)),
            request(None),
        ];
        let judged = judge(&requests, &slo(), &search_by(SearchVariable::Concurrency, 0.5));
        assert_eq!((judged.requests, judged.good, judged.attainment), (4, 2, 0.5));
        assert!(judged.holds);
        assert!(!judge(&requests, &slo(), &search_by(SearchVariable::Concurrency, 0.51)).holds);
        assert!(
            judged.interval[0] < 0.2 && judged.interval[1] > 0.8,
            "{:?}",
            judged.interval
        );
    }

    #[test]
    fn of_no_request_nothing_holds() {
        let judged = judge(&[], &slo(), &search_by(SearchVariable::Rate, 0.5));
        assert_eq!((judged.holds, judged.interval), (false, [0.0, 1.0]));
    }

    /// Returns ten requests, one due every 10 ms. The functions give the ms from due to sent and to answered.
    fn ten_requests(sent_after: impl Fn(u64) -> u64, answered_after: impl Fn(u64) -> u64) -> Vec<Request> {
        let at = |due: u64| {
            let (sent, answered) = (due + sent_after(due), due + answered_after(due));
            let [due, sent, answered] = [due, sent, answered].map(|ms| ms * 1_000_000);
            serde_json::from_value(serde_json::json!({
                "index": 0, "prompt_tokens": 1, "asked_tokens": 1, "due_ns": due, "sent_ns": sent,
                "chunks": [[answered, "a", 1, 4]], "end_ns": answered,
            }))
            .unwrap()
        };
        (0..10).map(|place| at(place * 10)).collect()
    }

    #[test]
    fn the_wait_for_a_slot_counts() {
        // Each is answered 100 ms after it was sent. They are sent on time, then 950 ms late.
        let on_time = ten_requests(|_| 0, |_| 100);
        let judged = judge(&on_time, &slo(), &search_by(SearchVariable::Rate, 1.0));
        assert_eq!((judged.good, judged.holds, judged.unreached), (10, true, None));
        let late = ten_requests(|_| 950, |_| 1050);
        let judged = judge(&late, &slo(), &search_by(SearchVariable::Rate, 1.0));
        assert_eq!((judged.good, judged.holds), (0, false));
    }

    #[test]
    fn a_rate_that_was_not_reached_does_not_hold() {
        // The requests are sent at half the rate at which they are due.
        let slow = ten_requests(|due| due, |due| due + 1);
        let judged = judge(&slow, &slo(), &search_by(SearchVariable::Rate, 1.0));
        assert_eq!((judged.attainment, judged.holds), (1.0, false));
        let unreached = judged.unreached.unwrap();
        assert_eq!((unreached.due_per_s, unreached.sent_per_s), (100.0, 50.0));
        let judged = judge(&slow, &slo(), &search_by(SearchVariable::Concurrency, 1.0));
        assert!(judged.holds);
        assert!(judge_concurrency(judged, 10.0, 10.0).holds);
        let short = judge_concurrency(judged, 16.0, 10.0);
        assert_eq!((short.holds, short.peak_concurrency), (false, Some(10.0)));
    }

    #[test]
    fn a_concurrency_that_was_not_reached_ends_the_search_without_a_bracket() {
        let search = search_by(SearchVariable::Concurrency, 1.0);
        let mut hunt = SloSearch::new(search);
        hunt.add_point(point(1.0, true));
        let mut short = point(2.0, true);
        short.judged = judge_concurrency(short.judged, 2.0, 1.0);
        hunt.add_point(short);
        let record = hunt.record();
        assert_eq!(
            (record.found, record.fails_at, record.ending),
            (Some(1.0), None, SearchStopReason::NotReached)
        );
        let message = record.describe();
        assert!(message.contains("at most 1 requests of 2"), "{message}");
    }

    #[test]
    fn wilsons_interval_is_that_of_the_textbook() {
        // Expected for 8 of 10: 0.490 to 0.943.
        let [low, high] = wilson_interval(8.0, 10.0);
        assert!(
            (low - 0.4902).abs() < 1e-4 && (high - 0.9433).abs() < 1e-4,
            "{low} {high}"
        );
    }

    fn point(value: f64, holds: bool) -> Point {
        Point {
            value,
            judged: PointJudgement {
                requests: 1,
                good: u64::from(holds),
                attainment: f64::from(u8::from(holds)),
                interval: [0.0, 1.0],
                holds,
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

    /// Runs a search with `holds` as the result of each point. Panics if the search does not end.
    fn run_search(search: Search, mut holds: impl FnMut(f64) -> bool) -> SearchRecord {
        let mut hunt = SloSearch::new(search);
        for _ in 0..10_000 {
            match hunt.next() {
                Next::Try(value) => hunt.add_point(point(value, holds(value))),
                Next::Finished(_) => return hunt.record(),
            }
        }
        panic!("the search does not end");
    }

    #[test]
    fn it_doubles_and_then_halves() {
        let record = run_search(Search::new(SearchVariable::Concurrency), |value| value <= 23.0);
        let values: Vec<f64> = record.points.iter().map(|point| point.value).collect();
        assert_eq!(values, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 24.0, 20.0, 22.0, 23.0]);
        assert_eq!((record.found, record.fails_at), (Some(23.0), Some(24.0)));
        assert_eq!(record.ending, SearchStopReason::Bracketed);
        assert_eq!(
            record.describe(),
            "the highest concurrency that holds 99 % attainment is 23 at once, with 100 %; 24 at once does not hold"
        );
    }

    #[test]
    fn a_bound_outside_of_the_range_is_said_not_to_be_bracketed() {
        let usual = || Search {
            to: 10.0,
            ..Search::new(SearchVariable::Rate)
        };
        let above = run_search(usual(), |_| true);
        assert_eq!(
            (above.found, above.ending),
            (Some(10.0), SearchStopReason::AllHeld)
        );
        assert!(
            above
                .describe()
                .ends_with("the highest that was allowed, and the bound is not bracketed")
        );
        let below = run_search(usual(), |_| false);
        assert_eq!(
            (below.found, below.ending, below.points.len()),
            (None, SearchStopReason::NoneHeld, 1)
        );
        assert!(
            below
                .describe()
                .contains("already 1 req/s does not; the bound lies below and is not bracketed")
        );
        let few = run_search(Search { points: 2, ..usual() }, |_| true);
        assert_eq!(
            (few.found, few.ending),
            (Some(2.0), SearchStopReason::OutOfPoints)
        );
        assert!(
            few.describe()
                .ends_with("the points ran out, and the bound is not bracketed")
        );
    }

    #[test]
    fn a_search_that_is_not_over_was_stopped() {
        let mut hunt = SloSearch::new(Search::new(SearchVariable::Rate));
        assert_eq!(hunt.record().describe(), "no rate was measured");
        hunt.add_point(point(1.0, true));
        assert_eq!(hunt.record().ending, SearchStopReason::Stopped);
    }

    #[test]
    fn a_point_whose_connections_nobody_took_ends_the_search_and_is_no_bound() {
        let failed = |class: &str, count: u32| {
            let failures = serde_json::json!({ class: count });
            Point {
                failures: serde_json::from_value(failures).unwrap(),
                ..point(2.0, false)
            }
        };
        let next = |above: Point| {
            let mut hunt = SloSearch::new(Search::new(SearchVariable::Concurrency));
            hunt.add_point(point(1.0, true));
            hunt.add_point(above);
            hunt.record()
        };
        for class in ["refused", "connect"] {
            let record = next(failed(class, 1));
            assert_eq!(
                (record.ending, record.found, record.fails_at),
                (SearchStopReason::Unanswered, Some(1.0), None)
            );
            let says = record.describe();
            assert!(
                says.contains("requests failed (") && says.contains("not bracketed"),
                "{says}"
            );
        }
        // An overloaded server rejects requests and is late.
        for class in ["status", "reset", "timeout-before-first"] {
            let record = next(failed(class, 1));
            assert_eq!(
                (record.ending, record.fails_at),
                (SearchStopReason::Bracketed, Some(2.0))
            );
            assert!(
                record.describe().contains("where 1 of 1 requests failed"),
                "{}",
                record.describe()
            );
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
        fn where_points_do_not_contradict_each_other_the_bound_is_found_within_the_resolution(
            search in search(), bound in 0.5..4000.0f64,
        ) {
            let search = Search { points: 1000, ..search };
            let record = run_search(search.clone(), |value| value <= bound);
            match record.ending {
                SearchStopReason::NoneHeld => prop_assert!(bound < search.from),
                SearchStopReason::AllHeld => prop_assert!(bound >= search.to && record.found == Some(search.to)),
                SearchStopReason::Bracketed => {
                    let (best, fails) = (record.found.unwrap(), record.fails_at.unwrap());
                    prop_assert!(best <= bound && bound < fails);
                    // Four digits can hide a value between the two only if the resolution is as fine as the
                    // digits.
                    let is_narrow = fails <= best * (1.0 + search.resolution.max(2e-3));
                    prop_assert!(is_narrow || search.by == SearchVariable::Concurrency && fails - best <= 1.0, "{} {}", best, fails);
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }

        #[test]
        fn whatever_points_say_it_ends_within_its_points_and_its_range(
            search in search(), answers in prop::collection::vec(prop::bool::ANY, 64),
        ) {
            let mut answers = answers.into_iter().cycle();
            let limits = search.clone();
            let record = run_search(search, |_| answers.next().unwrap());
            prop_assert!(record.points.len() <= limits.points as usize);
            let mut values: Vec<f64> = record.points.iter().map(|point| point.value).collect();
            prop_assert!(values.iter().all(|value| (limits.from..=limits.to).contains(value)));
            prop_assert!(limits.by == SearchVariable::Rate || values.iter().all(|value| value.fract() == 0.0));
            values.sort_by(f64::total_cmp);
            values.dedup();
            prop_assert_eq!(values.len(), record.points.len(), "a value was measured twice");
            if let Some((best, fails)) = record.found.zip(record.fails_at) {
                prop_assert!(best < fails);
            }
            prop_assert!(!record.describe().is_empty());
        }
    }
}
