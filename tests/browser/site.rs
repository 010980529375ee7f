//! The site of many runs: first screens, search, sorting and comparison of two rows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::devtools::Page;
use crate::{
    SKIPPED, browser, fits_every_screen, page_of_a_run, repository, stays_silent_and_fetches_nothing,
};

/// The name of a run that would be a script, were it not text.
const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'";

/// Copies a run under another name and date.
fn copy(run: &Path, name: &str, began: &str) {
    let copied = run.with_file_name(began.replace(':', "-"));
    let done = Command::new("cp").arg("-r").args([run, &copied]).status();
    assert!(done.is_ok_and(|status| status.success()));
    let path = copied.join("run.json");
    let mut about: Value =
        serde_json::from_slice(&fs::read(&path).expect("it is there")).expect("it is JSON");
    about["run"] = json!(name);
    about["began"] = json!(began);
    fs::write(&path, about.to_string()).expect("it can be written");
}

/// A site of a run, its copies and the published figures.
fn site(folder: &Path) -> PathBuf {
    let report = page_of_a_run(folder);
    let run = report.parent().expect("it lies in the folder of a run");
    copy(run, HOSTILE, "2026-01-02T03:04:05Z");
    copy(run, "second", "2026-01-03T03:04:05Z");
    let written = Command::new(crate::binary::matrix())
        .args(["site", "public", "results"])
        .arg(repository().join("results/published"))
        .current_dir(folder)
        .output()
        .expect("the binary runs");
    assert!(
        written.status.success(),
        "{}",
        String::from_utf8_lossy(&written.stderr)
    );
    folder.join("public/index.html")
}

/// The texts of the rows that are shown.
fn rows(page: &mut Page) -> Vec<String> {
    let shown = page.value("[...document.querySelectorAll('#rows tbody tr')].map((row) => row.textContent)");
    serde_json::from_value(shown).expect("rows are texts")
}

fn search(page: &mut Page, words: &str) {
    page.value(&format!(
        "(() => {{ const box = document.getElementById('filter'); box.value = {}; box.dispatchEvent(new Event('input')); return 0; }})()",
        json!(words)
    ));
}

#[test]
fn a_site_shows_search_and_table_first_searches_sorts_and_compares_two_rows() {
    let Some(browser) = browser() else {
        crate::skip::skip(SKIPPED);
        return;
    };
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = site(folder.path());
    let mut page = Page::open(&browser);
    fits_every_screen(&mut page, &file, "site-");
    for (width, height, is_phone) in [(390, 844, true), (1400, 900, false)] {
        for scheme in ["light", "dark"] {
            page.look(width, height, is_phone, scheme);
            page.load(&file);
            let bottoms = "['#filter', '#rows tbody tr:first-child'].map((what) => \
                           document.querySelector(what).getBoundingClientRect().bottom)";
            let bottoms: Vec<f64> = serde_json::from_value(page.value(bottoms)).expect("each is there");
            assert!(
                bottoms.iter().all(|bottom| *bottom < f64::from(height)),
                "{width}: {bottoms:?}"
            );
        }
    }
    let cut = "[...document.querySelectorAll('#rows td.right')].filter((cell) => cell.scrollWidth > cell.clientWidth).length";
    assert_eq!(page.value(cut), json!(0), "a figure is wider than its column");
    searches(&mut page);
    sorts(&mut page);
    compares(&mut page);
    assert_eq!(page.value("document.querySelectorAll('img').length"), json!(0));
    stays_silent_and_fetches_nothing(&page, &file);
    draws_one_figure_over_dates(&mut page);
    links_to_runs_and_back(&mut page, &file);
}

fn searches(page: &mut Page) {
    search(page, "onerror");
    let hostile = rows(page);
    assert!(
        hostile.len() == 4 && hostile.iter().all(|row| row.contains(HOSTILE)),
        "{hostile:?}"
    );
    search(page, "");
    let all = rows(page);
    assert_eq!(all.len(), 60, "the first rows are drawn");
    page.value("document.querySelector('#more button').click()");
    assert_eq!(rows(page).len(), 85, "the button draws the others");
    search(page, "second sim-vllm");
    let some = rows(page);
    assert_eq!(some.len(), 2, "{some:?}");
    assert!(
        some.iter()
            .all(|row| row.contains("second") && row.contains("sim-vllm"))
    );
    let told = page.value("document.getElementById('told').value");
    assert!(
        told.as_str().is_some_and(|told| told.starts_with("2 of ")),
        "{told}"
    );
    search(page, "no such engine");
    assert!(rows(page).is_empty());
    search(page, "");
    assert_eq!(rows(page), all);
}

fn sorts(page: &mut Page) {
    let click = "(() => {
      const head = [...document.querySelectorAll('#rows th')].find((one) => one.textContent.startsWith('output'));
      head.querySelector('button').click();
      return head.getAttribute('aria-sort');
    })()";
    let column = "(() => {
      const heads = [...document.querySelectorAll('#rows th[scope=col]')];
      const at = heads.findIndex((head) => head.textContent.startsWith('output'));
      return [...document.querySelectorAll('#rows tbody tr')].map((row) => row.cells[at].textContent);
    })()";
    let sorted = |page: &mut Page| -> Vec<String> {
        serde_json::from_value(page.value(column)).expect("cells are texts")
    };
    let numbers =
        |texts: &[String]| -> Vec<f64> { texts.iter().map_while(|text| text.parse().ok()).collect() };
    assert_eq!(page.value(click), json!("descending"));
    let falling = numbers(&sorted(page));
    assert!(
        falling.len() > 4 && falling.is_sorted_by(|a, b| a >= b),
        "{falling:?}"
    );
    assert_eq!(page.value(click), json!("ascending"));
    let rising = numbers(&sorted(page));
    assert!(rising.is_sorted() && rising != falling, "{rising:?}");
}

/// Checks the boxes of the first two rows that fit these words, and gives the text of the comparison.
fn compared(page: &mut Page, words: &str) -> String {
    search(page, words);
    page.value(
        "(() => {
          const button = document.querySelectorAll('#compare .tools button')[1];
          if (button) button.click();
          for (const at of [0, 1]) document.querySelectorAll('#rows tbody input')[at].click();
          return 0;
        })()",
    );
    let text = page.value(
        "document.getElementById('compare').hidden ? '' : document.getElementById('compare').textContent",
    );
    text.as_str().unwrap_or_default().to_owned()
}

fn compares(page: &mut Page) {
    // A run and its copy: the same host, load and settings.
    let same = compared(page, "sim-vllm 48 req/s 2026-01");
    for words in ["Two rows side by side", "B / A", "1.000", "intervals overlap"] {
        assert!(same.contains(words), "`{words}` is not in {same}");
    }
    assert!(!same.contains("is higher") && !same.contains("winner"), "{same}");
    // Two engines in one run: other settings.
    let other = compared(page, "second 48 req/s");
    for words in ["without a verdict", "settings: ", "matrix report"] {
        assert!(other.contains(words), "`{words}` is not in {other}");
    }
    assert!(!other.contains("is higher"), "{other}");
    crate::picture(page, "site-compared");
    // Imported figures: the host and more is unknown.
    let imported = compared(page, "imported sharegpt");
    for words in ["host: host", "unknown", "a side has no interval"] {
        assert!(imported.contains(words), "`{words}` is not in {imported}");
    }
    let focused = page.value("document.querySelectorAll('#rows tr.chosen').length");
    assert_eq!(focused, json!(2));
    search(page, "");
}

fn draws_one_figure_over_dates(page: &mut Page) {
    let shown = "[...document.querySelectorAll('.group')].filter((one) => !one.hidden).map((one) => one.id)";
    let first = page.value(shown);
    let change = "(() => {
      const figure = document.getElementById('figure');
      figure.selectedIndex = 1;
      figure.dispatchEvent(new Event('change'));
      return 0;
    })()";
    page.value(change);
    let second = page.value(shown);
    assert!(
        first.as_array().is_some_and(|groups| groups.len() == 1),
        "{first}"
    );
    assert!(second.as_array().is_some_and(|groups| groups.len() == 1) && second != first);
    let links = page.value("document.querySelectorAll('#history svg a[href^=\"runs/\"] title').length");
    assert!(links.as_u64() > Some(4), "{links}");
}

fn links_to_runs_and_back(page: &mut Page, index: &Path) {
    let links = page.value(
        "[...new Set([...document.querySelectorAll('#runs a')].map((link) => link.getAttribute('href')))]",
    );
    let links: Vec<String> = serde_json::from_value(links).expect("they are texts");
    assert_eq!(links.len(), 4, "{links:?}");
    let folder = index.parent().expect("it lies in a folder");
    let run = folder.join(&links[0]);
    page.load(&run);
    let back = page.value("document.querySelector('header a').getAttribute('href')");
    let back = back.as_str().unwrap_or_default().to_owned();
    assert_eq!(
        fs::canonicalize(run.with_file_name(back)).expect("it is there"),
        fs::canonicalize(index).expect("it is there")
    );
    stays_silent_and_fetches_nothing(page, &run);
}
