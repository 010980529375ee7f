//! The settings that a search varies, with their values.

#[cfg(test)]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::trials::flag_name;
use crate::config::forms::{ByEngine, OneOrMany, OrderedMap};
use crate::config::yaml::{Diagnostic, Spanned};

/// Settings with their values: flags, `tp`, `precision`, `env`, and named choices between arguments.
pub(crate) type TuneSpace = OrderedMap<Spanned<ByEngine<OneOrMany<SpaceValue>>>>;

/// A value of a setting, as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct SpaceValue(pub(crate) String);

#[cfg(test)]
impl JsonSchema for SpaceValue {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SpaceValue".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number", "boolean"] })
    }
}

/// The value of a setting that is left as it is.
const AS_IT_IS: &str = "default";
const ENV: &str = "env";
const TP: &str = "tp";
const PRECISION: &str = "precision";

/// Most values of a setting: a search tries a few dozen configurations.
const MAX_VALUES: usize = 64;

/// Fewest values of which an order can be used.
const MIN_ORDERED: usize = 3;

/// What the default configuration sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DefaultSettings {
    /// The words of its command.
    pub(crate) words: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) tp: u32,
    pub(crate) precision: Option<String>,
    pub(crate) set_by_recipe: Vec<SetByRecipe>,
}

/// A flag that the recipe gives the value of a placeholder, such as `port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetByRecipe {
    pub(crate) flag: String,
    pub(crate) placeholder: String,
}

/// A setting that is varied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TunedKnob {
    pub(crate) name: String,
    pub(crate) values: Vec<KnobValue>,
    /// The position of the value of the default configuration.
    pub(crate) default: usize,
    /// Whether neighbouring values act alike.
    pub(crate) is_ordered: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnobValue {
    /// The value for tables.
    pub(crate) label: String,
    pub(crate) change: KnobChange,
}

/// A change of the default configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KnobChange {
    AsItIs,
    Args(Vec<String>),
    Env(String, String),
    Tp(u32),
    Precision(String),
}

/// The settings of a space, for an engine whose default configuration is this one.
///
/// # Errors
/// A setting has no value, a value twice, or one that it cannot have.
pub(crate) fn knobs(space: &TuneSpace, default: &DefaultSettings) -> Result<Vec<TunedKnob>, Box<Diagnostic>> {
    let mut knobs = Vec::new();
    for (name, values) in space.iter() {
        match (name.value.as_str(), &values.value) {
            (ENV, ByEngine::Each(variables)) => {
                for (variable, values) in variables.iter() {
                    let setting = Setting::new(variable, values)?;
                    knobs.push(setting.env_knob(default));
                }
            }
            (ENV, ByEngine::All(_)) => {
                return Err(error(
                    name,
                    "`env` has no variables",
                    "write a map, such as `env: { VLLM_ATTENTION_BACKEND: [FLASH_ATTN, FLASHINFER] }`",
                ));
            }
            (_, ByEngine::Each(_)) => {
                return Err(error(
                    name,
                    &format!("`{name}` must have a list of values, not a map"),
                    &format!("write a list, such as `{name}: [64, 128, 256]`"),
                ));
            }
            (known, ByEngine::All(values)) => {
                let setting = Setting::new(name, values)?;
                setting.check_flags(default)?;
                knobs.push(match known {
                    TP => setting.tp_knob(default)?,
                    PRECISION => setting.precision_knob(default)?,
                    flag if flag.starts_with('-') => setting.flag_knob(default)?,
                    _ => setting.choice_knob(default)?,
                });
            }
        }
    }
    Ok(knobs)
}

fn error(name: &Spanned<String>, message: &str, help: &str) -> Box<Diagnostic> {
    let diagnostic = Diagnostic::new(message).with_help(help);
    Box::new(match &name.place {
        Some(place) => diagnostic.with_place(place, "in `space`"),
        None => diagnostic,
    })
}

/// A setting with its values as they are written.
struct Setting<'a> {
    name: &'a Spanned<String>,
    values: Vec<&'a str>,
}

impl<'a> Setting<'a> {
    fn new(name: &'a Spanned<String>, values: &'a OneOrMany<SpaceValue>) -> Result<Self, Box<Diagnostic>> {
        let values: Vec<&str> = values.iter().map(|value| value.0.as_str()).collect();
        if values.is_empty() {
            return Err(error(
                name,
                &format!("`{name}` has no value"),
                "list the values to try, or remove this setting",
            ));
        }
        if values.len() > MAX_VALUES {
            return Err(error(
                name,
                &format!("`{name}` has {} values, more than {MAX_VALUES}", values.len()),
                "name fewer values that differ more, such as powers of two: a search can start the engine only a few dozen times",
            ));
        }
        let is_repeated = |(at, value): (usize, &&str)| values[..at].contains(value);
        if let Some(value) = values
            .iter()
            .enumerate()
            .find(|entry| is_repeated((entry.0, entry.1)))
        {
            return Err(error(
                name,
                &format!("`{name}` has the value `{}` twice", value.1),
                "remove one of them",
            ));
        }
        Ok(Self { name, values })
    }

    /// Refuses flags to which the recipe gives a value of its own.
    fn check_flags(&self, default: &DefaultSettings) -> Result<(), Box<Diagnostic>> {
        let words = self.values.iter().flat_map(|value| value.split_whitespace());
        let mut words = std::iter::once(self.name.value.as_str()).chain(words);
        let set = words.find_map(|word| {
            default
                .set_by_recipe
                .iter()
                .find(|set| set.flag == flag_name(word))
        });
        let Some(SetByRecipe { flag, placeholder }) = set else {
            return Ok(());
        };
        Err(error(
            self.name,
            &format!("`{flag}` cannot be varied: the recipe sets it to `{{{placeholder}}}`"),
            match placeholder.as_str() {
                TP => "list tensor-parallel sizes for which the host has enough GPUs, such as `tp: [1, 2]`",
                _ => "remove this flag from the search space",
            },
        ))
    }

    /// A setting whose value is `current` in the default configuration.
    fn knob(&self, current: Option<&str>, change: impl Fn(&str) -> KnobChange) -> TunedKnob {
        let value = |value: &&str| KnobValue {
            label: (*value).to_owned(),
            change: match *value {
                AS_IT_IS => KnobChange::AsItIs,
                value if Some(value) == current => KnobChange::AsItIs,
                value => change(value),
            },
        };
        let is_placed = self.values.contains(&AS_IT_IS);
        self.finished(self.values.iter().map(value).collect(), is_placed)
    }

    /// Adds the value of the default configuration if no other is it. `is_placed` says whether the place of `default` among the
    /// values was given.
    fn finished(&self, mut values: Vec<KnobValue>, is_placed: bool) -> TunedKnob {
        let mut has_default = false;
        let labels: Vec<String> = values.iter().map(|value| value.label.clone()).collect();
        // `default` beside the value that it stands for is the same value.
        let is_named = values
            .iter()
            .any(|value| value.change == KnobChange::AsItIs && value.label != AS_IT_IS);
        values.retain(|value| {
            let is_default = value.change == KnobChange::AsItIs;
            let is_second = has_default || (is_named && value.label == AS_IT_IS);
            let is_kept = !(is_default && is_second);
            has_default |= is_default && is_kept;
            is_kept
        });
        if !has_default {
            let change = KnobChange::AsItIs;
            let label = AS_IT_IS.to_owned();
            values.insert(0, KnobValue { label, change });
        }
        let is_default = |value: &KnobValue| value.change == KnobChange::AsItIs;
        TunedKnob {
            name: self.name.value.clone(),
            default: values.iter().position(is_default).unwrap_or_default(),
            is_ordered: values.len() >= MIN_ORDERED && (has_default || is_placed) && is_sorted(&labels),
            values,
        }
    }

    fn flag_knob(&self, default: &DefaultSettings) -> Result<TunedKnob, Box<Diagnostic>> {
        let flag = self.name.value.as_str();
        let is_switch = |value: &&str| matches!(*value, "on" | "off" | "true" | "false" | AS_IT_IS);
        if !self.values.iter().all(is_switch) {
            let current = current_value(&default.words, flag);
            return Ok(self.knob(current.as_deref(), |value| {
                KnobChange::Args(vec![flag.to_owned(), value.to_owned()])
            }));
        }
        let is_set = default.words.iter().any(|word| word == flag);
        let is_off = |value: &&str| matches!(*value, "off" | "false");
        if is_set && self.values.iter().any(is_off) {
            return Err(error(
                self.name,
                &format!("`{flag}` cannot be switched off, because the arguments of the engine contain it"),
                "remove the flag from the arguments of the engine, or write its opposite flag, such as `prefill: [default, --no-enable-chunked-prefill]`",
            ));
        }
        let value = |value: &&str| KnobValue {
            label: (*value).to_owned(),
            change: match *value {
                "on" | "true" if !is_set => KnobChange::Args(vec![flag.to_owned()]),
                _ => KnobChange::AsItIs,
            },
        };
        Ok(self.finished(self.values.iter().map(value).collect(), true))
    }

    /// A choice between arguments, which may be none.
    fn choice_knob(&self, default: &DefaultSettings) -> Result<TunedKnob, Box<Diagnostic>> {
        let is_flag = |value: &&str| value.starts_with('-') || **value == *AS_IT_IS || value.is_empty();
        if !self.values.iter().any(is_flag) {
            return Err(error(
                self.name,
                &format!(
                    "the values of `{}` must be arguments, but none of them begins with `-`",
                    self.name
                ),
                &format!(
                    "if this is a flag, write its name as `--{}`; if not, write whole arguments as values, such as `--flag 1`",
                    self.name.value.trim_start_matches('-')
                ),
            ));
        }
        let words = |value: &str| -> Vec<String> { value.split_whitespace().map(str::to_owned).collect() };
        let is_current = |value: &str| {
            let words = words(value);
            words.is_empty() || default.words.windows(words.len()).any(|some| some == words)
        };
        let current = self.values.iter().find(|value| is_current(value)).copied();
        Ok(self.knob(current, |value| KnobChange::Args(words(value))))
    }

    fn env_knob(&self, default: &DefaultSettings) -> TunedKnob {
        let variable = &self.name.value;
        let current = default.env.iter().rev().find(|(name, _)| name == variable);
        self.knob(current.map(|(_, value)| value.as_str()), |value| {
            KnobChange::Env(variable.clone(), value.to_owned())
        })
    }

    fn tp_knob(&self, default: &DefaultSettings) -> Result<TunedKnob, Box<Diagnostic>> {
        let mut sizes = vec![default.tp];
        for value in self.values.iter().filter(|value| **value != AS_IT_IS) {
            match value.parse::<u32>() {
                Ok(size) if size > 0 => sizes.push(size),
                _ => {
                    return Err(error(
                        self.name,
                        &format!("`{value}` is not a tensor-parallel size"),
                        "write whole numbers above 0, such as `tp: [1, 2, 4]`",
                    ));
                }
            }
        }
        sizes.sort_unstable();
        sizes.dedup();
        let value = |size: &u32| KnobValue {
            label: size.to_string(),
            change: match *size == default.tp {
                true => KnobChange::AsItIs,
                false => KnobChange::Tp(*size),
            },
        };
        Ok(self.finished(sizes.iter().map(value).collect(), true))
    }

    fn precision_knob(&self, default: &DefaultSettings) -> Result<TunedKnob, Box<Diagnostic>> {
        let Some(current) = default.precision.as_deref() else {
            return Err(error(
                self.name,
                "`precision` cannot be varied: the default configuration sets no precision",
                "give the engine its precision, such as `vllm: { precision: bf16 }`",
            ));
        };
        Ok(self.knob(Some(current), |value| KnobChange::Precision(value.to_owned())))
    }
}

/// Whether the numbers among these values rise or fall, and all others are `default`.
fn is_sorted(labels: &[String]) -> bool {
    let numbers: Option<Vec<f64>> = labels
        .iter()
        .filter(|label| *label != AS_IT_IS)
        .map(|label| label.parse().ok())
        .collect();
    numbers.is_some_and(|numbers| {
        numbers.is_sorted_by(|one, other| one < other) || numbers.is_sorted_by(|one, other| one > other)
    })
}

/// The last value of a flag in a command.
fn current_value(words: &[String], flag: &str) -> Option<String> {
    let mut value = None;
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        if word == flag {
            value = words.peek().map(|next| (*next).clone()).or(value);
        } else if let Some(given) = word.strip_prefix(flag).and_then(|rest| rest.strip_prefix('=')) {
            value = Some(given.to_owned());
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml::{self, Source};

    #[derive(Deserialize)]
    struct Holder {
        space: TuneSpace,
    }

    fn read(text: &str) -> TuneSpace {
        let (holder, errors) = yaml::read::<Holder>(&Source::new("m.yaml", format!("space: {text}\n")));
        assert!(errors.is_empty(), "{errors:?}");
        holder.unwrap().space
    }

    fn default() -> DefaultSettings {
        let words = [
            "serve",
            "--seqs",
            "128",
            "--graphs",
            "--share=0.90",
            "--no-chunks",
        ];
        DefaultSettings {
            words: words.map(str::to_owned).to_vec(),
            env: vec![("BACKEND".to_owned(), "A".to_owned())],
            tp: 1,
            precision: Some("bf16".to_owned()),
            set_by_recipe: [("--port", "port"), ("--tensor-parallel-size", "tp")]
                .map(|(flag, placeholder)| SetByRecipe {
                    flag: flag.to_owned(),
                    placeholder: placeholder.to_owned(),
                })
                .to_vec(),
        }
    }

    /// The labels of the values of the one knob, that of the default in brackets, and whether they are ordered.
    fn labels(text: &str) -> (String, bool) {
        let knobs = knobs(&read(text), &default()).unwrap();
        assert_eq!(knobs.len(), 1, "{knobs:?}");
        let knob = &knobs[0];
        let label = |(at, value): (usize, &KnobValue)| match at == knob.default {
            true => format!("[{}]", value.label),
            false => value.label.clone(),
        };
        let labels: Vec<String> = knob.values.iter().enumerate().map(label).collect();
        (labels.join(" "), knob.is_ordered)
    }

    #[test]
    fn every_setting_has_the_value_of_the_default_configuration() {
        for (text, expected, is_ordered) in [
            ("{ --seqs: [64, 128, 256] }", "64 [128] 256", true),
            ("{ --seqs: [64, 256] }", "[default] 64 256", false),
            ("{ --tokens: [512, default, 8192] }", "512 [default] 8192", true),
            ("{ --tokens: [8192, default, 512] }", "8192 [default] 512", true),
            ("{ --share: [0.80, 0.90] }", "0.80 [0.90]", false),
            ("{ --fast: [on, off] }", "on [off]", false),
            ("{ --fast: [on] }", "[default] on", false),
            ("{ --graphs: [on] }", "[on]", false),
            (
                "{ prefill: [--chunks, --no-chunks, default] }",
                "--chunks [--no-chunks]",
                false,
            ),
            ("{ env: { BACKEND: [A, B] } }", "[A] B", false),
            ("{ env: { OTHER: [A, B] } }", "[default] A B", false),
            ("{ tp: [4, 2] }", "[1] 2 4", true),
            ("{ precision: [bf16, fp8] }", "[bf16] fp8", false),
            ("{ precision: fp8 }", "[default] fp8", false),
        ] {
            assert_eq!(labels(text), (expected.to_owned(), is_ordered), "{text}");
        }
    }

    #[test]
    fn a_value_changes_only_what_it_names() {
        let knobs = knobs(
            &read("{ --seqs: [64, 128], prefill: [--chunks --tokens 9], env: { BACKEND: [B] }, tp: [2] }"),
            &default(),
        );
        let knobs = knobs.unwrap();
        let changes: Vec<&KnobChange> = knobs
            .iter()
            .flat_map(|knob| &knob.values)
            .map(|value| &value.change)
            .filter(|change| **change != KnobChange::AsItIs)
            .collect();
        let words = |words: &[&str]| KnobChange::Args(words.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(
            changes,
            [
                &words(&["--seqs", "64"]),
                &words(&["--chunks", "--tokens", "9"]),
                &KnobChange::Env("BACKEND".to_owned(), "B".to_owned()),
                &KnobChange::Tp(2),
            ]
        );
    }

    #[test]
    fn what_no_value_can_be_is_refused_with_the_fix() {
        for (text, message) in [
            ("{ --seqs: [] }", "`--seqs` has no value"),
            ("{ --seqs: [1, 1] }", "`--seqs` has the value `1` twice"),
            ("{ --graphs: [on, off] }", "`--graphs` cannot be switched off"),
            ("{ tp: [0] }", "`0` is not a tensor-parallel size"),
            ("{ env: [A] }", "`env` has no variables"),
            ("{ --seqs: { a: [1] } }", "`--seqs` must have a list"),
            ("{ seqs: [1, 2] }", "none of them begins with `-`"),
            (
                "{ --port: [1, 2] }",
                "`--port` cannot be varied: the recipe sets it to `{port}`",
            ),
            (
                "{ size: [--x 1, --tensor-parallel-size=2] }",
                "`--tensor-parallel-size` cannot be varied",
            ),
        ] {
            let error = knobs(&read(text), &default()).unwrap_err();
            assert!(error.message.contains(message), "{text}: {error:?}");
            assert!(error.place.is_some() && error.help.is_some(), "{text}: {error:?}");
        }
        let without = DefaultSettings {
            precision: None,
            ..default()
        };
        let error = knobs(&read("{ precision: [bf16, fp8] }"), &without).unwrap_err();
        assert!(
            error
                .message
                .contains("the default configuration sets no precision"),
            "{error:?}"
        );
        let many: Vec<String> = (0..65).map(|value| value.to_string()).collect();
        let error = knobs(&read(&format!("{{ --seqs: [{}] }}", many.join(", "))), &default()).unwrap_err();
        assert!(error.message.contains("has 65 values, more than 64"), "{error:?}");
    }
}
