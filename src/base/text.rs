//! Text from outside, made fit for a terminal and for the logs of CI, which both act on control characters; and numbers of things in words.

/// A number of things: `1 launch`, `2 launches`.
pub fn counted(count: usize, one: &str, several: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {several}"),
    }
}

/// The text without control characters but for line ends and tabs.
pub fn printable(text: &str) -> String {
    text.chars()
        .filter(|letter| !letter.is_control() || matches!(letter, '\n' | '\t'))
        .collect()
}

/// The text as one line: line ends become spaces, and other control characters are left out. CI reads commands from the beginnings of
/// lines.
pub fn one_line(text: &str) -> String {
    text.chars()
        .filter_map(|letter| match letter {
            '\n' | '\r' | '\t' => Some(' '),
            letter if letter.is_control() => None,
            letter => Some(letter),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_or_ci_would_act_on_is_left_out() {
        let text = "1.0\n::error::pwn\u{1b}[31m\u{9b}2J\tend";
        assert_eq!(one_line(text), "1.0 ::error::pwn[31m2J end");
        assert_eq!(printable(text), "1.0\n::error::pwn[31m2J\tend");
    }
}
