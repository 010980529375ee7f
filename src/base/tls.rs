//! Errors of TLS in words that say what to do.

use std::error::Error;
use std::io;

use rustls::InvalidMessage;

/// What the bytes of a server mean that begin no record of TLS.
const NO_TLS: &str = "the server does not speak TLS; use `http://`";

/// The words of a TLS error.
pub(crate) fn describe(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => NO_TLS.to_owned(),
        error => error.to_string(),
    }
}

/// The words of an error that a TLS error may have caused.
pub(crate) fn describe_cause(error: &(dyn Error + 'static)) -> String {
    // An I/O error hides the error that it holds from `source`.
    let held = error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref)
        .and_then(|held| held.downcast_ref::<rustls::Error>());
    match held.or_else(|| error.downcast_ref::<rustls::Error>()) {
        Some(error) => describe(error),
        None => error.to_string(),
    }
}
