//! Telemetry of the further nodes of an engine, with a library in the place of NVIDIA's that says something else on each node.

use std::process::Command;

use matrix::results::record::cell::MeasurementSummary;
use matrix::results::record::telemetry::{EnergySource, Telemetry};
use matrix::results::record::validity::ReasonCode;

use super::members::two_nodes;
use super::{Cluster, PROFILE, cluster, measured_once, run};
use crate::harness::{Bench, summary};
use crate::nvml::Stub;

/// A load of about five seconds.
const STEADY: &str = "  - load: { dataset: random, prompts: 15, input_len: 40, output_len: 4, rate: 3, spacing: constant, range_ratio: 1.0, warmup: 0 }\n";

/// An engine with a GPU on each of two nodes.
fn on_gpus(cluster: &Cluster, stub: &Stub, load: &str) -> Bench {
    let matrix = two_nodes("", load)
        .replace("nodes: 2,", "nodes: 2, devices: gpu,")
        .replace("- m: {", "- m: { tp: 2,");
    cluster.bench(&matrix, PROFILE).gpus(stub)
}

fn telemetry(summary: &MeasurementSummary) -> &Telemetry {
    summary.telemetry.as_ref().expect("it was sampled")
}

/// What was measured according to the reasons with a code.
fn reasons(summary: &MeasurementSummary, code: ReasonCode) -> Vec<String> {
    let validity = summary.validity.as_ref().expect("it is judged");
    let reasons = validity.reasons.iter().filter(|reason| reason.code == code);
    reasons.map(|reason| reason.measured.clone()).collect()
}

#[test]
fn energy_is_that_of_the_gpus_of_all_nodes_and_what_happens_to_one_is_said_with_its_node() {
    let Some(cluster) = cluster() else { return };
    let stub = Stub::of("gpus 2\n");
    stub.on_node("node1", "gpus 2\npower 100\n");
    let own = std::process::id();
    stub.on_node(
        "node2",
        &format!("gpus 2\npower 250\nthrottle hot\nprocess {own} 300 from=5\n"),
    );
    let bench = on_gpus(&cluster, &stub, STEADY);
    // A shared GPU makes the cell invalid.
    run(&bench, &[]).exits(3).shows("15/0");
    measured_once(&bench, 1);
    let run = bench.finished();
    let summary = summary(&run, "two", "load");
    let actual = telemetry(summary);
    // Which of them the scheduler gives the job depends on other jobs.
    let nodes: Vec<Option<&str>> = actual.gpus.iter().map(|gpu| gpu.node.as_deref()).collect();
    assert_eq!(nodes, [None, Some("node2")], "one of two on each node");
    let there = format!("GPU {} of node2", actual.gpus[1].device);
    let energy = actual.energy.as_ref().expect("all of them were read");
    assert_eq!(energy.source, EnergySource::Counter);
    assert!((energy.mean_w - 350.0).abs() < 17.5, "{energy:?}");
    let above = energy
        .above_idle_j
        .expect("idle power was measured on both nodes");
    assert!(above.abs() < 0.05 * energy.joules, "{energy:?}");
    let hot = reasons(summary, ReasonCode::ThrottledThermal);
    assert_eq!(hot.len(), 1, "{hot:?}");
    assert!(hot[0].starts_with(&format!("{there}: 100")), "{hot:?}");
    let shared = reasons(summary, ReasonCode::GpuShared);
    assert!(
        shared[0].starts_with(&format!("{there}: process {own} (")),
        "{shared:?}"
    );
    assert_eq!(reasons(summary, ReasonCode::TelemetryGap), [""; 0]);
    let node = &actual.nodes[0];
    let machine = node.machine.as_ref().expect("its sampler reports it");
    assert!(
        machine.driver.is_some() && !machine.devices.is_empty(),
        "{machine:?}"
    );
    assert_eq!((node.node.as_str(), node.trouble.as_deref()), ("node2", None));
    assert!(node.host.as_ref().expect("it was sampled").engine_cpus.is_some());
    bench.leaves_no_process();
}

#[test]
fn a_sampler_that_is_killed_is_a_gap_and_the_cell_goes_on() {
    let Some(cluster) = cluster() else { return };
    let stub = Stub::of("gpus 2\npower 100\n");
    let bench = on_gpus(&cluster, &stub, STEADY);
    let mut login = bench.begin(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
    bench.until_journal("\"cell-began\"");
    let all = bench.survivors();
    let mut samplers = all
        .iter()
        .filter(|process| process.trim_end().ends_with(" __sample") && !process.contains("srun"));
    let sampler = samplers.next().unwrap_or_else(|| panic!("{all:?}"));
    let (pid, _) = sampler.split_once(':').expect("it begins with its pid");
    let killed = Command::new("kill").args(["-9", pid]).status();
    assert!(killed.expect("kill runs").success());
    assert!(login.wait().expect("it is a child").success());
    measured_once(&bench, 1);
    let run = bench.finished();
    let summary = summary(&run, "two", "load");
    assert_eq!(telemetry(summary).energy, None);
    let gaps = reasons(summary, ReasonCode::TelemetryGap);
    assert!(gaps[0].contains("node2: its sampler ended: "), "{gaps:?}");
    bench.leaves_no_process();
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_library_that_hangs_on_another_node_is_a_gap_and_the_cell_goes_on() {
    let Some(cluster) = cluster() else { return };
    let stub = Stub::of("gpus 2\npower 100\n");
    stub.on_node("node2", "gpus 2\npower 250\nhang * from=5\n");
    // So long that the end of the window is seconds after the last sample.
    let load = STEADY.replace("prompts: 15", "prompts: 45");
    let bench = on_gpus(&cluster, &stub, &load);
    run(&bench, &[]).exits(0).shows("45/0");
    measured_once(&bench, 1);
    let run = bench.finished();
    let summary = summary(&run, "two", "load");
    let actual = telemetry(summary);
    assert_eq!(actual.energy, None);
    let gaps = reasons(summary, ReasonCode::TelemetryGap);
    assert!(gaps[0].contains(" of node2: no response for "), "{gaps:?}");
    assert!(actual.nodes[0].host.is_some(), "the host of the node was sampled");
    bench.leaves_no_process();
}
