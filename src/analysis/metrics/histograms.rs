//! Histograms of each second of a measurement, and metrics of windows that are cut out of them.
//!
//! Latencies follow the definitions of `matrix`. A histogram agrees with the records within its precision.
//! Use the records if they exist.

use std::collections::BTreeMap;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use thiserror::Error;

use super::chunk_tokens::chunk_tokens;
use super::latency::{Times, token_gaps};
use crate::results::record::histogram::SecondHistogram;
use crate::results::record::request::Request;

/// Significant digits of a stored value.
const SIGNIFICANT_DIGITS: u8 = 3;
const SECOND_NS: u64 = 1_000_000_000;

/// Values of one second in microseconds, before they become histograms.
#[derive(Default)]
struct SecondValues {
    second: SecondHistogram,
    ttft: ValueCounts,
    tpot: ValueCounts,
    itl: ValueCounts,
    e2e: ValueCounts,
}

/// Values of one sample. Values that the histogram cannot distinguish are counted together, because a second
/// may have a million values.
#[derive(Default)]
struct ValueCounts {
    uncounted: Vec<u64>,
    /// Pairs of value and count, sorted by value.
    counted: Vec<(u64, u64)>,
}

/// Number of values that are kept individually before they are counted.
const MAX_UNCOUNTED: usize = 1024;

impl ValueCounts {
    fn push(&mut self, value: u64) {
        self.uncounted.push(value);
        if self.uncounted.len() == MAX_UNCOUNTED {
            self.count_pending();
        }
    }

    /// Moves the individual values to the counted ones.
    fn count_pending(&mut self) {
        let histogram = empty_histogram();
        let few = self.uncounted.drain(..);
        let few = few.map(|value| (histogram.lowest_equivalent(value), 1));
        let mut values: Vec<(u64, u64)> = few.chain(self.counted.drain(..)).collect();
        values.sort_unstable();
        values.dedup_by(|next, previous| {
            let is_same = next.0 == previous.0;
            if is_same {
                previous.1 += next.1;
            }
            is_same
        });
        values.shrink_to_fit();
        self.counted = values;
    }
}

impl Extend<u64> for ValueCounts {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, values: I) {
        values.into_iter().for_each(|value| self.push(value));
    }
}

/// Returns the seconds of a measurement in which anything happened, in order.
pub(crate) fn histograms_per_second(requests: &[Request]) -> Vec<SecondHistogram> {
    let mut by_second: BTreeMap<u32, SecondValues> = BTreeMap::new();
    let is_counted = requests
        .iter()
        .filter(|request| request.is_completed())
        .all(|request| chunk_tokens(request).is_some());
    for request in requests {
        second_at(&mut by_second, request.due_ns).second.due += 1;
        if let Some(sent) = request.sent_ns {
            second_at(&mut by_second, sent).second.sent += 1;
        }
        let end = &mut second_at(&mut by_second, request.end_ns).second;
        end.failed += u32::from(request.is_failed());
        if request.is_completed() {
            end.completed += 1;
            add_latencies(&mut by_second, request, is_counted);
        }
    }
    by_second
        .into_values()
        .map(|values| SecondHistogram {
            ttft_us: encode(&values.ttft),
            tpot_us: encode(&values.tpot),
            itl_us: encode(&values.itl),
            e2e_us: encode(&values.e2e),
            output_tokens: is_counted.then(|| values.second.output_tokens.unwrap_or(0)),
            ..values.second
        })
        .collect()
}

fn second_at(seconds: &mut BTreeMap<u32, SecondValues>, moment_ns: u64) -> &mut SecondValues {
    let second = u32::try_from(moment_ns / SECOND_NS).unwrap_or(u32::MAX);
    let values = seconds.entry(second).or_default();
    values.second.second = second;
    values
}

fn add_latencies(seconds: &mut BTreeMap<u32, SecondValues>, request: &Request, is_counted: bool) {
    let (Some(first), Some(last)) = (request.chunks.first(), request.chunks.last()) else {
        return;
    };
    let times = Times::from_sending(request);
    second_at(seconds, first.at_ns)
        .ttft
        .extend(times.ttft.map(millis_to_micros));
    let end = second_at(seconds, last.at_ns);
    end.tpot.extend(times.tpot.map(millis_to_micros));
    end.e2e.extend(times.e2e.map(millis_to_micros));
    let Some(tokens) = chunk_tokens(request).filter(|_| is_counted) else {
        return;
    };
    // The gaps are in the order of the tokens after the first event.
    let mut gaps = token_gaps(request).into_iter();
    for (place, (chunk, count)) in request.chunks.iter().zip(tokens).enumerate() {
        let second = second_at(seconds, chunk.at_ns);
        *second.second.output_tokens.get_or_insert(0) += u64::from(count);
        if place > 0 {
            second
                .itl
                .extend(gaps.by_ref().take(count as usize).map(millis_to_micros));
        }
    }
}

/// Converts milliseconds to whole microseconds. A negative time, from a broken clock, becomes 0.
fn millis_to_micros(millis: f64) -> u64 {
    (millis * 1e3).round() as u64
}

fn empty_histogram() -> Histogram<u64> {
    // The histogram grows with its values.
    Histogram::new(SIGNIFICANT_DIGITS).expect("three digits are within the limits of the format")
}

fn encode(values: &ValueCounts) -> Option<String> {
    if values.uncounted.is_empty() && values.counted.is_empty() {
        return None;
    }
    let mut histogram = empty_histogram();
    let few = values.uncounted.iter().map(|value| (*value, 1));
    for (value, count) in few.chain(values.counted.iter().copied()) {
        // The saturating variant would not grow the histogram.
        histogram
            .record_n(value, count)
            .expect("a histogram that grows takes every value");
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(&histogram, &mut bytes)
        .expect("a histogram can be written to memory");
    Some(BASE64.encode(bytes))
}

/// The reason why a histogram cannot be read.
#[derive(Debug, Error)]
#[error("the histogram `{name}` of second no. {second} cannot be read: {reason}")]
pub struct HistogramError {
    /// Second of the histogram.
    pub(crate) second: u32,
    /// Name of the histogram.
    pub(crate) name: &'static str,
    pub(crate) reason: String,
}

/// Statistics of a sample from histograms, in milliseconds. Percentiles use the nearest rank: a value that
/// was recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    pub(crate) count: u64,
    pub(crate) mean: f64,
    /// The percentiles 50, 90, 95 and 99.
    pub(crate) percentiles: [f64; 4],
    pub max: f64,
}

/// Metrics of a window of whole seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowCounts {
    /// Requests that were due.
    pub due: u64,
    /// Requests that were sent.
    pub sent: u64,
    pub completed: u64,
    pub failed: u64,
    /// Output tokens that arrived. `None` if they were not counted.
    pub output_tokens: Option<u64>,
    /// Times to the first token.
    pub(crate) ttft: Option<Quantiles>,
    /// Times per output token after the first.
    pub(crate) tpot: Option<Quantiles>,
    pub(crate) itl: Option<Quantiles>,
    /// Times to the last token.
    pub e2e: Option<Quantiles>,
}

/// Computes the metrics of a window, whose end is excluded. Requests count in the window in which they end,
/// wherever they began.
///
/// # Errors
/// A histogram in the window is not in the format of this tool.
pub fn summarize_window(
    seconds: &[SecondHistogram],
    window: Range<u32>,
) -> Result<WindowCounts, HistogramError> {
    let inside: Vec<&SecondHistogram> = seconds
        .iter()
        .filter(|second| window.contains(&second.second))
        .collect();
    let sum = |count: fn(&SecondHistogram) -> u32| inside.iter().map(|second| u64::from(count(second))).sum();
    let merge = |kind| Ok(quantiles(&merge(&inside, kind)?));
    Ok(WindowCounts {
        due: sum(|second| second.due),
        sent: sum(|second| second.sent),
        completed: sum(|second| second.completed),
        failed: sum(|second| second.failed),
        output_tokens: inside.iter().map(|second| second.output_tokens).sum(),
        ttft: merge(HistogramKind::Ttft)?,
        tpot: merge(HistogramKind::Tpot)?,
        itl: merge(HistogramKind::Itl)?,
        e2e: merge(HistogramKind::E2e)?,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistogramKind {
    Ttft,
    Tpot,
    Itl,
    E2e,
}

impl HistogramKind {
    pub(crate) const ALL: [Self; 4] = [Self::Ttft, Self::Tpot, Self::Itl, Self::E2e];

    fn encoded_histogram(self, second: &SecondHistogram) -> (&'static str, &Option<String>) {
        match self {
            Self::Ttft => ("ttft_us", &second.ttft_us),
            Self::Tpot => ("tpot_us", &second.tpot_us),
            Self::Itl => ("itl_us", &second.itl_us),
            Self::E2e => ("e2e_us", &second.e2e_us),
        }
    }
}

/// Returns the values in milliseconds at which the given shares of a sample are reached. `seconds` may come
/// from one or several measurements. Empty if the sample is empty.
///
/// # Errors
/// A histogram is not in the format of this tool.
pub(crate) fn values_at_shares(
    seconds: &[&SecondHistogram],
    kind: HistogramKind,
    shares: &[f64],
) -> Result<Vec<f64>, HistogramError> {
    let histogram = merge(seconds, kind)?;
    if histogram.is_empty() {
        return Ok(Vec::new());
    }
    let at = |share: &f64| histogram.value_at_quantile(*share) as f64 / 1e3;
    Ok(shares.iter().map(at).collect())
}

fn merge(seconds: &[&SecondHistogram], kind: HistogramKind) -> Result<Histogram<u64>, HistogramError> {
    let mut total = empty_histogram();
    for second in seconds {
        let (name, Some(text)) = kind.encoded_histogram(second) else {
            continue;
        };
        decode(text)
            .and_then(|histogram| total.add(histogram).map_err(|error| error.to_string()))
            .map_err(|why| HistogramError {
                second: second.second,
                name,
                reason: why,
            })?;
    }
    Ok(total)
}

fn decode(text: &str) -> Result<Histogram<u64>, String> {
    let bytes = BASE64.decode(text).map_err(|error| error.to_string())?;
    Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|error| error.to_string())
}

fn quantiles(histogram: &Histogram<u64>) -> Option<Quantiles> {
    let at = |share: f64| histogram.value_at_quantile(share) as f64 / 1e3;
    (!histogram.is_empty()).then(|| Quantiles {
        count: histogram.len(),
        mean: histogram.mean() / 1e3,
        percentiles: [0.5, 0.9, 0.95, 0.99].map(at),
        max: histogram.max() as f64 / 1e3,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::results::record::chunks::Chunks;
    use crate::results::record::request::{Chunk, ChunkKind, Failure, RequestFailureClass, Usage};

    /// Returns a request sent at `sent_us`, with events of one token after these gaps.
    fn request(sent_us: u64, gaps_us: &[u64]) -> Request {
        let mut at_us = sent_us;
        let chunks: Chunks = gaps_us
            .iter()
            .map(|gap| {
                at_us += gap;
                Chunk {
                    at_ns: at_us * 1000,
                    kind: ChunkKind::Answer,
                    tokens: None,
                    bytes: 4,
                }
            })
            .collect();
        Request {
            connection: Default::default(),
            index: 0,
            prompt_tokens: 1,
            requested_tokens: 1,
            limit_tokens: None,
            vision_tokens: 0,
            audio: None,
            round: None,
            due_ns: sent_us * 1000,
            sent_ns: Some(sent_us * 1000),
            connected_ns: None,
            written_ns: None,
            first_byte_ns: None,
            last_line_ns: None,
            end_ns: at_us * 1000,
            failure: None,
            cancelled: false,
            status: Some(200),
            usage: Some(Usage {
                completion: u32::try_from(chunks.len()).ok(),
                ..Usage::default()
            }),
            chunks,
            cached: None,
            oddities: Vec::new(),
            finish: None,
            counted_tokens: None,
            counted_chunks: None,
            counted_prompt: None,
            omittable_prompt: 0,
            uniform: None,
            blank_events: 0,
            counted_first: None,
            common_events: 0,
            session: None,
            reusable_prompt: None,
            queried_prompt: None,
            is_loop: false,
            is_canned: false,
            models: Vec::new(),
            echoes_prompt: false,
            counted_reasoning: None,
            tool_text: None,
            tool_calls: Vec::new(),
            final_answer: None,
            answer_check: None,
            text: None,
        }
    }

    #[test]
    fn everything_lies_in_the_second_in_which_it_happened() {
        let mut broken = request(2_500_000, &[]);
        broken.failure = Some(Failure {
            class: RequestFailureClass::Reset,
            message: String::new(),
        });
        // Sent in second 0, first token in second 1, last two tokens in second 2.
        let all = histograms_per_second(&[request(900_000, &[400_000, 800_000, 100_000]), broken]);
        let counts: Vec<_> = all
            .iter()
            .map(|second| {
                (
                    second.second,
                    second.sent,
                    second.completed,
                    second.failed,
                    second.output_tokens,
                )
            })
            .collect();
        assert_eq!(
            counts,
            [
                (0, 1, 0, 0, Some(0)),
                (1, 0, 0, 0, Some(1)),
                (2, 1, 1, 1, Some(2)),
            ]
        );
        let last = summarize_window(&all, 2..3).unwrap();
        assert_eq!(last.ttft, None);
        assert_eq!((last.itl.unwrap().count, last.e2e.unwrap().count), (2, 1));
        assert_eq!(summarize_window(&all, 1..2).unwrap().ttft.unwrap().count, 1);
        assert_eq!(summarize_window(&all, 0..9).unwrap().sent, 2);
        assert_eq!(summarize_window(&all, 7..9).unwrap().e2e, None);
        let every: Vec<&SecondHistogram> = all.iter().collect();
        let gaps = values_at_shares(&every, HistogramKind::Itl, &[0.0, 0.5, 1.0]).unwrap();
        assert!(
            gaps.is_sorted() && is_near(gaps[0], 100.0) && is_near(gaps[2], 800.0),
            "{gaps:?}"
        );
        assert!(
            values_at_shares(&[], HistogramKind::Itl, &[0.5])
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn many_values_make_the_histogram_that_they_make_one_by_one() {
        let values = |count: u64| (0..count).map(|nth| nth * nth * 37 % 3_000_017);
        for count in [MAX_UNCOUNTED as u64 - 1, MAX_UNCOUNTED as u64, 50_000] {
            let mut counts = ValueCounts::default();
            counts.extend(values(count));
            let single = ValueCounts {
                uncounted: values(count).collect(),
                counted: Vec::new(),
            };
            assert_eq!(encode(&counts), encode(&single), "{count}");
        }
    }

    #[test]
    fn a_histogram_that_is_none_is_named() {
        let mut all = histograms_per_second(&[request(0, &[1000])]);
        all[0].ttft_us = Some("bm90aGluZw==".to_owned());
        let error = summarize_window(&all, 0..1).unwrap_err().to_string();
        assert!(
            error.starts_with("the histogram `ttft_us` of second no. 0 cannot be read"),
            "{error}"
        );
    }

    /// Returns whether two values agree within the precision of the histogram and the microsecond of
    /// rounding.
    fn is_near(approximate: f64, exact: f64) -> bool {
        (approximate - exact).abs() <= exact * 1e-3 + 1e-3
    }

    proptest! {
        #[test]
        fn a_window_tells_what_the_records_tell_within_its_precision(
            requests in prop::collection::vec(
                (0u64..5_000_000, prop::collection::vec(1u64..3_000_000, 1..8)), 1..60),
            from in 0u32..6,
            length in 1u32..8,
        ) {
            let requests: Vec<Request> = requests.iter().map(|(sent, gaps)| request(*sent, gaps)).collect();
            let window = from..from + length;
            let counts = summarize_window(&histograms_per_second(&requests), window.clone()).unwrap();
            let is_inside = |at_ns: u64| window.contains(&((at_ns / SECOND_NS) as u32));
            let first = |request: &Request| request.chunks.first().unwrap().at_ns;
            let last = |request: &Request| request.chunks.last().unwrap().at_ns;
            let ms = |ns: u64| ns as f64 / 1e6;
            let ttft: Vec<f64> = requests.iter().filter(|request| is_inside(first(request)))
                .map(|request| ms(first(request) - request.sent_ns.unwrap())).collect();
            let e2e: Vec<f64> = requests.iter().filter(|request| is_inside(last(request)))
                .map(|request| ms(last(request) - request.sent_ns.unwrap())).collect();
            let itl: Vec<f64> = requests.iter().flat_map(|request| request.chunks.pairs())
                .filter(|pair| is_inside(pair.1.at_ns)).map(|pair| ms(pair.1.at_ns - pair.0.at_ns)).collect();
            for (counts, mut exact) in [(counts.ttft, ttft), (counts.e2e, e2e), (counts.itl, itl)] {
                exact.sort_by(f64::total_cmp);
                let Some(counts) = counts else {
                    prop_assert!(exact.is_empty());
                    continue;
                };
                prop_assert_eq!(counts.count, exact.len() as u64);
                let mean = exact.iter().sum::<f64>() / exact.len() as f64;
                prop_assert!(is_near(counts.mean, mean), "mean {} against {}", counts.mean, mean);
                prop_assert!(is_near(counts.max, *exact.last().unwrap()));
                for (share, counts) in [0.5, 0.9, 0.95, 0.99].into_iter().zip(counts.percentiles) {
                    let rank = (share * exact.len() as f64).ceil() as usize;
                    let exact = exact[rank.max(1) - 1];
                    prop_assert!(is_near(counts, exact), "{} against {} at {}", counts, exact, share);
                }
            }
            let tokens: u64 = requests.iter().flat_map(|request| &request.chunks)
                .filter(|chunk| is_inside(chunk.at_ns)).count() as u64;
            prop_assert_eq!(counts.output_tokens, Some(tokens));
        }
    }
}
