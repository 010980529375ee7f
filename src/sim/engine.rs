//! State that all connections share: options, counters, the channel to the batch, and how the engine ends.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use crate::base::clock::{self, MonotonicTime};
use crate::sim::dialect::FinishReason;
use crate::sim::faults::DieAfter;
use crate::sim::metrics::Metrics;
use crate::sim::options::Options;
use crate::sim::rng::{Rng, mix};
use crate::sim::role::Role;
use crate::sim::router::Router;
use crate::sim::scheduler::BatchCommand;
use crate::sim::timer::PreciseTimer;

/// A running simulated engine.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) options: Options,
    pub(crate) metrics: Metrics,
    pub(crate) timer: PreciseTimer,
    /// Sends orders to the batch; `None` if the timing is not batched. Unbounded, because `Drop` of a request
    /// in flight must be able to send without waiting.
    pub(crate) batch_commands: Option<UnboundedSender<BatchCommand>>,
    pub(crate) is_ready: AtomicBool,
    /// The servers behind it, if it is a router.
    pub(crate) router: Option<Router>,
    /// Number of ranks that have not joined this head.
    pub(crate) missing_ranks: AtomicUsize,
    /// Number of generation requests received.
    pub(crate) requests: AtomicU64,
    ended_requests: AtomicU64,
    /// Number of answers with a structure.
    structured: AtomicU64,
    /// Cancelled when a fault ends the engine; connections are reset.
    pub(crate) died: CancellationToken,
    pub(crate) closing: CancellationToken,
    /// Cancelled when the engine waits for a lost rank for ever: no token is generated any more.
    pub(crate) stalled: CancellationToken,
    /// Cancelled when the engine stops listening.
    pub(crate) refusing: CancellationToken,
    /// A JSON line per finished request. The lock is taken once per request, which costs little.
    truth: Mutex<Vec<String>>,
}

impl Engine {
    pub(crate) fn new(
        options: Options,
        commands: Option<UnboundedSender<BatchCommand>>,
    ) -> std::io::Result<Self> {
        let router = match &options.role {
            Role::Router(targets) => Some(Router::new(targets)),
            Role::Engine | Role::Disaggregated(_) => None,
        };
        Ok(Self {
            options,
            router,
            missing_ranks: AtomicUsize::new(0),
            metrics: Metrics::default(),
            timer: PreciseTimer::start()?,
            batch_commands: commands,
            is_ready: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            ended_requests: AtomicU64::new(0),
            structured: AtomicU64::new(0),
            died: CancellationToken::new(),
            closing: CancellationToken::new(),
            stalled: CancellationToken::new(),
            refusing: CancellationToken::new(),
            truth: Mutex::new(Vec::new()),
        })
    }

    /// Counts a generation request and returns its number.
    pub(crate) fn next_number(&self) -> u64 {
        let number = self.requests.fetch_add(1, Relaxed) + 1;
        if self.options.faults.refuses_at(number) {
            self.refusing.cancel();
        }
        number
    }

    /// Counts an answer with a structure. Returns which wrong answer it is; `None` if it is correct.
    ///
    /// Answers to items of graded tasks are drawn, because a client that sends tasks in turns would find each n-th answer
    /// wrong in one task alone.
    pub(crate) fn next_wrong_answer(&self, is_solution: bool) -> Option<u64> {
        let nth = self.structured.fetch_add(1, Relaxed);
        if is_solution {
            let share = self.options.faults.wrong_answers?;
            let drawn = Rng::new(self.options.seed, mix(nth)).next_unit();
            return (drawn < share).then_some(nth);
        }
        self.options.faults.wrong_answer(nth)
    }

    /// The token from which on the answer of request `number` has other words; `None` if it has the usual ones. Each
    /// process draws others, as the batches of two starts differ.
    pub(crate) fn varied_from(&self, number: u64, tokens: u64) -> Option<u64> {
        let share = self.options.faults.varied_answers?;
        let process = u64::from(std::process::id()) << 32;
        let mut draws = Rng::new(self.options.seed, mix(number ^ process));
        (draws.next_unit() < share).then(|| draws.below(tokens.max(1)))
    }

    /// Whether requests that arrive now are not answered.
    pub(crate) fn is_hanging(&self) -> bool {
        self.options.faults.hangs_at(self.requests.load(Relaxed))
    }

    /// Never returns if the engine has stalled.
    pub(crate) async fn wait_if_stalled(&self) {
        if self.stalled.is_cancelled() {
            std::future::pending().await
        }
    }

    /// Without batching, sets the power as if 256 requests in flight were a full batch.
    fn set_unbatched_power(&self) {
        if self.batch_commands.is_none() {
            self.metrics
                .power
                .set(self.metrics.in_flight.load(Relaxed) as f64 / 256.0);
        }
    }

    pub(crate) fn truth(&self) -> String {
        let lines = self.truth.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
    }

    pub(crate) fn clear_truth(&self) {
        self.truth.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// A generation request from its acceptance to its end. Drop counts it, however it ends.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    engine: Arc<Engine>,
    /// The client's request id, or the number.
    id: String,
    number: u64,
    prompt: usize,
    arrived_at: MonotonicTime,
    arrived_unix_s: f64,
    first_write: Option<MonotonicTime>,
    last_write: MonotonicTime,
    tokens: usize,
    writes_ns: Vec<u64>,
    finish: Option<FinishReason>,
}

impl ActiveRequest {
    pub(crate) fn start(
        engine: &Arc<Engine>,
        id: Option<&str>,
        number: u64,
        prompt: usize,
        arrived: MonotonicTime,
    ) -> Self {
        engine.metrics.in_flight.fetch_add(1, Relaxed);
        engine.set_unbatched_power();
        Self {
            engine: Arc::clone(engine),
            id: id.map_or_else(|| number.to_string(), str::to_owned),
            number,
            prompt,
            arrived_at: arrived,
            arrived_unix_s: clock::unix_seconds() - clock::now().since(arrived).as_secs_f64(),
            first_write: None,
            last_write: arrived,
            tokens: 0,
            writes_ns: Vec::new(),
            finish: None,
        }
    }

    /// Counts tokens that are about to be written.
    pub(crate) fn count_write(&mut self, tokens: usize) {
        let now = clock::now();
        let metrics = &self.engine.metrics;
        if self.first_write.is_none() {
            metrics.prompt_tokens.fetch_add(self.prompt as u64, Relaxed);
            metrics.ttft.observe(now.since(self.arrived_at));
            self.first_write = Some(now);
        } else {
            let gap = now.since(self.last_write) / u32::try_from(tokens.max(1)).unwrap_or(u32::MAX);
            (0..tokens).for_each(|_| metrics.itl.observe(gap));
        }
        self.last_write = now;
        self.tokens += tokens;
        if self.engine.options.truth {
            self.writes_ns
                .push(u64::try_from(now.since(self.arrived_at).as_nanos()).unwrap_or(u64::MAX));
        }
        metrics.generation_tokens.fetch_add(tokens as u64, Relaxed);
    }

    /// Ends the engine if as many tokens were written as [`DieAfter::Tokens`] allows.
    pub(crate) fn check_die_after(&self) {
        if let Some(DieAfter::Tokens(limit)) = self.engine.options.faults.die_after
            && self.engine.metrics.generation_tokens.load(Relaxed) >= limit
        {
            self.engine.died.cancel();
        }
    }

    /// Marks the request as complete: all its tokens were written.
    pub(crate) fn finish(mut self, finish: FinishReason) {
        self.finish = Some(finish);
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let metrics = &self.engine.metrics;
        metrics.in_flight.fetch_sub(1, Relaxed);
        self.engine.set_unbatched_power();
        let count = match self.finish {
            Some(FinishReason::Length) => &metrics.finished_by_length,
            Some(FinishReason::Stop | FinishReason::ToolCalls) => &metrics.finished_by_stop,
            None => &metrics.aborted,
        };
        count.fetch_add(1, Relaxed);
        if self.finish.is_some() {
            metrics.e2e.observe(self.last_write.since(self.arrived_at));
        }
        if self.engine.options.truth {
            let micros = |time: Duration| time.as_nanos() as f64 / 1000.0;
            let line = json!({
                "id": self.id, "number": self.number, "first_byte_unix_s": self.arrived_unix_s,
                "ttft_us": self.first_write.map(|first| micros(first.since(self.arrived_at))),
                "e2e_us": micros(self.last_write.since(self.arrived_at)), "prompt_tokens": self.prompt, "tokens": self.tokens,
                "is_finished": self.finish.is_some(),
                "writes_us": self.writes_ns.iter().map(|ns| *ns as f64 / 1000.0).collect::<Vec<_>>(),
            });
            self.engine
                .truth
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(line.to_string());
        }
        let ended = self.engine.ended_requests.fetch_add(1, Relaxed) + 1;
        if let Some(DieAfter::Requests(limit)) = self.engine.options.faults.die_after
            && ended >= limit
        {
            self.engine.died.cancel();
        }
    }
}
