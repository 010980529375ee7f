//! What came from the prefix cache, and where it lay.

use crate::results::record::request::Request;

/// Prompt tokens of completed requests, and those of them that came from the prefix cache, as the server reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheHits {
    /// Prompt tokens; where the server reports none, as the data set counts.
    pub prompt: u64,
    /// Those from the cache.
    pub cached: u64,
    /// Whether any answer told of them.
    pub is_told: bool,
    /// Where these lay; `None` where the server never said.
    pub tiers: Option<CacheTiers>,
}

/// Where cached tokens lay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheTiers {
    pub device: u64,
    /// In the host's memory.
    pub host: u64,
    pub storage: u64,
    /// The name of the storage that was last read from.
    pub storage_backend: Option<String>,
}

impl CacheHits {
    /// A part as a percentage of a whole; 0 of nothing.
    pub(crate) fn percent(part: u64, whole: u64) -> f64 {
        match whole {
            0 => 0.0,
            whole => part as f64 / whole as f64 * 100.0,
        }
    }
}

/// Sums up what the requests took from the prefix cache.
///
/// Source: docs/bench-serving.md 7.6.
pub(crate) fn cache_hits(requests: &[Request]) -> CacheHits {
    let mut hits = CacheHits::default();
    for request in requests.iter().filter(|request| request.is_completed()) {
        let usage = request.usage.unwrap_or_default();
        hits.prompt += u64::from(usage.prompt.unwrap_or_else(|| request.prompt_sent()));
        hits.cached += u64::from(usage.cached.unwrap_or(0));
        hits.is_told |= usage.cached.is_some();
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
