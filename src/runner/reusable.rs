//! What an unlimited prefix cache would hold of each prompt of a load of sessions, in the order of sending.

use std::sync::Arc;

use crate::config::dataset::Dataset;
use crate::config::scenario::Scenario;
use crate::loadgen::dataset::sessions::unlimited_cache::UnlimitedCache;
use crate::loadgen::dataset::template::ChatTemplate;
use crate::loadgen::dataset::tokenizer::Tokenizer;
use crate::loadgen::{Content, PlannedRequest};
use crate::results::record::request::Request;
use crate::runner::prompt_store::PreparedWorkload;

/// The prompts of a load of sessions, kept until their order of sending is known.
pub(super) struct SentPrompts {
    /// Tokens of a block of the cache.
    block: u32,
    priming: Vec<Content>,
    prompts: Vec<Content>,
}

impl SentPrompts {
    /// Keeps the prompts of a load of sessions; `None` for other loads, and if a prompt contains an answer that is
    /// known only later.
    pub(super) fn keep(
        scenario: &Scenario,
        priming: &[PlannedRequest],
        items: &[PlannedRequest],
    ) -> Option<Self> {
        let Dataset::AgenticSessions(dataset) = &scenario.workload.dataset else {
            return None;
        };
        let continues = |item: &PlannedRequest| item.session().is_some_and(|link| link.continues.is_some());
        if items.iter().any(continues) {
            return None;
        }
        let contents = |items: &[PlannedRequest]| items.iter().map(|item| item.content.clone()).collect();
        Some(Self {
            block: dataset.replay().cache_block(),
            priming: contents(priming),
            prompts: contents(items),
        })
    }

    /// Sets what could be reused of each prompt, off the timed path. Leaves it unknown if a prompt cannot be
    /// tokenized as the server does.
    pub(super) async fn count(
        self,
        mut requests: Vec<Request>,
        workload: &Arc<PreparedWorkload>,
    ) -> Vec<Request> {
        let workload = Arc::clone(workload);
        let counting = tokio::task::spawn_blocking(move || {
            if let Some(counts) = self.counts(&requests, &workload.tokenizer) {
                for (request, reusable) in requests.iter_mut().zip(counts) {
                    request.reusable_prompt = reusable;
                }
            }
            requests
        });
        counting.await.expect("counting reusable tokens does not panic")
    }

    fn counts(&self, requests: &[Request], tokenizer: &Tokenizer) -> Option<Vec<Option<u32>>> {
        let mut reader = TokenReader {
            tokenizer,
            template: None,
        };
        let mut cache = UnlimitedCache::new(self.block);
        for prompt in &self.priming {
            cache.add(&reader.tokens(prompt)?);
        }
        let mut order: Vec<usize> = (0..requests.len()).collect();
        // What was not answered at all may not have been computed either.
        order.retain(|place| !requests[*place].is_failed() || !requests[*place].chunks.is_empty());
        order.sort_by_key(|place| (requests[*place].sent_ns, *place));
        let mut counts = vec![None; requests.len()];
        for place in order {
            let prompt = self.prompts.get(requests[place].index as usize)?;
            let reusable = cache.add(&reader.tokens(prompt)?);
            counts[place] = u32::try_from(reusable).ok();
        }
        Some(counts)
    }
}

/// Reads the tokens of prompts as the server does.
struct TokenReader<'t> {
    tokenizer: &'t Tokenizer,
    /// Opened when it is needed.
    template: Option<ChatTemplate>,
}

impl TokenReader<'_> {
    fn tokens(&mut self, prompt: &Content) -> Option<Vec<u32>> {
        match prompt {
            Content::Ids(ids) => Some(ids.to_vec()),
            Content::Text(text) => self.tokenizer.encode(text, true).ok(),
            Content::Messages(messages) => {
                if self.template.is_none() {
                    self.template = Some(ChatTemplate::open(self.tokenizer).ok()?);
                }
                let text = self.template.as_ref()?.render(messages, None, true).ok()?;
                self.tokenizer.encode(&text, false).ok()
            }
            Content::Images { .. } | Content::Audio(_) => None,
        }
    }
}
