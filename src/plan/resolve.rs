//! Resolves a grid point to axis values, patches, overrides and a scenario; `merge` resolves its launch. Each
//! result depends on the values of the cell only, so that cells cannot affect one another.

use crate::base::units::HumanDuration;
use crate::config::arrival::{Arrival, Ramp, RateProfile};
use crate::config::builtin_scenarios;
use crate::config::engine::{Patch, Recipe};
use crate::config::matrix::{EngineEntry, Matrix, ModelEntry, Override, ScenarioEntry};
use crate::config::scenario::{LoadLimits, Scenario};
use crate::config::search::{Search, SearchVariable};
use crate::config::select::AxisValues;
use crate::plan::grid::GridPoint;

/// Maximum number of prompts of a search that does not set the number.
const SEARCH_PROMPTS: u32 = 20_000;

/// Number of prompts of a scenario that is not a standard one, does not set the number, and has no rate and
/// duration from which it follows.
const DEFAULT_PROMPTS: u32 = 1_000;

/// Number of prompts that the highest rate of a search needs for the duration of a point, within the limits
/// above. `None` if the search is not over rates, sets `prompts`, is invalid, or has points without an end.
fn search_prompts(search: &Search, arrival: &Arrival) -> Option<u32> {
    let is_timed =
        search.by == SearchVariable::Rate && search.prompts.is_none() && search.find_error().is_none();
    let highest = is_timed.then(|| search.arrival_at(arrival, search.to))?;
    let needed = highest.sufficient_prompts(search.duration)?;
    Some(needed.clamp(DEFAULT_PROMPTS, SEARCH_PROMPTS))
}

/// One engine, model and scenario of a matrix with their recipe and entries.
pub(crate) struct ResolveContext<'a> {
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

impl ResolveContext<'_> {
    /// The values of all axes at a grid point, for cell keys, selectors and tables.
    pub(crate) fn axis_values(&self, point: &GridPoint) -> AxisValues {
        let mut values = AxisValues::new();
        let mut set = |axis: &str, value: Option<String>| {
            if let Some(value) = value {
                values.insert(axis.to_owned(), value);
            }
        };
        set("engine", Some(self.engine.to_owned()));
        set("version", point.version.clone());
        set("executor", Some(point.executor.name().to_owned()));
        set("variant", self.entry.variant.as_deref().cloned());
        set("model", Some(self.model.to_owned()));
        set("precision", point.precision.clone());
        for (axis, size) in point.parallel.sizes() {
            set(axis, (axis == "tp" || size > 1).then(|| size.to_string()));
        }
        set("args", point.args.clone());
        set("env", point.env.clone());
        set("scenario", Some(self.scenario.to_owned()));
        set("rate", Some(point.rate.to_string()));
        set("concurrency", point.concurrency.as_ref().map(ToString::to_string));
        values
    }

    /// The overrides of the matrix whose selector matches these values.
    pub(crate) fn overrides<'b>(&'b self, values: &'b AxisValues) -> impl Iterator<Item = &'b Override> {
        self.matrix
            .overrides
            .iter()
            .filter(|over| over.when.matches(values))
    }

    /// The patches of the recipe that apply: versions in order, then the variant.
    pub(crate) fn patches<'b>(&'b self, point: &'b GridPoint) -> impl Iterator<Item = &'b Patch> + Clone {
        let version = point.version.as_deref();
        let versions = self
            .recipe
            .versions
            .iter()
            .filter(move |patch| version.is_some_and(|version| patch.when.contains(version)))
            .map(|patch| &patch.change);
        let variant = self
            .entry
            .variant
            .as_ref()
            .and_then(|name| self.recipe.variants.get(&name.value));
        versions.chain(variant)
    }

    /// Number of prompts of a scenario that does not set it: as many as its arrivals need, and for a standard
    /// scenario at least its default number.
    fn needed_prompts(&self, arrival: &Arrival) -> u32 {
        let entry = self.scenario_entry;
        let searched = entry
            .search
            .as_ref()
            .and_then(|search| search_prompts(&search.value, arrival));
        let needed = searched.or_else(|| arrival.sufficient_prompts(entry.duration));
        let standard = builtin_scenarios::by_name(self.scenario).and_then(|standard| standard.prompts);
        let standard = standard.map(|prompts| prompts.value);
        needed.max(standard).unwrap_or(DEFAULT_PROMPTS)
    }

    /// The scenario at a grid point.
    pub(crate) fn scenario(&self, point: &GridPoint) -> Scenario {
        let values = self.axis_values(point);
        let entry = self.scenario_entry;
        let arrival = Arrival {
            rate: point.rate,
            pace: entry
                .rate_profile()
                .map(|pace| with_duration(pace, entry.duration)),
            spacing: entry.spacing.unwrap_or_default(),
            concurrency: point.concurrency,
        };
        let prompts = self.overrides(&values).filter_map(|over| over.prompts).last();
        let prompts = prompts
            .or(entry.prompts.as_ref().map(|prompts| prompts.value))
            .unwrap_or_else(|| self.needed_prompts(&arrival));
        let sent = entry.workload(prompts).ok().flatten();
        let mut workload = sent.expect("a scenario without a data set is refused before");
        workload.path = entry.path.as_ref().map(|path| path.value.clone()).or_else(|| {
            let own = self.matrix.datasets.get(workload.facts().file?.key);
            own.map(|path| path.value.clone())
        });
        let has_checks = workload.facts().has_checks;
        let defaults = LoadLimits::default();
        let request = entry.timeout.unwrap_or(defaults.request);
        Scenario {
            name: self.scenario.to_owned(),
            profile: self.matrix.profile,
            seed: entry.seed.unwrap_or(self.matrix.seed),
            workload,
            arrival,
            cancel: entry.cancel.as_ref().map(|cancel| cancel.value),
            limits: LoadLimits {
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
            slo: entry.slo.as_ref().and_then(|tiers| tiers.first().cloned()),
            further_tiers: entry
                .slo
                .iter()
                .flat_map(|tiers| tiers.iter().skip(1).cloned())
                .collect(),
            search: entry.search.as_ref().map(|search| search.value.clone()),
            body: entry.body.0.clone(),
            check_answers: entry
                .check_answers
                .as_ref()
                .map_or(has_checks, |check| check.value),
            stop_at_eos: entry.stop_at_eos || has_checks,
            keep_text: entry.keep_text,
            lora: entry.lora.clone(),
            pacing: entry.pacing(),
            connections: entry.load_connections(),
            quality: self
                .matrix
                .quality
                .as_ref()
                .filter(|_| entry.quality.unwrap_or(true))
                .map(|quality| quality.value.resolve()),
        }
    }
}

/// Sets the duration of a ramp to that of the measurement, if the ramp has none of its own.
fn with_duration(pace: RateProfile, duration: Option<HumanDuration>) -> RateProfile {
    match pace {
        RateProfile::Ramp(ramp) => RateProfile::Ramp(Ramp {
            over: ramp.over.or(duration),
            ..ramp
        }),
        stages @ RateProfile::Stages(_) => stages,
    }
}
