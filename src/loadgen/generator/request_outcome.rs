//! Makes the records of requests that were sent, and of those that never will be.

use std::time::Duration;

use super::load_result::LoadResult;
use super::load_spec::LoadSpec;
use super::pending::PendingRequest;
use super::progress::Progress;
use super::shared::Shared;
use crate::base::clock::{self, MonotonicTime};
use crate::loadgen::arrival::TimestampSource;
use crate::loadgen::lateness::Lateness;
use crate::loadgen::request::{Outgoing, Response, nanos_since};
use crate::loadgen::route::RouteError;
use crate::plan::UsageRequest;
use crate::results::record::chunks::Chunks;
use crate::results::record::request::{
    ConnectionUse, Failure, Oddity, Request, RequestFailureClass, is_same_model,
};
use crate::results::record::tool_call::tool_calls_text;

/// A record with the facts that are not part of it.
pub(super) struct RequestOutcome {
    pub(super) record: Request,
    /// How much later it was sent than it could be: after its due time, or after a slot became free. `None` if
    /// it was not sent.
    pub(super) lag: Option<Duration>,
    pub(super) timestamp_source: Option<TimestampSource>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CloseReason {
    Stopped,
    TimeOver,
}

/// Records a request that was due and is never sent. The later rounds of its conversation never fall due.
pub(super) fn record_unsent(
    pending: &PendingRequest,
    closed: CloseReason,
    zero: MonotonicTime,
    shared: &Shared,
    done: &mut Vec<RequestOutcome>,
) {
    let request = unsent_record(pending, closed, nanos_since(clock::now(), zero));
    shared.finish_request(&request);
    done.push(RequestOutcome {
        record: request,
        lag: None,
        timestamp_source: None,
    });
}

/// Returns the record of a request to which nothing has happened yet.
pub(super) fn blank_record(pending: &PendingRequest) -> Request {
    Request {
        index: pending.index,
        connection: ConnectionUse::default(),
        prompt_tokens: pending.prompt_tokens,
        vision_tokens: pending.vision_tokens,
        audio: pending.audio,
        round: pending.round,
        requested_tokens: pending.requested_tokens,
        due_ns: u64::try_from(pending.due.as_nanos()).unwrap_or(u64::MAX),
        sent_ns: None,
        connected_ns: None,
        written_ns: None,
        first_byte_ns: None,
        limit_tokens: pending.limit_tokens,
        chunks: Chunks::default(),
        last_line_ns: None,
        end_ns: 0,
        failure: None,
        cancelled: false,
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
        session: pending.place.map(|place| place.number),
        reusable_prompt: None,
        queried_prompt: None,
        is_loop: false,
        is_canned: false,
        echoes_prompt: false,
        counted_reasoning: None,
        tool_text: None,
        tool_calls: Vec::new(),
        final_answer: None,
        answer_check: None,
        text: None,
    }
}

/// Copies the facts of an answer into its record. `usage` is how token counts were requested; `model` is the
/// requested model.
pub(super) fn fill_record(
    record: &mut Request,
    answer: Response,
    usage: UsageRequest,
    model: &str,
    zero: MonotonicTime,
) {
    let nanos_of = |at: Option<MonotonicTime>| at.map(|at| nanos_since(at, zero));
    record.sent_ns = Some(nanos_since(answer.sent, zero));
    record.connected_ns = nanos_of(answer.connected);
    record.written_ns = nanos_of(answer.written);
    record.first_byte_ns = nanos_of(answer.first_byte);
    record.last_line_ns = nanos_of(answer.last_line);
    record.end_ns = nanos_since(answer.end, zero);
    record.status = answer.status;
    let decoded = answer.decoded;
    record.chunks = decoded.chunks;
    record.failure = decoded.failure;
    record.cancelled = answer.is_cancelled;
    record.usage = decoded.usage;
    record.cached = decoded.cached_tokens;
    record.oddities = decoded.oddities;
    // bench_serving requests the usage event only in conversations; otherwise it would not have received this
    // event.
    if usage == UsageRequest::StreamOptions {
        record.oddities.retain(|oddity| *oddity != Oddity::NoChoice);
        if let Some(usage) = record.usage.as_mut().filter(|_| record.round.is_none()) {
            usage.is_ours = true;
        }
    }
    record.models = decoded.models;
    record.models.retain(|named| !is_same_model(named, model));
    record.finish = decoded.finish;
    if let Some(audio) = &mut record.audio {
        audio.reported_seconds = decoded.audio_seconds;
    }
    record.text = Some(decoded.text);
    record.tool_text = Some(tool_calls_text(&decoded.tool_calls)).filter(|text| !text.is_empty());
    record.tool_calls = decoded.tool_calls;
    record
        .tool_calls
        .retain(|call| !(call.is_foreign || call.is_superseded));
    record.final_answer = decoded.final_answer;
}

fn unsent_record(pending: &PendingRequest, closed: CloseReason, at_ns: u64) -> Request {
    let message = match closed {
        CloseReason::Stopped => "the run was stopped before the request was sent",
        CloseReason::TimeOver => {
            "the time for sending requests ended before the concurrency limit allowed this request"
        }
    };
    Request {
        end_ns: at_ns,
        failure: Some(Failure {
            class: RequestFailureClass::Unsent,
            message: message.to_owned(),
        }),
        ..blank_record(pending)
    }
}

/// Returns the records of a load whose host name has no address.
pub(super) fn unreachable_result(load: &LoadSpec, progress: &Progress, error: &RouteError) -> LoadResult {
    let mut requests = Vec::new();
    for planned in &load.requests {
        for round in 0..planned.rounds() {
            let pending = PendingRequest {
                index: u32::try_from(requests.len()).expect("a load has fewer than four billion requests"),
                position: 0,
                prompt_tokens: planned.prompt_tokens,
                vision_tokens: if round == 0 { planned.vision_tokens() } else { 0 },
                audio: planned.audio(),
                round: (planned.rounds() > 1).then(|| u32::try_from(round).unwrap_or(u32::MAX)),
                requested_tokens: planned.requested_tokens,
                limit_tokens: None,
                model: None,
                expected_results: None,
                due: planned.due,
                bytes: Outgoing::default(),
                planned: None,
                length: 0,
                conversation: None,
                place: None,
                endpoint: None,
            };
            let mut request = blank_record(&pending);
            request.end_ns = request.due_ns;
            request.failure = Some(Failure {
                class: RequestFailureClass::Connect,
                message: error.to_string(),
            });
            progress.count_end(&request);
            requests.push(request);
        }
    }
    LoadResult {
        records: requests,
        zero: clock::now(),
        wall: Duration::ZERO,
        lag: None,
        timestamp_source: TimestampSource::User,
        clock_jumps: 0,
        lateness: Lateness::default(),
        left_open: 0,
        surplus: 0,
        threads: Vec::new(),
    }
}
