//! A real engine that nobody here wrote: vLLM on CPU, started by the process executor from `engines/vllm.yaml`.
//!
//! `tests/engines/cpu.sh` installs it; `MATRIX_ENGINES` says where it lies. Without it the test is skipped by name,
//! and where `MATRIX_REQUIRE_ENGINES` is set, as CI does, that is a failure.

use std::path::PathBuf;

use matrix::cli::env_variable;
use matrix::results::record::cell::MeasurementStatus;

use crate::harness::{Bench, repository, summary};
use crate::telemetry::agrees;

#[test]
fn the_four_workloads_run_on_real_vllm() {
    let engines =
        env_variable("MATRIX_ENGINES").map_or_else(|| repository().join("target/engines"), PathBuf::from);
    if !engines.join("venv/bin/vllm").exists() {
        assert!(
            env_variable("MATRIX_REQUIRE_ENGINES").is_none(),
            "vLLM is not installed in {}",
            engines.display()
        );
        crate::skip::skip("needs vLLM on CPU; install it with tests/engines/cpu.sh and set MATRIX_ENGINES");
        return;
    }
    let model = engines.join("models/tiny-qwen3");
    let matrix = format!(
        r#"
name: t
engines:
  - vllm:
      version: 0.32.0
      executor: process
      variant: cpu
      venv: {venv}
      args: [--max-model-len, 2048, --enforce-eager]
      env: {{ VLLM_SERVER_DEV_MODE: "1", HF_HUB_OFFLINE: "1" }}
      served_model_name: tiny
      command: [vllm, serve, "{{model}}", --served-model-name, "{{served}}", --host, 127.0.0.1]
models:
  - {model}: {{ tokenizer: {model} }}
scenarios:
  - sharegpt: {{ prompts: 12, quality: false }}
  - random-1k-1k: {{ prompts: 6, input_len: 64, output_len: 32 }}
  - random-2k-6k: {{ prompts: 4, input_len: 32, output_len: 64, quality: false }}
  - random-6k-2k: {{ prompts: 4, input_len: 128, output_len: 16, quality: false }}
quality: {{ probes: true }}
datasets: {{ sharegpt: data/conversations.json }}
"#,
        venv = engines.join("venv").display(),
        model = model.display(),
    );
    let bench = Bench::of(&matrix);
    let ran = bench.run(&[]).exits(0);
    assert!(!ran.stdout.contains("simulated"), "{}", ran.stdout);
    let run = bench.finished();
    for scenario in ["sharegpt", "random-1k-1k", "random-2k-6k", "random-6k-2k"] {
        let summary = summary(&run, "vllm", scenario);
        assert_eq!(summary.status, MeasurementStatus::Done, "{scenario}");
        assert!(summary.failures.is_empty(), "{scenario}: {:?}", summary.failures);
        assert_eq!(summary.engine.version.as_deref(), Some("0.32.0"));
        assert_eq!(summary.engine.models, ["tiny"]);
        assert_eq!(
            summary.cache_reset.as_ref().and_then(|reset| reset.success),
            Some(true),
            "{:?}",
            summary.cache_reset
        );
        assert!(
            summary.phases.iter().any(|phase| phase.phase == "launch/weights"),
            "{:?}",
            summary.phases
        );
        agrees(&run, summary);
    }
    for measurement in run.plan.starts.iter().flat_map(|start| &start.cells) {
        let workload = serde_json::to_value(&run.plan.cell(&measurement.cell).scenario.workload);
        let asked = workload.expect("a plan is JSON")["output_len"].as_u64();
        for request in run.read_requests(measurement).expect("requests are kept") {
            let usage = request.usage.expect("vLLM reports usage");
            assert_eq!(
                usage.completion,
                Some(request.requested_tokens),
                "{}",
                measurement.cell
            );
            assert!(asked.is_none_or(|asked| asked == u64::from(request.requested_tokens)));
            assert!(!request.chunks.is_empty());
        }
    }
    crate::probes::answers_all(&bench, "vllm");
    bench.leaves_no_process();
}
