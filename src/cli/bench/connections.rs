//! Extensions of `matrix bench` for connections to the server.

use std::path::PathBuf;

use clap::Args;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connections")]
pub(crate) struct ConnectionArgs {
    /// Accept any certificate of the server: whoever answers is measured. The result says so.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Accept only certificates that a CA of this PEM file has signed, instead of the CAs of this machine.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// The PEM file of the client certificate, with its chain.
    #[arg(long, value_name = "FILE")]
    pub(crate) client_cert: Option<PathBuf>,
    /// The PEM file of the key of `--client-cert`.
    #[arg(long, value_name = "FILE")]
    pub(crate) client_key: Option<PathBuf>,
}
