//! Runs the steps of a [`Batch`] in real time.
//!
//! A step begins at the planned end of the previous one, not when that end was noticed, so delays do not add
//! up.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use crate::base::clock;
use crate::sim::batching::{Batch, CacheInUse, CostModel, Submission, TokenEvent};
use crate::sim::engine::Engine;
use crate::sim::metrics::Gauges;
use crate::sim::role::{DisaggregationMode, Role};

/// A message from a connection to the batch.
#[derive(Debug)]
pub(crate) enum BatchCommand {
    /// A request, and the receiver of its tokens.
    Submit(Submission, UnboundedSender<TokenEvent>),
    /// The client has disconnected.
    Abort(u64),
    Flush(oneshot::Sender<Result<(), CacheInUse>>),
}

/// Runs the batch until all senders are dropped or the engine closes.
pub(crate) async fn run_batch(
    cost: CostModel,
    mut commands: UnboundedReceiver<BatchCommand>,
    engine: Arc<Engine>,
) {
    let epoch = clock::now();
    let (kv_tokens, full) = (cost.kv_tokens, cost.max_running);
    let mut batch = Batch::new(cost, engine.options.seed);
    if engine.options.role == Role::Disaggregated(DisaggregationMode::Decode) {
        batch.receive_prompts();
    }
    let mut listeners: HashMap<u64, UnboundedSender<TokenEvent>> = HashMap::new();
    loop {
        while let Ok(command) = commands.try_recv() {
            apply_command(command, &mut batch, &mut listeners, epoch);
        }
        let step = batch.begin_step();
        update_gauges(&mut batch, &engine, kv_tokens);
        engine
            .metrics
            .power
            .set(batch.request_counts().0 as f64 / full as f64);
        let Some(took) = step else {
            let command = tokio::select! {
                command = commands.recv() => command,
                () = engine.closing.cancelled() => None,
            };
            let Some(command) = command else { return };
            batch.advance_clock(clock::now().since(epoch));
            apply_command(command, &mut batch, &mut listeners, epoch);
            continue;
        };
        tokio::select! {
            () = engine.timer.sleep_until(epoch.plus(batch.clock() + took)) => {}
            () = engine.closing.cancelled() => return,
        }
        if engine.stalled.is_cancelled() {
            // The step never ends.
            return engine.closing.cancelled().await;
        }
        for emission in batch.finish_step() {
            let (id, is_last) = (emission.id, emission.is_last);
            let is_heard = listeners
                .get(&id)
                .is_some_and(|listener| listener.send(emission).is_ok());
            if is_last || !is_heard {
                listeners.remove(&id);
            }
            if !is_last && !is_heard {
                batch.abort(id);
            }
        }
    }
}

fn apply_command(
    command: BatchCommand,
    batch: &mut Batch,
    listeners: &mut HashMap<u64, UnboundedSender<TokenEvent>>,
    epoch: clock::MonotonicTime,
) {
    match command {
        BatchCommand::Submit(submission, listener) => {
            listeners.insert(submission.id, listener);
            batch.submit(submission, clock::now().since(epoch));
        }
        BatchCommand::Abort(id) => {
            listeners.remove(&id);
            batch.abort(id);
        }
        BatchCommand::Flush(answer) => {
            // The connection may have ended meanwhile.
            let _ = answer.send(batch.flush());
        }
    }
}

fn update_gauges(batch: &mut Batch, engine: &Engine, kv_tokens: usize) {
    for time in batch.take_queue_times() {
        engine.metrics.queue.observe(time);
    }
    let (running, waiting) = batch.request_counts();
    *engine
        .metrics
        .gauges
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = Gauges {
        running,
        waiting,
        kv_usage: batch.kv_usage(),
        kv_tokens,
        totals: batch.totals(),
    };
}
