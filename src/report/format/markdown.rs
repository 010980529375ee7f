//! Draws documents as GitHub's Markdown.

use crate::analysis::compare::pairwise::Comparison;
use crate::report::document::{Document, HOSTS, Headline};
use crate::report::history::{self, History};
use crate::report::markdown::{self, escape};
use crate::report::{Table, comparison, single_line};

pub(super) fn report(document: &Document) -> String {
    let mut text = format!("# {}\n\n", escape(&document.title));
    for run in &document.runs {
        if let Some(about) = &run.about {
            text.push_str(&format!("{}\n\n", escape(&single_line(about))));
        }
        text.push_str(&format!(
            "Run {}, started {}, {}.\n\n",
            escape(&run.run),
            escape(&run.began),
            escape(&run.tool)
        ));
        for hosts in run.machine.iter().filter(|fact| fact.name == HOSTS) {
            text.push_str(&format!(
                "Measured on several hosts: {}.\n\n",
                escape(&hosts.value)
            ));
        }
    }
    let headlines = document.headlines();
    if !headlines.is_empty() {
        let line =
            |headline: &Headline| format!("**{}**: {}", escape(&headline.about), escape(&headline.sentence));
        text.push_str("## Answer\n\n");
        for headline in &headlines {
            text.push_str(&format!("- {}\n", line(headline)));
        }
        text.push('\n');
    }
    let tables = &document.tables;
    for table in tables.overview_matrix.iter().chain(&tables.searches) {
        text.push_str(&draw(table));
        text.push('\n');
    }
    text.push_str(&draw(&tables.overview));
    let compared = tables
        .comparisons
        .iter()
        .flat_map(|compared| [&compared.figures, &compared.latencies]);
    let answers = tables.answers.iter().chain(&tables.probes);
    for table in tables
        .interpolations
        .iter()
        .chain(&tables.rankings)
        .chain(&tables.findings)
        .chain(compared)
        .chain(answers)
        .chain(&tables.notes)
    {
        text.push('\n');
        text.push_str(&draw(table));
    }
    if !tables.legend.is_empty() {
        text.push_str("\n## Legend\n\n");
        text.push_str(&markdown::list(&tables.legend));
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
        text.push_str(&markdown::list(&doubts));
    }
    text
}

pub(super) fn history(history: &History<'_>) -> String {
    draw(&history::table(history))
}

pub(super) fn comparison(compared: &Comparison, names: [&str; 2]) -> String {
    comparison::text(compared, names, draw)
}

fn draw(table: &Table) -> String {
    markdown::draw(table, 3)
}
