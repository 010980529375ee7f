//! Who may import whom, as a test: the table of `src/ARCHITECTURE.md`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

/// A module (a path below `src`) and the modules it may import. The longest module that a file lies in counts.
const TABLE: &[(&str, &[&str])] = &[
    ("base", &["base"]),
    ("config", &["base", "config"]),
    ("plan", &["base", "config", "plan"]),
    ("results/record", &["base", "config", "plan", "results/record"]),
    ("results", &["base", "config", "plan", "results"]),
    ("sim", &["base", "config", "sim"]),
    ("slurm", &["base", "config", "slurm"]),
    ("engine", &["base", "config", "plan", "results", "engine"]),
    ("loadgen", &["base", "config", "plan", "results", "loadgen"]),
    ("telemetry", &["base", "config", "plan", "results", "telemetry"]),
    ("progress", &["base", "config", "plan", "results"]),
    (
        "analysis",
        &["base", "config", "plan", "results/record", "analysis"],
    ),
    (
        "report",
        &["base", "config", "plan", "results/record", "analysis", "report"],
    ),
    (
        "import",
        &["base", "config", "plan", "results/record", "analysis", "import"],
    ),
    (
        "runner",
        &[
            "base",
            "config",
            "plan",
            "results",
            "engine",
            "loadgen",
            "telemetry",
            "analysis",
            "slurm",
            "runner",
        ],
    ),
    ("exit", &[]),
    ("cli", &["base", "config", "sim", "cli"]),
    (
        "commands",
        &[
            "base", "config", "plan", "results", "analysis", "report", "import", "runner", "sim", "progress",
            "cli", "exit", "commands",
        ],
    ),
    ("main", &["cli", "commands", "exit"]),
    ("lib", &[]),
];

/// What a pure module may not use, as it would stand in the code.
const PURE: &[(&str, &[&str])] = &[
    (
        "config",
        &["base::clock", "std::fs", "std::net", "tokio", "reqwest"],
    ),
    (
        "plan",
        &["base::clock", "std::fs", "std::net", "tokio", "reqwest"],
    ),
    (
        "results/record",
        &["base::clock", "std::fs", "std::net", "tokio", "reqwest"],
    ),
    (
        "analysis",
        &[
            "base::clock",
            "std::fs",
            "std::net",
            "tokio",
            "reqwest",
            "results::store",
        ],
    ),
    (
        "report",
        &[
            "base::clock",
            "std::fs",
            "std::net",
            "tokio",
            "reqwest",
            "results::store",
        ],
    ),
    (
        "import",
        &[
            "base::clock",
            "std::fs",
            "std::net",
            "tokio",
            "reqwest",
            "results::store",
        ],
    ),
];

/// Modules without an import cycle between their files. A module joins the list once it has none.
const WITHOUT_CYCLES: &[&str] = &["commands", "engine", "runner"];

#[test]
fn imports_point_down_the_table() {
    let mut wrong = Vec::new();
    for file in sources() {
        let inside = below_src(&file);
        let module =
            module_of(&inside, TABLE).unwrap_or_else(|| panic!("{inside} lies in no module of the table"));
        let text = code(&file);
        for path in imports(&text) {
            let path = path.replace("::", "/");
            let allowed = module
                .1
                .iter()
                .any(|allowed| path == *allowed || path.starts_with(&format!("{allowed}/")));
            // `results` alone is not `results/record`: a pure module may import the latter only.
            if !allowed {
                wrong.push(format!(
                    "src/{inside} imports crate::{} (allowed: {:?})",
                    path.replace('/', "::"),
                    module.1
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn pure_modules_touch_nothing() {
    let mut wrong = Vec::new();
    for file in sources() {
        let inside = below_src(&file);
        let Some((_, banned)) = module_of(&inside, PURE) else {
            continue;
        };
        let text = code(&file);
        for word in banned
            .iter()
            .filter(|word| text.contains(&format!("{word}::")) || text.contains(&format!("{word};")))
        {
            wrong.push(format!("src/{inside} uses {word}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn only_the_container_executor_names_bollard() {
    let naming: Vec<String> = sources()
        .iter()
        .filter(|file| code(file).contains("bollard"))
        .map(|file| below_src(file))
        .filter(|inside| !inside.starts_with("engine/docker/"))
        .collect();
    assert!(naming.is_empty(), "{naming:?}");
}

#[test]
fn only_one_module_names_the_crate_of_nvidias_library() {
    let naming: Vec<String> = sources()
        .iter()
        .filter(|file| code(file).contains("nvml_wrapper"))
        .map(|file| below_src(file))
        .filter(|inside| !inside.starts_with("telemetry/gpu/nvml"))
        .collect();
    assert!(naming.is_empty(), "{naming:?}");
}

#[test]
fn only_the_process_of_the_tuner_names_the_crate_of_matrices() {
    let naming: Vec<String> = sources()
        .iter()
        .filter(|file| code(file).contains("nalgebra"))
        .map(|file| below_src(file))
        .collect();
    assert_eq!(naming, ["analysis/tune/process.rs"]);
}

#[test]
fn no_engine_is_known_by_name() {
    let names = ["vllm", "sglang", "lmdeploy", "tensorrt", "llama.cpp"];
    let modules = ["engine", "loadgen", "runner", "telemetry", "analysis"];
    let exempt = [
        // Wire formats, and what bench_serving does for its own backends.
        "loadgen/protocol/",
        "analysis/metrics/bench_serving.rs",
        // Sources of the bounds, which readers see.
        "analysis/validity/codes.rs",
        // Asks for the accept length where bench_serving does, until a recipe says where it is read.
        "runner/cell.rs",
    ];
    let is_searched = |inside: &String| {
        let is_below = |module: &&str| inside.starts_with(&format!("{module}/"));
        modules.iter().any(is_below) && !exempt.iter().any(|path| inside.starts_with(path))
    };
    let mut wrong = Vec::new();
    for file in sources() {
        let inside = below_src(&file);
        if !is_searched(&inside) {
            continue;
        }
        let text = code(&file);
        let strings = text.split('"').skip(1).step_by(2);
        for found in strings.filter(|text| names.iter().any(|name| text.to_lowercase().contains(name))) {
            wrong.push(format!("src/{inside} names an engine: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn no_import_cycle_inside_a_module() {
    let files: BTreeMap<String, String> = sources()
        .iter()
        .map(|file| (below_src(file), code(file)))
        .collect();
    let by_module: BTreeMap<String, &str> = files
        .keys()
        .map(|file| (module_path(file), file.as_str()))
        .collect();
    let mut cycles = Vec::new();
    for module in WITHOUT_CYCLES {
        let inside = |file: &str| file.starts_with(&format!("{module}/")) || file == format!("{module}.rs");
        let graph: BTreeMap<&str, BTreeSet<&str>> = files
            .iter()
            .filter(|(file, _)| inside(file))
            .map(|(file, text)| {
                let mut targets = imported_files(file, text, &by_module);
                targets.retain(|target| inside(target));
                (file.as_str(), targets)
            })
            .collect();
        assert!(!graph.is_empty(), "`{module}` has no file");
        cycles.extend(graph.keys().filter_map(|file| shortest_cycle(file, &graph)));
    }
    assert!(cycles.is_empty(), "\n{}", cycles.join("\n"));
}

#[test]
fn an_import_cycle_is_found_by_every_spelling_of_a_path() {
    let by_module = BTreeMap::from([
        ("a".to_owned(), "a/mod.rs"),
        ("a::b".to_owned(), "a/b.rs"),
        ("a::b::c".to_owned(), "a/b/c.rs"),
    ]);
    let found = |file: &str, text: &str| -> Vec<&str> {
        imported_files(file, text, &by_module).into_iter().collect()
    };
    for text in [
        "use crate::a::{x, b::{Y, Z}};",
        "use super::b;",
        "x(super::b::y())",
        "crate::a::b::Y",
    ] {
        assert!(
            found("a/b/c.rs", &text.replace("super", "super::super")).contains(&"a/b.rs"),
            "{text}"
        );
    }
    assert_eq!(found("a/mod.rs", "mod b;\nfn f() { b::g() }"), ["a/b.rs"]);
    assert_eq!(found("a/mod.rs", "mod b;\npub use b::c::D;"), ["a/b/c.rs"]);
    assert_eq!(
        found("a/b/c.rs", "pub(in crate::a) fn f() { std::mem::drop(1) }"),
        [""; 0]
    );
    let graph = BTreeMap::from([
        ("x", BTreeSet::from(["y"])),
        ("y", BTreeSet::from(["z"])),
        ("z", BTreeSet::from(["y"])),
    ]);
    assert_eq!(shortest_cycle("x", &graph), None);
    assert_eq!(shortest_cycle("y", &graph).as_deref(), Some("y -> z -> y"));
}

/// The path of the module that a file holds, such as `engine::docker`.
fn module_path(file: &str) -> String {
    let path = file.trim_end_matches(".rs");
    path.strip_suffix("/mod").unwrap_or(path).replace('/', "::")
}

/// The other files that a file names: by a path from `crate`, `self` or `super`, or from one of its child modules.
fn imported_files<'f>(file: &str, text: &str, by_module: &BTreeMap<String, &'f str>) -> BTreeSet<&'f str> {
    let here = module_path(file);
    let children: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_suffix(';')?.rsplit_once("mod "))
        .map(|(_, child)| child)
        .collect();
    // `pub(in crate::a)` imports nothing.
    let text = text.replace("pub(in crate::", "pub(in ");
    let names = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':');
    let starts = text
        .char_indices()
        .filter(|(at, c)| !names(*c) && (*at == 0 || text[..*at].ends_with(names)));
    let paths = starts.flat_map(|(at, _)| paths_at(&text[at..]));
    let absolute = paths.filter_map(|path| {
        let mut parts: VecDeque<&str> = path.split("::").collect();
        let mut module: Vec<&str> = here.split("::").collect();
        if parts.len() == 1 {
            return None;
        }
        match *parts.front()? {
            "crate" => module.clear(),
            "self" | "super" => {}
            child if children.contains(child) => {}
            _ => return None,
        }
        while matches!(parts.front(), Some(&("crate" | "self" | "super"))) {
            if parts.pop_front() == Some("super") {
                module.pop();
            }
        }
        module.extend(parts);
        Some(module.join("::"))
    });
    absolute
        .filter_map(|path| {
            let mut modules = std::iter::successors(Some(path.as_str()), |path| {
                path.rsplit_once("::").map(|(parent, _)| parent)
            });
            modules.find_map(|module| by_module.get(module).copied())
        })
        .filter(|target| *target != file)
        .collect()
}

/// The path at the start of a text; several where it ends in braces, as those of `use` do.
fn paths_at(text: &str) -> Vec<String> {
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))
        .unwrap_or(text.len());
    let (head, rest) = text.split_at(end);
    if !(head.ends_with("::") && rest.starts_with('{')) {
        return vec![head.trim_end_matches(':').to_owned()];
    }
    let (mut depth, mut start, mut parts) = (0, 1, Vec::new());
    for (at, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if (c == ',' && depth == 1) || depth == 0 {
            parts.push(rest[start..at].trim());
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    let paths = parts.into_iter().flat_map(paths_at);
    paths.map(|path| format!("{head}{path}")).collect()
}

/// The shortest way from a file back to itself along imports.
fn shortest_cycle(file: &str, graph: &BTreeMap<&str, BTreeSet<&str>>) -> Option<String> {
    let (mut seen, mut open) = (BTreeSet::new(), VecDeque::from([vec![file]]));
    while let Some(way) = open.pop_front() {
        for target in way.last().and_then(|last| graph.get(last)).into_iter().flatten() {
            let longer = [way.as_slice(), &[*target]].concat();
            if *target == file {
                return Some(longer.join(" -> "));
            }
            if seen.insert(*target) {
                open.push_back(longer);
            }
        }
    }
    None
}

fn module_of<'t>(inside: &str, table: &'t [(&str, &'t [&str])]) -> Option<(&'t str, &'t [&'t str])> {
    let within = |module: &str| inside.starts_with(&format!("{module}/")) || inside == format!("{module}.rs");
    table
        .iter()
        .filter(|(module, _)| within(module))
        .max_by_key(|(module, _)| module.len())
        .copied()
}

/// Code without comments, and without the tests at its end.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).expect("sources are readable");
    let body = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    body.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Every `crate::a::b` that the code names, `use crate::{…}` taken apart at its first level.
fn imports(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let group = group.split('}').next().unwrap_or_default();
            found.extend(
                group
                    .split(',')
                    .map(|part| path_of(part.trim()))
                    .filter(|part| !part.is_empty()),
            );
        } else {
            found.insert(path_of(rest));
        }
    }
    found.remove("");
    found
}

fn path_of(text: &str) -> String {
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))
        .unwrap_or(text.len());
    let path = text[..end].trim_end_matches(':');
    // Types and functions are not modules.
    let modules: Vec<&str> = path
        .split("::")
        .take_while(|part| part.starts_with(|c: char| c.is_ascii_lowercase()))
        .collect();
    modules.join("::")
}

fn below_src(file: &Path) -> String {
    file.strip_prefix(root())
        .expect("sources lie below src")
        .to_string_lossy()
        .into_owned()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// A file that no `mod` names is never compiled, and its tests pass for ever.
#[test]
fn every_file_of_tests_is_named_by_its_main() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let entries = |folder: &Path| {
        let all = fs::read_dir(folder).expect("tests are readable");
        all.map(|entry| entry.expect("tests are readable").path())
            .collect::<Vec<_>>()
    };
    let mut seen = 0;
    for folder in entries(&tests)
        .into_iter()
        .filter(|path| path.join("main.rs").is_file())
    {
        let main = fs::read_to_string(folder.join("main.rs")).expect("tests are readable");
        for file in entries(&folder) {
            let name = file
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if file.extension().is_some_and(|kind| kind == "rs") && name != "main" {
                seen += 1;
                assert!(
                    main.lines().any(|line| line == format!("mod {name};")),
                    "{} is in no `mod` of its main.rs",
                    file.display()
                );
            }
        }
    }
    assert!(seen > 30, "{seen}");
}

fn sources() -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![root()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("src is readable") {
            let path = entry.expect("src is readable").path();
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            if path.is_dir() && name != "tests" && name != "snapshots" {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs")
                && name != "tests.rs"
                && name != "testing.rs"
            {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}
