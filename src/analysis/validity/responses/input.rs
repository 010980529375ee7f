//! The responses of a server to a load, as the checks read them.

use crate::config::scenario::Scenario;
use crate::config::validity::ValidityBounds;
use crate::plan::Protocol;
use crate::results::record::request::Request;

/// An answer repeats one token if that token makes up at least this share of it.
pub(crate) const ONE_TOKEN_SHARE: f64 = 0.9;

/// Share of prompts or answers that may be outside of a bound.
pub(crate) const MAX_OUTLIER_SHARE: f64 = 0.01;

/// The responses of a server to a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Responses<'a> {
    pub(crate) requests: &'a [Request],
    pub(crate) scenario: &'a Scenario,
    /// Names of the model, beginning with the one in requests.
    pub(crate) names: &'a [&'a str],
    /// Models that the server lists, if it was asked.
    pub(crate) listed: &'a [String],
    pub(crate) protocol: Protocol,
    /// The simulated engine has no tokenizer.
    pub(crate) is_simulated: bool,
    pub(crate) bounds: &'a ValidityBounds,
}

impl Responses<'_> {
    pub(crate) fn completed_requests(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(|request| request.is_completed())
    }

    pub(crate) fn has_ttft_target(&self) -> bool {
        let slo = self.scenario.slo.as_ref();
        slo.is_some_and(|slo| slo.ttft.is_some())
    }
}

/// Returns the output tokens that the server reports, at the end or in an event.
pub(crate) fn reported_tokens(request: &Request) -> Option<u32> {
    let in_events = || request.chunks.last_tokens();
    request
        .usage
        .and_then(|usage| usage.completion)
        .or_else(in_events)
}
