//! Waits until an engine returns its first real token, dies, or exceeds a timeout.
//!
//! A successful health check is not enough: some engines report that they are healthy and then return
//! nothing, or return the first token 15 seconds later.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::base::clock::{self, Moment};
use crate::base::units::Span;
use crate::engine::api;
use crate::engine::executor::launcher;
use crate::engine::log::{Log, Omen};
use crate::engine::running::{Death, Running};
use crate::engine::shared_memory;
use crate::engine::start_progress::Progress;
use crate::plan::Launch;
use crate::results::record::cell::FailureClass;
use crate::results::record::post_mortem::End;

/// First pause between two health checks; it grows up to [`SLOWEST`].
const QUICKEST: Duration = Duration::from_millis(100);

/// Longest pause between two health checks.
const SLOWEST: Duration = Duration::from_secs(1);

/// Timeout of one health check. Some engines process a small request to answer it.
const LOOK: Duration = Duration::from_secs(20);

/// Silence of the log after which the executor is asked for the reason.
const STILL: Duration = Duration::from_secs(5);

/// Interval of timeout checks and progress messages.
const BEAT: Duration = Duration::from_millis(500);

/// Duration of a successful start.
#[derive(Clone, Debug)]
pub(crate) struct Readiness {
    /// Seconds from the start of the process to the first real token.
    pub seconds: f64,
    /// Phases recognised in the log, with seconds. `start` is the time before the first of them, and
    /// `first-token` the time between the first successful health check and the first token.
    pub phases: Vec<(String, f64)>,
}

/// Why a readiness probe got no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoToken {
    /// Temporary: a later probe may succeed.
    Yet(String),
    /// The engine rejects the content of the request. A retry would get the same answer.
    Refused(String),
    /// The engine's answer cannot be measured. A retry would get the same answer.
    Unusable(String),
    /// The engine does not know the model or path. Some engines say so until the model is loaded.
    Unknown(String),
}

impl NoToken {
    fn reason(self) -> String {
        match self {
            Self::Yet(reason) | Self::Refused(reason) | Self::Unusable(reason) | Self::Unknown(reason) => {
                reason
            }
        }
    }
}

/// After this many consecutive [`NoToken::Unknown`] answers the model is considered unknown.
const UNKNOWN: u32 = 3;

#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum NotReady {
    #[error("the engine {status} before it was ready{}", explained(omen.as_deref()))]
    Ended {
        status: String,
        /// The log line that explains it.
        omen: Option<Box<Omen>>,
        end: End,
        class: FailureClass,
        tail: Vec<String>,
    },
    /// A log line says that the engine is dead, although its process runs.
    #[error(
        "the engine's log says that it is dead before it was ready{}",
        explained(Some(omen))
    )]
    Fatal { omen: Box<Omen>, tail: Vec<String> },
    /// No log output and no growth of GPU memory for `limit`.
    #[error(
        "the engine hangs: nothing came to its log for {limit} while `{phase}`{}, and it is not healthy{}; if it only needs longer, raise \
         `timeouts: {{ stall: … }}`",
        match is_watched { true => ", its GPUs took no more memory", false => "" },
        explained(omen.as_deref())
    )]
    Stalled {
        /// `timeouts: { stall }` of the recipe.
        limit: Span,
        /// Whether GPU memory was watched as well.
        is_watched: bool,
        phase: String,
        /// The log line that explains it.
        omen: Option<Box<Omen>>,
        tail: Vec<String>,
    },
    #[error(
        "the engine was not ready within {limit} (it was at `{phase}`){}; if it only needs longer, raise `timeouts: {{ start: … }}`",
        explained(omen.as_deref())
    )]
    Late {
        /// `timeouts: { start }` of the recipe.
        limit: Span,
        phase: String,
        /// The log line that explains it.
        omen: Option<Box<Omen>>,
        tail: Vec<String>,
    },
    #[error("the engine is healthy and refuses the first request: {reason}")]
    Refused {
        /// The engine's answer, and how to fix it.
        reason: String,
        tail: Vec<String>,
    },
    #[error("the engine is healthy and its answers cannot be measured: {reason}")]
    Unusable {
        /// The reason, and how to fix it.
        reason: String,
        tail: Vec<String>,
    },
    #[error(
        "the engine says it is healthy (`{health}` answers 200), yet gave no token within {limit}: {reason}; if it only needs longer, \
         raise `timeouts: {{ probe: … }}`"
    )]
    Liar {
        health: String,
        /// `timeouts: { probe }` of the recipe.
        limit: Span,
        /// Result of the last probe.
        reason: String,
        tail: Vec<String>,
    },
}

fn explained(omen: Option<&Omen>) -> String {
    omen.map_or_else(String::new, |omen| format!(": {}", omen.explains()))
}

impl NotReady {
    pub(crate) fn class(&self) -> FailureClass {
        let omen = match self {
            Self::Ended { class, .. } => return *class,
            Self::Stalled { omen, .. } | Self::Late { omen, .. } => omen.as_deref(),
            Self::Fatal { omen, .. } => Some(&**omen),
            Self::Refused { .. } | Self::Unusable { .. } => return FailureClass::Spec,
            Self::Liar { .. } => None,
        };
        omen.map_or(FailureClass::Engine, Omen::class)
    }

    /// Exit code and signal, if the engine exited.
    pub(crate) const fn end(&self) -> Option<End> {
        match self {
            Self::Ended { end, .. } => Some(*end),
            Self::Fatal { .. }
            | Self::Stalled { .. }
            | Self::Late { .. }
            | Self::Refused { .. }
            | Self::Unusable { .. }
            | Self::Liar { .. } => None,
        }
    }

    pub(crate) fn tail(&self) -> &[String] {
        match self {
            Self::Ended { tail, .. }
            | Self::Fatal { tail, .. }
            | Self::Stalled { tail, .. }
            | Self::Late { tail, .. }
            | Self::Refused { tail, .. }
            | Self::Unusable { tail, .. }
            | Self::Liar { tail, .. } => tail,
        }
    }

    fn dead(death: Death) -> Self {
        let Death {
            status,
            tail,
            omen,
            end,
            class,
        } = death;
        match (omen.map(Box::new), end) {
            (Some(omen), None) => Self::Fatal { omen, tail },
            (omen, end) => Self::Ended {
                status,
                omen,
                end: end.unwrap_or_default(),
                class,
                tail,
            },
        }
    }
}

/// Waits until the health check succeeds and then `probe` succeeds (one real token; the runner provides it),
/// the engine is dead, or a timeout passes. Calls `progress` at least once a second. `grown` is the last time
/// that the engine's GPU memory grew, which counts as a sign of life like log output; it returns `None` if
/// GPU memory is not watched.
///
/// Does not stop the engine on failure.
pub(crate) async fn ready<P, F>(
    running: &mut Running,
    launch: &Launch,
    http: &reqwest::Client,
    probe: P,
    grown: impl Fn() -> Option<Moment>,
    mut progress: impl FnMut(Progress),
) -> Result<Readiness, NotReady>
where
    P: Fn() -> F,
    F: Future<Output = Result<(), NoToken>>,
{
    let began = running.began();
    let (log, endpoint, is_audible) = (
        running.log().clone(),
        running.endpoint().clone(),
        running.is_audible(),
    );
    let watch = Watch {
        launch,
        log: &log,
        is_audible,
        began,
        answer: Mutex::default(),
    };
    let mut healthy_at = None;
    let mut asked_at = began;
    {
        let mut beat = tokio::time::interval(BEAT);
        let looking = healthy(http, &endpoint, launch, &watch.answer);
        tokio::pin!(looking);
        let mut alarm = running.alarm.take().unwrap_or_else(shared_memory::Alarm::silent);
        while healthy_at.is_none() {
            tokio::select! {
                biased;
                death = running.exited() => return Err(NotReady::dead(death)),
                () = alarm.rings() => running.look().await,
                () = &mut looking => healthy_at = Some(clock::now()),
                _ = beat.tick() => {
                    progress(watch.progress(None));
                    asked_at = watch.suspect(running, asked_at);
                    // While the daemon is unreachable, no log output can arrive.
                    watch.check(!running.is_unheard(), grown())?;
                    running.look().await;
                }
            }
        }
        running.look().await;
        let noted = || async {
            let answer = probe().await;
            if let Err(wrong) = &answer {
                watch.note(format!("the first request: {}", wrong.clone().reason()));
            }
            answer
        };
        watch.note(String::new());
        let probing = proven(&noted, launch.patience.probe.duration());
        tokio::pin!(probing);
        loop {
            tokio::select! {
                biased;
                death = running.exited() => return Err(NotReady::dead(death)),
                proof = &mut probing => {
                    proof.map_err(|wrong| watch.lied(wrong))?;
                    break;
                }
                _ = beat.tick() => {
                    progress(watch.progress(Some("first-token")));
                    asked_at = watch.suspect(running, asked_at);
                    watch.check(false, None)?;
                }
            }
        }
    }
    let now = clock::now();
    Ok(Readiness {
        seconds: now.since(began).as_secs_f64(),
        phases: phases(&log.phases(), began, healthy_at.unwrap_or(now), now),
    })
}

/// Checks health until a path answers 200. `answer` holds the latest answer.
async fn healthy(
    http: &reqwest::Client,
    endpoint: &crate::engine::endpoint::Endpoint,
    launch: &Launch,
    answer: &Mutex<String>,
) {
    let mut pause = QUICKEST;
    loop {
        for path in launcher::of(&launch.place).health_paths(launch) {
            let told = match api::status(http, endpoint, path, LOOK).await {
                Ok(200) => return,
                Ok(status) => format!("{} answers {status}", endpoint.url(path)),
                Err(reason) => format!("{}: {reason}", endpoint.url(path)),
            };
            let is_missing = told.ends_with(" 404");
            *answer.lock().unwrap_or_else(PoisonError::into_inner) = told;
            // Other paths are tried only if this one does not exist.
            if !is_missing {
                break;
            }
        }
        sleep(pause).await;
        pause = (pause * 5 / 4).min(SLOWEST);
    }
}

/// Probes until a token arrives or `limit` passes. An engine may refuse requests shortly after it reports
/// healthy.
async fn proven<P, F>(probe: &P, limit: Duration) -> Result<(), NoToken>
where
    P: Fn() -> F,
    F: Future<Output = Result<(), NoToken>>,
{
    let deadline = Instant::now() + limit;
    let mut last = NoToken::Yet("no answer".to_owned());
    let mut pause = QUICKEST;
    let mut unknown = 0;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match timeout(left, probe()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(lasting @ (NoToken::Refused(_) | NoToken::Unusable(_)))) => return Err(lasting),
            Ok(Err(NoToken::Unknown(reason))) if unknown + 1 == UNKNOWN => {
                return Err(NoToken::Refused(reason));
            }
            Ok(Err(wrong)) => {
                unknown = match wrong {
                    NoToken::Unknown(_) => unknown + 1,
                    _ => 0,
                };
                last = wrong;
            }
            Err(_) => return Err(last),
        }
        if Instant::now() + pause >= deadline {
            return Err(last);
        }
        sleep(pause).await;
        pause = (pause * 2).min(SLOWEST);
    }
}

/// State for timeout checks and progress messages.
struct Watch<'a> {
    launch: &'a Launch,
    log: &'a Log,
    is_audible: bool,
    began: Moment,
    /// Latest answer to the health check, later to the probe.
    answer: Mutex<String>,
}

impl Watch<'_> {
    fn phase(&self) -> String {
        self.log
            .phases()
            .pop()
            .map_or_else(|| "start".to_owned(), |(phase, _)| phase)
    }

    fn note(&self, answer: String) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    /// Current progress; `phase` overrides the phase of the log and selects the timeout of the probe.
    fn progress(&self, phase: Option<&str>) -> Progress {
        let patience = &self.launch.patience;
        let limit = if phase.is_some() {
            patience.probe
        } else {
            patience.start
        };
        Progress {
            phase: phase.map_or_else(|| self.phase(), str::to_owned),
            elapsed: clock::now().since(self.began),
            last_line: match self.log.last_line() {
                line if line.is_empty() => self.waits(limit),
                line => line,
            },
        }
    }

    /// Replaces the last log line while there is none: the latest answer and the timeout.
    fn waits(&self, limit: Span) -> String {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        match answer.is_empty() {
            true => format!("waits {limit} at most"),
            false => format!("{answer}; waits {limit} at most"),
        }
    }

    /// Asks the executor to find the reason for a long silence. Returns the time of the last such query.
    fn suspect(&self, running: &Running, asked_at: Moment) -> Moment {
        let now = clock::now();
        if self.log.silence().min(now.since(asked_at)) < STILL {
            return asked_at;
        }
        running.suspect();
        now
    }

    fn check(&self, is_loading: bool, grown: Option<Moment>) -> Result<(), NotReady> {
        let patience = &self.launch.patience;
        let (phase, omen, tail) = (self.phase(), self.log.omen().map(Box::new), self.log.tail());
        if clock::now().since(self.began) >= patience.start.duration() {
            return Err(NotReady::Late {
                limit: patience.start,
                phase,
                omen,
                tail,
            });
        }
        let still = grown.map_or(Duration::MAX, |at| clock::now().since(at));
        if is_loading && self.is_audible && self.log.silence().min(still) >= patience.stall.duration() {
            return Err(NotReady::Stalled {
                limit: patience.stall,
                is_watched: grown.is_some(),
                phase,
                omen,
                tail,
            });
        }
        Ok(())
    }

    fn lied(&self, wrong: NoToken) -> NotReady {
        let tail = self.log.tail();
        match wrong {
            NoToken::Refused(reason) => NotReady::Refused { reason, tail },
            NoToken::Unusable(reason) => NotReady::Unusable { reason, tail },
            wrong => NotReady::Liar {
                health: self.launch.contact.health.clone(),
                limit: self.launch.patience.probe,
                reason: wrong.reason(),
                tail,
            },
        }
    }
}

/// Duration of each phase, from the line that announced it to the line that announced the next.
fn phases(told: &[(String, Moment)], began: Moment, healthy: Moment, now: Moment) -> Vec<(String, f64)> {
    let mut begins = vec![("start".to_owned(), began)];
    begins.extend(told.iter().filter(|(_, at)| *at <= healthy).cloned());
    begins.push(("first-token".to_owned(), healthy));
    let ends: Vec<Moment> = begins.iter().skip(1).map(|(_, at)| *at).chain([now]).collect();
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
            (proven(&probe, Duration::from_secs(60)).await, count.get())
        };
        let (yet, refused, unknown) = (
            || Err(NoToken::Yet("503".to_owned())),
            || Err(NoToken::Refused("401".to_owned())),
            || Err(NoToken::Unknown("404".to_owned())),
        );
        assert_eq!(tried(&|_| refused()).await, (refused(), 1));
        let unusable = || Err(NoToken::Unusable("compressed".to_owned()));
        assert_eq!(tried(&|_| unusable()).await, (unusable(), 1));
        assert_eq!(
            tried(&|_| unknown()).await,
            (Err(NoToken::Refused("404".to_owned())), UNKNOWN)
        );
        let loads = |number: u32| if number < UNKNOWN { unknown() } else { Ok(()) };
        assert_eq!(tried(&loads).await, (Ok(()), UNKNOWN));
        let (waited, tries) = tried(&|_| yet()).await;
        assert!(waited == yet() && tries > 30, "{tries}");
    }

    #[test]
    fn phases_are_timed_from_line_to_line() {
        let at = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
        let told = [
            ("weights".to_owned(), at(3)),
            ("graphs".to_owned(), at(7)),
            ("late".to_owned(), at(12)),
        ];
        let timed = phases(&told, at(1), at(10), at(11));
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
                Err(NoToken::Yet("503".to_owned()))
            } else {
                Ok(())
            };
            async move { result }
        };
        assert_eq!(proven(&third, Duration::from_secs(20)).await, Ok(()));
        let short = Duration::from_millis(150);
        let never = || async { Err(NoToken::Yet("404".to_owned())) };
        assert_eq!(proven(&never, short).await, Err(NoToken::Yet("404".to_owned())));
        let silent = std::future::pending::<Result<(), NoToken>>;
        assert_eq!(
            proven(&silent, short).await,
            Err(NoToken::Yet("no answer".to_owned()))
        );
    }
}
