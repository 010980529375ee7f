//! The values that must never be written down, and how they are taken out of what is.

use std::borrow::Cow;
use std::fmt;

/// Replaces secret values by `***`. Its `Debug` shows no value.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Longest first, so that a secret inside another leaves nothing of the longer one.
    values: Vec<String>,
}

/// What stands where a secret stood.
pub const HIDDEN: &str = "***";

impl Redactor {
    /// A redactor of these values. Each is also looked for as JSON and URLs would spell it, and line by line where it has
    /// several, since logs are cleaned by lines. Empty values are left out.
    pub fn new<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all = Vec::new();
        let lines = |value: &'a str| {
            // Shorter lines of a key, such as its braces, would take ordinary text along.
            let long = |line: &&str| value.contains('\n') && line.trim().len() >= 8;
            std::iter::once(value).chain(value.lines().filter(long))
        };
        for value in values
            .into_iter()
            .flat_map(lines)
            .filter(|value| !value.is_empty())
        {
            let json = serde_json::to_string(value).expect("a string is always JSON");
            all.push(json[1..json.len() - 1].to_owned());
            all.push(percent(value));
            all.push(value.to_owned());
        }
        all.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        all.dedup();
        Self { values: all }
    }

    /// The text without any secret.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut clean = Cow::Borrowed(text);
        for value in &self.values {
            if clean.contains(value.as_str()) {
                clean = Cow::Owned(clean.replace(value.as_str(), HIDDEN));
            }
        }
        clean
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} values)", self.values.len())
    }
}

fn percent(value: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_plain_in_json_and_in_urls() {
        let redactor = Redactor::new(["se\"cret/1", ""]);
        let json = serde_json::to_string("token se\"cret/1").unwrap();
        for text in ["a se\"cret/1 b", json.as_str(), "http://x/?k=se%22cret%2F1"] {
            let clean = redactor.redact(text);
            assert!(clean.contains(HIDDEN) && !clean.contains("cret"), "{clean}");
        }
        assert_eq!(redactor.redact("nothing here"), "nothing here");
        assert!(!format!("{redactor:?}").contains("cret"));
    }

    #[test]
    fn each_line_of_a_secret_is_found_alone() {
        let redactor = Redactor::new(["-----BEGIN KEY\nabcdefgh12\n}\n"]);
        assert_eq!(redactor.redact("log: abcdefgh12 }"), "log: *** }");
    }
}
