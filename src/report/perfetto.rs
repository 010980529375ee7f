//! A measurement as a trace of Perfetto: each request with its parts, the phases until the end of the load, and all telemetry.
//!
//! A trace is a `perfetto.protos.Trace`, which <https://ui.perfetto.dev> opens. The messages are few and flat, so they are written here
//! (`trace_packet.proto`, `track_event.proto`, `track_descriptor.proto`).

use std::collections::BTreeMap;

use crate::config::metrics::{MetricKind, metric_kind};
use crate::results::record::cell::PhaseTime;
use crate::results::record::request::Request;
use crate::results::record::telemetry::Sample;

const NS_PER_S: f64 = 1e9;

/// What a trace shows.
pub(crate) struct TraceInput<'a> {
    /// The name of the track that holds all others.
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
    /// What its values are; `None` for slices.
    counter: Option<Unit>,
    events: Vec<(i64, Event)>,
}

/// The unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    None,
    Bytes,
    Named(&'static str),
}

/// Tracks that are folded together.
#[derive(Clone, Debug, PartialEq)]
struct Group {
    name: String,
    tracks: Vec<Track>,
}

/// The bytes of the trace.
pub(crate) fn trace(input: &TraceInput<'_>) -> Vec<u8> {
    encode(input.title, &groups(input))
}

/// The groups of tracks, in the order in which they are shown.
fn groups(input: &TraceInput<'_>) -> Vec<Group> {
    let named = |name: &str, tracks| Group {
        name: name.to_owned(),
        tracks,
    };
    let mut groups = vec![
        named("phases", phase_tracks(input.phases)),
        named("requests", request_tracks(input.requests)),
    ];
    groups.extend(counter_groups(input.samples));
    groups.retain(|group| !group.tracks.is_empty());
    groups
}

/// The phases that ended before the load, one after another until its start, and the load: only their durations are recorded. Parts of
/// starting, which are named `launch/…`, have a track of their own.
fn phase_tracks(phases: &[PhaseTime]) -> Vec<Track> {
    let lasting: Vec<&PhaseTime> = phases.iter().filter(|phase| phase.seconds > 0.0).collect();
    let load = lasting.iter().position(|phase| phase.phase == "measure");
    let before = lasting[..load.unwrap_or(lasting.len())].iter().copied();
    let (parts, whole): (Vec<&PhaseTime>, Vec<&PhaseTime>) =
        before.partition(|phase| phase.phase.contains('/'));
    let track = |name: &str, phases: &[&PhaseTime], end: i64| {
        let mut at = end - phases.iter().map(|phase| nanos(phase.seconds)).sum::<i64>();
        let mut events = Vec::new();
        for phase in phases {
            events.push((at, Event::Begin(phase.phase.clone(), Vec::new())));
            at += nanos(phase.seconds);
            events.push((at, Event::End));
        }
        Track {
            name: name.to_owned(),
            counter: None,
            events,
        }
    };
    let launched: i64 = whole
        .iter()
        .skip_while(|phase| phase.phase != "launch")
        .skip(1)
        .map(|phase| nanos(phase.seconds))
        .sum();
    let mut phases = track("phases", &whole, 0);
    if let Some(load) = load {
        let seconds = nanos(lasting[load].seconds);
        phases
            .events
            .push((0, Event::Begin("load".to_owned(), Vec::new())));
        phases.events.push((seconds, Event::End));
    }
    let tracks = [phases, track("parts of starting", &parts, -launched)];
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
                free_at[lane] = end(request);
                (false, lane)
            }
        };
        let track = tracks.entry(key).or_insert_with(|| Track {
            name: match key {
                (true, session) => format!("session {session}"),
                (false, lane) => format!("lane {}", lane + 1),
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

/// When a request ends on its track: its last output can be read after its end.
fn end(request: &Request) -> u64 {
    let last = request.chunks.last().map_or(0, |chunk| chunk.at_ns);
    request.end_ns.max(last)
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
        ("due, not yet sent", Some(begin(request)), request.sent_ns),
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
    events.push((end(request) as i64, Event::End));
    events
}

/// Values of a source and device by name, with their times.
type ValuesByName<'s> = BTreeMap<&'s str, Vec<(i64, f64)>>;

/// A group for each source and device, with a counter for each value. A total is shown as its growth per second, and sums and numbers of
/// histograms are left out.
fn counter_groups(samples: &[Sample]) -> Vec<Group> {
    let mut places: BTreeMap<(String, Option<u32>), ValuesByName<'_>> = BTreeMap::new();
    for sample in samples {
        let node = sample.node.iter().cloned();
        let source: Vec<String> = node.chain([sample.source.name().to_owned()]).collect();
        let values = places.entry((source.join(" "), sample.device)).or_default();
        for (name, value) in sample.values.iter().filter(|(_, value)| value.is_finite()) {
            values.entry(name).or_default().push((sample.at_ns, *value));
        }
    }
    let group = |((source, device), values): ((String, Option<u32>), ValuesByName<'_>)| Group {
        name: device.map_or(source.clone(), |device| format!("{source} {device}")),
        tracks: values
            .into_iter()
            .filter_map(|(name, values)| counter_track(name, &values))
            .collect(),
    };
    places.into_iter().map(group).collect()
}

fn counter_track(name: &str, values: &[(i64, f64)]) -> Option<Track> {
    if name.ends_with("_sum") || name.ends_with("_count") {
        return None;
    }
    if !is_total(name) {
        return Some(Track {
            name: name.to_owned(),
            counter: Some(unit(name)),
            events: values
                .iter()
                .map(|(at, value)| (*at, Event::Value(*value)))
                .collect(),
        });
    }
    // A total that fell began anew.
    let growth = values.windows(2).filter_map(|pair| {
        let (seconds, grown) = ((pair[1].0 - pair[0].0) as f64 / NS_PER_S, pair[1].1 - pair[0].1);
        (seconds > 0.0 && grown >= 0.0).then(|| (pair[0].0, Event::Value(grown / seconds)))
    });
    let events: Vec<_> = growth.collect();
    (!events.is_empty()).then(|| Track {
        name: format!("{name} per second"),
        counter: Some(Unit::None),
        events,
    })
}

/// Whether a value is one that only grows.
fn is_total(name: &str) -> bool {
    let ends = ["_total", "_s", "_j"];
    metric_kind(name) == Some(MetricKind::Counter) || ends.iter().any(|end| name.ends_with(end))
}

/// The unit that the name of a value ends with.
fn unit(name: &str) -> Unit {
    match name.rsplit('_').next() {
        Some("bytes") => Unit::Bytes,
        Some("w") => Unit::Named("W"),
        Some("mhz") => Unit::Named("MHz"),
        Some("c") => Unit::Named("°C"),
        Some("ms") => Unit::Named("ms"),
        _ => Unit::None,
    }
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

/// The id of the track that holds all others; those of groups and tracks follow.
const ROOT: u64 = 1;
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const COUNTER: u64 = 4;
/// Tracks below are shown by their rank.
const BY_RANK: u64 = 3;

fn encode(title: &str, groups: &[Group]) -> Vec<u8> {
    // Times of a trace are not negative.
    let tracks = groups.iter().flat_map(|group| &group.tracks);
    let times = tracks.flat_map(|track| track.events.iter().map(|(at, _)| *at));
    let zero = times.min().unwrap_or(0).min(0);
    let packet = |packet: Message| Message::default().message(1, &packet.number(10, 1)).0;
    let named = |id, name: &str| Message::default().number(1, id).text(2, name);
    let describe = |descriptor: &Message| packet(Message::default().message(60, descriptor));
    let mut trace = describe(&named(ROOT, title).number(11, BY_RANK));
    let mut ids = ROOT + 1..;
    let mut next_id = || ids.next().unwrap_or_default();
    for (rank, group) in (1..).zip(groups) {
        let group_id = next_id();
        let descriptor = named(group_id, &group.name).number(5, ROOT);
        trace.extend(describe(&descriptor.number(11, BY_RANK).number(12, rank)));
        for (rank, track) in (1..).zip(&group.tracks) {
            let id = next_id();
            let descriptor = named(id, &track.name).number(5, group_id).number(12, rank);
            trace.extend(describe(&match track.counter {
                None => descriptor,
                Some(unit) => descriptor.message(8, &encode_unit(unit)),
            }));
            for (at, event) in &track.events {
                let event = encode_event(Message::default().number(11, id), event);
                let at = u64::try_from(at - zero).unwrap_or(0);
                trace.extend(packet(Message::default().number(8, at).message(11, &event)));
            }
        }
    }
    trace
}

fn encode_unit(unit: Unit) -> Message {
    match unit {
        Unit::None => Message::default(),
        Unit::Bytes => Message::default().number(3, 3),
        Unit::Named(name) => Message::default().text(6, name),
    }
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
            "due, not yet sent 0",
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
            [
                "launch -3000",
                "end -1000",
                "warmup -1000",
                "end 0",
                "load 0",
                "end 9000"
            ]
        );
        assert_eq!(names(&tracks[1]), ["launch/weights -1500", "end -1000"]);
        let sample = |at_s: i64, power: f64, energy: f64| Sample {
            at_ns: at_s * NS_PER_S as i64,
            source: TelemetrySource::Nvml,
            node: None,
            device: Some(3),
            values: [("power_w".to_owned(), power), ("energy_j".to_owned(), energy)].into(),
        };
        let groups = counter_groups(&[
            sample(-1, 312.5, 1000.0),
            sample(1, 300.0, 1600.0),
            sample(2, 310.0, 5.0),
            sample(4, 310.0, 605.0),
        ]);
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].name, "nvml 3");
        let drawn = groups[0]
            .tracks
            .iter()
            .map(|track| (track.name.as_str(), names(track).join(" ")));
        let drawn: Vec<_> = drawn.collect();
        // The energy that fell began anew.
        let expected = [
            ("energy_j per second", "300 300".to_owned()),
            ("power_w", "312.5 300 310 310".to_owned()),
        ];
        assert_eq!(drawn, expected);
        assert_eq!(groups[0].tracks[1].counter, Some(Unit::Named("W")));
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
