//! The machine as it is: read once, at the start of a run.

use std::fs;

use procfs::Current;

use crate::results::record::machine::Machine;

/// What the machine tells of itself; what it does not tell is absent.
pub fn read(tool: &str) -> Machine {
    let line = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let cpu = procfs::CpuInfo::current()
        .ok()
        .and_then(|info| info.model_name(0).map(str::to_owned));
    Machine {
        host: line("/proc/sys/kernel/hostname"),
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
        gpus: gpus(),
        gpus_pretended: false,
        driver: line("/sys/module/nvidia/version"),
        open_files: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
        tool: tool.to_owned(),
    }
}

/// NVIDIA GPUs in the order of their device nodes, with the names that the kernel driver gives.
pub fn gpus() -> Vec<String> {
    let mut found: Vec<(u32, String)> = Vec::new();
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
        found.push((minor, field("Model").unwrap_or_else(|| "NVIDIA GPU".to_owned())));
    }
    if found.is_empty() {
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
        found.extend(nodes);
    }
    found.sort();
    found.into_iter().map(|(_, name)| name).collect()
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
    fn the_machine_knows_its_kernel_and_memory() {
        let machine = read("matrix test");
        assert!(machine.kernel.is_some_and(|kernel| !kernel.is_empty()));
        assert!(machine.memory_bytes.is_some_and(|bytes| bytes > 1 << 20));
        assert_eq!(machine.tool, "matrix test");
    }
}
