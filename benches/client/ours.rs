//! What is measured: the load generator as `matrix bench` and cells use it.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use matrix::base::clock::MonotonicTime;
use matrix::config::scenario::LoadLimits;
use matrix::loadgen::{Address, Content, Headers, LoadSpec, PlannedRequest, Scheme, Target, run_load};
use matrix::plan::{ClientStyle, Protocol, ProtocolSpec, UsageRequest};
use tokio_util::sync::CancellationToken;

use crate::{Measured, Work, cpu_seconds, peak_memory};

/// Sends all requests at once and reads all answers.
pub fn measure(work: &Work) -> Measured {
    let item = PlannedRequest {
        content: Content::Text(work.prompt.clone().into()),
        prompt_tokens: 3,
        requested_tokens: u32::try_from(work.tokens).expect("it is small"),
        due: Duration::ZERO,
        lora_adapter: None,
        extras: None,
    };
    let load = LoadSpec {
        target: Target {
            address: Address {
                scheme: if work.is_encrypted {
                    Scheme::Https
                } else {
                    Scheme::Http
                },
                host: work.host.clone(),
                ..Address::local(work.port)
            },
            headers: Headers::default(),
            dialect: ProtocolSpec {
                protocol: Protocol::Completions,
                path: None,
                usage: UsageRequest::Unasked,
                body: serde_json::Map::new(),
                routing_key_header: None,
                embeddings: Default::default(),
                style: ClientStyle::BenchServing,
            },
            model: "m".to_owned(),
            connections: Default::default(),
        },
        requests: vec![item; work.streams],
        concurrency: None,
        sessions: None,
        connections: Default::default(),
        cancel: None,
        limits: LoadLimits::default(),
        body: serde_json::Map::new(),
        stop_at_eos: false,
        sink: None,
        watch: None,
        spill: None,
        threads: NonZeroUsize::MIN,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let cpu = cpu_seconds();
    let driven = runtime
        .block_on(run_load(load, Arc::default(), CancellationToken::new()))
        .expect("it can send");
    let cpu = cpu_seconds() - cpu;
    let memory = peak_memory();
    assert_eq!(
        (driven.timestamp_source.name(), driven.clock_jumps),
        ("kernel", 0)
    );
    for failure in driven
        .records
        .iter()
        .filter_map(|request| request.failure.as_ref())
        .take(3)
    {
        eprintln!("failed: {}: {}", failure.class.name(), failure.message);
    }
    let moments: Vec<Vec<MonotonicTime>> = driven
        .records
        .iter()
        .map(|request| {
            request
                .chunks
                .iter()
                .map(|chunk| MonotonicTime::from_nanos(chunk.at_ns))
                .collect()
        })
        .collect();
    let mut streams: Vec<_> = driven
        .records
        .iter()
        .zip(&moments)
        .map(|(request, chunks)| {
            let sent = MonotonicTime::from_nanos(request.sent_ns.unwrap_or(0));
            (sent, chunks.as_slice(), request.is_completed())
        })
        .collect();
    streams.sort_by_key(|(sent, ..)| *sent);
    let millis = |span: Duration| span.as_secs_f64() * 1e3;
    Measured {
        late_p90: millis(driven.lateness.p90),
        late_p99: millis(driven.lateness.p99),
        events_per_s: driven.lateness.events_per_s as f64,
        pauses: driven.lateness.pauses,
        longest_pause: millis(driven.lateness.longest_pause),
        lag_ms: driven.lag.map(|lag| [lag.mean, lag.p99, lag.max].map(millis)),
        ..Measured::of(streams.into_iter(), work, cpu, memory)
    }
}
