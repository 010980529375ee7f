//! Answers a generation request, token by token or at once, and applies faults in the middle.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::base::clock;
use crate::base::http1::request::{LAST_CHUNK, ResponseBody, write_chunk, write_head};
use crate::sim::connection::{After, Reply, Request, Wire};
use crate::sim::dialect::{Ask, Endpoint, Finish, Voice};
use crate::sim::engine::{Engine, Exchange};
use crate::sim::faults::{LyingHealth, Mishap};
use crate::sim::options::Timing;
use crate::sim::rng::{Draw, mix};
use crate::sim::token_source::{Source, endless_gap};

/// Answers with server-sent events. Each event is a chunk and, unless `burst_bytes` is set, a separate write.
pub(crate) async fn events(
    wire: &mut Wire<'_>,
    engine: &Arc<Engine>,
    request: &Request,
    endpoint: Endpoint,
    ask: &Ask,
    number: u64,
    after: After,
) -> std::io::Result<After> {
    let mut exchange = begin(engine, request, ask, number);
    let mut telling = Telling::new(engine, request, endpoint, ask, number, after);
    telling.open(wire, request, number).await?;
    let finish = if ask.is_early {
        Finish::Stop
    } else {
        Finish::Length
    };
    if engine.options.faults.lying_health != Some(LyingHealth::Empty) {
        let mut source = Source::open(engine, ask, number, request.arrived);
        let mut told = 0;
        let middle = ask.output.div_ceil(2);
        let mut mishap = engine.options.faults.mishap(number);
        loop {
            let Some(batch) = telling.gather(&mut source, wire, engine).await else {
                return Ok(After::Close);
            };
            telling.voice.set_cached(batch.cached);
            if told + batch.count >= middle
                && let Some(mishap) = mishap.take()
                && telling.mishap(mishap, wire).await? == Course::Over
            {
                return Ok(telling.after);
            }
            let is_last = batch.is_last && !engine.options.faults.is_endless(number);
            exchange.write(batch.count);
            telling
                .tokens(batch.count, is_last.then_some(finish), wire)
                .await?;
            exchange.may_kill();
            told += batch.count;
            if batch.is_last {
                break;
            }
        }
    }
    if engine.options.faults.is_endless(number) {
        return telling.endless(wire, engine, &mut exchange).await;
    }
    // Counted before the last bytes are written, as engines do, so that a client that has the answer finds it
    // in the metrics.
    exchange.finish(finish);
    telling.close(finish, wire).await?;
    Ok(telling.after)
}

/// Answers with one JSON document when all tokens are generated. Of the stream faults, [`Mishap::Cut`]
/// applies here too.
pub(crate) async fn whole(
    wire: &mut Wire<'_>,
    engine: &Arc<Engine>,
    request: &Request,
    endpoint: Endpoint,
    ask: &Ask,
    number: u64,
    after: After,
) -> std::io::Result<After> {
    let mut exchange = begin(engine, request, ask, number);
    let mut voice = voice(engine, endpoint, ask, number);
    let mut count = 0;
    if engine.options.faults.lying_health != Some(LyingHealth::Empty) {
        let mut source = Source::open(engine, ask, number, request.arrived);
        loop {
            let token = tokio::select! {
                biased;
                token = source.next(engine) => token,
                () = wire.gone() => None,
            };
            let Some(token) = token else {
                return Ok(After::Close);
            };
            voice.set_cached(token.cached);
            count += 1;
            exchange.write(1);
            exchange.may_kill();
            if token.is_last {
                break;
            }
        }
    }
    let finish = if ask.is_early {
        Finish::Stop
    } else {
        Finish::Length
    };
    let body = voice.whole(count, finish);
    if engine.options.faults.mishap(number) == Some(Mishap::Cut) {
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
        wire.write(&out).await?;
        return Ok(After::Close);
    }
    exchange.finish(finish);
    wire.reply(request, &Reply::json(200, body), after).await?;
    Ok(after)
}

fn begin(engine: &Arc<Engine>, request: &Request, ask: &Ask, number: u64) -> Exchange {
    Exchange::begin(
        engine,
        request.head.header("x-request-id"),
        number,
        ask.prompt.len(),
        request.arrived,
    )
}

fn voice(engine: &Engine, endpoint: Endpoint, ask: &Ask, number: u64) -> Voice {
    let id = mix(engine.options.seed ^ mix(number));
    let mut voice = Voice::new(
        engine.options.dialect,
        endpoint,
        ask,
        id,
        clock::unix_seconds() as u64,
    );
    if engine.options.hides_cached {
        voice.hide_cached();
    }
    voice.corrupt(ask, &engine.options.faults);
    voice
}

/// Whether a stream continues after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    On,
    Over,
}

/// Tokens of one event.
struct Gathered {
    count: usize,
    cached: usize,
    is_last: bool,
}

/// Writes the events of one answer.
struct Telling {
    voice: Voice,
    /// Sent in the same write as the first token.
    preamble: Option<String>,
    after: After,
    is_chunked: bool,
    burst_bytes: usize,
    merge: u32,
    draw: Draw,
    is_first: bool,
    event: Vec<u8>,
    out: Vec<u8>,
}

impl Telling {
    fn new(
        engine: &Engine,
        request: &Request,
        endpoint: Endpoint,
        ask: &Ask,
        number: u64,
        after: After,
    ) -> Self {
        let mut voice = voice(engine, endpoint, ask, number);
        let burst_bytes = match engine.options.timing {
            Timing::Flood { burst_bytes } => burst_bytes,
            Timing::Batched(_) | Timing::Exact(_) => 0,
        };
        Self {
            preamble: voice.preamble(),
            voice,
            after: if request.head.is_http11 {
                after
            } else {
                After::Close
            },
            is_chunked: request.head.is_http11,
            burst_bytes,
            merge: engine.options.merge_chunks,
            draw: Draw::new(engine.options.seed, mix(ask.key)),
            is_first: true,
            event: Vec::new(),
            out: Vec::new(),
        }
    }

    async fn open(&mut self, wire: &mut Wire<'_>, request: &Request, number: u64) -> std::io::Result<()> {
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
            self.after == After::Keep,
            &headers,
        );
        wire.write(&out).await
    }

    /// Waits until the last token of the next event is due. Returns its tokens; `None` if the client
    /// disconnected or the engine is closing.
    async fn gather(
        &mut self,
        source: &mut Source,
        wire: &mut Wire<'_>,
        engine: &Engine,
    ) -> Option<Gathered> {
        if engine.dead.is_cancelled() {
            // The connection is about to be reset; output at full speed must not continue before that.
            std::future::pending::<()>().await;
        }
        let mut gathered = Gathered {
            count: 0,
            cached: 0,
            is_last: false,
        };
        // The first token is never delayed; later ones are merged only while other requests are in flight.
        let merges = self.merge > 1 && !self.is_first && engine.metrics.in_flight.load(Relaxed) > 1;
        let size = if merges {
            1 + self.draw.below(u64::from(2 * self.merge - 1)) as usize
        } else {
            1
        };
        while gathered.count < size && !gathered.is_last {
            let token = tokio::select! {
                biased;
                token = source.next(engine) => token?,
                () = wire.gone() => return None,
            };
            gathered = Gathered {
                count: gathered.count + 1,
                cached: token.cached,
                is_last: token.is_last,
            };
        }
        self.is_first = false;
        Some(gathered)
    }

    async fn tokens(
        &mut self,
        count: usize,
        finish: Option<Finish>,
        wire: &mut Wire<'_>,
    ) -> std::io::Result<()> {
        if let Some(preamble) = self.preamble.take() {
            self.push(preamble.as_bytes());
        }
        let mut event = std::mem::take(&mut self.event);
        event.clear();
        self.voice.event(count, finish, &mut event);
        self.push(&event);
        self.event = event;
        if self.out.len() >= self.burst_bytes {
            self.flush(wire).await
        } else {
            Ok(())
        }
    }

    async fn close(&mut self, finish: Finish, wire: &mut Wire<'_>) -> std::io::Result<()> {
        if let Some(preamble) = self.preamble.take() {
            self.push(preamble.as_bytes());
        }
        for event in self.voice.ending(finish) {
            self.push(event.as_bytes());
            if self.out.len() >= self.burst_bytes {
                self.flush(wire).await?;
            }
        }
        if self.is_chunked {
            self.out.extend_from_slice(LAST_CHUNK);
        }
        self.flush(wire).await
    }

    async fn mishap(&mut self, mishap: Mishap, wire: &mut Wire<'_>) -> std::io::Result<Course> {
        match mishap {
            Mishap::Garbage => {
                self.push(b"data: {\"choices\": \xff\xfe\x00garbage]]\n\n");
                self.flush(wire).await?;
                Ok(Course::On)
            }
            Mishap::HugeLine(bytes) => {
                let event = self.voice.huge(bytes);
                self.push(&event);
                self.flush(wire).await?;
                Ok(Course::On)
            }
            Mishap::ErrorEvent => {
                self.push(self.voice.error().as_bytes());
                self.push(b"data: [DONE]\n\n");
                if self.is_chunked {
                    self.out.extend_from_slice(LAST_CHUNK);
                }
                self.flush(wire).await?;
                Ok(Course::Over)
            }
            Mishap::Cut => {
                let mut event = Vec::new();
                self.voice.event(1, None, &mut event);
                let start = self.out.len();
                self.push(&event);
                self.out.truncate(start + (self.out.len() - start) / 2);
                self.flush(wire).await?;
                self.after = After::Close;
                Ok(Course::Over)
            }
        }
    }

    async fn endless(
        &mut self,
        wire: &mut Wire<'_>,
        engine: &Engine,
        exchange: &mut Exchange,
    ) -> std::io::Result<After> {
        let gap = endless_gap(&engine.options.timing);
        let mut due = clock::now();
        loop {
            due = due.plus(gap);
            tokio::select! {
                biased;
                () = engine.metronome.until(due) => {}
                () = wire.gone() => return Ok(After::Close),
            }
            exchange.write(1);
            self.tokens(1, None, wire).await?;
            exchange.may_kill();
        }
    }

    fn push(&mut self, event: &[u8]) {
        if self.is_chunked {
            write_chunk(&mut self.out, event)
        } else {
            self.out.extend_from_slice(event)
        }
    }

    async fn flush(&mut self, wire: &mut Wire<'_>) -> std::io::Result<()> {
        wire.write(&self.out).await?;
        self.out.clear();
        Ok(())
    }
}
