//! Waits until an engine returns its first real token, dies, or exceeds a timeout.
//!
//! A successful health check is not enough: some engines report that they are healthy and then return
//! nothing, or return the first token 15 seconds later.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::base::clock::{self, MonotonicTime};
use crate::base::units::HumanDuration;
use crate::engine::api;
use crate::engine::endpoint::{Endpoint, OtherServer};
use crate::engine::executor;
use crate::engine::log::Log;
use crate::engine::not_ready::{NoToken, NotReady};
use crate::engine::running::RunningEngine;
use crate::engine::shared_memory;
use crate::engine::start_progress::Progress;
use crate::plan::Launch;

/// First pause between two health checks; it grows up to [`MAX_POLL_INTERVAL`].
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Longest pause between two health checks.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Timeout of one health check. Some engines process a small request to answer it.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(20);

/// Checks of a server that was healthy before, and the time for the answer to each.
const HEALTH_CHECKS: u32 = 3;
const RECHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// Silence of the log after which the executor is asked for the reason.
const SILENCE_BEFORE_CHECK: Duration = Duration::from_secs(5);

/// Interval of timeout checks and progress messages.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Duration of a successful start.
#[derive(Clone, Debug)]
pub(crate) struct Readiness {
    /// Seconds from the start of the process to the first real token.
    pub(crate) seconds: f64,
    /// Phases recognised in the log, with seconds. `start` is the time before the first of them, and
    /// `first-token` the time between the first successful health check and the first token.
    pub(crate) phases: Vec<(String, f64)>,
}

/// After this many consecutive [`NoToken::Unknown`] answers the model is considered unknown.
const MAX_UNKNOWN_ANSWERS: u32 = 3;

/// Waits until the health check succeeds and then `probe` succeeds (one real token; the runner provides it),
/// the engine is dead, or a timeout passes. Calls `progress` at least once a second. `grown` is the last time
/// that the engine's GPU memory grew, which counts as a sign of life like log output; it returns `None` if
/// GPU memory is not watched.
///
/// Does not stop the engine on failure.
pub(crate) async fn wait_until_ready<P, F>(
    running: &mut RunningEngine,
    launch: &Launch,
    http: &reqwest::Client,
    probe: P,
    memory_grew_at: impl Fn() -> Option<MonotonicTime>,
    mut progress: impl FnMut(Progress),
) -> Result<Readiness, NotReady>
where
    P: Fn() -> F,
    F: Future<Output = Result<(), NoToken>>,
{
    let started_at = running.started_at();
    let (log, endpoint, is_audible) = (
        running.log().clone(),
        running.endpoint().clone(),
        running.has_log(),
    );
    let watch = StartMonitor {
        launch,
        log: &log,
        has_log: is_audible,
        started_at,
        last_answer: Mutex::default(),
    };
    let mut healthy_at = None;
    let mut asked_at = started_at;
    {
        let mut beat = tokio::time::interval(CHECK_INTERVAL);
        let others = running.other_servers().to_vec();
        let looking = wait_until_healthy(http, &endpoint, &others, launch, &watch.last_answer);
        tokio::pin!(looking);
        let mut alarm = running
            .shared_memory_events
            .take()
            .unwrap_or_else(shared_memory::CreationEvents::disabled);
        while healthy_at.is_none() {
            tokio::select! {
                biased;
                engine_exit = running.wait_for_exit() => return Err(NotReady::from_exit(engine_exit)),
                () = alarm.wait() => running.record_processes().await,
                () = &mut looking => healthy_at = Some(clock::now()),
                _ = beat.tick() => {
                    progress(watch.progress(None));
                    asked_at = watch.request_check(running, asked_at);
                    // While the daemon is unreachable, no log output can arrive.
                    watch.check(!running.is_liveness_unknown(), memory_grew_at())?;
                    running.record_processes().await;
                }
            }
        }
        running.record_processes().await;
        let noted = || watch.noted(probe());
        watch.note_answer(String::new());
        let probing = wait_for_token(&noted, launch.timeouts.probe.duration());
        tokio::pin!(probing);
        loop {
            tokio::select! {
                biased;
                engine_exit = running.wait_for_exit() => return Err(NotReady::from_exit(engine_exit)),
                proof = &mut probing => {
                    proof.map_err(|error| watch.no_token_error(error))?;
                    break;
                }
                _ = beat.tick() => {
                    progress(watch.progress(Some("first-token")));
                    asked_at = watch.request_check(running, asked_at);
                    watch.check(false, None)?;
                }
            }
        }
    }
    let now = clock::now();
    Ok(Readiness {
        seconds: now.since(started_at).as_secs_f64(),
        phases: phase_durations(&log.phases(), started_at, healthy_at.unwrap_or(now), now),
    })
}

/// Checks the health of all servers, until each has answered 200. `answer` holds the latest answer.
async fn wait_until_healthy(
    http: &reqwest::Client,
    endpoint: &Endpoint,
    others: &[OtherServer],
    launch: &Launch,
    answer: &Mutex<String>,
) {
    for other in others {
        let name = format!("{}: ", other.name);
        wait_until_answered(http, &other.endpoint, &[&other.health], &name, answer).await;
    }
    let paths = executor::launcher_for(&launch.place).health_paths(launch);
    wait_until_answered(http, endpoint, &paths, "", answer).await;
}

/// Why one of these servers is no longer healthy, with its name; `None` if all are.
pub(crate) async fn unhealthy_server(http: &reqwest::Client, others: &[OtherServer]) -> Option<String> {
    for other in others {
        let mut answer = String::new();
        for check in 0..HEALTH_CHECKS {
            if check > 0 {
                sleep(MAX_POLL_INTERVAL).await;
            }
            answer = match api::fetch_status(http, &other.endpoint, &other.health, RECHECK_TIMEOUT).await {
                Ok(200) => String::new(),
                Ok(status) => format!("returned {status}"),
                Err(reason) => reason,
            };
            if answer.is_empty() {
                break;
            }
        }
        if !answer.is_empty() {
            let url = other.endpoint.url(&other.health);
            return Some(format!(
                "the engine's process `{}` is not healthy: {url}: {answer}",
                other.name
            ));
        }
    }
    None
}

/// Checks health until a path answers 200. The latest answer begins with `name`.
async fn wait_until_answered(
    http: &reqwest::Client,
    endpoint: &Endpoint,
    paths: &[&str],
    name: &str,
    answer: &Mutex<String>,
) {
    let mut pause = MIN_POLL_INTERVAL;
    loop {
        for path in paths {
            let reply = match api::fetch_status(http, endpoint, path, HEALTH_TIMEOUT).await {
                Ok(200) => return,
                Ok(status) => format!("{name}{} returned {status}", endpoint.url(path)),
                Err(reason) => format!(
                    "{name}{}: {reason}{}",
                    endpoint.url(path),
                    elsewhere_hint(name, endpoint)
                ),
            };
            let is_missing = reply.ends_with(" 404");
            *answer.lock().unwrap_or_else(PoisonError::into_inner) = reply;
            // Other paths are tried only if this one does not exist.
            if !is_missing {
                break;
            }
        }
        sleep(pause).await;
        pause = (pause * 5 / 4).min(MAX_POLL_INTERVAL);
    }
}

/// How a process on another node must be started to be reached.
fn elsewhere_hint(name: &str, endpoint: &Endpoint) -> &'static str {
    match endpoint.host.as_str() {
        "127.0.0.1" => "",
        _ if name.is_empty() => "",
        _ => {
            "; the process must listen on the address of its node, for example with `--host \"{host}\"` in its `args`"
        }
    }
}

/// Probes until a token arrives or `limit` passes. An engine may refuse requests shortly after it reports
/// healthy.
async fn wait_for_token<P, F>(probe: &P, limit: Duration) -> Result<(), NoToken>
where
    P: Fn() -> F,
    F: Future<Output = Result<(), NoToken>>,
{
    let deadline = Instant::now() + limit;
    let mut last = NoToken::NotYet("no response".to_owned());
    let mut pause = MIN_POLL_INTERVAL;
    let mut unknown = 0;
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        match timeout(remaining, probe()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(lasting @ (NoToken::Refused(_) | NoToken::Unusable(_)))) => return Err(lasting),
            Ok(Err(NoToken::Unknown(reason))) if unknown + 1 == MAX_UNKNOWN_ANSWERS => {
                return Err(NoToken::Refused(reason));
            }
            Ok(Err(error)) => {
                unknown = match error {
                    NoToken::Unknown(_) => unknown + 1,
                    _ => 0,
                };
                last = error;
            }
            Err(_) => return Err(last),
        }
        if Instant::now() + pause >= deadline {
            return Err(last);
        }
        sleep(pause).await;
        pause = (pause * 2).min(MAX_POLL_INTERVAL);
    }
}

/// State for timeout checks and progress messages.
struct StartMonitor<'a> {
    launch: &'a Launch,
    log: &'a Log,
    has_log: bool,
    started_at: MonotonicTime,
    /// Latest answer to the health check, later to the probe.
    last_answer: Mutex<String>,
}

impl StartMonitor<'_> {
    fn phase(&self) -> String {
        self.log
            .phases()
            .pop()
            .map_or_else(|| "start".to_owned(), |(phase, _)| phase)
    }

    /// The last answer of the process that is not healthy, if there are several.
    fn unhealthy(&self) -> String {
        match self.launch.members().is_empty() {
            true => String::new(),
            false => self
                .last_answer
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        }
    }

    fn note_answer(&self, answer: String) {
        *self.last_answer.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    /// Waits for a probe and notes why it got no token.
    async fn noted(&self, probe: impl Future<Output = Result<(), NoToken>>) -> Result<(), NoToken> {
        let answer = probe.await;
        if let Err(error) = &answer {
            self.note_answer(format!("the first request: {}", error.clone().reason()));
        }
        answer
    }

    /// Current progress; `phase` overrides the phase of the log and selects the timeout of the probe.
    fn progress(&self, phase: Option<&str>) -> Progress {
        let timeouts = &self.launch.timeouts;
        let limit = if phase.is_some() {
            timeouts.probe
        } else {
            timeouts.start
        };
        Progress {
            phase: phase.map_or_else(|| self.phase(), str::to_owned),
            elapsed: clock::now().since(self.started_at),
            last_line: match self.log.last_line() {
                line if line.is_empty() => self.waiting_for(limit),
                line => line,
            },
        }
    }

    /// Replaces the last log line while there is none: the latest answer and the timeout.
    fn waiting_for(&self, limit: HumanDuration) -> String {
        let answer = self.last_answer.lock().unwrap_or_else(PoisonError::into_inner);
        // A process that was just started refuses connections: that is no error yet.
        let is_starting = !self.launch.is_attached() && answer.contains("Connection refused");
        match (answer.is_empty(), is_starting) {
            (true, _) => format!("the engine has not answered yet; waiting for at most {limit}"),
            (false, true) => format!("the engine does not listen yet; waiting for at most {limit}"),
            (false, false) => format!("{answer}; waiting for at most {limit}"),
        }
    }

    /// Asks the executor to find the reason for a long silence. Returns the time of the last such query.
    fn request_check(&self, running: &RunningEngine, asked_at: MonotonicTime) -> MonotonicTime {
        let now = clock::now();
        if self.log.silence().min(now.since(asked_at)) < SILENCE_BEFORE_CHECK {
            return asked_at;
        }
        running.request_check();
        now
    }

    fn check(&self, is_loading: bool, memory_grew_at: Option<MonotonicTime>) -> Result<(), NotReady> {
        let timeouts = &self.launch.timeouts;
        let (phase, fatal_line, tail) = (self.phase(), self.log.fatal_line().map(Box::new), self.log.tail());
        if clock::now().since(self.started_at) >= timeouts.start.duration() {
            return Err(NotReady::TimedOut {
                unhealthy: self.unhealthy(),
                limit: timeouts.start,
                phase,
                fatal_line,
                tail,
            });
        }
        let still = memory_grew_at.map_or(Duration::MAX, |at| clock::now().since(at));
        if is_loading && self.has_log && self.log.silence().min(still) >= timeouts.stall.duration() {
            return Err(NotReady::Stalled {
                unhealthy: self.unhealthy(),
                limit: timeouts.stall,
                is_memory_watched: memory_grew_at.is_some(),
                phase,
                fatal_line,
                tail,
            });
        }
        Ok(())
    }

    fn no_token_error(&self, error: NoToken) -> NotReady {
        let tail = self.log.tail();
        match error {
            NoToken::Refused(reason) => NotReady::Refused { reason, tail },
            NoToken::Unusable(reason) => NotReady::Unusable { reason, tail },
            error => NotReady::FalseHealth {
                health: self.launch.api.health.clone(),
                limit: self.launch.timeouts.probe,
                reason: error.reason(),
                tail,
            },
        }
    }
}

/// Duration of each phase, from the line that announced it to the line that announced the next.
fn phase_durations(
    marks: &[(String, MonotonicTime)],
    started_at: MonotonicTime,
    healthy: MonotonicTime,
    now: MonotonicTime,
) -> Vec<(String, f64)> {
    let mut begins = vec![("start".to_owned(), started_at)];
    begins.extend(marks.iter().filter(|(_, at)| *at <= healthy).cloned());
    begins.push(("first-token".to_owned(), healthy));
    let ends: Vec<MonotonicTime> = begins.iter().skip(1).map(|(_, at)| *at).chain([now]).collect();
    begins
        .into_iter()
        .zip(ends)
        .map(|((phase, at), end)| (phase, end.since(at).as_secs_f64()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refusal_ends_the_first_request_and_what_may_come_is_waited_for() {
        let count = std::cell::Cell::new(0);
        let tried = async |answer: &dyn Fn(u32) -> Result<(), NoToken>| {
            count.set(0);
            let probe = || {
                count.set(count.get() + 1);
                std::future::ready(answer(count.get()))
            };
            (wait_for_token(&probe, Duration::from_secs(60)).await, count.get())
        };
        let (yet, refused, unknown) = (
            || Err(NoToken::NotYet("503".to_owned())),
            || Err(NoToken::Refused("401".to_owned())),
            || Err(NoToken::Unknown("404".to_owned())),
        );
        assert_eq!(tried(&|_| refused()).await, (refused(), 1));
        let unusable = || Err(NoToken::Unusable("compressed".to_owned()));
        assert_eq!(tried(&|_| unusable()).await, (unusable(), 1));
        assert_eq!(
            tried(&|_| unknown()).await,
            (Err(NoToken::Refused("404".to_owned())), MAX_UNKNOWN_ANSWERS)
        );
        let loads = |number: u32| {
            if number < MAX_UNKNOWN_ANSWERS {
                unknown()
            } else {
                Ok(())
            }
        };
        assert_eq!(tried(&loads).await, (Ok(()), MAX_UNKNOWN_ANSWERS));
        let (waited, tries) = tried(&|_| yet()).await;
        assert!(waited == yet() && tries > 30, "{tries}");
    }

    #[test]
    fn phases_are_timed_from_line_to_line() {
        let at = |seconds: u64| MonotonicTime::from_nanos(seconds * 1_000_000_000);
        let phases = [
            ("weights".to_owned(), at(3)),
            ("graphs".to_owned(), at(7)),
            ("late".to_owned(), at(12)),
        ];
        let timed = phase_durations(&phases, at(1), at(10), at(11));
        let timed: Vec<(&str, f64)> = timed
            .iter()
            .map(|(phase, seconds)| (phase.as_str(), *seconds))
            .collect();
        assert_eq!(
            timed,
            [
                ("start", 2.0),
                ("weights", 4.0),
                ("graphs", 3.0),
                ("first-token", 1.0)
            ]
        );
    }

    #[tokio::test]
    async fn a_probe_is_tried_again_until_patience_ends() {
        let tries = std::cell::Cell::new(0);
        let third = || {
            tries.set(tries.get() + 1);
            let result = if tries.get() < 3 {
                Err(NoToken::NotYet("503".to_owned()))
            } else {
                Ok(())
            };
            async move { result }
        };
        assert_eq!(wait_for_token(&third, Duration::from_secs(20)).await, Ok(()));
        let short = Duration::from_millis(150);
        let never = || async { Err(NoToken::NotYet("404".to_owned())) };
        assert_eq!(
            wait_for_token(&never, short).await,
            Err(NoToken::NotYet("404".to_owned()))
        );
        let silent = std::future::pending::<Result<(), NoToken>>;
        assert_eq!(
            wait_for_token(&silent, short).await,
            Err(NoToken::NotYet("no response".to_owned()))
        );
    }
}
