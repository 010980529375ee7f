//! The side of a remote process on its own node: body of the hidden subcommand `matrix __remote`.

use std::io::{self, BufRead, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::engine::ownership::{Owner, OwnershipTags};
use crate::engine::port;
use crate::engine::process_group::{ProcessGroup, SpawnSpec};
use crate::engine::remote_process::{NodeGpus, PORT_IN_USE, RemoteStart};

/// Longest description of a start, in bytes.
const MAX_START_BYTES: u64 = 16 << 20;

/// Starts the program that the standard input describes, and ends it when the standard input ends or a signal arrives.
/// `variable` reads an environment variable. Returns the exit code.
pub(crate) async fn serve(matrix: PathBuf, variable: impl Fn(&str) -> Option<String>) -> io::Result<u8> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (described, mut stdin_ended) = read_stdin()?;
    let start = described.await.map_err(|_| ended_early())??;
    if let Some(port) = start.ports.iter().find(|port| !port::is_free(**port)) {
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("port {port} is in use on this node {PORT_IN_USE}"),
        ));
    }
    let grace = Duration::from_millis(start.grace_ms);
    let writer = io::PipeWriter::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut group = ProcessGroup::spawn(&spawn_spec(start, matrix, variable)?, &writer).await?;
    drop(writer);
    let status = tokio::select! {
        status = group.wait_for_exit() => Some(status?),
        _ = &mut stdin_ended => None,
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
    };
    let how = group.stop(grace).await;
    if !group.is_gone() {
        let _ = writeln!(io::stderr(), "matrix: {how}");
    }
    Ok(status.map_or(0, exit_code))
}

/// Reads the description, then waits for the end of the standard input, in a thread of its own: a read cannot be
/// cancelled.
fn read_stdin() -> io::Result<(oneshot::Receiver<io::Result<RemoteStart>>, oneshot::Receiver<()>)> {
    let (send_start, start) = oneshot::channel();
    let (send_end, end) = oneshot::channel();
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            let mut input = io::BufReader::new(io::stdin().lock());
            let mut line = String::new();
            let read = input.by_ref().take(MAX_START_BYTES).read_line(&mut line);
            let parsed =
                read.and_then(|_| serde_json::from_slice(line.as_bytes()).map_err(|_| ended_early()));
            let _ = send_start.send(parsed);
            let _ = io::copy(&mut input, &mut io::sink());
            let _ = send_end.send(());
        })?;
    Ok((start, end))
}

fn ended_early() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the standard input did not describe a program; only `matrix` itself uses this command, inside a cluster job",
    )
}

fn spawn_spec(
    start: RemoteStart,
    matrix: PathBuf,
    variable: impl Fn(&str) -> Option<String>,
) -> io::Result<SpawnSpec> {
    // The processes belong to this one. On this node, the process that started the run would count as dead.
    let tags = OwnershipTags {
        run: start.run,
        start: start.start,
        owner: Owner::current().map_err(io::Error::other)?,
    };
    let mut env: Vec<(String, std::ffi::OsString)> = Vec::new();
    if let Some(gpus) = &start.gpus {
        let list = gpu_list(variable(&gpus.variable), gpus);
        env.push((gpus.variable.clone(), list.into()));
    }
    env.extend(start.env.into_iter().map(|(name, value)| (name, value.into())));
    Ok(SpawnSpec {
        program: start.program,
        args: start.args,
        withheld_variables: start.withheld_variables,
        env,
        dir: start.dir,
        tags,
        shim: Some(matrix),
        cache_dir: start.cache_dir,
    })
}

/// The GPUs of a process among those that the scheduler gave the job on this node.
fn gpu_list(given: Option<String>, gpus: &NodeGpus) -> String {
    let (skip, count) = (gpus.skip as usize, gpus.count as usize);
    match given {
        Some(given) => given
            .split(',')
            .skip(skip)
            .take(count)
            .collect::<Vec<_>>()
            .join(","),
        None => (skip..skip + count)
            .map(|gpu| gpu.to_string())
            .collect::<Vec<_>>()
            .join(","),
    }
}

/// The exit code as a shell reports it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_share_the_gpus_of_the_job() {
        let gpus = |skip| NodeGpus {
            variable: "CUDA_VISIBLE_DEVICES".to_owned(),
            skip,
            count: 2,
        };
        let given = Some("3,4,5,6".to_owned());
        assert_eq!(gpu_list(given.clone(), &gpus(0)), "3,4");
        assert_eq!(gpu_list(given, &gpus(2)), "5,6");
        assert_eq!(gpu_list(None, &gpus(2)), "2,3");
    }

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
    }
}
