//! The launch of an imported result, which cannot be started.

use crate::base::ids::{ContentHash, LaunchId};
use crate::config::backend::Backend;
use crate::import::declared::DeclaredFacts;
use crate::import::names;
use crate::import::result_block::{EngineTitle, ResultBlock};
use crate::plan::{Api, Engine, ExecutorSpec, ImportedLaunch, Launch, Parallel, Port, Protocol};
use crate::results::record::provenance::UnknownFact;

/// Which parts of the files are imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImportContent {
    WithCommands,
    /// Figures, names and sizes only.
    FiguresOnly,
}

pub(super) fn launch(
    result: &ResultBlock,
    import_content: ImportContent,
    declared: &DeclaredFacts,
    unknown: &mut Vec<UnknownFact>,
) -> Launch {
    let (options, launch_info) = (&result.options, &result.launch_info);
    let title = engine_title(result, unknown);
    let model_name = options.model.clone().or_else(|| launch_info.model.clone());
    let model_name = model_name.or_else(|| Some(result.heading.as_ref()?.1.clone()));
    let checkpoint = model_name.unwrap_or_else(|| {
        unknown.push(UnknownFact::Model);
        "unknown model".to_owned()
    });
    // `FiguresOnly` keeps the last part of a local path only, since the rest is private.
    let public = |name: String| match import_content == ImportContent::FiguresOnly && names::is_path(&name) {
        true => names::file_name(&name),
        false => name,
    };
    let checkpoint = public(checkpoint);
    let served = options.served_model_name.clone().map(public);
    let (model, stored) = names::model_and_precision(&checkpoint);
    let parallel = Parallel {
        tp: launch_info.tp.unwrap_or(1),
        pp: launch_info.pp.unwrap_or(1),
        dp: launch_info.dp.unwrap_or(1),
        ep: launch_info.ep.unwrap_or(1),
    };
    // Engines differ in whether data-parallel ranks have their own GPUs.
    let devices = match (launch_info.gpus, launch_info.tp, launch_info.dp) {
        (Some(gpus), ..) => gpus,
        (None, Some(tp), None | Some(1)) => tp * parallel.pp,
        _ => declared.gpus.unwrap_or(0),
    };
    unknown.extend(launch_info.tp.is_none().then_some(UnknownFact::Tp));
    unknown.extend((devices == 0).then_some(UnknownFact::Gpus));
    let name = names::to_slug(&title.name);
    let backend = options.backend.clone().unwrap_or_else(|| name.clone());
    let version = title
        .version
        .as_deref()
        .map(|version| version_of(version, launch_info.package.as_deref()));
    let engine = Engine {
        title: title.name,
        version,
        variant: result.variant.as_deref().map(names::to_slug),
        backend: backend.clone(),
        simulated: result.is_simulated,
        ..Engine::new(&name)
    };
    let place = ImportedLaunch {
        image: launch_info.image.clone(),
        package: launch_info.package.clone(),
        gpu: gpu(result, declared),
        command: match import_content {
            ImportContent::WithCommands => launch_info
                .command
                .iter()
                .map(|line| without_continuation(line))
                .collect(),
            ImportContent::FiguresOnly => Vec::new(),
        },
    };
    let mut launch = Launch {
        served_model_name: served.unwrap_or_else(|| checkpoint.clone()),
        tokenizer: options.tokenizer.clone().unwrap_or_else(|| checkpoint.clone()),
        checkpoint,
        precision: launch_info.precision.clone().or(stored),
        parallel,
        devices,
        ..Launch::new(
            engine,
            &model,
            ExecutorSpec::Imported(place),
            api(&backend, options.port),
        )
    };
    launch.id = launch_id(&launch);
    launch
}

/// The engine of a title above the result, or else the client's backend.
fn engine_title(result: &ResultBlock, unknown: &mut Vec<UnknownFact>) -> EngineTitle {
    let Some(title) = result.engine.clone() else {
        unknown.extend([UnknownFact::Engine, UnknownFact::Version]);
        let backend = result.options.backend.clone();
        return EngineTitle {
            name: backend.unwrap_or_else(|| "unknown".to_owned()),
            version: None,
        };
    };
    if title.version.is_none() {
        unknown.push(UnknownFact::Version);
    }
    title
}

/// A line of a command without the backslash that continues it.
fn without_continuation(line: &str) -> String {
    line.trim().trim_end_matches('\\').trim().to_owned()
}

/// The version as its package names it, if both are the same.
fn version_of(version: &str, package: Option<&str>) -> String {
    let pinned = package.and_then(|package| package.split_once("=="));
    match pinned {
        Some((_, pinned)) if names::without_v(pinned) == names::without_v(version) => pinned.to_owned(),
        _ => version.to_owned(),
    }
}

/// The kind of GPU of a result, as its file says or as it was declared.
pub(super) fn gpu(result: &ResultBlock, declared: &DeclaredFacts) -> Option<String> {
    result.launch_info.gpu.clone().or_else(|| declared.gpu.clone())
}

/// The id of a launch. Launches that differ in a fact that distinguishes engines have different ids.
fn launch_id(launch: &Launch) -> LaunchId {
    let digest = ContentHash::from_value(&(
        &launch.engine,
        &launch.checkpoint,
        &launch.place,
        launch.parallel,
        launch.devices,
    ));
    // Usually, the precision follows from the name of the checkpoint.
    let digest = match names::model_and_precision(&launch.checkpoint).1 == launch.precision {
        true => digest,
        false => ContentHash::from_value(&(digest, &launch.precision)),
    };
    // Usually, the served model name and the tokenizer are those of the checkpoint.
    let digest = match launch.served_model_name == launch.checkpoint && launch.tokenizer == launch.checkpoint
    {
        true => digest,
        false => ContentHash::from_value(&(digest, &launch.served_model_name, &launch.tokenizer)),
    };
    let model = launch.model.rsplit('/').next().unwrap_or(&launch.model);
    let version = launch
        .engine
        .version
        .as_deref()
        .map_or_else(String::new, |version| format!("-{}", names::to_slug(version)));
    let readable = format!(
        "{}{version}-{}-tp{}",
        launch.engine.name,
        names::to_slug(model),
        launch.parallel.tp
    );
    LaunchId::new(format!("{readable}-{}", &digest.as_str()[..6]))
}

/// The protocol and port of a backend.
fn api(backend: &str, port: Option<u16>) -> Api {
    let known = Backend::from_name(backend).map(Backend::protocol);
    // Names of other tools.
    let protocol = known.unwrap_or_else(|| match backend {
        name if name.ends_with("chat") => Protocol::Chat,
        name if name.ends_with("responses") => Protocol::Responses,
        name if name.ends_with("embedding") || name.ends_with("embeddings") => Protocol::Embeddings,
        _ => Protocol::Completions,
    });
    Api {
        port: Port {
            default: port.unwrap_or(0),
            fixed: port,
            flag: Vec::new(),
        },
        health: String::new(),
        ..Api::new(protocol)
    }
}
