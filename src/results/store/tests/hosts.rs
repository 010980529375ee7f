//! Runs that continue on another host.

use std::fs;
use std::path::Path;

use super::no_secrets;
use crate::base::ids::RunId;
use crate::plan::{Cell, Plan};
use crate::results::record::machine::Machine;
use crate::results::store::testing::{begin_on, plan, summary};
use crate::results::store::{Merger, Run, Store, layout};

fn node(name: &str) -> Machine {
    Machine {
        node: Some(name.to_owned()),
        cpu: Some(format!("CPU of {name}")),
        ..Machine::default()
    }
}

/// Begins or resumes the run `r` on a machine, and measures these cells there.
fn measure(root: &Path, plan: &Plan, machine: &Machine, cells: &[Cell]) -> Store {
    let run = RunId::new("r");
    let store = match root.join("r").exists() {
        true => Store::open(root, &run, no_secrets()).unwrap(),
        false => Store::create(root, &run, no_secrets()).unwrap(),
    };
    begin_on(&store, plan, machine);
    for cell in cells {
        store.write_cell(&summary(cell), &[], &[], "").unwrap();
    }
    store
}

/// The node of each measurement, `-` for that of the run.
fn nodes(root: &Path) -> Vec<String> {
    let run = Run::read(&root.join("r")).unwrap();
    assert_eq!(run.warnings, Vec::<String>::new());
    let node = |machine: Option<&Machine>| machine.and_then(|machine| machine.node.clone());
    run.summaries
        .iter()
        .map(|summary| node(summary.machine.as_deref()).unwrap_or_else(|| "-".to_owned()))
        .collect()
}

#[test]
fn measurements_keep_their_host_when_the_run_goes_on_on_another() {
    let (root, plan) = (tempfile::tempdir().unwrap(), plan());
    let root = root.path();
    let (first, second) = (&plan.cells[..1], &plan.cells[1..]);
    drop(measure(root, &plan, &node("node1"), first));
    assert_eq!(nodes(root), ["-"]);
    // Another limit of open files or version is no other host.
    let same = Machine {
        open_files: Some(1024),
        tool: "later".to_owned(),
        ..node("node1")
    };
    drop(measure(root, &plan, &same, &[]));
    assert_eq!(nodes(root), ["-"]);
    drop(measure(root, &plan, &node("node2"), second));
    assert_eq!(nodes(root), ["node1", "node2"]);
    // What node2 measured gets its name only when a third host replaces it.
    drop(measure(root, &plan, &node("node3"), first));
    assert_eq!(nodes(root), ["node3", "node2"], "the first was measured again");
}

#[test]
fn the_same_host_with_another_driver_is_another_host() {
    let (root, plan) = (tempfile::tempdir().unwrap(), plan());
    let with = |driver: &str| Machine {
        driver: Some(driver.to_owned()),
        ..node("node1")
    };
    drop(measure(root.path(), &plan, &with("550"), &plan.cells[..1]));
    drop(measure(root.path(), &plan, &with("560"), &plan.cells[1..]));
    let run = Run::read(&root.path().join("r")).unwrap();
    let drivers = run
        .summaries
        .iter()
        .map(|summary| &summary.machine.as_ref().unwrap().driver);
    assert_eq!(drivers.flatten().collect::<Vec<_>>(), ["550", "560"]);
}

#[test]
fn a_resume_that_ends_before_its_machine_is_written_is_repeated_without_loss() {
    let (root, plan) = (tempfile::tempdir().unwrap(), plan());
    let root = root.path();
    drop(measure(root, &plan, &node("node1"), &plan.cells[..1]));
    let path = root.join("r").join(layout::MACHINE);
    let before = fs::read(&path).unwrap();
    drop(measure(root, &plan, &node("node2"), &[]));
    fs::write(&path, before).unwrap();
    drop(measure(root, &plan, &node("node1"), &[]));
    drop(measure(root, &plan, &node("node3"), &plan.cells[1..]));
    assert_eq!(nodes(root), ["node1", "node3"]);
}

#[test]
fn a_measurement_outside_of_the_plan_keeps_its_host_for_a_later_plan() {
    let (root, whole) = (tempfile::tempdir().unwrap(), plan());
    let root = root.path();
    drop(measure(root, &whole, &node("node1"), &whole.cells[..1]));
    let mut part = whole.clone();
    part.cells.remove(0);
    part.starts[0].cells.remove(0);
    drop(measure(root, &part, &node("node2"), &whole.cells[1..]));
    drop(measure(root, &whole, &node("node2"), &[]));
    assert_eq!(nodes(root), ["node1", "node2"]);
}

#[test]
fn a_merge_keeps_the_host_from_which_a_job_was_moved() {
    let (folder, plan) = (tempfile::tempdir().unwrap(), plan());
    let (part, whole) = (folder.path().join("part"), folder.path().join("whole"));
    drop(measure(&part, &plan, &node("node1"), &plan.cells[..1]));
    drop(measure(&part, &plan, &node("node2"), &plan.cells[1..]));
    let store = measure(&whole, &plan, &Machine::default(), &[]);
    for added in [2, 0] {
        let mut merger = Merger::open(&store, &plan).unwrap();
        let merged = merger.merge(&part.join("r"), &plan.starts[0].cells).unwrap();
        assert_eq!(merged.summaries.len(), added);
        assert_eq!(nodes(&whole), ["node1", "node2"]);
    }
}
