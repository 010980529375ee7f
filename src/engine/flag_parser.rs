//! Finds flags in commands and help texts. Pure.

use std::collections::BTreeSet;

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

/// All long flags in a help text; `None` if it does not look like one.
pub(super) fn parse_flags(text: &str) -> Option<BTreeSet<String>> {
    let mut flags = BTreeSet::new();
    for (at, _) in text.match_indices("--") {
        // Within a word or a ruling of dashes, `--` does not begin a flag.
        if text[..at].chars().next_back().is_some_and(is_letter) {
            continue;
        }
        let letters = text[at + 2..]
            .split(|c: char| !is_letter(c))
            .next()
            .unwrap_or_default();
        // A sentence may end with a flag.
        let word = format!("--{}", letters.trim_end_matches(['.', '-', '_']));
        flags.extend(long_flag(&word).map(str::to_owned));
    }
    (flags.len() >= MIN_FLAGS).then_some(flags)
}

/// Whether a flag may be known. Python's argparse accepts unique prefixes of flags, some engines accept `_`
/// for `-`, and `--config.key` for a key of `--config`.
pub(super) fn is_known(flag: &str, flags: &BTreeSet<String>) -> bool {
    let normalized = |text: &str| text.replace('_', "-");
    let whole = normalized(flag);
    let base = whole.split('.').next().unwrap_or_default();
    flags
        .iter()
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
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
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
