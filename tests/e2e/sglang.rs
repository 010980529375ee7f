//! A real engine that nobody here wrote: SGLang on CPU, started by the process executor from `engines/sglang.yaml`.
//!
//! `tests/engines/cpu.sh` installs it beside vLLM; see there. Without it the test is skipped by name, and where `MATRIX_REQUIRE_ENGINES`
//! is set, as CI does, that is a failure.

use std::path::{Path, PathBuf};

use matrix::cli::env_variable;
use matrix::results::record::cell::MeasurementStatus;

use crate::harness::{Bench, repository, summary};
use crate::telemetry::agrees;

/// Where the real engines are; `None` if they are not installed, which CI makes a failure.
#[track_caller]
pub fn engines() -> Option<PathBuf> {
    let engines =
        env_variable("MATRIX_ENGINES").map_or_else(|| repository().join("target/engines"), PathBuf::from);
    if engines.join("venv/bin/sglang").exists() {
        return Some(engines);
    }
    assert!(
        env_variable("MATRIX_REQUIRE_ENGINES").is_none(),
        "SGLang is not installed in {}",
        engines.display()
    );
    crate::skip::skip("needs SGLang on CPU; install it with tests/engines/cpu.sh and set MATRIX_ENGINES");
    None
}

/// One cell of SGLang on CPU.
pub fn matrix(engines: &Path) -> String {
    let arguments = "--device, cpu, --attention-backend, torch_native, --sampling-backend, pytorch, --disable-overlap-schedule, \
                     --max-total-tokens, 16384, --mem-fraction-static, 0.2, --context-length, 2048";
    let model = engines.join("models/tiny-qwen3");
    format!(
        r#"
name: t
engines:
  - sglang:
      executor: process
      version: 0.5.23
      venv: {venv}
      args: [{arguments}]
      env: {{ HF_HUB_OFFLINE: "1" }}
      served_model_name: tiny
      devices: none
      command: [python, -m, sglang.launch_server, --model-path, "{{model}}", --served-model-name, "{{served}}", --host, 127.0.0.1]
models:
  - {model}: {{ tokenizer: {model} }}
scenarios:
  - random-1k-1k: {{ prompts: 8, input_len: 64, output_len: 32 }}
datasets: {{ sharegpt: data/conversations.json }}
"#,
        venv = engines.join("venv").display(),
        model = model.display(),
    )
}

#[test]
fn what_real_sglang_tells_of_itself_fits_what_it_was_sent() {
    let Some(engines) = engines() else { return };
    let bench = Bench::of(&format!("{}quality: {{ probes: true }}\n", matrix(&engines)));
    bench.run(&[]).exits(0);
    crate::probes::answers_all(&bench, "sglang");
    let run = bench.finished();
    let summary = summary(&run, "sglang", "random-1k-1k");
    assert_eq!(summary.status, MeasurementStatus::Done);
    agrees(&run, summary);
    bench.leaves_no_process();
}
