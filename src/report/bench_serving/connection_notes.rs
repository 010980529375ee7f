//! What a bench reports of its connections: retries, reuse, and requests by address.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::results::record::client::ClientFacts;
use crate::results::record::request::{Request, RequestFailureClass, format_failures};

/// The connection settings of a load that differ from those of the Python tool.
pub(crate) struct ConnectionReport<'a> {
    /// The addresses, if there are several.
    pub(crate) addresses: Vec<String>,
    /// Whether connections serve several requests.
    pub(crate) is_reused: bool,
    /// The largest number of retries of a request.
    pub(crate) max_retries: u32,
    pub(crate) requests: &'a [Request],
    pub(crate) client: &'a ClientFacts,
}

impl ConnectionReport<'_> {
    /// Fields of the result line; empty without such settings.
    pub(crate) fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        if self.is_reused {
            let value = json!({
                "reused": self.count(|request| request.connection.is_reused),
                "reconnected": self.count(|request| request.connection.is_reconnected),
                "surplus": self.client.surplus_connections,
            });
            fields.insert("connections".to_owned(), value);
        }
        if self.max_retries > 0 {
            let value = json!({
                "limit": self.max_retries,
                "requests": self.count(|request| request.connection.retries > 0),
                "retries": self.retries(),
            });
            fields.insert("retries".to_owned(), value);
        }
        if self.has_several() {
            let endpoints = self.endpoints().map(|(address, requests, failures)| {
                let failures: BTreeMap<&str, u32> = failures
                    .into_iter()
                    .map(|(class, count)| (class.name(), count))
                    .collect();
                json!({"url": address, "requests": requests, "failures": failures})
            });
            fields.insert("endpoints".to_owned(), endpoints.collect());
        }
        fields
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.is_reused {
            notes.push(format!(
                "connections were reused by {} of {} requests (`--connections reuse`); bench_serving opens one for each request",
                self.count(|request| request.connection.is_reused),
                self.requests.len()
            ));
            let reconnected = self.count(|request| request.connection.is_reconnected);
            if reconnected > 0 {
                notes.push(format!(
                    "{reconnected} requests were sent again, because the server closed the reused connection before any byte of \
                     the response; it may have computed them twice"
                ));
            }
            if self.client.surplus_connections > 0 {
                notes.push(format!(
                    "{} connections were closed instead of reused, because the server sent bytes that belong to no request; \
                     other responses on reused connections may be such bytes too",
                    self.client.surplus_connections
                ));
            }
        }
        let retried = self.count(|request| request.connection.retries > 0);
        if retried > 0 {
            notes.push(format!(
                "{retried} requests were sent again {} times after status 429 or 503 (`--retries`); their latencies count from the \
                 first time",
                self.retries()
            ));
        }
        if self.has_several() {
            notes.extend(self.endpoints().map(|(address, requests, failures)| {
                let failed = match format_failures(failures) {
                    failures if failures.is_empty() => String::new(),
                    failures => format!(", failed: {failures}"),
                };
                format!("`{address}` got {requests} requests{failed}")
            }));
        }
        notes
    }

    fn has_several(&self) -> bool {
        self.addresses.len() > 1
    }

    fn count(&self, is_counted: impl Fn(&Request) -> bool) -> usize {
        self.requests.iter().filter(|request| is_counted(request)).count()
    }

    fn retries(&self) -> u64 {
        self.requests
            .iter()
            .map(|request| u64::from(request.connection.retries))
            .sum()
    }

    /// Each address with the number of requests that were sent to it, and their failures.
    fn endpoints(&self) -> impl Iterator<Item = (&str, usize, BTreeMap<RequestFailureClass, u32>)> {
        self.addresses.iter().enumerate().map(|(place, address)| {
            let is_sent_there = |request: &&Request| {
                request
                    .connection
                    .endpoint
                    .is_some_and(|sent| sent as usize == place)
            };
            let sent = || self.requests.iter().filter(is_sent_there);
            let mut failures = BTreeMap::new();
            for failure in sent().filter_map(|request| request.failure.as_ref()) {
                *failures.entry(failure.class).or_default() += 1;
            }
            (address.as_str(), sent().count(), failures)
        })
    }
}
