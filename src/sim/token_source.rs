//! Provides the tokens of one request at their times.

use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::base::clock::MonotonicTime;
use crate::sim::batching::{Submission, TokenEvent};
use crate::sim::dialect::GenerationRequest;
use crate::sim::engine::Engine;
use crate::sim::options::{Schedule, Timing};
use crate::sim::rng::Rng;
use crate::sim::role::{DisaggregationMode, Role};
use crate::sim::scheduler::BatchCommand;

#[derive(Debug)]
pub(crate) enum TokenSource {
    Batch(BatchTicket),
    Exact {
        due: MonotonicTime,
        schedule: Schedule,
        rng: Rng,
        remaining: usize,
    },
    Flood {
        remaining: usize,
    },
}

/// A request in the batch. Drop aborts it.
#[derive(Debug)]
pub(crate) struct BatchTicket {
    id: u64,
    commands: UnboundedSender<BatchCommand>,
    tokens: UnboundedReceiver<TokenEvent>,
}

impl Drop for BatchTicket {
    fn drop(&mut self) {
        // It fails only if the batch has ended.
        let _ = self.commands.send(BatchCommand::Abort(self.id));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) cached: usize,
    pub(crate) is_last: bool,
}

impl TokenSource {
    /// The source of tokens for request `number`; `arrived` is the time of its first byte.
    pub(crate) fn open(
        engine: &Engine,
        generation: &GenerationRequest,
        number: u64,
        arrived: MonotonicTime,
    ) -> Self {
        let submission = Submission {
            id: number,
            prompt: generation.prompt.clone(),
            output: generation.output_tokens,
            key: generation.key,
        };
        Self::submit(engine, submission, arrived)
    }

    /// The source of tokens for a prompt whose id no other has.
    pub(crate) fn submit(engine: &Engine, submission: Submission, arrived: MonotonicTime) -> Self {
        match (&engine.options.timing, &engine.batch_commands) {
            (Timing::Batched(_), Some(commands)) => {
                let (sender, tokens) = mpsc::unbounded_channel();
                let id = submission.id;
                // If the batch has ended, the channel closes and `next` returns `None`.
                let _ = commands.send(BatchCommand::Submit(submission, sender));
                Self::Batch(BatchTicket {
                    id,
                    commands: commands.clone(),
                    tokens,
                })
            }
            (Timing::Exact(schedule), _) => {
                let mut rng = Rng::new(engine.options.seed, submission.key);
                // A decode server receives the KV cache of the prompt, so that its first token is one like the others.
                let first = match engine.options.role {
                    Role::Disaggregated(DisaggregationMode::Decode) => schedule.itl,
                    _ => schedule.ttft,
                };
                let due = arrived.plus(vary(first, schedule.spread, &mut rng));
                Self::Exact {
                    due,
                    schedule: *schedule,
                    rng,
                    remaining: submission.output,
                }
            }
            (Timing::Flood { .. } | Timing::Batched(_), _) => Self::Flood {
                remaining: submission.output,
            },
        }
    }

    /// Waits until the next token is due; `None` if the engine is closing. Cancel-safe.
    pub(crate) async fn next(&mut self, engine: &Engine) -> Option<Token> {
        match self {
            Self::Batch(ticket) => {
                let TokenEvent { cached, is_last, .. } = ticket.tokens.recv().await?;
                Some(Token { cached, is_last })
            }
            Self::Exact {
                due,
                schedule,
                rng,
                remaining,
            } => {
                engine.timer.sleep_until(*due).await;
                engine.wait_if_stalled().await;
                *due = due.plus(vary(schedule.itl, schedule.spread, rng));
                *remaining -= 1;
                Some(Token {
                    cached: 0,
                    is_last: *remaining == 0,
                })
            }
            Self::Flood { remaining } => {
                engine.wait_if_stalled().await;
                *remaining -= 1;
                Some(Token {
                    cached: 0,
                    is_last: *remaining == 0,
                })
            }
        }
    }
}

/// Time between the tokens of an endless stream after the regular answer.
pub(crate) fn endless_gap(timing: &Timing) -> Duration {
    match timing {
        Timing::Batched(cost) => cost.step + cost.per_sequence,
        Timing::Exact(schedule) => schedule.itl,
        Timing::Flood { .. } => Duration::ZERO,
    }
}

fn vary(time: Duration, share: f64, rng: &mut Rng) -> Duration {
    if share == 0.0 {
        time
    } else {
        time.mul_f64(rng.factor(share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_fixed_by_seed_and_prompt_and_stays_in_bounds() {
        let time = Duration::from_millis(100);
        let times = |seed, key| {
            let mut rng = Rng::new(seed, key);
            (0..1000).map(|_| vary(time, 0.3, &mut rng)).collect::<Vec<_>>()
        };
        assert_eq!(times(1, 2), times(1, 2));
        assert_ne!(times(1, 2), times(1, 3));
        assert_ne!(times(1, 2), times(2, 2));
        assert!(
            times(1, 2)
                .iter()
                .all(|drawn| (time.mul_f64(0.7)..=time.mul_f64(1.3)).contains(drawn))
        );
        assert!(times(1, 2).iter().any(|drawn| *drawn < time.mul_f64(0.8)));
        assert_eq!(vary(time, 0.0, &mut Rng::new(1, 2)), time);
    }
}
