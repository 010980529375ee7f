//! Pauses between the turns of sessions and conversations: recorded or drawn, and cut to the longest.

use std::sync::Arc;
use std::time::Duration;

use crate::base::units::HumanDuration;
use crate::config::pacing::{ThinkTime, capped};
use crate::config::scenario::Scenario;
use crate::loadgen::PlannedRequest;
use crate::loadgen::dataset::rng::Numpy;

/// Draws pauses apart from prompts and arrivals, so that these stay the same with any think time.
const SALT: u64 = 0x7061_7573;

/// Sets the pauses of requests, in their order.
pub(super) struct Pauses {
    think_time: Option<ThinkTime>,
    longest: Option<HumanDuration>,
    draws: Numpy,
}

impl Pauses {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            think_time: scenario.pacing.think_time,
            longest: scenario.pacing.max_idle,
            // The generator takes 32 bits.
            draws: Numpy::new((scenario.seed ^ SALT) as u32),
        }
    }

    pub(super) fn set(&mut self, mut item: PlannedRequest) -> PlannedRequest {
        let Some(extras) = &mut item.extras else {
            return item;
        };
        if let Some(link) = &extras.session {
            // What waits for nothing is no turn, but begins with its session.
            let recorded = link.delay;
            let pause = match link.after.is_empty() {
                true => recorded,
                false => self.draw().unwrap_or(recorded),
            };
            let pause = capped(pause, self.longest);
            if pause != recorded
                && let Some(link) = &mut Arc::make_mut(extras).session
            {
                link.delay = pause;
            }
        } else if let Some(turns) = extras.turns.as_ref().map(Vec::len)
            && self.think_time.is_some()
        {
            let pause = |_| capped(self.draw().unwrap_or_default(), self.longest);
            Arc::make_mut(extras).pauses = Some((0..turns).map(pause).collect());
        }
        item
    }

    /// Draws a pause; `None` for recorded ones.
    fn draw(&mut self) -> Option<Duration> {
        let seconds = |pause: HumanDuration| pause.duration().as_secs_f64();
        let drawn = match self.think_time? {
            ThinkTime::Recorded => return None,
            ThinkTime::Fixed(pause) => return Some(pause.duration()),
            ThinkTime::Exponential { mean } => self.draws.exponential(1.0) * seconds(mean),
            ThinkTime::Lognormal { median, sigma } => seconds(median) * (sigma * self.draws.normal()).exp(),
        };
        Some(Duration::try_from_secs_f64(drawn).unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::loadgen::Content;
    use crate::loadgen::dataset::{Extras, SessionLink};
    use crate::results::store::testing;

    fn pauses(think_time: &str, max_idle: Option<u64>) -> Pauses {
        let mut scenario = testing::plan().cells[0].scenario.clone();
        scenario.pacing.think_time = Some(think_time.parse().unwrap());
        scenario.pacing.max_idle = max_idle.map(HumanDuration::from_secs);
        Pauses::new(&scenario)
    }

    fn item(extras: Extras) -> PlannedRequest {
        PlannedRequest {
            content: Content::Text("a".to_owned().into()),
            prompt_tokens: 1,
            requested_tokens: 1,
            due: Duration::ZERO,
            lora_adapter: None,
            extras: Some(Arc::new(extras)),
        }
    }

    fn conversation(turns: usize) -> PlannedRequest {
        item(Extras {
            turns: Some(vec![vec![json!({"role": "user", "content": "b"})]; turns]),
            ..Extras::default()
        })
    }

    fn drawn(pauses: &mut Pauses, turns: usize) -> Vec<Duration> {
        let item = pauses.set(conversation(turns));
        item.extras.unwrap().pauses.clone().unwrap()
    }

    #[test]
    fn drawn_pauses_follow_seed_and_distribution() {
        let seconds =
            |pauses: &[Duration]| pauses.iter().map(Duration::as_secs_f64).sum::<f64>() / pauses.len() as f64;
        let exponential = drawn(&mut pauses("exponential:2s", None), 20_000);
        assert_eq!(exponential, drawn(&mut pauses("exponential:2s", None), 20_000));
        // Six standard deviations of the mean of so many draws are 4 %.
        assert!(
            (seconds(&exponential) - 2.0).abs() < 0.1,
            "{}",
            seconds(&exponential)
        );
        let mut lognormal = drawn(&mut pauses("lognormal:2s:0.5", None), 20_000);
        lognormal.sort();
        assert!(
            (lognormal[10_000].as_secs_f64() - 2.0).abs() < 0.1,
            "{:?}",
            lognormal[10_000]
        );
        assert!((seconds(&lognormal) - 2.0 * 0.125_f64.exp()).abs() < 0.1);
        let capped = drawn(&mut pauses("exponential:2s", Some(1)), 1_000);
        assert_eq!(capped.iter().max(), Some(&Duration::from_secs(1)));
        assert!(capped.iter().any(|pause| *pause < Duration::from_secs(1)));
    }

    #[test]
    fn recorded_pauses_stay_and_are_cut() {
        let request = |after: &[u32], seconds: u64| {
            item(Extras {
                session: Some(SessionLink {
                    after: after.to_vec(),
                    delay: Duration::from_secs(seconds),
                    ..SessionLink::default()
                }),
                ..Extras::default()
            })
        };
        let pause = |item: PlannedRequest| item.session().unwrap().delay.as_secs();
        let mut recorded = pauses("recorded", Some(60));
        assert_eq!(pause(recorded.set(request(&[0], 30))), 30);
        assert_eq!(pause(recorded.set(request(&[0], 90))), 60);
        let mut fixed = pauses("5s", None);
        assert_eq!(pause(fixed.set(request(&[0], 30))), 5);
        assert_eq!(pause(fixed.set(request(&[], 30))), 30, "it is no turn");
    }

    #[test]
    fn without_a_think_time_turns_follow_at_once() {
        let scenario = testing::plan().cells[0].scenario.clone();
        let item = Pauses::new(&scenario).set(conversation(2));
        assert_eq!(item.extras.unwrap().pauses, None);
    }
}
