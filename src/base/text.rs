//! Makes foreign text safe for terminals and CI logs, which act on control characters; formats counts and
//! lines.

use std::path::Path;

/// Formats a count with its noun: `1 launch`, `2 launches`.
pub(crate) fn pluralize(count: usize, singular: &str, plural: &str) -> String {
    match count {
        1 => format!("1 {singular}"),
        count => format!("{count} {plural}"),
    }
}

/// Formats an error with its causes. A cause is left out if the text so far ends with it.
pub(crate) fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}

pub(crate) fn format_seconds(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, _) => format!("{seconds:.1}s"),
        (0, minutes, seconds) => format!("{minutes}m {seconds:02}s"),
        (hours, minutes, _) => format!("{hours}h {minutes:02}m"),
    }
}

/// Appends `text` to `head` and breaks the lines at spaces, at `width` columns at most. Further lines are
/// indented by `indent`. A longer word is not broken.
pub(crate) fn wrap(head: &str, indent: usize, text: &str, width: usize) -> String {
    let mut lines = String::new();
    let mut line = head.to_owned();
    let mut column = head.chars().count();
    let mut is_first = true;
    for word in text.split(' ') {
        let length = word.chars().count();
        if !is_first && column + 1 + length > width {
            lines.push_str(line.trim_end());
            lines.push('\n');
            line = " ".repeat(indent);
            column = indent;
            is_first = true;
        }
        if !is_first {
            line.push(' ');
            column += 1;
        }
        line.push_str(word);
        column += length;
        is_first = false;
    }
    lines.push_str(line.trim_end());
    lines.push('\n');
    lines
}

/// Returns true for control characters and for characters that change the direction of text.
pub(crate) fn is_control(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns true for characters without a width, by which two names that differ look alike, and for separators of lines.
pub(crate) const fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2028}' | '\u{2029}' | '\u{2060}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// Removes control characters other than line ends and tabs.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .filter(|letter| !is_control(*letter) || matches!(letter, '\n' | '\t'))
        .collect()
}

/// Like [`printable`], but keeps terminal colour sequences.
pub(crate) fn printable_with_colors(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut parts = text.split("\u{1b}[");
    clean.push_str(&printable(parts.next().unwrap_or_default()));
    for part in parts {
        let end = part.find(|letter: char| !letter.is_ascii_digit() && letter != ';');
        let is_color = end.is_some_and(|end| part[end..].starts_with('m'));
        clean.push_str(if is_color { "\u{1b}[" } else { "[" });
        clean.push_str(&printable(part));
    }
    clean
}

/// Joins the text into one line: line ends and tabs become spaces, other control characters are removed. CI
/// systems parse commands at the start of a line.
pub(crate) fn one_line(text: &str) -> String {
    text.chars()
        .filter_map(|letter| match letter {
            '\n' | '\r' | '\t' => Some(' '),
            letter if is_control(letter) => None,
            letter => Some(letter),
        })
        .collect()
}

/// Returns a path for messages, with control characters written as escapes such as `\n`: a name may hold any.
pub(crate) fn shown_path(path: &Path) -> String {
    let text = path.display().to_string();
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match is_control(letter) {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    shown
}

/// Like [`one_line`], for text at the start of a line: puts it in backticks if CI would parse it as a
/// command.
pub(crate) fn line_start(text: &str) -> String {
    let line = one_line(text);
    match ["::", "##["]
        .iter()
        .any(|command| line.trim_start().starts_with(command))
    {
        true => format!("`{line}`"),
        false => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_at_words_and_loses_none() {
        let text = "one two-and-a-half three four";
        assert_eq!(wrap("- ", 2, text, 12), "- one\n  two-and-a-half\n  three four\n");
        assert_eq!(wrap("- ", 2, text, 80), format!("- {text}\n"));
        assert_eq!(wrap("- ", 2, "", 80), "-\n");
    }

    #[test]
    fn control_characters_in_a_path_are_escaped() {
        let path = Path::new("a\n/b\u{1b}[31m é.wav");
        assert_eq!(shown_path(path), "a\\n/b\\u{1b}[31m é.wav");
    }

    #[test]
    fn what_a_terminal_or_ci_would_act_on_is_left_out() {
        let text = "1.0\n::error::pwn\u{1b}[31m\u{9b}2J\tend\u{202e}";
        assert_eq!(one_line(text), "1.0 ::error::pwn[31m2J end");
        assert_eq!(line_start("\n::error::pwn"), "` ::error::pwn`");
        assert_eq!(line_start("a::b"), "a::b");
        assert_eq!(printable(text), "1.0\n::error::pwn[31m2J\tend");
        assert_eq!(printable_with_colors(text), "1.0\n::error::pwn\u{1b}[31m2J\tend");
        assert_eq!(
            printable_with_colors("\u{1b}[2J\u{1b}]0;x\u{7}\u{1b}[0m\u{1b}["),
            "[2J]0;x\u{1b}[0m["
        );
    }
}
