//! Whether an answer follows an instruction.

use std::sync::LazyLock;

use regex::Regex;
use serde::de::IgnoredAny;

use super::capital_words::count_capital_words;
use super::{Bound, Check};
use crate::analysis::graded::graders::compiled;
use crate::analysis::graded::graders::python_text::{is_lowercase, is_space, is_uppercase, strip};

/// White space, and a word, of Python's regular expressions.
const SPACE: &str = r"[\s\x1c-\x1f]";
const WORD: &str = r"[\p{L}\p{N}_]";

/// Answers of which an instruction wants one.
const CONSTRAINED: [&str; 3] = ["My answer is yes.", "My answer is no.", "My answer is maybe."];

/// Beginnings of blocks of Markdown that may stand before JSON, each once.
const FENCES: [&str; 4] = ["```json", "```Json", "```JSON", "```"];

/// What ends the first word of a paragraph.
const ENDS_OF_WORDS: [char; 6] = ['.', ',', '?', '!', '\'', '"'];

static WORDS: LazyLock<Regex> = LazyLock::new(|| compiled(&format!("{WORD}+")));
static DIVIDER: LazyLock<Regex> = LazyLock::new(|| compiled(&format!(r"{SPACE}?\*\*\*{SPACE}?")));
static PLACEHOLDER: LazyLock<Regex> = LazyLock::new(|| compiled(r"\[.*?\]"));
static STAR: LazyLock<Regex> = LazyLock::new(|| compiled(&format!(r"(?m)^{SPACE}*\*[^*].*$")));
static DASH: LazyLock<Regex> = LazyLock::new(|| compiled(&format!(r"(?m)^{SPACE}*-.*$")));
static HIGHLIGHT: LazyLock<Regex> = LazyLock::new(|| compiled(r"\*[^\n*]*\*"));
static DOUBLE_HIGHLIGHT: LazyLock<Regex> = LazyLock::new(|| compiled(r"\*\*[^\n*]*\*\*"));
static TITLE: LazyLock<Regex> = LazyLock::new(|| compiled(r"<<[^\n]+>>"));
static PS: LazyLock<Regex> = LazyLock::new(|| compiled(&format!(r"p\.{SPACE}?s\.")));
static PPS: LazyLock<Regex> = LazyLock::new(|| compiled(&format!(r"p\.{SPACE}?p\.{SPACE}?s")));

impl Check {
    /// Whether a text fulfils it.
    pub(super) fn holds(&self, text: &str) -> bool {
        match self {
            Self::NoComma => !text.contains(','),
            Self::Capitals => is_uppercase(text),
            Self::Lowercase => is_lowercase(text),
            Self::CapitalWords(bound) => bound.holds(count_capital_words(text)),
            Self::Words(bound) => bound.holds(WORDS.find_iter(text).count()),
            Self::Paragraphs(count) => count_paragraphs(text) == Some(*count),
            Self::NthParagraph {
                paragraphs,
                nth,
                first_word,
            } => has_paragraph(text, *paragraphs, *nth, first_word),
            Self::Placeholders(least) => Bound::AtLeast(*least).holds(PLACEHOLDER.find_iter(text).count()),
            Self::Postscript(marker) => has_postscript(&text.to_lowercase(), marker),
            Self::Bullets(count) => {
                (STAR.find_iter(text).count() + DASH.find_iter(text).count()) as u64 == *count
            }
            Self::ConstrainedResponse => CONSTRAINED.iter().any(|answer| text.contains(answer)),
            Self::Highlights(least) => Bound::AtLeast(*least).holds(count_highlights(text)),
            Self::Sections { word, least } => {
                let heading = format!(r"{SPACE}?{}{SPACE}?\d+{SPACE}?", regex::escape(word));
                Bound::AtLeast(*least).holds(count_matches(&heading, text))
            }
            Self::Json => is_json(text),
            Self::Title => TITLE.find_iter(text).any(|title| {
                let inner = title.as_str().trim_start_matches('<').trim_end_matches('>');
                !strip(inner).is_empty()
            }),
            Self::TwoResponses => has_two_responses(text),
            Self::RepeatedPrompt(prompt) => strip(text).to_lowercase().starts_with(&prompt.to_lowercase()),
            Self::End(phrase) => {
                let text = strip(text).trim_matches('"').to_lowercase();
                text.ends_with(&phrase.to_lowercase())
            }
            Self::Quotation => {
                let text = strip(text);
                text.len() > 1 && text.starts_with('"') && text.ends_with('"')
            }
            Self::Keywords(words) => words.iter().all(|word| count_keyword(word, text) > 0),
            Self::KeywordFrequency(word, bound) => bound.holds(count_keyword(word, text)),
            Self::ForbiddenWords(words) => !words.iter().any(|word| has_word(word, text)),
            Self::LetterFrequency(letter, bound) => bound.holds(
                text.to_lowercase()
                    .chars()
                    .filter(|found| found == letter)
                    .count(),
            ),
        }
    }
}

/// How often a pattern is found; never, if it is too large to be compiled.
fn count_matches(pattern: &str, text: &str) -> usize {
    Regex::new(pattern).map_or(0, |pattern| pattern.find_iter(text).count())
}

fn count_keyword(word: &str, text: &str) -> usize {
    count_matches(&format!("(?i){}", regex::escape(word)), text)
}

/// Whether a word stands in a text by itself, in any case.
fn has_word(word: &str, text: &str) -> bool {
    // A border of a word lies between a letter of a word and anything else.
    let is_of_word =
        |letter: Option<char>| letter.is_some_and(|letter| WORDS.is_match(letter.encode_utf8(&mut [0; 4])));
    let outside = |is_of_word: bool, border: &str| match is_of_word {
        true => format!("(?:{border}|[^\\p{{L}}\\p{{N}}_])"),
        false => WORD.to_owned(),
    };
    let before = outside(is_of_word(word.chars().next()), r"\A");
    let after = outside(is_of_word(word.chars().last()), r"\z");
    count_matches(&format!("(?i){before}{}{after}", regex::escape(word)), text) > 0
}

/// The number of paragraphs between dividers; `None` if one in the middle is empty.
fn count_paragraphs(text: &str) -> Option<u64> {
    let paragraphs: Vec<&str> = DIVIDER.split(text).collect();
    let (first, last) = (0, paragraphs.len() - 1);
    let empty = paragraphs
        .iter()
        .enumerate()
        .filter(|(_, paragraph)| strip(paragraph).is_empty());
    let empty: Vec<usize> = empty.map(|(place, _)| place).collect();
    let is_at_end = |place: &usize| *place == first || *place == last;
    empty
        .iter()
        .all(is_at_end)
        .then_some((paragraphs.len() - empty.len()) as u64)
}

fn has_paragraph(text: &str, count: u64, nth: usize, first_word: &str) -> bool {
    let paragraphs: Vec<&str> = text.split("\n\n").map(strip).collect();
    let full = paragraphs
        .iter()
        .filter(|paragraph| !paragraph.is_empty())
        .count();
    // Empty paragraphs before it are counted, as by lm-eval.
    let Some(word) = paragraphs[nth.min(paragraphs.len()) - 1].split(is_space).next() else {
        return false;
    };
    let word = word.trim_start_matches('\'').trim_start_matches('"');
    let word = word.split(ENDS_OF_WORDS).next().unwrap_or_default();
    let word: String = word.chars().flat_map(char::to_lowercase).collect();
    nth <= full && full as u64 == count && word == first_word
}

fn has_postscript(text: &str, marker: &str) -> bool {
    match marker {
        "P.S." => PS.is_match(text),
        "P.P.S" => PPS.is_match(text),
        marker => text.contains(&marker.to_lowercase()),
    }
}

fn count_highlights(text: &str) -> usize {
    let single = HIGHLIGHT
        .find_iter(text)
        .map(|found| found.as_str().trim_matches('*'));
    let double = DOUBLE_HIGHLIGHT.find_iter(text).map(|found| {
        let inner = found.as_str().strip_prefix("**").unwrap_or_default();
        inner.strip_suffix("**").unwrap_or(inner)
    });
    single
        .chain(double)
        .filter(|inner| !strip(inner).is_empty())
        .count()
}

fn has_two_responses(text: &str) -> bool {
    let responses: Vec<&str> = text.split("******").map(strip).collect();
    let last = responses.len() - 1;
    let is_empty_between =
        |(place, response): (usize, &&str)| response.is_empty() && place != 0 && place != last;
    let mut full = responses.iter().filter(|response| !response.is_empty());
    !responses.iter().enumerate().any(is_empty_between)
        && matches!((full.next(), full.next(), full.next()), (Some(first), Some(second), None) if first != second)
}

/// Whether a text is JSON as Python reads it, with the numbers that JSON lacks, also between fences of Markdown.
fn is_json(text: &str) -> bool {
    let unfenced = FENCES.iter().fold(strip(text), |text, fence| {
        text.strip_prefix(fence).unwrap_or(text)
    });
    let text = strip(unfenced.strip_suffix("```").unwrap_or(unfenced));
    let mut plain = String::with_capacity(text.len());
    let mut is_in_text = false;
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let number = ["NaN", "-Infinity", "Infinity"]
            .into_iter()
            .find(|number| !is_in_text && rest.starts_with(number));
        let taken = match (number, letter) {
            (Some(number), _) => {
                plain.push_str("null");
                number.len()
            }
            (None, '\\') if is_in_text => {
                let escaped = rest.chars().take(2).map(char::len_utf8).sum();
                plain.push_str(&rest[..escaped]);
                escaped
            }
            (None, letter) => {
                is_in_text ^= letter == '"';
                plain.push(letter);
                letter.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    serde_json::from_str::<IgnoredAny>(&plain).is_ok()
}
