//! Finds unknown placeholders and secrets written in plain text. Passwords in URLs are found by the reader
//! (`config::yaml`).

use super::at;
use super::recipe::variables;
use crate::base::secrets::looks_secret;
use crate::config::forms::{Named, OrderedMap};
use crate::config::matrix::{EngineEntry, Matrix};
use crate::config::template::Text;
use crate::config::yaml::{Mistake, Place, Spanned, listed, nearest};

/// The placeholders that a text of a matrix or recipe may contain.
pub(crate) const HOLES: [&str; 14] = [
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
];

/// The errors of all arguments, variables and headers.
pub(super) fn all(matrix: &Matrix, mistakes: &mut Vec<Mistake>) {
    let mut env = |map: &OrderedMap<Spanned<Text>>| {
        variables(map, mistakes);
        for (name, value) in map.iter() {
            text(value, mistakes);
            if looks_secret(name) && is_written_secret(value) {
                let mistake = Mistake::new(format!(
                    "the value of `{name}` looks like a secret, and would be written down"
                ));
                mistakes.push(
                    at(mistake, value.place.as_ref(), "a secret is named, never written")
                        .hide()
                        .help(format!(
                            "export it as an environment variable and write `{name}: ${{{}}}`",
                            variable(name)
                        )),
                );
            }
        }
    };
    for named in matrix.engines.iter() {
        env(&named.value.env);
        env(&named.value.headers);
    }
    matrix.models.iter().for_each(|named| env(&named.value.env));
    matrix.overrides.iter().for_each(|over| env(&over.env));
    matrix.axes.env.iter().for_each(|(_, map)| env(map));
    for named in matrix.engines.iter() {
        named.value.args.iter().for_each(|arg| text(arg, mistakes));
        secret_arguments(&named.value.args, mistakes);
        secret_in_words(named, mistakes);
        let body = &named.value.body.0;
        mistakes.extend(secret_in_body(body, &format!("engine `{}`", named.name.value)));
    }
    for named in matrix.scenarios.iter() {
        let body = &named.value.body.0;
        mistakes.extend(secret_in_body(body, &format!("scenario `{}`", named.name.value)));
    }
    for args in matrix.models.iter().filter_map(|named| named.value.args.as_ref()) {
        for list in args.value.values() {
            let at = |text: &Text| Spanned {
                value: text.clone(),
                place: args.place.clone(),
            };
            secret_arguments(&list.iter().map(at).collect::<Vec<_>>(), mistakes);
        }
    }
    for over in &matrix.overrides {
        over.args.iter().for_each(|arg| text(arg, mistakes));
        secret_arguments(&over.args, mistakes);
    }
}

/// The error for a plain-text secret.
fn written_secret(what: &str, place: Option<&Place>, variable: &str) -> Mistake {
    let mistake = Mistake::new(format!("{what} looks like a secret, and would be written down"));
    at(mistake, place, "a secret is named, never written")
        .hide()
        .help(format!("export it and write `${{{variable}}}`"))
}

/// The error for a secret that is named in a request body, because bodies are sent unchanged.
fn secret_in_body(body: &serde_json::Map<String, serde_json::Value>, whose: &str) -> Option<Mistake> {
    let text = serde_json::Value::Object(body.clone()).to_string();
    let (name, _) = text.split_once("${")?.1.split_once('}')?;
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if name.is_empty() || !name.chars().all(is_name) {
        return None;
    }
    let what = format!("the body of {whose} holds `${{{name}}}`, which nothing replaces there");
    let why = "the server would get these very letters";
    Some(at(Mistake::new(what), None, why).help("send a secret in `headers:`, where its value is put in"))
}

/// Errors about secrets in the command of an engine.
fn secret_in_words(named: &Named<EngineEntry>, mistakes: &mut Vec<Mistake>) {
    for word in named
        .value
        .command
        .iter()
        .flatten()
        .filter(|word| is_secret_word(word))
    {
        let flag = word.as_str().split('=').next().unwrap_or_default();
        let what = format!(
            "the value of `{flag}` in the command of engine `{}`",
            named.name.value
        );
        // Words of a command have no place of their own.
        mistakes.push(written_secret(
            &what,
            None,
            &variable(flag.trim_start_matches('-')),
        ));
    }
}

/// Whether an argument is a flag that looks secret with its value: `--api-key=sk-1234`.
fn is_secret_word(word: &Text) -> bool {
    let flag = word
        .as_str()
        .split_once('=')
        .filter(|(flag, _)| flag.starts_with("--"));
    flag.is_some_and(|(flag, value)| is_secret_flag(flag) && is_written_secret(&Text::from(value)))
}

fn is_secret_flag(flag: &str) -> bool {
    let name = flag.trim_start_matches('-').replace('-', "_");
    let ends = ["key", "token", "password", "passwd", "secret"];
    flag.starts_with("--") && looks_secret(&name) && ends.iter().any(|end| name.ends_with(end))
}

fn is_written_secret(value: &Text) -> bool {
    !value.is_empty() && !is_switch(value.as_str()) && value.secrets().next().is_none()
}

fn variable(name: &str) -> String {
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

fn secret_arguments(args: &[Spanned<Text>], mistakes: &mut Vec<Mistake>) {
    let mut follows: Option<&str> = None;
    for arg in args {
        let name = match (follows.take(), arg.as_str().split_once('=')) {
            (Some(flag), _) if is_written_secret(arg) && !arg.as_str().starts_with("--") => Some(flag),
            (_, Some((flag, _))) if is_secret_word(arg) => Some(flag),
            _ => None,
        };
        if let Some(name) = name {
            mistakes.push(written_secret(
                &format!("the value of `{name}`"),
                arg.place.as_ref(),
                &variable(name.trim_start_matches('-')),
            ));
        }
        follows = is_secret_flag(arg.as_str()).then_some(arg.as_str());
    }
}

fn text(text: &Spanned<Text>, mistakes: &mut Vec<Mistake>) {
    for hole in text
        .holes()
        .filter(|hole| !HOLES.contains(hole) && *hole != "variant" && *hole != "dir")
    {
        let mistake = at(
            Mistake::new(format!("nothing fills `{{{hole}}}`")),
            text.place.as_ref(),
            "unknown hole",
        );
        mistakes.push(match nearest(hole, HOLES) {
            Some(near) => mistake.help(format!("did you mean `{{{near}}}`?")),
            None => mistake.help(format!("known: {}", listed(HOLES))),
        });
    }
}
