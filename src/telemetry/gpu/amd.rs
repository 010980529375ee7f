//! AMD GPUs, read with `amd-smi`, or with `rocm-smi` if only that exists. The formats are taken from
//! documentation and from output that users published; this code has not been run on an AMD GPU.
//!
//! Documentation: <https://rocm.docs.amd.com/projects/amdsmi/en/latest/how-to/amdsmi-cli-tool.html>.
//! `amd-smi` prints one object per GPU, in a list or, since version 26, in a list below `gpu_data`. A value
//! is a number with its unit, or `N/A`. `rocm-smi` prints one object per card, whose keys contain the units.

use serde_json::Value;

use crate::results::record::telemetry::{Gpu, GpuProcess, SampleValues, TelemetrySource};
use crate::telemetry::gpu::DeviceSnapshot;
use crate::telemetry::gpu::vendor_cli::{self, Program};

/// Arguments of `rocm-smi`.
const ROCM_SMI_ARGS: &[&str] = &[
    "--showproductname",
    "--showuniqueid",
    "--showbus",
    "--showvbios",
    "--showdriverversion",
    "--showuse",
    "--showmemuse",
    "--showmeminfo",
    "vram",
    "--showpower",
    "--showmaxpower",
    "--showtemp",
    "--showclocks",
    "--json",
];

#[derive(Clone, Debug)]
pub(super) enum Amd {
    AmdSmi(Program),
    RocmSmi(Program),
}

impl Amd {
    /// Finds the tool in `PATH` and lists its GPUs; `None` if there is no tool.
    pub(super) fn find(path: Option<&str>) -> Result<Option<(Self, Vec<Gpu>)>, String> {
        if let Some(program) = Program::find("amd-smi", path) {
            let facts = facts(&parse(&program.run(&["static", "--json"])?)?);
            return Ok(Some((Self::AmdSmi(program), facts)));
        }
        let Some(program) = Program::find("rocm-smi", path) else {
            return Ok(None);
        };
        let facts = rocm_facts(&parse(&program.run(ROCM_SMI_ARGS)?)?);
        Ok(Some((Self::RocmSmi(program), facts)))
    }

    fn values(&self) -> Result<Vec<(u32, SampleValues)>, String> {
        Ok(match self {
            Self::AmdSmi(program) => metrics(&parse(&program.run(&["metric", "--json"])?)?),
            Self::RocmSmi(program) => rocm_metrics(&parse(&program.run(ROCM_SMI_ARGS)?)?),
        })
    }

    /// Processes, each with the index of its GPU; `None` for `rocm-smi`, which does not report the GPU of a process.
    fn processes(&self) -> Result<Option<Vec<(u32, GpuProcess)>>, String> {
        match self {
            Self::AmdSmi(program) => {
                let answer = parse(&program.run(&["process", "--json"])?)?;
                Ok(Some(process_list(&answer)))
            }
            Self::RocmSmi(_) => Ok(None),
        }
    }
}

impl vendor_cli::Tool for Amd {
    const SOURCE: TelemetrySource = TelemetrySource::Amd;

    fn snapshots(&self) -> Result<Vec<(u32, DeviceSnapshot)>, String> {
        let values = self.values()?;
        let processes = self.processes()?;
        let look = |(index, values)| {
            let processes = processes.as_ref().map(|all| processes_of(all, index));
            (index, DeviceSnapshot { values, processes })
        };
        Ok(values.into_iter().map(look).collect())
    }
}

fn processes_of(processes: &[(u32, GpuProcess)], device: u32) -> Vec<GpuProcess> {
    let on_device = processes.iter().filter(|(index, _)| *index == device);
    on_device.map(|(_, process)| process.clone()).collect()
}

/// Parses the output of a tool. Some versions print a warning before the JSON.
fn parse(text: &str) -> Result<Value, String> {
    let from = text.find(['{', '[']).unwrap_or(0);
    serde_json::from_str(&text[from..])
        .map_err(|error| format!("the output of the GPU tool is not JSON: {error}"))
}

/// The objects of the GPUs, with index.
fn devices(answer: &Value) -> impl Iterator<Item = (u32, &Value)> {
    let list = answer.get("gpu_data").unwrap_or(answer).as_array();
    let index = |gpu: &Value| u32::try_from(gpu.get("gpu")?.as_u64()?).ok();
    list.into_iter()
        .flatten()
        .filter_map(move |gpu| Some((index(gpu)?, gpu)))
}

/// The number at a path, with its unit if it has one. `None` for `N/A`.
fn number(gpu: &Value, path: &str) -> Option<(f64, String)> {
    let at = gpu.pointer(path)?;
    let value = at.get("value").unwrap_or(at);
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    let unit = at.get("unit").and_then(Value::as_str).unwrap_or_default();
    Some((number, unit.to_owned()))
}

fn plain_number(gpu: &Value, path: &str) -> Option<f64> {
    Some(number(gpu, path)?.0)
}

/// A size in bytes. The tool writes MB for MiB.
fn bytes(gpu: &Value, path: &str) -> Option<f64> {
    let (number, unit) = number(gpu, path)?;
    let factor = match unit.to_ascii_uppercase().as_str() {
        "B" => 1.0,
        "KB" | "KIB" => 1024.0,
        "GB" | "GIB" => 1024.0 * 1024.0 * 1024.0,
        _ => 1024.0 * 1024.0,
    };
    Some(number * factor)
}

fn text_field(gpu: &Value, path: &str) -> Option<String> {
    let text = gpu.pointer(path)?.as_str()?.trim();
    (!text.is_empty() && text != "N/A").then(|| text.to_owned())
}

fn facts(answer: &Value) -> Vec<Gpu> {
    let limits = [
        "/limit/socket_power",
        "/limit/socket_power_limit",
        "/limit/ppt0/socket_power_limit",
        "/limit/max_power",
    ];
    devices(answer)
        .map(|(index, gpu)| Gpu {
            device: index,
            name: text_field(gpu, "/asic/market_name").unwrap_or_else(|| "AMD GPU".to_owned()),
            bus: text_field(gpu, "/bus/bdf").map(|bus| bus.to_ascii_lowercase()),
            driver: text_field(gpu, "/driver/version").or_else(|| text_field(gpu, "/driver/driver_version")),
            vbios: text_field(gpu, "/vbios/version").or_else(|| text_field(gpu, "/ifwi/version")),
            memory_bytes: bytes(gpu, "/vram/size").map(|bytes| bytes as u64),
            power_limit_w: limits.iter().find_map(|path| plain_number(gpu, path)),
            numa: plain_number(gpu, "/numa/node").map(|node| node as u32),
            ..Gpu::default()
        })
        .collect()
}

fn metrics(answer: &Value) -> Vec<(u32, SampleValues)> {
    devices(answer)
        .map(|(index, gpu)| {
            let share = |path: &str| plain_number(gpu, path).map(|percent| percent / 100.0);
            let hottest =
                plain_number(gpu, "/temperature/hotspot").or_else(|| plain_number(gpu, "/temperature/edge"));
            let answer = [
                ("power_w", plain_number(gpu, "/power/socket_power")),
                ("energy_j", plain_number(gpu, "/energy/total_energy_consumption")),
                ("gpu_util_share", share("/usage/gfx_activity")),
                ("memory_util_share", share("/usage/umc_activity")),
                ("memory_used_bytes", bytes(gpu, "/mem_usage/used_vram")),
                ("temperature_c", hottest),
                ("memory_temperature_c", plain_number(gpu, "/temperature/mem")),
                ("sm_clock_mhz", plain_number(gpu, "/clock/gfx_0/clk")),
                ("memory_clock_mhz", plain_number(gpu, "/clock/mem_0/clk")),
            ];
            let mut values = named_values(answer);
            // The tool reports that the clock is throttled, but not why.
            if let Some(status) = text_field(gpu, "/power/throttle_status") {
                let is_throttled = !status.to_ascii_uppercase().starts_with("UN");
                values.insert("throttled_other".to_owned(), f64::from(u8::from(is_throttled)));
            }
            (index, values)
        })
        .collect()
}

fn process_list(answer: &Value) -> Vec<(u32, GpuProcess)> {
    devices(answer)
        .flat_map(|(index, gpu)| {
            let list = gpu.get("process_list").and_then(Value::as_array);
            let process = move |entry: &Value| {
                let about = entry.get("process_info").unwrap_or(entry);
                let pid = u32::try_from(about.get("pid")?.as_u64()?).ok()?;
                let memory = bytes(about, "/memory_usage/vram_mem").or_else(|| bytes(about, "/mem_usage"));
                let process = GpuProcess {
                    pid,
                    name: text_field(about, "/name"),
                    memory_bytes: memory.map(|bytes| bytes as u64),
                };
                Some((index, process))
            };
            list.into_iter().flatten().filter_map(process)
        })
        .collect()
}

fn named_values<const N: usize>(answer: [(&str, Option<f64>); N]) -> SampleValues {
    answer
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// The cards in the output of `rocm-smi --json`, by index.
fn cards(answer: &Value) -> Vec<(u32, &Value)> {
    let all = answer.as_object().into_iter().flatten();
    let mut cards: Vec<(u32, &Value)> = all
        .filter_map(|(name, card)| Some((name.strip_prefix("card")?.parse().ok()?, card)))
        .collect();
    cards.sort_by_key(|(index, _)| *index);
    cards
}

/// The first field whose name contains all words.
fn field<'v>(card: &'v Value, words: &[&str]) -> Option<&'v str> {
    let mut fields = card.as_object()?.iter();
    let (_, value) = fields.find(|(name, _)| {
        let name = name.to_ascii_lowercase();
        words.iter().all(|word| name.contains(word))
    })?;
    value.as_str().map(str::trim).filter(|text| *text != "N/A")
}

/// The number in a field, also if it is in brackets with its unit, as in `(1700Mhz)`.
fn field_number(card: &Value, words: &[&str]) -> Option<f64> {
    let text = field(card, words)?;
    let text = text.trim_matches(|c: char| !c.is_ascii_digit());
    text.parse().ok()
}

fn rocm_facts(answer: &Value) -> Vec<Gpu> {
    let driver = answer
        .get("system")
        .and_then(|system| field(system, &["driver version"]));
    let text = |card: &Value, words: &[&str]| field(card, words).map(str::to_owned);
    cards(answer)
        .into_iter()
        .map(|(index, card)| Gpu {
            device: index,
            name: text(card, &["card series"]).unwrap_or_else(|| "AMD GPU".to_owned()),
            uuid: text(card, &["unique id"]),
            bus: text(card, &["pci bus"]).map(|bus| bus.to_ascii_lowercase()),
            driver: driver.map(str::to_owned),
            vbios: text(card, &["vbios version"]),
            memory_bytes: field_number(card, &["vram total memory (b)"]).map(|bytes| bytes as u64),
            power_limit_w: field_number(card, &["max graphics package power (w)"]),
            ..Gpu::default()
        })
        .collect()
}

fn rocm_metrics(answer: &Value) -> Vec<(u32, SampleValues)> {
    cards(answer)
        .into_iter()
        .map(|(index, card)| {
            let share = |words: &[&str]| field_number(card, words).map(|percent| percent / 100.0);
            let power = field_number(card, &["average graphics package power (w)"])
                .or_else(|| field_number(card, &["current socket graphics package power (w)"]));
            let heat = field_number(card, &["sensor junction", "(c)"])
                .or_else(|| field_number(card, &["sensor edge", "(c)"]));
            let answer = [
                ("power_w", power),
                ("gpu_util_share", share(&["gpu use (%)"])),
                ("memory_util_share", share(&["memory read/write activity (%)"])),
                (
                    "memory_used_bytes",
                    field_number(card, &["vram total used memory (b)"]),
                ),
                ("temperature_c", heat),
                (
                    "memory_temperature_c",
                    field_number(card, &["sensor memory", "(c)"]),
                ),
                ("sm_clock_mhz", field_number(card, &["sclk clock speed"])),
                ("memory_clock_mhz", field_number(card, &["mclk clock speed"])),
            ];
            (index, named_values(answer))
        })
        .collect()
}

#[cfg(test)]
mod tests;
