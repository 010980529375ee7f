//! What a matrix can name on this host: engines with a recipe, and data sets with their files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::config::dataset::DatasetName;
use crate::config::engine::Recipe;
use crate::config::shipped;
use crate::config::yaml;
use crate::loadgen::dataset::{self, Caches};
use crate::runner::load_matrix;

/// An engine with a recipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownEngine {
    pub(crate) name: String,
    /// The file of the recipe.
    pub(crate) recipe: String,
    /// What the recipe says of the engine; `None` if it has errors.
    pub(crate) about: Option<EngineAbout>,
}

/// What a recipe says of its engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EngineAbout {
    pub(crate) title: String,
    /// The version that is measured where the matrix names none.
    pub(crate) version: Option<String>,
    pub(crate) executors: Vec<&'static str>,
    pub(crate) variants: Vec<String>,
}

/// All engines that a matrix in `folder` can name, by name.
pub(crate) fn engines(folder: &Path) -> Vec<KnownEngine> {
    let names: BTreeSet<String> = shipped::yaml_names("engines")
        .chain(load_matrix::local_recipes(folder))
        .collect();
    let known = names.into_iter().filter_map(|name| {
        let source = load_matrix::recipe_source(&name, folder)?;
        let (recipe, _) = yaml::read::<Recipe>(&source);
        Some(KnownEngine {
            name,
            recipe: source.name.to_string(),
            about: recipe
                .map(Recipe::completed)
                .filter(Recipe::has_start)
                .map(|recipe| about(&recipe)),
        })
    });
    known.collect()
}

fn about(recipe: &Recipe) -> EngineAbout {
    EngineAbout {
        title: recipe.title.clone(),
        version: recipe.version.clone(),
        executors: recipe.executors.iter().map(|executor| executor.name()).collect(),
        variants: recipe.variants.names().map(str::to_owned).collect(),
    }
}

/// A data set, and its file on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownDataset {
    pub(crate) name: DatasetName,
    pub(crate) file: DatasetFile,
}

/// The file that a data set reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DatasetFile {
    /// It reads none.
    NotNeeded,
    /// The published file, on this host.
    Found(PathBuf),
    /// `matrix fetch --dataset NAME` downloads it.
    Fetchable(DatasetName),
    /// The matrix names it with `path`.
    Named,
}

/// All data sets.
pub(crate) fn datasets(caches: &Caches) -> Vec<KnownDataset> {
    let known = DatasetName::ALL.iter().map(|name| KnownDataset {
        name: *name,
        file: dataset_file(*name, caches),
    });
    known.collect()
}

fn dataset_file(name: DatasetName, caches: &Caches) -> DatasetFile {
    let defaults = name.default_dataset();
    let Some(file) = defaults.facts().file else {
        return DatasetFile::NotNeeded;
    };
    let Some(published) = &file.default else {
        return DatasetFile::Named;
    };
    match (dataset::locate_published(published, caches), name.fetched_as()) {
        (Ok(path), _) => DatasetFile::Found(path),
        (Err(_), Some(name)) => DatasetFile::Fetchable(name),
        (Err(_), None) => DatasetFile::Named,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shipped_engines_and_own_ones_are_known_and_a_recipe_with_errors_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("engines")).unwrap();
        std::fs::write(folder.path().join("engines/mine.yaml"), "name: mine\n").unwrap();
        let engines = engines(folder.path());
        let named = |name: &str| engines.iter().find(|engine| engine.name == name).unwrap();
        assert_eq!(named("mine").about, None);
        assert!(named("mine").recipe.ends_with("engines/mine.yaml"));
        let vllm = named("vllm").about.as_ref().unwrap();
        assert_eq!(vllm.title, "vLLM");
        assert!(vllm.executors.contains(&"container"));
    }

    #[test]
    fn every_data_set_says_where_its_file_comes_from() {
        let home = tempfile::tempdir().unwrap();
        let caches = Caches {
            hf_home: Some(home.path().to_owned()),
            prompts: None,
        };
        let known = datasets(&caches);
        let file = |name| &known.iter().find(|known| known.name == name).unwrap().file;
        assert_eq!(file(DatasetName::RandomIds), &DatasetFile::NotNeeded);
        assert_eq!(
            file(DatasetName::Sharegpt),
            &DatasetFile::Fetchable(DatasetName::Sharegpt)
        );
        assert_eq!(file(DatasetName::Custom), &DatasetFile::Named);
    }
}
