//! Text from outside, made fit for a terminal and for the logs of CI, which both act on control characters; and numbers of things in words.

/// A number of things: `1 launch`, `2 launches`.
pub fn counted(count: usize, one: &str, several: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {several}"),
    }
}

/// Whether a character acts on what shows it: a control character, or one that changes the order in which a line is shown.
pub fn is_control(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text without control characters but for line ends and tabs.
pub fn printable(text: &str) -> String {
    text.chars()
        .filter(|letter| !is_control(*letter) || matches!(letter, '\n' | '\t'))
        .collect()
}

/// As [`printable`], with sequences that colour a terminal left in.
pub fn colored(text: &str) -> String {
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

/// The text as one line: line ends become spaces, and other control characters are left out. CI reads commands from the beginnings of
/// lines.
pub fn one_line(text: &str) -> String {
    text.chars()
        .filter_map(|letter| match letter {
            '\n' | '\r' | '\t' => Some(' '),
            letter if is_control(letter) => None,
            letter => Some(letter),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_or_ci_would_act_on_is_left_out() {
        let text = "1.0\n::error::pwn\u{1b}[31m\u{9b}2J\tend\u{202e}";
        assert_eq!(one_line(text), "1.0 ::error::pwn[31m2J end");
        assert_eq!(printable(text), "1.0\n::error::pwn[31m2J\tend");
        assert_eq!(colored(text), "1.0\n::error::pwn\u{1b}[31m2J\tend");
        assert_eq!(
            colored("\u{1b}[2J\u{1b}]0;x\u{7}\u{1b}[0m\u{1b}["),
            "[2J]0;x\u{1b}[0m["
        );
    }
}
