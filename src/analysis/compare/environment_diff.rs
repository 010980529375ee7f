//! Finds the differences of two sides besides their metrics. They are reported before any verdict.

use std::collections::BTreeMap;

use super::conditions::{Conditions, Of};
use super::{comparable, machines, settings};
use crate::base::ids::CellKey;
use crate::results::record::cell_stats::{Facts, Side, SideCell};

/// What a difference is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The machine, in something that decides how fast an engine can be. A change of metrics is then not
    /// attributed to the engine.
    Environment,
    /// The machine, in something that forbids no verdict: its name, a kernel patch, another machine of the
    /// same class.
    Host,
    /// The load, so the metrics describe different work.
    Load,
    /// Timeouts and SLO. They are reported, and goodput is not judged if the SLOs differ.
    Limits,
    /// The engine, which is what a comparison is for.
    Engine,
    Tool,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::Host => "host",
            Self::Load => "load",
            Self::Limits => "limits",
            Self::Engine => "engine",
            Self::Tool => "tool",
        }
    }

    /// Returns whether this difference forbids a verdict on the engine.
    pub(crate) const fn forbids(self) -> bool {
        matches!(self, Self::Environment | Self::Load)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub kind: Kind,
    /// Its name, such as `driver`.
    pub what: String,
    pub before: String,
    pub after: String,
}

impl Difference {
    pub(crate) fn told(&self) -> String {
        format!(
            "{} {}: {} → {}",
            self.kind.name(),
            self.what,
            self.before,
            self.after
        )
    }
}

const UNKNOWN: &str = "unknown";

/// Returns the differences between the machines and tools of two sides.
pub(crate) fn of_sides(first: &Side, second: &Side) -> Vec<Difference> {
    let mut found = of_machines(&first.machine, &second.machine);
    if first.tool != second.tool {
        found.push(Difference {
            kind: Kind::Tool,
            what: "version".to_owned(),
            before: first.tool.clone(),
            after: second.tool.clone(),
        });
    }
    found
}

pub(crate) fn of_machines(first: &Facts, second: &Facts) -> Vec<Difference> {
    machines::differences(first, second)
}

pub(crate) fn of_engines(first: &Facts, second: &Facts) -> Vec<Difference> {
    of_facts(Kind::Engine, first, second)
}

pub(crate) fn of_cells(first: &SideCell, second: &SideCell) -> Vec<Difference> {
    let mut found = Vec::new();
    let differing = conditions(first).differing(&conditions(second));
    found.extend(differing.into_iter().map(|differs| Difference {
        kind: match differs.of {
            Of::Answers | Of::Prompts => Kind::Load,
            Of::Machine => Kind::Environment,
        },
        what: differs.what.to_owned(),
        before: differs.before,
        after: differs.after,
    }));
    let is_known = |cell: &SideCell| !cell.attached || cell.devices > 0;
    if is_known(first) && is_known(second) && first.devices != second.devices {
        found.push(Difference {
            kind: Kind::Load,
            what: "GPUs of the engine".to_owned(),
            before: first.devices.to_string(),
            after: second.devices.to_string(),
        });
    }
    let asked = comparable::differing(&first.asked, &second.asked);
    found.extend(asked.map(|(what, before, after)| Difference {
        kind: Kind::Load,
        what: what.to_owned(),
        before: before.to_owned(),
        after: after.to_owned(),
    }));
    let limits = comparable::differing(&first.limits, &second.limits);
    found.extend(limits.map(|(what, before, after)| Difference {
        kind: Kind::Limits,
        what: what.to_owned(),
        before: before.to_owned(),
        after: after.to_owned(),
    }));
    // A side without valid measurements has no prompts.
    let is_measured = !first.figures.is_empty() && !second.figures.is_empty();
    if is_measured && first.prompts != second.prompts {
        let [before, after] = prompts(first, second);
        found.push(Difference {
            kind: Kind::Load,
            what: "prompts".to_owned(),
            before,
            after,
        });
    }
    if first.origin != second.origin {
        found.push(Difference {
            kind: Kind::Load,
            what: "origin".to_owned(),
            before: format!("{:?}", first.origin).to_lowercase(),
            after: format!("{:?}", second.origin).to_lowercase(),
        });
    }
    found.extend(of_engines(&first.engine, &second.engine));
    if !first.settings.is_empty() && !second.settings.is_empty() {
        // An attached server may have settings that it does not report.
        let told = match first.attached || second.attached {
            true => comparable::differing(&first.settings, &second.settings).collect(),
            false => settings::pairs(&first.settings, &second.settings),
        };
        found.extend(told.into_iter().map(|(name, before, after)| Difference {
            kind: Kind::Engine,
            what: match settings::is_lossless(name) {
                true => name.to_owned(),
                false => format!("{name} (not lossless)"),
            },
            before: before.to_owned(),
            after: after.to_owned(),
        }));
    }
    let is_told =
        |difference: &Difference| matches!(difference.kind, Kind::Engine | Kind::Load | Kind::Limits);
    // Cells with different axes always have different definitions.
    let is_one_cell = first.axes == second.axes;
    if is_one_cell && first.content != second.content && !found.iter().any(is_told) {
        found.push(Difference {
            kind: Kind::Engine,
            what: "definition of the cell".to_owned(),
            before: "as it was".to_owned(),
            after: "changed in what has no value here: mounts or files".to_owned(),
        });
    }
    found
}

/// Says why two cells may not be judged although they seem to be equal: their prompts are unknown.
pub(crate) fn unknown(first: &SideCell, second: &SideCell) -> Option<String> {
    let is_unknown = first.prompts.is_none() && second.prompts.is_none();
    is_unknown
        .then(|| "the prompts of both sides are not known, or not the same in every measurement".to_owned())
}

/// Returns the differences between the engines of two cells as text. Empty if there are none.
pub(crate) fn engines_in_words(first: &SideCell, second: &SideCell) -> String {
    let differences = of_cells(first, second);
    let of_engine = differences
        .iter()
        .filter(|difference| matches!(difference.kind, Kind::Engine | Kind::Limits));
    let told: Vec<String> = of_engine
        .map(|difference| {
            format!(
                "{}: {} → {}",
                difference.what, difference.before, difference.after
            )
        })
        .collect();
    told.join("; ")
}

fn prompts(first: &SideCell, second: &SideCell) -> [String; 2] {
    match (&first.load, &second.load, &first.prompts, &second.prompts) {
        (Some(before), Some(after), Some(one), Some(two)) => {
            comparable::told_apart([before.clone(), after.clone()], [one, two])
        }
        _ => [first, second].map(|cell| {
            let digest = cell.prompts.as_ref();
            digest.map_or(UNKNOWN.to_owned(), |digest| format!("digest {digest}"))
        }),
    }
}

const fn conditions(cell: &SideCell) -> Conditions {
    Conditions {
        clock_mhz: cell.clock_mhz,
        capped_share: cell.capped_share,
        one_token_share: cell.one_token_share,
        loop_share: cell.loop_share,
        canned_share: cell.canned_share,
        tokens_per_counted: cell.tokens_per_counted,
        tokens_per_event: cell.tokens_per_event,
        vision_tokens: cell.vision_tokens,
    }
}

fn of_facts(kind: Kind, first: &Facts, second: &Facts) -> Vec<Difference> {
    let names: std::collections::BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let told = |facts: &Facts, name: &String| facts.get(name).cloned().unwrap_or_else(|| UNKNOWN.to_owned());
    names
        .into_iter()
        .filter(|name| first.get(*name) != second.get(*name))
        .map(|name| Difference {
            kind,
            what: name.clone(),
            before: told(first, name),
            after: told(second, name),
        })
        .collect()
}

/// Groups equal differences, each with the cells that have it.
pub(crate) fn gathered<'a>(
    all: impl IntoIterator<Item = (&'a CellKey, Vec<Difference>)>,
) -> Vec<(Difference, Vec<&'a CellKey>)> {
    let mut found: BTreeMap<(Kind, String, String, String), Vec<&CellKey>> = BTreeMap::new();
    for (cell, differences) in all {
        for Difference {
            kind,
            what,
            before,
            after,
        } in differences
        {
            found.entry((kind, what, before, after)).or_default().push(cell);
        }
    }
    found
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
