use super::*;
use crate::base::ids::{ContentHash, LaunchId};
use crate::results::record::cell::{MeasurementStatus, Origin};
use crate::results::record::stored_answers::StoredCellAnswers;
use crate::results::store::testing;

fn texts(texts: &[&str]) -> Vec<Option<String>> {
    texts
        .iter()
        .map(|text| (!text.is_empty()).then(|| (*text).to_owned()))
        .collect()
}

fn graded(under_load: &[&str], alone: &[&str], set: &str) -> GradedAnswers {
    GradedAnswers {
        tasks: Vec::new(),
        probes: Some(ProbeAnswers {
            probes_hash: ContentHash::from_bytes(set.as_bytes()),
            under_load: texts(under_load),
            alone: texts(alone),
        }),
        concurrency: None,
        load_s: 1.0,
        alone_s: 1.0,
    }
}

fn measurement(cell: &CellKey, start: u32, answers: GradedAnswers) -> MeasurementSummary {
    MeasurementSummary {
        start,
        status: MeasurementStatus::Done,
        graded: Some(answers),
        ..MeasurementSummary::new(
            cell.clone(),
            ContentHash::from_bytes(b""),
            LaunchId::new("launch"),
            Origin::Measured,
        )
    }
}

#[test]
fn identical_answers_and_common_beginnings_are_counted_where_both_have_a_text() {
    let agreement = Agreement::count(
        &texts(&["same", "äb12", "", "only one"]),
        &texts(&["same", "äbc", "x", ""]),
    );
    assert_eq!((agreement.probes, agreement.identical), (2, 1));
    assert_eq!(agreement.identical_share(), Some(0.5));
    assert_eq!(
        (agreement.common_characters(), agreement.characters()),
        (3.0, 4.0)
    );
    assert_eq!(Agreement::default().identical_share(), None);
}

#[test]
fn answers_are_compared_under_load_between_starts_and_with_the_reference() {
    let mut plan = testing::plan();
    let (reference, cell) = (plan.cells[0].key.clone(), plan.cells[1].key.clone());
    plan.answer_references = [(cell.clone(), reference.clone())].into();
    let run = [
        measurement(&reference, 1, graded(&["a", "b"], &["a", "x"], "set")),
        measurement(&cell, 1, graded(&["a", "b"], &["a", "b"], "set")),
        measurement(&cell, 2, graded(&["a", "y"], &["a", "c"], "set")),
        measurement(&cell, 3, graded(&["", "b"], &["a", "b"], "set")),
    ];
    let found = agreements(&plan, &run, None);
    assert_eq!(found[0].versus_reference, None);
    assert_eq!(found[0].between_starts, []);
    let of_cell = &found[1];
    let counts = |agreement: &Agreement| (agreement.probes, agreement.identical);
    assert_eq!(of_cell.measurements, 3);
    assert_eq!(counts(&of_cell.under_load), (5, 4));
    let between: Vec<_> = of_cell.between_starts.iter().map(counts).collect();
    assert_eq!(between, [(2, 1), (2, 2), (2, 1)]);
    assert_eq!(counts(&of_cell.all_starts()), (6, 4));
    let versus = of_cell.versus_reference.as_ref().unwrap();
    assert_eq!((versus.run.as_ref(), &versus.reference), (None, &reference));
    assert_eq!(counts(versus.result.as_ref().unwrap()), (2, 1));
}

#[test]
fn a_stored_reference_is_named_and_other_probes_are_not_compared() {
    let mut plan = testing::plan();
    let cell = plan.cells[0].key.clone();
    let pinned = CellKey::new("engine=pinned".to_owned());
    plan.answer_references = [(cell.clone(), pinned.clone())].into();
    plan.stored_reference = Some(crate::plan::StoredReference {
        run: "pinned".to_owned(),
        cells: Default::default(),
    });
    let stored = |set: &str| StoredAnswers {
        run: RunId::new("pinned-1"),
        cells: vec![StoredCellAnswers {
            cell: pinned.clone(),
            measurements: vec![graded(&["a"], &["a"], set)],
        }],
    };
    let run = [measurement(&cell, 1, graded(&["a"], &["a"], "set"))];
    let versus = |stored: &StoredAnswers| {
        let found = agreements(&plan, &run, Some(stored)).remove(0);
        found.versus_reference.unwrap()
    };
    let found = versus(&stored("set"));
    assert_eq!(found.run, Some(RunId::new("pinned-1")));
    assert_eq!(found.result.unwrap().identical_share(), Some(1.0));
    assert!(
        versus(&stored("other set"))
            .result
            .unwrap_err()
            .contains("probes of the two sides differ")
    );
}
