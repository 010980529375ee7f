//! The content of an upgrade's page, as its template expects it.

use serde::Serialize;

use super::components::{Entry, TableView, table_view, with_caption};
use crate::report::table::{Table, single_line};
use crate::report::upgrade::UpgradePage;

#[derive(Serialize)]
pub(super) struct UpgradeView {
    title: String,
    headline: String,
    reasons: Vec<String>,
    warnings: Vec<String>,
    contents: Vec<Entry>,
    parts: Vec<Part>,
    run: String,
}

/// A table with its heading.
#[derive(Serialize)]
struct Part {
    id: &'static str,
    title: String,
    table: TableView,
}

pub(super) fn view(page: &UpgradePage) -> UpgradeView {
    let part = |id, table: &Table| Part {
        id,
        title: single_line(&table.title),
        table: with_caption(table_view(table), ""),
    };
    let mut parts = vec![part("changes", &page.changes), part("figures", &page.figures)];
    parts.extend(page.answers.as_ref().map(|answers| part("answers", answers)));
    UpgradeView {
        title: format!("Upgrade: {}", page.answer.word()),
        headline: page.headline.clone(),
        reasons: page.reasons.clone(),
        warnings: page.warnings.clone(),
        contents: parts
            .iter()
            .map(|part| Entry::new(part.id, &part.title))
            .collect(),
        parts,
        run: single_line(&page.run),
    }
}
