//! Prompt tokens that came from the prefix cache, and their tier.

use std::collections::BTreeMap;

use serde::Serialize;

use super::engine::{reported_hit_share, theoretical_hit_share};
use crate::results::record::request::Request;

/// Prompt tokens of completed requests, and those from the prefix cache, as the server reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheHits {
    /// Prompt tokens. If the server reports none, those of the data set.
    pub(crate) prompt: u64,
    pub(crate) cached: u64,
    /// Whether any answer reported them.
    pub(crate) is_reported: bool,
    /// Tiers of the cached tokens. `None` if the server reported none.
    pub(crate) tiers: Option<CacheTiers>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheTiers {
    pub(crate) device: u64,
    pub(crate) host: u64,
    pub(crate) storage: u64,
    /// Name of the storage that was read last.
    pub(crate) storage_backend: Option<String>,
}

/// The prefix-cache hits of a session.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct SessionHits {
    /// Number of the session, from 0.
    session: u32,
    /// Requests that were due.
    requests: usize,
    completed: usize,
    /// Share of the prompt tokens of completed requests that an unlimited cache would hold; `None` if unknown.
    theoretical_hit_share: Option<f64>,
    /// Share that the server reports as cached; `None` if an answer does not report it.
    measured_hit_share: Option<f64>,
}

/// Returns the hits of each session, in their order; `None` without sessions.
pub(crate) fn session_hits(requests: &[Request]) -> Option<Vec<SessionHits>> {
    let mut sessions: BTreeMap<u32, Vec<&Request>> = BTreeMap::new();
    for request in requests {
        if let Some(session) = request.session {
            sessions.entry(session).or_default().push(request);
        }
    }
    let hits = |(session, requests): (u32, Vec<&Request>)| SessionHits {
        session,
        requests: requests.len(),
        completed: requests.iter().filter(|request| request.is_completed()).count(),
        theoretical_hit_share: theoretical_hit_share(requests.iter().copied()),
        measured_hit_share: reported_hit_share(requests.iter().copied()),
    };
    (!sessions.is_empty()).then(|| sessions.into_iter().map(hits).collect())
}

impl CacheHits {
    /// Returns the percentage of `part` in `whole`, or 0 if `whole` is 0.
    pub(crate) fn percentage(part: u64, whole: u64) -> f64 {
        match whole {
            0 => 0.0,
            whole => part as f64 / whole as f64 * 100.0,
        }
    }
}

/// Sums up the tokens that the requests took from the prefix cache.
///
/// Source: docs/bench-serving.md 7.6.
pub(crate) fn cache_hits(requests: &[Request]) -> CacheHits {
    let mut hits = CacheHits::default();
    for request in requests.iter().filter(|request| request.is_completed()) {
        let usage = request.usage.unwrap_or_default();
        hits.prompt += u64::from(usage.prompt.unwrap_or_else(|| request.prompt_sent()));
        hits.cached += u64::from(usage.cached.unwrap_or(0));
        hits.is_reported |= usage.cached.is_some();
        let Some(lay) = &request.cached else { continue };
        let tiers = hits.tiers.get_or_insert_default();
        let tokens = |tier: Option<u32>| u64::from(tier.unwrap_or(0));
        tiers.device += tokens(lay.device);
        tiers.host += tokens(lay.host);
        tiers.storage += tokens(lay.storage);
        if tokens(lay.storage) > 0 {
            tiers.storage_backend.clone_from(&lay.storage_backend);
        }
    }
    hits
}
