//! Hosts and engines that are disturbed while they are measured: each disturbance is named, and who alone was disturbed neither wins nor
//! loses.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use matrix::results::record::cell::MeasurementSummary;
use matrix::results::record::validity::{ReasonCode, Verdict};
use serde_json::Value;

use crate::harness::{Bench, Ran, sims, summary};
use crate::nvml::Stub;

/// Bounds that a short load does not meet by itself.
const SMALL: &str = "window: 0s, tail: 0, steady: 0.0, send_lag: 200ms";

fn bounded(matrix: &str, bounds: &str) -> Bench {
    Bench::of(&format!("{matrix}validity: {{ {bounds} }}\n"))
}

/// The codes of a cell with their weights and what was measured.
fn found(summary: &MeasurementSummary) -> BTreeMap<ReasonCode, (Verdict, String)> {
    let validity = summary.validity.as_ref().expect("what ended is judged");
    let reasons = validity.reasons.iter();
    reasons
        .map(|reason| (reason.code, (reason.weight, reason.measured.clone())))
        .collect()
}

/// The binary with these arguments in a mount namespace of its own, in which `script` has put other files in the place of the kernel's;
/// `None` where this system makes no such namespaces.
fn elsewhere(bench: &Bench, script: &str, args: &[&str]) -> Option<Command> {
    let user = if rustix::process::getuid().is_root() {
        "-m"
    } else {
        "-rm"
    };
    let tried = Command::new("unshare")
        .args([user, "true"])
        .stderr(Stdio::null())
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        crate::skip::skip("needs mount namespaces (`unshare -m`)");
        return None;
    }
    let inner = bench.command(args);
    let mut command = Command::new("unshare");
    command
        .args([user, "--propagation", "private", "sh", "-ec"])
        .arg(format!("{script}\nexec \"$@\""))
        .arg("sh")
        .arg(inner.get_program())
        .args(inner.get_args())
        .current_dir(bench.path())
        .stdin(Stdio::null());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Some(command)
}

/// The kernel's account of its processors with another total, whose numbers have so many digits that a reader never sees half of one.
fn stat(steal: u64) -> String {
    let kernel = fs::read_to_string("/proc/stat").expect("/proc is there");
    let total: Vec<String> = [10_000, 0, 1_000, 900_000, 0, 0, 0, steal, 0, 0]
        .map(|ticks: u64| format!("{ticks:012}"))
        .into();
    let rest: Vec<&str> = kernel
        .lines()
        .skip(1)
        .filter(|line| !line.starts_with("intr") && !line.starts_with("softirq"))
        .collect();
    format!("cpu  {}\n{}\n", total.join(" "), rest.join("\n"))
}

fn pages(count: u64) -> String {
    format!("pswpin {count:012}\npswpout {count:012}\n")
}

/// A host that swaps, whose hypervisor takes its processors away, with a GPU that reports an Xid and an engine far from it.
#[test]
fn what_a_host_goes_through_is_named() {
    let stub = Stub::of("gpus 1\nutil from=engine 95 60\nclock from=engine 1755\nprocess engine 20000\n");
    let matrix = sims(
        &[("a", "vllm", "--step, 20ms")],
        "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 200, concurrency: 4, warmup: 0 }\n",
    );
    let bench = bounded(&matrix.replace("as: a,", "as: a, devices: gpu,"), SMALL).gpus(&stub);
    let place = |name: &str| bench.path().join(name);
    fs::write(place("stat"), stat(0)).expect("a file can be written");
    fs::write(place("vmstat"), pages(0)).expect("a file can be written");
    fs::write(
        place("kmsg"),
        "3,1,999999999999999,-;NVRM: Xid (PCI:0000:10:00): 48, DBE (double bit error)\n",
    )
    .expect("a file can be written");
    // Two nodes; the GPU is on the one on which the engine does not run.
    let nodes = "mount -t tmpfs none /sys/devices/system/node\n\
                 mkdir /sys/devices/system/node/node0 /sys/devices/system/node/node1\n\
                 echo 0 > /sys/devices/system/node/node0/cpulist\necho 1 > /sys/devices/system/node/node1/cpulist\n\
                 mount -t tmpfs none /sys/bus/pci/devices\nmkdir /sys/bus/pci/devices/0000:10:00.0\n\
                 echo 1 > /sys/bus/pci/devices/0000:10:00.0/numa_node\n";
    let script = format!(
        "{nodes}mount --bind stat /proc/stat\nmount --bind vmstat /proc/vmstat\nmount --bind kmsg /dev/kmsg\ntaskset -p -c 0 $$ >/dev/null"
    );
    let Some(mut command) = elsewhere(&bench, &script, &["run", "matrices/m.yaml", "--no-calibration"])
    else {
        return;
    };
    let mut run = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let open = |name: &str| {
        fs::OpenOptions::new()
            .write(true)
            .open(place(name))
            .expect("it is there")
    };
    let (stats, swap) = (open("stat"), open("vmstat"));
    // 4 GiB/s to and from swap, and half a processor stolen.
    for step in 1.. {
        if run.try_wait().expect("it can be asked").is_some() {
            break;
        }
        let write =
            |file: &fs::File, text: String| file.write_all_at(text.as_bytes(), 0).expect("it can be written");
        write(&stats, stat(5 * step));
        write(&swap, pages(50_000 * step));
        std::thread::sleep(Duration::from_millis(100));
    }
    let ran = Ran::from(run.wait_with_output().expect("it ended"));
    let ran = ran.exits(0);
    let finished = bench.finished();
    let found = found(summary(&finished, "a", "random-1k-1k"));
    for (code, words) in [
        (ReasonCode::Swapping, "MiB/s to and from swap"),
        (
            ReasonCode::CpuStolen,
            "of the processors' time went to other virtual machines",
        ),
        (ReasonCode::GpuErrors, "NVRM: Xid (PCI:0000:10:00): 48"),
        (ReasonCode::NumaRemote, "outside the NUMA nodes of its GPUs"),
    ] {
        let (weight, measured) = found
            .get(&code)
            .unwrap_or_else(|| panic!("no {code:?} in {found:#?}\n{}", ran.stderr));
        assert_eq!(*weight, Verdict::Suspect, "{code:?}");
        assert!(measured.contains(words), "{code:?}: {measured}");
    }
}

/// The report of the one run as JSON.
fn report(bench: &Bench) -> Value {
    let actual = bench.call(&[
        "report",
        &bench.run_folder().display().to_string(),
        "--format",
        "json",
    ]);
    serde_json::from_str(&actual.exits(0).stdout).expect("a report is JSON")
}

/// The row of an engine in the first comparison.
fn row<'r>(report: &'r Value, engine: &str) -> &'r Value {
    let cells = report["cells"].as_array().expect("a report has cells");
    let key = format!("engine={engine},");
    let at = cells
        .iter()
        .position(|cell| cell["cell"].as_str().is_some_and(|cell| cell.contains(&key)));
    let at = at.unwrap_or_else(|| panic!("no cell of {engine}"));
    let rows = report["comparisons"][0]["rows"]
        .as_array()
        .expect("there is a comparison");
    rows.iter()
        .find(|row| row["cell"] == at)
        .expect("every cell has a row")
}

/// Five starts of each: an honest engine that is quicker wins, and none of those that are quicker still by cheating does or is the best.
#[test]
fn engines_that_cheat_on_every_start_are_never_the_best() {
    let cheats = [
        ("cut", "--truncate-prompts, 8", "prompt-tokens-disagree"),
        ("same", "--same-token", "answers-degenerate"),
        (
            "claims",
            "--early-end, 50%, --claim-full-length",
            "tokens-disagree",
        ),
        ("uncounted", "--hide-usage", "tokens-uncounted"),
    ];
    let paced = |name: &'static str, ttft: &str, itl: &str, more: &str| {
        let more = if more.is_empty() {
            String::new()
        } else {
            format!(", {more}")
        };
        (name, format!("--ttft, {ttft}, --itl, {itl}{more}"))
    };
    let mut engines = vec![
        paced("slow", "60ms", "9ms", "\"--seed=1\""),
        paced("quick", "42ms", "6ms", "\"--seed=2\""),
    ];
    engines.extend(cheats.map(|(name, flags, _)| paced(name, "18ms", "3ms", flags)));
    let engines: Vec<(&str, &str, &str)> = engines
        .iter()
        .map(|(name, flags)| (*name, "openai", flags.as_str()))
        .collect();
    let load = "  - load: { dataset: random-ids, prompts: 16, input_len: 64, output_len: 32, concurrency: 8, range_ratio: 1.0, tokenize_prompt: true, warmup: 0 }\nrepeats: { starts: 5 }\n";
    let bench = bounded(&sims(&engines, load), SMALL);
    let ran = bench.run(&[]).exits(3);
    let report = report(&bench);
    // An honest engine wins against a slower one.
    let quick = row(&report, "quick");
    assert_eq!(quick["ratio"]["standing"], "better", "{quick:#}");
    for (engine, _, code) in cheats {
        let row = row(&report, engine);
        assert_eq!(row["is_best"], false, "{engine}: {row:#}");
        assert_ne!(row["ratio"]["standing"], "better", "{engine}: {row:#}");
        if !row["ratio"].is_null() {
            let why = row["ratio"]["reason"].as_str().unwrap_or_default();
            assert!(
                why.contains("alone is suspect") && why.contains(code),
                "{engine}: {why}"
            );
        }
        let name = format!(" {engine} [");
        let is_marked = ran
            .stdout
            .lines()
            .any(|line| line.contains(&name) && (line.contains("suspect]") || line.contains("invalid]")));
        assert!(is_marked, "{engine}:\n{}", ran.stdout);
        let all = report["cells"].as_array().expect("a report has cells").iter();
        let cell = all.filter(|cell| {
            cell["cell"]
                .as_str()
                .is_some_and(|cell| cell.contains(&format!("engine={engine},")))
        });
        let said = cell.map(ToString::to_string).collect::<String>();
        assert!(
            said.contains(&format!("\"{code}\"")),
            "{engine}: no {code} in {said}"
        );
    }
    bench.leaves_no_process();
}

/// An engine whose cache is too small for its load: what it throws out it computes again.
#[test]
fn preemptions_and_a_full_cache_are_named() {
    let load = "  - load: { dataset: random-ids, prompts: 24, input_len: 40, output_len: 150, concurrency: 12, range_ratio: 1.0, tokenize_prompt: true, warmup: 0 }\n";
    let engines = [
        (
            "tight",
            "vllm",
            "--step, 8ms, --max-model-len, 256, --kv-tokens, 1024",
        ),
        ("roomy", "vllm", "--step, 8ms, --max-model-len, 256"),
    ];
    let bench = bounded(&sims(&engines, load), SMALL);
    let ran = bench.run(&[]).exits(0);
    let run = bench.finished();
    let tight = found(summary(&run, "tight", "load"));
    assert_eq!(
        tight.get(&ReasonCode::Preempted).map(|(weight, _)| *weight),
        Some(Verdict::Suspect),
        "{tight:#?}"
    );
    // A cache that is full is how the engine is set up: a note.
    assert_eq!(
        tight.get(&ReasonCode::KvCacheFull).map(|(weight, _)| *weight),
        Some(Verdict::Valid),
        "{tight:#?}"
    );
    let roomy = found(summary(&run, "roomy", "load"));
    assert!(
        !roomy.contains_key(&ReasonCode::Preempted) && !roomy.contains_key(&ReasonCode::KvCacheFull),
        "{roomy:#?}"
    );
    assert!(ran.stdout.contains("(preempted)"), "{}", ran.stdout);
}

/// Shells that keep all processors busy beside the second engine alone.
#[test]
fn work_beside_an_engine_is_named() {
    let matrix = sims(
        &[
            ("alone", "vllm", "--step, 20ms"),
            ("beside", "vllm", "--step, 20ms, \"--seed=2\""),
        ],
        "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 150, concurrency: 4, warmup: 0 }\n",
    );
    let bench = bounded(&matrix, SMALL);
    bench.run(&["--only", "engine=alone"]).exits(0);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let hogs: Vec<_> = (0..cpus)
        .map(|_| {
            Command::new("sh")
                .args(["-c", "while :; do :; done"])
                .spawn()
                .expect("a shell runs")
        })
        .collect();
    let run = bench.run_folder();
    let name = run
        .file_name()
        .expect("it has a name")
        .to_string_lossy()
        .into_owned();
    let ran = bench.run(&["--resume", &name]);
    for mut hog in hogs {
        hog.kill().expect("it can be ended");
        hog.wait().expect("it ends");
    }
    let ran = ran.exits(0);
    let finished = bench.finished();
    let beside = found(summary(&finished, "beside", "random-1k-1k"));
    let (weight, measured) = beside
        .get(&ReasonCode::HostBusy)
        .unwrap_or_else(|| panic!("{beside:#?}\n{}", ran.stderr));
    assert_eq!(*weight, Verdict::Suspect);
    assert!(measured.starts_with("other processes used "), "{measured}");
}

/// Clocks that one side alone was held to: neither is doubted by itself, and no verdict is given between them.
#[test]
fn clocks_that_differ_between_two_sides_give_no_verdict() {
    let stub = |clock: u32| {
        Stub::of(&format!(
            "gpus 1\npower 100\nutil from=engine 95 60\nclock from=engine {clock} 2600\nprocess engine 20000\n"
        ))
    };
    let matrix = sims(
        &[("a", "vllm", "--step, 8ms")],
        "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 60, concurrency: 4, warmup: 0 }\nrepeats: { starts: 2 }\n",
    );
    let bench = bounded(&matrix.replace("as: a,", "as: a, devices: gpu,"), SMALL);
    let (full, held) = (stub(1900), stub(900));
    let mut runs = Vec::new();
    for stub in [&full, &held] {
        let locks = bench.path().join("locks").display().to_string();
        let before: Vec<_> = fs::read_dir(bench.results())
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        let ran = bench
            .command(&["run", "matrices/m.yaml", "--no-calibration"])
            .env(crate::nvml::VARIABLE, stub.path())
            .env("MATRIX_LOCKS", &locks)
            .output()
            .expect("the binary runs");
        Ran::from(ran).exits(0);
        let after = fs::read_dir(bench.results())
            .expect("there are results")
            .flatten()
            .map(|entry| entry.path());
        runs.extend(after.filter(|run| !before.contains(run)));
    }
    assert_eq!(runs.len(), 2, "{runs:?}");
    let paths: Vec<String> = runs
        .iter()
        .map(|run: &std::path::PathBuf| Path::new(run).display().to_string())
        .collect();
    let compared = bench.call(&["compare", &paths[0], &paths[1]]).exits(5);
    assert!(
        compared.stdout.contains("clock of busy GPUs")
            && compared.stdout.contains("1900 MHz")
            && compared.stdout.contains("900 MHz"),
        "{}",
        compared.stdout
    );
    let actual = bench
        .call(&["report", &paths[0], &paths[1], "--format", "json"])
        .exits(0);
    assert!(
        !actual.stdout.contains("\"is_best\": true") && !actual.stdout.contains("\"standing\": \"better\""),
        "{}",
        actual.stdout
    );
}

/// Two engines that differ in more than their speed: the report says so in words beside the ratio.
#[test]
fn settings_that_differ_stand_beside_the_ratio() {
    let load = "  - load: { dataset: random-ids, prompts: 8, input_len: 16, output_len: 16, concurrency: 4, range_ratio: 1.0, warmup: 0 }\n";
    let matrix = sims(
        &[
            ("a", "openai", "--ttft, 20ms, --itl, 2ms, --max-model-len, 2048"),
            (
                "b",
                "openai",
                "--ttft, 10ms, --itl, 1ms, --max-model-len, 4096, --eos-rate, 0.5",
            ),
        ],
        load,
    );
    let bench = bounded(&matrix, SMALL);
    bench
        .run(&[])
        .exits(0)
        .shows("context length 4096 against 2048")
        .shows("--eos-rate 0.5 against not set");
}
