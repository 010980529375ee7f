//! Groups cells, and names the rows of a group apart.

use std::collections::HashMap;

use super::report_cell::ReportCell;

/// Groups values by name, in the order of first appearance.
pub(crate) fn group_by_name<T>(named: impl Iterator<Item = (String, T)>) -> Vec<(String, Vec<T>)> {
    let mut groups: Vec<(String, Vec<T>)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (name, item) in named {
        let place = *places.entry(name.clone()).or_insert(groups.len());
        match groups.get_mut(place) {
            Some((_, group)) => group.push(item),
            None => groups.push((name, vec![item])),
        }
    }
    groups
}

/// Groups cells by model and scenario, in the order of first appearance.
pub(crate) fn group_cells<'s, 'a>(cells: &'s [ReportCell<'a>]) -> Vec<(String, Vec<&'s ReportCell<'a>>)> {
    let title = |cell: &ReportCell<'_>| format!("{} · {}", cell.launch.model, cell.scenario());
    group_by_name(cells.iter().map(|cell| (title(cell), cell)))
}

/// Names of the rows of a group, each different from the others.
pub(crate) fn names(group: &[&ReportCell<'_>]) -> Vec<String> {
    let mut names: Vec<String> = group.iter().map(|cell| cell.engine()).collect();
    let engines = names.clone();
    let is_alike = |at: usize, other: usize| {
        let (a, b) = (group[at].launch, group[other].launch);
        engines[at] == engines[other]
            && (&a.precision, a.parallel, a.devices) == (&b.precision, b.parallel, b.devices)
    };
    disambiguate(group, &mut names, &is_alike);
    names
}

/// Names of the rows of a table of all cells: those of one run, model and scenario differ from one another.
pub(crate) fn names_of_all(cells: &[ReportCell<'_>]) -> Vec<String> {
    let title = |cell: &ReportCell<'_>| format!("{} · {} · {}", cell.run, cell.launch.model, cell.scenario());
    let mut names_of_all = vec![String::new(); cells.len()];
    for (_, group) in group_by_name(
        cells
            .iter()
            .enumerate()
            .map(|(at, cell)| (title(cell), (at, cell))),
    ) {
        let (places, group): (Vec<usize>, Vec<&ReportCell<'_>>) = group.into_iter().unzip();
        for (place, name) in places.into_iter().zip(names(&group)) {
            names_of_all[place] = name;
        }
    }
    names_of_all
}

/// Appends to names of rows that would read alike the axis values in which they differ.
fn disambiguate(cells: &[&ReportCell<'_>], names: &mut [String], is_alike: &dyn Fn(usize, usize) -> bool) {
    const DISTINGUISHING_AXES: [&str; 4] = ["executor", "variant", "args", "env"];
    let value = |at: usize, axis: &str| cells[at].cell.axes.get(axis).map_or("", String::as_str);
    let indices: Vec<usize> = (0..cells.len()).collect();
    for (at, name) in names.iter_mut().enumerate() {
        let alike: Vec<usize> = indices
            .iter()
            .copied()
            .filter(|&other| is_alike(at, other))
            .collect();
        for axis in DISTINGUISHING_AXES {
            if alike.iter().any(|&other| value(other, axis) != value(at, axis)) {
                let value = match value(at, axis) {
                    "" => "none",
                    value => value,
                };
                name.push_str(&format!(" {axis}={value}"));
            }
        }
        // Otherwise identical cells of two runs differ only in the run.
        let run = cells[at].run;
        if alike.iter().any(|&other| cells[other].run != run) {
            name.push_str(&format!(" run={run}"));
        }
    }
}

/// Names of cells: in words if these are unique among them, else by run and key.
pub(crate) fn short_names<'r, 'a: 'r>(
    cells: impl Iterator<Item = &'r ReportCell<'a>> + Clone,
) -> Vec<String> {
    let words =
        |cell: &ReportCell<'_>| format!("{} · {} · {}", cell.engine(), cell.launch.model, cell.scenario());
    let mut counts: HashMap<String, usize> = HashMap::new();
    for cell in cells.clone() {
        *counts.entry(words(cell)).or_default() += 1;
    }
    let name = |cell| match words(cell) {
        words if counts[&words] == 1 => words,
        _ => cell.name(),
    };
    cells.map(name).collect()
}
