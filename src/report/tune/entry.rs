//! A configuration as an entry of a matrix.

use crate::config::template::Template;
use crate::config::tune::TrialSet;

/// The changes of a configuration, to paste into a matrix. `replaced` are the arguments of the engine's entry, if the configuration has
/// other values of them.
pub(crate) fn entry_yaml(engine: &str, set: &TrialSet, replaced: Option<&[Template]>) -> String {
    let mut text = String::new();
    let mut args: Vec<String> = set.args().map(word).collect();
    if let Some(own) = replaced.filter(|_| !args.is_empty()) {
        let all: Vec<String> = set.args_after(own).iter().map(|arg| word(arg.as_str())).collect();
        text.push_str(&format!(
            "# In the matrix file, replace `args` of the engine `{engine}` by this line:\nargs: [{}]\n",
            all.join(", ")
        ));
        args.clear();
    }
    let env: Vec<String> = set
        .env()
        .map(|(name, value)| format!("{name}: {}", word(value)))
        .collect();
    if !args.is_empty() || !env.is_empty() {
        text.push_str(&format!(
            "# at the top level of the matrix:\noverrides:\n  - when: {{ engine: {} }}\n",
            word(engine)
        ));
    }
    if !args.is_empty() {
        text.push_str(&format!("    args: [{}]\n", args.join(", ")));
    }
    if !env.is_empty() {
        text.push_str(&format!("    env: {{ {} }}\n", env.join(", ")));
    }
    if let Some(precision) = set.precision() {
        text.push_str(&format!(
            "# at the engine `{engine}`:\nprecision: {}\n",
            word(precision)
        ));
    }
    if let Some(size) = set.tp() {
        text.push_str(&format!("# at the model:\ntp: {size}\n"));
    }
    text
}

/// A word of YAML, in quotes where it could be read as something else.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=+".contains(c);
    let is_named = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '-' || c == '/');
    let is_reserved = ["on", "off", "yes", "no", "true", "false", "null", "y", "n"]
        .contains(&text.to_ascii_lowercase().as_str());
    let is_dash = text.chars().all(|c| c == '-');
    match is_named && !is_reserved && !is_dash && text.chars().all(is_plain) && text.parse::<f64>().is_err() {
        true => text.to_owned(),
        false => serde_json::Value::from(text).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::matrix::Matrix;
    use crate::config::tune::KnobChange;
    use crate::config::yaml::{self, Source};

    #[test]
    fn the_entry_can_be_pasted_into_a_matrix() {
        let words = |words: &[&str]| KnobChange::Args(words.iter().map(|word| (*word).to_owned()).collect());
        let set = TrialSet {
            name: "winner".to_owned(),
            changes: vec![
                KnobChange::AsItIs,
                words(&["--max-num-seqs", "256"]),
                words(&["--config", "{\"a\": [1, 2]}", "on"]),
                KnobChange::Env("BACKEND".to_owned(), "1".to_owned()),
                KnobChange::Precision("fp8".to_owned()),
                KnobChange::Tp(2),
            ],
            prompts: None,
        };
        let replaced = entry_yaml(
            "vllm",
            &set,
            Some(&["--max-num-seqs", "9", "--x"].map(Template::new)),
        );
        assert!(
            replaced.contains("args: [--x, --max-num-seqs, \"256\", "),
            "{replaced}"
        );
        let entry = entry_yaml("vllm", &set, None);
        let text = format!("name: m\nengines: [vllm]\nmodels: [m]\nscenarios: [sharegpt]\n{entry}");
        assert!(
            entry.ends_with("precision: fp8\n# at the model:\ntp: 2\n"),
            "{entry}"
        );
        // What belongs elsewhere is no key of the matrix itself.
        let text: String = text
            .lines()
            .filter(|line| !line.starts_with("precision:") && !line.starts_with("tp:"))
            .map(|line| format!("{line}\n"))
            .collect();
        let (matrix, errors) = yaml::read::<Matrix>(&Source::new("m.yaml", text));
        assert!(errors.is_empty(), "{errors:?}");
        let matrix = matrix.unwrap();
        let args: Vec<&str> = matrix.overrides[0]
            .args
            .iter()
            .map(|arg| arg.value.as_str())
            .collect();
        assert_eq!(
            args,
            ["--max-num-seqs", "256", "--config", "{\"a\": [1, 2]}", "on"]
        );
        assert_eq!(
            matrix.overrides[0].env.get("BACKEND").unwrap().value.as_str(),
            "1"
        );
    }
}
