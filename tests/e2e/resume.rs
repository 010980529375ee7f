//! Runs that stop and go on.

use std::fs;

use matrix::results::record::cell::MeasurementStatus;
use matrix::results::record::event::Event;

use crate::harness::{Bench, Ran, sims, summary};

const SMALL: &str = "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 4 }\n  - random-2k-6k: { prompts: 4, input_len: 16, output_len: 6 }\n";

/// How often the journal says that a measurement ended.
fn endings(bench: &Bench) -> usize {
    bench
        .finished()
        .journal
        .iter()
        .filter(|(_, event)| matches!(event, Event::CellEnded { .. }))
        .count()
}

#[test]
fn a_finished_run_has_nothing_to_resume() {
    let bench = Bench::of(&sims(&[("a", "vllm", "")], SMALL));
    bench.run(&[]).exits(0);
    assert_eq!(endings(&bench), 2);
    bench.run(&["--resume"]).exits(0);
    assert_eq!(endings(&bench), 2, "nothing finished is repeated");
    assert_eq!(bench.finished().summaries.len(), 2);
}

#[test]
fn only_what_was_left_out_is_done_on_resume() {
    let bench = Bench::of(&sims(&[("a", "vllm", "")], SMALL));
    bench
        .run(&["--only", "scenario=random-1k-1k"])
        .exits(0)
        .says(": t, 1 measurement\n");
    assert_eq!(bench.finished().summaries.len(), 1);
    bench.run(&["--resume"]).exits(0);
    assert_eq!((bench.finished().summaries.len(), endings(&bench)), (2, 2));
}

#[test]
fn a_changed_cell_is_run_again_and_an_unchanged_one_is_not() {
    let bench = Bench::of(&sims(&[("a", "vllm", "")], SMALL));
    bench.run(&[]).exits(0);
    let before = bench.finished();
    let kept = summary(&before, "a", "random-1k-1k").began.clone();
    bench.rewrite(&sims(
        &[("a", "vllm", "")],
        &SMALL.replace("output_len: 6", "output_len: 7"),
    ));
    let asked = bench.run(&["--resume"]).exits(2);
    asked
        .says("1 finished measurement of run")
        .says("scenario=random-2k-6k")
        .says("add `--yes`");
    assert_eq!(endings(&bench), 2, "nothing is set aside without a word");
    bench.run(&["--resume", "--yes"]).exits(0);
    let after = bench.finished();
    assert_eq!(summary(&after, "a", "random-1k-1k").began, kept);
    let changed = after.plan.starts[0]
        .cells
        .iter()
        .find(|measurement| measurement.cell.as_str().contains("2k-6k"))
        .expect("it is there");
    assert!(
        after
            .read_requests(changed)
            .expect("requests are kept")
            .iter()
            .all(|request| request.requested_tokens == 7)
    );
    assert_eq!(endings(&bench), 3);
}

#[test]
fn failed_cells_are_tried_again_only_when_asked() {
    let bench = Bench::of(&sims(&[("a", "vllm", "--die-while-loading")], SMALL));
    bench.run(&[]).exits(3);
    // The engine is mended without a change that the cell would notice: the recipe's own arguments stay.
    // The exit code is that of the run: what failed before has failed.
    bench.run(&["--resume"]).exits(3);
    assert_eq!(endings(&bench), 2, "failed cells are finished cells");
    bench.run(&["--resume", "--failed"]).exits(3);
    assert_eq!(endings(&bench), 4);
    assert!(
        bench
            .finished()
            .summaries
            .iter()
            .all(|summary| matches!(summary.status, MeasurementStatus::Failed { .. }))
    );
}

#[test]
fn a_run_of_another_matrix_is_not_gone_on_with() {
    let bench = Bench::of(&sims(&[("a", "vllm", "")], SMALL));
    bench.run(&["--only", "scenario=random-1k-1k"]).exits(0);
    let folder = bench.run_folder();
    let run = folder
        .file_name()
        .expect("it has a name")
        .to_string_lossy()
        .into_owned();
    bench.rewrite(&sims(&[("a", "vllm", "")], SMALL).replace("name: t\n", "name: other\n"));
    bench
        .run(&["--resume", &run])
        .exits(2)
        .says("is a run of the matrix `t`, not of `other`");
    assert_eq!(bench.finished().summaries.len(), 1);
}

#[test]
fn a_run_that_cannot_be_written_any_more_ends_with_6_and_says_how_to_go_on() {
    let slow = "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 100, warmup: 0 }\n";
    let bench =
        Bench::of(&sims(&[("a", "vllm", "--itl, 10ms, --ttft, 10ms")], slow).replace("--preset, fast, ", ""));
    let child = bench.begin(&[
        "run",
        "matrices/m.yaml",
        "--no-calibration",
        "--retry-invalid",
        "0",
    ]);
    bench.until_journal("cell-began");
    let cells = bench.run_folder().join("cells");
    fs::rename(&cells, cells.with_extension("away")).expect("it can be moved");
    fs::write(&cells, "no folder").expect("a file can be written");
    let ran = Ran::from(child.wait_with_output().expect("it ends")).exits(6);
    let run = bench.run_folder();
    let run = run.file_name().expect("it has a name").to_string_lossy();
    let ran = ran.says("cannot continue").says(&format!(
        "continue with: matrix run matrices/m.yaml --no-calibration --retry-invalid 0 --resume {run}"
    ));
    assert!(!ran.stderr.contains("nothing was started"), "{}", ran.stderr);
    assert!(bench.journal().contains("run-ended"), "{}", bench.journal());
    bench.leaves_no_process();
}

#[test]
fn repeats_start_the_engine_anew_and_interleave() {
    let matrix = format!(
        "{}repeats: {{ starts: 2, per_start: 2, interleave: true }}\n",
        sims(
            &[("a", "vllm", ""), ("b", "sglang", "")],
            "  - random-1k-1k: { prompts: 2, input_len: 8, output_len: 2 }\n"
        )
    );
    let bench = Bench::of(&matrix);
    bench.run(&[]).exits(0);
    let run = bench.finished();
    assert_eq!(run.summaries.len(), 8);
    let order: Vec<&str> = run
        .journal
        .iter()
        .filter_map(|(_, event)| match event {
            Event::LaunchBegan { launch, .. } => Some(&launch.as_str()[..1]),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["a", "b", "b", "a"]);
}

#[test]
fn two_writers_of_one_run_are_refused() {
    let bench = Bench::of(&sims(&[("a", "vllm", "--start-delay, 3s")], SMALL));
    let mut first = bench
        .command(&["run", "matrices/m.yaml", "--no-calibration"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the binary runs");
    while !bench.results().exists() || fs::read_dir(bench.results()).expect("readable").next().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    bench
        .run(&["--resume"])
        .exits(2)
        .says("is being written by process");
    assert_eq!(first.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_selection_is_shown_without_the_cells_that_it_leaves_out() {
    let bench = Bench::of(&sims(&[("a", "vllm", "")], SMALL));
    let ran = bench.run(&["--only", "scenario=random-1k-1k"]).exits(0);
    assert!(!ran.stdout.contains("random-2k-6k"), "{}", ran.stdout);
    ran.shows("left out by `--only`; `matrix report ");
    // The command that is printed works, wherever the results are.
    let ran = bench
        .run(&["--only", "scenario=random-1k-1k", "--results", "else where"])
        .exits(0);
    let (_, command) = ran
        .stdout
        .split_once("left out by `--only`; `matrix ")
        .expect("the others are named");
    let (command, _) = command.split_once('`').expect("it ends");
    let (report, folder) = command.split_once(' ').expect("it names the run");
    let ran = bench
        .call(&[report, folder.trim_matches('\'')])
        .exits(0)
        .shows("random-2k-6k")
        .shows("not measured");
    // A cell that is not measured yet is of the same engine, whose version the others tell.
    let mut lines = ran.stdout.lines().map(str::trim_start);
    assert!(
        !lines.any(|line| line.starts_with("a ") && line.contains("[simulated]")),
        "{}",
        ran.stdout
    );
}

#[test]
fn a_selection_that_fits_nothing_is_refused_before_anything_starts() {
    let bench = Bench::of(&sims(&[("a", "vllm", "")], SMALL));
    bench.run(&["--only", "engine=b"]).exits(2).says("matches none");
    bench
        .run(&["--only", "engin=b"])
        .exits(2)
        .says("did you mean `engine`");
    bench
        .call(&["plan", "matrices/m.yaml", "--only", "engine=a|aa"])
        .exits(0)
        .says("note: no value of the axis `engine` matches `aa` in `--only`");
    bench
        .run(&["--only", "engine!=a"])
        .exits(2)
        .says("`--only engine!=a` matches none");
    bench
        .run(&["--resume"])
        .exits(2)
        .says("this user has no run of `t`");
    assert!(!bench.results().exists() || fs::read_dir(bench.results()).expect("readable").next().is_none());
}

#[test]
fn what_the_machine_lacks_is_named_at_once() {
    let matrix = "name: t\nengines:\n  - vllm: { executor: process, venv: /nowhere, env: { HF_TOKEN: \"${MATRIX_TEST_UNSET_TOKEN}\" } }\nmodels:\n  - some/model: { tp: 8 }\nscenarios: [sharegpt]\n";
    let bench = Bench::of(matrix).variable("HF_HOME", "/nowhere");
    let ran = bench.run(&[]).exits(4);
    for part in ["MATRIX_TEST_UNSET_TOKEN", "8 GPUs", "some/model", "ShareGPT"] {
        assert!(ran.stderr.contains(part), "`{part}` is missing:\n{}", ran.stderr);
    }
}

#[test]
fn results_are_appended_as_cells_end_and_not_written_anew() {
    use std::os::unix::fs::MetadataExt;
    let short = ["random-1k-1k", "random-2k-6k", "random-6k-2k"]
        .map(|name| format!("  - {name}: {{ prompts: 2, input_len: 16, output_len: 60, warmup: 0 }}\n"));
    let last = "  - last: { dataset: random-ids, prompts: 2, input_len: 4, output_len: 300, warmup: 0 }\n";
    let cells = short.concat() + last;
    let matrix = sims(&[("a", "vllm", "--itl, 10ms, --ttft, 10ms")], &cells);
    let bench = Bench::of(&matrix.replace("--preset, fast, ", ""));
    let child = bench.begin(&["run", "matrices/m.yaml", "--no-calibration"]);
    // The file that holds the lines of so many cells.
    let file = |count: usize| {
        let path = || bench.run_folder().join("results.jsonl");
        let lines = || fs::read_to_string(path()).map_or(0, |text| text.lines().count());
        bench.until("a line of results", || {
            bench.journal().contains("cell-ended") && lines() >= count
        });
        fs::metadata(path()).expect("it is there").ino()
    };
    assert_eq!(file(1), file(3), "it is the same file");
    assert!(!bench.journal().contains("run-ended"), "the last cell goes on");
    Ran::from(child.wait_with_output().expect("it ends")).exits(0);
    let lines = fs::read_to_string(bench.run_folder().join("results.jsonl")).expect("there are results");
    assert_eq!(lines.lines().count(), 4);
}

#[test]
fn a_run_whose_folder_is_moved_stops_loses_no_row_and_goes_on_once_it_is_back() {
    const CELLS: &str =
        "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 50, concurrency: [1, 2, 4] }\n";
    let engine = &sims(&[("a", "vllm", "--itl, 5ms, --ttft, 5ms")], CELLS).replace("--preset, fast, ", "");
    for resumed in [false, true] {
        let bench = Bench::of(engine);
        let mut args = vec!["run", "matrices/m.yaml", "--no-calibration"];
        if resumed {
            bench.run(&["--only", "concurrency=1"]).exits(0);
            args.push("--resume");
        }
        let ended = |count: usize| bench.journal().matches("cell-ended").count() >= count;
        let before = usize::from(resumed);
        let run = bench.begin(&args);
        bench.until("a measurement that ended", || ended(before + 1));
        let folder = bench.run_folder();
        let moved = bench.path().join("moved");
        fs::rename(&folder, &moved).expect("a folder can be moved");
        let ran = Ran::from(run.wait_with_output().expect("it ends")).exits(6);
        let ran = ran
            .says("was moved to `")
            .says("help: move this folder back to results/")
            .says("--resume t-");
        // Tests in other lanes leave engines that this run may remove.
        let mut lines = ran.stderr.lines();
        let is_about_it =
            |line: &str| line.contains("removed") && !line.starts_with("removed what an earlier run left");
        assert!(!lines.any(is_about_it), "{}", ran.stderr);
        let left = fs::read_dir(bench.results()).expect("there are results").count();
        assert_eq!(left, 0, "no folder was made");
        fs::rename(&moved, &folder).expect("it can be moved back");
        let kept = bench.finished().summaries.len();
        assert!((before + 1..3).contains(&kept), "{kept}");
        bench.run(&["--resume"]).exits(0);
        assert_eq!(bench.finished().summaries.len(), 3);
        bench.leaves_no_process();
    }
}

#[test]
fn a_run_whose_about_file_is_deleted_meanwhile_keeps_what_it_measured_and_gets_it_back() {
    let slow = "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 100, warmup: 0 }\n";
    let bench =
        Bench::of(&sims(&[("a", "vllm", "--itl, 10ms, --ttft, 10ms")], slow).replace("--preset, fast, ", ""));
    let child = bench.begin(&[
        "run",
        "matrices/m.yaml",
        "--no-calibration",
        "--retry-invalid",
        "0",
    ]);
    bench.until_journal("cell-began");
    let folder = bench.run_folder();
    let about = fs::read(folder.join("run.json")).expect("the run has begun");
    fs::remove_file(folder.join("run.json")).expect("it can be removed");
    fs::write(folder.join("my-notes.txt"), "mine").expect("a file can be written");
    let output = child.wait_with_output().expect("it ends");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(bench.finished().summaries.len(), 1);
    assert_eq!(
        fs::read(folder.join("run.json")).expect("it is there again"),
        about
    );
    assert_eq!(
        fs::read_to_string(folder.join("my-notes.txt")).expect("it is untouched"),
        "mine"
    );
}

#[test]
fn a_run_of_another_user_is_not_gone_on_with() {
    let bench = Bench::of(&sims(&[("a", "vllm", "")], SMALL));
    bench.run(&["--only", "scenario=random-1k-1k"]).exits(0);
    let folder = bench.run_folder();
    if std::os::unix::fs::chown(&folder, Some(65_534), None).is_err() {
        crate::skip::skip("only root gives files away");
        return;
    }
    let run = folder
        .file_name()
        .expect("it has a name")
        .to_string_lossy()
        .into_owned();
    bench
        .run(&["--resume"])
        .exits(2)
        .says("this user has no run of `t`");
    bench
        .run(&["--resume", &run])
        .exits(2)
        .says("belongs to another user");
    assert_eq!(bench.finished().summaries.len(), 1);
}
