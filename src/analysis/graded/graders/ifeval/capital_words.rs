//! Words in capital letters, counted as by lm-eval, which divides a text into the words of the Penn Treebank with NLTK.
//!
//! Of the Treebank's rules only those that divide letters from letters matter here. A full stop before white space ends a
//! sentence; NLTK also knows abbreviations, which makes a difference only after a shortened word such as `N'T.`.
//!
//! Source: nltk 3.9.2, nltk/tokenize/destructive.py.

use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::analysis::graded::graders::compiled;
use crate::analysis::graded::graders::python_text::{is_space, is_uppercase};

/// What is replaced by what, in this order. A space divides words.
static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let rules = [
        (r##"[«“‘„»”’"`;@#$%&?!*\[\](){}<>]|''|--|\.{2,}"##, " $0 "),
        (r"([:,])(\D|$)", " $1 $2"),
        (r"[\s\x1c-\x1f]+", " "),
        (r"([^'])' ", "$1 ' "),
        (r"([^' ])('[sSmMdD]|') ", "$1 $2 "),
        (r"([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", "$1 $2 "),
        (
            r"(?i)\b(?:(can)(not)|(d)('ye)|(gim)(me)|(gon)(na)|(got)(ta)|(lem)(me)|(more)('n))\b",
            " $1$3$5$7$9$11$13 $2$4$6$8$10$12$14 ",
        ),
        (r"(?i)\b(wan)(na) ", " $1 $2 "),
        (r"(?i) ('t)(is|was)\b", " $1 $2 "),
    ];
    let rules = rules.into_iter();
    rules
        .map(|(pattern, replacement)| (compiled(pattern), replacement))
        .collect()
});

/// A single letter after an apostrophe.
static LETTER: LazyLock<Regex> = LazyLock::new(|| compiled(r"'(\w)\b"));

/// A full stop before white space. It ends a sentence, which the groups tell, unless a quotation mark that closes the sentence
/// follows after the white space.
static FULL_STOP: LazyLock<Regex> = LazyLock::new(|| {
    let (closing, space) = (r#"[\])}>"'»”’]*"#, r"[\s\x1c-\x1f]");
    compiled(&format!(
        r#"[^.]\.{closing}{space}+"["')\]}}]*(?:{space}|$)|([^.])\.({closing}(?:{space}|$))"#
    ))
});

pub(super) fn count_capital_words(text: &str) -> usize {
    let text = LETTER.replace_all(text, |found: &Captures<'_>| match &found[1].to_lowercase()[..] {
        "m" | "t" | "s" | "d" | "n" => found[0].to_owned(),
        _ => format!("' {}", &found[1]),
    });
    let text = FULL_STOP.replace_all(&text, |found: &Captures<'_>| match found.get(1) {
        Some(before) => format!("{} . {}", before.as_str(), &found[2]),
        None => found[0].to_owned(),
    });
    let mut text = format!(" {text} ");
    for (pattern, replacement) in RULES.iter() {
        text = pattern.replace_all(&text, *replacement).into_owned();
    }
    text.split(is_space).filter(|word| is_uppercase(word)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_divided_where_the_treebank_divides_them() {
        // Recorded from nltk 3.9.2.
        for (text, count) in [
            ("I'm sure that I'll go", 2),
            ("DON'T and CANNOT, JOHN'S.", 6),
            ("U.S.A. is WELL-KNOWN", 2),
            ("'TIS WANNA WANNA", 6),
            ("R&D: A,1B and A,B", 5),
            ("not one of 5 words", 0),
        ] {
            assert_eq!(count_capital_words(text), count, "{text}");
        }
    }
}
