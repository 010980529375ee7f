//! What everybody carries: units, names, the clock, dates, HTTP/1.1 as pure code over bytes. Knows no other wing.

pub mod body;
pub mod clock;
pub(crate) mod control_client;
pub mod date;
pub mod http1;
pub mod ids;
pub mod own;
pub(crate) mod proc;
pub mod secrets;
pub mod text;
pub mod threads;
pub(crate) mod tls;
pub mod unfinished;
pub mod units;
