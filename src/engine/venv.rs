//! Python environments: an existing one is used as it is, or `matrix` creates one per engine version and set
//! of packages.
//!
//! An incomplete environment is removed. A file lock prevents two runs from creating the same one at once. An
//! environment with another version than requested is an error; it is never changed.

use std::fs::{self, File, TryLockError};
use std::io::{self, PipeWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::base::ids::ContentHash;
use crate::base::secrets::Redactor;
use crate::base::units::HumanDuration;
use crate::engine::log::Log;
use crate::engine::ownership::OwnershipTags;
use crate::engine::process_group::{ProcessGroup, SpawnSpec};
use crate::engine::program::find_program;
use crate::plan::{Launch, LogPatterns, Venv};
use crate::results::record::cell::FailureClass;
use crate::results::store;

/// File that is written last. An environment without it is incomplete.
const STAMP_FILE: &str = "matrix-stamp";

/// Interval of tries to get a lock that another run holds.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Timeout of the query for an installed version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(120);

/// How long an installer may take to end.
const GRACE: Duration = Duration::from_secs(2);

pub(super) struct VenvRequest<'a> {
    /// Engine and version, for the folder's name.
    pub(super) name: &'a str,
    pub(super) spec: &'a Venv,
    /// An existing environment to use instead.
    pub(super) path: Option<PathBuf>,
    pub(super) cache_dir: &'a Path,
    /// `PATH` in which the Python is looked up.
    pub(super) search_path: Option<&'a str>,
    pub(super) shim: Option<&'a Path>,
    pub(super) redactor: &'a Redactor,
    pub(super) tags: &'a OwnershipTags,
}

pub(super) struct PreparedVenv {
    pub(super) folder: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum VenvError {
    #[error(
        "there is no Python environment at {path} (no `bin/python` in it); create it, or remove `venv:` so that `matrix` creates one"
    )]
    Missing { path: PathBuf },
    #[error("the Python environment cannot be created: {0}")]
    Python(String),
    #[error(
        "`{step}` ended with {status}; its last output is in the installation log. To use an environment that has the engine, set `venv:` to its path"
    )]
    Step {
        step: String,
        status: String,
        tail: Vec<String>,
    },
    #[error(
        "the Python environment {path} has no package `{distribution}`: {reason}; install it there, or correct `distribution:`"
    )]
    NotInstalled {
        path: PathBuf,
        distribution: String,
        reason: String,
    },
    #[error(
        "`{distribution}` has version {installed} in {path}, but {expected} is requested; install {expected} there, or set `version: {installed}`"
    )]
    OtherVersion {
        path: PathBuf,
        distribution: String,
        installed: String,
        expected: String,
    },
    #[error("the Python environment {path} cannot be created: {source}")]
    Io {
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl VenvError {
    pub(super) const fn class(&self) -> FailureClass {
        match self {
            Self::Missing { .. } | Self::OtherVersion { .. } => FailureClass::Spec,
            Self::Io { .. } => FailureClass::Infrastructure,
            _ => FailureClass::Image,
        }
    }

    pub(super) fn tail(&self) -> &[String] {
        match self {
            Self::Step { tail, .. } => tail,
            _ => &[],
        }
    }
}

/// Finds or creates the environment, and checks that it has the requested version.
pub(super) async fn prepare(request: &VenvRequest<'_>, log: store::Log) -> Result<PreparedVenv, VenvError> {
    let venv = match &request.path {
        Some(path) => open_existing(path)?,
        None => prepare_managed(request, log).await?,
    };
    if let (Some(distribution), Some(expected)) = (&request.spec.distribution, &request.spec.version) {
        let installed_version = installed_version(&venv.folder, distribution).await?;
        if public_version(&installed_version) != public_version(expected) {
            return Err(VenvError::OtherVersion {
                path: venv.folder,
                distribution: distribution.clone(),
                installed: installed_version,
                expected: expected.clone(),
            });
        }
    }
    Ok(venv)
}

fn open_existing(path: &Path) -> Result<PreparedVenv, VenvError> {
    match path.join("bin/python").exists() {
        true => Ok(PreparedVenv {
            folder: path.to_owned(),
        }),
        false => Err(VenvError::Missing {
            path: path.to_owned(),
        }),
    }
}

/// The name of a managed environment before its digest: engine and version.
pub(super) fn environment_name(launch: &Launch) -> String {
    match &launch.engine.version {
        Some(version) => format!("{}-{version}", launch.engine.recipe),
        None => launch.engine.recipe.clone(),
    }
}

/// The folder of the environment that `matrix` creates for these packages.
pub(super) fn managed_folder(name: &str, spec: &Venv, cache_dir: &Path) -> PathBuf {
    let hash = ContentHash::from_value(&(&spec.packages, &spec.python));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._+".contains(c);
    let name = format!("{name}-{hash}").replace(|c| !is_plain(c), "_");
    cache_dir.join("venvs").join(name)
}

/// The cached environment of this engine version and package set. Creates it if it is missing or incomplete.
async fn prepare_managed(request: &VenvRequest<'_>, log: store::Log) -> Result<PreparedVenv, VenvError> {
    let content = (&request.spec.packages, &request.spec.python);
    let folder = managed_folder(request.name, request.spec, request.cache_dir);
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let io = |source| VenvError::Io {
        path: folder.clone(),
        source,
    };
    fs::create_dir_all(request.cache_dir.join("venvs")).map_err(io)?;
    let lock = File::create(request.cache_dir.join("venvs").join(format!("{name}.lock"))).map_err(io)?;
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_RETRY_INTERVAL).await,
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
    }
    let stamp = folder.join(STAMP_FILE);
    if !(stamp.exists() && folder.join("bin/python").exists()) {
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(io)?;
        }
        install(request, &folder, log).await?;
        let words = serde_json::to_vec(&content).expect("texts are JSON");
        let mut file = File::create(&stamp).map_err(io)?;
        file.write_all(&words)
            .and_then(|()| file.sync_all())
            .map_err(io)?;
    }
    Ok(PreparedVenv { folder })
}

/// Creates the environment; all steps write to one log.
async fn install(request: &VenvRequest<'_>, folder: &Path, log: store::Log) -> Result<(), VenvError> {
    let io = |source| VenvError::Io {
        path: folder.to_owned(),
        source,
    };
    let python = find_program(
        &request.spec.python,
        request.search_path.unwrap_or_default(),
        None,
        request.redactor,
    )
    .map_err(|error| VenvError::Python(error.to_string()))?;
    let (reader, writer) = io::pipe().map_err(io)?;
    let log = Log::follow(reader, log, LogPatterns::default(), request.redactor).map_err(io)?;
    let venv_python = folder.join("bin/python");
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut venv = words(&["-m", "venv"]);
    venv.push(folder.to_string_lossy().into_owned());
    run_step(request, &python, venv, &writer, &log).await?;
    if !request.spec.packages.is_empty() {
        let mut pip = words(&[
            "-m",
            "pip",
            "install",
            "--no-input",
            "--disable-pip-version-check",
        ]);
        pip.extend(request.spec.packages.iter().cloned());
        run_step(request, &venv_python, pip, &writer, &log).await?;
    }
    let mut compile = words(&["-m", "compileall", "-q", "-j", "0"]);
    compile.push(folder.join("lib").to_string_lossy().into_owned());
    // Ignore failures: packages contain files that are intentionally not valid Python (templates, tests).
    match run_step(request, &venv_python, compile, &writer, &log).await {
        Ok(()) | Err(VenvError::Step { .. }) => {}
        Err(error) => return Err(error),
    }
    drop(writer);
    log.wait_closed(GRACE).await;
    Ok(())
}

async fn run_step(
    request: &VenvRequest<'_>,
    program: &Path,
    args: Vec<String>,
    mut writer: &PipeWriter,
    log: &Log,
) -> Result<(), VenvError> {
    let io = |source| VenvError::Io {
        path: program.to_owned(),
        source,
    };
    let shown = format!("{} {}", program.display(), args.join(" "));
    writer.write_all(format!("$ {shown}\n").as_bytes()).map_err(io)?;
    let order = SpawnSpec {
        program: program.to_owned(),
        args,
        // Package indexes may need passwords from the environment.
        withheld_variables: Vec::new(),
        env: Vec::new(),
        dir: None,
        tags: request.tags.clone(),
        shim: request.shim.map(Path::to_owned),
        cache_dir: request.cache_dir.to_owned(),
    };
    let mut group = ProcessGroup::spawn(&order, writer).await.map_err(io)?;
    let status = group.wait_for_exit().await.map_err(io)?;
    group.stop(GRACE).await;
    if status.success() {
        return Ok(());
    }
    // The pipe stays open for the next step, so wait until the reader has the last output.
    tokio::time::sleep(Duration::from_millis(100)).await;
    Err(VenvError::Step {
        step: request.redactor.redact(&shown).into_owned(),
        status: status.to_string(),
        tail: log.tail(),
    })
}

/// The version of a package according to `importlib.metadata`.
async fn installed_version(folder: &Path, distribution: &str) -> Result<String, VenvError> {
    let not_installed = |reason: String| VenvError::NotInstalled {
        path: folder.to_owned(),
        distribution: distribution.to_owned(),
        reason,
    };
    let mut command = Command::new(folder.join("bin/python"));
    command
        .args([
            "-c",
            "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))",
            distribution,
        ])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(VERSION_TIMEOUT, command.output())
        .await
        .map_err(|_| {
            not_installed(format!(
                "the environment's Python did not respond within {}",
                HumanDuration(VERSION_TIMEOUT)
            ))
        })?
        .map_err(|source| VenvError::Io {
            path: folder.to_owned(),
            source,
        })?;
    if !output.status.success() {
        let output_text = String::from_utf8_lossy(&output.stderr);
        return Err(not_installed(
            output_text.lines().last().unwrap_or("no reason given").to_owned(),
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Normalises a version roughly as PEP 440 does: `v0.10.0+cpu` becomes `0.10`.
fn public_version(version: &str) -> String {
    let version = version.trim().to_ascii_lowercase();
    let version = version.strip_prefix('v').unwrap_or(&version);
    let version = version.split('+').next().unwrap_or_default();
    let mut version = version.replace(['-', '_'], ".");
    for word in ["post", "dev", "rc", "a", "b"] {
        version = version.replace(&format!(".{word}"), word);
    }
    while let Some(shorter) = version.strip_suffix(".0") {
        version = shorter.to_owned();
    }
    version
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_public_part_of_a_version_counts() {
        assert_eq!(public_version("0.10.0"), public_version("v0.10.0+cpu"));
        assert_eq!(public_version(" V1.0rc1 "), public_version("1.0-rc1"));
        assert_eq!(public_version("5.19"), public_version("5.19.0"));
        assert_eq!(public_version("1.0.post2"), public_version("1.0-post2"));
        for (a, b) in [
            ("0.10.0", "0.10.1"),
            ("1.0", "1.0rc1"),
            ("1.0", "10"),
            ("1.0", "1.0.post1"),
        ] {
            assert_ne!(public_version(a), public_version(b));
        }
    }
}
