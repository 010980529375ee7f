//! Chooses the GPUs of a run: of those that the user allows, idle ones first.

use std::sync::Arc;

use crate::config::gpus::{GpuList, GpuName};
use crate::plan::{Container, ContainerGpus as Given, ExecutorSpec, Plan};
use crate::results::record::machine::Machine;
use crate::results::record::telemetry::{Gpu, MigInstance};
use crate::runner::context::HostEnv;
use crate::runner::environment::Environment;
use crate::runner::gpu_idle;

/// GPUs that the user allows, and where.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GpuRequest {
    pub(crate) list: GpuList,
    /// Source of the list, such as `--gpus`.
    pub(crate) source: &'static str,
}

/// The GPUs that a run may use: the allowed ones, otherwise all of the host's. Fails with a message if a name
/// matches no GPU.
pub(crate) fn allowed_gpus(machine: &Machine, request: Option<&GpuRequest>) -> Result<Vec<u32>, String> {
    let count = u32::try_from(machine.gpus.len()).unwrap_or(u32::MAX);
    let Some(GpuRequest { list, source: from }) = request else {
        return Ok((0..count).collect());
    };
    let mut devices = Vec::new();
    for name in list.names() {
        let matching: Vec<u32> = match name {
            GpuName::Index(index) => Some(*index).filter(|index| *index < count).into_iter().collect(),
            GpuName::Uuid(uuid) => devices_by_uuid(machine, uuid),
            GpuName::Instance(gpu, number) => {
                let is_it = |instance: &MigInstance| (instance.gpu, instance.number) == (*gpu, *number);
                let all = machine.devices.iter();
                all.filter(|gpu| gpu.instance.as_ref().is_some_and(is_it))
                    .map(|gpu| gpu.device)
                    .collect()
            }
        };
        if matching.is_empty() {
            let count_text = match count {
                0 => "no GPU".to_owned(),
                1 => "only GPU 0".to_owned(),
                count => format!("GPUs 0 to {}", count - 1),
            };
            return Err(format!("{from} names GPU {name}, but this host has {count_text}"));
        }
        let new: Vec<u32> = matching
            .into_iter()
            .filter(|index| !devices.contains(index))
            .collect();
        devices.extend(new);
    }
    Ok(devices)
}

/// The GPUs that the environment leaves visible. Fails if it names others than those of this host: inside a container the
/// visible GPUs may already be those of the list, with new indexes.
pub(crate) fn visible_gpus(machine: &Machine, environment: &Environment) -> Result<Vec<u32>, String> {
    let request = match &environment.visible_gpus {
        None => None,
        Some((_, None)) => return Ok(Vec::new()),
        Some((_, Some(list))) => Some(GpuRequest {
            list: list.clone(),
            source: "the environment",
        }),
    };
    allowed_gpus(machine, request.as_ref())
}

/// The device with this UUID, or all MIG instances of the GPU with this UUID.
fn devices_by_uuid(machine: &Machine, uuid: &str) -> Vec<u32> {
    let is_it = |known: Option<&String>| known.is_some_and(|known| known.starts_with(uuid));
    let devices = || machine.devices.iter();
    let instances = devices()
        .find(|gpu| is_it(gpu.uuid.as_ref()))
        .map(|gpu| gpu.device);
    let of_gpu = |gpu: &&Gpu| {
        is_it(
            gpu.instance
                .as_ref()
                .and_then(|instance| instance.gpu_uuid.as_ref()),
        )
    };
    match instances {
        Some(device) => vec![device],
        None => devices().filter(of_gpu).map(|gpu| gpu.device).collect(),
    }
}

/// The largest number of GPUs that a plan uses at one time.
pub(super) fn gpus_needed(plan: &Plan) -> usize {
    let launches = plan.launches.iter().map(|launch| launch.local_gpus() as usize);
    match plan.parallel {
        true => launches.sum(),
        false => launches.max().unwrap_or(0),
    }
}

/// Chooses as many of the allowed GPUs as the plan needs, idle ones first.
pub(crate) async fn choose_gpus(plan: &Plan, host: &HostEnv, allowed: &[u32]) -> Vec<u32> {
    let count = gpus_needed(plan).min(allowed.len());
    let mut chosen = allowed.to_vec();
    if let Some(gpus) = host.gpus.as_ref().filter(|_| count > 0 && count < allowed.len()) {
        let busy = gpu_idle::busy_devices(&Arc::clone(gpus), allowed, plan.validity.rest_memory).await;
        // The sort is stable: idle GPUs first, in the order of their indexes.
        chosen.sort_by_key(|gpu| busy.contains(gpu));
        chosen.truncate(count);
        chosen.sort_unstable();
    }
    chosen
}

/// Limits containers that would see all GPUs to the leased ones. Called if the run does not use all GPUs of
/// the host.
pub(crate) fn restrict_to_leased(plan: &mut Plan) {
    for launch in &mut plan.launches {
        if let ExecutorSpec::Container(container) = &mut launch.place {
            let Container { gpus, .. } = container.as_mut();
            *gpus = match *gpus {
                Given::All => Given::Leased,
                Given::CdiAll => Given::Cdi,
                other => other,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_gpus_of_this_host_or_it_is_said_which_do_not() {
        let machine = Machine {
            gpus: vec!["a".to_owned(); 3],
            devices: (0..3)
                .map(|device| Gpu {
                    device,
                    uuid: Some(format!("GPU-57b0000{device}-4000")),
                    ..Gpu::default()
                })
                .collect(),
            ..Machine::default()
        };
        let of = |text: &str| {
            let gpu_request = GpuRequest {
                list: text.parse().unwrap(),
                source: "`--gpus`",
            };
            allowed_gpus(&machine, Some(&gpu_request))
        };
        assert_eq!(allowed_gpus(&machine, None), Ok(vec![0, 1, 2]));
        assert_eq!(of("2,0,2"), Ok(vec![2, 0]));
        assert_eq!(of("GPU-57b00001"), Ok(vec![1]));
        assert_eq!(
            of("1-3"),
            Err("`--gpus` names GPU 3, but this host has GPUs 0 to 2".to_owned())
        );
        assert!(of("GPU-ff").is_err());
    }

    #[test]
    fn instances_are_named_by_their_gpu_by_number_and_by_uuid() {
        let instance = |device: u32, number: u32| Gpu {
            device,
            uuid: Some(format!("MIG-57b0000{number}")),
            instance: Some(MigInstance {
                gpu: 0,
                gpu_uuid: Some("GPU-aa".to_owned()),
                number,
            }),
            ..Gpu::default()
        };
        let whole = Gpu {
            device: 2,
            uuid: Some("GPU-bb".to_owned()),
            ..Gpu::default()
        };
        let machine = Machine {
            gpus: vec!["a".to_owned(); 3],
            devices: vec![instance(0, 0), instance(1, 1), whole],
            ..Machine::default()
        };
        let of = |text: &str| {
            let gpu_request = GpuRequest {
                list: text.parse().unwrap(),
                source: "`--gpus`",
            };
            allowed_gpus(&machine, Some(&gpu_request))
        };
        assert_eq!(of("GPU-aa"), Ok(vec![0, 1]));
        assert_eq!(of("0:1,GPU-bb"), Ok(vec![1, 2]));
        assert_eq!(of("MIG-57b00001"), Ok(vec![1]));
        assert!(of("1:0").is_err());
        assert_eq!(machine.device_names(&[1, 2]), ["MIG-57b00001", "GPU-bb"]);
    }
}
