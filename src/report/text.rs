//! The whole report as text: in Markdown, and for a terminal.

use super::document::Document;
use super::markdown::escape;
use super::table::single_line;
use super::{Format, draw};

pub(crate) fn markdown(document: &Document) -> String {
    let mut text = format!("# {}\n\n", escape(&document.title));
    for run in &document.runs {
        text.push_str(&format!(
            "Run {}, started {}, {}.\n\n",
            escape(&run.run),
            escape(&run.began),
            escape(&run.tool)
        ));
    }
    let tables = &document.tables;
    if let Some(across) = &tables.overview_matrix {
        text.push_str(&draw(across, Format::Markdown));
        text.push('\n');
    }
    text.push_str(&draw(&tables.overview, Format::Markdown));
    let compared = tables
        .comparisons
        .iter()
        .flat_map(|compared| [&compared.figures, &compared.latencies]);
    for table in tables.rankings.iter().chain(compared).chain(&tables.validity) {
        text.push('\n');
        text.push_str(&draw(table, Format::Markdown));
    }
    if !tables.legend.is_empty() {
        text.push_str("\n## Legend\n\n");
        text.push_str(&super::markdown::list(&tables.legend));
    }
    let left_out: Vec<_> = document.runs.iter().flat_map(|run| &run.left_out).collect();
    if !left_out.is_empty() {
        text.push_str("\n## Left out\n\n");
        for cell in left_out {
            text.push_str(&format!("- {}: {}\n", escape(&cell.cell), escape(&cell.why)));
        }
    }
    let doubts: Vec<_> = document.runs.iter().flat_map(|run| &run.doubts).collect();
    if !doubts.is_empty() {
        text.push_str("\n## Skipped\n\n");
        text.push_str(&super::markdown::list(&doubts));
    }
    text
}

/// The comparisons for a terminal of `width` columns.
pub(crate) fn terminal(document: &Document, width: u16, colors: bool) -> String {
    let format = Format::Terminal { width, colors };
    let tables = &document.tables;
    let compared = tables.comparisons.iter().map(|compared| &compared.figures);
    let mut text = String::from("\n");
    for table in compared.chain(&tables.rankings) {
        text.push_str(&draw(table, format));
        text.push('\n');
    }
    let rough = tables.legend.iter().find(|line| line.starts_with("~: "));
    if let Some(rough) = rough {
        text.push_str(&format!("{rough}\n\n"));
    }
    let doubts: Vec<_> = document.runs.iter().flat_map(|run| &run.doubts).collect();
    if !doubts.is_empty() {
        text.push_str("Skipped\n");
        for doubt in doubts {
            text.push_str(&format!("  {}\n", single_line(doubt)));
        }
        text.push('\n');
    }
    text
}
