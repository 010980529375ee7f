//! The result of a bench like vLLM's: its figures, its block and its file.

use std::fs;
use std::path::PathBuf;

use super::settings::Settings;
use crate::analysis::metrics::{VllmFigures, VllmRequest};
use crate::base::clock;
use crate::commands::bench::outputs;
use crate::commands::error::CommandError;
use crate::commands::files;
use crate::config::arrival::Arrival;
use crate::config::dataset::Dataset;
use crate::config::dataset::vllm_serve::VllmSource;
use crate::report::vllm_serve::{self, CounterGrowth, Description, VllmLoad};
use crate::results::record::request::Request;
use crate::runner::bench::BenchLoad;

/// Computes the figures of a load.
pub(super) fn figures(settings: &Settings, measured: &BenchLoad) -> VllmFigures {
    let generates_text = settings.dialect.protocol.facts().generates_text;
    let arrival = &settings.scenario.arrival;
    let is_at_once = arrival.pace.is_none() && arrival.rate.is_infinite() && !is_replayed(settings);
    let mut requests: Vec<&Request> = measured.load.requests.iter().collect();
    requests.sort_by_key(|request| request.index);
    let end_ns = requests.iter().map(|request| request.end_ns).max();
    VllmFigures {
        requests: requests
            .into_iter()
            .map(|request| {
                let sequences = sequences(settings, request.index);
                VllmRequest::from_record(request, generates_text, is_at_once, sequences)
            })
            .collect(),
        duration_s: end_ns.unwrap_or(0) as f64 / 1e9,
    }
}

/// The number of prompts in a request.
fn sequences(settings: &Settings, index: u32) -> u32 {
    let prompts = settings.scenario.workload.prompts;
    let part = |of: u32, size: u32| of.saturating_sub(index.saturating_mul(size)).min(size);
    match source(settings) {
        Some(VllmSource::Random(random)) => part(prompts, random.batch_size.max(1)),
        Some(VllmSource::RandomRerank(rerank)) => {
            let documents = part(rerank.documents(prompts), rerank.documents_per_request());
            // Without documents of their own, requests also embed the query.
            documents + u32::from(!rerank.has_documents)
        }
        _ => part(prompts, 1),
    }
}

fn source(settings: &Settings) -> Option<&VllmSource> {
    match &settings.scenario.workload.dataset {
        Dataset::VllmServe(dataset) => Some(&dataset.vllm_serve.source),
        _ => None,
    }
}

/// Whether requests are sent at the timestamps of a trace.
pub(super) fn is_replayed(settings: &Settings) -> bool {
    matches!(source(settings), Some(VllmSource::TimedTrace(trace)) if trace.is_replayed)
}

pub(super) fn load<'a>(
    settings: &'a Settings,
    figures: &'a VllmFigures,
    counters: &'a CounterGrowth,
) -> VllmLoad<'a> {
    VllmLoad {
        figures,
        generates_text: settings.dialect.protocol.facts().generates_text,
        arrival: &settings.scenario.arrival,
        selected: &settings.output.selected,
        percents: &settings.output.percents,
        goodput: settings.output.goodput,
        counters,
    }
}

/// Checks before anything is sent that a named result file can be written.
pub(super) fn check_file(settings: &Settings) -> Result<(), CommandError> {
    let output = &settings.output;
    if !output.saves {
        return Ok(());
    }
    let refused = |path: &PathBuf, error: &dyn std::fmt::Display| {
        let path = path.display();
        CommandError::usage(format!(
            "error: cannot write `{path}`: {error}\nnothing was sent\n"
        ))
    };
    if let Some(folder) = &output.folder {
        fs::create_dir_all(folder).map_err(|error| refused(folder, &error))?;
    }
    let folder = output.folder.clone().unwrap_or_default();
    if let Some(name) = &output.file_name {
        let path = folder.join(name);
        files::try_open(&path).map_err(|error| refused(&path, &error))?;
    }
    Ok(())
}

/// Writes the result file and returns its path.
pub(super) fn write_file(
    settings: &Settings,
    measured: &BenchLoad,
    model: &str,
    load: &VllmLoad<'_>,
) -> Result<Option<PathBuf>, CommandError> {
    let output = &settings.output;
    if !output.saves {
        return Ok(None);
    }
    let date = clock::local_stamp();
    let about = Description {
        date: &date,
        backend: &settings.backend,
        label: output.label.as_deref(),
        model,
        tokenizer: measured.session.tokenizer().0,
        prompts: output.prompts,
        metadata: &output.metadata,
        is_detailed: output.is_detailed,
        rate_changes: rate_changes(&settings.scenario.arrival, &measured.load.requests),
    };
    let name = output.file_name.clone();
    let name = name.unwrap_or_else(|| vllm_serve::default_name(&about, load));
    let path = output.folder.clone().unwrap_or_default().join(name);
    let text = vllm_serve::text(vllm_serve::result_object(&about, load));
    let has_content = fs::metadata(&path).is_ok_and(|file| file.len() > 0);
    match output.appends {
        true => {
            let line_break = if has_content { "\n" } else { "" };
            outputs::append_as_is(&path, &format!("{line_break}{text}"))?;
        }
        false => outputs::write_file(&path, &text)?,
    }
    Ok(Some(path))
}

/// The local times at which a ramp reached whole numbers of requests per second, as far as requests were sent.
fn rate_changes(arrival: &Arrival, requests: &[Request]) -> Option<Vec<(u64, String)>> {
    arrival.pace.as_ref()?;
    let end_s = clock::unix_seconds();
    let last_ns = requests.iter().map(|request| request.end_ns).max().unwrap_or(0);
    let at = |due_ns: u64| clock::local_iso(end_s - (last_ns.saturating_sub(due_ns)) as f64 / 1e9);
    let mut reached = arrival.rate_of_request(0, requests.len()).floor() as u64;
    let mut changes = vec![(reached, at(0))];
    for (row, request) in requests.iter().enumerate() {
        let rate = arrival.rate_of_request(row, requests.len()).floor() as u64;
        changes.extend((reached + 1..=rate).map(|rate| (rate, at(request.due_ns))));
        reached = reached.max(rate);
    }
    Some(changes)
}
