//! Questions whose starts were measured on a node with another processor than that of the answer are not judged.

use std::fs;

use super::hosts::with_processor;
use super::regression::{CLUSTER, CONFIRM, FLOOR, findings, history, journal, runs, set_baseline};
use super::{cluster, job_folders, job_id};
use crate::harness::{Bench, Ran};
use crate::nightly::{GATE, nightly};
use crate::nights::small;
use crate::skip::skip;

const PROCESSOR: &str = "Another 9000";

/// A matrix beside a profile whose jobs see another processor once the file `other` exists.
fn bench(matrix: &str) -> Option<(super::Cluster, Bench)> {
    let cluster = cluster()?;
    let bench = cluster.bench(matrix, "");
    let Some(prolog) = with_processor(bench.path(), PROCESSOR) else {
        skip("no file can be mounted over /proc/cpuinfo here");
        return None;
    };
    let other = bench.path().join("other");
    let profile = format!(
        "partition: gpu\ntime_limit: 10m\nprolog: ['[ ! -e {} ] || {{ {prolog}; }}']\n",
        other.display()
    );
    super::hosts::rewrite_profile(&bench, &profile);
    Some((cluster, bench))
}

/// Begins a command as a job, which starts again with the other processor once a run whose name begins so has measured a cell.
fn moved(
    cluster: &super::Cluster,
    bench: &Bench,
    command: &str,
    more: &[&str],
    run: &str,
    nth: usize,
) -> Ran {
    let args = [
        &[command, "matrices/m.yaml", "--no-calibration"][..],
        more,
        &CLUSTER,
    ]
    .concat();
    let login = bench.begin(&args);
    bench.until("a cell of the run is measured", || {
        let run = runs(bench, run).into_iter().nth(nth);
        run.is_some_and(|run| journal(&run).contains("\"cell-ended\""))
    });
    fs::write(bench.path().join("other"), "").expect("it can be written");
    let jobs = job_folders(bench);
    let job = jobs.last().expect("a job was submitted");
    cluster.ask("scontrol", &["requeue", &job_id(job)]);
    Ran::from(login.wait_with_output().expect("it ends"))
}

/// The kind and text of the finding about the output throughput of the last night.
fn last_finding(bench: &Bench) -> (String, String) {
    let nights = history(bench);
    let night = nights.last().expect("there is a night");
    let all = night["findings"].as_array().expect("it has findings");
    let found = all
        .iter()
        .find(|finding| finding["figure"] != serde_json::Value::Null);
    let text = found.and_then(|finding| finding["text"].as_str());
    let kinds = findings(night);
    let at = all.iter().position(|finding| Some(finding) == found);
    let kind = at.map(|at| kinds[at].0.clone());
    (kind.unwrap_or_default(), text.unwrap_or_default().to_owned())
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_confirmation_on_another_processor_neither_confirms_nor_refutes() {
    let Some((cluster, bench)) = bench(&small(5, 200)) else {
        return;
    };
    nightly(&bench, &[&GATE[..], &FLOOR[..], &CLUSTER[..]].concat()).exits(0);
    set_baseline(&bench);
    bench.rewrite(&small(15, 200));
    let options = [&GATE[..], &FLOOR[..], &CONFIRM[..]].concat();
    let ran = moved(&cluster, &bench, "nightly", &options, "t-confirmation-", 0);
    ran.exits(5);
    let (kind, text) = last_finding(&bench);
    assert_eq!(kind, "undecided", "{text}");
    assert!(
        text.contains(PROCESSOR) && text.contains("neither confirmed nor refuted"),
        "{text}"
    );
    bench.leaves_no_process();
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_paired_night_whose_baseline_had_another_processor_is_not_judged() {
    let paired = |itl| format!("{}nightly: {{ paired: true }}\n", small(itl, 100));
    let Some((cluster, bench)) = bench(&paired(5)) else {
        return;
    };
    nightly(&bench, &[&GATE[..], &FLOOR[..], &CLUSTER[..]].concat()).exits(0);
    set_baseline(&bench);
    bench.rewrite(&paired(15));
    let options = [&GATE[..], &FLOOR[..]].concat();
    let ran = moved(&cluster, &bench, "nightly", &options, "t-2", 2);
    ran.exits(5);
    let (kind, text) = last_finding(&bench);
    assert_eq!(kind, "not-judged", "{text}");
    assert!(text.contains(PROCESSOR), "{text}");
    bench.leaves_no_process();
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_search_does_not_combine_steps_on_different_processors() {
    let versions = small(5, 100)
        .replace("variant: vllm", "variant: vllm, version: [v1, v2, v3]")
        .replace(
            "datasets:",
            "overrides:\n  - { when: { version: v2 }, args: [--itl, 15ms] }\n  - { when: { version: v3 }, args: [--itl, 15ms] }\ndatasets:",
        );
    let Some((cluster, bench)) = bench(&versions) else {
        return;
    };
    let options = [&GATE[..], &FLOOR[..]].concat();
    let ran = moved(&cluster, &bench, "bisect", &options, "t-2", 1);
    ran.exits(5);
    let output = fs::read_to_string(job_folders(&bench)[0].join("stdout")).expect("it has printed");
    assert!(
        output.contains("v2 was not judged")
            && output.contains(PROCESSOR)
            && !output.contains("first bad version:"),
        "{output}"
    );
    bench.leaves_no_process();
}
