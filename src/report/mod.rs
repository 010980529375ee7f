//! Turns figures into documents: one table model that every format draws.
//!
//! [`document`] holds everything that a report shows; `report.json` is made of it. [`tables`] decides which
//! cells stand side by side. [`text`], [`csv`], [`terminal`] and [`markdown`] draw and compute nothing.
//! [`bench_serving`] writes bench_serving's own forms, [`vllm_json`] that of `vllm bench serve`.
//! [`engine_report`] assembles a whole document. Every function here is pure and returns text.

pub(crate) mod bench_serving;
pub(crate) mod calibration;
pub(crate) mod chart;

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod engine_report;
pub(crate) mod explain;
pub(crate) mod history;
pub(crate) mod html;

pub(crate) mod ascii_plot;
mod labels;
pub(crate) mod markdown;
pub(crate) mod nightly;
pub(crate) mod noise;
pub(crate) mod plan;
pub(crate) mod text;

pub(crate) mod table;
pub(crate) mod tables;
pub(crate) mod terminal;
#[cfg(test)]
mod testing;

pub(crate) mod caveats;
pub(crate) mod comparison;
pub(crate) mod vllm_json;

pub(crate) use table::{Table, sanitize, single_line};
pub(crate) use tables::ReportCell;

/// How a table is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Terminal {
        width: u16,
        /// Whether rows that need attention are coloured.
        colors: bool,
    },
    /// GitHub's Markdown.
    Markdown,
}

/// Draws one table as text that ends with a line break.
pub(crate) fn draw(table: &Table, format: Format) -> String {
    match format {
        Format::Terminal { width, colors } => terminal::draw(table, width, colors),
        Format::Markdown => markdown::draw(table, 3),
    }
}
