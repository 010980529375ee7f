//! One HTML file: tables that sort and filter, charts with values on hover. It needs no network, and its
//! content security policy forbids network access.
//!
//! The templates escape every text; only the SVG of [`super::chart`] is inserted unescaped. `parts.html` is
//! shared by all pages; their bodies come between `head.html` and `foot.html`.

mod charts;
mod components;
mod history_charts;
pub(crate) mod load_charts;
mod nights;
mod site;
mod site_charts;
#[cfg(test)]
mod tests;
mod upgrade;
pub(crate) mod view;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use minijinja::{Environment, Value};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::document::Document;
use super::history::History;
use super::site::Site;
use super::upgrade::UpgradePage;

const PARTS: &str = include_str!("parts.html");
const HEAD: &str = include_str!("head.html");
const REPORT: &str = include_str!("report.html");
const NIGHTS: &str = include_str!("nights.html");
const UPGRADE: &str = include_str!("upgrade.html");
const SITE: &str = include_str!("site.html");
const FOOT: &str = include_str!("foot.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

const SITE_STYLE: &str = include_str!("site.css");
const SITE_SCRIPT: &str = include_str!("site.js");

/// The part of the style that charts need, for a picture of its own.
pub(crate) fn chart_style() -> String {
    let (colours, rest) = STYLE.split_once("* { box-sizing").unwrap_or((STYLE, ""));
    let rules = rest
        .lines()
        .filter(|line| line.starts_with("svg ") || line.starts_with(".c0 "));
    colours
        .lines()
        .chain(rules)
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Draws the page of a report.
pub(crate) fn draw(document: &Document) -> String {
    page(REPORT, view::view(document), Extra::default())
}

/// Draws the page of a report that belongs to a site. `index` is the address of the site's index.
pub(crate) fn draw_in_site(document: &Document, index: &str) -> String {
    let extra = Extra {
        index: Some(index),
        ..Extra::default()
    };
    page(REPORT, view::view(document), extra)
}

/// Draws the index of a site.
pub(crate) fn draw_site(site: &Site) -> String {
    let extra = Extra {
        style: SITE_STYLE,
        script: SITE_SCRIPT,
        index: None,
    };
    page(SITE, site::view(site), extra)
}

/// Draws the page of a history.
pub(crate) fn draw_history(history: &History<'_>) -> String {
    page(NIGHTS, nights::view(history), Extra::default())
}

/// Draws the page of an upgrade.
pub(crate) fn draw_upgrade(upgrade: &UpgradePage) -> String {
    page(UPGRADE, upgrade::view(upgrade), Extra::default())
}

/// What a page has besides the parts that all pages share.
#[derive(Default)]
struct Extra<'a> {
    /// Rules after those of all pages.
    style: &'static str,
    /// A script after that of all pages.
    script: &'static str,
    /// Address of the index that the page links back to.
    index: Option<&'a str>,
}

fn page(body: &str, view: impl Serialize, extra: Extra<'_>) -> String {
    let mut page = Environment::new();
    // The extension `.html` turns on escaping.
    page.add_template_owned("page.html", [PARTS, HEAD, body, FOOT].concat())
        .expect("the page is a template");
    let digest = |text: &str| Value::from(BASE64.encode(Sha256::digest(text.as_bytes())));
    let style = [STYLE, extra.style].concat();
    let script = [SCRIPT, extra.script].concat();
    let more = minijinja::context! {
        style_digest => digest(&style),
        script_digest => digest(&script),
        style => Value::from_safe_string(style),
        script => Value::from_safe_string(script),
        index => extra.index,
        ..Value::from(minijinja::value::Serde(view))
    };
    let page = page.get_template("page.html").expect("it was added above");
    let mut text = page.render(more).expect("the page asks for what the view has");
    text.push('\n');
    text
}
