//! Draws tables for a terminal: within its width, without the least important columns if they do not fit.

use anstyle::{AnsiColor, Style};
use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table as Drawn, TableStyle};

use super::table::{Align, Column, Mark, Row, Table, Value, single_line};
use crate::base::text::wrap;
use crate::results::record::validity::MetricFamily;

/// Width for files and pipes, in columns. Notes are not wrapped at this width, so that a search by line finds
/// them.
pub(crate) const PAGE_WIDTH: u16 = 160;

/// The medium of terminal tables.
#[derive(Clone, Copy)]
pub(crate) struct PageLayout {
    pub(crate) width: u16,
    /// Whether rows that need attention are coloured.
    pub(crate) colors: bool,
}

impl PageLayout {
    /// A file, which does not depend on the terminal.
    pub(crate) const FILE: Self = Self {
        width: PAGE_WIDTH,
        colors: false,
    };
}

/// Indents of a note's first line and of its further lines.
const NOTE_INDENT: [usize; 2] = [2, 4];

/// Blanks around the content of each column.
const PADDING: u16 = 2;
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─'));

/// Draws the table in at most `width` columns. Rows that need attention are coloured if `colors` is set.
pub(crate) fn draw(table: &Table, width: u16, colors: bool) -> String {
    let (shown_columns, left_out) = fitting_columns(table, width);
    let mut text = format!("{}\n", styled(&single_line(&table.title), bold(), colors));
    let drawn = draw_columns(table, &shown_columns, width);
    let lines: Vec<String> = drawn.lines().map(|line| line.trim_end().to_owned()).collect();
    // If rows were wrapped, lines no longer correspond to rows, so none is coloured.
    let is_plain = lines.len() == table.rows.len() + 3;
    for (at, line) in lines.iter().enumerate() {
        let style = match at.checked_sub(3).and_then(|row| table.rows.get(row)) {
            _ if !is_plain => Style::new(),
            None if at < 2 => bold(),
            None => Style::new(),
            Some(row) => style_of(row),
        };
        text.push_str(&styled(line, style, colors));
        text.push('\n');
    }
    let notes = table.notes.iter().map(|note| single_line(note));
    let hidden = (!left_out.is_empty()).then(|| {
        format!(
            "hidden columns: {} (shown in a wider terminal and in Markdown)",
            left_out.join(", ")
        )
    });
    for note in notes.chain(hidden) {
        text.push_str(&wrap_note(&note, width));
    }
    text
}

/// A note below a table, or another indented paragraph, wrapped at words.
pub(crate) fn wrap_note(note: &str, width: u16) -> String {
    let width = match width {
        PAGE_WIDTH => usize::MAX,
        width => usize::from(width),
    };
    let [first, further] = NOTE_INDENT;
    wrap(&" ".repeat(first), further, note, width)
}

/// The indices of the columns that fit, and the headings of the others.
fn fitting_columns(table: &Table, width: u16) -> (Vec<usize>, Vec<String>) {
    let columns: Vec<usize> = (0..table.columns.len()).collect();
    let widths = draw_columns(table, &columns, u16::MAX).column_max_content_widths();
    let needed = |shown_columns: &[usize]| {
        shown_columns
            .iter()
            .map(|&at| u32::from(widths[at]) + u32::from(PADDING))
            .sum::<u32>()
    };
    let (mut shown_columns, mut left_out) = (columns, Vec::new());
    while needed(&shown_columns) > u32::from(width) {
        // Empty columns are dropped first, then those with one value in every row, then those of the highest
        // rank. Of equals, the rightmost is dropped first.
        let tells = |at: usize| {
            let first = table.rows.first().map(|row| &row.cells[at]);
            let is_alike = table.rows.iter().all(|row| Some(&row.cells[at]) == first);
            match first {
                None | Some(Value::Missing) if is_alike => 0,
                _ if is_alike && table.rows.len() > 1 => 1,
                _ => 2,
            }
        };
        let last = shown_columns
            .iter()
            .copied()
            .filter(|&at| table.columns[at].rank > 0)
            .max_by_key(|&at| (std::cmp::Reverse(tells(at)), table.columns[at].rank, at));
        let Some(last) = last else { break };
        shown_columns.retain(|&at| at != last);
        left_out.push(last);
    }
    left_out.sort_unstable();
    let heads = left_out.iter().map(|&at| heading(&table.columns[at])).collect();
    (shown_columns, heads)
}

fn draw_columns(table: &Table, shown_columns: &[usize], width: u16) -> Drawn {
    let mut drawn = Drawn::new();
    drawn.load_style(STYLE);
    drawn.set_content_arrangement(ContentArrangement::Dynamic);
    drawn.set_width(width);
    let aligned = |text: String, at: usize| {
        Cell::new(text).set_alignment(match table.columns[at].align {
            Align::Left => CellAlignment::Left,
            Align::Right => CellAlignment::Right,
        })
    };
    let has_units = shown_columns.iter().any(|&at| !table.columns[at].unit.is_empty());
    let heads = shown_columns.iter().map(|&at| {
        let column = &table.columns[at];
        let unit = if has_units {
            format!("\n{}", column.unit)
        } else {
            String::new()
        };
        aligned(format!("{}{unit}", single_line(&column.head)), at)
    });
    drawn.set_header(heads.collect::<Vec<Cell>>());
    for row in &table.rows {
        let texts = row.texts();
        let cells = shown_columns.iter().map(|&at| aligned(texts[at].clone(), at));
        drawn.add_row(cells.collect::<Vec<Cell>>());
    }
    drawn
}

fn heading(column: &Column) -> String {
    single_line(&column.head)
}

fn bold() -> Style {
    Style::new().bold()
}

fn style_of(row: &Row) -> Style {
    let has = |mark| row.marks.contains(&mark);
    if has(Mark::Failed) || has(Mark::Invalid) {
        AnsiColor::Red.on_default()
    } else if has(Mark::Warning)
        || has(Mark::Suspect)
        || MetricFamily::ALL
            .into_iter()
            .any(|family| has(Mark::SuspectIn(family)))
    {
        AnsiColor::Yellow.on_default()
    } else if has(Mark::Best) {
        AnsiColor::Green.on_default()
    } else if has(Mark::Simulated) || row.marks.iter().any(|mark| matches!(mark, Mark::Imported(_))) {
        AnsiColor::Cyan.on_default()
    } else {
        Style::new()
    }
}

fn styled(text: &str, style: Style, colors: bool) -> String {
    if colors && style != Style::new() {
        format!("{style}{text}{style:#}")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let column = |head: &str, unit, align, rank| Column {
            head: head.to_owned(),
            unit,
            align,
            better: None,
            rank,
        };
        let row = |name: &str, value, marks: &[Mark]| Row {
            cells: vec![
                Value::text(name),
                Value::text("bf16"),
                Value::Number { value, decimals: 2 },
            ],
            marks: marks.to_vec(),
        };
        Table {
            title: "Qwen3-8B · sharegpt".to_owned(),
            columns: vec![
                column("engine", "", Align::Left, 0),
                column("precision", "", Align::Left, 3),
                column("output", "tok/s", Align::Right, 0),
            ],
            rows: vec![
                row("sglang@0.5.1", 4706.44, &[]),
                row("sim\u{1b}[2J@1", 9.0, &[Mark::Simulated, Mark::Failed]),
            ],
            notes: vec!["a note".to_owned()],
        }
    }

    #[test]
    fn a_wide_terminal_shows_every_column() {
        insta::assert_snapshot!(draw(&table(), 80, false), @r"
        Qwen3-8B · sharegpt
         engine                 precision   output
                                             tok/s
        ───────────────────────────────────────────
         sglang@0.5.1           bf16       4706.44
         sim�[2J@1 [simulated]  bf16          9.00
          a note
        ");
    }

    #[test]
    fn a_narrow_terminal_leaves_out_what_matters_least_and_says_so() {
        insta::assert_snapshot!(draw(&table(), 36, false), @r"
        Qwen3-8B · sharegpt
         engine                  output
                                  tok/s
        ────────────────────────────────
         sglang@0.5.1           4706.44
         sim�[2J@1 [simulated]     9.00
          a note
          hidden columns: precision (shown
            in a wider terminal and in
            Markdown)
        ");
    }

    #[test]
    fn a_column_that_holds_nothing_makes_room_first() {
        let mut table = table();
        table.rows[0].cells[1] = Value::Missing;
        table.rows[1].cells[1] = Value::Missing;
        table.columns[1].rank = 1;
        table.columns[2].rank = 5;
        let text = draw(&table, 36, false);
        assert!(text.contains("hidden columns: precision ("), "{text}");
    }

    #[test]
    fn a_column_that_holds_the_same_in_every_row_makes_room_before_one_that_does_not() {
        let mut table = table();
        table.columns[1].rank = 1;
        table.columns[2].rank = 5;
        let text = draw(&table, 36, false);
        assert!(text.contains("hidden columns: precision ("), "{text}");
        table.rows[1].cells[1] = Value::text("fp8");
        let text = draw(&table, 36, false);
        assert!(text.contains("hidden columns: output ("), "{text}");
    }

    #[test]
    fn colours_are_put_on_only_when_asked_for() {
        let text = draw(&table(), 80, true);
        let red = AnsiColor::Red.on_default();
        assert!(
            text.lines()
                .any(|line| line.starts_with(&red.to_string()) && line.contains("9.00"))
        );
        assert!(!draw(&table(), 80, false).contains('\u{1b}'));
    }

    #[test]
    fn no_width_is_too_small_to_draw() {
        for width in 0..30 {
            let text = draw(&table(), width, true);
            let words: Vec<&str> = text.split_whitespace().collect();
            assert!(
                words.join(" ").contains("hidden columns: precision"),
                "{width}: {text}"
            );
        }
    }
}
