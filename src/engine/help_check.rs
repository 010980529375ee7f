//! Checks the long flags of a launch against the engine's own `--help`, so that an unknown flag is reported
//! before a model is loaded. An engine that cannot be asked gives a note, never a failure.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::base::ids::{ContentHash, RunId};
use crate::base::private_files;
use crate::base::secrets::Redactor;
use crate::config::job_containers::ContainerRuntime;
use crate::config::template::Template;
use crate::config::yaml::nearest_name;
use crate::engine::context::HelpContext;
use crate::engine::docker;
use crate::engine::executor;
use crate::engine::flag_parser::{self, HelpFlags};
use crate::engine::packages::{self, Packages};
use crate::engine::program::find_program;
use crate::engine::venv;
use crate::plan::{Container, ContainerCommand, Launch, Process};
use crate::results::record::upgrade::BuildFacts;

/// Timeout of `--help`. Engines written in Python import much before they print it.
const HELP_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlagReport {
    pub(crate) unknown: Vec<UnknownFlag>,
    /// Which engines were not checked, and why.
    pub(crate) notes: Vec<String>,
}

/// A flag that an engine's help does not list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnknownFlag {
    pub(crate) recipe: String,
    pub(crate) flag: String,
    /// The image or program whose help was read.
    pub(crate) source: String,
    /// The nearest known flag, if it is near enough to be a typo.
    pub(crate) nearest: Option<String>,
}

/// Reads the help of each engine once per image or program, and compares the launches' flags with it.
pub(crate) async fn check_flags(launches: &[Launch], context: &HelpContext<'_>) -> FlagReport {
    let mut answers: BTreeMap<(String, Vec<Template>), Result<HelpFlags, String>> = BTreeMap::new();
    let mut unknown = BTreeSet::new();
    let mut notes = BTreeSet::new();
    for launch in launches.iter().filter(|launch| !launch.help.is_empty()) {
        let long = long_flags(launch);
        let launcher = executor::launcher_for(&launch.place);
        let Some(source) = launcher.help_source(launch, context) else {
            continue;
        };
        if long.is_empty() {
            continue;
        }
        let key = (source.clone(), launch.help.clone());
        if !answers.contains_key(&key) {
            answers.insert(key.clone(), launcher.flags_in_help(launch, context).await);
        }
        match &answers[&key] {
            Ok(known_flags) => unknown.extend(
                long.into_iter()
                    .filter(|flag| !flag_parser::is_known(flag, known_flags))
                    .map(|flag| UnknownFlag {
                        recipe: launch.engine.recipe.clone(),
                        nearest: nearest_name(&flag, known_flags.keys().map(String::as_str))
                            .map(str::to_owned),
                        source: source.clone(),
                        flag,
                    }),
            ),
            Err(reason) => {
                notes.insert(format!(
                    "the flags of engine `{}` are not checked: {reason}",
                    launch.engine.name
                ));
            }
        }
    }
    FlagReport {
        unknown: unknown.into_iter().collect(),
        notes: notes.into_iter().collect(),
    }
}

/// Flags and packages of the build that a launch starts.
pub(crate) async fn build_facts(launch: &Launch, context: &HelpContext<'_>) -> BuildFacts {
    let launcher = executor::launcher_for(&launch.place);
    let flags = match launch.help.is_empty() {
        true => Err("the recipe has no `help:`".to_owned()),
        false => launcher.flags_in_help(launch, context).await,
    };
    BuildFacts {
        flags: flags.into(),
        packages: launcher.packages(launch, context).await.into(),
        ..BuildFacts::default()
    }
}

/// The long flags of a launch without values, up to `--`. Of its further processes, those that run the same program count.
fn long_flags(launch: &Launch) -> BTreeSet<String> {
    // With a port other than the default, the arguments that set the port are included.
    let argv = launch.command_args(launch.api.port.default.wrapping_add(1));
    let is_argument = |word: &&Template| !word.as_str().starts_with("--");
    let program: Vec<&Template> = argv.iter().take_while(is_argument).collect();
    let members = launch.members().iter().map(|member| &member.command);
    let same = members.filter(|command| command.iter().take(program.len()).eq(program.iter().copied()));
    let flags = std::iter::once(&argv).chain(same).flat_map(|command| {
        let words = command.iter().map(Template::as_str);
        words
            .take_while(|word| *word != "--")
            .filter_map(flag_parser::long_flag)
    });
    flags.map(str::to_owned).collect()
}

/// The flags in the help of a container's image, cached by image id.
pub(super) async fn image_flags(
    launch: &Launch,
    container: &Container,
    context: &HelpContext<'_>,
) -> Result<HelpFlags, String> {
    let words = fill_known(&launch.help, context)?;
    let entrypoint = match &container.entrypoint {
        Some(parts) => Some(fill_known(parts, context)?),
        None => None,
    };
    let image = docker::local_image_id(context.docker_env, &container.image).await?;
    let cache_path = cache_path(context, &(&image, &entrypoint, &words));
    if let Some(known_flags) = read_cached(&cache_path) {
        return Ok(known_flags);
    }
    let dry = docker::HelpContainer {
        image: &image,
        entrypoint,
        command: words,
        run: RunId::new("check"),
        launch: &launch.id,
        timeout: HELP_TIMEOUT,
    };
    let text = docker::container_help(context.docker_env, context.cache_dir, dry).await?;
    parse_and_cache(&cache_path, &text)
}

/// The flags in the help of a program, cached by path, size and modification time.
pub(super) async fn program_flags(
    launch: &Launch,
    process: &Process,
    context: &HelpContext<'_>,
) -> Result<HelpFlags, String> {
    let mut words = fill_known(&launch.help, context)?.into_iter();
    let name = words.next().unwrap_or_default();
    let words: Vec<String> = words.collect();
    let file = program_file(launch, process, &name, context)?;
    let about = std::fs::metadata(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let changed = about.modified().ok();
    let changed = changed.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let stamp = (
        &file,
        about.len(),
        changed.unwrap_or_default().as_nanos().to_string(),
    );
    let cache_path = cache_path(context, &(stamp, &words));
    if let Some(known_flags) = read_cached(&cache_path) {
        return Ok(known_flags);
    }
    let dir = process.dir.as_ref();
    let dir = dir.and_then(|dir| fill_known(std::slice::from_ref(dir), context).ok());
    let dir = dir.map(|dir| context.folder.join(&dir[0]));
    let text = output_of(&file, &words, dir.as_deref()).await?;
    parse_and_cache(&cache_path, &text)
}

/// The file of the program that prints the help: in the launch's Python environment if that exists, otherwise in `PATH`.
fn program_file(
    launch: &Launch,
    process: &Process,
    name: &str,
    context: &HelpContext<'_>,
) -> Result<PathBuf, String> {
    let path = context.path.unwrap_or_default();
    let environment = process.venv.as_ref().and_then(|spec| match &spec.path {
        Some(path) => {
            let path = fill_known(std::slice::from_ref(path), context).ok()?;
            Some(context.folder.join(&path[0]))
        }
        None => Some(venv::managed_folder(
            &venv::environment_name(launch),
            spec,
            context.cache_dir,
        )),
    });
    let path = match environment {
        Some(folder) => format!("{}:{path}", folder.join("bin").display()),
        None => path.to_owned(),
    };
    find_program(name, &path, None, &Redactor::default()).map_err(|error| error.to_string())
}

/// The Python packages beside the program of a process; none if it is no Python program.
pub(super) fn program_packages(
    launch: &Launch,
    process: &Process,
    context: &HelpContext<'_>,
) -> Result<Packages, String> {
    let Some(program) = process.command.first() else {
        return Ok(Packages::new());
    };
    let name = fill_known(std::slice::from_ref(program), context)?.concat();
    let file = program_file(launch, process, &name, context)?;
    match packages::environment_of_script(&file) {
        Some(environment) => packages::packages_of(&environment),
        None => Ok(Packages::new()),
    }
}

/// The Python packages in the image of a container.
pub(super) async fn image_packages(
    launch: &Launch,
    container: &Container,
    context: &HelpContext<'_>,
) -> Result<Packages, String> {
    let image = docker::local_image_id(context.docker_env, &container.image).await?;
    let list = docker::HelpContainer {
        image: &image,
        entrypoint: Some(vec!["python3".to_owned()]),
        command: vec!["-c".to_owned(), packages::LIST_PACKAGES.to_owned()],
        run: RunId::new("check"),
        launch: &launch.id,
        timeout: HELP_TIMEOUT,
    };
    let text = docker::container_help(context.docker_env, context.cache_dir, list).await?;
    packages::parse_packages(&text)
}

/// The flags in the help of an image that a container runtime without a daemon starts, if runtime and image are on this
/// host: nothing is pulled. Cached by the reference of the image.
pub(super) async fn container_process_flags(
    launch: &Launch,
    process: &Process,
    context: &HelpContext<'_>,
) -> Result<HelpFlags, String> {
    let command = process.container.as_deref().ok_or("it has no container")?;
    let runtime = command.runtime().name();
    let path = context.path.unwrap_or_default();
    let program = find_program(runtime, path, None, &Redactor::default()).map_err(|_| {
        format!("`{runtime}` is not installed on this host, but may be installed on the nodes")
    })?;
    let absent = || format!("the image `{}` is not on this host", command.container.image);
    let stamp = match command.image_file() {
        Some(file) => {
            let file = fill_known(&[file], context)?.concat();
            let about = std::fs::metadata(&file).map_err(|_| absent())?;
            format!("{file} {} {:?}", about.len(), about.modified().ok())
        }
        None if command.runtime() == ContainerRuntime::Podman => {
            let inspect = [
                "image",
                "inspect",
                "--format",
                "{{.Id}}",
                &command.container.image,
            ];
            output_of(&program, &inspect.map(str::to_owned), None)
                .await
                .map_err(|_| absent())?
        }
        None => {
            return Err(format!(
                "{}, and this check does not download the image",
                absent()
            ));
        }
    };
    let plain = ContainerCommand {
        container: Container {
            image: command.container.image.clone(),
            entrypoint: command.container.entrypoint.clone(),
            ..Container::default()
        },
        ..command.clone()
    };
    let (words, _) = plain.wrap(&launch.help, &[], &[], false);
    let words = fill_known(&words[1..], context)?;
    let cache_path = cache_path(context, &(stamp, &words));
    if let Some(known_flags) = read_cached(&cache_path) {
        return Ok(known_flags);
    }
    let text = output_of(&program, &words, None).await?;
    parse_and_cache(&cache_path, &text)
}

/// What a program prints, if it succeeds.
async fn output_of(program: &Path, words: &[String], dir: Option<&Path>) -> Result<String, String> {
    let name = program
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let mut command = tokio::process::Command::new(program);
    command.args(words).stdin(Stdio::null()).kill_on_drop(true);
    if let Some(dir) = dir {
        command.current_dir(dir);
    }
    let output = tokio::time::timeout(HELP_TIMEOUT, command.output())
        .await
        .map_err(|_| {
            format!(
                "`{name}` did not print its help within {} s",
                HELP_TIMEOUT.as_secs()
            )
        })?
        .map_err(|error| format!("`{name}`: {error}"))?;
    if !output.status.success() {
        return Err(format!("`{name}` printed no help ({})", output.status));
    }
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// The program that prints a launch's help, for messages.
pub(super) fn program_text(launch: &Launch, context: &HelpContext<'_>) -> String {
    let first = fill_known(&launch.help[..1], context).unwrap_or_default();
    first.into_iter().next().unwrap_or_default()
}

/// Fills in the placeholders that are known before a start. Secrets and other placeholders are errors.
fn fill_known(texts: &[Template], context: &HelpContext<'_>) -> Result<Vec<String>, String> {
    let hole = |name: &str| match name {
        "matrix" => Some(context.matrix.to_string_lossy().into_owned()),
        "dir" => Some(context.folder.to_string_lossy().into_owned()),
        _ => None,
    };
    texts
        .iter()
        .map(|text| {
            text.expand(&hole, &|_| None)
                .map_err(|error| format!("`{}` in `help:`: {error}", text.as_str()))
        })
        .collect()
}

fn cache_path(context: &HelpContext<'_>, key: &impl serde::Serialize) -> PathBuf {
    context
        .cache_dir
        .join("help")
        .join(format!("{}.txt", ContentHash::from_value(key)))
}

fn read_cached(cache_path: &Path) -> Option<HelpFlags> {
    private_files::create_cache_folder(cache_path.parent()?).ok()?;
    flag_parser::parse_flags(&std::fs::read_to_string(cache_path).ok()?)
}

fn parse_and_cache(cache_path: &Path, text: &str) -> Result<HelpFlags, String> {
    let known_flags = flag_parser::parse_flags(text).ok_or("the help output of the engine lists no flags")?;
    if let Some(folder) = cache_path.parent() {
        // Without the cache the engine is asked again next time. A concurrent reader must not see a partial
        // file, so it is moved into place.
        let keep = || {
            private_files::create_cache_folder(folder)?;
            let mut whole = tempfile::NamedTempFile::new_in(folder)?;
            whole.write_all(text.as_bytes())?;
            whole.persist(cache_path).map_err(|error| error.error)
        };
        if let Err(error) = keep() {
            tracing::debug!("cannot cache a help text in {}: {error}", folder.display());
        }
    }
    Ok(known_flags)
}
