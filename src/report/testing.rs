//! Launches, cells and summaries for tests of reports.

use std::collections::BTreeMap;

use super::ReportCell;
use crate::base::ids::{CellKey, ContentHash, LaunchId, RunId};
use crate::base::units::{HumanDuration, RequestRate};
use crate::config::arrival::{Arrival, ArrivalProcess};
use crate::config::dataset::DatasetName;
use crate::config::scenario::{LoadLimits, Scenario};
use crate::config::template::Template;
use crate::config::workload::{Profile, Workload};
use crate::plan::{Api, Cell, Container, Engine, ExecutorSpec, Launch, Parallel, Protocol, Timeouts};
use crate::results::record::FORMAT;
use crate::results::record::cell::{
    Definitions, FailureClass, MeasurementStatus, MeasurementSummary, MetricValues, Origin, Phase,
};
use crate::results::record::nightly::{Finding, FindingKind, NightlyCell, NightlyRun};
use crate::results::record::request::{Chunk, ChunkKind, Request, RequestFailureClass};

/// A cell with its launch and measurements.
pub(super) struct Case {
    pub(super) launch: Launch,
    pub(super) cell: Cell,
    pub(super) summaries: Vec<MeasurementSummary>,
}

impl Case {
    /// A cell on `devices` GPUs, measured once at `tok_s` output tokens per second.
    pub(super) fn new(engine: &str, precision: &str, devices: u32, tok_s: f64) -> Self {
        let launch = launch(engine, precision, devices);
        let cell = cell(&launch);
        let summaries = vec![summary(&launch, &cell, tok_s)];
        Self {
            launch,
            cell,
            summaries,
        }
    }

    /// The same cell at so many requests at once, with interactivity.
    pub(super) fn at_concurrency(mut self, slots: u32, interactivity_tok_s: f64) -> Self {
        self.cell.key = CellKey::new(format!("{},concurrency={slots}", self.cell.key));
        self.cell.content = ContentHash::from_value(&self.cell.key);
        self.cell.scenario.arrival.concurrency = std::num::NonZeroU32::new(slots);
        for summary in &mut self.summaries {
            summary.cell = self.cell.key.clone();
            summary.content = self.cell.content.clone();
            let figures = summary.figures.entry(Definitions::Matrix).or_default();
            figures.insert(
                crate::analysis::metrics::Metric::Interactivity.name(),
                Some(interactivity_tok_s),
            );
        }
        self
    }

    /// The same cell in a scenario with this name.
    pub(super) fn in_scenario(mut self, name: &str) -> Self {
        self.cell.key = CellKey::new(format!("{},scenario={name}", self.cell.key));
        self.cell.content = ContentHash::from_value(&self.cell.key);
        self.cell.scenario.name = name.to_owned();
        for summary in &mut self.summaries {
            summary.cell = self.cell.key.clone();
            summary.content = self.cell.content.clone();
        }
        self
    }

    /// Adds a measurement as a further repeat.
    pub(super) fn measured_again(mut self, tok_s: f64) -> Self {
        let mut summary = summary(&self.launch, &self.cell, tok_s);
        summary.repeat = 1 + u32::try_from(self.summaries.len()).unwrap();
        self.summaries.push(summary);
        self
    }

    /// Makes the last measurement a failed one.
    pub(super) fn with_failure(mut self, phase: Phase, reason: &str) -> Self {
        let last = self.summaries.last_mut().unwrap();
        last.figures.clear();
        last.failures.clear();
        last.status = MeasurementStatus::Failed {
            phase,
            class: FailureClass::Engine,
            reason: reason.to_owned(),
            tail: vec!["RuntimeError: out of ```memory```".to_owned()],
        };
        self
    }

    /// Moves the cell to the simulated engine.
    pub(super) fn on_simulated_engine(mut self) -> Self {
        self.launch.engine.simulated = true;
        for summary in &mut self.summaries {
            summary.origin = Origin::Simulated;
        }
        self
    }

    /// Changes the digest of the prompts.
    pub(super) fn with_prompts(mut self, prompts: &str) -> Self {
        for summary in &mut self.summaries {
            summary.prompts_hash = Some(ContentHash::from_bytes(prompts.as_bytes()));
        }
        self
    }

    pub(super) fn report_cell(&self) -> ReportCell<'_> {
        ReportCell {
            run: "",
            machine: None,
            launch: &self.launch,
            cell: &self.cell,
            summaries: self.summaries.iter().collect(),
            other_engine_version: None,
            precision: None,
            plan: None,
            stage: None,
            noise: None,
            answer_comparisons: &[],
            agreements: &[],
            prices: Default::default(),
        }
    }
}

pub(super) fn report_cells(cases: &[Case]) -> Vec<ReportCell<'_>> {
    cases.iter().map(Case::report_cell).collect()
}

fn launch(engine: &str, precision: &str, devices: u32) -> Launch {
    let (name, version) = engine.split_once('@').unwrap_or((engine, "1.0"));
    let checkpoint = match precision {
        "bf16" => "Qwen/Qwen3-8B".to_owned(),
        other => format!("Qwen/Qwen3-8B-{}", other.to_uppercase()),
    };
    let command = ["serve", &checkpoint, "--tp", &devices.to_string()].map(Template::from);
    let engine = Engine {
        title: name.to_uppercase(),
        version: Some(version.to_owned()),
        backend: "vllm".to_owned(),
        ..Engine::new(name)
    };
    let container = Container {
        image: format!("example/{name}:{version}"),
        command: command.to_vec(),
        ..Container::default()
    };
    Launch {
        id: LaunchId::new(format!("{name}-{version}-{precision}-tp{devices}")),
        model: "Qwen/Qwen3-8B".to_owned(),
        precision: Some(precision.to_owned()),
        parallel: Parallel {
            tp: devices,
            ..Parallel::default()
        },
        devices,
        timeouts: Timeouts {
            start: HumanDuration::from_secs(60),
            stall: HumanDuration::from_secs(30),
            stop: HumanDuration::from_secs(5),
            probe: HumanDuration::from_secs(10),
        },
        ..Launch::new(
            engine,
            &checkpoint,
            ExecutorSpec::Container(Box::new(container)),
            Api::new(Protocol::Completions),
        )
    }
}

fn cell(launch: &Launch) -> Cell {
    let key = CellKey::new(format!("{}/sharegpt", launch.id));
    Cell {
        axes: BTreeMap::new(),
        content: ContentHash::from_value(&key),
        key,
        launch: launch.id.clone(),
        scenario: Scenario {
            name: "sharegpt".to_owned(),
            profile: Profile::Classic,
            seed: 1,
            workload: Workload::new(DatasetName::Sharegpt),
            arrival: Arrival {
                rate: RequestRate::INFINITE,
                pace: None,
                spacing: ArrivalProcess::Poisson,
                concurrency: None,
            },
            limits: LoadLimits::default(),
            slo: None,
            further_tiers: Vec::new(),
            search: None,
            body: serde_json::Map::new(),
            stop_at_eos: false,
            keep_text: false,
            lora: None,
            pacing: Default::default(),
            connections: Default::default(),
            cancel: None,
            check_answers: false,
            quality: None,
        },
        why: None,
    }
}

fn summary(launch: &Launch, cell: &Cell, tok_s: f64) -> MeasurementSummary {
    MeasurementSummary {
        began: "2026-11-21T06:53:11.250Z".to_owned(),
        ended: "2026-11-21T06:55:11.250Z".to_owned(),
        prompts_hash: Some(ContentHash::from_bytes(b"prompts")),
        prompts: Some(1000),
        failures: BTreeMap::from([(RequestFailureClass::Reset, 2)]),
        figures: [Definitions::Classic, Definitions::Current, Definitions::Matrix]
            .map(|definitions| (definitions, figures(tok_s, launch.devices)))
            .into(),
        ..MeasurementSummary::new(
            cell.key.clone(),
            cell.content.clone(),
            launch.id.clone(),
            Origin::Measured,
        )
    }
}

fn figures(tok_s: f64, devices: u32) -> MetricValues {
    [
        ("completed_requests", 998.0),
        ("failed_requests", 2.0),
        ("duration_s", 120.5),
        ("input_tokens", 220_000.0),
        ("output_tokens", 190_000.0),
        ("request_throughput_req_s", tok_s / 200.0),
        ("input_throughput_tok_s", tok_s * 1.1),
        ("output_throughput_tok_s", tok_s),
        ("total_throughput_tok_s", tok_s * 2.1),
        ("output_throughput_per_gpu_tok_s", tok_s / f64::from(devices)),
        ("mean_ttft_ms", 101.25),
        ("median_ttft_ms", 99.5),
        ("p99_ttft_ms", 180.0),
        ("mean_tpot_ms", 12.5),
        ("p99_tpot_ms", 20.0),
        ("mean_itl_ms", 12.25),
        ("p99_itl_ms", 31.0),
        ("mean_e2e_ms", 2500.0),
        ("p99_e2e_ms", 8000.0),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), Some(value)))
    .collect()
}

/// A completed request with output 10 and 20 ms after it was sent and its last line 10 ms later.
pub(super) fn request(index: u32) -> Request {
    const MS: u64 = 1_000_000;
    let chunk = |at_ns| Chunk {
        at_ns,
        kind: ChunkKind::Answer,
        tokens: None,
        bytes: 2,
    };
    Request {
        connection: Default::default(),
        index,
        prompt_tokens: 7,
        vision_tokens: 0,
        audio: None,
        round: None,
        requested_tokens: 2,
        limit_tokens: None,
        due_ns: 0,
        sent_ns: Some(0),
        connected_ns: None,
        written_ns: None,
        first_byte_ns: None,
        chunks: vec![chunk(10 * MS), chunk(20 * MS)].into(),
        last_line_ns: Some(30 * MS),
        end_ns: 30 * MS,
        failure: None,
        cancelled: false,
        status: Some(200),
        usage: None,
        cached: None,
        oddities: Vec::new(),
        models: Vec::new(),
        finish: Some("length".to_owned()),
        counted_tokens: Some(2),
        counted_chunks: None,
        counted_prompt: None,
        omittable_prompt: 0,
        uniform: None,
        blank_events: 0,
        counted_first: None,
        common_events: 0,
        session: None,
        reusable_prompt: None,
        queried_prompt: None,
        is_loop: false,
        is_canned: false,
        echoes_prompt: false,
        counted_reasoning: None,
        tool_text: None,
        tool_calls: Vec::new(),
        final_answer: None,
        answer_check: None,
        text: Some("abcd".into()),
    }
}

/// Twenty-eight nightly runs of cells whose output throughput falls by 6 % on the seventeenth. The cells are
/// invalid on the twelfth, and the driver changes on the twenty-first.
pub(super) fn nights(cells: &[&str]) -> Vec<NightlyRun> {
    let night = |at: u32| {
        let is_valid = at != 11;
        let value = |cell: usize| {
            let wobble = f64::from((at * 7 + 3 * cell as u32) % 11) * 0.001;
            let level = if at >= 16 { 0.94 } else { 1.0 };
            1000.0 * (cell + 1) as f64 * level * (1.0 + wobble)
        };
        let of_cell = |(number, key): (usize, &&str)| {
            let figures = is_valid.then(|| vec![value(number), value(number)]);
            let cell = NightlyCell {
                prompts: Some(ContentHash::new("p")),
                origin: Some(Origin::Simulated),
                engine: BTreeMap::new(),
                figures: [("output_throughput_tok_s".to_owned(), figures.unwrap_or_default())].into(),
            };
            (CellKey::new(*key), cell)
        };
        let invalid = |key: &&str| Finding {
            kind: FindingKind::Invalid,
            cell: Some(CellKey::new(*key)),
            figure: None,
            text: "client-late".to_owned(),
        };
        NightlyRun {
            format: FORMAT,
            at: format!("2026-01-{:02}T03:00:00Z", at + 1),
            run: RunId::new(format!("m-{at}")),
            matrix: "m".to_owned(),
            baseline: (at > 0).then(|| RunId::new("m-0")),
            machine: [(
                "driver".to_owned(),
                if at < 20 { "550" } else { "560" }.to_owned(),
            )]
            .into(),
            cells: cells.iter().enumerate().map(of_cell).collect(),
            judged: None,
            upgrade: None,
            findings: if is_valid {
                Vec::new()
            } else {
                cells.iter().map(invalid).collect()
            },
        }
    };
    (0..28).map(night).collect()
}
