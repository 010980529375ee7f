use std::io::{PipeReader, PipeWriter, pipe};

use super::*;
use crate::results::record::telemetry::{Sample, SampleValues, TelemetrySource};
use crate::telemetry::probe::{DeviceReading, ProbeFacts};
use crate::telemetry::sampler::Sampler;

/// A sampler of another node whose part the test plays.
struct Node {
    link: Arc<NodeLink>,
    requests: std::io::Lines<BufReader<PipeReader>>,
    lines: Option<PipeWriter>,
}

/// The clock of the other node is ahead by this.
const AHEAD_NS: u64 = 1_000_000_000_000;

fn node() -> Node {
    let (requests, sender) = pipe().unwrap();
    let (receiver, lines) = pipe().unwrap();
    let link = NodeLink::start("node2".to_owned(), Box::new(sender), receiver, || {
        "its sampler ended (signal: 9)".to_owned()
    });
    Node {
        link,
        requests: BufReader::new(requests).lines(),
        lines: Some(lines),
    }
}

impl Node {
    fn request(&mut self) -> ToNode {
        serde_json::from_str(&self.requests.next().unwrap().unwrap()).unwrap()
    }

    fn say(&mut self, message: FromNode) {
        let line = NodeLine {
            sent_ns: clock::now().as_nanos() + AHEAD_NS,
            message,
        };
        let mut text = serde_json::to_vec(&line).unwrap();
        text.push(b'\n');
        self.lines.as_mut().unwrap().write_all(&text).unwrap();
    }

    fn watches_a_gpu(&mut self) {
        self.say(FromNode::Watching(vec![ProbeFacts {
            source: TelemetrySource::Nvml,
            device: Some(3),
            period: Duration::from_millis(100),
        }]));
    }

    fn reads(&mut self, watts: f64) {
        let reading = DeviceReading {
            device: Some(3),
            values: SampleValues::from([("power_w".to_owned(), watts)]),
        };
        self.say(FromNode::Reading {
            probe: 0,
            at_ns: clock::now().as_nanos() + AHEAD_NS,
            result: Ok(vec![reading]),
        });
    }

    fn ends(&mut self) {
        drop(self.lines.take());
        while self.link.trouble().is_none() {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap()
}

#[test]
fn the_edges_of_a_window_are_read_on_the_node_and_its_samples_are_on_the_clock_of_this_one() {
    let mut node = node();
    let mut sampler = Sampler::default();
    sampler.add_node(Arc::clone(&node.link));
    node.link.watch();
    assert_eq!(node.request(), ToNode::Watch);
    node.watches_a_gpu();
    let sampler = Arc::new(sampler);
    let runtime = runtime();
    let mut edge = |begins_window: bool| {
        let reading = Arc::clone(&sampler);
        let waiting = runtime.spawn(async move {
            reading
                .sample_at_edge(Duration::from_secs(30), begins_window)
                .await
        });
        let ToNode::Read {
            number,
            begins_window: said,
        } = node.request()
        else {
            panic!("it asks for a reading")
        };
        assert_eq!(said, begins_window);
        node.reads(100.0);
        let foreign = vec![GpuProcess {
            pid: 7,
            name: None,
            memory_bytes: None,
        }];
        assert!(!waiting.is_finished(), "the reading is not done");
        node.say(FromNode::Done {
            number,
            foreign: vec![(3, foreign)],
            kernel: Vec::new(),
        });
        runtime.block_on(waiting).unwrap();
    };
    edge(true);
    let from = clock::now();
    edge(false);
    let to = clock::now();
    let (samples, facts) = sampler.samples_between(from, from, to);
    let of = |sample: &Sample| (sample.node.clone(), sample.device, sample.at_ns <= 0);
    let node2 = || Some("node2".to_owned());
    assert_eq!(
        samples.iter().map(of).collect::<Vec<_>>(),
        [(node2(), Some(3), true), (node2(), Some(3), false)]
    );
    assert_eq!(facts.len(), 1);
    assert_eq!(facts[0].name(), "nvml of GPU 3 of node2");
    assert_eq!((facts[0].samples, facts[0].trouble.as_deref()), (1, None));
    assert_eq!(node.link.foreign(3).len(), 1);
    assert_eq!(node.link.trouble(), None);
}

#[test]
fn a_sampler_that_ended_or_is_silent_is_not_waited_for_and_its_trouble_is_named() {
    let mut node = node();
    let mut sampler = Sampler::default();
    sampler.add_node(Arc::clone(&node.link));
    node.watches_a_gpu();
    node.ends();
    let began = clock::now();
    runtime().block_on(sampler.sample_now(Duration::from_secs(600)));
    assert!(clock::now().since(began) < Duration::from_secs(60));
    assert_eq!(node.link.trouble().unwrap(), "its sampler ended (signal: 9)");
    let (samples, facts) = sampler.samples_between(began, began, clock::now());
    assert_eq!((samples.len(), facts[0].samples), (0, 0));
    assert!(
        runtime()
            .block_on(node.link.wait_ready(Duration::from_secs(600)))
            .is_none()
    );
}

#[test]
fn a_sampler_without_a_sign_of_life_is_given_up_after_the_time_of_a_hanging_probe() {
    let mut node = node();
    let mut sampler = Sampler::default();
    sampler.add_node(Arc::clone(&node.link));
    node.link.watch();
    node.watches_a_gpu();
    let began = clock::now();
    runtime().block_on(sampler.sample_now(Duration::from_secs(600)));
    let waited = clock::now().since(began);
    assert!(waited < Duration::from_secs(300), "{waited:?}");
    let trouble = node.link.trouble().unwrap();
    assert!(
        trouble.starts_with("the telemetry sampler of the node did not respond for "),
        "{trouble}"
    );
}

#[test]
fn what_is_not_a_message_ends_the_link() {
    let mut node = node();
    node.lines.as_mut().unwrap().write_all(b"motd\n").unwrap();
    while node.link.trouble().is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(node.link.trouble().unwrap().ends_with("an unknown message: motd"));
}
