//! What pages are made of: tables, pictures, entries of contents and legends. Texts are made harmless here, and escaped by the template.

use minijinja::Value as Safe;
use serde::Serialize;

use crate::analysis::metrics::Better;
use crate::report::chart::Picture;
use crate::report::{Align, Mark, Table, Value, plain};

/// Letters from which a text may be broken into lines.
const LONG: usize = 40;

/// An entry of the contents.
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
            name: plain(name),
        }
    }
}

/// A picture with all that stands around it.
#[derive(Serialize)]
pub(super) struct FigureView {
    pub(super) title: String,
    svg: Safe,
    pub(super) legend: Vec<Key>,
    /// What must be said below it.
    pub(super) notes: Vec<String>,
    /// What the filter looks for; empty where it stays, whatever is filtered.
    pub(super) words: String,
    table: TableView,
}

/// An entry of a legend.
#[derive(Serialize)]
pub(super) struct Key {
    sample: Safe,
    name: String,
}

#[derive(Serialize)]
pub(super) struct TableView {
    title: String,
    /// What stands above it, where a heading tells the title already.
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
    /// Which way it is ordered at the first click.
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
    /// By what it is ordered, where that is not its text.
    value: Option<String>,
    class: &'static str,
}

/// Pictures, with legend and table each.
pub(super) fn figures(pictures: Vec<Picture>) -> Vec<FigureView> {
    let figure = |picture: Picture| FigureView {
        title: plain(picture.title()),
        svg: Safe::from_safe_string(picture.svg()),
        legend: picture
            .legend()
            .into_iter()
            .map(|(sample, name)| Key::new(sample, &name))
            .collect(),
        notes: Vec::new(),
        words: String::new(),
        table: table(&picture.table()),
    };
    pictures.into_iter().map(figure).collect()
}

/// The table under another caption.
pub(super) fn called(table: TableView, caption: &str) -> TableView {
    TableView {
        caption: caption.to_owned(),
        ..table
    }
}

/// A table as the template asks for it.
pub(super) fn table(table: &Table) -> TableView {
    // A column in which nothing is known only takes room.
    let is_known = |at: usize| {
        let mut cells = table.rows.iter().map(|row| &row.cells[at]);
        at == 0 || table.rows.is_empty() || cells.any(|cell| *cell != Value::Missing)
    };
    let kept: Vec<usize> = (0..table.columns.len()).filter(|&at| is_known(at)).collect();
    let columns = kept
        .iter()
        .map(|&at| &table.columns[at])
        .map(|column| ColumnView {
            head: plain(&column.head),
            unit: column.unit,
            is_right: column.align == Align::Right,
            first: match (column.better, column.align) {
                (Some(Better::Lower), _) | (None, Align::Left) => "ascending",
                _ => "descending",
            },
        });
    let rows = table.rows.iter().map(|row| RowView {
        cells: kept
            .iter()
            .map(|&at| cell(&row.cells[at], table.columns[at].align))
            .collect(),
        marks: row.marks.iter().filter_map(|mark| mark.word()).collect(),
        is_doubtful: row.marks.iter().any(|mark| {
            matches!(
                mark,
                Mark::Warned | Mark::Suspect | Mark::SuspectIn(_) | Mark::Invalid | Mark::Failed
            )
        }),
    });
    TableView {
        title: plain(&table.title),
        caption: plain(&table.title),
        columns: columns.collect(),
        rows: rows.collect(),
        notes: table.notes.iter().map(|note| plain(note)).collect(),
    }
}

fn cell(value: &Value, align: Align) -> CellView {
    let text = plain(&value.to_string());
    CellView {
        value: value.number().map(|number| number.to_string()),
        class: match align {
            Align::Right => "right",
            Align::Left if text.chars().count() > LONG => "long",
            Align::Left => "",
        },
        text,
    }
}
