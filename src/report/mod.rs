//! Turns figures into documents: one table model that every format draws.
//!
//! [`document`] holds everything that a report shows; `report.json` is made of it. [`tables`] decides which
//! cells stand side by side. [`format`](mod@format) lists the formats; [`terminal`] and [`markdown`] draw
//! single tables. [`bench_serving`] writes bench_serving's own forms, [`vllm_json`] that of `vllm bench serve`.
//! [`engine_report`] assembles a whole document. Every function here is pure and returns text.

pub(crate) mod bench_serving;
pub(crate) mod calibration;
pub(crate) mod chart;

pub(crate) mod document;
pub(crate) mod engine_report;
pub(crate) mod explain;
pub(crate) mod format;
pub(crate) mod history;
pub(crate) mod html;

pub(crate) mod ascii_plot;
pub(crate) mod labels;
mod load_time;
pub(crate) mod markdown;
pub(crate) mod nightly;
pub(crate) mod noise;
pub(crate) mod perfetto;
pub(crate) mod plan;

pub(crate) mod site;
pub(crate) mod table;
pub(crate) mod tables;
pub(crate) mod terminal;
#[cfg(test)]
mod testing;

pub(crate) mod caveats;
pub(crate) mod comparison;
pub(crate) mod connection_notes;
pub(crate) mod tune;
pub(crate) mod upgrade;
pub(crate) mod vllm_json;
pub(crate) mod vllm_serve;

pub(crate) use table::{Table, sanitize, single_line};
pub(crate) use tables::ReportCell;
