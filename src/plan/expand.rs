//! Expands a matrix to a plan: crosses the axes, applies exclusions and inclusions, and merges equal
//! launches.

use std::collections::{BTreeMap, HashMap};

use crate::base::ids::{CellKey, LaunchId};
use crate::config::builtin_scenarios;
use crate::config::engine::Recipes;
use crate::config::forms::Named;
use crate::config::matrix::{
    EngineEntry, Exclusion, Inclusion, Matrix, ModelEntry, ScenarioEntry, engine_name,
};
use crate::config::select::{self, AxisValues};
use crate::config::yaml::{Diagnostic, Spanned};
use crate::plan::axes::{count_points, grid_points};
use crate::plan::canonical;
use crate::plan::check;
use crate::plan::grid::{GridPoint, UnevenZip};
use crate::plan::resolve::ResolveContext;
use crate::plan::{Cell, ExcludedCell, Plan, StoredReference, answer_references, order};

/// Expands a matrix to its plan, with the cells in the order of measurement.
///
/// # Errors
/// All errors of the matrix at once.
pub(crate) fn expand(matrix: &Matrix, recipes: &Recipes) -> Result<Plan, Vec<Diagnostic>> {
    let diagnostics = check::check_matrix(matrix, recipes);
    if !diagnostics.is_empty() {
        return Err(diagnostics);
    }
    let scenarios: Vec<(String, ScenarioEntry)> = matrix
        .scenarios
        .iter()
        .map(|named| (named.name.value.clone(), builtin_scenarios::completed(named)))
        .collect();
    let mut expansion = Expansion::new(matrix, recipes, &scenarios);
    expansion.add_grid()?;
    expansion.report_unused(SelectorUse::unused_exclusions);
    for inclusion in &matrix.include {
        expansion.add_inclusion(inclusion);
    }
    expansion.report_unused(SelectorUse::unused_overrides);
    let Expansion {
        cells: gathered,
        left_out,
        mut diagnostics,
        ..
    } = expansion;
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
    let mut plan = assemble(matrix, gathered, left_out);
    let mut errors = check::check_containers(matrix, &plan);
    match answer_references::resolve(matrix, &plan.cells) {
        Ok(references) => plan.answer_references = references,
        Err(diagnostic) => errors.push(*diagnostic),
    }
    match errors.is_empty() {
        true => Ok(plan),
        false => Err(errors),
    }
}

/// Largest number of cells: one year of measuring at half a minute each.
const MAX_CELLS: u64 = 1_000_000;

/// Largest number of measurements in a plan.
const MAX_MEASUREMENTS: u64 = 5_000_000;

/// Which exclusions and overrides of a matrix have matched a cell.
struct SelectorUse<'a> {
    matrix: &'a Matrix,
    exclusions: Vec<bool>,
    overrides: Vec<bool>,
}

impl<'a> SelectorUse<'a> {
    fn new(matrix: &'a Matrix) -> Self {
        Self {
            matrix,
            exclusions: vec![false; matrix.exclude.len()],
            overrides: vec![false; matrix.overrides.len()],
        }
    }

    /// The first exclusion that matches a cell with these values.
    fn find_exclusion(&mut self, values: &AxisValues) -> Option<&'a Exclusion> {
        let mut exclusions = self.matrix.exclude.iter().zip(&mut self.exclusions);
        let (exclusion, is_used) = exclusions.find(|(exclusion, _)| exclusion.when.matches(values))?;
        *is_used = true;
        Some(exclusion)
    }

    /// Marks the overrides that select a cell with these values.
    fn mark_overrides(&mut self, values: &AxisValues) {
        for (over, is_used) in self.matrix.overrides.iter().zip(&mut self.overrides) {
            *is_used |= over.when.matches(values);
        }
    }

    fn unused_exclusions(&self) -> Vec<Diagnostic> {
        let exclusions = self.matrix.exclude.iter().zip(&self.exclusions);
        let unused = exclusions.filter(|(_, is_used)| !**is_used);
        unused
            .map(|(exclusion, _)| check::unused_exclusion(exclusion))
            .collect()
    }

    fn unused_overrides(&self) -> Vec<Diagnostic> {
        let overrides = self.matrix.overrides.iter().zip(&self.overrides);
        let unused = overrides.filter(|(_, is_used)| !**is_used);
        unused.map(|(over, _)| check::unused_override(over)).collect()
    }
}

/// The cells of a matrix that have been made, and the errors found meanwhile.
struct Expansion<'a> {
    matrix: &'a Matrix,
    recipes: &'a Recipes,
    scenarios: &'a [(String, ScenarioEntry)],
    selectors: SelectorUse<'a>,
    cells: CellsByLaunch,
    left_out: Vec<ExcludedCell>,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> Expansion<'a> {
    fn new(matrix: &'a Matrix, recipes: &'a Recipes, scenarios: &'a [(String, ScenarioEntry)]) -> Self {
        Self {
            matrix,
            recipes,
            scenarios,
            selectors: SelectorUse::new(matrix),
            cells: CellsByLaunch::default(),
            left_out: Vec::new(),
            diagnostics: Vec::new(),
        }
    }

    /// Adds the cells of all combinations of engine, model and scenario.
    ///
    /// # Errors
    /// The matrix has too many cells.
    fn add_grid(&mut self) -> Result<(), Vec<Diagnostic>> {
        let (matrix, recipes) = (self.matrix, self.recipes);
        let mut crossed: u64 = 0;
        for engine in matrix.engines.iter() {
            for model in matrix.models.iter() {
                for (scenario, scenario_entry) in self.scenarios {
                    let site = resolve_context(matrix, recipes, engine, model, scenario, scenario_entry);
                    // Count points before creating them, because they may exceed memory.
                    crossed = crossed.saturating_add(count_points(&site));
                    if crossed > MAX_CELLS {
                        return Err(vec![check::too_many("cells", MAX_CELLS)]);
                    }
                    match grid_points(&site) {
                        Ok(points) => self.add_points(&site, points),
                        Err(uneven) => self.diagnostics.push(uneven_groups(&site, &uneven)),
                    }
                }
            }
        }
        Ok(())
    }

    fn add_points(&mut self, site: &ResolveContext<'_>, points: Vec<GridPoint>) {
        let mut last: Option<(GridPoint, super::Launch)> = None;
        for point in points {
            self.diagnostics.extend(check::check_point(site, &point));
            let values = site.axis_values(&point);
            if let Some(exclusion) = self.selectors.find_exclusion(&values) {
                self.left_out.push(ExcludedCell {
                    cell: CellKey::new(select::cell_key(&values)),
                    why: exclusion.why.clone(),
                });
                continue;
            }
            self.selectors.mark_overrides(&values);
            let started = point.without_load();
            let known = last.take().filter(|(known, _)| *known == started);
            let (_, launch) = last.insert(known.unwrap_or_else(|| {
                let launch = site.launch(&started);
                (started, launch)
            }));
            let cell = make_cell(site, &point, &values, launch, None);
            for diagnostic in check::check_support(site, &launch.api.dialect, &cell.scenario) {
                // Every point has the same error; report it once.
                if !self.diagnostics.contains(&diagnostic) {
                    self.diagnostics.push(diagnostic);
                }
            }
            self.cells.push(cell, launch);
        }
    }

    fn add_inclusion(&mut self, inclusion: &Spanned<Inclusion>) {
        let (added, diagnostics) = make_inclusion(self.matrix, self.recipes, self.scenarios, inclusion);
        self.diagnostics.extend(diagnostics);
        let Some((cell, launch)) = added else { return };
        self.selectors.mark_overrides(&cell.axes);
        if self
            .cells
            .cells
            .iter()
            .flatten()
            .any(|known| known.key == cell.key)
        {
            self.diagnostics
                .push(check::redundant_inclusion(inclusion, &cell.key));
        } else {
            self.cells.push(cell, &launch);
        }
    }

    /// Reports selectors that match no cell. After an error cells are missing, so that nothing can be said.
    fn report_unused(&mut self, unused: impl Fn(&SelectorUse<'a>) -> Vec<Diagnostic>) {
        if self.diagnostics.is_empty() {
            self.diagnostics = unused(&self.selectors);
        }
    }
}

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
        about: matrix.about.clone(),
        starts: order::plan_starts(&launches, &cells, &matrix.repeats),
        pull_ahead: matrix.pull_ahead,
        gpus: matrix.gpus.clone(),
        paired: matrix.nightly.paired,
        reference: reference.or_else(|| launches.first().map(|launch| launch.engine.name.clone())),
        answer_references: BTreeMap::new(),
        stored_reference: StoredReference::of_matrix(matrix),
        launches,
        cells,
        left_out,
        parallel: matrix.parallel,
        price: matrix.price,
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
        "the axes of a `zip` group have different numbers of values for engine `{}`, model `{}`, scenario `{}`",
        site.engine, site.model, site.scenario
    ))
    .with_help(
        "give each axis of the group the same number of values, or remove the group from `zip` to combine all values",
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
    diagnostics.extend(check::check_support(&site, &launch.api.dialect, &cell.scenario));
    (Some((cell, launch)), diagnostics)
}
