//! The simulated engine: a real HTTP/1.1 server, for trying the tool without a GPU, for tests, and for
//! calibrating the load generator.
//!
//! **Simulated:** the endpoints, answers and metric names of SGLang, vLLM and LMDeploy that a benchmark uses;
//! loading with its log; continuous batching with chunked prefill, a limited KV cache, queueing, preemption
//! and a prefix cache under a cost model; alternatively exact times for every token, or output at full speed;
//! and faults of real engines ([`Faults`]). Also an engine of several processes: ranks on several nodes ([`ranks`]), and
//! prefill servers, decode servers and their router ([`role`]).
//!
//! **Not simulated:** language. There is no model and no tokenizer. Answers consist of common words, one per
//! token, and the tokens of text prompts are estimated. Where a request demands JSON of a schema or a tool call, the
//! answer fulfils it, for the keywords of [`structure`]; the answer of a model that may decide is words. Also not
//! simulated are images, log probabilities, several answers per request, speculative decoding, parallelism beyond a factor on speed and
//! memory, and the error texts of engines. The figures of the presets are invented to be plausible. No number
//! from here says anything about a real engine.
//!
//! All random values depend on the seed and the prompt, not on the order of arrival. Uses `base` only.

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
mod process;
mod ranks;
mod rerank;
mod rng;
mod role;
mod router;
mod scheduler;
mod server;
mod startup;
mod stream;
mod structure;
#[cfg(test)]
mod tests;
mod text;
mod timer;
mod token_source;
mod upstream;

pub(crate) use batching::CostModel;
pub(crate) use faults::{DieAfter, FalseHealth, Faults, HugeLine, Loading};
pub(crate) use options::{ApiKey, Dialect, Options, Schedule, Timing};
pub(crate) use presets::{MemoryUse, OutOfMemory, PRESETS, Preset};
pub(crate) use process::SimError;
pub(crate) use ranks::{RankLoss, Ranks};
pub(crate) use role::{DisaggregationMode, Role, RouterTargets, UpstreamUrl};
pub(crate) use server::serve;
