use super::super::reference::tests::{key, measurement, plan};
use super::*;
use crate::config::quality::Task;

/// The plan of a run of both engines, of which `other` is the reference in the matrix.
fn graded_plan() -> Plan {
    plan(&["other", "engine"])
}

fn run<'a>(stored: Option<&'a RunId>, plan: &'a Plan, summaries: &'a [MeasurementSummary]) -> GradedRun<'a> {
    GradedRun {
        stored,
        plan,
        summaries,
    }
}

/// The comparison of the cell of `engine` with that of the baseline, which is a run of its own.
fn compare(
    plans: [&Plan; 2],
    baseline: &[MeasurementSummary],
    candidate: &[MeasurementSummary],
) -> Vec<AnswerComparison> {
    let name = RunId::new("before");
    let baseline = run(Some(&name), plans[0], baseline);
    let candidate = run(None, plans[1], candidate);
    let cell = candidate.cell(&key("engine")).unwrap();
    compare_sides(&[SidePair::new(cell, &key("engine"), Ok(baseline))])
}

fn why(compared: &[AnswerComparison]) -> String {
    let [compared] = compared else {
        panic!("one comparison is expected: {compared:?}");
    };
    compared.result.as_ref().unwrap_err().clone()
}

fn edited(edit: impl Fn(&mut Vec<Task>)) -> Plan {
    let mut plan = graded_plan();
    for cell in &mut plan.cells {
        if let Some(quality) = &mut cell.scenario.quality {
            edit(&mut quality.tasks);
        }
    }
    plan
}

#[test]
fn a_cell_is_compared_with_that_of_the_other_side_and_not_with_the_reference_of_its_matrix() {
    let plan = graded_plan();
    let (all, some) = ("1".repeat(60), format!("{}{}", "0".repeat(19), "1".repeat(41)));
    // The reference of the matrix is as bad as the candidate.
    let of_night = |outcomes: &str| {
        [
            measurement("other", 1, &some, "items"),
            measurement("engine", 1, outcomes, "items"),
        ]
    };
    let compared = compare([&plan, &plan], &of_night(&all), &of_night(&some));
    let [compared] = &compared[..] else {
        panic!("one comparison is expected: {compared:?}");
    };
    assert_eq!(compared.reference, key("engine"));
    assert_eq!(compared.run.as_ref().map(RunId::as_str), Some("before"));
    let result = compared.result.as_ref().unwrap();
    assert!(result.is_worse(), "{result:?}");
    assert_eq!((result.paired.lost(), result.paired.gained()), (19, 0));
}

#[test]
fn sides_that_cannot_be_compared_say_why() {
    let plan = graded_plan();
    let all = "1".repeat(60);
    let night = [measurement("engine", 1, &all, "items")];
    assert_eq!(
        why(&compare([&plan, &plan], &[], &night)),
        "the baseline has no graded measurement"
    );
    assert_eq!(
        why(&compare([&plan, &plan], &night, &[])),
        "the candidate has no graded measurement"
    );
    let other = [measurement("engine", 1, &all, "other items")];
    assert!(why(&compare([&plan, &plan], &other, &night)).contains("the items differ"));
    let shorter = edited(|tasks| tasks[0].max_tokens += 1);
    assert!(
        why(&compare([&shorter, &plan], &night, &night))
            .contains("graded in another way: answers have at most")
    );
}

#[test]
fn answers_that_only_one_side_graded_are_named_and_those_of_neither_are_not() {
    let (plan, ungraded) = (graded_plan(), edited(Vec::clear));
    let all = "1".repeat(60);
    let night = [measurement("engine", 1, &all, "items")];
    assert_eq!(
        why(&compare([&ungraded, &plan], &[], &night)),
        "the answers of only one side were graded, those of the baseline were not"
    );
    assert_eq!(
        why(&compare([&plan, &ungraded], &night, &[])),
        "the answers of only one side were graded, those of the candidate were not"
    );
    assert_eq!(compare([&ungraded, &ungraded], &[], &[]), []);
    // A run of the baseline that is gone has no answers.
    let candidate = run(None, &plan, &night);
    let cell = candidate.cell(&key("engine")).unwrap();
    let gone = SidePair::new(cell, &key("engine"), Err("it is gone".to_owned()));
    assert_eq!(why(&compare_sides(&[gone])), "it is gone");
}
