//! Creates the load generator's view of a running engine. This is the only place where secrets in headers are
//! revealed.

use crate::loadgen::{Address, Headers, Target, TargetError};
use crate::plan::Launch;
use crate::runner::context::Host;

/// The target of a launch that answers at `base_url`. Fails if the address or a header is invalid.
pub(crate) fn of(launch: &Launch, base_url: &str, host: &Host) -> Result<Target, TargetError> {
    let address: Address = base_url.parse()?;
    let secret = |name: &str| host.secrets.get(name).cloned();
    let headers = launch
        .contact
        .headers
        .iter()
        .map(|(name, value)| {
            let value = value
                .reveal(&|_| None, &secret)
                .expect("preflight has found every secret, and headers have no holes");
            (name.clone(), value)
        })
        .collect();
    Ok(Target {
        address,
        headers: Headers::new(headers)?,
        dialect: launch.contact.dialect.clone(),
        model: launch.served.clone(),
    })
}
