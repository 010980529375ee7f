//! The batching of the simulated engine with the knobs of real engines, under a load of clients that each wait for their
//! answer before they send again.

use std::time::Duration;

use super::surfaces::knob;
use crate::analysis::tune::Space;
use crate::sim::batching::{Batch, CostModel, Submission};
use crate::sim::rng::Rng;

/// A load, and what is counted.
#[derive(Clone, Copy, Debug)]
pub struct EngineCase {
    clients: u64,
    requests: u64,
    /// Smallest and largest number of prompt tokens, and of output tokens.
    prompt: (u64, u64),
    output: (u64, u64),
    /// Only requests within these times count: to the first token, and per output token after it.
    limits: Option<(f64, f64)>,
    gpu_tokens: f64,
}

/// Throughput that the KV cache limits, and goodput under an SLO.
pub const WORKLOADS: [EngineCase; 2] = [
    EngineCase { clients: 96, requests: 288, prompt: (40, 160), output: (16, 64), limits: None, gpu_tokens: 12_000.0 },
    EngineCase { clients: 64, requests: 256, prompt: (20, 200), output: (8, 40), limits: Some((1.5, 0.04)), gpu_tokens: 16_000.0 },
];

const STEP_TOKENS: [usize; 6] = [64, 128, 256, 512, 1024, 2048];
const SEQUENCES: [usize; 6] = [8, 16, 32, 48, 64, 96];
const MEMORY_SHARES: [f64; 6] = [0.7, 0.8, 0.85, 0.9, 0.95, 0.98];
const GRAPHS: [usize; 4] = [0, 16, 48, 96];

/// The longest request, which one step must hold where prompts are not computed in pieces.
const MAX_MODEL_LEN: usize = 256;

impl EngineCase {
    /// The number of different drawn loads.
    pub const VARIANTS: u64 = 3;

    pub fn space(&self) -> Space {
        Space {
            knobs: vec![
                knob("step tokens", true, STEP_TOKENS.len(), 3),
                knob("sequences", true, SEQUENCES.len(), 2),
                knob("chunked prefill", false, 2, 1),
                knob("memory share", true, MEMORY_SHARES.len(), 3),
                knob("graph sequences", true, GRAPHS.len(), 1),
            ],
        }
    }

    /// The costs of a configuration; `None` if it does not start.
    fn cost(&self, point: &[usize]) -> Option<CostModel> {
        let (share, graphs) = (MEMORY_SHARES[point[3]], GRAPHS[point[4]]);
        // The driver's context, activations of a step, and graphs share the memory with weights and the KV cache.
        let activations = 0.00002 * STEP_TOKENS[point[0]] as f64;
        let graph_memory = 0.0006 * graphs as f64;
        if share + activations + 0.4 * graph_memory > 0.99 {
            return None;
        }
        let is_chunked = point[2] == 1;
        if !is_chunked && STEP_TOKENS[point[0]] < MAX_MODEL_LEN {
            return None;
        }
        let kv_tokens = (self.gpu_tokens * (share - 0.55 - graph_memory)).max(0.0) as usize / 16 * 16;
        (kv_tokens >= MAX_MODEL_LEN).then(|| CostModel {
            step: Duration::from_millis(10),
            per_sequence: Duration::from_micros(200),
            per_thousand_context: Duration::from_micros(150),
            prefill_rate: 12_000.0,
            step_tokens: STEP_TOKENS[point[0]],
            kv_tokens,
            block_tokens: 16,
            max_running: SEQUENCES[point[1]],
            prefix_cache: false,
            jitter: 0.0,
            chunked_prefill: is_chunked,
            graph_sequences: graphs,
            eager_step: Duration::from_millis(6),
        })
    }

    /// The logarithm of requests per second, of those that count; `None` if the configuration does not start or none counts.
    pub fn figure(&self, point: &[usize], variant: u64) -> Option<f64> {
        let mut batch = Batch::new(self.cost(point)?, 1);
        let mut rng = Rng::new(variant, 0x10ad);
        let mut draw = |(from, to): (u64, u64)| from + rng.below(to - from + 1);
        let requests: Vec<(u64, u64)> = (0..self.requests).map(|_| (draw(self.prompt), draw(self.output))).collect();
        let mut submitted = vec![0.0; requests.len()];
        let mut first = vec![0.0; requests.len()];
        let (mut now, mut sent, mut good) = (0.0, 0, 0u64);
        let submit = |batch: &mut Batch, id: u64, now: f64, submitted: &mut Vec<f64>| {
            let (prompt, output) = requests[id as usize];
            submitted[id as usize] = now;
            let prompt = (0..prompt).map(|place| id << 8 | place).collect();
            batch.submit(Submission { id, prompt, output: output as usize, key: id }, Duration::from_secs_f64(now));
        };
        while sent < self.clients {
            submit(&mut batch, sent, now, &mut submitted);
            sent += 1;
        }
        while let Some(step) = batch.begin_step() {
            now += step.as_secs_f64();
            for token in batch.finish_step() {
                let id = token.id as usize;
                if token.index == 0 {
                    first[id] = now;
                }
                if !token.is_last {
                    continue;
                }
                let times = (first[id] - submitted[id], (now - first[id]) / token.index.max(1) as f64);
                let counts = self.limits.is_none_or(|(ttft, tpot)| times.0 <= ttft && times.1 <= tpot);
                good += u64::from(counts);
                if sent < self.requests {
                    submit(&mut batch, sent, now, &mut submitted);
                    sent += 1;
                }
            }
        }
        (good > 0).then(|| (good as f64 / now).ln())
    }
}
