//! Measures the measurer: `cargo bench --bench client`, or with `-- --quick` a shorter one, or with a word (`flood`, `paced`,
//! `gaps`, `flooded`, `delay`, `stop`, `tls`, `truth`, `many`, `start`, `memory`) one part. It fails when a row misses its bound.
//!
//! The load generator and a raw reader take turns against the same server, each in a process of its own on one core; the
//! server has another core. Figures that compare are ratios of medians from one run, so that a busy machine spoils both sides
//! alike. Truth is the simulated engine's: from the first byte of a request it read to just before it sends the token.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a bench prints its figures"
)]

mod delay;
mod flood;
mod gaps;
mod memory;
mod ours;
mod paced;
mod raw;
mod start;
mod stop;
mod tls;

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use matrix::base::clock::MonotonicTime;
use matrix::telemetry::machine;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

/// The binary's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SERVER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;

/// What a client is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Work {
    host: String,
    port: u16,
    streams: usize,
    tokens: usize,
    prompt: String,
    /// Whether the simulated engine serves, whose last event tells a finish.
    is_simulated: bool,
    /// Whether the server wants TLS.
    is_encrypted: bool,
}

/// What it came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    completed: usize,
    tokens: usize,
    tokens_per_s: f64,
    cpu_s: f64,
    memory_mib: f64,
    /// Time to first token of each stream in the order of sending, ms.
    ttft: Vec<f64>,
    /// The same from the sending of the first stream.
    since_first: Vec<f64>,
    /// Every gap between tokens, sorted, thinned out; ms.
    itl_p99: f64,
    itl_p50: f64,
    /// How far nine of ten events, and 99 of 100, may be off as the client itself tells; ms.
    late_p90: f64,
    late_p99: f64,
    /// The rate at which one of ten events came, or at a higher one, as the client itself tells.
    events_per_s: f64,
    /// How often the client tells that it was stopped, and for how long at most, ms.
    pauses: u32,
    longest_pause: f64,
    /// Send lag: mean, 99th percentile, maximum, as the client itself tells; ms.
    lag_ms: Option<[f64; 3]>,
}

impl Measured {
    fn of<'m>(
        streams: impl Iterator<Item = (MonotonicTime, &'m [MonotonicTime], bool)>,
        work: &Work,
        cpu_s: f64,
        memory_mib: f64,
    ) -> Self {
        let (mut first, mut last) = (None::<MonotonicTime>, MonotonicTime::default());
        let (mut tokens, mut completed) = (0, 0);
        let (mut ttft, mut firsts, mut gaps) = (Vec::new(), Vec::new(), Vec::new());
        let mut begun = None::<MonotonicTime>;
        for (sent, moments, is_whole) in streams {
            begun = Some(begun.map_or(sent, |begun| begun.min(sent)));
            completed += usize::from(is_whole && moments.len() == work.tokens);
            tokens += moments.len();
            gaps.extend(moments.windows(2).map(|pair| millis(pair[1].since(pair[0]))));
            if let (Some(begin), Some(end)) = (moments.first(), moments.last()) {
                first = Some(first.map_or(*begin, |first| first.min(*begin)));
                last = last.max(*end);
                ttft.push(millis(begin.since(sent)));
                firsts.push(*begin);
            }
        }
        let begun = begun.unwrap_or_default();
        let since_first = firsts.iter().map(|first| millis(first.since(begun))).collect();
        let seconds = last.since(first.unwrap_or_default()).as_secs_f64();
        Self {
            completed,
            tokens,
            tokens_per_s: tokens as f64 / seconds,
            cpu_s,
            memory_mib,
            ttft,
            since_first,
            itl_p99: quantile(&mut gaps, 0.99),
            itl_p50: quantile(&mut gaps, 0.5),
            late_p90: 0.0,
            late_p99: 0.0,
            events_per_s: 0.0,
            pauses: 0,
            longest_pause: 0.0,
            lag_ms: None,
        }
    }

    fn cpu_per_million(&self) -> f64 {
        self.cpu_s * 1e6 / self.tokens as f64
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    machine::raise_open_files();
    match words[..] {
        ["as", "client", who, work] => {
            pin(CLIENT_CORE);
            let work: Work = serde_json::from_str(work).expect("this bench wrote it");
            let measured = match who {
                "raw" => raw::measure(&work),
                _ => ours::measure(&work),
            };
            println!("{}", serde_json::to_string(&measured).expect("numbers are JSON"));
        }
        ["as", "flood", burst] => {
            pin(SERVER_CORE);
            flood::serve(burst.parse().expect("this bench wrote it"))
        }
        ["as", "paced", gap_ns, spread] => {
            pin(SERVER_CORE);
            let gap = Duration::from_nanos(gap_ns.parse().expect("this bench wrote it"));
            paced::serve(gap, spread.parse().expect("this bench wrote it"))
        }
        ["as", "delayed"] => delay::inside(),
        ["as", "tls"] => {
            pin(SERVER_CORE);
            tls::serve()
        }
        ["as", "sim", ref flags @ ..] => {
            pin(SERVER_CORE);
            let error = Command::new(env!("CARGO_BIN_EXE_matrix"))
                .arg("sim")
                .args(flags)
                .exec();
            panic!("cannot start the simulated engine: {error}");
        }
        _ => bench(&words),
    }
    match MISSED.get() {
        0 => ExitCode::SUCCESS,
        missed => {
            println!("{missed} bounds missed");
            ExitCode::FAILURE
        }
    }
}

thread_local! {
    /// How many bounds were missed.
    static MISSED: Cell<u32> = const { Cell::new(0) };
}

/// What a row says of a bound that it is held to.
fn verdict(is_met: bool) -> &'static str {
    if is_met {
        return "within";
    }
    MISSED.set(MISSED.get() + 1);
    "MISSED"
}

fn bench(words: &[&str]) {
    let is_quick = words.contains(&"--quick");
    let parts = [
        "flood", "tls", "paced", "gaps", "flooded", "delay", "stop", "truth", "many", "start", "memory",
    ];
    let wants = |part| words.contains(&part) || !parts.iter().any(|part| words.contains(part));
    let rounds = if is_quick { 3 } else { 5 };
    println!(
        "client against raw reader; server on core {SERVER_CORE}, client on core {CLIENT_CORE}; medians of {rounds}"
    );
    if wants("flood") {
        for (name, burst, total) in [
            ("one write per event", 0, 1_500_000),
            ("64 KiB writes", 64 << 10, 6_000_000),
        ] {
            for streams in [64, 512, 2048] {
                let total = if is_quick { total / 3 } else { total };
                flooded(name, burst, streams, total / streams, rounds);
            }
        }
    }
    if wants("tls") {
        tls::bench(rounds, is_quick);
    }
    if wants("paced") {
        let tokens = if is_quick { 150 } else { 300 };
        let aligned = Server::sim(&["--ttft", "200ms", "--itl", "20ms"]);
        paced("aligned", &aligned, tokens, rounds);
        drop(aligned);
        paced(
            "spread 30 %",
            &Server::paced(Duration::from_millis(20), 0.3),
            tokens,
            rounds,
        );
    }
    if wants("gaps") {
        gaps::bench(rounds, is_quick);
    }
    if wants("flooded") {
        gaps::flooded();
    }
    if wants("delay") {
        delay::bench();
    }
    if wants("stop") {
        stop::bench();
    }
    if wants("truth") {
        for streams in [256, 1024, 2048] {
            truth(streams, rounds);
        }
    }
    if wants("many") {
        many();
    }
    if wants("memory") {
        memory::bench(is_quick);
    }
    if wants("start") {
        start::bench(rounds);
    }
}

fn flooded(name: &str, burst: usize, streams: usize, tokens: usize, rounds: usize) {
    flooded_row(name, &Server::flood(burst), streams, tokens, rounds);
}

fn flooded_row(name: &str, server: &Server, streams: usize, tokens: usize, rounds: usize) {
    let work = server.work(streams, tokens);
    let (raw, ours) = take_turns(&work, rounds, |_| {});
    let rate = |all: &[Measured]| median(all.iter().map(|one| one.tokens_per_s));
    let memory = |all: &[Measured]| median(all.iter().map(|one| one.memory_mib));
    println!(
        "flood, {name}, {streams} streams x {tokens}: {:.2} of raw ({:.0} against {:.0} tokens/s), CPU {:.2} of raw, \
         peak memory {:.0} MiB (raw {:.0}), pairs {}",
        rate(&ours) / rate(&raw),
        rate(&ours),
        rate(&raw),
        median(ours.iter().map(|one| one.cpu_s)) / median(raw.iter().map(|one| one.cpu_s)),
        memory(&ours),
        memory(&raw),
        pairs(&raw, &ours, |one| one.tokens_per_s),
    );
}

fn paced(name: &str, server: &Server, tokens: usize, rounds: usize) {
    let work = server.work(1024, tokens);
    let (raw, ours) = take_turns(&work, rounds, |_| {});
    let cpu = |all: &[Measured]| median(all.iter().map(Measured::cpu_per_million));
    println!(
        "paced, {name}, 1024 streams x {tokens}: CPU {:.2} of raw ({:.2} against {:.2} s per million tokens), pairs {}",
        cpu(&ours) / cpu(&raw),
        cpu(&ours),
        cpu(&raw),
        pairs(&raw, &ours, Measured::cpu_per_million),
    );
}

fn truth(streams: usize, rounds: usize) {
    let server = Server::sim(&["--ttft", "200ms", "--itl", "20ms", "--truth"]);
    let work = server.work(streams, 50);
    let mut actual = Vec::new();
    server.forget();
    let (raw, ours) = take_turns(&work, rounds, |_| {
        actual.push(server.truth(streams));
        server.forget();
    });
    let (raw_told, ours_told): (Vec<_>, Vec<_>) = actual
        .chunks(2)
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .unzip();
    for (name, measured, actual) in [("raw ", &raw, &raw_told), ("ours", &ours, &ours_told)] {
        let mut figures = [Vec::new(), Vec::new(), Vec::new()];
        for (one, truth) in measured.iter().zip(actual) {
            let mut errors: Vec<f64> = one.ttft.iter().zip(&truth.ttft).map(|(a, b)| a - b).collect();
            figures[0].push(errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len() as f64);
            errors.iter_mut().for_each(|error| *error = error.abs());
            figures[1].push(quantile(&mut errors, 0.99));
            figures[2].push((one.itl_p99 - truth.itl_p99).abs());
        }
        let [mean, p99, itl] = figures.map(|figures| median(figures.into_iter()));
        println!(
            "truth, {streams} aligned streams, {name}: TTFT error mean {mean:.2} p99 {p99:.2} ms, ITL p99 error {itl:.3} ms"
        );
    }
}

fn many() {
    let server = Server::sim(&["--ttft", "3s", "--itl", "200ms"]);
    let one = client("ours", &server.work(10_000, 20));
    println!(
        "10 000 streams at once: {} completed, peak memory {:.0} MiB",
        one.completed, one.memory_mib
    );
}

/// Runs both clients in turn; `after` is called after each.
fn take_turns(work: &Work, rounds: usize, mut after: impl FnMut(&str)) -> (Vec<Measured>, Vec<Measured>) {
    let (mut raw, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        for (who, all) in [("raw", &mut raw), ("ours", &mut ours)] {
            let one = client(who, work);
            assert_eq!(one.completed, work.streams, "{who}");
            all.push(one);
            after(who);
        }
    }
    (raw, ours)
}

fn client(who: &str, work: &Work) -> Measured {
    measured(who, begin(who, work))
}

/// Starts a client.
fn begin(who: &str, work: &Work) -> Child {
    this()
        .args(["client", who, &serde_json::to_string(work).expect("it is JSON")])
        .env("SSL_CERT_FILE", tls::CERTIFICATE)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("this bench can be started")
}

/// What a client comes to.
fn measured(who: &str, client: Child) -> Measured {
    let output = client.wait_with_output().expect("it can be waited for");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{who} said nothing sound: {error}"))
}

fn this() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    command.arg("as");
    command
}

/// A server in a process of its own, which ends with this value.
struct Server {
    process: Child,
    port: u16,
    is_simulated: bool,
    is_encrypted: bool,
    /// What it says after its port.
    lines: Receiver<String>,
}

/// The simulated engine's own moments of a run.
#[derive(Clone)]
struct Told {
    ttft: Vec<f64>,
    itl_p99: f64,
}

impl Server {
    fn flood(burst: usize) -> Self {
        Self::start(this().args(["flood", &burst.to_string()]), false)
    }

    fn paced(gap: Duration, spread: f64) -> Self {
        let args = ["paced".to_owned(), gap.as_nanos().to_string(), spread.to_string()];
        Self::start(this().args(args), false)
    }

    /// One that floods through TLS.
    fn tls() -> Self {
        let mut server = Self::start(this().arg("tls"), false);
        server.is_encrypted = true;
        server
    }

    fn sim(flags: &[&str]) -> Self {
        Self::start(
            this()
                .args(["sim", "--model", "m", "--max-model-len", "100000"])
                .args(flags),
            true,
        )
    }

    fn start(command: &mut Command, is_simulated: bool) -> Self {
        let mut process = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server can be started");
        let mut lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let port = lines.find_map(|line| {
            let line = line.ok()?;
            let end = line
                .strip_suffix(" (simulated)")
                .unwrap_or(&line)
                .rsplit([':', ' '])
                .next()?
                .parse()
                .ok();
            end.filter(|_| !is_simulated || line.contains("Uvicorn running"))
        });
        let port = port.expect("the server says its port");
        // The engine would block on a full pipe.
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .for_each(|line| drop(sender.send(line)))
        });
        Self {
            process,
            port,
            is_simulated,
            is_encrypted: false,
            lines: receiver,
        }
    }

    fn work(&self, streams: usize, tokens: usize) -> Work {
        Work {
            host: if self.is_encrypted { tls::HOST } else { "127.0.0.1" }.to_owned(),
            port: self.port,
            streams,
            tokens,
            prompt: "The capital of France is".to_owned(),
            is_simulated: self.is_simulated,
            is_encrypted: self.is_encrypted,
        }
    }

    /// The gaps between its own sends in the last round: p50, p90 and p99, ms.
    fn gaps(&self) -> [f64; 3] {
        let line = self
            .lines
            .recv_timeout(Duration::from_secs(10))
            .expect("it tells its gaps");
        serde_json::from_str(&line).expect("it writes JSON")
    }

    fn ask(&self, method: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server listens");
        write!(
            stream,
            "{method} /sim/truth HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .expect("it listens");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
            .split_once("\r\n\r\n")
            .expect("it speaks HTTP")
            .1
            .to_owned()
    }

    fn forget(&self) {
        self.ask("DELETE");
    }

    fn truth(&self, streams: usize) -> Told {
        #[derive(Deserialize)]
        struct Line {
            first_byte_unix_s: f64,
            ttft_us: f64,
            writes_us: Vec<f64>,
        }
        let mut text = self.ask("GET");
        // It tells of an answer a moment after its end.
        for _ in 0..200 {
            if text.lines().count() >= streams {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
            text = self.ask("GET");
        }
        let mut lines: Vec<Line> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("the engine writes JSON"))
            .collect();
        // Requests are read in the order in which they were sent.
        lines.sort_by(|a, b| a.first_byte_unix_s.total_cmp(&b.first_byte_unix_s));
        let mut gaps: Vec<f64> = lines
            .iter()
            .flat_map(|line| line.writes_us.windows(2).map(|pair| (pair[1] - pair[0]) / 1000.0))
            .collect();
        Told {
            ttft: lines.iter().map(|line| line.ttft_us / 1000.0).collect(),
            itl_p99: quantile(&mut gaps, 0.99),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).expect("this machine has two cores");
}

/// Processor time of this process so far.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The most memory this process has had, MiB.
fn peak_memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells it");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("Linux tells it");
    line.trim()
        .trim_end_matches(" kB")
        .parse::<f64>()
        .expect("a number of kB")
        / 1024.0
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}

fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The ratio of each pair of neighbours, to show how much they scatter.
fn pairs(raw: &[Measured], ours: &[Measured], of: impl Fn(&Measured) -> f64) -> String {
    let ratios = raw
        .iter()
        .zip(ours)
        .map(|(raw, ours)| format!("{:.2}", of(ours) / of(raw)));
    ratios.collect::<Vec<_>>().join(" ")
}
