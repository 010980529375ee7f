//! Huawei's Ascend NPUs, read with `npu-smi`. The format is taken from documentation and from output that
//! users published; this code has not been run on an Ascend NPU.
//!
//! Documentation: <https://support.huawei.com/enterprise/en/doc/EDOC1100388864> (npu-smi command reference).
//! `npu-smi info` prints two rows per chip: name, health, power and temperature; then bus address and
//! utilization of cores and memories. A second table lists the processes. `NA` or `-` marks missing values.
//! Chips are numbered in order of appearance, as in `ASCEND_RT_VISIBLE_DEVICES`.

use crate::results::record::telemetry::{Gpu, GpuProcess, SampleValues, TelemetrySource};
use crate::telemetry::gpu::DeviceSnapshot;
use crate::telemetry::gpu::vendor_cli::{self, Program};

#[derive(Clone, Debug)]
pub(super) struct Ascend(Program);

impl Ascend {
    /// Finds the tool in `PATH` and lists its chips; `None` if there is no tool.
    pub(super) fn find(path: Option<&str>) -> Result<Option<(Self, Vec<Gpu>)>, String> {
        let Some(program) = Program::find("npu-smi", path) else {
            return Ok(None);
        };
        let tool = Self(program);
        let table = tool.table()?;
        let driver = table.version.clone();
        let chips = (0..).zip(table.chips);
        let facts = chips.map(|(index, chip)| Gpu {
            device: index,
            name: format!("Ascend {}", chip.name),
            bus: chip.bus,
            driver: driver.clone(),
            memory_bytes: chip.memory.map(|(_, total)| total),
            ..Gpu::default()
        });
        let facts = facts.collect();
        Ok(Some((tool, facts)))
    }

    fn table(&self) -> Result<Table, String> {
        Ok(Table::parse(&self.0.run(&["info"])?))
    }
}

impl vendor_cli::Tool for Ascend {
    const SOURCE: TelemetrySource = TelemetrySource::Ascend;

    fn snapshots(&self) -> Result<Vec<(u32, DeviceSnapshot)>, String> {
        let table = self.table()?;
        let look = |chip| DeviceSnapshot {
            values: Chip::values(chip),
            processes: Some(table.processes_on(chip)),
        };
        Ok((0..).zip(table.chips.iter().map(look)).collect())
    }
}

/// Parsed output of `npu-smi info`.
#[derive(Debug, Default, PartialEq)]
struct Table {
    version: Option<String>,
    chips: Vec<Chip>,
    processes: Vec<(u32, u32, GpuProcess)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Chip {
    npu: u32,
    chip: u32,
    name: String,
    bus: Option<String>,
    power_w: Option<f64>,
    temperature_c: Option<f64>,
    util_share: Option<f64>,
    /// Used and total memory, in bytes.
    memory: Option<(u64, u64)>,
}

impl Chip {
    fn values(&self) -> SampleValues {
        let values = [
            ("power_w", self.power_w),
            ("temperature_c", self.temperature_c),
            ("gpu_util_share", self.util_share),
            ("memory_used_bytes", self.memory.map(|(used, _)| used as f64)),
        ];
        values
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect()
    }
}

impl Table {
    fn parse(text: &str) -> Self {
        let mut table = Self::default();
        let mut first: Option<Chip> = None;
        let mut in_processes = false;
        for line in text.lines().map(str::trim) {
            if let Some((_, version)) = line.split_once("Version:") {
                let version = version.trim_matches(['|', ' ']);
                table.version = Some(version.to_owned()).filter(|version| !version.is_empty());
            }
            in_processes |= line.contains("Process id");
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            if !line.starts_with('|') {
                continue;
            }
            if in_processes {
                table.processes.extend(parse_process(&cells));
                continue;
            }
            let [left, middle, right] = cells.as_slice() else {
                continue;
            };
            match first.take() {
                Some(chip) => table.chips.extend(second_row(chip, left, middle, right)),
                None => first = first_row(left, right),
            }
        }
        table
    }

    fn processes_on(&self, chip: &Chip) -> Vec<GpuProcess> {
        let on_chip = self.processes.iter();
        let on_chip = on_chip.filter(|(npu, number, _)| (*npu, *number) == (chip.npu, chip.chip));
        on_chip.map(|(_, _, process)| process.clone()).collect()
    }
}

/// Parses NPU number and name, power and temperature. `None` for a heading, which does not begin with a
/// number.
fn first_row(left: &str, right: &str) -> Option<Chip> {
    let mut left = left.split_whitespace();
    let mut right = right.split_whitespace();
    Some(Chip {
        npu: left.next()?.parse().ok()?,
        name: left.next()?.to_owned(),
        power_w: right.next()?.parse().ok(),
        temperature_c: right.next()?.parse().ok(),
        ..Chip::default()
    })
}

/// Parses chip number and, on some models, device number; bus address; utilization of the cores, of DDR
/// memory, of HBM.
fn second_row(chip: Chip, left: &str, middle: &str, right: &str) -> Option<Chip> {
    let number = left.split_whitespace().next()?.parse().ok()?;
    // Spacing around the slash varies, as in `1197 / 13553`.
    let right = right.replace('/', " ");
    let mut right = right.split_whitespace();
    let share = right.next()?.parse::<f64>().ok().map(|percent| percent / 100.0);
    let numbers: Vec<u64> = right.filter_map(|number| number.parse().ok()).collect();
    let memories = numbers.chunks_exact(2).map(|pair| (pair[0] << 20, pair[1] << 20));
    Some(Chip {
        chip: number,
        bus: Some(middle.to_ascii_lowercase()).filter(|bus| bus.contains(':')),
        util_share: share,
        // The last memory with a size above 0: HBM if the chip has it.
        memory: memories.rev().find(|(_, total)| *total > 0),
        ..chip
    })
}

/// Parses NPU and chip number, process id, name, memory in MB.
fn parse_process(cells: &[&str]) -> Option<(u32, u32, GpuProcess)> {
    let [at, pid, name, memory] = cells else {
        return None;
    };
    let mut at = at.split_whitespace();
    let process = GpuProcess {
        pid: pid.parse().ok()?,
        name: Some((*name).to_owned()).filter(|name| !name.is_empty()),
        memory_bytes: memory.parse::<u64>().ok().map(|megabytes| megabytes << 20),
    };
    Some((at.next()?.parse().ok()?, at.next()?.parse().ok()?, process))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sample output in the documented format; the figures are invented.
    const TWO: &str = "\
+------------------------------------------------------------------------------------------------+
| npu-smi 24.1.0                   Version: 24.1.0                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 2     910B4               | OK            | 212.9       51                0    / 0             |
| 0                         | 0000:C2:00.0  | 87          0    / 0          30858/ 32768         |
+===========================+===============+====================================================+
| 5     910B4               | Warning       | NA          -                 0    / 0             |
| 0                         | 0000:01:00.0  | 0           0    / 0          2858 / 32768         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 2       0                 | 4242          | python3.10               | 28011                   |
+===========================+===============+====================================================+
| No running processes found in NPU 5                                                            |
+===========================+===============+====================================================+
";

    /// A chip with one kind of memory, and with a device number beside its chip number.
    const INFERENCE: &str = "\
| NPU     Name                  | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |
+===============================+=================+======================================================+
| 6       310P3                 | OK              | NA           50                0     / 0             |
| 0       0                     | 0000:84:00.0    | 3            1839 / 21525                            |
";

    #[test]
    fn chips_and_processes_are_read_in_order_and_what_is_na_is_absent() {
        let table = Table::parse(TWO);
        assert_eq!(table.version.as_deref(), Some("24.1.0"));
        let [first, second] = table.chips.as_slice() else {
            panic!("{table:?}");
        };
        let values: Vec<(String, f64)> = first.values().into_iter().collect();
        let expected = [
            ("gpu_util_share", 0.87),
            ("memory_used_bytes", f64::from(30_858) * 1_048_576.0),
            ("power_w", 212.9),
            ("temperature_c", 51.0),
        ];
        assert_eq!(values, expected.map(|(name, value)| (name.to_owned(), value)));
        assert_eq!((first.npu, first.bus.as_deref()), (2, Some("0000:c2:00.0")));
        assert_eq!((second.power_w, second.temperature_c), (None, None));
        let process = GpuProcess {
            pid: 4242,
            name: Some("python3.10".to_owned()),
            memory_bytes: Some(28_011 << 20),
        };
        assert_eq!(table.processes_on(first), [process]);
        assert_eq!(table.processes_on(second), []);
    }

    #[test]
    fn a_chip_with_memory_of_one_kind_is_read_too() {
        let table = Table::parse(INFERENCE);
        let [chip] = table.chips.as_slice() else {
            panic!("{table:?}");
        };
        assert_eq!((chip.name.as_str(), chip.power_w), ("310P3", None));
        assert_eq!(chip.memory, Some((1839 << 20, 21_525 << 20)));
        assert_eq!(Table::parse("no such device").chips, []);
    }
}
