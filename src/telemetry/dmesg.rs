//! Kernel messages about GPU faults and memory, read after an engine has failed.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use crate::base::clock;
use crate::results::record::post_mortem::KernelLog;

/// Substrings that select a message, in lower case.
const RELEVANT_TEXTS: &[&str] = &[
    "xid",
    "nvrm",
    "nvidia-",
    "out of memory",
    "oom-kill",
    "oom_reaper",
    "killed process",
    "segfault",
    "machine check",
    "pcieport",
];

/// Maximum number of lines; the last ones are kept.
const MAX_LINES: usize = 50;

/// Maximum size of a kernel record, in bytes.
const MAX_RECORD_BYTES: usize = 8 << 10;

/// The selected messages of the last `ago`. They may concern unrelated processes.
pub(crate) fn read_since(ago: Duration) -> KernelLog {
    let from = clock::since_boot().saturating_sub(ago);
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(nonblock)
        .open("/dev/kmsg");
    let mut log = match opened {
        Ok(log) => log,
        Err(error) => return KernelLog::Unreadable(format!("/dev/kmsg: {error}")),
    };
    let mut lines = Vec::new();
    let mut record = vec![0; MAX_RECORD_BYTES];
    loop {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(count) => lines.extend(relevant_line(&String::from_utf8_lossy(&record[..count]), from)),
            // The record was overwritten during the read; the next read continues behind it.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if lines.is_empty() => {
                return KernelLog::Unreadable(format!("/dev/kmsg: {error}"));
            }
            Err(_) => break,
        }
    }
    let older = lines.len().saturating_sub(MAX_LINES);
    lines.drain(..older);
    KernelLog::Lines(lines)
}

/// The line of a record `priority,sequence,microseconds,flags;text`, if it is recent enough and selected.
fn relevant_line(record: &str, from: Duration) -> Option<String> {
    let (head, text) = record.split_once(';')?;
    let micros: u64 = head.split(',').nth(2)?.parse().ok()?;
    let at = Duration::from_micros(micros);
    let line = text.lines().next()?;
    let lower = line.to_ascii_lowercase();
    let tells = at >= from && RELEVANT_TEXTS.iter().any(|word| lower.contains(word));
    tells.then(|| format!("[{:.6}] {line}", at.as_secs_f64()))
}

/// Whether a message reports a fault (an Xid) of one of the GPUs with these PCI addresses.
pub(crate) fn is_fault_of(line: &str, buses: &[String]) -> bool {
    let line = line.to_ascii_lowercase();
    // The message omits the PCI function.
    let device = |bus: &String| {
        bus.rsplit_once('.')
            .map_or(bus.clone(), |(device, _)| device.to_owned())
    };
    line.contains("xid") && buses.iter().any(|bus| line.contains(&device(bus)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_young_lines_about_gpus_and_memory_are_kept() {
        let from = Duration::from_secs(100);
        let xid =
            "3,1,100500000,-;NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus\n SUBSYSTEM=pci\n";
        assert_eq!(
            relevant_line(xid, from).as_deref(),
            Some("[100.500000] NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus")
        );
        assert_eq!(relevant_line("3,1,99000000,-;NVRM: Xid 79\n", from), None);
        assert_eq!(relevant_line("6,1,100500000,-;eth0: link up\n", from), None);
        let oom = "3,1,100500000,-;Memory cgroup out of memory: Killed process 7 (matrix)\n";
        assert!(relevant_line(oom, from).is_some());
    }

    #[test]
    fn a_fault_belongs_to_the_device_that_it_names() {
        let line = "[1.5] NVRM: Xid (PCI:0000:1B:00): 48, pid=7, DBE (double bit error)";
        let is_of = |bus: &str| is_fault_of(line, &[bus.to_owned()]);
        assert!(is_of("0000:1b:00.0"));
        assert!(!is_of("0000:2b:00.0"));
        assert!(!is_fault_of(
            "[1.5] NVRM: loading 0000:1b:00",
            &["0000:1b:00.0".to_owned()]
        ));
    }

    #[test]
    fn the_log_is_read_or_it_is_said_why_not() {
        match read_since(Duration::from_secs(3600)) {
            KernelLog::Lines(lines) => assert!(lines.len() <= MAX_LINES),
            KernelLog::Unreadable(why) => assert!(why.starts_with("/dev/kmsg: "), "{why}"),
        }
    }
}
