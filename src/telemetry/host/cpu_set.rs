//! Sets of CPUs of a process or GPU.

use crate::base::proc;

/// Ranges of CPU numbers, both ends included.
pub(super) type CpuRanges = Vec<(u32, u32)>;

/// CPUs on which a process may run; empty if unknown.
pub(super) fn allowed_cpus(pid: u32) -> CpuRanges {
    proc::open(pid)
        .and_then(|process| process.status().ok()?.cpus_allowed_list)
        .unwrap_or_default()
}

/// Parses a CPU list of the kernel; `None` if it is invalid.
pub(super) fn parse_cpu_list(text: &str) -> Option<CpuRanges> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some((from.trim().parse().ok()?, to.trim().parse().ok()?))
    };
    text.split(',').map(range).collect()
}

/// Whether two sets of CPUs overlap; `None` if one is unknown.
pub(super) fn shares_cpus(one: &CpuRanges, other: &CpuRanges) -> Option<bool> {
    let meet = |(a, b): &(u32, u32), (c, d): &(u32, u32)| a <= d && c <= b;
    (!one.is_empty() && !other.is_empty())
        .then(|| one.iter().any(|one| other.iter().any(|other| meet(one, other))))
}
