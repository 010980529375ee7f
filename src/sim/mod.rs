//! The simulated engine: a real HTTP/1.1 server on a real socket, to try the tool without a GPU, to test it, and to
//! calibrate the load generator.
//!
//! **Simulated:** the endpoints, answers and metric names of SGLang, vLLM and LMDeploy as far as a benchmark uses them;
//! loading with its log; continuous batching with chunked prefill, a bounded KV cache, queueing, preemption and a
//! prefix cache, under a cost model; or, instead of batching, exact moments for every token, or a flood; and on
//! request everything that goes wrong with real engines ([`Faults`]).
//!
//! **Not simulated:** language. There is no model and no tokenizer; answers are common words, one per token, and prompts
//! given as text are counted by rule of thumb. Nor images, tools, log probabilities, several answers to one
//! request, speculative decoding, parallelism beyond a factor on speed and memory, or the text of any engine's errors.
//! The figures of the presets are invented to be plausible. No number from here says anything about a real engine.
//!
//! Everything drawn is fixed by a seed and the prompt, not by the order of arrival. Uses `base` only.

mod batching;
mod connection;
mod dialect;
mod engine;
mod faults;
mod handler;
mod metrics;
mod options;
mod power;
mod presets;
mod rng;
mod scheduler;
mod server;
mod startup;
mod stream;
#[cfg(test)]
mod tests;
mod text;
mod timer;
mod token_source;

pub(crate) use batching::CostModel;
pub(crate) use faults::{DieAfter, Faults, HugeLine, Loading, LyingHealth};
pub(crate) use options::{ApiKey, Dialect, Options, Schedule, Timing};
pub(crate) use presets::{PRESETS, Preset};
pub(crate) use server::{SimError, serve};
