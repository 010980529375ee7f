//! The two sides of an upgrade: one engine of a matrix with two values of one setting.

use std::fmt;
use std::path::{Component, Path};
use std::str::FromStr;

use crate::base::ids::ContentHash;
use crate::config::engine::Executor;
use crate::config::forms::{ByEngine, Named, OneOrMany};
use crate::config::matrix::{EngineEntry, Matrix, Override, engine_name};
use crate::config::select::Selector;
use crate::config::template::Template;
use crate::config::yaml::{Spanned, backtick_list, nearest_name};

/// A setting in which the two sides of an upgrade differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpgradedSetting {
    Version,
    Image,
    Venv,
    Program,
    Args,
    Env,
    Precision,
    /// Another engine of the matrix, by its name there.
    Engine,
    /// Another stored run, for what cannot alternate within one, such as a driver.
    Run,
}

impl UpgradedSetting {
    const ALL: [Self; 9] = [
        Self::Version,
        Self::Image,
        Self::Venv,
        Self::Program,
        Self::Args,
        Self::Env,
        Self::Precision,
        Self::Engine,
        Self::Run,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Image => "image",
            Self::Venv => "venv",
            Self::Program => "program",
            Self::Args => "args",
            Self::Env => "env",
            Self::Precision => "precision",
            Self::Engine => "engine",
            Self::Run => "run",
        }
    }

    /// The axis whose values the two sides are.
    const fn axis(self) -> &'static str {
        match self {
            Self::Version | Self::Image | Self::Venv | Self::Program => "version",
            Self::Args => "args",
            Self::Env => "env",
            Self::Precision => "precision",
            Self::Engine => "engine",
            Self::Run => "run",
        }
    }
}

/// One side as it is written: `SETTING=VALUE`, or a version alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpgradeSide {
    pub(crate) setting: UpgradedSetting,
    pub(crate) value: String,
}

impl FromStr for UpgradeSide {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = text
            .split_once('=')
            .filter(|(name, _)| name.bytes().all(|byte| byte.is_ascii_lowercase()));
        let (setting, value) = match named {
            None => (UpgradedSetting::Version, text),
            Some((name, value)) => match UpgradedSetting::ALL
                .into_iter()
                .find(|known| known.name() == name)
            {
                Some(setting) => (setting, value),
                None => {
                    let names = UpgradedSetting::ALL.map(UpgradedSetting::name);
                    let help = nearest_name(name, names).map_or_else(
                        || format!("known: {}", names.join(", ")),
                        |near| format!("did you mean `{near}`?"),
                    );
                    return Err(format!(
                        "`{name}` is not a setting that `matrix upgrade` can change; {help}"
                    ));
                }
            },
        };
        let value = value.trim();
        if value.is_empty() && setting != UpgradedSetting::Args {
            return Err(format!("the {} is empty", setting.name()));
        }
        if value.contains('*') || value.starts_with(['~', '!']) {
            return Err(format!(
                "`{value}` is a pattern; write one exact {} instead",
                setting.name()
            ));
        }
        Ok(Self {
            setting,
            value: value.to_owned(),
        })
    }
}

impl fmt::Display for UpgradeSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.setting {
            UpgradedSetting::Version => f.write_str(&self.value),
            setting => write!(f, "{}={}", setting.name(), self.value),
        }
    }
}

/// An upgrade of an engine of a matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upgrade {
    /// The name of the engine in the matrix; of two engines, that of the baseline.
    engine: String,
    setting: UpgradedSetting,
    /// Values of the baseline and the candidate.
    values: [String; 2],
}

/// The arms of an upgrade in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UpgradeArms {
    /// Tells this upgrade from others of the same matrix.
    pub(crate) digest: String,
    pub(crate) setting: UpgradedSetting,
    /// Values of the setting: of the baseline and of the candidate.
    pub(crate) given: [String; 2],
    pub(crate) axis: &'static str,
    /// Values of the axis: of the baseline and of the candidate.
    pub(crate) values: [String; 2],
    /// The engine whose cells are measured; `None` if the arms are two engines.
    pub(crate) engine: Option<String>,
}

/// What is wrong with an upgrade, and the fix.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UpgradeError {
    pub(crate) message: String,
    pub(crate) help: String,
}

fn error<T>(message: impl Into<String>, help: impl Into<String>) -> Result<T, UpgradeError> {
    Err(UpgradeError {
        message: message.into(),
        help: help.into(),
    })
}

impl Upgrade {
    /// The upgrade of the engine with that name, which may be left out if the matrix has one engine.
    ///
    /// # Errors
    /// The matrix has no such engine, or the two sides do not differ in one setting.
    pub(crate) fn new(
        matrix: &Matrix,
        engine: Option<&str>,
        from: &UpgradeSide,
        to: &UpgradeSide,
    ) -> Result<Self, UpgradeError> {
        if from.setting != to.setting {
            return error(
                format!(
                    "`--from` sets `{}`, but `--to` sets another setting, `{}`",
                    from.setting.name(),
                    to.setting.name()
                ),
                "write the same setting in `--from` and `--to`, such as `--from image=A --to image=B`",
            );
        }
        if from.value == to.value {
            return error(
                format!("both sides are `{from}`"),
                "write two different values; to compare an engine with itself, use `matrix noise`",
            );
        }
        let engine = match from.setting {
            UpgradedSetting::Engine => {
                find_engine(matrix, &to.value)?;
                if engine.is_some() {
                    return error(
                        "`--engine` has no effect if `--from` and `--to` set `engine=`",
                        "remove `--engine`",
                    );
                }
                from.value.clone()
            }
            _ => match (engine, matrix.engines.as_slice()) {
                (Some(engine), _) => engine.to_owned(),
                (None, [only]) => engine_name(only).value.clone(),
                (None, engines) => {
                    let names = engines.iter().map(|named| engine_name(named).value.as_str());
                    return error(
                        "the matrix has several engines, and none of them is selected",
                        format!("name one with `--engine`: {}", backtick_list(names)),
                    );
                }
            },
        };
        find_engine(matrix, &engine)?;
        Ok(Self {
            engine,
            setting: from.setting,
            values: [from.value.clone(), to.value.clone()],
        })
    }

    /// A digest by which runs of the same upgrade are found again.
    fn digest(&self) -> String {
        let content = (&self.engine, self.setting.name(), &self.values);
        ContentHash::from_value(&content).as_str()[..6].to_owned()
    }

    pub(crate) fn arms(&self) -> UpgradeArms {
        UpgradeArms {
            digest: self.digest(),
            setting: self.setting,
            given: self.values.clone(),
            axis: self.setting.axis(),
            values: self.labels(),
            engine: (self.setting != UpgradedSetting::Engine).then(|| self.engine.clone()),
        }
    }

    /// Gives the matrix the cells of both sides.
    ///
    /// # Errors
    /// The engine cannot have this setting, or the matrix lacks the named set.
    pub(crate) fn apply(&self, matrix: &mut Matrix) -> Result<(), UpgradeError> {
        // Answers are compared with those of the baseline, cell by cell.
        if let Some(quality) = &mut matrix.quality {
            quality.value.reference = None;
        }
        let labels = self.labels();
        let of_axes = |sets: Vec<&str>| self.check_sets(&sets);
        match self.setting {
            UpgradedSetting::Engine => return Ok(()),
            UpgradedSetting::Env => return of_axes(matrix.axes.env.names().collect()),
            UpgradedSetting::Args if matrix.axes.args.len() > 0 => {
                return of_axes(matrix.axes.args.names().collect());
            }
            UpgradedSetting::Args => {
                if let Some(name) = self
                    .values
                    .iter()
                    .find(|text| !text.is_empty() && !text.starts_with('-'))
                {
                    return error(
                        format!("the matrix contains no set of arguments with the name `{name}`"),
                        "add sets, such as `axes: { args: { old: [], new: [--flag, 1] } }`, or write arguments, such as `--to 'args=--flag 1'`",
                    );
                }
                let words = |text: &String| text.split_whitespace().map(Template::new).collect::<Vec<_>>();
                let sets = labels.iter().zip(&self.values);
                matrix.axes.args = sets
                    .map(|(label, text)| (Spanned::from(label.clone()), ByEngine::All(words(text))))
                    .collect();
                return Ok(());
            }
            _ => {}
        }
        let entry = matrix.engines.value.iter_mut();
        let entry = entry.map(|named| (engine_name(named).value.clone(), &mut named.value));
        let Some((_, entry)) = { entry }.find(|(name, _)| *name == self.engine) else {
            return Ok(());
        };
        if entry.url.is_some() || entry.urls.is_some() {
            return error(
                format!(
                    "the engine `{}` is attached: its server already runs, and `matrix` does not start it",
                    self.engine
                ),
                "measure the running server before and after the change, and compare the two runs with `matrix compare`",
            );
        }
        let executor = match self.setting {
            UpgradedSetting::Image => Some(Executor::Container),
            UpgradedSetting::Venv | UpgradedSetting::Program => Some(Executor::Process),
            _ => None,
        };
        if let Some(executor) = executor {
            entry.executor = Some(OneOrMany::from(vec![executor]).into());
        }
        let values = Some(OneOrMany::from(labels.to_vec()).into());
        match self.setting {
            UpgradedSetting::Precision => entry.precision = values,
            _ => entry.version = values,
        }
        if executor.is_some() {
            let sides = labels.iter().zip(&self.values);
            matrix
                .overrides
                .extend(sides.map(|(label, value)| self.override_of(label, value)));
        }
        Ok(())
    }

    /// The change of the cells of one side, which has that version.
    fn override_of(&self, label: &str, value: &str) -> Override {
        let when = [("engine", self.engine.as_str()), ("version", label)];
        let when = when.map(|(axis, value)| (Spanned::from(axis.to_owned()), vec![value.to_owned()]));
        let is = |setting| self.setting == setting;
        Override {
            when: Selector(when.to_vec()).into(),
            image: is(UpgradedSetting::Image).then(|| value.to_owned()),
            venv: is(UpgradedSetting::Venv).then(|| Template::new(value)),
            program: is(UpgradedSetting::Program).then(|| Template::new(value)),
            ..Override::default()
        }
    }

    /// Fails unless both values are among the sets of an axis.
    fn check_sets(&self, sets: &[&str]) -> Result<(), UpgradeError> {
        let Some(unknown) = self.values.iter().find(|value| !sets.contains(&value.as_str())) else {
            return Ok(());
        };
        let axis = self.setting.name();
        error(
            format!("`axes.{axis}` of the matrix contains no set with the name `{unknown}`"),
            match sets {
                [] => format!(
                    "add one set for `--from` and one for `--to`, such as `axes: {{ {axis}: {{ old: …, new: … }} }}`"
                ),
                sets => match nearest_name(unknown, sets.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("its sets are {}", backtick_list(sets.iter().copied())),
                },
            },
        )
    }

    /// Short names of both values, which differ.
    fn labels(&self) -> [String; 2] {
        let [from, to] = &self.values;
        let short = match self.setting {
            UpgradedSetting::Image => [tag(from), tag(to)],
            UpgradedSetting::Venv | UpgradedSetting::Program => {
                differing_parts(Path::new(from), Path::new(to))
            }
            UpgradedSetting::Args => self.values.clone().map(|text| {
                if text.is_empty() {
                    "(none)".to_owned()
                } else {
                    text
                }
            }),
            _ => self.values.clone(),
        };
        match short[0] == short[1] || short.iter().any(String::is_empty) {
            true => self.values.clone(),
            false => short,
        }
    }
}

fn find_engine<'a>(matrix: &'a Matrix, name: &str) -> Result<&'a Named<EngineEntry>, UpgradeError> {
    let mut engines = matrix.engines.iter();
    if let Some(found) = engines.find(|named| engine_name(named).value == name) {
        return Ok(found);
    }
    let names: Vec<&str> = matrix
        .engines
        .iter()
        .map(|named| engine_name(named).value.as_str())
        .collect();
    error(
        format!("the matrix has no engine `{name}`"),
        match nearest_name(name, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("its engines are {}", backtick_list(names)),
        },
    )
}

/// The tag of an image; empty if it has none.
fn tag(image: &str) -> String {
    let name = image.rsplit('/').next().unwrap_or_default();
    let name = name.split('@').next().unwrap_or_default();
    name.split_once(':')
        .map_or_else(String::new, |(_, tag)| tag.to_owned())
}

/// What is left of two paths without the folders that both begin and end with.
fn differing_parts(from: &Path, to: &Path) -> [String; 2] {
    let parts = |path: &'_ Path| -> Vec<String> {
        let names = path.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            _ => None,
        });
        names.collect()
    };
    let (from, to) = (parts(from), parts(to));
    let shorter = from.len().min(to.len());
    let head = from
        .iter()
        .zip(&to)
        .take_while(|(one, other)| one == other)
        .count();
    let tail = from.iter().rev().zip(to.iter().rev());
    let tail = tail
        .take(shorter - head)
        .take_while(|(one, other)| one == other)
        .count();
    [&from, &to].map(|parts| parts[head..parts.len() - tail].join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::yaml::{self, Source};

    const MATRIX: &str = "name: m\nengines:\n  - vllm: { version: v1, precision: bf16 }\n  - sglang\n  - attach: { url: 'http://a' }\nmodels: [m]\nscenarios: [sharegpt]\n";

    fn matrix(text: &str) -> Matrix {
        let (matrix, errors) = yaml::read::<Matrix>(&Source::new("m.yaml", text.to_owned()));
        assert!(errors.is_empty(), "{errors:?}");
        matrix.unwrap()
    }

    fn side(text: &str) -> UpgradeSide {
        text.parse().unwrap()
    }

    fn upgrade(from: &str, to: &str) -> Result<Upgrade, UpgradeError> {
        Upgrade::new(&matrix(MATRIX), Some("vllm"), &side(from), &side(to))
    }

    #[test]
    fn a_side_is_a_version_or_names_its_setting() {
        assert_eq!(side("v0.10.1"), side("version=v0.10.1"));
        assert_eq!(side("image=a/b:c=d").value, "a/b:c=d");
        assert_eq!(side("args=").value, "");
        for (text, error) in [
            ("versoin=1", "did you mean `version`?"),
            ("image=", "the image is empty"),
            ("version=v0.*", "is a pattern"),
        ] {
            assert!(text.parse::<UpgradeSide>().unwrap_err().contains(error), "{text}");
        }
    }

    #[test]
    fn an_image_gives_its_side_the_version_of_its_tag() {
        let upgrade = upgrade("image=a/vllm:v0.10.1", "image=a/vllm:v0.11.0").unwrap();
        assert_eq!(upgrade.arms().values, ["v0.10.1", "v0.11.0"]);
        let mut matrix = matrix(MATRIX);
        upgrade.apply(&mut matrix).unwrap();
        let images: Vec<_> = matrix
            .overrides
            .iter()
            .map(|over| over.image.as_deref())
            .collect();
        assert_eq!(images, [Some("a/vllm:v0.10.1"), Some("a/vllm:v0.11.0")]);
        let versions = matrix.engines[0].value.version.as_ref().unwrap();
        assert_eq!(versions.value.0, ["v0.10.1", "v0.11.0"]);
        assert!(matrix.engines[1].value.version.is_none());
    }

    #[test]
    fn names_of_sides_are_short_and_differ() {
        for (from, to, expected) in [
            ("venv=/opt/a/env", "venv=/opt/b/env", ["a", "b"]),
            (
                "program=/x/llama-server",
                "program=/y/z/llama-server",
                ["x", "y/z"],
            ),
            ("venv=/a", "venv=/a/a", ["/a", "/a/a"]),
            ("image=r:5000/a", "image=r:5000/b", ["r:5000/a", "r:5000/b"]),
            ("image=x/a:1", "image=y/a:1", ["x/a:1", "y/a:1"]),
            ("args=", "args=--fast 1", ["(none)", "--fast 1"]),
        ] {
            assert_eq!(upgrade(from, to).unwrap().arms().values, expected, "{from}");
        }
    }

    #[test]
    fn what_cannot_be_upgraded_is_refused_with_the_fix() {
        let named = |engine: Option<&str>, from: &str, to: &str| {
            let mut matrix = matrix(MATRIX);
            let upgrade = Upgrade::new(&matrix, engine, &side(from), &side(to))?;
            upgrade.apply(&mut matrix)
        };
        for (engine, from, to, message, help) in [
            (None, "1", "2", "several engines", "`vllm`, `sglang`"),
            (Some("vlm"), "1", "2", "no engine `vlm`", "`vllm`"),
            (Some("vllm"), "1", "1", "both sides are `1`", "matrix noise"),
            (Some("vllm"), "1", "image=a", "sets `version`", "--from image=A"),
            (Some("attach"), "1", "2", "is attached", "matrix compare"),
            (Some("vllm"), "env=a", "env=b", "no set with the name `a`", "axes"),
            (
                Some("vllm"),
                "args=a",
                "args=b",
                "no set of arguments with the name `a`",
                "axes",
            ),
            (
                None,
                "engine=vllm",
                "engine=sgalng",
                "no engine `sgalng`",
                "`sglang`",
            ),
        ] {
            let error = named(engine, from, to).unwrap_err();
            assert!(error.message.contains(message), "{error:?}");
            assert!(error.help.contains(help), "{error:?}");
        }
        assert!(named(None, "engine=vllm", "engine=sglang").is_ok());
    }
}
