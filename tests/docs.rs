//! Documents that the code cites exist, and so do the sections that it cites.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where citations are looked for.
const SOURCES: &[&str] = &["src", "tests", "benches", "README.md"];

#[test]
fn cited_documents_and_sections_exist() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for file in SOURCES.iter().flat_map(|place| files(&root().join(place))) {
        if file.ends_with("tests/docs.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).expect("sources are text");
        for (line, text) in text.lines().enumerate() {
            for (document, sections) in citations(text) {
                count += 1;
                let here = format!("{}:{}", file.display(), line + 1);
                let Ok(cited) = fs::read_to_string(root().join(&document)) else {
                    wrong.push(format!("{here} cites {document}, which does not exist"));
                    continue;
                };
                let known = headings(&cited);
                let missing = sections.iter().filter(|section| !known.contains(*section));
                wrong.extend(missing.map(|section| format!("{here} cites {document} {section}")));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(count > 50, "only {count} citations were found");
}

#[test]
fn nothing_cites_a_document_outside_of_the_repository() {
    let mut wrong = Vec::new();
    for file in SOURCES.iter().flat_map(|place| files(&root().join(place))) {
        let inside = file.strip_prefix(root()).expect("it lies below the root");
        if inside == Path::new("tests/docs.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).expect("sources are text");
        let found = ["spec/bench-serving.md", "design.md"]
            .into_iter()
            .filter(|name| text.contains(name));
        wrong.extend(found.map(|name| format!("{} cites {name}", inside.display())));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut wrong = Vec::new();
    for file in documents() {
        let text = fs::read_to_string(&file).expect("documents are text");
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let local = targets.filter(|target| !target.contains(':') && !target.starts_with('#'));
        for target in local {
            let path = target.split('#').next().unwrap_or(target);
            let folder = file.parent().expect("a document lies in a folder");
            if !folder.join(path).exists() {
                wrong.push(format!("{} links to {target}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Paths in backticks, without patterns and those of things that are yet to be written (`NEW`, `NAME`).
#[test]
fn files_that_documents_name_exist() {
    const FOLDERS: [&str; 8] = [
        "src/",
        "tests/",
        "docs/",
        "engines/",
        "matrices/",
        "schemas/",
        "examples/",
        ".ci/",
    ];
    let mut wrong = Vec::new();
    let mut count = 0;
    for file in documents() {
        let text = fs::read_to_string(&file).expect("documents are text");
        let spans = text.split('`').skip(1).step_by(2);
        let words = spans.filter_map(|span| span.split_whitespace().next());
        let paths = words.filter(|word| FOLDERS.iter().any(|folder| word.starts_with(folder)));
        for path in paths.filter(|path| {
            !path.contains(['*', '<', '{']) && !["NEW", "NAME"].iter().any(|name| path.contains(name))
        }) {
            count += 1;
            // Readmes of folders name what lies beside them.
            let folder = file.parent().expect("a document lies in a folder");
            if !root().join(path).exists() && !folder.join(path).exists() {
                wrong.push(format!("{} names {path}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(count > 100, "only {count} paths were found");
}

#[test]
fn the_guide_to_results_has_current_names() {
    let text = fs::read_to_string(root().join("results/README.md")).expect("the guide is readable");
    for earlier in [".ending", ".stamps", ".beside", ".asked_tokens", "told-"] {
        assert!(!text.contains(earlier), "{earlier}");
    }
}

#[test]
fn the_readme_is_short() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the file is readable");
    assert!(readme.lines().count() <= 120, "{} lines", readme.lines().count());
}

#[test]
fn citations_are_read_in_every_form() {
    let read = |text: &str| {
        let found = citations(text);
        found
            .into_iter()
            .flat_map(|(_, sections)| sections)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        read("Source: docs/a.md 2.1 to 2.4, 12.1, T8 and T9: a stream"),
        ["2.1", "2.4", "12.1", "T8", "T9"]
    );
    assert_eq!(read("docs/a.md 6, steps 5 to 8."), ["6"]);
    assert_eq!(read("docs/a.md 1.2. Where there is none"), ["1.2"]);
    assert_eq!(read("(docs/a.md, interactivity) and docs/b.md 3"), ["3"]);
    let known = headings("## 6. Flow\n### 6.1 Body\n| T29 | totals |\ntext 7.7\n");
    assert_eq!(known.into_iter().collect::<Vec<_>>(), ["6", "6.1", "T29"]);
}

/// The documents that a line cites, each with the section numbers and known faults that follow it.
fn citations(line: &str) -> Vec<(String, Vec<String>)> {
    let starts = line.match_indices("docs/");
    starts
        .filter_map(|(at, _)| {
            let rest = &line[at..];
            let end = rest.find(".md")? + ".md".len();
            let document = &rest[..end];
            let is_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
            document
                .chars()
                .all(is_path)
                .then(|| (document.to_owned(), sections(&rest[end..])))
        })
        .collect()
}

/// The numbers at the start of a text, such as ` 2.1 to 2.4, T8 and T9: …`.
fn sections(text: &str) -> Vec<String> {
    let words = text
        .split_whitespace()
        .map(|word| word.trim_matches([',', '.', ':', ';', ')', '`']));
    let listed = words.take_while(|word| is_section(word) || matches!(*word, "and" | "to"));
    listed
        .filter(|word| is_section(word))
        .map(str::to_owned)
        .collect()
}

/// Whether a word is `7`, `7.3` or `T29`.
fn is_section(word: &str) -> bool {
    let digits = word.strip_prefix('T').unwrap_or(word);
    digits.starts_with(|c: char| c.is_ascii_digit()) && digits.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// What can be cited of a document: the numbers of its headings and the known faults that begin rows of a table.
fn headings(text: &str) -> BTreeSet<String> {
    let first = |line: &str| {
        line.split_whitespace()
            .next()
            .map(|word| word.trim_end_matches('.').to_owned())
    };
    let numbers = text.lines().filter(|line| line.starts_with('#'));
    let numbers = numbers.filter_map(|line| first(line.trim_start_matches('#')));
    let faults = text.lines().filter_map(|line| first(line.strip_prefix("| T")?));
    let faults = faults.map(|number| format!("T{number}"));
    numbers.chain(faults).filter(|word| is_section(word)).collect()
}

/// Every document that people read first.
fn documents() -> Vec<PathBuf> {
    let others = [
        "README.md",
        "CONTRIBUTING.md",
        "src/ARCHITECTURE.md",
        "examples/README.md",
        "results/README.md",
    ];
    let mut all = files(&root().join("docs"));
    all.extend(others.map(|name| root().join(name)));
    all
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A file, or all sources and documents below a folder.
fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = entries.flat_map(|entry| files_within(&entry.path())).collect();
    all.sort();
    all
}

fn files_within(path: &Path) -> Vec<PathBuf> {
    let is_text = path.extension().is_some_and(|kind| kind == "rs" || kind == "md");
    match path.is_dir() {
        true => files(path),
        false if is_text => vec![path.to_owned()],
        false => Vec::new(),
    }
}

#[test]
fn every_environment_variable_is_documented() {
    let page = fs::read_to_string(root().join("docs/environment.md")).expect("the page is readable");
    let mut wrong = Vec::new();
    let mut count = 0;
    for file in files(&root().join("src")) {
        let text = fs::read_to_string(&file).expect("sources are text");
        let named = ["env = \"", "env_variable(\""]
            .into_iter()
            .flat_map(|before| text.split(before).skip(1))
            .filter_map(|rest| rest.split('"').next())
            .filter(|name| {
                name.chars()
                    .all(|letter| letter.is_ascii_uppercase() || letter == '_')
            });
        for name in named.filter(|name| !["HOME", "XDG_CACHE_HOME"].contains(name)) {
            count += 1;
            if !page.contains(&format!("`{name}`")) {
                wrong.push(format!(
                    "{} reads {name}, which docs/environment.md lacks",
                    file.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(count > 10, "only {count} variables were found");
}
