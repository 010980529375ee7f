//! The prompts of a cell and the load that is made of them.

use std::sync::Arc;

use crate::base::clock;
use crate::config::scenario::Scenario;
use crate::loadgen::Item;
use crate::loadgen::dataset::unique_prefix::Beginning;
use crate::plan::Measurement;
use crate::results::record::cell::{Phase, UniquePrefix};
use crate::runner::cell::cell_run::{CellError, CellRun, WARM_UP};
use crate::runner::load::PreparedLoad;
use crate::runner::prompt_store::{PreparedWorkload, PromptStore};
use crate::runner::ready_engine::ReadyEngine;
use crate::runner::supervise::AbortReason;

/// How many requests a load is expected to send: its prompts, or fewer where its duration ends it first.
pub(super) fn expected_requests(scenario: &Scenario) -> usize {
    let asked = scenario.workload.requests().unwrap_or_default();
    let asked = usize::try_from(asked).unwrap_or(usize::MAX);
    let expected = scenario.arrival.expected(scenario.limits.duration);
    // The first request is due at once.
    expected.map_or(asked, |expected| asked.min((expected.round() as usize).max(1)))
}

/// That the data set gave fewer prompts than asked for. Where a duration ends the load, `ran_out` tells whether they were too few.
fn too_few_prompts(scenario: &Scenario, found: usize) -> Option<String> {
    if scenario.arrival.window(scenario.limits.duration).is_some() {
        return None;
    }
    let asked = scenario.workload.requests()?;
    ((found as u64) < asked).then(|| format!("the data set gave {found} prompts, and {asked} were asked for"))
}

impl CellRun<'_> {
    /// The prompts of the cell.
    pub(super) async fn workload(
        &mut self,
        prompt_store: &Arc<PromptStore>,
    ) -> Result<Arc<PreparedWorkload>, CellError> {
        let workload = prompt_store.workload(&self.cell.scenario, &self.context.launch.tokenizer);
        match self.context.stop.unless_asked(workload).await {
            Some(Ok(workload)) => {
                self.prepared(&workload);
                Ok(workload)
            }
            None => Err(CellError::Cut(Phase::Prepare, AbortReason::Stopped)),
            Some(Err(reason)) => Err(CellError::Prompts(Phase::Prepare, reason)),
        }
    }

    /// The load of the cell.
    pub(super) async fn prepared_load(
        &mut self,
        ready: &ReadyEngine,
        workload: &Arc<PreparedWorkload>,
    ) -> Result<PreparedLoad, CellError> {
        let wrong = |reason| CellError::Prompts(Phase::Prepare, reason);
        let (scenario, protocol) = (self.cell.scenario.clone(), ready.target.dialect.protocol);
        let mut draws = workload.prepared.draws.clone();
        let mut load = PreparedLoad::whole(scenario, workload, protocol, &mut draws).map_err(wrong)?;
        self.summary.schedule_hash = Some(load.schedule.clone());
        // The points of a search have prefixes of their own.
        if self.cell.scenario.search.is_none() {
            let begun = self.with_unique_prefix("load", load.items, workload).await;
            load.items = begun.map_err(wrong)?;
        }
        Ok(load)
    }

    fn prepared(&mut self, workload: &PreparedWorkload) {
        let found = workload.prepared.prompts.len();
        self.summary.prompts = u32::try_from(found).ok();
        self.summary.prompts_hash = Some(workload.prepared.hash.clone());
        self.summary.prompts_repeated = workload.repeated;
        self.summary.engine.tokenizer_digest = Some(workload.tokenizer.digest().to_owned());
        self.summary
            .warnings
            .extend(too_few_prompts(&self.cell.scenario, found));
    }

    /// Gives every prompt a prefix unique to this measurement, if the recipe sets `unique_prefixes`: a server that someone else started may
    /// remember earlier runs. `what` distinguishes the loads of one measurement. The digest of the prompts is that of the prompts as they
    /// were drawn, as it identifies workloads.
    pub(super) async fn with_unique_prefix(
        &mut self,
        what: &str,
        mut items: Vec<Item>,
        workload: &Arc<PreparedWorkload>,
    ) -> Result<Vec<Item>, String> {
        if !self.context.launch.contact.unique_prefixes {
            return Ok(items);
        }
        let Measurement { cell, start, repeat } = self.measurement;
        // The moment tells runs, and tries of a resumed one, apart: a server that someone else started remembers them all.
        let moment = clock::unix_seconds();
        let beginning = Beginning::of(&(cell, start, repeat, self.tries, what, moment));
        let letters = beginning.letters().to_owned();
        let workload = Arc::clone(workload);
        let putting = tokio::task::spawn_blocking(move || {
            let contents = items.iter_mut().map(|item| &mut item.content);
            let given = beginning.put(contents, &workload.tokenizer);
            given.map(|given| (items, given))
        });
        let put = putting.await.expect("putting letters does not panic");
        let (items, given) = put.map_err(|error| error.to_string())?;
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        if given.kept > 0 && what != WARM_UP {
            self.summary.warnings.push(format!(
                "{} of {} prompts kept their own beginning: no unique one leaves their length as it is",
                given.kept,
                items.len()
            ));
        }
        self.unique_prefix = Some(UniquePrefix {
            letters,
            tokens: count(given.tokens),
            kept: count(given.kept),
        });
        if let Some(proof) = &mut self.summary.reset {
            proof.unique_prefix.clone_from(&self.unique_prefix);
        }
        Ok(items)
    }
}
