use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{Answer, Sim, TIMEOUT, completion, options_for};
use crate::base::clock;
use crate::sim::{Dialect, DieAfter, FalseHealth, Faults, HugeLine, Loading, Options, SimError, Timing};

async fn start_with(faults: Faults) -> Sim {
    Sim::start(Options {
        faults,
        ..options_for(Dialect::Vllm)
    })
    .await
}

fn is_death(end: &Result<(), SimError>) -> bool {
    matches!(end, Err(SimError::InjectedDeath { status: 1 }))
}

/// Counts the events of a streamed completion whose connection breaks; also returns how it ended.
async fn read_until_broken(sim: &Sim, tokens: usize) -> (usize, std::io::Result<()>) {
    let (bytes, end) = sim
        .send_raw("POST", "/v1/completions", "", &completion(tokens))
        .await;
    (bytes.windows(6).filter(|six| six == b"data: ").count(), end)
}

#[tokio::test]
async fn dying_after_tokens_resets_the_stream_and_leaves_last_words() {
    for timing in [Options::default().timing, Timing::Flood { burst_bytes: 0 }] {
        let faults = Faults {
            die_after: Some(DieAfter::Tokens(40)),
            ..Faults::default()
        };
        let sim = Sim::start(Options {
            faults,
            timing,
            ..options_for(Dialect::Vllm)
        })
        .await;
        let (events, end) = read_until_broken(&sim, 1000).await;
        assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
        assert!(events <= 40, "{events}");
        let log = std::sync::Arc::clone(&sim.log);
        assert!(is_death(&sim.wait_for_end().await));
        assert!(log.lock().unwrap().last().unwrap().contains("CUDA out of memory"));
    }
}

#[tokio::test]
async fn dying_after_time_or_requests_ends_it_too() {
    let faults = Faults {
        die_after: Some(DieAfter::Time(Duration::from_millis(500))),
        ..Faults::default()
    };
    let sim = start_with(faults).await;
    assert!(read_until_broken(&sim, 20_000).await.1.is_err());
    assert!(is_death(&sim.wait_for_end().await));

    let sim = start_with(Faults {
        die_after: Some(DieAfter::Requests(2)),
        ..Faults::default()
    })
    .await;
    assert!(sim.complete(2).await.is_complete);
    let _ = read_until_broken(&sim, 2).await;
    assert!(is_death(&sim.wait_for_end().await));
}

#[tokio::test]
async fn dying_while_loading_ends_it_before_it_is_ready() {
    let faults = Faults {
        loading: Loading::Dies(Duration::from_millis(20)),
        ..Faults::default()
    };
    let end = Sim::try_start(Options {
        faults,
        ..options_for(Dialect::Vllm)
    })
    .await
    .err()
    .unwrap();
    assert!(is_death(&end));
    let faults = Faults {
        die_after: Some(DieAfter::Time(Duration::from_millis(20))),
        ..Faults::default()
    };
    let options = Options {
        faults,
        start_delay: TIMEOUT,
        ..options_for(Dialect::Vllm)
    };
    assert!(is_death(&Sim::try_start(options).await.err().unwrap()));
}

#[tokio::test]
async fn a_slow_start_answers_503_where_it_listens_already() {
    let options = Options {
        start_delay: Duration::from_secs(1),
        listen_while_loading: true,
        ..options_for(Dialect::Vllm)
    };
    let sim = Sim::start(options).await;
    assert_eq!(sim.get("/health").await.status, 503);
    while sim.get("/health").await.status != 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let log = sim.log();
    for phase in [
        "Starting to load model m",
        "Loading weights took",
        "Graph capturing finished",
        "startup complete",
    ] {
        assert!(log.contains(phase), "{phase}");
    }
    assert!(log.contains(&format!("http://{}", sim.address)));
    sim.stop().await;
}

#[tokio::test]
async fn loading_that_hangs_never_gets_ready() {
    let faults = Faults {
        loading: Loading::Hangs,
        ..Faults::default()
    };
    let sim = Sim::start(Options {
        faults,
        listen_while_loading: true,
        ..options_for(Dialect::Vllm)
    })
    .await;
    assert_eq!(sim.complete(1).await.status, 503);
    assert!(!sim.log().contains("startup complete"));
    sim.stop().await;
}

#[tokio::test]
async fn hanging_takes_connections_and_answers_none() {
    let sim = start_with(Faults {
        hang_after: Some(1),
        ..Faults::default()
    })
    .await;
    assert!(sim.complete(2).await.is_complete);
    assert_eq!(sim.get("/health").await.status, 200);
    for call in [
        sim.send_raw("POST", "/v1/completions", "", &completion(1)),
        sim.send_raw("GET", "/health", "", "{}{}"),
    ] {
        let answered = tokio::time::timeout(Duration::from_millis(100), call).await;
        assert!(answered.is_err());
    }
    sim.stop().await;
}

#[tokio::test]
async fn refusing_closes_the_port_but_ends_what_it_began() {
    let sim = start_with(Faults {
        refuse_after: Some(1),
        ..Faults::default()
    })
    .await;
    assert!(sim.complete(50).await.is_complete);
    let error = TcpStream::connect(sim.address).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    sim.stop().await;
}

#[tokio::test]
async fn an_error_event_ends_every_second_stream() {
    let sim = start_with(Faults {
        error_event_every: Some(2),
        ..Faults::default()
    })
    .await;
    assert_eq!(sim.complete(10).await.texts(), 10);
    let answer = sim.complete(10).await;
    assert!(answer.is_complete && answer.texts() < 10);
    assert_eq!(answer.values().last().unwrap()["error"]["code"], 500);
    assert_eq!(sim.complete(10).await.texts(), 10);
    sim.stop().await;
}

#[tokio::test]
async fn a_half_stream_ends_inside_a_chunk() {
    let sim = start_with(Faults {
        half_stream_every: Some(1),
        ..Faults::default()
    })
    .await;
    let (bytes, end) = sim.send_raw("POST", "/v1/completions", "", &completion(10)).await;
    end.unwrap();
    let answer = Answer::parse(&bytes);
    assert!(!answer.is_complete && !bytes.ends_with(b"\r\n") && answer.body.contains("data: "));
    let (bytes, _) = sim
        .send_raw("POST", "/v1/completions", "", r#"{"prompt":"a"}"#)
        .await;
    assert!(!Answer::parse(&bytes).is_complete);
    sim.stop().await;
}

#[tokio::test]
async fn garbage_and_huge_lines_stand_in_the_middle_of_a_stream_that_goes_on() {
    let huge_line_bytes = 3 << 20;
    let faults = Faults {
        garbage_every: Some(2),
        huge_line: Some(HugeLine {
            every: 3,
            bytes: huge_line_bytes,
        }),
        ..Faults::default()
    };
    let sim = start_with(faults).await;
    assert_eq!(sim.complete(10).await.texts(), 10);
    let garbage = sim.complete(10).await;
    assert_eq!((garbage.texts(), garbage.events().len()), (10, 13));
    let huge = sim.complete(10).await;
    assert_eq!(huge.texts(), 11);
    assert!(huge.is_complete && huge.events().iter().any(|event| event.len() > huge_line_bytes));
    sim.stop().await;
}

#[tokio::test]
async fn an_endless_stream_goes_on_beyond_its_limit() {
    let sim = start_with(Faults {
        endless_stream_every: Some(1),
        ..Faults::default()
    })
    .await;
    let body = completion(3);
    let endless = sim.send_raw("POST", "/v1/completions", "", &body);
    assert!(
        tokio::time::timeout(Duration::from_millis(200), endless)
            .await
            .is_err()
    );
    assert!(sim.metric("vllm:generation_tokens_total").await > 3.0);
    sim.stop().await;
}

#[tokio::test]
async fn an_http_error_has_a_status_and_a_body() {
    let sim = start_with(Faults {
        http_error_every: Some(1),
        ..Faults::default()
    })
    .await;
    let answer = sim.complete(3).await;
    assert_eq!(
        (answer.status, answer.json()["error"]["code"].as_u64()),
        (500, Some(500))
    );
    sim.stop().await;
}

#[tokio::test]
async fn health_can_lie() {
    let sim = start_with(Faults {
        false_health: Some(FalseHealth::Hang),
        ..Faults::default()
    })
    .await;
    assert_eq!(sim.get("/health").await.status, 200);
    let body = completion(1);
    let hung = sim.send_raw("POST", "/v1/completions", "", &body);
    assert!(
        tokio::time::timeout(Duration::from_millis(100), hung)
            .await
            .is_err()
    );
    sim.stop().await;

    let sim = start_with(Faults {
        false_health: Some(FalseHealth::Empty),
        ..Faults::default()
    })
    .await;
    let answer = sim.complete(3).await;
    assert!(answer.is_complete);
    assert_eq!((answer.status, answer.texts()), (200, 0));
    sim.stop().await;
}

#[tokio::test]
async fn a_fake_reset_resets_nothing() {
    let sim = start_with(Faults {
        fake_reset: true,
        ..Faults::default()
    })
    .await;
    let prompt: Vec<u32> = (0..100).collect();
    let body = serde_json::json!({ "prompt": prompt, "max_tokens": 1 }).to_string();
    for cached in [0, 96] {
        let answer = sim.call("POST", "/v1/completions", &body).await.json();
        assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], cached);
        assert_eq!(
            sim.call("POST", "/reset_prefix_cache", "").await.json()["success"],
            true
        );
    }
    sim.stop().await;
}

#[tokio::test]
async fn answers_can_end_early_and_come_from_another_model() {
    let sim = start_with(Faults {
        early_end: Some(0.5),
        wrong_model: true,
        ..Faults::default()
    })
    .await;
    let answer = sim.complete(10).await;
    assert_eq!(answer.texts(), 5);
    assert_eq!(answer.values()[4]["choices"][0]["finish_reason"], "stop");
    assert!(
        sim.get("/metrics")
            .await
            .body
            .contains("finished_reason=\"stop\"} 1\n")
    );
    assert_eq!(answer.values()[0]["model"], "sim/another-model");
    assert_eq!(
        sim.get("/v1/models").await.json()["data"][0]["id"],
        "sim/another-model"
    );
    assert_eq!(
        sim.call("POST", "/v1/completions", r#"{"model":"m","prompt":"a"}"#)
            .await
            .status,
        404
    );
    sim.stop().await;
}

#[tokio::test]
async fn a_taken_port_is_named_with_a_way_out() {
    let second_server = start_with(Faults::default()).await;
    let options = Options {
        port: second_server.address.port(),
        ..options_for(Dialect::Vllm)
    };
    let error = Sim::try_start(options)
        .await
        .err()
        .unwrap()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&second_server.address.to_string()) && error.contains("`--port`"),
        "{error}"
    );
    second_server.stop().await;
}

#[tokio::test]
async fn a_leaked_child_outlives_the_engine() {
    let sim = start_with(Faults {
        leak_child: true,
        ..Faults::default()
    })
    .await;
    let log = sim.log();
    sim.stop().await;
    let pid = log
        .split("pid ")
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let child = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::test_kill_process(child).expect("the child is still there");
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
}

/// Prompt tokens that are computed for a ranking of 20 000 pairs whose client disconnects at once.
async fn tokens_of_an_abandoned_ranking(ignore_disconnects: bool) -> f64 {
    let mut options = options_for(Dialect::Vllm);
    options.faults.ignore_disconnects = ignore_disconnects;
    let Timing::Batched(cost) = &mut options.timing else {
        panic!("batches by default");
    };
    cost.step = Duration::from_millis(20);
    let sim = Sim::start(options).await;
    let body = serde_json::json!({ "query": "q", "documents": vec!["d"; 20_000] }).to_string();
    let head = format!(
        "POST /v1/rerank HTTP/1.1\r\nhost: sim\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(sim.address).await.unwrap();
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    let wait_for = async |is_busy: bool| {
        let deadline = clock::now().plus(TIMEOUT);
        while (sim.metric("vllm:num_requests_running").await > 0.0) != is_busy {
            assert!(clock::now() < deadline, "busy: {is_busy}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    wait_for(true).await;
    drop(stream);
    wait_for(false).await;
    assert_eq!(sim.complete(3).await.texts(), 3);
    let tokens = sim.metric("vllm:prompt_tokens_total").await;
    sim.stop().await;
    tokens
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ranking_ends_with_its_client_unless_disconnects_are_ignored() {
    let all = tokens_of_an_abandoned_ranking(true).await;
    assert!(all >= 40_000.0, "{all}");
    let some = tokens_of_an_abandoned_ranking(false).await;
    assert!(some < all, "{some} of {all}");
}
