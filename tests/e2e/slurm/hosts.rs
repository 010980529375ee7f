//! Runs that go on on another node: each measurement keeps the node and the processor on which it was made.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{Cluster, LOAD, TWO_CELLS, cluster, job_folders, job_id, run};
use crate::harness::{Bench, Ran, sims};
use crate::skip::skip;

/// The machine of each measurement by its cell, as the summaries say.
fn machines(bench: &Bench) -> BTreeMap<String, Value> {
    let cells = fs::read_dir(bench.run_folder().join("cells")).expect("cells were measured");
    let machine = |path: &Path| {
        let text = fs::read_to_string(path.join("summary.json")).expect("the cell is finished");
        let summary: Value = serde_json::from_str(&text).expect("it is JSON");
        let cell = format!(
            "{} {}",
            summary["cell"].as_str().expect("a key"),
            summary["start"]
        );
        (cell, summary["machine"].clone())
    };
    cells
        .map(|cell| machine(&cell.expect("it can be read").path()))
        .collect()
}

/// A line of a prolog by which the job sees a processor of this name; `None` if that cannot be done here.
pub(super) fn with_processor(folder: &Path, name: &str) -> Option<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").expect("it can be read");
    let renamed = cpuinfo.lines().map(|line| match line.starts_with("model name") {
        true => format!("model name\t: {name}\n"),
        false => format!("{line}\n"),
    });
    let (file, script) = (folder.join("cpuinfo"), folder.join("with-processor.sh"));
    fs::write(&file, renamed.collect::<String>()).expect("it can be written");
    let mount = format!("mount --bind '{}' /proc/cpuinfo || exit 1\n", file.display());
    fs::write(&script, format!("{mount}exec \"$@\"\n")).expect("it can be written");
    let tried = Command::new("unshare")
        .args(["--mount", "bash"])
        .arg(&script)
        .args(["grep", "-q", name, "/proc/cpuinfo"])
        .status();
    tried.is_ok_and(|status| status.success()).then(|| {
        format!(
            "[ -n \"$FAKED\" ] || FAKED=1 exec unshare --mount bash {} bash \"$0\"",
            script.display()
        )
    })
}

pub(super) fn rewrite_profile(bench: &Bench, profile: &str) {
    let path = bench.matrix().with_file_name("clusters").join("test.yaml");
    fs::write(path, profile).expect("it can be written");
}

fn on_node(node: &str, prolog: &str) -> String {
    format!("partition: gpu\ntime_limit: 10m\noptions: [--nodelist={node}]\nprolog: ['{prolog}']\n")
}

#[test]
fn a_run_that_goes_on_on_a_node_with_another_processor_names_both_and_is_not_judged() {
    let Some(cluster) = cluster() else { return };
    let matrix = format!(
        "{}repeats: {{ starts: 2 }}\n",
        sims(&[("a", "vllm", ""), ("b", "vllm", "")], LOAD)
    );
    let bench = cluster.bench(&matrix, &on_node("node1", ":"));
    let Some(prolog) = with_processor(bench.path(), "Another 9000") else {
        skip("no file can be mounted over /proc/cpuinfo here");
        return;
    };
    run(&bench, &["--only", "engine=a"]).exits(0).shows("2 done");
    rewrite_profile(&bench, &on_node("node2", &prolog));
    run(&bench, &["--resume"]).exits(0).shows("4 done");
    let run_folder = bench.run_folder();
    let machine = fs::read_to_string(run_folder.join("machine.json")).expect("it was written");
    let machine: Value = serde_json::from_str(&machine).expect("it is JSON");
    assert_eq!(
        (&machine["node"], &machine["cpu"]),
        (&"node2".into(), &"Another 9000".into())
    );
    for (cell, machine) in machines(&bench) {
        match cell.contains("engine=a") {
            true => assert!(
                machine["node"] == "node1" && machine["cpu"] != "Another 9000",
                "{cell}: {machine}"
            ),
            false => assert_eq!(machine, Value::Null, "{cell}: it is that of the run"),
        }
    }
    bench
        .call(&[
            "compare",
            &run_folder.display().to_string(),
            "--arms",
            "engine=a,b",
        ])
        .exits(5)
        .shows("Another 9000")
        .shows("node1")
        .shows("node2");
    let report = fs::read_to_string(run_folder.join("report.md")).expect("it was written");
    assert!(
        report.contains("node1 (2 measurements), node2 (2 measurements)")
            && report.contains("node node2 against node1")
            && report.contains("CPU Another 9000 against "),
        "{report}"
    );
    bench.leaves_no_process();
}

/// A node that takes no further jobs until this is dropped.
struct Drained<'a> {
    cluster: &'a Cluster,
    node: String,
}

impl<'a> Drained<'a> {
    fn new(cluster: &'a Cluster, node: &str) -> Self {
        let name = format!("nodename={node}");
        cluster.ask("scontrol", &["update", &name, "state=drain", "reason=test"]);
        Self {
            cluster,
            node: node.to_owned(),
        }
    }
}

impl Drop for Drained<'_> {
    fn drop(&mut self) {
        let name = format!("nodename={}", self.node);
        self.cluster.ask("scontrol", &["update", &name, "state=resume"]);
    }
}

/// The node on which a job runs or ran last.
fn node_of(cluster: &Cluster, folder: &Path) -> String {
    let job = cluster.job(folder);
    let node = job
        .split_whitespace()
        .find_map(|word| word.strip_prefix("NodeList="));
    node.expect("the job began").to_owned()
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_start_whose_job_is_requeued_to_another_node_keeps_the_node_of_each_cell() {
    let Some(cluster) = cluster() else { return };
    for job_per in ["run", "launch"] {
        let profile = format!("partition: gpu\ntime_limit: 10m\njob_per: {job_per}\n");
        let bench = cluster.bench(&sims(&[("a", "", "")], TWO_CELLS), &profile);
        let login = bench.begin(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
        let job = || {
            let submission = job_folders(&bench).into_iter().next()?;
            Some(match job_per {
                "launch" => submission.join("starts/0001"),
                _ => submission,
            })
        };
        let journal = |job: &Path| {
            let results = match job_per {
                "launch" => job.join("results"),
                _ => bench.results(),
            };
            let name = fs::read_to_string(job.join("run")).unwrap_or_default();
            fs::read_to_string(results.join(name.trim()).join("journal.jsonl")).unwrap_or_default()
        };
        bench.until("the first cell is measured", || {
            job().is_some_and(|job| journal(&job).contains("\"cell-ended\""))
        });
        let job = job().expect("it was found above");
        let first = node_of(&cluster, &job);
        let drained = Drained::new(&cluster, &first);
        cluster.ask("scontrol", &["requeue", &job_id(&job)]);
        let ran = Ran::from(login.wait_with_output().expect("it ends")).exits(0);
        drop(drained);
        let second = node_of(&cluster, &job);
        assert_ne!(first, second);
        let machines = machines(&bench);
        let node = |cell: &str| {
            let found = machines.iter().find(|(key, _)| key.contains(cell));
            found.map(|(_, machine)| machine["node"].clone()).expect(cell)
        };
        assert_eq!(node("scenario=first"), first.as_str());
        match job_per {
            "launch" => assert_eq!(node("scenario=second"), second.as_str()),
            _ => {
                assert_eq!(node("scenario=second"), Value::Null, "it is that of the run");
                ran.says(&format!("Slurm started this job again, on {second}"));
            }
        }
        let report = fs::read_to_string(bench.run_folder().join("report.md")).expect("it was written");
        assert!(
            report.contains("node1 (1 measurement), node2 (1 measurement)"),
            "{report}"
        );
        bench.leaves_no_process();
    }
}
