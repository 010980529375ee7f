use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Sim, TIMEOUT, completion, free_port, options_for};
use crate::sim::{Dialect, Faults, Loading, Options, RankLoss, Ranks, Schedule, SimError, Timing, serve};

fn rank(node_rank: u32, nodes: u32, head_port: u16) -> Options {
    Options {
        ranks: Some(Ranks {
            nodes,
            node_rank,
            head_host: "localhost".to_owned(),
            head_port,
            join_timeout: TIMEOUT,
            rank_loss: RankLoss::Exit,
        }),
        ..options_for(Dialect::Vllm)
    }
}

fn with_rank_loss(mut options: Options, rank_loss: RankLoss) -> Options {
    options.ranks.as_mut().unwrap().rank_loss = rank_loss;
    options
}

fn with_loading(mut options: Options, loading: Loading) -> Options {
    options.faults = Faults {
        loading,
        ..Faults::default()
    };
    options
}

/// A rank other than the head.
struct Follower {
    log: Arc<Mutex<Vec<String>>>,
    stop: CancellationToken,
    task: JoinSet<Result<(), SimError>>,
}

impl Follower {
    fn start(options: Options) -> Self {
        let log = Arc::new(Mutex::new(Vec::new()));
        let stop = CancellationToken::new();
        let (lines, token) = (Arc::clone(&log), stop.clone());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let log = Arc::new(move |line: &str| lines.lock().unwrap().push(line.to_owned()));
            serve(options, log, |_| panic!("a rank does not serve"), token).await
        });
        Self { log, stop, task }
    }

    /// How it ends, and its log.
    async fn end(mut self) -> (Result<(), SimError>, String) {
        let end = tokio::time::timeout(TIMEOUT, self.task.join_next())
            .await
            .expect("it ends in time");
        let log = self.log.lock().unwrap().join("\n");
        (end.unwrap().unwrap(), log)
    }
}

async fn wait_for_log(sim: &Sim, text: &str) {
    tokio::time::timeout(TIMEOUT, async {
        while !sim.log().contains(text) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("no `{text}` in\n{}", sim.log()));
}

async fn wait_until_healthy(sim: &Sim) {
    tokio::time::timeout(TIMEOUT, async {
        while sim.get("/health").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("it gets healthy");
}

#[tokio::test]
async fn the_head_serves_once_all_ranks_have_joined_and_they_end_with_it() {
    let port = free_port();
    // A rank that starts before its head tries until the head listens.
    let second = Follower::start(rank(2, 3, port));
    let head = Sim::start(rank(0, 3, port)).await;
    wait_for_log(&head, "rank 2 joined (1 of 2)").await;
    let answer = head.get("/health").await;
    assert_eq!(answer.status, 503);
    assert!(
        answer
            .body
            .contains("number of ranks that have not joined yet: 1"),
        "{}",
        answer.body
    );
    assert_eq!(head.complete(1).await.status, 503);
    assert!(!head.log().contains("startup complete"));
    let first = Follower::start(rank(1, 3, port));
    wait_until_healthy(&head).await;
    assert!(head.log().contains("rank 1 joined (2 of 2)"));
    assert_eq!(head.complete(3).await.texts(), 3);
    head.stop().await;
    for (follower, number) in [(first, 1), (second, 2)] {
        let (end, log) = follower.end().await;
        end.unwrap();
        assert!(
            log.contains(&format!("rank {number} of 3 joined the head at localhost:{port}")),
            "{log}"
        );
        assert!(log.contains("ended"), "{log}");
    }
}

#[tokio::test]
async fn strangers_are_ignored_and_ranks_that_do_not_fit_are_refused() {
    let port = free_port();
    let head = Sim::start(rank(0, 2, port)).await;
    let mut stranger = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stranger.write_all(b"GET /health HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // It may be closed or reset, because the head leaves the rest unread.
    let _ = stranger.read_to_end(&mut answer).await;
    assert!(answer.is_empty());

    let refusal = |end: Result<(), SimError>| match end {
        Err(error @ SimError::Join(_)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let (end, _) = Follower::start(rank(1, 3, port)).end().await;
    let other_size = refusal(end);
    assert!(
        other_size.contains("refused rank 1: the rank has `--nodes 3`, but the head has `--nodes 2`"),
        "{other_size}"
    );
    assert_eq!(head.get("/health").await.status, 503);

    let first = Follower::start(rank(1, 2, port));
    wait_until_healthy(&head).await;
    let (end, _) = Follower::start(rank(1, 2, port)).end().await;
    let twice = refusal(end);
    assert!(twice.contains("rank 1 has joined before"), "{twice}");
    let log = head.log();
    assert!(
        log.contains("rank 1 was refused: the rank has `--nodes 3`"),
        "{log}"
    );
    assert!(
        log.contains("rank 1 was refused: rank 1 has joined before"),
        "{log}"
    );
    assert_eq!(head.complete(2).await.texts(), 2);
    head.stop().await;
    first.end().await.0.unwrap();
}

#[tokio::test]
async fn a_lost_rank_ends_the_head_and_breaks_its_streams() {
    let port = free_port();
    let head = Sim::start(rank(0, 2, port)).await;
    let follower = Follower::start(rank(1, 2, port));
    wait_until_healthy(&head).await;
    let body = completion(30_000);
    let lose = async {
        while head.metric("vllm:generation_tokens_total").await == 0.0 {}
        follower.stop.cancel();
    };
    let ((_, end), ()) = tokio::join!(head.send_raw("POST", "/v1/completions", "", &body), lose);
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    let log = Arc::clone(&head.log);
    let end = head.wait_for_end().await;
    assert!(matches!(end, Err(SimError::RankLost { rank: 1 })), "{end:?}");
    let last = log.lock().unwrap().last().unwrap().clone();
    assert!(
        last.starts_with("ERROR ") && last.ends_with("rank 1 was lost"),
        "{last}"
    );
    follower.end().await.0.unwrap();
}

#[tokio::test]
async fn a_head_can_hang_for_ever_when_a_rank_is_lost() {
    let (ttft, itl) = (Duration::from_millis(1), Duration::from_millis(1));
    let exact = Timing::Exact(Schedule {
        ttft,
        itl,
        spread: 0.0,
    });
    let usual = Options::default();
    let flood = Timing::Flood { burst_bytes: 0 };
    for (timing, max_model_len, requested) in [
        (usual.timing, usual.max_model_len, 30_000),
        (exact, usual.max_model_len, 30_000),
        // It generates much faster.
        (flood, 10_000_000, 5_000_000),
    ] {
        let port = free_port();
        let head = Sim::start(Options {
            timing,
            max_model_len,
            ..with_rank_loss(rank(0, 2, port), RankLoss::Hang)
        })
        .await;
        let follower = Follower::start(rank(1, 2, port));
        wait_until_healthy(&head).await;
        let body = completion(requested);
        let tokens = async || head.metric("vllm:generation_tokens_total").await;
        let stream = head.send_raw("POST", "/v1/completions", "", &body);
        let stall = async {
            while tokens().await == 0.0 {}
            follower.stop.cancel();
            wait_for_log(&head, "rank 1 was lost").await;
            let mut before = tokens().await;
            loop {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let now = tokens().await;
                if now == before {
                    return now;
                }
                before = now;
            }
        };
        let generated = tokio::select! {
            end = stream => panic!("the stream ended: {:?}", end.1),
            generated = stall => generated,
        };
        assert!(generated < requested as f64, "{generated}");
        assert_eq!(head.get("/health").await.status, 200);
        let answered = tokio::time::timeout(Duration::from_millis(100), head.complete(1)).await;
        assert!(answered.is_err());
        head.stop().await;
    }
}

#[tokio::test]
async fn the_head_waits_until_all_ranks_have_loaded() {
    let port = free_port();
    let head = Sim::start(rank(0, 2, port)).await;
    let follower = Follower::start(with_loading(rank(1, 2, port), Loading::Hangs));
    wait_for_log(&head, "rank 1 joined (1 of 1)").await;
    wait_for_log(&head, "Graph capturing finished").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(head.get("/health").await.status, 503);
    head.stop().await;
    follower.end().await.0.unwrap();

    let port = free_port();
    let head = Sim::start(rank(0, 2, port)).await;
    let dying = with_loading(rank(1, 2, port), Loading::Dies(Duration::from_millis(20)));
    let (end, log) = Follower::start(dying).end().await;
    assert!(
        matches!(end, Err(SimError::InjectedDeath { status: 1 })),
        "{end:?}"
    );
    assert!(log.contains("CUDA out of memory"), "{log}");
    let end = head.wait_for_end().await;
    assert!(matches!(end, Err(SimError::RankLost { rank: 1 })), "{end:?}");
}

#[tokio::test]
async fn a_rank_without_a_head_gives_up() {
    let mut options = rank(1, 2, free_port());
    options.ranks.as_mut().unwrap().join_timeout = Duration::from_millis(250);
    let (end, _) = Follower::start(options).end().await;
    let error = end.unwrap_err().to_string();
    assert!(
        error.contains("rank 1 did not reach the head at localhost:"),
        "{error}"
    );
    assert!(error.contains("within 250ms"), "{error}");
}
