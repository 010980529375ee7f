//! Expands a matrix to a plan: crosses the axes, applies exclusions and inclusions, and merges equal
//! launches.

use std::collections::HashMap;

use crate::base::ids::{CellKey, LaunchId};
use crate::config::builtin_scenarios;
use crate::config::engine::Recipes;
use crate::config::forms::Named;
use crate::config::matrix::{EngineEntry, Inclusion, Matrix, ModelEntry, ScenarioEntry, engine_name};
use crate::config::select::{self, AxisValues};
use crate::config::yaml::Diagnostic;
use crate::plan::axes::{count_points, grid_points};
use crate::plan::canonical;
use crate::plan::check;
use crate::plan::grid::{GridPoint, UnevenZip};
use crate::plan::resolve::ResolveContext;
use crate::plan::{Cell, ExcludedCell, Plan, order};

/// Expands a matrix to its plan, with the cells in the order of measurement.
///
/// # Errors
/// All errors of the matrix at once.
pub fn expand(matrix: &Matrix, recipes: &Recipes) -> Result<Plan, Vec<Diagnostic>> {
    let mut diagnostics = check::check_matrix(matrix, recipes);
    if !diagnostics.is_empty() {
        return Err(diagnostics);
    }
    let scenarios: Vec<(String, ScenarioEntry)> = matrix
        .scenarios
        .iter()
        .map(|named| (named.name.value.clone(), builtin_scenarios::completed(named)))
        .collect();
    let mut gathered = CellsByLaunch::default();
    let mut crossed: u64 = 0;
    let mut left_out = Vec::new();
    let mut excluded = vec![false; matrix.exclude.len()];
    let mut overriding = vec![false; matrix.overrides.len()];
    for engine in matrix.engines.iter() {
        for model in matrix.models.iter() {
            for (scenario, scenario_entry) in &scenarios {
                let site = resolve_context(matrix, recipes, engine, model, scenario, scenario_entry);
                // Count points before creating them, because they may exceed memory.
                crossed = crossed.saturating_add(count_points(&site));
                if crossed > MAX_CELLS {
                    return Err(vec![check::too_many("cells", MAX_CELLS)]);
                }
                let points = match grid_points(&site) {
                    Ok(points) => points,
                    Err(uneven) => {
                        diagnostics.push(uneven_groups(&site, &uneven));
                        continue;
                    }
                };
                let mut last: Option<(GridPoint, super::Launch)> = None;
                for point in points {
                    diagnostics.extend(check::check_point(&site, &point));
                    let values = site.axis_values(&point);
                    let out = matrix
                        .exclude
                        .iter()
                        .enumerate()
                        .find(|(_, exclusion)| exclusion.when.matches(&values));
                    if let Some((index, exclusion)) = out {
                        excluded[index] = true;
                        left_out.push(ExcludedCell {
                            cell: CellKey::new(select::cell_key(&values)),
                            why: exclusion.why.clone(),
                        });
                    } else {
                        mark_overrides(matrix, &values, &mut overriding);
                        let started = point.without_load();
                        let known = last.take().filter(|(known, _)| *known == started);
                        let (_, launch) = last.insert(known.unwrap_or_else(|| {
                            let launch = site.launch(&started);
                            (started, launch)
                        }));
                        let cell = make_cell(&site, &point, &values, launch, None);
                        for diagnostic in
                            check::check_support(&site, launch.api.dialect.protocol, &cell.scenario)
                        {
                            // Every point has the same error; report it once.
                            if !diagnostics.contains(&diagnostic) {
                                diagnostics.push(diagnostic);
                            }
                        }
                        gathered.push(cell, launch);
                    }
                }
            }
        }
    }
    let is_whole = diagnostics.is_empty();
    for (exclusion, hit) in matrix.exclude.iter().zip(&excluded) {
        if !hit && is_whole {
            diagnostics.push(check::unused_exclusion(exclusion));
        }
    }
    for inclusion in &matrix.include {
        let added = make_inclusion(matrix, recipes, &scenarios, inclusion);
        diagnostics.extend(added.1);
        let Some((cell, launch)) = added.0 else { continue };
        mark_overrides(matrix, &cell.axes, &mut overriding);
        if gathered.cells.iter().flatten().any(|known| known.key == cell.key) {
            diagnostics.push(check::redundant_inclusion(inclusion, &cell.key));
        } else {
            gathered.push(cell, &launch);
        }
    }
    let is_whole = diagnostics.is_empty();
    for (over, hit) in matrix.overrides.iter().zip(&overriding) {
        if !hit && is_whole {
            diagnostics.push(check::unused_override(over));
        }
    }
    if !diagnostics.is_empty() {
        diagnostics.dedup();
        return Err(diagnostics);
    }
    if gathered.cells.is_empty() {
        return Err(vec![check::no_cells_error(matrix)]);
    }
    let cells = gathered.cells.iter().map(Vec::len).sum::<usize>() as u64;
    let repeats = u64::from(matrix.repeats.starts.get()) * u64::from(matrix.repeats.per_start.get());
    if cells.saturating_mul(repeats) > MAX_MEASUREMENTS {
        return Err(vec![check::too_many("measurements", MAX_MEASUREMENTS)]);
    }
    Ok(assemble(matrix, gathered, left_out))
}

/// Marks the overrides that select a cell with these values.
fn mark_overrides(matrix: &Matrix, values: &AxisValues, overriding: &mut [bool]) {
    for (over, hit) in matrix.overrides.iter().zip(overriding) {
        *hit |= over.when.matches(values);
    }
}

/// Largest number of cells: one year of measuring at half a minute each.
const MAX_CELLS: u64 = 1_000_000;

/// Largest number of measurements in a plan.
const MAX_MEASUREMENTS: u64 = 5_000_000;

/// The cells of each launch, in the order of first use.
#[derive(Default)]
struct CellsByLaunch {
    launches: Vec<super::Launch>,
    /// Cells of the launch with the same index.
    cells: Vec<Vec<Cell>>,
    indices: HashMap<LaunchId, usize>,
}

impl CellsByLaunch {
    fn push(&mut self, cell: Cell, launch: &super::Launch) {
        match self.indices.get(&launch.id) {
            Some(at) => self.cells[*at].push(cell),
            None => {
                self.indices.insert(launch.id.clone(), self.launches.len());
                self.launches.push(launch.clone());
                self.cells.push(vec![cell]);
            }
        }
    }
}

fn assemble(matrix: &Matrix, gathered: CellsByLaunch, left_out: Vec<ExcludedCell>) -> Plan {
    let launches = gathered.launches;
    let cells: Vec<Cell> = gathered.cells.into_iter().flatten().collect();
    let reference = matrix.reference.as_ref().map(|name| name.value.clone());
    Plan {
        matrix: matrix.name.value.clone(),
        starts: order::plan_starts(&launches, &cells, &matrix.repeats),
        pull_ahead: matrix.pull_ahead,
        gpus: matrix.gpus.clone(),
        paired: matrix.nightly.paired,
        reference: reference.or_else(|| launches.first().map(|launch| launch.engine.name.clone())),
        launches,
        cells,
        left_out,
        parallel: matrix.parallel,
        validity: matrix
            .validity
            .as_ref()
            .map(|bounds| bounds.value.clone())
            .unwrap_or_default(),
        until: matrix.repeats.stop_rule(),
    }
}

fn resolve_context<'a>(
    matrix: &'a Matrix,
    recipes: &'a Recipes,
    engine: &'a Named<EngineEntry>,
    model: &'a Named<ModelEntry>,
    scenario: &'a str,
    scenario_entry: &'a ScenarioEntry,
) -> ResolveContext<'a> {
    ResolveContext {
        matrix,
        recipe: recipes
            .get(&engine.name.value)
            .expect("a matrix with an unknown engine is refused before"),
        engine: &engine_name(engine).value,
        entry: &engine.value,
        model: &model.name.value,
        model_entry: &model.value,
        scenario,
        scenario_entry,
    }
}

fn uneven_groups(site: &ResolveContext<'_>, uneven: &UnevenZip) -> Diagnostic {
    let lengths: Vec<String> = uneven
        .lengths
        .iter()
        .map(|(name, length)| format!("`{name}` has {length}"))
        .collect();
    let diagnostic = Diagnostic::new(format!(
        "the zipped axes differ in length for engine `{}`, model `{}`, scenario `{}`",
        site.engine, site.model, site.scenario
    ))
    .with_help(
        "give each axis of the group the same number of values, or remove the group from `zip` to cross them",
    );
    match site.matrix.zip[uneven.group]
        .first()
        .and_then(|name| name.place.as_ref())
    {
        Some(place) => diagnostic.with_place(place, lengths.join(", ")),
        None => diagnostic.with_note(lengths.join(", ")),
    }
}

fn make_cell(
    site: &ResolveContext<'_>,
    point: &GridPoint,
    values: &AxisValues,
    launch: &super::Launch,
    why: Option<String>,
) -> Cell {
    let scenario = site.scenario(point);
    Cell {
        key: CellKey::new(select::cell_key(values)),
        axes: values.clone(),
        content: canonical::cell_hash(&launch.id, &scenario),
        launch: launch.id.clone(),
        scenario,
        why,
    }
}

type InclusionResult = (Option<(Cell, super::Launch)>, Vec<Diagnostic>);

fn make_inclusion(
    matrix: &Matrix,
    recipes: &Recipes,
    scenarios: &[(String, ScenarioEntry)],
    added: &Inclusion,
) -> InclusionResult {
    let engine = matrix
        .engines
        .iter()
        .find(|named| engine_name(named).value == added.engine.value);
    let model = matrix
        .models
        .iter()
        .find(|named| named.name.value == added.model.value);
    let scenario = scenarios.iter().find(|(name, _)| *name == added.scenario.value);
    let (Some(engine), Some(model), Some((scenario, scenario_entry))) = (engine, model, scenario) else {
        return (None, check::check_inclusion_names(matrix, added));
    };
    let site = resolve_context(matrix, recipes, engine, model, scenario, scenario_entry);
    let Some(mut point) = grid_points(&site)
        .ok()
        .and_then(|points| points.into_iter().next())
    else {
        return (None, Vec::new());
    };
    if let Some(version) = &added.version {
        point.version = Some(version.clone());
    }
    if let Some(executor) = &added.executor {
        point.executor = executor.value;
    }
    if let Some(precision) = &added.precision {
        point.precision = Some(precision.clone());
    }
    if let Some(tp) = &added.tp {
        point.parallel.tp = tp.value;
    }
    if let Some(rate) = added.rate {
        point.rate = rate;
    }
    if added.concurrency.is_some() {
        point.concurrency = added.concurrency;
    }
    let values = site.axis_values(&point);
    let launch = site.launch(&point);
    let cell = make_cell(&site, &point, &values, &launch, Some(added.why.clone()));
    let mut diagnostics = check::check_point(&site, &point);
    diagnostics.extend(check::check_support(
        &site,
        launch.api.dialect.protocol,
        &cell.scenario,
    ));
    (Some((cell, launch)), diagnostics)
}
