//! Parses the names of gating metrics.

use thiserror::Error;

use crate::analysis::metrics::{Metric, Quantity};

#[derive(Debug, Error)]
pub(crate) enum GateError {
    #[error("`--gate {name}`: unknown metric\n  = help: the nearest name is `{nearest}`")]
    Unknown { name: String, nearest: String },
    #[error(
        "`--gate {name}`: for this metric neither a higher nor a lower value is better, so it cannot be a gate\n  = help: choose a throughput or a time, such as `output_throughput_tok_s` or `median_e2e_ms`"
    )]
    WithoutDirection { name: String },
}

/// Finds the metric of a name: our name, or that of bench_serving and `vllm bench serve`.
fn metric_by_name(name: &str) -> Option<Metric> {
    let theirs = || match name {
        "request_throughput" => Some(Metric::Throughput(Quantity::Requests)),
        "input_throughput" => Some(Metric::Throughput(Quantity::Input)),
        "output_throughput" => Some(Metric::Throughput(Quantity::Output)),
        "total_throughput" | "total_token_throughput" => Some(Metric::Throughput(Quantity::Total)),
        "request_goodput" => Some(Metric::Goodput),
        _ => {
            let time = name.replace("_e2el_ms", "_e2e_ms");
            Metric::from_name(&time.replace("_e2e_latency_ms", "_e2e_ms"))
        }
    };
    Metric::from_name(name).or_else(theirs)
}

/// Parses the gating metrics of these names, each once.
///
/// # Errors
/// A metric does not exist or has no better direction.
pub(crate) fn named_gates(names: &[String]) -> Result<Vec<Metric>, GateError> {
    let mut gates = Vec::new();
    for name in names {
        let metric = gating_metric(name)?;
        // A metric that is named twice is one test.
        if !gates.contains(&metric) {
            gates.push(metric);
        }
    }
    Ok(gates)
}

fn gating_metric(name: &str) -> Result<Metric, GateError> {
    let Some(metric) = metric_by_name(name) else {
        return Err(GateError::Unknown {
            name: name.to_owned(),
            nearest: nearest_name(name),
        });
    };
    match metric.direction() {
        Some(_) => Ok(metric),
        None => Err(GateError::WithoutDirection {
            name: name.to_owned(),
        }),
    }
}

/// Returns the nearest known name. For a time without a statistic, its median.
fn nearest_name(name: &str) -> String {
    let of_time = format!("median_{}_ms", name.to_lowercase().replace("e2el", "e2e"));
    match Metric::from_name(&of_time) {
        Some(_) => of_time,
        None => Metric::all()
            .map(|metric| metric.name())
            .min_by_key(|known| strsim::damerau_levenshtein(known, name))
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_tools_are_figures_of_ours() {
        for (theirs, ours) in [
            ("request_throughput", "request_throughput_req_s"),
            ("output_throughput", "output_throughput_tok_s"),
            ("total_token_throughput", "total_throughput_tok_s"),
            ("median_e2el_ms", "median_e2e_ms"),
            ("p99_e2e_latency_ms", "p99_e2e_ms"),
            ("median_tpot_ms", "median_tpot_ms"),
        ] {
            let metric = metric_by_name(theirs).unwrap_or_else(|| panic!("{theirs}"));
            assert_eq!(metric.name(), ours);
        }
        assert_eq!(metric_by_name("tpot"), None);
    }

    #[test]
    fn a_time_without_a_statistic_is_answered_with_its_median() {
        for (name, near) in [
            ("tpot", "median_tpot_ms"),
            ("TTFT", "median_ttft_ms"),
            ("e2el", "median_e2e_ms"),
            ("median_tpot", "median_tpot_ms"),
        ] {
            let message = named_gates(&[name.to_owned()]).unwrap_err().to_string();
            assert!(
                message.contains(&format!("the nearest name is `{near}`")),
                "{message}"
            );
        }
    }
}
