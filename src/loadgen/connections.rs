//! How connections to a target are made.

use crate::base::tls::TlsConfig;
use crate::config::connections::Balance;
use crate::loadgen::target::Address;

/// How connections to a target are made.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    /// The TLS settings of `https://` addresses; `None` for the root certificates of this machine.
    pub(crate) tls: Option<TlsConfig>,
    /// Further addresses of the target.
    pub(crate) other_addresses: Vec<Address>,
    pub(crate) balance: Balance,
}
