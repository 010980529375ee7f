//! URLs of servers that listen on a Unix socket: `unix:///run/engine.sock`, or with a prefix of every path
//! `unix:///run/engine.sock:/prefix`, as nginx writes it.

use std::path::Path;

const SCHEME: &str = "unix://";
/// Length of the longest path that the kernel takes for a socket.
const MAX_SOCKET_PATH: usize = 107;
/// The host that requests over a Unix socket name.
pub(crate) const UNIX_HOST: &str = "localhost";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnixUrl<'u> {
    /// The absolute path of the socket.
    pub(crate) socket: &'u Path,
    /// Empty, or with a slash at the front and none at the end.
    pub(crate) prefix: &'u str,
}

impl<'u> UnixUrl<'u> {
    /// Splits a URL; `None` if it has another scheme.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(url: &'u str) -> Option<Result<Self, &'static str>> {
        let rest = url.strip_prefix(SCHEME)?;
        Some(Self::split(rest))
    }

    fn split(rest: &'u str) -> Result<Self, &'static str> {
        // The last one, because a folder may be named `a:`.
        let (socket, prefix) = rest
            .rfind(":/")
            .map_or((rest, ""), |colon| (&rest[..colon], &rest[colon + 1..]));
        if !socket.starts_with('/') {
            return Err("the socket path in the URL is not absolute");
        }
        if socket.ends_with('/') {
            return Err("the URL names a folder instead of a socket");
        }
        if socket.len() > MAX_SOCKET_PATH {
            return Err("the socket path in the URL is longer than 107 bytes");
        }
        if prefix.bytes().any(|byte| !byte.is_ascii_graphic()) || prefix.contains(['?', '#']) {
            return Err("the path prefix in the URL must not contain spaces, `?` or `#`");
        }
        Ok(Self {
            socket: Path::new(socket),
            prefix: prefix.trim_end_matches('/'),
        })
    }
}

/// Appends a path, which may include a query, to a base URL without a slash at its end.
pub(crate) fn join_path(base_url: &str, path: &str) -> String {
    let path = path.trim_start_matches('/');
    match base_url.strip_prefix(SCHEME) {
        Some(rest) if !rest.contains(":/") => format!("{base_url}:/{path}"),
        _ => format!("{base_url}/{path}"),
    }
}

/// Returns the URL that a request for `url` names: over a Unix socket without the socket.
pub(crate) fn wire_url(url: &str) -> String {
    let Some(rest) = url.strip_prefix(SCHEME) else {
        return url.to_owned();
    };
    let path_end = rest.find('?').unwrap_or(rest.len());
    let path = rest[..path_end]
        .rfind(":/")
        .map_or("", |colon| &rest[colon + 1..]);
    format!("http://{UNIX_HOST}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_a_socket_may_have_a_prefix() {
        let parts = |url| {
            let parsed = UnixUrl::parse(url).unwrap();
            parsed.map(|parsed| (parsed.socket.to_str().unwrap(), parsed.prefix))
        };
        assert_eq!(parts("unix:///run/a b.sock"), Ok(("/run/a b.sock", "")));
        assert_eq!(parts("unix:///run/a.sock:/"), Ok(("/run/a.sock", "")));
        assert_eq!(parts("unix:///a:/b.sock:/api/v2/"), Ok(("/a:/b.sock", "/api/v2")));
        for wrong in [
            "unix://",
            "unix://a.sock",
            "unix:///run/",
            "unix:///a.sock:/?k=v",
            "unix:///a:/b c",
        ] {
            assert!(parts(wrong).is_err(), "{wrong}");
        }
        assert!(UnixUrl::parse("http://host").is_none());
    }

    #[test]
    fn a_request_names_its_path_and_no_socket() {
        for (base, shown, wire) in [
            (
                "unix:///a.sock",
                "unix:///a.sock:/flush?t=a:/b",
                "http://localhost/flush?t=a:/b",
            ),
            (
                "unix:///a.sock:/v2",
                "unix:///a.sock:/v2/flush?t=a:/b",
                "http://localhost/v2/flush?t=a:/b",
            ),
            (
                "http://h:1/v2",
                "http://h:1/v2/flush?t=a:/b",
                "http://h:1/v2/flush?t=a:/b",
            ),
        ] {
            let url = join_path(base, "/flush?t=a:/b");
            assert_eq!((url.as_str(), wire_url(&url).as_str()), (shown, wire));
        }
        assert_eq!(wire_url("unix:///a.sock"), "http://localhost");
    }
}
