use std::num::NonZeroU32;

use super::*;
use crate::analysis::compare::decision::DEFAULT_BOUND;
use crate::analysis::compare::precision::{CellPrecision, FigurePrecision, NextStep};
use crate::analysis::metrics::{LatencyKind, Metric, Statistic};
use crate::base::units::HumanDuration;
use crate::config::dataset::DatasetName;
use crate::config::repeats::{HalfWidth, StopRule};
use crate::config::template::Template;
use crate::config::workload::Workload;
use crate::plan::{AttachedServer, ExecutorSpec, Plan};
use crate::report::markdown;
use crate::report::table::{Row, Table, Value};
use crate::report::testing::{Case, report_cells};
use crate::results::record::cell::{Definitions, Phase};
use crate::results::record::validity::{Reason, ReasonCode, Validity, Verdict};

fn ratios(table: &Table) -> Vec<String> {
    table.rows.iter().map(|row| row.cells[1].to_string()).collect()
}

fn table_of(cases: &[Case], reference: Option<&str>) -> Table {
    let cells = report_cells(cases);
    let mut tables = comparison_tables(&compare_groups(&cells, reference, DEFAULT_BOUND));
    assert_eq!(tables.len(), 1, "one model and one scenario make one table");
    tables.remove(0)
}

#[test]
fn engines_stand_side_by_side_with_their_ratio_to_the_reference() {
    let cases = [
        Case::new("sglang@0.5.1", "bf16", 1, 4000.0),
        Case::new("vllm@0.10.1", "bf16", 1, 5000.0)
            .measured_again(5200.0)
            .measured_again(5100.0),
        Case::new("lmdeploy@0.10.0", "fp8", 2, 9000.0),
        Case::new("slow", "bf16", 1, 1.0).with_failure(Phase::Launch, "it died | while `loading`"),
        Case::new("sim", "bf16", 1, 7.0).on_simulated_engine(),
    ];
    let table = table_of(&cases, Some("sglang"));
    assert_eq!(ratios(&table), ["1.00", "1.27 n=1", "–", "–", "–"]);
    insta::assert_snapshot!("comparison", markdown::draw(&table, 3));
    insta::assert_snapshot!(
        "comparison_on_a_terminal",
        crate::report::terminal::draw(&table, 140, false)
    );
}

#[test]
fn each_ratio_that_is_not_printed_is_explained() {
    let why = |case: Case| {
        let table = table_of(&[Case::new("sglang", "bf16", 1, 4000.0), case], Some("sglang"));
        assert_eq!(ratios(&table)[1], "–");
        let note = table.notes.iter().find(|note| note.contains("no ratio")).unwrap();
        note.split_once("no ratio to sglang: ").unwrap().1.to_owned()
    };
    let other = || Case::new("vllm", "bf16", 1, 5000.0);
    assert_eq!(
        why(Case::new("vllm", "fp8", 1, 1.0)),
        "precision fp8 against bf16"
    );
    assert_eq!(
        why(Case::new("vllm", "bf16", 4, 20_000.0)),
        "4 GPUs against 1; ratio of output throughput per GPU: 1.25"
    );
    assert!(why(other().with_prompts("others")).starts_with("prompts "));
    assert!(why(other().on_simulated_engine()).contains("simulated"));
    let mut unknown = other();
    unknown.summaries[0].prompts_hash = None;
    assert!(why(unknown).starts_with("the prompts are unknown"));
}

#[test]
fn a_reference_that_failed_or_is_absent_gives_no_ratio() {
    let failed = [
        Case::new("sglang", "bf16", 1, 4000.0).with_failure(Phase::Measure, "it died"),
        Case::new("vllm", "bf16", 1, 5000.0),
    ];
    let table = table_of(&failed, Some("sglang"));
    assert_eq!(ratios(&table), ["–", "–"]);
    assert!(
        table
            .notes
            .contains(&"vllm@1.0: no ratio to sglang: sglang@1.0 is not done".to_owned())
    );
    let absent = table_of(&failed[1..], Some("sglang"));
    assert!(
        absent
            .notes
            .iter()
            .any(|note| note.ends_with("the reference is not in this table"))
    );
}

#[test]
fn a_row_is_held_against_the_reference_of_its_own_precision() {
    let cases = [
        Case::new("sglang", "bf16", 1, 4000.0),
        Case::new("sglang", "fp8", 1, 8000.0),
        Case::new("vllm", "fp8", 1, 4000.0),
    ];
    assert_eq!(
        ratios(&table_of(&cases, Some("sglang"))),
        ["1.00", "1.00", "0.50 n=1"]
    );
    assert_eq!(ratios(&table_of(&cases, None)), ["1.00", "1.00", "0.50 n=1"]);
}

#[test]
fn a_cell_with_one_failed_measurement_of_two_gives_no_ratio() {
    let half = Case::new("vllm", "bf16", 1, 5000.0)
        .measured_again(1.0)
        .with_failure(Phase::Measure, "it died");
    let table = table_of(&[Case::new("sglang", "bf16", 1, 4000.0), half], None);
    assert_eq!(ratios(&table), ["1.00", "–"]);
    assert_eq!(table.rows[1].cells[5], Value::text("1 of 2 done"));
    assert!(table.notes[0].contains("(start 1, repeat 2): failed in measure: it died"));
}

#[test]
fn rows_that_would_read_alike_show_the_axis_that_differs() {
    let mut cases = [
        Case::new("vllm", "bf16", 1, 1.0),
        Case::new("vllm", "bf16", 1, 2.0),
        Case::new("sglang", "bf16", 1, 2.0),
    ];
    cases[1].cell.axes.insert("args".to_owned(), "--fast".to_owned());
    let table = table_of(&cases, None);
    let names: Vec<String> = table.rows.iter().map(|row| row.cells[0].to_string()).collect();
    assert_eq!(
        names,
        ["vllm@1.0 args=none", "vllm@1.0 args=--fast", "sglang@1.0"]
    );
}

#[test]
fn scenarios_at_different_rates_make_different_tables() {
    let mut cases = [
        Case::new("vllm", "bf16", 1, 1.0),
        Case::new("vllm", "bf16", 1, 2.0),
    ];
    cases[1].cell.scenario.arrival.rate = crate::base::units::RequestRate::new(4.0).unwrap();
    let titles: Vec<String> = comparison_tables(&compare_groups(&report_cells(&cases), None, DEFAULT_BOUND))
        .into_iter()
        .map(|table| table.title)
        .collect();
    assert_eq!(
        titles,
        ["Qwen/Qwen3-8B · sharegpt", "Qwen/Qwen3-8B · sharegpt, 4 req/s"]
    );
}

#[test]
fn every_row_has_a_cell_for_every_column_and_simulated_rows_are_marked() {
    let mut cases = [
        Case::new("sim", "bf16", 1, 1.0).on_simulated_engine(),
        Case::new("vllm", "bf16", 1, 1.0),
    ];
    cases[1].summaries.clear();
    let cells = report_cells(&cases);
    let mut tables = comparison_tables(&compare_groups(&cells, None, DEFAULT_BOUND));
    tables.extend(engine_results(&cells));
    tables.push(overview(&cells));
    assert_eq!(tables.len(), 4);
    for table in &tables {
        for row in &table.rows {
            assert_eq!(row.cells.len(), table.columns.len(), "{}", table.title);
        }
        let is_simulated = |row: &Row| row.texts()[0].ends_with("[simulated]");
        if table.rows.iter().any(is_simulated) {
            assert!(table.notes.iter().any(|note| note.starts_with("[simulated]")));
        } else {
            assert_eq!(table.title, "vllm@1.0");
        }
    }
}

#[test]
fn the_overview_tells_how_every_cell_ended() {
    let mut warned = Case::new("vllm@0.10.1", "bf16", 1, 5000.0);
    warned.summaries[0]
        .warnings
        .push("the client was late".to_owned());
    let cases = [
        Case::new("sim", "bf16", 1, 1.0).on_simulated_engine(),
        warned,
        Case::new("slow", "bf16", 1, 1.0).with_failure(Phase::Launch, "it died while loading"),
    ];
    insta::assert_snapshot!(
        "overview",
        crate::report::terminal::draw(&overview(&report_cells(&cases)), 160, false)
    );
}

#[test]
fn a_table_is_never_wider_than_the_terminal() {
    let cases = [
        Case::new("sglang@0.5.1", "bf16", 1, 4000.0),
        Case::new("vllm@0.10.1", "bf16", 1, 5000.0).measured_again(5200.0),
    ];
    let table = table_of(&cases, None);
    for width in [60u16, 80, 100, 140, 200, 400] {
        let text = crate::report::terminal::draw(&table, width, false);
        let lines = text.lines().take_while(|line| !line.starts_with("  "));
        let widest = lines.map(|line| line.chars().count()).max().unwrap();
        assert!(
            widest <= usize::from(width),
            "{widest} columns in {width}:\n{text}"
        );
        assert_eq!(text.contains("hidden columns"), width < 400, "{width}");
    }
}

#[test]
fn a_plan_shows_every_cell_with_its_own_measurements() {
    let cases = [
        Case::new("vllm", "bf16", 1, 1.0).measured_again(2.0),
        Case::new("vllm", "fp8", 1, 1.0),
    ];
    let plan = Plan {
        launches: cases.iter().map(|case| case.launch.clone()).collect(),
        cells: cases.iter().map(|case| case.cell.clone()).collect(),
        ..Plan::empty("small")
    };
    let summaries = cases[0].summaries.clone();
    let counts: Vec<usize> = ReportCell::from_plan(&plan, &summaries)
        .iter()
        .map(|cell| cell.summaries.len())
        .collect();
    assert_eq!(counts, [2, 0]);
}

#[test]
fn a_row_whose_latencies_are_easily_misread_says_so_where_they_are_shown() {
    let mut case = Case::new("lmdeploy", "bf16", 1, 1.0);
    let figures = case.summaries[0].figures.entry(Definitions::Matrix).or_default();
    let mean = |sample| Metric::Time(Statistic::Mean, sample).name();
    figures.insert(Metric::TokensPerChunk.name(), Some(2.1));
    figures.insert(mean(LatencyKind::Tpot), Some(60.0));
    figures.insert(mean(LatencyKind::Itl), Some(40.0));
    let cases = [case];
    let has = |notes: &[String], words: &str| notes.iter().any(|note| note.contains(words));
    let table = table_of(&cases, None);
    for words in [
        "lmdeploy@1.0: an event of the stream carries 2.10 tokens on average, and ITL is the time",
        "lmdeploy@1.0: mean TPOT is 60.00 ms, but the mean time per token is 40.00 ms",
    ] {
        assert!(has(&table.notes, words), "{:?}", table.notes);
    }
    let report = crate::report::engine_report::engine_report(&report_cells(&cases), None);
    assert!(
        report.contains(
            "note: an event of the stream carries 2.10 tokens on average, and ITL is the time between events"
        ),
        "{report}"
    );
    // The overview has no ITL, so it needs no caveat.
    assert!(!has(
        &overview(&report_cells(&cases)).notes,
        "an event of the stream carries"
    ));
}

#[test]
fn an_invalid_cell_gives_no_ratio_and_is_none_to_be_held_against() {
    let invalid = |engine: &str, tok_s| {
        let mut case = Case::new(engine, "bf16", 1, tok_s);
        case.summaries[0].validity = Some(Validity {
            verdict: Verdict::Invalid,
            reasons: vec![Reason {
                code: ReasonCode::ClientLate,
                weight: Verdict::Invalid,
                only: Vec::new(),
                measured: String::new(),
                bound: None,
                advice: String::new(),
            }],
        });
        case
    };
    let table = table_of(
        &[Case::new("sglang", "bf16", 1, 4000.0), invalid("vllm", 5000.0)],
        None,
    );
    assert_eq!(ratios(&table), ["1.00", "–"]);
    assert!(
        table
            .notes
            .contains(&"vllm@1.0: no ratio to sglang: this row is invalid (client-late)".to_owned()),
        "{:?}",
        table.notes
    );
    let cases = [invalid("vllm", 5000.0), Case::new("sglang", "bf16", 1, 4000.0)];
    let statuses: Vec<String> = report_cells(&cases).iter().map(status_in_words).collect();
    assert_eq!(statuses, ["invalid", "done"]);
    let table = table_of(
        &[invalid("sglang", 4000.0), Case::new("vllm", "bf16", 1, 5000.0)],
        None,
    );
    assert_eq!(ratios(&table), ["–", "–"]);
    let says = |note: &String| note.contains("the reference is invalid (client-late)");
    assert!(table.notes.iter().any(says), "{:?}", table.notes);
    assert!(
        table
            .notes
            .contains(&"sglang@1.0: no ratio: the reference is invalid (client-late)".to_owned()),
        "{:?}",
        table.notes
    );
}

#[test]
fn what_differs_without_changing_the_question_is_said_beside_the_ratio() {
    let mut attached = Case::new("vllm", "bf16", 1, 5000.0);
    attached.launch.place = ExecutorSpec::Attach(AttachedServer {
        url: Template::new("u"),
        gpus: NonZeroU32::new(1),
        ..AttachedServer::default()
    });
    let cases = [Case::new("sglang", "bf16", 1, 4000.0), attached];
    let table = table_of(&cases, None);
    assert_eq!(ratios(&table), ["1.00", "1.25 n=1"]);
    let note = "vllm@1.0: compared with sglang despite differences: engine source attached server against container image, the GPU model is unknown for at least one side";
    assert!(table.notes.contains(&note.to_owned()), "{:?}", table.notes);
}

#[test]
fn all_engines_stand_side_by_side_in_one_table() {
    let mut late = Case::new("vllm@2", "bf16", 2, 9040.0);
    late.launch.engine.version = Some("2".to_owned());
    let mut alone = Case::new("sglang@1", "bf16", 1, 1.0);
    alone.launch.model = "other".to_owned();
    let cases = [
        Case::new("sglang@1", "bf16", 1, 4000.0),
        Case::new("vllm@1", "bf16", 1, 5000.0),
        late,
        Case::new("lmdeploy@1", "fp8", 1, 9000.0),
        Case::new("trt@1", "bf16", 1, 1.0).with_failure(Phase::Launch, "it died"),
        alone,
    ];
    let cells = report_cells(&cases);
    let table = overview_matrix(&compare_groups(&cells, None, DEFAULT_BOUND));
    assert_eq!(table.rows.len(), 1, "what one engine has alone is no comparison");
    assert_eq!(
        table.rows[0].texts()[2..],
        [
            "output throughput, tok/s",
            "–",
            "–",
            "4000.0 · bf16 · 1 GPU",
            "5000.0 · bf16 · 1 GPU · 1.25× n=1",
            "9040.0 · bf16 · 2 GPUs · 1.13× per GPU",
            "9000.0 · fp8 · 1 GPU · ≠",
            "failed in launch",
        ]
    );
    for note in [
        "lmdeploy@1, 1 row: no ratio: precision fp8 against bf16",
        "vllm@2, 1 row: no ratio: 2 GPUs against 1",
        "1 row with only one engine is not shown",
    ] {
        assert!(
            table.notes.contains(&note.to_owned()),
            "{note}: {:?}",
            table.notes
        );
    }
}

#[test]
fn the_wait_in_the_queue_of_a_burst_is_not_shown_as_ttft() {
    let label = "the time to the first token is the wait in the engine's queue";
    let has = |case: &Case| {
        let rows = [case.report_cell()];
        let tables = comparison_tables(&compare_groups(&rows, None, DEFAULT_BOUND));
        let heads = tables[0].columns.iter();
        let has_ttft = heads.into_iter().any(|column| column.head == "TTFT mean");
        let is_told = tables[0].notes.iter().any(|note| note.contains(label));
        assert_ne!(has_ttft, is_told);
        has_ttft
    };
    let mut case = Case::new("vllm", "bf16", 1, 1.0);
    assert!(!has(&case));
    case.cell.scenario.arrival.concurrency = NonZeroU32::new(8);
    assert!(has(&case));
    // A concurrency that equals the number of prompts is no limit.
    case.cell.scenario.arrival.concurrency = NonZeroU32::new(case.cell.scenario.workload.prompts);
    assert!(!has(&case));
    case.cell.scenario.arrival.concurrency = None;
    case.cell.scenario.arrival.rate = crate::base::units::RequestRate::new(2.0).unwrap();
    assert!(has(&case));
    // Most requests of sessions wait for others, not in the queue.
    case.cell.scenario.arrival.rate = crate::base::units::RequestRate::INFINITE;
    assert!(!has(&case));
    case.cell.scenario.workload = Workload::new(DatasetName::AgenticSessions);
    assert!(has(&case));
}

#[test]
fn a_percentile_of_few_requests_is_rough_and_one_of_hardly_any_is_none() {
    let p99 = |requests: f64| {
        let mut case = Case::new("vllm", "bf16", 1, 1.0);
        let figures = case.summaries[0].figures.get_mut(&Definitions::Matrix).unwrap();
        figures.insert(Metric::Completed.name(), Some(requests));
        let rows = [case.report_cell()];
        let table = comparison_tables(&compare_groups(&rows, None, DEFAULT_BOUND)).remove(0);
        let at = table
            .columns
            .iter()
            .position(|column| column.head == "TPOT p99")
            .unwrap();
        table.rows[0].cells[at].to_string()
    };
    assert_eq!([60.0, 500.0, 1000.0].map(p99), ["–", "~20.00", "20.00"]);
}

#[test]
fn how_well_cells_are_known_is_told_once_for_all_that_ended_alike() {
    let until = StopRule {
        half_width: HalfWidth::new(0.02).unwrap(),
        most: 12,
        budget: Some(HumanDuration::from_secs(5400)),
        stage: 5,
        raised_from: None,
    };
    let certainty = |half_width: f64, starts: usize, outlook: NextStep| CellPrecision {
        stop_rule: until,
        figure: Some(FigurePrecision {
            figure: "output throughput".to_owned(),
            half_width,
            starts,
            sigma: 0.01,
            stage: starts,
        }),
        next_step: outlook,
    };
    let cases = ["a", "b", "c", "d", "e"].map(|name| Case::new(name, "bf16", 1, 1.0));
    let certainties = [
        certainty(0.014, 5, NextStep::TargetReached),
        certainty(0.031, 12, NextStep::MaxStartsReached),
        certainty(0.009, 3, NextStep::TargetReached),
        certainty(0.04, 4, NextStep::BudgetSpent),
        CellPrecision {
            figure: None,
            ..certainty(
                0.0,
                0,
                NextStep::NotPossible("start 1: failed in launch: no memory".to_owned()),
            )
        },
    ];
    let mut rows = report_cells(&cases);
    for (row, certainty) in rows.iter_mut().zip(&certainties) {
        row.precision = Some(certainty);
    }
    let names = short_names(rows.iter());
    let name = |at: usize| &names[at];
    let notes = overview(&rows).notes;
    for note in [
        format!(
            "precise enough, within ±2 %: {}: output throughput ±1.4 % after 5 starts; {}: output throughput ±0.9 % after 3 starts",
            name(0),
            name(2)
        ),
        format!(
            "precision of ±2 % not reached within the maximum of 12 starts: {}: output throughput ±3.1 % after 12 starts",
            name(1)
        ),
        format!(
            "precision of ±2 % not reached within the budget of 1h 30m of GPU time: {}: output throughput ±4.0 % after 4 starts",
            name(3)
        ),
        format!(
            "no further starts, start 1: failed in launch: no memory: {}",
            name(4)
        ),
    ] {
        assert!(notes.contains(&note), "`{note}` is not in {notes:#?}");
    }
}

#[test]
fn a_rough_value_is_marked_in_the_first_table_too() {
    let case_with = |engine: &str, requests: f64| {
        let mut case = Case::new(engine, "bf16", 1, 4000.0);
        case.cell.scenario.arrival.rate = serde_json::from_str("4.0").unwrap();
        for summary in &mut case.summaries {
            for figures in summary.figures.values_mut() {
                figures.insert("completed_requests".to_owned(), Some(requests));
                figures.insert("median_e2e_ms".to_owned(), Some(834.0));
            }
        }
        case
    };
    let cases = [case_with("sglang", 12.0), case_with("vllm", 1000.0)];
    let cells = report_cells(&cases);
    let table = overview_matrix(&compare_groups(&cells, None, DEFAULT_BOUND));
    let texts = table.rows[0].texts();
    assert!(
        texts.iter().any(|text| text.starts_with("~834.0 ms")),
        "{texts:?}"
    );
    assert!(texts.iter().any(|text| text.starts_with("834.0 ms")), "{texts:?}");
    assert!(
        table
            .notes
            .iter()
            .any(|note| note.starts_with("~: the percentile is rough")),
        "{:?}",
        table.notes
    );
}

#[test]
fn the_number_beside_a_status_is_that_of_the_measurements_that_count() {
    let mut case = Case::new("a", "bf16", 1, 4000.0)
        .measured_again(4100.0)
        .measured_again(4200.0);
    assert_eq!(status_in_words(&case.report_cell()), "done, n=3");
    case.summaries[1].validity = Some(Validity {
        verdict: Verdict::Invalid,
        reasons: Vec::new(),
    });
    assert_eq!(status_in_words(&case.report_cell()), "done, n=2, 1 invalid");
    for summary in &mut case.summaries {
        summary.validity.get_or_insert_default().verdict = Verdict::Invalid;
    }
    assert_eq!(status_in_words(&case.report_cell()), "invalid, n=3");
}
