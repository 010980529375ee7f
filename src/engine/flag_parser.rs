//! Finds flags in commands and help texts. Pure.

use std::collections::BTreeMap;

/// The long flags of an engine, each with the default that its help states.
pub(crate) type HelpFlags = BTreeMap<String, Option<String>>;

/// A help text with fewer flags is an error message or a list of subcommands.
const MIN_FLAGS: usize = 3;

pub(super) fn long_flag(word: &str) -> Option<&str> {
    let name = word.split(['=', ' ']).next().unwrap_or_default();
    let letters = name.strip_prefix("--")?;
    let is_name = letters.starts_with(|c: char| c.is_ascii_alphabetic())
        && letters.chars().all(is_letter)
        && letters.len() > 1;
    is_name.then_some(name)
}

/// All long flags in a help text with their defaults; `None` if it does not look like one.
pub(super) fn parse_flags(text: &str) -> Option<HelpFlags> {
    let mut flags: HelpFlags = flags_in(text).map(|flag| (flag, None)).collect();
    for (flag, default) in defaults(text) {
        flags.insert(flag, Some(default));
    }
    (flags.len() >= MIN_FLAGS).then_some(flags)
}

/// The long flags in a text, in order.
fn flags_in(text: &str) -> impl Iterator<Item = String> {
    text.match_indices("--").filter_map(|(at, _)| {
        // Within a word or a ruling of dashes, `--` does not begin a flag.
        if text[..at].chars().next_back().is_some_and(is_letter) {
            return None;
        }
        let letters = text[at + 2..]
            .split(|c: char| !is_letter(c))
            .next()
            .unwrap_or_default();
        // A sentence may end with a flag.
        let word = format!("--{}", letters.trim_end_matches(['.', '-', '_']));
        long_flag(&word).map(str::to_owned)
    })
}

/// Flags with the default of their description, such as `(default: 256)`. A description begins with a line whose first word is
/// a flag, and lasts until the next one.
fn defaults(text: &str) -> Vec<(String, String)> {
    let begins_flag = |line: &&str| line.trim_start().starts_with('-');
    let mut blocks: Vec<String> = Vec::new();
    for line in text.lines() {
        match blocks.last_mut() {
            _ if begins_flag(&line) => blocks.push(line.trim().to_owned()),
            Some(block) => {
                block.push(' ');
                block.push_str(line.trim());
            }
            None => {}
        }
    }
    let of_block = |block: &String| {
        // Further flags before the description are other names of the first one.
        let names = block.split([',', ' ']).filter(|word| !word.is_empty());
        let flag = names
            .take_while(|word| word.starts_with('-'))
            .find_map(long_flag)?;
        Some((flag.to_owned(), default_in(block)?))
    };
    blocks.iter().filter_map(of_block).collect()
}

/// The text of the last `(default: …)` or `[default: …]`.
fn default_in(description: &str) -> Option<String> {
    let (at, open) = ["(default", "[default"]
        .iter()
        .filter_map(|start| Some((description.rfind(start)?, start)))
        .max()?;
    let (opening, closing) = if open.starts_with('(') {
        ('(', ')')
    } else {
        ('[', ']')
    };
    let mut depth = 0;
    let end = description[at..].char_indices().find(|(_, c)| {
        depth += i32::from(*c == opening) - i32::from(*c == closing);
        depth == 0
    })?;
    let inner = description[at + open.len()..at + end.0].trim_start_matches([':', ' ']);
    let words: Vec<&str> = inner.split_whitespace().collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Whether a flag may be known. Python's argparse accepts unique prefixes of flags, some engines accept `_`
/// for `-`, and `--config.key` for a key of `--config`.
pub(super) fn is_known(flag: &str, flags: &HelpFlags) -> bool {
    let normalized = |text: &str| text.replace('_', "-");
    let whole = normalized(flag);
    let base = whole.split('.').next().unwrap_or_default();
    flags
        .keys()
        .map(|flags| normalized(flags))
        .any(|flags| flags.starts_with(&whole) || flags == base)
}

fn is_letter(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARGPARSE: &str = "usage: vllm serve [-h] [--host HOST] [--port PORT]\n  --tensor-parallel-size TENSOR_PARALLEL_SIZE, -tp TENSOR_PARALLEL_SIZE\n  --enable-prefix-caching, --no-enable-prefix-caching\n                        Same as --caching.\n  --compilation-config COMPILATION_CONFIG, -O COMPILATION_CONFIG\n----------\n  a--b\n";

    #[test]
    fn the_flags_of_a_help_text_are_found_and_nothing_else() {
        let flags = parse_flags(ARGPARSE).unwrap();
        let flags: Vec<&str> = flags.keys().map(String::as_str).collect();
        assert_eq!(
            flags,
            [
                "--caching",
                "--compilation-config",
                "--enable-prefix-caching",
                "--host",
                "--no-enable-prefix-caching",
                "--port",
                "--tensor-parallel-size"
            ]
        );
        assert_eq!(parse_flags("error: unrecognized arguments: --help=all"), None);
    }

    #[test]
    fn defaults_are_those_that_the_help_states() {
        let help = "usage: x [--seqs N]\n  --seqs N, -s N        Requests at once, of\n                        a batch. (default: 256)\n  -c, --ctx-size N      size (default: 4096, 0 = from (the) model)\n                        (env: LLAMA_ARG)\n      --port <PORT>  where it listens [default: 8000]\n  --plain               see --other (default: none)\n  --quiet\n";
        let flags = parse_flags(help).unwrap();
        let default = |flag: &str| flags[flag].as_deref();
        assert_eq!(default("--seqs"), Some("256"));
        assert_eq!(default("--ctx-size"), Some("4096, 0 = from (the) model"));
        assert_eq!(default("--port"), Some("8000"));
        assert_eq!((default("--plain"), default("--other")), (Some("none"), None));
        assert_eq!(default("--quiet"), None);
    }

    #[test]
    fn what_an_engine_may_take_is_known() {
        let flags = parse_flags(ARGPARSE).unwrap();
        for accepted in [
            "--host",
            "--tensor-parallel",
            "--tensor_parallel_size",
            "--compilation-config.level",
        ] {
            assert!(is_known(accepted, &flags), "{accepted}");
        }
        for not in ["--hosts", "--enable-metrics", "--compilation.level"] {
            assert!(!is_known(not, &flags), "{not}");
        }
    }

    #[test]
    fn a_flag_is_told_from_its_value_and_from_other_words() {
        assert_eq!(long_flag("--port=8000"), Some("--port"));
        assert_eq!(long_flag("--tp"), Some("--tp"));
        for none in ["-tp", "--", "---", "a", "--{x}", "{\"--a\": 1}"] {
            assert_eq!(long_flag(none), None, "{none}");
        }
    }
}
