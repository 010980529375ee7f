//! A measurement as a trace of Perfetto: each request with its parts, the phases before the load, and all telemetry.
//!
//! A trace is a `perfetto.protos.Trace`, which <https://ui.perfetto.dev> opens. The messages are few and flat, so they are written here
//! (`trace_packet.proto`, `track_event.proto`, `track_descriptor.proto`).

use std::collections::BTreeMap;

use crate::results::record::cell::PhaseTime;
use crate::results::record::request::Request;
use crate::results::record::telemetry::Sample;

const NS_PER_S: f64 = 1e9;

/// What a trace shows.
pub(crate) struct TraceInput<'a> {
    /// The name of the process that all tracks belong to.
    pub(crate) title: &'a str,
    pub(crate) requests: &'a [Request],
    pub(crate) samples: &'a [Sample],
    pub(crate) phases: &'a [PhaseTime],
}

/// An event on a track, in nanoseconds after the start of the load.
#[derive(Clone, Debug, PartialEq)]
enum Event {
    Begin(String, Vec<(&'static str, Note)>),
    End,
    Value(f64),
}

/// A fact beside a slice.
#[derive(Clone, Debug, PartialEq)]
enum Note {
    Count(u64),
    Text(String),
}

/// A track with its events in the order of time.
#[derive(Clone, Debug, Default, PartialEq)]
struct Track {
    name: String,
    is_counter: bool,
    events: Vec<(i64, Event)>,
}

/// The bytes of the trace.
pub(crate) fn trace(input: &TraceInput<'_>) -> Vec<u8> {
    encode(input.title, &tracks(input))
}

fn tracks(input: &TraceInput<'_>) -> Vec<Track> {
    let mut tracks = phase_tracks(input.phases);
    tracks.extend(request_tracks(input.requests));
    tracks.extend(counter_tracks(input.samples));
    tracks
}

/// The phases that ended before the load, one after another until its start: only their durations are recorded. Parts of starting, which
/// are named `launch/…`, have a track of their own.
fn phase_tracks(phases: &[PhaseTime]) -> Vec<Track> {
    let before = phases.iter().take_while(|phase| phase.phase != "measure");
    let (parts, whole): (Vec<&PhaseTime>, Vec<&PhaseTime>) =
        before.partition(|phase| phase.phase.contains('/'));
    let track = |name: &str, phases: Vec<&PhaseTime>, end: i64| {
        let mut events = Vec::new();
        let mut at = end - phases.iter().map(|phase| nanos(phase.seconds)).sum::<i64>();
        for phase in phases {
            events.push((at, Event::Begin(phase.phase.clone(), Vec::new())));
            at += nanos(phase.seconds);
            events.push((at, Event::End));
        }
        Track {
            name: name.to_owned(),
            is_counter: false,
            events,
        }
    };
    let launched: i64 = whole
        .iter()
        .skip_while(|phase| phase.phase != "launch")
        .skip(1)
        .map(|phase| nanos(phase.seconds))
        .sum();
    let tracks = [
        track("phases before the load", whole, 0),
        track("parts of starting", parts, -launched),
    ];
    tracks
        .into_iter()
        .filter(|track| !track.events.is_empty())
        .collect()
}

fn nanos(seconds: f64) -> i64 {
    (seconds * NS_PER_S) as i64
}

/// Each request on the first track that is free when it falls due; those of a session on the track of the session.
fn request_tracks(requests: &[Request]) -> Vec<Track> {
    let mut sorted: Vec<&Request> = requests.iter().collect();
    sorted.sort_by_key(|request| (begin(request), request.index));
    let mut free_at: Vec<u64> = Vec::new();
    let mut tracks: BTreeMap<(bool, usize), Track> = BTreeMap::new();
    for request in sorted {
        let key = match request.session {
            Some(session) => (true, session as usize),
            None => {
                let free = free_at.iter().position(|end| *end <= begin(request));
                let lane = free.unwrap_or_else(|| {
                    free_at.push(0);
                    free_at.len() - 1
                });
                free_at[lane] = request.end_ns;
                (false, lane)
            }
        };
        let track = tracks.entry(key).or_insert_with(|| Track {
            name: match key {
                (true, session) => format!("session {session}"),
                (false, lane) => format!("requests, slot {}", lane + 1),
            },
            ..Track::default()
        });
        track.events.extend(request_events(request));
    }
    tracks.into_values().collect()
}

/// When a request begins on its track: rounds of a session fall due while the one before still runs.
fn begin(request: &Request) -> u64 {
    match request.session {
        Some(_) => request.sent_ns.unwrap_or(request.end_ns),
        None => request.due_ns.min(request.sent_ns.unwrap_or(u64::MAX)),
    }
}

fn request_events(request: &Request) -> Vec<(i64, Event)> {
    let name = match (request.session, request.round) {
        (Some(_), Some(round)) => format!("request {}, turn {round}", request.index),
        _ => format!("request {}", request.index),
    };
    let mut notes = vec![
        ("prompt_tokens", Note::Count(u64::from(request.prompt_tokens))),
        (
            "requested_tokens",
            Note::Count(u64::from(request.requested_tokens)),
        ),
        ("events", Note::Count(request.chunks.len() as u64)),
    ];
    notes.extend(
        request
            .status
            .map(|status| ("status", Note::Count(u64::from(status)))),
    );
    notes.extend(request.failure.as_ref().map(|failure| {
        (
            "failure",
            Note::Text(format!("{}: {}", failure.class.name(), failure.message)),
        )
    }));
    let first = request.chunks.first().map(|chunk| chunk.at_ns);
    let last = request.chunks.last().map(|chunk| chunk.at_ns);
    let parts = [
        ("wait for a slot", Some(begin(request)), request.sent_ns),
        ("to the first output", request.sent_ns, first),
        ("output", first, last),
    ];
    let mut events = vec![(begin(request) as i64, Event::Begin(name, notes))];
    for (name, from, to) in parts {
        if let (Some(from), Some(to)) = (from, to)
            && to > from
        {
            events.push((from as i64, Event::Begin(name.to_owned(), Vec::new())));
            events.push((to as i64, Event::End));
        }
    }
    events.push((request.end_ns.max(last.unwrap_or(0)) as i64, Event::End));
    events
}

/// A counter for each value of each source and device. Totals that only grow are left out.
fn counter_tracks(samples: &[Sample]) -> Vec<Track> {
    let mut tracks: BTreeMap<String, Track> = BTreeMap::new();
    for sample in samples {
        let place = [
            sample.node.clone(),
            Some(sample.source.name().to_owned()),
            sample.device.map(|device| device.to_string()),
        ];
        let place: Vec<String> = place.into_iter().flatten().collect();
        for (name, value) in &sample.values {
            if name.ends_with("_total") || !value.is_finite() {
                continue;
            }
            let name = format!("{} {name}", place.join(" "));
            let track = tracks.entry(name.clone()).or_insert_with(|| Track {
                name,
                is_counter: true,
                events: Vec::new(),
            });
            track.events.push((sample.at_ns, Event::Value(*value)));
        }
    }
    tracks.into_values().collect()
}

/// A protobuf message.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value > 0x7f {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn double(mut self, field: u64, value: f64) -> Self {
        self.varint(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }
}

/// The id of the process track; those of its tracks follow.
const PROCESS: u64 = 1;
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const COUNTER: u64 = 4;

fn encode(title: &str, tracks: &[Track]) -> Vec<u8> {
    // Times of a trace are not negative.
    let times = tracks
        .iter()
        .flat_map(|track| track.events.iter().map(|(at, _)| *at));
    let zero = times.min().unwrap_or(0).min(0);
    let packet = |packet: Message| packet.number(10, 1);
    let process = Message::default().number(1, 1).text(6, title);
    let root = Message::default().number(1, PROCESS).message(3, &process);
    let mut trace = Message::default().message(1, &packet(Message::default().message(60, &root)));
    for (track, id) in tracks.iter().zip(PROCESS + 1..) {
        let mut descriptor = Message::default()
            .number(1, id)
            .text(2, &track.name)
            .number(5, PROCESS);
        if track.is_counter {
            descriptor = descriptor.message(8, &Message::default());
        }
        trace = trace.message(1, &packet(Message::default().message(60, &descriptor)));
        for (at, event) in &track.events {
            let event = encode_event(Message::default().number(11, id), event);
            let at = u64::try_from(at - zero).unwrap_or(0);
            trace = trace.message(1, &packet(Message::default().number(8, at).message(11, &event)));
        }
    }
    trace.0
}

fn encode_event(message: Message, event: &Event) -> Message {
    match event {
        Event::Begin(name, notes) => {
            let named = message.number(9, SLICE_BEGIN).text(23, name);
            notes.iter().fold(named, |message, (name, note)| {
                let annotation = Message::default().text(10, name);
                let annotation = match note {
                    Note::Count(count) => annotation.number(3, *count),
                    Note::Text(text) => annotation.text(6, text),
                };
                message.message(4, &annotation)
            })
        }
        Event::End => message.number(9, SLICE_END),
        Event::Value(value) => message.number(9, COUNTER).double(44, *value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::request;
    use crate::results::record::telemetry::TelemetrySource;

    const MS: u64 = 1_000_000;

    fn names(track: &Track) -> Vec<String> {
        let named = track.events.iter().map(|(at, event)| match event {
            Event::Begin(name, _) => format!("{name} {}", at / MS as i64),
            Event::End => format!("end {}", at / MS as i64),
            Event::Value(value) => format!("{value}"),
        });
        named.collect()
    }

    #[test]
    fn requests_that_overlap_have_tracks_of_their_own_and_parts_lie_within_them() {
        let shifted = |index: u32, by_ms: u64| {
            let mut request = request(index);
            request.due_ns += by_ms * MS;
            request.sent_ns = request.sent_ns.map(|at| at + (by_ms + 2) * MS);
            request.end_ns += by_ms * MS;
            let chunks: Vec<_> = request
                .chunks
                .iter()
                .map(|mut chunk| {
                    chunk.at_ns += by_ms * MS;
                    chunk
                })
                .collect();
            request.chunks = chunks.into();
            request
        };
        let tracks = request_tracks(&[shifted(0, 0), shifted(1, 5), shifted(2, 40)]);
        let of_first = [
            "request 0 0",
            "wait for a slot 0",
            "end 2",
            "to the first output 2",
            "end 10",
            "output 10",
            "end 20",
            "end 30",
        ];
        assert_eq!(tracks.len(), 2);
        assert_eq!(names(&tracks[0])[..8], of_first);
        assert_eq!(names(&tracks[0])[8], "request 2 40");
        assert_eq!(names(&tracks[1])[0], "request 1 5");
    }

    #[test]
    fn phases_end_where_the_load_begins_and_values_are_counters() {
        let phase = |name: &str, seconds| PhaseTime {
            phase: name.to_owned(),
            seconds,
        };
        let phases = [
            phase("launch", 2.0),
            phase("launch/weights", 0.5),
            phase("warmup", 1.0),
            phase("measure", 9.0),
        ];
        let tracks = phase_tracks(&phases);
        assert_eq!(
            names(&tracks[0]),
            ["launch -3000", "end -1000", "warmup -1000", "end 0"]
        );
        assert_eq!(names(&tracks[1]), ["launch/weights -1500", "end -1000"]);
        let sample = Sample {
            at_ns: -5,
            source: TelemetrySource::Nvml,
            node: None,
            device: Some(3),
            values: [("power_w".to_owned(), 312.5), ("tokens_total".to_owned(), 1.0)].into(),
        };
        let counters = counter_tracks(&[sample]);
        assert_eq!(counters.len(), 1);
        assert_eq!(
            (counters[0].name.as_str(), names(&counters[0])),
            ("nvml 3 power_w", vec!["312.5".to_owned()])
        );
    }

    #[test]
    fn numbers_are_varints_and_messages_have_their_length() {
        let inner = Message::default().number(1, 300).text(2, "ab");
        let outer = Message::default().message(4, &inner).double(1, 1.0);
        let expected = [
            0x22, 7, 0x08, 0xac, 0x02, 0x12, 2, b'a', b'b', 0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f,
        ];
        assert_eq!(outer.0, expected);
    }
}
