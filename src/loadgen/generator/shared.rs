//! State that all threads of a load share.

use std::num::NonZeroUsize;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::cancellation::Cancellations;
use super::concurrency_limit::Slots;
use super::load_spec::{LoadSpec, LoadWatch, PlannedRequest};
use super::progress::Progress;
use super::request_bytes::request_lead;
use crate::config::connections::LoadConnections;
use crate::config::scenario::LoadLimits;
use crate::loadgen::request::Outgoing;
use crate::loadgen::route::Route;
use crate::loadgen::sink::Sink;
use crate::loadgen::spill::Spill;
use crate::loadgen::target::Target;
use crate::results::record::request::Request;

pub(super) struct Shared {
    pub(super) target: Target,
    /// Timeouts, duration and failure limits of the load.
    pub(super) limits: LoadLimits,
    pub(super) connections: LoadConnections,
    pub(super) cancellations: Option<Cancellations>,
    pub(super) body: Map<String, Value>,
    pub(super) stop_at_eos: bool,
    pub(super) route: Route,
    /// The beginnings of requests to each endpoint; requests are encoded with the first.
    leads: Vec<String>,
    pub(super) slots: Option<Arc<Slots>>,
    /// The slots of sessions and conversations that have begun.
    pub(super) session_slots: Option<Arc<Slots>>,
    /// Whether a request is due when a slot is free for it, instead of at its own time.
    pub(super) is_closed_loop: bool,
    pub(super) sink: Option<Sink>,
    pub(super) watch: Option<LoadWatch>,
    pub(super) spill: Option<Arc<Spill>>,
    pub(super) progress: Arc<Progress>,
    pub(super) threads: NonZeroUsize,
}

impl Shared {
    /// Splits a load into the shared state and its requests.
    pub(super) fn new(load: LoadSpec, route: Route, progress: Arc<Progress>) -> (Self, Vec<PlannedRequest>) {
        let records = || load.requests.iter().map(PlannedRequest::rounds).sum();
        let addresses = [&load.target.address].into_iter();
        let addresses = addresses.chain(&load.target.connections.other_addresses);
        let shared = Self {
            cancellations: load.cancel.map(|plan| Cancellations::draw(plan, records())),
            leads: addresses
                .map(|address| request_lead(&load.target, address))
                .collect(),
            connections: load.connections,
            is_closed_loop: load.is_closed_loop(),
            slots: load.concurrency.map(|slots| Slots::new(slots.get() as usize)),
            session_slots: load.sessions.map(|slots| Slots::new(slots.get() as usize)),
            target: load.target,
            limits: load.limits,
            body: load.body,
            stop_at_eos: load.stop_at_eos,
            route,
            sink: load.sink,
            watch: load.watch,
            spill: load.spill,
            progress,
            threads: load.threads,
        };
        (shared, load.requests)
    }

    /// Changes the beginning of an encoded request from one endpoint to another.
    pub(super) fn retarget(&self, request: &mut Outgoing, from: usize, to: usize) {
        if from != to {
            request.replace_beginning(self.leads[from].len(), self.leads[to].as_bytes());
        }
    }

    /// Counts a request that ended, and passes its record to the sink.
    pub(super) fn finish_request(&self, request: &Request) {
        self.progress.count_end(request);
        if let Some(watch) = &self.watch {
            watch.records.push(request);
        }
        if let Some(sink) = &self.sink {
            sink.push(request);
        }
    }
}
