//! A search: its points, what they come to, and which one is next.

use super::probe_test::ProbeDecision;
use super::starts::over_starts;
use super::strategy::{Interval, Probe, ProbeSize, Progress, SearchSpace, Step};
use crate::config::search::{Search, SearchVariable};
use crate::results::record::search::{Capacity, Point, PointDecision, SearchRecord, SearchStopReason};

/// State of a search: its points, from which everything else follows.
#[derive(Clone, Debug)]
pub(crate) struct SloSearch {
    search: Search,
    points: Vec<Point>,
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
            ended: None,
        }
    }

    pub(crate) fn next(&self) -> Next {
        if let Some(ending) = self.ended {
            return Next::Finished(ending);
        }
        Next::Finished(match self.progress().next() {
            Step::Probe(value) => return Next::Try(value),
            Step::Bracketed => SearchStopReason::Bracketed,
            Step::NoneHeld => SearchStopReason::NoneHeld,
            Step::AllHeld => SearchStopReason::AllHeld,
            Step::Undecided => SearchStopReason::Undecided,
            Step::OutOfProbes => SearchStopReason::OutOfPoints,
        })
    }

    fn progress(&self) -> Progress {
        let Search {
            from,
            to,
            target,
            resolution,
            ..
        } = self.search;
        let is_rate = self.search.by == SearchVariable::Rate;
        let space = SearchSpace {
            from,
            to,
            is_whole: !is_rate,
            target,
            resolution,
            probes: self.search.points as usize,
            size: match (self.search.prompts, self.search.duration) {
                (Some(prompts), _) => ProbeSize::Requests(f64::from(prompts)),
                (None, Some(duration)) if is_rate => ProbeSize::Seconds(duration.duration().as_secs_f64()),
                _ => ProbeSize::Unknown,
            },
        };
        // A point that ended the search does not judge its value.
        let judging = self.points.len() - usize::from(self.ended.is_some());
        Progress::new(space, self.points[..judging].iter().map(probe))
    }

    /// Adds the result of the point at the value that [`SloSearch::next`] returned.
    pub(crate) fn add_point(&mut self, point: Point) {
        // A point that misses the SLO with fewer requests in flight would also miss it at the full
        // concurrency.
        let fails = point.judged.decision() == PointDecision::Fails;
        if point.has_warm_cache() {
            self.ended = Some(SearchStopReason::CacheWarm);
        } else if point.is_unanswered() {
            self.ended = Some(SearchStopReason::Unanswered);
        } else if point.judged.peak_concurrency.is_some() && !fails {
            self.ended = Some(SearchStopReason::NotReached);
        } else if point.judged.ran_out_s.is_some() {
            self.ended = Some(SearchStopReason::OutOfPrompts);
        }
        self.points.push(point);
    }

    /// Everything measured so far, and what it comes to. A search that is not over was stopped.
    pub(crate) fn record(&self) -> SearchRecord {
        let progress = self.progress();
        let found = progress.low();
        let at_found = self.points.iter().filter(|point| Some(point.value) == found);
        let next = self.next();
        // A search that was stopped may not have repeated both ends.
        let interval = progress.interval().filter(|_| matches!(next, Next::Finished(_)));
        SearchRecord {
            by: self.search.by,
            target: self.search.target,
            resolution: Some(self.search.resolution),
            points: self.points.clone(),
            found,
            attainment: at_found.map(|point| point.judged.attainment).reduce(f64::min),
            fails_at: progress.high(),
            capacity: interval.map(|Interval { value, low, high }| Capacity { value, low, high }),
            ending: match next {
                Next::Finished(ending) => ending,
                Next::Try(_) => SearchStopReason::Stopped,
            },
            further_tiers: Vec::new(),
            reported: None,
        }
    }
}

/// Combines the capacities of several starts of an engine: their mean, with an interval that contains the
/// differences between starts. `None` with fewer than three.
pub(crate) fn capacity_over_starts(starts: &[Capacity]) -> Option<Capacity> {
    let intervals: Vec<Interval> = starts
        .iter()
        .map(|Capacity { value, low, high }| Interval {
            value: *value,
            low: *low,
            high: *high,
        })
        .collect();
    over_starts(&intervals).map(|Interval { value, low, high }| Capacity { value, low, high })
}

fn probe(point: &Point) -> Probe {
    let judged = &point.judged;
    Probe {
        value: point.value,
        decision: match judged.decision() {
            PointDecision::Holds => ProbeDecision::Holds,
            PointDecision::Fails => ProbeDecision::Fails,
            PointDecision::Undecided => ProbeDecision::Undecided,
        },
        requests: judged.requests as f64,
        severity: judged.severity.unwrap_or(f64::INFINITY),
        dispersion: judged.dispersion.unwrap_or(1.0),
    }
}

#[cfg(test)]
mod tests;
