//! Facts of a machine that metrics may depend on.

use std::collections::BTreeMap;

use super::machines;
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::cell_stats::Facts;
use crate::results::record::machine::Machine;

/// Returns the facts of a machine that metrics may depend on.
pub(crate) fn machine_facts(machine: &Machine) -> Facts {
    let mut facts = Facts::new();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.insert(name.to_owned(), value);
        }
    };
    put(machines::HOST, machine.host.clone());
    put(machines::NODE, machine.node.clone());
    let uuids: Vec<&str> = machine
        .devices
        .iter()
        .filter_map(|gpu| gpu.uuid.as_deref())
        .collect();
    put(machines::GPU_UUIDS, (!uuids.is_empty()).then(|| uuids.join(", ")));
    put(machines::DMI_UUID, machine.dmi_uuid.clone());
    put(machines::MACHINE_ID, machine.machine_id.clone());
    put("kernel", machine.kernel.clone());
    put("CPU", machine.cpu.clone());
    put("CPUs", machine.cpus.map(|count| count.to_string()));
    let gib = |bytes: u64| format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30));
    put("memory", machine.memory_bytes.map(gib));
    put("governor", machine.governor.clone());
    put(machines::DRIVER, machine.driver.clone());
    put(
        machines::GPUS,
        (!machine.gpus.is_empty()).then(|| machine.gpus.join(", ")),
    );
    for gpu in &machine.devices {
        let name = |what: &str| format!("GPU {} {what}", gpu.device);
        put(
            &name("power limit"),
            gpu.power_limit_w.map(|watts| format!("{watts:.0} W")),
        );
        put(
            &name("highest clock"),
            gpu.max_sm_clock_mhz.map(|clock| format!("{clock:.0} MHz")),
        );
        put(
            &name("ECC"),
            gpu.ecc.map(|is_on| if is_on { "on" } else { "off" }.to_owned()),
        );
        put(
            &name("MIG"),
            gpu.mig.map(|is_on| if is_on { "on" } else { "off" }.to_owned()),
        );
    }
    facts
}

/// Returns the facts of the hosts that measured this, in a run with that machine; `None` if that machine alone did. Facts of the
/// further nodes of a launch have the number of the node before their names.
fn measured_on(summary: &MeasurementSummary, of_run: Option<&Machine>) -> Option<Facts> {
    let further: Vec<(usize, &Machine)> = summary
        .telemetry
        .iter()
        .flat_map(|telemetry| &telemetry.nodes)
        .enumerate()
        .filter_map(|(at, node)| Some((at + 2, node.machine.as_deref()?)))
        .collect();
    let own = summary.machine.as_deref();
    let first = own.or_else(|| of_run.filter(|_| !further.is_empty()))?;
    let mut facts = machine_facts(first);
    for (number, machine) in further {
        let of_node = machine_facts(machine).into_iter();
        facts.extend(of_node.map(|(name, value)| (machines::further_node_fact(number, &name), value)));
    }
    Some(facts)
}

/// Returns the facts of each host that measured some of these, in a run with that machine; empty if it alone did.
pub(crate) fn facts_of_hosts<'a>(
    of_run: Option<&Machine>,
    summaries: impl IntoIterator<Item = &'a MeasurementSummary>,
) -> Vec<Facts> {
    let mut hosts: Vec<Facts> = Vec::new();
    for facts in summaries
        .into_iter()
        .filter_map(|summary| measured_on(summary, of_run))
    {
        if !hosts.contains(&facts) {
            hosts.push(facts);
        }
    }
    hosts
}

/// Returns the facts of a run: those of its host, or of all hosts that measured. A fact in which these differ has all of its values.
pub(crate) fn facts_of_run(machine: &Machine, summaries: &[MeasurementSummary]) -> Facts {
    facts_of_measurements(machine, summaries)
}

/// Returns the facts of the hosts of some measurements of a run with that machine, as [`facts_of_run`] does.
pub(crate) fn facts_of_measurements<'a>(
    machine: &Machine,
    summaries: impl IntoIterator<Item = &'a MeasurementSummary>,
) -> Facts {
    let hosts = facts_of_hosts(Some(machine), summaries);
    if hosts.is_empty() {
        return machine_facts(machine);
    }
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in hosts.into_iter().flatten() {
        let known = values.entry(name).or_default();
        if !known.contains(&value) {
            known.push(value);
        }
    }
    values
        .into_iter()
        .map(|(name, mut values)| {
            values.sort();
            (name, values.join(", "))
        })
        .collect()
}
