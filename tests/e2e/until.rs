//! Runs that start engines again until their figures are known well enough, or so much is spent.

use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use matrix::base::clock;
use matrix::results::record::cell::MeasurementStatus;
use matrix::results::record::event::Event;
use matrix::results::store::Run;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::Bench;

/// A small matrix of these engines.
fn matrix(engines: &str, repeats: &str) -> String {
    format!(
        "name: t
engines:
{engines}models:
  - m: {{ tokenizer: data/tokenizer.json }}
scenarios:
  - random-1k-1k: {{ prompts: 3, input_len: 16, output_len: 40, warmup: 0 }}
repeats: {repeats}
datasets: {{ sharegpt: data/conversations.json }}
validity: {{ send_lag: 10s, client_wait: 1, client_cpu: 1, queue_growth: 100, gap: 60s, window: 0s, max_cache_hits: 1, steady: 0 }}
"
    )
}

/// Engines by name, each start of which reads from a list how many milliseconds lie between its tokens, from the beginning again after
/// the end of the list.
fn bench(engines: &[(&str, &[u32])], repeats: &str) -> Bench {
    let bench = Bench::of("");
    let folder = bench.matrix();
    let folder = folder.parent().expect("it lies somewhere").display();
    let mut listed = String::new();
    for (name, times) in engines {
        let list: String = times.iter().map(|time| format!("{time}\n")).collect();
        fs::write(format!("{folder}/{name}.times"), list).expect("a file can be written");
        let lines = times.len();
        listed.push_str(&format!(
            "  - sim:
      as: {name}
      variant: vllm
      command:
        - sh
        - -c
        - 'cd {folder}; n=$(cat {name}.starts | wc -l); echo . >> {name}.starts; itl=$(sed -n $((n % {lines} + 1))p {name}.times); exec \"{{matrix}}\" sim --model m --port {{port}} --ttft 2ms --itl \"$itl\"ms \"$@\"'
        - sh
"
        ));
        fs::write(format!("{folder}/{name}.starts"), "").expect("a file can be written");
    }
    bench.rewrite(&matrix(&listed, repeats));
    bench
}

#[test]
fn a_night_that_is_slow_for_the_baseline_too_is_no_loss_of_the_candidate() {
    for (paired, fresh, code) in [
        // All that is started on the second night is half as fast, the baseline included.
        ("", &[6, 6, 6, 6, 6, 6][..], 0),
        ("nightly: { paired: true }\n", &[6, 6, 6, 6, 6, 6], 0),
        ("nightly: { paired: true }\n", &[6, 3, 3, 6, 6, 3], 1),
    ] {
        let screened: &[u32] = if paired.is_empty() { &[6, 6, 6] } else { &[] };
        // So slow that a busy machine adds little.
        let times = [&[3, 3, 3], screened, fresh]
            .concat()
            .iter()
            .map(|time| 3 * time)
            .collect::<Vec<u32>>();
        let bench = bench(&[("paced", &times)], "{ starts: 3 }");
        let text = fs::read_to_string(bench.matrix()).expect("there is a matrix");
        bench.rewrite(&format!("{text}{paired}"));
        let night = |bench: &Bench| crate::nightly::nightly(bench, &crate::nightly::GATE);
        night(&bench).exits(0);
        let set = [
            "baseline",
            "set",
            "matrices/m.yaml",
            "--reason",
            "the first night",
        ];
        bench
            .call(&[&set[..], &crate::nightly::GATE[..]].concat())
            .exits(0);
        crate::nightly::quiet(&bench);
        let second = night(&bench).exits(code);
        match (paired, code) {
            ("", _) => {
                second
                    .says("suspected loss: ")
                    .shows("  unconfirmed: ")
                    .shows("nothing got worse in 1 judged");
            }
            (_, 0) => {
                second.shows("nothing got worse in 1 judged");
            }
            _ => {
                second.shows("  worse: ");
            }
        }
        bench.leaves_no_process();
    }
}

/// The wish of an interval of half a figure leaves room for a busy machine; what starts of a noisy engine differ by does not fit.
const QUIET: (&str, &[u32]) = ("quiet", &[10]);
const NOISY: (&str, &[u32]) = ("noisy", &[2, 12]);

/// On how many starts the cell of an engine came to its end.
fn starts(run: &Run, engine: &str) -> usize {
    let is_its = |cell: &str| cell.contains(&format!("engine={engine},"));
    let done = run
        .summaries
        .iter()
        .filter(|summary| summary.status == MeasurementStatus::Done);
    done.filter(|summary| is_its(summary.cell.as_str())).count()
}

#[test]
fn a_quiet_cell_is_left_alone_and_a_noisy_one_started_again_up_to_the_most() {
    let bench = bench(
        &[QUIET, NOISY],
        "{ starts: 3, interleave: true, target_ci: 50%, max_starts: 6 }",
    );
    bench
        .call(&["plan", "matrices/m.yaml"])
        .exits(0)
        .shows("5 starts, up to 6 starts until the confidence interval is within ±50 %")
        .shows("`starts: 3` is raised to 5: 4 more engine starts");
    let ran = bench.run(&[]).exits(0).says("so the run makes 1 more start (");
    let run = bench.finished();
    assert_eq!(
        (starts(&run, "quiet"), starts(&run, "noisy")),
        (5, 6),
        "{}",
        ran.stderr
    );
    let ran = ran
        .shows("precise enough, within ±50 %: ")
        .shows("precision of ±50 % not reached within the maximum of 6 starts: ");
    for (why, engine, other) in [
        ("precise enough", "quiet", "noisy"),
        ("not reached within the maximum of 6 starts", "noisy", "quiet"),
    ] {
        let note = ran
            .stdout
            .lines()
            .find(|line| line.contains(why))
            .expect("it was shown");
        assert!(note.contains(engine) && !note.contains(other), "{note}");
    }
    // What was measured says the same to whoever asks later, and there is nothing left to do.
    let folder = bench.run_folder().display().to_string();
    bench
        .call(&["report", &folder])
        .exits(0)
        .shows("not reached within the maximum of 6 starts");
    bench.run(&["--resume"]).exits(0);
    let again = bench.finished();
    assert_eq!(again.plan, run.plan);
    assert_eq!(again.summaries, run.summaries);
    bench.leaves_no_process();
}

#[test]
fn a_spent_budget_ends_it() {
    let bench = bench(&[NOISY], "{ starts: 5, target_ci: 50%, budget: 10ms }");
    bench
        .run(&[])
        .exits(0)
        .shows("precision of ±50 % not reached within the budget of 10ms of GPU time: ");
    assert_eq!(starts(&bench.finished(), "noisy"), 5);
    bench.leaves_no_process();
}

/// A run in the middle of its first start beyond the planned ones.
fn begun_again(bench: &Bench) -> Child {
    let child = bench
        .command(&["run", "matrices/m.yaml", "--no-calibration"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let began = clock::now();
    loop {
        let run = fs::read_dir(bench.results())
            .ok()
            .and_then(|mut runs| runs.next()?.ok());
        let journal = run.and_then(|run| fs::read_to_string(run.path().join("journal.jsonl")).ok());
        if journal.is_some_and(|text| {
            text.split_once("starts-added")
                .is_some_and(|(_, later)| later.contains("launch-began"))
        }) {
            break;
        }
        assert!(
            clock::now().since(began) < Duration::from_secs(60),
            "no start was added"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

#[test]
fn what_was_stopped_in_a_later_round_goes_on_there() {
    let bench = bench(&[NOISY], "{ starts: 5, target_ci: 50%, max_starts: 7 }");
    let child = begun_again(&bench);
    let pid =
        Pid::from_raw(i32::try_from(child.id()).expect("process ids are small")).expect("a child has an id");
    kill_process(pid, Signal::INT).expect("the child lives");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    let stopped = bench.finished();
    assert_eq!(
        stopped
            .plan
            .starts
            .iter()
            .filter(|start| start.launch.as_str().starts_with("noisy"))
            .count(),
        7
    );
    let folder = bench.run_folder().display().to_string();
    bench.call(&["report", &folder]).exits(0);

    bench
        .run(&["--resume"])
        .exits(0)
        .shows("not reached within the maximum of 7 starts");
    let run = bench.finished();
    assert_eq!(run.plan, stopped.plan, "nothing is planned twice");
    assert_eq!(starts(&run, "noisy"), 7);
    let done = run
        .journal
        .iter()
        .filter(|(_, event)| matches!(event, Event::CellEnded { status: ending, .. } if ending == "done"));
    assert_eq!(done.count(), 7, "nothing is measured twice");
    bench.leaves_no_process();
}

#[test]
fn a_night_looks_at_all_starts_and_decides_by_fresh_ones() {
    // Five starts that agree; then five that do not, a sixth for them, and three rounds that decide: the candidate first, then the baseline first.
    let bench = bench(
        &[(
            "paced",
            &[4, 4, 4, 4, 4, 5, 20, 5, 20, 20, 20, 20, 4, 4, 20, 20, 4],
        )],
        "{ starts: 5, target_ci: 90%, max_starts: 6 }",
    );
    let nightly = ["nightly", "matrices/m.yaml", "--no-calibration", "--confirm", "3"];
    bench.call(&nightly).exits(0);
    let first = bench.run_folder();
    let set = [
        "baseline",
        "set",
        "matrices/m.yaml",
        "--reason",
        "the first night",
    ];
    bench.call(&set).exits(0);
    crate::nightly::quiet(&bench);
    bench
        .call(&nightly)
        .exits(1)
        .says("so the run makes 1 more start (6 measurements in total)")
        .says("3 fresh starts decide")
        .shows("  worse: ");
    let night = fs::read_dir(bench.results())
        .expect("there are results")
        .map(|entry| entry.expect("results can be read").path())
        .find(|path| {
            let is_confirmation = path.to_string_lossy().contains("-confirmation");
            path.join("run.json").exists() && *path != first && !is_confirmation
        })
        .expect("there is a second night");

    // Who goes on with that run goes on with what was not chosen by its figures.
    let name = night
        .file_name()
        .expect("it has a name")
        .to_string_lossy()
        .into_owned();
    bench
        .run(&["--resume", &name])
        .exits(0)
        .shows("precision of ±90 % not reached within the maximum of 6 starts");
    let run = Run::read(&night).expect("it can be read");
    assert_eq!((run.plan.starts.len(), run.summaries.len()), (6, 6));
    bench.leaves_no_process();
}
