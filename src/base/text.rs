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
    }
}
