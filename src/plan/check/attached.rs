//! Checks the addresses of attached servers, and how connections to them are made.

use std::path::Path;

use super::diagnostics::with_place;
use crate::base::server_url::ServerUrl;
use crate::config::forms::Named;
use crate::config::matrix::{EngineEntry, engine_name};
use crate::config::template::{Template, TemplatePart};
use crate::config::yaml::{Diagnostic, SourceSpan, Spanned, backtick_list};

/// Errors about the keys of an attached server; `attaches` says whether the engine is one.
pub(super) fn check_attached(named: &Named<EngineEntry>, attaches: bool, diagnostics: &mut Vec<Diagnostic>) {
    let entry = &named.value;
    if !attaches {
        refuse_unused_keys(named, diagnostics);
    } else if urls(entry).next().is_none() {
        let (place, label) = match &entry.urls {
            Some(urls) => (urls.place.as_ref(), "names no address"),
            None => (None, "no `url`"),
        };
        diagnostics.push(
            with_place(
                Diagnostic::new(format!(
                    "the engine `{}` attaches to a running server, but has no address of this server",
                    engine_name(named)
                )),
                place.or(named.name.place.as_ref()),
                label,
            )
            .with_help("add its address, such as `url: http://127.0.0.1:8000`"),
        );
    }
    for url in urls(entry).filter(|url| !is_filled_later(url)) {
        if let Err(fault) = ServerUrl::parse(url.as_str()) {
            let message = format!("the url `{url}` of `{}` cannot be used", engine_name(named));
            let place = url.place.as_ref().or(named.name.place.as_ref());
            diagnostics.push(with_place(Diagnostic::new(message), place, fault.reason).with_help(fault.help));
        }
    }
    check_several(named, diagnostics);
    check_tls(named, diagnostics);
}

/// All addresses of an entry.
fn urls(entry: &EngineEntry) -> impl Iterator<Item = &Spanned<Template>> {
    let several = entry.urls.iter().flat_map(|urls| &urls.value);
    entry.url.iter().chain(several)
}

/// Whether a text has a placeholder or a secret.
fn is_filled_later(url: &Template) -> bool {
    let parts = url.parts();
    parts.iter().any(|part| !matches!(part, TemplatePart::Literal(_)))
}

/// Errors about keys that only an attached server has.
fn refuse_unused_keys(named: &Named<EngineEntry>, diagnostics: &mut Vec<Diagnostic>) {
    let entry = &named.value;
    let keys: [(&str, Option<Option<&SourceSpan>>); 3] = [
        ("urls", entry.urls.as_ref().map(|urls| urls.place.as_ref())),
        (
            "balance",
            entry.balance.as_ref().map(|balance| balance.place.as_ref()),
        ),
        ("tls", entry.tls.as_ref().map(|tls| tls.place.as_ref())),
    ];
    for (key, place) in keys {
        let Some(place) = place else { continue };
        diagnostics.push(
            with_place(
                Diagnostic::new(format!(
                    "`{key}` describes an attached server, but `matrix` starts `{}` itself",
                    engine_name(named)
                )),
                place,
                "has no effect",
            )
            .with_help(format!(
                "remove `{key}`, or attach to a running server with `attach: {{ urls: […] }}`"
            )),
        );
    }
}

/// Errors about several addresses, and about `balance` without them.
fn check_several(named: &Named<EngineEntry>, diagnostics: &mut Vec<Diagnostic>) {
    let entry = &named.value;
    if let (Some(_), Some(urls)) = (&entry.url, &entry.urls) {
        diagnostics.push(
            with_place(
                Diagnostic::new(format!("`{}` has both `url` and `urls`", engine_name(named))),
                urls.place.as_ref(),
                "a second list of addresses",
            )
            .with_help("write all addresses in `urls`"),
        );
    }
    let mut seen: Vec<String> = Vec::new();
    for url in entry.urls.iter().flat_map(|urls| &urls.value) {
        let server = normalized_url(url.as_str());
        if seen.contains(&server) {
            diagnostics.push(
                with_place(
                    Diagnostic::new(format!("`urls` of `{}` names `{url}` twice", engine_name(named))),
                    url.place.as_ref().or(named.name.place.as_ref()),
                    "named before",
                )
                .with_help("name each server once"),
            );
        }
        seen.push(server);
    }
    if let Some(balance) = entry.balance.as_ref().filter(|_| !entry.has_several_urls()) {
        diagnostics.push(
            with_place(
                Diagnostic::new(format!(
                    "`balance` of `{}` distributes requests over several servers, but there is only one",
                    engine_name(named)
                )),
                balance.place.as_ref().or(named.name.place.as_ref()),
                "has no effect",
            )
            .with_help("give several addresses in `urls`, or remove `balance`"),
        );
    }
}

/// Returns a URL in the one spelling that all URLs of a server share: the scheme and the host in small letters, no default port,
/// no slash at the end.
fn normalized_url(url: &str) -> String {
    let url = url.trim().trim_end_matches('/');
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let scheme = scheme.to_ascii_lowercase();
    let default_port = match scheme.as_str() {
        "http" => ":80",
        "https" => ":443",
        // The rest is the path of a socket.
        _ => return format!("{scheme}://{}", rest.trim_end_matches([':', '/'])),
    };
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    let authority = authority.to_ascii_lowercase();
    let host = authority.strip_suffix(default_port);
    // The end of an IPv6 address is no port.
    let host = host.filter(|host| !host.contains(':') || host.ends_with(']'));
    format!("{scheme}://{}{path}", host.unwrap_or(&authority))
}

/// Errors about TLS settings that contradict each other or have no effect.
fn check_tls(named: &Named<EngineEntry>, diagnostics: &mut Vec<Diagnostic>) {
    let entry = &named.value;
    let Some(tls) = &entry.tls else { return };
    let place = tls.place.as_ref().or(named.name.place.as_ref());
    let message = || Diagnostic::new(format!("invalid `tls` of `{}`", engine_name(named)));
    if let Err(why) = tls.value.settings(Path::new(""), |name| format!("`{name}`")) {
        diagnostics.push(with_place(message(), place, why));
    }
    if tls.value.is_default() {
        let why = "`tls` sets nothing: by default, certificates are checked against the CAs of this machine";
        let help = "remove `tls`, or set `insecure: true`, `ca_file`, or `client_cert` and `client_key`";
        diagnostics.push(with_place(message(), place, why).with_help(help));
        return;
    }
    for (name, _) in tls.value.files().filter(|(_, file)| file.as_os_str().is_empty()) {
        let why = format!("`{name}` is empty");
        let help = format!("write the path of a PEM file, or remove `{name}`");
        diagnostics.push(with_place(message(), place, why).with_help(help));
    }
    let mut addresses = urls(entry).peekable();
    let may_be_encrypted = addresses.peek().is_none()
        || addresses.any(|url| url.as_str().starts_with("https://") || is_filled_later(url));
    if !may_be_encrypted {
        let set = tls.value.set_names();
        let why = match set.is_empty() {
            true => "no address of the engine begins with `https://`".to_owned(),
            false => format!(
                "no address of the engine begins with `https://`, so this has no effect: {}",
                backtick_list(set.iter().copied())
            ),
        };
        diagnostics.push(with_place(message(), place, why).with_help("correct the address, or remove `tls`"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_a_server_are_the_same() {
        for (one, other) in [
            ("http://h:1", "http://h:1/"),
            ("http://h", " HTTP://H:80// "),
            ("https://h/v", "https://h:443/v/"),
            ("http://[::1]", "http://[::1]:80"),
            ("unix:///run/a.sock", "unix:///run/a.sock:/"),
            ("http://h:{port}/", "http://h:{port}"),
        ] {
            assert_eq!(normalized_url(one), normalized_url(other), "{one} {other}");
        }
        for (one, other) in [
            ("http://h:1", "http://h:2"),
            ("http://h", "https://h"),
            ("http://h:443", "http://h"),
            ("http://h/a", "http://h/A"),
            ("unix:///run/a.sock", "unix:///run/A.sock"),
        ] {
            assert_ne!(normalized_url(one), normalized_url(other), "{one} {other}");
        }
    }
}
