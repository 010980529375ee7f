//! What people know of measurements whose files do not tell it: flags of `matrix import`, or a file beside the one that is read.

use serde::Deserialize;

use super::names;
use super::{About, Found, Title};

/// What is declared of all measurements of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Declared {
    pub engine: Option<String>,
    pub version: Option<String>,
    /// How many GPUs it computed on.
    pub gpus: Option<u32>,
    /// Which kind of GPU.
    pub gpu: Option<String>,
    /// The precision of the weights.
    pub precision: Option<String>,
    pub model: Option<String>,
}

impl Declared {
    /// What is declared here, and where it is not, what is declared there.
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

    /// Gives a set of figures what its file does not tell, and warns where the file tells something else.
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

    /// What the file tells otherwise than it is declared: its name, what is declared, and what the file tells.
    fn contradictions(&self, found: &Found) -> Vec<(&'static str, String, String)> {
        let (asked, started) = (&found.asked, &found.started);
        let title = found.engine.as_ref();
        let model = asked.model.as_deref().or(started.model.as_deref());
        let stored = model.and_then(|told| names::model(told).1);
        let precision = started.precision.as_ref().or(stored.as_ref());
        // Each data-parallel rank has a device, which it may share with the ranks of tensor parallelism.
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
        // Engines differ in whether data-parallel ranks have devices of their own.
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
