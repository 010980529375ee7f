//! `job_per: launch`: a job for each start of an engine, on both nodes.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use matrix::base::clock;

use super::{LOAD, cluster, job_folders, job_id, measured_once, run};
use crate::harness::{Bench, Ran, sims};

/// An exclusive job has a node for itself, so that two of them use both nodes.
const TWO_AT_ONCE: &str = "partition: gpu\ntime_limit: 10m\nexclusive: true\njob_per: launch\nmax_jobs: 2\n";

/// A load of about three seconds.
const SHORT: &str = "  - load: { dataset: random, prompts: 6, input_len: 40, output_len: 4, rate: 2, spacing: constant, range_ratio: 1.0, warmup: 0 }\n";

/// Two engines with this number of starts each.
fn two_engines(load: &str, starts: u32) -> String {
    sims(
        &[("a", "vllm", ""), ("b", "sglang", "")],
        &format!("{load}repeats: {{ starts: {starts} }}\n"),
    )
}

/// The folders of the jobs of all starts, in the order of submission.
fn start_folders(bench: &Bench) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for submission in job_folders(bench) {
        let starts = fs::read_dir(submission.join("starts"))
            .into_iter()
            .flatten()
            .flatten();
        let mut starts: Vec<PathBuf> = starts.map(|start| start.path()).collect();
        starts.sort();
        all.extend(starts);
    }
    all
}

/// The folder of the first job, once it measures.
fn first_measuring_job(bench: &Bench) -> PathBuf {
    bench.until("the first job measures", || {
        start_folders(bench)
            .first()
            .is_some_and(|folder| folder.join("run").exists())
    });
    start_folders(bench).remove(0)
}

fn submitted(bench: &Bench) -> usize {
    let folders = start_folders(bench);
    folders
        .iter()
        .filter(|folder| folder.join("job.json").exists())
        .count()
}

/// The nodes that measured, as the summaries of the run say.
fn nodes(bench: &Bench) -> BTreeSet<String> {
    let cells = fs::read_dir(bench.run_folder().join("cells")).expect("cells were measured");
    cells
        .map(|cell| {
            let path = cell.expect("it can be read").path().join("summary.json");
            let text = fs::read_to_string(path).expect("the cell is finished");
            let summary: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
            summary["machine"]["node"]
                .as_str()
                .expect("the node is known")
                .to_owned()
        })
        .collect()
}

#[test]
fn starts_run_on_both_nodes_and_the_side_that_submits_them_may_be_killed() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster
        .bench(&two_engines(SHORT, 2), TWO_AT_ONCE)
        // What a user has these commands show is not what is asked for.
        .variable("SQUEUE_PARTITION", "low")
        .variable("SQUEUE_NAMES", "other")
        .variable("SINFO_PARTITION", "low");
    bench
        .call(&["plan", "matrices/m.yaml", "--cluster", "test"])
        .exits(0)
        .shows("4 jobs, of which at most 2 are queued or running at once; script of the first job on `test`");
    let mut login = bench.begin(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
    // Both of the first jobs may end at once.
    bench.until("a job ended and another was submitted", || submitted(&bench) >= 3);
    login.kill().and_then(|()| login.wait()).expect("it is a child");
    bench
        .run(&["--resume"])
        .exits(4)
        .says("not ended")
        .says("cancel it with: scancel ");
    run(&bench, &["--resume"]).exits(0).shows("4 done");
    measured_once(&bench, 4);
    // The kill may have come between a folder and its submission.
    let jobs = submitted(&bench);
    assert!(jobs <= 4, "no start has two jobs");
    assert_eq!(
        nodes(&bench),
        BTreeSet::from(["node1".to_owned(), "node2".to_owned()])
    );
    // The run is complete: nothing is submitted.
    run(&bench, &["--resume"]).exits(0).shows("4 done");
    assert_eq!(submitted(&bench), jobs);
    let report = fs::read_to_string(bench.run_folder().join("report.md")).expect("it was written");
    assert!(report.contains("node node"), "{report}");
    bench.leaves_no_process();
}

#[test]
fn what_results_decide_is_refused_before_a_job_is_submitted() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(&two_engines(LOAD, 2), TWO_AT_ONCE);
    bench
        .call(&["nightly", "matrices/m.yaml", "--cluster", "test"])
        .exits(2)
        .says("`matrix nightly` chooses starts that depend on the results")
        .says("set `job_per: run`");
    let matrix = two_engines(LOAD, 2).replace("starts: 2", "target_ci: 2%");
    let bench = cluster.bench(&matrix, TWO_AT_ONCE);
    run(&bench, &[])
        .exits(2)
        .says("target_ci")
        .says("set `job_per: run`");
    bench
        .call(&["check", "matrices/m.yaml", "--cluster", "test"])
        .exits(2)
        .says("target_ci");
    let on_gpus = two_engines(LOAD, 2).replace("as: a,", "as: a, devices: gpu,");
    let bench = cluster.bench(&on_gpus.replace("- m: {", "- m: { tp: 2,"), "gpus: 1\n");
    for command in ["check", "run"] {
        bench
            .call(&[command, "matrices/m.yaml", "--cluster", "test"])
            .exits(2)
            .says("needs 2 GPUs on each node, but the profile has only `gpus: 1`");
    }
    assert_eq!(job_folders(&bench), Vec::<PathBuf>::new());
    let bench = cluster.bench(&two_engines(LOAD, 2), "partition: gpu\nmax_jobs: 2\n");
    run(&bench, &[])
        .exits(2)
        .says("`max_jobs` of")
        .says("needs `job_per: launch`");
    let bench = cluster.bench(&two_engines(LOAD, 2), "partition: nope\njob_per: launch\n");
    run(&bench, &[])
        .exits(4)
        .says("invalid partition specified: nope");
    assert_eq!(job_folders(&bench), Vec::<PathBuf>::new());
    assert_eq!(bench.journal(), "", "the run that could not begin is gone");
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_job_that_is_cancelled_costs_its_start_alone_which_resume_measures() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(&two_engines(SHORT, 2), TWO_AT_ONCE);
    let login = bench.begin(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
    let first = first_measuring_job(&bench);
    cluster.ask("scancel", &[&job_id(&first)]);
    let ran = Ran::from(login.wait_with_output().expect("it ends"));
    ran.exits(6)
        .says("1 cell is not measured")
        .says("continue with: matrix run")
        .says(&format!("job {}, start 1", job_id(&first)));
    assert_eq!(start_folders(&bench).len(), 4);
    run(&bench, &["--resume"]).exits(0).shows("4 done");
    assert_eq!(start_folders(&bench).len(), 5, "one start was submitted again");
    let done = bench.journal().matches("\"status\":\"done\"").count();
    assert_eq!(
        (bench.finished().summaries.len(), done),
        (4, 4),
        "{}",
        bench.journal()
    );
    bench.leaves_no_process();
}

#[test]
fn what_the_nodes_lack_is_quoted_and_ends_the_submissions() {
    let Some(cluster) = cluster() else { return };
    let profile = "partition: gpu\ntime_limit: 10m\njob_per: launch\nmax_jobs: 1\nscratch: /proc/none\n";
    let bench = cluster.bench(&two_engines(SHORT, 3), profile);
    let cause = "cannot create the folder /proc/none";
    let ran = run(&bench, &[])
        .exits(4)
        .says("1 cell is not measured: exit code 4: the node ")
        .says("no more jobs are submitted, because 2 jobs ended with the same error before they measured anything")
        .says("4 starts are not submitted")
        .says("nothing was measured, because no job could begin to measure: ")
        .says("continue with: matrix run");
    assert_eq!(ran.stderr.matches(cause).count(), 4, "{}", ran.stderr);
    assert_eq!(start_folders(&bench).len(), 2);
    // A line of the prolog, with a message that has the number of its job.
    let in_prolog = cluster.bench(
        &two_engines(SHORT, 3),
        "partition: gpu\njob_per: launch\nmax_jobs: 1\nprolog: ['echo \"no scratch for $SLURM_JOB_ID\" >&2; exit 3']\n",
    );
    run(&in_prolog, &[])
        .exits(4)
        .says("no more jobs are submitted, because 2 jobs ended with the same error before they measured anything: ")
        .says("a line of `prolog` of the profile, such as `exit`, may have ended the job: no scratch for ");
    fs::write(
        bench.matrix().with_file_name("clusters").join("test.yaml"),
        profile
            .replace("scratch: /proc/none\n", "")
            .replace("max_jobs: 1", "max_jobs: 2"),
    )
    .expect("it can be written");
    run(&bench, &["--resume"]).exits(0).shows("6 done");
    bench.leaves_no_process();
}

/// Writes a program of shell commands.
fn write_command(folder: &Path, name: &str, commands: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{commands}\n")).expect("it can be written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// Our PATH with a folder before the others.
fn path_beginning_with(folder: &Path) -> String {
    let path = matrix::cli::env_variable("PATH").expect("it is set");
    format!("{}:{path}", folder.display())
}

/// Puts commands before those of Slurm which note each call.
fn count_calls(folder: &Path, names: &[&str]) {
    let log = folder.join("calls");
    for name in names {
        let commands = format!("echo {name} >>'{}'\nexec /usr/bin/{name} \"$@\"", log.display());
        write_command(folder, name, &commands);
    }
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn five_hundred_jobs_are_submitted_watched_and_cancelled_at_little_cost() {
    let Some(cluster) = cluster() else { return };
    let tools = tempfile::tempdir().expect("a folder can be made");
    count_calls(tools.path(), &["squeue", "scontrol", "sacct"]);
    let path = path_beginning_with(tools.path());
    let matrix = sims(
        &[("a", "vllm", "")],
        &format!("{LOAD}repeats: {{ starts: 500 }}\n"),
    );
    let profile = "partition: gpu\ntime_limit: 10m\njob_per: launch\noptions: [--begin=now+1hour]\n";
    let bench = cluster.bench(&matrix, profile).variable("PATH", &path);
    let stranger = cluster.ask(
        "sbatch",
        &[
            "--parsable",
            "--begin=now+1hour",
            "--output=/dev/null",
            "--wrap=sleep 1",
        ],
    );
    let login = bench.begin(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
    let began = clock::now();
    bench.until("all jobs are submitted", || submitted(&bench) == 500);
    std::thread::sleep(Duration::from_secs(25));
    let watched = clock::now().since(began).as_secs();
    let calls = fs::read_to_string(tools.path().join("calls")).expect("the controller was asked");
    let asked = calls.lines().count() as u64;
    assert!(
        asked >= 2 && asked <= watched / 10 + 2,
        "{asked} calls in {watched} s: {calls}"
    );
    let killed = Command::new("kill")
        .args(["-INT", &login.id().to_string()])
        .status();
    assert!(killed.expect("kill runs").success());
    let ran = Ran::from(login.wait_with_output().expect("it ends"));
    let ran = ran.exits(130).says("submitted 500 jobs in");
    let line = ran
        .stderr
        .lines()
        .find(|line| line.contains("submitted 500 jobs"));
    let line = line.expect("it was found above");
    let seconds = |after: &str| -> f64 {
        let text = line.split(after).nth(1).expect(after);
        text.split_whitespace()
            .next()
            .and_then(|word| word.parse().ok())
            .expect(after)
    };
    let own = seconds("jobs in ") - seconds("`sbatch` took ");
    println!("{line}");
    assert!(own < 10.0, "{line}");
    let began = clock::now();
    let cancelled = bench.call(&["clean", "--jobs"]).exits(0);
    println!("cancelled in {:.1} s", clock::now().since(began).as_secs_f64());
    assert_eq!(cancelled.stdout.matches("cancelled job ").count(), 500);
    let states = cluster.ask("squeue", &["--noheader", "--me", "--format", "%A"]);
    assert_eq!(states.trim(), stranger.trim(), "only the stranger's job is left");
    cluster.ask("scancel", &[stranger.trim()]);
}

/// A PATH that begins with an `sbatch` of these shell commands, and the folder that must live as long.
fn with_sbatch(commands: &str) -> (tempfile::TempDir, String) {
    let tools = tempfile::tempdir().expect("a folder can be made");
    write_command(tools.path(), "sbatch", commands);
    let path = path_beginning_with(tools.path());
    (tools, path)
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_signal_between_submissions_loses_no_job_and_submits_none_twice() {
    let Some(cluster) = cluster() else { return };
    // Slurm has the job a second before its number is known.
    let (_tools, path) =
        with_sbatch("number=$(/usr/bin/sbatch \"$@\"); code=$?; sleep 1; echo \"$number\"; exit $code");
    let profile = "partition: gpu\ntime_limit: 10m\njob_per: launch\noptions: [--begin=now+8]\n";
    let bench = cluster
        .bench(&two_engines(SHORT, 2), profile)
        .variable("PATH", &path);
    let login = bench.begin(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
    bench.until("a second job is about to be submitted", || {
        submitted(&bench) == 1 && start_folders(&bench).len() == 2
    });
    std::thread::sleep(Duration::from_millis(500));
    let killed = Command::new("kill")
        .args(["-INT", &login.id().to_string()])
        .status();
    assert!(killed.expect("kill runs").success());
    Ran::from(login.wait_with_output().expect("it ends")).exits(130);
    run(&bench, &["--resume"]).exits(0).shows("4 done");
    measured_once(&bench, 4);
    assert_eq!(start_folders(&bench).len(), 4, "each start has one job");
    bench.leaves_no_process();
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_start_whose_job_is_requeued_is_measured_once() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(&two_engines(SHORT, 2), TWO_AT_ONCE);
    let login = bench.begin(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
    let first = first_measuring_job(&bench);
    cluster.ask("scontrol", &["requeue", &job_id(&first)]);
    Ran::from(login.wait_with_output().expect("it ends")).exits(0);
    let done = bench.journal().matches("\"status\":\"done\"").count();
    assert_eq!(
        (bench.finished().summaries.len(), done),
        (4, 4),
        "{}",
        bench.journal()
    );
    assert_eq!(start_folders(&bench).len(), 4, "each start has one job");
    bench.leaves_no_process();
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_controller_that_is_away_between_submissions_is_asked_again() {
    let Some(cluster) = cluster() else { return };
    let profile = "partition: gpu\ntime_limit: 10m\njob_per: launch\nmax_jobs: 1\n";
    let bench = cluster.bench(&two_engines(SHORT, 2), profile);
    let login = bench.begin(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
    bench.until("a job is submitted", || submitted(&bench) == 1);
    cluster.without(&["controller"], 20.0);
    let ran = Ran::from(login.wait_with_output().expect("it ends"));
    ran.exits(0).says("Unable to contact slurm controller");
    measured_once(&bench, 4);
    bench.leaves_no_process();
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_submission_whose_answer_was_lost_is_not_repeated() {
    let Some(cluster) = cluster() else { return };
    let (tools, path) = with_sbatch(
        "printf x >>\"${0%/*}/calls\"; number=$(/usr/bin/sbatch \"$@\") || exit; case $(cat \"${0%/*}/calls\") in xx) echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation' >&2; exit 1;; esac; echo \"$number\"",
    );
    let profile = "partition: gpu\ntime_limit: 10m\njob_per: launch\noptions: [--begin=now+2]\n";
    let bench = cluster
        .bench(&two_engines(SHORT, 2), profile)
        .variable("PATH", &path);
    run(&bench, &[]).exits(0).shows("4 done");
    measured_once(&bench, 4);
    assert_eq!(start_folders(&bench).len(), 4);
    let calls = fs::read_to_string(tools.path().join("calls")).expect("it was called");
    assert_eq!(calls, "xxxx");
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_matrix_that_changes_while_its_job_waits_is_named() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(
        &two_engines(SHORT, 1),
        "partition: gpu\ntime_limit: 10m\noptions: [--begin=now+5]\n",
    );
    let login = bench.begin(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
    bench.until("the job is submitted", || {
        job_folders(&bench)
            .iter()
            .any(|folder| folder.join("job.json").exists())
    });
    let text = fs::read_to_string(bench.matrix()).expect("it is there");
    fs::write(bench.matrix(), format!("{text}# changed\n")).expect("it can be written");
    let ran = Ran::from(login.wait_with_output().expect("it ends"));
    ran.exits(0)
        .says("the matrix or a recipe was changed after this job was submitted");
}
