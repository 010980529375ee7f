//! How connections to a target are made and used.

use crate::base::tls::TlsConfig;

/// How connections to a target are made and used.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    /// The TLS settings of `https://` addresses; `None` for the root certificates of this machine.
    pub(crate) tls: Option<TlsConfig>,
}
