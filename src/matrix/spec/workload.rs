//! What is sent: the data set, how many prompts, how long, under which rules. Reads no file and draws no prompt.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which published generator's rules decide the prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// The 2024 rules that the reports of August 2025 were made with (LMDeploy's `profile_restful_api`).
    Classic,
    /// The rules of today's `sglang.bench_serving` (0.5.23).
    #[default]
    Current,
}

/// Where the prompts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Dataset {
    /// First turns of conversations in the ShareGPT format; the second turns give the output lengths.
    Sharegpt,
    /// First turns of conversations in the ShareGPT format, cut or repeated to drawn lengths.
    Random,
    /// Runs of consecutive token ids of drawn lengths; needs no file.
    RandomIds,
}

impl Dataset {
    /// What `bench_serving --dataset-name` calls it.
    pub const fn bench_serving_name(self) -> &'static str {
        match self {
            Self::Sharegpt => "sharegpt",
            Self::Random => "random",
            Self::RandomIds => "random-ids",
        }
    }

    /// Whether the prompts are cut out of a file of conversations.
    pub const fn needs_file(self) -> bool {
        matches!(self, Self::Sharegpt | Self::Random)
    }
}

/// What is sent, with everything decided.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Workload {
    /// Where the prompts come from.
    pub dataset: Dataset,
    /// The data set's file, relative to the matrix file's folder; without it the Hugging Face cache is looked into.
    pub path: Option<String>,
    /// How many prompts to send; a data set with fewer usable rows gives fewer.
    pub prompts: u32,
    /// Tokens in each prompt, at most; for `random` and `random-ids`.
    pub input_len: Option<u32>,
    /// Tokens to ask for, at most; for `sharegpt` a fixed number instead of the length of the second turn.
    pub output_len: Option<u32>,
    /// Lengths of `random` and `random-ids` are drawn between this share of the given length and all of it, 0 to 1.
    pub range_ratio: f64,
    /// Rows of `sharegpt` whose prompt and output exceed this many tokens together are left out; 0 is no limit.
    pub context_len: Option<u32>,
    /// Put behind each prompt of `sharegpt`, followed by `Assistant:`.
    pub prompt_suffix: Option<String>,
    /// Send token ids instead of text; for `random` and `random-ids`.
    #[serde(default)]
    pub tokenize_prompt: bool,
}

/// Something a workload asks for that cannot be, and the field that asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// The field, as it is written: `input_len`.
    pub field: &'static str,
    /// What is wrong and how to mend it.
    pub says: String,
}

impl Workload {
    /// Everything about this workload that the profile's rules do not allow.
    pub fn objections(&self, profile: Profile) -> Vec<Objection> {
        let mut found = Vec::new();
        let mut say = |field, says: String| found.push(Objection { field, says });
        let name = self.dataset.bench_serving_name();
        if self.prompts == 0 {
            say(
                "prompts",
                "0 prompts measure nothing; ask for at least 1".to_owned(),
            );
        }
        match self.dataset {
            Dataset::Sharegpt => {
                if self.input_len.is_some() {
                    say(
                        "input_len",
                        format!("`{name}` takes its prompts as they are; remove `input_len`"),
                    );
                }
                if let Some(tokens) = self.output_len.filter(|tokens| *tokens < 4) {
                    say(
                        "output_len",
                        format!("{tokens} tokens are too few for `{name}`; ask for at least 4"),
                    );
                }
                if self.tokenize_prompt {
                    say(
                        "tokenize_prompt",
                        format!("`{name}` sends text only; remove `tokenize_prompt`"),
                    );
                }
            }
            Dataset::Random | Dataset::RandomIds => {
                for (field, length) in [("input_len", self.input_len), ("output_len", self.output_len)] {
                    if length.is_none() {
                        say(
                            field,
                            format!("`{name}` needs `{field}`: the most tokens a row may have"),
                        );
                    }
                }
                if !(0.0..=1.0).contains(&self.range_ratio) {
                    say(
                        "range_ratio",
                        format!("{} is not a share; write a number from 0 to 1", self.range_ratio),
                    );
                }
                if self.context_len.is_some() {
                    say(
                        "context_len",
                        format!("only `sharegpt` has a context limit; remove it from `{name}`"),
                    );
                }
                if self.prompt_suffix.is_some() {
                    say(
                        "prompt_suffix",
                        format!("only `sharegpt` takes a suffix; remove it from `{name}`"),
                    );
                }
            }
        }
        if profile == Profile::Classic {
            self.say_what_classic_lacks(&mut say);
        }
        found
    }

    fn say_what_classic_lacks(&self, say: &mut impl FnMut(&'static str, String)) {
        let unknown = "the `classic` profile has no such option; remove it, or use the `current` profile";
        match self.dataset {
            Dataset::RandomIds => say(
                "dataset",
                "the `classic` profile knows only `sharegpt` and `random`; use the `current` profile"
                    .to_owned(),
            ),
            Dataset::Sharegpt => {
                if self.context_len.is_some() {
                    say("context_len", unknown.to_owned());
                }
                if self.prompt_suffix.is_some() {
                    say("prompt_suffix", unknown.to_owned());
                }
            }
            Dataset::Random => {
                if self.tokenize_prompt {
                    say("tokenize_prompt", unknown.to_owned());
                }
                if self.input_len == Some(0) {
                    say(
                        "input_len",
                        "the `classic` profile draws at least 1 token; ask for 1 or more".to_owned(),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(text: &str) -> Workload {
        serde_json::from_str(text).unwrap()
    }

    fn fields(workload: &Workload, profile: Profile) -> Vec<&'static str> {
        workload
            .objections(profile)
            .into_iter()
            .map(|mistake| mistake.field)
            .collect()
    }

    #[test]
    fn a_workload_reads_what_it_writes() {
        let random = workload(
            r#"{"dataset": "random-ids", "prompts": 3, "input_len": 8, "output_len": 2, "range_ratio": 0.5}"#,
        );
        let written = serde_json::to_string(&random).unwrap();
        assert_eq!(workload(&written), random);
        assert_eq!(random.dataset.bench_serving_name(), "random-ids");
    }

    #[test]
    fn every_mistake_is_found_at_once() {
        let random = workload(r#"{"dataset": "random", "prompts": 0, "range_ratio": 1.5, "context_len": 9}"#);
        assert_eq!(
            fields(&random, Profile::Current),
            ["prompts", "input_len", "output_len", "range_ratio", "context_len"]
        );
        let sharegpt = workload(
            r#"{"dataset": "sharegpt", "prompts": 1, "range_ratio": 0, "input_len": 1, "output_len": 3, "tokenize_prompt": true}"#,
        );
        assert_eq!(
            fields(&sharegpt, Profile::Current),
            ["input_len", "output_len", "tokenize_prompt"]
        );
    }

    #[test]
    fn the_classic_profile_lacks_what_came_later() {
        let ids = workload(
            r#"{"dataset": "random-ids", "prompts": 1, "input_len": 8, "output_len": 2, "range_ratio": 1.0}"#,
        );
        assert!(ids.objections(Profile::Current).is_empty());
        assert_eq!(fields(&ids, Profile::Classic), ["dataset"]);
        let suffixed = workload(
            r#"{"dataset": "sharegpt", "prompts": 1, "range_ratio": 0, "context_len": 9, "prompt_suffix": "!"}"#,
        );
        assert!(suffixed.objections(Profile::Current).is_empty());
        assert_eq!(
            fields(&suffixed, Profile::Classic),
            ["context_len", "prompt_suffix"]
        );
    }
}
