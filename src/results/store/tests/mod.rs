//! Tests of the store as a whole: everything written can be read again, whatever happened in between.

mod hosts;
mod reading;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::lock::writer_pid;
use super::run_folder::latest_run;
use super::testing::{
    MATRIX, begin, create_and_begin, measurement, plan, requests, seconds, summary, write_all_cells,
};
use super::*;
use crate::base::ids::{CellKey, ContentHash, LaunchId, RunId};
use crate::base::secrets::Redactor;
use crate::plan::Plan;
use crate::results::record::event::Event;

fn no_secrets() -> Redactor {
    Redactor::default()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            paths.extend(files(&path));
        } else {
            paths.push(path);
        }
    }
    paths.sort();
    paths
}

fn with_changed_cell(mut plan: Plan, cell: usize) -> Plan {
    plan.cells[cell].content = ContentHash::from_bytes(b"changed");
    plan
}

#[test]
fn a_run_is_read_as_it_was_written() {
    let root = tempfile::tempdir().unwrap();
    let plan = plan();
    let store = create_and_begin(root.path(), "r", &plan, no_secrets());
    write_all_cells(&store, &plan);
    let run = Run::read(store.folder()).unwrap();
    assert_eq!(run.info.run, RunId::new("r"));
    assert_eq!(run.info.matrix, MATRIX);
    assert_eq!((&run.plan, &run.machine), (&plan, &testing::machine()));
    let summaries: Vec<_> = plan.cells.iter().map(summary).collect();
    assert_eq!(run.summaries, summaries);
    assert_eq!(run.journal.len(), 2);
    assert!(matches!(&run.journal[1].1, Event::CellEnded { status: ending, .. } if ending == "failed"));
    for cell in &plan.cells {
        let measurement = measurement(&cell.key);
        assert_eq!(run.read_requests(&measurement).unwrap(), requests());
        assert_eq!(run.read_seconds(&measurement).unwrap(), Some(seconds()));
        assert_eq!(run.read_engine_log(&measurement).unwrap(), "ready\nanswered\n");
    }
    assert_eq!(
        (run.unplanned.len(), run.unfinished.len(), run.warnings.len()),
        (0, 0, 0)
    );
    let source = fs::read_to_string(store.folder().join("recipes/sim.yaml")).unwrap();
    assert_eq!(source, "# a recipe\ntitle: Simulated engine\n");
    let results = fs::read_to_string(store.folder().join("results.jsonl")).unwrap();
    assert!(
        results.lines().count() == 2 && results.starts_with("{\"backend\":\"sglang\","),
        "{results}"
    );
}

#[test]
fn a_run_is_never_overwritten() {
    let root = tempfile::tempdir().unwrap();
    drop(create_and_begin(root.path(), "r", &plan(), no_secrets()));
    let refused = Store::create(root.path(), &RunId::new("r"), no_secrets()).unwrap_err();
    assert!(matches!(refused, StoreError::Exists { .. }), "{refused}");
}

#[test]
fn nothing_is_written_or_removed_where_the_folder_was_moved_away() {
    let root = tempfile::tempdir().unwrap();
    let store = create_and_begin(root.path(), "r", &plan(), no_secrets());
    let (path, moved) = (root.path().join("r"), root.path().join("moved"));
    fs::rename(&path, &moved).unwrap();
    let before = files(&moved);
    let cell = plan().starts[0].cells[0].clone();
    let launch = plan().launches[0].id.clone();
    let refused = || {
        let measured = summary(&plan().cells[0]);
        [
            store.write_cell(&measured, &requests(), &seconds(), "").err(),
            store.amend_cell(&measured, None).err(),
            store
                .save_partial(&cell, std::sync::mpsc::sync_channel(1).1)
                .err(),
            store.engine_log(&launch, 1).err(),
            store.install_log(&launch, 1).err(),
            store.journal().err(),
            store.log().err(),
            store.write_results(&[]).err(),
            store.append_result(&serde_json::Value::Null).err(),
            store.write_report("report.md", "").err(),
        ]
    };
    let all_moved = || {
        let errors = refused();
        let is_moved = |error: &Option<StoreError>| matches!(error, Some(StoreError::Moved { .. }));
        assert!(errors.iter().all(is_moved), "{errors:?}");
        assert!(!store.discard_incomplete());
    };
    all_moved();
    assert!(!path.exists());
    // A folder that another process made under this name does not belong to the run.
    fs::create_dir(&path).unwrap();
    all_moved();
    assert_eq!((files(&path), files(&moved)), (Vec::new(), before));
}

#[test]
fn a_new_run_gets_a_free_name() {
    let root = tempfile::tempdir().unwrap();
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let id = Store::new_run_id(root.path(), "My Matrix", &no_secrets());
        assert!(id.as_str().starts_with("my-matrix-"), "{id}");
        drop(Store::create(root.path(), &id, no_secrets()).unwrap());
        assert!(names.insert(id));
    }
}

#[test]
fn a_name_that_leaves_the_folder_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let long = "a".repeat(201);
    for name in ["", "..", "../x", "a/b", "/tmp", ".hidden", &long] {
        let refused = Store::create(root.path(), &RunId::new(name), no_secrets());
        assert!(matches!(refused, Err(StoreError::InvalidName { .. })), "{name}");
    }
    let store = create_and_begin(root.path(), "r", &plan(), no_secrets());
    for name in [
        "../report.md",
        "run.json",
        "plan.json",
        "cells",
        "report.md.old-1",
    ] {
        let refused = store.write_report(name, "x");
        assert!(matches!(refused, Err(StoreError::InvalidName { .. })), "{name}");
    }
}

#[test]
fn two_writers_of_a_run_are_one_too_many() {
    let root = tempfile::tempdir().unwrap();
    let first = create_and_begin(root.path(), "r", &plan(), no_secrets());
    let refused = Store::open(root.path(), &RunId::new("r"), no_secrets()).unwrap_err();
    let me = std::process::id();
    assert!(
        matches!(refused, StoreError::Locked { pid, .. } if pid == Some(me)),
        "{refused}"
    );
    assert_eq!(writer_pid(first.folder()), Some(Some(me)));
    drop(first);
    Store::open(root.path(), &RunId::new("r"), no_secrets()).unwrap();
}

#[test]
fn the_summary_is_written_last_and_run_json_too() {
    let root = tempfile::tempdir().unwrap();
    let plan = plan();
    atomic::trace::take_written();
    let store = create_and_begin(root.path(), "r", &plan, no_secrets());
    assert_eq!(
        atomic::trace::take_written(),
        ["matrix.yaml", "sim.yaml", "plan.json", "machine.json", "run.json"]
    );
    store
        .write_cell(&summary(&plan.cells[0]), &requests(), &seconds(), "")
        .unwrap();
    assert_eq!(
        atomic::trace::take_written(),
        [
            "requests.jsonl.zst",
            "histograms.jsonl.zst",
            "engine.log",
            "summary.json"
        ]
    );
}

#[test]
fn a_measurement_that_was_cut_off_anywhere_is_not_finished_and_is_done_again() {
    for writes in 0..4 {
        let root = tempfile::tempdir().unwrap();
        let plan = plan();
        let store = create_and_begin(root.path(), "r", &plan, no_secrets());
        let summary = summary(&plan.cells[0]);
        atomic::trace::fail_after(Some(writes));
        let failed = store.write_cell(&summary, &requests(), &seconds(), "early");
        atomic::trace::fail_after(None);
        assert!(failed.is_err());
        assert!(store.finished(&plan).unwrap().is_empty());
        let run = Run::read(store.folder()).unwrap();
        assert_eq!((run.summaries.len(), run.unfinished.len()), (0, 1));
        assert!(
            run.unfinished[0]
                .reason
                .ends_with("summary.json` is missing; the measurement was not finished")
        );
        let refused = run.read_requests(&measurement(&summary.cell)).unwrap_err();
        assert!(
            refused.to_string().contains("continue the run with `--resume`"),
            "{refused}"
        );

        drop(store);
        let store = Store::open(root.path(), &RunId::new("r"), no_secrets()).unwrap();
        assert!(begin(&store, &plan).is_empty());
        store.write_cell(&summary, &requests(), &[], "late").unwrap();
        let finished = store.finished(&plan).unwrap();
        assert_eq!(finished.len(), 1);
        assert_eq!(finished[&measurement(&summary.cell)], summary);
        let run = Run::read(store.folder()).unwrap();
        assert_eq!(run.read_engine_log(&measurement(&summary.cell)).unwrap(), "late");
        assert_eq!(fs::read_dir(store.folder().join("cells")).unwrap().count(), 1);
    }
}

#[test]
fn a_run_that_was_cut_off_while_it_began_is_no_run() {
    for writes in 0..5 {
        let root = tempfile::tempdir().unwrap();
        let store = Store::create(root.path(), &RunId::new("r"), no_secrets()).unwrap();
        atomic::trace::fail_after(Some(writes));
        let beginning = RunManifest {
            source: "a",
            recipes: &[("b".to_owned(), String::new())].into(),
            plan: &plan(),
            machine: &testing::machine(),
        };
        let failed = store.begin_run(&beginning);
        atomic::trace::fail_after(None);
        assert!(failed.is_err());
        drop(store);
        assert!(latest_run(root.path(), MATRIX).unwrap().is_none());
        let refused = Store::open(root.path(), &RunId::new("r"), no_secrets()).unwrap_err();
        assert!(matches!(refused, StoreError::NoRun { .. }), "{refused}");
    }
}

#[test]
fn what_a_run_was_writing_that_was_killed_while_it_began_is_swept_by_the_next_one() {
    let root = tempfile::tempdir().unwrap();
    let plan = plan();
    let begun = create_and_begin(root.path(), "begun", &plan, no_secrets());
    let cut_off = Store::create(root.path(), &RunId::new("cut-off"), no_secrets()).unwrap();
    let other = root.path().join("of-others");
    fs::create_dir(&other).unwrap();
    let unfinished = [begun.folder(), cut_off.folder(), other.as_path()].map(|folder| {
        let path = folder.join(".unfinished-x1");
        fs::File::create(&path).unwrap();
        path
    });
    drop((begun, cut_off));
    Store::create_new(root.path(), MATRIX, &no_secrets()).unwrap();
    // The temporary file of a begun run is removed when the run is resumed. A folder without a lock is no
    // run's.
    assert_eq!(unfinished.map(|path| path.exists()), [true, false, true]);
}

#[test]
fn a_broken_summary_is_told_and_its_measurement_is_not_finished() {
    let root = tempfile::tempdir().unwrap();
    let plan = plan();
    let store = create_and_begin(root.path(), "r", &plan, no_secrets());
    write_all_cells(&store, &plan);
    let first = measurement(&plan.cells[0].key);
    let path = store.cell_dir(&first).join("summary.json");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let run = Run::read(store.folder()).unwrap();
    assert_eq!((run.summaries.len(), run.unfinished.len()), (1, 1));
    assert!(
        run.unfinished[0].reason.contains("EOF while parsing"),
        "{:?}",
        run.unfinished
    );
    assert_eq!(run.warnings, [run.unfinished[0].reason.clone()]);
    assert!(!store.finished(&plan).unwrap().contains_key(&first));
    store.write_cell(&summary(&plan.cells[0]), &[], &[], "").unwrap();
    assert_eq!(Run::read(store.folder()).unwrap().summaries.len(), 2);
}

#[test]
fn a_changed_cell_is_set_aside_and_an_unchanged_one_stays() {
    let root = tempfile::tempdir().unwrap();
    let before = plan();
    let store = create_and_begin(root.path(), "r", &before, no_secrets());
    write_all_cells(&store, &before);
    let remaining = store.finished(&before).unwrap();
    assert_eq!(remaining.len(), 2);
    drop(store);

    let after = with_changed_cell(before.clone(), 1);
    let store = Store::open(root.path(), &RunId::new("r"), no_secrets()).unwrap();
    let moved = begin(&store, &after);
    let [unchanged, other] = [0, 1].map(|cell| measurement(&after.cells[cell].key));
    assert_eq!(moved, std::slice::from_ref(&other));
    let finished = store.finished(&after).unwrap();
    assert_eq!(finished.keys().collect::<Vec<_>>(), [&unchanged]);
    assert_eq!(finished[&unchanged], remaining[&unchanged]);

    for _ in 0..2 {
        store
            .write_cell(&summary(&after.cells[1]), &requests(), &[], "again")
            .unwrap();
    }
    let folder = store.cell_dir(&other);
    for n in [1, 2] {
        let old = folder.with_file_name(layout::backup_name(
            &folder.file_name().unwrap().to_string_lossy(),
            n,
        ));
        assert!(old.join("requests.jsonl.zst").is_file(), "{}", old.display());
    }
    let run = Run::read(store.folder()).unwrap();
    assert_eq!((run.summaries.len(), run.unfinished.len()), (2, 0));
    assert_eq!(run.summaries[1].content, after.cells[1].content);
    assert!(store.folder().join("plan.json.old-1").is_file());
    assert!(!store.folder().join("matrix.yaml.old-1").exists());
}

#[test]
fn a_plan_that_grows_is_kept_once() {
    let root = tempfile::tempdir().unwrap();
    let whole = plan();
    let mut begun = whole.clone();
    begun.cells.truncate(1);
    for start in &mut begun.starts {
        start
            .cells
            .retain(|measurement| measurement.cell == whole.cells[0].key);
    }
    let mut grown = whole.clone();
    grown.starts = begun.starts.iter().chain(&whole.starts).cloned().collect();
    let store = create_and_begin(root.path(), "r", &begun, no_secrets());
    begin(&store, &grown);
    assert_eq!(Run::read(store.folder()).unwrap().plan, grown);
    assert!(!store.folder().join("plan.json.old-1").exists());
    // What loses a cell is another plan.
    begin(&store, &begun);
    assert!(store.folder().join("plan.json.old-1").is_file());
}

#[test]
fn a_plan_that_is_changed_back_gets_the_measurements_from_before() {
    let root = tempfile::tempdir().unwrap();
    let before = plan();
    let store = create_and_begin(root.path(), "r", &before, no_secrets());
    write_all_cells(&store, &before);
    let measured = store.finished(&before).unwrap();
    let after = with_changed_cell(before.clone(), 0);
    assert_eq!(store.changes(&after).unwrap().outdated.len(), 1);
    begin(&store, &after);
    // Killed while the changed cell was measured, and after it was.
    let folder = store.cell_dir(&measurement(&after.cells[0].key));
    fs::create_dir_all(&folder).unwrap();
    begin(&store, &before);
    assert_eq!(store.finished(&before).unwrap(), measured);
    begin(&store, &after);
    store
        .write_cell(&summary(&after.cells[0]), &requests(), &[], "changed")
        .unwrap();
    let changes = store.changes(&before).unwrap();
    assert_eq!((changes.outdated.len(), changes.moved_back), (0, 1));
    begin(&store, &before);
    assert_eq!(store.finished(&before).unwrap(), measured);
    begin(&store, &after);
    assert_eq!(store.finished(&after).unwrap().len(), 2);
}

#[test]
fn a_measurement_that_the_plan_dropped_is_kept_apart() {
    let root = tempfile::tempdir().unwrap();
    let mut plan = plan();
    let store = create_and_begin(root.path(), "r", &plan, no_secrets());
    write_all_cells(&store, &plan);
    plan.cells.remove(0);
    plan.starts[0].cells.remove(0);
    begin(&store, &plan);
    let run = Run::read(store.folder()).unwrap();
    assert_eq!((run.summaries.len(), run.unplanned.len()), (1, 1));
    let doubt = format!("such as `{}`", run.unplanned[0].cell);
    assert!(
        run.warnings.len() == 1 && run.warnings[0].contains(&doubt),
        "{:?}",
        run.warnings
    );
}

/// Secrets of several kinds: plain, with special characters of JSON and YAML, of several lines, and equal to
/// a word of the format.
const PLANTED_SECRETS: [&str; 4] = [
    "hf_Planted0123456789",
    "p\"l\\a/nt: {ed}",
    "-----KEY-----\nPlantedLine1\nPlantedLine2",
    "measure",
];

#[test]
fn a_planted_secret_reaches_no_file_and_no_name() {
    let root = tempfile::tempdir().unwrap();
    let redactor = Redactor::new(PLANTED_SECRETS);
    let planted = PLANTED_SECRETS[..3].join(" ");
    let mut plan = plan();
    plan.launches[0]
        .api
        .headers
        .push(("X".to_owned(), planted.as_str().into()));
    plan.launches[0]
        .api
        .dialect
        .body
        .insert(planted.clone(), planted.clone().into());
    plan.launches[0].id = LaunchId::new(format!("launch {planted}"));
    plan.starts[0].launch = plan.launches[0].id.clone();
    for cell in &mut plan.cells {
        cell.launch = plan.launches[0].id.clone();
    }
    let key = CellKey::new(format!("cell {planted}"));
    plan.cells[0].key = key.clone();
    plan.starts[0].cells[0] = measurement(&key);

    let id = Store::new_run_id(root.path(), PLANTED_SECRETS[0], &redactor);
    let store = Store::create(root.path(), &id, redactor).unwrap();
    let mut machine = testing::machine();
    machine.gpus.push(planted.clone());
    let source = format!("name: small\nkey: {planted}\nport: 1\n");
    let beginning = RunManifest {
        source: &source,
        recipes: &[
            ("sim".to_owned(), planted.clone()),
            (PLANTED_SECRETS[0].to_owned(), String::new()),
        ]
        .into(),
        plan: &plan,
        machine: &machine,
    };
    store.begin_run(&beginning).unwrap();
    let mut summary = summary(&plan.cells[0]);
    summary.engine.info = Some(serde_json::json!({ "args": [planted], planted.clone(): { "n": 1 } }));
    summary.warnings.push(planted.clone());
    let mut requests = requests();
    requests[1].text = Some(planted.clone().into());
    requests[2].failure.as_mut().unwrap().message = planted.clone();
    store
        .write_cell(
            &summary,
            &requests,
            &seconds(),
            format!("log {planted}\n").as_str(),
        )
        .unwrap();
    let message = planted.clone();
    store.journal().unwrap().append(&Event::Note { message }).unwrap();
    store
        .write_results(&[serde_json::json!({ "server_info": { "key": planted } })])
        .unwrap();
    store.write_report("report.md", &planted).unwrap();
    let launch = &plan.launches[0].id;
    for mut log in [
        store.log(),
        store.engine_log(launch, 1),
        store.install_log(launch, 1),
    ]
    .map(Result::unwrap)
    {
        for piece in planted.as_bytes().chunks(3) {
            log.write_all(piece).unwrap();
        }
    }

    let files = files(root.path());
    assert_eq!(files.len(), 17, "{files:#?}");
    let mut seen = 0;
    for path in files {
        let mut bytes = fs::read(&path).unwrap();
        if path.extension().is_some_and(|end| end == "zst") {
            bytes = zstd::decode_all(&*bytes).unwrap();
        }
        let text = format!("{}\n{}", path.display(), String::from_utf8(bytes).unwrap());
        for sign in ["Planted", "planted", "l\\a/nt", "a/nt:", "l\\\\a"] {
            assert!(!text.contains(sign), "{sign} in {text}");
        }
        seen += usize::from(text.contains("***"));
    }
    assert!(seen >= 11, "only {seen} files held a secret before");

    let finished = store.finished(&plan).unwrap();
    assert_eq!(finished.keys().collect::<Vec<_>>(), [&measurement(&key)]);
    let run = Run::read(store.folder()).unwrap();
    assert_eq!(
        (run.summaries.len(), run.unplanned.len(), run.warnings.len()),
        (1, 0, 0)
    );
    assert_eq!(run.summaries[0].figures, summary.figures);
    let on_disk = &run.plan.starts[0].cells[0];
    assert_eq!(run.read_requests(on_disk).unwrap().len(), 3);
    assert!(run.plan.cell(&on_disk.cell).key.as_str().starts_with("cell *** "));
}

#[test]
fn a_start_that_is_tried_again_keeps_the_log_of_the_first_try() {
    let root = tempfile::tempdir().unwrap();
    let plan = plan();
    let store = create_and_begin(root.path(), "r", &plan, no_secrets());
    let launch = &plan.launches[0].id;
    for text in ["first", "second"] {
        store
            .engine_log(launch, 1)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }
    let logs: Vec<String> = files(&store.folder().join("launches"))
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    assert_eq!(logs, ["second", "first"]);
}

#[test]
fn the_tails_of_an_earlier_log_keep_its_number() {
    let root = tempfile::tempdir().unwrap();
    let plan = plan();
    let store = create_and_begin(root.path(), "r", &plan, no_secrets());
    let launch = &plan.launches[0].id;
    for (text, has_tails) in [("first", false), ("second", true), ("third", false)] {
        let mut log = store.engine_log(launch, 1).unwrap();
        log.write_all(text.as_bytes()).unwrap();
        drop(log);
        let path = files(&store.folder().join("launches"))
            .into_iter()
            .find(|path| path.ends_with("engine.log"));
        if has_tails {
            for tail in ["engine.log.tail", "engine.log.tail-before"] {
                fs::write(path.as_ref().unwrap().with_file_name(tail), format!("{text}'s")).unwrap();
            }
        }
    }
    let read: Vec<(String, String)> = files(&store.folder().join("launches"))
        .iter()
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    let expected = [
        ("engine.log", "third"),
        ("engine.log.old-1", "first"),
        ("engine.log.old-2", "second"),
        ("engine.log.tail-before.old-2", "second's"),
        ("engine.log.tail.old-2", "second's"),
    ];
    assert_eq!(
        read,
        expected.map(|(name, text)| (name.to_owned(), text.to_owned()))
    );
}
