//! Nightly runs, noise and searches in a job: what they decide is what they decide on one host, whatever ends on the way.

use std::fs;
use std::path::PathBuf;

use super::{PROFILE, TWO_CELLS, cluster, job_folders, job_id};
use crate::harness::{Bench, Ran, sims};
use crate::nightly::{GATE, newest, nightly, quiet, receiver};
use crate::nights::small;

pub(super) const CLUSTER: [&str; 2] = ["--cluster", "test"];
/// Three fresh starts show so large a loss.
pub(super) const CONFIRM: [&str; 2] = ["--confirm", "3"];
/// What a busy machine does to so small cells is below that.
pub(super) const FLOOR: [&str; 2] = ["--floor", "50%"];

/// A first nightly run on this host, which becomes the baseline.
pub(super) fn set_baseline(bench: &Bench) {
    nightly(bench, &[&GATE[..], &FLOOR[..]].concat()).exits(0);
    let set = [
        "baseline",
        "set",
        "matrices/m.yaml",
        "--reason",
        "the first night",
    ];
    bench.call(&[&set[..], &GATE[..]].concat()).exits(0);
    quiet(bench);
}

/// The lines of the history.
pub(super) fn history(bench: &Bench) -> Vec<serde_json::Value> {
    let file = bench.results().join("nightly/history-t.jsonl");
    let text = fs::read_to_string(file).expect("there is a history");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("it is JSON"))
        .collect()
}

/// The folders of runs whose name begins so.
pub(super) fn runs(bench: &Bench, prefix: &str) -> Vec<PathBuf> {
    let results = fs::read_dir(bench.results()).into_iter().flatten();
    let mut runs: Vec<PathBuf> = results
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.join("run.json").exists())
        .filter(|path| {
            let name = path.file_name().expect("it has a name").to_string_lossy();
            name.starts_with(prefix)
        })
        .collect();
    runs.sort();
    runs
}

pub(super) fn journal(run: &std::path::Path) -> String {
    fs::read_to_string(run.join("journal.jsonl")).unwrap_or_default()
}

/// The kinds of the findings, with their cells.
pub(super) fn findings(night: &serde_json::Value) -> Vec<(String, String)> {
    let text = |finding: &serde_json::Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    let all = night["findings"].as_array().expect("it has findings");
    all.iter()
        .map(|finding| (text(finding, "kind"), text(finding, "cell")))
        .collect()
}

#[test]
fn a_night_in_a_job_finds_a_loss_and_exits_with_its_code() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(&small(5, 10), PROFILE);
    set_baseline(&bench);
    bench.rewrite(&small(15, 10));
    nightly(
        &bench,
        &[&GATE[..], &FLOOR[..], &CONFIRM[..], &CLUSTER[..]].concat(),
    )
    .exits(1)
    .says("submitted as job")
    .shows("  worse: ");
    assert_eq!(findings(&history(&bench)[1])[0].0, "worse");
    bench.leaves_no_process();
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_night_in_a_job_decides_what_a_night_on_the_host_decides() {
    let Some(cluster) = cluster() else { return };
    let (url, posted) = receiver();
    let bench = cluster
        .bench(&small(5, 30), PROFILE)
        .variable("MATRIX_WEBHOOK", &url);
    set_baseline(&bench);
    let host = [&GATE[..], &FLOOR[..], &CONFIRM[..]].concat();
    let options = [&host[..], &CLUSTER[..]].concat();
    nightly(&bench, &options)
        .exits(0)
        .says("submitted as job")
        .shows("t: nothing got worse in 1 judged");
    assert!(posted.try_recv().is_err(), "a quiet night is not reported");

    bench.rewrite(&small(15, 30));
    nightly(&bench, &[&options[..], &["--junit", "junit.xml"]].concat())
        .exits(1)
        .says("suspected loss: ")
        .shows("  worse: ");
    let junit = fs::read_to_string(bench.path().join("junit.xml")).expect("it lies in the current folder");
    assert!(junit.contains("<failure type=\"worse\""), "{junit}");
    let message = posted
        .recv_timeout(std::time::Duration::from_secs(10))
        .expect("the loss is reported");
    assert!(message.to_string().contains("1 worse"), "{message}");
    nightly(&bench, &host).exits(1).shows("  worse: ");
    let nights = history(&bench);
    assert_eq!(nights.len(), 4);
    assert_eq!(findings(&nights[2]), findings(&nights[3]));
    // The address of the webhook is a secret.
    let jobs = job_folders(&bench);
    assert_eq!(jobs.len(), 2);
    for file in jobs
        .iter()
        .flat_map(|job| fs::read_dir(job).expect("it is a folder"))
    {
        let text = fs::read_to_string(file.expect("it can be read").path()).expect("it is a text");
        assert!(!text.contains("hook/secret"), "{text}");
    }
    bench.leaves_no_process();
}

#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn the_job_of_a_night_is_found_again_by_its_command_alone() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(&sims(&[("a", "", "")], TWO_CELLS), PROFILE);
    let night = [
        &["nightly", "matrices/m.yaml", "--no-calibration"][..],
        &CLUSTER[..],
    ]
    .concat();
    let mut login = bench.begin(&night);
    bench.until_journal("\"cell-ended\"");
    login.kill().and_then(|()| login.wait()).expect("it is a child");
    // The newest job, which does not judge.
    let first = ["--only", "scenario=first"];
    bench.run(&[&CLUSTER[..], &first[..]].concat()).exits(0);
    bench
        .call(&[&night[..], &["--resume"]].concat())
        .exits(0)
        .says("still executes this run")
        .shows("t: no baseline yet");
    let nights = history(&bench);
    assert_eq!(nights.len(), 1, "{nights:?}");
    assert_eq!(job_folders(&bench).len(), 2, "no further job was submitted");
    bench.leaves_no_process();
}

#[test]
fn the_job_of_a_night_has_the_gpus_that_its_baseline_needs() {
    let Some(cluster) = cluster() else { return };
    let profile = "partition: gpu\ngres: gpu:h100\noptions: [--begin=now+1hour]\n";
    let bench = cluster.bench(&small(5, 4), profile);
    set_baseline(&bench);
    let file = bench.matrix().with_file_name("m.baseline.json");
    let text = fs::read_to_string(&file).expect("there is a baseline");
    let mut baseline: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    baseline["launches"][0]["devices"] = 2.into();
    fs::write(&file, baseline.to_string()).expect("it can be written");
    let mut login = bench.begin(&[&["nightly", "matrices/m.yaml"][..], &CLUSTER[..]].concat());
    bench.until("the job is submitted", || {
        let folders = job_folders(&bench);
        folders.first().is_some_and(|job| job.join("job.json").exists())
    });
    login.kill().and_then(|()| login.wait()).expect("it is a child");
    let folder = &job_folders(&bench)[0];
    let job = cluster.job(folder);
    cluster.ask("scancel", &[&job_id(folder)]);
    assert!(job.contains("gres:gpu:h100:2"), "{job}");
}

#[test]
fn noise_is_measured_in_a_job() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(&small(5, 10), PROFILE);
    let noise = [
        &["noise", "matrices/m.yaml", "--no-calibration", "--starts", "3"][..],
        &GATE[..],
        &CLUSTER[..],
    ]
    .concat();
    bench
        .call(&noise)
        .exits(0)
        .says("submitted as job")
        .shows("Noise of this machine")
        .shows("saved in ");
    assert!(bench.path().join("cache/noise.json").exists());
    assert_eq!(runs(&bench, "t-noise-").len(), 1);
    // The run of noise is none of `run`.
    bench
        .run(&[&CLUSTER[..], &["--resume"]].concat())
        .exits(2)
        .says("has no run of `t`");
}

#[test]
fn what_a_job_could_not_do_is_refused_before_it_is_submitted() {
    let bench = Bench::of(&small(5, 4));
    bench
        .call(&[&["nightly", "matrices/m.yaml"][..], &CLUSTER[..], &["--resume"]].concat())
        .exits(2)
        .says("no profile describes the cluster `test`");
    fs::create_dir(bench.path().join("matrices/clusters")).expect("it can be created");
    fs::write(bench.path().join("matrices/clusters/test.yaml"), PROFILE).expect("it can be written");
    let refused = |command: &str, more: &[&str], message: &str| {
        let args = [&[command, "matrices/m.yaml"][..], &CLUSTER[..], more].concat();
        bench.call(&args).exits(2).says(message);
        assert_eq!(job_folders(&bench), Vec::<PathBuf>::new(), "{command} {more:?}");
    };
    for more in [
        &["--webhook", "https://example.com/a"][..],
        &["--webhook=https://example.com/a"],
    ] {
        refused("nightly", more, "set the variable MATRIX_WEBHOOK instead");
    }
    refused("nightly", &["--junit", "nowhere/junit.xml"], "cannot be written");
    refused("nightly", &["--gate", "speed"], "speed");
    refused("nightly", &["--gpus", "0"], "--gpus");
    fs::write(bench.path().join("broken.json"), "{").expect("it can be written");
    refused("nightly", &["--baseline", "broken.json"], "broken.json");
    refused("noise", &["--target", "1%", "--most", "4"], "raise `--most`");
    refused("bisect", &[], "at least three versions");
}

/// A job that is requeued while it measures, and again while it confirms a loss, continues the same nightly run.
#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_night_that_is_requeued_is_one_night() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(&small(5, 200), PROFILE);
    set_baseline(&bench);
    bench.rewrite(&small(15, 200));
    let night = [
        &["nightly", "matrices/m.yaml", "--no-calibration"][..],
        &GATE[..],
        &FLOOR[..],
        &CONFIRM[..],
        &CLUSTER[..],
    ]
    .concat();
    let login = bench.begin(&night);
    let measured = |run: Option<&PathBuf>, cells: usize| {
        run.is_some_and(|run| journal(run).matches("\"cell-ended\"").count() >= cells)
    };
    let own_runs = || {
        let mut own = runs(&bench, "t-2");
        own.retain(|run| !run.ends_with(history(&bench)[0]["run"].as_str().expect("a name")));
        own
    };
    bench.until("a start was measured", || measured(own_runs().first(), 1));
    let job = job_folders(&bench)[0].clone();
    let requeue = |times: u32| {
        cluster.ask("scontrol", &["requeue", &job_id(&job)]);
        bench.until("the job runs again", || {
            let text = cluster.job(&job);
            text.contains("JobState=RUNNING Reason=None") && text.contains(&format!("Restarts={times}"))
        });
    };
    requeue(1);
    bench.until("it confirms", || {
        measured(runs(&bench, "t-confirmation-").first(), 1)
    });
    assert_eq!(history(&bench).len(), 1, "nothing was decided yet");
    requeue(2);
    let ran = Ran::from(login.wait_with_output().expect("it ends"));
    ran.exits(1);
    assert_eq!(job_folders(&bench), [job]);
    let [own] = &own_runs()[..] else {
        panic!("one run is expected: {:?}", own_runs());
    };
    let ended = journal(own).matches("\"cell-ended\"").count();
    // The start that the first requeue stopped has ended as interrupted.
    assert!((3..=4).contains(&ended), "{}", journal(own));
    assert_eq!(runs(&bench, "t-confirmation-").len(), 2);
    let nights = history(&bench);
    assert_eq!(nights.len(), 2);
    assert!(own.ends_with(nights[1]["run"].as_str().expect("a name")));
    assert_eq!(findings(&nights[1])[0].0, "worse");
    assert_eq!(newest(&bench), *own);
    bench.leaves_no_process();
}

/// The second of three versions is slow, and so is the third; a job that is requeued continues its search.
#[test]
#[ignore = "a long form; tests/slurm.sh runs it"]
fn a_search_in_a_job_finds_the_first_bad_version() {
    let Some(cluster) = cluster() else { return };
    let bench = cluster.bench(
        &small(5, 30)
            .replace("variant: vllm", "variant: vllm, version: [v1, v2, v3]")
            .replace(
                "datasets:",
                "overrides:\n  - { when: { version: v2 }, args: [--itl, 15ms] }\n  - { when: { version: v3 }, args: [--itl, 15ms] }\ndatasets:",
            ),
        PROFILE,
    );
    let search = [
        &["bisect", "matrices/m.yaml", "--no-calibration"][..],
        &GATE[..],
        &FLOOR[..],
        &CLUSTER[..],
    ]
    .concat();
    let login = bench.begin(&search);
    bench.until("the second pair is measured", || {
        runs(&bench, "t-2")
            .get(1)
            .is_some_and(|run| journal(run).contains("\"cell-ended\""))
    });
    let job = job_folders(&bench)[0].clone();
    cluster.ask("scontrol", &["requeue", &job_id(&job)]);
    let ran = Ran::from(login.wait_with_output().expect("it ends"));
    ran.exits(1);
    assert_eq!(
        runs(&bench, "t-2").len(),
        2,
        "the ends, and one step that went on"
    );
    let output = fs::read_to_string(job.join("stdout")).expect("it has printed");
    assert!(
        output.contains("first bad version: v2 (last good: v1)"),
        "{output}"
    );
    bench
        .call(&[&search[..], &["--resume"]].concat())
        .exits(1)
        .shows("first bad version: v2 (last good: v1)");
    assert_eq!(runs(&bench, "t-2").len(), 2, "nothing was measured again");
    bench.leaves_no_process();
}
