//! Prompt tokens that came from the prefix cache, and their tier.

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
