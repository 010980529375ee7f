//! Connections to servers: certificates, Unix sockets, headers of every request.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket as nix_socket,
};

use matrix::base::clock;
use rustix::process::{Pid, Signal, kill_process};

use crate::authority::Authority;
use crate::harness::{Desk, Ran, Sim};
use crate::recorder::Recorder;
use crate::scripted::{read_request, serve_in_turn, stream, text};

/// Ten requests to an https port of this host.
fn bench(port: u16, more: &[&str]) -> (Ran, Desk) {
    let desk = Desk::new();
    let url = format!("https://localhost:{port}");
    let common = [
        "--base-url",
        &url,
        "--ready-check-timeout-sec",
        "1",
        "--warmup-requests",
        "0",
    ];
    let ran = desk.random("vllm", port, &[&common[..], more].concat());
    (ran, desk)
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("it is text")
}

#[test]
fn a_ca_file_is_trusted_and_an_unchecked_certificate_stays_with_the_result() {
    let sim = Sim::start("vllm", &[]);
    let authority = Authority::new();
    authority.sign("server", "localhost", 2999);
    let port = authority.proxy("server", sim.port, false);
    let ca = authority.file("ca.pem");
    let (ran, desk) = bench(port, &["--ca-file", shown(&ca)]);
    let ran = ran.exits(0);
    assert!(!ran.stderr.contains("certificate"), "{}", ran.stderr);
    assert_eq!(desk.lines()[0]["completed"], 10);
    // The authority is none of this machine's.
    bench(port, &["--ready-check-timeout-sec", "600"])
        .0
        .exits(4)
        .says("give the right address with `--base-url https://host:port`")
        .says("UnknownIssuer")
        .says("`--ca-file`")
        .says("`--insecure`");
    let (ran, desk) = bench(port, &["--insecure"]);
    ran.exits(0).says("the certificate of the server was not checked");
    let notes = desk.lines()[0]["matrix"]["notes"].to_string();
    assert!(notes.contains("`--insecure`"), "{notes}");
}

#[test]
fn certificates_that_are_wrong_or_expired_are_named_by_helper_requests_and_by_the_load() {
    let sim = Sim::start("vllm", &[]);
    let authority = Authority::new();
    authority.sign("other", "elsewhere", 2999);
    authority.sign("old", "localhost", 2001);
    let ca = authority.file("ca.pem");
    for (name, why) in [("other", "not valid for name"), ("old", "expired")] {
        let port = authority.proxy(name, sim.port, false);
        let with_ca = ["--ca-file", shown(&ca)];
        let (ran, _) = bench(port, &with_ca);
        let ran = ran.exits(4).says(why).says("`--insecure`");
        for wrong in ["start the server", "`--ca-file`"] {
            assert!(!ran.stderr.contains(wrong), "{}", ran.stderr);
        }
        let unasked = ["--ready-check-timeout-sec", "0", "--model", "m"];
        bench(port, &[&with_ca[..], &unasked].concat())
            .0
            .exits(3)
            .says(why)
            .says("`--insecure`");
        bench(port, &["--insecure"]).0.exits(0);
    }
}

#[test]
fn a_client_certificate_is_sent_where_the_server_asks_for_it() {
    let sim = Sim::start("vllm", &[]);
    let (authority, stranger) = (Authority::new(), Authority::new());
    authority.sign("server", "localhost", 2999);
    authority.sign("client", "client", 2999);
    stranger.sign("client", "client", 2999);
    let port = authority.proxy("server", sim.port, true);
    let ca = authority.file("ca.pem");
    let with = |signer: &Authority, more: &[&str]| {
        let (certificate, key) = (signer.file("client.pem"), signer.file("client.key"));
        let identity = ["--client-cert", shown(&certificate), "--client-key", shown(&key)];
        bench(port, &[&["--ca-file", shown(&ca)], &identity[..], more].concat()).0
    };
    with(&authority, &[]).exits(0);
    with(&stranger, &[])
        .exits(4)
        .says("refused the client certificate; set another one with `--client-cert`");
    let unasked = ["--ready-check-timeout-sec", "0", "--model", "m"];
    with(&stranger, &unasked).exits(3).says("`--client-cert`");
    bench(port, &["--ca-file", shown(&ca)])
        .0
        .exits(4)
        .says("`--client-cert`");
}

#[test]
fn http_to_a_tls_server_and_the_reverse_are_named() {
    let sim = Sim::start("vllm", &[]);
    let authority = Authority::new();
    authority.sign("server", "localhost", 2999);
    let port = authority.proxy("server", sim.port, false);
    let desk = Desk::new();
    let ready = ["--ready-check-timeout-sec", "1"];
    desk.random("vllm", port, &ready).exits(4).says("use `https://`");
    let unasked = ["--ready-check-timeout-sec", "0", "--model", "m"];
    desk.random("vllm", port, &unasked)
        .exits(3)
        .says("use `https://`");
    let ca = authority.file("ca.pem");
    bench(sim.port, &["--ca-file", shown(&ca)])
        .0
        .exits(4)
        .says("use `http://`");
}

#[test]
fn tls_flags_that_cannot_be_used_are_refused() {
    let ca = crate::harness::repository().join("src/loadgen/tls/localhost.crt");
    let ca = shown(&ca);
    let desk = Desk::new();
    for flags in [
        &["--insecure"][..],
        &["--ca-file", ca],
        &["--client-cert", ca, "--client-key", ca],
    ] {
        desk.random("vllm", 9, flags)
            .exits(2)
            .says("has no effect on `http://127.0.0.1:9`");
    }
    for (flags, why) in [
        (&["--insecure", "--ca-file", ca][..], "contradict each other"),
        (&["--ca-file", "/no/such.pem"], "`/no/such.pem` cannot be read"),
        (&["--ca-file", "/dev/zero"], "the path is not a regular file"),
        (
            &["--client-cert", ca, "--client-key", "/dev/zero"],
            "the path is not a regular file",
        ),
        (&["--client-cert", ca], "give `--client-key`"),
        (&["--client-key", ca], "give `--client-cert`"),
        (&["--client-cert", ca, "--client-key", ca], "has no private key"),
    ] {
        bench(9, flags).0.exits(2).says(why).says("nothing was sent");
    }
}

/// A Unix socket that passes what it takes on to a port.
fn unix_proxy(socket: &Path, to: u16) -> Arc<Mutex<Vec<String>>> {
    pass_on_from(UnixListener::bind(socket).expect("the folder is new"), to)
}

fn pass_on_from(listener: UnixListener, to: u16) -> Arc<Mutex<Vec<String>>> {
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&heads);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let heard = Arc::clone(&heard);
            std::thread::spawn(move || pass_on(client, to, &heard));
        }
    });
    heads
}

fn pass_on(mut client: UnixStream, to: u16, heard: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", to))?;
    let (mut back, mut answers) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut answers, &mut back);
        let _ = back.shutdown(std::net::Shutdown::Write);
    });
    let mut buffer = [0; 64 << 10];
    let length = client.read(&mut buffer)?;
    let request = String::from_utf8_lossy(&buffer[..length]).into_owned();
    let head = request.split("\r\n\r\n").next().unwrap_or_default().to_owned();
    heard.lock().expect("no holder panics").push(head);
    server.write_all(&buffer[..length])?;
    std::io::copy(&mut client, &mut server).map(drop)
}

#[test]
fn a_server_on_a_unix_socket_is_measured_with_its_helper_requests() {
    let sim = Sim::start("vllm", &["--ttft", "20ms", "--itl", "2ms"]);
    let desk = Desk::new();
    let socket = desk.path().join("engine.sock");
    let heads = unix_proxy(&socket, sim.port);
    let url = format!("unix://{}", socket.display());
    let more = ["--base-url", &url, "--flush-cache", "--header", "X-Team=blue"];
    desk.random("vllm", 9, &more)
        .exits(0)
        .shows("Successful requests:");
    let line = desk.lines().remove(0);
    assert_eq!(line["completed"], 10);
    // The kernel takes no times on Unix sockets.
    assert_eq!(line["matrix"]["stamps"], "user");
    assert!(line["mean_ttft_ms"].as_f64().is_some_and(|ttft| ttft >= 20.0));
    let heads = heads.lock().expect("no holder panics").clone();
    for path in [
        "GET /v1/models ",
        "POST /reset_prefix_cache ",
        "GET /server_info ",
        "POST /v1/completions ",
    ] {
        let of_path: Vec<&String> = heads.iter().filter(|head| head.starts_with(path)).collect();
        assert!(!of_path.is_empty(), "{path}: {heads:?}");
        for head in of_path {
            let head = head.to_lowercase();
            for header in ["host: localhost", "x-team: blue"] {
                assert!(head.lines().any(|line| line == header), "{head}");
            }
        }
    }
}

/// The kernel refuses connections beyond the accept queue of a Unix socket at once, instead of waiting.
#[test]
fn more_requests_than_the_accept_queue_of_a_unix_socket_holds_are_all_sent() {
    let desk = Desk::new();
    let socket = desk.path().join("engine.sock");
    let port = serve_in_turn(&[stream(&["a", " b", " c"].map(text))]);
    let listener = nix_socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .expect("a socket");
    let address = UnixAddr::new(&socket).expect("a short path");
    bind(listener.as_raw_fd(), &address).expect("the folder is new");
    listen(&listener, Backlog::new(1).expect("it is small")).expect("it is bound");
    pass_on_from(listener.into(), port);
    let url = format!("unix://{}", socket.display());
    let more = [
        "--base-url",
        &url,
        "--num-prompts",
        "100",
        "--warmup-requests",
        "0",
        "--disable-tqdm",
    ];
    desk.random("vllm", 9, &more).exits(0);
    assert_eq!(desk.lines()[0]["completed"], 100);
}

#[test]
fn a_prefix_of_a_unix_socket_stands_before_every_path() {
    let desk = Desk::new();
    let socket = desk.path().join("engine.sock");
    let heads = unix_proxy(&socket, serve_in_turn(&[stream(&["a", " b", " c"].map(text))]));
    let url = format!("unix://{}:/proxy/", socket.display());
    desk.random("vllm", 9, &["--base-url", &url]).exits(0);
    let heads = heads.lock().expect("no holder panics").clone();
    let is_below = |head: &String| {
        head.split(' ')
            .nth(1)
            .is_some_and(|path| path.starts_with("/proxy/"))
    };
    assert!(heads.len() > 10 && heads.iter().all(is_below), "{heads:?}");
}

#[test]
fn sockets_that_cannot_be_used_are_named() {
    let desk = Desk::new();
    let missing = format!("unix://{}", desk.path().join("none.sock").display());
    let file = desk.path().join("file");
    std::fs::write(&file, "").expect("it can be written");
    let file = format!("unix://{}", file.display());
    for (url, why) in [(&missing, "No such file"), (&file, "Connection refused")] {
        let ready = ["--base-url", url, "--ready-check-timeout-sec", "1"];
        desk.random("vllm", 9, &ready)
            .exits(4)
            .says(why)
            .says(url)
            .says("give its address with `--base-url unix:///path/to/socket`");
        let unasked = [
            "--base-url",
            url,
            "--ready-check-timeout-sec",
            "0",
            "--model",
            "m",
        ];
        desk.random("vllm", 9, &unasked).exits(3).says(why);
    }
    desk.random("vllm", 9, &["--base-url", "unix://run/a.sock"])
        .exits(2)
        .says("is not absolute");
    desk.random("vllm", 9, &["--base-url", "unix:///run/a.sock", "--insecure"])
        .exits(2)
        .says("no effect");
    let long = format!("unix:///{}", "a".repeat(200));
    desk.random("vllm", 9, &["--base-url", &long])
        .exits(2)
        .says("longer than");
}

/// A server that answers the n-th request with a body as the script says, and others with a list of models.
fn serve_raw(script: impl Fn(usize) -> String + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it has one").port();
    let (script, turn) = (Arc::new(script), Arc::new(AtomicUsize::new(0)));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (script, turn) = (Arc::clone(&script), Arc::clone(&turn));
            std::thread::spawn(move || {
                let head = read_request(&mut stream)?;
                let bytes = match head.starts_with("POST") {
                    true => script(turn.fetch_add(1, Ordering::SeqCst)),
                    false => with_body("200 OK", r#"{"data": [{"id": "m"}]}"#),
                };
                stream.write_all(bytes.as_bytes()).ok()
            });
        }
    });
    port
}

fn with_body(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

fn sound() -> String {
    let body = stream(&["a", " b", " c"].map(text)).join("\n\n") + "\n\n";
    with_body("200 OK\r\nContent-Type: text/event-stream", &body)
}

const ONE_BY_ONE: [&str; 7] = [
    "--num-prompts",
    "4",
    "--max-concurrency",
    "1",
    "--warmup-requests",
    "0",
    "--disable-tqdm",
];

fn retrying(port: u16, more: &[&str]) -> (Ran, serde_json::Map<String, serde_json::Value>) {
    let desk = Desk::new();
    let ran = desk.random("vllm", port, &[&ONE_BY_ONE[..], more].concat());
    let line = desk.lines().remove(0);
    (ran, line)
}

#[test]
fn requests_that_were_turned_away_are_sent_again_and_counted() {
    // The first request is turned away twice, the second once without a time that can be read.
    let server = || {
        serve_raw(|turn| match turn {
            0 => with_body("429 Too Many Requests\r\nRetry-After: 1", "slow down"),
            1 => with_body(
                "503 Service Unavailable\r\nRetry-After: Wed, 21 Oct 2015 07:28:00 GMT",
                "",
            ),
            3 => with_body("503 Service Unavailable\r\nRetry-After: soon", ""),
            _ => sound(),
        })
    };
    let (ran, line) = retrying(server(), &["--retries", "2"]);
    ran.exits(0)
        .says("2 requests were sent again after status 429 or 503, 3 times in total");
    assert_eq!(line["completed"], 4);
    let retries = &line["matrix"]["retries"];
    assert_eq!(
        retries,
        &serde_json::json!({"limit": 2, "requests": 2, "retries": 3})
    );
    // One waited a second and one half a second, and both count from the first time.
    let mean = line["mean_ttft_ms"].as_f64().expect("a number");
    assert!(mean >= (1000.0 + 500.0) / 4.0, "{mean}");
    let (ran, line) = retrying(server(), &[]);
    ran.exits(3).says("Too Many Requests: slow down");
    assert_eq!(line["completed"], 1);
    assert!(line["matrix"].get("retries").is_none(), "{line:?}");
}

#[test]
fn a_retry_that_the_end_of_the_load_prevents_is_not_counted() {
    let turned_away = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&turned_away);
    let port = serve_raw(move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
        with_body("429 Too Many Requests\r\nRetry-After: 50", "later")
    });
    let desk = Desk::new();
    let unasked = ["--ready-check-timeout-sec", "0", "--model", "m"];
    let more = ["--num-prompts", "3", "--warmup-requests", "0", "--retries", "3"];
    let child = desk
        .random_command("vllm", port, &[&unasked[..], &more].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let limit = clock::now().plus(Duration::from_secs(60));
    while turned_away.load(Ordering::SeqCst) < 3 {
        assert!(clock::now() < limit, "the load begins");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = i32::try_from(child.id()).expect("process ids are small");
    kill_process(Pid::from_raw(pid).expect("it has an id"), Signal::INT).expect("it lives");
    let ran = Ran::from(child.wait_with_output().expect("it ends")).exits(130);
    assert!(!ran.stderr.contains("sent again"), "{}", ran.stderr);
    assert_eq!(turned_away.load(Ordering::SeqCst), 3);
    let retries = &desk.lines()[0]["matrix"]["retries"];
    assert_eq!(
        retries,
        &serde_json::json!({"limit": 3, "requests": 0, "retries": 0})
    );
}

#[test]
fn an_address_beside_a_base_url_is_said_to_have_no_effect() {
    let sim = Sim::start("vllm", &[]);
    let (desk, url) = (Desk::new(), format!("http://127.0.0.1:{}", sim.port));
    let note = "note: `--host` and `--port` have no effect together with `--base-url`";
    desk.random("vllm", 9, &["--base-url", &url]).exits(0).says(note);
    let ran = desk.random("vllm", sim.port, &[]).exits(0);
    assert!(!ran.stderr.contains(note), "{}", ran.stderr);
}

#[test]
fn a_request_that_is_always_turned_away_fails_with_its_status() {
    let port = serve_raw(|_| with_body("503 Service Unavailable\r\nRetry-After: 0", "full"));
    let (ran, line) = retrying(port, &["--retries", "3"]);
    ran.exits(3).says("Service Unavailable: full");
    assert_eq!(line["matrix"]["retries"]["retries"], 12);
    assert_eq!(line["matrix"]["failures"]["status"], 4);
    // Of several addresses, the one that turned requests away is named.
    let (busy, good) = (
        serve_raw(|_| with_body("503 Service Unavailable\r\nRetry-After: 0", "full")),
        serve_raw(|_| sound()),
    );
    let urls = [busy, good].map(|port| format!("http://127.0.0.1:{port}"));
    let more = ["--base-url", &urls[0], &urls[1], "--retries", "3"];
    let (ran, line) = retrying(busy, &more);
    ran.says(" earlier attempts with 429 or 503");
    let away = line["matrix"]["endpoints"][0]["turned_away"].as_u64();
    assert_eq!(away, line["matrix"]["retries"]["retries"].as_u64());
    assert!(away > Some(0) && line["matrix"]["endpoints"][1].get("turned_away").is_none());
    // Other errors are not tried again.
    let port = serve_raw(|_| with_body("500 Oh", "boom"));
    let (ran, line) = retrying(port, &["--retries", "3"]);
    ran.exits(3).says("Oh: boom");
    assert_eq!(line["matrix"]["retries"]["retries"], 0);
}

#[test]
fn a_wait_beyond_the_timeout_of_the_request_is_not_begun() {
    let huge = "429 Too Many Requests\r\nRetry-After: 99999999999999999999999";
    let port = serve_raw(move |_| with_body(huge, "later"));
    let (ran, line) = retrying(port, &["--retries", "9", "--request-timeout", "30s"]);
    ran.exits(3)
        .says("Too Many Requests: later")
        .says("4 requests were not sent again, because the pause before a retry would have been longer than their `--request-timeout`");
    assert_eq!(
        line["matrix"]["retries"],
        serde_json::json!({"limit": 9, "requests": 0, "retries": 0, "skipped": 4})
    );
}

#[test]
fn a_redirect_is_a_failure_that_names_where_to_and_no_secret() {
    let moved = "307 Temporary Redirect\r\nLocation: https://u:hush-hush@elsewhere/v1/completions";
    let port = serve_raw(move |_| with_body(moved, ""));
    let (ran, _) = retrying(port, &[]);
    let ran = ran
        .exits(3)
        .says("redirects are not followed")
        .says("elsewhere/v1/completions")
        .says("base URL");
    assert!(!ran.stderr.contains("hush"), "{}", ran.stderr);
    let moved = "307 Temporary Redirect\r\nLocation: /v2/completions?api_key=hush-hush&x=1";
    let port = serve_raw(move |_| with_body(moved, ""));
    let (ran, _) = retrying(port, &[]);
    let ran = ran.exits(3).says("/v2/completions?api_key=*********&x=1");
    assert!(!ran.stderr.contains("hush"), "{}", ran.stderr);
}

#[test]
fn connections_of_the_simulated_engine_are_reused() {
    let sim = Sim::start("vllm", &[]);
    let desk = Desk::new();
    let more = [
        "--connections",
        "reuse",
        "--max-concurrency",
        "2",
        "--warmup-requests",
        "0",
    ];
    desk.random("vllm", sim.port, &more)
        .exits(0)
        .says("requests (`--connections reuse`)");
    let line = desk.lines().remove(0);
    assert_eq!(line["completed"], 10);
    // Two are in flight at a time; a request that begins before the last chunk of the one before has come
    // opens a connection.
    let connections = &line["matrix"]["connections"];
    assert!(
        connections["reused"]
            .as_u64()
            .is_some_and(|reused| (1..=8).contains(&reused)),
        "{connections}"
    );
    assert_eq!(
        (&connections["reconnected"], &connections["surplus"]),
        (&0.into(), &0.into())
    );
}

#[test]
fn several_addresses_get_requests_in_turn_and_one_that_is_dead_is_visible() {
    let (one, other) = (Recorder::start(), Recorder::start());
    let url = |port: u16, prefix: &str| format!("http://127.0.0.1:{port}{prefix}");
    let desk = Desk::new();
    let urls = [url(one.port, ""), url(other.port, "")];
    let more = [
        "--base-url",
        &urls[0],
        &urls[1],
        "--warmup-requests",
        "0",
        "--records",
        "records.jsonl",
    ];
    desk.random("vllm", 9, &more)
        .exits(0)
        .says(&format!("`{}` got 5 requests", urls[1]));
    for server in [&one, &other] {
        let heard = server.take();
        assert_eq!(heard.len(), 5);
        let host = format!("host: 127.0.0.1:{}", server.port);
        assert!(
            heard.iter().all(|heard| heard.headers.contains(&host)),
            "{heard:?}"
        );
    }
    // The flag may also stand before each address.
    let again = [
        "--base-url",
        &urls[0],
        "--base-url",
        &urls[1],
        "--warmup-requests",
        "0",
    ];
    Desk::new().random("vllm", 9, &again).exits(0);
    assert_eq!([&one, &other].map(|server| server.take().len()), [5, 5]);
    let endpoints = desk.lines()[0]["matrix"]["endpoints"].clone();
    assert_eq!(
        endpoints[0],
        serde_json::json!({"url": urls[0], "requests": 5, "failures": {}})
    );
    let records = std::fs::read_to_string(desk.path().join("records.jsonl")).expect("records");
    assert_eq!(records.matches(r#""endpoint":1"#).count(), 5, "{records}");
    let free = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let dead = url(free.local_addr().expect("it has one").port(), "/a");
    drop(free);
    let desk = Desk::new();
    let more = [
        "--base-url",
        &urls[0],
        &dead,
        "--warmup-requests",
        "0",
        "--ready-check-timeout-sec",
        "0",
    ];
    desk.random("vllm", 9, &more)
        .exits(3)
        .says(&format!("`{dead}` got 5 requests, failed: refused 5"));
    assert_eq!(
        desk.lines()[0]["matrix"]["endpoints"][1]["failures"]["refused"],
        5
    );
    // The readiness check waits for each of them.
    let ready = ["--base-url", &urls[0], &dead, "--ready-check-timeout-sec", "1"];
    Desk::new().random("vllm", 9, &ready).exits(4).says(&dead);
}

#[test]
fn all_rounds_of_a_conversation_go_to_one_address() {
    let (one, other) = (Recorder::start(), Recorder::start());
    let urls = [one.port, other.port].map(|port| format!("http://127.0.0.1:{port}"));
    let desk = Desk::new();
    let tokenizer = crate::harness::data("tokenizer.json");
    let args = [
        "--backend",
        "vllm-chat",
        "--tokenizer",
        &tokenizer,
        "--dataset-name",
        "generated-shared-prefix",
        "--gsp-num-groups",
        "2",
        "--gsp-prompts-per-group",
        "3",
        "--gsp-system-prompt-len",
        "8",
        "--gsp-question-len",
        "8",
        "--gsp-output-len",
        "4",
        "--gsp-num-turns",
        "3",
        "--warmup-requests",
        "0",
        "--disable-tqdm",
        "--balance",
        "sticky",
        "--output-file",
        "out.jsonl",
        "--records",
        "records.jsonl",
        "--base-url",
        &urls[0],
        &urls[1],
    ];
    desk.call(&args).exits(0);
    let records = std::fs::read_to_string(desk.path().join("records.jsonl")).expect("records");
    let mut ends = Vec::new();
    for line in records.lines() {
        let record: serde_json::Value = serde_json::from_str(line).expect("JSON");
        if let (Some(index), Some(round)) = (record["index"].as_u64(), record["round"].as_u64()) {
            ends.push((
                index - round,
                record["connection"]["endpoint"].as_u64().expect("it was sent"),
            ));
        }
    }
    assert_eq!(ends.len(), 18, "{records}");
    ends.sort_unstable();
    ends.dedup();
    assert_eq!(ends.len(), 6, "each conversation has one address: {ends:?}");
    assert_eq!(
        ends.iter().filter(|(_, endpoint)| *endpoint == 1).count(),
        3,
        "{ends:?}"
    );
}

#[test]
fn flags_of_connections_that_do_not_fit_are_refused() {
    let desk = Desk::new();
    desk.random("vllm", 9, &["--balance", "sticky"])
        .exits(2)
        .says("no effect on one address");
    let two = ["--base-url", "http://a:1", "http://b:1"];
    for flag in ["--flush-cache", "--profile"] {
        desk.random("vllm", 9, &[&two[..], &[flag]].concat())
            .exits(2)
            .says("with one address");
    }
    desk.random("vllm", 9, &["--base-url", "http://a:1", "b:1", "c:1"])
        .exits(2)
        .says("`c:1`");
    desk.random("vllm", 9, &["--connections", "pool"])
        .exits(2)
        .says("reuse");
}
