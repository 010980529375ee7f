//! Cancellation by the client: the share of requests whose connections are closed before their answers end. Does
//! not draw.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::base::units::HumanDuration;
use crate::config::api::Protocol;

/// The share of requests that the client cancels, and when. A request is cancelled at the first moment that comes.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Cancel {
    /// Probability with which a request is chosen: above 0 and at most 1.
    pub(crate) share: f64,
    /// Number of output tokens after which a chosen request is cancelled. An event with output counts as one token
    /// unless it says how many it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after_tokens: Option<NonZeroU32>,
    /// Time after which a chosen request is cancelled, from the moment when the whole request was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<HumanDuration>,
}

impl Cancel {
    /// Describes an invalid setting and its fix; `None` if it is valid.
    pub(crate) fn find_error(&self) -> Option<String> {
        if !(self.share > 0.0 && self.share <= 1.0) {
            return Some(format!(
                "the share of cancelled requests is {}; write a number above 0 and at most 1",
                self.share
            ));
        }
        (self.after_tokens.is_none() && self.after.is_none()).then(|| {
            "the point at which to cancel a request is missing; give a number of tokens or a time".to_owned()
        })
    }

    /// Describes why answers of this protocol cannot be cancelled so, and the fix; `None` if they can. Messages call the
    /// protocol `name`.
    pub(crate) fn unsupported_reason(
        &self,
        protocol: Protocol,
        name: &str,
        is_streamed: bool,
    ) -> Option<(String, &'static str)> {
        if !protocol.facts().generates_text {
            return Some((
                format!(
                    "{name} does not generate text, so each answer arrives at once and no request can be cancelled"
                ),
                "cancel only requests of a protocol that generates text",
            ));
        }
        (self.after_tokens.is_some() && !is_streamed).then(|| {
            (
                format!(
                    "with these settings, {name} does not stream answers, so no request can be cancelled after a number of tokens"
                ),
                "cancel requests after a time instead, or let the server stream the answers",
            )
        })
    }
}

impl fmt::Display for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tokens = self.after_tokens.map(|tokens| format!("{tokens} tokens"));
        let time = self.after.map(|time| time.to_string());
        let moments: Vec<String> = tokens.into_iter().chain(time).collect();
        write!(
            f,
            "{} % of the requests after {}",
            (self.share * 1e4).round() / 100.0,
            moments.join(" or ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cancel(json: &str) -> Cancel {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_cannot_be_cancelled_is_refused_and_the_rest_is_described() {
        for (json, error) in [
            (r#"{"share": 0, "after_tokens": 5}"#, "is 0"),
            (r#"{"share": 1.5, "after_tokens": 5}"#, "is 1.5"),
            (r#"{"share": 0.5}"#, "the point at which to cancel"),
        ] {
            let found = cancel(json).find_error().unwrap();
            assert!(found.contains(error), "{found}");
        }
        let both = cancel(r#"{"share": 0.125, "after_tokens": 5, "after": "2s"}"#);
        assert_eq!(both.find_error(), None);
        assert_eq!(both.to_string(), "12.5 % of the requests after 5 tokens or 2s");
        assert!(serde_json::from_str::<Cancel>(r#"{"share": 0.5, "after_tokens": 0}"#).is_err());
    }
}
