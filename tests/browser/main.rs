//! Pages as a person sees them: in a real browser, which `tests/browser/chromium.sh` installs. Without one the test is skipped by
//! name, and where `MATRIX_REQUIRE_BROWSER` is set, as CI does, that is a failure.
//!
//! `MATRIX_PICTURES=DIR` leaves a picture of each page at each width and in each scheme there.

#[path = "../support/binary.rs"]
mod binary;
mod devtools;
mod history;
mod site;
#[path = "../support/skip.rs"]
mod skip;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use matrix::cli::env_variable;
use serde_json::json;

use devtools::Page;

/// Two engines at two loads, each started three times, so that every kind of chart has something to show.
const MATRIX: &str = "\
name: browser
engines:
  - sim: { as: sim-sglang, variant: sglang }
  - sim: { as: sim-vllm, variant: vllm, args: [--seed, 2] }
models:
  - demo-8b: { tp: 1, tokenizer: data/tokenizer.json, args: [--preset, h100-qwen3-8b] }
scenarios:
  - random-1k-1k: { prompts: 12, input_len: 64, output_len: 24, rate: [12, 48] }
repeats: { starts: 3 }
overrides:
  - when: { engine: sim-vllm }
    args: [--step-per-sequence, 60us, --prefill-rate, \"24000\"]
datasets: { sharegpt: data/conversations.json }
";

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Why a test is skipped where there is no browser.
const SKIPPED: &str =
    "needs a browser; install it with tests/browser/chromium.sh, or name one with MATRIX_BROWSER";

/// The browser, if there is one; where one is required there must be.
fn browser() -> Option<String> {
    let name = env_variable("MATRIX_BROWSER").unwrap_or_else(|| "chromium".to_owned());
    let version = Command::new(&name)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let found = version.is_ok_and(|status| status.success()).then_some(name);
    assert!(
        found.is_some() || env_variable("MATRIX_REQUIRE_BROWSER").is_none(),
        "there is no browser"
    );
    found
}

/// Runs the matrix in a folder and gives the page that it left.
fn page_of_a_run(folder: &Path) -> PathBuf {
    page_of(
        folder,
        &["run", "matrices/m.yaml", "--no-calibration"],
        "report.html",
    )
}

/// Runs a command in a folder with the matrix, and gives the page with that name that it left.
fn page_of(folder: &Path, args: &[&str], page: &str) -> PathBuf {
    let matrices = folder.join("matrices");
    std::fs::create_dir_all(&matrices).expect("a folder can be made");
    let link = |from: &str, to: PathBuf| std::os::unix::fs::symlink(repository().join(from), to);
    link("matrices/data", matrices.join("data")).expect("a link can be made");
    link("engines", folder.join("engines")).expect("a link can be made");
    std::fs::write(matrices.join("m.yaml"), MATRIX).expect("a file can be written");
    let ran = Command::new(binary::matrix())
        .args(args)
        .current_dir(folder)
        .env("MATRIX_CACHE", folder.join("cache"))
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let actual = String::from_utf8_lossy(&ran.stderr);
    let mut runs = std::fs::read_dir(folder.join("results")).expect("there are results");
    let written = runs.find_map(|entry| {
        let written = entry.expect("results can be read").path().join(page);
        written.exists().then_some(written)
    });
    written.unwrap_or_else(|| panic!("no report: {actual}"))
}

#[test]
fn a_report_sorts_filters_stays_silent_and_fetches_nothing() {
    let Some(browser) = browser() else {
        skip::skip(SKIPPED);
        return;
    };
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = match env_variable("MATRIX_PAGE") {
        Some(page) => PathBuf::from(page),
        None => page_of_a_run(folder.path()),
    };
    let size = std::fs::metadata(&file).expect("there is a page").len();
    assert!(size < 2 << 20, "{size} bytes");
    let mut page = Page::open(&browser);
    fits_every_screen(&mut page, &file, "");
    page.look(1280, 900, false, "light");
    page.load(&file);
    if env_variable("MATRIX_PAGE").is_none() {
        answers_first(&mut page);
    }
    sorts(&mut page);
    filters(&mut page);
    // Figures that were imported have no course over time.
    if env_variable("MATRIX_PAGE").is_none() {
        shows_values(&mut page);
    }
    stays_silent_and_fetches_nothing(&page, &file);
    for run in ["tests/fixtures/run-format-1", "results/published"] {
        if let Some(file) = drawn(&repository().join(run), &folder.path().join("drawn")) {
            page.load(&file);
            stays_silent_and_fetches_nothing(&page, &file);
        }
    }
}

#[test]
fn the_page_of_an_upgrade_answers_in_its_first_line() {
    let Some(browser) = browser() else {
        skip::skip(SKIPPED);
        return;
    };
    let folder = tempfile::tempdir().expect("a folder can be made");
    let sides = [
        "--from",
        "engine=sim-sglang",
        "--to",
        "engine=sim-vllm",
        "--only",
        "rate=48",
        "--gate",
        "mean_e2e_ms",
        "--no-calibration",
    ];
    let args = [&["upgrade", "matrices/m.yaml"], &sides[..]].concat();
    let file = page_of(folder.path(), &args, "upgrade.html");
    let mut page = Page::open(&browser);
    fits_every_screen(&mut page, &file, "upgrade-");
    page.look(390, 844, true, "light");
    page.load(&file);
    let first = page.value("document.querySelector('h1').textContent");
    let first = first.as_str().unwrap_or_default();
    assert!(
        first.starts_with("May I upgrade from sim-sglang to sim-vllm? "),
        "{first}"
    );
    let heads = page.value("[...document.querySelectorAll('h2')].map((head) => head.textContent)");
    let heads: Vec<String> = serde_json::from_value(heads).expect("they are texts");
    let tables: Vec<&str> = heads
        .iter()
        .map(String::as_str)
        .filter(|head| *head != "Reasons")
        .collect();
    assert_eq!(tables, ["What changed", "Figures"]);
    let is_above =
        page.value("document.querySelector('h1').getBoundingClientRect().bottom < innerHeight / 2");
    assert_eq!(
        is_above,
        json!(true),
        "the answer is not in the upper half of a phone"
    );
}

/// A page as wide as its screen, light and dark. `of` begins the names of its pictures.
fn fits_every_screen(page: &mut Page, file: &Path, of: &str) {
    for (name, width, height, is_phone) in [("desktop", 1400, 900, false), ("phone", 390, 844, true)] {
        for scheme in ["light", "dark"] {
            page.look(width, height, is_phone, scheme);
            page.load(file);
            let wide =
                page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
            assert_eq!(wide, json!(0), "{of}the page is wider than the {name}");
            stays_silent_and_fetches_nothing(page, file);
            picture(page, &format!("{of}{name}-{scheme}"));
        }
    }
}

/// The page of a run that is there.
fn drawn(run: &Path, folder: &Path) -> Option<PathBuf> {
    if !run.join("run.json").exists() {
        return None;
    }
    let drawn = Command::new(binary::matrix())
        .args(["report", "--format", "html", "--out"])
        .arg(folder)
        .arg(run)
        .output()
        .expect("the binary runs");
    assert!(
        drawn.status.success(),
        "{}",
        String::from_utf8_lossy(&drawn.stderr)
    );
    Some(folder.join("report.html"))
}

fn picture(page: &mut Page, name: &str) {
    let Some(folder) = env_variable("MATRIX_PICTURES") else {
        return;
    };
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(page.picture())
        .expect("a picture is base64");
    std::fs::write(Path::new(&folder).join(format!("{name}.png")), bytes).expect("it can be written");
}

fn stays_silent_and_fetches_nothing(page: &Page, file: &Path) {
    for event in [
        "Runtime.consoleAPICalled",
        "Runtime.exceptionThrown",
        "Log.entryAdded",
    ] {
        assert!(page.events(event).is_empty(), "{event}: {:?}", page.events(event));
    }
    let own = format!("file://{}", file.display());
    for request in page.events("Network.requestWillBeSent") {
        let address = request["request"]["url"].as_str().unwrap_or_default().to_owned();
        assert!(
            address == own || address.starts_with("data:"),
            "it fetches {address}"
        );
    }
}

/// The numbers of the column `output` of the first comparison, in the order of its rows.
const COLUMN: &str = "(() => {
  const table = document.querySelector('#comparison-1 table');
  const heads = [...table.tHead.rows[0].cells];
  const at = heads.findIndex((head) => head.textContent.startsWith('output'));
  return [...table.tBodies[0].rows].map((row) => Number(row.cells[at].dataset.v));
})()";

/// Answer, chart and table begin within the first 1200 pixels, in this order.
fn answers_first(page: &mut Page) {
    let tops = "['#answer li', '#tradeoffs figure svg', '#summary table'].map((what) => \
                document.querySelector(what).getBoundingClientRect().top + scrollY)";
    let tops: Vec<f64> = serde_json::from_value(page.value(tops)).expect("each is there");
    assert!(tops.is_sorted() && tops[2] < 1200.0, "{tops:?}");
    let answer = page.value("document.querySelector('#answer').textContent");
    let is_answer = |text: &str| text.contains("sim-sglang") && text.contains("sim-vllm");
    assert!(answer.as_str().is_some_and(is_answer), "{answer}");
}

fn sorts(page: &mut Page) {
    let click = "(() => {
      const heads = [...document.querySelectorAll('#comparison-1 table th')];
      const head = heads.find((one) => one.textContent.startsWith('output'));
      head.querySelector('button').click();
      return head.getAttribute('aria-sort');
    })()";
    let sorted = |page: &mut Page| -> Vec<f64> {
        serde_json::from_value(page.value(COLUMN)).expect("the column holds numbers")
    };
    let before = sorted(page);
    assert!(before.len() > 1, "there is nothing to sort");
    assert_eq!(page.value(click), json!("descending"));
    let falling = sorted(page);
    assert!(falling.is_sorted_by(|a, b| a >= b), "{falling:?}");
    assert_eq!(page.value(click), json!("ascending"));
    let rising = sorted(page);
    assert!(rising.is_sorted(), "{rising:?}");
    assert_ne!(falling, rising, "nothing moved");
}

fn filters(page: &mut Page) {
    let seen = "[...document.querySelectorAll('#summary table tbody tr')].filter((row) => !row.hidden).map((row) => row.textContent)";
    let write = |page: &mut Page, words: &str| {
        let fill = "const box = document.getElementById('filter');";
        page.value(&format!(
            "(() => {{ {fill} box.value = {}; box.dispatchEvent(new Event('input')); return 0; }})()",
            json!(words)
        ))
    };
    let rows = |page: &mut Page| -> Vec<String> {
        serde_json::from_value(page.value(seen)).expect("rows are texts")
    };
    let all = rows(page);
    write(page, "vllm");
    let some = rows(page);
    assert!(!some.is_empty() && some.len() < all.len(), "{some:?}");
    assert!(some.iter().all(|row| row.contains("vllm")), "{some:?}");
    let actual = page.value("document.getElementById('told').value");
    assert!(
        actual.as_str().is_some_and(|actual| actual.contains(" of ")),
        "{actual}"
    );
    write(page, "no such engine");
    assert!(rows(page).is_empty());
    let left = page.value("[...document.querySelectorAll('[data-part]')].filter((part) => part.querySelector('tbody tr') && !part.hidden).length");
    assert_eq!(left, json!(0), "a part without rows is still shown");
    write(page, "");
    assert_eq!(rows(page), all);
}

/// Values appear beside the pointer.
fn shows_values(page: &mut Page) {
    let actual = under_the_pointer(page);
    assert!(actual.contains(" at "), "{actual}");
}

/// What appears beside the pointer in the middle of the first plot.
fn under_the_pointer(page: &mut Page) -> String {
    let middle = page.value(
        "(() => {
          const plot = document.querySelector('svg.plot polyline').closest('svg');
          plot.scrollIntoView({ block: 'center', behavior: 'instant' });
          const box = plot.getBoundingClientRect();
          return [box.left + box.width / 2, box.top + box.height / 2];
        })()",
    );
    page.ask(
        "Input.dispatchMouseEvent",
        json!({ "type": "mouseMoved", "x": middle[0], "y": middle[1] }),
    );
    let actual =
        page.value("document.querySelector('.tip').hidden ? '' : document.querySelector('.tip').textContent");
    actual.as_str().unwrap_or_default().to_owned()
}
