//! Formats TLS errors so that they say how to fix them.

use std::error::Error;
use std::io;

use rustls::InvalidMessage;

/// The explanation if the first bytes of a server are not a TLS record.
const NO_TLS_HINT: &str = "the server does not speak TLS; use `http://`";

pub(crate) fn describe(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => NO_TLS_HINT.to_owned(),
        error => error.to_string(),
    }
}

/// Formats an error that a TLS error may have caused.
pub(crate) fn describe_cause(error: &(dyn Error + 'static)) -> String {
    find_tls_error(error).map_or_else(|| error.to_string(), describe)
}

/// Finds the TLS error within an error. `source` does not return the error that an I/O error wraps.
fn find_tls_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    match error.downcast_ref::<io::Error>() {
        Some(error) => find_tls_error(error.get_ref()?),
        None => error.downcast_ref(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_tls_is_named_however_deep_the_error_lies() {
        let error = || rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
        assert_eq!(describe_cause(&error()), NO_TLS_HINT);
        let nested = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error()));
        assert_eq!(describe_cause(&nested), NO_TLS_HINT);
        assert_eq!(describe_cause(&io::Error::other("gone")), "gone");
    }
}
