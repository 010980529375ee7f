//! Named pairs of GPU and model. **The figures are rough and invented to be plausible**: orders of magnitude
//! derived from weights, memory and bandwidth, not measurements of any engine. They serve to try the tool and
//! must not be quoted.

use std::time::Duration;

use crate::sim::batching::CostModel;
use crate::sim::options::OptionsError;

/// A GPU and a model, with the figures that determine the speed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Preset {
    /// Name on the command line.
    pub(crate) name: &'static str,
    pub(crate) model: &'static str,
    /// Maximum length of prompt and answer together, in tokens.
    pub(crate) max_model_len: usize,
    gpu_gib: f64,
    weights_gib: f64,
    kv_bytes_per_token: f64,
    step_us: u64,
    per_sequence_us: u64,
    per_thousand_context_us: u64,
    prefill_rate: f64,
    max_running: usize,
}

const GIB: f64 = (1u64 << 30) as f64;

/// Fraction of a GPU's memory that an engine uses by default.
const MEMORY_SHARE: f64 = 0.9;

/// Memory for activations on each GPU, in GiB.
const ACTIVATIONS_GIB: f64 = 1.5;

/// Memory of the CUDA graphs of all batches of the default sizes on each GPU, in GiB.
const GRAPHS_GIB: f64 = 0.5;

/// Sequences for which graphs take that memory.
const GRAPHS_SEQUENCES: f64 = 256.0;

/// Memory of a GPU that no engine gets, in GiB: the driver's context, and what other libraries allocate.
const CONTEXT_GIB: f64 = 1.0;

/// Additional time of a step that is not run as a graph, as a share of the time of the weights. It is time of the CPU,
/// which several GPUs do not shorten.
const EAGER_SHARE: f64 = 0.6;

/// Exponent of the speed of several GPUs: n GPUs are n to this power times as fast.
const SCALING: f64 = 0.85;

const fn preset(
    name: &'static str,
    model: &'static str,
    memory: (f64, f64, f64),
    step_us: (u64, u64, u64),
    prefill_rate: f64,
) -> Preset {
    let (gpu_gib, weights_gib, kv_bytes_per_token) = memory;
    let (step_us, per_sequence_us, per_thousand_context_us) = step_us;
    Preset {
        name,
        model,
        max_model_len: 40_960,
        gpu_gib,
        weights_gib,
        kv_bytes_per_token,
        step_us,
        per_sequence_us,
        per_thousand_context_us,
        prefill_rate,
        max_running: 256,
    }
}

/// All presets. Memory: GPU and weights in GiB, KV cache in bytes per token. Step: microseconds for the
/// weights, per sequence, per thousand tokens of context. Last: prompt tokens per second.
pub(crate) const PRESETS: [Preset; 7] = [
    Preset {
        max_model_len: 32_768,
        ..preset(
            "fast",
            "sim/fast",
            (24.0, 2.0, 65_536.0),
            (500, 2, 0),
            2_000_000.0,
        )
    },
    preset(
        "h100-qwen3-8b",
        "Qwen/Qwen3-8B",
        (80.0, 15.3, 147_456.0),
        (6_500, 18, 45),
        42_000.0,
    ),
    preset(
        "h100-qwen3-32b",
        "Qwen/Qwen3-32B",
        (80.0, 61.0, 262_144.0),
        (22_500, 45, 80),
        10_500.0,
    ),
    preset(
        "h200-qwen3-32b",
        "Qwen/Qwen3-32B",
        (141.0, 61.0, 262_144.0),
        (16_000, 40, 58),
        11_000.0,
    ),
    preset(
        "h200-qwen3-8b",
        "Qwen/Qwen3-8B",
        (141.0, 15.3, 147_456.0),
        (4_700, 16, 33),
        44_000.0,
    ),
    preset(
        "a100-llama-8b",
        "meta-llama/Llama-3.1-8B-Instruct",
        (80.0, 15.0, 131_072.0),
        (10_000, 28, 65),
        17_000.0,
    ),
    preset(
        "l40s-llama-8b",
        "meta-llama/Llama-3.1-8B-Instruct",
        (48.0, 15.0, 131_072.0),
        (21_000, 40, 150),
        13_000.0,
    ),
];

/// How the memory of each GPU is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MemoryUse {
    /// Fraction of the memory for weights, activations, graphs and KV cache together.
    pub(crate) share: f64,
    /// Number of sequences up to which graphs are captured; `None` for the default batch sizes.
    pub(crate) graph_sequences: Option<usize>,
}

impl Default for MemoryUse {
    fn default() -> Self {
        Self {
            share: MEMORY_SHARE,
            graph_sequences: None,
        }
    }
}

impl MemoryUse {
    fn graphs_gib(self) -> f64 {
        self.graph_sequences.map_or(GRAPHS_GIB, |sequences| {
            GRAPHS_GIB * sequences as f64 / GRAPHS_SEQUENCES
        })
    }
}

/// An allocation that fails while an engine starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct OutOfMemory {
    pub(crate) gpu_gib: f64,
    pub(crate) requested_gib: f64,
    pub(crate) free_gib: f64,
}

impl Preset {
    pub(crate) fn by_name(name: &str) -> Option<&'static Preset> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// The cost model for `gpus` GPUs with tensor parallelism, with the usual share of their memory. Fails if the
    /// weights leave too little memory for a KV cache.
    pub(crate) fn cost_model(&self, gpus: u32) -> Result<CostModel, OptionsError> {
        self.cost_model_with(gpus, MemoryUse::default())
    }

    /// What fails when graphs are captured, after the KV cache has taken the rest of the share: capturing needs working
    /// memory as large as the graphs, outside of the share, where the driver's context is.
    pub(crate) fn out_of_memory(&self, memory: MemoryUse) -> Option<OutOfMemory> {
        let reserved_gib = self.gpu_gib * memory.share;
        let free_gib = (self.gpu_gib - CONTEXT_GIB - reserved_gib).max(0.0);
        let requested_gib = memory.graphs_gib();
        let is_too_much = reserved_gib + CONTEXT_GIB + requested_gib > self.gpu_gib;
        is_too_much.then_some(OutOfMemory {
            gpu_gib: self.gpu_gib,
            requested_gib,
            free_gib,
        })
    }

    /// The cost model with another use of the memory.
    pub(crate) fn cost_model_with(&self, gpus: u32, memory: MemoryUse) -> Result<CostModel, OptionsError> {
        let count = f64::from(gpus.max(1));
        let overhead_gib = ACTIVATIONS_GIB + memory.graphs_gib();
        let room_gib = (self.gpu_gib * memory.share - overhead_gib) * count - self.weights_gib;
        let kv_tokens = (room_gib * GIB / self.kv_bytes_per_token).max(0.0) as usize / 16 * 16;
        if kv_tokens < 1024 {
            return Err(OptionsError::WeightsTooLarge {
                preset: self.name,
                gpus,
                weights_gib: self.weights_gib,
                memory_share: memory.share,
            });
        }
        let speed = count.powf(SCALING);
        let scaled = |us: u64| Duration::from_secs_f64(us as f64 / 1e6 / speed);
        Ok(CostModel {
            step: scaled(self.step_us),
            per_sequence: scaled(self.per_sequence_us),
            per_thousand_context: scaled(self.per_thousand_context_us),
            prefill_rate: self.prefill_rate * speed,
            step_tokens: 8192,
            kv_tokens,
            block_tokens: 16,
            max_running: self.max_running,
            prefix_cache: true,
            jitter: 0.0,
            chunked_prefill: true,
            graph_sequences: memory.graph_sequences.unwrap_or(usize::MAX),
            eager_step: Duration::from_secs_f64(EAGER_SHARE * self.step_us as f64 / 1e6),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_to_the_cache_until_the_graphs_find_none() {
        let preset = Preset::by_name("h100-qwen3-8b").unwrap();
        let memory = |share, graph_sequences| MemoryUse {
            share,
            graph_sequences,
        };
        let tokens = |memory| preset.cost_model_with(1, memory).unwrap().kv_tokens;
        let usual = tokens(MemoryUse::default());
        assert_eq!(usual, preset.cost_model(1).unwrap().kv_tokens);
        assert!(tokens(memory(0.95, None)) > usual);
        assert!(tokens(memory(0.9, Some(0))) > usual, "graphs take memory");
        assert!(tokens(memory(0.9, Some(1024))) < usual);
        // 80 GiB: one for the context, half of one for graphs.
        assert_eq!(preset.out_of_memory(memory(0.98, None)), None);
        let failure = preset.out_of_memory(memory(0.985, None)).unwrap();
        assert_eq!((failure.gpu_gib, failure.requested_gib), (80.0, 0.5));
        assert!(failure.free_gib < failure.requested_gib);
        assert_eq!(preset.out_of_memory(memory(0.985, Some(0))), None);
        assert!(preset.out_of_memory(memory(0.99, Some(0))).is_some());
        assert!(matches!(
            preset.cost_model_with(1, memory(0.2, None)),
            Err(OptionsError::WeightsTooLarge { memory_share, .. }) if memory_share == 0.2
        ));
    }

    #[test]
    fn every_preset_fits_its_gpu_and_two_are_faster() {
        for preset in &PRESETS {
            let (one, two) = (preset.cost_model(1).unwrap(), preset.cost_model(2).unwrap());
            assert!(
                two.step < one.step && two.kv_tokens > one.kv_tokens,
                "{}",
                preset.name
            );
            assert!(
                two.step * 2 > one.step,
                "{}: two GPUs cannot be more than twice as fast",
                preset.name
            );
            assert_eq!(Preset::by_name(preset.name), Some(preset));
        }
    }
}
