//! `matrix site`: writes a static site of many runs into a folder.

mod folder;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::base::text::pluralize;
use crate::cli::report::SiteArgs;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::history;
use crate::commands::output::{Colors, eprint, print};
use crate::commands::prices::price_list;
use crate::commands::report;
use crate::exit::Exit;
use crate::report::html;
use crate::report::single_line;
use crate::report::site::{RunOfSite, Site};
use crate::results::store::{self, Run};

use folder::SiteFolder;

/// The index of a site, relative to the page of a run.
const INDEX_FROM_PAGE: &str = "../index.html";

/// Runs of a site, and where nightly runs may be.
#[derive(Default)]
struct Chosen {
    /// Folders of runs, each once.
    folders: Vec<PathBuf>,
    /// Folders of runs that must be readable, because they were named.
    named: BTreeSet<PathBuf>,
    /// Folders that contain runs.
    roots: Vec<PathBuf>,
}

pub(crate) fn execute(args: &SiteArgs, colors: Colors) -> Outcome {
    let chosen = choose(args, colors)?;
    let list = price_list(args.prices.as_deref(), colors)?;
    let cache = args.places.cache();
    let mut folder = SiteFolder::open(&args.dir)?;
    let pages = page_names(&chosen.folders);
    folder.claim(&pages)?;
    let mut site = Site::default();
    for (path, page) in chosen.folders.iter().zip(&pages) {
        let Some(run) = read(path, &chosen)? else {
            continue;
        };
        let text = report::page_in_site(&run, &cache, &list, args.floor, INDEX_FROM_PAGE);
        folder.write(page, &text)?;
        site.add_run(RunOfSite {
            page,
            info: &run.info,
            plan: &run.plan,
            machine: &run.machine,
            summaries: &run.summaries,
        });
    }
    if site.runs.is_empty() {
        return Err(CommandError::usage("error: none of the runs can be read\n"));
    }
    add_nights(&mut site, &chosen.roots);
    site.sort();
    folder.write(folder::INDEX, &html::draw_site(&site))?;
    folder.finish()?;
    print(&format!(
        "wrote {}: {}, {}\n",
        args.dir.join(folder::INDEX).display(),
        pluralize(site.runs.len(), "run", "runs"),
        pluralize(site.rows().count(), "cell", "cells")
    ));
    Ok(Exit::Done)
}

/// The runs that the arguments name.
fn choose(args: &SiteArgs, colors: Colors) -> Result<Chosen, CommandError> {
    let mut chosen = Chosen::default();
    if args.runs.is_empty() {
        add_root(&mut chosen, &args.results)?;
    }
    for name in &args.runs {
        let path = Path::new(name);
        let is_run = store::read_run_info(path).is_ok();
        if path.is_dir() && !is_run && !list_runs(path)?.is_empty() {
            add_root(&mut chosen, path)?;
            continue;
        }
        let run = store::nightly::find_run(&args.results, &history::matrix_name(name, colors)?)
            .map_err(|error| CommandError::usage(format!("error: {error}\n")))?;
        chosen.named.insert(run.folder.clone());
        chosen.folders.push(run.folder);
    }
    if chosen.folders.is_empty() {
        return Err(report::no_run_error(&args.results));
    }
    // A run that was named twice has one page.
    let mut seen = BTreeSet::new();
    chosen.folders.retain(|folder| {
        let real = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.clone());
        seen.insert(real)
    });
    chosen.folders.sort();
    Ok(chosen)
}

fn list_runs(root: &Path) -> Result<Vec<PathBuf>, CommandError> {
    let runs = store::list_runs(root)
        .map_err(|error| CommandError::usage(format!("error: cannot list the runs: {error}\n")))?;
    Ok(runs.into_iter().map(|run| run.folder).collect())
}

fn add_root(chosen: &mut Chosen, root: &Path) -> Result<(), CommandError> {
    chosen.folders.extend(list_runs(root)?);
    chosen.roots.push(root.to_owned());
    Ok(())
}

/// Reads a run. One that was not named and cannot be read is left out with a warning.
fn read(folder: &Path, chosen: &Chosen) -> Result<Option<Run>, CommandError> {
    match Run::read(folder) {
        Ok(run) => Ok(Some(run)),
        Err(error) if chosen.named.contains(folder) => Err(CommandError::usage(format!("error: {error}\n"))),
        Err(error) => {
            eprint(&format!(
                "warning: left out: {}\n",
                single_line(&error.to_string())
            ));
            Ok(None)
        }
    }
}

/// The addresses of the pages of runs. Runs of one name in several folders get a number.
fn page_names(folders: &[PathBuf]) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let mut page = |folder: &PathBuf| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let name = store::file_name(&name);
        let numbered = |number: usize| match number {
            1 => format!("{}/{name}.html", folder::PAGES),
            number => format!("{}/{name}~{number}.html", folder::PAGES),
        };
        let free = (1..).map(numbered).find(|page| taken.insert(page.clone()));
        free.expect("there is always a further number")
    };
    folders.iter().map(&mut page).collect()
}

/// Adds the nightly runs of the histories, of which the folders may be gone.
fn add_nights(site: &mut Site, roots: &[PathBuf]) {
    for root in roots {
        for matrix in store::nightly::matrices(root) {
            match store::nightly::history(root, &matrix) {
                Ok((nights, warnings)) => {
                    for warning in warnings {
                        eprint(&format!("warning: {}\n", single_line(&warning)));
                    }
                    nights.into_iter().for_each(|night| site.add_night(night));
                }
                Err(error) => eprint(&format!(
                    "warning: left out: {}\n",
                    single_line(&error.to_string())
                )),
            }
        }
    }
}
