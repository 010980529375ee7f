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

/// Whether Python's `str.isupper` holds: there are letters with a case, and all of them are capital.
pub(super) fn is_uppercase(text: &str) -> bool {
    text.chars().any(char::is_uppercase)
        && !text
            .chars()
            .any(|letter| letter.is_lowercase() || is_titlecase(letter))
}

/// Whether Python's `str.islower` holds: there are letters with a case, and none of them is capital.
pub(super) fn is_lowercase(text: &str) -> bool {
    text.chars().any(char::is_lowercase)
        && !text
            .chars()
            .any(|letter| letter.is_uppercase() || is_titlecase(letter))
}

/// Whether a letter is a capital one with a small one, such as `ǅ`.
fn is_titlecase(letter: char) -> bool {
    let changes = |mut other: std::char::ToLowercase| other.next() != Some(letter);
    !letter.is_uppercase() && !letter.is_lowercase() && changes(letter.to_lowercase())
}
