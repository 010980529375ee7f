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
            self.count_with(&mut requests, &workload.tokenizer);
            requests
        });
        counting.await.expect("counting reusable tokens does not panic")
    }

    fn count_with(&self, requests: &mut [Request], tokenizer: &Tokenizer) {
        let counts = self.counts(requests, tokenizer).unwrap_or_default();
        for (place, count) in counts {
            let request = &mut requests[place];
            request.reusable_prompt = Some(count.reusable);
            request.queried_prompt = Some(count.queried).filter(|queried| *queried != request.prompt_tokens);
        }
    }

    /// Returns the counts of the requests that may have reached the cache, each with its place among the requests.
    fn counts(&self, requests: &[Request], tokenizer: &Tokenizer) -> Option<Vec<(usize, PrefixCount)>> {
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
        let count = |place: usize| {
            let prompt = self.prompts.get(requests[place].index as usize)?;
            let tokens = reader.tokens(prompt)?;
            let count = PrefixCount {
                reusable: u32::try_from(cache.add(&tokens)).ok()?,
                queried: u32::try_from(tokens.len()).ok()?,
            };
            Some((place, count))
        };
        order.into_iter().map(count).collect()
    }
}

/// Tokens of one prompt.
struct PrefixCount {
    /// Those that the cache held.
    reusable: u32,
    /// All of them.
    queried: u32,
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::analysis::metrics;
    use crate::loadgen::dataset::Caches;
    use crate::results::record::request::{Chunk, ChunkKind, Failure, RequestFailureClass};

    /// An answered request that was sent as the `index`-th.
    fn request(index: u32, prompt_tokens: u32) -> Request {
        let record = json!({
            "index": index, "prompt_tokens": prompt_tokens, "requested_tokens": 1, "due_ns": 0, "sent_ns": 10 * index, "chunks": [],
            "end_ns": 10 * index + 5,
        });
        let mut request: Request = serde_json::from_value(record).unwrap();
        request.chunks.push(Chunk {
            at_ns: u64::from(10 * index + 4),
            kind: ChunkKind::Answer,
            tokens: None,
            bytes: 1,
        });
        request
    }

    fn reusable(requests: &[Request]) -> Vec<Option<u32>> {
        requests.iter().map(|request| request.reusable_prompt).collect()
    }

    #[test]
    fn a_request_without_any_output_leaves_no_blocks() {
        let ids = Content::Ids((0..9).collect::<Vec<u32>>().into());
        let sent = SentPrompts {
            block: 4,
            priming: Vec::new(),
            prompts: vec![ids; 4],
        };
        let mut requests: Vec<Request> = (0..4).map(|index| request(index, 9)).collect();
        let failure = Failure {
            class: RequestFailureClass::Refused,
            message: "connection refused".to_owned(),
        };
        // The second one began to answer, so its prompt was computed.
        requests[0].failure = Some(failure.clone());
        requests[0].chunks = Default::default();
        requests[1].failure = Some(failure);
        // Sent last, although it stands before another.
        requests[2].sent_ns = Some(1000);
        sent.count_with(&mut requests, &Tokenizer::bytes());
        assert_eq!(reusable(&requests), [None, Some(0), Some(8), Some(8)]);
        assert_eq!(metrics::theoretical_hit_share(&requests), Some(16.0 / 18.0));
    }

    #[test]
    fn what_fills_the_cache_before_the_load_is_found() {
        let ids = |count: u32| Content::Ids((0..count).collect::<Vec<u32>>().into());
        let sent = SentPrompts {
            block: 4,
            priming: vec![ids(8)],
            prompts: vec![ids(13)],
        };
        let mut requests = [request(0, 13)];
        sent.count_with(&mut requests, &Tokenizer::bytes());
        assert_eq!(reusable(&requests), [Some(8)]);
        assert_eq!(requests[0].queried_prompt, None, "it is the data set's count");
    }

    /// A server may report any number of prompt tokens; the possible hit rate follows from our own count alone.
    #[test]
    fn the_possible_hits_of_chats_are_a_share_of_the_prompt_with_its_template() {
        let folder = tempfile::tempdir().unwrap();
        let shipped = Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/matrices/data/tokenizer.json"
        ));
        fs::copy(shipped, folder.path().join("tokenizer.json")).unwrap();
        let template = "{% for message in messages %}turn of {{ message.role }}: {{ message.content }} end. {% endfor %}";
        fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
        let tokenizer = Tokenizer::open("tokenizer.json", folder.path(), &Caches::default()).unwrap();
        let message = json!({"role": "user", "content": "one two three"});
        let sent = SentPrompts {
            block: 1,
            priming: Vec::new(),
            prompts: vec![Content::Messages(vec![message]); 2],
        };
        let rendered = tokenizer
            .encode("turn of user: one two three end. ", false)
            .unwrap();
        let whole = u32::try_from(rendered.len()).unwrap();
        let mut requests = [request(0, 3), request(1, 3)];
        for request in &mut requests {
            request.usage = serde_json::from_value(json!({"prompt": 1})).unwrap();
        }
        sent.count_with(&mut requests, &tokenizer);
        assert_eq!(reusable(&requests), [Some(0), Some(whole - 1)]);
        assert_eq!(requests[1].queried_prompt, Some(whole));
        let share = f64::from(whole - 1) / f64::from(2 * whole);
        assert_eq!(metrics::theoretical_hit_share(&requests), Some(share));
    }
}
