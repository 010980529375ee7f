//! Draws a plan as `matrix plan` prints it: what a run does, in order, with the commands.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::base::ids::CellKey;
use crate::base::text::{counted, line_start, minutes, one_line};
use crate::config::repeats::Order;
use crate::plan::command::{self, Given};
use crate::plan::{Attach, Cell, Launch, Loads, Place, Plan, Start};
use crate::results::record::last_duration::LastDuration;

/// The last duration of each cell.
pub(crate) type LastDurations = BTreeMap<CellKey, LastDuration>;

/// The plan as text. `passed` lists process engines that get only a part of the environment, with that part
/// in words.
pub(crate) fn text(
    plan: &Plan,
    past: &LastDurations,
    given: Given<'_>,
    passed: &[(String, String)],
) -> String {
    let mut out = String::new();
    let total = plan.measurements();
    let repeats = if total == plan.cells.len() {
        String::new()
    } else {
        format!(", {}", counted(total, "measurement", "measurements"))
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
        counted(plan.cells.len(), "cell", "cells"),
        counted(plan.launches.len(), "launch", "launches")
    );
    if let Some(until) = &plan.until {
        let starts = plan.starts.iter().map(|start| start.start).max().unwrap_or(0);
        let _ = writeln!(out, "{}, {until}", counted(starts as usize, "start", "starts"));
    }
    out.push_str(&raised(plan, past));
    out.push_str(&order(plan, past));
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
            one_line(&describe(launch)),
            indented(&command::line_of(launch, given).wrapped())
        );
        for note in notes(plan, launch) {
            let _ = writeln!(out, "    # {note}");
        }
        for cell in by_launch.get(&launch.id).into_iter().flatten() {
            number += 1;
            let took = past.get(&cell.key).map(|past| past.seconds);
            match took {
                Some(seconds) => expected += seconds,
                None => unknown += 1,
            }
            let _ = writeln!(
                out,
                "  cell {number:>3}  {}{}",
                one_line(&described_load(cell)),
                took.map_or_else(String::new, |s| format!("; {} last time", minutes(s)))
            );
            if let Some(why) = &cell.why {
                let _ = writeln!(out, "            added: {}", one_line(why));
            }
        }
    }
    out.push_str(&environments(passed));
    if !plan.left_out.is_empty() {
        out.push_str("\nleft out\n");
        for left in &plan.left_out {
            let (cell, why) = (line_start(left.cell.as_str()), line_start(&left.why));
            let _ = writeln!(out, "  {cell}\n            {why}");
        }
    }
    if expected > 0.0 {
        let rest = if unknown == 0 {
            String::new()
        } else {
            format!("; {} never measured", counted(unknown, "cell was", "cells were"))
        };
        let _ = writeln!(out, "\nmeasuring took {} last time{rest}", minutes(expected));
    }
    out
}

/// The note that more starts are planned than the matrix asks for, with their estimated duration.
fn raised(plan: &Plan, past: &LastDurations) -> String {
    let until = plan.until.as_ref();
    let Some((stage, said)) = until.and_then(|until| Some((until.stage, until.raised_from?))) else {
        return String::new();
    };
    let more = (stage - said) as usize * plan.launches.len();
    let share = more as f64 / plan.starts.len().max(1) as f64;
    let measuring: f64 = plan
        .cells
        .iter()
        .filter_map(|cell| past.get(&cell.key))
        .map(|past| past.seconds * f64::from(stage - said))
        .sum();
    let took = loading(plan, past).map_or_else(String::new, |loading| {
        format!(
            ", about {} by what they took last time",
            minutes(loading * share + measuring)
        )
    });
    format!(
        "note: `target_ci` takes five first starts to tell how many more: `starts: {said}` is raised to {stage}, {more} more engine starts{took}\n"
    )
}

/// The environment of process engines; `passed` has a row for each engine.
fn environments(passed: &[(String, String)]) -> String {
    let rows = passed
        .iter()
        .map(|(engine, words)| format!("  {}: {}\n", line_start(engine), one_line(words)));
    match passed.is_empty() {
        true => String::new(),
        false => format!("\nenvironment of processes\n{}", rows.collect::<String>()),
    }
}

/// The order of starts, if engines are started several times, and the cost of either order.
fn order(plan: &Plan, past: &LastDurations) -> String {
    let chosen = plan.order();
    let cost = |order: Order| {
        let Loads { starts, changes } = plan.loads(order);
        let times = if changes == 1 {
            "once"
        } else {
            &format!("{changes} times")
        };
        format!("{starts} engine starts, another engine {times}")
    };
    let (alternate, blocks) = (plan.loads(Order::Alternate), plan.loads(Order::Blocks));
    if alternate == blocks {
        return String::new();
    }
    let other = match chosen {
        Order::Alternate => Order::Blocks,
        Order::Blocks => Order::Alternate,
    };
    let mut out = format!(
        "order: {} ({}); `order: {}` would be {}\n",
        chosen.name(),
        cost(chosen),
        other.name(),
        cost(other)
    );
    if let Some(loading) = loading(plan, past) {
        let _ = writeln!(
            out,
            "loading took {} a start last time: {} for all starts, in either order; after another engine it takes longer where memory does not \
             hold the files of both",
            minutes(loading / plan.starts.len() as f64),
            minutes(loading)
        );
    }
    out
}

/// Seconds until engines are ready, summed over all starts, from their last durations; `None` if one is
/// unknown.
fn loading(plan: &Plan, past: &LastDurations) -> Option<f64> {
    let of_start = |start: &Start| {
        let mut cells = start.cells.iter();
        cells.find_map(|measurement| past.get(&measurement.cell)?.launch_seconds)
    };
    plan.starts.iter().map(of_start).sum()
}

fn describe(launch: &Launch) -> String {
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
    if let Place::Attach(Attach { gpu: Some(gpu), .. }) = &launch.place {
        words.push(gpu.clone());
    }
    words.push(launch.place.executor().to_owned());
    if launch.engine.simulated {
        words.push("simulated".to_owned());
    }
    words.join("  ")
}

fn notes(plan: &Plan, launch: &Launch) -> Vec<String> {
    let mut notes = Vec::new();
    let starts = plan
        .starts
        .iter()
        .filter(|start| start.launch == launch.id)
        .count();
    if launch.is_attached() && starts > 1 {
        notes.push(format!(
            "someone else started this server: its {starts} starts are repeats on it, and no start of its own is measured"
        ));
    }
    if launch.contact.unique_prefixes {
        notes.push(
            "nothing empties its caches: the prompts of each measurement begin with letters of its own, in the place of as many tokens \
             (`unique_prefixes`)"
                .to_owned(),
        );
    } else if launch.is_attached() && launch.contact.reset.is_none() {
        notes.push(
            "nothing empties its caches, and prompts are sent as drawn (`unique_prefixes: false`)".to_owned(),
        );
    }
    notes
}

fn described_load(cell: &Cell) -> String {
    let scenario = &cell.scenario;
    let work = &scenario.workload;
    let mut words = vec![format!("{:<14} {} prompts", scenario.name, work.prompts)];
    words.push(work.rules().lengths(scenario.profile));
    words.push(match (&scenario.arrival.pace, &scenario.search) {
        (Some(pace), _) => pace.to_string(),
        (None, Some(search)) => search.to_string(),
        (None, None) => format!("rate {}", scenario.arrival.rate),
    });
    words.extend(match &scenario.search {
        Some(search) => {
            let prompts = search
                .prompts
                .map(|prompts| format!("{prompts} requests a point"));
            let span = search.duration.or(scenario.limits.duration);
            span.map(|span| format!("{span} a point")).or(prompts)
        }
        None => scenario.limits.duration.map(|span| format!("for {span}")),
    });
    words.extend(scenario.slo.as_ref().map(|slo| format!("SLO {slo}")));
    words.extend(
        scenario
            .arrival
            .concurrency
            .map(|users| format!("at most {users} at once")),
    );
    words.push(format!("seed {}", scenario.seed));
    words.join(", ")
}

fn indented(text: &str) -> String {
    text.lines()
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

pub(crate) fn json(plan: &Plan, past: &LastDurations, given: Given<'_>) -> String {
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
                "unique_prefixes": launch.contact.unique_prefixes,
                "executor": launch.place.executor(),
                "command": command::line_of(launch, given).joined(),
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
                "last_seconds": past.get(&cell.key).map(|past| past.seconds),
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
            "alternate": plan.loads(Order::Alternate),
            "blocks": plan.loads(Order::Blocks),
            "seconds": loading(plan, past),
        },
        "left_out": plan.left_out,
        "reference": plan.reference,
    });
    format!(
        "{}\n",
        serde_json::to_string_pretty(&value).expect("JSON values are always written")
    )
}
