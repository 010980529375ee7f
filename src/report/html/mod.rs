//! One file for a browser: tables that sort and filter, charts with values on hover. It needs no network, and its content security
//! policy forbids it any.
//!
//! `page.html` escapes every text by itself; only what [`super::chart`] drew goes in as it is.

mod pictures;
#[cfg(test)]
mod tests;
mod view;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use minijinja::{Environment, Value};
use sha2::{Digest, Sha256};

use super::document::Document;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The document as a page.
pub fn draw(document: &Document) -> String {
    let mut page = Environment::new();
    // The name decides that texts are escaped.
    page.add_template("page.html", PAGE)
        .expect("the page is a template");
    let digest = |text: &str| Value::from(BASE64.encode(Sha256::digest(text.as_bytes())));
    let view = view::view(document);
    let more = minijinja::context! {
        style => Value::from_safe_string(STYLE.to_owned()),
        script => Value::from_safe_string(SCRIPT.to_owned()),
        style_digest => digest(STYLE),
        script_digest => digest(SCRIPT),
        ..Value::from(minijinja::value::Serde(view))
    };
    let page = page.get_template("page.html").expect("it was added above");
    let mut text = page.render(more).expect("the page asks for what the view has");
    text.push('\n');
    text
}
