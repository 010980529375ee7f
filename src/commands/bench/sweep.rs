//! One load after another: every rate and concurrency that was listed, or the points of a search.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::config::BenchConfig;
use super::result::BenchResult;
use super::{AttachedServer, LoadFacts, ServerInfo, complain, once, say, tell, unfit};
use crate::analysis::slo_search::{Next, SloSearch};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::print;
use crate::config::search::Search;
use crate::exit::Exit;
use crate::results::record::search::{Point, SearchEnding, SearchRecord};
use crate::runner::bench::Session;
use crate::runner::load::{LoadOutcome, PreparedLoad};
use crate::runner::search::{self, MeasuredPoint, PointMeasurement, PointResult, SearchOutcome};
use crate::runner::shutdown::Stop;

/// So much of a point's prompts may begin like those of earlier points without a word.
const KNOWN: f64 = 0.05;

/// Measures everything that was asked for; a block and a line for each load.
pub(super) async fn measure(
    config: &BenchConfig,
    server: &mut AttachedServer,
    session: &Session,
    stop: &Stop,
) -> Outcome {
    if let Some(search) = &config.scenario.search {
        return find(config, search, server, session, stop).await;
    }
    let mut exit = Exit::Done;
    let mut before: Vec<Session> = Vec::new();
    for (place, arrival) in config.arrivals.iter().enumerate() {
        let config = config.at(arrival);
        let session = match before.last() {
            None => session.at(arrival),
            Some(before) if config.runs_on => before.on_at(arrival),
            Some(_) if config.flush.is_some() => session.at(arrival),
            Some(_) => session.reseeded(arrival, session.seed() + place as u64).await,
        };
        let session = session.map_err(unfit)?;
        if config.arrivals.len() > 1 {
            complain(&introduced(&config, &session, place, &before));
        }
        if place > 0 && !config.runs_on && config.flush.is_none() {
            session.said().iter().for_each(|line| say(line));
        }
        let Some((outcome, facts)) = once(&config, server, &session, stop).await? else {
            return Ok(Exit::Interrupted);
        };
        let measured = (&outcome, &facts);
        match tell(&result(&config, &session, &server.info, measured, stop, None))? {
            Exit::Done => {}
            Exit::Interrupted => return Ok(Exit::Interrupted),
            other => exit = other,
        }
        before.push(session);
    }
    Ok(exit)
}

/// Which point comes, which prompts it sends, and what of them the server may know from earlier points.
fn introduced(config: &BenchConfig, session: &Session, place: usize, before: &[Session]) -> String {
    let arrival = session.arrival();
    let users = arrival.concurrency.map_or_else(
        || "any number at once".to_owned(),
        |users| format!("at most {users} at once"),
    );
    let prompts = match (config.runs_on, &config.flush) {
        (false, None) => format!("the prompts of seed {}", session.seed()),
        (true, None) => "the same prompts at every point, as in the Python tool".to_owned(),
        (_, Some(_)) => "the same prompts at every point, the caches emptied before".to_owned(),
    };
    let mut text = format!(
        "point {} of {}: rate {}, {users}; {prompts}\n",
        place + 1,
        config.arrivals.len(),
        arrival.rate
    );
    let known = session.known_from(before);
    if config.flush.is_none() && known > KNOWN {
        let _ = writeln!(
            text,
            "warning: {:.0} % of the prompts of this point were sent by earlier points, so that a prefix cache may answer \
             them: its figures are not those of new prompts; have the caches emptied with `--flush-cache`, or use a larger data set",
            known * 100.0
        );
    }
    text
}

fn result<'a>(
    config: &'a BenchConfig,
    session: &'a Session,
    server: &'a ServerInfo,
    (measured, facts): (&'a LoadOutcome, &'a LoadFacts),
    stop: &Stop,
    search: Option<Value>,
) -> BenchResult<'a> {
    BenchResult {
        config,
        session,
        model: &server.model,
        calibration: server.calibration.as_ref(),
        measured,
        facts,
        is_interrupted: stop.is_asked(),
        is_simulated: server.is_simulated,
        search,
    }
}

/// The points of a search as the command measures and prints them.
struct BenchPoints<'a> {
    config: &'a BenchConfig,
    search: &'a Search,
    server: &'a mut AttachedServer,
    session: &'a Session,
    stop: &'a Stop,
    /// The exit code of a server that was not measured, because it answered nothing before a point held.
    failed: Option<Exit>,
}

/// What is known of a point beside its load.
struct PointFacts {
    config: BenchConfig,
    session: Session,
    load: LoadFacts,
}

impl PointMeasurement for BenchPoints<'_> {
    type Facts = PointFacts;
    type Failure = CommandError;

    fn not_prepared(&mut self, reason: String) -> CommandError {
        unfit(reason)
    }

    async fn measure(
        &mut self,
        value: f64,
        load: PreparedLoad,
        search: &SloSearch,
    ) -> Result<PointResult<PointFacts>, CommandError> {
        let (name, unit) = (self.search.by.name(), self.search.by.unit());
        let number = search.record().points.len() + 1;
        complain(&format!("point {number}: {name} {value} {unit}\n"));
        let session = self.session.with(load);
        let config = self.config.at(session.arrival());
        let Some((outcome, load)) = once(&config, self.server, &session, self.stop).await? else {
            return Ok(PointResult::Stopped { prompts: 0 });
        };
        let measured = (&outcome, &load);
        let result = result(&config, &session, &self.server.info, measured, self.stop, None);
        if self.stop.is_asked() {
            tell(&result)?;
            return Ok(PointResult::Stopped {
                prompts: outcome.prompts,
            });
        }
        let (basis, caches) = (result.basis(), result.cache_warm().into_iter().collect());
        Ok(PointResult::Measured(Box::new(MeasuredPoint {
            outcome,
            basis,
            caches,
            facts: PointFacts {
                config,
                session,
                load,
            },
        })))
    }

    async fn judged(
        &mut self,
        point: Point,
        measured: MeasuredPoint<PointFacts>,
        search: &SloSearch,
    ) -> Result<(), CommandError> {
        let (by, target) = (self.search.by, self.search.target);
        let mut told = json!({"by": by, "value": point.value, "target": target, "judged": point.judged});
        complain(&verdict(&point, self.search));
        if let Next::Over(_) = search.next() {
            told["result"] = found(&search.record());
        }
        let MeasuredPoint { outcome, facts, .. } = measured;
        let (config, session) = (&facts.config, &facts.session);
        let measured = (&outcome, &facts.load);
        let result = result(
            config,
            session,
            &self.server.info,
            measured,
            self.stop,
            Some(told),
        );
        let is_failed = tell(&result)? == Exit::CellFailed && search.best().is_none();
        self.failed = self.failed.or(is_failed.then_some(Exit::CellFailed));
        Ok(())
    }
}

/// Measures point after point until the search is over, and says what it found.
async fn find(
    config: &BenchConfig,
    search: &Search,
    server: &mut AttachedServer,
    session: &Session,
    stop: &Stop,
) -> Outcome {
    let protocol = server.engine.target.dialect.protocol;
    let (scenario, workload) = (&session.load().scenario, session.workload());
    let mut points = BenchPoints {
        config,
        search,
        server,
        session,
        stop,
        failed: None,
    };
    let SearchOutcome { record, used } =
        search::run(search, scenario, workload, protocol, &mut points).await?;
    if used > session.prompts() && config.flush.is_none() {
        complain(&format!(
            "note: the points sent {used} prompts of {}, so that some came twice; raise `--num-prompts`, or have the \
             cache emptied with `--flush-cache`\n",
            session.prompts()
        ));
    }
    print(&table(&record));
    say(&record.says());
    complain(&rests_on(&record));
    Ok(match record.ending {
        SearchEnding::Stopped => Exit::Interrupted,
        _ => points.failed.unwrap_or(Exit::Done),
    })
}

/// That a search rests on too few requests to tell whether its target is met; nothing where it does not.
fn rests_on(record: &SearchRecord) -> String {
    let few = record.few_requests().filter(|(_, needed)| needed.is_finite()).map(|(fewest, needed)| {
        format!(
            "note: this rests on {fewest} requests at a point, and {needed} are needed to tell {} % attainment; raise \
             `--search-seconds` or `--num-prompts`\n",
            record.target * 100.0
        )
    });
    few.unwrap_or_default()
}

/// Whether a point holds, in these words; one whose prompts ran out, or were in the server's cache, neither holds nor fails.
fn word(point: &Point, holds: &'static str, fails: &'static str) -> &'static str {
    let judged = &point.judged;
    if point.is_warm() {
        return "met a warm cache";
    }
    match (judged.holds, judged.ran_out_s, judged.peak_concurrency) {
        (true, ..) => holds,
        (false, Some(_), _) => "ran out of prompts",
        (false, _, Some(_)) => "was not reached",
        (false, None, None) => fails,
    }
}

fn verdict(point: &Point, search: &Search) -> String {
    let judged = &point.judged;
    let unreached = judged.unreached.map_or_else(String::new, |rates| {
        format!(
            "only {:.2} of {:.2} requests/s were sent; ",
            rates.sent_per_s, rates.due_per_s
        )
    });
    let unreached = judged.peak_concurrency.map_or(unreached, |peak| {
        format!("at most {peak} requests were under way at once; ")
    });
    let due = judged
        .due_per_s
        .map_or_else(String::new, |due| format!(" ({due:.2} fell due)"));
    format!(
        "{} {}{due} {}: {unreached}{} of {} requests are good, {:.2} % against {} %\n",
        search.by.name(),
        point.value,
        word(point, "holds", "does not hold"),
        judged.good,
        judged.requests,
        judged.attainment * 100.0,
        search.target * 100.0
    )
}

/// What was found, without the points, which have lines of their own.
fn found(record: &SearchRecord) -> Value {
    json!({
        "found": record.found,
        "attainment": record.attainment,
        "fails_at": record.fails_at,
        "ending": record.ending,
        "points": record.points.len(),
        "says": record.says(),
    })
}

/// A line for each point, in the order of its value.
fn table(record: &SearchRecord) -> String {
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
            word(point, "yes", "no")
        );
    }
    text
}
