//! The `matrix` binary: parse arguments, start logging, turn the outcome into an exit code; nothing else.

use std::io::Write;
use std::process::ExitCode;

use matrix::cli::Cli;
use matrix::commands;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::read();
    commands::log::start(&cli.log);
    let outcome = match cli.command.catches_signals() {
        true => commands::supervised(cli),
        false => commands::execute(cli),
    };
    match outcome {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(refusal) => {
            let _ = std::io::stderr().write_all(refusal.message.as_bytes());
            ExitCode::from(refusal.exit.code())
        }
    }
}
