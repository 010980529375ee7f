//! Draws a plan as `matrix plan` prints it: what a run does, in order, with the commands.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::base::ids::CellKey;
use crate::base::text::{format_seconds, line_start, one_line, pluralize};
use crate::config::connections::ConnectionLifetime;
use crate::config::dataset::PromptForm;
use crate::config::quality::probes;
use crate::config::repeats::StartOrder;
use crate::config::scenario::Slo;
use crate::config::search::SearchVariable;
use crate::plan::command::{self, StartValues};
use crate::plan::{AttachedServer, Cell, ExecutorSpec, Launch, OrderCost, Plan, Start};
use crate::report::{connection_notes, load_time};
use crate::results::record::last_duration::LastDuration;

/// The last duration of each cell.
pub(crate) type LastDurations = BTreeMap<CellKey, LastDuration>;

/// The plan as text. `passed` lists process engines that get only a part of the environment, with that part
/// in words.
pub(crate) fn text(
    plan: &Plan,
    last_durations: &LastDurations,
    environment: StartValues<'_>,
    passed: &[(String, String)],
) -> String {
    let mut out = headline(plan);
    out.push_str(&raised_starts_note(plan, last_durations));
    out.push_str(&start_order_note(plan, last_durations));
    let mut expected = 0.0;
    let mut unknown = 0;
    let mut number = 0;
    let by_launch = plan.cells_by_launch();
    for (index, launch) in plan.launches.iter().enumerate() {
        let _ = write!(
            out,
            "\nlaunch {}/{}  {}\n{}\n",
            index + 1,
            plan.launches.len(),
            one_line(&describe_launch(launch)),
            indent(&command::command_line_with(launch, environment).to_wrapped())
        );
        for note in launch_notes(plan, launch) {
            let _ = writeln!(out, "    # {note}");
        }
        for cell in by_launch.get(&launch.id).into_iter().flatten() {
            number += 1;
            let took = last_durations
                .get(&cell.key)
                .map(|last_durations| last_durations.seconds);
            match took {
                Some(seconds) => expected += seconds,
                None => unknown += 1,
            }
            let _ = writeln!(
                out,
                "  cell {number:>3}  {}{}",
                one_line(&load_in_words(cell)),
                took.map_or_else(String::new, |s| format!("; {} last time", format_seconds(s)))
            );
            if let Some(why) = &cell.why {
                let _ = writeln!(out, "            added: {}", one_line(why));
            }
        }
    }
    out.push_str(&passed_environments(passed));
    out.push_str(&left_out_cells(plan));
    out.push_str(&load_time::note(plan, &|key| last_durations.contains_key(key)));
    out.push_str(&duration_note(expected, unknown));
    out
}

/// The numbers of cells, launches, starts and measurements, and the stopping rule.
fn headline(plan: &Plan) -> String {
    let mut out = String::new();
    let total = plan.measurements();
    let repeats = if total == plan.cells.len() {
        String::new()
    } else {
        format!(", {}", pluralize(total, "measurement", "measurements"))
    };
    let starts = plan.starts.len();
    let starts = if starts == plan.launches.len() {
        String::new()
    } else {
        format!(" started {starts} times")
    };
    let _ = writeln!(
        out,
        "{}: {} in {}{starts}{repeats}",
        line_start(&plan.matrix),
        pluralize(plan.cells.len(), "cell", "cells"),
        pluralize(plan.launches.len(), "launch", "launches")
    );
    if let Some(stop_rule) = &plan.until {
        let starts = plan.starts.iter().map(|start| start.start).max().unwrap_or(0);
        let _ = writeln!(
            out,
            "{}, {stop_rule}",
            pluralize(starts as usize, "start", "starts")
        );
    }
    out
}

fn left_out_cells(plan: &Plan) -> String {
    let mut out = String::new();
    if !plan.left_out.is_empty() {
        out.push_str("\nleft out\n");
        for left_out_cell in &plan.left_out {
            let (cell, why) = (
                line_start(left_out_cell.cell.as_str()),
                line_start(&left_out_cell.why),
            );
            let _ = writeln!(out, "  {cell}\n            {why}");
        }
    }
    out
}

/// The note on the duration: `expected` seconds, without `unknown` cells.
fn duration_note(expected: f64, unknown: usize) -> String {
    if expected <= 0.0 {
        return String::new();
    }
    let rest = if unknown == 0 {
        String::new()
    } else {
        format!(
            "; {} never measured",
            pluralize(unknown, "cell was", "cells were")
        )
    };
    format!("\nmeasuring took {} last time{rest}\n", format_seconds(expected))
}

/// The note that more starts are planned than the matrix asks for, with their estimated duration.
fn raised_starts_note(plan: &Plan, last_durations: &LastDurations) -> String {
    let stop_rule = plan.until.as_ref();
    let Some((stage, planned_by_matrix)) =
        stop_rule.and_then(|stop_rule| Some((stop_rule.stage, stop_rule.raised_from?)))
    else {
        return String::new();
    };
    let more = (stage - planned_by_matrix) as usize * plan.launches.len();
    let share = more as f64 / plan.starts.len().max(1) as f64;
    let measuring: f64 = plan
        .cells
        .iter()
        .filter_map(|cell| last_durations.get(&cell.key))
        .map(|last_durations| last_durations.seconds * f64::from(stage - planned_by_matrix))
        .sum();
    let took = loading_s(plan, last_durations).map_or_else(String::new, |loading| {
        format!(
            ", which take about {} if each start takes as long as last time",
            format_seconds(loading * share + measuring)
        )
    });
    format!(
        "note: `target_ci` computes the number of further starts from the first five, so `starts: {planned_by_matrix}` is raised to {stage}: {more} more engine starts{took}\n"
    )
}

/// The environment of process engines; `passed` has a row for each engine.
fn passed_environments(passed: &[(String, String)]) -> String {
    let rows = passed
        .iter()
        .map(|(engine, words)| format!("  {}: {}\n", line_start(engine), one_line(words)));
    match passed.is_empty() {
        true => String::new(),
        false => format!("\nenvironment of processes\n{}", rows.collect::<String>()),
    }
}

/// The order of starts, if engines are started several times, and the cost of either order.
fn start_order_note(plan: &Plan, last_durations: &LastDurations) -> String {
    let chosen = plan.order();
    let cost = |order: StartOrder| {
        let OrderCost { starts, changes } = plan.order_cost(order);
        let changes = pluralize(changes, "change", "changes");
        format!("{starts} engine starts, {changes} from one engine to another")
    };
    let (alternate, blocks) = (
        plan.order_cost(StartOrder::Alternate),
        plan.order_cost(StartOrder::Blocks),
    );
    if alternate == blocks {
        return String::new();
    }
    let other = match chosen {
        StartOrder::Alternate => StartOrder::Blocks,
        StartOrder::Blocks => StartOrder::Alternate,
    };
    let mut out = format!(
        "order: {} ({}); `order: {}` would be {}\n",
        chosen.name(),
        cost(chosen),
        other.name(),
        cost(other)
    );
    if let Some(loading) = loading_s(plan, last_durations) {
        let _ = writeln!(
            out,
            "in the last run, an engine took {} on average to load; together, all starts of this plan take {} to load. A start \
             after another engine takes longer if memory cannot hold the files of both engines",
            format_seconds(loading / plan.starts.len() as f64),
            format_seconds(loading)
        );
    }
    out
}

/// Seconds until engines are ready, summed over all starts, from their last durations; `None` if one is
/// unknown.
fn loading_s(plan: &Plan, last_durations: &LastDurations) -> Option<f64> {
    let of_start = |start: &Start| {
        let mut cells = start.cells.iter();
        cells.find_map(|measurement| last_durations.get(&measurement.cell)?.launch_seconds)
    };
    plan.starts.iter().map(of_start).sum()
}

fn describe_launch(launch: &Launch) -> String {
    let mut words = vec![launch.engine.name.clone()];
    words.extend(launch.engine.version.clone());
    words.push(launch.model.clone());
    if launch.checkpoint != launch.model {
        words.push(format!("({})", launch.checkpoint));
    }
    words.extend(launch.precision.clone());
    words.push(format!("tp {}", launch.parallel.tp));
    words.push(match launch.gpus() {
        None => "unknown GPUs".to_owned(),
        Some(0) => "no GPU".to_owned(),
        Some(1) => "1 GPU".to_owned(),
        Some(n) => format!("{n} GPUs"),
    });
    if let ExecutorSpec::Attach(AttachedServer { gpu: Some(gpu), .. }) = &launch.place {
        words.push(gpu.clone());
    }
    words.push(launch.place.settings().name().to_owned());
    if launch.engine.simulated {
        words.push("simulated".to_owned());
    }
    words.join("  ")
}

fn launch_notes(plan: &Plan, launch: &Launch) -> Vec<String> {
    let mut notes = Vec::new();
    let starts = plan
        .starts
        .iter()
        .filter(|start| start.launch == launch.id)
        .count();
    if launch.is_attached() && starts > 1 {
        notes.push(format!(
            "attached server: `matrix` does not restart it, so its {starts} starts are repeats on the running \
             server"
        ));
    }
    if let ExecutorSpec::Attach(attach) = &launch.place {
        notes.extend(connection_notes::server_notes(attach));
    }
    if let Some(header) = &launch.api.dialect.routing_key_header {
        notes.push(format!(
            "all requests of a conversation or session have the same value of the header `{header}`"
        ));
    }
    if launch.api.unique_prefixes {
        notes.push(
            "the caches of this engine cannot be reset, so the prompts of each measurement start with a unique prefix \
             (`unique_prefixes`); the prompts keep their length in tokens"
                .to_owned(),
        );
    } else if launch.is_attached() && launch.api.reset.is_none() {
        notes.push(
            "the caches of this engine cannot be reset, and prompts are sent unchanged (`unique_prefixes: false`)"
                .to_owned(),
        );
    }
    notes
}

fn load_in_words(cell: &Cell) -> String {
    let scenario = &cell.scenario;
    let work = &scenario.workload;
    let amount = match (work.facts().prompts, work.prompts) {
        (PromptForm::Sessions, 0) => "all sessions".to_owned(),
        (PromptForm::Sessions, sessions) => pluralize(sessions as usize, "session", "sessions"),
        (_, prompts) => format!("{prompts} prompts"),
    };
    let mut words = vec![format!("{:<14} {amount}", scenario.name)];
    words.push(work.rules().lengths(scenario.profile));
    words.push(match (&scenario.arrival.pace, &scenario.search) {
        (Some(pace), _) => pace.to_string(),
        (None, Some(search)) => search.to_string(),
        (None, None) => format!("rate {}", scenario.arrival.rate),
    });
    words.extend(match &scenario.search {
        Some(search) => {
            let unit = match search.by {
                SearchVariable::Sessions => "conversations",
                SearchVariable::Rate | SearchVariable::Concurrency => "requests",
            };
            let prompts = search
                .prompts
                .map(|prompts| format!("at most {prompts} {unit} for each load that the search tries"));
            let span = search.duration.or(scenario.limits.duration);
            span.map(|span| format!("at most {span} for each load that the search tries"))
                .or(prompts)
        }
        None => scenario.limits.duration.map(|span| format!("for {span}")),
    });
    if scenario.connections.lifetime == ConnectionLifetime::Load {
        words.push("connections reused".to_owned());
    }
    if scenario.connections.retries > 0 {
        let retries = scenario.connections.retries as usize;
        words.push(format!(
            "at most {} after 429 or 503",
            pluralize(retries, "retry", "retries")
        ));
    }
    if let Some(quality) = &scenario.quality {
        words.extend((!quality.tasks.is_empty()).then(|| {
            format!(
                "then {} are sent under the same load, one after each of its requests; then all items with a wrong answer, and {} items of each task with a correct answer, are sent again one at a time",
                pluralize(quality.items() as usize, "graded item", "graded items"),
                quality.controls
            )
        }));
        words.extend(quality.probes.then(|| {
            format!(
                "then {} probe prompts are sent under the same load, with twice as many requests; then these prompts are sent again one at a time",
                probes::COUNT
            )
        }));
    }
    if scenario.slo.is_some() {
        let tiers: Vec<String> = scenario.tiers().iter().map(Slo::to_string).collect();
        words.push(format!("SLO {}", tiers.join(" or ")));
    }
    words.extend(
        scenario
            .arrival
            .concurrency
            .map(|users| format!("at most {users} at once")),
    );
    words.extend(scenario.pacing.in_words());
    words.push(format!("seed {}", scenario.seed));
    words.join(", ")
}

fn indent(text: &str) -> String {
    text.lines()
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

pub(crate) fn json(plan: &Plan, last_durations: &LastDurations, environment: StartValues<'_>) -> String {
    let launches: Vec<_> = plan
        .launches
        .iter()
        .map(|launch| {
            serde_json::json!({
                "launch": launch.id,
                "engine": launch.engine,
                "model": launch.model,
                "checkpoint": launch.checkpoint,
                "precision": launch.precision,
                "parallel": launch.parallel,
                "devices": launch.gpus(),
                "unique_prefixes": launch.api.unique_prefixes,
                "executor": launch.place.settings().name(),
                "command": command::command_line_with(launch, environment).to_line(),
                "secrets": launch.secrets(),
            })
        })
        .collect();
    let cells: Vec<_> = plan
        .cells
        .iter()
        .map(|cell| {
            serde_json::json!({
                "cell": cell.key,
                "axes": cell.axes,
                "content": cell.content,
                "launch": cell.launch,
                "scenario": cell.scenario,
                "why": cell.why,
                "last_seconds": last_durations.get(&cell.key).map(|last_durations| last_durations.seconds),
            })
        })
        .collect();
    let value = serde_json::json!({
        "matrix": plan.matrix,
        "launches": launches,
        "cells": cells,
        "starts": plan.starts,
        "until": plan.until,
        "order": plan.order(),
        "loads": {
            "alternate": plan.order_cost(StartOrder::Alternate),
            "blocks": plan.order_cost(StartOrder::Blocks),
            "seconds": loading_s(plan, last_durations),
        },
        "left_out": plan.left_out,
        "reference": plan.reference,
    });
    format!(
        "{}\n",
        serde_json::to_string_pretty(&value).expect("JSON values are always written")
    )
}
