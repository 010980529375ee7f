//! A small plan and its results, for tests.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;

use super::writer::{RunManifest, Store};
use crate::base::ids::{CellKey, ContentHash, LaunchId, RunId};
use crate::base::secrets::Redactor;
use crate::base::units::{HumanDuration, RequestRate};
use crate::config::arrival::{Arrival, ArrivalProcess};
use crate::config::dataset::random_ids::RandomIds;
use crate::config::scenario::{LoadLimits, Scenario};
use crate::config::template::Template;
use crate::config::workload::{Profile, Workload};
use crate::plan::{
    Api, AttachedServer, Cell, Engine, ExecutorSpec, Launch, Measurement, Plan, Protocol, Start, Timeouts,
};
use crate::results::record::cell::{
    CacheResetRecord, Definitions, EngineFacts, FailureClass, MeasurementStatus, MeasurementSummary, Origin,
    Phase, PhaseTime,
};
use crate::results::record::event::Event;
use crate::results::record::histogram::SecondHistogram;
use crate::results::record::machine::Machine;
use crate::results::record::request::{
    Chunk, ChunkKind, Failure, Request, RequestFailureClass, Usage as Counts,
};

pub(crate) const MATRIX: &str = "small";

/// One launch, two cells, one start.
pub(crate) fn plan() -> Plan {
    let launch = LaunchId::new("sim/Tiny-1B/tp1");
    let cells: Vec<Cell> = ["sharegpt", "random-1k-1k"]
        .map(|name| cell(&launch, name))
        .into();
    let measured = cells.iter().map(|cell| measurement(&cell.key)).collect();
    Plan {
        launches: vec![test_launch(&launch)],
        cells,
        starts: vec![Start {
            launch,
            start: 1,
            cells: measured,
            confirms: false,
        }],
        reference: Some("sim".to_owned()),
        ..Plan::empty(MATRIX)
    }
}

pub(crate) fn measurement(cell: &CellKey) -> Measurement {
    Measurement {
        cell: cell.clone(),
        start: 1,
        repeat: 1,
    }
}

fn cell(launch: &LaunchId, scenario: &str) -> Cell {
    let key = CellKey::new(format!("{launch}/{scenario}"));
    Cell {
        content: ContentHash::from_value(&key),
        axes: [("scenario".to_owned(), scenario.to_owned())].into(),
        key,
        launch: launch.clone(),
        scenario: Scenario {
            name: scenario.to_owned(),
            profile: Profile::Current,
            seed: 1,
            workload: Workload {
                prompts: 3,
                ..Workload::with(RandomIds {
                    input_len: Some(8),
                    output_len: Some(4),
                    range_ratio: 1.0,
                    tokenize_prompt: false,
                    lengths: None,
                    common_prefix: None,
                })
            },
            arrival: Arrival {
                rate: RequestRate::INFINITE,
                pace: None,
                spacing: ArrivalProcess::Poisson,
                concurrency: NonZeroU32::new(2),
            },
            limits: LoadLimits::default(),
            slo: None,
            further_tiers: Vec::new(),
            search: None,
            body: serde_json::Map::new(),
            stop_at_eos: false,
            keep_text: true,
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

fn test_launch(id: &LaunchId) -> Launch {
    let engine = Engine {
        title: "Simulated engine".to_owned(),
        backend: "sglang".to_owned(),
        simulated: true,
        ..Engine::new("sim")
    };
    let attach = AttachedServer {
        url: Template::new("http://127.0.0.1:8000"),
        ..AttachedServer::default()
    };
    let api = Api {
        headers: vec![("Authorization".to_owned(), Template::new("Bearer ${API_KEY}"))],
        ..Api::new(Protocol::SglangNative)
    };
    Launch {
        id: id.clone(),
        precision: Some("bf16".to_owned()),
        timeouts: Timeouts {
            start: HumanDuration::from_secs(60),
            stall: HumanDuration::from_secs(30),
            stop: HumanDuration::from_secs(5),
            probe: HumanDuration::from_secs(10),
        },
        ..Launch::new(engine, "Tiny-1B", ExecutorSpec::Attach(attach), api)
    }
}

/// The summary of a cell: the second cell of [`plan`] failed while measuring.
pub(crate) fn summary(cell: &Cell) -> MeasurementSummary {
    let failed = cell.scenario.name != "sharegpt";
    MeasurementSummary {
        status: if failed {
            MeasurementStatus::Failed {
                phase: Phase::Measure,
                class: FailureClass::Engine,
                reason: "the engine died (signal 9) while it was measured".to_owned(),
                tail: vec!["Killed".to_owned()],
            }
        } else {
            MeasurementStatus::Done
        },
        began: "2026-11-21T06:00:00.000Z".to_owned(),
        ended: "2026-11-21T06:00:02.500Z".to_owned(),
        phases: vec![PhaseTime {
            phase: "measure".to_owned(),
            seconds: 2.25,
        }],
        engine: EngineFacts {
            version: Some("1.2.3".to_owned()),
            models: vec!["Tiny-1B".to_owned()],
            info: Some(serde_json::json!({ "max_total_num_tokens": 4096 })),
            ..EngineFacts::default()
        },
        prompts_hash: Some(ContentHash::from_bytes(b"prompts")),
        schedule_hash: Some(ContentHash::from_bytes(b"schedule")),
        prompts: Some(3),
        timestamp_source: Some("user".to_owned()),
        cache_reset: Some(CacheResetRecord {
            is_fresh_start: false,
            possible: true,
            status: Some(200),
            success: None,
            answer: Some("Cache flushed.".to_owned()),
            unique_prefix: None,
            hits_in_window: Some(0.0),
            queries_in_window: None,
        }),
        failures: if failed {
            BTreeMap::from([(RequestFailureClass::Reset, 1)])
        } else {
            BTreeMap::new()
        },
        figures: BTreeMap::from([(
            Definitions::Matrix,
            BTreeMap::from([
                ("mean_ttft_ms".to_owned(), Some(0.1 + 0.2)),
                ("mean_tpot_ms".to_owned(), None),
            ]),
        )]),
        ..MeasurementSummary::new(
            cell.key.clone(),
            cell.content.clone(),
            cell.launch.clone(),
            Origin::Simulated,
        )
    }
}

/// Three requests: two completed, one cut off.
pub(crate) fn requests() -> Vec<Request> {
    (0..3).map(request).collect()
}

fn request(index: u32) -> Request {
    let sent = u64::from(index) * 1_000_000;
    let cut = index == 2;
    Request {
        connection: Default::default(),
        index,
        prompt_tokens: 8,
        vision_tokens: 0,
        audio: None,
        round: None,
        requested_tokens: 4,
        limit_tokens: None,
        due_ns: 0,
        sent_ns: Some(sent),
        connected_ns: Some(sent + 40_000),
        written_ns: Some(sent + 60_000),
        first_byte_ns: Some(sent + 900_000),
        chunks: vec![Chunk {
            at_ns: sent + 950_000,
            kind: ChunkKind::Answer,
            tokens: Some(2),
            bytes: 9,
        }]
        .into(),
        last_line_ns: (!cut).then_some(sent + 1_500_000),
        end_ns: sent + 1_600_000,
        failure: cut.then(|| Failure {
            class: RequestFailureClass::Reset,
            message: "connection reset by peer".to_owned(),
        }),
        cancelled: false,
        status: Some(200),
        usage: (!cut).then_some(Counts {
            prompt: Some(8),
            completion: Some(4),
            cached: Some(0),
            ..Counts::default()
        }),
        cached: None,
        oddities: Vec::new(),
        finish: (!cut).then(|| "length".to_owned()),
        counted_tokens: Some(4),
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
        models: Vec::new(),
        echoes_prompt: false,
        counted_reasoning: None,
        tool_text: None,
        tool_calls: Vec::new(),
        final_answer: None,
        answer_check: None,
        text: Some("an answer".into()),
    }
}

pub(crate) fn machine() -> Machine {
    Machine {
        host: Some("bench-1".to_owned()),
        cpus: Some(8),
        tool: "0.1.0 (test)".to_owned(),
        ..Machine::default()
    }
}

/// Creates a run and begins it with a plan.
pub(crate) fn create_and_begin(root: &Path, run: &str, plan: &Plan, redactor: Redactor) -> Store {
    let store = Store::create(root, &RunId::new(run), redactor).unwrap();
    begin(&store, plan);
    store
}

/// Histograms of two seconds.
pub(crate) fn seconds() -> Vec<SecondHistogram> {
    let first = SecondHistogram {
        due: 3,
        sent: 2,
        ttft_us: Some("aGlzdG9ncmFt".to_owned()),
        ..SecondHistogram::default()
    };
    let second = SecondHistogram {
        second: 1,
        completed: 2,
        failed: 1,
        output_tokens: Some(4),
        ..SecondHistogram::default()
    };
    vec![first, second]
}

/// Begins or resumes a run.
pub(crate) fn begin(store: &Store, plan: &Plan) -> Vec<Measurement> {
    begin_on(store, plan, &machine())
}

/// Begins or resumes a run on this machine.
pub(crate) fn begin_on(store: &Store, plan: &Plan, machine: &Machine) -> Vec<Measurement> {
    let recipes = BTreeMap::from([(
        "sim".to_owned(),
        "# a recipe\ntitle: Simulated engine\n".to_owned(),
    )]);
    let beginning = RunManifest {
        source: "# a matrix\nname: small\n",
        recipes: &recipes,
        plan,
        machine,
    };
    store.begin_run(&beginning).unwrap()
}

/// Measures every cell of a plan as a run does.
pub(crate) fn write_all_cells(store: &Store, plan: &Plan) {
    let mut journal = store.journal().unwrap();
    let mut lines = Vec::new();
    for cell in &plan.cells {
        let summary = summary(cell);
        store
            .write_cell(&summary, &requests(), &seconds(), "ready\nanswered\n")
            .unwrap();
        let ended = Event::CellEnded {
            measurement: measurement(&cell.key),
            status: summary.status.name().to_owned(),
            reason: None,
            seconds: 2.5,
            output_tokens_per_s: None,
            verdict: None,
            codes: Vec::new(),
            tail: Vec::new(),
            post_mortem: None,
        };
        journal.append(&ended).unwrap();
        lines
            .push(serde_json::json!({ "backend": "sglang", "completed": 2, "matrix": { "cell": cell.key } }));
        store.write_results(&lines).unwrap();
    }
    store.write_report("report.md", "# A report\n").unwrap();
}
