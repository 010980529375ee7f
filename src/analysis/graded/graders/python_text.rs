//! What Python, in which lm-eval is written, takes for white space.

/// Whether Python's `str.strip`, `str.split` and `\s` take a letter for white space. Unlike Unicode's property it includes the
/// four separators of ASCII.
pub(super) fn is_space(letter: char) -> bool {
    letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter)
}

/// The text without white space around it.
pub(super) fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}
