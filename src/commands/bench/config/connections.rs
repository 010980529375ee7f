//! How connections to the server are made and used.

use crate::base::tls::{ClientIdentity, TlsConfig, TlsSettings, Trust};
use crate::cli::bench::{BalanceArg, BenchArgs, ConnectionsArg};
use crate::runner::bench::{Address, Balance, ConnectionLifetime, Connections, Scheme};

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
        lifetime: match options.connections {
            ConnectionsArg::New => ConnectionLifetime::Request,
            ConnectionsArg::Reuse => ConnectionLifetime::Load,
        },
        retries: options.retries,
        other_addresses: addresses[1..].to_vec(),
        balance: match options.balance {
            None | Some(BalanceArg::RoundRobin) => Balance::RoundRobin,
            Some(BalanceArg::LeastLoaded) => Balance::LeastLoaded,
            Some(BalanceArg::Sticky) => Balance::Sticky,
        },
    })
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
            "empty the caches of each server before",
        ),
        (
            profiles_measured,
            "profile",
            "start the profiler of each server itself",
        ),
    ];
    let refused = needs_one.iter().filter(|(is_given, ..)| *is_given);
    refused
        .map(|(_, flag, instead)| format!("`--{flag}` needs a `--base-url` with one address; {instead}"))
        .collect()
}

fn tls(args: &BenchArgs, addresses: &[Address]) -> Result<Option<TlsConfig>, Vec<String>> {
    let options = &args.connections;
    let given = [
        (options.insecure, "insecure"),
        (options.ca_file.is_some(), "ca-file"),
        (options.client_cert.is_some(), "client-cert"),
        (options.client_key.is_some(), "client-key"),
    ];
    let given: Vec<&str> = given
        .iter()
        .filter(|(is_given, _)| *is_given)
        .map(|(_, flag)| *flag)
        .collect();
    if given.is_empty() {
        return Ok(None);
    }
    if addresses.iter().all(|address| address.scheme != Scheme::Https) {
        let address = &addresses[0];
        let refusal = |flag| {
            format!("`--{flag}` has no effect on `{address}`; give an address that begins with `https://`")
        };
        return Err(given.into_iter().map(refusal).collect());
    }
    let trust = match (&options.ca_file, options.insecure) {
        (Some(_), true) => {
            return Err(vec![
                "`--insecure` and `--ca-file` contradict each other: one skips the check that the other needs; leave one out"
                    .to_owned(),
            ]);
        }
        (Some(file), false) => Trust::File(file.clone()),
        (None, true) => Trust::Any,
        (None, false) => Trust::System,
    };
    let identity = match (&options.client_cert, &options.client_key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(ClientIdentity {
            certificate: certificate.clone(),
            key: key.clone(),
        }),
        (Some(_), None) => {
            return Err(vec![
                "`--client-cert` needs its key; give `--client-key`".to_owned(),
            ]);
        }
        (None, Some(_)) => {
            return Err(vec![
                "`--client-key` needs its certificate; give `--client-cert`".to_owned(),
            ]);
        }
    };
    let config = TlsConfig::load(&TlsSettings { trust, identity });
    config
        .map(Some)
        .map_err(|error| vec![format!("the TLS connection cannot be set up: {error}")])
}
