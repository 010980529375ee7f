use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Sim, completion, options_for};
use crate::base::clock;
use crate::sim::{CostModel, Dialect, Options, Preset, Schedule, Timing};

fn exact_timing(ttft: u64, itl: u64, spread: f64) -> Timing {
    Timing::Exact(Schedule {
        ttft: Duration::from_millis(ttft),
        itl: Duration::from_millis(itl),
        spread,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exact_tokens_are_never_early_and_lateness_does_not_add_up() {
    let options = Options {
        timing: exact_timing(30, 5, 0.0),
        truth: true,
        ..options_for(Dialect::Openai)
    };
    let sim = Sim::start(options).await;
    let start = clock::now();
    sim.send_raw(
        "POST",
        "/v1/completions",
        "X-Request-Id: mine\r\n",
        &completion(20),
    )
    .await
    .1
    .unwrap();
    assert!(clock::now().since(start) >= Duration::from_millis(30 + 19 * 5));
    let truth = sim.get("/sim/truth").await.json();
    assert_eq!(
        (truth["id"].as_str(), truth["tokens"].as_u64()),
        (Some("mine"), Some(20))
    );
    let writes: Vec<f64> = truth["writes_us"]
        .as_array()
        .unwrap()
        .iter()
        .map(|us| us.as_f64().unwrap())
        .collect();
    assert_eq!(writes.len(), 20);
    for (index, at) in writes.iter().enumerate() {
        assert!(
            *at >= 30_000.0 + 5_000.0 * index as f64,
            "token {index} at {at} us"
        );
    }
    sim.call("DELETE", "/sim/truth", "").await;
    assert_eq!(sim.get("/sim/truth").await.body, "");
    sim.stop().await;
}

#[tokio::test]
async fn a_spread_moves_tokens_within_its_bounds() {
    let options = Options {
        timing: exact_timing(20, 10, 0.5),
        truth: true,
        ..options_for(Dialect::Openai)
    };
    let sim = Sim::start(options).await;
    sim.complete(5).await;
    let truth = sim.get("/sim/truth").await.json();
    let writes: Vec<f64> = truth["writes_us"]
        .as_array()
        .unwrap()
        .iter()
        .map(|us| us.as_f64().unwrap())
        .collect();
    for (index, at) in writes.iter().enumerate() {
        assert!(
            *at >= 10_000.0 + 5_000.0 * index as f64,
            "token {index} at {at} us"
        );
    }
    sim.stop().await;
}

#[tokio::test]
async fn a_flood_writes_everything_at_once_in_bursts_as_told() {
    for burst_bytes in [0, 4096] {
        let options = Options {
            timing: Timing::Flood { burst_bytes },
            ..options_for(Dialect::Openai)
        };
        let sim = Sim::start(options).await;
        let answer = sim.complete(5000).await;
        assert!(answer.is_complete);
        assert_eq!(answer.texts(), 5000);
        sim.stop().await;
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_stalls_nobody() {
    let options = Options {
        timing: Timing::Flood { burst_bytes: 0 },
        ..options_for(Dialect::Openai)
    };
    let sim = Sim::start(options).await;
    let mut slow = TcpStream::connect(sim.address).await.unwrap();
    let body = completion(30_000);
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    slow.write_all((head + &body).as_bytes()).await.unwrap();
    slow.read_exact(&mut [0; 16]).await.unwrap();
    assert_eq!(sim.complete(100).await.texts(), 100);
    sim.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_away_frees_its_place() {
    let cost = CostModel {
        max_running: 1,
        ..Preset::by_name("fast").unwrap().cost_model(1).unwrap()
    };
    let options = Options {
        timing: Timing::Batched(cost),
        ..options_for(Dialect::Vllm)
    };
    let sim = Sim::start(options).await;
    let body = completion(30_000);
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut gone = TcpStream::connect(sim.address).await.unwrap();
    gone.write_all((head + &body).as_bytes()).await.unwrap();
    gone.read_exact(&mut [0; 16]).await.unwrap();
    drop(gone);
    // 30 000 steps of half a millisecond would occupy the only slot for longer than [`LIMIT`].
    assert_eq!(sim.complete(3).await.texts(), 3);
    assert_eq!(sim.metric("vllm:kv_cache_usage_perc").await, 0.0);
    sim.stop().await;
}

#[tokio::test]
async fn many_requests_at_once_are_all_answered_and_counted() {
    let cost = CostModel {
        max_running: 4,
        kv_tokens: 512,
        ..Preset::by_name("fast").unwrap().cost_model(1).unwrap()
    };
    let options = Options {
        timing: Timing::Batched(cost),
        max_model_len: 256,
        ..options_for(Dialect::Vllm)
    };
    let sim = std::sync::Arc::new(Sim::start(options).await);
    let mut calls = tokio::task::JoinSet::new();
    for prompt in 0..40 {
        let sim = std::sync::Arc::clone(&sim);
        calls.spawn(async move {
            let body = completion(200).replace("[1,2,3,4]", &format!("[{prompt},2,3,4]"));
            sim.call("POST", "/v1/completions", &body).await.texts()
        });
    }
    assert_eq!(calls.join_all().await, vec![200; 40]);
    assert_eq!(sim.metric("vllm:generation_tokens_total").await, 8000.0);
    assert_eq!(sim.metric("vllm:prompt_tokens_total").await, 160.0);
    assert_eq!(sim.metric("vllm:request_queue_time_seconds_count").await, 40.0);
    assert!(sim.metric("vllm:num_preemptions_total").await > 0.0);
    std::sync::Arc::into_inner(sim).unwrap().stop().await;
}

#[test]
fn a_long_prompt_is_read_beside_the_other_connections() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let sim = Sim::start(options_for(Dialect::Vllm)).await;
        // The thread for long prompts is busy until this is dropped.
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || wait.recv());
        let body = serde_json::json!({ "prompt": "word ".repeat(1 << 19) }).to_string();
        let mut long = Box::pin(sim.call("POST", "/v1/completions", &body));
        let unanswered = tokio::time::timeout(Duration::from_secs(2), &mut long).await;
        assert!(unanswered.is_err(), "{unanswered:?}");
        assert_eq!(sim.get("/health").await.status, 200);
        assert_eq!(sim.complete(3).await.texts(), 3);
        drop(release);
        let refused = long.await;
        assert_eq!(refused.status, 400);
        assert!(
            refused
                .body
                .contains("requested at least 32785 tokens (32769 in the prompt, 16"),
            "{}",
            refused.body
        );
        busy.await.unwrap().unwrap_err();
        sim.stop().await;
    });
}
