//! Finds unknown placeholders and secrets written in plain text. Passwords in URLs are found by the reader
//! (`config::yaml`).

use super::diagnostics::with_place;
use super::recipe::check_variables;
use crate::base::secrets::looks_secret;
use crate::config::connections::header_name_error;
use crate::config::forms::{Named, OrderedMap};
use crate::config::matrix::{EngineEntry, Matrix};
use crate::config::template::Template;
use crate::config::yaml::{Diagnostic, SourceSpan, Spanned, backtick_list, nearest_name};

/// The placeholders that a text of a matrix or recipe may contain.
pub(crate) const PLACEHOLDERS: [&str; 21] = [
    "model",
    "served_model_name",
    "served",
    "tp",
    "pp",
    "dp",
    "ep",
    "version",
    "precision",
    "port",
    "devices",
    "venv",
    "hf_home",
    "matrix",
    "nodes",
    "node_rank",
    "head_host",
    "head_port",
    "aux_port",
    "host",
    "url",
];

/// The errors of all arguments, variables and headers.
pub(super) fn check_templates(matrix: &Matrix, diagnostics: &mut Vec<Diagnostic>) {
    for named in matrix.engines.iter() {
        check_env(&named.value.env, diagnostics);
        check_header_names(&named.value.headers, diagnostics);
        check_values(&named.value.headers, diagnostics);
    }
    let models = matrix.models.iter().map(|named| &named.value.env);
    let overrides = matrix.overrides.iter().map(|over| &over.env);
    let axes = matrix.axes.env.iter().map(|(_, map)| map);
    for map in models.chain(overrides).chain(axes) {
        check_env(map, diagnostics);
    }
    for named in matrix.engines.iter() {
        named
            .value
            .args
            .iter()
            .for_each(|arg| check_template(arg, diagnostics));
        check_secret_arguments(&named.value.args, diagnostics);
        check_command_secrets(named, diagnostics);
        let body = &named.value.body.0;
        diagnostics.extend(secret_in_body(body, &format!("engine `{}`", named.name.value)));
        for (_, role) in named.value.roles.iter() {
            role.args.iter().for_each(|arg| check_template(arg, diagnostics));
            check_secret_arguments(&role.args, diagnostics);
            check_env(&role.env, diagnostics);
        }
    }
    for named in matrix.scenarios.iter() {
        let body = &named.value.body.0;
        diagnostics.extend(secret_in_body(body, &format!("scenario `{}`", named.name.value)));
    }
    for args in matrix.models.iter().filter_map(|named| named.value.args.as_ref()) {
        for list in args.value.values() {
            let at = |text: &Template| Spanned {
                value: text.clone(),
                place: args.place.clone(),
            };
            check_secret_arguments(&list.iter().map(at).collect::<Vec<_>>(), diagnostics);
        }
    }
    for over in &matrix.overrides {
        over.args.iter().for_each(|arg| check_template(arg, diagnostics));
        check_secret_arguments(&over.args, diagnostics);
    }
}

fn check_env(map: &OrderedMap<Spanned<Template>>, diagnostics: &mut Vec<Diagnostic>) {
    check_variables(map, diagnostics);
    check_values(map, diagnostics);
}

/// Errors about headers that cannot be sent.
fn check_header_names<V>(headers: &OrderedMap<V>, diagnostics: &mut Vec<Diagnostic>) {
    for (name, _) in headers.iter() {
        if let Some(reason) = header_name_error(name) {
            let diagnostic = Diagnostic::new(format!(
                "the header `{}` cannot be sent: {reason}",
                name.escape_debug()
            ));
            diagnostics.push(
                with_place(diagnostic, name.place.as_ref(), "the name of a header")
                    .with_help("rename the header, such as to `X-Trace-Id`, or remove it"),
            );
        }
    }
}

/// Errors about the values of environment variables or headers.
fn check_values(map: &OrderedMap<Spanned<Template>>, diagnostics: &mut Vec<Diagnostic>) {
    for (name, value) in map.iter() {
        check_template(value, diagnostics);
        if looks_secret(name) && is_plaintext_secret(value) {
            let diagnostic = Diagnostic::new(format!(
                "the value of `{name}` looks like a secret and would be stored in plain text"
            ));
            diagnostics.push(
                with_place(
                    diagnostic,
                    value.place.as_ref(),
                    "write the name of an environment variable instead",
                )
                .with_hidden_source()
                .with_help(format!(
                    "export the value as an environment variable, and write `{name}: \"${{{}}}\"`, with the quotes",
                    suggested_variable(name)
                )),
            );
        }
    }
}

/// The error for a plain-text secret.
fn plaintext_secret(message: String, place: Option<&SourceSpan>, variable: &str) -> Diagnostic {
    with_place(
        Diagnostic::new(message),
        place,
        "write the name of an environment variable instead",
    )
    .with_hidden_source()
    .with_help(format!(
        "export the value as an environment variable, and write `\"${{{variable}}}\"`, with the quotes"
    ))
}

/// The error for a secret that is named in a request body, because bodies are sent unchanged.
fn secret_in_body(body: &serde_json::Map<String, serde_json::Value>, owner: &str) -> Option<Diagnostic> {
    let text = serde_json::Value::Object(body.clone()).to_string();
    let (name, _) = text.split_once("${")?.1.split_once('}')?;
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if name.is_empty() || !name.chars().all(is_name) {
        return None;
    }
    let what =
        format!("the body of {owner} contains `${{{name}}}`, but secrets are not inserted into bodies");
    let why = "the server would receive this text unchanged";
    Some(
        with_place(Diagnostic::new(what), None, why)
            .with_help("send the secret in `headers:`, where `matrix` inserts its value"),
    )
}

/// Errors about secrets in the command of an engine.
fn check_command_secrets(named: &Named<EngineEntry>, diagnostics: &mut Vec<Diagnostic>) {
    for argument in named
        .value
        .command
        .iter()
        .flatten()
        .filter(|argument| is_secret_argument(argument))
    {
        let flag = argument.as_str().split('=').next().unwrap_or_default();
        let message = format!(
            "the value of `{flag}` in the command of engine `{}` looks like a secret and would be stored in plain text",
            named.name.value
        );
        // Words of a command have no place in the source.
        diagnostics.push(plaintext_secret(
            message,
            None,
            &suggested_variable(flag.trim_start_matches('-')),
        ));
    }
}

/// Whether an argument is a flag that looks secret with its value: `--api-key=sk-1234`.
fn is_secret_argument(argument: &Template) -> bool {
    let flag = argument
        .as_str()
        .split_once('=')
        .filter(|(flag, _)| flag.starts_with("--"));
    flag.is_some_and(|(flag, value)| is_secret_flag(flag) && is_plaintext_secret(&Template::from(value)))
}

fn is_secret_flag(flag: &str) -> bool {
    let name = flag.trim_start_matches('-').replace('-', "_");
    let ends = ["key", "token", "password", "passwd", "secret"];
    flag.starts_with("--") && looks_secret(&name) && ends.iter().any(|end| name.ends_with(end))
}

fn is_plaintext_secret(value: &Template) -> bool {
    !value.is_empty() && !is_switch(value.as_str()) && value.secrets().next().is_none()
}

fn suggested_variable(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect()
}

fn is_switch(value: &str) -> bool {
    matches!(value, "true" | "false") || value.parse::<f64>().is_ok()
}

fn check_secret_arguments(args: &[Spanned<Template>], diagnostics: &mut Vec<Diagnostic>) {
    let mut follows: Option<&str> = None;
    for arg in args {
        let flag = match (follows.take(), arg.as_str().split_once('=')) {
            (Some(flag), _) if is_plaintext_secret(arg) && !arg.as_str().starts_with("--") => Some(flag),
            (_, Some((flag, _))) if is_secret_argument(arg) => Some(flag),
            _ => None,
        };
        if let Some(flag) = flag {
            diagnostics.push(plaintext_secret(
                format!(
                    "the value of the argument `{flag}` looks like a secret and would be stored in plain text"
                ),
                arg.place.as_ref(),
                &suggested_variable(flag.trim_start_matches('-')),
            ));
        }
        follows = is_secret_flag(arg.as_str()).then_some(arg.as_str());
    }
}

fn check_template(text: &Spanned<Template>, diagnostics: &mut Vec<Diagnostic>) {
    for hole in text
        .placeholders()
        .filter(|hole| !PLACEHOLDERS.contains(hole) && *hole != "variant" && *hole != "dir")
    {
        let diagnostic = with_place(
            Diagnostic::new(format!("unknown placeholder `{{{hole}}}`")),
            text.place.as_ref(),
            "not a known placeholder",
        );
        diagnostics.push(match nearest_name(hole, PLACEHOLDERS) {
            Some(near) => diagnostic.with_help(format!("did you mean `{{{near}}}`?")),
            None => diagnostic.with_help(format!("known: {}", backtick_list(PLACEHOLDERS))),
        });
    }
}
