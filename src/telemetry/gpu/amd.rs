//! AMD GPUs, read with `amd-smi`, or with `rocm-smi` if only that exists. The formats are taken from
//! documentation and from output that users published; this code has not been run on an AMD GPU.
//!
//! Documentation: <https://rocm.docs.amd.com/projects/amdsmi/en/latest/how-to/amdsmi-cli-tool.html>.
//! `amd-smi` prints one object per GPU, in a list or, since version 26, in a list below `gpu_data`. A value
//! is a number with its unit, or `N/A`. `rocm-smi` prints one object per card, whose keys contain the units.

use serde_json::Value;

use crate::results::record::telemetry::{Gpu, GpuProcess, Source, Values};
use crate::telemetry::gpu::Look;
use crate::telemetry::gpu::vendor_cli::{self, Program};

/// Arguments of `rocm-smi`.
const ROCM: &[&str] = &[
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
            let facts = facts(&parse(&program.ask(&["static", "--json"])?)?);
            return Ok(Some((Self::AmdSmi(program), facts)));
        }
        let Some(program) = Program::find("rocm-smi", path) else {
            return Ok(None);
        };
        let facts = rocm_facts(&parse(&program.ask(ROCM)?)?);
        Ok(Some((Self::RocmSmi(program), facts)))
    }

    fn values(&self) -> Result<Vec<(u32, Values)>, String> {
        Ok(match self {
            Self::AmdSmi(program) => metrics(&parse(&program.ask(&["metric", "--json"])?)?),
            Self::RocmSmi(program) => rocm_metrics(&parse(&program.ask(ROCM)?)?),
        })
    }

    /// Processes with their GPU; `None` for `rocm-smi`, which does not report the GPU of a process.
    fn processes(&self) -> Result<Option<Vec<(u32, GpuProcess)>>, String> {
        match self {
            Self::AmdSmi(program) => {
                let told = parse(&program.ask(&["process", "--json"])?)?;
                Ok(Some(occupants(&told)))
            }
            Self::RocmSmi(_) => Ok(None),
        }
    }
}

impl vendor_cli::Tool for Amd {
    const SOURCE: Source = Source::Amd;

    fn looks(&self) -> Result<Vec<(u32, Look)>, String> {
        let values = self.values()?;
        let processes = self.processes()?;
        let look = |(index, values)| {
            let processes = processes.as_ref().map(|all| of(all, index));
            (index, Look { values, processes })
        };
        Ok(values.into_iter().map(look).collect())
    }
}

fn of(all: &[(u32, GpuProcess)], device: u32) -> Vec<GpuProcess> {
    let here = all.iter().filter(|(index, _)| *index == device);
    here.map(|(_, process)| process.clone()).collect()
}

/// Parses the output of a tool. Some versions print a warning before the JSON.
fn parse(text: &str) -> Result<Value, String> {
    let from = text.find(['{', '[']).unwrap_or(0);
    serde_json::from_str(&text[from..]).map_err(|error| format!("the tool's answer is no JSON: {error}"))
}

/// The objects of the GPUs, with index.
fn devices(told: &Value) -> impl Iterator<Item = (u32, &Value)> {
    let list = told.get("gpu_data").unwrap_or(told).as_array();
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

fn plain(gpu: &Value, path: &str) -> Option<f64> {
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

fn word(gpu: &Value, path: &str) -> Option<String> {
    let text = gpu.pointer(path)?.as_str()?.trim();
    (!text.is_empty() && text != "N/A").then(|| text.to_owned())
}

fn facts(told: &Value) -> Vec<Gpu> {
    let limits = [
        "/limit/socket_power",
        "/limit/socket_power_limit",
        "/limit/ppt0/socket_power_limit",
        "/limit/max_power",
    ];
    devices(told)
        .map(|(index, gpu)| Gpu {
            device: index,
            name: word(gpu, "/asic/market_name").unwrap_or_else(|| "AMD GPU".to_owned()),
            bus: word(gpu, "/bus/bdf").map(|bus| bus.to_ascii_lowercase()),
            driver: word(gpu, "/driver/version").or_else(|| word(gpu, "/driver/driver_version")),
            vbios: word(gpu, "/vbios/version").or_else(|| word(gpu, "/ifwi/version")),
            memory_bytes: bytes(gpu, "/vram/size").map(|bytes| bytes as u64),
            power_limit_w: limits.iter().find_map(|path| plain(gpu, path)),
            numa: plain(gpu, "/numa/node").map(|node| node as u32),
            ..Gpu::default()
        })
        .collect()
}

fn metrics(told: &Value) -> Vec<(u32, Values)> {
    devices(told)
        .map(|(index, gpu)| {
            let share = |path: &str| plain(gpu, path).map(|percent| percent / 100.0);
            let hottest = plain(gpu, "/temperature/hotspot").or_else(|| plain(gpu, "/temperature/edge"));
            let told = [
                ("power_w", plain(gpu, "/power/socket_power")),
                ("energy_j", plain(gpu, "/energy/total_energy_consumption")),
                ("gpu_util_share", share("/usage/gfx_activity")),
                ("memory_util_share", share("/usage/umc_activity")),
                ("memory_used_bytes", bytes(gpu, "/mem_usage/used_vram")),
                ("temperature_c", hottest),
                ("memory_temperature_c", plain(gpu, "/temperature/mem")),
                ("sm_clock_mhz", plain(gpu, "/clock/gfx_0/clk")),
                ("memory_clock_mhz", plain(gpu, "/clock/mem_0/clk")),
            ];
            let mut values = named(told);
            // The tool reports that the clock is throttled, but not why.
            if let Some(status) = word(gpu, "/power/throttle_status") {
                let is_throttled = !status.to_ascii_uppercase().starts_with("UN");
                values.insert("throttled_other".to_owned(), f64::from(u8::from(is_throttled)));
            }
            (index, values)
        })
        .collect()
}

fn occupants(told: &Value) -> Vec<(u32, GpuProcess)> {
    devices(told)
        .flat_map(|(index, gpu)| {
            let list = gpu.get("process_list").and_then(Value::as_array);
            let process = move |entry: &Value| {
                let about = entry.get("process_info").unwrap_or(entry);
                let pid = u32::try_from(about.get("pid")?.as_u64()?).ok()?;
                let memory = bytes(about, "/memory_usage/vram_mem").or_else(|| bytes(about, "/mem_usage"));
                let process = GpuProcess {
                    pid,
                    name: word(about, "/name"),
                    memory_bytes: memory.map(|bytes| bytes as u64),
                };
                Some((index, process))
            };
            list.into_iter().flatten().filter_map(process)
        })
        .collect()
}

fn named<const N: usize>(told: [(&str, Option<f64>); N]) -> Values {
    told.into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// The cards in the output of `rocm-smi --json`, by index.
fn cards(told: &Value) -> Vec<(u32, &Value)> {
    let all = told.as_object().into_iter().flatten();
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
fn figure(card: &Value, words: &[&str]) -> Option<f64> {
    let text = field(card, words)?;
    let text = text.trim_matches(|c: char| !c.is_ascii_digit());
    text.parse().ok()
}

fn rocm_facts(told: &Value) -> Vec<Gpu> {
    let driver = told
        .get("system")
        .and_then(|system| field(system, &["driver version"]));
    let text = |card: &Value, words: &[&str]| field(card, words).map(str::to_owned);
    cards(told)
        .into_iter()
        .map(|(index, card)| Gpu {
            device: index,
            name: text(card, &["card series"]).unwrap_or_else(|| "AMD GPU".to_owned()),
            uuid: text(card, &["unique id"]),
            bus: text(card, &["pci bus"]).map(|bus| bus.to_ascii_lowercase()),
            driver: driver.map(str::to_owned),
            vbios: text(card, &["vbios version"]),
            memory_bytes: figure(card, &["vram total memory (b)"]).map(|bytes| bytes as u64),
            power_limit_w: figure(card, &["max graphics package power (w)"]),
            ..Gpu::default()
        })
        .collect()
}

fn rocm_metrics(told: &Value) -> Vec<(u32, Values)> {
    cards(told)
        .into_iter()
        .map(|(index, card)| {
            let share = |words: &[&str]| figure(card, words).map(|percent| percent / 100.0);
            let power = figure(card, &["average graphics package power (w)"])
                .or_else(|| figure(card, &["current socket graphics package power (w)"]));
            let heat =
                figure(card, &["sensor junction", "(c)"]).or_else(|| figure(card, &["sensor edge", "(c)"]));
            let told = [
                ("power_w", power),
                ("gpu_util_share", share(&["gpu use (%)"])),
                ("memory_util_share", share(&["memory read/write activity (%)"])),
                ("memory_used_bytes", figure(card, &["vram total used memory (b)"])),
                ("temperature_c", heat),
                ("memory_temperature_c", figure(card, &["sensor memory", "(c)"])),
                ("sm_clock_mhz", figure(card, &["sclk clock speed"])),
                ("memory_clock_mhz", figure(card, &["mclk clock speed"])),
            ];
            (index, named(told))
        })
        .collect()
}

#[cfg(test)]
mod tests;
