//! What is sent: the data set, how many prompts, how long, under which rules. Reads no file and draws no prompt.

use std::path::Path;

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::config::dataset::random::Random;
use crate::config::dataset::random_ids::RandomIds;
use crate::config::dataset::{
    Dataset, DatasetName, Facts, OPTIONS, Options, PromptForm, Rules, TemplateUse, WorkloadError, readers,
    too_many_tokens,
};
pub use crate::config::profile::Profile;
use crate::config::yaml::backtick_list;

/// What is sent, with everything decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Where the prompts come from, with its options.
    pub(crate) dataset: Dataset,
    /// Options that the data set does not read: of imported loads, and a `range_ratio` of stored ones, which was not refused.
    pub(crate) foreign: Options,
    /// The data set's file, relative to the matrix file's folder; without it the Hugging Face cache is looked into.
    pub(crate) path: Option<String>,
    /// How many prompts to send; a data set with fewer usable rows gives fewer, and `generated-shared-prefix` has a number of its own.
    pub prompts: u32,
}

/// Maximum number of bytes that the images of a workload take.
const MAX_IMAGE_BYTES: u64 = 64 << 30;
/// Maximum number of bytes that the recordings of a load take.
pub(crate) const MAX_AUDIO_BYTES: u64 = 4 << 30;

/// What makes answers checkable, for the help of an error.
pub(crate) const CHECKABLE_ANSWERS: &str = "use requests whose answers can be checked: the data set `structured`, rows of the data set `openai` with \
     `response_format`, `tools` or `expected_answer`, or a request body with `response_format` or `tools`";

impl Workload {
    /// A thousand prompts of a data set with its default options.
    pub fn new(name: DatasetName) -> Self {
        Self::with(name)
    }

    /// A thousand prompts of a data set.
    pub(crate) fn with(dataset: impl Into<Dataset>) -> Self {
        Self {
            dataset: dataset.into(),
            foreign: Options::new(),
            path: None,
            prompts: 1_000,
        }
    }

    /// Prompts of a data set with these options.
    pub(crate) fn given(
        name: DatasetName,
        mut options: Options,
        prompts: u32,
    ) -> Result<Self, serde_json::Error> {
        let dataset = name.take(&mut options)?;
        // Stored workloads have these values of options that nobody gave.
        let is_given = |key: &str, value: &Value| match value {
            Value::Null | Value::Bool(false) => false,
            value => key != "range_ratio" || value.as_f64() != Some(0.0),
        };
        options.retain(|key, value| is_given(key, value) && OPTIONS.contains(&key.as_str()));
        Ok(Self {
            foreign: options,
            prompts,
            ..Self::with(dataset)
        })
    }

    /// What the data set does differently from others, with what an imported load did beyond that.
    pub(crate) fn facts(&self) -> Facts<'_> {
        let mut facts = self.dataset.facts();
        let has = |key: &str| self.foreign.get(key) == Some(&json!(true));
        if has("apply_chat_template") {
            facts.template = TemplateUse::Requested;
        }
        facts.sends_ids |= has("tokenize_prompt");
        let suffix = self.foreign.get("prompt_suffix").and_then(Value::as_str);
        facts.prompt_suffix = facts.prompt_suffix.or(suffix);
        facts
    }

    /// Returns the workload with the path of its file of lengths resolved against a folder.
    pub(crate) fn with_lengths_in(mut self, folder: &Path) -> Self {
        if let Dataset::Random(Random { lengths, .. }) | Dataset::RandomIds(RandomIds { lengths, .. }) =
            &mut self.dataset
            && let Some(file) = lengths.as_mut().and_then(|lengths| lengths.file.as_mut())
        {
            *file = folder.join(&*file).to_string_lossy().into_owned();
        }
        self
    }

    /// The data set's own code.
    pub(crate) const fn rules(&self) -> &dyn Rules {
        self.dataset.rules()
    }

    /// How many requests are asked for, each conversation counted once; `None` for all that there are.
    pub(crate) fn requests(&self) -> Option<u64> {
        self.rules().requests(self.prompts)
    }

    /// Why no search can send parts of its prompts.
    pub(crate) fn search_error(&self) -> Option<String> {
        (self.facts().prompts == PromptForm::Sessions).then(|| {
            format!(
                "a search divides the prompts among several loads, but the sessions of the data set `{}` must not be divided; \
                 measure several rates or concurrencies instead",
                self.dataset.bench_serving_name()
            )
        })
    }

    /// Whether requests with these added fields may demand something of their answers. Only the rows tell it where they have
    /// fields of their own.
    pub(crate) fn may_demand_answers(&self, body: &Options) -> bool {
        const DEMANDING_FIELDS: [&str; 11] = [
            "response_format",
            "text",
            "output_config",
            "guided_json",
            "structured_outputs",
            "json_schema",
            "sampling_params",
            "guided_regex",
            "regex",
            "guided_choice",
            "tools",
        ];
        let has_own_fields = matches!(
            self.facts().prompts,
            PromptForm::Structured | PromptForm::Messages | PromptForm::Sessions
        );
        let is_given = |field: &&str| body.get(*field).is_some_and(|value| !value.is_null());
        has_own_fields || DEMANDING_FIELDS.iter().any(is_given)
    }

    /// Whether rows are sent at moments of their own.
    pub(crate) fn is_replayed(&self) -> bool {
        self.facts().slowdown.is_some()
    }

    /// Why its prompts do not fit in memory.
    pub(crate) fn memory_errors(&self) -> Vec<WorkloadError> {
        let prompt_tokens = self.rules().prompt_tokens();
        let tokens = prompt_tokens.saturating_mul(self.prompts.into());
        let image_bytes = self.rules().image_bytes().saturating_mul(self.prompts.into());
        let images = (image_bytes > MAX_IMAGE_BYTES).then(|| {
            format!(
                "the images would take up to {} GB together, more than {} GB; ask for fewer prompts, or for fewer or smaller images",
                image_bytes / 1_000_000_000,
                MAX_IMAGE_BYTES / 1_000_000_000
            )
        });
        let audio_bytes = self.rules().audio_bytes().saturating_mul(self.prompts.into());
        let audio = (audio_bytes > MAX_AUDIO_BYTES).then(|| {
            format!(
                "the recordings would take up to {:.1} GiB of memory together, more than {} GiB; ask for fewer or shorter \
                 recordings, or for a lower sample rate",
                audio_bytes as f64 / f64::from(1 << 30),
                MAX_AUDIO_BYTES >> 30
            )
        });
        let errors = [
            ("input_len", too_many_tokens(tokens)),
            ("pictures", images),
            ("audio", audio),
        ];
        let errors = errors.into_iter().filter_map(|(field, why)| Some((field, why?)));
        errors
            .map(|(field, message)| WorkloadError {
                field: field.to_owned(),
                message,
            })
            .collect()
    }

    /// Everything about this workload that the profile's rules do not allow.
    pub(crate) fn find_errors(&self, profile: Profile) -> Vec<WorkloadError> {
        let mut errors = self.memory_errors();
        let mut report = |field: &str, message| {
            errors.push(WorkloadError {
                field: field.to_owned(),
                message,
            });
        };
        let facts = self.facts();
        // Of recorded requests 0 means all.
        if self.prompts == 0 && self.requests().is_some() {
            report("prompts", "`prompts` is 0; write at least 1".to_owned());
        }
        if let Some(drawn) = facts.drawn {
            drawn.find_errors(self.dataset.bench_serving_name(), &mut report);
        }
        self.rules().find_errors(profile, &mut report);
        for field in self.foreign.keys().filter(|field| *field != "range_ratio") {
            report(field, unread_option(self.dataset.name(), field));
        }
        if profile == Profile::Classic && !facts.is_classic {
            report(
                "dataset",
                "the `classic` profile supports only `sharegpt` and `random`; use the `current` profile"
                    .to_owned(),
            );
        }
        errors
    }
}

/// Why an option is refused that the data set does not read.
pub(crate) fn unread_option(dataset: DatasetName, field: &str) -> String {
    let name = dataset.bench_serving_name();
    let readers: Vec<&str> = readers(field).collect();
    let have = if readers.len() == 1 { "has" } else { "have" };
    format!(
        "the data set `{name}` has no option `{field}` (only {} {have} it); remove the option",
        backtick_list(readers)
    )
}

/// Every workload of format 1 has these keys, whichever of them its data set reads.
impl Serialize for Workload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut all = json!({
            "dataset": self.dataset.name(),
            "path": self.path,
            "prompts": self.prompts,
            "input_len": null,
            "output_len": null,
            "range_ratio": 0.0,
            "context_len": null,
            "prompt_suffix": null,
            "tokenize_prompt": false,
        });
        let options = self.dataset.options().map_err(S::Error::custom)?;
        if let (Value::Object(all), Value::Object(options)) = (&mut all, options) {
            all.extend(options);
            all.extend(self.foreign.clone());
        }
        all.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Workload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Own {
            dataset: DatasetName,
            path: Option<String>,
            prompts: u32,
        }
        let options = Options::deserialize(deserializer)?;
        let own = Own::deserialize(Value::Object(options.clone())).map_err(D::Error::custom)?;
        let given = Self::given(own.dataset, options, own.prompts).map_err(D::Error::custom)?;
        Ok(Self {
            path: own.path,
            ..given
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn workload(text: &str) -> Workload {
        serde_json::from_str(text).unwrap()
    }

    fn fields(text: &str, profile: Profile) -> Vec<String> {
        let errors = workload(text).find_errors(profile).into_iter();
        errors.map(|error| error.field).collect()
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
    fn options_of_an_import_that_the_data_set_does_not_read_are_kept() {
        let text = r#"{"dataset":"random","path":null,"prompts":1,"input_len":8,"output_len":2,"range_ratio":1.0,"context_len":null,"prompt_suffix":null,"tokenize_prompt":false,"apply_chat_template":true}"#;
        assert_eq!(serde_json::to_string(&workload(text)).unwrap(), text);
        assert_eq!(fields(text, Profile::Current), ["apply_chat_template"]);
        assert_eq!(workload(text).facts().template, TemplateUse::Requested);
    }

    #[test]
    fn lengths_are_told_with_their_mean_where_they_are_drawn() {
        for (range_ratio, lengths) in [
            (0.0, "1 to 1024 (mean 512.5) in / 1 to 64 (mean 32.5) out"),
            (0.5, "512 to 1024 (mean 768) in / 32 to 64 (mean 48) out"),
            (1.0, "1024 in / 64 out"),
        ] {
            let random = Workload::with(Random {
                input_len: Some(1024),
                output_len: Some(64),
                range_ratio,
                tokenize_prompt: false,
                lengths: None,
                common_prefix: None,
            });
            assert_eq!(random.rules().lengths(Profile::Current), lengths);
        }
        let sharegpt = Workload::new(DatasetName::Sharegpt);
        assert_eq!(
            sharegpt.rules().lengths(Profile::Current),
            "lengths of the data set"
        );
    }

    #[test]
    fn every_mistake_is_found_at_once() {
        let random = r#"{"dataset": "random", "prompts": 0, "range_ratio": 1.5, "context_len": 9}"#;
        assert_eq!(
            fields(random, Profile::Current),
            ["prompts", "input_len", "output_len", "range_ratio", "context_len"]
        );
        let sharegpt = r#"{"dataset": "sharegpt", "prompts": 1, "range_ratio": 0, "input_len": 1, "output_len": 3, "tokenize_prompt": true}"#;
        assert_eq!(
            fields(sharegpt, Profile::Current),
            ["output_len", "input_len", "tokenize_prompt"]
        );
    }

    #[test]
    fn a_workload_that_memory_does_not_hold_is_refused() {
        for (most, options) in [
            (
                3_906_250,
                r#""dataset": "random-ids", "input_len": 1024, "output_len": 1"#,
            ),
            (
                1_838_235,
                r#""dataset": "generated-shared-prefix", "shared_prefix": { "groups": 1838235, "prompts_per_group": 1 }"#,
            ),
            (
                16_565,
                r#""dataset": "image", "input_len": 8, "output_len": 1, "pictures": { "count": 1 }"#,
            ),
            (
                8_284,
                r#""dataset": "image", "input_len": 8, "output_len": 1, "pictures": { "format": "png" }"#,
            ),
            (13_421, r#""dataset": "random-audio""#),
            (
                66,
                r#""dataset": "image", "input_len": 8, "output_len": 1, "pictures": { "count": 1000000, "resolution": "random:1x1-2x2" }"#,
            ),
        ] {
            let text = |prompts: u32| format!("{{{options}, \"prompts\": {prompts}}}");
            let more = options.replace(&most.to_string(), &(most + 1).to_string());
            let more = format!("{{{more}, \"prompts\": {}}}", most + 1);
            assert_eq!(fields(&text(most), Profile::Current), [""; 0], "{options}");
            assert_eq!(fields(&more, Profile::Current).len(), 1, "{more}");
        }
        let all = r#"{"dataset": "image", "prompts": 4294967295, "input_len": 0, "output_len": 1, "pictures": { "count": 4294967295, "resolution": "16384x16384" }}"#;
        assert!(fields(all, Profile::Current).contains(&"pictures".to_owned()));
    }

    #[test]
    fn recordings_of_a_load_take_a_few_gib_at_most() {
        let text = r#"{"dataset": "random-audio", "prompts": 1000, "audio": { "seconds": 600 }}"#;
        let errors = workload(text).find_errors(Profile::Current);
        assert_eq!(
            errors[0].message,
            "the recordings would take up to 17.9 GiB of memory together, more than 4 GiB; ask for fewer or shorter recordings, or \
             for a lower sample rate"
        );
    }

    #[test]
    fn only_rows_and_some_body_fields_demand_anything_of_answers() {
        let may = |text: &str, body: Value| {
            let Value::Object(body) = body else {
                panic!("an object")
            };
            workload(text).may_demand_answers(&body)
        };
        let ids = r#"{"dataset": "random-ids", "prompts": 1, "input_len": 8, "output_len": 2}"#;
        assert!(!may(ids, json!({})));
        assert!(!may(ids, json!({"top_p": 1, "tools": null})));
        assert!(may(ids, json!({"response_format": {"type": "json_object"}})));
        for dataset in ["structured", "openai", "agentic-sessions"] {
            assert!(may(
                &format!(r#"{{"dataset": "{dataset}", "prompts": 1}}"#),
                json!({})
            ));
        }
    }

    #[test]
    fn the_classic_profile_lacks_what_came_later() {
        let ids =
            r#"{"dataset": "random-ids", "prompts": 1, "input_len": 8, "output_len": 2, "range_ratio": 1.0}"#;
        assert!(fields(ids, Profile::Current).is_empty());
        assert_eq!(fields(ids, Profile::Classic), ["dataset"]);
        let suffixed = r#"{"dataset": "sharegpt", "prompts": 1, "range_ratio": 0, "context_len": 9, "prompt_suffix": "!"}"#;
        assert!(fields(suffixed, Profile::Current).is_empty());
        assert_eq!(
            fields(suffixed, Profile::Classic),
            ["context_len", "prompt_suffix"]
        );
    }
}
