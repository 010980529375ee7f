//! How connections to a target are made and used.

use crate::base::tls::TlsConfig;
use crate::loadgen::target::Address;

/// How connections to a target are made and used.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    /// The TLS settings of `https://` addresses; `None` for the root certificates of this machine.
    pub(crate) tls: Option<TlsConfig>,
    pub(crate) lifetime: ConnectionLifetime,
    /// How often a request is sent again if the server answers 429 or 503.
    pub(crate) retries: u32,
    /// Further addresses of the target.
    pub(crate) other_addresses: Vec<Address>,
    pub(crate) balance: Balance,
}

/// How long a connection lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ConnectionLifetime {
    /// For one request, as in the Python tool.
    #[default]
    Request,
    /// For all requests of a load that find it idle.
    Load,
}

/// How requests are distributed over the addresses of a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Balance {
    #[default]
    RoundRobin,
    /// The address with the fewest requests of this load in flight.
    LeastLoaded,
    /// In turn, but all rounds of a conversation, and all requests with one routing key, to one address.
    Sticky,
}
