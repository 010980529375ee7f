//! What is reported of connections: reuse, retries, and requests by address.

use serde_json::{Map, Value, json};

use crate::plan::AttachedServer;
use crate::results::record::connections::ConnectionCounts;
use crate::results::record::request::format_failures;

/// How the settings are spelled where they were given.
pub(crate) struct Spelling {
    pub(crate) reuse: &'static str,
    pub(crate) retries: &'static str,
    pub(crate) timeout: &'static str,
}

/// The flags of `matrix bench`.
pub(crate) const FLAGS: Spelling = Spelling {
    reuse: "(`--connections reuse`), whereas bench_serving opens a new connection for each request",
    retries: "(`--retries`)",
    timeout: "their `--request-timeout`",
};

/// The keys of a scenario.
pub(crate) const KEYS: Spelling = Spelling {
    reuse: "(`connections: reuse`)",
    retries: "(`retries`)",
    timeout: "their `timeout`",
};

/// Fields of the result line of a bench.
pub(crate) fn fields(counts: &ConnectionCounts) -> Map<String, Value> {
    let mut fields = Map::new();
    if let Some(reuse) = &counts.reuse {
        fields.insert("connections".to_owned(), json!(reuse));
    }
    if let Some(retries) = &counts.retries {
        fields.insert("retries".to_owned(), json!(retries));
    }
    if !counts.endpoints.is_empty() {
        let endpoints = counts.endpoints.iter().map(|endpoint| {
            let failures: Map<String, Value> = endpoint
                .failures
                .iter()
                .map(|(class, count)| (class.name().to_owned(), json!(count)))
                .collect();
            let mut facts = json!({"url": endpoint.url, "requests": endpoint.requests, "failures": failures});
            if endpoint.turned_away > 0 {
                facts["turned_away"] = endpoint.turned_away.into();
            }
            facts
        });
        fields.insert("endpoints".to_owned(), endpoints.collect());
    }
    fields
}

pub(crate) fn notes(counts: &ConnectionCounts, spelling: &Spelling) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(reuse) = &counts.reuse {
        notes.push(format!(
            "connections were reused by {} of {} requests {}",
            reuse.reused, counts.requests, spelling.reuse
        ));
        if reuse.reconnected > 0 {
            notes.push(format!(
                "{} requests were sent again, because the server closed the reused connection before any byte of \
                 the response; the server may have computed these requests twice",
                reuse.reconnected
            ));
        }
        if reuse.surplus > 0 {
            notes.push(format!(
                "{} connections were closed instead of reused, because the server sent bytes that belong to no request; \
                 other responses on reused connections may contain such bytes too",
                reuse.surplus
            ));
        }
    }
    if let Some(retries) = counts.retries.filter(|retries| retries.requests > 0) {
        notes.push(format!(
            "{} requests were sent again after status 429 or 503, {} times in total {}; their latencies count from the first attempt",
            retries.requests, retries.retries, spelling.retries
        ));
    }
    if let Some(retries) = counts.retries.filter(|retries| retries.skipped > 0) {
        notes.push(format!(
            "{} requests were not sent again, because the pause before a retry would have been longer than {}; raise the timeout, or lower the load",
            retries.skipped, spelling.timeout
        ));
    }
    notes.extend(counts.endpoints.iter().map(|endpoint| {
        let failures = format_failures(endpoint.failures.iter().map(|(class, count)| (*class, *count)));
        let failed = match failures.is_empty() {
            true => String::new(),
            false => format!(", failed: {failures}"),
        };
        let away = match endpoint.turned_away {
            0 => String::new(),
            count => format!("; the server rejected {count} earlier attempts with 429 or 503"),
        };
        format!(
            "`{}` got {} requests{failed}{away}",
            endpoint.url, endpoint.requests
        )
    }));
    notes
}

/// Notes on several servers, and on how an encrypted one is trusted.
pub(crate) fn server_notes(attach: &AttachedServer) -> Vec<String> {
    let mut notes = Vec::new();
    if !attach.other_urls.is_empty() {
        notes.push(format!(
            "the {} servers of this engine share the load ({}): the metrics of the engine are not read, and model, version and \
             configuration are those of the first server",
            attach.other_urls.len() + 1,
            attach.balance.name()
        ));
    }
    if attach.tls.insecure {
        notes.push(
            "the certificate of the server is not checked (`insecure`), so another server may answer"
                .to_owned(),
        );
    }
    let files = attach.tls.files();
    let files: Vec<String> = files
        .map(|(key, file)| format!("`{key}` {}", file.display()))
        .collect();
    if !files.is_empty() {
        notes.push(format!("TLS: {}", files.join(", ")));
    }
    notes
}
