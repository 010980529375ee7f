//! Reads the engine's own metrics and gives them the names used here.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Client;
use reqwest::header::HeaderMap;

use crate::base::body::BodyError;
use crate::base::control_client::{self, ControlError, root_cause};
use crate::base::unix_url::wire_url;
use crate::config::metrics::{MetricKind, metric_kind};
use crate::results::record::telemetry::{SampleValues, TelemetrySource};
use crate::telemetry::probe::{DeviceReading, Probe};
use crate::telemetry::prometheus::Scrape;

/// Timeout of a request for metrics.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval of the requests.
const PERIOD: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(crate) struct MetricsPage {
    /// Must not keep idle connections, because another thread with its own runtime uses it.
    pub(crate) http: Client,
    pub(crate) url: String,
    pub(crate) headers: HeaderMap,
    /// Names used here, each with candidate names of the engine; the first one found is used.
    pub(crate) names: BTreeMap<String, Vec<String>>,
}

impl MetricsPage {
    /// Whether the page answers and has at least one of the metrics.
    pub(crate) async fn has_metrics(&self) -> bool {
        let scrape = fetch(self).await;
        scrape.is_ok_and(|scrape| !engine_values(&scrape, &self.names).is_empty())
    }
}

pub(crate) struct EngineProbe {
    page: MetricsPage,
    /// Created by the probe's thread.
    runtime: Option<tokio::runtime::Runtime>,
}

impl EngineProbe {
    pub(crate) const fn new(page: MetricsPage) -> Self {
        Self { page, runtime: None }
    }
}

impl Probe for EngineProbe {
    fn source(&self) -> TelemetrySource {
        TelemetrySource::Engine
    }

    fn period(&self) -> Duration {
        PERIOD
    }

    fn read(&mut self) -> Result<Vec<DeviceReading>, String> {
        let runtime = match self.runtime.take() {
            Some(runtime) => runtime,
            None => tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|error| error.to_string())?,
        };
        let scrape = runtime.block_on(fetch(&self.page));
        self.runtime = Some(runtime);
        let values = engine_values(&scrape?, &self.page.names);
        if values.is_empty() {
            return Err("the metrics page has none of the metrics that the recipe names".to_owned());
        }
        Ok(vec![DeviceReading { device: None, values }])
    }
}

async fn fetch(page: &MetricsPage) -> Result<Scrape, String> {
    let request = page.http.get(wire_url(&page.url)).headers(page.headers.clone());
    let response = control_client::send_request(page.url.clone(), request.timeout(ANSWER_TIMEOUT)).await;
    let answer = response.map_err(|error| error_text(&error))?;
    let status = answer.status;
    if !status.is_success() {
        return Err(format!("the metrics page answers with status {status}"));
    }
    let text = answer.text().await.map_err(|error| error_text(&error))?;
    Ok(Scrape::parse(&text))
}

/// The metrics of a page under the names used here. Durations give `<name>_sum` and `<name>_count`. Missing
/// metrics are left out.
pub(crate) fn engine_values(scrape: &Scrape, names: &BTreeMap<String, Vec<String>>) -> SampleValues {
    let mut values = SampleValues::new();
    for (name, engine_names) in names {
        match metric_kind(name) {
            Some(MetricKind::Level | MetricKind::Counter) => {
                values.extend(scrape.sum(engine_names).map(|value| (name.clone(), value)));
            }
            Some(MetricKind::Share) => {
                values.extend(scrape.mean(engine_names).map(|value| (name.clone(), value)));
            }
            Some(MetricKind::Histogram) => {
                let (sum, count) = (format!("{name}_sum"), format!("{name}_count"));
                let totals = scrape.histogram_totals(engine_names);
                values.extend(
                    totals
                        .into_iter()
                        .flat_map(|totals| [(sum.clone(), totals.0), (count.clone(), totals.1)]),
                );
            }
            None => {}
        }
    }
    values
}

/// The reason without the URL, which may hold a secret.
fn error_text(error: &ControlError) -> String {
    match error {
        ControlError::Silent { error, .. } if error.is_timeout() => {
            format!("no response within {} s", ANSWER_TIMEOUT.as_secs())
        }
        ControlError::Silent { error, .. } => format!("no response: {}", root_cause(error)),
        _ => BodyError::TooLong.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_under_our_names_and_what_is_missing_is_absent() {
        let names = |pairs: &[(&str, &str)]| -> BTreeMap<String, Vec<String>> {
            let pairs = pairs.iter();
            pairs
                .map(|(ours, engine_names)| ((*ours).to_owned(), vec![(*engine_names).to_owned()]))
                .collect()
        };
        let scrape =
            Scrape::parse("run 2\nuse{e=\"0\"} 0.2\nuse{e=\"1\"} 0.6\nt_sum 3\nt_count 2\nq_sum 1\n");
        let values = engine_values(
            &scrape,
            &names(&[
                ("running", "run"),
                ("kv_cache_usage", "use"),
                ("ttft_s", "t"),
                ("queue_s", "q"),
                ("preemptions", "none"),
                ("unheard-of", "run"),
            ]),
        );
        let expected = [
            ("kv_cache_usage", 0.4),
            ("running", 2.0),
            ("ttft_s_count", 2.0),
            ("ttft_s_sum", 3.0),
        ];
        assert_eq!(
            values
                .iter()
                .map(|(name, value)| (name.as_str(), *value))
                .collect::<Vec<_>>(),
            expected
        );
    }
}
