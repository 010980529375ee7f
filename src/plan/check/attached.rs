//! Checks the addresses of attached servers, and how connections to them are made.

use std::path::Path;

use super::diagnostics::with_place;
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
        diagnostics.push(
            with_place(
                Diagnostic::new(format!(
                    "`{}` attaches to a server, but has no address",
                    engine_name(named)
                )),
                named.name.place.as_ref(),
                "no `url`",
            )
            .with_help("add its address, such as `url: http://127.0.0.1:8000`"),
        );
    }
    for url in urls(entry).filter(|url| !names_scheme(url)) {
        diagnostics.push(
            with_place(
                Diagnostic::new(format!(
                    "the url `{url}` of `{}` has no scheme",
                    engine_name(named)
                )),
                named.name.place.as_ref(),
                "its `url`",
            )
            .with_help(format!("did you mean `http://{url}`?")),
        );
    }
    check_several(named, diagnostics);
    check_tls(named, diagnostics);
}

/// All addresses of an entry.
fn urls(entry: &EngineEntry) -> impl Iterator<Item = &Spanned<Template>> {
    let several = entry.urls.iter().flat_map(|urls| &urls.value);
    entry.url.iter().chain(several)
}

fn names_scheme(url: &Spanned<Template>) -> bool {
    url.as_str().contains("://") || is_filled_later(url)
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
            .with_help("remove it, or attach to a running server with `attach: { urls: […] }`"),
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
    let mut seen: Vec<&str> = Vec::new();
    for url in entry.urls.iter().flat_map(|urls| &urls.value) {
        if seen.contains(&url.as_str()) {
            diagnostics.push(
                with_place(
                    Diagnostic::new(format!("`urls` of `{}` names `{url}` twice", engine_name(named))),
                    url.place.as_ref().or(named.name.place.as_ref()),
                    "named before",
                )
                .with_help("name each server once"),
            );
        }
        seen.push(url.as_str());
    }
    if let Some(balance) = entry.balance.as_ref().filter(|_| !entry.has_several_urls()) {
        diagnostics.push(
            with_place(
                Diagnostic::new(format!(
                    "`balance` of `{}` distributes requests over one server",
                    engine_name(named)
                )),
                balance.place.as_ref().or(named.name.place.as_ref()),
                "has no effect",
            )
            .with_help("give several addresses in `urls`, or remove it"),
        );
    }
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
    let mut addresses = urls(entry).peekable();
    let may_be_encrypted = addresses.peek().is_none()
        || addresses.any(|url| url.as_str().starts_with("https://") || is_filled_later(url));
    if !may_be_encrypted {
        let set = tls.value.set_names();
        let why = match set.is_empty() {
            true => "no address begins with `https://`".to_owned(),
            false => format!(
                "{} {} no effect: no address begins with `https://`",
                backtick_list(set.iter().copied()),
                if set.len() == 1 { "has" } else { "have" }
            ),
        };
        diagnostics.push(with_place(message(), place, why).with_help("correct the address, or remove `tls`"));
    }
}
