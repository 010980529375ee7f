//! Selects the environment variables of `matrix` that an engine's process inherits.

use std::collections::BTreeSet;

use crate::base::secrets::is_secret_name;
use crate::config::engine::ProcessEnvironment;
use crate::plan::{ContainerCommand, Launch, Process};

/// Variables that are passed even to a clean environment.
const ALWAYS_PASSED: [&str; 9] = [
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR",
];

/// Secrets that engines need for gated models, and that are passed without being named in `env:`.
const DEFAULT_SECRETS: [&str; 2] = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"];

/// Prefix of variables of `matrix` itself, which are never inherited.
const OWN_PREFIX: &str = "MATRIX_";

/// Names of our environment variables that the engine's process does not inherit.
pub(crate) fn withheld_variables<'n>(
    launch: &Launch,
    process: &Process,
    names: &'n [String],
) -> Vec<&'n str> {
    let named: BTreeSet<String> = launch.secrets().into_iter().collect();
    let is_set = |name: &str| process.env.iter().any(|(set, _)| set == name);
    let is_passed = |name: &str| match process.environment {
        // As with a container daemon, an engine in a container gets only what its recipe and the matrix name.
        _ if process.container.is_some() => {
            ALWAYS_PASSED.contains(&name)
                || name.starts_with("LC_")
                || ContainerCommand::is_runtime_variable(name)
        }
        ProcessEnvironment::Clean => ALWAYS_PASSED.contains(&name) || name.starts_with("LC_"),
        ProcessEnvironment::Inherited => {
            let is_free = !is_secret_name(name) || DEFAULT_SECRETS.contains(&name) || named.contains(name);
            is_free && !name.starts_with(OWN_PREFIX)
        }
    };
    let names = names.iter().map(String::as_str);
    names.filter(|name| !is_passed(name) && !is_set(name)).collect()
}

/// Describes what the engine's process inherits of our environment. `None` if it inherits everything except
/// `MATRIX_*` and none of it is secret.
pub(crate) fn describe_environment(launch: &Launch, process: &Process, names: &[String]) -> Option<String> {
    if process.container.is_some() {
        return None;
    }
    let withheld: BTreeSet<&str> = withheld_variables(launch, process, names).into_iter().collect();
    let listed = |names: &mut dyn Iterator<Item = &str>| {
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let mut passed = names
        .iter()
        .map(String::as_str)
        .filter(|name| !withheld.contains(name));
    if process.environment == ProcessEnvironment::Clean {
        return Some(format!("only {}", listed(&mut passed).unwrap_or_default()));
    }
    let hidden = listed(&mut passed.filter(|name| is_secret_name(name)));
    let kept_back = listed(
        &mut withheld
            .iter()
            .copied()
            .filter(|name| !name.starts_with(OWN_PREFIX)),
    );
    let kept_back = kept_back.map(|names| {
        format!("these variables are not passed to the engine, because they look like secrets: {names} (name them in `env:` to pass them)")
    });
    let hidden = hidden
        .map(|names| format!("the values of these variables are replaced by `***` in all output: {names}"));
    let words: Vec<String> = kept_back.into_iter().chain(hidden).collect();
    (!words.is_empty()).then(|| format!("inherited from this shell; {}", words.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn secrets_that_nothing_names_and_our_own_variables_are_withheld() {
        let launch = testing::command_launch(&["true"]);
        let mut process = Process::default();
        let all = names(&[
            "PATH",
            "HF_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "X_API_KEY",
            "MATRIX_WEBHOOK",
            "CUDA_HOME",
        ]);
        assert_eq!(
            withheld_variables(&launch, &process, &all),
            ["AWS_SECRET_ACCESS_KEY", "X_API_KEY", "MATRIX_WEBHOOK"]
        );
        process.env.push(("X_API_KEY".to_owned(), "${X_API_KEY}".into()));
        assert_eq!(
            withheld_variables(&launch, &process, &all),
            ["AWS_SECRET_ACCESS_KEY", "MATRIX_WEBHOOK"]
        );
        let words = describe_environment(&launch, &process, &all).unwrap();
        assert!(
            words.contains("because they look like secrets: AWS_SECRET_ACCESS_KEY (")
                && words.ends_with("all output: HF_TOKEN, X_API_KEY"),
            "{words}"
        );
        assert_eq!(
            describe_environment(&launch, &process, &names(&["PATH", "MATRIX_CACHE"])),
            None
        );
    }

    #[test]
    fn a_clean_environment_has_only_what_every_program_expects() {
        let launch = testing::command_launch(&["true"]);
        let process = Process {
            environment: ProcessEnvironment::Clean,
            ..Process::default()
        };
        let all = names(&["PATH", "HF_TOKEN", "LC_ALL", "CUDA_HOME", "MATRIX_CACHE"]);
        assert_eq!(
            withheld_variables(&launch, &process, &all),
            ["HF_TOKEN", "CUDA_HOME", "MATRIX_CACHE"]
        );
        assert_eq!(
            describe_environment(&launch, &process, &all).as_deref(),
            Some("only LC_ALL, PATH")
        );
    }
}
