//! Makes the records of requests that were sent, and of those that never will be.

use std::time::Duration;

use super::load::Load;
use super::pending::Job;
use super::progress::Progress;
use super::result::Driven;
use super::shared::Shared;
use crate::base::clock::{self, Moment};
use crate::loadgen::arrival::Stamp;
use crate::loadgen::lateness::Lateness;
use crate::loadgen::request::{Answer, nanos};
use crate::loadgen::route::RouteError;
use crate::plan::Usage;
use crate::results::record::chunks::Chunks;
use crate::results::record::request::{Class, Failure, Oddity, Request, is_same_model};

/// A record with the facts that are not part of it.
pub(super) struct Sent {
    pub(super) request: Request,
    pub(super) lag: Option<Duration>,
    pub(super) stamp: Option<Stamp>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    Stopped,
    Over,
}

/// Records a request that was due and is never sent. The later rounds of its conversation never fall due.
pub(super) fn give_up(job: &Job, closed: Closed, zero: Moment, shared: &Shared, done: &mut Vec<Sent>) {
    let request = unsent(job, closed, nanos(clock::now(), zero));
    shared.end(&request);
    done.push(Sent {
        request,
        lag: None,
        stamp: None,
    });
}

/// Returns the record of a request to which nothing has happened yet.
pub(super) fn blank(job: &Job) -> Request {
    Request {
        index: job.index,
        prompt_tokens: job.prompt_tokens,
        vision_tokens: job.vision_tokens,
        round: job.round,
        asked_tokens: job.asked_tokens,
        due_ns: u64::try_from(job.due.as_nanos()).unwrap_or(u64::MAX),
        sent_ns: None,
        connected_ns: None,
        written_ns: None,
        first_byte_ns: None,
        limit_tokens: job.limit_tokens,
        chunks: Chunks::default(),
        last_line_ns: None,
        end_ns: 0,
        failure: None,
        status: None,
        usage: None,
        cached: None,
        oddities: Vec::new(),
        models: Vec::new(),
        finish: None,
        counted_tokens: None,
        counted_chunks: None,
        counted_prompt: None,
        omittable_prompt: 0,
        uniform: None,
        blank_events: 0,
        counted_first: None,
        common_events: 0,
        is_loop: false,
        is_canned: false,
        echoes_prompt: false,
        counted_reasoning: None,
        tool_text: None,
        text: None,
    }
}

/// Copies the facts of an answer into its record. `usage` is how token counts were requested; `model` is the
/// requested model.
pub(super) fn fill(record: &mut Request, answer: Answer, usage: Usage, model: &str, zero: Moment) {
    let told = |at: Option<Moment>| at.map(|at| nanos(at, zero));
    record.sent_ns = Some(nanos(answer.sent, zero));
    record.connected_ns = told(answer.connected);
    record.written_ns = told(answer.written);
    record.first_byte_ns = told(answer.first_byte);
    record.last_line_ns = told(answer.last_line);
    record.end_ns = nanos(answer.end, zero);
    record.status = answer.status;
    let decoded = answer.decoded;
    record.chunks = decoded.chunks;
    record.failure = decoded.failure;
    record.usage = decoded.usage;
    record.cached = decoded.cached;
    record.oddities = decoded.oddities;
    // bench_serving requests the usage event only in conversations; otherwise it would not have received this
    // event.
    if usage == Usage::StreamOptions {
        record.oddities.retain(|oddity| *oddity != Oddity::NoChoice);
        if let Some(usage) = record.usage.as_mut().filter(|_| record.round.is_none()) {
            usage.is_ours = true;
        }
    }
    record.models = decoded.models;
    record.models.retain(|named| !is_same_model(named, model));
    record.finish = decoded.finish;
    record.text = Some(decoded.text);
    record.tool_text = Some(decoded.tool_text).filter(|text| !text.is_empty());
}

fn unsent(job: &Job, closed: Closed, at_ns: u64) -> Request {
    let message = match closed {
        Closed::Stopped => "the run was stopped before it was sent",
        Closed::Over => "the time to send was over before a slot was free for it",
    };
    Request {
        end_ns: at_ns,
        failure: Some(Failure {
            class: Class::Unsent,
            message: message.to_owned(),
        }),
        ..blank(job)
    }
}

/// Returns the records of a load whose host name has no address.
pub(super) fn unreachable(load: &Load, progress: &Progress, error: &RouteError) -> Driven {
    let mut requests = Vec::new();
    for item in &load.items {
        for round in 0..item.rounds() {
            let job = Job {
                index: u32::try_from(requests.len()).expect("a load has fewer than four billion requests"),
                place: 0,
                prompt_tokens: item.prompt_tokens,
                vision_tokens: if round == 0 { item.vision_tokens() } else { 0 },
                round: (item.rounds() > 1).then(|| u32::try_from(round).unwrap_or(u32::MAX)),
                asked_tokens: item.asked_tokens,
                limit_tokens: None,
                model: None,
                due: item.due,
                bytes: Vec::new(),
                item: None,
                length: 0,
                talk: None,
            };
            let mut request = blank(&job);
            request.end_ns = request.due_ns;
            request.failure = Some(Failure {
                class: Class::Connect,
                message: error.to_string(),
            });
            progress.end(&request);
            requests.push(request);
        }
    }
    Driven {
        requests,
        zero: clock::now(),
        wall: Duration::ZERO,
        lag: None,
        stamp: Stamp::User,
        clock_jumps: 0,
        lateness: Lateness::default(),
        left_open: 0,
        threads: Vec::new(),
    }
}
