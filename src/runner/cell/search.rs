//! Measures a cell with a search: many points on one engine, one summary.

use std::sync::Arc;

use crate::analysis::capacity::TieredSearch;
use crate::analysis::metrics::{Metric, MetricInputs};
use crate::analysis::validity::{self, CacheEvidence};
use crate::config::search::{Search, Tier};
use crate::results::record::cell::{CacheResetRecord, Definitions, Phase};
use crate::results::record::client::ClientFacts;
use crate::results::record::search::ReportedTokens;
use crate::results::record::telemetry::Sample;
use crate::results::record::validity::Reason;
use crate::runner::cell::cell_run::{CellError, CellOutcome, CellRun};
use crate::runner::cell::observer::CellEvent;
use crate::runner::load::{LoadOutcome, PreparedLoad};
use crate::runner::prompt_store::PreparedWorkload;
use crate::runner::ready_engine::ReadyEngine;
use crate::runner::search::{self, JudgedPoint, MeasuredPoint, PointMeasurement, PointResult, SearchOutcome};
use crate::runner::telemetry::MeasuredWindow;

/// Measures the points of a cell's search.
struct CellPoints<'r, 'a> {
    run: &'r mut CellRun<'a>,
    ready: &'r mut ReadyEngine,
    workload: &'r Arc<PreparedWorkload>,
    search: &'r Search,
    metric_inputs: MetricInputs,
    /// Whether the first point is the first load of an engine that `matrix` started.
    is_fresh: bool,
    /// The last point that met the SLO with cold caches; before there is one, the first point.
    best: Option<(LoadOutcome, Option<CacheResetRecord>, ClientFacts)>,
    /// From the start of the first point to the end of the last.
    window: Option<MeasuredWindow>,
    reported: Option<ReportedTokens>,
}

impl PointMeasurement for CellPoints<'_, '_> {
    type Measured = LoadOutcome;
    type Failure = CellOutcome;

    fn not_prepared(&mut self, reason: String) -> CellOutcome {
        self.run
            .failed(CellError::Prompts(Phase::Measure, reason), self.ready)
    }

    async fn measure(
        &mut self,
        value: f64,
        mut load: PreparedLoad,
        search: &TieredSearch,
    ) -> Result<PointResult<LoadOutcome>, CellOutcome> {
        let is_first = self.window.is_none();
        if !is_first {
            // If the run was asked to stop, the next load ends immediately.
            let shutdown = self.run.context.stop;
            let _ = shutdown.unless_requested(self.run.reset_caches(self.ready)).await;
        }
        // The same value may be tried twice, so the number of prompts used so far distinguishes points.
        let what = format!("{value} after {}", load.first_prompt);
        let begun = self
            .run
            .with_unique_prefix(&what, load.items, self.workload)
            .await;
        load.items = begun.map_err(|reason| self.not_prepared(reason))?;
        let sent = self.run.send_load(self.ready, load, self.workload, !is_first);
        let mut outcome = match sent.await {
            Ok(outcome) => outcome,
            Err(error) => {
                self.run.summary.search = Some(search.record());
                return Err(self.run.failed(error, self.ready));
            }
        };
        let zero = self.window.map_or(outcome.window.start, |whole| whole.start);
        let whole = MeasuredWindow {
            start: zero,
            ..outcome.window
        };
        self.window = Some(whole);
        if outcome.abort.is_some() {
            self.run.end_phase(Phase::Measure);
            outcome.samples = self.run.cut_samples(self.ready, whole, false).await;
            self.run.summary.search = Some(search.record());
            return Err(self.run.completed(outcome, self.workload).await);
        }
        if let Some(short) = &outcome.ran_out {
            let (unit, says) = (self.search.by.unit(), short.describe("`prompts`"));
            self.run
                .summary
                .warnings
                .push(format!("at {value} {unit} {says}"));
        }
        self.run.count_hits(outcome.telemetry.engine.as_ref());
        Ok(PointResult::Measured(Box::new(MeasuredPoint {
            caches: self.cache_reasons(&outcome, is_first).await,
            metric_inputs: self.metric_inputs.clone(),
            load: outcome,
        })))
    }

    async fn point_judged(
        &mut self,
        judged: JudgedPoint,
        outcome: LoadOutcome,
        _search: &TieredSearch,
    ) -> Result<(), CellOutcome> {
        let JudgedPoint { mut tiers, tier } = judged;
        self.run.observer.event(CellEvent::PointJudged {
            point: &tiers[tier],
            by: self.search.by,
            tier: (tiers.len() > 1).then(|| Tier::all().nth(tier)).flatten(),
            target: self.search.target,
        });
        // Requests and metrics of the cell are those of the first tier.
        let point = tiers.swap_remove(0);
        let mut client = outcome.client;
        // The point itself reports that its rate was not reached.
        if point.judged.unreached.is_some() {
            client.send_lag = None;
        }
        if self.best.is_none() || point.judged.holds && !point.has_warm_cache() {
            let reset = self.run.summary.cache_reset.clone();
            self.run.summary.schedule_hash = Some(point.schedule_hash);
            let before = self.best.replace((outcome, reset, client));
            self.run.other_points.extend(before.map(|(.., client)| client));
        } else {
            self.run.other_points.push(client);
        }
        Ok(())
    }
}

impl CellPoints<'_, '_> {
    /// The evidence that a point's prompts were in the engine's caches.
    async fn cache_reasons(&mut self, outcome: &LoadOutcome, is_first: bool) -> Vec<Reason> {
        let bounds = self.run.context.bounds;
        let prepared = self.workload.prepared.prompts.len();
        // Prompts with a common beginning hit the cache of earlier prompts, whichever point sends them.
        let are_apart = self
            .workload
            .repeated_share
            .is_some_and(|share| share <= bounds.max_cache_hits);
        let are_new = are_apart && outcome.first_prompt + outcome.prompts <= prepared;
        let met = CacheEvidence {
            protocol: self.ready.target.dialect.protocol,
            scenario: &self.run.cell.scenario,
            bounds,
            shared_share: outcome.repeated_share(self.workload).await,
            reset_proof: self.run.summary.cache_reset.as_ref(),
            requests: &outcome.requests,
        };
        let of_point = validity::reported_tokens(&met);
        match &mut self.reported {
            Some(all) => all.add(&of_point),
            none => *none = Some(of_point),
        }
        validity::cache_reasons(&met, self.is_fresh && (is_first || are_new))
    }
}

impl CellRun<'_> {
    /// Measures points until the search ends. Caches are emptied before each point.
    pub(super) async fn search(
        &mut self,
        search: &Search,
        ready: &mut ReadyEngine,
        workload: &Arc<PreparedWorkload>,
    ) -> CellOutcome {
        let (scenario, protocol) = (&self.cell.scenario, ready.target.dialect.protocol);
        let mut points = CellPoints {
            metric_inputs: MetricInputs::from_cell(self.context.launch, self.cell),
            is_fresh: ready.measurement_count == 0 && !self.context.launch.is_attached(),
            run: self,
            ready,
            workload,
            search,
            best: None,
            window: None,
            reported: None,
        };
        let outcome = search::run(search, scenario, workload, protocol, &mut points).await;
        let CellPoints {
            best,
            window: whole,
            reported,
            ..
        } = points;
        let SearchOutcome {
            mut record,
            used_prompts: used,
        } = match outcome {
            Ok(outcome) => outcome,
            Err(failed) => return failed,
        };
        self.end_phase(Phase::Measure);
        let (mut outcome, reset, _) = best.expect("a valid search tries at least one point");
        if let Some(whole) = whole {
            outcome.samples = self.cut_samples(ready, whole, true).await;
        }
        record.reported = reported;
        self.summary.warnings.dedup();
        let prompts = workload.prepared.prompts.len();
        if used > prompts && !self.empties_caches() {
            self.summary.warnings.push(format!(
                "the search sent {used} prompts, but only {prompts} exist: some prompts were sent twice, and the caches were not emptied in between"
            ));
        }
        let slos = scenario.tiers();
        let mut found = Vec::new();
        for ((tier, record), slo) in record.tiers().zip(&slos) {
            if record.capacity.is_none() || record.is_wide() {
                let of_tier = match slos.len() {
                    1 => String::new(),
                    _ => format!("tier {tier} ({slo}): "),
                };
                self.summary
                    .warnings
                    .push(format!("{of_tier}{}", record.describe()));
            }
            let capacity = record.capacity.map(|capacity| capacity.value);
            found.push((Metric::Found(search.by, tier).name(), capacity));
        }
        self.summary.search = Some(record);
        self.summary.cache_reset = reset;
        let mut measured = self.completed(outcome, workload).await;
        let figures = measured.summary.figures.entry(Definitions::Matrix).or_default();
        figures.extend(found);
        measured
    }

    /// Restricts the telemetry to the window of a load and records it in the summary.
    async fn cut_samples(
        &mut self,
        ready: &ReadyEngine,
        span: MeasuredWindow,
        engine_is_healthy: bool,
    ) -> Vec<Sample> {
        let (telemetry, samples) = ready.sampling.sample_after_load(span, engine_is_healthy).await;
        self.summary.telemetry = Some(telemetry);
        samples
    }

    /// Whether each point starts with caches that hold none of its prompts.
    fn empties_caches(&self) -> bool {
        let proof = self.summary.cache_reset.as_ref();
        proof.is_some_and(|proof| {
            let is_new = proof
                .unique_prefix
                .as_ref()
                .is_some_and(|prefix| prefix.kept == 0);
            is_new || (proof.possible && proof.success == Some(true))
        })
    }
}
