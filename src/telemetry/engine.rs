//! Reads the engine's own metrics and gives them the names used here.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Client;
use reqwest::header::HeaderMap;

use crate::base::body::BodyError;
use crate::base::control_client::{self, ControlError, innermost};
use crate::config::metrics::{Kind, kind};
use crate::results::record::telemetry::{Source, Values};
use crate::telemetry::probe::{Probe, Reading};
use crate::telemetry::prometheus::Scrape;

/// Timeout of a request for metrics.
const ANSWER: Duration = Duration::from_secs(5);

/// Interval of the requests.
const PERIOD: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// Must not keep idle connections, because another thread with its own runtime uses it.
    pub http: Client,
    pub url: String,
    pub headers: HeaderMap,
    /// Names used here, each with candidate names of the engine; the first one found counts.
    pub names: BTreeMap<String, Vec<String>>,
}

impl Page {
    /// Whether the page answers and has at least one of the metrics.
    pub(crate) async fn tells(&self) -> bool {
        let told = ask(self).await;
        told.is_ok_and(|told| !values(&told, &self.names).is_empty())
    }
}

pub(crate) struct EngineProbe {
    page: Page,
    /// Created by the probe's thread.
    runtime: Option<tokio::runtime::Runtime>,
}

impl EngineProbe {
    pub(crate) const fn new(page: Page) -> Self {
        Self { page, runtime: None }
    }
}

impl Probe for EngineProbe {
    fn source(&self) -> Source {
        Source::Engine
    }

    fn period(&self) -> Duration {
        PERIOD
    }

    fn read(&mut self) -> Result<Vec<Reading>, String> {
        let runtime = match self.runtime.take() {
            Some(runtime) => runtime,
            None => tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|error| error.to_string())?,
        };
        let told = runtime.block_on(ask(&self.page));
        self.runtime = Some(runtime);
        let values = values(&told?, &self.page.names);
        if values.is_empty() {
            return Err("the page of metrics has none of the names that the recipe gives".to_owned());
        }
        Ok(vec![Reading { device: None, values }])
    }
}

async fn ask(page: &Page) -> Result<Scrape, String> {
    let request = page.http.get(&page.url).headers(page.headers.clone());
    let asked = control_client::ask(page.url.clone(), request.timeout(ANSWER)).await;
    let answer = asked.map_err(|error| words(&error))?;
    let status = answer.status;
    if !status.is_success() {
        return Err(format!("the page of metrics answers with status {status}"));
    }
    let text = answer.text().await.map_err(|error| words(&error))?;
    Ok(Scrape::parse(&text))
}

/// The metrics of a page under the names used here. Durations give `<name>_sum` and `<name>_count`. Missing
/// metrics are left out.
pub(crate) fn values(scrape: &Scrape, names: &BTreeMap<String, Vec<String>>) -> Values {
    let mut values = Values::new();
    for (name, theirs) in names {
        match kind(name) {
            Some(Kind::Level | Kind::Counter) => {
                values.extend(scrape.sum(theirs).map(|value| (name.clone(), value)));
            }
            Some(Kind::Share) => {
                values.extend(scrape.mean(theirs).map(|value| (name.clone(), value)));
            }
            Some(Kind::Times) => {
                let (sum, count) = (format!("{name}_sum"), format!("{name}_count"));
                let told = scrape.times(theirs);
                values.extend(
                    told.into_iter()
                        .flat_map(|told| [(sum.clone(), told.0), (count.clone(), told.1)]),
                );
            }
            None => {}
        }
    }
    values
}

/// The reason without the URL, which may hold a secret.
fn words(error: &ControlError) -> String {
    match error {
        ControlError::Silent { error, .. } if error.is_timeout() => {
            format!("no answer within {} s", ANSWER.as_secs())
        }
        ControlError::Silent { error, .. } => format!("no answer: {}", innermost(error)),
        _ => BodyError::Long.to_string(),
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
                .map(|(ours, theirs)| ((*ours).to_owned(), vec![(*theirs).to_owned()]))
                .collect()
        };
        let scrape =
            Scrape::parse("run 2\nuse{e=\"0\"} 0.2\nuse{e=\"1\"} 0.6\nt_sum 3\nt_count 2\nq_sum 1\n");
        let told = values(
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
            told.iter()
                .map(|(name, value)| (name.as_str(), *value))
                .collect::<Vec<_>>(),
            expected
        );
    }
}
