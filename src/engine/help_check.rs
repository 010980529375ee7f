//! Checks the long flags of a launch against the engine's own `--help`, so that an unknown flag is reported
//! before a model is loaded. An engine that cannot be asked gives a note, never a failure.

mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::base::ids::{ContentHash, RunId};
use crate::base::own;
use crate::base::secrets::Redactor;
use crate::config::template::Text;
use crate::config::yaml::nearest;
use crate::engine::context::Asking;
use crate::engine::docker;
use crate::engine::executor::launcher;
use crate::engine::program::find_program;
use crate::plan::{Container, Launch, Process};

/// Timeout of `--help`. Engines written in Python import much before they print it.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub unknown: Vec<UnknownFlag>,
    /// Which engines were not checked, and why.
    pub notes: Vec<String>,
}

/// A flag that an engine's help does not list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnknownFlag {
    pub recipe: String,
    pub flag: String,
    /// The image or program whose help was read.
    pub asked: String,
    /// The nearest known flag, if it is near enough to be a typo.
    pub nearest: Option<String>,
}

/// Reads the help of each engine once per image or program, and compares the launches' flags with it.
pub(crate) async fn check_flags(launches: &[Launch], asking: &Asking<'_>) -> Flags {
    let mut answers: BTreeMap<(String, Vec<Text>), Result<BTreeSet<String>, String>> = BTreeMap::new();
    let mut unknown = BTreeSet::new();
    let mut notes = BTreeSet::new();
    for launch in launches.iter().filter(|launch| !launch.help.is_empty()) {
        let long = long_flags(launch);
        let launcher = launcher::of(&launch.place);
        let Some(asked) = launcher.help_source(launch, asking) else {
            continue;
        };
        if long.is_empty() {
            continue;
        }
        let key = (asked.clone(), launch.help.clone());
        if !answers.contains_key(&key) {
            answers.insert(key.clone(), launcher.help(launch, asking).await);
        }
        match &answers[&key] {
            Ok(known) => unknown.extend(long.into_iter().filter(|flag| !read::is_known(flag, known)).map(
                |flag| UnknownFlag {
                    recipe: launch.engine.recipe.clone(),
                    nearest: nearest(&flag, known.iter().map(String::as_str)).map(str::to_owned),
                    asked: asked.clone(),
                    flag,
                },
            )),
            Err(why) => {
                notes.insert(format!(
                    "the flags of engine `{}` are not checked: {why}",
                    launch.engine.name
                ));
            }
        }
    }
    Flags {
        unknown: unknown.into_iter().collect(),
        notes: notes.into_iter().collect(),
    }
}

/// The long flags of a launch without values, up to `--`.
fn long_flags(launch: &Launch) -> BTreeSet<String> {
    // With a port other than the default, the arguments that set the port are included.
    let argv = launch.argv(launch.contact.port.default.wrapping_add(1));
    argv.iter()
        .map(Text::as_str)
        .take_while(|word| *word != "--")
        .filter_map(read::flag)
        .map(str::to_owned)
        .collect()
}

/// The flags in the help of a container's image, cached by image id.
pub(super) async fn of_image(
    launch: &Launch,
    container: &Container,
    asking: &Asking<'_>,
) -> Result<BTreeSet<String>, String> {
    let words = plain(&launch.help, asking)?;
    let entrypoint = match &container.entrypoint {
        Some(parts) => Some(plain(parts, asking)?),
        None => None,
    };
    let image = docker::image_at_hand(asking.whereabouts, &container.image).await?;
    let kept = kept(asking, &(&image, &entrypoint, &words));
    if let Some(known) = recall(&kept) {
        return Ok(known);
    }
    let dry = docker::Dry {
        image: &image,
        entrypoint,
        command: words,
        run: RunId::new("check"),
        launch: &launch.id,
        patience: PATIENCE,
    };
    let text = docker::help(asking.whereabouts, asking.cache, dry).await?;
    learn(&kept, &text)
}

/// The flags in the help of a program, cached by path, size and modification time.
pub(super) async fn of_program(
    launch: &Launch,
    process: &Process,
    asking: &Asking<'_>,
) -> Result<BTreeSet<String>, String> {
    let mut words = plain(&launch.help, asking)?.into_iter();
    let name = words.next().unwrap_or_default();
    let words: Vec<String> = words.collect();
    let nothing = Redactor::default();
    let file = find_program(&name, asking.path.unwrap_or_default(), None, &nothing)
        .map_err(|error| error.to_string())?;
    let about = std::fs::metadata(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let changed = about.modified().ok();
    let changed = changed.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let stamp = (
        &file,
        about.len(),
        changed.unwrap_or_default().as_nanos().to_string(),
    );
    let kept = kept(asking, &(stamp, &words));
    if let Some(known) = recall(&kept) {
        return Ok(known);
    }
    let mut command = tokio::process::Command::new(&file);
    command.args(&words).stdin(Stdio::null()).kill_on_drop(true);
    if let Some(dir) = process
        .dir
        .as_ref()
        .and_then(|dir| plain(std::slice::from_ref(dir), asking).ok())
    {
        command.current_dir(asking.folder.join(&dir[0]));
    }
    let said = tokio::time::timeout(PATIENCE, command.output())
        .await
        .map_err(|_| format!("`{name}` does not print its help within {} s", PATIENCE.as_secs()))?
        .map_err(|error| format!("`{name}`: {error}"))?;
    if !said.status.success() {
        return Err(format!("`{name}` prints no help ({})", said.status));
    }
    let text = [said.stdout, said.stderr].concat();
    learn(&kept, &String::from_utf8_lossy(&text))
}

/// The program that prints a launch's help, for messages.
pub(super) fn program(launch: &Launch, asking: &Asking<'_>) -> String {
    let first = plain(&launch.help[..1], asking).unwrap_or_default();
    first.into_iter().next().unwrap_or_default()
}

/// Fills in the placeholders that are known before a start. Secrets and other placeholders are errors.
fn plain(texts: &[Text], asking: &Asking<'_>) -> Result<Vec<String>, String> {
    let hole = |name: &str| match name {
        "matrix" => Some(asking.matrix.to_string_lossy().into_owned()),
        "dir" => Some(asking.folder.to_string_lossy().into_owned()),
        _ => None,
    };
    texts
        .iter()
        .map(|text| {
            text.reveal(&hole, &|_| None)
                .map_err(|error| format!("`{}` in `help:`: {error}", text.as_str()))
        })
        .collect()
}

fn kept(asking: &Asking<'_>, key: &impl serde::Serialize) -> PathBuf {
    asking
        .cache
        .join("help")
        .join(format!("{}.txt", ContentHash::of(key)))
}

fn recall(kept: &Path) -> Option<BTreeSet<String>> {
    own::make_cache(kept.parent()?).ok()?;
    read::known(&std::fs::read_to_string(kept).ok()?)
}

fn learn(kept: &Path, text: &str) -> Result<BTreeSet<String>, String> {
    let known = read::known(text).ok_or("what it prints as its help names no flags")?;
    if let Some(folder) = kept.parent() {
        // Without the cache the engine is asked again next time. A concurrent reader must not see a partial
        // file, so it is moved into place.
        let keep = || {
            own::make_cache(folder)?;
            let mut whole = tempfile::NamedTempFile::new_in(folder)?;
            whole.write_all(text.as_bytes())?;
            whole.persist(kept).map_err(|error| error.error)
        };
        if let Err(error) = keep() {
            tracing::debug!("cannot keep a help text in {}: {error}", folder.display());
        }
    }
    Ok(known)
}
