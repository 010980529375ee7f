//! Continuous batching with a cost model, as a state machine with its own clock.
//!
//! Each step computes one token for every decoding sequence. The rest of the step's token budget goes to
//! prompts, in pieces (chunked prefill), first come first served. Without chunked prefill a step computes either
//! whole prompts, which come first, or one token for every sequence. When the KV cache is full, the sequence
//! admitted last loses its blocks and is computed again later (preemption by recompute). Full blocks of
//! prompts and answers are reused by the hash of all tokens up to their end (prefix cache).
//!
//! The [`CostModel`] gives the duration of a step. This module neither waits nor reads a clock: the caller
//! calls [`Batch::begin_step`], lets the step's time pass, and calls [`Batch::finish_step`].

use std::time::Duration;

mod blocks;
mod sequence;
#[cfg(test)]
mod tests;
mod waiting;

use blocks::Blocks;
use sequence::Sequence;
pub(crate) use sequence::Submission;
use waiting::Waiting;

use crate::sim::rng::Rng;

/// Duration of a step, and capacity of the simulated engine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CostModel {
    /// Fixed time of every step: reading the weights.
    pub(crate) step: Duration,
    /// Additional time for each decoding sequence.
    pub(crate) per_sequence: Duration,
    /// Additional time for each thousand tokens of context of the decoding sequences.
    pub(crate) per_thousand_context: Duration,
    /// Prompt tokens computed per second, in addition to the other times; above 0.
    pub(crate) prefill_rate: f64,
    /// Maximum number of tokens in one step, prompt and decode together.
    pub(crate) step_tokens: usize,
    /// Capacity of the KV cache in tokens.
    pub(crate) kv_tokens: usize,
    /// Tokens per block of the KV cache.
    pub(crate) block_tokens: usize,
    /// Maximum number of running sequences.
    pub(crate) max_running: usize,
    /// Whether later requests reuse full blocks.
    pub(crate) prefix_cache: bool,
    /// Uniform relative variation of a step's time in both directions; 0 for none, below 1.
    pub(crate) jitter: f64,
    /// Whether prompts are computed in pieces, together with tokens of running sequences.
    pub(crate) chunked_prefill: bool,
    /// Maximum number of sequences of a step that runs as a captured graph. Steps with more of them are launched
    /// operation by operation; 0 if there are no graphs.
    pub(crate) graph_sequences: usize,
    /// Additional time of a step that does not run as a graph.
    pub(crate) eager_step: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenEvent {
    pub(crate) id: u64,
    /// Index in the answer, from 0.
    pub(crate) index: usize,
    pub(crate) cached: usize,
    pub(crate) is_last: bool,
}

/// Counters since the batch was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Prompt tokens of admitted requests, counted once per request.
    pub(crate) prompt_tokens: u64,
    /// Prompt tokens that were looked up in the prefix cache.
    pub(crate) prefix_queries: u64,
    /// Prompt tokens found in the prefix cache.
    pub(crate) prefix_hits: u64,
    pub(crate) preemptions: u64,
}

/// The prefix cache cannot be emptied while requests run or wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheInUse;

#[derive(Debug)]
struct Step {
    /// Tokens computed for each running sequence, in the order of `running`.
    tokens: Vec<usize>,
    duration: Duration,
}

#[derive(Debug)]
pub(crate) struct Batch {
    cost: CostModel,
    blocks: Blocks,
    waiting: Waiting,
    running: Vec<Sequence>,
    step: Option<Step>,
    totals: Totals,
    queue_times: Vec<Duration>,
    clock: Duration,
    rng: Rng,
    /// Whether other servers compute the prompts.
    receives_prompts: bool,
}

impl Batch {
    pub(crate) fn new(cost: CostModel, seed: u64) -> Self {
        Self {
            blocks: Blocks::new(cost.kv_tokens / cost.block_tokens),
            cost,
            waiting: Waiting::default(),
            running: Vec::new(),
            step: None,
            totals: Totals::default(),
            queue_times: Vec::new(),
            clock: Duration::ZERO,
            rng: Rng::new(seed, 0x57e9),
            receives_prompts: false,
        }
    }

    /// From now on, the KV cache of each prompt arrives with its request, except that of the last token, which is
    /// computed with the first token of the output. A preempted request is computed again here.
    pub(crate) fn receive_prompts(&mut self) {
        self.receives_prompts = true;
    }

    /// Queues a request that arrived at `now` on the batch's clock. Prompt and answer together must fit in
    /// the KV cache, otherwise the request would wait forever.
    pub(crate) fn submit(&mut self, submission: Submission, now: Duration) {
        debug_assert!(submission.output > 0 && !submission.prompt.is_empty());
        debug_assert!(submission.prompt.len() + submission.output <= self.cost.kv_tokens);
        self.waiting
            .push_back(Sequence::new(submission, self.cost.block_tokens, now));
    }

    /// Removes a request whose client has disconnected. Unknown ids are ignored.
    pub(crate) fn abort(&mut self, id: u64) {
        self.waiting.remove(id);
        if let Some(at) = self.running.iter().position(|sequence| sequence.id == id) {
            let mut sequence = self.running.remove(at);
            self.release_blocks(&mut sequence);
            if let Some(step) = &mut self.step
                && at < step.tokens.len()
            {
                step.tokens.remove(at);
            }
        }
    }

    /// Begins the next step and returns its duration; `None` if there is nothing to compute.
    pub(crate) fn begin_step(&mut self) -> Option<Duration> {
        debug_assert!(
            self.step.is_none(),
            "a step must be finished before the next step begins"
        );
        let shares = if self.cost.chunked_prefill {
            self.schedule_together()
        } else {
            self.schedule_prompts_first()
        };
        if shares.iter().all(|share| *share == 0) {
            return None;
        }
        let duration = self.step_duration(&shares);
        self.step = Some(Step {
            tokens: shares,
            duration,
        });
        Some(duration)
    }

    /// Ends the step in progress and returns its tokens in order of admission.
    pub(crate) fn finish_step(&mut self) -> Vec<TokenEvent> {
        let Some(step) = self.step.take() else {
            return Vec::new();
        };
        self.clock += step.duration;
        let block = self.cost.block_tokens;
        let mut emissions = Vec::with_capacity(step.tokens.len());
        let mut done = Vec::new();
        for (at, share) in step.tokens.into_iter().enumerate() {
            let sequence = &mut self.running[at];
            sequence.computed += share;
            if self.cost.prefix_cache {
                for hash in &sequence.hashes[sequence.sealed..sequence.computed / block] {
                    self.blocks.seal(*hash);
                    sequence.private -= 1;
                }
                sequence.sealed = sequence.computed / block;
            }
            if share == 0 || sequence.uncomputed_tokens() > 0 {
                continue;
            }
            sequence.generate(block);
            let is_last = sequence.generated == sequence.output;
            emissions.push(TokenEvent {
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
            self.release_blocks(&mut sequence);
        }
        emissions
    }

    /// Empties the prefix cache. Fails while any request waits or runs.
    pub(crate) fn flush(&mut self) -> Result<(), CacheInUse> {
        if !self.running.is_empty() || !self.waiting.is_empty() {
            return Err(CacheInUse);
        }
        self.blocks.evict_all();
        Ok(())
    }

    /// Number of running and of waiting requests.
    pub(crate) fn request_counts(&self) -> (usize, usize) {
        (self.running.len(), self.waiting.len())
    }

    /// Fraction of the KV cache in use, from 0 to 1.
    pub(crate) fn kv_usage(&self) -> f64 {
        self.blocks.in_use() as f64 / (self.blocks.in_use() + self.blocks.available()).max(1) as f64
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// Queue times of the requests admitted since the last call.
    pub(crate) fn take_queue_times(&mut self) -> Vec<Duration> {
        std::mem::take(&mut self.queue_times)
    }

    /// Time since the batch was created, including idle time.
    pub(crate) fn clock(&self) -> Duration {
        self.clock
    }

    /// Advances the clock over idle time.
    pub(crate) fn advance_clock(&mut self, until: Duration) {
        self.clock = self.clock.max(until);
    }

    /// Tokens of running sequences, and pieces of prompts in the rest of the step.
    fn schedule_together(&mut self) -> Vec<usize> {
        let mut budget = self.cost.step_tokens;
        let preempted = self.totals.preemptions;
        let mut shares = self.continue_running(&mut budget);
        // A sequence that was just preempted must not be admitted in the same step.
        if self.totals.preemptions == preempted {
            self.admit(&mut budget, &mut shares);
        }
        shares
    }

    /// Whole prompts while any fits, and tokens of running sequences otherwise.
    fn schedule_prompts_first(&mut self) -> Vec<usize> {
        let mut budget = self.cost.step_tokens;
        let mut shares = vec![0; self.running.len()];
        self.admit(&mut budget, &mut shares);
        if shares.iter().any(|share| *share > 0) {
            return shares;
        }
        self.continue_running(&mut budget)
    }

    /// Gives every running sequence its tokens, first come first served. If the KV cache is full, the
    /// sequence admitted last is preempted.
    fn continue_running(&mut self, budget: &mut usize) -> Vec<usize> {
        let mut shares: Vec<usize> = Vec::with_capacity(self.running.len());
        let mut at = 0;
        while at < self.running.len() {
            let share = self.running[at].uncomputed_tokens().min(*budget);
            let blocks = self.missing_blocks(&self.running[at], share);
            if self.blocks.allocate(blocks) {
                self.running[at].private += blocks;
                *budget -= share;
                shares.push(share);
                at += 1;
                continue;
            }
            let mut victim = self.running.pop().expect("the sequence at hand runs");
            self.release_blocks(&mut victim);
            self.totals.preemptions += 1;
            self.waiting.push_front(victim);
        }
        shares
    }

    fn admit(&mut self, budget: &mut usize, shares: &mut Vec<usize>) {
        while *budget > 0 && self.running.len() < self.cost.max_running {
            let Some(next) = self.waiting.front() else { return };
            let cached_blocks = if self.cost.prefix_cache {
                let reusable = next.reusable(self.cost.block_tokens);
                self.blocks.cached_prefix_len(reusable)
            } else {
                0
            };
            let cached = cached_blocks * self.cost.block_tokens;
            let is_received = self.receives_prompts && next.cached.is_none();
            let computed = if is_received {
                next.known_tokens() - 1
            } else {
                cached
            };
            let uncomputed = next.known_tokens() - computed;
            // A prompt that is longer than a step has a step of its own.
            if !self.cost.chunked_prefill && uncomputed > *budget && *budget < self.cost.step_tokens {
                return;
            }
            let share = if self.cost.chunked_prefill {
                uncomputed.min(*budget)
            } else {
                uncomputed
            };
            let fresh = (computed + share).div_ceil(self.cost.block_tokens) - cached_blocks;
            if fresh + self.blocks.unused_prefix_len(&next.hashes[..cached_blocks]) > self.blocks.available()
            {
                return;
            }
            let mut sequence = self.waiting.pop_front().expect("the front was just seen");
            self.blocks.acquire(&sequence.hashes[..cached_blocks]);
            assert!(
                self.blocks.allocate(fresh),
                "enough blocks must be free, because they were counted just before"
            );
            (sequence.sealed, sequence.private, sequence.computed) = (cached_blocks, fresh, computed);
            sequence.is_received = is_received;
            *budget = budget.saturating_sub(share);
            shares.push(share);
            self.count_admission(&mut sequence, cached);
            self.running.push(sequence);
        }
    }

    fn count_admission(&mut self, sequence: &mut Sequence, cached: usize) {
        if sequence.cached.is_some() {
            return;
        }
        sequence.cached = Some(cached);
        self.totals.prompt_tokens += sequence.prompt as u64;
        if self.cost.prefix_cache {
            self.totals.prefix_queries += sequence.prompt as u64;
            self.totals.prefix_hits += cached as u64;
        }
        self.queue_times
            .push(self.clock.saturating_sub(sequence.submitted));
    }

    fn missing_blocks(&self, sequence: &Sequence, share: usize) -> usize {
        let needed = (sequence.computed + share).div_ceil(self.cost.block_tokens);
        needed.saturating_sub(sequence.sealed + sequence.private)
    }

    fn release_blocks(&mut self, sequence: &mut Sequence) {
        self.blocks
            .release(&sequence.hashes[..sequence.sealed], sequence.private);
        (sequence.sealed, sequence.private, sequence.computed) = (0, 0, 0);
    }

    fn step_duration(&mut self, shares: &[usize]) -> Duration {
        let (mut decoding, mut context, mut prefill) = (0u32, 0usize, 0usize);
        for (sequence, share) in self.running.iter().zip(shares) {
            let is_decoding = sequence.generated > 0 || sequence.is_received;
            if *share == 1 && is_decoding && sequence.uncomputed_tokens() == 1 {
                decoding += 1;
                context += sequence.computed;
            } else {
                prefill += share;
            }
        }
        let sequences = shares.iter().filter(|share| **share > 0).count();
        let eager = if sequences > self.cost.graph_sequences {
            self.cost.eager_step.as_secs_f64()
        } else {
            0.0
        };
        let seconds = self.cost.step.as_secs_f64()
            + eager
            + self.cost.per_sequence.as_secs_f64() * f64::from(decoding)
            + self.cost.per_thousand_context.as_secs_f64() * context as f64 / 1000.0
            + prefill as f64 / self.cost.prefill_rate;
        let factor = if self.cost.jitter > 0.0 {
            self.rng.factor(self.cost.jitter)
        } else {
            1.0
        };
        Duration::from_secs_f64(seconds * factor)
    }
}
