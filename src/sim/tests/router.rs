use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{Answer, Sim, TIMEOUT, completion, options_for};
use crate::base::clock;
use crate::sim::{
    ApiKey, CostModel, Dialect, DieAfter, DisaggregationMode, Faults, Options, Preset, Role, RouterTargets,
    Timing,
};

/// A prefill server, two decode servers and their router.
struct Cluster {
    prefill: Sim,
    decode: Vec<Sim>,
    router: Sim,
}

fn part(mode: DisaggregationMode) -> Options {
    Options {
        role: Role::Disaggregated(mode),
        ..options_for(Dialect::Vllm)
    }
}

fn with_faults(options: Options, faults: Faults) -> Options {
    Options { faults, ..options }
}

/// The costs of the preset `fast`, with this many prompt tokens per second.
fn prefill_rate(prefill_rate: f64) -> Timing {
    Timing::Batched(CostModel {
        prefill_rate,
        ..Preset::by_name("fast").unwrap().cost_model(1).unwrap()
    })
}

impl Cluster {
    async fn start() -> Self {
        Self::of(
            part(DisaggregationMode::Prefill),
            part(DisaggregationMode::Decode),
        )
        .await
    }

    async fn of(prefill: Options, decode: Options) -> Self {
        let prefill = Sim::start(prefill).await;
        let decode = vec![Sim::start(decode.clone()).await, Sim::start(decode).await];
        let url = |sim: &Sim| format!("http://{}", sim.address).parse().unwrap();
        let targets = RouterTargets {
            prefill: vec![url(&prefill)],
            decode: decode.iter().map(url).collect(),
        };
        let router = Sim::start(Options {
            role: Role::Router(targets),
            ..options_for(Dialect::Vllm)
        })
        .await;
        Self {
            prefill,
            decode,
            router,
        }
    }

    async fn stop(self) {
        self.router.stop().await;
        self.prefill.stop().await;
        for sim in self.decode {
            sim.stop().await;
        }
    }
}

/// The parts of an answer that do not depend on the server: texts and token counts.
fn content(answer: &Answer) -> Vec<Value> {
    let values = match answer.body.starts_with("data: ") {
        true => answer.values(),
        false => vec![answer.json()],
    };
    values
        .into_iter()
        .map(|mut value| {
            value["id"] = Value::Null;
            value["created"] = Value::Null;
            value
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_those_of_an_engine_without_a_router() {
    let engine = Sim::start(options_for(Dialect::Vllm)).await;
    let cluster = Cluster::start().await;
    let chat = r#"{"messages":[{"role":"user","content":"Hello"}],"max_completion_tokens":7,"stream":true}"#;
    let whole = r#"{"prompt":"a b c","max_tokens":9,"ignore_eos":true}"#;
    for (path, body) in [
        ("/v1/completions", completion(20).as_str()),
        ("/v1/completions", whole),
        ("/v1/chat/completions", chat),
        ("/v1/completions", completion(1).as_str()),
    ] {
        let direct = engine.call("POST", path, body).await;
        let routed = cluster.router.call("POST", path, body).await;
        assert_eq!(
            (routed.status, routed.is_complete),
            (200, true),
            "{}",
            routed.body
        );
        assert_eq!(content(&routed), content(&direct), "{body}");
    }
    // One token of each prompt at the prefill server, the answers at the decode servers in turn.
    let generated = "vllm:generation_tokens_total";
    assert_eq!(cluster.prefill.metric(generated).await, 4.0);
    assert_eq!(cluster.decode[0].metric(generated).await, 20.0 + 7.0);
    assert_eq!(cluster.decode[1].metric(generated).await, 9.0 + 1.0);
    engine.stop().await;
    cluster.stop().await;
}

#[tokio::test]
async fn the_prompt_is_computed_once_and_before_the_first_token() {
    let prefill = Options {
        timing: prefill_rate(10.0),
        ..part(DisaggregationMode::Prefill)
    };
    // At this rate, the decode server would need longer than any test waits.
    let decode = Options {
        timing: prefill_rate(0.001),
        ..part(DisaggregationMode::Decode)
    };
    let cluster = Cluster::of(prefill, decode).await;
    let start = clock::now();
    assert_eq!(cluster.router.complete(3).await.texts(), 3);
    // The prompt has four tokens.
    assert!(clock::now().since(start) >= Duration::from_millis(400));
    cluster.stop().await;
}

#[tokio::test]
async fn health_and_requests_tell_which_server_is_gone() {
    let mut cluster = Cluster::start().await;
    assert_eq!(cluster.router.get("/health").await.status, 200);
    assert_eq!(cluster.router.complete(2).await.status, 200);
    assert_eq!(cluster.router.complete(2).await.status, 200);
    let gone = cluster.decode.remove(1);
    let address = gone.address;
    gone.stop().await;
    let health = cluster.router.get("/health").await;
    assert_eq!(health.status, 503);
    assert!(
        health
            .body
            .contains(&format!("the decode server http://{address} is not healthy")),
        "{}",
        health.body
    );
    let mut answers = [cluster.router.complete(2).await, cluster.router.complete(2).await];
    answers.sort_by_key(|answer| answer.status);
    assert_eq!(answers.each_ref().map(|answer| answer.status), [200, 502]);
    assert!(
        answers[1]
            .body
            .contains(&format!("the decode server http://{address} failed")),
        "{}",
        answers[1].body
    );
    cluster.stop().await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_breaks_off_for_the_client() {
    let decode = part(DisaggregationMode::Decode);
    let dying = Faults {
        die_after: Some(DieAfter::Tokens(40)),
        ..Faults::default()
    };
    let cluster = Cluster::of(
        part(DisaggregationMode::Prefill),
        with_faults(decode.clone(), dying),
    )
    .await;
    let (_, end) = cluster
        .router
        .send_raw("POST", "/v1/completions", "", &completion(1000))
        .await;
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);

    let cut = Faults {
        half_stream_every: Some(1),
        ..Faults::default()
    };
    let cluster = Cluster::of(part(DisaggregationMode::Prefill), with_faults(decode, cut)).await;
    let (_, end) = cluster
        .router
        .send_raw("POST", "/v1/completions", "", &completion(10))
        .await;
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    cluster.stop().await;
}

#[tokio::test]
async fn errors_of_servers_are_passed_on() {
    let failing = || Faults {
        http_error_every: Some(1),
        ..Faults::default()
    };
    let prefill = part(DisaggregationMode::Prefill);
    let decode = part(DisaggregationMode::Decode);
    for (prefill, decode, tokens) in [
        (with_faults(prefill.clone(), failing()), decode.clone(), 0.0),
        (prefill, with_faults(decode, failing()), 1.0),
    ] {
        let cluster = Cluster::of(prefill, decode).await;
        let answer = cluster.router.complete(3).await;
        assert_eq!(
            (answer.status, answer.json()["error"]["code"].as_u64()),
            (500, Some(500))
        );
        assert_eq!(
            cluster.prefill.metric("vllm:generation_tokens_total").await,
            tokens
        );
        cluster.stop().await;
    }
    let cluster = Cluster::start().await;
    let malformed = cluster.router.call("POST", "/v1/completions", "{").await;
    assert_eq!(malformed.status, 400);
    assert!(
        malformed.body.contains("not a JSON request"),
        "{}",
        malformed.body
    );
    cluster.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_away_frees_the_servers() {
    // One token of the prompt each 50 ms.
    let slow_prefill = Options {
        timing: Timing::Batched(CostModel {
            step: Duration::from_millis(50),
            step_tokens: 1,
            ..Preset::by_name("fast").unwrap().cost_model(1).unwrap()
        }),
        ..part(DisaggregationMode::Prefill)
    };
    let slow = Cluster::of(slow_prefill, part(DisaggregationMode::Decode)).await;
    let fast = Cluster::start().await;
    for (cluster, stream) in [(&fast, true), (&fast, false), (&slow, true)] {
        // The servers where the request stays.
        let busy = match std::ptr::eq(cluster, &slow) {
            true => std::slice::from_ref(&cluster.prefill),
            false => cluster.decode.as_slice(),
        };
        let running = async || {
            let mut running = 0.0;
            for sim in busy {
                running += sim.metric("vllm:num_requests_running").await;
            }
            running
        };
        let wait_for = async |expected: f64| {
            tokio::time::timeout(TIMEOUT / 2, async {
                while running().await != expected {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
            .await
            .unwrap_or_else(|_| panic!("never {expected} requests run"));
        };
        // 1000 prompt tokens at the slow server, and 30 000 steps of half a millisecond, last longer than is waited for.
        let prompt = vec![1; 1000];
        let body =
            format!(r#"{{"prompt":{prompt:?},"max_tokens":30000,"ignore_eos":true,"stream":{stream}}}"#);
        let length = body.len();
        let head = format!("POST /v1/completions HTTP/1.1\r\ncontent-length: {length}\r\n\r\n");
        let mut gone = TcpStream::connect(cluster.router.address).await.unwrap();
        gone.write_all((head + &body).as_bytes()).await.unwrap();
        wait_for(1.0).await;
        drop(gone);
        wait_for(0.0).await;
    }
    slow.stop().await;
    fast.stop().await;
}

#[tokio::test]
async fn a_reset_empties_the_prefix_caches_of_all_servers() {
    let cluster = Cluster::start().await;
    let prompt: Vec<u32> = (0..64).collect();
    let body = format!(r#"{{"prompt":{prompt:?},"max_tokens":2}}"#);
    let hits = async || {
        let mut hits = cluster.prefill.metric("vllm:prefix_cache_hits_total").await;
        for sim in &cluster.decode {
            hits += sim.metric("vllm:prefix_cache_hits_total").await;
        }
        hits
    };
    let complete = async || {
        // One for each decode server.
        for _ in 0..2 {
            let answer = cluster.router.call("POST", "/v1/completions", &body).await;
            assert_eq!(answer.status, 200);
        }
    };
    complete().await;
    let before = hits().await;
    let reset = cluster.router.call("POST", "/reset_prefix_cache", "").await;
    assert_eq!(
        (reset.status, reset.json()["success"].as_bool()),
        (200, Some(true))
    );
    complete().await;
    // Only the second prompt of the prefill server was known, as before the reset.
    assert_eq!(hits().await, 2.0 * before);
    complete().await;
    assert!(hits().await > 3.0 * before);
    cluster.stop().await;
}

#[tokio::test]
async fn a_router_has_few_paths_and_passes_keys_on() {
    let keyed = |mode| Options {
        api_key: Some(ApiKey::new("k")),
        ..part(mode)
    };
    let cluster = Cluster::of(
        keyed(DisaggregationMode::Prefill),
        keyed(DisaggregationMode::Decode),
    )
    .await;
    assert_eq!(cluster.router.get("/v1/models").await.status, 401);
    let send = async |method: &str, path: &str, body: &str| {
        let (bytes, end) = cluster
            .router
            .send_raw(method, path, "Authorization: Bearer k\r\n", body)
            .await;
        end.unwrap();
        Answer::parse(&bytes)
    };
    assert_eq!(send("GET", "/v1/models", "").await.json()["data"][0]["id"], "m");
    assert_eq!(send("GET", "/version", "").await.json()["version"], "0.0.0-sim");
    assert_eq!(send("POST", "/v1/completions", &completion(2)).await.texts(), 2);
    for path in ["/metrics", "/server_info", "/v1/messages", "/nowhere"] {
        assert_eq!(send("GET", path, "").await.status, 404, "{path}");
        assert_eq!(send("POST", path, "").await.status, 404, "{path}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_at_once_are_all_answered() {
    let cluster = std::sync::Arc::new(Cluster::start().await);
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let cluster = std::sync::Arc::clone(&cluster);
        calls.spawn(async move { cluster.router.complete(10).await.texts() });
    }
    while let Some(texts) = calls.join_next().await {
        assert_eq!(texts.unwrap(), 10);
    }
}
