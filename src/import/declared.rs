//! Facts that users declare about measurements because files lack them, by flags of `matrix import` or in a
//! file beside the imported one.

use serde::Deserialize;

use super::names;
use super::result_block::{EngineTitle, ResultBlock, WarningSubject};

/// The declared facts of all measurements of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DeclaredFacts {
    pub(crate) engine: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) gpus: Option<u32>,
    /// The name of the GPU.
    pub(crate) gpu: Option<String>,
    pub(crate) precision: Option<String>,
    pub(crate) model: Option<String>,
}

impl DeclaredFacts {
    /// Fills missing facts from `other`.
    pub(crate) fn merged_with(self, other: Self) -> Self {
        Self {
            engine: self.engine.or(other.engine),
            version: self.version.or(other.version),
            gpus: self.gpus.or(other.gpus),
            gpu: self.gpu.or(other.gpu),
            precision: self.precision.or(other.precision),
            model: self.model.or(other.model),
        }
    }

    /// Adds declared facts that the file lacks, and warns about those that contradict the file.
    pub(super) fn apply_to(&self, result: &mut ResultBlock) {
        let line = match result.launch_info.line {
            0 => result.line,
            line => line,
        };
        for (what, declared, in_file) in self.contradictions(result) {
            let message =
                format!("the declared {what} is `{declared}`, but the imported file says `{in_file}`");
            result.warn(line, WarningSubject::Declared, message);
        }
        if result.engine.is_none() {
            result.engine = self
                .engine
                .clone()
                .map(|name| EngineTitle { name, version: None });
        }
        if let Some(title) = result.engine.as_mut() {
            title.version = title.version.take().or_else(|| self.version.clone());
        }
        let (options, launch_info) = (&mut result.options, &mut result.launch_info);
        let is_told = options.model.is_some() || launch_info.model.is_some() || result.heading.is_some();
        if !is_told {
            launch_info.model.clone_from(&self.model);
        }
        let model = options.model.as_ref().or(launch_info.model.as_ref());
        let stored = model.and_then(|model| names::model_and_precision(model).1);
        if launch_info.precision.is_none() && stored.is_none() {
            launch_info.precision.clone_from(&self.precision);
        }
    }

    /// Facts that the file contradicts: name, declared value, value in the file.
    fn contradictions(&self, result: &ResultBlock) -> Vec<(&'static str, String, String)> {
        let (options, launch_info) = (&result.options, &result.launch_info);
        let title = result.engine.as_ref();
        let model = options.model.as_deref().or(launch_info.model.as_deref());
        let stored = model.and_then(|in_file| names::model_and_precision(in_file).1);
        let precision = launch_info.precision.as_ref().or(stored.as_ref());
        // The minimum number of GPUs: data-parallel ranks may share GPUs with tensor-parallel ranks.
        let devices = launch_info.gpus.or_else(|| {
            let tp = launch_info.tp?;
            Some((tp * launch_info.pp.unwrap_or(1)).max(launch_info.dp.unwrap_or(1)))
        });
        let mut differences = Vec::new();
        let mut hold =
            |what, declared: Option<&str>, in_file: Option<&str>, is_same: &dyn Fn(&str, &str) -> bool| {
                if let (Some(declared), Some(in_file)) = (declared, in_file)
                    && !is_same(declared, in_file)
                {
                    differences.push((what, declared.to_owned(), in_file.to_owned()));
                }
            };
        let engine = title.map(|title| title.name.as_str());
        hold("engine", self.engine.as_deref(), engine, &|declared, in_file| {
            names::to_slug(declared) == names::to_slug(in_file)
        });
        let version = title.and_then(|title| title.version.as_deref());
        hold(
            "version",
            self.version.as_deref(),
            version,
            &|declared, in_file| names::without_v(declared) == names::without_v(in_file),
        );
        // Engines differ in whether data-parallel ranks have their own GPUs.
        let has_ranks = launch_info.dp.is_some_and(|dp| dp > 1);
        let are_gpus = |gpus: u32, devices: u32| gpus == devices || has_ranks && gpus > devices;
        let are_same = self
            .gpus
            .zip(devices)
            .is_none_or(|(gpus, devices)| are_gpus(gpus, devices));
        let [gpus, devices] = [self.gpus, devices].map(|count| count.map(|count| count.to_string()));
        hold("number of GPUs", gpus.as_deref(), devices.as_deref(), &|_, _| {
            are_same
        });
        hold(
            "precision",
            self.precision.as_deref(),
            precision.map(String::as_str),
            &|declared, in_file| {
                let declared = names::normalize_precision(declared);
                // Other words of a server, such as `compressed-tensors`, name no precision.
                !names::is_precision(in_file)
                    || names::normalize_precision(in_file) == declared
                    || stored.as_ref() == Some(&declared)
            },
        );
        hold("model", self.model.as_deref(), model, &|declared, in_file| {
            let [one, other] =
                [declared, in_file].map(|name| names::short_name(&names::model_and_precision(name).0));
            one == other || names::is_path(in_file) && !names::are_same_family(&one, &other)
        });
        differences
    }
}
