//! The answer of a report: a sentence for each model and load that says which engine is better and by how much, that none is, or
//! what is missing.

use serde::Serialize;

use crate::analysis::metrics::{Direction, Metric};
use crate::base::text::pluralize;
use crate::report::tables::{
    Beaten, CellCost, Conclusion as Supported, Group, Lead, ReportCell, cell_cost, dollars, tier_capacities,
};
use crate::results::record::cell::Origin;
use crate::results::record::validity::Verdict;

/// What the report says about one model and load.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Conclusion {
    /// Model and scenario, as one text.
    pub(crate) title: String,
    /// Whether there is a winner.
    pub(crate) outcome: ConclusionOutcome,
    /// The conclusion in words, without the title.
    pub(crate) sentence: String,
    /// Name of the figure that decides.
    pub(crate) figure: String,
    /// Name of the winning row; absent without a winner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) winner: Option<String>,
    /// Name of the best of the other rows; absent without a winner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) runner_up: Option<String>,
    /// How many times better the winner is than the runner-up, above 1 also for figures of which less is better; absent
    /// without a winner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lead: Option<LeadFacts>,
}

/// Whether a comparison has a winner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ConclusionOutcome {
    /// One row is better than every other one.
    Winner,
    /// The rows were judged, and none is better than all others.
    NoWinner,
    /// The rows were not judged: too few starts, differences besides the engine, or doubts.
    NotJudged,
    /// There is nothing to compare with.
    NoComparison,
}

/// A lead with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LeadFacts {
    pub(crate) value: f64,
    /// Lower end of the 95 % confidence interval; absent if a side has a single start.
    pub(crate) least: Option<f64>,
    /// Upper end of the 95 % confidence interval; absent if a side has a single start.
    pub(crate) most: Option<f64>,
}

/// The conclusion of each group, in the order of the groups. `run` is the run of the report, if there is only one.
pub(super) fn conclusions(groups: &[Group<'_, '_>], run: Option<&str>) -> Vec<Conclusion> {
    groups.iter().map(|group| conclusion(group, run)).collect()
}

fn conclusion(group: &Group<'_, '_>, run: Option<&str>) -> Conclusion {
    let metric = group.metric();
    let mut drawn = Conclusion {
        title: group.title.clone(),
        outcome: ConclusionOutcome::NoComparison,
        sentence: String::new(),
        figure: metric.name(),
        winner: None,
        runner_up: None,
        lead: None,
    };
    match &group.conclusion {
        Supported::Winner { best, next, lead } => {
            drawn.outcome = ConclusionOutcome::Winner;
            drawn.sentence = winner_sentence(group, *best, *next, *lead);
            drawn.winner = Some(group.names[*best].clone());
            drawn.runner_up = Some(group.names[*next].clone());
            drawn.lead = Some(LeadFacts {
                value: lead.value,
                least: lead.interval.map(|[least, _]| least),
                most: lead.interval.map(|[_, most]| most),
            });
        }
        Supported::NoWinner { leaders, why, beaten } => {
            drawn.outcome = ConclusionOutcome::NoWinner;
            drawn.sentence = no_winner_sentence(group, leaders, why) + &beaten_text(group, beaten);
        }
        Supported::NotJudged { leaders, why, beaten } => {
            drawn.outcome = ConclusionOutcome::NotJudged;
            let sentence = attached_sentence(group, leaders, run);
            let sentence = sentence.unwrap_or_else(|| not_judged_sentence(group, leaders, why));
            drawn.sentence = sentence + &beaten_text(group, beaten);
        }
        Supported::NoComparison => drawn.sentence = alone_sentence(group),
    }
    drawn
}

fn names(group: &Group<'_, '_>, rows: &[usize]) -> String {
    let names: Vec<&str> = rows.iter().map(|at| group.names[*at].as_str()).collect();
    match names.as_slice() {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Such as `vllm@0.11 has 1.21 times the output throughput of sglang@0.5.5 (1.15 to 1.27): 1210.0 tok/s against 1000.0 tok/s`.
fn winner_sentence(group: &Group<'_, '_>, best: usize, next: usize, lead: Lead) -> String {
    let (winner, other) = (group.rows[best], group.rows[next]);
    let metric = group.metric();
    let interval = lead.interval.map_or_else(String::new, |[least, most]| {
        format!(" (95 % interval: {least:.2} to {most:.2})")
    });
    let values = [winner, other].map(|cell| value_text(cell, metric));
    let compared = match &values {
        [Some(ours), Some(theirs)] => format!(": {ours} against {theirs}"),
        _ => String::new(),
    };
    let (winner_name, other_name) = (&group.names[best], &group.names[next]);
    let times = format!("{:.2} times", lead.value);
    let better = match (metric, metric.direction()) {
        (Metric::Found(..), _) => {
            let slos = winner.cell.scenario.tiers();
            let slo = slos
                .first()
                .map_or_else(String::new, |slo| format!(" within the SLO {slo}"));
            format!("{winner_name} sustains {times} the load of {other_name}{interval}{slo}")
        }
        (_, Some(Direction::Lower)) => {
            format!(
                "{winner_name} is {times} as fast as {other_name}{interval}, measured by {}",
                metric.label()
            )
        }
        _ => format!(
            "{winner_name} has {times} the {} of {other_name}{interval}",
            metric.label()
        ),
    };
    let attained = match metric {
        Metric::Found(..) => String::new(),
        _ => attainment_text(&[winner, other], " against "),
    };
    format!("{better}{compared}{attained}{}.", cost_text(winner, Some(other)))
}

/// How a sentence without a winner begins.
pub(crate) const NO_WINNER: &str = "No winner";

/// Such as `No winner among a@1 and b@2: the values of output throughput differ by less than 2 %, the smallest difference that counts:
/// 1000 tok/s for a@1 and 1001 tok/s for b@2.`
fn no_winner_sentence(group: &Group<'_, '_>, leaders: &[usize], why: &str) -> String {
    let metric = group.metric();
    let rows: Vec<&ReportCell<'_>> = leaders.iter().map(|at| group.rows[*at]).collect();
    let named_value = |at: &usize| {
        Some(format!(
            "{} for {}",
            value_text(group.rows[*at], metric)?,
            group.names[*at]
        ))
    };
    let values: Option<Vec<String>> = leaders.iter().map(named_value).collect();
    let values = values.map_or_else(String::new, |values| format!(": {}", values.join(" and ")));
    let attained = match metric {
        Metric::Found(..) => String::new(),
        _ => attainment_text(&rows, " and "),
    };
    let cost = costs_text(&rows, " and ");
    format!(
        "{NO_WINNER} among {}: {why}{values}{attained}{cost}.",
        names(group, leaders)
    )
}

/// The costs of a million output tokens of these rows; empty if one is unknown.
fn costs_text(rows: &[&ReportCell<'_>], between: &str) -> String {
    let costs: Option<Vec<CellCost>> = rows.iter().map(|row| cell_cost(row)).collect();
    let costs = costs.unwrap_or_default();
    let Some(first) = costs.first() else {
        return String::new();
    };
    let dollars: Vec<String> = costs.iter().map(dollars_at_load).collect();
    format!(
        "; {} per million output tokens ({})",
        dollars.join(between),
        first.prices[0]
    )
}

/// Such as `$0.31`, or `$0.31 (at 6 requests at once)` for the load that a search found.
fn dollars_at_load(cost: &CellCost) -> String {
    let load = cost
        .load
        .as_ref()
        .map_or_else(String::new, |load| format!(" (at {load})"));
    format!("{}{load}", dollars(cost.output_usd_per_million))
}

/// The shares of requests of these rows that meet the SLO, if the scenario has one: a winner may miss it.
fn attainment_text(rows: &[&ReportCell<'_>], between: &str) -> String {
    let slo = rows.first().and_then(|row| row.cell.scenario.slo.as_ref());
    // Rounded down, so that 100 % means every request.
    let percent = |share: f64| format!("{} %", (share * 1000.0).floor() / 10.0);
    let shares: Option<Vec<String>> = rows
        .iter()
        .map(|row| row.value(Metric::Attainment).map(percent))
        .collect();
    match (slo, shares) {
        (Some(slo), Some(shares)) => {
            format!("; {} of the requests meet the SLO ({slo})", shares.join(between))
        }
        _ => String::new(),
    }
}

fn not_judged_sentence(group: &Group<'_, '_>, leaders: &[usize], why: &str) -> String {
    let all = if leaders.len() > 2 { "all " } else { "" };
    format!(
        "{} are not {all}judged against each other: {why}.",
        names(group, leaders)
    )
}

/// Which rows are no leaders, such as ` b@2 is better than a@1.`
fn beaten_text(group: &Group<'_, '_>, beaten: &[Beaten]) -> String {
    let texts = beaten.iter().map(|beaten| {
        format!(
            " {} is better than {}.",
            group.names[beaten.by], group.names[beaten.row]
        )
    });
    texts.collect()
}

/// Two running servers are judged by `compare` alone, as what they show holds for no other start of these engines.
fn attached_sentence(group: &Group<'_, '_>, leaders: &[usize], run: Option<&str>) -> Option<String> {
    let &[one, other] = leaders else { return None };
    let rows = [one, other].map(|at| group.rows[at]);
    if !rows.iter().all(|row| row.launch.is_attached()) {
        return None;
    }
    let metric = group.metric();
    let values = [value_text(rows[0], metric)?, value_text(rows[1], metric)?];
    let gpus = rows.map(|row| row.launch.gpus().filter(|gpus| *gpus > 0));
    let on_gpus = gpus.map(|gpus| {
        gpus.map_or_else(String::new, |gpus| {
            format!(" on {}", pluralize(gpus as usize, "GPU", "GPUs"))
        })
    });
    let reached = format!(
        "{} is {} for {}{} and {} for {}{}{}",
        metric.label(),
        values[0],
        group.names[one],
        on_gpus[0],
        values[1],
        group.names[other],
        on_gpus[1],
        costs_text(&rows, " and ")
    );
    if gpus[0] != gpus[1] {
        return Some(format!(
            "{reached}. They are not judged against each other, because they do not use the same number of GPUs; the tables compare them per GPU."
        ));
    }
    let engines = rows.map(|row| row.launch.engine.name.as_str());
    let command = format!(
        "matrix compare {} --arms engine={},{}",
        run.unwrap_or("RUN"),
        engines[0],
        engines[1]
    );
    Some(format!(
        "{reached}. Both are running servers, so this says nothing about other starts of these engines. To judge the two, run `{command}`."
    ))
}

/// What the only row with valid figures reached.
fn alone_sentence(group: &Group<'_, '_>) -> String {
    let valid = (0..group.rows.len()).filter(|at| {
        let row = group.rows[*at];
        row.is_done() && row.validity() < Verdict::Invalid
    });
    let Some(at) = valid.into_iter().next() else {
        return "No valid measurement.".to_owned();
    };
    let metric = group.metric();
    let reached = value_text(group.rows[at], metric).unwrap_or_else(|| "not known".to_owned());
    let others = match group.rows.len() {
        1 => "there is no other row for a comparison",
        _ => "every other row is invalid or has no results",
    };
    let doubt = match (group.rows[at].validity(), group.rows[at].origin()) {
        (Verdict::Suspect, _) => "; this figure is suspect",
        (_, Origin::Imported) => "; another tool measured it",
        _ => "",
    };
    format!(
        "the {} of {} is {reached}{doubt}; {others}{}.",
        metric.label(),
        group.names[at],
        cost_text(group.rows[at], None)
    )
}

/// The value of the deciding metric; a capacity with its interval and per GPU.
fn value_text(cell: &ReportCell<'_>, metric: Metric) -> Option<String> {
    if let Metric::Found(..) = metric {
        let tier = tier_capacities(cell).into_iter().next()?;
        if let Some(capacity) = tier.per_gpu {
            return Some(format!("{} per GPU", capacity.text(&tier.unit)));
        }
        if let Some(capacity) = tier.capacity {
            return Some(capacity.text(&tier.unit));
        }
    }
    let value = cell.value(metric)?;
    let (value, unit) = match metric.unit().symbol() {
        // Long waits are read in seconds.
        "ms" if value >= 10_000.0 => (value / 1000.0, "s"),
        unit => (value, unit),
    };
    let decimals = match value.abs() {
        small if small < 10.0 => 2,
        middle if middle < 100.0 => 1,
        _ => 0,
    };
    Some(format!("{value:.decimals$} {unit}").trim_end().to_owned())
}

/// The cost of a million output tokens, beside that of the other row.
fn cost_text(cell: &ReportCell<'_>, other: Option<&ReportCell<'_>>) -> String {
    let Some(cost) = cell_cost(cell) else {
        return String::new();
    };
    let against = other.and_then(cell_cost).map_or_else(String::new, |other| {
        format!(" against {}", dollars_at_load(&other))
    });
    format!(
        "; {} per million output tokens{against} ({})",
        dollars_at_load(&cost),
        cost.prices[0]
    )
}

/// A conclusion with the models and loads that it is true of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Headline {
    /// The models and loads, as one text.
    pub(crate) about: String,
    pub(crate) sentence: String,
    pub(crate) outcome: ConclusionOutcome,
    /// The winner, whose name the sentence begins with.
    pub(crate) winner: Option<String>,
}

/// Largest number of models and loads that a headline names.
const MAX_NAMED: usize = 3;

/// Largest number of loads of which a report without a comparison says what they reached.
const MAX_ALONE: usize = 6;

/// The conclusions to print first: winners, then comparisons without one, then those that are not judged. What is true of several
/// loads is one headline. Empty if no comparison has several rows, and there are many.
pub(crate) fn headlines(conclusions: &[Conclusion]) -> Vec<Headline> {
    let is_compared = |conclusion: &Conclusion| conclusion.outcome != ConclusionOutcome::NoComparison;
    if conclusions.len() > MAX_ALONE && !conclusions.iter().any(is_compared) {
        return Vec::new();
    }
    let mut sorted: Vec<&Conclusion> = conclusions.iter().collect();
    sorted.sort_by_key(|conclusion| conclusion.outcome);
    let mut grouped: Vec<(&Conclusion, Vec<&str>)> = Vec::new();
    for conclusion in sorted {
        let same = grouped.iter_mut().find(|(first, _)| {
            (first.outcome, &first.sentence) == (conclusion.outcome, &conclusion.sentence)
        });
        match same {
            Some((_, titles)) => titles.push(&conclusion.title),
            None => grouped.push((conclusion, vec![&conclusion.title])),
        }
    }
    let headline = |(first, titles): (&Conclusion, Vec<&str>)| {
        let more = match titles.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        Headline {
            about: titles[..titles.len().min(MAX_NAMED)].join("; ") + &more,
            sentence: first.sentence.clone(),
            outcome: first.outcome,
            winner: first.winner.clone(),
        }
    };
    grouped.into_iter().map(headline).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::compare::decision::DEFAULT_BOUND;
    use crate::analysis::metrics::Quantity;
    use crate::report::tables::compare_groups;
    use crate::report::testing::{Case, report_cells};
    use crate::results::record::cell::Definitions;

    /// A cell with a start for each factor.
    fn starts(engine: &str, tok_s: f64, factors: &[f64]) -> Case {
        let mut case = Case::new(engine, "bf16", 1, tok_s * factors[0]);
        for factor in &factors[1..] {
            case = case.measured_again(tok_s * factor);
        }
        for (summary, start) in case.summaries.iter_mut().zip(1..) {
            (summary.start, summary.repeat) = (start, 1);
        }
        case
    }

    const STEADY: [f64; 5] = [1.0, 1.004, 0.996, 1.002, 0.998];

    fn conclusion_of(cases: &[Case]) -> Conclusion {
        let cells = report_cells(cases);
        let groups = compare_groups(&cells, None, DEFAULT_BOUND);
        conclusions(&groups, Some("r")).remove(0)
    }

    #[test]
    fn a_tenth_more_is_a_winner_by_a_tenth_and_the_runner_up_is_the_best_of_the_others() {
        let drawn = conclusion_of(&[
            starts("a@1", 1000.0, &STEADY),
            starts("b@2", 1100.0, &STEADY),
            starts("c@3", 500.0, &STEADY),
        ]);
        assert_eq!(drawn.outcome, ConclusionOutcome::Winner);
        assert_eq!(
            [drawn.winner.as_deref(), drawn.runner_up.as_deref()],
            [Some("b@2"), Some("a@1")]
        );
        assert!((drawn.lead.unwrap().value - 1.1).abs() < 1e-9);
        let begin = "b@2 has 1.10 times the output throughput of a@1 (95 % interval: 1.09 to 1.11): 1100 tok/s against 1000 tok/s";
        assert!(drawn.sentence.starts_with(begin), "{}", drawn.sentence);
    }

    #[test]
    fn rows_that_another_row_beats_are_named_and_the_pair_without_a_verdict_too() {
        let unclear = conclusion_of(&[
            starts("a@1", 1000.0, &STEADY),
            starts("b@2", 1100.0, &STEADY),
            starts("c@3", 1100.0, &STEADY),
        ]);
        assert_eq!(unclear.outcome, ConclusionOutcome::NoWinner);
        assert!(
            unclear.sentence.starts_with("No winner among b@2 and c@3"),
            "{}",
            unclear.sentence
        );
        assert!(
            unclear.sentence.ends_with(" b@2 is better than a@1."),
            "{}",
            unclear.sentence
        );
        // Other prompts: nothing can be said of the third and the fourth row against the others.
        let apart = conclusion_of(&[
            starts("a@1", 1000.0, &STEADY),
            starts("b@2", 1100.0, &STEADY),
            starts("c@3", 900.0, &STEADY).with_prompts("others"),
            starts("d@4", 900.0, &STEADY).with_prompts("more others"),
        ]);
        assert_eq!(apart.outcome, ConclusionOutcome::NotJudged);
        let begin = "b@2, c@3 and d@4 are not all judged against each other: b@2 and c@3: ";
        assert!(apart.sentence.starts_with(begin), "{}", apart.sentence);
        assert!(
            apart.sentence.ends_with(" b@2 is better than a@1."),
            "{}",
            apart.sentence
        );
    }

    /// With an SLO, throughput alone decides nothing where it is unknown whether the answers meet it.
    #[test]
    fn unknown_goodput_and_a_slower_whole_run_give_no_winner() {
        let with = |mut case: Case, figures_of: &dyn Fn(usize) -> Vec<(Metric, f64)>| {
            let slo = serde_json::from_value(serde_json::json!({ "ttft": "200ms" }));
            case.cell.scenario.slo = Some(slo.expect("it is an SLO"));
            for (at, summary) in case.summaries.iter_mut().enumerate() {
                let figures = summary.figures.entry(Definitions::Matrix).or_default();
                for (metric, value) in figures_of(at) {
                    figures.insert(metric.name(), Some(value));
                }
            }
            case
        };
        let known = |_: usize| vec![(Metric::Goodput, 7.0)];
        let partly = |at: usize| {
            if at < 2 {
                vec![(Metric::Goodput, 7.0)]
            } else {
                Vec::new()
            }
        };
        let drawn = conclusion_of(&[
            with(starts("a@1", 1000.0, &STEADY), &known),
            with(starts("b@2", 1100.0, &STEADY), &partly),
        ]);
        assert_eq!(drawn.outcome, ConclusionOutcome::NotJudged);
        let why = "the goodput of b@2 is known in 2 of 5 measurements";
        assert!(drawn.sentence.contains(why), "{}", drawn.sentence);
        let three = conclusion_of(&[
            with(starts("a@1", 1000.0, &STEADY), &known),
            with(starts("b@2", 1100.0, &STEADY), &partly),
            with(starts("c@3", 1100.0, &STEADY), &partly),
        ]);
        assert!(!three.sentence.contains("is better than"), "{}", three.sentence);
        // The steady state says the opposite of the whole run.
        let steady = |value: f64, whole: f64| {
            move |_: usize| {
                vec![
                    (Metric::Goodput, 7.0),
                    (Metric::SteadyOutput, value),
                    (Metric::Throughput(Quantity::Output), whole),
                ]
            }
        };
        let cell = [
            with(starts("a@1", 1000.0, &STEADY), &steady(1000.0, 1000.0)),
            with(starts("b@2", 1000.0, &STEADY), &steady(1200.0, 800.0)),
        ];
        let rows: Vec<ReportCell<'_>> = cell.iter().map(Case::report_cell).collect();
        let why = crate::report::tables::contradiction(&rows[1], &rows[0]).unwrap();
        assert_eq!(
            why,
            "b@2 has better figures, but only 800 instead of 1000 tok/s of output over the whole run"
        );
    }

    #[test]
    fn the_sentence_names_the_shares_of_requests_that_meet_the_slo() {
        let with_slo = |mut case: Case, share: f64| {
            let slo = serde_json::from_value(serde_json::json!({ "ttft": "200ms" }));
            case.cell.scenario.slo = Some(slo.expect("it is an SLO"));
            for summary in &mut case.summaries {
                let figures = summary.figures.entry(Definitions::Matrix).or_default();
                figures.insert(Metric::Attainment.name(), Some(share));
            }
            case
        };
        let drawn = conclusion_of(&[
            with_slo(starts("a@1", 1000.0, &STEADY), 0.25),
            with_slo(starts("b@2", 1100.0, &STEADY), 0.9996),
        ]);
        let share = "; 99.9 % against 25 % of the requests meet the SLO (TTFT 200ms).";
        assert!(drawn.sentence.ends_with(share), "{}", drawn.sentence);
    }

    #[test]
    fn starts_that_do_not_decide_give_no_winner_and_say_what_they_resolve() {
        let wide = [1.0, 1.2, 0.85, 1.1, 0.9];
        let drawn = conclusion_of(&[starts("a@1", 1000.0, &wide), starts("b@2", 1050.0, &wide)]);
        assert_eq!(
            (drawn.outcome, drawn.winner, drawn.lead),
            (ConclusionOutcome::NoWinner, None, None)
        );
        let begin = "No winner among a@1 and b@2: the values of output throughput differ by less than this run can resolve (";
        assert!(drawn.sentence.starts_with(begin), "{}", drawn.sentence);
        let same = conclusion_of(&[starts("a@1", 1000.0, &STEADY), starts("b@2", 1001.0, &STEADY)]);
        assert!(
            same.sentence.contains("the values of output throughput differ by less than 2 %, the smallest difference that counts: 1000 tok/s for a@1 and 1001 tok/s for b@2"),
            "{}",
            same.sentence
        );
    }

    #[test]
    fn what_is_missing_for_a_winner_is_said() {
        let one = |engine: &str, tok_s| Case::new(engine, "bf16", 1, tok_s);
        let few = conclusion_of(&[one("a@1", 1000.0), one("b@2", 2000.0)]);
        assert_eq!(few.outcome, ConclusionOutcome::NotJudged);
        let begin = "a@1 and b@2 are not judged against each other: the two sides have 1 and 1 start";
        assert!(few.sentence.starts_with(begin), "{}", few.sentence);
        let other = conclusion_of(&[
            starts("a@1", 1000.0, &STEADY),
            starts("b@2", 2000.0, &STEADY).with_prompts("others"),
        ]);
        assert_eq!(other.outcome, ConclusionOutcome::NotJudged);
        assert!(other.sentence.contains("prompts"), "{}", other.sentence);
        let alone = conclusion_of(&[one("a@1", 1000.0)]);
        assert_eq!(alone.outcome, ConclusionOutcome::NoComparison);
        let reached = headlines(std::slice::from_ref(&alone)).remove(0).sentence;
        assert_eq!(
            reached,
            "the output throughput of a@1 is 1000 tok/s; there is no other row for a comparison."
        );
        assert!(headlines(&vec![alone; 7]).is_empty());
    }

    #[test]
    fn what_is_true_of_several_loads_is_said_once_and_winners_come_first() {
        let conclusion = |title: &str, outcome, sentence: &str| Conclusion {
            title: title.to_owned(),
            outcome,
            sentence: sentence.to_owned(),
            figure: String::new(),
            winner: None,
            runner_up: None,
            lead: None,
        };
        let few = |title| conclusion(title, ConclusionOutcome::NotJudged, "too few starts");
        let all = [
            few("a"),
            few("b"),
            conclusion("c", ConclusionOutcome::Winner, "x wins"),
            few("d"),
            few("e"),
        ];
        let headlines = headlines(&all);
        let abouts: Vec<&str> = headlines.iter().map(|headline| headline.about.as_str()).collect();
        assert_eq!(abouts, ["c", "a; b; d; and 1 more"]);
    }
}
