//! Prepares the prompts of a cell and its load.

use std::sync::Arc;

use crate::base::clock;
use crate::config::scenario::Scenario;
use crate::loadgen::PlannedRequest;
use crate::loadgen::dataset::unique_prefix::PrefixLetters;
use crate::plan::Measurement;
use crate::results::record::cell::{Phase, UniquePrefix};
use crate::runner::cell::cell_run::{CellError, CellRun, WARM_UP};
use crate::runner::load::PreparedLoad;
use crate::runner::prompt_store::{PreparedWorkload, PromptStore};
use crate::runner::ready_engine::ReadyEngine;
use crate::runner::supervise::AbortReason;

/// Expected number of requests: the number of prompts, or fewer if the duration ends the load first.
pub(super) fn expected_requests(scenario: &Scenario) -> usize {
    let requested = scenario.workload.requests().unwrap_or_default();
    let requested = usize::try_from(requested).unwrap_or(usize::MAX);
    let expected = scenario.arrival.expected_requests(scenario.limits.duration);
    // The first request is due immediately.
    expected.map_or(requested, |expected| {
        requested.min((expected.round() as usize).max(1))
    })
}

/// A warning if the data set provided fewer prompts than requested. If a duration ends the load, `ran_out` of
/// the load reports a lack of prompts instead.
fn too_few_prompts(scenario: &Scenario, found: usize) -> Option<String> {
    if scenario
        .arrival
        .sending_window(scenario.limits.duration)
        .is_some()
    {
        return None;
    }
    let requested = scenario.workload.requests()?;
    ((found as u64) < requested)
        .then(|| format!("the data set provided {found} prompts, but {requested} were requested"))
}

impl CellRun<'_> {
    pub(super) async fn prepare_workload(
        &mut self,
        prompt_store: &Arc<PromptStore>,
    ) -> Result<Arc<PreparedWorkload>, CellError> {
        let workload = prompt_store.workload(&self.cell.scenario, &self.context.launch.tokenizer);
        match self.context.stop.unless_requested(workload).await {
            Some(Ok(workload)) => {
                self.record_prompts(&workload);
                Ok(workload)
            }
            None => Err(CellError::Cut(Phase::Prepare, AbortReason::Stopped)),
            Some(Err(error)) => Err(CellError::Prompts(Phase::Prepare, error.reason)),
        }
    }

    pub(super) async fn prepare_load(
        &mut self,
        ready: &ReadyEngine,
        workload: &Arc<PreparedWorkload>,
    ) -> Result<PreparedLoad, CellError> {
        let wrong = |reason| CellError::Prompts(Phase::Prepare, reason);
        let (scenario, protocol) = (self.cell.scenario.clone(), ready.target.dialect.protocol);
        let mut draws = workload.prepared.rng.clone();
        let mut load =
            PreparedLoad::for_all_prompts(scenario, workload, protocol, &mut draws).map_err(wrong)?;
        self.summary.schedule_hash = Some(load.schedule.clone());
        // The points of a search have prefixes of their own.
        if self.cell.scenario.search.is_none() {
            // What fills the cache has the prefix of the load.
            let primed = load.priming.len();
            let all = load.priming.into_iter().chain(load.items).collect();
            let begun = self.with_unique_prefix("load", all, workload).await;
            load.priming = begun.map_err(wrong)?;
            load.items = load.priming.split_off(primed);
        }
        Ok(load)
    }

    fn record_prompts(&mut self, workload: &PreparedWorkload) {
        let prompt_count = workload.prepared.prompts.len();
        self.summary.prompts = u32::try_from(prompt_count).ok();
        self.summary.prompts_hash = Some(workload.prepared.hash.clone());
        self.summary.prompts_repeated = workload.repeated_share;
        self.summary.engine.tokenizer_digest = Some(workload.tokenizer.digest().to_owned());
        self.summary
            .warnings
            .extend(too_few_prompts(&self.cell.scenario, prompt_count));
        self.summary.warnings.extend(workload.notes.iter().cloned());
    }

    /// Gives every prompt a prefix unique to this measurement, if the recipe sets `unique_prefixes`, because
    /// an attached server may have cached prompts of earlier runs. `purpose` distinguishes the loads of one
    /// measurement. The prompts' digest does not include the prefix, because it identifies workloads.
    pub(super) async fn with_unique_prefix(
        &mut self,
        purpose: &str,
        mut items: Vec<PlannedRequest>,
        workload: &Arc<PreparedWorkload>,
    ) -> Result<Vec<PlannedRequest>, String> {
        if !self.context.launch.api.unique_prefixes {
            return Ok(items);
        }
        let Measurement { cell, start, repeat } = self.measurement;
        // The time distinguishes runs and the attempts of a resumed run, whose prompts an attached server may
        // have cached.
        let moment = clock::unix_seconds();
        let beginning = PrefixLetters::from_name(&(cell, start, repeat, self.tries, purpose, moment));
        let letters = beginning.letters().to_owned();
        let workload = Arc::clone(workload);
        let putting = tokio::task::spawn_blocking(move || {
            let contents = items.iter_mut().map(|item| &mut item.content);
            let prefix_stats = beginning.apply(contents, &workload.tokenizer);
            prefix_stats.map(|prefix_stats| (items, prefix_stats))
        });
        let put = putting.await.expect("putting letters does not panic");
        let (items, prefix_stats) = put.map_err(|error| error.to_string())?;
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        if prefix_stats.unchanged > 0 && purpose != WARM_UP {
            self.summary.warnings.push(format!(
                "{} of {} prompts were sent without a unique prefix, because their number of tokens would change with every prefix that was tried",
                prefix_stats.unchanged,
                items.len()
            ));
        }
        self.unique_prefix = Some(UniquePrefix {
            letters,
            tokens: count(prefix_stats.tokens),
            kept: count(prefix_stats.unchanged),
        });
        if let Some(proof) = &mut self.summary.cache_reset {
            proof.unique_prefix.clone_from(&self.unique_prefix);
        }
        Ok(items)
    }
}
