//! `matrix fetch`: downloads the missing inputs of a matrix before a run that works offline.

use std::path::Path;

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use crate::base::text::printable;
use crate::cli::{self, FetchArgs};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::matrix_file::load;
use crate::commands::output::{Colors, print};
use crate::exit::Exit;
use crate::runner::fetch::{self, FetchError, FetchEvent, FetchRequest};

/// Downloads missing inputs.
pub(crate) fn execute(args: &FetchArgs, colors: Colors) -> Outcome {
    let matrix = args.matrix.as_ref().map(|path| load(path, colors)).transpose()?;
    let Some(home) = args.places.hf_home() else {
        return Err(CommandError::unfit(
            "error: there is no folder for the cache\n  = help: set HF_HOME\n",
        ));
    };
    let request = FetchRequest {
        endpoint: &args.endpoint,
        token: cli::variable("HF_TOKEN"),
        home,
        tokenizers: &args.tokenizer,
        datasets: args.dataset.clone(),
        matrix,
        models: args.models,
    };
    let mut screen = Screen::default();
    if !fetch::fetch(&request, &mut |event| screen.show(event)).map_err(stopped)? {
        say("nothing is missing\n");
    }
    match screen.failed.is_empty() {
        true => Ok(Exit::Done),
        false => Err(CommandError::unfit(screen.failed)),
    }
}

/// Shows how files are fetched.
#[derive(Default)]
struct Screen {
    /// Progress of the current file.
    bar: Option<ProgressBar>,
    /// Messages about failed downloads.
    failed: String,
}

impl Screen {
    fn show(&mut self, event: FetchEvent<'_>) {
        match event {
            FetchEvent::FileBegan { name } => self.bar = Some(bar(name)),
            FetchEvent::Progress { bytes, total } => {
                if let Some(bar) = &self.bar {
                    bar.set_length(total);
                    bar.set_position(bytes);
                }
            }
            FetchEvent::FileEnded => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_and_clear();
                }
            }
            FetchEvent::Kept { name, path } => say(&format!("kept    {name}: {}\n", path.display())),
            FetchEvent::Downloaded { name, path, bytes } => say(&fetched(name, path, bytes)),
            FetchEvent::Failed(error) => self.failed.push_str(&failure(error)),
            FetchEvent::NotTried(files) => self.failed.push_str(&untried(files)),
        }
    }
}

fn fetched(name: &str, path: &Path, bytes: u64) -> String {
    format!("fetched {name} ({}): {}\n", HumanBytes(bytes), path.display())
}

/// The error if nothing could be downloaded.
fn stopped(error: FetchError) -> CommandError {
    match error {
        FetchError::Hub(error) => CommandError::unfit(format!("error: {error}\n")),
        error => anyhow::Error::from(error).into(),
    }
}

fn failure(error: FetchError) -> String {
    match error {
        FetchError::Hub(error) => format!("error: {error}\n"),
        error => format!("error: {:#}\n", anyhow::Error::from(error)),
    }
}

/// Counts the files that were not tried after a failed connection.
fn untried(files: usize) -> String {
    match files {
        0 => String::new(),
        1 => "1 more file of the hub was not tried\n".to_owned(),
        n => format!("{n} more files of the hub were not tried\n"),
    }
}

/// Prints a line that may contain names from outside, without control characters.
fn say(line: &str) {
    print(&printable(line));
}

fn bar(name: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
        .expect("the template is well formed");
    ProgressBar::new(0)
        .with_style(style)
        .with_message(name.to_owned())
}
