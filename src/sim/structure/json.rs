//! Generates JSON of a schema, in tokens that are about those of byte-level BPE: punctuation in runs, words with the space before
//! them.

use serde_json::{Map, Value};

use super::schema::{count, number, required, values};
use crate::sim::rng::Rng;
use crate::sim::text;

/// Most words of a text, and most elements beyond the required ones.
const MAX_WORDS: u64 = 4;
const MAX_EXTRA_ITEMS: u64 = 2;
/// Most characters and items of an answer together.
pub(super) const MAX_SIZE: usize = 1_000_000;
/// Letters of a token.
const LETTERS: usize = 8;
/// Digits of a token.
const DIGITS: usize = 3;

/// How long an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Drawn,
    /// One word for each text, and only what is required.
    Smallest,
}

/// Generates JSON of a schema that [`super::schema::check`] accepts; `None` if it is larger than [`MAX_SIZE`].
pub(super) fn generate(schema: &Value, key: u64, size: Size) -> Option<Vec<String>> {
    let mut writer = Writer {
        rng: Rng::new(key, 0x15_0a),
        key,
        size,
        words: 0,
        left: MAX_SIZE,
        is_too_large: false,
        punctuation: String::new(),
        tokens: Vec::new(),
    };
    writer.value(schema);
    writer.flush(false);
    (!writer.is_too_large).then_some(writer.tokens)
}

struct Writer {
    rng: Rng,
    key: u64,
    size: Size,
    words: u64,
    /// How many characters and items may still be written.
    left: usize,
    /// Whether more was to be written; then the rest is left out.
    is_too_large: bool,
    /// Punctuation that is not yet a token.
    punctuation: String,
    tokens: Vec<String>,
}

impl Writer {
    /// Counts characters or items that are about to be written. Returns whether the answer may still be that large.
    fn takes(&mut self, size: usize) -> bool {
        self.is_too_large |= size > self.left;
        self.left = self.left.saturating_sub(size);
        !self.is_too_large
    }

    fn value(&mut self, schema: &Value) {
        let Value::Object(schema) = schema else {
            return;
        };
        if !self.takes(1) {
            return;
        }
        let among = values(schema);
        if !among.is_empty() {
            let place = self.rng.below(among.len() as u64);
            let chosen = among[usize::try_from(place).expect("it is an index")].to_string();
            return self.content(&chosen);
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("object") => self.object(schema),
            Some("array") => self.array(schema),
            Some("string") => self.string(schema),
            Some("integer") => {
                let integer = self.within(schema, 1000.0, f64::ceil).to_string();
                self.content(&integer);
            }
            Some("number") => {
                let number = self
                    .within(schema, 100.0, |number| (number * 4.0).round() / 4.0)
                    .to_string();
                self.content(&number);
            }
            Some("boolean") => {
                let word = if self.rng.below(2) == 0 { "false" } else { "true" };
                self.content(word);
            }
            _ => self.content("null"),
        }
    }

    fn object(&mut self, schema: &Map<String, Value>) {
        let none = Map::new();
        let properties = schema
            .get("properties")
            .and_then(Value::as_object)
            .unwrap_or(&none);
        let is_required = |name: &str| required(schema).any(|required| required == name);
        self.punctuation.push('{');
        let mut is_first = true;
        for (name, property) in properties {
            if self.size == Size::Smallest && !is_required(name) {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                self.punctuation.push_str(", ");
            }
            self.content(&Value::from(name.as_str()).to_string());
            self.punctuation.push_str(": ");
            self.value(property);
        }
        self.punctuation.push('}');
    }

    fn array(&mut self, schema: &Map<String, Value>) {
        let least = count(schema, "minItems").unwrap_or(0);
        let extra = match (self.size, schema.get("items")) {
            (Size::Drawn, Some(_)) => self.rng.below(MAX_EXTRA_ITEMS + 1) as usize,
            _ => 0,
        };
        let elements = least
            .saturating_add(extra)
            .min(count(schema, "maxItems").unwrap_or(usize::MAX));
        self.punctuation.push('[');
        for element in 0..elements {
            if self.is_too_large {
                break;
            }
            if element > 0 {
                self.punctuation.push_str(", ");
            }
            if let Some(items) = schema.get("items") {
                self.value(items);
            }
        }
        self.punctuation.push(']');
    }

    /// Writes words: a drawn number of them, as far as the bounds of the length allow.
    fn string(&mut self, schema: &Map<String, Value>) {
        let least = count(schema, "minLength").unwrap_or(0);
        let most = count(schema, "maxLength").unwrap_or(usize::MAX);
        let words = match self.size {
            Size::Drawn => 1 + self.rng.below(MAX_WORDS),
            Size::Smallest => 1,
        };
        self.punctuation.push('"');
        let mut length = 0;
        let mut nth = 0;
        while length < most && (nth < words || length < least) && !self.is_too_large {
            let word = text::word(self.key, self.words);
            self.words += 1;
            nth += 1;
            let space = usize::from(length > 0);
            let fits = &word[..word.len().min((most - length).saturating_sub(space))];
            if fits.len() < word.len() && length >= least.max(1) {
                break;
            }
            if space == 1 {
                self.punctuation.push(' ');
            }
            length += space + fits.len();
            self.word(fits);
        }
        self.punctuation.push('"');
    }

    /// Draws a number between `minimum` and `maximum`; without bounds from 0 to `usual`.
    fn within(&mut self, schema: &Map<String, Value>, usual: f64, round: fn(f64) -> f64) -> f64 {
        let (low, high) = match (number(schema, "minimum"), number(schema, "maximum")) {
            (Some(low), Some(high)) => (low, high),
            (Some(low), None) => (low, low + usual),
            (None, Some(high)) => (high - usual, high),
            (None, None) => (0.0, usual),
        };
        let drawn = low + (high - low) * self.rng.next_unit();
        let rounded = round(drawn);
        // Rounding may leave the bounds.
        match (low..=high).contains(&rounded) {
            true => rounded,
            false => low,
        }
    }

    /// Writes JSON that is no punctuation: its quotes are, its letters and digits are tokens.
    fn content(&mut self, json: &str) {
        let inner = json.strip_prefix('"').and_then(|json| json.strip_suffix('"'));
        match inner {
            Some(inner) => {
                self.punctuation.push('"');
                self.word(inner);
                self.punctuation.push('"');
            }
            None => self.word(json),
        }
    }

    fn word(&mut self, word: &str) {
        if word.is_empty() || !self.takes(word.len()) {
            return;
        }
        let space = self.flush(true);
        let length = match word.starts_with(|first: char| first.is_ascii_digit()) {
            true => DIGITS,
            false => LETTERS,
        };
        let letters: Vec<char> = word.chars().collect();
        for (nth, piece) in letters.chunks(length).enumerate() {
            let space = if nth == 0 { space } else { "" };
            self.tokens
                .push(space.chars().chain(piece.iter().copied()).collect());
        }
    }

    /// Makes tokens of the punctuation: each run without a space. If a word follows, a space at the end belongs to it and is
    /// returned.
    fn flush(&mut self, has_word: bool) -> &'static str {
        let punctuation = std::mem::take(&mut self.punctuation);
        let (rest, space) = match punctuation.strip_suffix(' ').filter(|_| has_word) {
            Some(rest) => (rest, " "),
            None => (punctuation.as_str(), ""),
        };
        let mut token = String::new();
        for letter in rest.chars() {
            if letter == ' ' && !token.is_empty() {
                self.tokens.push(std::mem::take(&mut token));
            }
            token.push(letter);
        }
        if !token.is_empty() {
            self.tokens.push(token);
        }
        space
    }
}
