//! A search for the capacity of every tier of an SLO, from points that all tiers share.

use super::search::{Next, SloSearch};
use crate::config::search::Search;
use crate::results::record::search::{Point, PointDecision, SearchRecord};

/// State of a search: one for each tier.
#[derive(Clone, Debug)]
pub(crate) struct TieredSearch {
    tiers: Vec<SloSearch>,
}

/// The point that is measured next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NextPoint {
    /// Index of the tier for which it is measured.
    pub(crate) tier: usize,
    pub(crate) value: f64,
}

impl TieredSearch {
    /// Starts a search for `tiers` tiers, at least one. It must have no [error](Search::find_error).
    pub(crate) fn new(search: &Search, tiers: usize) -> Self {
        // Points are measured for one tier, and count for all.
        let search = Search {
            points: search.points.saturating_mul(tiers as u32),
            ..search.clone()
        };
        Self {
            tiers: vec![SloSearch::new(search); tiers],
        }
    }

    /// Returns the next point of the first tier that is not finished. `None` if all are.
    pub(crate) fn next(&self) -> Option<NextPoint> {
        let mut tiers = self.tiers.iter().enumerate();
        tiers.find_map(|(tier, search)| match search.next() {
            Next::Try(value) => Some(NextPoint { tier, value }),
            Next::Finished(_) => None,
        })
    }

    /// Adds the point that was measured for `tier`, as every tier judges it. A point ends when its own tier is decided, so that it
    /// is not too close to call for the others: it only came too early for them.
    pub(crate) fn add_point(&mut self, tier: usize, judged: Vec<Point>) {
        for (index, (search, point)) in self.tiers.iter_mut().zip(judged).enumerate() {
            let is_lost = point.has_warm_cache() || point.is_unanswered();
            if index == tier || is_lost || point.judged.decision() != PointDecision::Undecided {
                search.add_point(point);
            }
        }
    }

    /// Everything measured so far: the record of the first tier, which has those of the others.
    pub(crate) fn record(&self) -> SearchRecord {
        let mut records = self.tiers.iter().map(SloSearch::record);
        let first = records.next().expect("there is at least one tier");
        SearchRecord {
            further_tiers: records.collect(),
            ..first
        }
    }
}

#[cfg(test)]
mod tests;
