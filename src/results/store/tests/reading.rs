//! Tests of reading runs that are broken, newer, older or in another place.

use std::fs;
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};

use super::{files, no_secrets, with_changed_cell};
use crate::base::ids::{ContentHash, LaunchId, RunId};
use crate::plan::Plan;
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::last_duration::LastDuration;
use crate::results::store::durations::last_durations;
use crate::results::store::run_folder::latest_run;
use crate::results::store::testing::{MATRIX, create_and_begin, measurement, plan, summary, write_all_cells};
use crate::results::store::{Run, Store, StoreError, layout, list_runs, list_unreadable_runs};

#[test]
fn a_newer_format_is_refused_whatever_else_it_holds() {
    let root = tempfile::tempdir().unwrap();
    let store = create_and_begin(root.path(), "r", &plan(), no_secrets());
    let folder = store.folder().to_owned();
    drop(store);
    fs::write(folder.join("run.json"), "{\"format\": 3, \"run\": {\"id\": 1}}").unwrap();
    for refused in [
        Run::read(&folder).unwrap_err(),
        Store::open(root.path(), &RunId::new("r"), no_secrets()).unwrap_err(),
    ] {
        let text = refused.to_string();
        assert!(
            text.ends_with("has format 3, but this `matrix` reads formats up to 2; use a newer `matrix`"),
            "{text}"
        );
    }
}

#[test]
fn what_is_missing_is_named_with_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    let refused = Run::read(root.path()).unwrap_err();
    assert!(
        refused.to_string().contains("is not a run: it has no `run.json`"),
        "{refused}"
    );
    let plan = plan();
    let store = create_and_begin(root.path(), "r", &plan, no_secrets());
    write_all_cells(&store, &plan);
    let first = measurement(&plan.cells[0].key);
    fs::remove_file(store.cell_dir(&first).join("requests.jsonl.zst")).unwrap();
    fs::remove_file(store.folder().join("machine.json")).unwrap();
    fs::remove_file(store.folder().join("journal.jsonl")).unwrap();
    let run = Run::read(store.folder()).unwrap();
    assert_eq!((run.summaries.len(), run.warnings.len()), (2, 2));
    let refused = run.read_requests(&first).unwrap_err();
    assert!(matches!(refused, StoreError::Missing { .. }), "{refused}");
    fs::remove_file(store.folder().join("plan.json")).unwrap();
    let refused = Run::read(store.folder()).unwrap_err();
    assert!(
        refused
            .to_string()
            .ends_with("plan.json` is missing; continue the run with `--resume`; this writes the file again")
    );
}

#[test]
fn fields_of_a_later_version_are_passed_over() {
    let root = tempfile::tempdir().unwrap();
    let plan = plan();
    let store = create_and_begin(root.path(), "r", &plan, no_secrets());
    write_all_cells(&store, &plan);
    for path in files(store.folder()) {
        if path.extension().is_some_and(|end| end == "json") {
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, text.replacen('{', "{ \"later\": [1],", 1)).unwrap();
        }
    }
    let run = Run::read(store.folder()).unwrap();
    assert_eq!(
        (run.summaries.len(), run.unfinished.len(), run.warnings.len()),
        (2, 0, 0)
    );
    assert_eq!(run.plan, plan);
}

#[test]
fn requests_cut_off_in_the_middle_are_told() {
    let root = tempfile::tempdir().unwrap();
    let plan = plan();
    let store = create_and_begin(root.path(), "r", &plan, no_secrets());
    write_all_cells(&store, &plan);
    let first = measurement(&plan.cells[0].key);
    let path = store.cell_dir(&first).join("requests.jsonl.zst");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 6]).unwrap();
    let refused = Run::read(store.folder())
        .unwrap()
        .read_requests(&first)
        .unwrap_err();
    assert!(matches!(refused, StoreError::Malformed { .. }), "{refused}");
}

#[test]
fn runs_are_listed_the_newest_first_and_others_are_left_out() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(list_runs(&root.path().join("absent")).unwrap(), []);
    for (run, began) in [
        ("b", "2026-01-01T00:00:00.000Z"),
        ("a", "2026-03-01T00:00:00.000Z"),
        ("c", "2026-02-01T00:00:00.000Z"),
    ] {
        let store = create_and_begin(root.path(), run, &plan(), no_secrets());
        let path = store.folder().join("run.json");
        let mut about: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        about["began"] = began.into();
        fs::write(&path, about.to_string()).unwrap();
    }
    fs::create_dir(root.path().join("published")).unwrap();
    fs::write(root.path().join("README.md"), "").unwrap();
    let names: Vec<String> = list_runs(root.path())
        .unwrap()
        .iter()
        .map(|run| run.info.run.to_string())
        .collect();
    assert_eq!(names, ["a", "c", "b"]);
    assert_eq!(
        latest_run(root.path(), MATRIX).unwrap().unwrap().info.run,
        RunId::new("a")
    );
    assert!(latest_run(root.path(), "other").unwrap().is_none());
}

#[test]
fn runs_that_cannot_be_read_are_listed_with_their_cause() {
    let root = tempfile::tempdir().unwrap();
    create_and_begin(root.path(), "good", &plan(), no_secrets());
    for (name, content) in [
        ("absent", None),
        ("braces", Some("{}")),
        ("empty", Some("")),
        ("half", Some("{")),
        ("newer", Some("{\"format\": 99}")),
        (".importing-x", Some("{")),
    ] {
        fs::create_dir(root.path().join(name)).unwrap();
        if let Some(content) = content {
            fs::write(root.path().join(name).join("run.json"), content).unwrap();
        }
    }
    assert_eq!(list_runs(root.path()).unwrap().len(), 1);
    let unreadable = list_unreadable_runs(root.path()).unwrap();
    let names: Vec<_> = unreadable
        .iter()
        .map(|run| run.folder.file_name().unwrap().to_str().unwrap())
        .collect();
    assert_eq!(names, ["braces", "empty", "half", "newer"]);
    for run in &unreadable {
        let text = run.error.to_string();
        let path = run.folder.join("run.json").display().to_string();
        assert!(text.contains(&path), "{text}");
    }
    assert!(
        unreadable[3].error.to_string().ends_with("use a newer `matrix`"),
        "{}",
        unreadable[3].error
    );
}

#[test]
fn a_damaged_newest_run_is_not_silently_replaced_by_an_older_one() {
    let root = tempfile::tempdir().unwrap();
    let name = |time: &str| format!("{MATRIX}-{time}");
    for time in ["20260101-000000", "20260301-000000"] {
        create_and_begin(root.path(), &name(time), &plan(), no_secrets());
    }
    let latest = || latest_run(root.path(), MATRIX).map(|run| run.unwrap().info.run.to_string());
    assert_eq!(latest().unwrap(), name("20260301-000000"));
    let damage = |time: &str| fs::write(root.path().join(name(time)).join("run.json"), "{").unwrap();
    damage("20260101-000000");
    assert_eq!(
        latest().unwrap(),
        name("20260301-000000"),
        "an older one is not in the way"
    );
    damage("20260301-000000");
    let refused = latest().unwrap_err();
    assert!(matches!(refused, StoreError::DamagedNewest { .. }), "{refused}");
}

#[test]
fn history_knows_what_a_cell_took_and_prefers_the_very_same_cell() {
    let root = tempfile::tempdir().unwrap();
    let older = plan();
    write_all_cells(&create_and_begin(root.path(), "a", &older, no_secrets()), &older);
    let newer = with_changed_cell(older.clone(), 0);
    let store = create_and_begin(root.path(), "b", &newer, no_secrets());
    let mut longer = summary(&newer.cells[0]);
    longer.ended = "2026-11-21T06:01:00.000Z".to_owned();
    store.write_cell(&longer, &[], &[], "").unwrap();

    let key = &older.cells[0].key;
    let asked = |plan: &Plan| last_durations(root.path(), MATRIX, &plan.cells).unwrap();
    let past = |seconds, run: &str, same| LastDuration {
        seconds,
        launch_seconds: None,
        run: RunId::new(run),
        same,
    };
    assert_eq!(asked(&older)[key], past(2.5, "a", true));
    assert_eq!(asked(&newer)[key], past(60.0, "b", true));
    let mut unknown = older.clone();
    unknown.cells[0].content = ContentHash::from_bytes(b"never measured");
    assert_eq!(asked(&unknown)[key], past(60.0, "b", false));
    assert!(
        !asked(&older).contains_key(&older.cells[1].key),
        "a failed cell says nothing of its length"
    );
    assert!(
        last_durations(root.path(), "other", &older.cells)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_summary_of_a_newer_format_is_told_and_passed_over() {
    let root = tempfile::tempdir().unwrap();
    let plan = plan();
    let store = create_and_begin(root.path(), "r", &plan, no_secrets());
    write_all_cells(&store, &plan);
    let path = store
        .cell_dir(&measurement(&plan.cells[0].key))
        .join("summary.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"format\": 2", "\"format\": 9")).unwrap();
    let run = Run::read(store.folder()).unwrap();
    assert_eq!((run.summaries.len(), run.warnings.len()), (1, 1));
    assert!(run.warnings[0].contains("has format 9"), "{:?}", run.warnings);
    // A resume must not take the measurement for unfinished.
    let refused = store.finished(&plan).unwrap_err();
    assert!(
        matches!(refused, StoreError::Newer { theirs: 9, .. }),
        "{refused}"
    );
}

#[test]
fn a_plan_that_somebody_edited_is_refused_and_not_believed() {
    let root = tempfile::tempdir().unwrap();
    let store = create_and_begin(root.path(), "r", &plan(), no_secrets());
    let path = store.folder().join("plan.json");
    let whole = fs::read_to_string(&path).unwrap();
    let edited = |change: fn(&mut Plan)| {
        let mut plan: Plan = serde_json::from_str(&whole).unwrap();
        change(&mut plan);
        fs::write(&path, serde_json::to_string(&plan).unwrap()).unwrap();
        let refused = Run::read(store.folder()).unwrap_err().to_string();
        assert!(refused.contains("but does not contain it"), "{refused}");
    };
    edited(|plan| plan.launches.clear());
    edited(|plan| plan.cells[0].launch = LaunchId::new("gone"));
    edited(|plan| plan.starts[0].launch = LaunchId::new("gone"));
    edited(|plan| drop(plan.cells.remove(0)));
}

#[test]
fn a_line_without_end_is_refused_before_it_fills_the_memory() {
    let root = tempfile::tempdir().unwrap();
    let plan = plan();
    let store = create_and_begin(root.path(), "r", &plan, no_secrets());
    write_all_cells(&store, &plan);
    let first = measurement(&plan.cells[0].key);
    let path = store.cell_dir(&first).join("histograms.jsonl.zst");
    // Twice the limit, in a few kilobytes.
    let mut file = zstd::Encoder::new(fs::File::create(&path).unwrap(), 1).unwrap();
    std::io::copy(&mut std::io::repeat(b'0').take(128 << 20), &mut file).unwrap();
    file.finish().unwrap();
    let refused = Run::read(store.folder())
        .unwrap()
        .read_seconds(&first)
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("line 1: the line is longer than 64 MiB"),
        "{refused}"
    );
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

#[test]
fn runs_of_every_format_are_read_alike() {
    for format in 1..=crate::results::record::FORMAT {
        assert_readable(format);
    }
    let [old, new] = ["run-format-1", "run-format-2"].map(|name| Run::read(&fixture().join(name)).unwrap());
    assert_eq!(old.plan, new.plan);
    for (old, new) in old.summaries.iter().zip(&new.summaries) {
        let old = MeasurementSummary {
            format: new.format,
            ..old.clone()
        };
        assert_eq!(&old, new);
    }
}

fn assert_readable(format: u32) {
    let run = Run::read(&fixture().join(format!("run-format-{format}"))).unwrap();
    assert_eq!((run.info.format, run.info.matrix.as_str()), (format, MATRIX));
    assert_eq!((run.summaries.len(), run.journal.len()), (2, 2));
    assert_eq!(
        (run.unfinished.len(), run.unplanned.len(), run.warnings.clone()),
        (0, 0, Vec::new())
    );
    let words: Vec<&str> = run
        .summaries
        .iter()
        .map(|summary| summary.status.name())
        .collect();
    assert_eq!(words, ["done", "failed"]);
    let figures = &run.summaries[0].figures[&crate::results::record::cell::Definitions::Matrix];
    assert_eq!(figures["mean_ttft_ms"], Some(0.1 + 0.2));
    let first = measurement(&run.summaries[0].cell);
    let requests = run.read_requests(&first).unwrap();
    // The fixture of format 1 is older than histograms; a run without them is complete.
    assert_eq!(run.read_seconds(&first).unwrap().is_some(), format > 1);
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[0].output_tokens(), Some(4));
    assert!(requests[2].failure.is_some());
}

/// Applies only while [`FORMAT`](crate::results::record::FORMAT) is 2. A later version gets a folder of its
/// own, and this one stays.
#[test]
#[ignore = "writes tests/fixtures/run-format-2 anew, which only a change of the format asks for; CI reads what it wrote"]
fn write_the_fixture_of_format_2() {
    assert_eq!(crate::results::record::FORMAT, 2);
    let folder = fixture().join("run-format-2");
    let _ = fs::remove_dir_all(&folder);
    let plan = plan();
    let store = create_and_begin(&fixture(), "run-format-2", &plan, no_secrets());
    write_all_cells(&store, &plan);
    store.log().unwrap().write_all(b"measured\n").unwrap();
    store
        .engine_log(&plan.launches[0].id, 1)
        .unwrap()
        .write_all(b"loading\nready\nanswered\n")
        .unwrap();
    drop(store);
    fs::remove_file(folder.join(layout::LOCK)).unwrap();
}
