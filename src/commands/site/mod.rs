//! `matrix site`: writes a static site of many runs into a folder.

mod folder;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::base::text::pluralize;
use crate::cli::report::SiteArgs;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::files::free_name;
use crate::commands::history;
use crate::commands::output::{Colors, eprint, print};
use crate::commands::prices::price_list;
use crate::commands::report;
use crate::commands::unreadable;
use crate::exit::Exit;
use crate::report::html;
use crate::report::single_line;
use crate::report::site::{RunOfSite, Site};
use crate::results::store::{self, Run, StoreError};

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
        let run = match Run::read(path) {
            Ok(run) => run,
            Err(error) if chosen.named.contains(path) => {
                return Err(CommandError::usage(format!("error: {error}\n")));
            }
            Err(error) => {
                leave_out(&error, page, &mut folder);
                continue;
            }
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
        return Err(CommandError::usage(
            "error: none of the runs can be read\n  = help: the warnings above name the cause for each\n",
        ));
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
        if path.is_dir() && !is_run && !run_folders(path)?.is_empty() {
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

/// The runs in a folder, with those that cannot be read: these get a warning, and the names of pages do not depend on them.
fn run_folders(root: &Path) -> Result<Vec<PathBuf>, CommandError> {
    let failed = |error: StoreError| CommandError::usage(format!("error: cannot list the runs: {error}\n"));
    let runs = store::list_runs(root).map_err(failed)?;
    let unreadable = store::list_unreadable_runs(root).map_err(failed)?;
    let folders = runs.into_iter().map(|run| run.folder);
    Ok(folders
        .chain(unreadable.into_iter().map(|run| run.folder))
        .collect())
}

fn add_root(chosen: &mut Chosen, root: &Path) -> Result<(), CommandError> {
    chosen.folders.extend(run_folders(root)?);
    chosen.roots.push(root.to_owned());
    Ok(())
}

/// Leaves out a run that cannot be read, with a warning. Its page of an earlier site stays.
fn leave_out(error: &StoreError, page: &str, folder: &mut SiteFolder) {
    let stays = match folder.keep(page) {
        true => format!("; its page of the earlier site, `{page}`, stays"),
        false => String::new(),
    };
    eprint(&format!("warning: {}{stays}\n", unreadable::left_out(error)));
}

/// The addresses of the pages of runs. Runs of one name in several folders get a number.
fn page_names(folders: &[PathBuf]) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let mut page = |folder: &PathBuf| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let name = free_name(&store::file_name(&name), &mut taken);
        format!("{}/{name}.html", folder::PAGES)
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

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;

    use super::*;
    use crate::base::secrets::Redactor;
    use crate::cli::Color;
    use crate::results::store::testing::{create_and_begin, plan, write_all_cells};

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        site: SiteArgs,
    }

    /// Writes a site of a folder of runs.
    fn write(site: &Path, results: &Path) -> Outcome {
        let cache = results.join("cache");
        let words = [Path::new("site"), site, results, Path::new("--cache"), &cache];
        let line = CommandLine::try_parse_from(words).unwrap();
        execute(&line.site, Colors::from_flag(Color::Never))
    }

    #[test]
    fn the_page_of_a_run_that_cannot_be_read_stays_until_the_run_is_gone() {
        let root = tempfile::tempdir().unwrap();
        let (results, site) = (root.path().join("results"), root.path().join("site"));
        for name in ["a", "b"] {
            let store = create_and_begin(&results, name, &plan(), Redactor::default());
            write_all_cells(&store, &plan());
        }
        write(&site, &results).unwrap();
        let page = site.join("runs/b.html");
        let first = fs::read_to_string(&page).unwrap();
        for damage in ["", "{", "{}", "{\"format\": 99}"] {
            fs::write(results.join("b/run.json"), damage).unwrap();
            write(&site, &results).unwrap();
            assert_eq!(fs::read_to_string(&page).unwrap(), first, "{damage}");
            assert!(site.join("runs/a.html").exists());
        }
        fs::remove_dir_all(results.join("b")).unwrap();
        write(&site, &results).unwrap();
        assert!(!page.exists());
    }

    #[test]
    fn a_folder_whose_runs_cannot_be_read_gives_no_site() {
        let root = tempfile::tempdir().unwrap();
        let (results, site) = (root.path().join("results"), root.path().join("site"));
        fs::create_dir_all(results.join("a")).unwrap();
        fs::write(results.join("a/run.json"), "{").unwrap();
        let refusal = write(&site, &results).unwrap_err();
        assert!(
            refusal.message.contains("none of the runs can be read"),
            "{}",
            refusal.message
        );
        assert!(!site.exists());
    }
}
