//! Prepares the prompts of a workload: the same that the Python tool sends for the same seed, file and
//! tokenizer.
//!
//! Everything is drawn before the measurement starts. Nothing is downloaded or sent.

mod agentic;
mod audio;
mod audio_clip;
mod byte_level;
mod clipped;
mod conversations;
mod custom;
mod exact_length;
mod hf_cache;
mod image;
pub(crate) mod images;
mod json_rows;
mod jsonl;
mod length_pairs;
mod longbench;
mod mmmu;
mod mooncake;
mod openai;
mod prompt;
mod prompt_cache;
mod random;
mod random_audio;
mod random_rerank;
mod repeated;
pub mod rng;
mod row_files;
pub(crate) mod sessions;
mod shared_prefix;
mod sharegpt;
mod speed_bench;
mod structured;
pub(crate) mod template;
pub mod tokenizer;
pub(crate) mod unique_prefix;
mod vllm_serve;
pub(crate) mod words;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod golden_rows;
#[cfg(test)]
mod shipped;

use std::path::{Path, PathBuf};

pub use audio_clip::AudioClip;
pub use hf_cache::Caches;
use hf_cache::{Repository, path_lines};
pub(crate) use json_rows::read_json_rows;
pub(crate) use length_pairs::check as check_lengths_file;
pub(crate) use mooncake::check_trace;
pub use prompt::Content;
use prompt::content_hash;
pub(crate) use prompt::{Extras, Prompt, SessionLink, shared_with_earlier};
use prompt_cache::{CacheKey, PromptCache};
pub(crate) use repeated::repeated_token_share;
use template::TemplateError;
use tokenizer::{Tokenizer, TokenizerError};

use crate::base::ids::ContentHash;
use crate::base::regular_file;
use crate::base::text::shown_path;
use crate::config::dataset::{Dataset, DatasetName, PublishedFile, WorkloadError};
use crate::config::workload::{Profile, Workload};

/// Why the prompts of a workload could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// The data set's file was not found.
    #[error(
        "no data file found for `{}`{}\n{}",
        dataset.bench_serving_name(), searched_paths(searched), fix(*dataset)
    )]
    Missing {
        /// The data set whose file is missing.
        dataset: DatasetName,
        /// Every place where it was searched.
        searched: Vec<String>,
    },
    /// The data set's file cannot be read.
    #[error("cannot read the data file `{}`: {error}", shown_path(path))]
    Unreadable {
        /// The file that cannot be read.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The data set's file does not contain rows of its format.
    #[error("`{}` does not contain valid rows for the data set `{}`: {reason}", shown_path(path), dataset.bench_serving_name())]
    Malformed {
        /// The data set that was expected.
        dataset: DatasetName,
        /// The file that has another form.
        path: PathBuf,
        /// What is wrong, and where in the file.
        reason: String,
    },
    /// The data set's file does not contain conversations in the ShareGPT format.
    #[error(
        "`{}` does not contain conversations in the ShareGPT format: {reason}",
        shown_path(path)
    )]
    Invalid {
        /// The file in which nothing is usable.
        path: PathBuf,
        /// What is wrong, and where in the file.
        reason: String,
    },
    /// The workload's settings are invalid.
    #[error("the workload cannot be prepared: {}", errors.iter().map(|error| error.message.as_str()).collect::<Vec<_>>().join("; "))]
    InvalidWorkload {
        /// Everything that is wrong.
        errors: Vec<WorkloadError>,
    },
    /// numpy accepts no seed of more than 32 bits.
    #[error("the seed {seed} is too large; numpy takes 0 to {}", u32::MAX)]
    Seed {
        /// Seed of the random draws.
        seed: u64,
    },
    /// The `classic` profile needs a record for each prompt.
    #[error(
        "the data file has {available} usable conversations, but the `classic` profile needs one for each \
         of {requested} prompts; request fewer prompts, or use the `current` profile"
    )]
    TooFew {
        /// Number of usable records.
        available: usize,
        /// Number of requested prompts.
        requested: usize,
    },
    /// No record yields a prompt.
    #[error("the data file has no conversation that the data set `{}` can use as a prompt", dataset.bench_serving_name())]
    Empty {
        /// The data set that was asked for.
        dataset: DatasetName,
    },
    /// The tokenizer cannot be loaded or used.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The chat template failed.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

/// The state of the generators after the data set's draws; arrivals are drawn from it next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RngState {
    /// Python's `random`.
    pub(crate) python: rng::Python,
    /// numpy's `np.random`.
    pub(crate) numpy: rng::Numpy,
}

impl RngState {
    fn new(seed: u32) -> Self {
        Self {
            python: rng::Python::new(seed.into()),
            numpy: rng::Numpy::new(seed),
        }
    }
}

/// The prompts of a workload, in the order in which they are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct PreparedPrompts {
    /// The prompts; fewer than requested if the file does not have enough.
    pub prompts: Vec<Prompt>,
    /// Digest of all prompts with their lengths; equal digests mean equal prompts.
    pub(crate) hash: ContentHash,
    /// The state of the generators after the data set's draws.
    pub(crate) rng: RngState,
    /// The sum that the Python tool prints as `#Input tokens`; `random` also counts rows that the file could
    /// not fill.
    pub input_tokens: u64,
    /// The sum that the Python tool prints as `#Output tokens`.
    pub output_tokens: u64,
    /// The lines that the Python tool prints about the prompts.
    pub(crate) printed_lines: Vec<String>,
    /// The warm-up request, if it is not the first prompt.
    pub(crate) warmup: Option<Prompt>,
    /// Requests that fill the prefix cache before the measurement.
    pub(crate) priming: Vec<Prompt>,
}

/// Rows with the sums that the Python tool prints.
struct Rows {
    prompts: Vec<Prompt>,
    input_tokens: u64,
    output_tokens: u64,
    printed_lines: Vec<String>,
    warmup: Option<Prompt>,
    priming: Vec<Prompt>,
}

impl Rows {
    /// Creates rows whose printed sums are those of the prompts, as for most data sets.
    fn new(prompts: Vec<Prompt>) -> Self {
        let sum = |read: fn(&Prompt) -> u32| prompts.iter().map(|prompt| u64::from(read(prompt))).sum();
        let (input, output) = (
            sum(|prompt| prompt.prompt_tokens),
            sum(|prompt| prompt.output_tokens),
        );
        Self::with_sums(prompts, input, output)
    }

    /// Creates rows with given sums.
    fn with_sums(prompts: Vec<Prompt>, input_tokens: u64, output_tokens: u64) -> Self {
        Self {
            prompts,
            input_tokens,
            output_tokens,
            printed_lines: vec![
                format!("#Input tokens: {input_tokens}"),
                format!("#Output tokens: {output_tokens}"),
            ],
            warmup: None,
            priming: Vec::new(),
        }
    }
}

/// The inputs from which a data set makes its rows.
struct RowInputs<'a> {
    /// Number of requested rows.
    prompts: usize,
    profile: Profile,
    seed: u64,
    tokenizer: &'a Tokenizer,
    file: Option<&'a Path>,
    dataset: DatasetName,
}

impl RowInputs<'_> {
    /// Returns the file, for a data set that needs one.
    fn path(&self) -> Result<&Path, DatasetError> {
        self.file.ok_or_else(|| DatasetError::Missing {
            dataset: self.dataset,
            searched: vec!["no path is set".to_owned()],
        })
    }
}

/// Checks that a folder has files of a data set that reads folders. Any other path is in order here.
pub(crate) fn check_folder(dataset: DatasetName, path: &Path) -> Result<(), DatasetError> {
    match dataset {
        _ if !path.is_dir() => Ok(()),
        DatasetName::Audio => audio::folder_rows(path).map(drop),
        DatasetName::AgenticSessions => sessions::check_folder(path),
        _ => Ok(()),
    }
}

/// A data set that makes rows.
trait MakeRows {
    fn rows(&self, inputs: &RowInputs<'_>, rng: &mut RngState) -> Result<Rows, DatasetError>;
}

/// Returns the file of a data set: the workload's path, relative to `base`, else the published file; `None`
/// if the data set needs no file. A path without a file is an error; no other file replaces it.
pub(crate) fn locate(
    workload: &Workload,
    base: &Path,
    caches: &Caches,
) -> Result<Option<PathBuf>, DatasetError> {
    let Some(file) = workload.facts().file else {
        return Ok(None);
    };
    let may_be_folder = workload.facts().may_be_folder();
    let mut searched = Vec::new();
    let named = workload.path.as_deref().filter(|path| !path.is_empty());
    if let Some(path) = named
        .map(|path| base.join(path))
        .filter(|path| path.exists() && !path.is_dir())
    {
        return match regular_file::check(&path) {
            Ok(()) => Ok(Some(path)),
            Err(error) => Err(DatasetError::Unreadable { path, error }),
        };
    }
    let mut at = |path: PathBuf| {
        let note = if path.is_dir() {
            " (this is a folder; write the path of a file in it)"
        } else {
            ""
        };
        searched.push(format!("{}{note}", shown_path(&path)));
        (path.is_file() || (may_be_folder && path.is_dir())).then_some(path)
    };
    let data_file = match (named, file.default) {
        (Some(path), _) => at(base.join(path)),
        (None, Some(PublishedFile::Web(page))) => at(page.path),
        (None, Some(PublishedFile::Hub { repository, file })) => {
            caches.find(Repository::Dataset, repository, file, &mut searched)
        }
        (None, None) => None,
    };
    let dataset = workload.dataset.name();
    data_file
        .map(Some)
        .ok_or(DatasetError::Missing { dataset, searched })
}

/// Returns a published file, if it was downloaded; else every place where it was searched, one per line.
pub(crate) fn locate_published(file: &PublishedFile, caches: &Caches) -> Result<PathBuf, String> {
    let mut searched = Vec::new();
    let found = match file {
        PublishedFile::Web(page) => {
            searched.push(shown_path(&page.path));
            page.path.is_file().then(|| page.path.clone())
        }
        PublishedFile::Hub { repository, file } => {
            caches.find(Repository::Dataset, repository, file, &mut searched)
        }
    };
    found.ok_or_else(|| path_lines(&searched))
}

/// Like [`prepare`], but uses the prompt cache on disk, and fills it.
pub(crate) fn load_or_prepare(
    workload: &Workload,
    profile: Profile,
    seed: u64,
    tokenizer: &Tokenizer,
    file: Option<&Path>,
    caches: &Caches,
) -> Result<PreparedPrompts, DatasetError> {
    let prepare = || prepare(workload, profile, seed, tokenizer, file);
    let key = CacheKey::new(workload, profile, seed, tokenizer, file);
    let (Some(folder), Some(key), Ok(numpy_seed)) = (&caches.prompts, key, u32::try_from(seed)) else {
        return prepare();
    };
    let cache = PromptCache::new(folder);
    if let Some(prompts) = cache.get(&key, numpy_seed) {
        return Ok(prompts);
    }
    let prepared = prepare()?;
    cache.put(&key, &prepared);
    Ok(prepared)
}

/// Says what a reader of the figures should know about prepared prompts.
pub(crate) fn prompt_notes(
    workload: &Workload,
    profile: Profile,
    seed: u64,
    prepared: &PreparedPrompts,
) -> Vec<String> {
    let seed = u32::try_from(seed).ok();
    let clipped = seed.map(|seed| clipped::notes(workload, profile, seed));
    let mut notes = clipped.unwrap_or_default();
    let session = |prompt: &Prompt| Some(prompt.extras.as_ref()?.session.as_ref()?.session);
    if let Some(last) = prepared.prompts.iter().filter_map(session).max()
        && let sessions = last + 1
        && sessions < workload.prompts
    {
        notes.push(format!(
            "the trace has {sessions} sessions, but {} were requested",
            workload.prompts
        ));
    }
    notes
}

/// Draws the prompts of a workload under a profile's rules; `file` is the result of [`locate`].
///
/// Tokenizes on all cores, so it must not run during a measurement.
pub fn prepare(
    workload: &Workload,
    profile: Profile,
    seed: u64,
    tokenizer: &Tokenizer,
    file: Option<&Path>,
) -> Result<PreparedPrompts, DatasetError> {
    let errors = workload.find_errors(profile);
    if !errors.is_empty() {
        return Err(DatasetError::InvalidWorkload { errors });
    }
    let numpy_seed = u32::try_from(seed).map_err(|_| DatasetError::Seed { seed })?;
    tokenizer.load()?;
    let mut rng = RngState::new(numpy_seed);
    let dataset = workload.dataset.name();
    let inputs = RowInputs {
        prompts: workload.prompts as usize,
        profile,
        seed,
        tokenizer,
        file,
        dataset,
    };
    let data_set: &dyn MakeRows = match &workload.dataset {
        Dataset::Sharegpt(dataset) => dataset,
        Dataset::Random(dataset) => dataset,
        Dataset::RandomIds(dataset) => dataset,
        Dataset::Audio(dataset) => dataset,
        Dataset::RandomAudio(dataset) => dataset,
        Dataset::RandomRerank(dataset) => dataset,
        Dataset::GeneratedSharedPrefix(dataset) => dataset,
        Dataset::Custom(dataset) => dataset,
        Dataset::Openai(dataset) => dataset,
        Dataset::AgenticSessions(dataset) => dataset,
        Dataset::AgenticTrace(dataset) => dataset,
        Dataset::Mooncake(dataset) => dataset,
        Dataset::Image(dataset) => dataset,
        Dataset::Mmmu(dataset) => dataset,
        Dataset::LongbenchV2(dataset) => dataset,
        Dataset::SpeedBench(dataset) => dataset,
        Dataset::Structured(dataset) => dataset,
        Dataset::VllmServe(dataset) => dataset,
    };
    let mut rows = data_set.rows(&inputs, &mut rng)?;
    if rows.prompts.is_empty() {
        return Err(DatasetError::Empty { dataset });
    }
    if workload.is_replayed() {
        // The first row of the file is the warm-up request, whatever its timestamp.
        rows.warmup = rows.warmup.or_else(|| rows.prompts.first().cloned());
        rows.prompts
            .sort_by_key(|prompt| prompt.extras.as_ref().and_then(|extras| extras.at));
    }
    Ok(PreparedPrompts {
        hash: content_hash(&rows.prompts),
        prompts: rows.prompts,
        rng,
        input_tokens: rows.input_tokens,
        output_tokens: rows.output_tokens,
        printed_lines: rows.printed_lines,
        warmup: rows.warmup,
        priming: rows.priming,
    })
}

fn searched_paths(searched: &[String]) -> String {
    match searched {
        [] => String::new(),
        searched => format!("; searched{}", path_lines(searched)),
    }
}

/// How to get the file of a data set.
fn fix(dataset: DatasetName) -> String {
    let path = "set the scenario's `path` (in `matrix bench`, `--dataset-path`) to a file in the format of this data set";
    match dataset.fetched_as() {
        Some(fetched) => {
            let name = fetched.bench_serving_name();
            let fetch = format!(
                "fetch it with `matrix fetch --dataset {name}`, or set the scenario's `path` (in `matrix bench`, \
                 `--dataset-path`) to a file in the format of this data set"
            );
            match dataset {
                DatasetName::Random => {
                    format!("{fetch}; or use the data set `random-ids`, which needs no file")
                }
                _ => fetch,
            }
        }
        None => path.to_owned(),
    }
}

fn token_count(count: usize) -> u32 {
    u32::try_from(count).expect("a text has fewer than four billion tokens")
}
