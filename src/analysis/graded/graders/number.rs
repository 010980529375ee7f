//! The number that an answer gives, as in lm-eval's GSM8K.
//!
//! Source: lm-evaluation-harness, lm_eval/tasks/gsm8k/gsm8k.yaml: `filter_list`, and `regexes_to_ignore` of its metric.

use std::sync::LazyLock;

use regex::Regex;

use super::compiled;

/// What counts as a number in `flexible-extract`.
static FLEXIBLE: LazyLock<Regex> = LazyLock::new(|| compiled(r"-?[$0-9.,]{2,}|-?[0-9]+"));
/// What counts as an answer in `strict-match`.
static STRICT: LazyLock<Regex> = LazyLock::new(|| compiled(r"#### (-?[0-9.,]+)"));

/// The last number in a text: lm-eval's `flexible-extract`.
pub fn flexible(text: &str) -> Option<String> {
    Some(normalize(FLEXIBLE.find_iter(text).last()?.as_str()))
}

/// The first number after `####`: lm-eval's `strict-match`.
pub fn strict(text: &str) -> Option<String> {
    Some(normalize(STRICT.captures(text)?.get(1)?.as_str()))
}

/// Removes what lm-eval ignores in numbers: commas, dollar signs, everything up to `#### `, and a full stop at the end.
pub fn normalize(number: &str) -> String {
    let number: String = number.chars().filter(|letter| !",$".contains(*letter)).collect();
    let number = number.rsplit_once("#### ").map_or(&*number, |(_, rest)| rest);
    number.strip_suffix('.').unwrap_or(number).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_where_lm_eval_finds_them() {
        // (text, flexible, strict); recorded from lm-eval 0.4.13.
        for (text, last, marked) in [
            ("It is $7,595.", Some("7595"), None),
            ("First 12, then -5", Some("-5"), None),
            ("a - 5 .", Some("5"), None),
            ("so 4 + 5 = 9\n#### 9", Some("9"), Some("9")),
            ("#### 8 and #### 9", Some("9"), Some("8")),
            ("####9", Some("9"), None),
            ("#### -1,200.50 euros", Some("-1200.50"), Some("-1200.50")),
            ("it costs 12 ...", Some(".."), None),
            ("#### $18", Some("18"), None),
            ("\u{0661}\u{0662}", None, None),
            ("", None, None),
        ] {
            assert_eq!(flexible(text).as_deref(), last, "{text:?}");
            assert_eq!(strict(text).as_deref(), marked, "{text:?}");
        }
    }
}
