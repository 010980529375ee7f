//! How connections to the server are made: TLS settings.

use crate::base::tls::{ClientIdentity, TlsConfig, TlsSettings, Trust};
use crate::cli::bench::BenchArgs;
use crate::runner::bench::{Address, Connections, Scheme};

/// Returns the connection settings of a load on the address.
pub(super) fn connections(args: &BenchArgs, address: &Address) -> Result<Connections, Vec<String>> {
    Ok(Connections {
        tls: tls(args, address)?,
    })
}

fn tls(args: &BenchArgs, address: &Address) -> Result<Option<TlsConfig>, Vec<String>> {
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
    if address.scheme != Scheme::Https {
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
