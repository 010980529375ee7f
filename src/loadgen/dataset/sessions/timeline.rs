//! Dependencies that recorded times imply: what began after something else had ended may have waited for it.

use std::time::Duration;

/// The recorded time of a request or of a group of requests, from the start of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub(super) start: Duration,
    pub(super) end: Duration,
}

/// Returns, for each interval, the indices of those that ended last before it began: all that ended by then,
/// except those that ended before another of these began. The intervals are sorted by their starts.
///
/// Intervals that overlap therefore have the same predecessors, as calls in parallel have, and the next one
/// waits for all of them.
pub(super) fn predecessors(intervals: &[Interval]) -> Vec<Vec<usize>> {
    let of = |index: usize| {
        let ended = |other: &usize| intervals[*other].end <= intervals[index].start;
        let before: Vec<usize> = (0..index).filter(ended).collect();
        let last_start = before.iter().map(|other| intervals[*other].start).max();
        let last = before.last().copied();
        let is_latest = |other: &usize| {
            Some(*other) == last || last_start.is_none_or(|start| intervals[*other].end > start)
        };
        before.into_iter().filter(is_latest).collect()
    };
    (0..intervals.len()).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_calls_follow_the_same_and_are_joined() {
        let of = |times: &[(u64, u64)]| {
            let intervals: Vec<Interval> = times
                .iter()
                .map(|(start, end)| Interval {
                    start: Duration::from_secs(*start),
                    end: Duration::from_secs(*end),
                })
                .collect();
            predecessors(&intervals)
        };
        let none: Vec<usize> = vec![];
        assert_eq!(of(&[(0, 1), (2, 3), (3, 4)]), [none.clone(), vec![0], vec![1]]);
        // A fan-out of two calls, and a call after both.
        assert_eq!(
            of(&[(0, 1), (2, 5), (3, 4), (6, 7)]),
            [none.clone(), vec![0], vec![0], vec![1, 2]]
        );
        // The second call of a chain beside a long one.
        assert_eq!(
            of(&[(0, 9), (1, 2), (3, 4), (9, 10)]),
            [none.clone(), none.clone(), vec![1], vec![0, 2]]
        );
        // Calls without length.
        assert_eq!(of(&[(0, 0), (0, 0), (1, 1)]), [none, vec![0], vec![1]]);
    }
}
