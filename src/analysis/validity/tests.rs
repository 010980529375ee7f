use super::*;
use crate::config::scenario::{Scenario, Slo};
use crate::plan::Protocol;
use crate::results::record::request::{AudioInput, Request};
use crate::results::record::telemetry::{
    EngineWindow, Gpu, GpuWindow, HostWindow, SampledRange, SourceFacts, TelemetrySource,
};
use crate::results::record::validity::MetricFamily;

#[test]
fn every_code_has_one_row_in_the_table_and_the_document_is_that_table() {
    let rows: Vec<ReasonCode> = TABLE.iter().map(|entry| entry.code).collect();
    assert_eq!(rows, ReasonCode::ALL, "one row for each code, in their order");
    for entry in TABLE {
        for words in [entry.meaning, entry.fix] {
            assert!(words.ends_with('.'), "{words}");
        }
        let name = serde_json::to_value(entry.code).unwrap();
        assert_eq!(
            name,
            entry.code.name(),
            "one name for a code, on disk and in tables"
        );
    }
    let document = include_str!("../../VALIDITY.md");
    assert!(
        document == table_as_document(),
        "src/VALIDITY.md is not what `matrix explain --codes` prints; write it anew"
    );
}

/// Each bound is in the entry of a code, with its name and its default.
#[test]
fn the_table_tells_the_defaults_of_the_bounds() {
    let bounds = serde_json::to_value(ValidityBounds::default()).unwrap();
    for (name, value) in bounds.as_object().unwrap() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let value = value.strip_suffix(".0").unwrap_or(&value);
        let has_name = |text: &&str| text.contains(&format!("`{name}`"));
        let mut texts = TABLE.iter().flat_map(|entry| entry.bound);
        let text = texts.find(|text| has_name(text));
        let text = text.unwrap_or_else(|| panic!("no bound has the name `{name}`"));
        assert!(
            text.contains(value),
            "`{name}` is {value}, and the table says: {text}"
        );
    }
}

#[test]
fn bounds_that_cannot_be_are_named() {
    let bounds = ValidityBounds {
        max_cache_hits: 5.0,
        own_tokens: 0.5,
        ..ValidityBounds::default()
    };
    assert_eq!(
        bounds.find_errors(),
        [
            ("max_cache_hits", "a share from 0 to 1"),
            ("own_tokens", "a factor of 1 or more")
        ]
    );
    assert!(ValidityBounds::default().find_errors().is_empty());
}

fn range(min: f64, max: f64) -> SampledRange {
    SampledRange {
        min,
        mean: f64::midpoint(min, max),
        max,
    }
}

fn codes_on(telemetry: &Telemetry, machine: &Machine) -> Vec<(ReasonCode, Verdict)> {
    let mut reasons = Vec::new();
    machine::judge_devices(telemetry, Some(machine), &ValidityBounds::default(), &mut reasons);
    host::judge(telemetry, &ValidityBounds::default(), &mut reasons);
    reasons
        .iter()
        .map(|reason| (reason.code, reason.weight))
        .collect()
}

#[test]
fn what_else_goes_on_on_a_host_is_found_and_a_quiet_host_is_not() {
    let quiet = HostWindow {
        cpus: 8,
        other_cpus: Some(0.9),
        stolen_cpus: Some(0.1),
        is_numa_remote: Some(false),
        ranges: [("swap_bytes_per_s".to_owned(), range(0.0, 1e6))].into(),
        ..HostWindow::default()
    };
    let codes_for = |host: HostWindow| {
        let telemetry = Telemetry {
            host: Some(host),
            seconds: 20.0,
            ..Telemetry::default()
        };
        codes_on(&telemetry, &Machine::default())
    };
    assert_eq!(codes_for(quiet.clone()), []);
    for (host, code) in [
        (
            HostWindow {
                other_cpus: Some(3.0),
                ..quiet.clone()
            },
            ReasonCode::HostBusy,
        ),
        (
            // One busy loop is half of a small host.
            HostWindow {
                cpus: 2,
                other_cpus: Some(0.99),
                stolen_cpus: None,
                ..quiet.clone()
            },
            ReasonCode::HostBusy,
        ),
        (
            HostWindow {
                stolen_cpus: Some(0.4),
                ..quiet.clone()
            },
            ReasonCode::CpuStolen,
        ),
        (
            HostWindow {
                ranges: [("swap_bytes_per_s".to_owned(), range(0.0, 1e8))].into(),
                ..quiet.clone()
            },
            ReasonCode::Swapping,
        ),
        (
            HostWindow {
                is_numa_remote: Some(true),
                ..quiet.clone()
            },
            ReasonCode::NumaRemote,
        ),
    ] {
        assert_eq!(codes_for(host), [(code, Verdict::Suspect)]);
    }
}

#[test]
fn what_a_gpu_went_through_is_found_with_its_weight_and_a_usual_one_is_not() {
    const GIB: f64 = (1u64 << 30) as f64;
    let machine = |display: Option<bool>| Machine {
        devices: vec![Gpu {
            max_sm_clock_mhz: Some(1980.0),
            pcie_generation: Some(5),
            pcie_width: Some(16),
            display,
            ..Gpu::default()
        }],
        ..Machine::default()
    };
    let usual = || GpuWindow {
        busy_samples: 100,
        busy_clock_mhz: Some(1755.0),
        clock_spread: Some(0.02),
        rest_memory_bytes: Some(1 << 29),
        ranges: [
            ("memory_used_bytes", range(70.0 * GIB, 70.9 * GIB)),
            ("own_memory_bytes", range(69.0 * GIB, 70.0 * GIB)),
            ("pcie_generation", range(1.0, 5.0)),
            ("pcie_width", range(16.0, 16.0)),
            ("ecc_uncorrected", range(3.0, 3.0)),
        ]
        .map(|(name, range)| (name.to_owned(), range))
        .into(),
        ..GpuWindow::default()
    };
    let on = |gpu: GpuWindow, display| {
        let telemetry = Telemetry {
            gpus: vec![gpu],
            ..Telemetry::default()
        };
        codes_on(&telemetry, &machine(display))
    };
    let changed = |change: &dyn Fn(&mut GpuWindow)| {
        let mut gpu = usual();
        change(&mut gpu);
        on(gpu, None)
    };
    let ranged = |name: &'static str, value_range: SampledRange| {
        changed(&move |gpu: &mut GpuWindow| {
            gpu.ranges.insert(name.to_owned(), value_range);
        })
    };
    let throttled = |reason: &'static str| {
        changed(&move |gpu: &mut GpuWindow| {
            gpu.throttled.insert(reason.to_owned(), 0.5);
        })
    };
    assert_eq!(on(usual(), None), []);
    assert_eq!(
        throttled("thermal"),
        [(ReasonCode::ThrottledThermal, Verdict::Suspect)]
    );
    assert_eq!(
        throttled("hardware"),
        [(ReasonCode::ThrottledHardware, Verdict::Suspect)]
    );
    assert_eq!(throttled("power"), [(ReasonCode::ThrottledPower, Verdict::Valid)]);
    assert_eq!(
        changed(&|gpu| gpu.busy_clock_mhz = Some(900.0)),
        [(ReasonCode::ClocksSpread, Verdict::Valid)]
    );
    assert_eq!(
        ranged("memory_used_bytes", range(70.0 * GIB, 79.0 * GIB)),
        [(ReasonCode::GpuMemoryUnexplained, Verdict::Suspect)]
    );
    assert_eq!(
        ranged("ecc_uncorrected", range(3.0, 4.0)),
        [(ReasonCode::GpuErrors, Verdict::Suspect)]
    );
    assert_eq!(
        ranged("pcie_width", range(8.0, 8.0)),
        [(ReasonCode::PcieDowntrained, Verdict::Suspect)]
    );
    let xid = Telemetry {
        kernel: vec!["[1.0] NVRM: Xid (PCI:0000:01:00): 48".to_owned()],
        ..Telemetry::default()
    };
    assert_eq!(
        codes_on(&xid, &Machine::default()),
        [(ReasonCode::GpuErrors, Verdict::Suspect)]
    );
    // A desktop holds memory and reports it.
    let drawn = || {
        let mut gpu = usual();
        gpu.rest_memory_bytes = Some(2 << 30);
        gpu
    };
    assert_eq!(on(drawn(), None), [(ReasonCode::GpuNotAtRest, Verdict::Suspect)]);
    assert_eq!(
        on(drawn(), Some(true)),
        [(ReasonCode::GpuNotAtRest, Verdict::Valid)]
    );
}

/// An engine that computes may answer late about itself, but its counters are complete.
#[test]
fn a_silent_engine_whose_counters_are_whole_is_a_note_and_any_other_silence_is_suspect() {
    let facts = |source, longest_gap_s, is_bracketed| SourceFacts {
        source,
        node: None,
        device: None,
        period_s: 1.0,
        samples: 3,
        longest_gap_s,
        is_bracketed,
        trouble: None,
    };
    let weight = |facts: &SourceFacts| machine::source_silence(facts, 3.0).map(|(_, weight)| weight);
    assert_eq!(
        weight(&facts(TelemetrySource::Engine, 7.5, true)),
        Some(Verdict::Valid)
    );
    assert_eq!(
        weight(&facts(TelemetrySource::Engine, 7.5, false)),
        Some(Verdict::Suspect)
    );
    assert_eq!(
        weight(&facts(TelemetrySource::Nvml, 7.5, true)),
        Some(Verdict::Suspect)
    );
    assert_eq!(weight(&facts(TelemetrySource::Engine, 2.9, true)), None);
    let gave_up = SourceFacts {
        trouble: Some("it hangs".to_owned()),
        ..facts(TelemetrySource::Engine, 0.0, true)
    };
    assert_eq!(weight(&gave_up), Some(Verdict::Suspect));
}

fn answered_request(models: &[&str]) -> Request {
    let models: Vec<String> = models.iter().map(|model| (*model).to_owned()).collect();
    Request {
        models,
        ..serde_json::from_value(serde_json::json!({
            "index": 0, "prompt_tokens": 1, "asked_tokens": 2, "due_ns": 0, "end_ns": 0, "chunks": [],
        }))
        .unwrap()
    }
}

#[test]
fn answers_of_another_model_are_found_and_an_alias_is_a_note() {
    let judged = |answers: &[&[&str]], listed: &[&str]| {
        let requests: Vec<Request> = answers.iter().map(|models| answered_request(models)).collect();
        let listed: Vec<String> = listed.iter().map(|model| (*model).to_owned()).collect();
        let reason = served_model::model_name_reason(&requests, &["m", "org/big-model"], &listed);
        reason.map(|reason| (reason.code, reason.weight))
    };
    let wrong = |weight| Some((ReasonCode::WrongModel, weight));
    assert_eq!(judged(&[&[], &[]], &["m"]), None);
    assert_eq!(judged(&[&["/models/Big-Model"], &["big-model"]], &["m"]), None);
    assert_eq!(judged(&[&[], &["tiny"]], &["m"]), wrong(Verdict::Invalid));
    assert_eq!(judged(&[&["tiny"], &["tiny"]], &["m"]), wrong(Verdict::Invalid));
    assert_eq!(
        judged(&[&["tiny"], &["tiny"]], &["m", "tiny"]),
        wrong(Verdict::Valid)
    );
    assert_eq!(judged(&[&["tiny"], &["tiny"]], &[]), wrong(Verdict::Suspect));
    assert_eq!(
        judged(&[&[], &["tiny"]], &["m", "tiny"]),
        wrong(Verdict::Invalid),
        "a mixture"
    );
    // The model of an answer is recorded only if it differs from the requested one: these requests asked for
    // an adapter.
    assert_eq!(judged(&[&[], &["m"]], &["m", "adapter"]), wrong(Verdict::Suspect));
    assert_eq!(judged(&[&["m"], &["tiny"]], &["m"]), wrong(Verdict::Invalid));
}

#[test]
fn several_choices_share_one_stream_and_pictures_of_no_tokens_were_not_looked_at() {
    let plan = include_str!("../../../tests/fixtures/run-format-1/plan.json");
    let plan: crate::plan::Plan = serde_json::from_str(plan).unwrap();
    let codes = |requests: &[Request], scenario: &Scenario| -> Vec<ReasonCode> {
        let reasons = response_reasons(&Responses {
            requests,
            scenario,
            names: &["m"],
            listed: &[],
            protocol: Protocol::Chat,
            is_simulated: false,
            bounds: &ValidityBounds::default(),
        });
        let wanted = [ReasonCode::ChunkedTokens, ReasonCode::PromptTokensDisagree];
        let matched_reason = reasons.into_iter().filter(|reason| wanted.contains(&reason.code));
        matched_reason
            .map(|reason| {
                assert_eq!(reason.weight, Verdict::Suspect);
                reason.code
            })
            .collect()
    };
    let mut answers = streamed_requests(20, 100, &[90, 180, 270]);
    for answer in &mut answers {
        answer.usage =
            serde_json::from_value(serde_json::json!({"prompt": 1, "completion": 3, "cached": null}))
                .unwrap();
    }
    let mut scenario = plan.cells[0].scenario.clone();
    assert_eq!(codes(&answers, &scenario), []);
    scenario.body.insert("n".to_owned(), 4.into());
    assert_eq!(codes(&answers, &scenario), [ReasonCode::ChunkedTokens]);
    scenario.body.clear();
    scenario.workload.dataset = crate::config::dataset::DatasetName::Image.into();
    assert_eq!(codes(&answers, &scenario), [ReasonCode::PromptTokensDisagree]);
    for answer in &mut answers {
        answer.vision_tokens = 64;
    }
    assert_eq!(codes(&answers, &scenario), []);
}

#[test]
fn a_server_that_counts_less_than_half_of_a_drawn_prompt_is_doubted() {
    let plan = include_str!("../../../tests/fixtures/run-format-1/plan.json");
    let plan: crate::plan::Plan = serde_json::from_str(plan).unwrap();
    let mut scenario = plan.cells[0].scenario.clone();
    let judged = |scenario: &Scenario, sent: u32, reported: u32, is_simulated: bool| {
        let mut answers = streamed_requests(20, 100, &[90, 180, 270]);
        for answer in &mut answers {
            answer.prompt_tokens = sent;
            let usage = serde_json::json!({"prompt": reported, "completion": 3, "cached": null});
            answer.usage = serde_json::from_value(usage).unwrap();
        }
        let reasons = response_reasons(&Responses {
            requests: &answers,
            scenario,
            names: &["m"],
            listed: &[],
            protocol: Protocol::Completions,
            is_simulated,
            bounds: &ValidityBounds::default(),
        });
        let mut reasons = reasons.into_iter();
        let found = reasons.find(|reason| reason.code == ReasonCode::PromptTokensDisagree);
        found.map(|reason| (reason.weight, reason.measured))
    };
    let measured = "by the server's count, 20 of 20 prompts have less than half of the tokens that were sent: the server counted 5120 tokens in total, but 40960 were sent by the count of the data set";
    assert_eq!(
        judged(&scenario, 2048, 256, false),
        Some((Verdict::Suspect, measured.to_owned()))
    );
    for (sent, reported) in [(2048, 1024), (2048, 2620), (63, 20)] {
        assert_eq!(
            judged(&scenario, sent, reported, false),
            None,
            "{sent} {reported}"
        );
    }
    assert_eq!(judged(&scenario, 2048, 256, true), None, "it has no tokenizer");
    scenario.workload.dataset = crate::config::dataset::DatasetName::Sharegpt.into();
    assert_eq!(judged(&scenario, 2048, 256, false), None, "texts of a file");
}

#[test]
fn recordings_of_another_length_by_the_answers_are_doubted() {
    let plan = include_str!("../../../tests/fixtures/run-format-1/plan.json");
    let plan: crate::plan::Plan = serde_json::from_str(plan).unwrap();
    let judged = |sent: Option<f64>, reported: Option<f64>| {
        let answer = Request {
            audio: Some(AudioInput {
                seconds: sent,
                reported_seconds: reported,
            }),
            ..answered_request(&[])
        };
        let reasons = response_reasons(&Responses {
            requests: &vec![answer; 3],
            scenario: &plan.cells[0].scenario,
            names: &["m"],
            listed: &[],
            protocol: Protocol::Transcription,
            is_simulated: false,
            bounds: &ValidityBounds::default(),
        });
        let mut reasons = reasons.into_iter();
        let found = reasons.find(|reason| reason.code == ReasonCode::AudioSecondsDisagree);
        found.map(|reason| (reason.weight, reason.measured))
    };
    for (sent, reported) in [
        (Some(60.0), None),
        (None, Some(30.0)),
        (Some(0.2), Some(1.0)),
        (Some(59.1), Some(60.0)),
        (Some(600.0), Some(610.0)),
        (Some(600.0), Some(590.0)),
    ] {
        assert_eq!(judged(sent, reported), None, "{sent:?} {reported:?}");
    }
    let says = |word, reported| {
        format!(
            "by the server's answers, 3 of 3 recordings are {word} than the sent recordings: the server reported {reported} s in total, but 180.0 s were sent"
        )
    };
    assert_eq!(
        judged(Some(60.0), Some(30.0)),
        Some((Verdict::Invalid, says("shorter", "90.0")))
    );
    assert_eq!(
        judged(Some(60.0), Some(99.0)),
        Some((Verdict::Suspect, says("longer", "297.0")))
    );
}

/// Returns the codes for prompts of 100 tokens, with the cached tokens that each answer reports and the hits
/// that the engine counts.
fn codes_of_caches(cached: u32, hits: f64) -> Vec<ReasonCode> {
    let reasons = cache_reasons_with(100, cached, hits);
    reasons.iter().map(|reason| reason.code).collect()
}

/// Returns the reasons, with the length of each prompt that the answers report.
fn cache_reasons_with(reported: u32, cached: u32, hits: f64) -> Vec<Reason> {
    let plan = include_str!("../../../tests/fixtures/run-format-1/plan.json");
    let plan: crate::plan::Plan = serde_json::from_str(plan).unwrap();
    let usage = serde_json::json!({"prompt": reported, "completion": 2, "cached": cached});
    let request = Request {
        prompt_tokens: 100,
        usage: serde_json::from_value(usage).unwrap(),
        ..answered_request(&[])
    };
    let proof = serde_json::json!({
        "is_fresh_start": true, "possible": true, "status": 200, "success": true, "answer": null,
        "hits_in_window": hits, "queries_in_window": 800.0,
    });
    let proof = serde_json::from_value(proof).unwrap();
    let met = CacheEvidence {
        protocol: Protocol::Completions,
        scenario: &plan.cells[0].scenario,
        bounds: &ValidityBounds::default(),
        shared_share: Some(0.0),
        reset_proof: Some(&proof),
        requests: &vec![request; 8],
    };
    cache_reasons(&met, true)
}

#[test]
fn cached_tokens_are_a_share_of_all_that_the_server_counts() {
    let says = |reported| cache_reasons_with(reported, 105, 0.0).remove(0).measured;
    // The server counts the tokens of its chat template too.
    assert_eq!(
        says(110),
        "according to the server's answers, 840 of 880 prompt tokens were cached (95.5 %)"
    );
    // A server that counts less than was sent says nothing of the share.
    assert_eq!(
        says(1),
        "according to the server's answers, 840 of 800 prompt tokens were cached (105.0 %)"
    );
}

#[test]
fn more_cached_tokens_than_a_prompt_has_are_doubted() {
    let plan = include_str!("../../../tests/fixtures/run-format-1/plan.json");
    let plan: crate::plan::Plan = serde_json::from_str(plan).unwrap();
    let judged = |cached: u32| {
        let mut answers = streamed_requests(20, 100, &[90, 180, 270]);
        for answer in &mut answers {
            let usage = serde_json::json!({"prompt": 1, "completion": 3, "cached": cached});
            answer.usage = serde_json::from_value(usage).unwrap();
        }
        let reasons = response_reasons(&Responses {
            requests: &answers,
            scenario: &plan.cells[0].scenario,
            names: &["m"],
            listed: &[],
            protocol: Protocol::Completions,
            is_simulated: false,
            bounds: &ValidityBounds::default(),
        });
        let mut reasons = reasons.into_iter();
        let found = reasons.find(|reason| reason.code == ReasonCode::PromptTokensDisagree);
        found.map(|reason| (reason.weight, reason.measured))
    };
    assert_eq!(judged(1), None);
    let measured =
        "20 of 20 answers report more cached tokens than their prompts have, for example 7 cached tokens for a prompt of 1 tokens"
            .to_owned();
    assert_eq!(judged(7), Some((Verdict::Suspect, measured)));
}

#[test]
fn of_counters_and_answers_that_contradict_each_other_the_worse_counts() {
    assert_eq!(codes_of_caches(90, 0.0), [ReasonCode::CacheWarm]);
    assert_eq!(codes_of_caches(0, 720.0), [ReasonCode::CacheWarm]);
    assert_eq!(codes_of_caches(0, 0.0), []);
}

/// Returns answers with events at these times after sending (ms), one request every `apart_ms`.
fn streamed_requests(count: u64, apart_ms: u64, at_ms: &[u64]) -> Vec<Request> {
    (0..count)
        .map(|nth| {
            let sent = nth * apart_ms * 1_000_000;
            let chunks: Vec<_> = at_ms
                .iter()
                .map(|at| serde_json::json!([sent + at * 1_000_000, "a", null, 1]))
                .collect();
            serde_json::from_value(serde_json::json!({
                "index": nth, "prompt_tokens": 1, "asked_tokens": at_ms.len(), "due_ns": sent, "sent_ns": sent,
                "end_ns": sent + 1_000_000_000, "chunks": chunks,
            }))
            .unwrap()
        })
        .collect()
}

/// Returns the weight of the reason about how answers begin.
fn start_verdict(requests: &[Request]) -> Option<Verdict> {
    start_verdict_with(requests, None)
}

/// Returns the same weight with this SLO.
fn start_verdict_with(requests: &[Request], slo: Option<Slo>) -> Option<Verdict> {
    let plan = include_str!("../../../tests/fixtures/run-format-1/plan.json");
    let mut plan: crate::plan::Plan = serde_json::from_str(plan).unwrap();
    let scenario = &mut plan.cells[0].scenario;
    scenario.slo = slo;
    let reasons = responses::response_reasons(&Responses {
        requests,
        scenario,
        names: &["m"],
        listed: &[],
        protocol: Protocol::Completions,
        is_simulated: false,
        bounds: &ValidityBounds::default(),
    });
    let mut reasons = reasons.into_iter();
    let matched_reason = reasons.find(|reason| reason.code == ReasonCode::FirstEventAhead);
    matched_reason.map(|reason| reason.weight)
}

fn changed(mut requests: Vec<Request>, change: fn(&mut Request)) -> Vec<Request> {
    requests.iter_mut().for_each(change);
    requests
}

#[test]
fn an_event_ahead_of_the_model_is_found_and_a_queue_of_prompts_is_none() {
    let (usual, ahead) = ([120, 130, 140, 150], [35, 130, 140, 150]);
    assert_eq!(start_verdict(&streamed_requests(20, 500, &usual)), None);
    assert_eq!(
        start_verdict(&streamed_requests(20, 500, &ahead)),
        Some(Verdict::Valid),
        "a note"
    );
    let common = |requests| changed(requests, |request| request.common_events = 1);
    assert_eq!(
        start_verdict(&common(streamed_requests(20, 500, &ahead))),
        Some(Verdict::Suspect)
    );
    assert_eq!(start_verdict(&common(streamed_requests(20, 500, &usual))), None);
    assert_eq!(
        start_verdict(&common(streamed_requests(5, 500, &ahead))),
        None,
        "few"
    );
    // Three canned tokens at the pace of the model, followed by the time to read a prompt.
    let canned = |requests| changed(requests, |request| request.common_events = 3);
    let late = [10, 20, 30, 140, 150, 160, 170];
    assert_eq!(
        start_verdict(&canned(streamed_requests(20, 500, &late))),
        Some(Verdict::Suspect)
    );
    assert_eq!(
        start_verdict(&canned(streamed_requests(
            20,
            500,
            &[110, 120, 130, 140, 150, 160, 170]
        ))),
        None
    );
    assert_eq!(
        start_verdict(&canned(streamed_requests(20, 500, &[35, 130, 140, 150, 160]))),
        Some(Verdict::Suspect)
    );
    // Waits at varying places, as in a busy engine.
    let busy: Vec<Request> = (0..20)
        .flat_map(|nth| {
            let wait_behind = 1 + nth as usize % 3;
            let at: Vec<u64> = (0..8)
                .map(|event| 10 * event + 10 + if event as usize >= wait_behind { 100 } else { 0 })
                .collect();
            streamed_requests(1, 0, &at)
        })
        .collect();
    assert_eq!(start_verdict(&canned(busy)), None);
    // Requests come at even intervals, so each late event follows the first event of another answer. Reading
    // that prompt does not take as long.
    assert_eq!(
        start_verdict(&common(streamed_requests(20, 83, &ahead))),
        Some(Verdict::Suspect)
    );
    // An engine that reads all prompts before it continues with any.
    let queued: Vec<Request> = (0..20)
        .flat_map(|nth| streamed_requests(1, 0, &[20 * (nth + 1), 410, 420, 430]))
        .collect();
    assert_eq!(start_verdict(&common(queued)), None);
    // White space that keeps the connection alive until the model answers.
    let awake: Vec<u64> = (1..12).map(|nth| 10 * nth).chain([120, 130, 140]).collect();
    let blank = changed(streamed_requests(20, 500, &awake), |request| {
        request.blank_events = 11
    });
    assert_eq!(start_verdict(&blank), Some(Verdict::Suspect));
    let newline = changed(streamed_requests(20, 500, &usual), |request| {
        request.blank_events = 1
    });
    assert_eq!(start_verdict(&newline), None, "of the model's own");
}

/// Two or more words before the prompt was read, and the behaviour of real engines.
#[test]
fn several_events_ahead_of_the_model_are_found_whatever_their_words() {
    let rest = |begin: &[u64], from: u64| -> Vec<u64> {
        let rest = (0..20).map(|nth| from + 10 * nth);
        begin.iter().copied().chain(rest).collect()
    };
    let verdict_for =
        |begin: &[u64], from: u64| start_verdict(&streamed_requests(20, 500, &rest(begin, from)));
    assert_eq!(verdict_for(&[3, 3, 3], 203), Some(Verdict::Suspect), "at once");
    assert_eq!(
        verdict_for(&[3, 13, 23], 223),
        Some(Verdict::Suspect),
        "at the usual pace"
    );
    assert_eq!(verdict_for(&[3, 4], 100), Some(Verdict::Suspect), "two");
    assert_eq!(
        verdict_for(&[3], 203),
        Some(Verdict::Valid),
        "one, as of an engine that hands on"
    );
    assert_eq!(verdict_for(&[150, 160, 170], 230), None, "not longer than TTFT");
    assert_eq!(verdict_for(&[3, 13, 23], 63), None, "not far longer than usual");
    assert_eq!(
        verdict_for(&[3, 28, 53, 78], 153),
        None,
        "slow from the beginning"
    );
    // Eight tokens at a time, from a scheduler with several steps.
    let at_a_time: Vec<u64> = (0..40).map(|nth| 30 + 120 * ((nth + 5) / 8)).collect();
    assert_eq!(start_verdict(&streamed_requests(20, 500, &at_a_time)), None);
    // An engine reads a prompt while others answer. In closed loops with answers of one length, this happens
    // at the same place of each answer.
    let delayed: Vec<Request> = (0..20)
        .flat_map(|nth| {
            let at = 140 * nth;
            let moments = rest(&[at + 120, at + 130], at + 262);
            streamed_requests(1, 0, &moments)
        })
        .map(|mut request| {
            let first = request.chunks.first().map_or(0, |chunk| chunk.at_ns);
            request.sent_ns = Some(first - 110_000_000);
            request
        })
        .collect();
    assert_eq!(start_verdict(&delayed), None);
    // Waits after two, three or four words.
    let busy: Vec<Request> = (0..21)
        .flat_map(|nth| streamed_requests(1, 0, &rest(&[3, 4, 5, 6][..2 + nth % 3], 203)))
        .collect();
    assert_eq!(start_verdict(&busy), None);
}

#[test]
fn answers_in_flushes_are_found_and_stalls_and_pairs_are_not() {
    let flushed = |count: u64, at: &dyn Fn(u64) -> u64| {
        let at: Vec<u64> = (0..60).map(at).collect();
        let answers = streamed_requests(count, 500, &at);
        chunking::flushed_responses(answers.iter().map(|request| &request.chunks))
    };
    let every = |flush: u64, token: u64| move |nth: u64| (100 + token * nth).div_ceil(flush) * flush;
    assert_eq!(flushed(20, &every(20, 11)), Some((20, 20)));
    assert_eq!(flushed(20, &every(40, 22)), Some((20, 20)));
    assert_eq!(flushed(20, &every(14, 10)), Some((20, 20)));
    assert_eq!(flushed(20, &every(10, 11)), None, "each by itself");
    assert_eq!(flushed(7, &every(20, 11)), None, "few answers");
    assert_eq!(flushed(20, &|nth| 100 + 10 * nth), None);
    assert_eq!(
        flushed(20, &|nth| 100 + 10 * nth.clamp(1, 58)),
        None,
        "pairs at both ends"
    );
    assert_eq!(
        flushed(20, &|nth| 100 + 10 * (nth - nth % 5 / 4)),
        None,
        "one of four"
    );
    let stalled = |nth| 100 + 10 * if (10..40).contains(&nth) { 40 } else { nth };
    assert_eq!(flushed(20, &stalled), None, "one long stall");
}

/// An engine slows down at the end of some answers. A proxy holds most of them back.
#[test]
fn beginnings_that_were_held_back_are_found_where_most_answers_have_one() {
    let plan = include_str!("../../../tests/fixtures/run-format-1/plan.json");
    let plan: crate::plan::Plan = serde_json::from_str(plan).unwrap();
    let live: Vec<u64> = (0..60).map(|token| 100 + 10 * token).collect();
    let mut late = live.clone();
    (0..24).for_each(|token| late[token] = live[24] - 24 + token as u64);
    let reason_for = |held_back: u64, others: u64| {
        let mut all = streamed_requests(held_back, 500, &late);
        all.extend(streamed_requests(others, 500, &live));
        untimed::unknown_token_times_reason(&all, None, &plan.cells[0].scenario)
    };
    let matched_reason = reason_for(12, 8).expect("most are held back");
    assert_eq!(
        (matched_reason.code, &matched_reason.only[..]),
        (
            ReasonCode::ChunkedTokens,
            &[MetricFamily::Itl, MetricFamily::Tpot][..]
        )
    );
    assert!(
        matched_reason.measured.contains("12 of 20 answers"),
        "{}",
        matched_reason.measured
    );
    assert!(reason_for(10, 10).is_none() && reason_for(7, 0).is_none() && reason_for(0, 20).is_none());
}

/// Returns twenty answers, each with prompt tokens, output tokens, TTFT in ms and gap in ms.
fn twenty_responses(answer: impl Fn(u64) -> (u64, u64, f64, f64)) -> Vec<Request> {
    let response_at = |nth: u64| {
        let (prompt, tokens, ttft_ms, gap_ms) = answer(nth);
        let sent = nth * 500_000_000;
        let at = |token: u64| sent + ((ttft_ms + gap_ms * token as f64) * 1e6) as u64;
        let chunks: Vec<_> = (0..tokens)
            .map(|token| serde_json::json!([at(token), "a", null, 1]))
            .collect();
        serde_json::from_value(serde_json::json!({
            "index": nth, "prompt_tokens": prompt, "asked_tokens": tokens, "due_ns": sent, "sent_ns": sent,
            "end_ns": at(tokens), "chunks": chunks, "counted_tokens": tokens,
        }))
        .unwrap()
    };
    (0..20).map(response_at).collect()
}

/// Returns numbers between 0 and 1 that are evenly spread and look random.
fn pseudo_random(nth: u64, seed: u64) -> f64 {
    ((nth + 1) * seed % 23) as f64 / 22.0
}

#[test]
fn answers_that_were_held_back_to_their_ends_are_found_by_their_lengths() {
    let plan = include_str!("../../../tests/fixtures/run-format-1/plan.json");
    let plan: crate::plan::Plan = serde_json::from_str(plan).unwrap();
    let measured_for = |answer: &dyn Fn(u64) -> (u64, u64, f64, f64)| {
        let matched_reason =
            untimed::unknown_token_times_reason(&twenty_responses(answer), None, &plan.cells[0].scenario);
        matched_reason.map(|reason| reason.measured)
    };
    let length = |nth| 10 + (100.0 * pseudo_random(nth, 7)) as u64;
    let prompt = |nth| 100 + (900.0 * pseudo_random(nth, 5)) as u64;
    for replay_ms in [0.2, 2.0] {
        let held_back = measured_for(&|nth| {
            let prefill = 20.0 + 0.1 * prompt(nth) as f64;
            let made = length(nth) as f64 * (12.0 + pseudo_random(nth, 9));
            (prompt(nth), length(nth), prefill + made, replay_ms)
        });
        let measured = held_back.expect("it grows with the length");
        assert!(measured.contains("20 of 20 answers") && measured.contains(" ms with each output token"));
    }
    let alike = measured_for(&|nth| (prompt(nth), 64, 800.0 + 9.0 * pseudo_random(nth, 9), 0.2));
    assert_eq!(alike, None, "lengths that are alike tell nothing");
    // Engines that stream, with answers that are short compared with the wait for the first event.
    let long_prompts =
        measured_for(&|nth| (prompt(nth), length(nth), 5000.0 + 9.0 * prompt(nth) as f64, 10.0));
    assert_eq!(long_prompts, None);
    let grows_alike = measured_for(&|nth| {
        let tokens = prompt(nth) / 10 + nth % 3;
        (prompt(nth), tokens, 9.0 * prompt(nth) as f64, 2.0)
    });
    assert_eq!(grows_alike, None, "long prompts have long answers");
    let quadratic = measured_for(&|nth| {
        let tokens = 5 + prompt(nth).pow(2) / 10_000 + nth % 3;
        (
            prompt(nth),
            tokens,
            0.01 * (prompt(nth) as f64).powi(2) + 200.0,
            0.5,
        )
    });
    assert_eq!(quadratic, None, "attention");
    let sorted_queue = measured_for(&|nth| (100, 5 + 2 * nth + nth % 2, 900.0 * (nth + 1) as f64, 2.0));
    assert_eq!(
        sorted_queue, None,
        "a queue that grows while answers become longer"
    );
    let sorted_burst = measured_for(&|nth| {
        let wait_ms = 900 + 30 * nth * nth * nth;
        (100, 5 + nth * nth / 4, wait_ms as f64, 2.0)
    });
    assert_eq!(sorted_burst, None, "a burst whose later answers are longer");
}

#[test]
fn answers_that_come_faster_than_the_engine_makes_tokens_were_held_back() {
    let plan = include_str!("../../../tests/fixtures/run-format-1/plan.json");
    let plan: crate::plan::Plan = serde_json::from_str(plan).unwrap();
    let scenario = plan.cells[0].scenario.clone();
    let mut search = scenario.clone();
    search.search = Some(serde_json::from_value(serde_json::json!({"by": "rate"})).unwrap());
    let reason_for = |tokens: u64, gap_ms: f64, itl_s: f64, scenario| {
        let engine = EngineWindow {
            means: [("itl_s".to_owned(), itl_s)].into(),
            ..EngineWindow::default()
        };
        let requests = twenty_responses(|_| (100, tokens, 650.0, gap_ms));
        untimed::unknown_token_times_reason(&requests, Some(&engine), scenario).map(|reason| reason.measured)
    };
    let matched_reason = reason_for(50, 0.5, 0.012, &scenario).expect("12 ms are not 0.5");
    assert!(matched_reason.starts_with(
        "by the engine's metrics, tokens are 12.00 ms apart, but received events are only 0.50 ms"
    ));
    assert!(reason_for(50, 0.5, 0.012, &search).is_some(), "in a search too");
    assert!(reason_for(50, 5.0, 0.012, &scenario).is_some());
    assert_eq!(
        reason_for(50, 2.0, 0.012, &search),
        None,
        "points beyond what it can serve"
    );
    assert_eq!(reason_for(50, 7.0, 0.012, &scenario), None, "not twice");
    assert_eq!(
        reason_for(50, 48.0, 0.012, &scenario),
        None,
        "four tokens an event"
    );
    assert_eq!(reason_for(4, 0.5, 0.003, &scenario), None, "7.5 ms of an answer");
    assert_eq!(reason_for(1, 0.0, 0.012, &scenario), None, "one token");
    // The mean over answers of an engine whose short answers have slow tokens.
    let mixed = twenty_responses(|nth| {
        if nth % 5 == 0 {
            (100, 100, 50.0, 10.0)
        } else {
            (100, 3, 50.0, 60.0)
        }
    });
    let engine = EngineWindow {
        means: [("itl_s".to_owned(), 0.05)].into(),
        ..EngineWindow::default()
    };
    assert!(untimed::unknown_token_times_reason(&mixed, Some(&engine), &scenario).is_none());
}

#[test]
fn names_of_tools_and_long_beginnings_ahead_of_the_model_are_found() {
    // The name of a tool comes at once, its arguments after the prompt was read. A parser holds a few tokens
    // back.
    let calling = |requests| {
        changed(requests, |request| {
            let chunks: Vec<_> = request
                .chunks
                .iter()
                .map(|chunk| serde_json::json!([chunk.at_ns, "t", null, 3]))
                .collect();
            request.chunks = serde_json::from_value(serde_json::json!(chunks)).unwrap();
            request.common_events = 1;
        })
    };
    let behind = |wait: u64| {
        let at: Vec<u64> = [10]
            .into_iter()
            .chain((0..9).map(|nth| 10 + wait + 10 * nth))
            .collect();
        start_verdict(&calling(streamed_requests(20, 500, &at)))
    };
    assert_eq!(behind(300), Some(Verdict::Suspect));
    assert_eq!(behind(80), None, "a parser of tool calls");
    // The same twelve words at an even pace.
    let even: Vec<u64> = (1..30).map(|nth| 10 * nth).collect();
    let long = |requests| changed(requests, |request| request.common_events = 12);
    assert_eq!(
        start_verdict(&long(streamed_requests(20, 500, &even))),
        Some(Verdict::Valid),
        "a note"
    );
    let target = Slo {
        speed: None,
        ttft: Some("100ms".parse().unwrap()),
        tpot: None,
        e2e: None,
    };
    assert_eq!(
        start_verdict_with(&long(streamed_requests(20, 500, &even)), Some(target)),
        Some(Verdict::Suspect)
    );
    let eight = |requests| changed(requests, |request| request.common_events = 8);
    assert_eq!(start_verdict(&eight(streamed_requests(20, 500, &even))), None);
    let looping = |requests| {
        changed(requests, |request| {
            (request.common_events, request.is_loop) = (12, true)
        })
    };
    assert_eq!(
        start_verdict(&looping(streamed_requests(20, 500, &even))),
        None,
        "told elsewhere"
    );
}

#[test]
fn tokens_that_are_reported_of_answers_without_any_text_are_told() {
    let plan = include_str!("../../../tests/fixtures/run-format-1/plan.json");
    let plan: crate::plan::Plan = serde_json::from_str(plan).unwrap();
    let reason_for = |bytes: u32, hidden: u32| {
        let mut requests = streamed_requests(10, 500, &[100, 110, 120]);
        for request in &mut requests {
            let chunks: Vec<_> = request
                .chunks
                .iter()
                .map(|chunk| serde_json::json!([chunk.at_ns, "a", null, bytes]))
                .collect();
            request.chunks = serde_json::from_value(serde_json::json!(chunks)).unwrap();
            request.usage = serde_json::from_value(serde_json::json!({
                "prompt": 1, "completion": 32, "reasoning": hidden,
            }))
            .unwrap();
        }
        let matched_reason =
            outputs::text_count_reason(&requests, &plan.cells[0].scenario, &ValidityBounds::default());
        matched_reason.map(|reason| (reason.code, reason.measured))
    };
    let (code, measured) = reason_for(0, 0).expect("it is reported");
    assert_eq!(code, ReasonCode::TokensDisagree);
    assert_eq!(
        measured,
        "the engine reports 320 output tokens in 10 answers, but these answers have no text"
    );
    assert_eq!(reason_for(1, 0), None);
    assert_eq!(reason_for(0, 32), None, "hidden reasoning");
}

#[test]
fn tokens_made_together_are_as_many_as_the_counters_tell() {
    let together = |grown: &[(&str, f64)]| {
        let mut window = EngineWindow::default();
        window
            .grown
            .extend(grown.iter().map(|(name, value)| ((*name).to_owned(), *value)));
        chunking::tokens_per_step(&window)
    };
    assert_eq!(together(&[]), None);
    assert_eq!(
        together(&[("spec_accepted_tokens", 150.0), ("spec_drafts", 100.0)]),
        Some(2.5)
    );
    assert_eq!(together(&[("spec_accepted_tokens", 5.0)]), Some(f64::INFINITY));
    assert_eq!(together(&[("spec_accepted_tokens", 0.0)]), None);
}

/// A load on a server without a recipe: the codes of its steady state that `matrix bench` reports.
#[test]
fn a_bench_reports_a_growing_queue_and_a_falling_rate_as_a_run_does() {
    let plan = include_str!("../../../tests/fixtures/run-format-1/plan.json");
    let mut plan: crate::plan::Plan = serde_json::from_str(plan).unwrap();
    let scenario = &mut plan.cells[0].scenario;
    let mut codes = |requests: &[Request], arrival: serde_json::Value| -> Vec<ReasonCode> {
        scenario.arrival = serde_json::from_value(arrival).unwrap();
        let reasons = response_reasons(&Responses {
            requests,
            scenario,
            names: &["m"],
            listed: &[],
            protocol: Protocol::Completions,
            is_simulated: false,
            bounds: &ValidityBounds::default(),
        });
        let of_load = reasons.iter().map(|reason| reason.code);
        of_load
            .filter(|code| [ReasonCode::NeverSteady, ReasonCode::QueueGrowing].contains(code))
            .collect()
    };
    let events: Vec<u64> = (1..=10).map(|nth| 90 * nth).collect();
    // Ten requests per second, of which five are answered.
    let mut queued = streamed_requests(100, 100, &events);
    for (nth, request) in (0u64..).zip(&mut queued) {
        request.end_ns = 1_000_000_000 + nth * 200_000_000;
    }
    assert_eq!(
        codes(&queued, serde_json::json!({ "rate": 10, "concurrency": null })),
        [ReasonCode::QueueGrowing]
    );
    // One request after another. The second half takes three times as long.
    let closed: Vec<Request> = (0..120u64)
        .flat_map(|nth| {
            let pace = if nth < 60 { 1 } else { 3 };
            let begin = 1000 * if nth < 60 { nth } else { 60 + 3 * (nth - 60) };
            let at: Vec<u64> = events.iter().map(|at| begin + pace * at).collect();
            let mut answer = streamed_requests(1, 0, &at);
            answer[0].due_ns = begin * 1_000_000;
            answer[0].sent_ns = Some(begin * 1_000_000);
            answer[0].end_ns = (begin + pace * 1000) * 1_000_000;
            answer
        })
        .collect();
    assert_eq!(
        codes(&closed, serde_json::json!({ "rate": "inf", "concurrency": 1 })),
        [ReasonCode::NeverSteady]
    );
}

/// Returns the reason for a hundred answers. `answer` gives whether the text is the same for different
/// prompts, the tokens, the gap in ms and the tokens per event.
fn degenerate_finding(answer: impl Fn(u64) -> (bool, u64, f64, u64)) -> Option<(String, Verdict)> {
    let request_at = |nth: u64| {
        let (is_canned, tokens, token_ms, in_event) = answer(nth);
        let sent = nth * 500_000_000;
        let events = tokens.div_ceil(in_event);
        let at = |event: u64| sent + ((20.0 + token_ms * (event * in_event) as f64) * 1e6) as u64;
        let chunks: Vec<_> = (0..events)
            .map(|event| serde_json::json!([at(event), "a", ((event + 1) * in_event).min(tokens), 4]))
            .collect();
        serde_json::from_value(serde_json::json!({
            "index": nth, "prompt_tokens": 100, "asked_tokens": tokens, "due_ns": sent, "sent_ns": sent, "end_ns": at(events),
            "chunks": chunks, "counted_tokens": tokens, "uniform": 0.1, "is_canned": is_canned, "finish": "length",
            "usage": { "prompt": 100, "completion": tokens },
        }))
        .unwrap()
    };
    let requests: Vec<Request> = (0..100).map(request_at).collect();
    degenerate_among(&requests)
}

/// Returns the text and the weight of the reason for these answers.
fn degenerate_among(requests: &[Request]) -> Option<(String, Verdict)> {
    let plan = include_str!("../../../tests/fixtures/run-format-1/plan.json");
    let plan: crate::plan::Plan = serde_json::from_str(plan).unwrap();
    let mut scenario = plan.cells[0].scenario.clone();
    scenario.stop_at_eos = true;
    let reasons = response_reasons(&Responses {
        requests,
        scenario: &scenario,
        names: &["m"],
        listed: &[],
        protocol: Protocol::Completions,
        is_simulated: false,
        bounds: &ValidityBounds::default(),
    });
    let matched_reason = reasons
        .into_iter()
        .find(|reason| reason.code == ReasonCode::AnswersDegenerate);
    matched_reason.map(|reason| (reason.measured, reason.weight))
}

#[test]
fn a_few_answers_of_one_token_do_not_hide_echoes() {
    let answer = |nth: u64| {
        let uniform = if nth < 2 { 0.95 } else { 0.1 };
        serde_json::from_value(serde_json::json!({
            "index": nth, "prompt_tokens": 100, "asked_tokens": 40, "due_ns": 0, "sent_ns": 0, "end_ns": 1_000_000,
            "chunks": [[1000, "a", 40, 200]], "counted_tokens": 40, "uniform": uniform, "echoes_prompt": true,
            "finish": "length", "usage": { "prompt": 100, "completion": 40 },
        }))
        .unwrap()
    };
    let requests: Vec<Request> = (0..24).map(answer).collect();
    let (measured, weight) = degenerate_among(&requests).expect("all are echoes");
    assert_eq!(weight, Verdict::Invalid, "{measured}");
    assert!(measured.contains("begin with their own prompt"), "{measured}");
}

#[test]
fn answers_from_a_cache_are_found_by_their_pace_and_honest_ones_that_are_alike_are_not() {
    // One of each pair was computed, the other one came from the cache.
    let from_cache =
        degenerate_finding(|nth| (nth < 20, 40, if nth % 2 == 0 && nth < 20 { 0.5 } else { 10.0 }, 1));
    let (measured, weight) = from_cache.expect("ten of a hundred are quick");
    assert!(
        measured.contains("20 of 100") && weight == Verdict::Suspect,
        "{measured}"
    );
    // The whole answer at one moment.
    let at_once = degenerate_finding(|nth| (nth < 20, 40, if nth < 20 { 0.0 } else { 10.0 }, 1));
    assert!(at_once.is_some());
    // Together with short classes and refusals.
    let mixed = degenerate_finding(|nth| match nth {
        0..13 => (true, 40, 0.5, 1),
        13..45 => (true, 8, 10.0, 1),
        _ => (false, 40, 10.0, 1),
    });
    assert!(mixed.is_some());
    for in_event in [1, 4, 8, 16] {
        let refusals = degenerate_finding(|nth| (nth < 20, if nth < 20 { 18 } else { 120 }, 10.0, in_event));
        assert_eq!(refusals, None, "{in_event} tokens in an event");
    }
    // Boilerplate is drafted better: three tokens per event, and two in other answers.
    let drafted = degenerate_finding(|nth| match nth < 20 {
        true => (true, 24, 10.0 / 3.0, 3),
        false => (false, 120, 5.0, 2),
    });
    assert_eq!(drafted, None);
    let few = degenerate_finding(|nth| (nth < 4, 40, if nth < 4 { 0.5 } else { 10.0 }, 1));
    assert_eq!(few, None);
}
