//! Creates the load generator's view of a running engine. This is the only place where secrets in headers are
//! revealed.

use crate::config::connections::Balance;
use crate::engine::RunningEngine;
use crate::loadgen::{Address, Connections, Headers, Target, TargetError};
use crate::plan::{ExecutorSpec, Launch};
use crate::runner::context::HostEnv;

/// The target of a launch that runs. Fails if an address or a header is invalid.
pub(crate) fn resolve(
    launch: &Launch,
    running: &RunningEngine,
    host: &HostEnv,
) -> Result<Target, TargetError> {
    let endpoint = running.endpoint();
    let others = running.other_endpoints().iter();
    let others: Result<Vec<Address>, TargetError> = others.map(|other| other.base_url.parse()).collect();
    let secret = |name: &str| host.secrets.get(name).cloned();
    let headers = launch
        .api
        .headers
        .iter()
        .map(|(name, value)| {
            let value = value
                .expand(&|_| None, &secret)
                .expect("preflight has found every secret, and headers have no holes");
            (name.clone(), value)
        })
        .collect();
    Ok(Target {
        address: endpoint.base_url.parse()?,
        headers: Headers::new(headers)?,
        dialect: launch.api.dialect.clone(),
        model: launch.served_model_name.clone(),
        connections: Connections {
            tls: endpoint.tls.clone(),
            other_addresses: others?,
            balance: match &launch.place {
                ExecutorSpec::Attach(attach) => attach.balance,
                _ => Balance::default(),
            },
        },
    })
}
