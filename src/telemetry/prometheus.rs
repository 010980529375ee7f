//! Parser of the Prometheus text format. Common crates drop names with a colon, which engines use.

use std::collections::{BTreeMap, BTreeSet};

/// The values of one scrape by name and label set. Histograms have only `_sum` and `_count`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Scrape {
    series: BTreeMap<String, Vec<Series>>,
    /// Counters with a `# TYPE` line. A counter without values counts as zero.
    counters: BTreeSet<String>,
}

/// A label set, as written in braces, and its value.
#[derive(Clone, Debug, PartialEq)]
struct Series {
    labels: String,
    value: f64,
}

impl Scrape {
    /// Parses the Prometheus text format. Lines that are not samples are ignored.
    pub(crate) fn parse(text: &str) -> Self {
        let mut scrape = Self::default();
        for line in text.lines() {
            if let Some((name, labels, value)) = parse_sample(line) {
                let labels = labels.to_owned();
                let known = scrape.series.entry(name.to_owned()).or_default();
                known.push(Series { labels, value });
            } else if let Some(name) = counter_name(line) {
                scrape.counters.insert(name.to_owned());
            }
        }
        scrape
    }

    /// The first of `names` that exists, summed over all label sets or over those that match the name's
    /// labels, as in `requests_total{reason="abort"}`. Counters are found with and without `_total`.
    pub(crate) fn sum(&self, names: &[String]) -> Option<f64> {
        names.iter().find_map(|name| {
            let values = self.series_values(name)?;
            Some(values.iter().sum())
        })
    }

    /// The first of `names` that has values, as mean over its label sets.
    pub(crate) fn mean(&self, names: &[String]) -> Option<f64> {
        let values = names
            .iter()
            .find_map(|name| self.series_values(name).filter(|values| !values.is_empty()))?;
        Some(values.iter().sum::<f64>() / values.len() as f64)
    }

    /// Sum and count of the first of these histograms that exists.
    pub(crate) fn histogram_totals(&self, names: &[String]) -> Option<(f64, f64)> {
        names.iter().find_map(|name| {
            let (bare, labels) = name.split_at(name.find('{').unwrap_or(name.len()));
            let sum_of = |end: &str| self.sum(&[format!("{bare}{end}{labels}")]);
            Some((sum_of("_sum")?, sum_of("_count")?))
        })
    }

    /// The values under a name, which may be none yet; `None` where the engine does not know it.
    fn series_values(&self, query: &str) -> Option<Vec<f64>> {
        let (name, labels) = query.split_at(query.find('{').unwrap_or(query.len()));
        let bare = name.strip_suffix("_total");
        let spellings = [Some(name), bare].into_iter().flatten().map(str::to_owned);
        for name in spellings.chain([format!("{name}_total")]) {
            if let Some(series) = self.series.get(&name) {
                let query: Vec<&str> = label_pairs(labels).collect();
                let fits = |series: &&Series| {
                    let own: Vec<&str> = label_pairs(&series.labels).collect();
                    query.iter().all(|pair| own.contains(pair))
                };
                return Some(series.iter().filter(fits).map(|series| series.value).collect());
            }
            if self.counters.contains(&name) {
                return Some(Vec::new());
            }
        }
        None
    }
}

/// The name of a counter in a `# TYPE` line.
fn counter_name(line: &str) -> Option<&str> {
    let mut words = line.strip_prefix("# TYPE ")?.split_ascii_whitespace();
    let name = words.next()?;
    (words.next()? == "counter").then_some(name)
}

/// The `name="value"` pairs of a label set.
fn label_pairs(labels: &str) -> impl Iterator<Item = &str> {
    let mut rest = labels.trim_start_matches('{').trim_end_matches('}');
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches([',', ' ']);
        let (mut quoted, mut escaped, mut end) = (false, false, rest.len());
        for (at, byte) in rest.bytes().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                b',' if !quoted => {
                    end = at;
                    break;
                }
                _ => {}
            }
        }
        let (pair, after) = rest.split_at(end);
        rest = after;
        (!pair.is_empty()).then(|| pair.trim_end())
    })
}

/// Parses `name{labels} value [timestamp]`. Histogram buckets are ignored.
fn parse_sample(line: &str) -> Option<(&str, &str, f64)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))?;
    let (name, rest) = line.split_at(end);
    if name.is_empty() || name.ends_with("_bucket") {
        return None;
    }
    let (labels, rest) = match rest.starts_with('{') {
        true => rest.split_at(label_end(rest)?),
        false => ("", rest),
    };
    let value = rest.split_ascii_whitespace().next()?;
    let value = match value {
        "+Inf" | "-Inf" | "NaN" => return None,
        value => value.parse().ok()?,
    };
    Some((name, labels, value))
}

/// End of the label set, with quotes and escapes taken into account.
fn label_end(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
# HELP vllm:prefix_cache_hits_total Hits.
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="a}\"b"} 12.0
vllm:prefix_cache_hits_total{engine="1",model_name="x"} 3
vllm:num_requests_running 2 1700000000000
vllm:ttft_bucket{le="0.1"} 4
vllm:ttft_sum 1.5
vllm:ttft_count 4
broken{ 1
sglang:x NaN
"#;

    fn names(name: &str) -> [String; 1] {
        [name.to_owned()]
    }

    #[test]
    fn names_with_colons_labels_and_several_engines_are_read() {
        let scrape = Scrape::parse(TEXT);
        assert_eq!(scrape.sum(&names("vllm:prefix_cache_hits")), Some(15.0));
        assert_eq!(
            scrape.sum(&["nothing".into(), "vllm:num_requests_running".into()]),
            Some(2.0)
        );
        assert_eq!(scrape.histogram_totals(&names("vllm:ttft")), Some((1.5, 4.0)));
        assert_eq!(scrape.histogram_totals(&names("vllm:itl")), None);
        assert_eq!(scrape.sum(&names("sglang:x")), None);
    }

    #[test]
    fn parts_of_a_share_are_averaged_and_labels_can_be_asked_for() {
        let text = r#"
# TYPE use gauge
use{engine="0"} 0.2
use{engine="1"} 0.4
# TYPE done_total counter
done_total{model="a,b=\"c\"", reason="stop"} 5
done_total{model="m",reason="abort"} 2
# TYPE hits counter
# TYPE lone gauge
"#;
        let scrape = Scrape::parse(text);
        assert!((scrape.mean(&names("use")).unwrap() - 0.3).abs() < 1e-12);
        assert_eq!(scrape.sum(&names("done")), Some(7.0));
        assert_eq!(scrape.sum(&names("done{reason=\"abort\"}")), Some(2.0));
        assert_eq!(scrape.sum(&names("done_total{reason=\"stop\"}")), Some(5.0));
        assert_eq!(scrape.sum(&names("done{reason=\"error\"}")), Some(0.0));
        assert_eq!(
            scrape.sum(&names("hits_total")),
            Some(0.0),
            "it has counted nothing yet"
        );
        assert_eq!(
            (scrape.sum(&names("lone")), scrape.mean(&names("lone"))),
            (None, None)
        );
    }
}
