//! Answers a rerank request: each pair of query and document is a prompt of its own, and nothing is generated.

use std::sync::Arc;

use crate::base::http1::request::{ResponseBody, write_head};
use crate::sim::batching::Submission;
use crate::sim::connection::{Connection, KeepAlive, Reply, Request};
use crate::sim::dialect::{FinishReason, Pair, RerankRequest};
use crate::sim::engine::{ActiveRequest, Engine};
use crate::sim::faults::StreamFault;
use crate::sim::rng::mix;
use crate::sim::token_source::TokenSource;

/// Bits of the id of a submission that tell the request; those above tell the pair.
const REQUEST_BITS: u32 = 40;

/// Answers when all pairs are computed. Of the stream faults, [`StreamFault::Cut`] applies.
pub(crate) async fn send_ranking(
    connection: &mut Connection<'_>,
    engine: &Arc<Engine>,
    request: &Request,
    ranking: &RerankRequest,
    number: u64,
    keep_alive: KeepAlive,
) -> std::io::Result<KeepAlive> {
    let id = request.head.header("x-request-id");
    let mut active = ActiveRequest::start(engine, id, number, ranking.prompt_tokens(), request.arrived_at);
    let submit = |(place, pair): (usize, &Pair)| {
        let submission = Submission {
            id: number | ((place as u64) << REQUEST_BITS),
            prompt: pair.prompt.clone(),
            // A pair is computed once its first token would be.
            output: 1,
            key: pair.key,
        };
        TokenSource::submit(engine, submission, request.arrived_at)
    };
    let mut sources: Vec<TokenSource> = ranking.pairs.iter().enumerate().map(submit).collect();
    let ignores_disconnects = engine.options.faults.ignore_disconnects;
    for source in &mut sources {
        let computed = tokio::select! {
            biased;
            token = source.next(engine) => token,
            () = connection.wait_for_close(), if !ignores_disconnects => None,
        };
        if computed.is_none() {
            return Ok(KeepAlive::Close);
        }
    }
    active.count_write(0);
    let body = ranking.response(&engine.options, mix(engine.options.seed ^ mix(number)));
    if engine.options.faults.stream_fault(number) == Some(StreamFault::Cut) {
        let mut out = Vec::new();
        let size = ResponseBody::Sized(body.len());
        write_head(&mut out, 200, "application/json", size, false, &[]);
        out.extend_from_slice(&body.as_bytes()[..body.len() / 2]);
        connection.write(&out).await?;
        return Ok(KeepAlive::Close);
    }
    active.finish(FinishReason::Stop);
    connection
        .reply(request, &Reply::json(200, body), keep_alive)
        .await?;
    Ok(keep_alive)
}
