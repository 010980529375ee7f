//! Provides the tokens of one request at their times.

use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::base::clock::Moment;
use crate::sim::batching::{Emission, Submission};
use crate::sim::dialect::Ask;
use crate::sim::engine::Engine;
use crate::sim::options::{Schedule, Timing};
use crate::sim::rng::Draw;
use crate::sim::scheduler::Order;

#[derive(Debug)]
pub(crate) enum Source {
    Batch(Ticket),
    Exact {
        due: Moment,
        schedule: Schedule,
        draw: Draw,
        left: usize,
    },
    Flood {
        left: usize,
    },
}

/// A request in the batch. Drop aborts it.
#[derive(Debug)]
pub(crate) struct Ticket {
    id: u64,
    orders: UnboundedSender<Order>,
    tokens: UnboundedReceiver<Emission>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // It fails only if the batch has ended.
        let _ = self.orders.send(Order::Abort(self.id));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub cached: usize,
    pub is_last: bool,
}

impl Source {
    /// The source of tokens for request `number`; `arrived` is the time of its first byte.
    pub(crate) fn open(engine: &Engine, ask: &Ask, number: u64, arrived: Moment) -> Self {
        match (&engine.options.timing, &engine.orders) {
            (Timing::Batched(_), Some(orders)) => {
                let (sender, tokens) = mpsc::unbounded_channel();
                let submission = Submission {
                    id: number,
                    prompt: ask.prompt.clone(),
                    output: ask.output,
                    key: ask.key,
                };
                // If the batch has ended, the channel closes and `next` returns `None`.
                let _ = orders.send(Order::Submit(submission, sender));
                Self::Batch(Ticket {
                    id: number,
                    orders: orders.clone(),
                    tokens,
                })
            }
            (Timing::Exact(schedule), _) => {
                let mut draw = Draw::new(engine.options.seed, ask.key);
                let due = arrived.plus(spread(schedule.ttft, schedule.spread, &mut draw));
                Self::Exact {
                    due,
                    schedule: *schedule,
                    draw,
                    left: ask.output,
                }
            }
            (Timing::Flood { .. } | Timing::Batched(_), _) => Self::Flood { left: ask.output },
        }
    }

    /// Waits until the next token is due; `None` if the engine is closing. Cancel-safe.
    pub(crate) async fn next(&mut self, engine: &Engine) -> Option<Token> {
        match self {
            Self::Batch(ticket) => {
                let Emission { cached, is_last, .. } = ticket.tokens.recv().await?;
                Some(Token { cached, is_last })
            }
            Self::Exact {
                due,
                schedule,
                draw,
                left,
            } => {
                engine.metronome.until(*due).await;
                *due = due.plus(spread(schedule.itl, schedule.spread, draw));
                *left -= 1;
                Some(Token {
                    cached: 0,
                    is_last: *left == 0,
                })
            }
            Self::Flood { left } => {
                *left -= 1;
                Some(Token {
                    cached: 0,
                    is_last: *left == 0,
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

fn spread(time: Duration, share: f64, draw: &mut Draw) -> Duration {
    if share == 0.0 {
        time
    } else {
        time.mul_f64(draw.around_one(share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_fixed_by_seed_and_prompt_and_stays_in_bounds() {
        let time = Duration::from_millis(100);
        let times = |seed, key| {
            let mut draw = Draw::new(seed, key);
            (0..1000)
                .map(|_| spread(time, 0.3, &mut draw))
                .collect::<Vec<_>>()
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
        assert_eq!(spread(time, 0.0, &mut Draw::new(1, 2)), time);
    }
}
