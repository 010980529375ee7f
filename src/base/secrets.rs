//! Recognises secret values and removes them from text before it is written.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use crate::base::text::is_control;

/// Replaces secret values by `***`. `Debug` shows no value.
#[derive(Clone, Default)]
pub(crate) struct Redactor {
    /// It prefers the longest match, so that no part of a long secret remains if it contains a shorter one.
    finder: Option<AhoCorasick>,
}

/// The replacement of a secret.
pub(crate) const MASK: &str = "***";

/// Values with fewer characters are not hidden: `1` or `true` would also match ordinary text.
const MIN_SECRET_CHARS: usize = 6;

pub(crate) fn is_long_enough(value: &str) -> bool {
    value.chars().count() >= MIN_SECRET_CHARS
}

/// Returns true if the name of an environment variable suggests a secret.
pub(crate) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let has_end = |end: &str| {
        name.strip_suffix(end)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('_'))
    };
    has_end("TOKEN")
        || has_end("KEY")
        || has_end("APIKEY")
        // `PWD` and `OLDPWD` hold folders.
        || name.ends_with("_PWD")
        || ["SECRET", "PASSWORD", "PASSWD"]
            .iter()
            .any(|part| name.contains(part))
        || name == "MATRIX_WEBHOOK"
}

/// Returns the secret part of an environment variable: all of it if its name suggests a secret, or the
/// password in a URL.
pub(crate) fn secret_part<'v>(name: &str, value: &'v str) -> Option<&'v str> {
    match is_secret_name(name) {
        true => Some(value),
        false => url_password(value),
    }
}

/// Returns true if a name that a user wrote suggests a secret. It matches more names than [`is_secret_name`],
/// which is for the environment of the host.
pub(crate) fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    [
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "API_KEY",
        "APIKEY",
        "CREDENTIAL",
        "AUTHORIZATION",
    ]
    .iter()
    .any(|part| name.contains(part))
}

/// Returns the password in `scheme://user:password@host`.
fn url_password(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    password_range(rest).map(|range| &rest[range])
}

/// Returns the range of the password in `user:password@host/path`.
fn password_range(rest: &str) -> Option<Range<usize>> {
    let authority = rest.split(['/', '?', '#']).next()?;
    let separator = authority.rfind('@')?;
    let start = authority[..separator].find(':')? + 1;
    (start < separator).then_some(start..separator)
}

/// Returns the ranges of passwords and secret query values in the URLs of a text. References such as
/// `${NAME}` are not secrets.
pub(crate) fn url_secret_ranges(text: &str) -> Vec<Range<usize>> {
    let ends = |letter: char| letter.is_whitespace() || matches!(letter, '"' | '`' | '<' | '>');
    let mut ranges = Vec::new();
    for (at, scheme) in text.match_indices("://") {
        let start = at + scheme.len();
        let url = text[start..].split(ends).next().unwrap_or_default();
        ranges.extend(
            password_range(url)
                .into_iter()
                .chain(secret_query_ranges(url))
                .map(|range| start + range.start..start + range.end),
        );
    }
    ranges.retain(|range| !text[range.clone()].starts_with("${"));
    ranges
}

/// Returns the ranges of the values of secret query parameters, as in `?api_key=value`.
fn secret_query_ranges(url: &str) -> Vec<Range<usize>> {
    let Some((head, queries)) = url.split_once('?') else {
        return Vec::new();
    };
    let mut position = head.len() + 1;
    let mut ranges = Vec::new();
    for pair in queries.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let is_secret = looks_secret(&name.replace('-', "_")) || name.eq_ignore_ascii_case("key");
        let end = position + pair.len();
        if is_secret && !value.is_empty() {
            ranges.push(end - value.len()..end);
        }
        position = end + 1;
    }
    ranges
}

/// Replaces each byte that [`url_secret_ranges`] finds by a star, so that positions in the text do not change.
pub(crate) fn mask_url_secrets(text: &str) -> Cow<'_, str> {
    mask_ranges(text, url_secret_ranges(text))
}

/// As [`mask_url_secrets`], for the target of a redirect, which may be a URL without a scheme or without a host.
pub(crate) fn mask_redirect_secrets(target: &str) -> Cow<'_, str> {
    let mut ranges = url_secret_ranges(target);
    ranges.extend(secret_query_ranges(target));
    if let Some(rest) = target.strip_prefix("//") {
        let start = target.len() - rest.len();
        ranges.extend(password_range(rest).map(|range| start + range.start..start + range.end));
    }
    mask_ranges(target, ranges)
}

fn mask_ranges(text: &str, ranges: Vec<Range<usize>>) -> Cow<'_, str> {
    if ranges.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut hidden = text.to_owned();
    for range in ranges {
        hidden.replace_range(range.clone(), &"*".repeat(range.len()));
    }
    Cow::Owned(hidden)
}

impl Redactor {
    /// Creates a redactor of the values that are long enough ([`is_long_enough`]). It also finds a value in the
    /// spellings of JSON, URLs, base64 and hex. The lines of a multi-line value are found one by one, because
    /// logs are redacted by line.
    pub(crate) fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        Self::from_values(values.into_iter().filter(|value| is_long_enough(value)))
    }

    /// Creates a redactor of these values, however short.
    #[cfg(test)]
    pub(crate) fn with_short_values<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        Self::from_values(values.into_iter().filter(|value| !value.is_empty()))
    }

    fn from_values<'a>(values: impl Iterator<Item = &'a str>) -> Self {
        let mut patterns = Vec::new();
        let lines = |value: &'a str| {
            // Shorter lines of a key, such as braces, would also match ordinary text.
            let long = |line: &&str| value.contains('\n') && line.trim().len() >= 8;
            std::iter::once(value).chain(value.lines().filter(long))
        };
        for value in values.flat_map(lines) {
            let json = serde_json::to_string(value).expect("a string is always JSON");
            patterns.push(json[1..json.len() - 1].to_owned());
            patterns.push(percent_encode(value));
            if is_long_enough(value) {
                patterns.extend(base64_forms(value));
                let hex: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
                patterns.push(hex.to_uppercase());
                patterns.push(hex);
            }
            patterns.push(value.to_owned());
        }
        patterns.sort();
        patterns.dedup();
        if patterns.is_empty() {
            return Self::default();
        }
        let finder = AhoCorasickBuilder::new()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&patterns)
            .expect("a few short patterns make a small automaton");
        Self { finder: Some(finder) }
    }

    /// Removes all secrets from a text, even if terminal colours or other control characters split them.
    pub(crate) fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let Some(finder) = &self.finder else {
            return Cow::Borrowed(text);
        };
        let mut clean = Cow::Borrowed(text);
        if finder.is_match(text) {
            let mut redacted = String::with_capacity(text.len());
            finder.replace_all_with(text, &mut redacted, |_, _, redacted| {
                redacted.push_str(MASK);
                true
            });
            clean = Cow::Owned(redacted);
        }
        match redact_across_controls(finder, &clean) {
            Some(redacted) => Cow::Owned(redacted),
            None => clean,
        }
    }
}

/// Spellings of the escape character, raw and quoted.
const ESCAPES: [&str; 4] = ["\u{1b}", "\\u001b", "\\x1b", "\\033"];

/// Quoted spellings of other control characters that do not split a line.
const QUOTED_CONTROLS: [&str; 8] = [
    "\\u0000", "\\u0007", "\\u0008", "\\u000d", "\\u007f", "\\b", "\\r", "\\x08",
];

/// Hides the secrets that contain terminal sequences or other control characters; `None` if there is none.
fn redact_across_controls(finder: &AhoCorasick, text: &str) -> Option<String> {
    let has_control = text.chars().any(is_invisible);
    let is_quoted = || {
        text.contains('\\')
            && (ESCAPES.iter().any(|escape| text.contains(*escape))
                || QUOTED_CONTROLS.iter().any(|one| text.contains(*one)))
    };
    if !has_control && !is_quoted() {
        return None;
    }
    let mut stripped = String::with_capacity(text.len());
    // The position in `text` of each byte of `plain`.
    let mut places = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(letter) = text[at..].chars().next() {
        let length = control_sequence_len(&text[at..]);
        if length > 0 {
            at += length;
            continue;
        }
        stripped.push(letter);
        places.extend(at..at + letter.len_utf8());
        at += letter.len_utf8();
    }
    let mut redacted = String::with_capacity(text.len());
    let mut from = 0;
    for secret_match in finder.find_iter(&stripped) {
        redacted.push_str(&text[from..places[secret_match.start()]]);
        redacted.push_str(MASK);
        from = places[secret_match.end() - 1] + 1;
    }
    (from > 0).then(|| redacted + &text[from..])
}

/// Returns true for a control character other than a line feed or a tab.
fn is_invisible(letter: char) -> bool {
    is_control(letter) && !matches!(letter, '\n' | '\t')
}

/// Returns the length of the terminal sequence or control character at the start of a text; 0 if there is
/// none.
fn control_sequence_len(text: &str) -> usize {
    let Some(escape) = ESCAPES.iter().find(|escape| text.starts_with(**escape)) else {
        let quoted = QUOTED_CONTROLS.iter().find(|quoted| text.starts_with(**quoted));
        let unseen = || text.chars().next().filter(|letter| is_invisible(*letter));
        return quoted.map_or_else(|| unseen().map_or(0, char::len_utf8), |quoted| quoted.len());
    };
    let rest = &text.as_bytes()[escape.len()..];
    match rest.first() {
        Some(b'[') => {
            let inner = rest[1..]
                .iter()
                .take_while(|byte| (0x20..0x40).contains(*byte))
                .count();
            let end = rest
                .get(1 + inner)
                .is_some_and(|byte| (0x40..0x7f).contains(byte));
            escape.len() + 1 + inner + usize::from(end)
        }
        // A title or a link ends at a bell, or at an escape character with a backslash. If it has no end,
        // only its introducer counts.
        Some(b']') => {
            let rest = &text[escape.len()..];
            let line = rest.lines().next().unwrap_or("");
            let ends = ["\u{7}", "\\u0007", "\u{1b}\\", "\\u001b\\\\"];
            let end = ends
                .iter()
                .filter_map(|end| Some(line.find(end)? + end.len()))
                .min();
            escape.len() + end.unwrap_or(1)
        }
        _ => escape.len(),
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spellings = self.finder.as_ref().map_or(0, AhoCorasick::patterns_len);
        write!(f, "Redactor({spellings} spellings)")
    }
}

fn percent_encode(value: &str) -> String {
    value
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// Returns the parts of a value's base64 that do not depend on the neighbouring bytes, for each of the three
/// possible alignments.
fn base64_forms(value: &str) -> Vec<String> {
    let mut forms = Vec::new();
    for before in 0..3 {
        let mut bytes = vec![0; before];
        bytes.extend(value.as_bytes());
        // A letter holds six bits. Only letters that hold nothing but bits of the value are used.
        let (first, end) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
        for text in [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)] {
            forms.push(text[first..end].to_owned());
        }
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_plain_in_json_and_in_urls() {
        let redactor = Redactor::new(["se\"cret/1", ""]);
        let json = serde_json::to_string("token se\"cret/1").unwrap();
        for text in ["a se\"cret/1 b", json.as_str(), "http://x/?k=se%22cret%2F1"] {
            let clean = redactor.redact(text);
            assert!(clean.contains(MASK) && !clean.contains("cret"), "{clean}");
        }
        assert_eq!(redactor.redact("nothing here"), "nothing here");
        assert!(!format!("{redactor:?}").contains("cret"));
    }

    #[test]
    fn each_line_of_a_secret_is_found_alone() {
        let redactor = Redactor::new(["-----BEGIN KEY\nabcdefgh12\n}\n"]);
        assert_eq!(redactor.redact("log: abcdefgh12 }"), "log: *** }");
    }

    #[test]
    fn of_two_secrets_that_begin_alike_the_longer_one_leaves_nothing() {
        let redactor = Redactor::new(["hunter2", "hunter2000"]);
        assert_eq!(redactor.redact("hunter2000 hunter2"), "*** ***");
    }

    #[test]
    fn a_secret_that_control_characters_cut_is_found() {
        let redactor = Redactor::new(["hf_secretSECRET"]);
        for escape in ["\u{1b}[1;36m", "\\u001b[36m", "\u{1b}[0m\u{1b}[1m"] {
            let text = format!("key {escape}hf_secre{escape}tSECRET{escape} end é");
            assert_eq!(redactor.redact(&text), format!("key {escape}***{escape} end é"));
        }
        for cut in ["\u{8}", "\0", "\r", "\\u0008", "\u{1b}]0;title\u{7}", "\u{202e}"] {
            let text = format!("key hf_secre{cut}tSECRET, end é");
            assert_eq!(redactor.redact(&text), "key ***, end é", "{cut:?}");
        }
        let wide: String = "key hf_secretSECRET"
            .chars()
            .flat_map(|letter| [letter, '\0'])
            .collect();
        assert_eq!(redactor.redact(&wide), "k\0e\0y\0 \0***\0");
        let hex: String = "hf_secretSECRET"
            .bytes()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(redactor.redact(&format!("key {hex}.")), "key ***.");
        let plain = "\u{1b}[31mred\u{1b}[0m, \u{1b}";
        assert_eq!(redactor.redact(plain), plain);
    }

    #[test]
    fn a_secret_is_found_in_base64_wherever_it_begins() {
        let redactor = Redactor::new(["hunter2-hunter2"]);
        for before in ["", "u:", "user:", "a user:"] {
            for text in [
                STANDARD_NO_PAD.encode(format!("{before}hunter2-hunter2")),
                base64::engine::general_purpose::STANDARD.encode(format!("{before}hunter2-hunter2 and more")),
            ] {
                assert!(redactor.redact(&text).contains(MASK), "{before}: {text}");
            }
        }
    }

    #[test]
    fn a_short_value_is_not_hidden() {
        let redactor = Redactor::new(["1", "true", "12345"]);
        assert_eq!(redactor.redact("2026-11-12T12345 true"), "2026-11-12T12345 true");
    }

    #[test]
    fn names_of_secrets_are_known() {
        for name in [
            "HF_TOKEN",
            "OPENAI_API_KEY",
            "token",
            "AWS_SECRET_ACCESS_KEY",
            "PGPASSWORD",
            "MYSQL_PWD",
            "WANDB_KEY",
            "MATRIX_WEBHOOK",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "TOKENIZERS_PARALLELISM",
            "PATH",
            "MAX_TOKENS",
            "HISTOKEN",
            "PWD",
            "OLDPWD",
            "MONKEY",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
        let url = "https://me:hunter2hunter2@proxy:3128/x?y";
        assert_eq!(secret_part("HTTPS_PROXY", url), Some("hunter2hunter2"));
        assert_eq!(secret_part("A_TOKEN", url), Some(url));
        for plain in [
            "https://proxy:3128/a@b:c@d",
            "https://me@proxy",
            "https://me:@proxy",
            "a:b@c",
        ] {
            assert_eq!(secret_part("HTTPS_PROXY", plain), None, "{plain}");
        }
    }

    #[test]
    fn secrets_of_urls_are_hidden_wherever_they_stand_and_places_stay() {
        for (text, hidden) in [
            (
                "a postgres://u:pw123456x@h/db b",
                "a postgres://u:*********@h/db b",
            ),
            (
                "{A: http://u:p:q@h:80/, B: x@y}",
                "{A: http://u:***@h:80/, B: x@y}",
            ),
            ("two: s://a:bé@c s://d:ef@g", "two: s://a:***@c s://d:**@g"),
            ("https://h/?x=1&api-key=abc&y=2", "https://h/?x=1&api-key=***&y=2"),
            ("http://h/?url=http://u:pw@h", "http://h/?url=http://u:**@h"),
        ] {
            assert_eq!(mask_url_secrets(text), hidden);
        }
        for (target, hidden) in [
            ("/v1/x?api_key=abc&y=2", "/v1/x?api_key=***&y=2"),
            ("//u:pw@h/x", "//u:**@h/x"),
            ("x?token=abc", "x?token=***"),
            ("https://u:pw@h/?key=abc", "https://u:**@h/?key=***"),
            (
                "/in?to=http://u:pw@h/&token=abc",
                "/in?to=http://u:**@h/&token=***",
            ),
            ("/v1/x", "/v1/x"),
        ] {
            assert_eq!(mask_redirect_secrets(target), hidden);
        }
        for plain in [
            "http://u:${PW}@h",
            "http://h:80/a@b:c",
            "http://u@h",
            "http://u:@h",
            "http://h:80 a@b",
            "http://h/?key=",
        ] {
            assert_eq!(mask_url_secrets(plain), plain);
        }
    }
}
