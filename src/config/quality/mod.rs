//! Graded answers: the tasks whose items are sent beside the load of a cell after its measurement. Reads no file.

pub(crate) mod generated;
mod grader;
pub(crate) mod probes;
mod public;
mod reference;

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

pub(crate) use generated::GeneratedTask;
pub(crate) use grader::Grader;
pub(crate) use public::PublicTask;
pub(crate) use reference::AnswerReference;

use crate::config::api::Protocol;
use crate::config::forms::Named;
use crate::config::scenario::Scenario;
use crate::config::yaml::{Spanned, backtick_list};

/// Number of items of a task that does not set it.
const DEFAULT_ITEMS: u32 = 100;
/// Largest number of items of a task.
const MAX_ITEMS: u32 = 100_000;
/// Number of output tokens of an item of a file that does not set it.
const FILE_MAX_TOKENS: u32 = 512;

/// Which answers are graded in every cell of a matrix.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct QualityEntry {
    /// Tasks: names of generated ones (`arithmetic`, `copy`, `json`, `recall`, `tool-calls`) or of public ones (`gpqa`,
    /// `gsm8k`, `ifeval`, `mmlu`), or `name: {…}` with changes to them, or with the `path` of your own items.
    #[serde(default = "no_tasks")]
    pub(crate) tasks: Spanned<Vec<Named<TaskEntry>>>,
    /// Whether a fixed set of 32 prompts without right answers is answered greedily, under load and alone: the report
    /// shows how far these answers agree, which is never judged. Default: `false`.
    #[serde(default)]
    pub(crate) probes: bool,
    /// Number of items that were answered correctly under load and are sent again alone, beside all that were not;
    /// default 64.
    #[serde(default = "default_controls")]
    pub(crate) controls: u32,
    /// Engine with whose answers all others are compared, item by item: its name, or a selection of one cell for each
    /// load, such as `{ engine: vllm, precision: bf16 }`; with `run`, of the cells of a stored run. An engine whose
    /// answers are worse is invalid. Default: none.
    #[serde(default)]
    pub(crate) reference: Option<Spanned<AnswerReference>>,
}

const fn default_controls() -> u32 {
    64
}

fn no_tasks() -> Spanned<Vec<Named<TaskEntry>>> {
    Vec::new().into()
}

/// A task of graded answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TaskEntry {
    /// File of items, JSON Lines, relative to the matrix file. A row has `prompt`, `question` or `messages`, and
    /// `answer` or `expected_answer`.
    pub(crate) path: Option<Spanned<String>>,
    /// How answers to the items of a file or of a public task are graded.
    pub(crate) grader: Option<Grader>,
    /// Regular expression of the grader `regex`; its first group, or else the whole match, must equal the expected
    /// answer.
    pub(crate) pattern: Option<Spanned<String>>,
    /// Number of items; default 100.
    pub(crate) items: Option<NonZeroU32>,
    /// Length of the prompts in tokens, about; only of `copy` (default 60) and `recall` (default 1000).
    pub(crate) input_len: Option<NonZeroU32>,
    /// Largest length of an answer in tokens.
    pub(crate) max_tokens: Option<NonZeroU32>,
    /// Smallest share of correct answers; with less the cell is invalid. Default: none.
    pub(crate) min_correct: Option<Spanned<f64>>,
}

/// The graded answers of a scenario, with every default filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Quality {
    pub(crate) tasks: Vec<Task>,
    pub(crate) controls: u32,
    /// Whether greedy probes are sent, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) probes: bool,
}

/// A task with every default filled in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) source: TaskSource,
    pub(crate) items: u32,
    pub(crate) max_tokens: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) min_correct: Option<f64>,
}

/// Where the items of a task come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TaskSource {
    Generated {
        task: GeneratedTask,
        /// About how long prompts are, in tokens.
        input_len: u32,
    },
    Public {
        task: PublicTask,
        grader: Grader,
    },
    File {
        path: String,
        grader: Grader,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pattern: Option<String>,
    },
}

impl QualityEntry {
    /// The tasks with every default filled in. Tasks that [`QualityEntry::find_errors`] reports are left out.
    pub(crate) fn resolve(&self) -> Quality {
        Quality {
            tasks: self.tasks.iter().filter_map(resolve_task).collect(),
            controls: self.controls,
            probes: self.probes,
        }
    }

    /// Describes each invalid task: its name, what is wrong, and the fix.
    pub(crate) fn find_errors(&self) -> Vec<(&Spanned<String>, String, String)> {
        let mut errors = Vec::new();
        for (place, named) in self.tasks.iter().enumerate() {
            let is_repeated = self.tasks[..place]
                .iter()
                .any(|other| other.name.value == named.name.value);
            let error = match is_repeated {
                true => Some((
                    "another task has the same name".to_owned(),
                    "give each task its own name".to_owned(),
                )),
                false => task_error(named),
            };
            errors.extend(error.map(|(what, fix)| (&named.name, what, fix)));
        }
        errors
    }
}

fn task_error(named: &Named<TaskEntry>) -> Option<(String, String)> {
    let task = &named.value;
    let error = |what: String, fix: &str| Some((what, fix.to_owned()));
    let generated = GeneratedTask::from_name(&named.name);
    match (generated, &task.path) {
        (None, None) => {
            let Some(public) = PublicTask::from_name(&named.name) else {
                let names = GeneratedTask::ALL.iter().map(|task| task.name());
                let names: Vec<&str> = names
                    .chain(PublicTask::ALL.iter().map(|task| task.name()))
                    .collect();
                return error(
                    "this is not the name of a generated or public task, and `path` is not set".to_owned(),
                    &format!("use one of {}, or add `path` and `grader`", backtick_list(names)),
                );
            };
            if let Some((what, fix)) = public_task_error(public, task) {
                return error(what, &fix);
            }
        }
        (Some(_), Some(_)) => {
            return error(
                "this name belongs to a generated task, which reads no file, but `path` is set".to_owned(),
                "give this task another name, because it reads a file",
            );
        }
        (Some(_), None) if task.grader.is_some() || task.pattern.is_some() => {
            return error(
                "`grader` and `pattern` must not be set: a generated task has its own grader".to_owned(),
                "remove `grader` and `pattern`",
            );
        }
        (Some(generated), None) if task.input_len.is_some() && generated.default_input_len().is_none() => {
            return error(
                "`input_len` has no effect, because this task decides the length of its prompts".to_owned(),
                "remove `input_len`; only `copy` and `recall` support it",
            );
        }
        (None, Some(_)) if task.grader.is_none() => {
            return error(
                "a task that reads its items from a file needs a `grader`".to_owned(),
                &format!("add one of {}", backtick_list(Grader::NAMES.iter().copied())),
            );
        }
        (None, Some(_)) if task.input_len.is_some() => {
            return error(
                "`input_len` has no effect on the items of a file".to_owned(),
                "remove it",
            );
        }
        _ => {}
    }
    match (task.grader, &task.pattern) {
        (Some(Grader::Regex), None) => {
            return error("the grader `regex` needs a `pattern`".to_owned(), "add it");
        }
        (Some(Grader::Regex), Some(pattern)) => {
            if let Err(why) = regex::Regex::new(pattern) {
                return error(
                    format!("`pattern` is no regular expression: {why}"),
                    "correct the pattern; its syntax is that of the Rust crate `regex`",
                );
            }
        }
        (_, Some(_)) => {
            return error(
                "only the grader `regex` has a `pattern`".to_owned(),
                "remove `pattern`, or set `grader: regex`",
            );
        }
        _ => {}
    }
    if task.items.is_some_and(|items| items.get() > MAX_ITEMS) {
        return error(format!("more than {MAX_ITEMS} items"), "use fewer");
    }
    let share = task.min_correct.as_ref().map(|share| share.value);
    if share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
        return error(
            "`min_correct` is not between 0 and 1".to_owned(),
            "write a share such as 0.9",
        );
    }
    None
}

/// Describes what is wrong with a public task, and the fix.
fn public_task_error(public: PublicTask, task: &TaskEntry) -> Option<(String, String)> {
    let graders = public.graders();
    if task.grader.is_some_and(|grader| !graders.contains(&grader)) {
        let names = graders.iter().map(|grader| grader.name());
        return Some((
            "this grader cannot grade the answers of the task".to_owned(),
            format!("use one of {}", backtick_list(names)),
        ));
    }
    if task.input_len.is_some() {
        return Some((
            "`input_len` has no effect on a public task".to_owned(),
            "remove it".to_owned(),
        ));
    }
    let items = public.items();
    task.items.is_some_and(|asked| asked.get() > items).then(|| {
        (
            format!("this task has only {items} items that can be graded"),
            format!("set `items: {items}` or fewer"),
        )
    })
}

fn resolve_task(named: &Named<TaskEntry>) -> Option<Task> {
    let entry = &named.value;
    if task_error(named).is_some() {
        return None;
    }
    let (source, max_tokens) = match (GeneratedTask::from_name(&named.name), &entry.path) {
        (Some(task), _) => {
            let input_len = entry.input_len.map(NonZeroU32::get).or(task.default_input_len());
            let input_len = input_len.unwrap_or_default();
            (
                TaskSource::Generated { task, input_len },
                task.max_tokens(input_len),
            )
        }
        (None, Some(path)) => (
            TaskSource::File {
                path: path.value.clone(),
                grader: entry.grader?,
                pattern: entry.pattern.as_ref().map(|pattern| pattern.value.clone()),
            },
            FILE_MAX_TOKENS,
        ),
        (None, None) => {
            let task = PublicTask::from_name(&named.name)?;
            let grader = entry.grader.unwrap_or(task.graders()[0]);
            (TaskSource::Public { task, grader }, task.max_tokens())
        }
    };
    Some(Task {
        name: named.name.value.clone(),
        source,
        items: entry.items.map_or(DEFAULT_ITEMS, NonZeroU32::get),
        max_tokens: entry.max_tokens.map_or(max_tokens, NonZeroU32::get),
        min_correct: entry.min_correct.as_ref().map(|share| share.value),
    })
}

impl Quality {
    /// Number of items of all tasks.
    pub(crate) fn items(&self) -> u32 {
        self.tasks.iter().map(|task| task.items).sum()
    }

    /// Describes why answers cannot be graded under the load of this scenario, and the fix; `None` if they can.
    pub(crate) fn ungradable_reason(scenario: &Scenario) -> Option<[&'static str; 2]> {
        let facts = scenario.workload.facts();
        if scenario.search.is_some() {
            return Some([
                "a search measures several loads, so there is no single load at which answers could be graded",
                "set `quality: false` here, and grade answers in a scenario with a fixed rate or concurrency",
            ]);
        }
        if facts.has_turns() {
            return Some([
                "answers cannot be graded, because the requests of a conversation or session wait for one another",
                "set `quality: false` here, and grade answers in a scenario whose data set has single requests",
            ]);
        }
        (scenario.arrival.pace.is_some() || facts.slowdown.is_some()).then_some([
            "the request rate changes over time, so there is no single load at which answers could be graded",
            "set `quality: false` here, and grade at a fixed rate or concurrency",
        ])
    }

    /// Describes why answers of this protocol cannot be graded, and the fix; `None` if they can.
    pub(crate) fn unsupported_reason(&self, protocol: Protocol, name: &str) -> Option<[String; 2]> {
        let facts = protocol.facts();
        if !facts.generates_text || !facts.fixes_length {
            return Some([
                format!("{name} does not generate text, so its answers cannot be graded"),
                "remove `quality`, or use a protocol that generates text".to_owned(),
            ]);
        }
        let needs_chat = |task: &&Task| {
            matches!(
                task.source,
                TaskSource::Generated {
                    task: GeneratedTask::ToolCalls,
                    ..
                } | TaskSource::File {
                    grader: Grader::ToolCall,
                    ..
                }
            )
        };
        let task = self.tasks.iter().find(needs_chat)?;
        (protocol != Protocol::Chat).then(|| {
            [
                format!(
                    "{name} cannot be used for the task `{}` of `quality`, which needs tools",
                    task.name
                ),
                "use the protocol `chat`, or remove the task".to_owned(),
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(yaml: &str) -> Vec<String> {
        let entry: QualityEntry = serde_json::from_value(
            serde_json::from_str(yaml).unwrap_or_else(|error| panic!("{yaml}: {error}")),
        )
        .unwrap();
        let errors = entry.find_errors().into_iter();
        errors
            .map(|(name, what, fix)| format!("{name}: {what}; {fix}"))
            .collect()
    }

    #[test]
    fn tasks_that_cannot_be_graded_are_refused_with_the_fix() {
        for (tasks, error) in [
            (r#"["arithmetics"]"#, "`path` is not set"),
            (r#"[{"copy": {"path": "a"}}]"#, "another name"),
            (r#"[{"copy": {"grader": "exact"}}]"#, "has its own grader"),
            (r#"[{"arithmetic": {"input_len": 5}}]"#, "has no effect"),
            (r#"[{"mine": {"path": "a"}}]"#, "needs a `grader`"),
            (
                r#"[{"mine": {"path": "a", "grader": "regex"}}]"#,
                "needs a `pattern`",
            ),
            (
                r#"[{"mine": {"path": "a", "grader": "regex", "pattern": "("}}]"#,
                "no regular expression",
            ),
            (
                r#"[{"mine": {"path": "a", "grader": "exact", "pattern": "a"}}]"#,
                "only the grader `regex`",
            ),
            (r#"[{"copy": {"min_correct": 2}}]"#, "not between 0 and 1"),
            (r#"["copy", "copy"]"#, "the same name"),
            (r#"[{"gsm8k": {"grader": "choice"}}]"#, "use one of `numeric`"),
            (r#"[{"gpqa": {"items": 199}}]"#, "has only 198 items"),
            (r#"[{"mmlu": {"input_len": 5}}]"#, "has no effect"),
            (r#"[{"mmlu": {"path": "a"}}]"#, "needs a `grader`"),
        ] {
            let found = errors(&format!(r#"{{"tasks": {tasks}}}"#));
            assert_eq!(found.len(), 1, "{tasks}: {found:?}");
            assert!(found[0].contains(error), "{tasks}: {found:?}");
        }
        let fine = r#"{"tasks": ["arithmetic", {"recall": {"items": 5, "input_len": 200}}, {"ifeval": {"items": 9, "grader": "ifeval-loose"}}]}"#;
        assert_eq!(errors(fine), [""; 0]);
        let entry: QualityEntry = serde_json::from_str(fine).unwrap();
        let quality = entry.resolve();
        assert_eq!(
            (quality.items(), quality.controls, quality.probes),
            (114, 64, false)
        );
        let entry: QualityEntry = serde_json::from_str(r#"{"probes": true}"#).unwrap();
        assert_eq!((entry.resolve().items(), entry.resolve().probes), (0, true));
    }
}
