//! Prometheus text to values. Our own reader, because the usual crates drop every name with a colon, and engines use them.

use std::collections::BTreeMap;

/// The values of one scrape: name to the sum over all label sets. A histogram gives its `_sum` and `_count`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape(BTreeMap<String, f64>);

impl Scrape {
    /// Reads Prometheus' text format. Lines that are no samples are passed over.
    pub fn parse(text: &str) -> Self {
        let mut values: BTreeMap<String, f64> = BTreeMap::new();
        for line in text.lines() {
            if let Some((name, value)) = sample(line) {
                *values.entry(name.to_owned()).or_default() += value;
            }
        }
        Self(values)
    }

    /// The first of `names` that the engine offers. A counter is found with and without `_total`.
    pub fn value(&self, names: &[String]) -> Option<f64> {
        names.iter().find_map(|name| {
            let bare = name.strip_suffix("_total");
            self.0
                .get(name)
                .or_else(|| bare.and_then(|bare| self.0.get(bare)))
                .or_else(|| self.0.get(&format!("{name}_total")))
                .copied()
        })
    }

    /// Whether nothing was offered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// How much a counter grew between two scrapes: `None` where either lacks it, or where it fell because it began anew.
pub fn grown(before: &Scrape, after: &Scrape, names: &[String]) -> Option<f64> {
    let difference = after.value(names)? - before.value(names)?;
    (difference >= 0.0).then_some(difference)
}

/// `name{labels} value [timestamp]`; buckets of histograms are left out.
fn sample(line: &str) -> Option<(&str, f64)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))?;
    let (name, rest) = line.split_at(end);
    if name.is_empty() || name.ends_with("_bucket") {
        return None;
    }
    let rest = if rest.starts_with('{') {
        &rest[labels(rest)?..]
    } else {
        rest
    };
    let value = rest.split_ascii_whitespace().next()?;
    let value = match value {
        "+Inf" | "-Inf" | "NaN" => return None,
        value => value.parse().ok()?,
    };
    Some((name, value))
}

/// Where the label set ends, quoted braces and escapes passed over.
fn labels(text: &str) -> Option<usize> {
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
broken{ 1
sglang:x NaN
"#;

    #[test]
    fn names_with_colons_labels_and_several_engines_are_read() {
        let scrape = Scrape::parse(TEXT);
        assert_eq!(scrape.value(&["vllm:prefix_cache_hits".into()]), Some(15.0));
        assert_eq!(
            scrape.value(&["nothing".into(), "vllm:num_requests_running".into()]),
            Some(2.0)
        );
        assert_eq!(scrape.value(&["vllm:ttft_sum".into()]), Some(1.5));
        assert_eq!(scrape.value(&["sglang:x".into()]), None);
    }

    #[test]
    fn a_counter_that_began_anew_is_unknown() {
        let (low, high) = (Scrape::parse("a_total 1"), Scrape::parse("a_total 5"));
        assert_eq!(grown(&low, &high, &["a".into()]), Some(4.0));
        assert_eq!(grown(&high, &low, &["a".into()]), None);
        assert_eq!(grown(&low, &Scrape::default(), &["a".into()]), None);
    }
}
