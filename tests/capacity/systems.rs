//! The simulated systems: queues, and the simulated engine with its own clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::probe_test::ProbeOutcome;
use crate::sim::batching::{Batch, CostModel, Submission};
use crate::sim::rng::Rng;

/// A system whose requests arrive at random at a rate.
#[derive(Clone, Copy, Debug)]
pub enum System {
    /// First come, first served, by this many servers with a mean service time of 1.
    Queue(usize, Service),
    /// The continuous batching of `matrix sim`.
    Engine,
}

#[derive(Clone, Copy, Debug)]
pub enum Service {
    Exponential,
    /// With this standard deviation of the logarithm.
    LogNormal(f64),
    /// One in ten takes eleven times as long as the others.
    Hyperexponential,
}

/// The requests of one probe, from an empty system on: the time that each takes, and how many were under way when it came.
pub enum Probe {
    Queue(QueueProbe),
    Engine(Box<EngineProbe>),
}

impl System {
    /// Starts a probe at a rate. `speed` is 1 for an engine as fast as usual.
    pub fn probe(self, rate: f64, speed: f64, seed: u64) -> Probe {
        let rng = Rng::new(seed, 0xca9);
        match self {
            Self::Queue(servers, service) => Probe::Queue(QueueProbe {
                free: vec![0.0; servers],
                leaving: BinaryHeap::new(),
                now: 0.0,
                rate,
                service,
                speed,
                rng,
            }),
            Self::Engine => Probe::Engine(Box::new(EngineProbe::new(rate, speed, seed, rng))),
        }
    }
}

impl Probe {
    pub fn next(&mut self, limit: f64) -> ProbeOutcome {
        let (took, in_flight) = match self {
            Self::Queue(queue) => queue.next(),
            Self::Engine(engine) => engine.next(),
        };
        ProbeOutcome {
            severity: took / limit,
            in_flight,
        }
    }
}

fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.next_unit()).ln()
}

fn normal(rng: &mut Rng) -> f64 {
    (2.0 * exponential(rng)).sqrt() * (std::f64::consts::TAU * rng.next_unit()).cos()
}

pub struct QueueProbe {
    free: Vec<f64>,
    /// Bits of positive times, which are ordered like the times.
    leaving: BinaryHeap<Reverse<u64>>,
    now: f64,
    rate: f64,
    service: Service,
    speed: f64,
    rng: Rng,
}

impl QueueProbe {
    fn next(&mut self) -> (f64, f64) {
        self.now += exponential(&mut self.rng) / self.rate;
        let service = match self.service {
            Service::Exponential => exponential(&mut self.rng),
            Service::LogNormal(sigma) => (sigma * normal(&mut self.rng) - sigma * sigma / 2.0).exp(),
            Service::Hyperexponential => {
                let mean = if self.rng.next_unit() < 0.9 { 0.5 } else { 5.5 };
                mean * exponential(&mut self.rng)
            }
        };
        let first = self.free.iter_mut().min_by(|one, other| one.total_cmp(other));
        let first = first.expect("there are servers");
        let end = first.max(self.now) + service / self.speed;
        *first = end;
        while self.leaving.peek().is_some_and(|at| f64::from_bits(at.0) <= self.now) {
            self.leaving.pop();
        }
        let in_flight = self.leaving.len() as f64;
        self.leaving.push(Reverse(end.to_bits()));
        (end - self.now, in_flight)
    }
}

/// Requests of 8 to 56 prompt tokens and 1 to 15 output tokens; the time to the first token counts.
pub struct EngineProbe {
    batch: Batch,
    clock: f64,
    /// When the step in progress ends.
    step_end: Option<f64>,
    next_arrival: f64,
    rate: f64,
    speed: f64,
    rng: Rng,
    /// By id: when it came, how many were under way, and its time to the first token.
    requests: Vec<(f64, f64, Option<f64>)>,
    under_way: usize,
    returned: usize,
}

impl EngineProbe {
    fn new(rate: f64, speed: f64, seed: u64, mut rng: Rng) -> Self {
        let cost = CostModel {
            step: Duration::from_millis(10),
            per_sequence: Duration::from_micros(500),
            per_thousand_context: Duration::from_micros(200),
            prefill_rate: 4000.0,
            step_tokens: 512,
            kv_tokens: 4096,
            block_tokens: 16,
            max_running: 16,
            prefix_cache: false,
            jitter: 0.1,
            chunked_prefill: true,
            graph_sequences: usize::MAX,
            eager_step: Duration::ZERO,
        };
        Self {
            batch: Batch::new(cost, seed),
            clock: 0.0,
            step_end: None,
            next_arrival: exponential(&mut rng) / rate,
            rate,
            speed,
            rng,
            requests: Vec::new(),
            under_way: 0,
            returned: 0,
        }
    }

    fn next(&mut self) -> (f64, f64) {
        loop {
            if let Some((_, in_flight, Some(took))) = self.requests.get(self.returned) {
                self.returned += 1;
                return (*took, *in_flight);
            }
            self.advance();
        }
    }

    /// Goes on to the next arrival or end of a step.
    fn advance(&mut self) {
        match self.step_end {
            Some(end) if end <= self.next_arrival => {
                self.clock = end;
                for token in self.batch.finish_step() {
                    let (came, _, took) = &mut self.requests[token.id as usize];
                    if token.index == 0 {
                        *took = Some(end - *came);
                    }
                    self.under_way -= usize::from(token.is_last);
                }
                self.step_end = None;
            }
            _ => {
                self.clock = self.next_arrival;
                self.next_arrival += exponential(&mut self.rng) / self.rate;
                let id = self.requests.len() as u64;
                let prompt = 8 + self.rng.below(49);
                let output = 1 + self.rng.below(15) as usize;
                let submission = Submission {
                    id,
                    prompt: (0..prompt).map(|place| id << 8 | place).collect(),
                    output,
                    key: id,
                };
                self.requests.push((self.clock, self.under_way as f64, None));
                self.under_way += 1;
                self.batch.submit(submission, Duration::from_secs_f64(self.clock));
            }
        }
        if self.step_end.is_none() {
            let step = self.batch.begin_step();
            self.step_end = step.map(|step| self.clock + step.as_secs_f64() / self.speed);
        }
    }
}
