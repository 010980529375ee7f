use super::*;
use crate::config::engine::{Recipe, Recipes};
use crate::config::yaml::{Source, read};
use crate::plan::expand;

/// The plan of a matrix with these engines and `quality`, at two rates.
fn plan(engines: &[&str], quality: &str) -> Plan {
    let entries: Vec<String> = engines
        .iter()
        .map(|name| format!("  - sim: {{ as: {name}, variant: vllm }}\n"))
        .collect();
    let text = format!(
        "name: t\nengines:\n{}models: [m]\nscenarios: [sharegpt: {{ rate: [1, 2] }}]\n{quality}\n",
        entries.concat()
    );
    let (matrix, wrong) = read::<Matrix>(&Source::new("m.yaml", text));
    assert!(wrong.is_empty(), "{wrong:?}");
    let recipe = include_str!("../../../engines/sim.yaml");
    let recipe = read::<Recipe>(&Source::new("sim.yaml", recipe)).0.unwrap();
    expand(&matrix.unwrap(), &Recipes::from([("sim".to_owned(), recipe)])).unwrap()
}

fn pair(reference: &str, tasks: &str, stored: &Plan) -> Result<BTreeMap<CellKey, CellKey>, String> {
    let plan = plan(
        &["new", "newer"],
        &format!("quality: {{ tasks: [{tasks}], reference: {{ run: old{reference} }} }}"),
    );
    assert_eq!(plan.answer_references, BTreeMap::new());
    let reference = plan.stored_reference.as_ref().unwrap();
    reference.pair(&plan, stored).map_err(|error| error.to_string())
}

#[test]
fn every_graded_cell_is_paired_with_the_stored_one_of_its_model_and_load() {
    let stored = plan(&["old"], "quality: { tasks: [copy] }");
    let pairs = pair("", "copy", &stored).unwrap();
    assert_eq!(pairs.len(), 4);
    for (ours, theirs) in pairs {
        let rate = |key: &CellKey| key.as_str().rsplit("rate=").next().unwrap().to_owned();
        assert!(theirs.as_str().starts_with("engine=old,"), "{theirs}");
        assert_eq!(rate(&ours), rate(&theirs));
    }
    let several = plan(&["old", "other"], "quality: { tasks: [copy] }");
    let pairs = pair(", engine: other", "copy", &several).unwrap();
    assert!(
        pairs
            .values()
            .all(|key| key.as_str().starts_with("engine=other,"))
    );
    assert_eq!(pairs.len(), 4);
}

#[test]
fn what_cannot_be_paired_is_refused_with_the_fix() {
    let graded = |tasks: &str| plan(&["old", "other"], &format!("quality: {{ tasks: [{tasks}] }}"));
    let mut one_rate = plan(&["old"], "quality: { tasks: [copy] }");
    one_rate.cells.truncate(1);
    let old = ", engine: old";
    for (reference, tasks, stored, error) in [
        (old, "copy", plan(&["old"], ""), "no graded cell"),
        ("", "copy", graded("copy"), "`reference: { run: …, engine: old }`"),
        (
            ", engine: vllm",
            "copy",
            graded("copy"),
            "selects none of the graded cells of the stored run: `engine=old,",
        ),
        (
            old,
            "copy",
            one_rate,
            "no graded cell with the model and load of `engine=new,",
        ),
        (
            old,
            "copy, json",
            graded("copy"),
            "answered other items of the task `json` than",
        ),
        (
            old,
            "copy: { items: 9 }",
            graded("copy"),
            "100 instead of 9 items",
        ),
        (
            old,
            "copy: { input_len: 9, max_tokens: 152 }",
            graded("copy"),
            "60 instead of 9 tokens",
        ),
        (
            old,
            "copy: { max_tokens: 9 }",
            graded("copy"),
            "at most 152 instead of 9 tokens",
        ),
        (
            old,
            "mine: { path: a, grader: exact }",
            graded("mine: { path: b, grader: choice }"),
            "another grader",
        ),
    ] {
        let found = pair(reference, tasks, &stored).unwrap_err();
        assert!(
            found.contains(error) && found.contains("= help: "),
            "{tasks}: {found}"
        );
    }
    // The content of files is compared when the answers are.
    let file = "mine: { path: b, grader: exact }";
    assert!(pair(old, "mine: { path: a, grader: exact }", &graded(file)).is_ok());
    let mut seeded = graded("copy");
    for cell in &mut seeded.cells {
        cell.scenario.seed = 7;
    }
    assert!(
        pair(old, "copy", &seeded)
            .unwrap_err()
            .contains("with the seed 7 instead of")
    );
}
