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

/// Fraction of a GPU's memory that an engine uses.
const MEMORY_SHARE: f64 = 0.9;

/// Memory for activations and CUDA graphs on each GPU, in GiB.
const OVERHEAD_GIB: f64 = 2.0;

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

impl Preset {
    pub(crate) fn by_name(name: &str) -> Option<&'static Preset> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// The cost model for `gpus` GPUs with tensor parallelism. Fails if the weights leave too little memory
    /// for a KV cache.
    pub(crate) fn cost_model(&self, gpus: u32) -> Result<CostModel, OptionsError> {
        let count = f64::from(gpus.max(1));
        let room_gib = (self.gpu_gib * MEMORY_SHARE - OVERHEAD_GIB) * count - self.weights_gib;
        let kv_tokens = (room_gib * GIB / self.kv_bytes_per_token).max(0.0) as usize / 16 * 16;
        if kv_tokens < 1024 {
            return Err(OptionsError::WeightsTooLarge {
                preset: self.name,
                gpus,
                weights_gib: self.weights_gib,
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
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
