//! Starts at drawn places of sessions, and the prompts that fill the cache for them.

use std::time::Duration;

use super::super::rng::Python;
use super::super::{Content, DatasetError, Prompt};
use super::recorded::{RecordedRequest, RecordedSession};

/// Draws where sessions begin.
pub(super) struct Starts(Python);

impl Starts {
    pub(super) fn new(seed: u64) -> Self {
        Self(Python::new(seed))
    }

    /// Draws the first request of a session, and returns those before it and the session that is left. What waited
    /// only for those before it begins with the session; the earliest of these at once.
    pub(super) fn cut(
        &mut self,
        mut session: RecordedSession,
    ) -> Result<(Vec<RecordedRequest>, RecordedSession), DatasetError> {
        let count = session.requests.len();
        if count == 0 {
            return Ok((Vec::new(), session));
        }
        if let Some(request) = session
            .requests
            .iter()
            .find(|request| request.continues.is_some())
        {
            return Err(request.place.malformed(
                "the prompt of this request contains the answer to an earlier request of its session, so that earlier request must \
                 be sent too; set `start: first`",
            ));
        }
        let start = self.0.below(count as u64) as usize;
        let rest = session.requests.split_off(start);
        let history = std::mem::replace(&mut session.requests, rest);
        for request in &mut session.requests {
            request.after = request
                .after
                .iter()
                .filter_map(|before| before.checked_sub(start))
                .collect();
        }
        let first = |request: &&mut RecordedRequest| request.after.is_empty();
        let earliest = session
            .requests
            .iter_mut()
            .filter(first)
            .map(|request| request.delay)
            .min();
        let earliest = earliest.unwrap_or(Duration::ZERO);
        for request in session.requests.iter_mut().filter(first) {
            request.delay = request.delay.saturating_sub(earliest);
        }
        Ok((history, session))
    }
}

/// Returns the prompts that are not the beginning of another, each asking for one token: after them, a prefix cache
/// holds the blocks of all.
pub(super) fn longest_prompts(prompts: Vec<Prompt>) -> Vec<Prompt> {
    let is_part = |one: &Prompt, other: &Prompt| match (&one.content, &other.content) {
        (Content::Ids(one), Content::Ids(other)) => other.starts_with(one),
        (Content::Messages(one), Content::Messages(other)) => other.starts_with(one),
        _ => false,
    };
    let mut longest: Vec<Prompt> = Vec::new();
    // The latest prompts are usually the longest.
    for mut prompt in prompts.into_iter().rev() {
        if !longest.iter().any(|other| is_part(&prompt, other)) {
            longest.retain(|other| !is_part(other, &prompt));
            prompt.output_tokens = 1;
            longest.push(prompt);
        }
    }
    longest.reverse();
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_that_others_begin_with_are_left_out() {
        let prompt = |ids: &[u32]| Prompt::new(Content::Ids(ids.to_vec().into()), ids.len() as u32, 9);
        let longest = longest_prompts(vec![
            prompt(&[1, 2]),
            prompt(&[1, 2, 3]),
            prompt(&[4]),
            prompt(&[1, 2]),
            prompt(&[1, 2, 9]),
        ]);
        let kept: Vec<u32> = longest.iter().map(|prompt| prompt.prompt_tokens).collect();
        assert_eq!(kept, [3, 1, 3]);
        assert!(longest.iter().all(|prompt| prompt.output_tokens == 1));
    }
}
