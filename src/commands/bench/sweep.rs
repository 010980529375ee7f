//! Texts about several loads: which arrival or point is next, whether a point meets the target, and what a
//! search found.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::config::BenchConfig;
use crate::results::record::search::{Point, PointDecision, SearchRecord, SearchStopReason};
use crate::runner::bench::Session;

/// Share of a point's prompts that may begin like prompts of earlier points without a warning.
const NOTED_KNOWN_SHARE: f64 = 0.05;

/// Describes the next point, its prompts, and how much of them a prefix cache may know from earlier points.
pub(super) fn arrival_heading(
    config: &BenchConfig,
    session: &Session,
    place: usize,
    before: &[Session],
) -> String {
    let arrival = session.arrival();
    let users = arrival.concurrency.map_or_else(
        || "no concurrency limit".to_owned(),
        |users| format!("at most {users} requests are in flight"),
    );
    let prompts = match (config.continues_draws, &config.cache_reset) {
        (false, None) => format!("the prompts of seed {}", session.seed()),
        (true, None) => "every point sends the same prompts, as in the Python tool".to_owned(),
        (_, Some(_)) => "every point sends the same prompts, after a cache reset".to_owned(),
    };
    let mut text = format!(
        "point {} of {}: rate {}, {users}; {prompts}\n",
        place + 1,
        config.arrivals.len(),
        arrival.rate
    );
    let known = session.share_known_from(before);
    if config.cache_reset.is_none() && known > NOTED_KNOWN_SHARE {
        let _ = writeln!(
            text,
            "warning: {:.0} % of the prompts of this point were sent by earlier points and may be in a prefix cache, so its \
             figures may differ from those of new prompts; reset the cache with `--flush-cache`, or use a larger data set",
            known * 100.0
        );
    }
    text
}

/// Returns the points and the result of a search, for stdout.
pub(super) fn search_lines(record: &SearchRecord) -> String {
    format!("{}{}\n", points_table(record), record.describe())
}

/// Returns `holds` or `fails`, or another phrase if a point neither meets nor fails the target.
fn point_word(point: &Point, holds: &'static str, fails: &'static str) -> &'static str {
    let judged = &point.judged;
    if point.has_warm_cache() {
        return "met a warm cache";
    }
    match (judged.decision(), judged.ran_out_s, judged.peak_concurrency) {
        (PointDecision::Holds, ..) => holds,
        (PointDecision::Fails, ..) => fails,
        (_, Some(_), _) => "ran out of prompts",
        (_, _, Some(_)) => "was not reached",
        (_, None, None) => "is undecided",
    }
}

pub(super) fn describe_point(point: &Point, search: &SearchRecord) -> String {
    let judged = &point.judged;
    let unreached = judged.unreached.map_or_else(String::new, |rates| {
        format!(
            "only {:.2} of {:.2} requests/s were sent; ",
            rates.sent_per_s, rates.due_per_s
        )
    });
    let unreached = judged.peak_concurrency.map_or(unreached, |peak| {
        format!("at most {peak} requests were in flight; ")
    });
    let due = judged
        .due_per_s
        .map_or_else(String::new, |due| format!(" ({due:.2} due)"));
    let doubt = judged
        .doubt
        .map_or_else(String::new, |doubt| format!(": {}", doubt.describe()));
    format!(
        "{} {}{due} {}: {unreached}{} of {} requests meet the SLO ({:.2} %, target {} %){}{doubt}\n",
        search.by.name(),
        point.value,
        point_word(point, "holds", "does not hold"),
        judged.good,
        judged.requests,
        judged.attainment * 100.0,
        search.target * 100.0,
        judged.describe_after_start()
    )
}

/// Returns the search fields of a point's result line. The last line also has the result of the search.
pub(super) fn searched(point: &Point, record: &SearchRecord) -> Value {
    let mut searched =
        json!({"by": record.by, "value": point.value, "target": record.target, "judged": point.judged});
    if record.ending != SearchStopReason::Stopped {
        searched["result"] = search_json(record);
    }
    searched
}

fn search_json(record: &SearchRecord) -> Value {
    json!({
        "capacity": record.capacity,
        "found": record.found,
        "attainment": record.attainment,
        "fails_at": record.fails_at,
        "ending": record.ending,
        "points": record.points.len(),
        "says": record.describe(),
    })
}

/// Returns a table with a line per point, ordered by value.
fn points_table(record: &SearchRecord) -> String {
    let mut points: Vec<&Point> = record.points.iter().collect();
    points.sort_by(|one, other| one.value.total_cmp(&other.value));
    let mut text = String::from("\n");
    let name = record.by.name();
    let _ = writeln!(
        text,
        "{name:<14} {:>9} {:>9} {:>11}  {:<18} holds",
        "requests", "good", "attainment", "95 % interval"
    );
    for point in points {
        let judged = &point.judged;
        let [low, high] = judged.interval.map(|share| share * 100.0);
        let _ = writeln!(
            text,
            "{:<14} {:>9} {:>9} {:>9.2} %  {:<18} {}",
            point.value,
            judged.requests,
            judged.good,
            judged.attainment * 100.0,
            format!("{low:.2} to {high:.2} %"),
            point_word(point, "yes", "no")
        );
    }
    text
}
