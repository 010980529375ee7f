//! Creates the load generator's view of a running engine. This is the only place where secrets in headers are
//! revealed.

use crate::loadgen::{Address, Headers, Target, TargetError};
use crate::plan::Launch;
use crate::runner::context::HostEnv;

/// The target of a launch that answers at `base_url`. Fails if the address or a header is invalid.
pub(crate) fn resolve(launch: &Launch, base_url: &str, host: &HostEnv) -> Result<Target, TargetError> {
    let address: Address = base_url.parse()?;
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
        address,
        headers: Headers::new(headers)?,
        dialect: launch.api.dialect.clone(),
        model: launch.served_model_name.clone(),
        connections: Default::default(),
    })
}
