//! The foundation: units, identifiers, clock, dates, secrets, processes, HTTP/1.1 as pure code. It imports no
//! other module of the crate.

pub(crate) mod audio;
pub(crate) mod body;
pub mod clock;
pub(crate) mod control_client;
pub(crate) mod date;
pub mod http1;
pub mod ids;
pub(crate) mod private_files;
pub(crate) mod proc;
pub(crate) mod regular_file;
pub(crate) mod secrets;
pub(crate) mod server_url;
pub(crate) mod text;
pub(crate) mod threads;
pub(crate) mod tls;
pub(crate) mod unfinished;
pub(crate) mod units;
pub(crate) mod unix_url;
