//! The state of a run as Prometheus metrics, and the server that answers with them (`--metrics-listen`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::base::clock;
use crate::plan::Measurement;
use crate::results::record::event::Event;

/// How often the server looks for a connection, and for the end of the run.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How long a client may take in all, so that a slow one delays neither the others nor the end of the run.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Most clients at a time. One that sends nothing is given up after its time.
const MAX_CLIENTS: usize = 64;

/// Largest head of a request.
const MAX_HEAD_BYTES: usize = 8 << 10;

/// A server of metrics; it ends when it is dropped.
pub(crate) struct MetricsServer {
    state: Arc<Mutex<RunMetrics>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
}

impl MetricsServer {
    /// Listens on this address.
    ///
    /// # Errors
    /// The address cannot be listened on, or the thread not be started.
    pub(crate) fn listen(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (state, stop) = (Arc::<Mutex<RunMetrics>>::default(), Arc::<AtomicBool>::default());
        let (shown, ended) = (Arc::clone(&state), Arc::clone(&stop));
        let open = Arc::<AtomicUsize>::default();
        let thread = thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                match listener.accept() {
                    // A client beyond the limit is turned away.
                    Ok(_) if open.load(Ordering::Relaxed) >= MAX_CLIENTS => {}
                    Ok((stream, _)) => {
                        let (shown, counted) = (Arc::clone(&shown), Arc::clone(&open));
                        open.fetch_add(1, Ordering::Relaxed);
                        let client = thread::Builder::new().name("metrics-client".to_owned());
                        let answered = client.spawn(move || {
                            // A client that goes away early is none of the run's business.
                            drop(answer(stream, &shown));
                            counted.fetch_sub(1, Ordering::Relaxed);
                        });
                        if answered.is_err() {
                            open.fetch_sub(1, Ordering::Relaxed);
                        }
                    }
                    Err(_) => thread::sleep(POLL_INTERVAL),
                }
            }
        })?;
        Ok(Self {
            state,
            stop,
            thread: Some(thread),
            address,
        })
    }

    /// The address that it listens on.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// A listener of the events of a run.
    pub(crate) fn listener(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let state = Arc::clone(&self.state);
        move |event| state.lock().expect("counting does not panic").update(event)
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers one request: with the metrics for `GET` of `/metrics` or `/`, without them for `HEAD`.
fn answer(mut stream: TcpStream, state: &Mutex<RunMetrics>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let deadline = clock::now().plus(CLIENT_TIMEOUT);
    let remaining = || match deadline.since(clock::now()) {
        Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
        time => Ok(Some(time)),
    };
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        stream.set_read_timeout(remaining()?)?;
        let count = stream.read(&mut part)?;
        if count == 0 || head.len() > MAX_HEAD_BYTES {
            return Ok(());
        }
        head.extend_from_slice(&part[..count]);
    }
    let (is_head, target) = match head.strip_prefix(b"HEAD ") {
        Some(target) => (true, target),
        None => (false, head.strip_prefix(b"GET ").unwrap_or_default()),
    };
    let is_known = [&b"/metrics "[..], b"/metrics?", b"/ "]
        .iter()
        .any(|start| target.starts_with(start));
    let (status, body) = match is_known {
        true => ("200 OK", state.lock().expect("counting does not panic").text()),
        false => (
            "404 Not Found",
            "there is nothing at this path; the metrics are at /metrics\n".to_owned(),
        ),
    };
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    if !is_head {
        answer.push_str(&body);
    }
    let mut rest = answer.as_bytes();
    while !rest.is_empty() {
        stream.set_write_timeout(remaining()?)?;
        let count = stream.write(rest)?;
        rest = &rest[count..];
    }
    Ok(())
}

/// What the events of a run have said so far.
#[derive(Debug, Default)]
struct RunMetrics {
    run: String,
    matrix: String,
    measurements: usize,
    /// Number of measurements by how they ended.
    ended: BTreeMap<String, u64>,
    has_ended: bool,
    /// The measurement that runs, with its load.
    running: Option<(Measurement, LoadState)>,
    /// Output tokens per second of measurements that ended.
    outputs: BTreeMap<Measurement, f64>,
    /// Seconds from each start to its first token, by launch and start.
    ready: BTreeMap<(String, u32), f64>,
}

/// The load of a measurement that runs.
#[derive(Clone, Debug, Default)]
struct LoadState {
    phase: String,
    requests: usize,
    ended: usize,
    in_flight: usize,
    failed: usize,
    output_tokens_per_s: Option<f64>,
    ttft_ms: Option<f64>,
}

impl RunMetrics {
    fn update(&mut self, event: &Event) {
        match event {
            Event::RunBegan {
                run,
                matrix,
                measurements,
                finished,
            } => {
                (self.run, self.matrix) = (run.to_string(), matrix.clone());
                self.measurements = *measurements;
                self.ended.insert("finished_before".to_owned(), *finished as u64);
            }
            Event::StartsAdded { measurements, .. } => self.measurements = *measurements,
            Event::EngineReady {
                launch,
                start,
                seconds,
                ..
            } => {
                self.ready.insert((launch.to_string(), *start), *seconds);
            }
            Event::CellBegan {
                measurement,
                requests,
            } => {
                let load = LoadState {
                    phase: "prepare".to_owned(),
                    requests: *requests,
                    ..LoadState::default()
                };
                self.running = Some((measurement.clone(), load));
            }
            Event::CellProgress {
                measurement,
                phase,
                ended,
                requests,
                running,
                failed,
                output_tokens_per_s,
                ttft_ms,
                ..
            } => {
                let load = LoadState {
                    phase: phase.clone(),
                    requests: *requests,
                    ended: *ended,
                    in_flight: *running,
                    failed: *failed,
                    output_tokens_per_s: *output_tokens_per_s,
                    ttft_ms: *ttft_ms,
                };
                self.running = Some((measurement.clone(), load));
            }
            Event::CellEnded {
                measurement,
                status,
                output_tokens_per_s,
                ..
            } => {
                *self.ended.entry(status.clone()).or_default() += 1;
                self.running = None;
                if let Some(rate) = output_tokens_per_s {
                    self.outputs.insert(measurement.clone(), *rate);
                }
            }
            Event::RunEnded { .. } => self.has_ended = true,
            _ => {}
        }
    }

    /// The text format 0.0.4.
    fn text(&self) -> String {
        let mut page = Page::default();
        let tool = env!("CARGO_PKG_VERSION");
        let run = [
            ("run", self.run.as_str()),
            ("matrix", &self.matrix),
            ("version", tool),
        ];
        page.gauge(
            "matrix_run_info",
            "Labels name the run; the value is always 1.",
            [(&run[..], 1.0)],
        );
        let total = [(&[][..], self.measurements as f64)];
        page.gauge("matrix_measurements", "Number of measurements of the run.", total);
        let ended: Vec<([(&str, &str); 1], f64)> = self
            .ended
            .iter()
            .map(|(status, count)| ([("status", status.as_str())], *count as f64))
            .collect();
        let ended = ended.iter().map(|(labels, count)| (&labels[..], *count));
        page.family(
            "matrix_measurements_ended_total",
            "counter",
            "Number of ended measurements by status.",
            ended,
        );
        let has_ended = [(&[][..], f64::from(u8::from(self.has_ended)))];
        page.gauge("matrix_run_ended", "1 after the last measurement.", has_ended);
        self.write_load(&mut page);
        self.write_results(&mut page);
        page.text
    }

    fn write_load(&self, page: &mut Page) {
        let Some((measurement, load)) = &self.running else {
            return;
        };
        let cell = measurement.cell.as_str();
        let labels = [("cell", cell)];
        let with_phase = [("cell", cell), ("phase", &load.phase)];
        page.gauge(
            "matrix_cell_running",
            "Labels name the running cell and its phase; the value is always 1.",
            [(&with_phase[..], 1.0)],
        );
        for (name, help, value) in [
            (
                "requests",
                "Total number of requests of the running load.",
                load.requests,
            ),
            ("requests_ended", "Requests that have ended.", load.ended),
            (
                "requests_in_flight",
                "Requests that were sent and have not ended.",
                load.in_flight,
            ),
            ("requests_failed", "Requests that have failed.", load.failed),
        ] {
            page.gauge(
                &format!("matrix_cell_{name}"),
                help,
                [(&labels[..], value as f64)],
            );
        }
        if let Some(rate) = load.output_tokens_per_s {
            let help = "Output tokens in the last second, counted from the events of the streams.";
            page.gauge(
                "matrix_cell_output_tokens_per_second",
                help,
                [(&labels[..], rate)],
            );
        }
        if let Some(ttft_ms) = load.ttft_ms {
            let help = "Mean time to the first token of the answers that have ended.";
            page.gauge(
                "matrix_cell_mean_ttft_seconds",
                help,
                [(&labels[..], ttft_ms / 1e3)],
            );
        }
    }

    fn write_results(&self, page: &mut Page) {
        let starts: Vec<(String, &str, f64)> = self
            .ready
            .iter()
            .map(|((launch, start), seconds)| (start.to_string(), launch.as_str(), *seconds))
            .collect();
        let starts: Vec<([(&str, &str); 2], f64)> = starts
            .iter()
            .map(|(start, launch, seconds)| ([("launch", *launch), ("start", start)], *seconds))
            .collect();
        page.gauge(
            "matrix_engine_ready_seconds",
            "Time from the start of an engine to its first token.",
            starts.iter().map(|(labels, value)| (&labels[..], *value)),
        );
        let outputs: Vec<([String; 2], &str, f64)> = self
            .outputs
            .iter()
            .map(|(measurement, rate)| {
                let place = [measurement.start.to_string(), measurement.repeat.to_string()];
                (place, measurement.cell.as_str(), *rate)
            })
            .collect();
        let outputs: Vec<([(&str, &str); 3], f64)> = outputs
            .iter()
            .map(|([start, repeat], cell, rate)| {
                ([("cell", *cell), ("start", start), ("repeat", repeat)], *rate)
            })
            .collect();
        page.gauge(
            "matrix_result_output_tokens_per_second",
            "Output throughput of measurements that have ended; the report says which of them are valid.",
            outputs.iter().map(|(labels, value)| (&labels[..], *value)),
        );
    }
}

/// A page of metrics.
#[derive(Default)]
struct Page {
    text: String,
}

type Labels<'l> = &'l [(&'l str, &'l str)];

impl Page {
    fn gauge<'l>(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (Labels<'l>, f64)>) {
        self.family(name, "gauge", help, samples);
    }

    fn family<'l>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'l>, f64)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let labels: Vec<String> = labels
                .iter()
                .map(|(label, value)| format!("{label}=\"{}\"", escape(value)))
                .collect();
            let labels = match labels.is_empty() {
                true => String::new(),
                false => format!("{{{}}}", labels.join(",")),
            };
            let _ = writeln!(self.text, "{name}{labels} {value}");
        }
    }
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{CellKey, RunId};

    fn began() -> Event {
        Event::RunBegan {
            run: RunId::new("r-1"),
            matrix: "a \"b\"\\\n".to_owned(),
            measurements: 4,
            finished: 1,
        }
    }

    fn measurement() -> Measurement {
        Measurement {
            cell: CellKey::new("engine=a"),
            start: 1,
            repeat: 2,
        }
    }

    #[test]
    fn events_become_metrics_and_unknown_ones_are_left_out() {
        let mut metrics = RunMetrics::default();
        metrics.update(&began());
        metrics.update(&Event::CellBegan {
            measurement: measurement(),
            requests: 10,
        });
        let text = metrics.text();
        assert!(text.contains("matrix=\"a \\\"b\\\"\\\\\\n\""), "{text}");
        assert!(text.contains("\nmatrix_measurements 4\n"), "{text}");
        assert!(
            text.contains("matrix_cell_requests{cell=\"engine=a\"} 10\n"),
            "{text}"
        );
        assert!(!text.contains("mean_ttft"), "unknown is not zero: {text}");
        metrics.update(&Event::CellProgress {
            measurement: measurement(),
            phase: "measure".to_owned(),
            ended: 3,
            requests: 10,
            running: 2,
            failed: 1,
            elapsed_s: 1.0,
            output_tokens_per_s: Some(12.5),
            ttft_ms: Some(250.0),
            point: None,
        });
        let text = metrics.text();
        assert!(
            text.contains("matrix_cell_mean_ttft_seconds{cell=\"engine=a\"} 0.25\n"),
            "{text}"
        );
        assert!(
            text.contains("matrix_cell_requests_in_flight{cell=\"engine=a\"} 2\n"),
            "{text}"
        );
    }

    #[test]
    fn the_server_answers_at_its_path_and_ends_with_the_run() {
        let server = MetricsServer::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        server.listener()(&began());
        let request = |method: &str, path: &str| {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            write!(stream, "{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        let ask = |path: &str| request("GET", path);
        let found = ask("/metrics");
        assert!(found.starts_with("HTTP/1.1 200 OK\r\n"), "{found}");
        assert!(found.contains("matrix_run_info{run=\"r-1\""), "{found}");
        assert!(ask("/other").starts_with("HTTP/1.1 404"));
        assert!(request("POST", "/metrics").starts_with("HTTP/1.1 404"));
        let (head, body) = found.split_once("\r\n\r\n").unwrap();
        assert!(!body.is_empty() && request("HEAD", "/metrics") == format!("{head}\r\n\r\n"));
        assert!(ask("/metrics?name=x").starts_with("HTTP/1.1 200"));
        // Clients that send nothing do not delay the others.
        let idle: Vec<TcpStream> = (0..8)
            .map(|_| TcpStream::connect(server.address()).unwrap())
            .collect();
        let asked = clock::now();
        assert!(ask("/metrics").starts_with("HTTP/1.1 200"));
        assert!(
            clock::now().since(asked) < 4 * CLIENT_TIMEOUT,
            "each idle client delays it"
        );
        drop(idle);
        // A client that sends its request in small parts, for ever.
        let mut slow = TcpStream::connect(server.address()).unwrap();
        let dripping = thread::spawn(move || {
            while slow.write_all(b"G").is_ok() {
                thread::sleep(Duration::from_millis(50));
            }
        });
        thread::sleep(3 * POLL_INTERVAL);
        let address = server.address();
        let began = clock::now();
        drop(server);
        assert!(clock::now().since(began) < CLIENT_TIMEOUT + Duration::from_secs(20));
        dripping.join().unwrap();
        assert!(TcpStream::connect(address).is_err());
    }
}
