use super::*;
use crate::base::ids::{ContentHash, LaunchId};
use crate::config::engine::{Recipe, Recipes};
use crate::config::matrix::Matrix;
use crate::config::yaml::{Source, read};
use crate::plan::expand;
use crate::results::record::cell::Origin;
use crate::results::record::graded::GradedAnswers;

/// A finished measurement with these outcomes of one task.
pub(in crate::analysis::graded) fn measurement(
    cell: &str,
    start: u32,
    outcomes: &str,
    items: &str,
) -> MeasurementSummary {
    let correct = outcomes.chars().filter(|outcome| *outcome == '1').count() as u32;
    let score = TaskScore {
        task: "copy".to_owned(),
        items: outcomes.len() as u32,
        correct,
        outcomes: outcomes.to_owned(),
        items_hash: Some(ContentHash::from_bytes(items.as_bytes())),
        ..TaskScore::default()
    };
    MeasurementSummary {
        start,
        status: MeasurementStatus::Done,
        graded: Some(GradedAnswers {
            tasks: vec![score],
            probes: None,
            concurrency: None,
            load_s: 1.0,
            alone_s: 1.0,
        }),
        validity: Some(Validity::default()),
        ..MeasurementSummary::new(
            key(cell),
            ContentHash::from_bytes(b""),
            LaunchId::new("launch"),
            Origin::Measured,
        )
    }
}

/// The plan of a matrix with these engines, of which the first is the reference.
pub(in crate::analysis::graded) fn plan(engines: &[&str]) -> Plan {
    let entries: Vec<String> = engines
        .iter()
        .map(|name| format!("  - sim: {{ as: {name}, variant: vllm }}\n"))
        .collect();
    let text = format!(
        "name: t\nengines:\n{}models: [m]\nscenarios: [sharegpt]\nquality: {{ tasks: [copy], reference: {} }}\n",
        entries.concat(),
        engines[0]
    );
    let (matrix, wrong) = read::<Matrix>(&Source::new("m.yaml", text));
    assert!(wrong.is_empty(), "{wrong:?}");
    let recipe = include_str!("../../../../engines/sim.yaml");
    let recipe = read::<Recipe>(&Source::new("sim.yaml", recipe)).0.unwrap();
    expand(&matrix.unwrap(), &Recipes::from([("sim".to_owned(), recipe)])).unwrap()
}

/// The key of the cell of an engine.
pub(in crate::analysis::graded) fn key(engine: &str) -> CellKey {
    plan(&[engine]).cells[0].key.clone()
}

fn codes(summary: &MeasurementSummary) -> Vec<ReasonCode> {
    let reasons = summary.validity.iter().flat_map(|validity| &validity.reasons);
    reasons.map(|reason| reason.code).collect()
}

#[test]
fn a_reference_with_which_no_loss_can_be_found_is_none() {
    let few = format!("{}{}", "1".repeat(3), "0".repeat(97));
    let (all, none) = ("1".repeat(100), "0".repeat(100));
    let plan = plan(&["reference", "other"]);
    let result = |reference: &str, other: &str, edit: &dyn Fn(&mut TaskScore)| {
        let mut first = measurement("reference", 1, reference, "items");
        edit(&mut first.graded.as_mut().unwrap().tasks[0]);
        let run = [first, measurement("other", 1, other, "items")];
        compare_answers(&plan, &run, None)
            .remove(0)
            .result
            .err()
            .unwrap_or_default()
    };
    let no_edit = |_: &mut TaskScore| ();
    // All that the reference answers right is lost, and chance explains it.
    assert!(
        result(&few, &none, &no_edit)
            .contains("3.0 % of 100 items correctly: these are too few correct answers to find a loss")
    );
    assert_eq!(result(&all, &all, &no_edit), "");
    assert!(
        result(&all, &all, &|score| score.failed = 51)
            .contains("51 of 100 requests to the reference engine failed")
    );
    for edit in [
        &(|score: &mut TaskScore| score.correct = 58) as &dyn Fn(&mut TaskScore),
        &|score| score.items = 101,
        &|score| score.outcomes.truncate(20),
    ] {
        assert!(result(&all, &all, edit).contains("contradict the counts"));
    }
}

#[test]
fn worse_answers_are_invalid_and_equal_ones_have_a_note() {
    let (all, most) = ("1".repeat(100), format!("{}{}", "0".repeat(12), "1".repeat(88)));
    let run = [
        measurement("reference", 1, &all, "items"),
        measurement("worse", 1, &most, "items"),
        measurement("equal", 1, &all, "items"),
        measurement("better", 1, &all, "items"),
    ];
    let plan = plan(&["reference", "worse", "equal", "better"]);
    let judged = judge_against_references(&plan, &run, None);
    let found: Vec<(CellKey, Vec<ReasonCode>)> = judged
        .iter()
        .map(|summary| (summary.cell.clone(), codes(summary)))
        .collect();
    let note = || vec![ReasonCode::AnswersCompared];
    let expected = [
        (key("worse"), vec![ReasonCode::AnswersWorseThanReference]),
        (key("equal"), note()),
        (key("better"), note()),
    ];
    assert_eq!(found, expected);
    assert!(judged[0].is_invalid() && !judged[1].is_invalid());
    let measured = &judged[0].validity.as_ref().unwrap().reasons[0].measured;
    assert!(
        measured.contains("copy, compared with `engine=reference,")
            && measured.contains(": the score changed by -12.0 points")
            && measured.contains("12 items lost and 0 gained of 100"),
        "{measured}"
    );
    // Judged again, nothing changes; without a reference the reasons go.
    let again = [
        run[0].clone(),
        judged[0].clone(),
        judged[1].clone(),
        judged[2].clone(),
    ];
    assert_eq!(judge_against_references(&plan, &again, None), []);
    let without = judge_against_references(&Plan::empty("small"), &again, None);
    assert_eq!(without, run[1..]);
}

#[test]
fn what_cannot_be_compared_says_why_and_is_suspect() {
    let plan = plan(&["reference", "cell"]);
    let reason = |run: &[MeasurementSummary]| -> String {
        let judged = judge_against_references(&plan, run, None);
        let reason = &judged[0].validity.as_ref().unwrap().reasons[0];
        assert_eq!(
            (reason.code, reason.weight),
            (ReasonCode::AnswersNotCompared, Verdict::Suspect)
        );
        reason.measured.clone()
    };
    let cell = measurement("cell", 1, "1111", "items");
    assert!(reason(std::slice::from_ref(&cell)).contains("no graded measurement"));
    let other = measurement("reference", 1, "1111", "other items");
    assert!(reason(&[other, cell.clone()]).contains("the items differ"));
    let unknown = measurement("reference", 1, "----", "items");
    assert!(reason(&[unknown, cell.clone()]).contains("no item was graded on both sides"));
    let mut old = measurement("reference", 1, "1111", "items");
    if let Some(graded) = &mut old.graded {
        graded.tasks[0].items_hash = None;
    }
    assert!(reason(&[old, cell.clone()]).contains("older version"));
    let mut wrong = measurement("reference", 1, "0000", "items");
    let below = new_reason(ReasonCode::AnswersBelowMinimum, String::new(), None);
    wrong.validity = Some(Validity::from_reasons(vec![below]));
    assert!(reason(&[wrong, cell]).contains("answers-below-minimum"));
}

#[test]
fn starts_are_paired_in_order() {
    let plan = plan(&["reference", "cell"]);
    let right = "1".repeat(20);
    let measured =
        |cell, start, outcomes: &str| measurement(cell, start, &format!("{outcomes}{right}"), "items");
    let run = [
        measured("reference", 2, "1100"),
        measured("reference", 1, "1111"),
        measured("cell", 2, "1100"),
        measured("cell", 1, "1110"),
    ];
    let compared = compare_answers(&plan, &run, None).remove(0).result.unwrap();
    assert_eq!((compared.paired.items, compared.paired.measurements), (24, 2));
    assert_eq!((compared.paired.lost(), compared.paired.gained()), (1, 0));
    assert!((compared.paired.difference() + 1.0 / 48.0).abs() < 1e-12);
}

/// The answers of a start that nothing is paired with could be all wrong.
#[test]
fn starts_of_one_side_alone_and_ungraded_ones_are_not_passed_over() {
    let plan = plan(&["reference", "cell"]);
    let right = "1".repeat(20);
    let wrong = "0".repeat(20);
    let measured = |cell, start, outcomes: &str| measurement(cell, start, outcomes, "items");
    let run = [
        measured("reference", 1, &right),
        measured("cell", 1, &right),
        measured("cell", 2, &wrong),
    ];
    let why = |run: &[MeasurementSummary]| compare_answers(&plan, run, None).remove(0).result.unwrap_err();
    let text = why(&run);
    assert!(
        text.contains("the cell has 2 graded measurements, but the reference has 1"),
        "{text}"
    );
    // Nor are those of the reference: its first start may be its worst.
    let run = [
        measured("reference", 1, &wrong),
        measured("reference", 2, &right),
        measured("cell", 1, &wrong),
    ];
    let text = why(&run);
    assert!(
        text.contains("the cell has 1 graded measurement, but the reference has 2"),
        "{text}"
    );
    for (cell, expected) in [
        ("cell", "the answers of 1 of 2 measurements were not graded"),
        (
            "reference",
            "of the reference, the answers of 1 of 2 measurements were not graded",
        ),
    ] {
        let ungraded = MeasurementSummary {
            graded: None,
            ..measured(cell, 3, &right)
        };
        let run = [
            measured("reference", 1, &right),
            measured("cell", 1, &right),
            ungraded,
        ];
        assert_eq!(why(&run), expected);
    }
}

#[test]
fn the_baseline_of_a_night_is_named_in_words() {
    let comparison = |reference: &str| AnswerComparison {
        cell: key("cell"),
        run: None,
        reference: CellKey::new(reference.to_owned()),
        task: "copy".to_owned(),
        result: Err(String::new()),
    };
    let name = |reference| comparison(reference).reference_name();
    assert_eq!(name("engine=a,version=(baseline),model=m"), "the baseline");
    assert_eq!(name("engine=a,version=v1"), "`engine=a,version=v1`");
}

#[test]
fn a_reference_outside_of_the_plan_compares_nothing() {
    let mut plan = plan(&["reference", "cell"]);
    plan.cells.retain(|cell| cell.key != key("reference"));
    let run = [measurement("cell", 1, "1111", "items")];
    assert_eq!(judge_against_references(&plan, &run, None), []);
}

#[test]
fn answers_are_compared_with_copied_ones_of_a_stored_run_which_is_named() {
    let mut plan = plan(&["one", "other"]);
    plan.stored_reference = Some(crate::plan::StoredReference {
        run: "pinned".to_owned(),
        cells: Default::default(),
    });
    let pinned = CellKey::new("engine=pinned".to_owned());
    plan.answer_references = [key("one"), key("other")]
        .map(|cell| (cell, pinned.clone()))
        .into();
    let copied = |outcomes: &str| StoredAnswers {
        run: RunId::new("pinned-1"),
        cells: vec![crate::results::record::stored_answers::StoredCellAnswers {
            cell: pinned.clone(),
            measurements: measurement("pinned", 1, outcomes, "items")
                .graded
                .into_iter()
                .collect(),
        }],
    };
    let all = "1".repeat(100);
    let most = format!("{}{}", "0".repeat(12), "1".repeat(88));
    let run = [
        measurement("one", 1, &all, "items"),
        measurement("other", 1, &most, "items"),
    ];
    let judged = judge_against_references(&plan, &run, Some(&copied(&all)));
    assert_eq!(codes(&judged[0]), [ReasonCode::AnswersCompared]);
    assert_eq!(codes(&judged[1]), [ReasonCode::AnswersWorseThanReference]);
    let measured = &judged[1].validity.as_ref().unwrap().reasons[0].measured;
    assert!(
        measured.starts_with("copy, compared with `engine=pinned` of the stored run `pinned-1`: the score changed by -12.0 points"),
        "{measured}"
    );
    // Without the copy nothing is judged good.
    let judged = judge_against_references(&plan, &run, None);
    assert_eq!(codes(&judged[0]), [ReasonCode::AnswersNotCompared]);
}
