//! Recipe + axis values -> launch; scenario + axis values -> load. Each is a function of its own cell's values alone, so that
//! nothing of one cell can leak into another.

use crate::base::ids::LaunchId;
use crate::base::units::Span;
use crate::config::arrival::{Arrival, Pace, Ramp};
use crate::config::builtin_scenarios;
use crate::config::container::{ContainerOverride, Gpus};
use crate::config::engine::{Devices, Executor, Patch, PatienceRecipe, ProcessRecipe, Recipe};
use crate::config::forms::OrderedMap;
use crate::config::matrix::{EngineEntry, Matrix, ModelEntry, Override, ScenarioEntry};
use crate::config::metrics::Metrics;
use crate::config::scenario::{Limits, Scenario};
use crate::config::search::{By, Search};
use crate::config::select::{AxisValues, fits};
use crate::config::template::Text;
use crate::config::workload::{Dataset, Workload};
use crate::plan::canonical;
use crate::plan::grid::Point;
use crate::plan::launch::{Contact, Dialect, Engine, Launch, Patience, Port};
use crate::plan::place::{Attach, Container, Place, Process, Venv};

/// The most prompts that a search has where nothing says how many.
const SEARCHED_PROMPTS: u32 = 20_000;

/// How many prompts a scenario of no standard name has that neither says it nor has a rate and an end, from which the number follows.
const USUAL_PROMPTS: u32 = 1_000;

/// How many prompts the highest rate of a search needs for the duration of a point; `None` where nothing ends its points or limits them to
/// fewer.
fn search_needs(search: &Search, arrival: &Arrival) -> Option<u32> {
    let is_timed = search.by == By::Rate && search.prompts.is_none() && search.objection().is_none();
    let highest = is_timed.then(|| search.arrival(arrival, search.to))?;
    let needed = highest.enough(search.duration)?;
    Some(needed.clamp(USUAL_PROMPTS, SEARCHED_PROMPTS))
}

/// One engine, model and scenario of a matrix with everything that belongs to them.
pub(crate) struct Site<'a> {
    pub(crate) matrix: &'a Matrix,
    pub(crate) recipe: &'a Recipe,
    /// The engine's name in the matrix.
    pub(crate) engine: &'a str,
    pub(crate) entry: &'a EngineEntry,
    pub(crate) model: &'a str,
    pub(crate) model_entry: &'a ModelEntry,
    pub(crate) scenario: &'a str,
    pub(crate) scenario_entry: &'a ScenarioEntry,
}

impl Site<'_> {
    /// The values of all axes at a point, for keys, selectors and tables.
    pub(crate) fn axis_values(&self, point: &Point) -> AxisValues {
        let mut values = AxisValues::new();
        let mut set = |axis: &str, value: Option<String>| {
            if let Some(value) = value {
                values.insert(axis.to_owned(), value);
            }
        };
        let above_one = |size: u32| (size > 1).then(|| size.to_string());
        set("engine", Some(self.engine.to_owned()));
        set("version", point.version.clone());
        set("executor", Some(point.executor.name().to_owned()));
        set(
            "variant",
            self.entry.variant.as_ref().map(|variant| variant.value.clone()),
        );
        set("model", Some(self.model.to_owned()));
        set("precision", point.precision.clone());
        set("tp", Some(point.parallel.tp.to_string()));
        set("pp", above_one(point.parallel.pp));
        set("dp", above_one(point.parallel.dp));
        set("ep", above_one(point.parallel.ep));
        set("args", point.args.clone());
        set("env", point.env.clone());
        set("scenario", Some(self.scenario.to_owned()));
        set("rate", Some(point.rate.to_string()));
        set(
            "concurrency",
            point.concurrency.map(|concurrency| concurrency.to_string()),
        );
        values
    }

    fn overrides<'b>(&'b self, values: &'b AxisValues) -> impl Iterator<Item = &'b Override> {
        self.matrix.overrides.iter().filter(|over| over.when.fits(values))
    }

    /// The patches of the recipe that apply: versions in order, then the variant.
    pub(crate) fn patches<'b>(&'b self, point: &'b Point) -> impl Iterator<Item = &'b Patch> + Clone {
        let version = point.version.as_deref();
        let versions = self
            .recipe
            .versions
            .iter()
            .filter(move |patch| version.is_some_and(|version| patch.when.holds(version)))
            .map(|patch| &patch.change);
        let variant = self
            .entry
            .variant
            .as_ref()
            .and_then(|name| self.recipe.variants.get(&name.value));
        versions.chain(variant)
    }

    /// The launch at a point.
    pub(crate) fn launch(&self, point: &Point) -> Launch {
        let mut values = self.axis_values(point);
        // A launch does not know what is sent at it.
        for axis in ["scenario", "rate", "concurrency"] {
            values.remove(axis);
        }
        let patches: Vec<&Patch> = self.patches(point).collect();
        let overrides: Vec<&Override> = self.overrides(&values).collect();
        let checkpoint = self.checkpoint(point);
        let served = self
            .entry
            .served
            .as_ref()
            .or(self.recipe.served.as_ref())
            .map_or_else(
                || checkpoint.clone(),
                |served| served.replace("{model}", &checkpoint),
            );
        let fill = |name: &str| match name {
            "model" => Some(checkpoint.clone()),
            "served_model_name" | "served" => Some(served.clone()),
            "tp" => Some(point.parallel.tp.to_string()),
            "pp" => Some(point.parallel.pp.to_string()),
            "dp" => Some(point.parallel.dp.to_string()),
            "ep" => Some(point.parallel.ep.to_string()),
            "version" => point.version.clone(),
            "precision" => point.precision.clone(),
            "variant" => self.entry.variant.as_ref().map(|variant| variant.value.clone()),
            _ => None,
        };
        let tail = self.arguments(point, &patches, &overrides);
        let env = |base: &OrderedMap<Text>| self.environment(point, base, &patches, &overrides);
        let place = match point.executor {
            Executor::Container => Place::Container(Box::new(self.container(point, &patches, &tail, env))),
            Executor::Process => Place::Process(self.process(point, &patches, &tail, env)),
            Executor::Attach => Place::Attach(Attach {
                url: self
                    .entry
                    .url
                    .as_ref()
                    .map(|url| url.value.clone())
                    .unwrap_or_default(),
                gpus: self.entry.gpus.as_ref().map(|gpus| gpus.value),
                gpu: self.entry.gpu.as_ref().map(|gpu| gpu.value.clone()),
            }),
        };
        let backend = patches.iter().rev().find_map(|patch| patch.backend.clone());
        let mut launch = Launch {
            id: LaunchId::new(""),
            engine: Engine {
                name: self.engine.to_owned(),
                recipe: self.recipe.name.value.clone(),
                title: self.recipe.title.clone(),
                version: point.version.clone(),
                variant: self.entry.variant.as_ref().map(|variant| variant.value.clone()),
                backend: backend.unwrap_or_else(|| self.recipe.backend.clone()),
                simulated: self.recipe.simulated,
            },
            model: self.model.to_owned(),
            served: served.clone(),
            precision: point.precision.clone(),
            tokenizer: self
                .model_entry
                .tokenizer
                .as_ref()
                .map_or_else(|| self.model.to_owned(), |name| name.value.clone()),
            parallel: point.parallel,
            devices: match place.is_attached() {
                true => 0,
                false => self.devices(point, &patches),
            },
            place: place.filled(&fill),
            help: self
                .help(point.executor)
                .iter()
                .map(|text| text.fill(&fill))
                .collect(),
            contact: self.contact(point, &patches, &fill),
            signs: self.recipe.signs.clone(),
            patience: self.patience(&overrides),
            checkpoint: checkpoint.clone(),
        };
        launch.id = launch_id(&launch);
        launch
    }

    /// How many devices it computes on.
    fn devices(&self, point: &Point, patches: &[&Patch]) -> u32 {
        let patched = patches.iter().rev().find_map(|patch| patch.devices);
        match patched.or(self.entry.devices) {
            Some(Devices::None) => 0,
            None if self.recipe.devices == Devices::None => 0,
            _ => point.parallel.tp * point.parallel.pp * point.parallel.dp,
        }
    }

    /// What the engine loads: the model entry's word, else the recipe's table, else the model itself.
    fn checkpoint(&self, point: &Point) -> String {
        let own = self
            .model_entry
            .checkpoint
            .as_ref()
            .and_then(|by_engine| by_engine.get(self.engine));
        let table = || {
            let precision = point.precision.as_deref()?;
            let row = self
                .recipe
                .checkpoints
                .iter()
                .find(|row| row.precision == precision && fits(&row.model, self.model))?;
            Some(&row.checkpoint)
        };
        own.or_else(table).map_or_else(
            || self.model.to_owned(),
            |text| text.replace("{model}", self.model),
        )
    }

    /// What follows the command: the recipe's arguments for this version, variant and parallelism, then the matrix's.
    fn arguments(&self, point: &Point, patches: &[&Patch], overrides: &[&Override]) -> Vec<Text> {
        let mut all: Vec<Text> = Vec::new();
        let sizes = [
            ("tp", point.parallel.tp),
            ("pp", point.parallel.pp),
            ("dp", point.parallel.dp),
            ("ep", point.parallel.ep),
        ];
        for (axis, size) in sizes {
            if size > 1 {
                all.extend(self.recipe.parallel.get(axis).into_iter().flatten().cloned());
            }
        }
        all.extend(patches.iter().flat_map(|patch| &patch.args).cloned());
        all.extend(self.entry.args.iter().map(|arg| arg.value.clone()));
        if let Some(args) = self
            .model_entry
            .args
            .as_ref()
            .and_then(|by_engine| by_engine.get(self.engine))
        {
            all.extend(args.iter().cloned());
        }
        let set = point
            .args
            .as_ref()
            .and_then(|name| self.matrix.axes.args.get(name));
        all.extend(
            set.and_then(|by_engine| by_engine.get(self.engine))
                .into_iter()
                .flatten()
                .cloned(),
        );
        all.extend(
            overrides
                .iter()
                .flat_map(|over| &over.args)
                .map(|arg| arg.value.clone()),
        );
        all
    }

    /// Environment variables in order; a later one of the same name replaces the earlier in its place.
    fn environment(
        &self,
        point: &Point,
        base: &OrderedMap<Text>,
        patches: &[&Patch],
        overrides: &[&Override],
    ) -> Vec<(String, Text)> {
        let mut all: Vec<(String, Text)> = Vec::new();
        let mut set = |name: &str, value: &Text| match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value.clone(),
            None => all.push((name.to_owned(), value.clone())),
        };
        base.iter().for_each(|(name, value)| set(name, value));
        for patch in patches {
            patch.env.iter().for_each(|(name, value)| set(name, value));
        }
        let chosen = point.env.as_ref().and_then(|name| self.matrix.axes.env.get(name));
        let maps = [Some(&self.entry.env), Some(&self.model_entry.env), chosen];
        for map in maps
            .into_iter()
            .flatten()
            .chain(overrides.iter().map(|over| &over.env))
        {
            map.iter().for_each(|(name, value)| set(name, &value.value));
        }
        all
    }

    fn command(&self, own: Option<&Vec<Text>>, patches: &[&Patch], tail: &[Text]) -> Vec<Text> {
        let patched = patches.iter().rev().find_map(|patch| patch.command.as_ref());
        let command = self
            .entry
            .command
            .as_ref()
            .or(patched)
            .or(own)
            .or(self.recipe.command.as_ref());
        command
            .into_iter()
            .flatten()
            .cloned()
            .chain(tail.iter().cloned())
            .collect()
    }

    /// What makes the engine print its flags.
    fn help(&self, executor: Executor) -> Vec<Text> {
        let own = match executor {
            Executor::Container => self
                .recipe
                .container
                .as_ref()
                .and_then(|place| place.help.as_ref()),
            Executor::Process => self.recipe.process.as_ref().and_then(|place| place.help.as_ref()),
            Executor::Attach => return Vec::new(),
        };
        let words = own.or(self.recipe.help.as_ref());
        words.into_iter().flatten().cloned().collect()
    }

    fn container(
        &self,
        point: &Point,
        patches: &[&Patch],
        tail: &[Text],
        env: impl Fn(&OrderedMap<Text>) -> Vec<(String, Text)>,
    ) -> Container {
        let Some(recipe) = &self.recipe.container else {
            return Container::default();
        };
        let version = point.version.as_deref().unwrap_or_default();
        let patched = patches.iter().rev().find_map(|patch| patch.image.as_ref());
        let image = self
            .entry
            .image
            .as_ref()
            .or(recipe.images.get(version))
            .or(patched)
            .unwrap_or(&recipe.image);
        let unchanged = ContainerOverride::default();
        let change = self
            .entry
            .container
            .as_ref()
            .map_or(&unchanged, |change| &change.value);
        let mut limits = recipe.ulimits.clone();
        for (name, limit) in change.ulimits.iter() {
            limits.insert(name.clone(), *limit);
        }
        Container {
            image: image.replace("{version}", version),
            entrypoint: recipe.entrypoint.clone(),
            command: self.command(recipe.command.as_ref(), patches, tail),
            env: env(&recipe.env),
            mounts: recipe.mounts.clone(),
            runtime: change.runtime.as_ref().or(recipe.runtime.as_ref()).cloned(),
            // Beside a neighbour nobody may have them all.
            gpus: match change.gpus.unwrap_or(recipe.gpus) {
                Gpus::All if self.matrix.parallel => Gpus::Leased,
                gpus => gpus,
            },
            ipc: change.ipc.as_ref().or(recipe.ipc.as_ref()).cloned(),
            network: recipe.network,
            shm_size: change.shm_size.or(recipe.shm_size),
            ulimits: limits
                .iter()
                .map(|(name, limit)| (name.value.clone(), *limit))
                .collect(),
            init: change.init.unwrap_or(recipe.init),
            devices: recipe.device_nodes.clone(),
            privileged: recipe.privileged,
            cpuset: change.cpuset.as_ref().or(recipe.cpuset.as_ref()).cloned(),
            memory: change.memory.or(recipe.memory),
            memory_swap: change.memory_swap.or(recipe.memory_swap),
            extra_hosts: [&recipe.extra_hosts[..], &change.extra_hosts].concat(),
            cap_add: [&recipe.cap_add[..], &change.cap_add].concat(),
            security_opt: [&recipe.security_opt[..], &change.security_opt].concat(),
            group_add: [&recipe.group_add[..], &change.group_add].concat(),
        }
    }

    fn process(
        &self,
        point: &Point,
        patches: &[&Patch],
        tail: &[Text],
        env: impl Fn(&OrderedMap<Text>) -> Vec<(String, Text)>,
    ) -> Process {
        let patched = patches.iter().rev().find_map(|patch| patch.process.as_ref());
        let none = ProcessRecipe::default();
        let recipe = patched.or(self.recipe.process.as_ref()).unwrap_or(&none);
        let version = point
            .version
            .as_deref()
            .unwrap_or_default()
            .trim_start_matches('v');
        let wants_venv = self.entry.venv.is_some() || !recipe.pip.is_empty();
        Process {
            command: self.command(recipe.command.as_ref(), patches, tail),
            env: env(&recipe.env),
            environment: self.entry.environment.unwrap_or(recipe.environment),
            dir: recipe.dir.clone(),
            devices_env: recipe.devices_env.clone(),
            venv: wants_venv.then(|| Venv {
                path: self.entry.venv.clone(),
                packages: recipe
                    .pip
                    .iter()
                    .map(|package| package.replace("{version}", version))
                    .collect(),
                distribution: recipe.distribution.clone(),
                version: point.version.clone(),
                python: recipe.python.clone().unwrap_or_else(|| "python3".to_owned()),
            }),
        }
    }

    fn contact(&self, point: &Point, patches: &[&Patch], fill: &dyn Fn(&str) -> Option<String>) -> Contact {
        let contact = patches
            .iter()
            .rev()
            .find_map(|patch| patch.contact.as_ref())
            .unwrap_or(&self.recipe.contact);
        let port = patches
            .iter()
            .rev()
            .find_map(|patch| patch.port.as_ref())
            .unwrap_or(&self.recipe.port);
        let unique_prefixes = self.entry.unique_prefixes.as_ref();
        let unique_prefixes = unique_prefixes.or(contact.unique_prefixes.as_ref());
        // Nobody knows what a server that ran already has seen.
        let may_be_warm = point.executor == Executor::Attach && contact.reset.is_none();
        let mut body = contact.body.0.clone();
        for (key, value) in &self.entry.body.0 {
            body.insert(key.clone(), value.clone());
        }
        Contact {
            port: Port {
                default: port.default,
                fixed: self.entry.port.as_ref().map(|port| port.value),
                flag: port.flag.iter().map(|text| text.fill(fill)).collect(),
            },
            health: contact.health.clone(),
            models: contact.models.clone(),
            version: contact.version.clone(),
            info: contact.info.clone(),
            metrics: contact.metrics.clone().map(Metrics::with_todays_names),
            reset: contact.reset.clone(),
            unique_prefixes: unique_prefixes.map_or(may_be_warm, |unique| unique.value),
            restart_for_cells: contact.restart_for_cells.value,
            dialect: Dialect {
                protocol: contact.protocol,
                path: contact.path.clone(),
                usage: contact.usage,
                body,
            },
            headers: self
                .entry
                .headers
                .iter()
                .map(|(name, value)| (name.value.clone(), value.value.clone()))
                .collect(),
        }
    }

    fn patience(&self, overrides: &[&Override]) -> Patience {
        let mut layers: Vec<&PatienceRecipe> = vec![&self.recipe.patience, &self.entry.patience];
        layers.extend(overrides.iter().map(|over| &over.patience));
        let pick = |read: fn(&PatienceRecipe) -> Option<Span>, default: u64| {
            layers
                .iter()
                .rev()
                .find_map(|layer| read(layer))
                .unwrap_or(Span::seconds(default))
        };
        Patience {
            start: pick(|layer| layer.start, 3_600),
            stall: pick(|layer| layer.stall, 900),
            stop: pick(|layer| layer.stop, 30),
            probe: pick(|layer| layer.probe, 300),
        }
    }

    /// How many prompts the scenario has where nothing says how many: as many as its arrivals need, and of a standard scenario no fewer
    /// than its own number.
    fn needed_prompts(&self, arrival: &Arrival) -> u32 {
        let entry = self.scenario_entry;
        let searched = entry
            .search
            .as_ref()
            .and_then(|search| search_needs(&search.value, arrival));
        let needed = searched.or_else(|| arrival.enough(entry.duration));
        let standard = builtin_scenarios::named(self.scenario).and_then(|standard| standard.prompts);
        let standard = standard.map(|prompts| prompts.value);
        needed.max(standard).unwrap_or(USUAL_PROMPTS)
    }

    /// The scenario at a point.
    pub(crate) fn load(&self, point: &Point) -> Scenario {
        let values = self.axis_values(point);
        let entry = self.scenario_entry;
        let arrival = Arrival {
            rate: point.rate,
            pace: entry.pace().map(|pace| timed(pace, entry.duration)),
            spacing: entry.spacing.unwrap_or_default(),
            concurrency: point.concurrency,
        };
        let prompts = self.overrides(&values).filter_map(|over| over.prompts).last();
        let path = entry.path.as_ref().map(|path| path.value.clone()).or_else(|| {
            let key = entry.dataset.and_then(Dataset::file_key);
            let own = key.and_then(|key| self.matrix.datasets.get(key));
            own.map(|path| path.value.clone())
        });
        let defaults = Limits::default();
        let request = entry.timeout.unwrap_or(defaults.request);
        Scenario {
            name: self.scenario.to_owned(),
            profile: self.matrix.profile,
            seed: entry.seed.unwrap_or(self.matrix.seed),
            workload: Workload {
                dataset: entry
                    .dataset
                    .expect("a scenario without a data set is refused before"),
                path,
                prompts: prompts
                    .or(entry.prompts.as_ref().map(|prompts| prompts.value))
                    .unwrap_or_else(|| self.needed_prompts(&arrival)),
                input_len: entry.input_len,
                output_len: entry.output_len,
                range_ratio: entry.range_ratio.as_ref().map_or_else(
                    || entry.dataset.map_or(0.0, Dataset::usual_range_ratio),
                    |ratio| ratio.value,
                ),
                context_len: entry.context_len,
                prompt_suffix: entry.prompt_suffix.clone(),
                tokenize_prompt: entry.tokenize_prompt,
                apply_chat_template: entry.apply_chat_template,
                trace_timestamps: false,
                shared_prefix: entry.shared_prefix.clone(),
                agentic_trace: entry.agentic_trace.clone(),
                mooncake: entry.mooncake.clone(),
                pictures: entry.pictures.clone(),
                speed_bench: entry.speed_bench.clone(),
            },
            arrival,
            limits: Limits {
                warmup: entry.warmup.unwrap_or(defaults.warmup),
                request,
                first_byte: entry.first_byte_timeout.unwrap_or(request),
                duration: entry.duration,
                drain: entry.drain.unwrap_or(defaults.drain),
                stall: entry.stall.unwrap_or(defaults.stall),
                error_share: entry
                    .error_share
                    .as_ref()
                    .map_or(defaults.error_share, |share| share.value),
                abort_error_share: entry.abort_error_share.as_ref().map(|share| share.value),
                excess_tokens: entry.excess_tokens.unwrap_or(defaults.excess_tokens),
                ..defaults
            },
            slo: entry.slo.clone(),
            search: entry.search.as_ref().map(|search| search.value.clone()),
            body: entry.body.0.clone(),
            stop_at_eos: entry.stop_at_eos,
            keep_text: entry.keep_text,
            lora: entry.lora.clone(),
        }
    }
}

/// A ramp takes the whole measurement, where that has a length.
fn timed(pace: Pace, duration: Option<Span>) -> Pace {
    match pace {
        Pace::Ramp(ramp) => Pace::Ramp(Ramp {
            over: ramp.over.or(duration),
            ..ramp
        }),
        stages @ Pace::Stages(_) => stages,
    }
}

/// A readable name, made unique by a digest of everything that decides what is started.
fn launch_id(launch: &Launch) -> LaunchId {
    let decides = (
        &launch.engine,
        &launch.model,
        &launch.checkpoint,
        &launch.place,
        &launch.contact,
        &launch.parallel,
    );
    let digest = canonical::launch(&(decides, &launch.precision, &launch.served, &launch.tokenizer));
    let model = launch.model.rsplit('/').next().unwrap_or(&launch.model);
    let version = launch
        .engine
        .version
        .as_deref()
        .map(|version| format!("-{version}"))
        .unwrap_or_default();
    let readable: String = format!("{}{version}-{model}-tp{}", launch.engine.name, launch.parallel.tp)
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') {
                c
            } else {
                '-'
            }
        })
        .collect();
    LaunchId::new(format!("{readable}-{}", &digest.as_str()[..6]))
}
