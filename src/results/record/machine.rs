//! The host that measured.

use serde::{Deserialize, Serialize};

use crate::results::record::telemetry::Gpu;

/// Facts about the host and the tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Host name, used only as a label: containers and cloud machines change it between runs.
    pub(crate) host: Option<String>,
    /// Name of the node of a cluster, in a job of its scheduler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    /// Digest of the DMI product UUID; absent if the firmware has none or only root may read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dmi_uuid: Option<String>,
    /// Digest of `/etc/machine-id`; absent inside a container, because many hosts may share the id of an
    /// image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) machine_id: Option<String>,
    pub(crate) kernel: Option<String>,
    /// Name of the operating system.
    pub(crate) os: Option<String>,
    pub(crate) cpu: Option<String>,
    /// Logical CPUs that this process may use.
    pub(crate) cpus: Option<u32>,
    /// Memory in bytes.
    pub(crate) memory_bytes: Option<u64>,
    /// Names of the GPUs by index, as far as the host reports them without a driver library.
    pub gpus: Vec<String>,
    /// Whether the GPUs are simulated for trying things out; reports mark rows measured on them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) gpus_pretended: bool,
    /// Facts about each GPU from its management library or tool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Gpu>,
    /// CPU frequency governor, such as `performance`; absent if the kernel does not set frequencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) governor: Option<String>,
    /// NUMA nodes, if there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) numa: Vec<NumaNode>,
    /// The GPU driver's version.
    pub driver: Option<String>,
    /// Limit of open files after raising it.
    pub(crate) open_files: Option<u64>,
    /// Version and revision of `matrix`.
    pub(crate) tool: String,
}

/// A NUMA node: its processors and GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NumaNode {
    /// Logical CPUs in the kernel's list format, such as `0-31,64-95`.
    pub(crate) cpus: String,
    /// Indexes of its GPUs.
    pub(crate) gpus: Vec<u32>,
}

impl Machine {
    /// Whether measurements on both were made on one host in one state. The limit of open files and the version of `matrix` do not
    /// matter.
    pub(crate) fn is_same_environment(&self, other: &Self) -> bool {
        let other = Self {
            open_files: self.open_files,
            tool: self.tool.clone(),
            ..other.clone()
        };
        *self == other
    }

    /// Returns the names by which an engine selects these devices: their numbers, or their UUIDs if a GPU has
    /// MIG instances, which have no numbers.
    pub(crate) fn device_names(&self, devices: &[u32]) -> Vec<String> {
        let is_cut = self.devices.iter().any(|known| known.instance.is_some());
        let uuid = |device: &u32| {
            let known = self.devices.iter().find(|known| known.device == *device)?;
            known.uuid.clone().filter(|_| is_cut)
        };
        let name = |device: &u32| uuid(device).unwrap_or_else(|| device.to_string());
        devices.iter().map(name).collect()
    }

    /// Returns the CPUs of the NUMA nodes of these GPUs, as a list for a CPU set; `None` if they are all CPUs
    /// of the machine, or if the node of a GPU is unknown.
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
