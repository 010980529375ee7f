//! Tests of whole comparisons.

use std::collections::BTreeMap;

use super::arms;
use super::decision::{NoVerdict, Outcome};
use super::difference::DifferenceKind;
use super::machines;
use super::pairwise::{self, CompareOptions, Comparison};
use super::verdict::Verdict;
use crate::base::ids::{CellKey, ContentHash, RunId};
use crate::results::record::cell::Origin;
use crate::results::record::cell_stats::{
    CellStats, ExcludedMeasurement, ExclusionCause, Facts, Noise, NoiseEstimate, RunStats,
};
use crate::results::record::prompt::MeanPromptTokens;

const FIGURE: &str = "output_throughput_tok_s";

fn cell(key: &str, starts: &[f64]) -> (CellKey, CellStats) {
    let axes = key.split(',').map(|part| part.split_once('=').unwrap());
    let side_cell = CellStats {
        axes: axes
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        content: ContentHash::from_bytes(b"content"),
        asked: BTreeMap::new(),
        limits: BTreeMap::new(),
        engine: BTreeMap::new(),
        hosts: Vec::new(),
        settings: BTreeMap::new(),
        load: None,
        prompts: Some(ContentHash::from_bytes(b"prompts")),
        clock_mhz: None,
        capped_share: None,
        one_token_share: None,
        loop_share: None,
        canned_share: None,
        tokens_per_counted: None,
        tokens_per_event: None,
        vision_tokens: None,
        prompt_tokens: None,
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
        replaced: Vec::new(),
        launch: None,
        first_stage: None,
        resolutions: BTreeMap::new(),
        no_ratio: BTreeMap::new(),
        no_verdict: BTreeMap::new(),
        answer_tokens: None,
        suspect: Vec::new(),
        tried: None,
    };
    (CellKey::new(key), side_cell)
}

fn side(cells: impl IntoIterator<Item = (CellKey, CellStats)>) -> RunStats {
    RunStats {
        run: RunId::new("run"),
        matrix: "m".to_owned(),
        began: String::new(),
        tool: "matrix 1".to_owned(),
        machine: BTreeMap::from([("driver".to_owned(), "550".to_owned())]),
        cells: cells.into_iter().collect(),
    }
}

fn compare_sides(first: &RunStats, second: &RunStats) -> Comparison {
    pairwise::compare(
        first,
        second,
        &CompareOptions {
            bound: 0.02,
            noise: None,
            allow_environment: false,
            further_questions: 0,
        },
    )
}

const LEVEL: [f64; 5] = [100.0, 100.6, 99.5, 100.2, 99.8];

fn low_level() -> [f64; 5] {
    LEVEL.map(|value| value * 0.94)
}

#[test]
fn the_cell_that_lost_is_worse_and_the_other_is_the_same() {
    let first = side([cell("model=a", &LEVEL), cell("model=b", &LEVEL)]);
    let second = side([cell("model=a", &low_level()), cell("model=b", &LEVEL)]);
    let comparison = compare_sides(&first, &second);
    let words: Vec<&str> = comparison.rows.iter().map(|row| row.verdict_word()).collect();
    assert_eq!(words, ["worse", "same"]);
    assert_eq!(comparison.count_verdict(Verdict::Worse), 1);
    assert!(comparison.differences.is_empty() && comparison.unpaired_cells.is_empty());
}

#[test]
fn one_start_a_side_is_not_judged_and_says_why() {
    let comparison = compare_sides(
        &side([cell("model=a", &[100.0])]),
        &side([cell("model=a", &[50.0])]),
    );
    let Outcome::NotJudged(NoVerdict::TooFewStarts(why)) = &comparison.rows[0].answer.outcome else {
        panic!("{comparison:?}")
    };
    assert!(why.starts_with("the two sides have 1 and 1 start;"), "{why}");
    assert_eq!((comparison.judged_count(), comparison.figure_count()), (0, 1));
}

#[test]
fn a_changed_driver_is_an_event_and_no_regression() {
    let first = side([cell("model=a", &LEVEL)]);
    let mut second = side([cell("model=a", &low_level())]);
    second.machine.insert("driver".to_owned(), "560".to_owned());
    let comparison = compare_sides(&first, &second);
    assert_eq!(
        comparison.differences[0].0.in_words(),
        "environment driver: 550 → 560"
    );
    assert_eq!(comparison.rows[0].verdict(), None);
    assert!(
        comparison.rows[0]
            .answer
            .reason()
            .ends_with("environment driver: 550 → 560"),
        "{comparison:?}"
    );
    let across = pairwise::compare(
        &first,
        &second,
        &CompareOptions {
            bound: 0.02,
            noise: None,
            allow_environment: true,
            further_questions: 0,
        },
    );
    assert_eq!(across.rows[0].verdict(), Some(Verdict::Worse));
}

#[test]
fn another_engine_build_is_what_comparisons_are_for_and_other_prompts_are_not() {
    let first = side([cell("model=a", &LEVEL)]);
    let mut second = side([cell("model=a", &low_level())]);
    let changed = second.cells.values_mut().next().unwrap();
    changed.engine.insert("image".to_owned(), "sha256:2".to_owned());
    let comparison = compare_sides(&first, &second);
    assert_eq!(comparison.differences[0].0.kind, DifferenceKind::Engine);
    assert_eq!(comparison.rows[0].verdict(), Some(Verdict::Worse));
    second.cells.values_mut().next().unwrap().prompts = Some(ContentHash::from_bytes(b"others"));
    assert_eq!(compare_sides(&first, &second).rows[0].verdict(), None);
}

#[test]
fn a_server_that_reads_an_eighth_of_the_prompts_is_not_better() {
    let faster = LEVEL.map(|value| value * 1.4);
    let sides = |reported: Option<f64>| {
        let mut sides = [side([cell("model=a", &LEVEL)]), side([cell("model=a", &faster)])];
        for (run, reported) in sides.iter_mut().zip([Some(2620.5), reported]) {
            let stats = run.cells.values_mut().next().unwrap();
            stats.prompt_tokens = reported.map(|reported| MeanPromptTokens {
                sent: 2048.0,
                reported,
            });
        }
        sides
    };
    let compared = |reported| {
        let [honest, truncating] = sides(reported);
        compare_sides(&honest, &truncating)
    };
    let comparison = compared(Some(256.0));
    assert_eq!(comparison.rows[0].verdict(), None);
    let reason = comparison.rows[0].answer.reason();
    assert!(
        reason.contains(
            "load mean tokens of a prompt by the server's count: 2620 (2048 sent) → 256 (2048 sent)"
        ),
        "{reason}"
    );
    for judged in [Some(2620.5), None] {
        assert_eq!(
            compared(judged).rows[0].verdict(),
            Some(Verdict::Better),
            "{judged:?}"
        );
    }
}

#[test]
fn another_precision_is_another_question() {
    let first = side([cell_with_precision("bf16")]);
    let second = side([cell_with_precision("fp8")]);
    let comparison = compare_sides(&first, &second);
    assert_eq!(comparison.rows[0].verdict(), None);
    let reason = comparison.rows[0].answer.reason();
    assert!(reason.contains("load precision: bf16 → fp8"), "{reason}");
    // An old baseline does not have these facts.
    let old = side([cell("model=a", &LEVEL)]);
    assert_eq!(
        compare_sides(&old, &side([cell_with_precision("fp8")])).rows[0].verdict(),
        Some(Verdict::Same)
    );
}

fn cell_with_precision(precision: &str) -> (CellKey, CellStats) {
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
    let comparison = compare_sides(&first, &second);
    assert_eq!(comparison.rows[0].percentile_bounds, [Some([90.0, 120.0]), None]);
}

#[test]
fn an_invalid_cell_is_named_and_has_no_verdict() {
    let first = side([cell("model=a", &LEVEL)]);
    let (key, mut broken) = cell("model=a", &[]);
    broken.figures.clear();
    broken.excluded.push(ExcludedMeasurement {
        start: 1,
        repeat: 1,
        cause: ExclusionCause::Invalid,
        reason: "client-late (40 ms against 1 ms)".to_owned(),
    });
    let comparison = compare_sides(&first, &side([(key, broken)]));
    assert_eq!(comparison.rows[0].verdict(), None);
    assert_eq!(comparison.rows[0].verdict_word(), "invalid");
    assert!(comparison.rows[0].answer.reason().contains("client-late"));
    assert_eq!(comparison.count_verdict(Verdict::Worse), 0);
}

#[test]
fn an_invalid_cell_of_a_night_that_starts_its_baseline_has_a_row_and_is_not_judged() {
    use super::gate_policy::Policy;
    use super::nightly_gate::paired::judge_paired;
    let baseline = side([cell("model=a", &LEVEL)]);
    let (key, mut broken) = cell("model=a", &[]);
    broken.figures.clear();
    broken.excluded.push(ExcludedMeasurement {
        start: 1,
        repeat: 1,
        cause: ExclusionCause::Invalid,
        reason: "answers-worse-than-reference".to_owned(),
    });
    let night = side([(key, broken)]);
    let verdicts = judge_paired(&baseline, &night, None, &Policy::with_bound(0.02), &|_| {
        Err("nothing is asked about it".to_owned())
    });
    let [row] = &verdicts.rows[..] else {
        panic!("one row is expected: {:?}", verdicts.rows);
    };
    assert_eq!((row.verdict(), row.verdict_word()), (None, "invalid"));
    assert!(
        row.reason().contains("answers-worse-than-reference"),
        "{}",
        row.reason()
    );
    assert_eq!((verdicts.judged.metrics, verdicts.judged.judged), (1, 0));
}

#[test]
fn cells_that_differ_in_the_version_alone_are_held_against_each_other() {
    let first = side([
        cell("engine=x,version=1,model=a", &LEVEL),
        cell("engine=x,version=1,model=b", &LEVEL),
    ]);
    let second = side([
        cell("engine=x,version=2,model=a", &low_level()),
        cell("engine=y,version=2,model=b", &LEVEL),
    ]);
    let comparison = compare_sides(&first, &second);
    assert_eq!(comparison.rows.len(), 1);
    assert_eq!(comparison.rows[0].cell.as_str(), "engine=x,version=2,model=a");
    assert_eq!(
        comparison.unpaired_cells.len(),
        2,
        "{:?}",
        comparison.unpaired_cells
    );
}

/// Returns the comparison of two sides on a host with this noise.
fn with_noise(first: &[f64], second: &[f64], share: f64, starts: u32) -> Comparison {
    let varies = NoiseEstimate {
        at: String::new(),
        starts,
        per_start: 1,
        start_share: share,
        bound_share: None,
        df: None,
        between_share: share,
        within_share: None,
        difference_share: 0.0,
    };
    let noise = Noise {
        machine: BTreeMap::new(),
        cells: BTreeMap::from([(
            CellKey::new("version=1,model=a"),
            BTreeMap::from([(FIGURE.to_owned(), varies)]),
        )]),
    };
    pairwise::compare(
        &side([cell("version=1,model=a", first)]),
        &side([cell("version=2,model=a", second)]),
        &CompareOptions {
            bound: 0.02,
            noise: Some(&noise),
            allow_environment: false,
            further_questions: 0,
        },
    )
}

#[test]
fn noise_of_the_host_makes_verdicts_rarer_and_never_a_loss_the_same() {
    for (share, word) in [(0.005, "worse"), (0.06, "unclear"), (0.08, "unclear")] {
        let comparison = with_noise(&LEVEL, &low_level(), share, 10);
        let row = &comparison.rows[0];
        assert!(row.noise.is_some(), "another version's noise is this one's");
        assert_eq!(row.verdict_word(), word, "{share}: {}", row.answer.reason());
    }
    let equal = |share| with_noise(&LEVEL, &LEVEL, share, 10).rows[0].verdict_word();
    assert_eq!([0.005, 0.08].map(equal), ["same", "unclear"]);
}

#[test]
fn known_noise_lets_three_starts_be_judged_and_a_guess_at_it_does_not() {
    let judged = |starts| with_noise(&LEVEL[..3], &low_level()[..3], 0.005, starts).rows[0].verdict_word();
    assert_eq!([10, 4].map(judged), ["worse", "not judged"]);
    assert_eq!(
        with_noise(&LEVEL[..2], &low_level()[..2], 0.005, 10).rows[0].verdict_word(),
        "not judged"
    );
}

#[test]
fn starts_that_agree_by_luck_or_on_a_grid_are_not_certain() {
    let two = compare_sides(
        &side([cell("model=a", &[100.0; 2])]),
        &side([cell("model=a", &[97.0; 2])]),
    );
    assert_eq!(two.rows[0].verdict_word(), "not judged");
    let step = |resolution: f64| {
        let sides = [76.61, 73.36].map(|best| {
            let (key, mut cell) = cell("model=a", &[best; 5]);
            cell.resolutions.insert(FIGURE.to_owned(), resolution);
            side([(key, cell)])
        });
        compare_sides(&sides[0], &sides[1]).rows.remove(0)
    };
    assert_eq!(
        step(0.0222).verdict_word(),
        "unclear",
        "{}",
        step(0.0222).answer.reason()
    );
    let p = step(0.0)
        .answer
        .estimate
        .and_then(|estimate| estimate.precision)
        .map(|precision| precision.p);
    assert!(p.is_some_and(|p| p > 0.0));
}

#[test]
fn a_cell_that_the_candidate_lacks_counts_as_not_judged() {
    let comparison = compare_sides(
        &side([cell("model=a", &LEVEL), cell("model=b", &LEVEL)]),
        &side([cell("model=a", &LEVEL), cell("model=c", &LEVEL)]),
    );
    assert_eq!((comparison.judged_count(), comparison.figure_count()), (1, 2));
    assert_eq!(comparison.lost_cells().count(), 1);
}

#[test]
fn changed_arguments_and_prompts_are_told_by_their_values() {
    let made = |tpot: &str, prompts: u32| {
        let (key, mut cell) = cell("engine=a", &[100.0; 5]);
        cell.content = ContentHash::from_bytes(tpot.as_bytes());
        cell.settings = BTreeMap::from([("--tpot".to_owned(), tpot.to_owned())]);
        cell.load = Some(format!("{prompts} of random"));
        cell.prompts = Some(ContentHash::from_bytes(&prompts.to_le_bytes()));
        (key, cell)
    };
    let ((_, first), (_, second)) = (made("10", 120), made("10.6", 80));
    let differences = super::environment_diff::cell_differences(&first, &second);
    let differences_in_words: Vec<String> = differences
        .iter()
        .map(super::difference::Difference::in_words)
        .collect();
    assert_eq!(
        differences_in_words,
        [
            "load prompts: 120 of random → 80 of random",
            "engine --tpot: 10 → 10.6"
        ]
    );
}

/// The verdict is about these attached servers. The noise of a start, if known, is part of the error.
#[test]
fn repeats_on_running_servers_decide_about_these_servers_alone() {
    let attached = |starts: &[f64]| {
        let (key, mut cell) = cell("engine=x,model=m,scenario=s", starts);
        cell.attached = true;
        side([(key, cell)])
    };
    let (first, second) = (attached(&LEVEL), attached(&low_level()));
    let comparison = compare_sides(&first, &second);
    assert_eq!(comparison.rows[0].verdict_word(), "worse");
    assert!(
        comparison.rows[0]
            .reason()
            .contains("applies only to these two running servers"),
        "{}",
        comparison.rows[0].reason()
    );
    let varies = NoiseEstimate {
        at: String::new(),
        starts: 10,
        per_start: 1,
        start_share: 0.03,
        bound_share: None,
        df: None,
        between_share: 0.03,
        within_share: None,
        difference_share: 0.0,
    };
    let noise = Noise {
        machine: BTreeMap::new(),
        cells: BTreeMap::from([(
            CellKey::new("engine=x,model=m,scenario=s"),
            BTreeMap::from([(FIGURE.to_owned(), varies)]),
        )]),
    };
    let options = CompareOptions {
        bound: 0.02,
        noise: Some(&noise),
        allow_environment: false,
        further_questions: 0,
    };
    let comparison = pairwise::compare(&first, &second, &options);
    assert_eq!(
        comparison.rows[0].verdict_word(),
        "unclear",
        "{}",
        comparison.rows[0].reason()
    );
}

#[test]
fn a_cell_that_was_not_measured_is_not_judged_differs_in_nothing_and_has_not_failed() {
    let (key, mut missing) = cell("model=a", &[]);
    missing.figures.clear();
    missing.origin = Origin::Simulated;
    missing.engine = BTreeMap::from([("version".to_owned(), "1".to_owned())]);
    for (first, second, side_name) in [
        (
            cell("model=a", &LEVEL),
            (key.clone(), missing.clone()),
            "candidate",
        ),
        (
            (key.clone(), missing.clone()),
            cell("model=a", &LEVEL),
            "baseline",
        ),
    ] {
        let comparison = compare_sides(&side([first]), &side([second]));
        assert_eq!(comparison.differences, []);
        let row = &comparison.rows[0];
        assert_eq!((row.verdict_word(), row.refusal_cause), ("not judged", None));
        assert_eq!(
            row.reason(),
            format!("{side_name}: not measured (the cell was left out, or the run was interrupted)")
        );
    }
    missing.excluded.push(ExcludedMeasurement {
        start: 1,
        repeat: 0,
        cause: ExclusionCause::Failed,
        reason: "it crashed".to_owned(),
    });
    let comparison = compare_sides(&side([cell("model=a", &LEVEL)]), &side([(key, missing)]));
    assert_eq!(
        (
            comparison.rows[0].verdict_word(),
            comparison.rows[0].refusal_cause
        ),
        ("failed", Some(ExclusionCause::Failed))
    );
}

#[test]
fn arms_whose_cells_fit_several_are_refused_whichever_is_the_baseline() {
    let cells = BTreeMap::from([
        cell("engine=a,version=1,model=m", &[1.0]),
        cell("engine=a,version=2,model=m", &[1.0]),
        cell("engine=b,version=7,model=m", &[1.0]),
        cell("engine=b,version=7,model=n", &[1.0]),
    ]);
    for values in [["a", "b"], ["b", "a"]] {
        let refused = arms::arm_pairs(&cells, "engine", values).unwrap_err();
        assert_eq!(
            refused,
            "it is unclear whether to compare engine=b,version=7,model=m with engine=a,version=1,model=m or with engine=a,version=2,model=m"
        );
    }
    let one: BTreeMap<_, _> = cells
        .into_iter()
        .filter(|(key, _)| !key.as_str().contains("version=2"))
        .collect();
    assert_eq!(arms::arm_pairs(&one, "engine", ["a", "b"]).unwrap().len(), 1);
}

#[test]
fn an_attainment_that_falls_to_zero_is_a_loss_as_a_goodput_is() {
    let name = "slo_attainment_share";
    let with = |starts: &[f64]| {
        let (key, mut cell) = cell("model=a", &[]);
        cell.gates = vec![name.to_owned()];
        cell.requests = Some(24);
        cell.figures = BTreeMap::from([(name.to_owned(), starts.iter().map(|value| vec![*value]).collect())]);
        side([(key, cell)])
    };
    let comparison = compare_sides(&with(&[0.958; 5]), &with(&[0.0; 5]));
    assert_eq!(
        comparison.rows[0].verdict(),
        Some(Verdict::Worse),
        "{:?}",
        comparison.rows[0].answer
    );
    assert!(
        comparison
            .failures
            .iter()
            .any(|failure| failure.text.contains("SLO attainment is 0 on 5 of 5 starts"))
    );
    // One start that fell to zero does not prevent a verdict.
    let one = compare_sides(
        &with(&[0.15, 0.17, 0.13, 0.15, 0.16]),
        &with(&[0.16, 0.0, 0.15, 0.13, 0.16]),
    );
    assert!(one.rows[0].verdict().is_some(), "{:?}", one.rows[0].answer);
}

#[test]
fn what_several_hosts_or_one_that_was_changed_measured_is_no_noise_of_one() {
    let host = |node: &str, driver: &str| -> Facts {
        [(machines::NODE, node), (machines::HOST, "h"), ("driver", driver)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    };
    let measured_on = |hosts: &[Facts]| {
        let (key, mut stats) = cell("model=a", &LEVEL);
        stats.hosts = hosts.to_vec();
        machines::several_hosts(&side([(key, stats), cell("model=b", &LEVEL)]))
    };
    assert_eq!(measured_on(&[]), None, "the host of the run");
    assert_eq!(measured_on(&[host("n1", "550")]), None);
    let mut renamed = host("n1", "550");
    renamed.insert("CPUs".to_owned(), "8".to_owned());
    assert_eq!(
        measured_on(&[host("n1", "550"), renamed]),
        None,
        "noise applies to it"
    );
    assert_eq!(
        measured_on(&[host("n1", "550"), host("n2", "550"), host("n1", "560")]).as_deref(),
        Some("driver 550 and 550, 560; node n1 and n1, n2")
    );
}
