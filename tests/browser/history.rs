//! The page of many nights: a loss, a leak, a new driver, a moved baseline, an invalid night and names that mean harm.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::devtools::Page;
use crate::{SKIPPED, browser, fits_every_screen, stays_silent_and_fetches_nothing, under_the_pointer};

const NIGHTS: u32 = 40;
const FIGURE: &str = "output_throughput_tok_s";
/// The key of a cell that would be a script, were it not text.
const HOSTILE: &str = "engine=vllm,executor=container,model=<script>alert(1)</script>,precision=bf16,tp=2,scenario=\"><img src=x onerror=alert(2)> & \u{202e}x,rate=inf";

fn keys() -> Vec<String> {
    let engines = ["sglang", "vllm"].into_iter();
    let mut keys: Vec<String> = engines
        .flat_map(|engine| {
            ["Qwen/Qwen3-8B", "Qwen/Qwen3-32B"].into_iter().flat_map(move |model| {
                ["sharegpt", "random-1k-1k"].map(|scenario| {
                    format!("engine={engine},executor=container,model={model},precision=bf16,tp=2,scenario={scenario},rate=inf")
                })
            })
        })
        .collect();
    keys[7] = HOSTILE.to_owned();
    keys
}

/// A night's figure of a cell: the first loses 7 % from the 25th night on, the second leaks a little every night.
fn figure(night: u32, cell: usize) -> f64 {
    let noise = f64::from((night * 37 + 11 * cell as u32) % 17) / 17.0 - 0.5;
    let factor = match cell {
        0 if night >= 24 => 0.93,
        1 => 1.0 - 0.002 * f64::from(night),
        _ => 1.0,
    };
    1800.0 * (1.0 + cell as f64 / 3.0) * factor * (1.0 + 0.012 * noise)
}

fn night(night: u32) -> Value {
    let is_invalid = |cell: usize| night == 15 && cell < 3;
    let cells: serde_json::Map<String, Value> = keys()
        .into_iter()
        .enumerate()
        .map(|(cell, key)| {
            let values = match is_invalid(cell) {
                true => vec![],
                false => vec![figure(night, cell), figure(night, cell) * 1.001],
            };
            let about = json!({
                "prompts": "0123456789abcdef",
                "origin": "measured",
                "engine": { "version": if night < 30 { "0.10.1" } else { "0.10.2" } },
                "figures": { FIGURE: values },
            });
            (key, about)
        })
        .collect();
    let mut findings = Vec::new();
    for (cell, key) in keys().iter().enumerate().filter(|(cell, _)| is_invalid(*cell)) {
        findings.push(json!({ "kind": "invalid", "cell": key, "text": format!("client-late ({cell}0 ms against 5 ms)") }));
    }
    if night >= 24 {
        findings.push(json!({ "kind": "worse", "cell": keys()[0], "figure": FIGURE, "text": "output throughput -7.0 % by 5 fresh starts" }));
    }
    if night == NIGHTS - 1 {
        findings.push(
            json!({ "kind": "undecided", "cell": HOSTILE, "text": "neither <b>confirmed</b> nor refuted" }),
        );
    }
    let baseline = match night {
        0 => Value::Null,
        1..=31 => json!("nightly-0"),
        _ => json!("nightly-31"),
    };
    json!({
        "format": 1,
        "at": format!("2026-{:02}-{:02}T03:12:00.000Z", 3 + night / 28, 1 + night % 28),
        "run": format!("nightly-{night}"),
        "matrix": "nightly",
        "baseline": baseline,
        "machine": { "host": "h100-a", "driver": if night < 10 { "550.54.14" } else { "560.35.03" } },
        "cells": cells,
        "findings": findings,
    })
}

/// Writes the nights as `matrix nightly` leaves them, and has their page drawn.
fn drawn(folder: &Path) -> PathBuf {
    let nightly = folder.join("results/nightly");
    std::fs::create_dir_all(&nightly).expect("a folder can be made");
    let lines: String = (0..NIGHTS).map(|at| format!("{}\n", night(at))).collect();
    std::fs::write(nightly.join("history-nightly.jsonl"), lines).expect("a file can be written");
    let page = folder.join("history.html");
    let drawn = Command::new(crate::binary::matrix())
        .args(["history", "nightly", "--format", "html", "--out"])
        .arg(&page)
        .current_dir(folder)
        .output()
        .expect("the binary runs");
    assert!(
        drawn.status.success(),
        "{}",
        String::from_utf8_lossy(&drawn.stderr)
    );
    page
}

#[test]
fn a_history_fits_every_screen_filters_its_charts_and_fetches_nothing() {
    let Some(browser) = browser() else {
        crate::skip::skip(SKIPPED);
        return;
    };
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = drawn(folder.path());
    let mut page = Page::open(&browser);
    fits_every_screen(&mut page, &file, "history-");
    page.look(1280, 900, false, "light");
    page.load(&file);
    let actual = under_the_pointer(&mut page);
    assert!(
        actual.contains("output throughput") && actual.contains(" 2026-0"),
        "{actual}"
    );
    let seen = "[...document.querySelectorAll('figure')].filter((one) => !one.hidden).length";
    assert_eq!(page.value(seen), json!(8));
    let filter = "(() => {
      const box = document.getElementById('filter');
      box.value = 'vllm 32b sharegpt';
      box.dispatchEvent(new Event('input'));
      return 0;
    })()";
    page.value(filter);
    assert_eq!(page.value(seen), json!(1));
    let changes = page.value("document.querySelectorAll('svg.plot .worse').length");
    assert!(changes.as_u64() >= Some(1), "{changes}");
    let gaps = page.value("document.querySelectorAll('svg.plot .gap').length");
    assert_eq!(gaps, json!(3));
    assert_eq!(page.value("document.querySelectorAll('img, b').length"), json!(0));
    stays_silent_and_fetches_nothing(&page, &file);
}
