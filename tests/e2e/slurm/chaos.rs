//! Whatever happens to a job, its cluster and the process that follows it, at random moments.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use matrix::base::clock;
use matrix::loadgen::dataset::rng::Python;

use super::{Cluster, cluster, job_folders, job_id};
use crate::chaos::{measured_once, number, say};
use crate::harness::{Bench, repository, sims};

const CELLS: usize = 12;
const REQUESTS: usize = 6;
/// Jobs of this partition give way to those of `gpu`.
const PROFILE: &str = "partition: low\ntime_limit: 10m\ncpus: 2\n";
/// Time that a disturbance lasts at most.
const MOST_SECONDS: f64 = 3.0;

/// Cells that take about a second and a half each.
fn matrix() -> String {
    let scenarios: String = (0..CELLS / 2)
        .map(|number| {
            format!("  - s{number}: {{ dataset: random, prompts: {REQUESTS}, input_len: 16, output_len: 4, rate: 4, spacing: constant, range_ratio: 1.0, warmup: 0 }}\n")
        })
        .collect();
    // The second engine has a rank on each node.
    sims(&[("a", "vllm", ""), ("b", "sglang", "")], &scenarios).replace("as: b,", "as: b, nodes: 2,")
}

fn pause(seconds: f64) {
    std::thread::sleep(Duration::from_secs_f64(seconds));
}

impl Cluster {
    /// A daemon of the cluster is stopped for a while.
    pub(super) fn without(&self, daemon: &[&str], seconds: f64) {
        let folder = Path::new(&self.config).parent().expect("it is a file");
        let switch = |position: &str| {
            let mut args = vec![daemon[0].to_owned(), folder.display().to_string()];
            args.extend(daemon[1..].iter().map(|word| (*word).to_owned()));
            args.push(position.to_owned());
            let ran = Command::new("bash")
                .arg(repository().join("tests/slurm/cluster.sh"))
                .args(args)
                .status();
            assert!(ran.expect("bash runs").success(), "{daemon:?} {position}");
        };
        switch("off");
        pause(seconds);
        switch("on");
        self.until_up();
    }

    fn until_up(&self) {
        let began = clock::now();
        while !self.answers("scontrol", &["ping"]) {
            assert!(
                clock::now().since(began) < Duration::from_secs(60),
                "the controller did not come back"
            );
            pause(0.2);
        }
    }

    /// Whether a command succeeds: what it is for may have ended.
    fn answers(&self, command: &str, args: &[&str]) -> bool {
        let ran = Command::new(command)
            .args(args)
            .env("SLURM_CONF", &self.config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        ran.expect("Slurm is installed").success()
    }

    /// One of the nodes of a job, at random; `node1` if it does not run.
    fn node(&self, job: &str, draws: &mut Python) -> String {
        let names = self
            .nodes(job)
            .map(|list| self.ask("scontrol", &["show", "hostnames", &list]));
        let names = names.unwrap_or_else(|| "node1".to_owned());
        let names: Vec<&str> = names.split_whitespace().collect();
        names[(draws.random() * names.len() as f64) as usize].to_owned()
    }

    /// The list of the nodes of a job, if it runs.
    fn nodes(&self, job: &str) -> Option<String> {
        let ran = Command::new("squeue")
            .args([
                "--noheader",
                "--jobs",
                job,
                "--states",
                "RUNNING",
                "--format",
                "%N",
            ])
            .env("SLURM_CONF", &self.config)
            .output();
        let text = String::from_utf8_lossy(&ran.expect("Slurm is installed").stdout)
            .trim()
            .to_owned();
        (!text.is_empty()).then_some(text)
    }
}

/// The newest job, if it was submitted.
fn newest(bench: &Bench) -> Option<String> {
    let folder = job_folders(bench).pop()?;
    folder.join("job.json").exists().then(|| job_id(&folder))
}

/// The process that submits and follows.
fn login(bench: &Bench, repeats_failed: bool) -> Child {
    let mut args = vec!["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"];
    args.extend(repeats_failed.then_some("--failed"));
    args.extend((!job_folders(bench).is_empty()).then_some("--resume"));
    let mut command = bench.command(&args);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the binary runs")
}

/// Does one thing to the job or its cluster, and says which.
fn disturb(cluster: &Cluster, bench: &Bench, login: &mut Child, draws: &mut Python) -> &'static str {
    let seconds = draws.random() * MOST_SECONDS;
    let choice = (draws.random() * 8.0) as usize;
    let Some(job) = newest(bench) else {
        return "nothing, as there is no job yet";
    };
    match choice {
        0 => {
            login.kill().and_then(|()| login.wait()).expect("it is a child");
            "kill -9 of the login side"
        }
        1 => {
            cluster.answers("scancel", &[&job]);
            "scancel"
        }
        2 => {
            cluster.without(&["controller"], seconds);
            "restart of slurmctld"
        }
        3 => {
            let node = cluster.node(&job, draws);
            cluster.without(&["node", &node], seconds);
            "restart of slurmd"
        }
        4 => {
            let node = cluster.node(&job, draws);
            let name = format!("NodeName={node}");
            cluster.answers("scontrol", &["update", &name, "State=DRAIN", "Reason=chaos"]);
            pause(seconds);
            cluster.answers("scontrol", &["update", &name, "State=RESUME"]);
            "drain of the node"
        }
        5 => {
            cluster.answers("scontrol", &["requeue", &job]);
            "requeue"
        }
        6 => {
            let is_rank = |process: &&String| process.contains("--node-rank") && !process.contains("__shim");
            let processes = bench.survivors();
            let Some(rank) = processes.iter().find(is_rank) else {
                return "nothing, as no rank runs";
            };
            let (pid, _) = rank.split_once(':').expect("it begins with its pid");
            // It may have ended.
            let killed = Command::new("kill").args(["-9", pid]).status();
            let _ = killed.expect("kill runs");
            "kill -9 of a rank"
        }
        _ => {
            cluster.answers(
                "sbatch",
                &[
                    "--partition=gpu",
                    "--nodes=2",
                    // Beside one of the stranger, and not beside two of ours.
                    "--ntasks-per-node=15",
                    "--output=/dev/null",
                    "--comment=preemption",
                    "--wrap=sleep 2",
                ],
            );
            "preemption"
        }
    }
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn whatever_happens_every_cell_appears_exactly_once() {
    let Some(cluster) = cluster() else { return };
    let rounds = number("MATRIX_CHAOS_ROUNDS", 8);
    let seed = number(
        "MATRIX_CHAOS_SEED",
        (clock::unix_seconds() * 1e3) as u64 % 100_000,
    );
    say(&format!(
        "Slurm chaos: {rounds} rounds, seed {seed} (set MATRIX_CHAOS_SEED to repeat)"
    ));
    let stranger = cluster.ask(
        "sbatch",
        &[
            "--parsable",
            "--partition=gpu",
            "--output=/dev/null",
            "--no-requeue",
            "--wrap=sleep 3600",
        ],
    );
    let mut draws = Python::new(seed);
    let mut done = 0;
    while done < rounds {
        let bench = cluster.bench(&matrix(), PROFILE);
        let mut child = login(&bench, false);
        loop {
            pause(draws.random() * 2.0 * MOST_SECONDS);
            if let Some(status) = child.try_wait().expect("it can be asked") {
                match status.code() {
                    Some(0) => break,
                    // Killed, interrupted, lost, or the controller was away.
                    None | Some(4 | 6 | 130) => child = login(&bench, false),
                    // A rank was killed.
                    Some(3) => child = login(&bench, true),
                    other => panic!("seed {seed}: exit code {other:?}"),
                }
                continue;
            }
            if done < rounds {
                done += 1;
                let what = disturb(&cluster, &bench, &mut child, &mut draws);
                say(&format!("  {done}: {what}"));
            }
        }
        measured_once(&bench, CELLS, REQUESTS, seed);
        bench.call(&["clean", "--jobs"]).exits(0);
    }
    let left = cluster.ask("squeue", &["--noheader", "--format", "%A %k"]);
    assert!(!left.contains("matrix:"), "seed {seed}: {left}");
    assert!(
        left.contains(stranger.trim()),
        "seed {seed}: a stranger's job was touched: {left}"
    );
    cluster.ask("scancel", &[stranger.trim()]);
}
