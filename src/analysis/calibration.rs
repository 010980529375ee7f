//! Computes how far the client's timestamps are from the true ones. All functions are pure.

use serde::Deserialize;

use crate::results::record::client::{Calibration, ClientFacts, Deviation, Flood, Point};
use crate::results::record::request::Request;

/// A thread that uses at least this share of a processor is the bottleneck.
const SATURATED_CPU_SHARE: f64 = 0.95;
/// Gaps are equal if they differ by at most this factor.
const SAME_GAP_FACTOR: f64 = 1.1;

/// One request as the simulated engine saw it: a line of `/sim/truth`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Truth {
    /// When the engine read the first byte of the request, in seconds since the Unix epoch.
    pub(crate) first_byte_unix_s: f64,
    /// From that time until just before the engine wrote the first token, µs. `None` if it wrote none.
    pub(crate) ttft_us: Option<f64>,
    /// The same time for every token.
    pub(crate) writes_us: Vec<f64>,
}

/// Computes the errors of TTFT and ITL in ms. Returns `None` if there are no requests, or if the numbers of
/// requests and truths differ.
///
/// Requests are paired in the order in which they were sent and read. The engine reads a burst nearly in the
/// order of sending. Two requests that swap places increase the P99, but not the bias.
pub(crate) fn deviations(requests: &[Request], truths: &[Truth]) -> Option<(Deviation, Deviation)> {
    let mut sent: Vec<&Request> = requests
        .iter()
        .filter(|request| request.is_completed() && request.sent_ns.is_some())
        .collect();
    let mut truths: Vec<&Truth> = truths.iter().filter(|truth| truth.ttft_us.is_some()).collect();
    if sent.is_empty() || sent.len() != truths.len() {
        return None;
    }
    sent.sort_by_key(|request| request.sent_ns);
    truths.sort_by(|a, b| a.first_byte_unix_s.total_cmp(&b.first_byte_unix_s));
    let (mut ttft, mut itl) = (Vec::new(), Vec::new());
    for (request, truth) in sent.iter().zip(&truths) {
        let first = request.chunks.first()?;
        let measured = first.at_ns.saturating_sub(request.sent_ns?) as f64 / 1e6;
        ttft.push(measured - truth.ttft_us? / 1e3);
        let gaps = request.chunks.pairs().zip(truth.writes_us.windows(2));
        itl.extend(gaps.map(|((one, next), true_gap)| {
            let gap = next.at_ns.saturating_sub(one.at_ns) as f64 / 1e6;
            gap - (true_gap[1] - true_gap[0]) / 1e3
        }));
    }
    Some((deviation(&mut ttft)?, deviation(&mut itl)?))
}

fn deviation(errors: &mut [f64]) -> Option<Deviation> {
    if errors.is_empty() {
        return None;
    }
    let bias = errors.iter().sum::<f64>() / errors.len() as f64;
    errors.iter_mut().for_each(|error| *error = error.abs());
    errors.sort_by(f64::total_cmp);
    let rank = (errors.len() * 99).div_ceil(100);
    Some(Deviation {
        bias,
        p99: errors[rank - 1],
    })
}

/// Judges a flood test: the client is the limit if its thread was almost always busy.
pub(crate) fn judge_flood(streams: u32, events_per_s: f64, cpu_share: f64) -> Flood {
    Flood {
        streams,
        events_per_s,
        cpu_share,
        is_limit: cpu_share >= SATURATED_CPU_SHARE,
    }
}

/// Returns a warning about connections that the server leaves open after its answers, if there are any.
pub(crate) fn open_connections_note(facts: &ClientFacts) -> Option<String> {
    (facts.left_open > 0).then(|| {
        format!(
            "the server left {} connections open for a second or more after `[DONE]`; for `matrix`, an answer ends at that \
             line, but bench_serving would have waited longer",
            facts.left_open
        )
    })
}

/// Returns the highest number of requests that were in flight at the same time.
pub(crate) fn peak_concurrency(requests: &[Request]) -> u32 {
    let mut edges: Vec<(u64, i32)> = requests
        .iter()
        .filter_map(|request| Some((request.sent_ns?, request.end_ns)))
        .flat_map(|(sent, end)| [(sent, 1), (end, -1)])
        .collect();
    // At equal times the ends sort before the starts.
    edges.sort_unstable();
    let (mut now, mut max) = (0_i32, 0);
    for (_, edge) in edges {
        now += edge;
        max = max.max(now);
    }
    u32::try_from(max).unwrap_or(0)
}

/// Returns the mean time between the chunks of a stream, ms.
pub(crate) fn mean_gap_ms(requests: &[Request]) -> Option<f64> {
    let (mut span, mut gaps) = (0, 0);
    for chunks in requests.iter().map(|request| &request.chunks) {
        if let (Some(first), Some(last)) = (chunks.first(), chunks.last()) {
            span += last.at_ns.saturating_sub(first.at_ns);
            gaps += chunks.len() - 1;
        }
    }
    (gaps > 0).then(|| span as f64 / 1e6 / gaps as f64)
}

/// Selects the calibration point that applies to a measurement. It is the point with the longest gap and at
/// least `streams` streams, or the one with the most streams if none has enough. Its ITL error is replaced by
/// that of the point with the longest gap that is at most `gap_ms` (or else with the shortest gap), if that
/// error is larger.
pub(crate) fn matching_point(calibration: &Calibration, streams: u32, gap_ms: Option<f64>) -> Option<Point> {
    let points = &calibration.points;
    let longest = points.iter().map(Point::gap_ms).max_by(f64::total_cmp)?;
    let mut candidates = points
        .iter()
        .filter(|point| point.gap_ms() * SAME_GAP_FACTOR >= longest);
    let by_streams = candidates
        .clone()
        .find(|point| point.streams >= streams)
        .or_else(|| candidates.next_back())?;
    let near = |point: &&Point| gap_ms.is_none_or(|gap| point.gap_ms() <= gap * SAME_GAP_FACTOR);
    let longer = |one: &&Point, other: &&Point| one.gap_ms().total_cmp(&other.gap_ms());
    let by_gap = points.iter().filter(near).max_by(longer);
    let by_gap = by_gap.or_else(|| points.iter().min_by(longer))?;
    let worse = [by_streams, by_gap]
        .into_iter()
        .max_by(|one, other| one.itl_ms.p99.total_cmp(&other.itl_ms.p99))?;
    Some(Point {
        itl_ms: worse.itl_ms,
        ..*by_streams
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(sent_ms: f64, moments: &[f64]) -> Request {
        let nanos = |ms: f64| (ms * 1e6) as u64;
        let chunks: Vec<_> = moments
            .iter()
            .map(|at| serde_json::json!([nanos(*at), "a", 1, 1]))
            .collect();
        serde_json::from_value(serde_json::json!({
            "index": 0, "prompt_tokens": 1, "asked_tokens": 2, "due_ns": 0, "sent_ns": nanos(sent_ms),
            "chunks": chunks, "end_ns": 0,
        }))
        .unwrap()
    }

    fn truth(at: f64, writes_ms: &[f64]) -> Truth {
        Truth {
            first_byte_unix_s: at,
            ttft_us: writes_ms.first().map(|first| first * 1e3),
            writes_us: writes_ms.iter().map(|write| write * 1e3).collect(),
        }
    }

    #[test]
    fn errors_are_measured_minus_true_in_the_order_of_sending() {
        let requests = [request(5.0, &[107.0, 117.5]), request(0.0, &[101.0, 111.0])];
        let truths = [truth(1.0, &[100.0, 110.0]), truth(2.0, &[100.0, 110.0])];
        let (ttft, itl) = deviations(&requests, &truths).unwrap();
        assert!(
            (ttft.bias - 1.5).abs() < 1e-6 && (ttft.p99 - 2.0).abs() < 1e-6,
            "{ttft:?}"
        );
        assert!(
            (itl.bias - 0.25).abs() < 1e-6 && (itl.p99 - 0.5).abs() < 1e-6,
            "{itl:?}"
        );
    }

    #[test]
    fn what_cannot_be_paired_is_not_compared() {
        assert_eq!(deviations(&[], &[]), None);
        assert_eq!(deviations(&[request(0.0, &[1.0])], &[]), None);
    }

    #[test]
    fn the_point_with_no_fewer_streams_and_no_longer_gap_speaks() {
        let at = |streams: u32, gap_ms: f64| Point {
            streams,
            events_per_s: f64::from(streams) * 1000.0 / gap_ms,
            ttft_ms: Deviation::default(),
            itl_ms: Deviation {
                bias: 0.0,
                p99: 1.0 / gap_ms,
            },
            cpu_share: 0.0,
            send_lag_p99_ms: 0.0,
        };
        let calibration = Calibration {
            tool: String::new(),
            machine: String::new(),
            at: String::new(),
            timestamp_source: "kernel".into(),
            points: vec![at(16, 20.0), at(64, 20.0), at(64, 5.0), at(32, 1.0)],
            flood: None,
        };
        let streams = |wanted| matching_point(&calibration, wanted, None).map(|point| point.streams);
        assert_eq!(
            [streams(1), streams(16), streams(17), streams(999)],
            [Some(16), Some(16), Some(64), Some(64)]
        );
        let itl = |gap_ms| {
            matching_point(&calibration, 1, Some(gap_ms)).map(|point| (point.streams, point.itl_ms.p99))
        };
        assert_eq!(itl(50.0), Some((16, 0.05)));
        assert_eq!(itl(19.9), Some((16, 0.05)));
        assert_eq!(itl(12.0), Some((16, 0.2)));
        assert_eq!(itl(0.5), Some((16, 1.0)));
    }
}
