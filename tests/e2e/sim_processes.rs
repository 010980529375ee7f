//! A simulated engine of several processes: ranks on several nodes; prefill and decode servers with their router.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::binary::matrix;

/// How often something is looked at, 20 ms apart, before a test gives up: longer than any step takes on a busy machine.
const ATTEMPTS: u32 = 3_000;

/// A `matrix sim`, which is killed when this is dropped.
struct Process {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Process {
    fn start(arguments: &str) -> Self {
        let mut child = command(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the simulated engine starts");
        let log = Arc::new(Mutex::new(String::new()));
        let (lines, stdout) = (Arc::clone(&log), child.stdout.take().expect("it is piped"));
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let mut log = lines.lock().expect("no reader panics");
                log.push_str(&line);
                log.push('\n');
            }
        });
        Self { child, log }
    }

    fn log(&self) -> String {
        self.log.lock().expect("no writer panics").clone()
    }

    fn wait_for_log(&self, text: &str) {
        wait(
            || self.log().contains(text),
            || format!("no `{text}` in\n{}", self.log()),
        );
    }

    fn kill(&mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it lives");
    }

    fn wait_for_end(&mut self) -> ExitStatus {
        let mut end = None;
        wait(
            || {
                end = self.child.try_wait().expect("it can be waited for");
                end.is_some()
            },
            || "it does not end".to_owned(),
        );
        end.expect("it ended")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(arguments: &str) -> Command {
    let mut command = Command::new(matrix());
    command
        .arg("sim")
        .args(arguments.split_whitespace())
        .stdin(Stdio::null());
    command
}

fn wait(mut is_reached: impl FnMut() -> bool, complaint: impl Fn() -> String) {
    for _ in 0..ATTEMPTS {
        if is_reached() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{}", complaint());
}

/// A free port below those that the kernel gives to outgoing connections, which no other call returns.
fn free_port() -> u16 {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    loop {
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let port = 20_000 + ((std::process::id() * 31 + call) % 12_000) as u16;
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// Sends a request on a new connection. Returns the status and everything that arrived; the status is `None` if there was
/// no answer.
fn call(port: u16, method: &str, path: &str, body: &str) -> (Option<u16>, String) {
    let mut text = Vec::new();
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: sim\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        // A server that is killed meanwhile breaks the connection.
        let _ = stream.write_all((head + body).as_bytes());
        let _ = stream.read_to_end(&mut text);
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    (
        text.split(' ').nth(1).and_then(|status| status.parse().ok()),
        text,
    )
}

fn health(port: u16) -> Option<u16> {
    call(port, "GET", "/health", "").0
}

fn complete(port: u16, tokens: usize) -> (Option<u16>, String) {
    let body = format!(r#"{{"prompt":[1,2,3,4],"max_tokens":{tokens},"ignore_eos":true,"stream":true}}"#);
    call(port, "POST", "/v1/completions", &body)
}

/// A head and the other rank of an engine over two nodes, serving at the port.
fn two_ranks(head_flags: &str) -> (Process, Process, u16) {
    let (head_port, port) = (free_port(), free_port());
    let ranks = format!("--nodes 2 --head-host localhost --head-port {head_port} --model m");
    let head = Process::start(&format!("{ranks} --port {port} {head_flags}"));
    wait(
        || health(port) == Some(503),
        || "the head does not listen".to_owned(),
    );
    assert_eq!(complete(port, 1).0, Some(503));
    let other = Process::start(&format!("{ranks} --node-rank 1"));
    head.wait_for_log("rank 1 joined (1 of 1)");
    wait(|| health(port) == Some(200), || head.log());
    (head, other, port)
}

#[test]
fn a_head_that_loses_a_rank_exits_and_a_rank_that_loses_its_head_ends() {
    let (mut head, mut other, port) = two_ranks("");
    let (status, text) = complete(port, 3);
    assert_eq!(
        (status, text.matches("data: {").count()),
        (Some(200), 3),
        "{text}"
    );
    other.kill(Signal::KILL);
    other.wait_for_end();
    assert_eq!(head.wait_for_end().code(), Some(1));
    let log = head.log();
    let last = log.lines().last().expect("it has a log");
    assert!(
        last.starts_with("ERROR ") && last.ends_with("rank 1 was lost"),
        "{last}"
    );

    let (mut head, mut other, _) = two_ranks("");
    head.kill(Signal::KILL);
    assert_eq!(other.wait_for_end().code(), Some(0));
    assert!(other.log().contains("ended"), "{}", other.log());
}

#[test]
fn a_head_can_hang_once_it_lost_a_rank() {
    let (head, mut other, port) = two_ranks("--rank-loss hang");
    other.kill(Signal::TERM);
    assert_eq!(other.wait_for_end().code(), Some(0));
    head.wait_for_log("rank 1 was lost");
    assert_eq!(health(port), Some(200));
    let (sender, answered) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        complete(port, 1);
        let _ = sender.send(());
    });
    assert!(answered.recv_timeout(Duration::from_millis(300)).is_err());
}

#[test]
fn a_fault_of_one_rank_is_not_that_of_another() {
    let (head_port, port) = (free_port(), free_port());
    let ranks = format!(
        "--nodes 2 --head-host localhost --head-port {head_port} --model m --fault-rank 1 --die-while-loading 10ms"
    );
    let mut head = Process::start(&format!("{ranks} --port {port}"));
    let mut other = Process::start(&format!("{ranks} --node-rank 1"));
    assert_eq!(other.wait_for_end().code(), Some(1));
    assert!(other.log().contains("CUDA out of memory"), "{}", other.log());
    assert_eq!(head.wait_for_end().code(), Some(1));
    assert!(head.log().ends_with("rank 1 was lost\n"), "{}", head.log());
}

#[test]
fn flags_that_do_not_fit_together_are_usage_errors() {
    for (arguments, part) in [
        ("--nodes 2", "`--nodes 2` needs `--head-host`"),
        ("--nodes 2 --head-host h", "`--nodes 2` needs `--head-port`"),
        (
            "--nodes 2 --head-host h --head-port 1 --node-rank 2",
            "`--node-rank` is 2",
        ),
        ("--router --prefill http://a:1", "--decode <URL>"),
        (
            "--router --prefill http://a:1 --decode https://b:1",
            "plain HTTP only",
        ),
        (
            "--router --prefill http://a:1 --decode http://b:1 --prefill-rate 5",
            "'--router' cannot be used with '--prefill-rate",
        ),
    ] {
        let Output { status, stderr, .. } = command(arguments).output().expect("it ends");
        let stderr = String::from_utf8_lossy(&stderr);
        assert_eq!(status.code(), Some(2), "{arguments}: {stderr}");
        assert!(stderr.contains(part), "{arguments}: {stderr}");
    }
}

#[test]
fn a_router_is_as_healthy_as_its_servers() {
    let ports = [free_port(), free_port(), free_port(), free_port()];
    let [prefill, first, second, router] = ports;
    let serve = |port: u16, mode: &str| {
        Process::start(&format!("--model m --port {port} --disaggregation-mode {mode}"))
    };
    let _router = Process::start(&format!(
        "--router --port {router} --prefill http://localhost:{prefill} --decode http://localhost:{first} --decode http://localhost:{second}"
    ));
    wait(
        || health(router) == Some(503),
        || "the router does not listen".to_owned(),
    );
    let _prefill = serve(prefill, "prefill");
    let _first = serve(first, "decode");
    let mut gone = serve(second, "decode");
    wait(
        || health(router) == Some(200),
        || call(router, "GET", "/health", "").1,
    );
    for port in [router, first] {
        let (status, text) = complete(port, 5);
        assert_eq!(
            (status, text.matches("data: {").count()),
            (Some(200), 5),
            "{text}"
        );
    }
    gone.kill(Signal::KILL);
    gone.wait_for_end();
    let (status, text) = call(router, "GET", "/health", "");
    assert_eq!(status, Some(503));
    assert!(
        text.contains(&format!(
            "the decode server http://localhost:{second} is not healthy"
        )),
        "{text}"
    );
    let mut statuses = [complete(router, 2).0, complete(router, 2).0];
    statuses.sort_unstable();
    assert_eq!(statuses, [Some(200), Some(502)]);
    assert_eq!(call(router, "GET", "/metrics", "").0, Some(404));
}
