//! Sample output in AMD's documented formats; the figures are invented.

use super::*;
use crate::telemetry::gpu::DeviceProcesses;
use crate::telemetry::gpu::vendor_cli::Tool as _;

const STATIC: &str = r#"WARNING: User is missing the following required groups: render
{"gpu_data": [
  {"gpu": 0,
   "asic": {"market_name": "AMD Instinct MI300X", "vendor_id": "0x1002", "num_compute_units": 304},
   "bus": {"bdf": "0000:0C:00.0", "max_pcie_width": 16},
   "ifwi": {"name": "N/A", "version": "022.040.003.043"},
   "limit": {"ppt0": {"max_power_limit": {"value": 750, "unit": "W"}, "socket_power_limit": {"value": 700, "unit": "W"}},
             "ppt1": {"max_power_limit": "N/A", "socket_power_limit": "N/A"}},
   "driver": {"name": "amdgpu", "version": "6.12.12"},
   "numa": {"node": 1, "affinity": 1},
   "vram": {"type": "HBM", "size": {"value": 196592, "unit": "MB"}}},
  {"gpu": 1, "asic": {"market_name": "N/A"}, "bus": "N/A", "vram": "N/A"}
]}"#;

const METRIC: &str = r#"[
  {"gpu": 0,
   "usage": {"gfx_activity": {"value": 93, "unit": "%"}, "umc_activity": {"value": 41, "unit": "%"}},
   "power": {"socket_power": {"value": 612, "unit": "W"}, "throttle_status": "UNTHROTTLED"},
   "clock": {"gfx_0": {"clk": {"value": 2103, "unit": "MHz"}}, "mem_0": {"clk": {"value": 1300, "unit": "MHz"}}},
   "temperature": {"edge": "N/A", "hotspot": {"value": 71, "unit": "C"}, "mem": {"value": 58, "unit": "C"}},
   "energy": {"total_energy_consumption": {"value": 812345.25, "unit": "J"}},
   "mem_usage": {"total_vram": {"value": 196592, "unit": "MB"}, "used_vram": {"value": 1024, "unit": "MB"}}},
  {"gpu": 1,
   "usage": "N/A",
   "power": {"socket_power": "N/A", "throttle_status": "THROTTLED"},
   "mem_usage": "N/A"}
]"#;

const PROCESS: &str = r#"[
  {"gpu": 0, "process_list": [
    {"process_info": {"name": "python3", "pid": 42, "memory_usage": {"gtt_mem": {"value": 0, "unit": "B"}, "vram_mem": {"value": 2097152, "unit": "B"}}}}]},
  {"gpu": 1, "process_list": [{"process_info": "No running processes detected"}]}
]"#;

const ROCM_SMI: &str = r#"{
  "card1": {"GPU use (%)": "0", "Card Series": "Radeon RX 7900 XTX"},
  "card0": {"Unique ID": "0x9c1e", "VBIOS version": "113-X", "Temperature (Sensor edge) (C)": "44.0",
            "Temperature (Sensor junction) (C)": "52.0", "Temperature (Sensor memory) (C)": "60.0",
            "sclk clock speed:": "(2100Mhz)", "mclk clock speed:": "(1249Mhz)",
            "Max Graphics Package Power (W)": "303.0", "Average Graphics Package Power (W)": "251.5",
            "GPU use (%)": "97", "GPU Memory Allocated (VRAM%)": "4", "GPU Memory Read/Write Activity (%)": "12",
            "VRAM Total Memory (B)": "25753026560", "VRAM Total Used Memory (B)": "1073741824",
            "PCI Bus": "0000:03:00.0", "Card Series": "Radeon RX 7900 XTX"},
  "system": {"Driver version": "6.12.12"}
}"#;

fn read(text: &str) -> Value {
    parse(text).unwrap()
}

#[test]
fn the_facts_of_amd_smi_are_read_and_what_it_does_not_know_is_absent() {
    let gpus = facts(&read(STATIC));
    let first = Gpu {
        device: 0,
        name: "AMD Instinct MI300X".to_owned(),
        bus: Some("0000:0c:00.0".to_owned()),
        driver: Some("6.12.12".to_owned()),
        vbios: Some("022.040.003.043".to_owned()),
        memory_bytes: Some(196_592 << 20),
        power_limit_w: Some(700.0),
        numa: Some(1),
        ..Gpu::default()
    };
    let second = Gpu {
        device: 1,
        name: "AMD GPU".to_owned(),
        ..Gpu::default()
    };
    assert_eq!(gpus, [first, second]);
}

#[test]
fn the_metrics_of_amd_smi_are_told_under_our_names() {
    let expected_metrics = metrics(&read(METRIC));
    let values: Vec<(&str, f64)> = expected_metrics[0]
        .1
        .iter()
        .map(|(name, value)| (name.as_str(), *value))
        .collect();
    let expected = [
        ("energy_j", 812_345.25),
        ("gpu_util_share", 0.93),
        ("memory_clock_mhz", 1300.0),
        ("memory_temperature_c", 58.0),
        ("memory_used_bytes", 1_073_741_824.0),
        ("memory_util_share", 0.41),
        ("power_w", 612.0),
        ("sm_clock_mhz", 2103.0),
        ("temperature_c", 71.0),
        ("throttled_other", 0.0),
    ];
    assert_eq!(values, expected);
    assert_eq!(
        expected_metrics[1],
        (1, SampleValues::from([("throttled_other".to_owned(), 1.0)])),
        "nothing is told as 0 that is not known"
    );
    let newer = format!("{{\"gpu_data\": {METRIC}}}");
    assert_eq!(
        metrics(&read(&newer)),
        expected_metrics,
        "both forms say the same"
    );
}

#[test]
fn the_processes_of_amd_smi_are_told_by_device() {
    let process = GpuProcess {
        pid: 42,
        name: Some("python3".to_owned()),
        memory_bytes: Some(2 << 20),
    };
    assert_eq!(process_list(&read(PROCESS)), [(0, process)]);
}

#[test]
fn rocm_smi_is_read_by_card() {
    let cards = read(ROCM_SMI);
    let gpus = rocm_facts(&cards);
    assert_eq!(gpus.iter().map(|gpu| gpu.device).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(gpus[0].name, "Radeon RX 7900 XTX");
    assert_eq!(gpus[0].uuid.as_deref(), Some("0x9c1e"));
    assert_eq!(gpus[0].driver.as_deref(), Some("6.12.12"));
    assert_eq!(
        (gpus[0].memory_bytes, gpus[0].power_limit_w),
        (Some(25_753_026_560), Some(303.0))
    );
    let values = rocm_metrics(&cards);
    let value = |name: &str| values[0].1.get(name).copied();
    assert_eq!(
        (value("power_w"), value("gpu_util_share")),
        (Some(251.5), Some(0.97))
    );
    assert_eq!(
        (value("temperature_c"), value("memory_temperature_c")),
        (Some(52.0), Some(60.0))
    );
    assert_eq!(
        (value("sm_clock_mhz"), value("memory_clock_mhz")),
        (Some(2100.0), Some(1249.0))
    );
    assert_eq!(value("memory_used_bytes"), Some(1_073_741_824.0));
    assert_eq!(
        values[1].1,
        SampleValues::from([("gpu_util_share".to_owned(), 0.0)])
    );
}

#[test]
fn the_tools_themselves_are_found_run_and_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "#!/bin/sh\ncase $1 in\nstatic) cat <<'END'\n{STATIC}\nEND\n;;\nmetric) cat <<'END'\n{METRIC}\nEND\n;;\nprocess) cat <<'END'\n{PROCESS}\nEND\n;;\nesac\n"
    );
    let file = folder.path().join("amd-smi");
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let (tool, gpus) = Amd::find(Some(&path)).unwrap().unwrap();
    assert_eq!(gpus.len(), 2);
    let processes = DeviceProcesses::new(vec![std::process::id()], Vec::new());
    let mut probes = tool.probes(&[0], &processes);
    let readings = probes[0].read().unwrap();
    assert_eq!(readings.len(), 1, "only the launch's devices");
    assert_eq!(readings[0].values.get("power_w"), Some(&612.0));
    assert_eq!(readings[0].values.get("processes"), Some(&1.0));
    assert_eq!(processes.on_device(0)[0].pid, 42);
    assert_eq!(tool.snapshot(0).unwrap().processes.unwrap().len(), 1);
    assert!(tool.snapshot(7).unwrap_err().contains("device 7"));
}
