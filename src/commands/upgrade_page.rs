//! Judges two sides of a run as an upgrade, and writes the page about it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::analysis::metrics::Metric;
use crate::analysis::upgrade::configuration::{Configuration, common_settings, parse_configuration};
use crate::analysis::upgrade::{Upgrade, UpgradeRun};
use crate::base::ids::LaunchId;
use crate::commands::compare::{run_stats, saved_noise};
use crate::commands::environment::{cache_dirs, environment};
use crate::commands::error::CommandError;
use crate::commands::measure::RunView;
use crate::commands::output::redactor;
use crate::plan::Launch;
use crate::report::html;
use crate::report::upgrade::UpgradePage;
use crate::results::record::FORMAT;
use crate::results::record::upgrade::{BuildFacts, UpgradeRecord};
use crate::results::store::{Run, atomic};
use crate::runner::check_flags;

/// The two sides of an upgrade; see [`UpgradeRecord`].
pub(super) struct Sides {
    pub(super) engine: Option<String>,
    pub(super) setting: String,
    pub(super) given: [String; 2],
    pub(super) axis: String,
    pub(super) values: [String; 2],
}

/// Judges the two sides of a run. `folder` is that of the matrix.
pub(super) fn judge(
    view: &RunView<'_>,
    run: &Run,
    gates: &[Metric],
    sides: Sides,
    folder: &Path,
) -> Result<(UpgradeRecord, Upgrade), CommandError> {
    let side = run_stats(run, gates);
    let launch_of = |value: &String| {
        let mut cells = run.plan.cells.iter();
        let cell = cells.find(|cell| cell.axes.get(&sides.axis) == Some(value))?;
        Some((run.plan.launch(&cell.launch), run))
    };
    let builds = build_facts(view, [0, 1].map(|side| launch_of(&sides.values[side])), folder)?;
    let record = record(sides, builds);
    let noise = saved_noise(&view.args.places.cache(), &side);
    let upgrade = UpgradeRun {
        plan: &run.plan,
        summaries: &run.summaries,
        side: &side,
        record: &record,
        noise: noise.as_ref(),
        bound: view.min_change,
    };
    let upgrade = upgrade
        .judge()
        .map_err(|error| CommandError::usage(format!("error: {error}\n")))?;
    Ok((record, upgrade))
}

pub(super) fn record(sides: Sides, builds: [BuildFacts; 2]) -> UpgradeRecord {
    let Sides {
        engine,
        setting,
        given,
        axis,
        values,
    } = sides;
    UpgradeRecord {
        format: FORMAT,
        engine,
        setting,
        given,
        axis,
        values,
        builds,
    }
}

/// What is known of two builds: of a launch of each, with the run that started it. `folder` is that of the matrix.
pub(super) fn build_facts(
    view: &RunView<'_>,
    sides: [Option<(&Launch, &Run)>; 2],
    folder: &Path,
) -> Result<[BuildFacts; 2], CommandError> {
    let launches: Vec<&Launch> = sides.iter().flatten().map(|(launch, _)| *launch).collect();
    let cache = cache_dirs(&view.args.places, true).cache;
    let facts = check_flags::build_facts(&launches, &environment(), &cache, folder)
        .map_err(|error| CommandError::cannot_continue(format!("error: {error}\n")))?;
    let mut facts = facts.into_iter();
    Ok(sides.map(|side| match side {
        None => BuildFacts::default(),
        Some((launch, run)) => BuildFacts {
            configuration: logged_configuration(run, launch),
            ..facts.next().unwrap_or_default()
        },
    }))
}

/// The configuration that all starts of a launch logged.
pub(super) fn logged_configuration(run: &Run, launch: &Launch) -> Configuration {
    let mut known: BTreeSet<(&LaunchId, u32)> = BTreeSet::new();
    let starts = run
        .summaries
        .iter()
        .filter(|summary| summary.launch == launch.id && known.insert((&summary.launch, summary.start)));
    let logs = starts.filter_map(|summary| run.read_engine_log(&summary.measurement()).ok());
    common_settings(logs.map(|log| parse_configuration(&log, &launch.log_patterns.configuration)))
}

/// Writes the page and its data into the folder of a run; returns the page and its path.
pub(super) fn write(
    folder: &Path,
    record: &UpgradeRecord,
    upgrade: &Upgrade,
) -> Result<(UpgradePage, PathBuf), CommandError> {
    let run = folder.file_name().unwrap_or_default().to_string_lossy();
    let page = UpgradePage::new(upgrade, &record.axis, record.engine.as_deref(), &run);
    let files = [
        ("upgrade.md", page.markdown()),
        ("upgrade.json", page.json(record, upgrade)),
        ("upgrade.html", html::draw_upgrade(&page)),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        atomic::write(&path, redactor().redact(&text).as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))
            .map_err(CommandError::unwritable)?;
    }
    Ok((page, folder.join("upgrade.html")))
}
