//! Command lines for the user to enter next.

use std::path::Path;

use crate::base::ids::RunId;

/// The command line of this process with `--resume <run>`, for the user to enter again.
pub(crate) fn resume_command(run: &str) -> String {
    with_resume(&own_arguments(), run)
}

/// The command line of this process with other values of flags and `--resume <run>`, for the user to enter again.
pub(crate) fn resume_command_with(run: &str, flags: &[(&str, &str)]) -> String {
    let changed = flags.iter().fold(own_arguments(), |args, (flag, value)| {
        with_value(&args, flag, value)
    });
    with_resume(&changed, run)
}

/// The command line of this process with a flag and `--resume <run>`, for the user to enter again.
pub(crate) fn resume_command_with_flag(run: &str, flag: &str) -> String {
    let mut args = own_arguments();
    if !args.iter().any(|arg| arg == flag) {
        args.push(flag.to_owned());
    }
    with_resume(&args, run)
}

fn with_value(args: &[String], flag: &str, value: &str) -> Vec<String> {
    let mut kept = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.strip_prefix(flag) {
            Some("") => drop(args.next()),
            Some(rest) if rest.starts_with('=') => {}
            _ => kept.push(arg.clone()),
        }
    }
    kept.extend([flag.to_owned(), value.to_owned()]);
    kept
}

/// The arguments of this process without `--resume` and `--yes`, for a job that repeats the command.
pub(crate) fn arguments_without_resume() -> Vec<String> {
    without_resume(&own_arguments())
}

/// The arguments of this process for a job that measures a part of the run: without those that select cells or say what is
/// printed.
pub(crate) fn arguments_of_part() -> Vec<String> {
    part_arguments(&without_resume(&own_arguments()))
}

fn part_arguments(args: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--only" => drop(args.next()),
            "--failed" | "--json" => {}
            arg if arg.starts_with("--only=") => {}
            arg => kept.push(arg.to_owned()),
        }
    }
    kept
}

/// The command line of this process without `--resume`, for the user to enter again.
pub(crate) fn repeat_command() -> String {
    command(&own_arguments())
}

/// Whether this process was given a flag, such as `--webhook`, rather than its variable.
pub(crate) fn is_given(flag: &str) -> bool {
    has_flag(&own_arguments(), flag)
}

fn has_flag(args: &[String], flag: &str) -> bool {
    args.iter().any(|arg| {
        arg.strip_prefix(flag)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    })
}

fn own_arguments() -> Vec<String> {
    let args = std::env::args_os().skip(1);
    args.map(|arg| arg.to_string_lossy().into_owned()).collect()
}

/// The command that prints the report of a run's folder.
pub(crate) fn report_command(run: &Path) -> String {
    format!("matrix report {}", shell_quote(&run.to_string_lossy()))
}

/// The command that runs a matrix file.
pub(crate) fn run_command(matrix: &Path) -> String {
    format!("matrix run {}", shell_quote(&matrix.to_string_lossy()))
}

/// The command that reports what is missing for a matrix file.
pub(crate) fn doctor_command(matrix: &Path) -> String {
    format!("matrix doctor {}", shell_quote(&matrix.to_string_lossy()))
}

/// The command that resumes a run of a matrix file.
pub(crate) fn resume_matrix_command(matrix: &Path, run: &RunId) -> String {
    format!("{} --resume {}", run_command(matrix), shell_quote(run.as_str()))
}

fn with_resume(args: &[String], run: &str) -> String {
    format!("{} --resume {}", command(args), shell_quote(run))
}

fn command(args: &[String]) -> String {
    let quoted: Vec<String> = without_resume(args)
        .iter()
        .map(|word| shell_quote(word))
        .collect();
    format!("matrix {}", quoted.join(" "))
}

fn without_resume(args: &[String]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut args = args.iter().peekable();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            // The value of `--resume` is optional. The path of the matrix file may follow and must not be
            // taken for it.
            "--resume" => {
                let is_value = |next: &&String| {
                    !next.starts_with('-') && !next.ends_with(".yaml") && !next.ends_with(".yml")
                };
                args.next_if(is_value);
            }
            // Outdated measurements were already moved aside.
            "--yes" => {}
            // A job passes it to itself.
            "--job-folder" => {
                args.next();
            }
            arg if arg.starts_with("--resume=") => {}
            arg => kept.push(arg.to_owned()),
        }
    }
    kept
}

/// Quotes a word for a shell.
pub(crate) fn shell_quote(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=,:@%+~".contains(letter);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_found_with_its_value_beside_it_or_after_it() {
        let has = |text: &str| {
            let args: Vec<String> = text.split(' ').map(str::to_owned).collect();
            has_flag(&args, "--webhook")
        };
        assert!(has("nightly m.yaml --webhook https://a/b"));
        assert!(has("nightly --webhook=https://a/b m.yaml"));
        assert!(!has("nightly m.yaml --junit webhook --webhooks"));
    }

    #[test]
    fn a_flag_gets_another_value() {
        let with = |text: &str| {
            let args: Vec<String> = text.split(' ').map(str::to_owned).collect();
            with_value(&args, "--budget", "36 starts").join(" ")
        };
        for text in [
            "tune m.yaml --budget 9 --json",
            "tune m.yaml --budget=9 --json",
            "tune m.yaml --json",
        ] {
            assert_eq!(with(text), "tune m.yaml --json --budget 36 starts");
        }
        assert_eq!(with("tune --budgets 1"), "tune --budgets 1 --budget 36 starts");
    }

    #[test]
    fn a_job_of_a_part_selects_no_cells() {
        let args: Vec<String> = "run m.yaml --only engine=a --failed --json --only=b=c --cluster x"
            .split(' ')
            .map(str::to_owned)
            .collect();
        assert_eq!(part_arguments(&args).join(" "), "run m.yaml --cluster x");
    }

    #[test]
    fn the_command_that_goes_on_has_all_arguments_and_the_run() {
        let resumed = |text: &str| {
            let args: Vec<String> = text.split(' ').map(str::to_owned).collect();
            with_resume(&args, "r-1")
        };
        assert_eq!(
            resumed("run m.yaml --results /tmp/out --only engine=~a|b"),
            "matrix run m.yaml --results /tmp/out --only 'engine=~a|b' --resume r-1"
        );
        for old in [
            "run --resume m.yaml",
            "run m.yaml --resume r-0",
            "run m.yaml --resume=r-0",
            "run --resume r-0 m.yaml",
        ] {
            assert_eq!(resumed(old), "matrix run m.yaml --resume r-1");
        }
    }
}
