//! Merges the recipe, its patches, the entries of the matrix and its overrides to a launch, and fills in
//! placeholders. For single values, the later layer takes precedence; arguments and variables of all layers
//! are combined.

use crate::base::ids::LaunchId;
use crate::base::units::HumanDuration;
use crate::config::api::ClientStyle;
use crate::config::engine::{ApiRecipe, Devices, PortRecipe, TimeoutsRecipe};
use crate::config::metrics::MetricDefinitions;
use crate::config::select::pattern_matches;
use crate::config::template::Template;
use crate::plan::executor::members::gpus_of_roles;
use crate::plan::grid::GridPoint;
use crate::plan::launch::{Api, Engine, Launch, Port, ProtocolSpec, Timeouts};
use crate::plan::layers::Layers;
use crate::plan::resolve::ResolveContext;
use crate::plan::{canonical, executor};

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
            place: (executor::facts(point.executor).merge)(&layers),
            help: layers.help(),
            api: layers.api(),
            log_patterns: recipe.log_patterns.clone(),
            timeouts: layers.timeouts(),
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

impl Layers<'_> {
    /// Number of GPUs that the engine needs, on all nodes together.
    pub(crate) fn devices(&self) -> u32 {
        let roles = &self.site.entry.roles;
        if roles.len() > 0 {
            return gpus_of_roles(roles.iter().map(|(_, role)| role), self.uses_gpus());
        }
        let parallel = self.point.parallel;
        match self.uses_gpus() && executor::facts(self.point.executor).leases_gpus {
            true => parallel.tp * parallel.pp * parallel.dp,
            false => 0,
        }
    }

    /// Whether the engine computes on GPUs.
    pub(crate) fn uses_gpus(&self) -> bool {
        let devices = self.patched(|patch| patch.devices).or(self.site.entry.devices);
        devices.unwrap_or(self.site.recipe.devices) == Devices::Gpu
    }

    /// The command that prints the engine's flags; empty if unknown.
    fn help(&self) -> Vec<Template> {
        let help = (executor::facts(self.point.executor).help)(self.site.recipe);
        self.filled(self.with_program(help.into_iter().flatten()))
    }

    fn api_recipe(&self) -> &ApiRecipe {
        let api = self.patched(|patch| patch.api.as_ref());
        api.unwrap_or(&self.site.recipe.api)
    }

    fn port_recipe(&self) -> &PortRecipe {
        let port = self.patched(|patch| patch.port.as_ref());
        port.unwrap_or(&self.site.recipe.port)
    }

    /// The path that returns status 200 when the engine is healthy.
    pub(crate) fn health(&self) -> String {
        self.api_recipe().health.clone()
    }

    /// The arguments that set the port.
    pub(crate) fn port_arguments(&self) -> Vec<Template> {
        self.filled(&self.port_recipe().flag)
    }

    fn api(&self) -> Api {
        let entry = self.site.entry;
        let api = self.api_recipe().clone();
        let port = self.port_recipe();
        let unique_prefixes = entry.unique_prefixes.as_ref();
        let unique_prefixes = unique_prefixes.or(api.unique_prefixes.as_ref());
        // An attached server may have cached any prompts before the run.
        let starts_engine = executor::facts(self.point.executor).starts_engine;
        let may_be_warm = !starts_engine && api.reset.is_none();
        let mut body = api.body.0;
        body.extend(entry.body.0.clone());
        Api {
            port: Port {
                default: port.default,
                fixed: entry.port.as_deref().copied(),
                flag: self.port_arguments(),
            },
            health: api.health,
            models: api.models,
            version: api.version,
            info: api.info,
            // The counters of one server are not those of a load that several share.
            metrics: (api
                .metrics
                .filter(|_| !entry.has_several_urls() && entry.roles.len() == 0))
            .map(MetricDefinitions::with_current_names),
            unique_prefixes: unique_prefixes.map_or(may_be_warm, |unique| unique.value),
            reset: api.reset,
            restart_for_cells: api.restart_for_cells.value,
            dialect: ProtocolSpec {
                protocol: api.protocol,
                path: api.path,
                usage: api.usage,
                body,
                routing_key_header: entry.routing_key_header.as_deref().cloned(),
                embeddings: Default::default(),
                style: ClientStyle::BenchServing,
            },
            headers: entry
                .headers
                .iter()
                .map(|(name, value)| (name.value.clone(), value.value.clone()))
                .collect(),
        }
    }

    fn timeouts(&self) -> Timeouts {
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
