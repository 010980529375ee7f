//! Metrics of the host from its kernel: CPU time by user, memory, network, disks.

mod cpu_set;
mod process_cpu;
mod thread_cpu;

use std::path::Path;
use std::time::Duration;

use procfs::{Current, CurrentSI, KernelStats, LoadAverage, Meminfo};

use crate::base::clock;
use crate::results::record::telemetry::{HostWindow, SampleValues, TelemetrySource};
use crate::telemetry::host::cpu_set::{CpuRanges, allowed_cpus, parse_cpu_list, shares_cpus};
use crate::telemetry::host::process_cpu::ProcessTreeCpu;
use crate::telemetry::host::thread_cpu::ThreadCpu;
use crate::telemetry::probe::{DeviceReading, Probe};

const PERIOD: Duration = Duration::from_millis(500);

/// Size of a sector in `/proc/diskstats`, in bytes, whatever a disk's own sector size is.
const SECTOR_BYTES: f64 = 512.0;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EngineLocation {
    /// On this host; all its processes descend from these.
    Local(Vec<u32>),
    Remote,
    /// On this host, with unknown processes.
    Unknown,
}

pub(crate) struct HostProbe {
    engine: EngineLocation,
    process_tree: ProcessTreeCpu,
    thread_cpu: ThreadCpu,
    /// CPUs near the engine's GPUs, if these are a subset of the host's CPUs.
    near_cpus: Option<CpuRanges>,
}

impl HostProbe {
    pub(crate) fn new(engine: EngineLocation) -> Self {
        let roots = match &engine {
            EngineLocation::Local(roots) => roots.clone(),
            EngineLocation::Remote | EngineLocation::Unknown => Vec::new(),
        };
        Self {
            engine,
            process_tree: ProcessTreeCpu::new(roots),
            thread_cpu: ThreadCpu::default(),
            near_cpus: None,
        }
    }

    /// Sets the CPUs near the engine's GPUs, as a list in the kernel's format (`0-31,64-95`).
    pub(crate) fn with_near_cpus(self, cpus: Option<&str>) -> Self {
        Self {
            near_cpus: cpus.and_then(parse_cpu_list),
            ..self
        }
    }

    /// CPU time in seconds since the start of each counter: of this process, of the engine, of everything
    /// else.
    fn read_cpu(&mut self, values: &mut SampleValues) {
        let mut put =
            |name: &str, value: Option<f64>| values.extend(value.map(|value| (name.to_owned(), value)));
        let ticks = procfs::ticks_per_second() as f64;
        let stats = KernelStats::current().ok();
        let client = clock::process_cpu().as_secs_f64();
        let engine = match self.engine {
            EngineLocation::Local(_) => self.process_tree.cpu_s(clock::now()),
            EngineLocation::Remote | EngineLocation::Unknown => None,
        };
        let busy = stats.as_ref().map(|stats| {
            let time = &stats.total;
            let kernel = time.irq.unwrap_or(0) + time.softirq.unwrap_or(0);
            (time.user + time.nice + time.system + kernel) as f64 / ticks
        });
        // The rest is unknown if the engine's time is.
        let engine_cpu = match self.engine {
            EngineLocation::Local(_) => engine,
            EngineLocation::Remote => Some(0.0),
            EngineLocation::Unknown => None,
        };
        put("client_cpu_s", Some(client));
        put("engine_cpu_s", engine);
        put("busy_cpu_s", busy);
        put(
            "other_cpu_s",
            busy.zip(engine_cpu).map(|(busy, engine)| busy - client - engine),
        );
        put("cpus", stats.as_ref().map(|stats| stats.cpu_time.len() as f64));
        put(
            "context_switches_total",
            stats.as_ref().map(|stats| stats.ctxt as f64),
        );
        let stolen_s = stats.as_ref().and_then(|stats| stats.total.steal);
        put("stolen_cpu_s", stolen_s.map(|stolen_s| stolen_s as f64 / ticks));
        let shares = match self.engine {
            EngineLocation::Local(_) => shares_cpus(
                &allowed_cpus(std::process::id()),
                &self.process_tree.allowed_cpus(),
            ),
            EngineLocation::Remote => Some(false),
            EngineLocation::Unknown => None,
        };
        let own = self.process_tree.allowed_cpus();
        let is_remote = self.near_cpus.as_ref().and_then(|near| shares_cpus(near, &own));
        put("numa_remote", is_remote.map(|meets| f64::from(u8::from(!meets))));
        put("shares_cpus", shares.map(|shares| f64::from(u8::from(shares))));
    }
}

/// The processors that this host has, and how many of them other processes use during this time; without the rest of a window.
pub(crate) async fn other_processes(time: Duration) -> Option<HostWindow> {
    let mut probe = HostProbe::new(EngineLocation::Remote);
    let mut read = || {
        let mut values = SampleValues::new();
        probe.read_cpu(&mut values);
        (clock::now(), values)
    };
    let (began, before) = read();
    tokio::time::sleep(time).await;
    let (ended, after) = read();
    let used = |name: &str| Some(after.get(name)? - before.get(name)?);
    let seconds = ended.since(began).as_secs_f64();
    let other_cpus = ((used("busy_cpu_s")? - used("client_cpu_s")?) / seconds).max(0.0);
    Some(HostWindow {
        cpus: *after.get("cpus")? as u32,
        other_cpus: Some(other_cpus),
        ..HostWindow::default()
    })
}

impl Probe for HostProbe {
    fn source(&self) -> TelemetrySource {
        TelemetrySource::Host
    }

    fn period(&self) -> Duration {
        PERIOD
    }

    fn read(&mut self) -> Result<Vec<DeviceReading>, String> {
        let mut values = SampleValues::new();
        self.read_cpu(&mut values);
        if let Some((load, wait)) = self.thread_cpu.update() {
            values.insert("client_load_cpu_s".to_owned(), load);
            values.insert("client_wait_s".to_owned(), wait);
        }
        read_memory(&mut values);
        read_traffic(&mut values);
        Ok(vec![DeviceReading { device: None, values }])
    }
}

fn read_memory(values: &mut SampleValues) {
    if let Ok(memory) = Meminfo::current() {
        let available = memory
            .mem_available
            .map(|bytes| ("memory_available_bytes".to_owned(), bytes as f64));
        values.extend(available);
        let swapped = memory.swap_total.saturating_sub(memory.swap_free);
        values.insert("swap_used_bytes".to_owned(), swapped as f64);
    }
    if let Ok(events) = procfs::vmstat() {
        let pages = |name: &str| events.get(name).copied();
        if let (Some(to), Some(from)) = (pages("pswpout"), pages("pswpin")) {
            let bytes = (to + from).max(0) as f64 * procfs::page_size() as f64;
            values.insert("swap_bytes_total".to_owned(), bytes);
        }
    }
    if let Ok(load) = LoadAverage::current() {
        values.insert("load_1".to_owned(), f64::from(load.one));
    }
}

/// Bytes sent and received over the network, without loopback, and read from and written to whole disks.
fn read_traffic(values: &mut SampleValues) {
    if let Ok(devices) = procfs::net::dev_status() {
        let mut sum = (0, 0);
        for device in devices.values().filter(|device| device.name != "lo") {
            sum = (sum.0 + device.recv_bytes, sum.1 + device.sent_bytes);
        }
        values.insert("net_rx_bytes_total".to_owned(), sum.0 as f64);
        values.insert("net_tx_bytes_total".to_owned(), sum.1 as f64);
    }
    if let Ok(disks) = procfs::diskstats() {
        let is_whole = |name: &str| {
            let is_layer = ["loop", "ram", "zram", "dm-", "md"]
                .iter()
                .any(|kind| name.starts_with(kind));
            !is_layer && Path::new("/sys/block").join(name).exists()
        };
        let mut sum = (0, 0);
        for disk in disks.iter().filter(|disk| is_whole(&disk.name)) {
            sum = (sum.0 + disk.sectors_read, sum.1 + disk.sectors_written);
        }
        values.insert("disk_read_bytes_total".to_owned(), sum.0 as f64 * SECTOR_BYTES);
        values.insert("disk_write_bytes_total".to_owned(), sum.1 as f64 * SECTOR_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_processors_meet_or_do_not() {
        let of = |one: &[(u32, u32)], other: &[(u32, u32)]| shares_cpus(&one.to_vec(), &other.to_vec());
        assert_eq!(of(&[(0, 3)], &[(4, 7)]), Some(false));
        assert_eq!(of(&[(0, 3), (8, 8)], &[(4, 8)]), Some(true));
        assert_eq!(of(&[(2, 2)], &[(0, 7)]), Some(true));
        assert_eq!(of(&[], &[(0, 7)]), None);
        assert_eq!(parse_cpu_list("0-31,64"), Some(vec![(0, 31), (64, 64)]));
        assert_eq!(parse_cpu_list("a"), None);
    }

    #[test]
    fn a_child_that_works_is_the_engine_and_its_work_outlives_it() {
        let work = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let script = format!("({work}) & wait; read line; ({work}); read line");
        let mut child = std::process::Command::new("sh")
            .args(["-c", &script])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut probe = HostProbe::new(EngineLocation::Local(vec![child.id()]));
        let mut look = || probe.read().unwrap().remove(0).values;
        let mut last = look()["engine_cpu_s"];
        let began = clock::now();
        // The work of a grandchild is counted when it has ended.
        while last < 0.05 && clock::now().since(began) < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(50));
            let now = look()["engine_cpu_s"];
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
        assert!(last >= 0.05, "{last}");
        child.kill().unwrap();
        child.wait().unwrap();
        let values = look();
        assert!(
            values["engine_cpu_s"] >= last,
            "what ended has worked all the same: {values:?}"
        );
        assert!(values["client_cpu_s"] > 0.0 && values["cpus"] >= 1.0);
        assert!(values["memory_available_bytes"] > 1e6 && values["load_1"] >= 0.0);
        assert!(values["context_switches_total"] > 0.0);
    }

    #[test]
    fn looking_at_the_host_takes_less_than_a_hundredth_of_a_processor() {
        let mut probe = HostProbe::new(EngineLocation::Local(vec![std::process::id()]));
        probe.read().unwrap();
        let began = clock::thread_cpu();
        (0..20).for_each(|_| drop(probe.read().unwrap()));
        let each = (clock::thread_cpu() - began).as_secs_f64() / 20.0;
        assert!(each / PERIOD.as_secs_f64() < 0.01, "{each} s");
    }

    #[test]
    fn of_an_engine_elsewhere_all_other_work_is_that_of_others() {
        let mut elsewhere = HostProbe::new(EngineLocation::Remote);
        let values = elsewhere.read().unwrap().remove(0).values;
        assert!(!values.contains_key("engine_cpu_s") && values.contains_key("other_cpu_s"));
        assert_eq!(values["shares_cpus"], 0.0);
        let values = HostProbe::new(EngineLocation::Unknown)
            .read()
            .unwrap()
            .remove(0)
            .values;
        assert!(!values.contains_key("other_cpu_s") && !values.contains_key("shares_cpus"));
    }
}
