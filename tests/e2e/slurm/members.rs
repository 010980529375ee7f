//! Engines of several processes in a job: ranks on two nodes, and roles.

use std::process::Command;

use super::{LOAD, PROFILE, cluster, measured_once, run};
use crate::harness::{Bench, Ran, failure, sims, summary};

/// A load of about ten seconds.
const LONG: &str = "  - load: { dataset: random, prompts: 20, input_len: 40, output_len: 4, rate: 2, spacing: constant, range_ratio: 1.0, warmup: 0 }\n";

/// A simulated engine over two nodes, with further arguments.
pub fn two_nodes(args: &str, scenarios: &str) -> String {
    sims(&[("two", "vllm", args)], scenarios).replace("as: two,", "as: two, nodes: 2,")
}

/// Kills all that `matrix` runs on the second node, as if the node were lost.
fn lose_second_node(bench: &Bench) {
    let folder = std::fs::canonicalize(bench.path()).expect("it is there");
    let processes = std::fs::read_dir("/proc").expect("processes can be listed");
    let mut killed = 0;
    for process in processes.flatten() {
        let path = process.path();
        let command = std::fs::read(path.join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let is_remote = command.ends_with(" __remote ") || command.ends_with(" __sample ");
        let is_srun = command.contains("srun");
        if is_remote && !is_srun && std::fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd == folder) {
            let pid = process.file_name();
            let status = Command::new("kill").arg("-9").arg(pid).status();
            killed += usize::from(status.expect("kill runs").success());
        }
    }
    assert!(killed >= 2, "{killed} were killed");
}

/// The processes of the engine on the second node.
fn remote_processes(bench: &Bench) -> Vec<String> {
    let mut all = bench.survivors();
    all.retain(|process| process.contains("--node-rank 1"));
    all
}

#[test]
fn each_node_runs_a_rank_and_the_head_waits_for_it() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(&two_nodes("", LOAD), PROFILE);
    let refused = bench.run(&[]).exits(4);
    refused.says("needs 2 nodes, but only a job that `matrix` submits can use several nodes");
    let planned = bench.call(&["plan", "matrices/m.yaml", "--cluster", "test"]);
    planned
        .exits(0)
        .shows("#SBATCH --nodes=2\n")
        .shows("srun --overlap");
    run(&bench, &[]).exits(0).shows("12/0");
    measured_once(&bench, 1);
    let log = bench.engine_log();
    for line in ["[rank 0] INFO", "rank 1 joined (1 of 1)", "[rank 1] INFO"] {
        assert!(log.contains(line), "{line}: {log}");
    }
    bench.leaves_no_process();
}

#[test]
fn the_end_of_a_rank_on_another_node_is_that_of_the_engine_and_its_log_is_quoted() {
    let Some(cluster) = cluster() else { return };
    // The head notices nothing, as in a collective operation that waits without end.
    let faults = "--fault-rank, \"1\", --die-after, 3s, --rank-loss, hang";
    let bench = cluster.bench(&two_nodes(faults, LONG), PROFILE);
    run(&bench, &[]).exits(3);
    let run = bench.finished();
    let (_, reason, tail) = failure(summary(&run, "two", "load"));
    assert!(
        reason.contains("its process `rank 1` ended (exit status: 1)"),
        "{reason}"
    );
    assert!(tail.lines().all(|line| line.starts_with("[rank 1] ")), "{tail}");
    assert!(tail.contains("fatal error"), "{tail}");
    bench.leaves_no_process();
}

#[test]
fn nothing_is_left_on_another_node_when_the_job_is_cancelled() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(&two_nodes("", LONG), PROFILE);
    let mut login = bench.begin(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
    bench.until("the second rank runs", || !remote_processes(&bench).is_empty());
    bench.until_journal("\"cell-began\"");
    bench.call(&["clean", "--jobs"]).exits(0);
    login.wait().expect("it is a child");
    bench.leaves_no_process();
}

#[test]
fn a_killed_run_leaves_no_rank_on_another_node() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(&two_nodes("", LONG), PROFILE);
    let mut login = bench.begin(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
    bench.until("the second rank runs", || !remote_processes(&bench).is_empty());
    bench.until_journal("\"cell-began\"");
    let pattern = format!("--job-folder {}", bench.results().join("jobs").display());
    let killed = Command::new("pkill").args(["-9", "-f", "--", &pattern]).status();
    assert!(killed.expect("pkill runs").success());
    login.wait().expect("it is a child");
    bench.until("the second rank ended", || remote_processes(&bench).is_empty());
    bench.leaves_no_process();
}

#[test]
fn an_engine_with_roles_runs_in_a_job() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(&crate::roles::disaggregated("", "{}"), PROFILE);
    run(&bench, &[]).exits(0).shows("20/0");
    measured_once(&bench, 1);
    bench.leaves_no_process();
}

#[test]
fn a_secret_reaches_a_rank_and_no_command_line_of_the_scheduler() {
    let Some(cluster) = cluster() else { return };
    let secret = "hush-4711-hush";
    let matrix = two_nodes("", LONG).replace("nodes: 2,", "nodes: 2, env: { HUB_KEY: \"${HUB_KEY}\" },");
    let bench = cluster.bench(&matrix, PROFILE).variable("HUB_KEY", secret);
    let mut login = bench.begin(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
    bench.until("the second rank runs", || !remote_processes(&bench).is_empty());
    let all = bench.survivors();
    let scheduler: Vec<&String> = all.iter().filter(|process| process.contains("srun")).collect();
    assert!(!scheduler.is_empty(), "{all:?}");
    assert!(all.iter().all(|process| !process.contains(secret)), "{all:?}");
    let rank = remote_processes(&bench).remove(0);
    let (pid, _) = rank.split_once(':').expect("it begins with its pid");
    let environ = std::fs::read(format!("/proc/{pid}/environ")).expect("it runs");
    assert!(
        String::from_utf8_lossy(&environ).contains(&format!("HUB_KEY={secret}")),
        "{rank}"
    );
    bench.call(&["clean", "--jobs"]).exits(0);
    login.wait().expect("it is a child");
    bench.leaves_no_process();
}

/// Prefill on the first node and a decode server on each.
fn spread(decode: &str) -> String {
    crate::roles::disaggregated(decode, "{}").replace("decode: { count: 2,", "decode: { node: [0, 1],")
}

#[test]
fn roles_run_on_several_nodes() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(&spread(""), PROFILE);
    bench
        .run(&[])
        .exits(4)
        .says("needs 2 nodes, but only a job that `matrix` submits can use several nodes");
    run(&bench, &[]).exits(0).shows("20/0");
    measured_once(&bench, 1);
    let log = bench.engine_log();
    for process in ["prefill", "decode 1", "decode 2", "router"] {
        assert!(log.contains(&format!("[{process}] ")), "{process}: {log}");
    }
    bench.leaves_no_process();
}

#[test]
fn the_end_of_a_role_on_another_node_is_that_of_the_engine() {
    let Some(cluster) = cluster() else { return };
    let matrix = spread("").replace(
        "        router:",
        "        side: { node: 1, args: [--preset, fast, --die-after, 2s] }\n        router:",
    );
    let bench = cluster.bench(
        &matrix.replace("concurrency: 4", "rate: 2, spacing: constant"),
        PROFILE,
    );
    run(&bench, &[]).exits(3);
    let run = bench.finished();
    let (_, reason, tail) = failure(summary(&run, "split", "load"));
    assert!(
        reason.contains("its process `side` ended (exit status: 1)"),
        "{reason}"
    );
    assert!(tail.lines().all(|line| line.starts_with("[side] ")), "{tail}");
    bench.leaves_no_process();
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_cell_during_which_a_node_was_lost_is_measured_again() {
    let Some(cluster) = cluster() else { return };
    let matrix = spread("").replace("concurrency: 4", "rate: 4, spacing: constant");
    let bench = cluster.bench(&matrix, PROFILE);
    let login = bench.begin(&["run", "matrices/m.yaml", "--no-calibration", "--cluster", "test"]);
    bench.until_journal("\"cell-began\"");
    lose_second_node(&bench);
    let ran = Ran::from(login.wait_with_output().expect("it ends"));
    ran.exits(0).says("its process `decode 2` ended");
    let done = bench.journal().matches("\"status\":\"done\"").count();
    assert_eq!(done, 1, "{}", bench.journal());
    assert_eq!(summary(&bench.finished(), "split", "load").retries.len(), 1);
    bench.leaves_no_process();
}
