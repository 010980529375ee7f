//! State that all connections share: options, counters, the channel to the batch, and how the engine ends.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use crate::base::clock::{self, Moment};
use crate::sim::dialect::Finish;
use crate::sim::faults::DieAfter;
use crate::sim::metrics::Metrics;
use crate::sim::options::Options;
use crate::sim::scheduler::Order;
use crate::sim::timer::Metronome;

/// A running simulated engine.
#[derive(Debug)]
pub(crate) struct Engine {
    pub options: Options,
    pub metrics: Metrics,
    pub metronome: Metronome,
    /// Sends orders to the batch; `None` if the timing is not batched. Unbounded, because `Drop` of a request
    /// in flight must be able to send without waiting.
    pub orders: Option<UnboundedSender<Order>>,
    pub is_ready: AtomicBool,
    /// Number of generation requests received.
    pub requests: AtomicU64,
    ended: AtomicU64,
    /// Cancelled when a fault ends the engine; connections are reset.
    pub dead: CancellationToken,
    pub closing: CancellationToken,
    /// Cancelled when the engine stops listening.
    pub refusing: CancellationToken,
    /// A JSON line per finished request. The lock is taken once per request, which costs little.
    truth: Mutex<Vec<String>>,
}

impl Engine {
    pub(crate) fn new(options: Options, orders: Option<UnboundedSender<Order>>) -> std::io::Result<Self> {
        Ok(Self {
            options,
            metrics: Metrics::default(),
            metronome: Metronome::start()?,
            orders,
            is_ready: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            dead: CancellationToken::new(),
            closing: CancellationToken::new(),
            refusing: CancellationToken::new(),
            truth: Mutex::new(Vec::new()),
        })
    }

    /// Counts a generation request and returns its number.
    pub(crate) fn number(&self) -> u64 {
        let number = self.requests.fetch_add(1, Relaxed) + 1;
        if self.options.faults.refuses_at(number) {
            self.refusing.cancel();
        }
        number
    }

    /// Whether requests that arrive now are not answered.
    pub(crate) fn hangs(&self) -> bool {
        self.options.faults.hangs_at(self.requests.load(Relaxed))
    }

    /// Without batching, sets the power as if 256 requests in flight were a full batch.
    fn unbatched(&self) {
        if self.orders.is_none() {
            self.metrics
                .power
                .set(self.metrics.in_flight.load(Relaxed) as f64 / 256.0);
        }
    }

    pub(crate) fn truth(&self) -> String {
        let lines = self.truth.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
    }

    pub(crate) fn forget_truth(&self) {
        self.truth.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// A generation request from its acceptance to its end. Drop counts it, however it ends.
#[derive(Debug)]
pub(crate) struct Exchange {
    engine: Arc<Engine>,
    /// The client's request id, or the number.
    id: String,
    number: u64,
    prompt: usize,
    arrived: Moment,
    arrived_unix_s: f64,
    first: Option<Moment>,
    last: Moment,
    tokens: usize,
    writes_ns: Vec<u64>,
    finish: Option<Finish>,
}

impl Exchange {
    pub(crate) fn begin(
        engine: &Arc<Engine>,
        id: Option<&str>,
        number: u64,
        prompt: usize,
        arrived: Moment,
    ) -> Self {
        engine.metrics.in_flight.fetch_add(1, Relaxed);
        engine.unbatched();
        Self {
            engine: Arc::clone(engine),
            id: id.map_or_else(|| number.to_string(), str::to_owned),
            number,
            prompt,
            arrived,
            arrived_unix_s: clock::unix_seconds() - clock::now().since(arrived).as_secs_f64(),
            first: None,
            last: arrived,
            tokens: 0,
            writes_ns: Vec::new(),
            finish: None,
        }
    }

    /// Counts tokens that are about to be written.
    pub(crate) fn write(&mut self, tokens: usize) {
        let now = clock::now();
        let metrics = &self.engine.metrics;
        if self.first.is_none() {
            metrics.prompt_tokens.fetch_add(self.prompt as u64, Relaxed);
            metrics.ttft.observe(now.since(self.arrived));
            self.first = Some(now);
        } else {
            let gap = now.since(self.last) / u32::try_from(tokens.max(1)).unwrap_or(u32::MAX);
            (0..tokens).for_each(|_| metrics.itl.observe(gap));
        }
        self.last = now;
        self.tokens += tokens;
        if self.engine.options.truth {
            self.writes_ns
                .push(u64::try_from(now.since(self.arrived).as_nanos()).unwrap_or(u64::MAX));
        }
        metrics.generation_tokens.fetch_add(tokens as u64, Relaxed);
    }

    /// Ends the engine if as many tokens were written as [`DieAfter::Tokens`] allows.
    pub(crate) fn may_kill(&self) {
        if let Some(DieAfter::Tokens(limit)) = self.engine.options.faults.die_after
            && self.engine.metrics.generation_tokens.load(Relaxed) >= limit
        {
            self.engine.dead.cancel();
        }
    }

    /// Marks the request as complete: all its tokens were written.
    pub(crate) fn finish(mut self, finish: Finish) {
        self.finish = Some(finish);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let metrics = &self.engine.metrics;
        metrics.in_flight.fetch_sub(1, Relaxed);
        self.engine.unbatched();
        let count = match self.finish {
            Some(Finish::Length) => &metrics.finished,
            Some(Finish::Stop) => &metrics.stopped,
            None => &metrics.aborted,
        };
        count.fetch_add(1, Relaxed);
        if self.finish.is_some() {
            metrics.e2e.observe(self.last.since(self.arrived));
        }
        if self.engine.options.truth {
            let micros = |time: Duration| time.as_nanos() as f64 / 1000.0;
            let line = json!({
                "id": self.id, "number": self.number, "first_byte_unix_s": self.arrived_unix_s,
                "ttft_us": self.first.map(|first| micros(first.since(self.arrived))),
                "e2e_us": micros(self.last.since(self.arrived)), "prompt_tokens": self.prompt, "tokens": self.tokens,
                "is_finished": self.finish.is_some(),
                "writes_us": self.writes_ns.iter().map(|ns| *ns as f64 / 1000.0).collect::<Vec<_>>(),
            });
            self.engine
                .truth
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(line.to_string());
        }
        let ended = self.engine.ended.fetch_add(1, Relaxed) + 1;
        if let Some(DieAfter::Requests(limit)) = self.engine.options.faults.die_after
            && ended >= limit
        {
            self.engine.dead.cancel();
        }
    }
}
