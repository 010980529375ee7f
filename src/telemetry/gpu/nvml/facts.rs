//! Static facts of each GPU.

use std::collections::BTreeMap;
use std::path::Path;

use nvml_wrapper::enum_wrappers::device::{Clock, TopologyLevel};
use nvml_wrapper::{Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor};

use crate::results::record::telemetry::{Gpu, MigInstance};

/// Maximum number of NVLinks of a GPU.
const MAX_LINKS: u32 = 36;

/// All GPUs in the library's order, which is that of the PCI bus. A GPU with MIG instances is replaced by
/// these.
pub(super) fn read(nvml: &'static Nvml) -> Result<Vec<Gpu>, String> {
    let count = nvml
        .device_count()
        .map_err(|error| format!("NVIDIA's library cannot list its devices: {error}"))?;
    let driver = nvml.sys_driver_version().ok();
    let cuda = nvml.sys_cuda_driver_version().ok().map(|version| {
        format!(
            "{}.{}",
            cuda_driver_version_major(version),
            cuda_driver_version_minor(version)
        )
    });
    let mut gpus: Vec<Gpu> = Vec::new();
    // Index of each whole GPU in the result, with its NVML index and the peers of its links.
    let mut links = BTreeMap::new();
    for index in 0..count {
        let next = |gpus: &[Gpu]| u32::try_from(gpus.len()).unwrap_or(u32::MAX);
        let gpu = Gpu {
            device: next(&gpus),
            name: "NVIDIA GPU".to_owned(),
            driver: driver.clone(),
            cuda: cuda.clone(),
            ..Gpu::default()
        };
        // A GPU that has fallen off the bus keeps its index.
        let Ok(device) = nvml.device_by_index(index) else {
            gpus.push(gpu);
            continue;
        };
        let whole_gpu = with_facts(&device, gpu);
        let instances = instances(&device, index, &whole_gpu);
        if instances.is_empty() {
            links.insert(next(&gpus), (index, peers(&device)));
            gpus.push(whole_gpu);
        }
        for instance in instances {
            let device = next(&gpus);
            gpus.push(Gpu { device, ..instance });
        }
    }
    for (place, (index, own)) in &links {
        gpus[*place as usize].links = connections(nvml, *index, own, &gpus, &links);
    }
    Ok(gpus)
}

/// The MIG instances of a GPU, which engines use in its place. Empty if MIG is off or there is no instance.
fn instances(device: &Device<'_>, index: u32, gpu: &Gpu) -> Vec<Gpu> {
    if gpu.mig != Some(true) {
        return Vec::new();
    }
    let most = device.mig_device_count().unwrap_or(0);
    let instance = |number: u32| {
        // Unused instance numbers are normal.
        let instance = device.mig_device_by_index(number).ok()?;
        Some(Gpu {
            name: instance.name().unwrap_or_else(|_| format!("{} MIG", gpu.name)),
            // An engine can only be given an instance with a UUID.
            uuid: Some(instance.uuid().ok()?),
            memory_bytes: instance.memory_info().ok().map(|memory| memory.total),
            // The limit applies to the whole GPU.
            power_limit_w: None,
            display: None,
            instance: Some(MigInstance {
                gpu: index,
                gpu_uuid: gpu.uuid.clone(),
                number,
            }),
            ..gpu.clone()
        })
    };
    (0..most).filter_map(instance).collect()
}

fn with_facts(device: &Device<'_>, gpu: Gpu) -> Gpu {
    let bus = device.pci_info().ok().map(|info| bus_address(&info.bus_id));
    let limit = device
        .enforced_power_limit()
        .or_else(|_| device.power_management_limit());
    Gpu {
        name: device.name().unwrap_or(gpu.name),
        uuid: device.uuid().ok(),
        numa: bus.as_deref().and_then(|bus| numa_node(Path::new("/"), bus)),
        bus,
        vbios: device.vbios_version().ok(),
        // `NVML_DEVICE_MIG_ENABLE` is 1.
        mig: device.mig_mode().ok().map(|mode| mode.current == 1),
        memory_bytes: device.memory_info().ok().map(|memory| memory.total),
        power_limit_w: limit.ok().map(|milliwatts| f64::from(milliwatts) / 1e3),
        max_sm_clock_mhz: device.max_clock_info(Clock::SM).ok().map(f64::from),
        display: device.is_display_active().ok(),
        pcie_generation: device.max_pcie_link_gen().ok(),
        pcie_width: device.max_pcie_link_width().ok(),
        ecc: device.is_ecc_enabled().ok().map(|state| state.currently_enabled),
        ..gpu
    }
}

/// Converts a bus address to the kernel's form; NVML writes the domain with eight digits.
fn bus_address(bus: &str) -> String {
    let bus = bus.to_ascii_lowercase();
    match bus.split_once(':') {
        Some((domain, rest)) if domain.len() > 4 && domain.starts_with("0000") => {
            format!("{}:{rest}", &domain[domain.len() - 4..])
        }
        _ => bus,
    }
}

/// Bus addresses of the peers of all active links.
fn peers(device: &Device<'_>) -> Vec<String> {
    let mut peers = Vec::new();
    for number in 0..MAX_LINKS {
        let link = device.link_wrapper_for(number);
        // The first link that does not exist is an error.
        match link.is_active() {
            Ok(true) => {}
            Ok(false) => continue,
            Err(_) => break,
        }
        let peer = link.remote_pci_info().map(|info| bus_address(&info.bus_id));
        peers.push(peer.unwrap_or_default());
    }
    peers
}

/// How a GPU reaches each other GPU: by NVLink (directly or through switches), else the level of the PCI
/// topology. MIG instances are left out.
fn connections(
    nvml: &'static Nvml,
    index: u32,
    own: &[String],
    gpus: &[Gpu],
    links: &BTreeMap<u32, (u32, Vec<String>)>,
) -> BTreeMap<u32, String> {
    let is_gpu = |peer: &String| gpus.iter().any(|gpu| gpu.bus.as_ref() == Some(peer));
    // A peer that is not a GPU is a switch. All switches are assumed to belong to one fabric.
    let is_switched = |links: &[String]| links.iter().any(|peer| !is_gpu(peer));
    let others = links.iter().filter(|(_, (other, _))| *other != index);
    others
        .filter_map(|(place, (other, theirs))| {
            let bus = gpus[*place as usize].bus.as_ref();
            let is_direct = bus.is_some_and(|bus| own.contains(bus));
            let is_linked = is_direct || (is_switched(own) && is_switched(theirs));
            let level = match is_linked {
                true => "nvlink",
                false => {
                    let device = nvml.device_by_index(index).ok()?;
                    let other = nvml.device_by_index(*other).ok()?;
                    topology_name(device.topology_common_ancestor(other).ok()?)
                }
            };
            Some((*place, level.to_owned()))
        })
        .collect()
}

const fn topology_name(level: TopologyLevel) -> &'static str {
    match level {
        TopologyLevel::Internal => "same-board",
        TopologyLevel::Single => "pci-switch",
        TopologyLevel::Multiple => "pci-switches",
        TopologyLevel::HostBridge => "host-bridge",
        TopologyLevel::Node => "numa-node",
        TopologyLevel::System => "system",
    }
}

/// The NUMA node of a PCI device, from sysfs below `root`.
fn numa_node(root: &Path, bus: &str) -> Option<u32> {
    let node = std::fs::read_to_string(root.join(format!("sys/bus/pci/devices/{bus}/numa_node"))).ok()?;
    // -1, for a device without a node, does not parse.
    node.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bus_address_is_written_as_the_kernel_writes_it() {
        assert_eq!(bus_address("00000000:C1:00.0"), "0000:c1:00.0");
        assert_eq!(bus_address("0000:0a:00.0"), "0000:0a:00.0");
        assert_eq!(bus_address("00010000:0a:00.0"), "00010000:0a:00.0");
    }
}
