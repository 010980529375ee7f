//! The profiler of a bench, and flags without effect.

use std::path::PathBuf;

use reqwest::header::HeaderMap;
use serde_json::{Map, Value, json};

use crate::base::control_client::{self, ControlClient};
use crate::base::tls::TlsConfig;
use crate::cli::bench::{Activity, BenchArgs, arg_name};
use crate::commands::bench::config::environment::Environment;
use crate::config::workload::Profile;
use crate::runner::bench::Address;
use crate::runner::profiler::{ProfiledServers, Profiler};

/// Returns which servers are profiled.
///
/// Source: docs/bench-serving.md 6.1.
pub(super) fn profiled_servers(
    args: &BenchArgs,
    tls: Option<&TlsConfig>,
) -> Result<ProfiledServers, Vec<String>> {
    let options = &args.profiler;
    let (role, flag, urls) = match (&options.profile_prefill_url, &options.profile_decode_url) {
        (Some(_), Some(_)) => {
            return Err(vec![
                "`--profile-prefill-url` and `--profile-decode-url` exclude each other; profile one kind of worker at a time"
                    .to_owned(),
            ]);
        }
        (None, None) if options.pd_separated => return Ok(ProfiledServers::Unnamed),
        (None, None) => return Ok(ProfiledServers::Measured),
        (Some(urls), None) => ("Prefill", "profile-prefill-url", urls),
        (None, Some(urls)) => ("Decode", "profile-decode-url", urls),
    };
    if !options.pd_separated {
        return Err(vec![format!(
            "`--{flag}` has no effect without `--pd-separated`; add it, or leave the addresses of workers out"
        )]);
    }
    let mut errors = Vec::new();
    let mut servers = Vec::new();
    for url in urls {
        match url.parse::<Address>() {
            Ok(address) => servers.push(ControlClient::new(
                control_client::server_client(tls, address.socket.as_deref()),
                address.to_string(),
                HeaderMap::new(),
            )),
            Err(error) => errors.push(format!("`--{flag}`: {error}")),
        }
    }
    match errors.is_empty() {
        true => Ok(ProfiledServers::Workers { role, servers }),
        false => Err(errors),
    }
}

pub(super) fn profiler(
    args: &BenchArgs,
    environment: &Environment,
    servers: ProfiledServers,
) -> Option<Profiler> {
    let options = &args.profiler;
    if !options.profile {
        return None;
    }
    let activities: Vec<String> = options
        .profile_activities
        .iter()
        .map(|activity: &Activity| arg_name(activity))
        .collect();
    let steps = options
        .profile_num_steps
        .or(options.profile_by_stage.then_some(5));
    let folder = options
        .profile_output_dir
        .clone()
        .or_else(|| environment.profiler_dir.clone().map(PathBuf::from));
    let folder = folder.unwrap_or_else(|| PathBuf::from("/tmp"));
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    let start = [
        ("activities", json!(activities)),
        ("num_steps", json!(steps)),
        ("profile_by_stage", json!(options.profile_by_stage)),
        ("profile_stages", json!(options.profile_stages)),
        ("output_dir", Value::Null),
        ("profile_prefix", json!(options.profile_prefix)),
    ];
    let mut common = Map::new();
    if let Some(step) = options.profile_start_step {
        common.insert("start_step".to_owned(), json!(step.to_string()));
    }
    if let Some(steps) = options.profile_steps {
        common.insert("num_steps".to_owned(), json!(steps.to_string()));
    }
    Some(Profiler {
        start: start
            .map(|(key, value)| (key.to_owned(), value))
            .into_iter()
            .collect(),
        folder,
        both: common,
        is_bare: false,
        is_stopped: options.profile_steps.is_none()
            && (options.pd_separated || options.profile_num_steps.is_none()),
        servers,
    })
}

/// Returns errors for flags that have no effect under the chosen rules or backend.
///
/// Source: docs/bench-serving.md 6, step 10, 12.2 and 12.4.
pub(super) fn ineffective_flags(args: &BenchArgs) -> Vec<String> {
    let mut errors = Vec::new();
    let (execution, output, extensions) = (&args.execution, &args.output, &args.extensions);
    if args.extensions.rules == Profile::Classic {
        for (is_given, flag, why) in [
            (
                output.goodput.is_some(),
                "goodput",
                "with `--rules classic` no goodput is computed",
            ),
            (
                output.cache_report,
                "cache-report",
                "with `--rules classic` no cached tokens are reported",
            ),
            (
                output.output_details,
                "output-details",
                "with `--rules classic` the result is written as a CSV row",
            ),
            (
                output.tag.is_some(),
                "tag",
                "with `--rules classic` the result is written as a CSV row",
            ),
            (
                extensions.compat_json,
                "compat-json",
                "with `--rules classic` the result is written as a CSV row",
            ),
        ] {
            if is_given {
                errors.push(format!(
                    "`--{flag}` has no effect: {why}; leave it out, or use `--rules current`"
                ));
            }
        }
    }
    let default_timeout = 60.0;
    if execution.flush_cache_timeout != default_timeout && !execution.flush_cache {
        errors.push("`--flush-cache-timeout` has no effect without `--flush-cache`; leave it out".to_owned());
    }
    errors
}
