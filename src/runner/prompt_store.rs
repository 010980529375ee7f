//! Prepares prompts while an engine starts, and shares them between launches that send the same.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio::sync::OnceCell;

use crate::base::ids::ContentHash;
use crate::config::scenario::Scenario;
use crate::config::workload::Workload;
use crate::loadgen::dataset::tokenizer::Tokenizer;
use crate::loadgen::dataset::{self, Caches, DatasetError, PreparedPrompts, Prompt, repeated_token_share};

/// The prompts of a scenario, with the tokenizer that made them.
pub(crate) struct PreparedWorkload {
    pub(crate) prepared: PreparedPrompts,
    pub(crate) tokenizer: Tokenizer,
    /// Share of prompt tokens that repeat the beginning of an earlier prompt, if known.
    pub(crate) repeated_share: Option<f64>,
    /// What a reader of the figures should know about the prompts.
    pub(crate) notes: Vec<String>,
    /// Whether that share is counted in tokens, because the scenario sets it, and not estimated by bytes.
    pub(crate) is_share_exact: bool,
}

/// Why the prompts of a workload could not be prepared.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct PromptsError {
    pub(crate) reason: String,
    /// Whether the data file or the settings are wrong, and not something that can be fetched is missing.
    pub(crate) is_wrong_data: bool,
}

impl PromptsError {
    fn new(error: &DatasetError, workload: &Workload) -> Self {
        let is_fetchable = workload.path.is_none() && workload.dataset.name().fetched_as().is_some();
        let is_wrong_data = match error {
            DatasetError::Missing { .. } => !is_fetchable,
            DatasetError::Tokenizer(_) | DatasetError::Template(_) => false,
            _ => true,
        };
        Self {
            reason: error.to_string(),
            is_wrong_data,
        }
    }

    fn other(reason: impl std::fmt::Display) -> Self {
        Self {
            reason: reason.to_string(),
            is_wrong_data: false,
        }
    }
}

type Slot = Arc<OnceCell<Result<Arc<PreparedWorkload>, PromptsError>>>;

/// The prepared workloads of a run.
pub(crate) struct PromptStore {
    folder: PathBuf,
    caches: Caches,
    /// Locked to find a slot, not while a slot is filled.
    slots: Mutex<HashMap<String, Slot>>,
    /// Opened tokenizers by name.
    tokenizers: Mutex<HashMap<String, Tokenizer>>,
}

impl PromptStore {
    pub(crate) fn new(folder: PathBuf, caches: Caches) -> Arc<Self> {
        Arc::new(Self {
            folder,
            caches,
            slots: Mutex::default(),
            tokenizers: Mutex::default(),
        })
    }

    /// The folder of the matrix, to which paths are relative.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where downloaded files are searched.
    pub(crate) fn caches(&self) -> &Caches {
        &self.caches
    }

    /// The workload of a scenario; prepared once, off the runtime's threads.
    pub(crate) async fn workload(
        self: &Arc<Self>,
        scenario: &Scenario,
        tokenizer: &str,
    ) -> Result<Arc<PreparedWorkload>, PromptsError> {
        let draws = (&scenario.workload, scenario.profile, scenario.seed, tokenizer);
        let key = ContentHash::from_value(&draws).to_string();
        let slot = Arc::clone(
            self.slots
                .lock()
                .expect("finding a slot does not panic")
                .entry(key)
                .or_default(),
        );
        slot.get_or_init(|| async {
            let (prompt_store, scenario, tokenizer) =
                (Arc::clone(self), scenario.clone(), tokenizer.to_owned());
            match tokio::task::spawn_blocking(move || prompt_store.prepare(&scenario, &tokenizer)).await {
                Ok(result) => result.map(Arc::new),
                Err(error) => Err(PromptsError::other(format_args!(
                    "the preparation of the prompts was aborted: {error}"
                ))),
            }
        })
        .await
        .clone()
    }

    fn prepare(&self, scenario: &Scenario, name: &str) -> Result<PreparedWorkload, PromptsError> {
        let tokenizer = self.open_tokenizer(name).map_err(PromptsError::other)?;
        let work = &scenario.workload.clone().with_lengths_in(&self.folder);
        let failed = |error: DatasetError| PromptsError::new(&error, work);
        let file = dataset::locate(work, &self.folder, &self.caches).map_err(failed)?;
        let prepared = dataset::load_or_prepare(
            work,
            scenario.profile,
            scenario.seed,
            &tokenizer,
            file.as_deref(),
            &self.caches,
        )
        .map_err(failed)?;
        let is_share_exact = scenario.workload.facts().common_prefix.is_some();
        let repeated = repeated_token_share(&prepared.prompts, &tokenizer, is_share_exact)
            .map_err(PromptsError::other)?;
        Ok(PreparedWorkload {
            notes: dataset::prompt_notes(work, scenario.profile, scenario.seed, &prepared),
            prepared,
            tokenizer,
            repeated_share: repeated,
            is_share_exact,
        })
    }

    fn open_tokenizer(&self, name: &str) -> Result<Tokenizer, String> {
        let mut open = self
            .tokenizers
            .lock()
            .expect("opening a tokenizer does not panic");
        if let Some(tokenizer) = open.get(name) {
            return Ok(tokenizer.clone());
        }
        let tokenizer =
            Tokenizer::find(name, &self.folder, &self.caches).map_err(|error| error.to_string())?;
        open.insert(name.to_owned(), tokenizer.clone());
        Ok(tokenizer)
    }
}

/// Share that `count` prompts of the data set repeat of each other, beginning at index `from`; `None` if
/// unknown.
pub(crate) async fn repeated_share(
    workload: &Arc<PreparedWorkload>,
    from: usize,
    count: usize,
) -> Option<f64> {
    let prompt_count = workload.prepared.prompts.len();
    if count == prompt_count && from.checked_rem(prompt_count).unwrap_or(0) == 0 {
        return workload.repeated_share;
    }
    let workload = Arc::clone(workload);
    let counting = tokio::task::spawn_blocking(move || {
        let prompts = workload.prepared.prompts.iter().cycle().skip(from).take(count);
        let prompts: Vec<Prompt> = prompts.cloned().collect();
        repeated_token_share(&prompts, &workload.tokenizer, workload.is_share_exact)
            .ok()
            .flatten()
    });
    counting.await.expect("counting what repeats does not panic")
}
