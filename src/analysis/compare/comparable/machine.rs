//! Compares the machines that measured two cells.

use std::collections::BTreeSet;

use super::found_differences::FoundDifferences;
use crate::analysis::compare::compared_cell::ComparedCell;
use crate::analysis::compare::machine_facts::{facts_of_hosts, machine_facts};
use crate::analysis::compare::machines;

/// Compares the kind of GPU of attached servers, which is known only if it is declared.
fn compare_gpu_kinds(
    differences: &mut FoundDifferences,
    first: &ComparedCell<'_>,
    second: &ComparedCell<'_>,
) {
    match (gpu_kind(first), gpu_kind(second)) {
        (Some(first_value), Some(second_value)) if first_value == second_value => {}
        (Some(first_value), Some(second_value)) => differences
            .environment
            .push(format!("GPUs {first_value} against {second_value}")),
        _ => differences
            .noted
            .push("the GPU model is unknown for at least one side".to_owned()),
    }
}

/// Returns the kind of GPU of a cell: as declared for a server or a file, otherwise that of the machine.
fn gpu_kind(side: &ComparedCell<'_>) -> Option<String> {
    let declared = side.launch.place.settings().declared_gpu();
    if declared.is_some() || side.launch.is_attached() {
        return declared.map(str::to_owned);
    }
    let gpus: BTreeSet<&str> = side.machine?.gpus.iter().map(String::as_str).collect();
    (!gpus.is_empty()).then(|| gpus.into_iter().collect::<Vec<_>>().join(", "))
}

/// Compares the machines. A difference that decides how fast an engine can be allows no verdict.
pub(crate) fn compare_machines(
    differences: &mut FoundDifferences,
    cell: &ComparedCell<'_>,
    reference: &ComparedCell<'_>,
) {
    if cell.launch.is_attached() || reference.launch.is_attached() {
        compare_gpu_kinds(differences, cell, reference);
        return;
    }
    if cell.imported().is_some() || reference.imported().is_some() {
        match (gpu_kind(cell), gpu_kind(reference)) {
            (Some(first_value), Some(second_value)) if first_value == second_value => {}
            (Some(first_value), Some(second_value)) => differences
                .environment
                .push(format!("GPUs {first_value} against {second_value}")),
            _ => differences
                .environment
                .push("the GPU model is unknown for at least one side".to_owned()),
        }
        return;
    }
    let hosts = [reference, cell].map(|side| {
        let hosts = facts_of_hosts(side.machine, side.summaries.iter().copied());
        match hosts.is_empty() {
            true => side.machine.map(machine_facts).into_iter().collect(),
            false => hosts,
        }
    });
    if hosts.iter().any(Vec::is_empty) {
        return;
    }
    for difference in machines::differences_of_hosts(&hosts[0], &hosts[1]) {
        // A ratio names its own side first.
        let text = format!(
            "{} {} against {}",
            difference.what, difference.after, difference.before
        );
        match difference.kind.forbids_verdict() {
            true => differences.environment.push(text),
            false => differences.noted.push(text),
        }
    }
}
