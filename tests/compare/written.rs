//! Runs that are written by hand: a plan, and the figures of every start. What a binary says of them needs no engine and no waiting.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

pub const OUTPUT: &str = "output_throughput_tok_s";
pub const E2E: &str = "median_e2e_ms";

/// A cell: who answers what, and one object of figures for each start.
#[derive(Clone)]
pub struct Row {
    pub engine: String,
    pub model: String,
    pub scenario: Value,
    pub starts: Vec<Value>,
    /// Put over each summary.
    pub summary: Value,
    /// Put over the launch.
    pub launch: Value,
}

/// A scenario of a thousand requests that are sent at once.
pub fn burst(name: &str) -> Value {
    json!({
        "name": name, "profile": "current", "seed": 1,
        "workload": {
            "dataset": "random", "path": null, "prompts": 1000, "input_len": 1024, "output_len": 128, "range_ratio": 1.0,
            "context_len": null, "prompt_suffix": null, "tokenize_prompt": false,
        },
        "arrival": { "rate": "inf", "spacing": "poisson", "concurrency": null },
        "limits": {
            "warmup": 1, "request": "6h", "first_byte": "6h", "duration": null, "drain": "6h", "stall": "10m", "line_bytes": 20_971_520,
            "excess_tokens": 1024, "error_share": 0.01,
        },
        "slo": null, "body": {}, "stop_at_eos": false, "keep_text": false,
    })
}

/// The same at a rate.
pub fn paced(name: &str, rate: f64) -> Value {
    merged(
        burst(name),
        &json!({ "arrival": { "rate": rate, "spacing": "poisson", "concurrency": null } }),
    )
}

/// A value with another one's keys put over it.
pub fn merged(mut value: Value, over: &Value) -> Value {
    if let (Some(into), Some(from)) = (value.as_object_mut(), over.as_object()) {
        for (key, value) in from {
            into.insert(key.clone(), value.clone());
        }
    }
    value
}

/// Five starts around a value: half a percent of noise.
pub fn around(value: f64) -> Vec<f64> {
    [1.0, 1.006, 0.995, 1.002, 0.998].map(|by| by * value).to_vec()
}

impl Row {
    /// A cell of a burst, by its output throughput on each start.
    pub fn of(engine: &str, model: &str, output: &[f64]) -> Self {
        Self::measured(engine, model, burst("s"), OUTPUT, output)
    }

    /// A cell of any load, by one figure of each start.
    pub fn measured(engine: &str, model: &str, scenario: Value, figure: &str, values: &[f64]) -> Self {
        Self {
            engine: engine.to_owned(),
            model: model.to_owned(),
            scenario,
            starts: values.iter().map(|value| json!({ figure: value })).collect(),
            summary: json!({}),
            launch: json!({}),
        }
    }

    /// A further figure, alike on all starts.
    pub fn with(mut self, figure: &str, value: f64) -> Self {
        for start in &mut self.starts {
            start[figure] = json!(value);
        }
        self
    }

    /// What is put over each summary.
    pub fn summed(mut self, over: Value) -> Self {
        self.summary = merged(self.summary, &over);
        self
    }

    fn name(&self) -> &str {
        self.scenario["name"].as_str().expect("a scenario has a name")
    }

    fn key(&self) -> String {
        format!(
            "engine={},version=1,model={},scenario={}",
            self.engine,
            self.model,
            self.name()
        )
    }

    fn launch_id(&self) -> String {
        format!("{}-{}", self.engine, self.model)
    }

    fn launch(&self) -> Value {
        let launch = json!({
            "id": self.launch_id(),
            "engine": {
                "name": self.engine, "recipe": self.engine, "title": self.engine, "version": "1", "variant": null, "backend": "vllm",
                "simulated": false,
            },
            "model": self.model, "checkpoint": self.model, "served": self.model, "precision": "bf16", "tokenizer": self.model,
            "parallel": { "tp": 1, "pp": 1, "dp": 1, "ep": 1 }, "devices": 1,
            "place": { "imported": { "image": "i", "package": null } },
            "contact": {
                "port": { "default": 30000, "fixed": 30000, "flag": [] }, "health": "", "models": null, "version": null, "info": null,
                "metrics": null, "reset": null,
                "dialect": { "protocol": "completions", "path": null, "usage": "unasked", "body": {} }, "headers": [],
            },
            "signs": { "phases": [], "dead": [] },
            "patience": { "start": "0s", "stall": "0s", "stop": "0s", "probe": "0s" },
        });
        merged(launch, &self.launch)
    }

    fn cell(&self) -> Value {
        json!({
            "key": self.key(),
            "axes": { "engine": self.engine, "version": "1", "model": self.model, "scenario": self.name() },
            "content": "0123456789abcdef", "launch": self.launch_id(), "scenario": self.scenario, "why": null,
        })
    }

    fn summary_of(&self, start: usize, figures: &Value) -> Value {
        let requests = json!({ "due_requests": 1000, "completed_requests": 1000, "failed_requests": 0 });
        let summary = json!({
            "format": 1, "cell": self.key(), "content": "0123456789abcdef", "launch": self.launch_id(), "start": start, "repeat": 1,
            "ending": "done", "origin": "measured", "began": "", "ended": "", "phases": [],
            "engine": {
                "version": "1", "models": [], "image_digest": null, "info": null, "tokenizer_digest": null, "command": null, "devices": [],
            },
            "prompts_hash": "00000000000000aa", "schedule_hash": null, "prompts": 1000, "stamps": null, "reset": null, "failures": {},
            "figures": { "matrix": merged(requests, figures) },
            "validity": { "verdict": "valid", "reasons": [] }, "warnings": [],
        });
        merged(summary, &self.summary)
    }
}

/// A host without GPUs.
pub fn host(name: &str) -> Value {
    json!({
        "host": name, "kernel": "6.8.0-45-generic", "os": "Linux", "cpu": "EPYC 9654", "cpus": 8, "memory_bytes": 68_719_476_736u64, "gpus": [],
        "driver": null, "open_files": 1024, "tool": "matrix",
    })
}

/// A host with one GPU.
pub fn gpu_host(name: &str, driver: &str, power_limit_w: f64) -> Value {
    let over = json!({
        "gpus": ["NVIDIA H100"], "driver": driver,
        "devices": [{ "device": 0, "name": "NVIDIA H100", "power_limit_w": power_limit_w }],
    });
    merged(host(name), &over)
}

/// The reasons of a verdict on a measurement.
pub fn doubted(verdict: &str, code: &str) -> Value {
    json!({ "validity": { "verdict": verdict, "reasons": [
        { "code": code, "weight": verdict, "measured": "much", "bound": "little", "advice": "look" },
    ] } })
}

/// Writes a run into `folder/results/name`.
pub fn write(folder: &Path, name: &str, machine: &Value, rows: &[Row]) -> PathBuf {
    let run = folder.join("results").join(name);
    let put = |file: PathBuf, value: &Value| {
        fs::create_dir_all(file.parent().expect("it lies in a folder")).expect("a folder can be made");
        fs::write(file, value.to_string()).expect("a file can be written");
    };
    let mut launches = Vec::new();
    let mut known = BTreeSet::new();
    for row in rows {
        if known.insert(row.launch_id()) {
            launches.push(row.launch());
        }
    }
    // Rounds A B, B A.
    let most = rows.iter().map(|row| row.starts.len()).max().unwrap_or(0);
    let mut starts = Vec::new();
    for start in 1..=most {
        let mut round: Vec<Value> = Vec::new();
        for id in &known {
            let cells: Vec<Value> = rows
                .iter()
                .filter(|row| row.launch_id() == *id && row.starts.len() >= start)
                .map(|row| json!({ "cell": row.key(), "start": start, "repeat": 1 }))
                .collect();
            if !cells.is_empty() {
                round.push(json!({ "launch": id, "start": start, "cells": cells }));
            }
        }
        if start % 2 == 0 {
            round.reverse();
        }
        starts.extend(round);
    }
    let cells: Vec<Value> = rows.iter().map(Row::cell).collect();
    put(
        run.join("plan.json"),
        &json!({ "matrix": "m", "launches": launches, "cells": cells, "starts": starts, "left_out": [] }),
    );
    put(
        run.join("run.json"),
        &json!({
            "format": 1, "run": name, "matrix": "m", "tool": "matrix 0.1.0", "began": "2026-11-21T22:28:44.549Z",
            "files": Map::new(),
        }),
    );
    put(run.join("machine.json"), machine);
    fs::write(run.join("journal.jsonl"), "").expect("a file can be written");
    for (at, row) in rows.iter().enumerate() {
        for (place, figures) in row.starts.iter().enumerate() {
            let start = place + 1;
            put(
                run.join(format!("cells/c{at}-s{start}-r1/summary.json")),
                &row.summary_of(start, figures),
            );
        }
    }
    run
}

/// A folder in which runs are written, and the binary is called.
pub struct Written {
    folder: tempfile::TempDir,
}

impl Written {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a folder can be made"),
        }
    }

    /// A folder with one run, `r`, on a host without GPUs.
    pub fn of(rows: &[Row]) -> Self {
        let written = Self::new();
        written.run("r", &host("h"), rows);
        written
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn run(&self, name: &str, machine: &Value, rows: &[Row]) -> PathBuf {
        write(self.folder.path(), name, machine, rows)
    }

    /// Keeps noise with that host: a share of a figure, for one cell.
    pub fn noise(&self, machine: &Value, cell: &str, figure: &str, share: f64) {
        let varies = json!({
            "at": "2026-01-01T00:00:00Z", "starts": 11, "per_start": 1, "start_share": share, "between_share": share,
            "difference_share": 0.0,
        });
        let noise = json!({ "machine": machine, "cells": { cell: { figure: varies } } });
        let folder = self.folder.path().join("cache");
        fs::create_dir_all(&folder).expect("a folder can be made");
        fs::write(folder.join("noise.json"), noise.to_string()).expect("a file can be written");
    }

    /// Exit code and stdout of the binary.
    pub fn call(&self, args: &[&str]) -> (i32, String) {
        let (code, out, said) = self.outputs(args);
        (code, if out.is_empty() { said } else { out })
    }

    /// Exit code, stdout and stderr of the binary.
    pub fn outputs(&self, args: &[&str]) -> (i32, String, String) {
        let ended = Command::new(crate::binary::matrix())
            .args(args)
            .current_dir(self.folder.path())
            .env("NO_COLOR", "1")
            .env("MATRIX_CACHE", self.folder.path().join("cache"))
            .output()
            .expect("the binary runs");
        let [out, said] =
            [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(ended.status.code().is_some(), "{said}");
        (ended.status.code().unwrap_or(-1), out, said)
    }

    /// `matrix report` of these runs in a format.
    pub fn report(&self, runs: &[&str], format: &str) -> String {
        let paths: Vec<String> = runs.iter().map(|run| format!("results/{run}")).collect();
        let mut args = vec!["report"];
        args.extend(paths.iter().map(String::as_str));
        args.extend(["--format", format]);
        let (code, out) = self.call(&args);
        assert_eq!(code, 0, "{out}");
        out
    }

    /// The report for machines.
    pub fn document(&self, runs: &[&str]) -> Value {
        serde_json::from_str(&self.report(runs, "json")).expect("it is JSON")
    }

    /// `matrix compare` of two runs: exit code, text and what machines get.
    pub fn compare(&self, more: &[&str]) -> (i32, String, Value) {
        let call = |format| self.call(&[&["compare"], more, &["--format", format]].concat());
        let (code, text) = call("markdown");
        let (_, json) = call("json");
        (code, text, serde_json::from_str(&json).unwrap_or(Value::Null))
    }
}

/// The row of an engine in the first comparison of a document.
pub fn row_of<'d>(document: &'d Value, engine: &str) -> &'d Value {
    let rows = document["comparisons"][0]["rows"]
        .as_array()
        .expect("there are rows");
    let is_of = |row: &&Value| row["name"].as_str().is_some_and(|name| name.starts_with(engine));
    rows.iter()
        .find(is_of)
        .unwrap_or_else(|| panic!("no {engine}: {rows:?}"))
}

/// Whether any row of a document is the best one.
pub fn has_best(document: &Value) -> bool {
    let comparisons = document["comparisons"].as_array().expect("there are comparisons");
    let rows = comparisons
        .iter()
        .flat_map(|comparison| comparison["rows"].as_array().into_iter().flatten());
    rows.into_iter().any(|row| row["is_best"] == true)
}
