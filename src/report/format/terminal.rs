//! Draws documents for a terminal.

use crate::analysis::compare::pairwise::Comparison;
use crate::report::document::Document;
use crate::report::history::{self, History};
use crate::report::terminal::{self, PageLayout};
use crate::report::{Table, comparison, single_line};

/// The comparisons of a report.
pub(crate) fn report(document: &Document, layout: PageLayout) -> String {
    let tables = &document.tables;
    let compared = tables.comparisons.iter().map(|compared| &compared.figures);
    let mut text = String::from("\n");
    // One comparison alone is its own overview.
    let pivot = tables
        .overview_matrix
        .iter()
        .filter(|_| tables.comparisons.len() > 1);
    let answers = tables.answers.iter().chain(&tables.probes);
    for table in compared
        .chain(&tables.searches)
        .chain(&tables.interpolations)
        .chain(answers)
        .chain(&tables.rankings)
        .chain(pivot)
    {
        text.push_str(&draw(table, layout));
        text.push('\n');
    }
    let rough = tables.legend.iter().find(|line| line.starts_with("~: "));
    if let Some(rough) = rough {
        text.push_str(&format!("{rough}\n\n"));
    }
    let headlines = document.headlines();
    if !headlines.is_empty() {
        text.push_str("Answer\n");
        for headline in &headlines {
            let line = format!(
                "{}: {}",
                single_line(&headline.about),
                single_line(&headline.sentence)
            );
            text.push_str(&terminal::wrap_note(&line, layout.width));
        }
        text.push('\n');
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

pub(super) fn history(history: &History<'_>, layout: PageLayout) -> String {
    draw(&history::table(history), layout)
}

pub(super) fn comparison(compared: &Comparison, names: [&str; 2], layout: PageLayout) -> String {
    comparison::text(compared, names, |table| draw(table, layout))
}

fn draw(table: &Table, layout: PageLayout) -> String {
    terminal::draw(table, layout.width, layout.colors)
}
