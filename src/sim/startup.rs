//! Loading: writes the log lines of an engine's start, spread over the duration of loading.

use std::time::Duration;

use crate::base::clock;
use crate::sim::faults::{LAST_WORDS, Loading};
use crate::sim::options::{Dialect, Options, Timing};
use crate::sim::presets::OutOfMemory;
use crate::sim::process::SimError;
use crate::sim::role::Role;
use crate::sim::timer::PreciseTimer;

/// Begins the line after which graphs, or the last buffers of an engine without graphs, are allocated.
const GRAPHS_BEGIN: &str = "Capturing CUDA graphs: 0%";

/// Begins that line in an engine without graphs.
const EAGER: &str = "CUDA graphs are off";

/// A log line, and the fraction of loading after which it is written.
#[derive(Clone, Debug, PartialEq)]
struct LogLine {
    share: f64,
    text: String,
}

/// Writes each line at its time and returns when loading ends. Fails if the engine crashes during loading.
pub(crate) async fn load(
    options: &Options,
    timer: &PreciseTimer,
    log: &(dyn Fn(&str) + Send + Sync),
) -> Result<(), SimError> {
    let start = clock::now();
    for line in log_lines(options) {
        let at = options.start_delay.mul_f64(line.share);
        if let Loading::Dies(after) = options.faults.loading
            && line.share > 0.0
            && after <= at
        {
            timer.sleep_until(start.plus(after)).await;
            return Err(log_death(log));
        }
        if options.faults.loading == Loading::Hangs && line.share > 0.5 {
            std::future::pending::<()>().await;
        }
        timer.sleep_until(start.plus(at)).await;
        log_line(log, &line.text);
        if let Some(failure) = options.out_of_memory
            && (line.text.starts_with(GRAPHS_BEGIN) || line.text.starts_with(EAGER))
        {
            return Err(log_out_of_memory(log, failure));
        }
    }
    if let Loading::Dies(after) = options.faults.loading {
        timer.sleep_until(start.plus(after)).await;
        return Err(log_death(log));
    }
    timer.sleep_until(start.plus(options.start_delay)).await;
    Ok(())
}

/// Writes the last lines of a crashing engine.
pub(crate) fn log_death(log: &(dyn Fn(&str) + Send + Sync)) -> SimError {
    for line in LAST_WORDS {
        log(line);
    }
    SimError::InjectedDeath { status: 1 }
}

/// Writes the last lines of an engine without memory for what it allocates while loading.
fn log_out_of_memory(log: &(dyn Fn(&str) + Send + Sync), failure: OutOfMemory) -> SimError {
    log("ERROR EngineCore failed to start.");
    log("Traceback (most recent call last):");
    log("  File \"engine/core.py\", line 691, in run_engine_core");
    log("    self.capture_model()");
    log(&format!(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {:.2} GiB. GPU 0 has a total capacity of {:.2} GiB \
         of which {:.2} GiB is free. (simulated)",
        failure.requested_gib, failure.gpu_gib, failure.free_gib
    ));
    SimError::OutOfMemory
}

/// Writes a line with time and level, as engines do.
pub(crate) fn log_line(log: &(dyn Fn(&str) + Send + Sync), text: &str) {
    log(&format!("INFO {} {text}", clock::timestamp()));
}

/// Writes an error with time and level, as engines do.
pub(crate) fn log_error(log: &(dyn Fn(&str) + Send + Sync), text: &str) {
    log(&format!("ERROR {} {text}", clock::timestamp()));
}

/// Writes lines until they have `bytes` bytes.
pub(crate) fn flood_log(log: &(dyn Fn(&str) + Send + Sync), bytes: u64) {
    let filler = "x".repeat(180);
    let mut written = 0;
    while written < bytes {
        let line = format!("DEBUG this line only fills the log (byte {written}): {filler}");
        log(&line);
        written += line.len() as u64 + 1;
    }
}

/// The line that an engine writes when it is ready.
pub(crate) fn ready_line(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sglang => "The server is fired up and ready to roll!",
        Dialect::Vllm | Dialect::Lmdeploy | Dialect::Openai => "Application startup complete.",
    }
}

fn log_lines(options: &Options) -> Vec<LogLine> {
    let line = |share, text: String| LogLine { share, text };
    let mut part = String::new();
    match &options.role {
        Role::Router(targets) => {
            let (prefill, decode) = (targets.prefill.len(), targets.decode.len());
            let text = format!(
                "simulated router (no model, no GPU): prefill servers {prefill}, decode servers {decode}"
            );
            return vec![line(0.0, text)];
        }
        Role::Disaggregated(mode) => part.push_str(&format!(", disaggregation mode {mode}")),
        Role::Engine => {}
    }
    if let Some(ranks) = &options.ranks {
        part.push_str(&format!(", rank {} of {}", ranks.node_rank, ranks.nodes));
    }
    let model = &options.models[0];
    let seconds = |share: f64| Duration::mul_f64(options.start_delay, share).as_secs_f64();
    let mut lines = vec![
        line(
            0.0,
            format!(
                "simulated {:?} {} (no model, no GPU): tp {}{part}",
                options.dialect, options.version, options.tp
            ),
        ),
        line(0.0, format!("Starting to load model {model}...")),
    ];
    for shard in 1..=4 {
        let share = 0.1 * f64::from(shard);
        lines.push(line(
            share,
            format!(
                "Loading safetensors checkpoint shards: {}% Completed | {shard}/4",
                shard * 25
            ),
        ));
    }
    lines.push(line(
        0.4,
        format!("Loading weights took {:.2} seconds", seconds(0.4)),
    ));
    lines.push(line(
        0.45,
        "Dynamo bytecode transform, torch.compile begins".to_owned(),
    ));
    lines.push(line(
        0.7,
        format!("torch.compile takes {:.2} s in total", seconds(0.25)),
    ));
    if let Timing::Batched(cost) = &options.timing {
        lines.push(line(
            0.72,
            format!("GPU KV cache size: {} tokens", cost.kv_tokens),
        ));
    }
    if matches!(&options.timing, Timing::Batched(cost) if cost.graph_sequences == 0) {
        lines.push(line(0.75, format!("{EAGER}: running in eager mode")));
        return lines;
    }
    lines.push(line(0.75, GRAPHS_BEGIN.to_owned()));
    lines.push(line(
        0.95,
        format!("Graph capturing finished in {:.2} secs", seconds(0.2)),
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_phases_are_told_in_order_and_within_loading() {
        let lines = log_lines(&Options {
            start_delay: Duration::from_secs(10),
            ..Options::default()
        });
        assert!(lines.iter().all(|line| line.share < 1.0) && lines.is_sorted_by(|a, b| a.share <= b.share));
        let at = |text: &str| lines.iter().position(|line| line.text.contains(text)).unwrap();
        assert!(at("Starting to load") < at("Loading weights took 4.00"));
        assert!(at("Loading weights") < at("torch.compile takes 2.50 s"));
        assert!(at("torch.compile takes") < at("Graph capturing finished in 2.00"));
    }

    #[tokio::test]
    async fn an_engine_without_memory_for_its_graphs_ends_with_the_words_of_one() {
        let memory = crate::sim::MemoryUse {
            share: 0.95,
            graph_sequences: None,
        };
        let preset = crate::sim::Preset::by_name("fast").unwrap();
        let options = Options {
            out_of_memory: preset.out_of_memory(memory),
            ..Options::default()
        };
        let lines = std::sync::Mutex::new(Vec::new());
        let log = |line: &str| lines.lock().unwrap().push(line.to_owned());
        let end = load(&options, &PreciseTimer::start().unwrap(), &log).await;
        assert!(matches!(end, Err(SimError::OutOfMemory)), "{end:?}");
        let lines = lines.into_inner().unwrap();
        let last = lines.last().unwrap();
        assert!(
            last.contains("CUDA out of memory. Tried to allocate 0.50 GiB"),
            "{last}"
        );
        assert!(
            last.contains("total capacity of 24.00 GiB of which 0.20 GiB is free"),
            "{last}"
        );
        assert!(lines.iter().any(|line| line.contains(GRAPHS_BEGIN)));
        assert!(!lines.iter().any(|line| line.contains("Graph capturing finished")));
    }

    #[test]
    fn an_engine_without_graphs_captures_none() {
        let mut options = Options::default();
        let Timing::Batched(cost) = &mut options.timing else {
            panic!("the default has a cost model");
        };
        cost.graph_sequences = 0;
        let lines = log_lines(&options);
        assert!(lines.iter().any(|line| line.text.starts_with(EAGER)));
        assert!(!lines.iter().any(|line| line.text.contains("Capturing")));
    }
}
