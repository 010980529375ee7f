//! Texts with holes that nothing fills, and secrets that somebody wrote down.

use super::at;
use super::recipe::variables;
use crate::matrix::spec::matrix::Matrix;
use crate::matrix::spec::shape::{OrderedMap, Raw};
use crate::matrix::spec::source::{Mistake, Spanned, listed, nearest};
use crate::matrix::spec::text::Text;

/// The holes that a text of a matrix or recipe may have.
pub(crate) const HOLES: [&str; 13] = [
    "model",
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

/// Names that hold secrets, by the way such variables are called.
fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    [
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "API_KEY",
        "APIKEY",
        "CREDENTIAL",
        "AUTHORIZATION",
    ]
    .iter()
    .any(|part| name.contains(part))
}

/// The mistakes of all arguments, variables and headers.
pub(super) fn all(matrix: &Matrix, mistakes: &mut Vec<Mistake>) {
    let mut env = |map: &OrderedMap<Spanned<Raw>>| {
        variables(map, mistakes);
        for (name, value) in map.iter() {
            text(value, mistakes);
            let names_one = Text::new(value.0.clone()).secrets().next().is_some();
            if looks_secret(name) && !names_one && !value.0.is_empty() && !is_switch(&value.0) {
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
        named.value.args.iter().for_each(|raw| text(raw, mistakes));
        secret_arguments(&named.value.args, mistakes);
    }
    matrix
        .overrides
        .iter()
        .flat_map(|over| &over.args)
        .for_each(|raw| text(raw, mistakes));
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

fn secret_arguments(args: &[Spanned<Raw>], mistakes: &mut Vec<Mistake>) {
    for pair in args.windows(2) {
        let (flag, value) = (&pair[0], &pair[1]);
        let flag_name = flag.0.trim_start_matches('-').replace('-', "_");
        let written = Text::new(value.0.clone()).secrets().next().is_none();
        if flag.0.starts_with("--")
            && looks_secret(&flag_name)
            && flag_name.ends_with("key") | flag_name.ends_with("token")
            && written
        {
            mistakes.push(
                at(
                    Mistake::new(format!(
                        "the value of `{}` looks like a secret, and would be written down",
                        flag.0
                    )),
                    value.place.as_ref(),
                    "a secret is named, never written",
                )
                .hide()
                .help(format!("export it and write `${{{}}}`", variable(&flag_name))),
            );
        }
    }
}

fn text(raw: &Spanned<Raw>, mistakes: &mut Vec<Mistake>) {
    for hole in Text::new(raw.0.clone())
        .holes()
        .filter(|hole| !HOLES.contains(hole) && *hole != "variant" && *hole != "dir")
    {
        let mistake = at(
            Mistake::new(format!("nothing fills `{{{hole}}}`")),
            raw.place.as_ref(),
            "unknown hole",
        );
        mistakes.push(match nearest(hole, HOLES) {
            Some(near) => mistake.help(format!("did you mean `{{{near}}}`?")),
            None => mistake.help(format!("known: {}", listed(HOLES))),
        });
    }
}
