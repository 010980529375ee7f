//! Grades answers after the measurement: items of tasks are sent among the requests of the same load, and then some of
//! them alone, so that answers that are wrong under load are told apart from answers that are wrong.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::analysis::graded::controls_needed;
use crate::base::clock;
use crate::base::units::RequestRate;
use crate::config::arrival::Arrival;
use crate::config::quality::Quality;
use crate::config::scenario::Scenario;
use crate::loadgen::PlannedRequest;
use crate::results::record::answer_check::AnswerCheck;
use crate::results::record::cell::Phase;
use crate::results::record::graded::{GradedAnswers, GradedItem, ProbeAnswers, TaskScore};
use crate::results::record::request::{Failure, Request};
use crate::runner::cell::cell_run::{CellError, CellRun};
use crate::runner::graded::{
    Item, ItemFiles, answer_text, items_hash, prepare_items, probe_requests, probes_hash,
};
use crate::runner::load::protocol_items;
use crate::runner::prompt_store::{PreparedWorkload, PromptStore};
use crate::runner::ready_engine::ReadyEngine;
use crate::runner::requests::{PromptRange, prepare_requests};
use crate::runner::warm_up;

const PHASE: Phase = Phase::Grade;

/// Number of requests before the first and after the last item, where the number of requests in flight is not limited.
const LEAD_REQUESTS: usize = 32;

/// Longest part of a wrong answer that is kept, in characters.
const KEPT_CHARACTERS: usize = 400;

/// The items of a scenario with `quality`.
pub(crate) struct GradedLoad {
    quality: Quality,
    items: Vec<Item>,
    /// The requests of greedy probes; empty if none are sent.
    probes: Vec<PlannedRequest>,
}

/// The requests of the load with others among them.
struct MixedLoad {
    scenario: Scenario,
    requests: Vec<PlannedRequest>,
    /// Which of the others a request is, by place in the load.
    added: Vec<Option<usize>>,
}

impl CellRun<'_> {
    /// Prepares the items; `None` if no answers are graded.
    pub(super) async fn prepare_items(
        &mut self,
        ready: &ReadyEngine,
        workload: &Arc<PreparedWorkload>,
        prompt_store: &Arc<PromptStore>,
    ) -> Result<Option<GradedLoad>, CellError> {
        let Some(quality) = self.cell.scenario.quality.clone() else {
            return Ok(None);
        };
        let (seed, protocol) = (self.cell.scenario.seed, ready.target.dialect.protocol);
        let (workload, store) = (Arc::clone(workload), Arc::clone(prompt_store));
        let preparing = tokio::task::spawn_blocking(move || {
            let files = ItemFiles {
                folder: store.folder(),
                caches: store.caches(),
            };
            let items = prepare_items(&quality, seed, protocol, &workload.tokenizer, &files)?;
            let probes = match quality.probes {
                true => probe_requests(protocol, &workload.tokenizer)?,
                false => Vec::new(),
            };
            Ok(GradedLoad {
                quality,
                items,
                probes,
            })
        });
        let prepared = preparing.await.expect("preparing items does not panic");
        prepared
            .map(Some)
            .map_err(|why: String| CellError::Prompts(Phase::Prepare, why))
    }

    /// Sends the items under the load of the scenario and some of them alone, and adds the scores to the summary.
    pub(super) async fn grade(
        &mut self,
        ready: &mut ReadyEngine,
        load: GradedLoad,
        workload: &Arc<PreparedWorkload>,
    ) -> Result<(), CellError> {
        let GradedLoad {
            quality,
            items,
            probes,
        } = load;
        // The prompts of the load were just measured, and would be found in the cache.
        self.reset_caches_for_items(ready).await;
        let added = items.iter().map(|item| item.request.clone());
        let added: Vec<PlannedRequest> = added.chain(probes.iter().cloned()).collect();
        let mixed = self.mixed_load(&added, workload, ready);
        let mixed = mixed.map_err(|why| CellError::Prompts(PHASE, why))?;
        let began = clock::now();
        let scenario = mixed.scenario.clone();
        let records = self.send_items(ready, &scenario, mixed.requests).await?;
        let load_s = clock::now().since(began).as_secs_f64();
        let mut graded: Vec<Option<(AnswerCheck, &Request)>> = vec![None; items.len()];
        let mut under_load: Vec<Option<String>> = vec![None; probes.len()];
        for request in &records {
            let place = usize::try_from(request.index).ok();
            match place.and_then(|place| *mixed.added.get(place)?) {
                Some(item) if item < items.len() => {
                    graded[item] = Some((items[item].grade(request), request));
                }
                Some(probe) => under_load[probe - items.len()] = answer_text(request),
                None => {}
            }
        }
        if let Some(failure) = all_failed(&graded) {
            return Err(CellError::NotGraded(failure));
        }
        let is_correct = |item: usize| graded[item].as_ref().is_some_and(|(check, _)| check.is_correct());
        let began = clock::now();
        let mut alone: Vec<Option<bool>> = vec![None; items.len()];
        let wrong: Vec<usize> = (0..items.len()).filter(|item| !is_correct(*item)).collect();
        self.send_alone(ready, &items, &wrong, &mut alone).await?;
        let controls = controls(&quality, &items, is_correct, &alone);
        self.send_alone(ready, &items, &controls, &mut alone).await?;
        let probes = self.probe_answers(ready, probes, under_load).await?;
        let alone_s = clock::now().since(began).as_secs_f64();
        let failed: Vec<bool> = graded
            .iter()
            .map(|graded| graded.as_ref().is_none_or(|(_, request)| request.is_failed()))
            .collect();
        self.graded_items = items
            .iter()
            .zip(graded)
            .zip(alone)
            .map(|((item, graded), alone)| graded_item(item, graded, alone))
            .collect();
        let blank_scores = quality.tasks.into_iter().map(|task| TaskScore {
            items_hash: Some(items_hash(items.iter().filter(|item| item.task == task.name))),
            task: task.name,
            min_correct: task.min_correct,
            ..TaskScore::default()
        });
        self.summary.graded = Some(GradedAnswers {
            tasks: GradedAnswers::count(blank_scores.collect(), &self.graded_items, &failed),
            probes,
            concurrency: scenario.arrival.concurrency.map(NonZeroU32::get),
            load_s,
            alone_s,
        });
        self.end_phase(PHASE);
        Ok(())
    }

    /// Empties the caches again; what the check of the measured load says about them stays.
    async fn reset_caches_for_items(&mut self, ready: &ReadyEngine) {
        let measured = self.summary.cache_reset.take();
        // A cache that stays full makes the load under the items lighter, which the scores do not depend on.
        let _ = self.reset_caches(ready).await;
        self.summary.cache_reset = measured;
    }

    /// The load of the scenario with one of the others after each of its requests, from its full concurrency on until the
    /// last of them is answered.
    fn mixed_load(
        &self,
        added: &[PlannedRequest],
        workload: &PreparedWorkload,
        ready: &ReadyEngine,
    ) -> Result<MixedLoad, String> {
        let mut scenario = self.cell.scenario.clone();
        let prompts = workload.prepared.prompts.len();
        let arrival = &mut scenario.arrival;
        if arrival.concurrency.is_none() && arrival.rate.is_infinite() {
            // As many as the burst had in flight.
            arrival.concurrency = u32::try_from(prompts).ok().and_then(NonZeroU32::new);
        }
        scenario.limits.duration = None;
        scenario.cancel = None;
        let lead = match scenario.arrival.concurrency {
            Some(limit) => limit.get() as usize,
            None => LEAD_REQUESTS,
        };
        let mut of_place: Vec<Option<usize>> = vec![None; lead];
        of_place.extend((0..added.len()).flat_map(|nth| [Some(nth), None]));
        of_place.extend(vec![None; lead]);
        let part = PromptRange {
            first_prompt: 0,
            count: of_place.len(),
            due_before: None,
        };
        let mut draws = workload.prepared.rng.clone();
        let planned = prepare_requests(&scenario, &workload.prepared, part, &mut draws).items;
        let requests = planned
            .into_iter()
            .zip(&of_place)
            .map(|(planned, nth)| match nth {
                Some(nth) => PlannedRequest {
                    due: planned.due,
                    ..added[*nth].clone()
                },
                None => planned,
            });
        let protocol = ready.target.dialect.protocol;
        let requests = protocol_items(requests.collect(), protocol, &workload.tokenizer)?;
        Ok(MixedLoad {
            scenario,
            requests,
            added: of_place,
        })
    }

    /// Sends the probes one after another, and returns their answers with those under load; `None` if there are none.
    async fn probe_answers(
        &mut self,
        ready: &mut ReadyEngine,
        probes: Vec<PlannedRequest>,
        under_load: Vec<Option<String>>,
    ) -> Result<Option<ProbeAnswers>, CellError> {
        if probes.is_empty() {
            return Ok(None);
        }
        // An answer must not be computed from the cache that the load left.
        self.reset_caches_for_items(ready).await;
        let mut alone: Vec<Option<String>> = vec![None; probes.len()];
        let scenario = one_at_a_time(&self.cell.scenario);
        for request in &self.send_items(ready, &scenario, probes).await? {
            let place = usize::try_from(request.index).ok();
            if let Some(answer) = place.and_then(|place| alone.get_mut(place)) {
                *answer = answer_text(request);
            }
        }
        Ok(Some(ProbeAnswers {
            probes_hash: probes_hash(),
            under_load,
            alone,
        }))
    }

    /// Sends items one after another, and notes which answers are right.
    async fn send_alone(
        &mut self,
        ready: &mut ReadyEngine,
        items: &[Item],
        chosen: &[usize],
        alone: &mut [Option<bool>],
    ) -> Result<(), CellError> {
        if chosen.is_empty() {
            return Ok(());
        }
        let scenario = one_at_a_time(&self.cell.scenario);
        let requests = chosen.iter().map(|item| items[*item].request.clone()).collect();
        for request in &self.send_items(ready, &scenario, requests).await? {
            let place = usize::try_from(request.index).ok();
            // Whether a failed request would have been answered right is not known.
            let chosen = place.and_then(|place| chosen.get(place));
            if let Some(item) = chosen.filter(|_| !request.is_failed()) {
                alone[*item] = Some(items[*item].grade(request).is_correct());
            }
        }
        Ok(())
    }

    async fn send_items(
        &mut self,
        ready: &mut ReadyEngine,
        scenario: &Scenario,
        requests: Vec<PlannedRequest>,
    ) -> Result<Vec<Request>, CellError> {
        let control = self.control(PHASE, requests.len(), None);
        let sent = warm_up::warm_up(ready, scenario, requests, control).await;
        let sent = sent.map_err(|error| CellError::NotSent(PHASE, error))?;
        match sent.abort {
            Some(abort) => Err(CellError::Cut(PHASE, abort)),
            None => Ok(sent.requests),
        }
    }
}

/// The first failure, if no item was answered.
fn all_failed(graded: &[Option<(AnswerCheck, &Request)>]) -> Option<Failure> {
    let requests = || graded.iter().flatten().map(|(_, request)| request);
    match requests().all(|request| request.is_failed()) {
        true => requests().find_map(|request| request.failure.clone()),
        false => None,
    }
}

/// The scenario with one request at a time, each sent when the one before has ended.
fn one_at_a_time(scenario: &Scenario) -> Scenario {
    let mut scenario = scenario.clone();
    scenario.arrival = Arrival {
        rate: RequestRate::INFINITE,
        pace: None,
        concurrency: Some(NonZeroU32::MIN),
        ..scenario.arrival
    };
    scenario.limits.duration = None;
    scenario.cancel = None;
    scenario
}

/// The items to send again alone that were right under load, evenly over those of each task. `alone` are the answers
/// that were right or wrong alone.
fn controls(
    quality: &Quality,
    items: &[Item],
    is_correct: impl Fn(usize) -> bool,
    alone: &[Option<bool>],
) -> Vec<usize> {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let mut chosen = Vec::new();
    for task in &quality.tasks {
        let of_task: Vec<usize> = (0..items.len())
            .filter(|item| items[*item].task == task.name)
            .collect();
        let correct: Vec<usize> = of_task.iter().copied().filter(|item| is_correct(*item)).collect();
        let fixed = of_task.iter().filter(|item| alone[**item] == Some(true)).count();
        let needed = controls_needed(
            count(fixed),
            count(correct.len()),
            quality.controls,
            quality.tasks.len(),
        ) as usize;
        chosen.extend((0..needed).map(|nth| correct[nth * correct.len() / needed]));
    }
    chosen
}

fn graded_item(item: &Item, graded: Option<(AnswerCheck, &Request)>, alone: Option<bool>) -> GradedItem {
    let (problem, answer) = match &graded {
        None => (Some("no request was sent for this graded item".to_owned()), None),
        Some((check, request)) => {
            let problem = check.problem();
            let text = request.text.as_ref().filter(|_| problem.is_some());
            (
                problem.map(|(class, message)| format!("{class}: {message}")),
                text.map(|text| text.read().chars().take(KEPT_CHARACTERS).collect()),
            )
        }
    };
    GradedItem {
        task: item.task.clone(),
        item: item.number,
        is_correct: problem.is_none(),
        problem,
        answer,
        is_correct_alone: alone,
    }
}
