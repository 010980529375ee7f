//! Facts that users declare about measurements because files lack them, by flags of `matrix import` or in a
//! file beside the imported one.

use serde::Deserialize;

use super::names;
use super::{About, Found, Title};

/// The declared facts of all measurements of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Declared {
    pub engine: Option<String>,
    pub version: Option<String>,
    pub gpus: Option<u32>,
    /// The name of the GPU.
    pub gpu: Option<String>,
    pub precision: Option<String>,
    pub model: Option<String>,
}

impl Declared {
    /// Fills missing facts from `other`.
    pub(crate) fn or(self, other: Self) -> Self {
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
    pub(super) fn complete(&self, found: &mut Found) {
        let line = match found.started.line {
            0 => found.line,
            line => line,
        };
        for (what, declared, told) in self.contradictions(found) {
            let says = format!("{what} `{declared}` is declared, and the file says `{told}`");
            found.warn(line, About::Declared, says);
        }
        if found.engine.is_none() {
            found.engine = self.engine.clone().map(|name| Title { name, version: None });
        }
        if let Some(title) = found.engine.as_mut() {
            title.version = title.version.take().or_else(|| self.version.clone());
        }
        let (asked, started) = (&mut found.asked, &mut found.started);
        let is_told = asked.model.is_some() || started.model.is_some() || found.heading.is_some();
        if !is_told {
            started.model.clone_from(&self.model);
        }
        let model = asked.model.as_ref().or(started.model.as_ref());
        let stored = model.and_then(|model| names::model(model).1);
        if started.precision.is_none() && stored.is_none() {
            started.precision.clone_from(&self.precision);
        }
    }

    /// Facts that the file contradicts: name, declared value, value in the file.
    fn contradictions(&self, found: &Found) -> Vec<(&'static str, String, String)> {
        let (asked, started) = (&found.asked, &found.started);
        let title = found.engine.as_ref();
        let model = asked.model.as_deref().or(started.model.as_deref());
        let stored = model.and_then(|told| names::model(told).1);
        let precision = started.precision.as_ref().or(stored.as_ref());
        // The minimum number of GPUs: data-parallel ranks may share GPUs with tensor-parallel ranks.
        let devices = started
            .tp
            .map(|tp| (tp * started.pp.unwrap_or(1)).max(started.dp.unwrap_or(1)));
        let mut all = Vec::new();
        let mut hold =
            |what, declared: Option<&str>, told: Option<&str>, is_same: &dyn Fn(&str, &str) -> bool| {
                if let (Some(declared), Some(told)) = (declared, told)
                    && !is_same(declared, told)
                {
                    all.push((what, declared.to_owned(), told.to_owned()));
                }
            };
        let engine = title.map(|title| title.name.as_str());
        hold("engine", self.engine.as_deref(), engine, &|declared, told| {
            names::slug(declared) == names::slug(told)
        });
        let version = title.and_then(|title| title.version.as_deref());
        hold("version", self.version.as_deref(), version, &|declared, told| {
            names::bare(declared) == names::bare(told)
        });
        // Engines differ in whether data-parallel ranks have their own GPUs.
        let has_ranks = started.dp.is_some_and(|dp| dp > 1);
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
            &|declared, told| {
                let declared = names::precision(declared);
                // Other words of a server, such as `compressed-tensors`, name no precision.
                !names::is_precision(told)
                    || names::precision(told) == declared
                    || stored.as_ref() == Some(&declared)
            },
        );
        hold("model", self.model.as_deref(), model, &|declared, told| {
            let [one, other] = [declared, told].map(|name| names::short(&names::model(name).0));
            one == other || names::is_path(told) && !names::are_kin(&one, &other)
        });
        all
    }
}
