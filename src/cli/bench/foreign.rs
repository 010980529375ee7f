//! Flags and backends of `vllm bench serve` and other tools, with their names here.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};

use crate::cli::Cli;
use crate::config::yaml::nearest_name;

/// Flags of other tools, with our flags of the same effect.
const FOREIGN_FLAGS: [(&str, &[&str]); 16] = [
    ("--input-len", &["--random-input-len"]),
    ("--output-len", &["--random-output-len"]),
    ("--max-tokens", &["--random-output-len"]),
    ("--range-ratio", &["--random-range-ratio"]),
    ("--num-requests", &["--num-prompts"]),
    ("--concurrency", &["--max-concurrency"]),
    ("--rate", &["--request-rate"]),
    ("--save-result", &["--output-file", "--vllm-json"]),
    ("--result-dir", &["--output-file", "--vllm-json"]),
    ("--result-filename", &["--output-file", "--vllm-json"]),
    ("--endpoint", &["--backend", "--base-url"]),
    ("--url", &["--base-url"]),
    ("--num-warmups", &["--warmup-requests"]),
    ("--label", &["--tag"]),
    ("--metadata", &["--tag"]),
    ("--api-key", &["--header"]),
];

/// Flags of other tools that request the default behaviour, with the explanation.
const REDUNDANT_FLAGS: [(&str, &str); 3] = [
    (
        "--ignore-eos",
        "outputs always have the requested length unless '--disable-ignore-eos' is given",
    ),
    (
        "--trust-remote-code",
        "`matrix` never runs code that belongs to a model; '--tokenizer' accepts a `tokenizer.json` or its folder",
    ),
    (
        "--random-batch-size",
        "`matrix bench` always sends one prompt in each request",
    ),
];

/// Names of backends of other tools, which are refused. Each has our backend that sends the same requests.
const FOREIGN_BACKENDS: [(&str, &str); 2] = [("openai", "vllm"), ("openai-chat", "vllm-chat")];

/// Adds tips to an error: the command that was probably meant, and our name of an unknown flag or backend.
/// Only flags that the help shows are named.
pub(in crate::cli) fn with_tips(error: clap::Error, args: &[OsString]) -> clap::Error {
    if error.kind() == ErrorKind::InvalidSubcommand {
        return suggest_command(error);
    }
    let is_bench = args
        .iter()
        .skip(1)
        .find(|arg| !arg.to_string_lossy().starts_with('-'))
        .is_some_and(|command| command == "bench");
    match (is_bench, error.kind()) {
        (true, ErrorKind::UnknownArgument) => suggest_flags(error),
        (true, ErrorKind::InvalidValue) => suggest_backend(error),
        _ => error,
    }
}

/// Adds the command that was probably meant, if the parser suggests none.
fn suggest_command(mut error: clap::Error) -> clap::Error {
    let cli_command = Cli::command();
    let names = cli_command
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let requested = context_text(&error, ContextKind::InvalidSubcommand).unwrap_or_default();
    if error.get(ContextKind::SuggestedSubcommand).is_none()
        && let Some(near) = nearest_name(&requested, names.map(Command::get_name))
    {
        let near = ContextValue::Strings(vec![near.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, near);
    }
    error
}

fn context_text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        _ => None,
    }
}

fn suggest_flags(mut error: clap::Error) -> clap::Error {
    let Some(requested) =
        context_text(&error, ContextKind::InvalidArg).filter(|requested| requested.starts_with("--"))
    else {
        return error;
    };
    let cli_command = Cli::command();
    let shown = visible_flags(&cli_command);
    let known = FOREIGN_FLAGS.iter().find(|(foreign, _)| *foreign == requested);
    let needless = REDUNDANT_FLAGS.iter().find(|(foreign, _)| *foreign == requested);
    let own: Vec<String> = match known {
        _ if needless.is_some() => Vec::new(),
        Some((_, known_flags)) => known_flags.iter().map(|flag| (*flag).to_owned()).collect(),
        None => nearest_name(&requested, shown.iter().map(String::as_str))
            .map(str::to_owned)
            .into_iter()
            .collect(),
    };
    let suggested = context_text(&error, ContextKind::SuggestedArg);
    if known.is_none() && needless.is_none() && suggested.is_some_and(|suggested| shown.contains(&suggested))
    {
        return error;
    }
    error.remove(ContextKind::SuggestedArg);
    // The usage belongs to the flag that was suggested.
    let usage = cli_command.find_subcommand("bench").cloned();
    if let Some(bench) = usage {
        let usage = bench.bin_name("matrix bench").render_usage();
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    let tip = needless.map(|(_, why)| format!("leave it out: {why}"));
    let tip = tip.or_else(|| {
        let flags: Vec<String> = own.iter().map(|flag| format!("'{flag}'")).collect();
        (!own.is_empty()).then(|| format!("`matrix bench` has {} instead", flags.join(" or ")))
    });
    if let Some(tip) = tip {
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![StyledStr::from(tip)]),
        );
    }
    error
}

fn suggest_backend(mut error: clap::Error) -> clap::Error {
    let is_backend =
        context_text(&error, ContextKind::InvalidArg).is_some_and(|flag| flag.starts_with("--backend"));
    let requested = context_text(&error, ContextKind::InvalidValue);
    let ours = FOREIGN_BACKENDS
        .iter()
        .find(|(foreign, _)| is_backend && requested.as_deref() == Some(*foreign));
    if let Some((foreign, ours)) = ours {
        error.remove(ContextKind::SuggestedValue);
        let tip = format!("the backend '{ours}' sends the same requests as '{foreign}'");
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![StyledStr::from(tip)]),
        );
    }
    error
}

/// The flags that the help of `matrix bench` shows.
fn visible_flags(cli_command: &Command) -> Vec<String> {
    let bench = cli_command.find_subcommand("bench");
    let args = bench.into_iter().flat_map(Command::get_arguments);
    args.filter(|arg| !arg.is_hide_set())
        .filter_map(|arg| Some(format!("--{}", arg.get_long()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn error_text(args: &[&str]) -> String {
        let args: Vec<OsString> = ["matrix", "bench"]
            .iter()
            .chain(args)
            .map(OsString::from)
            .collect();
        let error = Cli::try_parse_from(&args).expect_err("the flag is unknown");
        with_tips(error, &args).to_string()
    }

    #[test]
    fn flags_of_other_tools_are_answered_with_ours_which_the_help_shows() {
        let cli_command = Cli::command();
        let shown = visible_flags(&cli_command);
        for (foreign, ours) in FOREIGN_FLAGS {
            let actual = error_text(&[foreign, "1"]);
            assert!(
                actual.contains(&format!("unexpected argument '{foreign}'")),
                "{actual}"
            );
            for flag in ours {
                assert!(actual.contains(&format!("'{flag}'")), "{actual}");
                assert!(shown.iter().any(|known| known == flag), "{flag}");
            }
            assert!(
                !actual.contains("similar") && actual.contains("Usage: matrix bench"),
                "{actual}"
            );
        }
    }

    #[test]
    fn a_flag_that_asks_for_what_is_so_anyway_is_answered_with_that() {
        for (foreign, why) in REDUNDANT_FLAGS {
            let actual = error_text(&[foreign]);
            assert!(actual.contains(why) && !actual.contains("similar"), "{actual}");
        }
    }

    #[test]
    fn a_command_with_two_letters_swapped_is_answered_with_the_one_that_was_meant() {
        let actual = |command: &str| {
            let args = ["matrix", command].map(OsString::from);
            let error = Cli::try_parse_from(&args).expect_err("the command is unknown");
            with_tips(error, &args).to_string()
        };
        for (slip, command) in [("rnu", "run"), ("benhc", "bench"), ("pln", "plan")] {
            assert!(actual(slip).contains(&format!("'{command}'")), "{}", actual(slip));
        }
        assert!(!actual("zzzzzz").contains("tip"), "{}", actual("zzzzzz"));
    }

    #[test]
    fn no_tip_names_a_hidden_flag_and_a_slip_is_answered_with_the_flag_that_was_meant() {
        for unknown in ["--rust-clients", "--rust-worker-thread-count"] {
            let actual = error_text(&[unknown]);
            assert!(
                !actual.contains("'--rust-client'") && !actual.contains("'--rust-worker-threads'"),
                "{actual}"
            );
        }
        assert!(error_text(&["--num-promts", "1"]).contains("'--num-prompts'"));
        assert!(error_text(&["--result-rate", "1"]).contains("'--request-rate'"));
    }

    #[test]
    fn backends_of_other_tools_are_answered_with_ours() {
        for (foreign, ours) in FOREIGN_BACKENDS {
            let actual = error_text(&["--backend", foreign]);
            assert!(
                actual.contains(&format!("'{ours}' sends the same requests as '{foreign}'")),
                "{actual}"
            );
        }
        assert!(!error_text(&["--backend", "other"]).contains("sends the same requests as"));
    }
}
