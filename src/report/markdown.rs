//! Draws tables and other text as GitHub's Markdown. Names are escaped, so that they cannot break the layout.

use super::table::{Align, Table, single_line};

/// Draws a table below a heading of the given level, with its notes as a list.
pub(crate) fn draw(table: &Table, level: usize) -> String {
    let mut text = format!("{} {}\n\n", "#".repeat(level), escape(&table.title));
    let cells = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let heads = table.columns.iter().map(|column| {
        let head = escape(&column.head);
        if column.unit.is_empty() {
            head
        } else {
            format!("{head} ({})", column.unit)
        }
    });
    text.push_str(&cells(heads.collect()));
    let rules = table.columns.iter().map(|column| match column.align {
        Align::Left => "---".to_owned(),
        Align::Right => "---:".to_owned(),
    });
    text.push_str(&cells(rules.collect()));
    for row in &table.rows {
        text.push_str(&cells(row.texts().iter().map(|text| escape(text)).collect()));
    }
    if !table.notes.is_empty() {
        text.push('\n');
        text.push_str(&list(&table.notes));
    }
    text
}

/// Draws texts as a list.
pub(crate) fn list<T: AsRef<str>>(points: &[T]) -> String {
    points
        .iter()
        .map(|point| format!("- {}\n", escape(point.as_ref())))
        .collect()
}

/// Text on one line, escaped for Markdown, HTML and tables.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in single_line(text).trim().chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '#' | '|' | '~' | '$' | '!' => {
                out.push('\\');
                out.push(character);
            }
            other => out.push(other),
        }
    }
    out
}

/// A code block, fenced by more backticks than the text contains in a row.
pub(crate) fn code_block(text: &str, language: &str) -> String {
    let longest = text
        .split(|character| character != '`')
        .map(str::len)
        .max()
        .unwrap_or(0);
    let fence = "`".repeat((longest + 1).max(3));
    let lines: Vec<String> = text.split('\n').map(single_line).collect();
    format!("{fence}{language}\n{}\n{fence}\n", lines.join("\n"))
}

/// The anchor that GitHub generates for a heading.
pub(crate) fn anchor(heading: &str) -> String {
    heading
        .trim()
        .chars()
        .filter_map(|character| match character {
            ' ' => Some('-'),
            '-' | '_' => Some(character),
            other if other.is_alphanumeric() => other.to_lowercase().next(),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::table::{Column, Mark, Row, Value};

    #[test]
    fn a_table_keeps_its_shape_whatever_names_hold() {
        let column = |head: &str, unit, align| Column {
            head: head.to_owned(),
            unit,
            align,
            better: None,
            rank: 0,
        };
        let table = Table {
            title: "a | `b` <script>\n# c".to_owned(),
            columns: vec![
                column("engine", "", Align::Left),
                column("output", "tok/s", Align::Right),
            ],
            rows: vec![Row {
                cells: vec![Value::text("x|y\n`z` <img>"), Value::Missing],
                marks: vec![Mark::Simulated],
            }],
            notes: vec!["[link](javascript:alert) *stars*".to_owned()],
        };
        insta::assert_snapshot!(draw(&table, 2), @r"
        ## a \| \`b\` &lt;script&gt; \# c

        | engine | output (tok/s) |
        | --- | ---: |
        | x\|y \`z\` &lt;img&gt; \[simulated\] | – |

        - \[link\](javascript:alert) \*stars\*
        ");
    }

    #[test]
    fn a_fence_is_longer_than_any_run_of_backticks_inside() {
        assert_eq!(code_block("a", "text"), "```text\na\n```\n");
        assert_eq!(code_block("a\n````\nb", "text"), "`````text\na\n````\nb\n`````\n");
    }

    #[test]
    fn anchors_are_those_of_github() {
        assert_eq!(anchor("SGLang v0.5.1"), "sglang-v051");
        assert_eq!(anchor("Qwen3-30B-A3B-FP8"), "qwen3-30b-a3b-fp8");
        assert_eq!(anchor("Table of Contents"), "table-of-contents");
    }

    proptest! {
        #[test]
        fn escaped_text_is_one_cell_of_one_line(text in any::<String>()) {
            let escaped = escape(&text);
            prop_assert!(!escaped.contains(['\n', '\r', '<', '>']));
            let bytes = escaped.as_bytes();
            for (at, byte) in bytes.iter().enumerate() {
                if matches!(byte, b'|' | b'`') {
                    let slashes = bytes[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
                    prop_assert!(slashes % 2 == 1, "{escaped}");
                }
            }
        }
    }
}
