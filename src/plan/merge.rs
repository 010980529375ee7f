//! Merges the recipe, its patches, the entries of the matrix and its overrides to a launch, and fills in
//! placeholders. For single values, the later layer takes precedence; arguments and variables of all layers
//! are combined.

use crate::base::ids::LaunchId;
use crate::base::units::HumanDuration;
use crate::config::container::{ContainerGpus, Mount};
use crate::config::engine::{Devices, Executor, Patch, ProcessRecipe, TimeoutsRecipe};
use crate::config::forms::OrderedMap;
use crate::config::matrix::Override;
use crate::config::metrics::Metrics;
use crate::config::select::pattern_matches;
use crate::config::template::Template;
use crate::plan::canonical;
use crate::plan::executor_spec::{AttachedServer, Container, ExecutorSpec, Process, Venv};
use crate::plan::grid::GridPoint;
use crate::plan::launch::{Api, Engine, Launch, Port, ProtocolSpec, Timeouts};
use crate::plan::resolve::ResolveContext;

impl ResolveContext<'_> {
    /// The launch at a point.
    pub(crate) fn launch(&self, point: &GridPoint) -> Launch {
        let mut values = self.axis_values(point);
        // A launch does not depend on the load.
        for axis in ["scenario", "rate", "concurrency"] {
            values.remove(axis);
        }
        let (recipe, entry, parallel) = (self.recipe, self.entry, point.parallel);
        let variant = entry.variant.as_deref().cloned();
        let checkpoint = self.checkpoint(point);
        let served = entry
            .served_model_name
            .as_ref()
            .or(recipe.served_model_name.as_ref());
        let served = served.map_or_else(
            || checkpoint.clone(),
            |served| served.replace("{model}", &checkpoint),
        );
        let fill = |name: &str| match name {
            "model" => Some(checkpoint.clone()),
            "served_model_name" | "served" => Some(served.clone()),
            "tp" => Some(parallel.tp.to_string()),
            "pp" => Some(parallel.pp.to_string()),
            "dp" => Some(parallel.dp.to_string()),
            "ep" => Some(parallel.ep.to_string()),
            "version" => point.version.clone(),
            "precision" => point.precision.clone(),
            "variant" => variant.clone(),
            _ => None,
        };
        let layers = Layers {
            site: self,
            point,
            patches: self.patches(point).collect(),
            overrides: self.overrides(&values).collect(),
            fill: &fill,
        };
        let backend = layers.patched(|patch| patch.backend.as_ref());
        let tokenizer = self.model_entry.tokenizer.as_deref();
        let mut launch = Launch {
            id: LaunchId::new(""),
            engine: Engine {
                name: self.engine.to_owned(),
                recipe: recipe.name.value.clone(),
                title: recipe.title.clone(),
                version: point.version.clone(),
                variant: variant.clone(),
                backend: backend.unwrap_or(&recipe.backend).clone(),
                simulated: recipe.simulated,
            },
            model: self.model.to_owned(),
            served_model_name: served.clone(),
            precision: point.precision.clone(),
            tokenizer: tokenizer.map_or(self.model, String::as_str).to_owned(),
            parallel,
            devices: layers.devices(),
            place: layers.place(),
            help: layers.help(),
            api: layers.contact(),
            log_patterns: recipe.log_patterns.clone(),
            timeouts: layers.patience(),
            checkpoint: checkpoint.clone(),
        };
        launch.id = launch_id(&launch);
        launch
    }

    /// The checkpoint that the engine loads: from the model's entry, otherwise from the recipe's table, otherwise
    /// the model itself.
    fn checkpoint(&self, point: &GridPoint) -> String {
        let own = self.model_entry.checkpoint.as_ref();
        let own = own.and_then(|by_engine| by_engine.get(self.engine));
        let table = || {
            let precision = point.precision.as_deref()?;
            let mut rows = self.recipe.checkpoints.iter();
            let row =
                rows.find(|row| row.precision == precision && pattern_matches(&row.model, self.model))?;
            Some(&row.checkpoint)
        };
        own.or_else(table).map_or_else(
            || self.model.to_owned(),
            |text| text.replace("{model}", self.model),
        )
    }
}

/// The layers that are merged at one grid point.
struct Layers<'a> {
    site: &'a ResolveContext<'a>,
    point: &'a GridPoint,
    /// Patches of the recipe's versions and variant that apply, in order.
    patches: Vec<&'a Patch>,
    overrides: Vec<&'a Override>,
    /// Returns the value of a placeholder.
    fill: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> Layers<'a> {
    /// The value of the last patch that sets one.
    fn patched<T>(&self, read: impl Fn(&'a Patch) -> Option<T>) -> Option<T> {
        self.patches.iter().rev().find_map(|patch| read(patch))
    }

    fn filled<'t>(&self, texts: impl IntoIterator<Item = &'t Template>) -> Vec<Template> {
        texts
            .into_iter()
            .map(|text| text.fill_placeholders(self.fill))
            .collect()
    }

    /// Number of GPUs that the engine needs.
    fn devices(&self) -> u32 {
        let devices = self.patched(|patch| patch.devices).or(self.site.entry.devices);
        let parallel = self.point.parallel;
        match devices.unwrap_or(self.site.recipe.devices) {
            Devices::Gpu if self.point.executor != Executor::Attach => {
                parallel.tp * parallel.pp * parallel.dp
            }
            Devices::Gpu | Devices::None => 0,
        }
    }

    fn place(&self) -> ExecutorSpec {
        let entry = self.site.entry;
        match self.point.executor {
            Executor::Container => ExecutorSpec::Container(Box::new(self.container())),
            Executor::Process => ExecutorSpec::Process(self.process()),
            Executor::Attach => ExecutorSpec::Attach(AttachedServer {
                url: entry
                    .url
                    .as_ref()
                    .map(|url| url.fill_placeholders(self.fill))
                    .unwrap_or_default(),
                gpus: entry.gpus.as_deref().copied(),
                gpu: entry.gpu.as_deref().cloned(),
            }),
        }
    }

    /// The arguments after the command: those of the recipe for parallelism, version and variant, then those of
    /// the matrix.
    fn arguments(&self) -> impl Iterator<Item = &'a Template> {
        let site = self.site;
        let sizes = self.point.parallel.sizes().into_iter();
        let spread = sizes.filter(|(_, size)| *size > 1);
        let spread = spread.filter_map(|(axis, _)| site.recipe.parallel.get(axis));
        let patched = self.patches.iter().map(|patch| &patch.args);
        let own = site.entry.args.iter().map(|arg| &arg.value);
        let chosen = self.point.args.as_ref();
        let chosen = chosen.and_then(|name| site.matrix.axes.args.get(name));
        let by_engine = site.model_entry.args.as_deref().into_iter().chain(chosen);
        let by_engine = by_engine.filter_map(|by_engine| by_engine.get(site.engine));
        let overrides = self.overrides.iter().flat_map(|over| &over.args);
        spread
            .chain(patched)
            .flatten()
            .chain(own)
            .chain(by_engine.flatten())
            .chain(overrides.map(|arg| &arg.value))
    }

    /// Environment variables in order. A later value of the same name replaces the earlier one and keeps its
    /// position.
    fn environment(&self, base: &OrderedMap<Template>) -> Vec<(String, Template)> {
        let site = self.site;
        let recipe = self.patches.iter().map(|patch| &patch.env);
        let recipe = std::iter::once(base).chain(recipe).flat_map(OrderedMap::iter);
        let chosen = self.point.env.as_ref();
        let chosen = chosen.and_then(|name| site.matrix.axes.env.get(name));
        let overrides = self.overrides.iter().map(|over| &over.env);
        let matrix = [&site.entry.env, &site.model_entry.env].into_iter();
        let matrix = matrix.chain(chosen).chain(overrides).flat_map(OrderedMap::iter);
        let all = recipe.chain(matrix.map(|(name, value)| (name, &value.value)));
        let merged: OrderedMap<&Template> = all.map(|(name, value)| (name.clone(), value)).collect();
        merged
            .into_iter()
            .map(|(name, value)| (name.value, value.fill_placeholders(self.fill)))
            .collect()
    }

    /// The command with the arguments of all layers. The command is that of the matrix entry, else of a patch,
    /// else of the recipe's container or process (`of_executor`), else of the recipe.
    /// The command with the arguments of all layers. The command is that of the matrix entry, else of a patch,
    /// else of the recipe's container or process (`of_executor`), else of the recipe.
    fn command_with_arguments(&self, of_executor: Option<&'a Vec<Template>>) -> Vec<Template> {
        let patched = self.patched(|patch| patch.command.as_ref());
        let command = self.site.entry.command.as_ref().or(patched).or(of_executor);
        let command = command.or(self.site.recipe.command.as_ref());
        self.filled(command.into_iter().flatten().chain(self.arguments()))
    }

    /// The command that prints the engine's flags; empty if unknown.
    fn help(&self) -> Vec<Template> {
        let recipe = self.site.recipe;
        let own = match self.point.executor {
            Executor::Container => recipe.container.as_ref().and_then(|place| place.help.as_ref()),
            Executor::Process => recipe.process.as_ref().and_then(|place| place.help.as_ref()),
            Executor::Attach => return Vec::new(),
        };
        self.filled(own.or(recipe.help.as_ref()).into_iter().flatten())
    }

    fn container(&self) -> Container {
        let (entry, version) = (self.site.entry, self.point.version.as_deref().unwrap_or_default());
        let Some(recipe) = &self.site.recipe.container else {
            return Container::default();
        };
        let patched = self.patched(|patch| patch.image.as_ref());
        let image = entry.image.as_ref().or(recipe.images.get(version)).or(patched);
        let command = self.command_with_arguments(recipe.command.as_ref());
        let env = self.environment(&recipe.env);
        let recipe = recipe.clone();
        let over = entry.container.as_deref().cloned().unwrap_or_default();
        let limits = recipe.ulimits.into_iter().chain(over.ulimits);
        Container {
            image: image.unwrap_or(&recipe.image).replace("{version}", version),
            entrypoint: recipe.entrypoint.map(|words| self.filled(&words)),
            command,
            env,
            mounts: recipe
                .mounts
                .into_iter()
                .map(|mount| Mount {
                    source: mount.source.fill_placeholders(self.fill),
                    ..mount
                })
                .collect(),
            runtime: over.runtime.or(recipe.runtime),
            // If launches run concurrently, none of them gets all GPUs.
            gpus: match over.gpus.unwrap_or(recipe.gpus) {
                ContainerGpus::All if self.site.matrix.parallel => ContainerGpus::Leased,
                gpus => gpus,
            },
            ipc: over.ipc.or(recipe.ipc),
            network: recipe.network,
            shm_size: over.shm_size.or(recipe.shm_size),
            ulimits: limits
                .collect::<OrderedMap<_>>()
                .into_iter()
                .map(|(name, limit)| (name.value, limit))
                .collect(),
            init: over.init.unwrap_or(recipe.init),
            devices: recipe.device_nodes,
            privileged: recipe.privileged,
            cpuset: over.cpuset.or(recipe.cpuset),
            memory: over.memory.or(recipe.memory),
            memory_swap: over.memory_swap.or(recipe.memory_swap),
            extra_hosts: [recipe.extra_hosts, over.extra_hosts].concat(),
            cap_add: [recipe.cap_add, over.cap_add].concat(),
            security_opt: [recipe.security_opt, over.security_opt].concat(),
            group_add: [recipe.group_add, over.group_add].concat(),
        }
    }

    fn process(&self) -> Process {
        let entry = self.site.entry;
        let none = ProcessRecipe::default();
        let patched = self.patched(|patch| patch.process.as_ref());
        let recipe = patched.or(self.site.recipe.process.as_ref()).unwrap_or(&none);
        let version = self.point.version.as_deref().unwrap_or_default();
        let version = version.trim_start_matches('v');
        let packages = recipe.pip.iter();
        let wants_venv = entry.venv.is_some() || !recipe.pip.is_empty();
        Process {
            command: self.command_with_arguments(recipe.command.as_ref()),
            env: self.environment(&recipe.env),
            environment: entry.environment.unwrap_or(recipe.environment),
            dir: recipe.dir.as_ref().map(|dir| dir.fill_placeholders(self.fill)),
            devices_env: recipe.devices_env.clone(),
            venv: wants_venv.then(|| Venv {
                path: entry.venv.clone(),
                packages: packages
                    .map(|package| package.replace("{version}", version))
                    .collect(),
                distribution: recipe.distribution.clone(),
                version: self.point.version.clone(),
                python: recipe.python.clone().unwrap_or_else(|| "python3".to_owned()),
            }),
        }
    }

    fn contact(&self) -> Api {
        let (recipe, entry) = (self.site.recipe, self.site.entry);
        let contact = self.patched(|patch| patch.api.as_ref());
        let contact = contact.unwrap_or(&recipe.api).clone();
        let port = self.patched(|patch| patch.port.as_ref()).unwrap_or(&recipe.port);
        let unique_prefixes = entry.unique_prefixes.as_ref();
        let unique_prefixes = unique_prefixes.or(contact.unique_prefixes.as_ref());
        // An attached server may have cached any prompts before the run.
        let may_be_warm = self.point.executor == Executor::Attach && contact.reset.is_none();
        let mut body = contact.body.0;
        body.extend(entry.body.0.clone());
        Api {
            port: Port {
                default: port.default,
                fixed: entry.port.as_deref().copied(),
                flag: self.filled(&port.flag),
            },
            health: contact.health,
            models: contact.models,
            version: contact.version,
            info: contact.info,
            metrics: contact.metrics.map(Metrics::with_todays_names),
            unique_prefixes: unique_prefixes.map_or(may_be_warm, |unique| unique.value),
            reset: contact.reset,
            restart_for_cells: contact.restart_for_cells.value,
            dialect: ProtocolSpec {
                protocol: contact.protocol,
                path: contact.path,
                usage: contact.usage,
                body,
            },
            headers: entry
                .headers
                .iter()
                .map(|(name, value)| (name.value.clone(), value.value.clone()))
                .collect(),
        }
    }

    fn patience(&self) -> Timeouts {
        let overrides = self.overrides.iter().map(|over| &over.timeouts);
        let layers = [&self.site.recipe.timeouts, &self.site.entry.timeouts];
        let layers: Vec<&TimeoutsRecipe> = layers.into_iter().chain(overrides).collect();
        let last = |read: fn(&TimeoutsRecipe) -> Option<HumanDuration>, default| {
            let given = layers.iter().rev().find_map(|layer| read(layer));
            given.unwrap_or(HumanDuration::from_secs(default))
        };
        Timeouts {
            start: last(|layer| layer.start, 3_600),
            stall: last(|layer| layer.stall, 900),
            stop: last(|layer| layer.stop, 30),
            probe: last(|layer| layer.probe, 300),
        }
    }
}

/// A readable name, made unique by a digest of everything that determines what is started.
fn launch_id(launch: &Launch) -> LaunchId {
    let decides = (
        &launch.engine,
        &launch.model,
        &launch.checkpoint,
        &launch.place,
        &launch.api,
        &launch.parallel,
    );
    let digest = canonical::launch_hash(&(
        decides,
        &launch.precision,
        &launch.served_model_name,
        &launch.tokenizer,
    ));
    let model = launch.model.rsplit('/').next().unwrap_or(&launch.model);
    let version = launch.engine.version.iter().map(|version| format!("-{version}"));
    let version: String = version.collect();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    let readable = format!("{}{version}-{model}-tp{}", launch.engine.name, launch.parallel.tp);
    let readable = readable.replace(|c| !is_plain(c), "-");
    LaunchId::new(format!("{readable}-{}", &digest.as_str()[..6]))
}
