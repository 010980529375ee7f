//! The requested settings of a client, read from a printed `Namespace(…)`, a command line, or the fields of a
//! result.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::base::units::HumanDuration;
use crate::config::scenario::Slo;

/// All requested settings that decide what was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ClientOptions {
    /// The line of the file that has them; 0 if unknown.
    pub(super) line: u32,
    pub(super) backend: Option<String>,
    pub(super) model: Option<String>,
    pub(super) tokenizer: Option<String>,
    /// The model name in requests, if it differs from `model`.
    pub(super) served_model_name: Option<String>,
    pub(super) dataset: Option<String>,
    pub(super) prompts: Option<u64>,
    pub(super) input_len: Option<u32>,
    pub(super) output_len: Option<u32>,
    pub(super) sharegpt_output_len: Option<u32>,
    pub(super) context_len: Option<u32>,
    pub(super) range_ratio: Option<f64>,
    /// Requests per second; infinite if all are sent at once.
    pub(super) rate: Option<f64>,
    /// The kind of arrival if it has no single rate, such as `trace`.
    pub(super) traffic: Option<String>,
    pub(super) concurrency: Option<u32>,
    /// Whether the file says that concurrency is unlimited.
    pub(super) is_unlimited: bool,
    pub(super) burstiness: Option<f64>,
    /// Whether the gaps between requests are equal.
    pub(super) evenly_spaced: bool,
    pub(super) seed: Option<u64>,
    pub(super) stop_at_eos: bool,
    pub(super) apply_chat_template: bool,
    pub(super) tokenize_prompt: bool,
    pub(super) prompt_suffix: Option<String>,
    pub(super) body: Map<String, Value>,
    pub(super) warmup: Option<u32>,
    /// Whether the caches are emptied before the measurement.
    pub(super) flush_cache: bool,
    /// Whether the server records a profile of itself during the measurement.
    pub(super) profile: bool,
    pub(super) slo: Option<Slo>,
    pub(super) port: Option<u16>,
    /// The printed number of prompt tokens prepared for sending, with its line.
    pub(super) input_tokens: Option<(u32, u64)>,
    /// The printed number of requested output tokens, with its line.
    pub(super) output_tokens: Option<(u32, u64)>,
}

impl ClientOptions {
    /// Reads settings from options, which are keyed by name with underscores.
    pub(super) fn from_options(line: u32, options: &BTreeMap<String, Value>) -> Self {
        let text = |name: &str| match options.get(name) {
            Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
            _ => None,
        };
        let number = |name: &str| options.get(name).and_then(parse_number);
        let whole = |name: &str| number(name).filter(|value| *value >= 0.0 && value.fract() == 0.0);
        let length = |name: &str| whole(name).map(|value| value as u32);
        let is = |name: &str| options.get(name) == Some(&Value::Bool(true));
        Self {
            line,
            backend: text("backend").or_else(|| text("endpoint_type")),
            model: text("model").or_else(|| text("model_id")),
            tokenizer: text("tokenizer").or_else(|| text("tokenizer_id")),
            served_model_name: text("served_model_name"),
            dataset: text("dataset_name"),
            prompts: whole("num_prompts").map(|value| value as u64),
            input_len: length("random_input_len"),
            output_len: length("random_output_len"),
            sharegpt_output_len: length("sharegpt_output_len"),
            context_len: length("sharegpt_context_len"),
            range_ratio: number("random_range_ratio"),
            rate: number("request_rate"),
            traffic: text("request_rate")
                .filter(|text| text.parse::<f64>().is_err())
                .or_else(|| text("ramp_up_strategy")),
            concurrency: length("max_concurrency"),
            is_unlimited: options.get("max_concurrency") == Some(&Value::Null),
            burstiness: number("burstiness"),
            evenly_spaced: false,
            seed: whole("seed").map(|value| value as u64),
            // bench_serving ignores the end token by default, `vllm bench serve` does not.
            stop_at_eos: is("disable_ignore_eos") || options.get("ignore_eos") == Some(&Value::Bool(false)),
            apply_chat_template: is("apply_chat_template"),
            tokenize_prompt: is("tokenize_prompt"),
            prompt_suffix: text("prompt_suffix"),
            body: request_body(options),
            // bench_serving counts all warm-up requests. `vllm bench serve` sends one more before those.
            warmup: length("warmup_requests")
                .or_else(|| Some(length("num_warmups")?.saturating_add(1)))
                .or_else(|| is("disable_warmup").then_some(0)),
            flush_cache: is("flush_cache"),
            profile: is("profile"),
            slo: match options.get("goodput_slos_ms") {
                Some(Value::Object(limits)) => slo_from_limits(
                    limits
                        .iter()
                        .filter_map(|(target, limit)| Some((target.clone(), limit.as_f64()?))),
                ),
                _ => None,
            },
            port: whole("port").and_then(|port| u16::try_from(port as u64).ok()),
            input_tokens: None,
            output_tokens: None,
        }
    }

    /// Fills settings that are missing here from `other`. Not all settings are merged.
    pub(super) fn merged_with(self, other: &Self) -> Self {
        let other = other.clone();
        Self {
            line: if self.line > 0 { self.line } else { other.line },
            backend: self.backend.or(other.backend),
            model: self.model.or(other.model),
            tokenizer: self.tokenizer.or(other.tokenizer),
            dataset: self.dataset.or(other.dataset),
            prompts: self.prompts.or(other.prompts),
            input_len: self.input_len.or(other.input_len),
            output_len: self.output_len.or(other.output_len),
            range_ratio: self.range_ratio.or(other.range_ratio),
            rate: self.rate.or(other.rate),
            traffic: self.traffic.or(other.traffic),
            concurrency: self
                .concurrency
                .or(other.concurrency.filter(|_| !self.is_unlimited)),
            slo: self.slo.or(other.slo),
            input_tokens: self.input_tokens.or(other.input_tokens),
            output_tokens: self.output_tokens.or(other.output_tokens),
            ..self
        }
    }

    /// Whether the data set is generated with the requested lengths.
    pub(super) fn is_random(&self) -> bool {
        self.dataset
            .as_deref()
            .is_some_and(|name| name.starts_with("random"))
    }
}

/// A number, also one that JSON cannot represent.
pub(super) fn parse_number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok().filter(|value: &f64| !value.is_nan()),
        _ => None,
    }
}

/// The SLO from limits in milliseconds by target; `None` if there is no limit.
pub(super) fn slo_from_limits(limits: impl Iterator<Item = (String, f64)>) -> Option<Slo> {
    let mut slo = Slo {
        speed: None,
        ttft: None,
        tpot: None,
        e2e: None,
    };
    let mut is_told = false;
    for (target, limit) in limits {
        let Ok(limit) = Duration::try_from_secs_f64(limit / 1000.0) else {
            continue;
        };
        let place = match target.as_str() {
            "ttft" => &mut slo.ttft,
            "tpot" => &mut slo.tpot,
            "e2el" => &mut slo.e2e,
            _ => continue,
        };
        *place = Some(HumanDuration(limit));
        is_told = true;
    }
    is_told.then_some(slo)
}

/// Extra fields of request bodies: an object or its text, and those that other options of the client add.
fn request_body(options: &BTreeMap<String, Value>) -> Map<String, Value> {
    let mut fields = match options.get("extra_request_body") {
        Some(Value::Object(fields)) => fields.clone(),
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
        _ => Map::new(),
    };
    if options.get("disable_stream") == Some(&Value::Bool(true)) {
        fields.entry("stream").or_insert(Value::Bool(false));
    }
    for (option, field) in [
        ("return_logprob", "logprobs"),
        ("logprobs", "logprobs"),
        ("lora_name", "lora_path"),
        ("lora_modules", "lora_path"),
    ] {
        let is_told = |value: &&Value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::String(text) => !text.is_empty(),
            Value::Array(values) => !values.is_empty(),
            _ => true,
        };
        if let Some(value) = options.get(option).filter(is_told) {
            fields.entry(field).or_insert_with(|| value.clone());
        }
    }
    fields
}

/// The options of the first `Namespace(a=1, b='x')` in a line.
pub(super) fn parse_namespace(line: &str) -> Option<BTreeMap<String, Value>> {
    parse_keyword_arguments(line, "Namespace(")
}

/// The settings that a server prints: SGLang's `ServerArgs(…)`, vLLM's `non-default args: {…}`, or the
/// `Namespace(…)` of its arguments.
pub(super) fn parse_server_arguments(line: &str) -> Option<BTreeMap<String, Value>> {
    const NON_DEFAULT_PREFIX: &str = "non-default args: ";
    let is_server = |options: &BTreeMap<String, Value>| {
        let is_sized = ["tensor_parallel_size", "tp_size"]
            .iter()
            .any(|name| options.contains_key(*name));
        is_sized && !options.contains_key("num_prompts")
    };
    parse_keyword_arguments(line, "ServerArgs(")
        .or_else(|| {
            let at = line.find(NON_DEFAULT_PREFIX)? + NON_DEFAULT_PREFIX.len();
            let rest = &line[at..];
            let fields = rest.starts_with('{').then(|| Literals(rest).object())??;
            Some(fields.into_iter().collect())
        })
        .or_else(|| parse_namespace(line).filter(is_server))
}

/// Arguments by name in the text that Python prints for a value; `opening` is its name and bracket.
fn parse_keyword_arguments(line: &str, opening: &str) -> Option<BTreeMap<String, Value>> {
    let at = line.find(opening)?;
    let mut reader = Literals(&line[at + opening.len()..]);
    let mut options = BTreeMap::new();
    loop {
        reader.skip_spaces();
        if reader.accept(')') {
            return Some(options);
        }
        let equals = reader.0.find('=')?;
        let name = reader.0[..equals].trim().to_owned();
        reader.0 = &reader.0[equals + 1..];
        options.insert(name, reader.value()?);
        reader.skip_spaces();
        reader.accept(',');
    }
}

/// The options of a command line: `--a-b value` gives `a_b`, a flag without a value is true. Words that
/// belong to no flag are skipped.
pub(super) fn parse_flags(words: &str) -> BTreeMap<String, Value> {
    let mut options = BTreeMap::new();
    let mut words = words.split_whitespace().peekable();
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("--") else {
            continue;
        };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => {
                let next = words.next_if(|next| !next.starts_with("--"));
                (flag, next.map(str::to_owned))
            }
        };
        let value = value.map_or(Value::Bool(true), |value| {
            Value::String(without_quotes(&value).to_owned())
        });
        options.insert(name.replace('-', "_"), value);
    }
    options
}

/// Removes the quotes around a word.
pub(super) fn without_quotes(word: &str) -> &str {
    let inner = |quote| word.strip_prefix(quote)?.strip_suffix(quote);
    inner('\'').or_else(|| inner('"')).unwrap_or(word)
}

struct Literals<'a>(&'a str);

impl Literals<'_> {
    fn skip_spaces(&mut self) {
        self.0 = self.0.trim_start();
    }

    fn accept(&mut self, wanted: char) -> bool {
        match self.0.strip_prefix(wanted) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn value(&mut self) -> Option<Value> {
        self.skip_spaces();
        match self.0.chars().next()? {
            '\'' | '"' => self.text().map(Value::String),
            '[' => self.list(']').map(Value::Array),
            '(' => self.list(')').map(Value::Array),
            '{' => self.object().map(Value::Object),
            _ => Some(self.word()),
        }
    }

    fn text(&mut self) -> Option<String> {
        let quote = self.0.chars().next()?;
        let mut text = String::new();
        let mut rest = self.0[1..].char_indices();
        while let Some((at, letter)) = rest.next() {
            match letter {
                '\\' => match rest.next()?.1 {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    other => text.push(other),
                },
                _ if letter == quote => {
                    self.0 = &self.0[1 + at + 1..];
                    return Some(text);
                }
                _ => text.push(letter),
            }
        }
        None
    }

    fn list(&mut self, end: char) -> Option<Vec<Value>> {
        self.0 = &self.0[1..];
        let mut values = Vec::new();
        loop {
            self.skip_spaces();
            if self.accept(end) {
                return Some(values);
            }
            values.push(self.value()?);
            self.skip_spaces();
            if !self.accept(',') && !self.0.starts_with(end) {
                return None;
            }
        }
    }

    fn object(&mut self) -> Option<Map<String, Value>> {
        self.0 = &self.0[1..];
        let mut fields = Map::new();
        loop {
            self.skip_spaces();
            if self.accept('}') {
                return Some(fields);
            }
            let key = match self.value()? {
                Value::String(key) => key,
                other => other.to_string(),
            };
            self.skip_spaces();
            if !self.accept(':') {
                return None;
            }
            fields.insert(key, self.value()?);
            self.skip_spaces();
            if !self.accept(',') && !self.0.starts_with('}') {
                return None;
            }
        }
    }

    /// A word up to the next comma or bracket. Words that are no literal stay text, such as `inf`. Brackets
    /// within a word belong to it, as in `<function f at 0x7f>` or `PosixPath('x')`.
    fn word(&mut self) -> Value {
        let mut depth = 0_u32;
        let end = self.0.find(|letter| match letter {
            '(' | '[' | '<' => {
                depth += 1;
                false
            }
            ')' | ']' | '>' if depth > 0 => {
                depth -= 1;
                false
            }
            ',' | ')' | ']' | '}' | ':' => depth == 0,
            _ => false,
        });
        let (word, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        self.0 = rest;
        match word.trim() {
            "None" => Value::Null,
            "True" => Value::Bool(true),
            "False" => Value::Bool(false),
            // Python's numbers are valid JSON except for a few, which stay text.
            number => serde_json::from_str(number).unwrap_or_else(|_| Value::String(number.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_namespace_is_read_as_python_wrote_it() {
        let line = r#"benchmark_args=Namespace(a='x, y)', rate=inf, none=None, list=['CPU', 'GPU'], d={'k': [1, 2.5]}, q="it's", f=<function g at 0x7f>, yes=True, n=-3) more"#;
        let options = parse_namespace(line).unwrap();
        let expected = [
            ("a", json!("x, y)")),
            ("rate", json!("inf")),
            ("none", json!(null)),
            ("list", json!(["CPU", "GPU"])),
            ("d", json!({"k": [1, 2.5]})),
            ("q", json!("it's")),
            ("f", json!("<function g at 0x7f>")),
            ("yes", json!(true)),
            ("n", json!(-3)),
        ];
        assert_eq!(options.len(), expected.len(), "{options:?}");
        for (name, value) in expected {
            assert_eq!(options[name], value, "{name}");
        }
        assert_eq!(parse_number(&options["rate"]), Some(f64::INFINITY));
    }

    #[test]
    fn a_namespace_that_was_cut_is_none() {
        for line in [
            "Namespace(a='x",
            "Namespace(a=[1, 2",
            "Namespace(a=1, b",
            "nothing",
        ] {
            assert_eq!(parse_namespace(line), None, "{line}");
        }
    }

    #[test]
    fn flags_are_options_by_name() {
        let options = parse_flags("serve --num-prompts 10000 --dataset-name=random --stream --seed '7'");
        let client_options = ClientOptions::from_options(3, &options);
        assert_eq!(
            (
                client_options.prompts,
                client_options.dataset.as_deref(),
                client_options.seed
            ),
            (Some(10_000), Some("random"), Some(7))
        );
        assert_eq!(options["stream"], json!(true));
    }
}
