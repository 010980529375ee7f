//! Whole comparisons of sides.

use std::collections::BTreeMap;

use super::cells::{self, Comparison, Outcome, Terms};
use super::fingerprint::Kind;
use super::verdict::Verdict;
use crate::base::ids::{CellKey, ContentHash, RunId};
use crate::results::record::cell::Origin;
use crate::results::record::side::{Cause, Excluded, Noise, Side, SideCell, Varies};

const FIGURE: &str = "output_throughput_tok_s";

fn cell(key: &str, starts: &[f64]) -> (CellKey, SideCell) {
    let axes = key.split(',').map(|part| part.split_once('=').unwrap());
    let side_cell = SideCell {
        axes: axes
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        content: ContentHash::of_bytes(b"content"),
        asked: BTreeMap::new(),
        engine: BTreeMap::new(),
        prompts: Some(ContentHash::of_bytes(b"prompts")),
        clock_mhz: None,
        capped_share: None,
        one_token_share: None,
        attached: false,
        devices: 1,
        requests: Some(100),
        origin: Origin::Measured,
        gates: vec![FIGURE.to_owned()],
        figures: BTreeMap::from([(
            FIGURE.to_owned(),
            starts.iter().map(|value| vec![*value]).collect(),
        )]),
        intervals: BTreeMap::new(),
        excluded: Vec::new(),
    };
    (CellKey::new(key), side_cell)
}

fn side(cells: impl IntoIterator<Item = (CellKey, SideCell)>) -> Side {
    Side {
        run: RunId::new("run"),
        matrix: "m".to_owned(),
        began: String::new(),
        tool: "matrix 1".to_owned(),
        machine: BTreeMap::from([("driver".to_owned(), "550".to_owned())]),
        cells: cells.into_iter().collect(),
    }
}

fn judged(first: &Side, second: &Side) -> Comparison {
    cells::compare(
        first,
        second,
        &Terms {
            floor: 0.02,
            noise: None,
            across: false,
        },
    )
}

const LEVEL: [f64; 5] = [100.0, 100.6, 99.5, 100.2, 99.8];

fn low() -> [f64; 5] {
    LEVEL.map(|value| value * 0.94)
}

#[test]
fn the_cell_that_lost_is_worse_and_the_other_is_the_same() {
    let first = side([cell("model=a", &LEVEL), cell("model=b", &LEVEL)]);
    let second = side([cell("model=a", &low()), cell("model=b", &LEVEL)]);
    let found = judged(&first, &second);
    let said: Vec<&str> = found.rows.iter().map(|row| row.outcome.word()).collect();
    assert_eq!(said, ["worse", "same"]);
    assert_eq!(found.count(Verdict::Worse), 1);
    assert!(found.differences.is_empty() && found.unpaired.is_empty());
}

#[test]
fn one_start_a_side_is_unclear_and_says_why() {
    let found = judged(
        &side([cell("model=a", &[100.0])]),
        &side([cell("model=a", &[50.0])]),
    );
    let Outcome::Judged(Verdict::Unclear, why) = &found.rows[0].outcome else {
        panic!("{found:?}")
    };
    assert!(why.starts_with("n = 1 against 1 starts"), "{why}");
}

#[test]
fn a_changed_driver_is_an_event_and_no_regression() {
    let first = side([cell("model=a", &LEVEL)]);
    let mut second = side([cell("model=a", &low())]);
    second.machine.insert("driver".to_owned(), "560".to_owned());
    let found = judged(&first, &second);
    assert_eq!(found.differences[0].0.told(), "environment driver: 550 → 560");
    assert_eq!(found.rows[0].outcome.verdict(), Some(Verdict::Unclear));
    assert!(
        found.rows[0]
            .outcome
            .reason()
            .ends_with("environment driver: 550 → 560"),
        "{found:?}"
    );
    let across = cells::compare(
        &first,
        &second,
        &Terms {
            floor: 0.02,
            noise: None,
            across: true,
        },
    );
    assert_eq!(across.rows[0].outcome.verdict(), Some(Verdict::Worse));
}

#[test]
fn another_engine_build_is_what_comparisons_are_for_and_other_prompts_are_not() {
    let first = side([cell("model=a", &LEVEL)]);
    let mut second = side([cell("model=a", &low())]);
    let changed = second.cells.values_mut().next().unwrap();
    changed.engine.insert("image".to_owned(), "sha256:2".to_owned());
    let found = judged(&first, &second);
    assert_eq!(found.differences[0].0.kind, Kind::Engine);
    assert_eq!(found.rows[0].outcome.verdict(), Some(Verdict::Worse));
    second.cells.values_mut().next().unwrap().prompts = Some(ContentHash::of_bytes(b"others"));
    assert_eq!(
        judged(&first, &second).rows[0].outcome.verdict(),
        Some(Verdict::Unclear)
    );
}

#[test]
fn another_precision_is_another_question() {
    let first = side([asking("bf16")]);
    let second = side([asking("fp8")]);
    let found = judged(&first, &second);
    assert_eq!(found.rows[0].outcome.verdict(), Some(Verdict::Unclear));
    let reason = found.rows[0].outcome.reason();
    assert!(reason.contains("load precision: bf16 → fp8"), "{reason}");
    // A baseline that was kept before such things were does not know.
    let old = side([cell("model=a", &LEVEL)]);
    assert_eq!(
        judged(&old, &side([asking("fp8")])).rows[0].outcome.verdict(),
        Some(Verdict::Same)
    );
}

fn asking(precision: &str) -> (CellKey, SideCell) {
    let (key, mut cell) = cell("model=a", &LEVEL);
    cell.asked.insert("precision".to_owned(), precision.to_owned());
    (key, cell)
}

#[test]
fn a_percentile_is_told_with_what_requests_alone_leave_open() {
    let name = "p99_ttft_ms";
    let with = |key: &str, bounds: &[[f64; 2]]| {
        let (key, mut cell) = cell(key, &[]);
        cell.gates = vec![name.to_owned()];
        cell.requests = Some(1000);
        cell.figures = BTreeMap::from([(name.to_owned(), LEVEL.iter().map(|value| vec![*value]).collect())]);
        cell.intervals = BTreeMap::from([(name.to_owned(), bounds.to_vec())]);
        (key, cell)
    };
    let first = side([with("model=a", &[[90.0, 110.0], [80.0, 120.0], [95.0, 130.0]])]);
    let second = side([with("model=a", &[])]);
    let found = judged(&first, &second);
    assert_eq!(found.rows[0].known, [Some([90.0, 120.0]), None]);
}

#[test]
fn an_invalid_cell_is_named_and_has_no_verdict() {
    let first = side([cell("model=a", &LEVEL)]);
    let (key, mut broken) = cell("model=a", &[]);
    broken.figures.clear();
    broken.excluded.push(Excluded {
        start: 1,
        repeat: 1,
        cause: Cause::Invalid,
        reason: "client-late (40 ms against 1 ms)".to_owned(),
    });
    let found = judged(&first, &side([(key, broken)]));
    assert_eq!(found.rows[0].outcome.verdict(), None);
    assert_eq!(found.rows[0].outcome.word(), "invalid");
    assert!(found.rows[0].outcome.reason().contains("client-late"));
    assert_eq!(found.count(Verdict::Worse), 0);
}

#[test]
fn cells_that_differ_in_the_version_alone_are_held_against_each_other() {
    let first = side([
        cell("engine=x,version=1,model=a", &LEVEL),
        cell("engine=x,version=1,model=b", &LEVEL),
    ]);
    let second = side([
        cell("engine=x,version=2,model=a", &low()),
        cell("engine=y,version=2,model=b", &LEVEL),
    ]);
    let found = judged(&first, &second);
    assert_eq!(found.rows.len(), 1);
    assert_eq!(found.rows[0].cell.as_str(), "engine=x,version=2,model=a");
    assert_eq!(found.unpaired.len(), 2, "{:?}", found.unpaired);
}

#[test]
fn noise_of_the_machine_raises_the_floor() {
    let first = side([cell("model=a", &LEVEL)]);
    let second = side([cell("model=a", &low())]);
    let varies = Varies {
        at: String::new(),
        starts: 10,
        per_start: 1,
        start_share: 0.04,
        between_share: 0.04,
        within_share: None,
        difference_share: 0.0,
    };
    let noise = Noise {
        machine: BTreeMap::new(),
        cells: BTreeMap::from([(
            CellKey::new("model=a"),
            BTreeMap::from([(FIGURE.to_owned(), varies)]),
        )]),
    };
    let found = cells::compare(
        &first,
        &second,
        &Terms {
            floor: 0.02,
            noise: Some(&noise),
            across: false,
        },
    );
    let row = &found.rows[0];
    assert!(row.is_noise_known && row.floor > 0.08, "{}", row.floor);
    assert_eq!(row.outcome.verdict(), Some(Verdict::Same));
}
