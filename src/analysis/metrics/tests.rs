use std::time::Duration;

use proptest::prelude::*;

use super::bench_serving_fixed::fixed_figures;
use super::*;
use crate::base::units::HumanDuration;
use crate::plan::Protocol;
use crate::results::record::chunks::Chunks;
use crate::results::record::request::{
    AnswerCheck, Chunk, ChunkKind, Failure, IncorrectClass, Oddity, RequestFailureClass, UncheckedClass,
    Usage,
};

const MS: u64 = 1_000_000;

fn request(index: u32) -> Request {
    Request {
        connection: Default::default(),
        index,
        prompt_tokens: 10,
        vision_tokens: 0,
        audio: None,
        round: None,
        requested_tokens: 5,
        limit_tokens: None,
        due_ns: 0,
        sent_ns: Some(0),
        connected_ns: None,
        written_ns: None,
        first_byte_ns: None,
        chunks: Chunks::default(),
        last_line_ns: None,
        end_ns: 0,
        failure: None,
        cancelled: false,
        status: Some(200),
        usage: None,
        cached: None,
        oddities: Vec::new(),
        finish: None,
        counted_tokens: None,
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
        text: None,
    }
}

fn chunk(at_ms: f64, tokens: Option<u32>) -> Chunk {
    Chunk {
        at_ns: (at_ms * MS as f64).round() as u64,
        kind: ChunkKind::Answer,
        tokens,
        bytes: 4,
    }
}

fn change_chunk(request: &mut Request, place: usize, change: impl Fn(&mut Chunk)) {
    request.chunks.map_chunks(|nth, chunk| {
        if nth == place {
            change(chunk);
        }
    });
}

/// Returns a request that was due and sent at `start_ms`, with output `chunks_ms` after that.
fn completed_request(index: u32, start_ms: f64, chunks_ms: &[f64], last_line_ms: f64) -> Request {
    let at = |ms: f64| ((start_ms + ms) * MS as f64).round() as u64;
    Request {
        due_ns: at(0.0),
        sent_ns: Some(at(0.0)),
        chunks: chunks_ms.iter().map(|ms| chunk(start_ms + ms, None)).collect(),
        last_line_ns: Some(at(last_line_ms)),
        end_ns: at(last_line_ms),
        ..request(index)
    }
}

fn failed(mut request: Request, class: RequestFailureClass) -> Request {
    request.failure = Some(Failure {
        class,
        message: "it failed".to_owned(),
    });
    request
}

fn basis(protocol: Protocol) -> MetricInputs {
    MetricInputs {
        protocol,
        backend: "vllm".to_owned(),
        devices: 2,
        slo: None,
        duration: None,
        accept_length: None,
        energy: None,
        engine: None,
    }
}

fn slo(ttft_ms: u64, tpot_ms: u64, e2e_ms: u64) -> Slo {
    let span = |ms| Some(HumanDuration(Duration::from_millis(ms)));
    Slo {
        speed: None,
        ttft: span(ttft_ms),
        tpot: span(tpot_ms),
        e2e: span(e2e_ms),
    }
}

fn figures_of(requests: &[Request], inputs: &MetricInputs, definitions: Definitions) -> MetricValues {
    summarize(requests, inputs).remove(&definitions).unwrap()
}

fn figure_value(figures: &MetricValues, name: &str) -> Option<f64> {
    *figures
        .get(name)
        .unwrap_or_else(|| panic!("there is no figure `{name}`"))
}

/// Returns the five results of docs/bench-serving.md 14.3, with times relative to 100.0 s.
fn golden_requests() -> Vec<Request> {
    let row = |index, start, chunks: &[f64], latency, out, counted, prompt| Request {
        requested_tokens: out,
        counted_tokens: Some(counted),
        prompt_tokens: prompt,
        ..completed_request(index, start, chunks, latency)
    };
    vec![
        row(0, 0.0, &[500.0, 1000.0, 1250.0, 2000.0, 2500.0], 2500.0, 5, 5, 10),
        row(1, 250.0, &[125.0], 187.5, 1, 1, 7),
        failed(row(2, 500.0, &[], 10.0, 9, 0, 9), RequestFailureClass::Reset),
        Request {
            vision_tokens: 5,
            ..row(
                3,
                750.0,
                &[1000.0, 1000.0, 1000.0, 2500.0, 3000.0],
                4000.0,
                8,
                4,
                20,
            )
        },
        // A stream that ended normally without content: a success for bench_serving, a failure for us.
        failed(row(4, 1000.0, &[], 300.0, 16, 0, 4), RequestFailureClass::Empty),
    ]
}

fn golden_basis() -> MetricInputs {
    MetricInputs {
        duration: Some(Duration::from_millis(4500)),
        slo: Some(slo(600, 500, 3000)),
        ..basis(Protocol::Completions)
    }
}

#[test]
fn the_golden_results_give_the_golden_figures_to_the_last_digit() {
    let figures = figures_of(&golden_requests(), &golden_basis(), Definitions::Current);
    for (name, expected) in [
        ("duration_s", 4.5),
        ("completed_requests", 4.0),
        ("input_tokens", 41.0),
        ("vision_input_tokens", 5.0),
        ("output_tokens", 30.0),
        ("counted_output_tokens", 10.0),
        ("request_throughput_req_s", 0.8888888888888888),
        ("input_throughput_tok_s", 9.11111111111111),
        ("output_throughput_tok_s", 6.666666666666667),
        ("total_throughput_tok_s", 15.777777777777779),
        ("mean_concurrency_requests", 1.5527777777777778),
        ("peak_output_throughput_tok_s", 6.0),
        ("peak_concurrency_requests", 3.0),
        ("goodput_req_s", 0.6666666666666666),
        ("slo_attainment_share", 0.6),
        ("slo_attainment_ttft_share", 0.6),
        ("slo_attainment_tpot_share", 0.8),
        ("slo_attainment_e2e_share", 0.6),
        ("max_itl_ms", 1500.0),
    ] {
        assert_eq!(figure_value(&figures, name), Some(expected), "{name}");
    }
    let table = [
        (
            "ttft",
            [
                406.25,
                312.5,
                389.0593624371479,
                850.0000000000001,
                924.9999999999998,
                984.9999999999999,
            ],
        ),
        (
            "tpot",
            [
                316.1904761904762,
                428.57142857142856,
                211.4585993262628,
                485.7142857142857,
                492.85714285714283,
                498.57142857142856,
            ],
        ),
        (
            "itl",
            [
                500.0,
                500.0,
                450.6939094329986,
                974.9999999999999,
                1237.4999999999995,
                1447.4999999999998,
            ],
        ),
        (
            "e2e",
            [
                1746.875,
                1400.0,
                1594.4330644072204,
                3550.0000000000005,
                3774.9999999999995,
                3954.9999999999995,
            ],
        ),
    ];
    for (sample, expected) in table {
        for (statistic, expected) in ["mean", "median", "std", "p90", "p95", "p99"]
            .iter()
            .zip(expected)
        {
            let name = format!("{statistic}_{sample}_ms");
            assert_eq!(figure_value(&figures, &name), Some(expected), "{name}");
        }
    }
}

#[test]
fn classic_knows_fewer_figures_and_believes_the_length_it_asked_for() {
    let mut requests = golden_requests();
    for request in &mut requests {
        request.usage = Some(Usage {
            completion: Some(3),
            ..Usage::default()
        });
    }
    let figures = figures_of(&requests, &golden_basis(), Definitions::Classic);
    assert_eq!(figure_value(&figures, "output_tokens"), Some(30.0));
    assert_eq!(figure_value(&figures, "mean_ttft_ms"), Some(406.25));
    for name in [
        "p90_ttft_ms",
        "max_itl_ms",
        "peak_concurrency_requests",
        "total_throughput_tok_s",
        "goodput_req_s",
    ] {
        assert!(!figures.contains_key(name), "{name} is no figure of classic");
    }
}

#[test]
fn a_native_gap_is_split_by_tokens_under_current_and_kept_under_classic() {
    let mut native = completed_request(0, 0.0, &[], 50.0);
    native.chunks = [(10.0, 2), (20.0, 4), (30.0, 4), (40.0, 7)]
        .map(|(at, tokens)| chunk(at, Some(tokens)))
        .into_iter()
        .collect();
    let inputs = basis(Protocol::SglangNative);
    let requests = [native];

    let answers = bench_serving::successful_requests(&requests, inputs.protocol, Profile::Current);
    let third = 0.02 / 3.0;
    assert_eq!(answers[0].itl.collect(), [0.005, 0.005, third, third, third]);
    assert_eq!(
        (answers[0].ttft, answers[0].latency, answers[0].output),
        (0.01, 0.05, 7)
    );
    assert_eq!(answers[0].tpot(), Some((0.05 - 0.01) / 6.0));

    let classic = bench_serving::successful_requests(&requests, inputs.protocol, Profile::Classic);
    assert_eq!(
        (&classic[0].itl.collect()[..], classic[0].output),
        (&[0.01, 0.01, 0.01][..], 5)
    );

    let ours = figures_of(&requests, &inputs, Definitions::Matrix);
    assert_eq!(
        figure_value(&ours, "max_itl_ms").map(|ms| (ms * 1e3).round()),
        Some(6667.0)
    );
    assert_eq!(figure_value(&ours, "mean_chunk_gap_ms"), Some(10.0));
}

#[test]
fn an_error_event_is_a_success_for_bench_serving_where_it_overlooks_it() {
    let error = || {
        [failed(
            completed_request(0, 0.0, &[], 30.0),
            RequestFailureClass::ErrorEvent,
        )]
    };
    let counted = |protocol, profile| {
        bench_serving::successful_requests(&error(), protocol, profile)
            .first()
            .map(|answer| (answer.ttft, answer.output))
    };
    assert_eq!(counted(Protocol::SglangNative, Profile::Current), Some((0.0, 5)));
    assert_eq!(counted(Protocol::SglangNative, Profile::Classic), None);
    assert_eq!(counted(Protocol::Chat, Profile::Current), Some((0.0, 5)));
    assert_eq!(counted(Protocol::Completions, Profile::Current), None);
    let ours = figures_of(&error(), &basis(Protocol::Chat), Definitions::Matrix);
    assert_eq!(figure_value(&ours, "failed_error_event_requests"), Some(1.0));
    assert_eq!(figure_value(&ours, "mean_ttft_ms"), None);
}

#[test]
fn completions_gaps_are_kept_per_event() {
    let requests = [completed_request(0, 0.0, &[10.0, 20.0, 20.01, 40.0], 50.0)];
    let answers = bench_serving::successful_requests(&requests, Protocol::Completions, Profile::Current);
    assert_eq!(answers[0].itl.collect(), [0.01, 0.00001, 0.01999]);
    assert_eq!(answers[0].latency, 0.05);
}

#[test]
fn an_answer_without_any_line_fails_everywhere() {
    let mut empty = failed(request(0), RequestFailureClass::Empty);
    empty.end_ns = 10 * MS;
    let figures = figures_of(&[empty], &basis(Protocol::Completions), Definitions::Current);
    assert_eq!(figure_value(&figures, "completed_requests"), Some(0.0));
    assert_eq!(figure_value(&figures, "mean_ttft_ms"), Some(0.0));
    assert_eq!(figure_value(&figures, "mean_e2e_ms"), None);
    assert_eq!(figure_value(&figures, "peak_concurrency_requests"), None);
}

#[test]
fn the_first_token_of_reasoning_and_that_of_the_answer_have_times_of_their_own() {
    let mut thinking = completed_request(0, 0.0, &[100.0, 200.0, 500.0, 600.0], 610.0);
    change_chunk(&mut thinking, 0, |chunk| chunk.kind = ChunkKind::Reasoning);
    change_chunk(&mut thinking, 1, |chunk| chunk.kind = ChunkKind::Reasoning);
    // Reasoning without an answer.
    let mut silent = completed_request(1, 0.0, &[300.0], 310.0);
    change_chunk(&mut silent, 0, |chunk| chunk.kind = ChunkKind::Reasoning);
    let figures = &summarize(&[thinking, silent], &basis(Protocol::Chat))[&Definitions::Matrix];
    let mean = |sample| metric_value(figures, Metric::Time(Statistic::Mean, sample));
    assert_eq!(mean(LatencyKind::Ttft), Some(200.0));
    assert_eq!(mean(LatencyKind::TtftAnswer), Some(500.0));
}

#[test]
fn the_steady_state_is_among_our_figures() {
    // Requests of three and of four seconds overlap from 1 s to 3 s: two thirds of the first one's ten tokens
    // and half of the second one's, however they arrive.
    let early: Vec<f64> = (1..=10).map(|at| 1000.0 + 100.0 * f64::from(at)).collect();
    let mut first = completed_request(0, 0.0, &early, 3000.0);
    let late: Vec<f64> = (1..=10).map(|at| 100.0 * f64::from(at)).collect();
    let mut second = completed_request(1, 1000.0, &late, 4000.0);
    for request in [&mut first, &mut second] {
        request.usage = Some(Usage {
            completion: Some(10),
            ..Usage::default()
        });
    }
    let figures = &summarize(&[first, second], &basis(Protocol::Completions))[&Definitions::Matrix];
    assert_eq!(metric_value(figures, Metric::SteadyDuration), Some(2.0));
    let output = metric_value(figures, Metric::SteadyOutput).unwrap();
    assert!(
        (output - (10.0 * 2.0 / 3.0 + 10.0 / 2.0) / 2.0).abs() < 1e-9,
        "{output}"
    );
    assert_eq!(metric_value(figures, Metric::SteadyConcurrency), Some(2.0));
}

#[test]
fn chat_reads_usage_and_reasoning_but_no_tool_calls() {
    let mut request = completed_request(0, 0.0, &[10.0, 20.0, 30.0, 40.0], 50.0);
    change_chunk(&mut request, 0, |chunk| chunk.kind = ChunkKind::Reasoning);
    request.usage = Some(Usage {
        prompt: Some(55),
        completion: Some(9),
        ..Usage::default()
    });
    let mut called = completed_request(1, 0.0, &[10.0], 50.0);
    change_chunk(&mut called, 0, |chunk| chunk.kind = ChunkKind::Tool);
    let requests = [request, called];
    let answers = bench_serving::successful_requests(&requests, Protocol::Chat, Profile::Current);
    assert_eq!(
        (answers[0].ttft, &answers[0].itl.collect()[..]),
        (0.01, &[0.01, 0.01, 0.01][..])
    );
    assert_eq!(answers[0].output, 9);
    assert_eq!((answers[1].ttft, answers[1].output), (0.0, 5));
    // We count a tool call as the first token.
    let ours = figures_of(&requests, &basis(Protocol::Chat), Definitions::Matrix);
    assert_eq!(figure_value(&ours, "mean_ttft_ms"), Some(10.0));
}

#[test]
fn a_count_that_only_we_asked_for_is_none_of_bench_servings() {
    let with_usage = |is_ours| Request {
        usage: Some(Usage {
            completion: Some(4),
            is_ours,
            ..Usage::default()
        }),
        ..completed_request(0, 0.0, &[10.0, 20.0, 30.0, 40.0], 50.0)
    };
    let requests = [with_usage(false), with_usage(true)];
    let answers = bench_serving::successful_requests(&requests, Protocol::Chat, Profile::Current);
    assert_eq!([answers[0].output, answers[1].output], [4, 5], "asked for 5");
    let ours = figures_of(&requests, &basis(Protocol::Chat), Definitions::Matrix);
    assert_eq!(figure_value(&ours, "output_tokens"), Some(8.0));
}

#[test]
fn gaps_that_bench_serving_would_divide_by_counts_we_lack_have_no_value() {
    let requests = [completed_request(0, 0.0, &[10.0, 20.0], 50.0)];
    let inputs = MetricInputs {
        backend: "sglang-oai".to_owned(),
        accept_length: Some(2.5),
        ..basis(Protocol::Completions)
    };
    let figures = figures_of(&requests, &inputs, Definitions::Current);
    assert_eq!(figure_value(&figures, "mean_itl_ms"), None);
    assert_eq!(figure_value(&figures, "mean_ttft_ms"), Some(10.0));
}

#[test]
fn the_golden_results_have_the_golden_lengths() {
    let tokens =
        |request: &Request| bench_serving_view(request, Protocol::Completions, Profile::Current, true).tokens;
    let lengths: Vec<u32> = golden_requests().iter().map(tokens).collect();
    assert_eq!(lengths, [5, 1, 0, 8, 16]);
}

/// Source: docs/bench-serving.md 14.3, steady state, with times relative to 100.0 s.
#[test]
fn the_golden_results_have_the_golden_steady_states() {
    let steady =
        |ratio| steady_state(&golden_requests(), &golden_basis(), Profile::Current, true, ratio).unwrap();
    let half = steady(0.5);
    assert_eq!(
        (half.window_start, half.window_end, half.duration),
        (0.75, 2.5, 1.75)
    );
    assert_eq!((half.concurrency_threshold, half.peak_concurrency), (2, 3));
    assert_eq!((half.completed, half.total_input), (2, 24));
    for (value, expected) in [
        (half.input_throughput, 13.714285714285714),
        (half.total_output, 24.8),
        (half.output_throughput, 14.171428571428573),
        (half.total_output_retokenized.unwrap(), 6.4),
        (half.output_throughput_retokenized.unwrap(), 3.6571428571428575),
        (half.average_concurrency, 2.17142857142857),
        (half.peak_output_throughput, 22.8),
    ] {
        assert!((value - expected).abs() < 1e-12, "{value} for {expected}");
    }
    for ratio in [0.8, 1.0] {
        let most = steady(ratio);
        assert_eq!((most.window_start, most.window_end), (1.0, 1.3));
        assert_eq!((most.concurrency_threshold, most.completed), (3, 1));
        assert_eq!((most.total_input, most.total_output), (4, 18.0));
        assert_eq!(most.total_output_retokenized, Some(2.0));
        assert!((most.average_concurrency - 3.0).abs() < 1e-12);
        assert_eq!(most.peak_output_throughput, 18.0);
    }
}

/// Source: docs/bench-serving.md 14.2, the rows of a usage-only event and of `: ping`.
#[test]
fn what_bench_serving_cannot_read_fails_in_its_columns_alone() {
    let with = |oddity| {
        let mut request = completed_request(0, 0.0, &[10.0, 20.0], 50.0);
        request.oddities = vec![oddity];
        [request]
    };
    let is_success = |oddity, protocol, profile| {
        !bench_serving::successful_requests(&with(oddity), protocol, profile).is_empty()
    };
    for profile in [Profile::Classic, Profile::Current] {
        assert!(!is_success(Oddity::NoChoice, Protocol::Completions, profile));
        assert!(is_success(Oddity::NoChoice, Protocol::Chat, profile));
        for protocol in [Protocol::Completions, Protocol::Chat, Protocol::SglangNative] {
            assert!(!is_success(Oddity::Field, protocol, profile));
            assert!(!is_success(Oddity::Unspaced, protocol, profile));
        }
        assert!(is_success(Oddity::Unspaced, Protocol::Trt, profile));
    }
    let inputs = basis(Protocol::Completions);
    for oddity in [Oddity::NoChoice, Oddity::Field, Oddity::Unspaced] {
        let requests = with(oddity);
        for figures in [
            figures_of(&requests, &inputs, Definitions::Matrix),
            fixed_figures(&requests, &inputs, Profile::Current),
        ] {
            assert_eq!(
                figure_value(&figures, "completed_requests"),
                Some(1.0),
                "{oddity:?}"
            );
        }
    }
}

/// Source: docs/bench-serving.md 14.2, the row of an answer that does not stream.
#[test]
fn an_answer_in_one_piece_has_its_latency_for_its_ttft_and_no_gap() {
    let mut whole = completed_request(0, 0.0, &[40.0], 40.0);
    change_chunk(&mut whole, 0, |chunk| chunk.tokens = Some(5));
    let requests = [whole];
    for protocol in [Protocol::SglangNative, Protocol::Completions, Protocol::Chat] {
        let answers = bench_serving::successful_requests(&requests, protocol, Profile::Current);
        assert_eq!(
            (answers[0].ttft, answers[0].latency),
            (0.04, 0.04),
            "{protocol:?}"
        );
        assert!(answers[0].itl.collect().is_empty(), "{protocol:?}");
        assert_eq!(answers[0].tpot(), Some(0.0), "{protocol:?}");
    }
}

#[test]
fn an_answer_whose_tokens_have_no_text_has_no_ttft_and_bench_serving_counts_0() {
    let mut silent = completed_request(1, 0.0, &[], 50.0);
    silent.usage = Some(Usage {
        completion: Some(1),
        ..Usage::default()
    });
    let requests = [completed_request(0, 0.0, &[10.0], 50.0), silent];
    let inputs = basis(Protocol::Completions);
    for (figures, ttft) in [
        (figures_of(&requests, &inputs, Definitions::Current), 5.0),
        (figures_of(&requests, &inputs, Definitions::Matrix), 10.0),
        (fixed_figures(&requests, &inputs, Profile::Current), 10.0),
    ] {
        assert_eq!(figure_value(&figures, "completed_requests"), Some(2.0));
        assert_eq!(figure_value(&figures, "mean_ttft_ms"), Some(ttft));
    }
}

#[test]
fn what_bench_serving_does_before_it_stops_its_clock_is_not_in_our_duration() {
    let requests = [completed_request(0, 0.0, &[10.0], 500.0)];
    let inputs = MetricInputs {
        duration: Some(Duration::from_secs(2)),
        ..basis(Protocol::Completions)
    };
    for (definitions, duration) in [(Definitions::Current, 2.0), (Definitions::Matrix, 0.5)] {
        let figures = figures_of(&requests, &inputs, definitions);
        assert_eq!(figure_value(&figures, "duration_s"), Some(duration));
        assert_eq!(
            figure_value(&figures, "request_throughput_req_s"),
            Some(1.0 / duration)
        );
    }
}

/// Source: docs/bench-serving.md 2.3: only an event without a choice fails there.
#[test]
fn why_an_answer_ended_is_nothing_to_bench_serving() {
    let mut request = completed_request(0, 0.0, &[10.0, 20.0], 30.0);
    request.failure = Some(Failure {
        class: RequestFailureClass::ErrorEvent,
        message: String::new(),
    });
    for (finish, completed) in [(Some("timeout"), 1.0), (None, 0.0)] {
        request.finish = finish.map(str::to_owned);
        let figures = figures_of(
            std::slice::from_ref(&request),
            &basis(Protocol::Completions),
            Definitions::Current,
        );
        assert_eq!(
            figure_value(&figures, "completed_requests").unwrap_or(0.0),
            completed
        );
    }
}

/// Source: docs/bench-serving.md 5.4 and T29.
#[test]
fn prompts_of_conversations_count_for_us_and_are_0_for_bench_serving() {
    let mut requests = [
        completed_request(0, 0.0, &[10.0], 500.0),
        completed_request(1, 500.0, &[10.0], 500.0),
    ];
    for (request, round) in requests.iter_mut().zip(0..) {
        request.round = Some(round);
        request.prompt_tokens = 10 + 20 * round;
        request.vision_tokens = 4 * (1 - round);
        request.counted_tokens = Some(5);
    }
    let inputs = basis(Protocol::Chat);
    let copied = figures_of(&requests, &inputs, Definitions::Current);
    for (figures, input, vision) in [
        (&copied, 0.0, 0.0),
        (&figures_of(&requests, &inputs, Definitions::Matrix), 40.0, 4.0),
        (&fixed_figures(&requests, &inputs, Profile::Current), 40.0, 4.0),
    ] {
        assert_eq!(figure_value(figures, "input_tokens"), Some(input));
        assert_eq!(figure_value(figures, "vision_input_tokens"), Some(vision));
        assert_eq!(figure_value(figures, "input_throughput_tok_s"), Some(input));
        assert_eq!(
            figure_value(figures, "total_throughput_tok_s"),
            Some(input + 10.0)
        );
    }
}

/// Returns the example of docs/bench-serving.md 7.2: gaps 0.2 and 0.4 with chunks of 2 and 3 tokens.
fn speculative_request() -> (Request, MetricInputs) {
    let mut request = completed_request(0, 0.0, &[100.0, 300.0, 700.0], 750.0);
    request.counted_chunks = Some(vec![7, 2, 3].into());
    let inputs = MetricInputs {
        backend: "sglang-oai-chat".to_owned(),
        accept_length: Some(2.5),
        ..basis(Protocol::Chat)
    };
    (request, inputs)
}

#[test]
fn gaps_of_a_speculating_server_are_divided_by_the_tokens_of_their_texts() {
    let (request, inputs) = speculative_request();
    let requests = [request];
    let figures = figures_of(&requests, &inputs, Definitions::Current);
    for (name, expected) in [
        ("mean_itl_ms", 120.0),
        ("median_itl_ms", 133.33333333333334),
        ("max_itl_ms", 133.33333333333334),
        ("peak_output_throughput_tok_s", 3.0),
    ] {
        assert_eq!(figure_value(&figures, name), Some(expected), "{name}");
    }
    let fixed = fixed_figures(&requests, &inputs, Profile::Current);
    assert_eq!(figure_value(&fixed, "mean_itl_ms"), Some(120.0));
    // Not divided: another profile, another backend, and a server that accepts nothing.
    let is_per_event =
        |figures: &MetricValues| (figure_value(figures, "mean_itl_ms").unwrap() - 300.0).abs() < 1e-9;
    let classic = figures_of(&requests, &inputs, Definitions::Classic);
    assert!(is_per_event(&classic));
    for other in [
        MetricInputs {
            backend: "sglang".to_owned(),
            ..inputs.clone()
        },
        MetricInputs {
            accept_length: Some(0.0),
            ..inputs.clone()
        },
        MetricInputs {
            accept_length: None,
            ..inputs
        },
    ] {
        let figures = figures_of(&requests, &other, Definitions::Current);
        assert!(is_per_event(&figures));
    }
}

#[test]
fn a_text_without_a_token_breaks_the_division_unless_that_is_mended() {
    let (mut request, inputs) = speculative_request();
    request.counted_chunks = Some(vec![7, 0, 3].into());
    let requests = [request];
    let figures = figures_of(&requests, &inputs, Definitions::Current);
    assert_eq!(figure_value(&figures, "mean_itl_ms"), None);
    let fixed = fixed_figures(&requests, &inputs, Profile::Current);
    let mean = figure_value(&fixed, "mean_itl_ms").unwrap();
    assert!((mean - 200.0).abs() < 1e-9, "{mean}");
}

#[test]
fn nothing_measured_has_no_figures_but_counts() {
    let figures = figures_of(&[], &basis(Protocol::Chat), Definitions::Matrix);
    let mut names: Vec<&str> = Vec::new();
    for (name, value) in &figures {
        match value {
            Some(0.0) => names.push(name),
            Some(other) => panic!("{name} is {other}"),
            None => {}
        }
    }
    assert!(
        names
            .iter()
            .all(|name| name.ends_with("_requests") || name.ends_with("_tokens"))
    );
    assert_eq!(figure_value(&figures, "error_share"), None);
    assert_eq!(figure_value(&figures, "p99_ttft_ms"), None);
}

#[test]
fn latencies_are_told_from_sent_connected_and_due() {
    let mut late = completed_request(0, 100.0, &[20.0, 30.0, 40.0], 45.0);
    late.due_ns = 60 * MS;
    late.connected_ns = Some(105 * MS);
    late.counted_tokens = Some(3);
    let figures = figures_of(&[late], &basis(Protocol::Completions), Definitions::Matrix);
    for (name, expected) in [
        ("mean_ttft_ms", 20.0),
        ("mean_ttft_connected_ms", 15.0),
        ("mean_ttft_due_ms", 60.0),
        ("mean_e2e_ms", 40.0),
        ("mean_e2e_line_ms", 45.0),
        ("mean_e2e_due_ms", 80.0),
        ("mean_tpot_ms", 10.0),
        ("mean_lag_ms", 40.0),
        ("max_lag_ms", 40.0),
        ("p50_ttft_ms", 20.0),
        ("duration_s", 0.085),
        ("output_throughput_per_user_tok_s", 75.0),
        ("short_requests", 1.0),
        ("counted_output_tokens", 3.0),
        ("asked_output_tokens", 5.0),
    ] {
        let value = figure_value(&figures, name).unwrap();
        assert!((value - expected).abs() < 1e-9, "{name}: {value} for {expected}");
    }
    assert_eq!(figure_value(&figures, "reported_output_tokens"), None);
}

#[test]
fn merged_chunks_show_in_the_gap_and_not_per_token() {
    let mut merged = completed_request(0, 0.0, &[10.0, 30.0, 50.0], 50.0);
    merged.usage = Some(Usage {
        completion: Some(6),
        ..Usage::default()
    });
    let figures = figures_of(&[merged], &basis(Protocol::Completions), Definitions::Matrix);
    assert_eq!(figure_value(&figures, "mean_chunk_tokens"), Some(2.0));
    assert_eq!(figure_value(&figures, "mean_chunk_gap_ms"), Some(20.0));
    assert_eq!(figure_value(&figures, "mean_itl_ms"), Some(10.0));
}

#[test]
fn an_answer_in_one_piece_has_no_time_per_token() {
    let mut whole = completed_request(0, 0.0, &[40.0], 40.0);
    whole.counted_tokens = Some(5);
    let figures = figures_of(&[whole], &basis(Protocol::Completions), Definitions::Matrix);
    assert_eq!(figure_value(&figures, "mean_tpot_ms"), None);
    assert_eq!(figure_value(&figures, "mean_ttft_ms"), Some(40.0));
}

#[test]
fn rates_are_given_per_device_and_unknown_tokens_give_none() {
    let mut counted = completed_request(0, 0.0, &[500.0, 1000.0], 2000.0);
    counted.counted_tokens = Some(4);
    let figures = figures_of(
        std::slice::from_ref(&counted),
        &basis(Protocol::Completions),
        Definitions::Matrix,
    );
    assert_eq!(figure_value(&figures, "output_throughput_tok_s"), Some(2.0));
    assert_eq!(
        figure_value(&figures, "output_throughput_per_gpu_tok_s"),
        Some(1.0)
    );
    assert_eq!(figure_value(&figures, "total_throughput_tok_s"), Some(7.0));
    let without = MetricInputs {
        devices: 0,
        ..basis(Protocol::Completions)
    };
    let figures = figures_of(
        &[counted, completed_request(1, 0.0, &[1.0], 1.0)],
        &without,
        Definitions::Matrix,
    );
    assert_eq!(figure_value(&figures, "output_throughput_tok_s"), None);
    assert_eq!(figure_value(&figures, "request_throughput_req_s"), Some(1.0));
    assert_eq!(figure_value(&figures, "request_throughput_per_gpu_req_s"), None);
}

#[test]
fn peaks_are_true_overlap_and_true_tokens() {
    let counted = |mut request: Request, tokens| {
        request.counted_tokens = Some(tokens);
        request
    };
    let requests = [
        counted(completed_request(0, 0.0, &[900.0], 1000.0), 4),
        // Begins exactly when the first one ends.
        counted(completed_request(1, 1000.0, &[100.0], 1000.0), 6),
    ];
    let inputs = basis(Protocol::Completions);
    let ours = figures_of(&requests, &inputs, Definitions::Matrix);
    assert_eq!(figure_value(&ours, "peak_concurrency_requests"), Some(1.0));
    assert_eq!(figure_value(&ours, "peak_output_throughput_tok_s"), Some(10.0));
    assert_eq!(figure_value(&ours, "mean_concurrency_requests"), Some(1.0));
    let theirs = figures_of(&requests, &inputs, Definitions::Current);
    assert_eq!(figure_value(&theirs, "peak_concurrency_requests"), Some(2.0));
    assert_eq!(figure_value(&theirs, "peak_output_throughput_tok_s"), Some(1.0));
}

#[test]
fn a_measurement_of_less_than_a_second_has_no_peak_per_second() {
    let mut short = completed_request(0, 0.0, &[1.0, 2.0], 3.0);
    short.counted_tokens = Some(2);
    let figures = figures_of(&[short], &basis(Protocol::Completions), Definitions::Matrix);
    assert_eq!(figure_value(&figures, "peak_output_throughput_tok_s"), None);
}

#[test]
fn failures_stay_in_the_denominator_of_attainment() {
    let mut good = completed_request(0, 0.0, &[100.0, 200.0], 500.0);
    good.counted_tokens = Some(2);
    let requests = [
        good,
        failed(
            completed_request(1, 0.0, &[100.0], 500.0),
            RequestFailureClass::Reset,
        ),
    ];
    let inputs = MetricInputs {
        slo: Some(slo(600, 500, 3000)),
        ..basis(Protocol::Completions)
    };
    let figures = figures_of(&requests, &inputs, Definitions::Matrix);
    assert_eq!(figure_value(&figures, "slo_attainment_share"), Some(0.5));
    assert_eq!(figure_value(&figures, "slo_attainment_ttft_share"), Some(0.5));
    assert_eq!(figure_value(&figures, "goodput_req_s"), Some(2.0));
    assert_eq!(figure_value(&figures, "error_share"), Some(0.5));
    assert_eq!(figure_value(&figures, "failed_reset_requests"), Some(1.0));
}

#[test]
fn cancelled_requests_are_in_no_denominator_and_are_counted_by_themselves() {
    let completed = |index| {
        let mut request = completed_request(index, 0.0, &[100.0, 200.0], 500.0);
        request.counted_tokens = Some(2);
        request
    };
    let cancelled = Request {
        cancelled: true,
        usage: None,
        counted_tokens: None,
        // It would lengthen the window and the latencies, and would be no good request.
        ..completed_request(1, 0.0, &[900.0, 1800.0, 2700.0], 5000.0)
    };
    let lost = failed(completed(2), RequestFailureClass::Reset);
    let requests = [completed(0), cancelled, lost];
    let inputs = MetricInputs {
        slo: Some(slo(600, 500, 3000)),
        ..basis(Protocol::Completions)
    };
    let figures = figures_of(&requests, &inputs, Definitions::Matrix);
    for (name, value) in [
        ("due_requests", 3.0),
        ("completed_requests", 1.0),
        ("failed_requests", 1.0),
        ("cancelled_requests", 1.0),
        ("cancelled_output_tokens", 3.0),
        ("error_share", 0.5),
        ("slo_attainment_share", 0.5),
        ("goodput_req_s", 2.0),
        ("output_tokens", 2.0),
        ("max_ttft_ms", 100.0),
        ("duration_s", 0.5),
    ] {
        assert_eq!(figure_value(&figures, name), Some(value), "{name}");
    }
    let without = figures_of(&requests[..1], &inputs, Definitions::Matrix);
    for name in ["cancelled_requests", "cancelled_output_tokens"] {
        assert!(!without.contains_key(name), "{name}");
    }
    for profile in [Profile::Current, Profile::Classic] {
        let answers = bench_serving::successful_requests(&requests, Protocol::Completions, profile);
        assert_eq!(answers.len(), 1);
    }
}

#[test]
fn goodput_counts_only_correct_answers_where_answers_are_checked() {
    let checked = |index, answer_check| Request {
        counted_tokens: Some(2),
        answer_check,
        ..completed_request(index, 0.0, &[100.0, 200.0], 500.0)
    };
    let incorrect = || {
        Some(AnswerCheck::Incorrect {
            class: IncorrectClass::Schema,
            message: "m".to_owned(),
        })
    };
    let cut = Some(AnswerCheck::Unchecked {
        class: UncheckedClass::Cut,
        message: "m".to_owned(),
    });
    let requests = [
        checked(0, Some(AnswerCheck::Correct)),
        checked(1, incorrect()),
        checked(2, incorrect()),
        checked(3, cut),
        // Nothing was demanded of it.
        checked(4, None),
    ];
    let inputs = MetricInputs {
        slo: Some(slo(600, 500, 3000)),
        ..basis(Protocol::Completions)
    };
    let figures = figures_of(&requests, &inputs, Definitions::Matrix);
    for (name, value) in [
        ("correct_requests", 1.0),
        ("incorrect_requests", 2.0),
        ("unchecked_requests", 1.0),
        ("correct_share", 1.0 / 3.0),
        // Two of five in half a second; each of them met every target.
        ("goodput_req_s", 4.0),
        ("slo_attainment_share", 0.4),
        ("slo_attainment_ttft_share", 1.0),
        ("completed_requests", 5.0),
        ("failed_requests", 0.0),
    ] {
        assert_eq!(figure_value(&figures, name), Some(value), "{name}");
    }
    let limits = slo(600, 500, 3000);
    let good = requests
        .iter()
        .filter(|request| slo_severity(request, &limits) <= 1.0);
    assert_eq!(good.count(), 2);
    let fixed = compute_sets(&requests, &inputs, [DefinitionSet::Fixed(Profile::Current)]);
    let published = figures_of(&requests, &inputs, Definitions::Current);
    assert_eq!(figure_value(&fixed[0], "goodput_req_s"), Some(4.0));
    assert_eq!(figure_value(&published, "goodput_req_s"), Some(10.0));
    // Without an SLO, goodput is the rate of correct answers.
    let without = figures_of(&requests, &basis(Protocol::Completions), Definitions::Matrix);
    assert_eq!(figure_value(&without, "goodput_req_s"), Some(2.0));
    assert!(!without.contains_key("slo_attainment_share"));
    let unchecked = figures_of(&requests[4..], &basis(Protocol::Completions), Definitions::Matrix);
    for name in ["correct_requests", "correct_share", "goodput_req_s"] {
        assert!(!unchecked.contains_key(name), "{name}");
    }
    // All were cut: the share is not known.
    let unknown = figures_of(&requests[3..4], &inputs, Definitions::Matrix);
    assert_eq!(unknown.get("correct_share"), Some(&None));
}

/// One of 190 requests is lost and times out long after all others. It is no work, and its wait is not part
/// of the window.
#[test]
fn a_lost_request_that_times_out_late_leaves_rates_as_they_are() {
    let mut requests: Vec<Request> = (0..190)
        .map(|index| Request {
            counted_tokens: Some(2),
            ..completed_request(index, f64::from(index % 19) * 500.0, &[100.0, 200.0], 1000.0)
        })
        .collect();
    let inputs = MetricInputs {
        slo: Some(slo(600, 500, 3000)),
        ..basis(Protocol::Completions)
    };
    let sound = figures_of(&requests, &inputs, Definitions::Matrix);
    requests[7] = failed(
        completed_request(7, 3500.0, &[], 16_500.0),
        RequestFailureClass::TimeoutBeforeFirst,
    );
    let figures = figures_of(&requests, &inputs, Definitions::Matrix);
    assert_eq!(figure_value(&figures, "duration_s"), Some(10.0));
    assert_eq!(
        figure_value(&figures, "duration_s"),
        figure_value(&sound, "duration_s")
    );
    for (name, expected) in [
        ("request_throughput_req_s", 18.9),
        ("output_throughput_tok_s", 37.8),
        ("goodput_req_s", 18.9),
        // The lost request was in flight for 6.5 s of the window.
        ("mean_concurrency_requests", (189.0 + 6.5) / 10.0),
    ] {
        let value = figure_value(&figures, name).unwrap();
        assert!((value - expected).abs() < 1e-9, "{name}: {value}");
    }
    // bench_serving includes the wait.
    for definitions in [Definitions::Classic, Definitions::Current] {
        let copied = figures_of(&requests, &inputs, definitions);
        assert_eq!(figure_value(&copied, "duration_s"), Some(20.0));
    }
    // If no request completed, the window ends at the last end of all.
    let lost = figures_of(&requests[7..8], &inputs, Definitions::Matrix);
    assert_eq!(figure_value(&lost, "duration_s"), Some(16.5));
}

#[test]
fn every_percentile_lies_in_its_interval() {
    let requests: Vec<Request> = (0..4).flat_map(|_| golden_requests()).collect();
    let figures = figures_of(&requests, &golden_basis(), Definitions::Matrix);
    let bounds = percentile_intervals(&requests);
    assert!(bounds.contains_key("median_ttft_ms"), "{bounds:?}");
    assert!(!bounds.contains_key("p99_ttft_ms"), "so few requests bound none");
    for (name, [low, high]) in bounds {
        let value = figure_value(&figures, &name).unwrap();
        assert!(
            low <= value && value <= high,
            "{name}: {value} in {low} to {high}"
        );
    }
}

#[test]
fn every_figure_has_a_known_metric() {
    for figures in summarize(&golden_requests(), &golden_basis()).values() {
        for name in figures.keys() {
            assert!(Metric::from_name(name).is_some(), "no metric is called `{name}`");
        }
    }
}

/// Events on disk give the same metrics as events in memory, to the last bit.
#[test]
fn figures_do_not_depend_on_where_events_lie() {
    use std::sync::Arc;

    use crate::results::record::spilled::testing::MemoryBlocks;

    let memory_blocks = Arc::new(MemoryBlocks::default());
    let mut draws = crate::loadgen::dataset::rng::Python::new(5);
    let mut here = Vec::new();
    let mut elsewhere = Vec::new();
    for index in 0..30 {
        let mut at = 0.0;
        let moments: Vec<f64> = (0..40)
            .map(|_| {
                at += 40.0 * draws.random();
                at
            })
            .collect();
        let mut request = completed_request(index, f64::from(index) * 50.0, &moments, at + 1.0);
        request.counted_tokens = Some(40 + index % 3);
        request
            .chunks
            .map_chunks(|nth, chunk| chunk.bytes = 1 + nth as u32 % 4);
        let mut other = request.clone();
        other.chunks = Chunks::default();
        for (nth, chunk) in request.chunks.iter().enumerate() {
            other.chunks.push(chunk);
            if nth % 7 == 0 {
                memory_blocks.spill(other.chunks.storage_bytes());
            }
        }
        here.push(request);
        elsewhere.push(other);
    }
    for protocol in [Protocol::Completions, Protocol::SglangNative] {
        let inputs = basis(protocol);
        assert_eq!(summarize(&here, &inputs), summarize(&elsewhere, &inputs));
        for profile in [Profile::Classic, Profile::Current] {
            assert_eq!(
                fixed_figures(&here, &inputs, profile),
                fixed_figures(&elsewhere, &inputs, profile)
            );
        }
    }
    assert_eq!(histograms_per_second(&here), histograms_per_second(&elsewhere));
    assert_eq!(percentiles(&here, &[99.9]), percentiles(&elsewhere, &[99.9]));
}

proptest! {
    #[test]
    fn tokens_shared_among_chunks_keep_their_sum(
        bytes in prop::collection::vec(0u32..50, 1..40),
        tokens in 0u32..200,
    ) {
        let mut request = completed_request(0, 0.0, &[], 1.0);
        request.counted_tokens = Some(tokens);
        request.chunks = bytes.iter().map(|&bytes| Chunk { bytes, ..chunk(1.0, None) }).collect();
        if let Some(shares) = chunk_tokens::chunk_tokens(&request) {
            prop_assert_eq!(shares.len(), bytes.len());
            prop_assert_eq!(shares.iter().sum::<u32>(), tokens);
        } else {
            prop_assert!(bytes.iter().all(|bytes| *bytes == 0));
        }
    }

}

// Each case computes all metrics twice.
proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_order_of_records_changes_no_figure(
        mut requests in prop::collection::vec((0.0f64..5000.0, 1.0f64..500.0, 1.0f64..500.0), 1..30),
    ) {
        let made: Vec<Request> = requests
            .drain(..)
            .enumerate()
            .map(|(index, (start, first, more))| {
                let mut request = completed_request(index as u32, start, &[first, first + more], first + more + 1.0);
                request.counted_tokens = Some(2);
                request
            })
            .collect();
        let mut turned = made.clone();
        turned.reverse();
        let inputs = MetricInputs { slo: Some(slo(100, 100, 400)), ..basis(Protocol::Completions) };
        prop_assert_eq!(
            &summarize(&made, &inputs)[&Definitions::Current],
            &summarize(&turned, &inputs)[&Definitions::Current]
        );
    }
}

mod mended_figures {
    use super::*;

    fn basis(protocol: Protocol) -> MetricInputs {
        MetricInputs {
            protocol,
            backend: "vllm".to_owned(),
            devices: 0,
            slo: None,
            duration: None,
            accept_length: None,
            energy: None,
            engine: None,
        }
    }

    fn value(figures: &MetricValues, name: &str) -> Option<f64> {
        figures[name]
    }

    #[test]
    fn an_error_event_and_an_empty_answer_are_no_success_and_give_no_ttft() {
        let requests = [
            completed_request(0, 0.0, &[10.0, 20.0], 30.0),
            failed(completed_request(1, 0.0, &[], 40.0), RequestFailureClass::Empty),
            failed(
                completed_request(2, 0.0, &[], 50.0),
                RequestFailureClass::ErrorEvent,
            ),
        ];
        let copied = &summarize(&requests, &basis(Protocol::Chat))[&Definitions::Current];
        let fixed = fixed_figures(&requests, &basis(Protocol::Chat), Profile::Current);
        assert_eq!(value(copied, "completed_requests"), Some(3.0));
        assert_eq!(value(&fixed, "completed_requests"), Some(1.0));
        assert!(value(copied, "mean_ttft_ms") < Some(4.0));
        assert_eq!(value(&fixed, "mean_ttft_ms"), Some(10.0));
        assert_eq!(value(&fixed, "duration_s"), Some(0.05));
    }

    #[test]
    fn nothing_that_failed_leaves_an_empty_block_instead_of_zeros() {
        let requests = [failed(request(0), RequestFailureClass::Refused)];
        let figures = fixed_figures(&requests, &basis(Protocol::Completions), Profile::Current);
        assert_eq!(value(&figures, "completed_requests"), Some(0.0));
        for name in ["mean_ttft_ms", "mean_itl_ms", "mean_tpot_ms", "mean_e2e_ms"] {
            assert_eq!(value(&figures, name), None, "{name}");
        }
    }

    #[test]
    fn generated_tokens_are_the_best_known_ones() {
        let mut one = completed_request(0, 0.0, &[10.0, 20.0], 30.0);
        assert_eq!(generated_tokens(&one), 2, "an event has a token at least");
        one.usage = Some(Usage {
            completion: Some(0),
            ..Usage::default()
        });
        assert_eq!(generated_tokens(&one), 2, "there was output");
        one.usage = None;
        one.counted_tokens = Some(3);
        assert_eq!(generated_tokens(&one), 3);
        one.finish = Some("length".to_owned());
        assert_eq!(generated_tokens(&one), 3, "what was asked for is no count");
        one.usage = Some(Usage {
            completion: Some(4),
            ..Usage::default()
        });
        assert_eq!(generated_tokens(&one), 4);
        let figures = fixed_figures(&[one], &basis(Protocol::Completions), Profile::Classic);
        assert_eq!(value(&figures, "output_tokens"), Some(4.0));
    }

    #[test]
    fn reasoning_that_no_event_carries_takes_no_time_between_tokens() {
        let mut hidden = completed_request(0, 0.0, &[1000.0, 1010.0, 1020.0], 1020.0);
        hidden.usage = Some(Usage {
            completion: Some(103),
            reasoning: Some(100),
            ..Usage::default()
        });
        let mut shown = hidden.clone();
        change_chunk(&mut shown, 0, |chunk| chunk.kind = ChunkKind::Thought);
        let figures =
            |request: &Request| matrix_figures(std::slice::from_ref(request), &basis(Protocol::Chat));
        let metrics = figures(&hidden);
        assert_eq!(value(&metrics, "mean_tpot_ms"), Some(10.0));
        assert_eq!(value(&metrics, "max_itl_ms"), Some(10.0));
        assert_eq!(value(&metrics, "mean_chunk_tokens"), Some(1.0));
        assert_eq!(value(&metrics, "output_tokens"), Some(103.0));
        assert_eq!(value(&metrics, "reasoning_output_tokens"), Some(100.0));
        let metrics = figures(&shown);
        assert_eq!(value(&metrics, "mean_ttft_answer_ms"), Some(1010.0));
        let plain = completed_request(0, 0.0, &[10.0], 20.0);
        assert_eq!(value(&figures(&plain), "reasoning_output_tokens"), None);
    }

    #[test]
    fn the_first_piece_of_a_tool_call_is_a_first_token_and_peaks_are_true() {
        let mut tool = completed_request(0, 0.0, &[10.0], 1500.0);
        change_chunk(&mut tool, 0, |chunk| chunk.kind = ChunkKind::Tool);
        let later = completed_request(1, 1500.0, &[10.0], 20.0);
        let requests = [tool, later];
        let figures = fixed_figures(&requests, &basis(Protocol::Chat), Profile::Current);
        assert_eq!(value(&figures, "mean_ttft_ms"), Some(10.0));
        assert_eq!(value(&figures, "peak_concurrency_requests"), Some(1.0));
        let copied = &summarize(&requests, &basis(Protocol::Chat))[&Definitions::Current];
        assert_eq!(value(copied, "peak_concurrency_requests"), Some(2.0));
    }

    #[test]
    fn embeddings_have_latencies_and_no_tokens() {
        let requests = [completed_request(0, 0.0, &[], 30.0)];
        let figures = fixed_figures(&requests, &basis(Protocol::Embeddings), Profile::Current);
        assert_eq!(value(&figures, "output_tokens"), Some(0.0));
        assert_eq!(value(&figures, "mean_e2e_ms"), Some(30.0));
        assert_eq!(value(&figures, "mean_ttft_ms"), None);
    }
}

#[test]
fn energy_is_told_per_request_and_per_token_of_what_was_completed() {
    use crate::results::record::telemetry::{Energy, EnergySource};
    let requests: Vec<Request> = [(10, 4), (30, 6)]
        .into_iter()
        .map(|(prompt, output)| {
            serde_json::from_value(serde_json::json!({
                "index": 0, "prompt_tokens": prompt, "asked_tokens": output, "due_ns": 0, "sent_ns": 0, "end_ns": 2_000_000_000_u64,
                "status": 200, "chunks": [[1_000_000, "a", output, 1]], "usage": { "completion": output },
            }))
            .unwrap()
        })
        .collect();
    let energy = Energy {
        source: EnergySource::Counter,
        joules: 500.0,
        disagrees_j: None,
        above_idle_j: Some(300.0),
        mean_w: 250.0,
        peak_w: Some(400.0),
        is_simulated: false,
    };
    let metrics_with = |energy| {
        let inputs = MetricInputs {
            energy,
            ..basis(Protocol::Completions)
        };
        summarize(&requests, &inputs)
            .remove(&Definitions::Matrix)
            .unwrap()
    };
    let figures = metrics_with(Some(energy));
    for (name, value) in [
        ("energy_j", 500.0),
        ("energy_above_idle_j", 300.0),
        ("energy_per_request_j", 250.0),
        ("energy_per_input_token_j", 12.5),
        ("energy_per_output_token_j", 50.0),
        ("energy_per_token_j", 10.0),
        ("output_efficiency_tok_j", 0.02),
        ("total_efficiency_tok_j", 0.1),
        ("mean_power_w", 250.0),
        ("peak_power_w", 400.0),
    ] {
        assert_eq!(figures[name], Some(value), "{name}");
    }
    assert!(
        !metrics_with(None).contains_key("energy_j"),
        "no source reports it"
    );
}

#[test]
fn what_the_engine_tells_of_drafts_and_caches_has_figures_and_what_it_does_not_has_none() {
    use crate::results::record::telemetry::EngineWindow;
    let told_value = |figures: &MetricValues, name: &str| figures.get(name).copied().flatten();
    let mut requests = [completed_request(0, 0.0, &[10.0, 20.0, 30.0, 40.0, 50.0], 50.0)];
    requests[0].usage = Some(Usage {
        completion: Some(5),
        ..Usage::default()
    });
    let mut inputs_with_engine = basis(Protocol::Chat);
    let figures = matrix_figures(&requests, &inputs_with_engine);
    for name in [
        "accept_length_tokens",
        "accept_rate_share",
        "prefix_cache_hit_share",
    ] {
        assert_eq!(told_value(&figures, name), None, "{name}");
    }
    let grown = [
        ("spec_drafts", 10.0),
        ("spec_draft_tokens", 40.0),
        ("spec_accepted_tokens", 15.0),
        ("prefix_queries", 100.0),
        ("prefix_hits", 25.0),
    ];
    inputs_with_engine.engine = Some(EngineWindow {
        grown: grown.map(|(name, value)| (name.to_owned(), value)).into(),
        ..EngineWindow::default()
    });
    let figures = matrix_figures(&requests, &inputs_with_engine);
    assert_eq!(told_value(&figures, "accept_length_tokens"), Some(2.5));
    assert_eq!(told_value(&figures, "accept_rate_share"), Some(0.375));
    assert_eq!(told_value(&figures, "prefix_cache_hit_share"), Some(0.25));
    assert_eq!(told_value(&figures, "interactivity_tok_s"), Some(100.0));
}

#[test]
fn percentiles_of_any_share_are_those_of_the_sample() {
    let requests = [
        completed_request(0, 0.0, &[10.0], 10.0),
        completed_request(1, 0.0, &[20.0], 20.0),
    ];
    let all_percentiles = percentiles(&requests, &[75.0, 99.9]);
    let ttft = all_percentiles
        .iter()
        .find(|all_percentiles| all_percentiles.sample == LatencyKind::Ttft)
        .unwrap();
    assert_eq!(ttft.values[0], (75.0, 17.5));
    assert!((ttft.values[1].1 - 19.99).abs() < 1e-9, "{:?}", ttft.values);
    let figures = matrix_figures(&requests, &basis(Protocol::Chat));
    assert_eq!(figures["p999_ttft_ms"], Some(ttft.values[1].1));
    assert!(
        all_percentiles
            .iter()
            .all(|all_percentiles| all_percentiles.sample != LatencyKind::Itl),
        "there was no gap"
    );
}

fn streamed_request(at_ms: &[f64], tokens: u32) -> Request {
    Request {
        counted_tokens: Some(tokens),
        ..completed_request(0, 0.0, at_ms, 300.0)
    }
}

#[test]
fn a_count_of_tokens_that_cannot_be_has_no_gaps() {
    let parts: Vec<f64> = (0..10).map(|part| 120.0 + 40.0 * f64::from(part)).collect();
    assert_eq!(latency::token_gaps(&streamed_request(&parts, 80)).len(), 72);
    assert!(latency::token_gaps(&streamed_request(&parts, 4_200_000_000)).is_empty());
}

/// Events of 8 tokens, one every 40 ms, are 5 ms per token, whether a proxy joins them or writes them
/// together. An answer in two parts has no TPOT.
#[test]
fn tokens_of_the_first_moment_took_no_time_that_is_known() {
    let tpot = |request: Request| {
        let figures = figures_of(&[request], &basis(Protocol::Completions), Definitions::Matrix);
        figure_value(&figures, "mean_tpot_ms")
    };
    let parts: Vec<f64> = (0..10).map(|part| 120.0 + 40.0 * f64::from(part)).collect();
    assert_eq!(tpot(streamed_request(&parts, 80)), Some(5.0));
    let together: Vec<f64> = parts.iter().flat_map(|at| [*at; 8]).collect();
    assert_eq!(tpot(streamed_request(&together, 80)), Some(5.0));
    assert_eq!(tpot(streamed_request(&[120.0, 240.0], 48)), None);
    assert_eq!(tpot(streamed_request(&[10.0, 20.0, 30.0], 3)), Some(10.0));
    // A counted token that no event shows, such as the end of text, does not belong to the first event.
    assert_eq!(
        tpot(streamed_request(&[10.0, 20.0, 30.0, 40.0, 50.0], 6)),
        Some(8.0)
    );
    // Seven tokens are held back, then one comes every 10 ms. Our tokenizer counts the tokens of the first
    // event.
    let times_ms: Vec<f64> = (0..58).map(|event| 180.0 + 10.0 * f64::from(event)).collect();
    let counted_first = |counted| Request {
        counted_first: counted,
        ..streamed_request(&times_ms, 64)
    };
    assert_eq!(tpot(counted_first(Some(7))), Some(10.0));
    assert_eq!(
        tpot(counted_first(Some(30))),
        Some(10.0),
        "each later event holds a token"
    );
    let classic = figures_of(
        &[streamed_request(&[120.0, 240.0], 48)],
        &basis(Protocol::Completions),
        Definitions::Classic,
    );
    assert!(figure_value(&classic, "mean_tpot_ms").is_some());
}

#[test]
fn an_answer_that_came_at_one_moment_tells_no_times_between_tokens() {
    let inputs = MetricInputs {
        slo: Some(slo(600, 500, 3000)),
        ..basis(Protocol::Completions)
    };
    for whole in [streamed_request(&[240.0; 48], 48), streamed_request(&[240.0], 48)] {
        let figures = figures_of(&[whole], &inputs, Definitions::Matrix);
        for name in [
            "mean_tpot_ms",
            "mean_itl_ms",
            "interactivity_tok_s",
            "goodput_req_s",
            "slo_attainment_share",
            "slo_attainment_tpot_share",
        ] {
            assert_eq!(figure_value(&figures, name), None, "{name}");
        }
        assert_eq!(figure_value(&figures, "slo_attainment_ttft_share"), Some(1.0));
    }
    // Held back, and then sent in two parts: the time between these is not that of its tokens. Four accepted
    // of 48 are not gathered.
    let halves: Vec<f64> = (0..48)
        .map(|token| if token < 24 { 240.0 } else { 243.0 })
        .collect();
    let last_is_late: Vec<f64> = (0..48)
        .map(|token| {
            if token < 43 {
                240.0
            } else {
                240.0 + f64::from(token)
            }
        })
        .collect();
    for parts in [halves, last_is_late] {
        let figures = figures_of(&[streamed_request(&parts, 48)], &inputs, Definitions::Matrix);
        assert_eq!(figure_value(&figures, "mean_tpot_ms"), None);
        assert_eq!(figure_value(&figures, "goodput_req_s"), None);
    }
    let accepted: Vec<f64> = (0..48).map(|token| 240.0 + 5.0 * f64::from(token / 4)).collect();
    let figures = figures_of(&[streamed_request(&accepted, 48)], &inputs, Definitions::Matrix);
    assert!(figure_value(&figures, "mean_tpot_ms").is_some());
    // An answer of one token cannot miss a target of TPOT.
    let figures = figures_of(&[streamed_request(&[240.0], 1)], &inputs, Definitions::Matrix);
    assert_eq!(figure_value(&figures, "slo_attainment_share"), Some(1.0));
}

/// Returns an answer of one token every 10 ms, in which a pause holds back the tokens that are made
/// meanwhile.
fn paused_request(tokens: u32, from_ms: f64, pause_ms: f64) -> Request {
    let moments = (0..tokens).map(|token| {
        let made = 100.0 + 10.0 * f64::from(token);
        match (from_ms..from_ms + pause_ms).contains(&made) {
            true => from_ms + pause_ms,
            false => made,
        }
    });
    streamed_request(&moments.collect::<Vec<f64>>(), tokens)
}

#[test]
fn a_pause_in_the_middle_of_an_answer_is_no_gathering() {
    let inputs = MetricInputs {
        slo: Some(slo(600, 12, 3000)),
        ..basis(Protocol::Completions)
    };
    for pause_ms in [80.0, 100.0, 150.0] {
        let request = paused_request(32, 201.0, pause_ms);
        assert!(!is_coalesced(&request), "{pause_ms} ms");
        let figures = figures_of(&[request], &inputs, Definitions::Matrix);
        assert_eq!(
            figure_value(&figures, "mean_tpot_ms"),
            Some(10.0),
            "{pause_ms} ms"
        );
        assert_eq!(
            figure_value(&figures, "slo_attainment_share"),
            Some(1.0),
            "{pause_ms} ms"
        );
        assert!(figure_value(&figures, "goodput_req_s").is_some(), "{pause_ms} ms");
        assert!(figure_value(&figures, "mean_itl_ms").is_some(), "{pause_ms} ms");
    }
    // Tokens that are accepted four at a time.
    let mut accepted: Vec<f64> = (0..48).map(|token| 100.0 + 40.0 * f64::from(token / 4)).collect();
    accepted[20..32].fill(380.0);
    assert!(!is_coalesced(&streamed_request(&accepted, 48)));
}

/// Returns an answer of one token every 10 ms, whose first tokens are held back and then passed on every
/// `apart_ms`.
fn replayed_request(tokens: u32, ttft_ms: f64, held_back: u32, apart_ms: f64) -> Request {
    let made = |token: u32| ttft_ms + 10.0 * f64::from(token);
    let mut at = 0.0f64;
    let moments = (0..tokens).map(|token| {
        at = match token {
            token if token < held_back => made(held_back - 1) + apart_ms * f64::from(token),
            token => made(token).max(at),
        };
        at
    });
    streamed_request(&moments.collect::<Vec<f64>>(), tokens)
}

#[test]
fn a_beginning_that_was_held_back_is_told_from_an_engine_that_pauses_or_slows_down() {
    for (ttft_ms, apart_ms) in [(100.0, 0.1), (10.0, 0.1), (100.0, 0.6), (10.0, 0.6), (100.0, 1.5)] {
        for held_back in [9, 12, 40, 50, 64] {
            let request = replayed_request(100, ttft_ms, held_back, apart_ms);
            assert!(is_held_back(&request), "{held_back}, {apart_ms} ms apart");
        }
        assert!(!is_held_back(&replayed_request(100, ttft_ms, 1, apart_ms)));
    }
    // After a long wait in a queue: prefills of others, many tokens accepted together, a batch that fills.
    let gaps: [&dyn Fn(u32) -> f64; 6] = [
        &|token| if token == 60 { 500.0 } else { 12.0 },
        &|token| if token % 25 == 0 { 400.0 } else { 12.0 },
        &|token| if token == 98 { 3000.0 } else { 2.0 },
        &|token| if token < 20 { 2.0 } else { 10.0 },
        &|token| if token % 4 == 0 { 40.0 } else { 0.1 },
        &|token| if token % 3 == 1 { 10.0 } else { 30.0 },
    ];
    for (nth, gap) in gaps.into_iter().enumerate() {
        let moments = (0..100).scan(2000.0, |at, token| {
            *at += gap(token);
            Some(*at)
        });
        let request = streamed_request(&moments.collect::<Vec<f64>>(), 100);
        assert!(!is_held_back(&request), "{nth}");
    }
}

#[test]
fn a_large_part_that_no_pause_explains_is_gathered() {
    // 20 of 40 tokens after a gap of 30 ms, the others one every 10 ms.
    let early: Vec<f64> = (0..40)
        .map(|token: u32| match token {
            0..10 => 100.0 + 10.0 * f64::from(token),
            10..30 => 220.0,
            _ => 220.0 + 10.0 * f64::from(token - 29),
        })
        .collect();
    assert!(is_coalesced(&streamed_request(&early, 40)));
    // One token early, some one by one, and too few of these to determine a pace.
    let few: Vec<f64> = (0..40)
        .map(|token: u32| {
            if token < 7 {
                100.0 + 10.0 * f64::from(token)
            } else {
                500.0
            }
        })
        .collect();
    assert!(is_coalesced(&streamed_request(&few, 40)));
    // Two large parts: the first one was held back, whatever pause follows.
    let two: Vec<f64> = (0..60)
        .map(|token: u32| match token {
            0..20 => 100.0,
            20..30 => 100.0 + f64::from(token - 19),
            _ => 140.0,
        })
        .collect();
    assert!(is_coalesced(&streamed_request(&two, 60)));
    // Two of three parts of equal size, each after a pause.
    let thrice: Vec<f64> = (0..60)
        .map(|token: u32| match token {
            0..20 => 100.0 + f64::from(token),
            20..40 => 150.0,
            _ => 190.0,
        })
        .collect();
    assert!(is_coalesced(&streamed_request(&thrice, 60)));
}
