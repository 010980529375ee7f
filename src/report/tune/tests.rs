//! The page of a search with a confirmed winner.

use std::collections::BTreeMap;

use super::*;
use crate::base::ids::RunId;
use crate::results::record::tune::{ConfirmationRun, ContributionRecord, SpaceRow, Spent};

/// A search of two configurations besides the default; one of them crashed, and the other was confirmed.
pub(crate) fn record() -> TuneRecord {
    let trial = |set: &str, value: &str, figure: Option<f64>| TrialRecord {
        set: set.to_owned(),
        point: vec![
            ["", "128", "256"]
                .iter()
                .position(|known| *known == value)
                .unwrap_or(0),
        ],
        is_short: false,
        settings: match value {
            "" => BTreeMap::new(),
            value => BTreeMap::from([("--seqs".to_owned(), value.to_owned())]),
        },
        outcome: match figure {
            Some(_) => TrialResult::Measured,
            None => TrialResult::Infeasible,
        },
        figure,
        reason: figure
            .is_none()
            .then(|| "failed in launch: out of memory".to_owned()),
        throughput_per_gpu: figure,
        interactivity: figure.map(|figure| 1000.0 / figure),
        ttft_ms: figure,
    };
    TuneRecord {
        format: 1,
        matrix: "m".to_owned(),
        engine: "vllm".to_owned(),
        model: "q".to_owned(),
        scenario: "chat".to_owned(),
        objective: "throughput".to_owned(),
        metric: "output throughput".to_owned(),
        unit: "tok/s".to_owned(),
        budget: "24 starts".to_owned(),
        seed: 1,
        confirm_starts: 5,
        space: vec![SpaceRow {
            setting: "--seqs".to_owned(),
            values: ["64", "128", "256"].map(str::to_owned).to_vec(),
            default: "64".to_owned(),
        }],
        notes: Vec::new(),
        trials: vec![
            trial("default", "", Some(100.0)),
            trial("t01", "128", Some(125.0)),
            trial("t02", "256", None),
        ],
        confirmations: Vec::new(),
        spent: Spent {
            repeated_starts: 0,
            trial_starts: 3,
            confirm_starts: 10,
            gpu_minutes: 6.5,
        },
        is_simulated: false,
        gpu_hour_price: None,
        result: Some(TuneResult {
            kind: TuneResultKind::Confirmed,
            reason: "better".to_owned(),
            winner: Some("t01".to_owned()),
            entry: Some("args: [--seqs, \"128\"]\n".to_owned()),
            contributions: vec![ContributionRecord {
                setting: "--seqs".to_owned(),
                value: "128".to_owned(),
                default: "64".to_owned(),
                change: Some(0.25),
            }],
            confirmation: Some(Confirmation {
                run: RunId::new("m-tune-t01-20261128-000000"),
                metric: "output throughput".to_owned(),
                verdict: "better".to_owned(),
                starts: [5, 5],
                values: [Some(100.0), Some(125.0)],
                change: Some(0.25),
                interval: Some([0.2, 0.3]),
                starts_to_decide: None,
                failed_starts: [0, 0],
                doubts: [None, Some("suspect: host-busy in 1 of 5 starts".to_owned())],
            }),
        }),
    }
}

#[test]
fn the_page_has_answer_findings_entry_failures_frontier_and_trials() {
    let page = TunePage::new(&record()).markdown();
    let mut rest = page.as_str();
    for part in [
        "# Best flags of vllm for output throughput? --seqs=128: +25.0 % (95 % interval +20.0 % to +30.0 %)",
        "Findings with these settings: suspect: host-busy in 1 of 5 starts",
        "args: [--seqs, \"128\"]",
        "## What each setting contributes",
        "## What failed, and why",
        "failed in launch: out of memory",
        "## Frontier",
        "## Trials",
    ] {
        let at = rest
            .find(part)
            .unwrap_or_else(|| panic!("`{part}` is not in\n{page}"));
        rest = &rest[at..];
    }
    assert!(!page.contains("Findings with the default"), "{page}");
}

#[test]
fn a_rejected_configuration_is_named_and_not_on_the_frontier() {
    let mut record = record();
    let confirmation = |set: &str, finding: &str, is_rejected| ConfirmationRun {
        set: set.to_owned(),
        run: RunId::new(format!("m-tune-{set}")),
        finding: finding.to_owned(),
        is_rejected,
        is_undecided: false,
        repeated_starts: 0,
        starts: 10,
        gpu_minutes: 3.0,
    };
    record.confirmations = vec![confirmation(
        "t01",
        "it is less reliable: 5 of 5 starts crashed",
        true,
    )];
    record.result = None;
    let page = TunePage::new(&record).markdown();
    for part in [
        "Rejected: t01 (--seqs=128) in 10 starts: it is less reliable: 5 of 5 starts crashed (run m-tune-t01).",
        "| t01 | 125.00 | rejected in its confirmation | --seqs=128 |",
        "3 configurations of 3 in 3 starts",
    ] {
        assert!(page.contains(part), "`{part}` is not in\n{page}");
    }
    let frontier = frontier_table(&record);
    assert_eq!(frontier.rows.len(), 1, "{frontier:?}");
    // Two that were judged are two chances of a false winner.
    record.confirmations = vec![
        confirmation("t01", "better", false),
        confirmation("t03", "better", false),
    ];
    let page = TunePage::new(&record).markdown();
    assert!(
        page.contains("2 configurations were tested for confirmation one after another"),
        "{page}"
    );
}
