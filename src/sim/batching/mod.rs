//! Continuous batching with a cost model, as a state machine with its own clock.
//!
//! The scheduler is the common one: each step computes one token for every sequence that decodes, and spends what is
//! left of the step's token budget on prompts, in pieces (chunked prefill), first come first served. When the KV
//! cache is full, the sequence admitted last gives up its blocks and is computed anew later (preemption by
//! recompute). Full blocks are found again by the hash of all tokens up to their end (prefix cache), and answers are
//! part of what is found.
//!
//! A step lasts as long as the [`CostModel`] says. This module neither waits nor reads a clock: whoever drives it
//! calls [`Batch::begin`], lets the step's time pass, and calls [`Batch::finish`].

use std::collections::VecDeque;
use std::time::Duration;

mod blocks;
mod sequence;
#[cfg(test)]
mod tests;

use blocks::Blocks;
use sequence::Sequence;
pub(crate) use sequence::Submission;

use crate::sim::rng::Draw;

/// What a step costs, and how much fits.
#[derive(Clone, Debug, PartialEq)]
pub struct CostModel {
    /// What every step takes, however little is in it: reading the weights.
    pub step: Duration,
    /// What each decoding sequence adds to its step.
    pub per_sequence: Duration,
    /// What each thousand tokens of context of the decoding sequences add to their step.
    pub per_thousand_context: Duration,
    /// Prompt tokens computed per second, beside what the step takes anyway; above 0.
    pub prefill_rate: f64,
    /// The most tokens, prompt and decode together, in one step.
    pub step_tokens: usize,
    /// Tokens of KV cache.
    pub kv_tokens: usize,
    /// Tokens in one block of KV cache.
    pub block_tokens: usize,
    /// The most sequences that run at once.
    pub max_running: usize,
    /// Whether full blocks are found again by later requests.
    pub prefix_cache: bool,
    /// By which share a step's time varies to both sides, drawn evenly; 0 for none, below 1.
    pub jitter: f64,
}

/// A token that came out of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Emission {
    /// The request it belongs to.
    pub id: u64,
    /// Its place in the answer, from 0.
    pub index: usize,
    /// Prompt tokens of the request that came from the prefix cache.
    pub cached: usize,
    /// Whether it is the last one.
    pub is_last: bool,
}

/// What a batch has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Prompt tokens computed or found, once per request.
    pub prompt_tokens: u64,
    /// Prompt tokens for which the prefix cache was asked.
    pub prefix_queries: u64,
    /// Prompt tokens that it spared.
    pub prefix_hits: u64,
    /// Sequences that gave up their blocks.
    pub preemptions: u64,
}

/// The cache is in use and cannot be emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

#[derive(Debug)]
struct Step {
    /// Tokens computed for each running sequence, in the order of `running`.
    shares: Vec<usize>,
    took: Duration,
}

/// All requests of one engine, and the step in progress.
#[derive(Debug)]
pub(crate) struct Batch {
    cost: CostModel,
    blocks: Blocks,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    step: Option<Step>,
    totals: Totals,
    queue_times: Vec<Duration>,
    clock: Duration,
    draw: Draw,
}

impl Batch {
    pub(crate) fn new(cost: CostModel, seed: u64) -> Self {
        Self {
            blocks: Blocks::new(cost.kv_tokens / cost.block_tokens),
            cost,
            waiting: VecDeque::new(),
            running: Vec::new(),
            step: None,
            totals: Totals::default(),
            queue_times: Vec::new(),
            clock: Duration::ZERO,
            draw: Draw::new(seed, 0x57e9),
        }
    }

    /// Queues a request that came at `now`, on the batch's own clock. Its prompt and answer together must fit the
    /// cache; else it would wait for ever.
    pub(crate) fn submit(&mut self, submission: Submission, now: Duration) {
        debug_assert!(submission.output > 0 && !submission.prompt.is_empty());
        debug_assert!(submission.prompt.len() + submission.output <= self.cost.kv_tokens);
        self.waiting
            .push_back(Sequence::new(submission, self.cost.block_tokens, now));
    }

    /// Forgets a request whose client has gone; unknown ones are none.
    pub(crate) fn abort(&mut self, id: u64) {
        self.waiting.retain(|sequence| sequence.id != id);
        if let Some(at) = self.running.iter().position(|sequence| sequence.id == id) {
            let mut sequence = self.running.remove(at);
            self.give_back(&mut sequence);
            if let Some(step) = &mut self.step
                && at < step.shares.len()
            {
                step.shares.remove(at);
            }
        }
    }

    /// Begins the next step and says how long it lasts; `None` when there is nothing to do.
    pub(crate) fn begin(&mut self) -> Option<Duration> {
        debug_assert!(
            self.step.is_none(),
            "a step is finished before the next one begins"
        );
        let mut budget = self.cost.step_tokens;
        let preempted = self.totals.preemptions;
        let mut shares = self.continue_running(&mut budget);
        // Whoever just made room must not take it back in the same step.
        if self.totals.preemptions == preempted {
            self.admit(&mut budget, &mut shares);
        }
        if shares.iter().all(|share| *share == 0) {
            return None;
        }
        let took = self.price(&shares);
        self.step = Some(Step { shares, took });
        Some(took)
    }

    /// Ends the step in progress: its time has passed, its tokens come out in the order of admission.
    pub(crate) fn finish(&mut self) -> Vec<Emission> {
        let Some(step) = self.step.take() else {
            return Vec::new();
        };
        self.clock += step.took;
        let block = self.cost.block_tokens;
        let mut emissions = Vec::with_capacity(step.shares.len());
        let mut done = Vec::new();
        for (at, share) in step.shares.into_iter().enumerate() {
            let sequence = &mut self.running[at];
            sequence.computed += share;
            if self.cost.prefix_cache {
                for hash in &sequence.hashes[sequence.sealed..sequence.computed / block] {
                    self.blocks.seal(*hash);
                    sequence.private -= 1;
                }
                sequence.sealed = sequence.computed / block;
            }
            if share == 0 || sequence.owed() > 0 {
                continue;
            }
            sequence.generate(block);
            let is_last = sequence.generated == sequence.output;
            emissions.push(Emission {
                id: sequence.id,
                index: sequence.generated - 1,
                cached: sequence.cached.unwrap_or(0),
                is_last,
            });
            if is_last {
                done.push(at);
            }
        }
        for at in done.into_iter().rev() {
            let mut sequence = self.running.remove(at);
            self.give_back(&mut sequence);
        }
        emissions
    }

    /// Empties the prefix cache; refused while any request waits or runs.
    pub(crate) fn flush(&mut self) -> Result<(), Busy> {
        if !self.running.is_empty() || !self.waiting.is_empty() {
            return Err(Busy);
        }
        self.blocks.forget();
        Ok(())
    }

    /// Requests that run, and that wait.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.running.len(), self.waiting.len())
    }

    /// The share of the KV cache in use, from 0 to 1.
    pub(crate) fn kv_usage(&self) -> f64 {
        self.blocks.in_use() as f64 / (self.blocks.in_use() + self.blocks.available()).max(1) as f64
    }

    /// What has been counted so far.
    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// How long the requests admitted since the last call had waited.
    pub(crate) fn take_queue_times(&mut self) -> Vec<Duration> {
        std::mem::take(&mut self.queue_times)
    }

    /// The time that has passed since the batch was made, steps and rests together.
    pub(crate) fn clock(&self) -> Duration {
        self.clock
    }

    /// Lets time pass in which nothing ran.
    pub(crate) fn rest(&mut self, until: Duration) {
        self.clock = self.clock.max(until);
    }

    /// Gives every running sequence its share, first come first served; the last ones yield when the cache is full.
    fn continue_running(&mut self, budget: &mut usize) -> Vec<usize> {
        let mut shares: Vec<usize> = Vec::with_capacity(self.running.len());
        let mut at = 0;
        while at < self.running.len() {
            let share = self.running[at].owed().min(*budget);
            let blocks = self.missing(&self.running[at], share);
            if self.blocks.take(blocks) {
                self.running[at].private += blocks;
                *budget -= share;
                shares.push(share);
                at += 1;
                continue;
            }
            let mut victim = self.running.pop().expect("the sequence at hand runs");
            self.give_back(&mut victim);
            self.totals.preemptions += 1;
            self.waiting.push_front(victim);
        }
        shares
    }

    fn admit(&mut self, budget: &mut usize, shares: &mut Vec<usize>) {
        while *budget > 0 && self.running.len() < self.cost.max_running {
            let Some(next) = self.waiting.front() else { return };
            let found = if self.cost.prefix_cache {
                let reusable = next.reusable(self.cost.block_tokens);
                self.blocks.known(reusable)
            } else {
                0
            };
            let computed = found * self.cost.block_tokens;
            let share = (next.known() - computed).min(*budget);
            let fresh = (computed + share).div_ceil(self.cost.block_tokens) - found;
            if fresh + self.blocks.unheld(&next.hashes[..found]) > self.blocks.available() {
                return;
            }
            let mut sequence = self.waiting.pop_front().expect("the front was just seen");
            self.blocks.hold(&sequence.hashes[..found]);
            assert!(self.blocks.take(fresh), "the room was just counted");
            (sequence.sealed, sequence.private, sequence.computed) = (found, fresh, computed);
            *budget -= share;
            shares.push(share);
            self.count_admission(&mut sequence, computed);
            self.running.push(sequence);
        }
    }

    fn count_admission(&mut self, sequence: &mut Sequence, computed: usize) {
        if sequence.cached.is_some() {
            return;
        }
        sequence.cached = Some(computed);
        self.totals.prompt_tokens += sequence.prompt as u64;
        if self.cost.prefix_cache {
            self.totals.prefix_queries += sequence.prompt as u64;
            self.totals.prefix_hits += computed as u64;
        }
        self.queue_times
            .push(self.clock.saturating_sub(sequence.submitted));
    }

    fn missing(&self, sequence: &Sequence, share: usize) -> usize {
        let needed = (sequence.computed + share).div_ceil(self.cost.block_tokens);
        needed.saturating_sub(sequence.sealed + sequence.private)
    }

    fn give_back(&mut self, sequence: &mut Sequence) {
        self.blocks
            .release(&sequence.hashes[..sequence.sealed], sequence.private);
        (sequence.sealed, sequence.private, sequence.computed) = (0, 0, 0);
    }

    fn price(&mut self, shares: &[usize]) -> Duration {
        let (mut decoding, mut context, mut prefill) = (0u32, 0usize, 0usize);
        for (sequence, share) in self.running.iter().zip(shares) {
            if *share == 1 && sequence.generated > 0 && sequence.owed() == 1 {
                decoding += 1;
                context += sequence.computed;
            } else {
                prefill += share;
            }
        }
        let seconds = self.cost.step.as_secs_f64()
            + self.cost.per_sequence.as_secs_f64() * f64::from(decoding)
            + self.cost.per_thousand_context.as_secs_f64() * context as f64 / 1000.0
            + prefill as f64 / self.cost.prefill_rate;
        let factor = if self.cost.jitter > 0.0 {
            self.draw.around_one(self.cost.jitter)
        } else {
            1.0
        };
        Duration::from_secs_f64(seconds * factor)
    }
}
