//! How connections to the server are made and used.

use std::path::Path;

use crate::base::tls::TlsConfig;
use crate::cli::bench::{BalanceArg, BenchArgs, ConnectionsArg};
use crate::config::connections::{
    Balance, ConnectionLifetime, LoadConnections, TlsOptions, routing_key_header_error,
};
use crate::config::workload::Workload;
use crate::runner::bench::{Address, Connections, Scheme};

/// Returns the connection settings of a load on the addresses.
pub(super) fn connections(args: &BenchArgs, addresses: &[Address]) -> Result<Connections, Vec<String>> {
    let options = &args.connections;
    let mut errors = several_addresses_conflicts(args, addresses.len());
    let tls = tls(args, addresses).map_err(|more| errors.extend(more)).ok();
    let Some(tls) = tls.filter(|_| errors.is_empty()) else {
        return Err(errors);
    };
    Ok(Connections {
        tls,
        other_addresses: addresses[1..].to_vec(),
        balance: match options.balance {
            None | Some(BalanceArg::RoundRobin) => Balance::RoundRobin,
            Some(BalanceArg::LeastLoaded) => Balance::LeastLoaded,
            Some(BalanceArg::Sticky) => Balance::Sticky,
        },
    })
}

/// Returns how a load uses its connections.
pub(super) const fn load_connections(args: &BenchArgs) -> LoadConnections {
    let options = &args.connections;
    LoadConnections {
        lifetime: match options.connections {
            ConnectionsArg::New => ConnectionLifetime::Request,
            ConnectionsArg::Reuse => ConnectionLifetime::Load,
        },
        retries: options.retries,
    }
}

/// Returns errors about the header of routing keys.
pub(super) fn routing_key_errors(args: &BenchArgs, workload: &Workload) -> Vec<String> {
    let Some(header) = &args.connections.routing_key_header else {
        return Vec::new();
    };
    let mut errors = Vec::new();
    if let Some(why) = routing_key_header_error(header) {
        errors.push(format!(
            "`--routing-key-header {header}` cannot be sent: {why}; write for example `--routing-key-header X-Session-ID`"
        ));
    }
    let given = args
        .server
        .header
        .iter()
        .filter_map(|given| given.split_once('='));
    if given
        .into_iter()
        .any(|(name, _)| name.eq_ignore_ascii_case(header))
    {
        errors.push(format!(
            "`--routing-key-header {header}` and `--header {header}=…` contradict each other: the first sends a value for each \
             conversation, the second one value for all requests; leave one of them out"
        ));
    }
    let facts = workload.facts();
    if !facts.has_turns() && !facts.has_routing_key {
        errors.push(format!(
            "`--routing-key-header` has no effect on `{}`, because its requests are independent of each other; use \
             conversations or sessions, or leave it out",
            workload.dataset.bench_serving_name()
        ));
    }
    errors
}

/// Returns errors about settings that need several addresses, or only one.
fn several_addresses_conflicts(args: &BenchArgs, addresses: usize) -> Vec<String> {
    if addresses == 1 {
        let unbalanced =
            "`--balance` has no effect on one address; give several to `--base-url`, or leave it out";
        return args
            .connections
            .balance
            .map(|_| unbalanced.to_owned())
            .into_iter()
            .collect();
    }
    let profiles_measured = args.profiler.profile && !args.profiler.pd_separated;
    let needs_one = [
        (
            args.execution.flush_cache,
            "flush-cache",
            "empty the caches of each server before the benchmark",
        ),
        (
            profiles_measured,
            "profile",
            "start the profiler on each server yourself",
        ),
    ];
    let refused = needs_one.iter().filter(|(is_given, ..)| *is_given);
    refused
        .map(|(_, flag, instead)| format!("`--{flag}` needs a `--base-url` with one address; {instead}"))
        .collect()
}

fn tls(args: &BenchArgs, addresses: &[Address]) -> Result<Option<TlsConfig>, Vec<String>> {
    let given = &args.connections;
    let options = TlsOptions {
        insecure: given.insecure,
        ca_file: given.ca_file.clone(),
        client_cert: given.client_cert.clone(),
        client_key: given.client_key.clone(),
    };
    let given = options.set_names();
    if given.is_empty() {
        return Ok(None);
    }
    if addresses.iter().all(|address| address.scheme != Scheme::Https) {
        let address = &addresses[0];
        let refusal = |name: &str| {
            let flag = name.replace('_', "-");
            format!("`--{flag}` has no effect on `{address}`; give an address that begins with `https://`")
        };
        return Err(given.into_iter().map(refusal).collect());
    }
    let spelled = |name: &str| format!("`--{}`", name.replace('_', "-"));
    let settings = options
        .settings(Path::new(""), spelled)
        .map_err(|error| vec![error])?;
    let config = TlsConfig::load(&settings);
    config
        .map(Some)
        .map_err(|error| vec![format!("the TLS connection cannot be set up: {error}")])
}
