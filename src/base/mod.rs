//! What everybody carries: units, names, the clock, dates, HTTP/1.1 as pure code over bytes. Knows no other wing.

pub(crate) mod body;
pub mod clock;
pub(crate) mod control_client;
pub(crate) mod date;
pub mod http1;
pub mod ids;
pub(crate) mod own;
pub(crate) mod proc;
pub(crate) mod secrets;
pub(crate) mod text;
pub(crate) mod threads;
pub(crate) mod tls;
pub(crate) mod unfinished;
pub(crate) mod units;
