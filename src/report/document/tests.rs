use std::collections::BTreeMap;

use super::*;
use crate::analysis::compare::decision::DEFAULT_BOUND;
use crate::analysis::metrics::{self, Metric, Quantity};
use crate::analysis::validity::new_reason;
use crate::report::chart::Chart;
use crate::report::format::{self, FORMATS};
use crate::report::html;
use crate::report::table::Value;
use crate::report::terminal::PageLayout;
use crate::report::testing::{Case, request};
use crate::results::record::cell::Definitions;
use crate::results::record::telemetry::{Sample, TelemetrySource as Told};
use crate::results::record::validity::{Reason, ReasonCode, Validity, Verdict};

/// Text that breaks every format that does not escape it.
const HOSTILE: &str =
    "=<script>alert(1)</script>\"'|`*_](http://x) ,\r\n\u{1b}[31m\u{202e}{{ 7*7 }}{% raw %}</style>";

/// A run made of cases, with histograms and samples.
pub(in crate::report) struct TestRun {
    about: RunInfo,
    plan: Plan,
    machine: Machine,
    summaries: Vec<MeasurementSummary>,
    traces: BTreeMap<Measurement, MeasurementTimeSeries>,
    doubts: Vec<String>,
    certainties: BTreeMap<CellKey, CellPrecision>,
    prices: Prices,
}

impl TestRun {
    pub(in crate::report) fn new(run: &str, cases: Vec<Case>) -> Self {
        let mut plan = Plan::empty("small");
        let mut summaries = Vec::new();
        for case in cases {
            plan.launches.push(case.launch);
            plan.cells.push(case.cell);
            summaries.extend(case.summaries);
        }
        let trace = MeasurementTimeSeries {
            seconds: metrics::histograms_per_second(&[request(0), request(1)]),
            samples: vec![Sample {
                at_ns: 500_000_000,
                source: Told::Nvml,
                node: None,
                device: Some(0),
                values: BTreeMap::from([("power_w".to_owned(), 350.0), ("gpu_util_share".to_owned(), 0.9)]),
            }],
        };
        let traces = summaries
            .iter()
            .map(|summary| (cells::measurement(summary), trace.clone()));
        Self {
            about: RunInfo {
                format: 1,
                run: crate::base::ids::RunId::new(run),
                matrix: "small".to_owned(),
                tool: "matrix 0.1.0".to_owned(),
                began: "2026-11-21T06:53:11.250Z".to_owned(),
                files: BTreeMap::new(),
            },
            traces: traces.collect(),
            plan,
            machine: Machine::default(),
            summaries,
            doubts: Vec::new(),
            certainties: BTreeMap::new(),
            prices: Prices::default(),
        }
    }

    fn source(&self) -> ReportedRun<'_> {
        ReportedRun {
            run_info: &self.about,
            plan: &self.plan,
            machine: &self.machine,
            summaries: &self.summaries,
            stored_answers: None,
            traces: &self.traces,
            warnings: &self.doubts,
            precisions: &self.certainties,
            tune: None,
            noise: None,
            prices: &self.prices,
        }
    }

    pub(in crate::report) fn document(&self) -> Document {
        Document::from_runs(&[self.source()], None, DEFAULT_BOUND)
    }
}

fn invalid() -> Validity {
    Validity {
        verdict: Verdict::Invalid,
        reasons: vec![Reason {
            code: ReasonCode::ClientLate,
            weight: Verdict::Invalid,
            only: Vec::new(),
            measured: "p99 of the lag 40 ms".to_owned(),
            bound: Some("5 ms".to_owned()),
            advice: "give the client more processors".to_owned(),
        }],
    }
}

/// The document as a format draws it.
fn drawn(format: &str, document: &Document) -> String {
    let layout = PageLayout {
        width: 120,
        colors: false,
    };
    (format::report(format).draw)(document, layout)
}

#[test]
fn a_report_shows_what_the_matrix_is_for_and_folds_notes() {
    let mut case = cell_around("a", "m", 1000.0);
    let note = new_reason(ReasonCode::FewSamples, "3 beyond P99".to_owned(), None);
    case.summaries[0].validity = Some(Validity::from_reasons(vec![note]));
    let mut document = TestRun::new("one", vec![case]).document();
    document.runs[0].about = Some("Which engine\nfor chat?".to_owned());
    for format in ["markdown", "html"] {
        let text = drawn(format, &document);
        assert!(text.contains("Which engine for chat?"), "{format}: {text}");
    }
    assert_eq!(document.tables.findings, None);
    let page = drawn("html", &document);
    let folded = page
        .split("<details data-part>")
        .nth(1)
        .expect("notes are folded");
    assert!(folded.contains("3 beyond P99"), "{folded}");
    assert!(page.contains("No measurement is suspect or invalid."), "{page}");
}

#[test]
fn the_trials_of_a_search_have_their_frontier_in_every_drawn_format() {
    let record = tune::tests::record();
    let run = TestRun::new("r", vec![Case::new("vllm@0.10.1", "bf16", 1, 5000.0)]);
    let source = ReportedRun {
        tune: Some(&record),
        ..run.source()
    };
    let document = Document::from_runs(&[source], None, DEFAULT_BOUND);
    for format in ["terminal", "markdown", "html"] {
        let text = drawn(format, &document);
        assert!(
            text.contains("Frontier: the best configurations of vllm that were tried"),
            "{format}: {text}"
        );
        assert!(text.contains("125.0"), "{format}: {text}");
        let without = drawn(format, &run.document());
        assert!(!without.contains("Frontier: "), "{format}");
    }
}

fn hostile_run() -> TestRun {
    let mut case = Case::new("vllm@0.10.1", "bf16", 1, 5000.0);
    case.launch.engine.name = HOSTILE.to_owned();
    case.launch.engine.title = HOSTILE.to_owned();
    case.launch.engine.version = Some(HOSTILE.to_owned());
    case.launch.model = HOSTILE.to_owned();
    case.launch.checkpoint = HOSTILE.to_owned();
    case.launch.precision = Some(HOSTILE.to_owned());
    case.cell.scenario.name = HOSTILE.to_owned();
    let summary = &mut case.summaries[0];
    summary.warnings.push(HOSTILE.to_owned());
    summary.engine.command = Some(HOSTILE.to_owned());
    summary.engine.image_digest = Some(HOSTILE.to_owned());
    summary.validity = Some(Validity {
        verdict: Verdict::Suspect,
        reasons: vec![Reason {
            code: ReasonCode::Errors,
            weight: Verdict::Suspect,
            only: Vec::new(),
            measured: HOSTILE.to_owned(),
            bound: Some(HOSTILE.to_owned()),
            advice: HOSTILE.to_owned(),
        }],
    });
    let mut made = TestRun::new(HOSTILE, vec![case]);
    made.plan.matrix = HOSTILE.to_owned();
    made.machine.cpu = Some(HOSTILE.to_owned());
    made.machine.gpus = vec![HOSTILE.to_owned()];
    made.doubts.push(HOSTILE.to_owned());
    made
}

/// The number of fields of a CSV line; commas within quotes do not count.
fn fields(line: &str) -> usize {
    let outside = line.split('"').step_by(2);
    1 + outside.map(|text| text.matches(',').count()).sum::<usize>()
}

#[test]
fn the_document_of_a_small_run_is_what_it_was() {
    let mut last = Case::new("lmdeploy@0.10.0", "bf16", 1, 9000.0);
    last.summaries[0].validity = Some(invalid());
    let made = TestRun::new(
        "one",
        vec![
            Case::new("sglang@0.5.1", "bf16", 1, 4000.0),
            Case::new("vllm@0.10.1", "bf16", 1, 5000.0).measured_again(5200.0),
            last,
        ],
    );
    let document = made.document();
    assert_eq!(document.comparisons.len(), 1);
    let rows = &document.comparisons[0].rows;
    let mean = (5000.0f64 * 5200.0).sqrt();
    let ratio = |at: usize| rows[at].ratio.clone().unwrap();
    assert_eq!(ratio(0).standing, VersusReference::Reference);
    assert!((ratio(1).value - mean / 4000.0).abs() < 1e-9);
    assert_eq!(ratio(1).standing, VersusReference::NotJudged);
    assert_eq!(rows[2].no_ratio, ["this row is invalid (client-late)"]);
    let standing = &document.standings[1];
    assert_eq!((standing.compared, standing.wins, standing.not_judged), (1, 0, 1));
    assert_eq!(standing.mean, None, "of one start");
    assert_eq!(document.standings[2].refused, 1);
    insta::assert_snapshot!("overall", drawn("markdown", &document));
    let lines = drawn("csv-long", &document);
    let lines: Vec<&str> = lines.lines().collect();
    let head: Vec<&str> = lines[0].split(',').collect();
    assert!(lines.iter().all(|line| fields(line) == head.len()));
    let throughput = lines
        .iter()
        .find(|line| line.contains("vllm") && line.contains("matrix,output_throughput_tok_s"))
        .unwrap();
    let (figure, rest) = throughput
        .split_once("higher,5099.0195")
        .expect("the mean of its starts");
    assert!(
        figure.ends_with("output_throughput_tok_s,output throughput,tok/s,"),
        "{throughput}"
    );
    assert!(rest.ends_with(",5000,5200,2"), "{throughput}");
}

#[test]
fn a_measurement_that_is_invalid_is_left_out_of_the_figures_of_its_cell() {
    let mut case = Case::new("vllm", "bf16", 1, 5000.0)
        .measured_again(1.0)
        .measured_again(5200.0);
    case.summaries[1].validity = Some(invalid());
    let document = TestRun::new("one", vec![case]).document();
    let cell = &document.cells[0];
    assert_eq!(cell.validity, Verdict::Valid);
    assert_eq!(cell.measurements[1].validity, Verdict::Invalid);
    let figure = cell.figure(Metric::Throughput(Quantity::Output)).unwrap();
    assert_eq!((figure.value.round(), figure.values.len()), (5099.0, 2));
    let notes = &document.tables.overview.notes;
    assert!(
        notes
            .iter()
            .any(|note| note.contains("1 of 3 measurements is invalid and left out")),
        "{notes:?}"
    );
}

#[test]
fn cells_of_two_runs_stand_side_by_side_and_are_told_apart() {
    let made = ["monday", "tuesday"].map(|run| TestRun::new(run, vec![Case::new("vllm", "bf16", 1, 5000.0)]));
    let document = Document::from_runs(&made.each_ref().map(TestRun::source), None, DEFAULT_BOUND);
    assert_eq!(document.runs.len(), 2);
    let names: Vec<&str> = document.comparisons[0]
        .rows
        .iter()
        .map(|row| row.name.as_str())
        .collect();
    assert_eq!(names, ["vllm@1.0 run=monday", "vllm@1.0 run=tuesday"]);
    let tables = &document.tables;
    assert_eq!(
        tables
            .overview
            .rows
            .iter()
            .map(|row| row.texts()[1].clone())
            .collect::<Vec<_>>(),
        ["monday", "tuesday"]
    );
    let columns = tables.overview_matrix.iter().flat_map(|across| &across.columns);
    let heads: Vec<&str> = columns.map(|column| column.head.as_str()).collect();
    assert_eq!(heads[5..], ["vllm@1.0 monday", "vllm@1.0 tuesday"]);
    let ratio = document.comparisons[0].rows[1].ratio.clone();
    assert_eq!(
        ratio.map(|ratio| (ratio.value, ratio.standing)),
        Some((1.0, VersusReference::NotJudged))
    );
    assert_eq!(document.standings.len(), 2);
}

/// A cell with five starts around a value.
fn cell_around(engine: &str, model: &str, tok_s: f64) -> Case {
    let mut case = Case::new(engine, "bf16", 1, tok_s);
    for factor in [1.004, 0.996, 1.002, 0.998] {
        case = case.measured_again(tok_s * factor);
    }
    for (start, summary) in (1..).zip(&mut case.summaries) {
        (summary.start, summary.repeat) = (start, 1);
    }
    case.launch.model = model.to_owned();
    case.launch.id = crate::base::ids::LaunchId::new(format!("{engine}-{model}"));
    case.cell.launch = case.launch.id.clone();
    case.cell.key = CellKey::new(format!("{engine}-{model}/s"));
    for summary in &mut case.summaries {
        summary.cell = case.cell.key.clone();
    }
    case
}

#[test]
fn a_mean_is_over_cells_that_all_engines_share_and_none_where_these_are_few_or_flagged() {
    let models = ["a", "b", "c", "d", "e"];
    let made = |change: &dyn Fn(&mut Vec<Case>)| {
        let mut cases: Vec<Case> = models.map(|model| cell_around("sglang", model, 1000.0)).into();
        let scaled = models.iter().zip([1.1, 1.2, 1.3, 1.4, 1.5]);
        cases.extend(scaled.map(|(model, factor)| cell_around("vllm", model, 1000.0 * factor)));
        change(&mut cases);
        let document = TestRun::new("one", cases).document();
        let notes = document.tables.rankings.as_ref().unwrap().notes.join("\n");
        (document.standings[1].clone(), notes)
    };
    let (standing, notes) = made(&|_| ());
    let mean = standing.mean.unwrap();
    let expected = (1.1f64 * 1.2 * 1.3 * 1.4 * 1.5).powf(0.2);
    assert!(
        (mean.value - expected).abs() < 1e-9 && (mean.most - 1.5).abs() < 1e-9,
        "{mean:?}"
    );
    assert_eq!((standing.wins, standing.not_judged), (5, 0));
    assert!(
        notes.contains("all engines have a ratio in 5 of 5 rows"),
        "{notes}"
    );
    let (standing, notes) = made(&|cases| {
        cases.remove(9);
    });
    assert!(
        standing.mean.is_some() && notes.contains("all engines have a ratio in 4 of 5 rows"),
        "{notes}"
    );
    let (standing, notes) = made(&|cases| cases.truncate(8));
    assert_eq!(standing.mean, None);
    assert!(
        notes.contains("the mean of the ratios is not shown: all engines have a ratio in 3 of 5 rows, which is less than 80 %"),
        "{notes}"
    );
    let (standing, notes) = made(&|cases| {
        cases[6].summaries[0].validity = Some(Validity {
            verdict: Verdict::Suspect,
            ..invalid()
        });
    });
    assert_eq!(standing.mean, None);
    assert!(
        notes.contains("1 of the cells in these rows are suspect or invalid"),
        "{notes}"
    );
}

#[test]
fn what_explains_columns_and_a_finding_of_many_cells_stand_once() {
    let flagged = |engine: &str| {
        let mut case = cell_around(engine, "a", 1000.0);
        for summary in &mut case.summaries {
            summary.validity = Some(invalid());
        }
        case
    };
    let cases = vec![
        flagged("a"),
        flagged("b"),
        cell_around("c", "b", 1.0),
        cell_around("d", "b", 1.0),
    ];
    let document = TestRun::new("one", cases).document();
    let page = drawn("markdown", &document);
    assert_eq!(page.matches("- definitions: matrix").count(), 1, "{page}");
    let findings = document.tables.findings.as_ref().unwrap();
    assert_eq!(findings.rows.len(), 1);
    assert_eq!(findings.rows[0].cells[3], Value::Count(10));
}

#[test]
fn every_mark_stands_in_the_first_table() {
    let flagged = |engine: &str, verdict| {
        let mut case = cell_around(engine, "a", 1000.0);
        for summary in &mut case.summaries {
            summary.validity = Some(Validity { verdict, ..invalid() });
        }
        case
    };
    let cases = vec![
        cell_around("sglang", "a", 900.0),
        flagged("vllm", Verdict::Suspect),
        flagged("lmdeploy", Verdict::Invalid),
        cell_around("sim", "a", 1.0).on_simulated_engine(),
    ];
    let document = TestRun::new("one", cases).document();
    let first = document.tables.overview_matrix.as_ref().unwrap();
    let texts = first.rows[0].texts();
    let ends = ["900.0", "× [suspect]", "≠ [invalid]", "≠ [simulated]"];
    for (text, end) in texts[5..].iter().zip(ends) {
        assert!(text.ends_with(end), "{texts:?}");
    }
    let in_markdown = drawn("markdown", &document);
    assert!(in_markdown.contains("≠ \\[invalid\\]"), "{in_markdown}");
}

#[test]
fn the_frontier_holds_what_nothing_beats() {
    let case = |engine: &str, user: f64, gpu: f64| {
        let mut case = Case::new(engine, "bf16", 1, gpu);
        let figures = case.summaries[0].figures.get_mut(&Definitions::Matrix).unwrap();
        figures.insert(Metric::Interactivity.name(), Some(user));
        case
    };
    let made = TestRun::new(
        "one",
        vec![
            case("a", 50.0, 100.0),
            case("b", 20.0, 400.0),
            case("c", 19.0, 399.0),
        ],
    );
    let document = made.document();
    let best: Vec<bool> = document.tradeoffs[0]
        .points
        .iter()
        .map(|point| point.is_on_frontier)
        .collect();
    assert_eq!(best, [true, true, false]);
}

/// An engine at 4 and 16 requests at once, with a start for each factor of its output.
fn loads(engine: &str, tok_s: f64, factors: &[f64]) -> Vec<Case> {
    let at = |slots: u32, output: f64| {
        let first = Case::new(engine, "bf16", 1, output * factors[0]);
        let again = |case: Case, factor: &f64| case.measured_again(output * factor);
        let mut case = factors[1..].iter().fold(first, again).at_concurrency(slots, 1.0);
        for ((summary, start), factor) in case.summaries.iter_mut().zip(1..).zip(factors) {
            (summary.start, summary.repeat) = (start, 1);
            let figures = summary.figures.get_mut(&Definitions::Matrix).unwrap();
            let per_user = output * factor / f64::from(slots);
            figures.insert(Metric::Interactivity.name(), Some(per_user));
        }
        case
    };
    vec![at(4, tok_s), at(16, 3.0 * tok_s)]
}

/// The points of an engine in the chart of output per user and GPU.
fn charted(document: &Document, engine: &str) -> Vec<[f64; 2]> {
    let charts = html::load_charts::tradeoff_charts(document);
    let [Chart::Plot(plot)] = charts.as_slice() else {
        panic!("{charts:?}")
    };
    let line = plot
        .lines
        .iter()
        .find(|line| line.name.starts_with(engine))
        .unwrap();
    line.points.iter().map(|point| [point.x, point.y]).collect()
}

#[test]
fn a_planted_tenth_is_in_sentence_chart_and_table_alike() {
    const STEADY: [f64; 5] = [1.0, 1.004, 0.996, 1.002, 0.998];
    let cases = loads("a@1", 1000.0, &STEADY)
        .into_iter()
        .chain(loads("b@2", 1100.0, &STEADY))
        .collect();
    let document = TestRun::new("one", cases).document();
    for (ours, theirs) in charted(&document, "b@2").iter().zip(charted(&document, "a@1")) {
        assert!(
            (ours[0] / theirs[0] - 1.1).abs() < 1e-9 && (ours[1] / theirs[1] - 1.1).abs() < 1e-9,
            "{ours:?} {theirs:?}"
        );
    }
    let is_of_winner = |point: &&OperatingPoint| point.is_on_frontier == point.engine.starts_with("b@2");
    assert_eq!(
        document.tradeoffs[0].points.iter().filter(is_of_winner).count(),
        4
    );
    for format in ["terminal", "markdown", "html"] {
        let text = drawn(format, &document)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .replace("<strong>b@2</strong>", "b@2");
        assert!(
            text.contains("b@2 has 1.10 times the output throughput of a@1 (95 % interval: 1.09 to 1.11)"),
            "{format}: {text}"
        );
        let plain = text.replace('\\', "");
        assert!(plain.contains("1.10 [1.09, 1.11]"), "{format}: {text}");
        assert!(
            plain.contains("1.10× [best]") || format == "html",
            "{format}: {text}"
        );
    }
}

#[test]
fn more_tokens_of_which_fewer_requests_are_within_the_slo_win_nothing() {
    const STEADY: [f64; 5] = [1.0, 1.004, 0.996, 1.002, 0.998];
    let with_goodput = |cases: Vec<Case>, goodput: f64| {
        cases.into_iter().map(move |mut case| {
            for summary in &mut case.summaries {
                let figures = summary.figures.get_mut(&Definitions::Matrix).unwrap();
                figures.insert(Metric::Goodput.name(), Some(goodput));
            }
            case
        })
    };
    let document = |goodput: f64| {
        let few = with_goodput(loads("b@2", 1300.0, &STEADY), goodput);
        let cases = with_goodput(loads("a@1", 1000.0, &STEADY), 7.5).chain(few);
        TestRun::new("one", cases.collect()).document()
    };
    for conclusion in &document(0.0).conclusions {
        assert_eq!(
            (conclusion.outcome, &conclusion.winner),
            (ConclusionOutcome::NoWinner, &None)
        );
        let why = "b@2 has better figures, but none of its answers meets the SLO";
        assert!(conclusion.sentence.contains(why), "{}", conclusion.sentence);
    }
    for conclusion in &document(7.0).conclusions {
        let why = "b@2 has better figures, but only 7.00 instead of 7.50 requests per second within the SLO";
        assert!(conclusion.sentence.contains(why), "{}", conclusion.sentence);
    }
    assert!(!drawn("markdown", &document(0.0)).contains("[best"));
    let all_win = document(8.0).conclusions.iter().all(|one| one.winner.is_some());
    assert!(all_win, "{:?}", document(8.0).conclusions);
}

#[test]
fn a_scenario_whose_name_begins_another_one_has_winners_of_its_own() {
    let of = |scenario: &'static str, factors: &'static [f64], best: f64| {
        let cases = loads("a@1", 1000.0, factors)
            .into_iter()
            .chain(loads("b@2", best, factors));
        cases.map(move |case| case.in_scenario(scenario))
    };
    let cases = of("chat", &[1.0, 1.004, 0.996, 1.002, 0.998], 1100.0).chain(of(
        "chat-long",
        &[1.0, 1.2, 0.85, 1.1, 0.9],
        1050.0,
    ));
    let document = TestRun::new("one", cases.collect()).document();
    let winners: Vec<(&str, bool)> = document
        .tradeoffs
        .iter()
        .map(|tradeoff| (tradeoff.title.as_str(), tradeoff.has_winners))
        .collect();
    assert_eq!(
        winners,
        [
            ("Qwen/Qwen3-8B · chat", true),
            ("Qwen/Qwen3-8B · chat-long", false)
        ]
    );
}

#[test]
fn an_unclear_difference_has_a_winner_neither_in_sentence_nor_in_chart_nor_in_table() {
    const WIDE: [f64; 5] = [1.0, 1.2, 0.85, 1.1, 0.9];
    let cases = loads("a@1", 1000.0, &WIDE)
        .into_iter()
        .chain(loads("b@2", 1050.0, &WIDE))
        .collect();
    let document = TestRun::new("one", cases).document();
    assert!(
        document
            .conclusions
            .iter()
            .all(|conclusion| conclusion.winner.is_none())
    );
    for format in ["terminal", "markdown", "html"] {
        let text = drawn(format, &document)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .replace("<strong>No winner</strong>", "No winner");
        assert!(text.contains("No winner among a@1 and b@2"), "{format}: {text}");
        assert!(
            !text.contains("times the output") && !text.contains("[best"),
            "{format}: {text}"
        );
    }
}

#[test]
fn the_same_results_give_the_same_bytes_in_every_format() {
    let made = || {
        TestRun::new(
            "one",
            vec![
                Case::new("sglang", "bf16", 1, 4000.0),
                Case::new("vllm", "bf16", 2, 1.0),
            ],
        )
    };
    let all = || {
        let document = made().document();
        FORMATS.each_ref().map(|format| drawn(format.name, &document))
    };
    assert_eq!(all(), all());
}

#[test]
fn hostile_text_stays_text_in_every_format() {
    let made = hostile_run();
    let document = made.document();
    let page = html::draw(&document);
    assert!(!page.contains("<script>alert"), "it is markup");
    assert!(page.contains("{{ 7*7 }}{% raw %}"), "it is a template");
    assert_eq!(page.matches("<script").count(), 1);
    assert_eq!(page.matches("</style").count(), 1);
    assert!(page.contains("&lt;script&gt;"));
    assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}'));
    let markdown = drawn("markdown", &document);
    assert!(!markdown.contains("<script") && !markdown.contains('\u{1b}'));
    assert!(!markdown.replace("\\](", "").contains("]("), "it is a link");
    let table: Vec<usize> = drawn("csv-long", &document)
        .split("\r\n")
        .map(|line| line.matches('"').count())
        .collect();
    assert!(table.iter().all(|quotes| quotes % 2 == 0));
    assert!(
        drawn("csv-long", &document)
            .lines()
            .skip(1)
            .all(|line| !line.starts_with('='))
    );
    let json: serde_json::Value = serde_json::from_str(&document.json()).unwrap();
    assert_eq!(json["cells"][0]["model"], HOSTILE);
    let terminal = drawn("terminal", &document);
    assert!(!terminal.contains('\u{1b}') && !terminal.contains('\u{202e}'));
}

#[test]
fn json_follows_its_schema() {
    let schema = schemars::generate::SchemaSettings::default()
        .for_serialize()
        .into_generator()
        .into_root_schema_for::<Document>();
    let validator = jsonschema::validator_for(schema.as_value()).unwrap();
    let cases = vec![
        Case::new("sglang", "bf16", 1, 4000.0).measured_again(4100.0),
        Case::new("slow", "bf16", 1, 1.0)
            .with_failure(crate::results::record::cell::Phase::Launch, "it died"),
    ];
    for made in [TestRun::new("one", cases), hostile_run()] {
        let json = serde_json::from_str(&made.document().json()).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(&json)
            .map(|error| error.to_string())
            .collect();
        assert!(errors.is_empty(), "{errors:#?}");
    }
}
