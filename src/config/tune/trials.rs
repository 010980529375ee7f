//! Gives a matrix the configurations of a search: a set of arguments each, with what else belongs to it.

use super::space::KnobChange;
use crate::config::forms::{ByEngine, OneOrMany};
use crate::config::matrix::{EngineEntry, Matrix, Override, engine_name};
use crate::config::select::{AxisValues, Selector};
use crate::config::template::Template;
use crate::config::yaml::Spanned;

/// The axis whose values are the configurations.
pub(crate) const SET_AXIS: &str = "args";

/// The cell whose engine is tuned, in its default configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TunedCell {
    pub(crate) engine: String,
    pub(crate) model: String,
    pub(crate) scenario: String,
    /// The values of all its axes.
    pub(crate) axes: AxisValues,
    /// Axes in which configurations differ besides their set: `tp`, `precision`.
    pub(crate) varied_axes: Vec<String>,
    /// The arguments of the engine's entry, if configurations have other values of them: many engines refuse a flag that is
    /// written twice.
    pub(crate) replaced_args: Option<Vec<Template>>,
}

/// A configuration under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrialSet {
    pub(crate) name: String,
    pub(crate) changes: Vec<KnobChange>,
    /// Number of prompts, if it is not that of the scenario.
    pub(crate) prompts: Option<u32>,
}

/// The flag of a word such as `--flag` or `--flag=1`.
pub(crate) fn flag_name(word: &str) -> &str {
    word.split('=').next().unwrap_or_default()
}

/// Whether a word is a flag and no value, such as `-1`.
pub(crate) fn is_flag(word: &str) -> bool {
    let name = word.trim_start_matches('-');
    name.len() < word.len() && name.starts_with(|letter: char| letter.is_ascii_alphabetic())
}

impl TrialSet {
    /// The words that are added to the command.
    pub(crate) fn args(&self) -> impl Iterator<Item = &str> {
        let words = self.changes.iter().filter_map(|change| match change {
            KnobChange::Args(words) => Some(words),
            _ => None,
        });
        words.flatten().map(String::as_str)
    }

    /// These arguments with the changes: a flag that is changed is left out of them.
    pub(crate) fn args_after(&self, own: &[Template]) -> Vec<Template> {
        let added: Vec<&str> = self.args().collect();
        let mut words = own.iter().peekable();
        let mut args = Vec::new();
        while let Some(word) = words.next() {
            let name = flag_name(word.as_str());
            let Some(at) = added
                .iter()
                .position(|flag| is_flag(flag) && flag_name(flag) == name)
            else {
                args.push(word.clone());
                continue;
            };
            let takes_value = added[at].contains('=') || added.get(at + 1).is_some_and(|next| !is_flag(next));
            if takes_value && word.as_str() == name {
                words.next_if(|next| !is_flag(next.as_str()));
            }
        }
        args.extend(added.into_iter().map(Template::new));
        args
    }

    pub(crate) fn env(&self) -> impl Iterator<Item = (&str, &str)> {
        self.changes.iter().filter_map(|change| match change {
            KnobChange::Env(name, value) => Some((name.as_str(), value.as_str())),
            _ => None,
        })
    }

    pub(crate) fn tp(&self) -> Option<u32> {
        self.changes.iter().find_map(|change| match change {
            KnobChange::Tp(size) => Some(*size),
            _ => None,
        })
    }

    pub(crate) fn precision(&self) -> Option<&str> {
        self.changes.iter().find_map(|change| match change {
            KnobChange::Precision(precision) => Some(precision.as_str()),
            _ => None,
        })
    }
}

impl TunedCell {
    /// Gives the matrix the cells of these configurations, and of their combinations of `tp` and precision.
    pub(crate) fn add_sets(&self, matrix: &mut Matrix, sets: &[TrialSet]) {
        // Answers are compared with those of the default configuration.
        if let Some(quality) = &mut matrix.quality {
            quality.value.reference = None;
        }
        let own_set = self.axes.get(SET_AXIS);
        let own_args = own_set.and_then(|name| matrix.axes.args.get(name)?.get(&self.engine));
        let own_args = own_args.cloned().unwrap_or_default();
        if let (Some(_), Some(entry)) = (&self.replaced_args, self.entry(matrix)) {
            entry.args.clear();
        }
        let entry_args = self.replaced_args.iter().flatten();
        let own_args: Vec<Template> = entry_args.cloned().chain(own_args).collect();
        matrix.axes.args = sets
            .iter()
            .map(|set| {
                (
                    Spanned::from(set.name.clone()),
                    ByEngine::All(set.args_after(&own_args)),
                )
            })
            .collect();
        matrix
            .overrides
            .extend(sets.iter().filter_map(|set| self.override_of(set)));
        self.add_sizes(matrix, sets);
        self.add_precisions(matrix, sets);
    }

    fn add_sizes(&self, matrix: &mut Matrix, sets: &[TrialSet]) {
        let mut sizes: Vec<u32> = sets.iter().filter_map(TrialSet::tp).collect();
        if sizes.is_empty() {
            return;
        }
        sizes.extend(self.axes.get("tp").and_then(|size| size.parse::<u32>().ok()));
        sizes.sort_unstable();
        sizes.dedup();
        let mut models = matrix.models.value.iter_mut();
        if let Some(model) = models.find(|named| named.name.value == self.model) {
            model.value.tp = Some(Spanned::from(ByEngine::All(OneOrMany(sizes))));
        }
    }

    fn add_precisions(&self, matrix: &mut Matrix, sets: &[TrialSet]) {
        let given = sets.iter().filter_map(TrialSet::precision).map(str::to_owned);
        let mut precisions: Vec<String> = given.collect();
        if precisions.is_empty() {
            return;
        }
        precisions.extend(self.axes.get("precision").cloned());
        precisions.sort_unstable();
        precisions.dedup();
        if let Some(entry) = self.entry(matrix) {
            entry.precision = Some(Spanned::from(OneOrMany(precisions)));
        }
    }

    fn entry<'a>(&self, matrix: &'a mut Matrix) -> Option<&'a mut EngineEntry> {
        let mut engines = matrix.engines.value.iter_mut();
        let engine = engines.find(|named| engine_name(named).value == self.engine)?;
        Some(&mut engine.value)
    }

    /// The variables and the number of prompts of a configuration.
    fn override_of(&self, set: &TrialSet) -> Option<Override> {
        let env: Vec<_> = set
            .env()
            .map(|(name, value)| {
                (
                    Spanned::from(name.to_owned()),
                    Spanned::from(Template::new(value)),
                )
            })
            .collect();
        if env.is_empty() && set.prompts.is_none() {
            return None;
        }
        let when = [("engine", &self.engine), (SET_AXIS, &set.name)];
        let when = when.map(|(axis, value)| (Spanned::from(axis.to_owned()), vec![value.clone()]));
        Some(Override {
            when: Selector(when.to_vec()).into(),
            env: env.into_iter().collect(),
            prompts: set.prompts,
            ..Override::default()
        })
    }

    /// The axes of the cell of a configuration, by which the expanded matrix has it.
    pub(crate) fn axes_of(&self, set: &TrialSet) -> AxisValues {
        let mut axes = self.axes.clone();
        axes.insert(SET_AXIS.to_owned(), set.name.clone());
        if let Some(size) = set.tp() {
            axes.insert("tp".to_owned(), size.to_string());
        }
        if let Some(precision) = set.precision() {
            axes.insert("precision".to_owned(), precision.to_owned());
        }
        axes
    }

    /// These axes without those that the name of the configuration stands for.
    pub(crate) fn named_axes(&self, axes: &AxisValues) -> AxisValues {
        let mut axes = axes.clone();
        axes.retain(|name, _| !self.varied_axes.contains(name));
        axes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_flag_replaces_the_one_that_was_written() {
        let own = [
            "--preset",
            "fast",
            "--step",
            "4ms",
            "--shift=-1",
            "--graphs",
            "--step=5ms",
            "-x",
        ];
        let own: Vec<Template> = own.map(Template::new).to_vec();
        let args = |words: &[&str]| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            let set = TrialSet {
                name: "t01".to_owned(),
                changes: vec![KnobChange::AsItIs, KnobChange::Args(words)],
                prompts: None,
            };
            let args = set.args_after(&own);
            let words: Vec<&str> = args.iter().map(Template::as_str).collect();
            words.join(" ")
        };
        assert_eq!(
            args(&["--new", "1"]),
            "--preset fast --step 4ms --shift=-1 --graphs --step=5ms -x --new 1"
        );
        assert_eq!(
            args(&["--step", "2ms"]),
            "--preset fast --shift=-1 --graphs -x --step 2ms"
        );
        assert_eq!(
            args(&["--shift", "-2", "--graphs"]),
            "--preset fast --step 4ms --step=5ms -x --shift -2 --graphs"
        );
        assert_eq!(
            args(&["--step=2ms"]),
            "--preset fast --shift=-1 --graphs -x --step=2ms"
        );
    }
}
