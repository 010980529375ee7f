//! `matrix site`: the folder that it writes, what it refuses, and what its index says.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Bench, repository, sims};

const TWO_ENGINES: &[(&str, &str, &str)] = &[("a", "vllm", ""), ("b", "sglang", "")];
const SHORT: &str = "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 4 }\n";

/// Every file below a folder, by its path.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("the folder is there").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        match entry.path().is_dir() {
            true => files.extend(
                self::files(&entry.path())
                    .into_iter()
                    .map(|(path, bytes)| (format!("{name}/{path}"), bytes)),
            ),
            false => {
                files.insert(name, fs::read(entry.path()).expect("it can be read"));
            }
        }
    }
    files
}

/// Copies a run beside itself, under another name and date.
fn copy(run: &Path, folder: &str, name: &str, began: &str) {
    let copied = run.with_file_name(folder);
    let done = std::process::Command::new("cp")
        .arg("-r")
        .args([run, &copied])
        .status();
    assert!(done.is_ok_and(|status| status.success()));
    let path = copied.join("run.json");
    let mut about: Value = serde_json::from_slice(&fs::read(&path).expect("it is there")).expect("JSON");
    about["run"] = json!(name);
    about["began"] = json!(began);
    fs::write(&path, about.to_string()).expect("it can be written");
}

/// The data that the index has for its script.
fn data(index: &[u8]) -> Value {
    let text = String::from_utf8_lossy(index).into_owned();
    let (_, rest) = text.split_once("id=\"data\">").expect("the index has data");
    let (data, _) = rest.split_once("</script>").expect("the element ends");
    serde_json::from_str(data).expect("it is JSON")
}

#[test]
fn a_site_has_an_index_and_a_page_for_each_run_and_is_written_again_alike() {
    let bench = Bench::of(&sims(TWO_ENGINES, SHORT));
    bench.run(&[]).exits(0);
    let run = bench.run_folder();
    copy(
        &run,
        "copied",
        "<script>alert(1)</script>",
        "2026-01-02T03:04:05Z",
    );
    bench
        .call(&["site", "public"])
        .exits(0)
        .shows("public/index.html: 2 runs, 4 cells");
    let site = bench.path().join("public");
    let first = files(&site);
    let name = run.file_name().expect("it has a name").to_string_lossy();
    let page = format!("runs/{name}.html");
    let names: Vec<&str> = first.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [".matrix-site", "index.html", "runs/copied.html", page.as_str()]
    );
    let index = String::from_utf8_lossy(&first["index.html"]).into_owned();
    assert!(!index.contains("<script>alert"), "a name is markup");
    assert!(index.contains("&lt;script&gt;alert(1)"));
    assert!(index.contains(&format!("href=\"{page}\"")));
    let data = data(&first["index.html"]);
    assert_eq!(data["rows"].as_array().map(Vec::len), Some(4));
    let report = fs::read_to_string(run.join("report.html")).expect("the run has a page");
    let back = "\n<p class=\"about\"><a href=\"..&#x2f;index.html\">All runs</a></p>";
    let own = String::from_utf8_lossy(&first[&page]).into_owned();
    assert!(own.contains(back));
    assert_eq!(
        own.replacen(back, "", 1),
        report,
        "the page of a run is another one"
    );

    // Arguments in any order, and twice the same run, give the same site.
    let (all, one) = (bench.results(), run.to_string_lossy());
    let all = all.to_string_lossy();
    bench.call(&["site", "public", &one, "copied", &all]).exits(0);
    assert!(files(&site) == first, "it is not written alike");

    // A smaller site: its earlier page is removed, and the file of someone else stays.
    fs::write(site.join("robots.txt"), "mine").expect("it can be written");
    bench
        .call(&["site", "public", "copied"])
        .exits(0)
        .shows("1 run, 2 cells");
    let names: Vec<String> = files(&site).into_keys().collect();
    assert_eq!(
        names,
        [".matrix-site", "index.html", "robots.txt", "runs/copied.html"]
    );
}

#[test]
fn folders_of_others_are_refused_and_missing_runs_are_named() {
    let bench = Bench::of(&sims(TWO_ENGINES, SHORT));
    let published = repository().join("results/published");
    let published = published.to_string_lossy();
    fs::create_dir_all(bench.path().join("mine")).expect("a folder can be made");
    fs::write(bench.path().join("mine/index.html"), "mine").expect("it can be written");
    bench
        .call(&["site", "mine", &published])
        .exits(2)
        .says("not empty and was not written by `matrix site`");
    assert_eq!(files(&bench.path().join("mine")).len(), 1);
    bench
        .call(&["site", "public"])
        .exits(2)
        .says("there is no run in");
    bench
        .call(&["site", "public", "no-such-run"])
        .exits(2)
        .says("no-such-run");
    assert!(
        !bench.path().join("public").exists(),
        "a failed command leaves a folder"
    );

    // Old and imported runs.
    let old = repository().join("tests/fixtures/run-format-1");
    bench
        .call(&["site", "public", &published, &old.to_string_lossy()])
        .exits(0);
    let site = files(&bench.path().join("public"));
    let data = data(&site["index.html"]);
    let texts = data["texts"].as_array().expect("texts");
    assert!(texts.iter().any(|text| text == "imported") && texts.iter().any(|text| text == "unknown"));
}

#[test]
fn a_run_that_cannot_be_read_is_left_out_of_a_folder_of_runs_and_fails_by_name() {
    let bench = Bench::of(&sims(TWO_ENGINES, SHORT));
    bench.run(&[]).exits(0);
    let run = bench.run_folder();
    copy(&run, "damaged", "damaged", "2026-01-02T03:04:05Z");
    fs::write(run.with_file_name("damaged").join("plan.json"), "{").expect("it can be written");
    bench
        .call(&["site", "public"])
        .exits(0)
        .says("warning: left out: ")
        .shows("1 run, 2 cells");
    bench
        .call(&["site", "public", "damaged"])
        .exits(2)
        .says("plan.json");
    // So is one without a valid identity, which `matrix list` names too. Its page stays while the run is there.
    let damaged = run.with_file_name("damaged");
    fs::copy(run.join("plan.json"), damaged.join("plan.json")).expect("it can be copied");
    bench.call(&["site", "public"]).exits(0).shows("2 runs, 4 cells");
    for (damage, reason) in [
        ("", "is not valid"),
        ("{", "is not valid"),
        ("{}", "is not valid"),
        ("{\"format\": 99}", "use a newer `matrix`"),
    ] {
        fs::write(damaged.join("run.json"), damage).expect("it can be written");
        let ran = bench
            .call(&["site", "public"])
            .exits(0)
            .shows("1 run, 2 cells")
            .says("warning: left out: ");
        assert!(ran.stderr.contains("damaged/run.json"), "{}", ran.stderr);
        assert!(ran.stderr.contains(reason), "{}", ran.stderr);
        assert!(bench.path().join("public/runs/damaged.html").exists(), "{damage}");
        bench.call(&["list"]).exits(0).says("damaged/run.json");
    }
    // A measurement that cannot be read is missing in the page, and named.
    let cells = fs::read_dir(run.join("cells")).expect("the run has cells");
    for cell in cells {
        let summary = cell.expect("it is listed").path().join("summary.json");
        fs::write(summary, "{").expect("it can be written");
    }
    bench
        .call(&["site", "public"])
        .exits(0)
        .says("summary.json` is not valid");
}
