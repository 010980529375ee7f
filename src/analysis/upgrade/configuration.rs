//! The configuration that an engine logs at its start.

use std::collections::BTreeMap;

/// Settings by name.
pub(crate) type Configuration = BTreeMap<String, String>;

/// Reads the `name=value` pairs after any of these texts; of several lines, all pairs.
pub(crate) fn parse_configuration(log: &str, patterns: &[String]) -> Configuration {
    let lines = log.lines().filter_map(|line| {
        let mut found = patterns.iter().filter_map(|pattern| {
            let at = line.find(pattern.as_str())?;
            Some(&line[at + pattern.len()..])
        });
        found.next()
    });
    lines.flat_map(pairs).collect()
}

/// Pairs that are separated by commas outside of brackets and quotes.
fn pairs(text: &str) -> Vec<(String, String)> {
    let mut parts = vec![String::new()];
    let (mut depth, mut quote) = (0_i32, None);
    for letter in text.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '\'' | '"') => quote = Some(letter),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth -= 1,
            _ => {}
        }
        // The bracket around all pairs may close.
        if depth < 0 {
            break;
        }
        match letter {
            ',' if depth == 0 && quote.is_none() => parts.push(String::new()),
            letter => parts.last_mut().expect("it begins with one").push(letter),
        }
    }
    let pair = |part: String| {
        let (name, value) = part.split_once('=')?;
        let name = name.trim();
        let is_name = !name.is_empty()
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
        is_name.then(|| (name.to_owned(), value.trim().to_owned()))
    };
    parts.into_iter().filter_map(pair).collect()
}

/// Settings that all starts have with the same value. Others, such as ports and seeds, are not those of a build.
pub(crate) fn common_settings(starts: impl IntoIterator<Item = Configuration>) -> Configuration {
    let mut starts = starts.into_iter().filter(|settings| !settings.is_empty());
    let mut common = starts.next().unwrap_or_default();
    for settings in starts {
        common.retain(|name, value| settings.get(name) == Some(value));
    }
    common
}

/// The values of nested JSON by their path, such as `default_generation_settings.n_ctx`.
pub(crate) fn flatten(json: &serde_json::Value) -> Configuration {
    let mut flat = Configuration::new();
    add_values(&mut flat, String::new(), json);
    flat
}

fn add_values(flat: &mut Configuration, path: String, value: &serde_json::Value) {
    let below = |name: &str| match path.is_empty() {
        true => name.to_owned(),
        false => format!("{path}.{name}"),
    };
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                add_values(flat, below(name), value);
            }
        }
        serde_json::Value::String(text) => {
            flat.insert(path, text.clone());
        }
        other => {
            flat.insert(path, other.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_those_of_the_logs_of_vllm_and_sglang() {
        let vllm = "(EngineCore pid=1) INFO [core.py:114] Initializing a V1 LLM engine (v0.24.0) with config: model='/m, x', dtype=torch.bfloat16, quantization=None, observability_config=ObservabilityConfig(a=None, b=False), seed=0";
        let patterns = ["with config: ".to_owned(), "server_args=ServerArgs(".to_owned()];
        let settings = parse_configuration(&format!("other\n{vllm}\n"), &patterns);
        let text = |name: &str| settings[name].as_str();
        assert_eq!(settings.len(), 5);
        assert_eq!((text("model"), text("seed")), ("'/m, x'", "0"));
        assert_eq!(
            text("observability_config"),
            "ObservabilityConfig(a=None, b=False)"
        );
        let sglang = "[2026] server_args=ServerArgs(model_path='m', port=30000, cuda_graph_bs=[1, 2], random_seed=7) and=more";
        let settings = parse_configuration(sglang, &patterns);
        assert_eq!(settings["cuda_graph_bs"], "[1, 2]");
        assert_eq!(settings["random_seed"], "7");
        assert_eq!(settings.len(), 4);
    }

    #[test]
    fn what_varies_between_starts_is_left_out() {
        let of = |text: &str| parse_configuration(text, &["cfg ".to_owned()]);
        let common = common_settings([of("cfg a=1, port=5"), of(""), of("cfg a=1, port=6")]);
        assert_eq!(common, of("cfg a=1"));
        assert_eq!(common_settings([]), Configuration::new());
    }

    #[test]
    fn nested_values_have_their_path_as_name() {
        let flat = flatten(&serde_json::json!({ "a": { "b": 1, "c": [1, 2] }, "d": "x" }));
        let pairs: Vec<_> = flat
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(pairs, ["a.b=1", "a.c=[1,2]", "d=x"]);
    }
}
