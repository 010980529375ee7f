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

pub(crate) fn execute(args: &FetchArgs, colors: Colors) -> Outcome {
    let matrix = args.matrix.as_ref().map(|path| load(path, colors)).transpose()?;
    let Some(home) = args.places.hf_home() else {
        return Err(CommandError::host_not_ready(
            "error: there is no cache folder: HF_HOME and HOME are not set\n  = help: set HF_HOME\n",
        ));
    };
    let request = FetchRequest {
        endpoint: &args.endpoint,
        token: cli::env_variable("HF_TOKEN"),
        home,
        tokenizers: &args.tokenizer,
        datasets: args.dataset.clone(),
        matrix,
        models: args.models,
    };
    let mut screen = FetchDisplay::default();
    if !fetch::fetch(&request, &mut |event| screen.show(event)).map_err(fetch_error)? {
        print_line("nothing is missing\n");
    }
    match screen.failures.is_empty() {
        true => Ok(Exit::Done),
        false => Err(CommandError::host_not_ready(screen.failures)),
    }
}

/// Shows how files are fetched.
#[derive(Default)]
struct FetchDisplay {
    /// Progress of the current file.
    bar: Option<ProgressBar>,
    /// Messages about failed downloads.
    failures: String,
}

impl FetchDisplay {
    fn show(&mut self, event: FetchEvent<'_>) {
        match event {
            FetchEvent::FileBegan { name } => self.bar = Some(progress_bar(name)),
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
            FetchEvent::Existing { name, path } => {
                print_line(&format!("kept    {name}: {}\n", path.display()))
            }
            FetchEvent::Downloaded { name, path, bytes } => print_line(&downloaded_line(name, path, bytes)),
            FetchEvent::Failed(error) => self.failures.push_str(&describe_failure(error)),
            FetchEvent::NotTried(files) => self.failures.push_str(&untried_line(files)),
        }
    }
}

fn downloaded_line(name: &str, path: &Path, bytes: u64) -> String {
    format!("fetched {name} ({}): {}\n", HumanBytes(bytes), path.display())
}

/// The error if nothing could be downloaded.
fn fetch_error(error: FetchError) -> CommandError {
    match error {
        FetchError::Hub(error) => CommandError::host_not_ready(format!("error: {error}\n")),
        error => anyhow::Error::from(error).into(),
    }
}

fn describe_failure(error: FetchError) -> String {
    match error {
        FetchError::Hub(error) => format!("error: {error}\n"),
        error => format!("error: {:#}\n", anyhow::Error::from(error)),
    }
}

/// Counts the files that were not tried after a failed connection.
fn untried_line(files: usize) -> String {
    match files {
        0 => String::new(),
        1 => "1 more file of the hub was not downloaded because of this error\n".to_owned(),
        n => format!("{n} more files of the hub were not downloaded because of this error\n"),
    }
}

/// Prints a line that may contain names from outside, without control characters.
fn print_line(line: &str) {
    print(&printable(line));
}

fn progress_bar(name: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}")
        .expect("the template is well formed");
    ProgressBar::new(0)
        .with_style(style)
        .with_message(name.to_owned())
}
