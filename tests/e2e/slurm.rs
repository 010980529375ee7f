//! Runs as jobs of a real Slurm cluster, which `tests/slurm/cluster.sh up` starts and MATRIX_SLURM_CONF names. Without it the
//! tests are skipped by name.

mod chaos;
mod containers;
mod hosts;
mod members;
mod other_host;
mod regression;
mod samples;
mod starts;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use matrix::cli::env_variable;

use crate::harness::{Bench, Ran, repository, sims};
use crate::skip::skip;

const LOAD: &str = "  - load: { dataset: random, prompts: 12, input_len: 40, output_len: 4, concurrency: 2, range_ratio: 1.0, warmup: 0 }\n";

/// Two cells of a simulated engine of which the second takes about ten seconds.
const TWO_CELLS: &str = "  - first: { dataset: random, prompts: 4, input_len: 40, output_len: 4, concurrency: 2, range_ratio: 1.0, warmup: 0 }\n  - second: { dataset: random, prompts: 20, input_len: 40, output_len: 4, rate: 2, spacing: constant, range_ratio: 1.0, warmup: 0 }\n";

struct Cluster {
    config: String,
}

/// The cluster of the tests; `None` if there is none, which `.ci/run` makes a failure.
#[track_caller]
fn cluster() -> Option<Cluster> {
    match env_variable("MATRIX_SLURM_CONF") {
        Some(config) => Some(Cluster { config }),
        None => {
            assert!(
                env_variable("MATRIX_REQUIRE_SLURM").is_none(),
                "MATRIX_SLURM_CONF is not set"
            );
            skip("needs MATRIX_SLURM_CONF, from `tests/slurm/cluster.sh up`");
            None
        }
    }
}

impl Cluster {
    /// A matrix beside the profile `test` with these lines.
    fn bench(&self, matrix: &str, profile: &str) -> Bench {
        let bench = Bench::of(matrix).variable("SLURM_CONF", &self.config);
        let folder = bench.matrix().with_file_name("clusters");
        fs::create_dir(&folder).expect("the folder is new");
        fs::write(folder.join("test.yaml"), profile).expect("it can be written");
        bench
    }

    /// What a command of Slurm prints.
    fn ask(&self, command: &str, args: &[&str]) -> String {
        let ran = Command::new(command)
            .args(args)
            .env("SLURM_CONF", &self.config)
            .output();
        let ran = ran.expect("Slurm is installed");
        assert!(
            ran.status.success(),
            "{command} {args:?}: {}",
            String::from_utf8_lossy(&ran.stderr)
        );
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    /// The job of this test in the given folder, as `scontrol` shows it.
    fn job(&self, folder: &std::path::Path) -> String {
        self.ask("scontrol", &["show", "job", "--oneliner", &job_id(folder)])
    }
}

const PROFILE: &str = "partition: gpu\ntime_limit: 10m\n";

fn run(bench: &Bench, more: &[&str]) -> Ran {
    let mut args = vec!["--cluster", "test"];
    args.extend(more);
    bench.run(&args)
}

/// The folders of the jobs, the oldest first.
fn job_folders(bench: &Bench) -> Vec<PathBuf> {
    let Ok(jobs) = fs::read_dir(bench.results().join("jobs")) else {
        return Vec::new();
    };
    let mut folders: Vec<PathBuf> = jobs.map(|job| job.expect("it can be read").path()).collect();
    folders.sort();
    folders
}

fn job_id(folder: &std::path::Path) -> String {
    let text = fs::read_to_string(folder.join("job.json")).expect("the job was submitted");
    let value: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    value["job"].as_str().expect("it has a number").to_owned()
}

/// Insists that the first of two cells was measured once, whatever ended in the second.
fn first_measured_once(bench: &Bench) {
    assert_eq!(bench.finished().summaries.len(), 2);
    let journal = bench.journal();
    let began = journal
        .lines()
        .filter(|line| line.contains("\"cell-began\"") && line.contains("scenario=first"));
    assert_eq!(began.count(), 1, "{journal}");
}

/// Insists that every planned cell was measured exactly once.
fn measured_once(bench: &Bench, cells: usize) {
    let ended = bench.journal().matches("\"cell-ended\"").count();
    let run = bench.finished();
    assert_eq!(
        (run.summaries.len(), ended),
        (cells, cells),
        "{}",
        bench.journal()
    );
}

#[test]
fn a_run_on_a_cluster_ends_as_on_one_host_and_takes_what_the_profile_says() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(
        &sims(&[("a", "", "")], LOAD),
        "partition: gpu\ngres: gpu:h100\ngpus: 2\ntime_limit: 10m\nprolog: [\"export FROM_PROLOG=$CUDA_VISIBLE_DEVICES\"]\n",
    )
    // These would make an array of it, and have sbatch wait for its end.
    .variable("SBATCH_ARRAY_INX", "1-3")
    .variable("SBATCH_WAIT", "1");
    bench
        .call(&["plan", "matrices/m.yaml", "--cluster", "test"])
        .exits(0)
        .shows("#SBATCH --partition=gpu\n")
        .shows("#SBATCH --gres=gpu:h100:2\n")
        .shows("run matrices/m.yaml --cluster test");
    run(&bench, &[])
        .exits(0)
        .shows("12/0")
        .shows("1 done")
        .says("submitted as job");
    measured_once(&bench, 1);
    let unlimited = bench.matrix().with_file_name("clusters").join("unlimited.yaml");
    fs::write(unlimited, "partition: gpu\n").expect("it can be written");
    // The cell took less than a minute, and 15 minutes are added.
    bench
        .call(&["plan", "matrices/m.yaml", "--cluster", "unlimited"])
        .exits(0)
        .shows("#SBATCH --time=0-00:16:00\n");
    let folders = job_folders(&bench);
    assert_eq!(folders.len(), 1);
    let job = cluster.job(&folders[0]);
    for part in [
        "Partition=gpu",
        "TimeLimit=00:10:00",
        "gres:gpu:h100:2",
        "NumNodes=1",
    ] {
        assert!(job.contains(part), "{part}: {job}");
    }
    bench.leaves_no_process();
}

#[test]
fn the_side_that_submitted_may_be_killed_and_finds_its_job_again() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(&sims(&[("a", "", "")], TWO_CELLS), PROFILE);
    let mut login = bench.begin(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
    bench.until_journal("\"cell-ended\"");
    login.kill().and_then(|()| login.wait()).expect("it is a child");
    run(&bench, &["--resume"])
        .exits(0)
        .says("still executes this run")
        .shows("2 done");
    measured_once(&bench, 2);
    assert_eq!(job_folders(&bench).len(), 1, "no second job was submitted");
    bench.leaves_no_process();
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_signal_leaves_the_job_and_says_how_to_follow_it() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(&sims(&[("a", "", "")], TWO_CELLS), PROFILE);
    let mut command = bench.command(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let login = command.spawn().expect("the binary runs");
    bench.until_journal("\"cell-ended\"");
    // `env` has become the binary.
    let killed = Command::new("kill")
        .args(["-INT", &login.id().to_string()])
        .status();
    assert!(killed.expect("kill runs").success());
    let ran = Ran::from(login.wait_with_output().expect("it ends"));
    let id = job_id(&job_folders(&bench)[0]);
    ran.exits(130)
        .shows(&format!("job {id} continues"))
        .shows("--resume t-");
    run(&bench, &["--resume"]).exits(0).shows("2 done");
    measured_once(&bench, 2);
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_job_that_is_requeued_or_cancelled_repeats_no_finished_cell() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(&sims(&[("a", "", "")], TWO_CELLS), PROFILE);
    let login = bench.begin(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
    bench.until_journal("\"cell-ended\"");
    let first = job_folders(&bench)[0].clone();
    cluster.ask("scontrol", &["requeue", &job_id(&first)]);
    bench.until("the job runs again", || {
        cluster.job(&first).contains("JobState=RUNNING Reason=None")
            && cluster.job(&first).contains("Restarts=1")
    });
    bench.until("the run was resumed", || {
        bench.journal().matches("\"run-began\"").count() == 2
    });
    cluster.ask("scancel", &[&job_id(&first)]);
    let ran = Ran::from(login.wait_with_output().expect("it ends"));
    ran.exits(130);
    bench.leaves_no_process();
    run(&bench, &["--resume"]).exits(0).shows("2 done");
    assert_eq!(job_folders(&bench).len(), 2);
    first_measured_once(&bench);
    bench.leaves_no_process();
}

#[test]
fn what_the_cluster_refuses_is_said_with_the_fix_and_leaves_nothing() {
    let Some(cluster) = cluster() else { return };
    let matrix = sims(&[("a", "", "")], LOAD);
    for (profile, message, help) in [
        (
            "partition: nope\n",
            "invalid partition specified: nope",
            "`sinfo -o %P` lists the partitions",
        ),
        (
            "gres: gpu:a100\ngpus: 1\n",
            "Requested node configuration is not available",
            "compare `gres`",
        ),
        (
            "gpus: 9\ngres: gpu:h100\n",
            "Requested node configuration is not available",
            "compare `gres`",
        ),
        (
            "gres: tpu\ngpus: 1\n",
            "Invalid generic resource",
            "`sinfo -o %G`",
        ),
        ("cpus: 17\n", "CPU count per node", "lower `cpus`"),
        ("memory: 65000M\n", "Memory specification", "lower `memory`"),
        (
            "constraint: foo\n",
            "Invalid feature specification",
            "`constraint`",
        ),
        (
            "reservation: x\n",
            "Requested reservation is invalid",
            "`reservation`",
        ),
        (
            "options: [--foo]\n",
            "unrecognized option '--foo'",
            "`sbatch --help`",
        ),
        (
            "options: [--begin=foo]\n",
            "Invalid --begin specification",
            "correct that option",
        ),
    ] {
        let bench = cluster.bench(&matrix, profile);
        run(&bench, &[]).exits(4).says(message).says(help);
        assert_eq!(job_folders(&bench), Vec::<PathBuf>::new(), "{profile}");
    }
    let bench = cluster.bench(&matrix, "partiton: gpu\n");
    run(&bench, &[]).exits(2).says("partiton").says("partition");
    let bench = cluster.bench(&matrix, "time_limit: 2m\n");
    run(&bench, &[])
        .exits(2)
        .says("write at least 5m")
        .says("test.yaml:1");
    let bench = cluster.bench(&matrix, PROFILE);
    run(&bench, &["--resume"]).exits(2).says("has no run of `t`");
    run(&bench, &["--gpus", "0"]).exits(2).says("--gpus");
    assert_eq!(job_folders(&bench), Vec::<PathBuf>::new());
    bench
        .run(&["--cluster", ""])
        .exits(2)
        .says("the name of the cluster is empty");
    bench
        .run(&["--cluster", "tst"])
        .exits(2)
        .says("no profile describes the cluster `tst`")
        .says("`test`");
    // The tests start the binary by `env`.
    let tools = tempfile::tempdir().expect("a folder can be made");
    std::os::unix::fs::symlink("/usr/bin/env", tools.path().join("env")).expect("the folder is new");
    let bench = cluster
        .bench(&matrix, PROFILE)
        .variable("PATH", &tools.path().display().to_string());
    run(&bench, &[]).exits(4).says("`sbatch` cannot be started");
}

#[test]
fn a_prolog_that_ends_the_job_and_a_path_with_a_line_break_are_named() {
    let Some(cluster) = cluster() else { return };
    let matrix = sims(&[("a", "", "")], LOAD);
    for (form, end, exit) in [
        ("", "FAILED, exit code 3:0", 6),
        ("job_per: launch\n", "FAILED", 4),
    ] {
        let profile = format!("partition: gpu\ntime_limit: 10m\nprolog: [\"exit 3\"]\n{form}");
        let bench = cluster.bench(&matrix, &profile);
        run(&bench, &[])
            .exits(exit)
            .says(end)
            .says("a line of `prolog` of the profile, such as `exit`, may have ended the job");
    }
    let bench = cluster.bench(&matrix, PROFILE);
    run(&bench, &["--results", "a\nb"])
        .exits(2)
        .says("the folder of the results, \"")
        .says("a\\nb\": this path has a line break")
        .says("choose another one");
    // Characters that change the direction of text, too.
    let refused = bench
        .call(&[
            "plan",
            "matrices/m.yaml",
            "--cluster",
            "test",
            "--results",
            "a\u{202e}b",
        ])
        .exits(2)
        .says("this path has a line break, another invisible character");
    assert_eq!(refused.stdout, "", "a plan that cannot be a job is not printed");
    assert_eq!(job_folders(&bench), Vec::<PathBuf>::new());
}

#[test]
fn a_second_job_of_a_run_names_the_job_and_node_of_the_first() {
    let Some(cluster) = cluster() else { return };
    // The first job must outlast the second, which on a busy machine takes long to start.
    let cells = TWO_CELLS.replace("prompts: 20", "prompts: 400");
    let bench = cluster.bench(&sims(&[("a", "", "")], &cells), PROFILE);
    let login = bench.begin(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
    bench.until_journal("\"cell-ended\"");
    let folder = job_folders(&bench)[0].clone();
    // As if two sides had submitted a job for the run at once.
    fs::rename(&folder, bench.path().join("away")).expect("it can be moved");
    let second = run(&bench, &["--resume"]);
    let job = job_id(&bench.path().join("away"));
    // The first job may have written there meanwhile.
    fs::remove_dir_all(&folder)
        .or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })
        .expect("it can be removed");
    fs::rename(bench.path().join("away"), &folder).expect("it can be moved");
    second
        .exits(2)
        .says("is being written by process ")
        .says(&format!(" of job {job} on node"));
    cluster.ask("scancel", &[&job]);
    login.wait_with_output().expect("it ends");
    bench.leaves_no_process();
}

#[test]
fn a_check_names_what_the_cluster_lacks_and_submits_nothing() {
    let Some(cluster) = cluster() else { return };
    let matrix = sims(&[("a", "", "")], LOAD);
    for (profile, code, says) in [
        (
            "partition: gpu\ngres: gpu:h100\ngpus: 8\n",
            0,
            "has what the job requests (1 node with 8 GPUs)",
        ),
        ("partition: nope\n", 4, "may be one of `gpu`, `low`, `short`"),
        (
            "gres: gpu:a100\ngpus: 1\n",
            4,
            "no node of partition `gpu` has 1 GPU named `gpu:a100`",
        ),
        ("cpus: 17\n", 4, "has 17 processors; its nodes have 16 processors"),
        (
            "partition: short\ntime_limit: 20m\n",
            4,
            "partition `short` allows only 10m",
        ),
    ] {
        let bench = cluster.bench(&matrix, profile);
        let ran = bench.call(&["check", "matrices/m.yaml", "--cluster", "test"]);
        match code {
            0 => ran.exits(0).shows(says),
            code => ran.exits(code).says(says),
        };
        assert_eq!(job_folders(&bench), Vec::<PathBuf>::new(), "{profile}");
    }
}

#[test]
fn clean_cancels_the_jobs_of_matrix_and_no_others() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(&sims(&[("a", "", "")], TWO_CELLS), PROFILE);
    let stranger = cluster.ask(
        "sbatch",
        &[
            "--parsable",
            "--comment=not matrix:/a",
            "--output=/dev/null",
            "--wrap=sleep 300",
        ],
    );
    let login = bench.begin(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
    bench.until_journal("\"cell-ended\"");
    let id = job_id(&job_folders(&bench)[0]);
    // It also cancels jobs of other tests, which run one at a time.
    bench
        .call(&["clean", "--jobs"])
        .exits(0)
        .shows(&format!("cancelled job {id} (running)"));
    let ran = Ran::from(login.wait_with_output().expect("it ends"));
    ran.exits(130);
    bench
        .call(&["clean", "--jobs"])
        .exits(0)
        .shows("no job of `matrix` found");
    let states = cluster.ask(
        "squeue",
        &["--noheader", "--jobs", stranger.trim(), "--format", "%T"],
    );
    assert!(
        states.contains("RUNNING") || states.contains("PENDING"),
        "{states}"
    );
    cluster.ask("scancel", &[stranger.trim()]);
    bench.leaves_no_process();
    run(&bench, &["--resume"]).exits(0).shows("2 done");
    first_measured_once(&bench);
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_job_that_waits_for_ever_is_named() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(
        &sims(&[("a", "", "")], LOAD),
        "partition: short\ntime_limit: 20m\n",
    );
    let login = bench.begin(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
    bench.until("the job is submitted", || {
        !job_folders(&bench).is_empty() && job_folders(&bench)[0].join("job.json").exists()
    });
    let id = job_id(&job_folders(&bench)[0]);
    bench.until("the job has its reason", || {
        cluster
            .ask("squeue", &["-h", "-j", &id, "-o", "%r"])
            .contains("PartitionTimeLimit")
    });
    // The controller is asked every ten seconds.
    std::thread::sleep(Duration::from_secs(12));
    cluster.ask("scancel", &[&id]);
    let ran = Ran::from(login.wait_with_output().expect("it ends"));
    ran.exits(6)
        .says("cannot start until someone changes this: the time limit of the job exceeds that of the partition")
        .says("ended before its run was complete: CANCELLED");
}

/// Five starts of a steady engine whose step takes this long.
fn five_starts(step: &str) -> String {
    let load = "  - load: { dataset: random-ids, prompts: 24, input_len: 32, output_len: 32, concurrency: 4, range_ratio: 1.0, warmup: 0 }\nrepeats: { starts: 5 }\nvalidity: { send_lag: 200ms, other_cpus: 1.0, stolen: 1.0, window: 0s, tail: 0, steady: 0.0 }\n";
    sims(&[("a", "vllm", &format!("--step, {step}"))], load)
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_job_measures_what_the_host_measures_and_a_loss_between_the_two_is_found() {
    let Some(cluster) = cluster() else { return };
    let host = cluster.bench(&five_starts("10ms"), PROFILE);
    host.run(&[]).exits(0).shows("5 done");
    let compare = |candidate: &Bench| {
        let [baseline, candidate] = [&host, candidate].map(|bench| bench.run_folder().display().to_string());
        host.call(&["compare", &baseline, &candidate])
    };
    let same = cluster.bench(&five_starts("10ms"), PROFILE);
    run(&same, &[]).exits(0).shows("5 done");
    // On a busy host it may be unclear, and never a change.
    let ran = compare(&same).exits(0).shows("1 of 1 metrics judged: 1 ");
    assert!(
        !ran.stdout.contains("1 worse") && !ran.stdout.contains("1 better"),
        "{}",
        ran.stdout
    );
    let slower = cluster.bench(&five_starts("11100us"), PROFILE);
    run(&slower, &[]).exits(0).shows("5 done");
    compare(&slower).exits(1).shows("1 of 1 metrics judged: 1 worse");
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn the_demo_runs_in_a_job() {
    let Some(cluster) = cluster() else { return };
    let matrices = repository().join("matrices");
    let demo = fs::read_to_string(matrices.join("demo.yaml")).expect("it is shipped");
    let bench = cluster.bench(&demo, PROFILE);
    bench
        .call(&["run", "matrices/m.yaml", "--cluster", "test"])
        .exits(0)
        .shows("16 done");
    bench.leaves_no_process();
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_real_engine_runs_in_a_job() {
    let (Some(cluster), Some(engines)) = (cluster(), crate::sglang::engines()) else {
        return;
    };
    let bench = cluster.bench(&crate::sglang::matrix(&engines), PROFILE);
    run(&bench, &[]).exits(0).shows("1 done");
    measured_once(&bench, 1);
    bench.leaves_no_process();
}

#[test]
fn a_job_that_was_cancelled_before_it_began_is_submitted_again() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(
        &sims(&[("a", "", "")], LOAD),
        "partition: gpu\noptions: [--begin=now+1hour]\n",
    );
    let login = bench.begin(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
    bench.until("the job is submitted", || {
        !job_folders(&bench).is_empty() && job_folders(&bench)[0].join("job.json").exists()
    });
    cluster.ask("scancel", &[&job_id(&job_folders(&bench)[0])]);
    let ran = Ran::from(login.wait_with_output().expect("it ends"));
    ran.exits(6)
        .says("ended before its run was complete: CANCELLED")
        .says("submit the job again with: matrix run matrices/m.yaml --no-calibration --cluster test\n");
    fs::write(
        bench.matrix().with_file_name("clusters").join("test.yaml"),
        PROFILE,
    )
    .expect("it can be written");
    run(&bench, &["--resume"]).exits(0).shows("1 done");
    measured_once(&bench, 1);
}

#[test]
fn a_job_that_resumes_a_changed_matrix_does_what_yes_allows() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(&sims(&[("a", "", "")], LOAD), PROFILE);
    bench.run(&[]).exits(0);
    bench.rewrite(&sims(
        &[("a", "", "")],
        &LOAD.replace("prompts: 12", "prompts: 8"),
    ));
    run(&bench, &["--resume"]).exits(2).says("add `--yes`");
    run(&bench, &["--resume", "--yes"]).exits(0).shows("8/0");
}
