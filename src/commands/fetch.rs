//! `matrix fetch`: gets what a matrix lacks from the model hub, before a run that works offline.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context;
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use reqwest::redirect::Policy;

use crate::cli::{self, FetchArgs};
use crate::commands::{Colors, Outcome, Refusal, print, read, refused};
use crate::exit::Exit;
use crate::load::dataset::tokenizer::Tokenizer;
use crate::load::dataset::{self, Caches};
use crate::load::hub::{Fetched, Hub, Kind, Wanted};
use crate::matrix::plan::Plan;

/// The files that make a tokenizer, and whether a repository may lack one.
const TOKENIZER: [(&str, bool); 4] = [
    ("tokenizer.json", false),
    ("tokenizer_config.json", true),
    ("chat_template.jinja", true),
    ("config.json", true),
];

/// Fetches what is missing.
///
/// # Errors
/// Mistakes in the files; something that could not be had.
pub fn execute(args: &FetchArgs, colors: Colors) -> Outcome {
    let read =
        read(&args.matrix).map_err(|(mistakes, sources)| refused(&mistakes, &sources, colors.stderr))?;
    let Some(home) = args.places.hf_home() else {
        return Err(Refusal::unfit(
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
    let mut wanted = lacking(&read.plan, &read.folder, &caches);
    if args.models {
        let ids: BTreeSet<&str> = read
            .plan
            .launches
            .iter()
            .map(|launch| launch.checkpoint.as_str())
            .collect();
        for id in ids.into_iter().filter(|id| is_repository(id, &read.folder)) {
            let files = runtime.block_on(hub.list(Kind::Model, id));
            wanted.extend(files.map_err(|error| Refusal::unfit(format!("error: {error}\n")))?);
        }
    }
    if wanted.is_empty() {
        print("nothing is missing\n");
        return Ok(Exit::Done);
    }
    let mut failed = String::new();
    for file in &wanted {
        let name = format!("{}/{}", file.repository, file.file);
        let bar = bar(&name);
        let fetched = runtime.block_on(hub.fetch(file, |have, all| {
            bar.set_length(all.unwrap_or(have));
            bar.set_position(have);
        }));
        bar.finish_and_clear();
        match fetched {
            Ok(Fetched::Kept(path)) => print(&format!("kept    {name}: {}\n", path.display())),
            Ok(Fetched::Downloaded { path, bytes }) => {
                print(&format!(
                    "fetched {name} ({}): {}\n",
                    HumanBytes(bytes),
                    path.display()
                ));
            }
            Ok(Fetched::Absent) => {}
            Err(error) => failed.push_str(&format!("error: {error}\n")),
        }
    }
    if failed.is_empty() {
        Ok(Exit::Done)
    } else {
        Err(Refusal::unfit(failed))
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

/// The data sets and tokenizers of a plan that are not here and that the hub may have.
fn lacking(plan: &Plan, folder: &std::path::Path, caches: &Caches) -> BTreeSet<Wanted> {
    let mut wanted = BTreeSet::new();
    for cell in &plan.cells {
        let work = &cell.scenario.workload;
        let usual = dataset::usual_file(work.dataset).filter(|_| work.path.is_none());
        if let Some((repository, file)) = usual
            && dataset::locate(work, folder, caches).is_err()
        {
            wanted.insert(Wanted {
                kind: Kind::Dataset,
                repository: repository.to_owned(),
                file: file.to_owned(),
                is_optional: false,
            });
        }
    }
    for launch in &plan.launches {
        let name = &launch.tokenizer;
        if is_repository(name, folder) && Tokenizer::open(name, folder, caches).is_err() {
            for (file, is_optional) in TOKENIZER {
                let (repository, file) = (name.clone(), file.to_owned());
                wanted.insert(Wanted {
                    kind: Kind::Model,
                    repository,
                    file,
                    is_optional,
                });
            }
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
