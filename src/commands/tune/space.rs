//! The space of a search: the settings of the matrix or the recipe that the engine knows.

use super::tuned_cell::{TunedMatrix, usage};
use crate::cli::tune::TuneArgs;
use crate::commands::diagnostics::diagnostics_error;
use crate::commands::environment::{cache_dirs, environment};
use crate::commands::error::CommandError;
use crate::commands::matrix_file::load_changed;
use crate::commands::output::Colors;
use crate::config::engine::Recipe;
use crate::config::matrix::{Matrix, engine_name};
use crate::config::template::Template;
use crate::config::tune::{
    DefaultSettings, KnobChange, SetByRecipe, TrialSet, TuneEntry, TuneSpace, TunedCell, TunedKnob,
    flag_name, is_flag, knobs,
};
use crate::config::yaml::Spanned;
use crate::plan::Launch;
use crate::runner::check_flags;
use crate::runner::load_matrix::LoadedMatrix;

/// Reads the matrix with these configurations of a cell.
pub(super) fn load_sets(
    args: &TuneArgs,
    tuned: &TunedCell,
    sets: &[TrialSet],
    colors: Colors,
) -> Result<LoadedMatrix, CommandError> {
    load_changed(
        &args.run.matrix,
        None,
        &mut |matrix| {
            tuned.add_sets(matrix, sets);
            Ok(())
        },
        colors,
    )
}

/// The cell that is tuned and its settings, with notes about those that are left out.
pub(super) fn tuned_space(
    args: &TuneArgs,
    read: &TunedMatrix,
    colors: Colors,
) -> Result<(TunedCell, Vec<TunedKnob>, Vec<String>), CommandError> {
    let TunedMatrix {
        matrix,
        loaded,
        entry,
        cell,
        launch,
    } = read;
    let space = space(entry, loaded, launch)?;
    let recipe = loaded.recipes.get(&launch.engine.recipe);
    let mut default = default_settings(launch, recipe);
    default.precision = default.precision.or_else(|| cell.axes.get("precision").cloned());
    let all = knobs(&space.value, &default)
        .map_err(|error| diagnostics_error(&[*error], &loaded.sources, colors.stderr))?;
    let tuned = TunedCell {
        engine: launch.engine.name.clone(),
        model: launch.model.clone(),
        scenario: cell.scenario.name.clone(),
        axes: cell.axes.clone(),
        varied_axes: varied_axes(&all),
        replaced_args: replaced_args(matrix, launch, &all),
    };
    let (knobs, notes) = known_knobs(args, &tuned, all, colors)?;
    if knobs.is_empty() {
        let why: String = notes.iter().map(|note| format!("; {note}")).collect();
        return Err(usage(
            &format!("nothing is left to tune{why}"),
            "add settings that the engine knows, such as `tune: { space: { --max-num-seqs: [64, 128, 256] } }`",
        ));
    }
    Ok((tuned, knobs, notes))
}

fn space(
    entry: &TuneEntry,
    loaded: &LoadedMatrix,
    launch: &Launch,
) -> Result<Spanned<TuneSpace>, CommandError> {
    let recipe = loaded.recipes.get(&launch.engine.recipe);
    let shipped = recipe.and_then(|recipe| recipe.tune.as_ref());
    entry.space.as_ref().or(shipped).cloned().ok_or_else(|| {
        usage(
            &format!("nothing to tune: the recipe `{}` has no `tune:`", launch.engine.recipe),
            "write settings with their values into the matrix, such as `tune: { space: { --max-num-seqs: [64, 128, 256] } }`",
        )
    })
}

fn default_settings(launch: &Launch, recipe: Option<&Recipe>) -> DefaultSettings {
    let words = launch.command_args(launch.api.port.default);
    let env = launch.place.settings().env().iter();
    DefaultSettings {
        words: words.iter().map(|word| word.as_str().to_owned()).collect(),
        env: env
            .map(|(name, value)| (name.clone(), value.as_str().to_owned()))
            .collect(),
        tp: launch.parallel.tp,
        precision: launch.precision.clone(),
        set_by_recipe: recipe.map(set_by_recipe).unwrap_or_default(),
    }
}

/// The flags of a recipe whose values are placeholders, such as `--port {port}`.
fn set_by_recipe(recipe: &Recipe) -> Vec<SetByRecipe> {
    let commands = recipe.commands().chain([&recipe.port.flag]);
    let pairs = commands.flat_map(|words| words.windows(2));
    let set = pairs.filter_map(|pair| {
        let flag = pair[0].as_str();
        let placeholder = pair[1].placeholders().next()?;
        is_flag(flag).then(|| SetByRecipe {
            flag: flag.to_owned(),
            placeholder: placeholder.to_owned(),
        })
    });
    set.collect()
}

/// Axes that the space varies besides arguments and variables.
fn varied_axes(knobs: &[TunedKnob]) -> Vec<String> {
    let changes = || {
        knobs
            .iter()
            .flat_map(|knob| &knob.values)
            .map(|value| &value.change)
    };
    let has_size = changes().any(|change| matches!(change, KnobChange::Tp(_)));
    let has_precision = changes().any(|change| matches!(change, KnobChange::Precision(_)));
    [("tp", has_size), ("precision", has_precision)]
        .into_iter()
        .filter(|(_, is_varied)| *is_varied)
        .map(|(axis, _)| axis.to_owned())
        .collect()
}

/// The arguments of the engine's entry, if the space has flags that are among them.
fn replaced_args(matrix: &Matrix, launch: &Launch, knobs: &[TunedKnob]) -> Option<Vec<Template>> {
    let mut engines = matrix.engines.iter();
    let entry = engines.find(|named| engine_name(named).value == launch.engine.name)?;
    let args: Vec<Template> = entry.value.args.iter().map(|arg| arg.value.clone()).collect();
    let changes = knobs
        .iter()
        .flat_map(|knob| &knob.values)
        .map(|value| &value.change);
    let mut flags = changes.flat_map(|change| match change {
        KnobChange::Args(words) => words.as_slice(),
        _ => &[],
    });
    let is_written = |flag: &String| {
        let mut names = args.iter().map(|arg| flag_name(arg.as_str()));
        is_flag(flag) && names.any(|name| name == flag_name(flag))
    };
    flags.any(is_written).then_some(args)
}

/// Leaves out values with a flag that the engine's help does not list, with a note about each.
fn known_knobs(
    args: &TuneArgs,
    tuned: &TunedCell,
    knobs: Vec<TunedKnob>,
    colors: Colors,
) -> Result<(Vec<TunedKnob>, Vec<String>), CommandError> {
    let changes: Vec<&KnobChange> = knobs
        .iter()
        .flat_map(|knob| &knob.values)
        .map(|value| &value.change)
        .filter(|change| **change != KnobChange::AsItIs)
        .collect();
    let probe = |(at, change): (usize, &&KnobChange)| TrialSet {
        name: format!("probe{at}"),
        changes: vec![(*change).clone()],
        prompts: None,
    };
    let sets: Vec<TrialSet> = changes.iter().enumerate().map(probe).collect();
    let mut loaded = load_sets(args, tuned, &sets, colors)?;
    loaded.plan.plan_tune("probe", tuned, &sets, &[]);
    let cache = cache_dirs(&args.run.places, true).cache;
    let report = check_flags::unknown_flags(&loaded, &environment(), &cache)?;
    let mut notes = Vec::new();
    let mut kept = Vec::new();
    for mut knob in knobs {
        let default = knob.values[knob.default].clone();
        knob.values.retain(|value| {
            let KnobChange::Args(words) = &value.change else {
                return true;
            };
            let is_used = |flag: &str| words.iter().any(|word| flag_name(word) == flag);
            let unknown = report.unknown.iter().find(|unknown| is_used(&unknown.flag));
            if let Some(unknown) = unknown {
                let near = unknown.nearest.as_ref();
                let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                notes.push(format!(
                    "`{}` is left out of the search space: `{}` has no such flag{near}",
                    unknown.flag, unknown.source
                ));
            }
            unknown.is_none()
        });
        knob.default = knob
            .values
            .iter()
            .position(|value| *value == default)
            .unwrap_or_default();
        if knob.values.len() > 1 {
            kept.push(knob);
        }
    }
    notes.dedup();
    Ok((kept, notes))
}
