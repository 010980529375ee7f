//! Sessions: requests that wait for the end of others, and the requests of sessions and conversations whose
//! time has not come.
//!
//! A session begins with one request of the queue. When a request ends, in whatever way, those that wait for it alone
//! become due after their pause. A failed request counts as ended, and as an empty answer where its answer is
//! part of a later prompt: a session is sent as it was recorded, as in conversations.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

use serde_json::Value;

use super::concurrency_limit::Slot;
use super::conversation::answer_message;
use super::load_spec::PlannedRequest;
use super::pending::PendingRequest;
use super::request_bytes::encode_request;
use super::shared::Shared;
use crate::loadgen::dataset::{Content, SessionLink};
use crate::results::record::request::Request;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionPlace {
    /// Number of the session in the load.
    pub(super) number: u32,
    /// Index of the session in the share.
    session: usize,
    /// Position of the request in the session.
    position: usize,
}

/// The sessions of a share.
#[derive(Default)]
pub(super) struct Sessions {
    sessions: Vec<Session>,
    requests: usize,
}

struct Session {
    nodes: Vec<Node>,
    /// Number of requests that have not ended.
    unended: usize,
    /// Its slot, held until its last request has ended.
    slot: Option<Slot>,
}

/// A request of a session.
struct Node {
    /// The request until it becomes due.
    request: Option<PendingRequest>,
    /// Number of requests that it still waits for.
    waits_for: usize,
    /// Positions of the requests that wait for it.
    waiting: Vec<usize>,
    /// When the last of those that it waited for has ended, from the start of the measurement.
    ready: Duration,
    delay: Duration,
    continues: Option<usize>,
    /// The messages of its prompt with the history; `None` if its prompt needs no history.
    messages: Option<Vec<Value>>,
}

impl Sessions {
    /// Takes all requests of sessions out of a share, except the first of each session.
    pub(super) fn take(pending_requests: Vec<PendingRequest>) -> (Self, VecDeque<PendingRequest>) {
        if pending_requests.iter().all(|pending| link(pending).is_none()) {
            return (Self::default(), pending_requests.into());
        }
        let (mut all, mut queue) = (Self::default(), VecDeque::new());
        let mut last = None;
        for mut pending in pending_requests {
            let Some(link) = link(&pending).cloned() else {
                queue.push_back(pending);
                last = None;
                continue;
            };
            let is_first = last != Some(link.session);
            last = Some(link.session);
            if is_first {
                all.sessions.push(Session {
                    nodes: Vec::new(),
                    unended: 0,
                    slot: None,
                });
            }
            let number = all.sessions.len() - 1;
            let session = &mut all.sessions[number];
            pending.place = Some(SessionPlace {
                number: link.session,
                session: number,
                position: session.nodes.len(),
            });
            let request = if is_first {
                queue.push_back(pending);
                None
            } else {
                all.requests += 1;
                Some(pending)
            };
            session.add(&link, request);
        }
        (all, queue)
    }

    /// Returns the number of requests that it holds in the beginning.
    pub(super) fn len(&self) -> usize {
        self.requests
    }

    /// Begins the session of its first request, and returns all requests that wait for no other.
    pub(super) fn begin(
        &mut self,
        first: PendingRequest,
        slot: Option<Slot>,
        at: Duration,
    ) -> Vec<PendingRequest> {
        let Some(place) = first.place else {
            return vec![first];
        };
        let session = &mut self.sessions[place.session];
        session.slot = slot;
        session.nodes[place.position].request = Some(first);
        let nodes = session.nodes.iter_mut().filter(|node| node.waits_for == 0);
        nodes
            .filter_map(|node| {
                node.ready = at;
                node.release()
            })
            .collect()
    }

    /// Takes down that a request has ended, and returns those that waited for nothing else.
    pub(super) fn finish(
        &mut self,
        place: SessionPlace,
        planned: Option<&PlannedRequest>,
        record: &Request,
    ) -> Vec<PendingRequest> {
        let session = &mut self.sessions[place.session];
        session.unended -= 1;
        if session.unended == 0 {
            session.slot = None;
        }
        let waiting = std::mem::take(&mut session.nodes[place.position].waiting);
        let own_messages = session.nodes[place.position].messages.take();
        let ended = Duration::from_nanos(record.end_ns);
        let mut released = Vec::new();
        for position in waiting {
            let node = &mut session.nodes[position];
            node.ready = node.ready.max(ended);
            node.waits_for -= 1;
            if node.continues == Some(place.position) {
                let own = || messages_of(&planned?.content);
                let history = own_messages.clone().or_else(own);
                node.continue_messages(history.unwrap_or_default(), record);
            }
            if node.waits_for == 0 {
                released.extend(node.release());
            }
        }
        released
    }

    /// Whether a later prompt contains the answer to a request.
    pub(super) fn needs_answer(&self, place: Option<SessionPlace>) -> bool {
        place.is_some_and(|place| {
            let nodes = &self.sessions[place.session].nodes;
            let waiting = &nodes[place.position].waiting;
            waiting
                .iter()
                .any(|waiting| nodes[*waiting].continues == Some(place.position))
        })
    }

    /// Makes the body of a request that is about to be sent.
    pub(super) fn encode(&self, pending: &mut PendingRequest, shared: &Shared) {
        let (Some(place), Some(planned), true) = (pending.place, &pending.planned, pending.bytes.is_empty())
        else {
            return;
        };
        let messages = &self.sessions[place.session].nodes[place.position].messages;
        let content = messages.clone().map(Content::Messages);
        let encoded = encode_request(planned, content.as_ref().unwrap_or(&planned.content), shared);
        pending.bytes = encoded
            .expect("every body was made once before the load began")
            .bytes;
        pending.length = pending.bytes.len();
    }
}

impl Session {
    fn add(&mut self, link: &SessionLink, request: Option<PendingRequest>) {
        let position = self.nodes.len();
        let after = link.after.iter().map(|before| *before as usize);
        let after: BTreeSet<usize> = after.filter(|before| *before < position).collect();
        for before in &after {
            self.nodes[*before].waiting.push(position);
        }
        self.nodes.push(Node {
            request,
            waits_for: after.len(),
            waiting: Vec::new(),
            ready: Duration::ZERO,
            delay: link.delay,
            continues: link.continues.map(|before| before as usize),
            messages: None,
        });
        self.unended += 1;
    }
}

impl Node {
    /// Returns the request with its due time.
    fn release(&mut self) -> Option<PendingRequest> {
        let mut request = self.request.take()?;
        request.due = self.ready.saturating_add(self.delay);
        Some(request)
    }

    /// Puts the history before the messages of the request.
    fn continue_messages(&mut self, mut history: Vec<Value>, last: &Request) {
        let planned = self.request.as_ref().and_then(|request| request.planned.as_ref());
        history.push(answer_message(last));
        history.extend(
            planned
                .and_then(|planned| messages_of(&planned.content))
                .unwrap_or_default(),
        );
        self.messages = Some(history);
    }
}

fn link(pending: &PendingRequest) -> Option<&SessionLink> {
    pending.planned.as_ref()?.session()
}

fn messages_of(content: &Content) -> Option<Vec<Value>> {
    match content {
        Content::Messages(messages) => Some(messages.clone()),
        Content::Text(_) | Content::Ids(_) | Content::Images { .. } | Content::Audio(_) => None,
    }
}

/// Requests of sessions and conversations that have begun, in the order of their due times.
#[derive(Default)]
pub(super) struct FollowUps {
    by_due: BinaryHeap<Reverse<FollowUp>>,
    pushed: u64,
}

struct FollowUp {
    due: Duration,
    /// Decides between equal due times: the first to be pushed goes first.
    order: u64,
    request: PendingRequest,
}

impl FollowUps {
    pub(super) fn push(&mut self, request: PendingRequest) {
        self.pushed += 1;
        self.by_due.push(Reverse(FollowUp {
            due: request.due,
            order: self.pushed,
            request,
        }));
    }

    pub(super) fn pop(&mut self) -> Option<PendingRequest> {
        Some(self.by_due.pop()?.0.request)
    }

    pub(super) fn next_due(&self) -> Option<Duration> {
        Some(self.by_due.peek()?.0.due)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_due.is_empty()
    }

    /// Removes all requests and returns those that `keeps` accepts, in the order of their due times.
    pub(super) fn drain(&mut self, keeps: impl Fn(&PendingRequest) -> bool) -> Vec<PendingRequest> {
        let mut all = Vec::new();
        while let Some(request) = self.pop() {
            if keeps(&request) {
                all.push(request);
            }
        }
        all
    }
}

impl PartialEq for FollowUp {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for FollowUp {}

impl PartialOrd for FollowUp {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FollowUp {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

#[cfg(test)]
mod tests;
