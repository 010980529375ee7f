//! Answers a generation request, token by token or at once, and applies faults in the middle.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::base::clock;
use crate::base::http1::request::{LAST_CHUNK, ResponseBody, write_chunk, write_head};
use crate::sim::connection::{Connection, KeepAlive, Reply, Request};
use crate::sim::dialect::{Endpoint, FinishReason, GenerationRequest, ResponseWriter};
use crate::sim::engine::{ActiveRequest, Engine};
use crate::sim::faults::{FalseHealth, StreamFault};
use crate::sim::options::Timing;
use crate::sim::rng::{Rng, mix};
use crate::sim::token_source::{TokenSource, endless_gap};

/// Answers with server-sent events. Each event is a chunk and, unless `burst_bytes` is set, a separate write.
pub(crate) async fn stream_events(
    connection: &mut Connection<'_>,
    engine: &Arc<Engine>,
    request: &Request,
    endpoint: Endpoint,
    generation: &GenerationRequest,
    number: u64,
    keep_alive: KeepAlive,
) -> std::io::Result<KeepAlive> {
    let mut active = start_request(engine, request, generation, number);
    let mut stream = SseStream::new(engine, request, endpoint, generation, number, keep_alive);
    stream.write_response_head(connection, request, number).await?;
    let finish = generation.finish_reason();
    if engine.options.faults.false_health != Some(FalseHealth::Empty) {
        let mut source = TokenSource::open(engine, generation, number, request.arrived_at);
        let mut sent_tokens = 0;
        let middle = generation.output_tokens.div_ceil(2);
        let mut fault = engine.options.faults.stream_fault(number);
        loop {
            let Some(batch) = stream.next_batch(&mut source, connection, engine).await else {
                if engine.options.faults.ignore_disconnects {
                    generate_after_disconnect(&mut source, engine, &mut active).await;
                }
                return Ok(KeepAlive::Close);
            };
            stream.writer.set_cached(batch.cached);
            if sent_tokens + batch.count >= middle
                && let Some(fault) = fault.take()
                && stream.apply_fault(fault, connection).await? == StreamState::Closed
            {
                return Ok(stream.keep_alive);
            }
            let is_last = batch.is_last && !engine.options.faults.is_endless(number);
            active.count_write(batch.count);
            let written = stream
                .write_tokens(batch.count, is_last.then_some(finish), connection)
                .await;
            if written.is_err() && engine.options.faults.ignore_disconnects && !batch.is_last {
                generate_after_disconnect(&mut source, engine, &mut active).await;
            }
            written?;
            active.check_die_after();
            sent_tokens += batch.count;
            if batch.is_last {
                break;
            }
        }
    }
    if engine.options.faults.is_endless(number) {
        return stream.write_endless(connection, engine, &mut active).await;
    }
    // Counted before the last bytes are written, as engines do, so that a client that has the answer finds it
    // in the metrics.
    active.finish(finish);
    stream.close(finish, connection).await?;
    Ok(stream.keep_alive)
}

/// Generates the rest of an answer whose client is gone.
async fn generate_after_disconnect(source: &mut TokenSource, engine: &Engine, active: &mut ActiveRequest) {
    while let Some(token) = source.next(engine).await {
        active.count_write(1);
        if token.is_last {
            return;
        }
    }
}

/// Answers with one JSON document when all tokens are generated. Of the stream faults, [`StreamFault::Cut`]
/// applies here too.
pub(crate) async fn send_whole(
    connection: &mut Connection<'_>,
    engine: &Arc<Engine>,
    request: &Request,
    endpoint: Endpoint,
    generation: &GenerationRequest,
    number: u64,
    keep_alive: KeepAlive,
) -> std::io::Result<KeepAlive> {
    let mut active = start_request(engine, request, generation, number);
    let mut writer = response_writer(engine, endpoint, generation, number);
    let mut count = 0;
    if engine.options.faults.false_health != Some(FalseHealth::Empty) {
        let mut source = TokenSource::open(engine, generation, number, request.arrived_at);
        let ignores_disconnects = engine.options.faults.ignore_disconnects;
        loop {
            let token = tokio::select! {
                biased;
                token = source.next(engine) => token,
                () = connection.wait_for_close(), if !ignores_disconnects => None,
            };
            let Some(token) = token else {
                return Ok(KeepAlive::Close);
            };
            writer.set_cached(token.cached);
            count += 1;
            active.count_write(1);
            active.check_die_after();
            if token.is_last {
                break;
            }
        }
    }
    let finish = generation.finish_reason();
    let body = writer.full_response(count, finish);
    if engine.options.faults.stream_fault(number) == Some(StreamFault::Cut) {
        let mut out = Vec::new();
        write_head(
            &mut out,
            200,
            "application/json",
            ResponseBody::Sized(body.len()),
            false,
            &[],
        );
        out.extend_from_slice(&body.as_bytes()[..body.len() / 2]);
        connection.write(&out).await?;
        return Ok(KeepAlive::Close);
    }
    active.finish(finish);
    connection
        .reply(request, &Reply::json(200, body), keep_alive)
        .await?;
    Ok(keep_alive)
}

fn start_request(
    engine: &Arc<Engine>,
    request: &Request,
    generation: &GenerationRequest,
    number: u64,
) -> ActiveRequest {
    ActiveRequest::start(
        engine,
        request.head.header("x-request-id"),
        number,
        generation.prompt.len(),
        request.arrived_at,
    )
}

fn response_writer(
    engine: &Engine,
    endpoint: Endpoint,
    generation: &GenerationRequest,
    number: u64,
) -> ResponseWriter {
    let id = mix(engine.options.seed ^ mix(number));
    let mut writer = ResponseWriter::new(
        engine.options.dialect,
        endpoint,
        generation,
        id,
        clock::unix_seconds() as u64,
    );
    if engine.options.hides_cached {
        writer.hide_cached();
    }
    writer.corrupt(generation, &engine.options.faults);
    writer
}

/// Whether a stream continues after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamState {
    Open,
    Closed,
}

/// Tokens of one event.
struct ChunkBatch {
    count: usize,
    cached: usize,
    is_last: bool,
}

/// Writes the events of one answer.
struct SseStream {
    writer: ResponseWriter,
    /// Sent in the same write as the first token.
    preamble: Option<String>,
    keep_alive: KeepAlive,
    is_chunked: bool,
    burst_bytes: usize,
    merge: u32,
    rng: Rng,
    is_first: bool,
    event: Vec<u8>,
    out: Vec<u8>,
}

impl SseStream {
    fn new(
        engine: &Engine,
        request: &Request,
        endpoint: Endpoint,
        generation: &GenerationRequest,
        number: u64,
        keep_alive: KeepAlive,
    ) -> Self {
        let mut writer = response_writer(engine, endpoint, generation, number);
        let burst_bytes = match engine.options.timing {
            Timing::Flood { burst_bytes } => burst_bytes,
            Timing::Batched(_) | Timing::Exact(_) => 0,
        };
        Self {
            preamble: writer.preamble(),
            writer,
            keep_alive: if request.head.is_http11 {
                keep_alive
            } else {
                KeepAlive::Close
            },
            is_chunked: request.head.is_http11,
            burst_bytes,
            merge: engine.options.merge_chunks,
            rng: Rng::new(engine.options.seed, mix(generation.key)),
            is_first: true,
            event: Vec::new(),
            out: Vec::new(),
        }
    }

    async fn write_response_head(
        &mut self,
        connection: &mut Connection<'_>,
        request: &Request,
        number: u64,
    ) -> std::io::Result<()> {
        let body = if self.is_chunked {
            ResponseBody::Chunked
        } else {
            ResponseBody::UntilClose
        };
        let number = number.to_string();
        let id = request.head.header("x-request-id").unwrap_or(&number);
        let headers = [("x-request-id", id), ("cache-control", "no-cache")];
        let mut out = Vec::with_capacity(256);
        write_head(
            &mut out,
            200,
            "text/event-stream; charset=utf-8",
            body,
            self.keep_alive == KeepAlive::Keep,
            &headers,
        );
        connection.write(&out).await
    }

    /// Waits until the last token of the next event is due. Returns its tokens; `None` if the client
    /// disconnected or the engine is closing.
    async fn next_batch(
        &mut self,
        source: &mut TokenSource,
        connection: &mut Connection<'_>,
        engine: &Engine,
    ) -> Option<ChunkBatch> {
        if engine.died.is_cancelled() {
            // The connection is about to be reset; output at full speed must not continue before that.
            std::future::pending::<()>().await;
        }
        let mut batch = ChunkBatch {
            count: 0,
            cached: 0,
            is_last: false,
        };
        // The first token is never delayed; later ones are merged only while other requests are in flight.
        let merges = self.merge > 1 && !self.is_first && engine.metrics.in_flight.load(Relaxed) > 1;
        let size = if merges {
            1 + self.rng.below(u64::from(2 * self.merge - 1)) as usize
        } else {
            1
        };
        while batch.count < size && !batch.is_last {
            let token = tokio::select! {
                biased;
                token = source.next(engine) => token?,
                () = connection.wait_for_close() => return None,
            };
            batch = ChunkBatch {
                count: batch.count + 1,
                cached: token.cached,
                is_last: token.is_last,
            };
        }
        self.is_first = false;
        Some(batch)
    }

    async fn write_tokens(
        &mut self,
        count: usize,
        finish: Option<FinishReason>,
        connection: &mut Connection<'_>,
    ) -> std::io::Result<()> {
        if let Some(preamble) = self.preamble.take() {
            self.push(preamble.as_bytes());
        }
        let mut event = std::mem::take(&mut self.event);
        event.clear();
        self.writer.event(count, finish, &mut event);
        self.push(&event);
        self.event = event;
        if self.out.len() >= self.burst_bytes {
            self.flush(connection).await
        } else {
            Ok(())
        }
    }

    async fn close(&mut self, finish: FinishReason, connection: &mut Connection<'_>) -> std::io::Result<()> {
        if let Some(preamble) = self.preamble.take() {
            self.push(preamble.as_bytes());
        }
        for event in self.writer.final_events(finish) {
            self.push(event.as_bytes());
            if self.out.len() >= self.burst_bytes {
                self.flush(connection).await?;
            }
        }
        if self.is_chunked {
            self.out.extend_from_slice(LAST_CHUNK);
        }
        self.flush(connection).await
    }

    async fn apply_fault(
        &mut self,
        fault: StreamFault,
        connection: &mut Connection<'_>,
    ) -> std::io::Result<StreamState> {
        match fault {
            StreamFault::Garbage => {
                self.push(b"data: {\"choices\": \xff\xfe\x00garbage]]\n\n");
                self.flush(connection).await?;
                Ok(StreamState::Open)
            }
            StreamFault::HugeLine(bytes) => {
                let event = self.writer.huge_event(bytes);
                self.push(&event);
                self.flush(connection).await?;
                Ok(StreamState::Open)
            }
            StreamFault::ErrorEvent => {
                self.push(self.writer.error_event().as_bytes());
                if self.is_chunked {
                    self.out.extend_from_slice(LAST_CHUNK);
                }
                self.flush(connection).await?;
                Ok(StreamState::Closed)
            }
            StreamFault::Cut => {
                let mut event = Vec::new();
                self.writer.event(1, None, &mut event);
                let start = self.out.len();
                self.push(&event);
                self.out.truncate(start + (self.out.len() - start) / 2);
                self.flush(connection).await?;
                self.keep_alive = KeepAlive::Close;
                Ok(StreamState::Closed)
            }
        }
    }

    async fn write_endless(
        &mut self,
        connection: &mut Connection<'_>,
        engine: &Engine,
        active: &mut ActiveRequest,
    ) -> std::io::Result<KeepAlive> {
        let gap = endless_gap(&engine.options.timing);
        let mut due = clock::now();
        loop {
            due = due.plus(gap);
            tokio::select! {
                biased;
                () = engine.timer.sleep_until(due) => {}
                () = connection.wait_for_close() => return Ok(KeepAlive::Close),
            }
            if engine.stalled.is_cancelled() {
                connection.wait_for_close().await;
                return Ok(KeepAlive::Close);
            }
            active.count_write(1);
            self.write_tokens(1, None, connection).await?;
            active.check_die_after();
        }
    }

    fn push(&mut self, event: &[u8]) {
        if self.is_chunked {
            write_chunk(&mut self.out, event)
        } else {
            self.out.extend_from_slice(event)
        }
    }

    async fn flush(&mut self, connection: &mut Connection<'_>) -> std::io::Result<()> {
        connection.write(&self.out).await?;
        self.out.clear();
        Ok(())
    }
}
