//! Finds the differences of two sides besides their metrics. They are reported before any verdict.

use std::collections::BTreeMap;

use super::conditions::{ConditionKind, Conditions};
use super::difference::{Difference, DifferenceKind};
use super::{cell_facts, machines, settings};
use crate::base::ids::CellKey;
use crate::results::record::cell_stats::{CellStats, Facts, RunStats};

/// What stands for a fact that a side lacks.
pub(crate) const UNKNOWN: &str = "unknown";

/// Returns the differences between the machines and tools of two sides.
pub(crate) fn side_differences(first: &RunStats, second: &RunStats) -> Vec<Difference> {
    let mut differences = machine_differences(&first.machine, &second.machine);
    if first.tool != second.tool {
        differences.push(Difference {
            kind: DifferenceKind::Tool,
            what: "version".to_owned(),
            before: first.tool.clone(),
            after: second.tool.clone(),
        });
    }
    differences
}

pub(crate) fn machine_differences(first: &Facts, second: &Facts) -> Vec<Difference> {
    machines::differences(first, second)
}

pub(crate) fn engine_differences(first: &Facts, second: &Facts) -> Vec<Difference> {
    fact_differences(DifferenceKind::Engine, first, second)
}

pub(crate) fn cell_differences(first: &CellStats, second: &CellStats) -> Vec<Difference> {
    let mut differences = Vec::new();
    let differing = conditions(first).differences(&conditions(second));
    differences.extend(differing.into_iter().map(|differs| Difference {
        kind: match differs.kind {
            ConditionKind::Answers | ConditionKind::Prompts => DifferenceKind::Load,
            ConditionKind::Machine => DifferenceKind::Environment,
        },
        what: differs.condition.to_owned(),
        before: differs.before,
        after: differs.after,
    }));
    if !first.hosts.is_empty() && !second.hosts.is_empty() {
        differences.extend(machines::differences_of_hosts(&first.hosts, &second.hosts));
    }
    let is_known = |cell: &CellStats| !cell.attached || cell.devices > 0;
    if is_known(first) && is_known(second) && first.devices != second.devices {
        differences.push(Difference {
            kind: DifferenceKind::Load,
            what: "GPUs of the engine".to_owned(),
            before: first.devices.to_string(),
            after: second.devices.to_string(),
        });
    }
    let question_differences = cell_facts::differing_facts(&first.asked, &second.asked);
    differences.extend(question_differences.map(|(what, before, after)| Difference {
        kind: DifferenceKind::Load,
        what: what.to_owned(),
        before: before.to_owned(),
        after: after.to_owned(),
    }));
    let limits = cell_facts::differing_facts(&first.limits, &second.limits);
    differences.extend(limits.map(|(what, before, after)| Difference {
        kind: DifferenceKind::LoadLimits,
        what: what.to_owned(),
        before: before.to_owned(),
        after: after.to_owned(),
    }));
    // A side without valid measurements has no prompts.
    let is_measured = !first.figures.is_empty() && !second.figures.is_empty();
    if is_measured && first.prompts != second.prompts {
        let [before, after] = prompts_in_words(first, second);
        differences.push(Difference {
            kind: DifferenceKind::Load,
            what: "prompts".to_owned(),
            before,
            after,
        });
    }
    if first.origin != second.origin {
        differences.push(Difference {
            kind: DifferenceKind::Load,
            what: "origin".to_owned(),
            before: format!("{:?}", first.origin).to_lowercase(),
            after: format!("{:?}", second.origin).to_lowercase(),
        });
    }
    differences.extend(engine_differences(&first.engine, &second.engine));
    differences.extend(setting_differences(first, second));
    let is_told = |difference: &Difference| {
        matches!(
            difference.kind,
            DifferenceKind::Engine | DifferenceKind::Load | DifferenceKind::LoadLimits
        )
    };
    // Cells with different axes always have different definitions.
    let is_one_cell = first.axes == second.axes;
    if is_one_cell && first.content != second.content && !differences.iter().any(is_told) {
        differences.push(Difference {
            kind: DifferenceKind::Engine,
            what: "definition of the cell".to_owned(),
            before: "as before".to_owned(),
            after: "the mounts or the files of the cell changed (they are not shown here)".to_owned(),
        });
    }
    differences
}

fn setting_differences(first: &CellStats, second: &CellStats) -> Vec<Difference> {
    if first.settings.is_empty() || second.settings.is_empty() {
        return Vec::new();
    }
    // An attached server may have settings that it does not report.
    let parts = match first.attached || second.attached {
        true => cell_facts::differing_facts(&first.settings, &second.settings).collect(),
        false => settings::setting_pairs(&first.settings, &second.settings),
    };
    parts
        .into_iter()
        .map(|(name, before, after)| Difference {
            kind: DifferenceKind::Engine,
            what: match settings::is_lossless(name) {
                true => name.to_owned(),
                false => format!("{name} (not lossless)"),
            },
            before: before.to_owned(),
            after: after.to_owned(),
        })
        .collect()
}

/// Says why two cells may not be judged although they seem to be equal: their prompts are unknown.
pub(crate) fn unknown_difference(first: &CellStats, second: &CellStats) -> Option<String> {
    let is_unknown = first.prompts.is_none() && second.prompts.is_none();
    is_unknown.then(|| "the prompts of both sides are unknown: not recorded, or not the same in all measurements of a side".to_owned())
}

/// Returns the differences between the engines of two cells as text. Empty if there are none.
pub(crate) fn engine_differences_in_words(first: &CellStats, second: &CellStats) -> String {
    let differences = cell_differences(first, second);
    let of_engine = differences.iter().filter(|difference| {
        matches!(
            difference.kind,
            DifferenceKind::Engine | DifferenceKind::LoadLimits
        )
    });
    let parts: Vec<String> = of_engine
        .map(|difference| {
            format!(
                "{}: {} → {}",
                difference.what, difference.before, difference.after
            )
        })
        .collect();
    parts.join("; ")
}

fn prompts_in_words(first: &CellStats, second: &CellStats) -> [String; 2] {
    match (&first.load, &second.load, &first.prompts, &second.prompts) {
        (Some(before), Some(after), Some(first_drawn), Some(second_drawn)) => {
            cell_facts::add_digests([before.clone(), after.clone()], [first_drawn, second_drawn])
        }
        _ => [first, second].map(|cell| {
            let digest = cell.prompts.as_ref();
            digest.map_or(UNKNOWN.to_owned(), |digest| format!("digest {digest}"))
        }),
    }
}

const fn conditions(cell: &CellStats) -> Conditions {
    Conditions {
        clock_mhz: cell.clock_mhz,
        capped_share: cell.capped_share,
        one_token_share: cell.one_token_share,
        loop_share: cell.loop_share,
        canned_share: cell.canned_share,
        tokens_per_counted: cell.tokens_per_counted,
        tokens_per_event: cell.tokens_per_event,
        vision_tokens: cell.vision_tokens,
        prompt_tokens: cell.prompt_tokens,
    }
}

fn fact_differences(kind: DifferenceKind, first: &Facts, second: &Facts) -> Vec<Difference> {
    let names: std::collections::BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let value = |facts: &Facts, name: &String| facts.get(name).cloned().unwrap_or_else(|| UNKNOWN.to_owned());
    names
        .into_iter()
        .filter(|name| first.get(*name) != second.get(*name))
        .map(|name| Difference {
            kind,
            what: name.clone(),
            before: value(first, name),
            after: value(second, name),
        })
        .collect()
}

/// Groups equal differences, each with the cells that have it.
pub(crate) fn group_by_difference<'a>(
    differences_by_cell: impl IntoIterator<Item = (&'a CellKey, Vec<Difference>)>,
) -> Vec<(Difference, Vec<&'a CellKey>)> {
    let mut cells_by_difference: BTreeMap<(DifferenceKind, String, String, String), Vec<&CellKey>> =
        BTreeMap::new();
    for (cell, differences) in differences_by_cell {
        for Difference {
            kind,
            what,
            before,
            after,
        } in differences
        {
            cells_by_difference
                .entry((kind, what, before, after))
                .or_default()
                .push(cell);
        }
    }
    cells_by_difference
        .into_iter()
        .map(|((kind, what, before, after), cells)| {
            (
                Difference {
                    kind,
                    what,
                    before,
                    after,
                },
                cells,
            )
        })
        .collect()
}
