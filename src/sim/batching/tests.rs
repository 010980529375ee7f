use std::collections::HashMap;

use super::*;
use crate::base::clock;

fn cost() -> CostModel {
    CostModel {
        step: Duration::from_millis(10),
        per_sequence: Duration::from_micros(100),
        per_thousand_context: Duration::ZERO,
        prefill_rate: 10_000.0,
        step_tokens: 512,
        kv_tokens: 16_000,
        block_tokens: 16,
        max_running: 64,
        prefix_cache: true,
        jitter: 0.0,
        chunked_prefill: true,
        graph_sequences: usize::MAX,
        eager_step: Duration::ZERO,
    }
}

fn submission(id: u64, prompt: usize, output: usize) -> Submission {
    Submission {
        id,
        prompt: (0..prompt as u64).map(|at| id * 1_000_000 + at).collect(),
        output,
        key: id,
    }
}

/// Runs all requests to the end. Returns each token with its time.
fn run_all(batch: &mut Batch) -> Vec<(Duration, TokenEvent)> {
    let mut now = Duration::ZERO;
    let mut all = Vec::new();
    while let Some(took) = batch.begin_step() {
        now += took;
        all.extend(batch.finish_step().into_iter().map(|emission| (now, emission)));
        assert!(now < Duration::from_secs(100_000), "the batch never ends");
    }
    all
}

fn counts(tokens: &[(Duration, TokenEvent)]) -> HashMap<u64, usize> {
    let mut counts = HashMap::new();
    for (_, token) in tokens {
        let count = counts.entry(token.id).or_insert(0);
        assert_eq!(token.index, *count, "tokens come in order, none twice");
        *count += 1;
    }
    counts
}

#[test]
fn one_request_takes_its_prefill_and_a_step_per_token() {
    let mut batch = Batch::new(cost(), 1);
    batch.submit(submission(1, 100, 3), Duration::ZERO);
    let moments: Vec<_> = run_all(&mut batch)
        .into_iter()
        .map(|(at, _)| at.as_micros())
        .collect();
    assert_eq!(moments, [20_000, 30_100, 40_200]);
}

#[test]
fn a_long_prompt_is_computed_in_pieces_while_others_decode() {
    let mut batch = Batch::new(cost(), 1);
    batch.submit(submission(1, 16, 20), Duration::ZERO);
    batch.begin_step().unwrap();
    assert_eq!(batch.finish_step().len(), 1);
    batch.submit(submission(2, 1200, 1), Duration::ZERO);
    let took = batch.begin_step().unwrap();
    assert_eq!(
        took.as_micros(),
        10_000 + 100 + 51_100,
        "511 prompt tokens beside one decode"
    );
    let tokens = batch.finish_step();
    assert_eq!(tokens.iter().map(|token| token.id).collect::<Vec<_>>(), [1]);
    let second = run_all(&mut batch)
        .iter()
        .filter(|(_, token)| token.id == 2)
        .count();
    assert_eq!(second, 1);
}

#[test]
fn without_chunked_prefill_whole_prompts_come_first_and_decoding_waits() {
    let mut batch = Batch::new(
        CostModel {
            chunked_prefill: false,
            step_tokens: 1500,
            ..cost()
        },
        1,
    );
    batch.submit(submission(1, 16, 20), Duration::ZERO);
    batch.begin_step().unwrap();
    assert_eq!(batch.finish_step().len(), 1);
    batch.submit(submission(2, 1200, 2), Duration::ZERO);
    batch.submit(submission(3, 400, 2), Duration::ZERO);
    for (id, prompt) in [(2, 1200), (3, 400)] {
        let took = batch.begin_step().unwrap();
        assert_eq!(
            took.as_micros(),
            10_000 + prompt * 100,
            "the prompts do not fit one step"
        );
        let tokens = batch.finish_step();
        assert_eq!(tokens.iter().map(|token| token.id).collect::<Vec<_>>(), [id]);
    }
    assert_eq!(batch.begin_step().unwrap().as_micros(), 10_300);
    assert_eq!(batch.finish_step().len(), 3);
    assert!(
        run_all(&mut batch).iter().all(|(_, token)| token.id == 1),
        "only the first has more than two tokens"
    );
}

#[test]
fn a_step_with_more_sequences_than_graphs_takes_longer() {
    let durations = |graph_sequences: usize| {
        let mut batch = Batch::new(
            CostModel {
                graph_sequences,
                eager_step: Duration::from_millis(6),
                ..cost()
            },
            1,
        );
        for id in 0..3 {
            batch.submit(submission(id, 100, 2 + id as usize), Duration::ZERO);
        }
        let mut durations = Vec::new();
        while let Some(took) = batch.begin_step() {
            durations.push(took.as_micros());
            batch.finish_step();
        }
        durations
    };
    assert_eq!(durations(3), [40_000, 10_300, 10_200, 10_100]);
    assert_eq!(durations(2), [46_000, 16_300, 10_200, 10_100]);
    assert_eq!(durations(0), [46_000, 16_300, 16_200, 16_100]);
}

#[test]
fn throughput_obeys_the_cost_model() {
    let mut batch = Batch::new(cost(), 1);
    for id in 0..32 {
        batch.submit(submission(id, 16, 200), Duration::ZERO);
    }
    let tokens = run_all(&mut batch);
    assert_eq!(tokens.len(), 32 * 200);
    let end = tokens.last().unwrap().0.as_secs_f64();
    // 512 prompt tokens in the first step, then 199 steps with 32 sequences.
    let expected = 0.010 + 512.0 / 10_000.0 + 199.0 * (0.010 + 32.0 * 0.0001);
    assert!((end - expected).abs() < 1e-9, "{end} {expected}");
}

#[test]
fn no_request_is_lost_when_the_cache_is_too_small_for_all() {
    let mut batch = Batch::new(
        CostModel {
            kv_tokens: 1024,
            ..cost()
        },
        1,
    );
    for id in 0..20 {
        batch.submit(submission(id, 100, 300), Duration::ZERO);
    }
    let tokens = run_all(&mut batch);
    assert_eq!(counts(&tokens), (0..20).map(|id| (id, 300)).collect());
    assert!(batch.totals().preemptions > 0);
    assert_eq!(
        batch.totals().prompt_tokens,
        2000,
        "a recomputed prompt is counted once"
    );
    assert_eq!(batch.kv_usage(), 0.0);
}

#[test]
fn a_preempted_sequence_is_the_last_admitted() {
    let mut batch = Batch::new(
        CostModel {
            kv_tokens: 320,
            prefix_cache: false,
            ..cost()
        },
        1,
    );
    batch.submit(submission(1, 128, 100), Duration::ZERO);
    batch.submit(submission(2, 128, 100), Duration::ZERO);
    let tokens = run_all(&mut batch);
    let last = |id| tokens.iter().rfind(|(_, token)| token.id == id).unwrap().0;
    assert!(last(1) < last(2));
    assert_eq!(batch.totals().preemptions, 1);
}

#[test]
fn a_prefix_seen_before_is_not_computed_again() {
    let mut batch = Batch::new(cost(), 1);
    batch.submit(submission(1, 160, 1), Duration::ZERO);
    run_all(&mut batch);
    batch.submit(
        Submission {
            id: 2,
            ..submission(1, 160, 1)
        },
        Duration::ZERO,
    );
    let token = run_all(&mut batch).remove(0);
    assert_eq!(token.1.cached, 144, "the block of the last token is computed");
    assert_eq!(token.0.as_micros(), 10_000 + 1_600);
    assert_eq!(
        (batch.totals().prefix_queries, batch.totals().prefix_hits),
        (320, 144)
    );

    batch.flush().unwrap();
    batch.submit(
        Submission {
            id: 3,
            ..submission(1, 160, 1)
        },
        Duration::ZERO,
    );
    assert_eq!(run_all(&mut batch)[0].1.cached, 0);
}

#[test]
fn an_answer_is_part_of_the_next_turns_prefix() {
    let mut batch = Batch::new(cost(), 1);
    let first = submission(1, 16, 17);
    let mut turn = first.prompt.clone();
    turn.extend((0..17).map(|index| crate::sim::text::word_id(first.key, index)));
    turn.extend([1, 2, 3]);
    batch.submit(first, Duration::ZERO);
    run_all(&mut batch);
    batch.submit(
        Submission {
            id: 2,
            prompt: turn,
            output: 1,
            key: 2,
        },
        Duration::ZERO,
    );
    assert_eq!(run_all(&mut batch)[0].1.cached, 32);
}

#[test]
fn without_the_prefix_cache_nothing_is_found() {
    let mut batch = Batch::new(
        CostModel {
            prefix_cache: false,
            ..cost()
        },
        1,
    );
    for id in [1, 2] {
        batch.submit(
            Submission {
                id,
                ..submission(1, 160, 2)
            },
            Duration::ZERO,
        );
        assert!(run_all(&mut batch).iter().all(|(_, token)| token.cached == 0));
    }
    assert_eq!(batch.totals().prefix_queries, 0);
}

#[test]
fn requests_beyond_the_limit_wait_their_turn() {
    let mut batch = Batch::new(
        CostModel {
            max_running: 2,
            ..cost()
        },
        1,
    );
    for id in 0..3 {
        batch.submit(submission(id, 16, 5), Duration::ZERO);
    }
    batch.begin_step().unwrap();
    assert_eq!(batch.request_counts(), (2, 1));
    assert_eq!(batch.flush(), Err(CacheInUse));
    batch.finish_step();
    let third = run_all(&mut batch)
        .into_iter()
        .filter(|(_, token)| token.id == 2)
        .count();
    assert_eq!(third, 5);
    let waits = batch.take_queue_times();
    assert_eq!(waits[..2], [Duration::ZERO; 2]);
    assert!(waits[2] > Duration::from_millis(50), "{waits:?}");
}

#[test]
fn an_aborted_request_gives_its_room_back_even_in_the_middle_of_a_step() {
    let mut batch = Batch::new(cost(), 1);
    for id in 0..3 {
        batch.submit(submission(id, 40, 5), Duration::ZERO);
    }
    batch.begin_step().unwrap();
    batch.abort(1);
    batch.abort(99);
    assert_eq!(
        batch
            .finish_step()
            .iter()
            .map(|token| token.id)
            .collect::<Vec<_>>(),
        [0, 2]
    );
    run_all(&mut batch);
    assert_eq!((batch.request_counts(), batch.kv_usage()), ((0, 0), 0.0));
}

/// Searching the whole queue for each request would take minutes.
#[test]
fn many_waiting_requests_are_aborted_in_linear_time() {
    let mut batch = Batch::new(cost(), 1);
    for id in 0..200_000 {
        batch.submit(submission(id, 1, 1), Duration::ZERO);
    }
    batch.begin_step().unwrap();
    let first = batch.finish_step();
    assert_eq!(first.len(), 64);
    let start = clock::now();
    // Those that ended are aborted too, as their clients do.
    for id in (0..200_000).filter(|id| *id != 100_000) {
        batch.abort(id);
    }
    let took = clock::now().since(start);
    assert!(took < Duration::from_secs(20), "{took:?}");
    let rest = run_all(&mut batch);
    assert_eq!(
        rest.iter().map(|(_, token)| token.id).collect::<Vec<_>>(),
        [100_000]
    );
}

#[test]
fn jitter_is_fixed_by_the_seed_and_keeps_the_mean() {
    let end = |seed, jitter| {
        let mut batch = Batch::new(CostModel { jitter, ..cost() }, seed);
        batch.submit(submission(1, 16, 2000), Duration::ZERO);
        run_all(&mut batch).last().unwrap().0.as_secs_f64()
    };
    assert_eq!(end(1, 0.3), end(1, 0.3));
    assert_ne!(end(1, 0.3), end(2, 0.3));
    assert!((end(1, 0.3) / end(1, 0.0) - 1.0).abs() < 0.02);
}

proptest::proptest! {
    #[test]
    fn every_request_gets_every_token_whatever_is_asked(
        asks in proptest::collection::vec((1usize..400, 1usize..200, 0u64..4), 1..40),
        kv_blocks in 40usize..100,
        step_tokens in 1usize..600,
        prefix_cache: bool,
        chunked_prefill: bool,
    ) {
        let kv_tokens = kv_blocks * 16;
        let mut batch = Batch::new(CostModel { kv_tokens, step_tokens, prefix_cache, chunked_prefill, ..cost() }, 1);
        for (id, (prompt, output, family)) in asks.iter().enumerate() {
            batch.submit(Submission { id: id as u64, key: *family, ..submission(*family, *prompt, *output) }, Duration::ZERO);
        }
        let counts = counts(&run_all(&mut batch));
        for (id, (_, output, _)) in asks.iter().enumerate() {
            proptest::prop_assert_eq!(counts[&(id as u64)], *output);
        }
        proptest::prop_assert_eq!(batch.kv_usage(), 0.0);
    }
}

#[test]
fn a_received_prompt_costs_one_decode_step_and_is_in_the_prefix_cache_afterwards() {
    let mut batch = Batch::new(cost(), 1);
    batch.receive_prompts();
    batch.submit(submission(1, 100, 3), Duration::ZERO);
    let tokens = run_all(&mut batch);
    let moments: Vec<_> = tokens.iter().map(|(at, _)| at.as_micros()).collect();
    assert_eq!(moments, [10_100, 20_200, 30_300]);
    // More than the tokens of one step, and with a prefix that is known.
    batch.submit(submission(1, 2_000, 1), batch.clock());
    let tokens = run_all(&mut batch);
    assert_eq!((tokens.len(), tokens[0].1.cached), (1, 96));
    assert_eq!(batch.kv_usage(), 0.0);
    assert_eq!(batch.totals().prefix_hits, 96);
}

#[test]
fn a_received_prompt_that_is_preempted_is_computed() {
    let small = CostModel {
        kv_tokens: 160,
        ..cost()
    };
    let run = |receives: bool| {
        let mut batch = Batch::new(small.clone(), 1);
        if receives {
            batch.receive_prompts();
        }
        batch.submit(submission(1, 60, 60), Duration::ZERO);
        batch.submit(submission(2, 60, 60), Duration::ZERO);
        let tokens = run_all(&mut batch);
        assert_eq!(counts(&tokens), HashMap::from([(1, 60), (2, 60)]));
        assert!(batch.totals().preemptions > 0);
        batch.clock()
    };
    assert!(run(true) < run(false));
}
