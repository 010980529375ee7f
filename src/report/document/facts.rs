//! Facts of runs and machines, as names and values.

use std::collections::BTreeMap;

use serde::Serialize;

use super::ReportedRun;
use crate::base::text::pluralize;
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::machine::Machine;
use crate::results::record::telemetry::Gpu;

/// The fact that names the hosts of a run that several have measured.
pub(crate) const HOSTS: &str = "hosts";

/// A fact with its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Fact {
    /// Name of the fact.
    pub(crate) name: String,
    /// Value as text with its unit.
    pub(crate) value: String,
}

impl std::fmt::Display for Fact {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.value)
    }
}

/// A cell that the matrix excludes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LeftOutFact {
    /// Key of the cell.
    pub(crate) cell: String,
    /// Reason given in the matrix.
    pub(crate) why: String,
}

/// A run of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RunFacts {
    /// Name of the run.
    pub(crate) run: String,
    /// Name of the matrix.
    pub(crate) matrix: String,
    /// What the matrix is for, in its own words; absent if it does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) about: Option<String>,
    /// Start time, RFC 3339.
    pub(crate) began: String,
    /// Version of `matrix` that started the run.
    pub(crate) tool: String,
    /// Facts of the host.
    pub(crate) machine: Vec<Fact>,
    /// Cells that the matrix excludes, with the reason.
    pub(crate) left_out: Vec<LeftOutFact>,
    /// Warnings about files that could not be read and were skipped.
    pub(crate) doubts: Vec<String>,
}

pub(super) fn run_facts(source: &ReportedRun<'_>) -> RunFacts {
    let left_out = source.plan.left_out.iter().map(|cell| LeftOutFact {
        cell: cell.cell.to_string(),
        why: cell.why.clone(),
    });
    RunFacts {
        run: source.run_info.run.to_string(),
        matrix: source.plan.matrix.clone(),
        about: source.plan.about.clone(),
        began: source.run_info.began.clone(),
        tool: source.run_info.tool.clone(),
        machine: hosts_fact(source.summaries)
            .into_iter()
            .chain(machine_facts(source.machine))
            .collect(),
        left_out: left_out.collect(),
        doubts: source.warnings.to_vec(),
    }
}

/// The hosts of a run that several have measured, with their measurements. The other facts are those of one of them.
fn hosts_fact(summaries: &[MeasurementSummary]) -> Option<Fact> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for machine in summaries.iter().filter_map(|summary| summary.machine.as_deref()) {
        let name = machine.node.as_deref().or(machine.host.as_deref());
        *counts.entry(name.unwrap_or("unknown")).or_default() += 1;
    }
    let in_words = |(name, count): (&str, usize)| {
        format!("{name} ({})", pluralize(count, "measurement", "measurements"))
    };
    (counts.len() > 1).then(|| Fact {
        name: HOSTS.to_owned(),
        value: counts.into_iter().map(in_words).collect::<Vec<_>>().join(", "),
    })
}

pub(crate) fn machine_facts(machine: &Machine) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut say = |name: &str, value: Option<String>| {
        facts.extend(value.map(|value| Fact {
            name: name.to_owned(),
            value,
        }));
    };
    let gpus = match machine.gpus.is_empty() {
        true => None,
        false if machine.gpus_pretended => Some(format!("{} (simulated)", machine.gpus.join(", "))),
        false => Some(machine.gpus.join(", ")),
    };
    say("GPUs", gpus);
    for gpu in &machine.devices {
        say(&format!("GPU {}", gpu.device), Some(device_in_words(gpu)));
    }
    say("GPU driver", machine.driver.clone());
    say("CPU", machine.cpu.clone());
    say("logical CPUs", machine.cpus.map(|count| count.to_string()));
    say("CPU governor", machine.governor.clone());
    let nodes = machine.numa.iter().map(|node| node.cpus.as_str());
    let nodes: Vec<&str> = nodes.collect();
    say("NUMA nodes", (!nodes.is_empty()).then(|| nodes.join("; ")));
    let memory = machine
        .memory_bytes
        .map(|bytes| bytes as f64 / f64::from(1 << 30));
    say("memory", memory.map(|size| format!("{size:.1} GiB")));
    say("system", machine.os.clone());
    say("kernel", machine.kernel.clone());
    say(
        "measured with",
        Some(machine.tool.clone()).filter(|tool| !tool.is_empty()),
    );
    facts
}

fn device_in_words(gpu: &Gpu) -> String {
    let mut words = vec![gpu.name.clone()];
    let memory = gpu.memory_bytes.map(|bytes| bytes as f64 / f64::from(1 << 30));
    words.extend(memory.map(|size| format!("{size:.1} GiB")));
    words.extend(gpu.power_limit_w.map(|watts| format!("limit {watts:.0} W")));
    words.extend(gpu.max_sm_clock_mhz.map(|clock| format!("up to {clock:.0} MHz")));
    words.extend(gpu.driver.as_ref().map(|driver| format!("driver {driver}")));
    words.extend(gpu.cuda.as_ref().map(|cuda| format!("CUDA {cuda}")));
    words.extend(match &gpu.instance {
        Some(instance) => Some(format!("instance {} of GPU {}", instance.number, instance.gpu)),
        None => (gpu.mig == Some(true)).then(|| "divided into MIG instances".to_owned()),
    });
    words.extend((gpu.ecc == Some(false)).then(|| "ECC off".to_owned()));
    words.join(", ")
}
