//! The letter that an answer to a question with choices names.

use std::sync::LazyLock;

use regex::Regex;

use super::compiled;
use super::python_text::strip;

/// A letter after the words that announce it.
static ANNOUNCED: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"(?i)answer(?:\s+is|\s*:)?\s*:?\s*\**\(?([A-Z])\b"));
/// A letter at the beginning.
static LEADING: LazyLock<Regex> = LazyLock::new(|| compiled(r"^\s*\**\(?([A-Z])\**(?:[\s.,:)]|$)"));
static IN_PARENTHESES: LazyLock<Regex> = LazyLock::new(|| compiled(r"\([A-Z]\)"));
/// Punctuation that `flexible` ignores in choices.
static PUNCTUATION: LazyLock<Regex> = LazyLock::new(|| compiled(r"\p{P}"));

/// The letter after "answer", or else at the beginning: a rule of our own for answers of chat models.
pub fn named(text: &str) -> Option<&str> {
    let announced = ANNOUNCED.captures_iter(text).last();
    let found = announced.or_else(|| LEADING.captures(text));
    Some(found?.get(1)?.as_str()).filter(|letter| letter.as_bytes()[0].is_ascii_uppercase())
}

/// The first line: the filter of lm-eval's `mmlu_generative`.
///
/// Source: lm-evaluation-harness, lm_eval/tasks/mmlu/generative/_default_template_yaml.
pub fn strict(text: &str) -> String {
    let line = text.split('\n').next().unwrap_or_default();
    normalize(strip(line))
}

/// The last letter in parentheses, or else the last choice that is cited, or else the last letter after a colon: the filter
/// `flexible-extract` of lm-eval's `gpqa_*_cot_zeroshot` and `mmlu_flan_cot_zeroshot`.
///
/// Source: lm-evaluation-harness, `MultiChoiceRegexFilter` of lm_eval/filters/extraction.py, with `group_select: -1`,
/// `ignore_case` and `ignore_punctuation`.
pub fn flexible(text: &str, choices: &[&str]) -> Option<String> {
    if let Some(found) = IN_PARENTHESES.find_iter(text).last() {
        return Some(normalize(found.as_str()));
    }
    let found = last_citation(text, choices).or_else(|| last_after_colon(text, choices.len()));
    found.map(|found| normalize(&found))
}

/// The letter of the last choice whose words occur in a text; its words, if they lose white space by being cited.
fn last_citation(text: &str, choices: &[&str]) -> Option<String> {
    let plain = |text: &str| PUNCTUATION.replace_all(&text.to_lowercase(), "").into_owned();
    let words: Vec<String> = choices.iter().map(|choice| plain(strip(choice))).collect();
    // A choice without words would be found at the end of every text.
    if words.iter().any(String::is_empty) {
        return None;
    }
    let mut longest_first: Vec<&String> = words.iter().collect();
    longest_first.sort_by_key(|words| std::cmp::Reverse(words.chars().count()));
    let alternatives: Vec<String> = longest_first.iter().map(|words| regex::escape(words)).collect();
    let any = Regex::new(&alternatives.join("|")).ok()?;
    let text = plain(text);
    let cited = strip(any.find_iter(&text).last()?.as_str());
    // Of equal choices the last one counts.
    let letter = letters().zip(&words).filter(|(_, words)| *words == cited).last();
    let found = letter.map_or_else(|| cited.to_owned(), |(letter, _)| letter.to_string());
    (!found.is_empty()).then_some(found)
}

fn last_after_colon(text: &str, choices: usize) -> Option<String> {
    let last = letters().take(choices).last()?;
    let pattern = Regex::new(&format!(r":[\s\x1c-\x1f]*([A-{last}])")).ok()?;
    Some(pattern.captures_iter(text).last()?[1].to_owned())
}

fn letters() -> impl Iterator<Item = char> {
    'A'..='Z'
}

/// Removes what lm-eval's comparison ignores: the punctuation of ASCII, and case.
pub fn normalize(text: &str) -> String {
    let kept: String = text
        .chars()
        .filter(|letter| !letter.is_ascii_punctuation())
        .collect();
    kept.to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_found_after_the_words_that_announce_it() {
        for (text, letter) in [
            ("B", Some("B")),
            ("(B) because", Some("B")),
            ("A first thought. The answer is C.", Some("C")),
            ("Both are wrong", None),
            ("the answer is unclear", None),
        ] {
            assert_eq!(named(text), letter, "{text:?}");
        }
    }

    #[test]
    fn the_first_line_is_compared_without_punctuation_and_case() {
        // Recorded from lm-eval 0.4.13.
        for (text, found) in [
            (" B.\nbecause", "b"),
            ("(b)", "b"),
            ("The answer is B", "the answer is b"),
            ("\nB", ""),
            ("( B )", " b "),
        ] {
            assert_eq!(strict(text), found, "{text:?}");
        }
    }

    #[test]
    fn letters_and_choices_are_found_where_lm_eval_finds_them() {
        let choices = ["Guilty", "Guilty of romance", "Neither, really.", "Both"];
        // Recorded from lm-eval 0.4.13.
        for (text, found) in [
            ("(A) or (B), so (C)", Some("c")),
            ("(E)", Some("e")),
            ("It is guilty of romance", Some("b")),
            ("guilty. No: neither really", Some("c")),
            ("The answer is: D", Some("d")),
            ("The answer is D", None),
            ("the letter: a", None),
        ] {
            assert_eq!(flexible(text, &choices).as_deref(), found, "{text:?}");
        }
        assert_eq!(flexible("x: B", &["?", "y"]).as_deref(), Some("b"));
        assert_eq!(flexible("the same", &["same", "same"]).as_deref(), Some("b"));
    }
}
