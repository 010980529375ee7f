//! How the requests of a load used connections and addresses. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config::connections::{ConnectionLifetime, LoadConnections};
use crate::results::record::request::{Request, RequestFailureClass};

/// Counts of requests by how they used connections. Present if a setting of connections differs from the default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConnectionCounts {
    /// All requests.
    pub(crate) requests: u64,
    /// Reuse of connections, if they are reused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reuse: Option<ReuseCounts>,
    /// Retries, if they are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retries: Option<RetryCounts>,
    /// Each address, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) endpoints: Vec<EndpointCounts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReuseCounts {
    /// Requests on a connection that had served another one.
    pub(crate) reused: u64,
    /// Requests that were sent again, because a reused connection ended before their answer began.
    pub(crate) reconnected: u64,
    /// Connections that were closed, because the server sent bytes that belong to no request.
    pub(crate) surplus: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RetryCounts {
    /// How often one request may be sent again.
    pub(crate) limit: u32,
    /// Requests that were sent again after status 429 or 503.
    pub(crate) requests: u64,
    /// How often they were sent again.
    pub(crate) retries: u64,
    /// Requests that were not sent again, because the pause would have outlasted their timeout.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) skipped: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndpointCounts {
    pub(crate) url: String,
    /// Requests whose last attempt was sent there.
    pub(crate) requests: u64,
    /// Earlier attempts that it answered with 429 or 503.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) turned_away: u64,
    /// Those of them that failed, by class.
    pub(crate) failures: BTreeMap<RequestFailureClass, u32>,
}

impl ConnectionCounts {
    /// Counts the requests of a load on `addresses`. `surplus` is the number of connections that were closed because
    /// of bytes that belong to no request. `None` if every setting is the default.
    pub(crate) fn from_requests(
        requests: &[Request],
        settings: LoadConnections,
        addresses: &[String],
        surplus: u64,
    ) -> Option<Self> {
        if settings.is_default() && addresses.len() < 2 {
            return None;
        }
        let count = |is_counted: fn(&Request) -> bool| {
            requests.iter().filter(|request| is_counted(request)).count() as u64
        };
        let reuse = (settings.lifetime == ConnectionLifetime::Load).then(|| ReuseCounts {
            reused: count(|request| request.connection.is_reused),
            reconnected: count(|request| request.connection.is_reconnected),
            surplus,
        });
        let retries = (settings.retries > 0).then(|| RetryCounts {
            limit: settings.retries,
            requests: count(|request| request.connection.retries > 0),
            retries: requests
                .iter()
                .map(|request| u64::from(request.connection.retries))
                .sum(),
            skipped: count(|request| request.connection.is_retry_skipped),
        });
        let addresses = addresses.iter().filter(|_| addresses.len() > 1).enumerate();
        Some(Self {
            requests: requests.len() as u64,
            reuse,
            retries,
            endpoints: addresses
                .map(|(place, url)| endpoint_counts(url, place, requests))
                .collect(),
        })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn endpoint_counts(url: &str, place: usize, requests: &[Request]) -> EndpointCounts {
    let is_sent_there = |request: &&Request| {
        let endpoint = request.connection.endpoint;
        endpoint.is_some_and(|sent| sent as usize == place)
    };
    let sent = || requests.iter().filter(is_sent_there);
    let mut failures = BTreeMap::new();
    for failure in sent().filter_map(|request| request.failure.as_ref()) {
        *failures.entry(failure.class).or_default() += 1;
    }
    let earlier = requests
        .iter()
        .flat_map(|request| &request.connection.turned_away);
    EndpointCounts {
        url: url.to_owned(),
        requests: sent().count() as u64,
        turned_away: earlier.filter(|endpoint| **endpoint as usize == place).count() as u64,
        failures,
    }
}
