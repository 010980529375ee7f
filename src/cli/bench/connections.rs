//! Extensions of `matrix bench` for connections to the server.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Connections")]
pub(crate) struct ConnectionArgs {
    /// How long a connection lasts: for one request, as in the Python tool, or for the whole load, so that an idle
    /// connection serves further requests.
    #[arg(long, value_enum, default_value = "new")]
    pub(crate) connections: ConnectionsArg,
    /// How requests are distributed over several addresses of `--base-url`; `round-robin` by default. `sticky` sends all rounds of a
    /// conversation, and all requests with one routing key, to one address.
    #[arg(long, value_enum)]
    pub(crate) balance: Option<BalanceArg>,
    /// How many times a request is sent again if the server answers 429 or 503. The wait before is the time in the
    /// server's `Retry-After` header (60 s at most). Without this header it is 0.5 s at first, and doubles each time.
    /// Latencies count from the first time that the request was sent.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) retries: u32,
    /// The header by which a router keeps the requests of a conversation or session on one worker. Its value is the same for all
    /// requests of one conversation; keys of `--gsp-send-routing-key` are also sent in this header.
    #[arg(long, value_name = "NAME")]
    pub(crate) routing_key_header: Option<String>,
    /// Accept any certificate. Then another server than the expected one may answer; the result has a note about it.
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

/// How long a connection lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConnectionsArg {
    /// One connection for each request.
    New,
    /// Idle connections serve further requests of the load.
    Reuse,
}

/// How requests are distributed over several addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BalanceArg {
    /// In turn.
    RoundRobin,
    /// To the address with the fewest requests in flight.
    LeastLoaded,
    /// The addresses take turns, but all requests of a conversation, or with the same routing key, go to one address.
    Sticky,
}
