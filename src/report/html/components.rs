//! Parts of pages: tables, figures, contents and legends. Control characters are removed here; the template
//! escapes texts.

use minijinja::Value as Safe;
use serde::Serialize;

use crate::analysis::metrics::Direction;
use crate::report::chart::Chart;
use crate::report::table::{Align, Mark, Table, Value, single_line};

/// Left-aligned table cells with more characters than this may wrap.
const MIN_BREAKABLE_CHARS: usize = 40;

/// An entry of the table of contents.
#[derive(Serialize)]
pub(super) struct Entry {
    id: String,
    title: String,
}

impl Entry {
    pub(super) fn new(id: &str, title: &str) -> Self {
        Self {
            id: id.to_owned(),
            title: title.to_owned(),
        }
    }
}

impl Key {
    /// `sample` is SVG of [`crate::report::chart`].
    pub(super) fn new(sample: String, name: &str) -> Self {
        Self {
            sample: Safe::from_safe_string(sample),
            name: single_line(name),
        }
    }
}

/// A chart with its legend, notes and table.
#[derive(Serialize)]
pub(super) struct FigureView {
    pub(super) title: String,
    svg: Safe,
    pub(super) legend: Vec<Key>,
    pub(super) notes: Vec<String>,
    /// The text that the filter searches; empty if the filter never hides the figure.
    pub(super) words: String,
    table: TableView,
}

#[derive(Serialize)]
pub(super) struct Key {
    sample: Safe,
    name: String,
}

#[derive(Serialize)]
pub(super) struct TableView {
    title: String,
    /// The caption above the table, if a heading already shows the title.
    caption: String,
    columns: Vec<ColumnView>,
    rows: Vec<RowView>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct ColumnView {
    head: String,
    unit: &'static str,
    is_right: bool,
    /// The sort direction of the first click.
    first: &'static str,
}

#[derive(Serialize)]
struct RowView {
    cells: Vec<CellView>,
    marks: Vec<&'static str>,
    is_doubtful: bool,
}

#[derive(Serialize)]
struct CellView {
    text: String,
    /// The sort value, if it is not the text.
    value: Option<String>,
    class: &'static str,
}

/// Charts with their legends and tables.
pub(super) fn chart_views(pictures: Vec<Chart>) -> Vec<FigureView> {
    let figure = |picture: Chart| FigureView {
        title: single_line(picture.title()),
        svg: Safe::from_safe_string(picture.svg()),
        legend: picture
            .legend()
            .into_iter()
            .map(|(sample, name)| Key::new(sample, &name))
            .collect(),
        notes: Vec::new(),
        words: String::new(),
        table: table_view(&picture.table()),
    };
    pictures.into_iter().map(figure).collect()
}

pub(super) fn with_caption(table: TableView, caption: &str) -> TableView {
    TableView {
        caption: caption.to_owned(),
        ..table
    }
}

pub(super) fn table_view(table: &Table) -> TableView {
    // A column without any value is left out.
    let is_known = |at: usize| {
        let mut cells = table.rows.iter().map(|row| &row.cells[at]);
        at == 0 || table.rows.is_empty() || cells.any(|cell| *cell != Value::Missing)
    };
    let shown_columns: Vec<usize> = (0..table.columns.len()).filter(|&at| is_known(at)).collect();
    let columns = shown_columns
        .iter()
        .map(|&at| &table.columns[at])
        .map(|column| ColumnView {
            head: single_line(&column.head),
            unit: column.unit,
            is_right: column.align == Align::Right,
            first: match (column.better, column.align) {
                (Some(Direction::Lower), _) | (None, Align::Left) => "ascending",
                _ => "descending",
            },
        });
    let rows = table.rows.iter().map(|row| RowView {
        cells: shown_columns
            .iter()
            .map(|&at| cell_view(&row.cells[at], table.columns[at].align))
            .collect(),
        marks: row.marks.iter().filter_map(|mark| mark.word()).collect(),
        is_doubtful: row.marks.iter().any(|mark| {
            matches!(
                mark,
                Mark::Warning | Mark::Suspect | Mark::SuspectIn(_) | Mark::Invalid | Mark::Failed
            )
        }),
    });
    TableView {
        title: single_line(&table.title),
        caption: single_line(&table.title),
        columns: columns.collect(),
        rows: rows.collect(),
        notes: table.notes.iter().map(|note| single_line(note)).collect(),
    }
}

fn cell_view(value: &Value, align: Align) -> CellView {
    let text = single_line(&value.to_string());
    CellView {
        value: value.sort_key().map(|number| number.to_string()),
        class: match align {
            Align::Right => "right",
            Align::Left if text.chars().count() > MIN_BREAKABLE_CHARS => "long",
            Align::Left => "",
        },
        text,
    }
}
