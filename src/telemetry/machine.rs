//! Static description of the machine, read once at the start of a run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use procfs::Current;

use crate::base::ids::ContentHash;
use crate::results::record::machine::{Machine, NumaNode};

/// Reads the description of the machine. What the machine does not report is left out.
pub(crate) fn read(tool: &str) -> Machine {
    let line = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let cpu = procfs::CpuInfo::current()
        .ok()
        .and_then(|info| info.model_name(0).map(str::to_owned));
    Machine {
        host: line("/proc/sys/kernel/hostname"),
        node: None,
        dmi_uuid: dmi_uuid(Path::new("/")),
        machine_id: machine_id(Path::new("/")),
        kernel: line("/proc/sys/kernel/osrelease"),
        os: line("/etc/os-release").and_then(|text| {
            text.lines()
                .find_map(|line| Some(line.strip_prefix("PRETTY_NAME=")?.trim_matches('"').to_owned()))
        }),
        cpu,
        cpus: std::thread::available_parallelism()
            .ok()
            .and_then(|count| u32::try_from(count.get()).ok()),
        memory_bytes: procfs::Meminfo::current().ok().map(|memory| memory.mem_total),
        gpus: gpu_names(),
        gpus_pretended: false,
        devices: Vec::new(),
        governor: cpu_governor(Path::new("/")),
        numa: numa_nodes(Path::new("/"), gpu_buses(Path::new("/"))),
        driver: line("/sys/module/nvidia/version"),
        open_files: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
        tool: tool.to_owned(),
    }
}

/// NVIDIA GPUs in the order of their device nodes, with the names that the kernel driver gives.
pub(crate) fn gpu_names() -> Vec<String> {
    let mut gpus: Vec<(u32, String)> = Vec::new();
    for entry in fs::read_dir("/proc/driver/nvidia/gpus")
        .into_iter()
        .flatten()
        .flatten()
    {
        let Ok(text) = fs::read_to_string(entry.path().join("information")) else {
            continue;
        };
        let field = |name: &str| {
            text.lines()
                .find_map(|line| Some(line.strip_prefix(name)?.trim_start_matches(':').trim().to_owned()))
        };
        let minor = field("Device Minor")
            .and_then(|minor| minor.parse().ok())
            .unwrap_or(u32::MAX);
        gpus.push((minor, field("Model").unwrap_or_else(|| "NVIDIA GPU".to_owned())));
    }
    if gpus.is_empty() {
        let nodes = fs::read_dir("/dev")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                Some((
                    name.strip_prefix("nvidia")?.parse().ok()?,
                    "NVIDIA GPU".to_owned(),
                ))
            });
        gpus.extend(nodes);
    }
    gpus.sort();
    gpus.into_iter().map(|(_, name)| name).collect()
}

/// The names in a folder of the system below `root`.
fn entry_names(root: &Path, folder: &str) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// The content of a one-line file of the system below `root`.
fn read_line(root: &Path, path: &str) -> Option<String> {
    let text = fs::read_to_string(root.join(path)).ok()?;
    Some(text.trim().to_owned())
}

/// Digest of the machine's firmware UUID; `None` for placeholders that vendors leave in many boards.
///
/// Source: DMTF DSP0134, "System Management BIOS Reference Specification", section 7.2.1: all zeros means
/// absent, all ones means not set.
fn dmi_uuid(root: &Path) -> Option<String> {
    const PLACEHOLDERS: [&str; 3] = [
        "03000200-0400-0500-0006-000700080009",
        "12345678-1234-5678-90ab-cddeefaabbcc",
        "fefefefe-fefe-fefe-fefe-fefefefefefe",
    ];
    let uuid = read_line(root, "sys/class/dmi/id/product_uuid")?.to_lowercase();
    let is_one_digit = |digit: char| uuid.chars().all(|found| found == digit || found == '-');
    let is_given = !is_one_digit('0') && !is_one_digit('f') && !PLACEHOLDERS.contains(&uuid.as_str());
    is_given.then(|| named_digest("dmi", &uuid))
}

/// Digest of the machine id; `None` in a container.
///
/// Source: machine-id(5): the id itself should not leave the machine, a keyed digest of it may.
fn machine_id(root: &Path) -> Option<String> {
    let id = read_line(root, "etc/machine-id").filter(|id| id.len() == 32 && !is_container(root))?;
    Some(named_digest("machine-id", &id))
}

fn named_digest(label: &str, value: &str) -> String {
    ContentHash::from_value(&("matrix host identity", label, value)).to_string()
}

/// Whether the system below `root` is a container: a marker file of the container engine exists, or its root
/// is an overlay.
fn is_container(root: &Path) -> bool {
    let marker_files = [".dockerenv", "run/.containerenv", "run/systemd/container"];
    let is_overlay = || {
        let mounts = read_line(root, "proc/self/mounts").unwrap_or_default();
        mounts.lines().any(|mount| {
            let mut fields = mount.split(' ').skip(1);
            fields.next() == Some("/") && fields.next() == Some("overlay")
        })
    };
    marker_files.iter().any(|mark| root.join(mark).exists()) || is_overlay()
}

/// CPU frequency governors, joined by commas if they differ.
fn cpu_governor(root: &Path) -> Option<String> {
    let governor_of = |name: String| {
        let number = name.strip_prefix("cpu")?;
        number.parse::<u32>().ok()?;
        let path = format!("sys/devices/system/cpu/{name}/cpufreq/scaling_governor");
        read_line(root, &path).filter(|governor| !governor.is_empty())
    };
    let governors: BTreeSet<String> = entry_names(root, "sys/devices/system/cpu")
        .filter_map(governor_of)
        .collect();
    let governors: Vec<String> = governors.into_iter().collect();
    (!governors.is_empty()).then(|| governors.join(", "))
}

/// PCI addresses of NVIDIA GPUs with their index, in the order of device nodes as in [`gpu_names`].
fn gpu_buses(root: &Path) -> impl Iterator<Item = (u32, String)> {
    let mut gpus: Vec<(u32, String)> = entry_names(root, "proc/driver/nvidia/gpus")
        .filter_map(|address| {
            let about = read_line(root, &format!("proc/driver/nvidia/gpus/{address}/information"))?;
            let minor = about.lines().find_map(|line| line.strip_prefix("Device Minor"))?;
            Some((minor.trim_start_matches(':').trim().parse().ok()?, address))
        })
        .collect();
    gpus.sort();
    (0..).zip(gpus.into_iter().map(|(_, address)| address))
}

/// The NUMA nodes if there are several: the kernel's CPU list and the GPUs of each.
pub(crate) fn numa_nodes(root: &Path, gpus: impl Iterator<Item = (u32, String)>) -> Vec<NumaNode> {
    let mut nodes: Vec<(u32, NumaNode)> = entry_names(root, "sys/devices/system/node")
        .filter_map(|name| {
            let cpus = read_line(root, &format!("sys/devices/system/node/{name}/cpulist"))
                .filter(|cpus| !cpus.is_empty())?;
            let node = NumaNode {
                cpus,
                gpus: Vec::new(),
            };
            Some((name.strip_prefix("node")?.parse().ok()?, node))
        })
        .collect();
    if nodes.len() < 2 {
        return Vec::new();
    }
    nodes.sort_by_key(|(number, _)| *number);
    for (index, address) in gpus {
        let number = read_line(root, &format!("sys/bus/pci/devices/{address}/numa_node"));
        let number = number.and_then(|number| number.parse::<u32>().ok());
        if let Some((_, node)) = nodes.iter_mut().find(|(node, _)| Some(*node) == number) {
            node.gpus.push(index);
        }
    }
    nodes.into_iter().map(|(_, node)| node).collect()
}

/// Raises the limit of open files as far as the system allows, and says what it is then.
pub fn raise_open_files() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        if setrlimit(Resource::Nofile, raised).is_err() {
            return limit.current;
        }
    }
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_is_on_the_node_that_its_bus_address_names() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/devices/system/node/node0/cpulist", "0-15\n");
        write("sys/devices/system/node/online", "0-1\n");
        let numa = || numa_nodes(root.path(), gpu_buses(root.path()));
        assert_eq!(numa(), [], "one node is no choice");
        write("sys/devices/system/node/node1/cpulist", "16-31\n");
        // A node with memory and without CPUs.
        write("sys/devices/system/node/node2/cpulist", "\n");
        for (address, minor, node) in [
            ("0000:41:00.0", 1, "0"),
            ("0000:01:00.0", 0, "1"),
            ("0000:81:00.0", 2, "-1"),
        ] {
            let about = format!("Model: \t\t NVIDIA X\nDevice Minor: \t {minor}\n");
            write(&format!("proc/driver/nvidia/gpus/{address}/information"), &about);
            write(
                &format!("sys/bus/pci/devices/{address}/numa_node"),
                &format!("{node}\n"),
            );
        }
        let node = |cpus: &str, gpus: &[u32]| NumaNode {
            cpus: cpus.to_owned(),
            gpus: gpus.to_vec(),
        };
        assert_eq!(numa(), [node("0-15", &[1]), node("16-31", &[0])]);
    }

    #[test]
    fn the_governor_is_told_once_and_several_are_all_told() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(
            cpu_governor(root.path()),
            None,
            "a virtual machine sets no frequency"
        );
        let set = |cpu: u32, governor: &str| {
            let folder = root
                .path()
                .join(format!("sys/devices/system/cpu/cpu{cpu}/cpufreq"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("scaling_governor"), format!("{governor}\n")).unwrap();
        };
        set(0, "performance");
        set(1, "performance");
        assert_eq!(cpu_governor(root.path()).as_deref(), Some("performance"));
        set(2, "schedutil");
        assert_eq!(
            cpu_governor(root.path()).as_deref(),
            Some("performance, schedutil")
        );
    }

    #[test]
    fn a_host_is_identified_by_its_firmware_and_outside_containers_by_its_machine_id() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let read = || (dmi_uuid(root.path()), machine_id(root.path()));
        assert_eq!(read(), (None, None));
        let uuid = "sys/class/dmi/id/product_uuid";
        write("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
        write(uuid, "4C4C4544-0042-3510-8054-B4C04F4B4D32\n");
        let (dmi, id) = read();
        assert!(dmi.is_some() && id.is_some() && dmi != id, "{dmi:?} {id:?}");
        let dmi = dmi.unwrap();
        assert!(
            !dmi.to_lowercase().contains("4c4c4544"),
            "only a digest leaves the machine"
        );
        write(uuid, "4c4c4544-0042-3510-8054-b4c04f4b4d32\n");
        assert_eq!(dmi_uuid(root.path()), Some(dmi), "letter case is no difference");
        for placeholder in [
            "00000000-0000-0000-0000-000000000000",
            "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "03000200-0400-0500-0006-000700080009",
        ] {
            write(uuid, placeholder);
            assert_eq!(dmi_uuid(root.path()), None, "{placeholder}");
        }
        write("etc/machine-id", "uninitialized\n");
        assert_eq!(machine_id(root.path()), None);
        write("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
        write(
            "proc/self/mounts",
            "proc /proc proc rw 0 0\noverlay / overlay rw 0 0\n",
        );
        assert_eq!(machine_id(root.path()), None, "an overlay as root is a container");
        write(
            "proc/self/mounts",
            "/dev/sda1 / ext4 rw 0 0\noverlay /var/lib/x overlay rw 0 0\n",
        );
        assert!(machine_id(root.path()).is_some());
        write(".dockerenv", "");
        assert_eq!(machine_id(root.path()), None);
    }

    #[test]
    fn the_machine_knows_its_kernel_and_memory() {
        let machine = read("matrix test");
        assert!(machine.kernel.is_some_and(|kernel| !kernel.is_empty()));
        assert!(machine.memory_bytes.is_some_and(|bytes| bytes > 1 << 20));
        assert_eq!(machine.tool, "matrix test");
    }
}
