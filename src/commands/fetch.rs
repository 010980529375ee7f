//! `matrix fetch`: gets what a matrix lacks from the model hub, before a run that works offline.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::Context;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use reqwest::redirect::Policy;

use crate::base::text::printable;
use crate::cli::{self, FetchArgs, FetchedDataset};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::matrix_file::load;
use crate::commands::output::{Colors, print};
use crate::config::dataset_options::MooncakeTrace;
use crate::config::workload::Dataset;
use crate::exit::Exit;
use crate::loadgen::dataset::tokenizer::Tokenizer;
use crate::loadgen::dataset::{self, Caches};
use crate::loadgen::hf_hub::{Fetched, Hub, HubError, Kind, Wanted};
use crate::plan::Plan;

/// The files that make a tokenizer, and whether a repository may lack one.
const TOKENIZER: [(&str, bool); 6] = [
    ("tokenizer.json", false),
    ("tokenizer_config.json", true),
    ("chat_template.jinja", true),
    ("chat_template.json", true),
    ("special_tokens_map.json", true),
    ("config.json", true),
];

/// Fetches what is missing.
///
/// # Errors
/// Mistakes in the files; something that could not be had.
pub fn execute(args: &FetchArgs, colors: Colors) -> Outcome {
    let read = match &args.matrix {
        Some(matrix) => Some(load(matrix, colors)?),
        None => None,
    };
    let Some(home) = args.places.hf_home() else {
        return Err(CommandError::unfit(
            "error: there is no folder for the cache\n  = help: set HF_HOME\n",
        ));
    };
    let hub = hub(args, home)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    let caches = Caches {
        hf_home: Some(hub.home.clone()),
        prompts: None,
    };
    let mut wanted = named(args);
    let mut traces: BTreeSet<MooncakeTrace> = BTreeSet::new();
    if args.dataset.contains(&FetchedDataset::Mooncake) {
        traces.extend(MooncakeTrace::ALL);
    }
    if let Some(read) = &read {
        wanted.extend(lacking(&read.plan, &read.folder, &caches));
        traces.extend(lacking_traces(&read.plan, &read.folder, &caches));
    }
    if let Some(read) = read.filter(|_| args.models) {
        let ids: BTreeSet<&str> = read
            .plan
            .launches
            .iter()
            .map(|launch| launch.checkpoint.as_str())
            .collect();
        for id in ids.into_iter().filter(|id| is_repository(id, &read.folder)) {
            let files = runtime.block_on(hub.list(Kind::Model, id));
            wanted.extend(files.map_err(|error| CommandError::unfit(format!("error: {error}\n")))?);
        }
    }
    if wanted.is_empty() && traces.is_empty() {
        say("nothing is missing\n");
        return Ok(Exit::Done);
    }
    let mut failed = String::new();
    for (index, file) in wanted.iter().enumerate() {
        let name = format!("{}/{}", file.repository, file.file);
        let bar = bar(&name);
        let fetched = runtime.block_on(hub.fetch(file, |have, all| {
            bar.set_length(all.unwrap_or(have));
            bar.set_position(have);
        }));
        bar.finish_and_clear();
        match fetched {
            Ok(Fetched::Kept(path)) => say(&format!("kept    {name}: {}\n", path.display())),
            Ok(Fetched::Downloaded { path, bytes }) => {
                say(&format!(
                    "fetched {name} ({}): {}\n",
                    HumanBytes(bytes),
                    path.display()
                ));
            }
            Ok(Fetched::Absent) => {}
            Err(error) => {
                failed.push_str(&format!("error: {error}\n"));
                if matches!(error, HubError::Unreachable { .. }) {
                    failed.push_str(&untried(wanted.len() - index - 1));
                    break;
                }
            }
        }
    }
    for trace in traces {
        match runtime.block_on(fetch_trace(&hub.http, trace)) {
            Ok(line) => say(&line),
            Err(error) => failed.push_str(&format!("error: {error:#}\n")),
        }
    }
    if failed.is_empty() {
        Ok(Exit::Done)
    } else {
        Err(CommandError::unfit(failed))
    }
}

/// The line that counts the files not tried after a failed connection.
fn untried(files: usize) -> String {
    match files {
        0 => String::new(),
        1 => "1 more file of the hub was not tried\n".to_owned(),
        n => format!("{n} more files of the hub were not tried\n"),
    }
}

fn hub(args: &FetchArgs, home: std::path::PathBuf) -> anyhow::Result<Hub> {
    // The provider of TLS is installed by whoever comes first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = |policy: Policy| {
        reqwest::Client::builder()
            .redirect(policy)
            .connect_timeout(Duration::from_secs(20))
            .read_timeout(Duration::from_secs(60))
            .build()
            .context("cannot make a client")
    };
    Ok(Hub {
        endpoint: args.endpoint.trim_end_matches('/').to_owned(),
        token: cli::variable("HF_TOKEN"),
        home,
        http: client(Policy::limited(10))?,
        direct: client(Policy::none())?,
    })
}

/// Prints a line that contains names from outside.
fn say(line: &str) {
    print(&printable(line));
}

/// What was asked for by name.
fn named(args: &FetchArgs) -> BTreeSet<Wanted> {
    let tokenizers = args.tokenizer.iter().flat_map(|name| tokenizer_files(name));
    let files = args.dataset.iter().filter_map(|dataset| {
        dataset::usual_file(match dataset {
            FetchedDataset::Sharegpt => Dataset::Sharegpt,
            FetchedDataset::Mmmu => Dataset::Mmmu,
            FetchedDataset::LongbenchV2 => Dataset::LongbenchV2,
            FetchedDataset::Mooncake => Dataset::Mooncake,
        })
    });
    tokenizers.chain(files.map(dataset_file)).collect()
}

fn dataset_file((repository, file): (&str, &str)) -> Wanted {
    Wanted {
        kind: Kind::Dataset,
        repository: repository.to_owned(),
        file: file.to_owned(),
        is_optional: false,
    }
}

fn tokenizer_files(name: &str) -> impl Iterator<Item = Wanted> {
    TOKENIZER.iter().map(move |(file, is_optional)| Wanted {
        kind: Kind::Model,
        repository: name.to_owned(),
        file: (*file).to_owned(),
        is_optional: *is_optional,
    })
}

/// The traces of Mooncake that a plan sends and that are not here.
fn lacking_traces(plan: &Plan, folder: &std::path::Path, caches: &Caches) -> BTreeSet<MooncakeTrace> {
    let works = plan.cells.iter().map(|cell| &cell.scenario.workload);
    let usual = works.filter(|work| work.dataset == Dataset::Mooncake && work.path.is_none());
    usual
        .filter(|work| dataset::locate(work, folder, caches).is_err())
        .map(|work| work.mooncake().trace)
        .collect()
}

/// Fetches a trace to where the Python tool looks for it, too; what became of it, as a line.
async fn fetch_trace(http: &reqwest::Client, trace: MooncakeTrace) -> anyhow::Result<String> {
    let place = dataset::mooncake_place(trace);
    if place.is_file() {
        return Ok(format!("kept    {}: {}\n", trace.file(), place.display()));
    }
    let url = trace.url();
    let answer = http
        .get(&url)
        .send()
        .await
        .and_then(reqwest::Response::error_for_status);
    let bytes = answer
        .with_context(|| format!("cannot fetch `{url}`"))?
        .bytes()
        .await?;
    let folder = place.parent().context("a trace lies in a folder")?;
    // The umask still applies: other users of this host read it too.
    let file = tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .context("cannot keep the trace")?;
    std::fs::write(file.path(), &bytes).context("cannot keep the trace")?;
    file.persist(&place)
        .with_context(|| format!("cannot keep `{}`", place.display()))?;
    Ok(format!(
        "fetched {} ({}): {}\n",
        trace.file(),
        HumanBytes(bytes.len() as u64),
        place.display()
    ))
}

/// The data sets and tokenizers of a plan that are not here and that the hub may have.
fn lacking(plan: &Plan, folder: &std::path::Path, caches: &Caches) -> BTreeSet<Wanted> {
    let mut wanted = BTreeSet::new();
    for cell in &plan.cells {
        let work = &cell.scenario.workload;
        let usual = dataset::usual_file(work.dataset).filter(|_| work.path.is_none());
        if let Some((repository, file)) = usual
            && dataset::locate(work, folder, caches).is_err()
        {
            wanted.insert(dataset_file((repository, file)));
        }
    }
    for launch in &plan.launches {
        let name = &launch.tokenizer;
        if is_repository(name, folder) && Tokenizer::open(name, folder, caches).is_err() {
            wanted.extend(tokenizer_files(name));
        }
    }
    wanted
}

/// Whether a name can be a repository of the hub: `owner/name`, and no path of this host.
fn is_repository(name: &str, folder: &std::path::Path) -> bool {
    let fits = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    name.split('/').count() == 2 && name.split('/').all(fits) && !folder.join(name).exists()
}

fn bar(name: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
        .expect("the template is well formed");
    ProgressBar::new(0)
        .with_style(style)
        .with_message(name.to_owned())
}
