//! The machine that measured.

use serde::{Deserialize, Serialize};

use crate::results::record::telemetry::Gpu;

/// What is known of the machine and the tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Host name: a label; containers and cloud machines change it from run to run.
    pub host: Option<String>,
    /// A digest of the DMI product UUID; absent where the firmware gives none or only root may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dmi_uuid: Option<String>,
    /// A digest of `/etc/machine-id`; absent inside a container, whose image may carry one that many hosts share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// Operating system's name.
    pub os: Option<String>,
    /// CPU model.
    pub cpu: Option<String>,
    /// Logical CPUs that we may use.
    pub cpus: Option<u32>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// GPUs by index: name, as far as the host tells without a driver library.
    pub gpus: Vec<String>,
    /// Whether the GPUs are only pretended, to try things out; rows measured on them say so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gpus_pretended: bool,
    /// What is known of each GPU by its management library or tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Gpu>,
    /// The CPU frequency governor, such as `performance`; absent where the kernel sets no frequency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// NUMA nodes, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa: Vec<NumaNode>,
    /// The GPU driver's version.
    pub driver: Option<String>,
    /// The limit of open files after it was raised.
    pub open_files: Option<u64>,
    /// The version of `matrix`, with its revision.
    pub tool: String,
}

/// A NUMA node: processors and what is close to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// Its logical CPUs as the kernel lists them, such as `0-31,64-95`.
    pub cpus: String,
    /// The GPUs on it, by index.
    pub gpus: Vec<u32>,
}

impl Machine {
    /// What these devices are called where an engine is told which to use: by their numbers. Where a GPU is cut into instances (MIG), which
    /// have no number there, by their UUIDs.
    pub(crate) fn device_names(&self, devices: &[u32]) -> Vec<String> {
        let is_cut = self.devices.iter().any(|known| known.instance.is_some());
        let uuid = |device: &u32| {
            let known = self.devices.iter().find(|known| known.device == *device)?;
            known.uuid.clone().filter(|_| is_cut)
        };
        let name = |device: &u32| uuid(device).unwrap_or_else(|| device.to_string());
        devices.iter().map(name).collect()
    }

    /// The CPUs of the nodes that these GPUs are on, as a list for a CPU set; `None` where that is no part of the machine, or where
    /// a GPU's node is not known.
    pub(crate) fn cpus_near(&self, gpus: &[u32]) -> Option<String> {
        let is_near = |node: &&NumaNode| node.gpus.iter().any(|gpu| gpus.contains(gpu));
        let is_known = |gpu: &u32| self.numa.iter().any(|node| node.gpus.contains(gpu));
        let near: Vec<&str> = self
            .numa
            .iter()
            .filter(is_near)
            .map(|node| node.cpus.as_str())
            .collect();
        let is_part = !near.is_empty() && near.len() < self.numa.len();
        (is_part && gpus.iter().all(is_known)).then(|| near.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpus_of_a_launch_are_those_of_its_gpus_nodes() {
        let node = |cpus: &str, gpus: &[u32]| NumaNode {
            cpus: cpus.to_owned(),
            gpus: gpus.to_vec(),
        };
        let machine = Machine {
            numa: vec![
                node("0-15,32-47", &[0, 1]),
                node("16-31", &[2]),
                node("48-63", &[]),
            ],
            ..Machine::default()
        };
        let near = |gpus: &[u32]| machine.cpus_near(gpus);
        assert_eq!(near(&[1]).as_deref(), Some("0-15,32-47"));
        assert_eq!(near(&[1, 2]).as_deref(), Some("0-15,32-47,16-31"));
        assert_eq!(near(&[0, 3]), None, "nobody knows where GPU 3 is");
        assert_eq!(near(&[]), None);
        let small = Machine {
            numa: vec![node("0-7", &[0])],
            ..Machine::default()
        };
        assert_eq!(small.cpus_near(&[0]), None, "it is all there is");
    }
}
