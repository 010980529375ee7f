use super::frontier::frontiers;
use super::history::{all_series, figures};
use super::row::{FIGURES, RowState, interval};
use super::*;
use crate::analysis::compare::machine_facts::facts_of_measurements;
use crate::analysis::metrics::Metric;
use crate::base::ids::CellKey;
use crate::config::template::Template;
use crate::plan::ExecutorSpec;
use crate::report::html;
use crate::report::testing::Case;
use crate::results::record::cell_stats::Facts;
use crate::results::record::validity::{MetricFamily, Reason, ReasonCode, Validity, Verdict};

const HOSTILE: &str = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>";

fn machine(host: &str) -> Machine {
    Machine {
        host: Some(host.to_owned()),
        machine_id: Some(format!("id of {host}")),
        gpus: vec!["H100".to_owned(), "H100".to_owned()],
        ..Machine::default()
    }
}

/// Adds a run that began on this day of November.
fn add(site: &mut Site, name: &str, day: u32, machine: &Machine, cases: &[Case]) {
    let rows = cases
        .iter()
        .map(|case| row::row(&case.report_cell(), machine, &mut site.hosts))
        .collect();
    site.runs.push(SiteRun {
        name: name.to_owned(),
        matrix: "m".to_owned(),
        began: format!("2026-11-{day:02}T06:00:00Z"),
        tool: "matrix 0.1.0".to_owned(),
        page: format!("runs/{day}.html"),
        rows,
    });
    site.sort();
}

/// A valid cell.
fn judged(engine: &str, tok_s: f64) -> Case {
    with_reasons(Case::new(engine, "bf16", 1, tok_s), Vec::new())
}

fn with_reasons(mut case: Case, reasons: Vec<Reason>) -> Case {
    for summary in &mut case.summaries {
        summary.validity = Some(Validity::from_reasons(reasons.clone()));
        let figures = summary.figures.values_mut();
        for values in figures {
            values.insert("interactivity_tok_s".to_owned(), Some(80.0));
            values.insert("median_tpot_ms".to_owned(), Some(12.0));
        }
    }
    case
}

fn reason(weight: Verdict, only: &[MetricFamily]) -> Reason {
    Reason {
        code: ReasonCode::ClientLate,
        weight,
        only: only.to_vec(),
        measured: String::new(),
        bound: None,
        advice: String::new(),
    }
}

fn value(site: &Site) -> serde_json::Value {
    serde_json::from_str(&data::json(site)).expect("it is JSON")
}

#[test]
fn a_row_has_its_verdict_with_codes_and_unknown_figures_are_no_zeros() {
    let mut site = Site::default();
    let suspect = reason(Verdict::Suspect, &[MetricFamily::Ttft]);
    let cases = [
        judged("a", 100.0),
        with_reasons(Case::new("b", "bf16", 1, 100.0), vec![suspect]),
        with_reasons(
            Case::new("c", "bf16", 1, 100.0),
            vec![reason(Verdict::Invalid, &[])],
        ),
        Case::new("d", "bf16", 1, 100.0),
        Case::new("e", "bf16", 1, 1.0).with_failure(crate::results::record::cell::Phase::Launch, "no memory"),
    ];
    add(&mut site, "run", 1, &machine("h"), &cases);
    let rows = &site.runs[0].rows;
    let verdicts: Vec<String> = rows.iter().map(SiteRow::verdict).collect();
    assert_eq!(
        verdicts,
        [
            "valid",
            "suspect: client-late (TTFT)",
            "invalid: client-late",
            "not judged",
            "failed in launch"
        ]
    );
    let ttft = FIGURES[1];
    let drawn = |row: usize, metric| rows[row].drawable(metric).map(|figure| figure.verdict);
    assert_eq!(drawn(1, ttft), Some(Verdict::Suspect));
    assert_eq!(drawn(1, FIGURES[0]), Some(Verdict::Valid), "only TTFT is suspect");
    assert_eq!(drawn(2, FIGURES[0]), None, "it is invalid");
    assert_eq!(drawn(4, FIGURES[0]), None, "it failed");
    let json = value(&site);
    let failed = json["rows"][4][15].as_array().expect("figures");
    assert!(failed.iter().all(|figure| *figure == 0), "{failed:?}");
    assert_eq!(json["rows"][2][15][0][1], 2);
    let page = html::draw_site(&site);
    assert!(page.contains("<td class=\"right void\">100</td>"));
    assert!(page.contains("<td class=\"right\">–</td>"));
}

#[test]
fn hostile_names_stay_text() {
    let mut site = Site::default();
    let mut case = judged(HOSTILE, 100.0);
    case.launch.model = HOSTILE.to_owned();
    case.cell.scenario.name = HOSTILE.to_owned();
    case.cell.key = CellKey::new(HOSTILE);
    let again = judged(HOSTILE, 90.0);
    add(&mut site, HOSTILE, 1, &machine(HOSTILE), &[case]);
    add(&mut site, "\u{202e}\n]]>", 2, &machine(HOSTILE), &[again]);
    let page = html::draw_site(&site);
    assert_eq!(
        page.matches("<script").count(),
        2,
        "the data and the script of the page"
    );
    assert_eq!(page.matches("</script").count(), 2);
    assert!(!page.contains("<img") && !page.contains('\u{202e}'));
    let json = value(&site);
    let texts = json["texts"].as_array().expect("texts");
    assert!(
        texts.iter().any(|text| text == HOSTILE),
        "the script shows the name as it is"
    );
}

#[test]
fn equal_texts_and_conditions_are_written_once_and_rows_stay_small() {
    let mut site = Site::default();
    for run in 0..20 {
        let cases: Vec<Case> = (0..50)
            .map(|cell| judged("vllm@1.0", 100.0 + f64::from(cell)))
            .collect();
        add(&mut site, &format!("run-{run}"), run + 1, &machine("h"), &cases);
    }
    let json = data::json(&site);
    assert!(json.len() < 1000 * 300, "{} bytes for 1000 rows", json.len());
    assert_eq!(value(&site)["facts"].as_array().map(Vec::len), Some(3));
}

#[test]
fn the_order_of_runs_does_not_depend_on_the_order_of_the_arguments() {
    let pages = [[1, 2, 3], [3, 1, 2]].map(|days| {
        let mut site = Site::default();
        for day in days {
            let case = judged("vllm@1.0", f64::from(100 + day));
            add(&mut site, &format!("run-{day}"), day, &machine("h"), &[case]);
        }
        html::draw_site(&site)
    });
    assert!(pages[0] == pages[1]);
}

#[test]
fn a_frontier_has_a_line_for_each_version_and_no_invalid_point() {
    let mut site = Site::default();
    let invalid = with_reasons(
        Case::new("vllm@3.0", "bf16", 1, 900.0),
        vec![reason(Verdict::Invalid, &[])],
    );
    add(&mut site, "old", 1, &machine("h"), &[judged("vllm@1.0", 90.0)]);
    add(&mut site, "again", 2, &machine("h"), &[judged("vllm@1.0", 100.0)]);
    add(
        &mut site,
        "new",
        3,
        &machine("h"),
        &[judged("vllm@0.10.0", 110.0)],
    );
    add(
        &mut site,
        "older",
        3,
        &machine("h"),
        &[judged("vllm@0.9.1", 95.0)],
    );
    add(&mut site, "bad", 4, &machine("h"), &[invalid]);
    add(
        &mut site,
        "other",
        5,
        &machine("other"),
        &[judged("vllm@4.0", 120.0)],
    );
    let frontiers = frontiers(&site);
    assert_eq!(frontiers.len(), 1, "a host with one point has no chart");
    let points: Vec<(&str, f64)> = frontiers[0]
        .versions
        .iter()
        .map(|version| (version.version.as_str(), version.points[0].output_tok_s))
        .collect();
    assert_eq!(points, [("0.9.1", 95.0), ("0.10.0", 110.0), ("1.0", 100.0)]);
    assert_eq!(frontiers[0].notes.len(), 2, "{:?}", frontiers[0].notes);
    let of_new = &frontiers[0].versions[1].points[0];
    assert_eq!(of_new.page, "runs/3.html");
    for word in ["run new", "2026-11-03", "host h", "matrix 0.1.0", "valid"] {
        assert!(of_new.provenance.contains(word), "{}", of_new.provenance);
    }
}

#[test]
fn results_with_tpot_alone_are_in_frontiers() {
    let with_tpot = |version: &str, output: f64, tpot_ms: f64| {
        let mut case = judged(version, output);
        for figures in case.summaries[0].figures.values_mut() {
            figures.remove(&Metric::Interactivity.name());
            figures.insert("mean_tpot_ms".to_owned(), Some(tpot_ms));
        }
        case
    };
    let mut site = Site::default();
    add(
        &mut site,
        "a",
        1,
        &machine("h"),
        &[with_tpot("vllm@1.0", 100.0, 20.0)],
    );
    add(
        &mut site,
        "b",
        2,
        &machine("h"),
        &[with_tpot("vllm@2.0", 110.0, 25.0)],
    );
    let frontiers = frontiers(&site);
    let users: Vec<f64> = frontiers[0]
        .versions
        .iter()
        .map(|version| version.points[0].interactivity_tok_s)
        .collect();
    assert_eq!(users, [50.0, 40.0]);
}

#[test]
fn other_loads_and_settings_are_not_joined_to_one_line() {
    let mut site = Site::default();
    let mut other_load = judged("vllm@1.0", 90.0);
    other_load.cell.scenario.stop_at_eos = true;
    let mut other_settings = judged("vllm@1.0", 95.0);
    other_settings.launch.checkpoint = "org/other".to_owned();
    add(&mut site, "load", 1, &machine("h"), &[other_load]);
    add(&mut site, "settings", 2, &machine("h"), &[other_settings]);
    let newest = [judged("vllm@1.0", 100.0), judged("vllm@2.0", 110.0)];
    add(&mut site, "newest", 3, &machine("h"), &newest);
    let series = all_series(&site);
    let moments = &series[0].moments;
    for (at, change) in [(1, "answers: "), (2, "checkpoint: ")] {
        let why = moments[at].break_since(&moments[at - 1]);
        assert!(why.as_ref().is_some_and(|why| why.contains(change)), "{why:?}");
    }
    let notes = frontiers(&site)[0].notes.join("; ");
    assert!(
        notes.contains("with the settings of its newest run; 1 cell with other settings is left out"),
        "{notes}"
    );
}

/// The newest case with these arguments of its engine.
fn with_arguments(tok_s: f64, arguments: &[&str]) -> Case {
    let mut case = judged("vllm@1.0", tok_s);
    if let ExecutorSpec::Container(container) = &mut case.launch.place {
        container
            .command
            .extend(arguments.iter().copied().map(Template::from));
    }
    case
}

#[test]
fn a_setting_of_only_one_date_breaks_the_line() {
    let mut site = Site::default();
    let runs = [
        ("without", with_arguments(100.0, &[])),
        ("with", with_arguments(200.0, &["--step", "3ms"])),
        ("again", with_arguments(201.0, &["--step", "3ms"])),
        ("removed", with_arguments(100.0, &[])),
    ];
    for ((name, case), day) in runs.into_iter().zip(1..) {
        add(&mut site, name, day, &machine("h"), &[case]);
    }
    let series = all_series(&site);
    let moments = &series[0].moments;
    let breaks: Vec<Option<String>> = (1..4)
        .map(|at| moments[at].break_after(moments[..at].iter()))
        .collect();
    let [added, removed] = ["--step: not set → 3ms", "--step: 3ms → not set"].map(|why| Some(why.to_owned()));
    assert_eq!(breaks, [added, None, removed]);
    assert!(html::draw_site(&site).contains("--step: not set → 3ms"));
}

#[test]
fn another_recipe_under_the_same_name_breaks_the_line() {
    let mut site = Site::default();
    let mut other = judged("vllm@1.0", 90.0);
    other.launch.engine.recipe = "mine".to_owned();
    add(&mut site, "other", 1, &machine("h"), &[other]);
    add(
        &mut site,
        "newest",
        2,
        &machine("h"),
        &[judged("vllm@1.0", 100.0)],
    );
    let series = all_series(&site);
    let moments = &series[0].moments;
    let why = moments[1].break_since(&moments[0]).expect("the recipe changed");
    assert!(why.starts_with("recipe: mine → "), "{why}");
}

/// An attached server reports what it likes: a setting that it does not report is unknown.
#[test]
fn a_setting_that_is_not_reported_breaks_no_line() {
    let attached = |info: serde_json::Value| {
        let mut case = judged("vllm@1.0", 100.0);
        case.launch.place = ExecutorSpec::Attach(Default::default());
        case.summaries[0].engine.info = Some(info);
        case
    };
    let mut site = Site::default();
    let reports = [
        serde_json::json!({}),
        serde_json::json!({ "dtype": "bf16" }),
        serde_json::json!({ "dtype": "fp16" }),
    ];
    for (info, day) in reports.into_iter().zip(1..) {
        add(
            &mut site,
            &format!("run-{day}"),
            day,
            &machine("h"),
            &[attached(info)],
        );
    }
    let series = all_series(&site);
    let moments = &series[0].moments;
    assert_eq!(moments[1].break_since(&moments[0]), None);
    assert_eq!(
        moments[2].break_since(&moments[1]).as_deref(),
        Some("dtype: bf16 → fp16")
    );
}

#[test]
fn a_history_leaves_invalid_dates_out_and_breaks_where_the_driver_changed() {
    let mut site = Site::default();
    let with_driver = |driver: &str| Machine {
        driver: Some(driver.to_owned()),
        ..machine("h")
    };
    let invalid = with_reasons(
        Case::new("vllm@1.0", "bf16", 1, 900.0),
        vec![reason(Verdict::Invalid, &[])],
    );
    add(
        &mut site,
        "a",
        1,
        &with_driver("550"),
        &[judged("vllm@1.0", 100.0)],
    );
    add(&mut site, "b", 2, &with_driver("550"), &[invalid]);
    add(
        &mut site,
        "c",
        3,
        &with_driver("550"),
        &[judged("vllm@2.0", 101.0)],
    );
    add(
        &mut site,
        "d",
        4,
        &with_driver("560"),
        &[judged("vllm@2.0", 102.0)],
    );
    let series = all_series(&site);
    assert_eq!(series.len(), 1);
    let output = figures()[0];
    let moments = &series[0].moments;
    let values: Vec<Option<f64>> = moments
        .iter()
        .map(|moment| moment.figure(output).map(|figure| figure.value))
        .collect();
    assert_eq!(values, [Some(100.0), None, Some(101.0), Some(102.0)]);
    assert!(moments[1].is_invalid(output));
    assert_eq!(moments[2].break_since(&moments[0]), None);
    let driver = moments[3].break_since(&moments[2]).expect("the driver changed");
    assert!(driver.contains("550 → 560"), "{driver}");
    let page = html::draw_site(&site);
    for class in ["turn gap", "turn cut", "turn note"] {
        assert!(page.contains(class), "{class}");
    }
}

#[test]
fn nightly_runs_without_a_folder_are_part_of_the_history() {
    let mut site = Site::default();
    let today = judged("vllm@1.0", 100.0);
    let cell = today.cell.key.clone();
    add(&mut site, "today", 20, &machine("h"), &[today]);
    add(
        &mut site,
        "first",
        1,
        &machine("h"),
        &[with_arguments(80.0, &["--step", "3ms"])],
    );
    let night = |run: &str, day: u32| NightlyRun {
        at: format!("2026-11-{day:02}T03:00:00Z"),
        run: crate::base::ids::RunId::new(run),
        machine: facts_of_measurements(&machine("h"), std::iter::empty()),
        cells: [(
            cell.clone(),
            crate::results::record::nightly::NightlyCell {
                prompts: None,
                origin: None,
                engine: Facts::new(),
                figures: [(figures()[0].name(), vec![90.0, 90.0])].into(),
            },
        )]
        .into(),
        format: 2,
        matrix: "m".to_owned(),
        baseline: None,
        judged: None,
        upgrade: None,
        findings: Vec::new(),
    };
    site.add_night(night("gone", 10));
    site.add_night(night("today", 20));
    let series = all_series(&site);
    let moments = &series[0].moments;
    assert_eq!(moments.len(), 3, "a run that is there counts once");
    assert_eq!(
        moments[1].figure(figures()[0]).map(|figure| figure.value),
        Some(90.0)
    );
    assert_eq!(moments[1].page, "");
    assert_eq!(moments[1].break_after(moments[..1].iter()), None);
    let why = moments[2].break_after(moments[..2].iter());
    assert_eq!(
        why.as_deref(),
        Some("--step: 3ms → not set"),
        "it has no settings, so those before count"
    );
}

#[test]
fn an_interval_needs_two_starts_and_holds_the_mean() {
    assert_eq!(interval(&[100.0]), None);
    assert_eq!(interval(&[0.0, 1.0]), None);
    let [low, high] = interval(&[100.0, 102.0, 98.0]).expect("three starts");
    assert!(
        94.0 < low && low < 99.9 && 100.1 < high && high < 106.0,
        "{low} {high}"
    );
}

#[test]
fn conditions_tell_hosts_apart_and_unknown_is_named() {
    let mut site = Site::default();
    add(&mut site, "a", 1, &machine("h"), &[judged("vllm@1.0", 100.0)]);
    add(&mut site, "b", 2, &machine("h"), &[judged("vllm@2.0", 100.0)]);
    add(&mut site, "c", 3, &machine("other"), &[judged("vllm@1.0", 100.0)]);
    add(
        &mut site,
        "d",
        4,
        &Machine::default(),
        &[judged("vllm@1.0", 100.0)],
    );
    let row = |name: &str| {
        let run = site
            .runs
            .iter()
            .find(|run| run.name == name)
            .expect("it is there");
        &run.rows[0]
    };
    assert_eq!(row("a").conditions.host, row("b").conditions.host);
    assert_eq!(
        row("a").conditions.settings,
        row("b").conditions.settings,
        "the version is no setting"
    );
    assert_ne!(row("a").conditions.host, row("c").conditions.host);
    assert_ne!(row("a").host, row("c").host);
    assert_eq!(row("d").conditions.host["host"], row::UNKNOWN);
    assert_eq!(row("a").state, RowState::Valid);
}
