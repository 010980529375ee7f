//! What a valid plan may have got wrong, as notes: none of them stops a run.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::engine::Recipes;
use crate::config::yaml::backtick_list;
use crate::plan::{Engine, Launch, Plan};

/// The notes on a plan, each once, in the order of its launches.
pub(crate) fn notes(plan: &Plan, recipes: &Recipes) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    let of_launches = plan
        .launches
        .iter()
        .flat_map(|launch| joined_arguments(launch).chain(version_without_letter(launch, recipes)));
    for note in of_launches.chain(different_builds(plan)) {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

/// Notes arguments that hold a flag and its value in one item: the engine gets them as one word, and refuses it.
fn joined_arguments(launch: &Launch) -> impl Iterator<Item = String> {
    let command = launch.place.settings().command().unwrap_or_default();
    let joined = command.iter().map(|word| word.as_str()).filter(|word| {
        let flag = word.split_whitespace().next().unwrap_or_default();
        flag.len() > 2 && flag.starts_with("--") && flag != *word && !flag.contains('=')
    });
    joined.map(|word| {
        let items: Vec<&str> = word.split_whitespace().collect();
        format!(
            "note: `{}` gets `{word}` as one argument; write a list item for each word ({}), or all arguments as one text",
            launch.engine.name,
            backtick_list(items)
        )
    })
}

/// Notes a version that is the tag of an image, if the recipe writes versions with a `v` and the matrix does not.
fn version_without_letter(launch: &Launch, recipes: &Recipes) -> Option<String> {
    let is_number = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
    let Engine { recipe, version, .. } = &launch.engine;
    let (version, image) = (version.as_deref()?, launch.place.settings().image()?);
    let usual = recipes.get(recipe)?.version.as_deref()?;
    let differs = is_number(version) && usual.strip_prefix('v').is_some_and(is_number);
    (differs && image.ends_with(&format!(":{version}"))).then(|| {
        format!(
            "note: the image is `{image}`, and the tags of `{recipe}` usually begin with `v`: did you mean `v{version}`?"
        )
    })
}

/// Notes versions of an engine whose images differ by more than the version, such as by the CUDA release.
fn different_builds(plan: &Plan) -> impl Iterator<Item = String> {
    let mut images: BTreeMap<&str, BTreeMap<String, BTreeSet<&str>>> = BTreeMap::new();
    for launch in &plan.launches {
        let Engine { recipe, version, .. } = &launch.engine;
        if let (Some(version), Some(image)) = (version, launch.place.settings().image())
            && image.contains(version.as_str())
        {
            let build = image.replace(version.as_str(), "{version}");
            images
                .entry(recipe)
                .or_default()
                .entry(build)
                .or_default()
                .insert(image);
        }
    }
    images.into_iter().filter(|(_, builds)| builds.len() > 1).map(|(recipe, builds)| {
        let examples = builds.values().filter_map(|images| images.first().copied());
        format!(
            "note: the images of `{recipe}` differ in more than the version: {}; different results may come from the build, such as \
             another CUDA release",
            backtick_list(examples)
        )
    })
}

#[cfg(test)]
mod tests {
    use crate::config::engine::Recipes;
    use crate::config::matrix::Matrix;
    use crate::config::yaml::{self, Source};
    use crate::plan::{expand, notes};

    fn recipe(name: &str) -> (String, crate::config::engine::Recipe) {
        let path = format!("{}/engines/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
        let source = Source::new(path.clone(), std::fs::read_to_string(path).unwrap());
        (name.to_owned(), yaml::read(&source).0.unwrap())
    }

    fn notes_on(engines: &str) -> Vec<String> {
        let recipes: Recipes = ["vllm", "sglang"].map(recipe).into();
        let text = format!("name: n\nengines: [{engines}]\nmodels: [m]\nscenarios: [sharegpt]\n");
        let matrix: Matrix = yaml::read(&Source::new("n.yaml".to_owned(), text)).0.unwrap();
        notes::notes(&expand(&matrix, &recipes).unwrap(), &recipes)
    }

    #[test]
    fn a_flag_with_its_value_in_one_item_is_noted_once() {
        let notes = notes_on("{vllm: {args: [--block-size 16], axes: {tp: [1, 2]}}}");
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(
            notes[0].contains("`--block-size 16` as one argument"),
            "{notes:?}"
        );
        assert_eq!(notes_on("{vllm: {args: [--block-size, '16']}}"), [""; 0]);
        assert_eq!(notes_on("{vllm: {args: ['--json={\"a\": 1}']}}"), [""; 0]);
    }

    #[test]
    fn a_tag_without_its_letter_is_noted() {
        let notes = notes_on("{vllm: {version: 0.10.1}}");
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].ends_with("did you mean `v0.10.1`?"), "{notes:?}");
        assert_eq!(notes_on("{vllm: {version: v0.10.1}}"), [""; 0]);
        assert_eq!(notes_on("{vllm: {version: nightly}}"), [""; 0]);
        assert_eq!(notes_on("{vllm: {version: 0.10.1, executor: process}}"), [""; 0]);
    }

    #[test]
    fn versions_of_different_builds_are_noted() {
        let notes = notes_on("{sglang: {version: [v0.5.1, v0.5.3]}}");
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(
            notes[0].contains("`lmsysorg/sglang:v0.5.3` and `lmsysorg/sglang:v0.5.1-cu126`"),
            "{notes:?}"
        );
        assert_eq!(notes_on("{sglang: {version: [v0.5.3, v0.5.4]}}"), [""; 0]);
    }
}
