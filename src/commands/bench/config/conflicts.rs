//! Flags that cannot stand together, and flags that would have no effect.

use super::profiling;
use crate::cli::bench::{Activity, BenchArgs};
use crate::config::api::SamplingFields;
use crate::config::backend::Backend;
use crate::config::dataset::DatasetName;
use crate::config::workload::Profile;
use crate::plan::Protocol;

/// Whether a rule is violated, and the message.
type Conflict = (bool, String);

/// Returns messages about flags that contradict each other or have no effect.
pub(super) fn flag_conflicts(args: &BenchArgs) -> Vec<String> {
    let backend = args.server.backend;
    if backend == Backend::Gserver {
        return vec![
            "the backend `gserver` is not implemented; it is not in the Python tool either".to_owned(),
        ];
    }
    let is_nameless = !backend.facts().reports_model && args.server.model.is_none();
    let nameless = (
        is_nameless,
        format!(
            "the backend `{}` does not report its model; give `--model`",
            backend.name()
        ),
    );
    let doubts = [nameless]
        .into_iter()
        .chain(sampling_conflicts(args))
        .chain(execution_conflicts(args))
        .chain(limit_conflicts(args))
        .chain(classic_conflicts(args));
    let mut conflicts: Vec<String> = doubts
        .filter_map(|(is_wrong, why)| is_wrong.then_some(why))
        .collect();
    conflicts.extend(profiling::ineffective_flags(args));
    conflicts
}

/// Checks request settings against the backend.
fn sampling_conflicts(args: &BenchArgs) -> Vec<Conflict> {
    let backend = args.server.backend;
    let (name, protocol, sampling) = (backend.name(), backend.protocol(), &args.sampling);
    let is_native = protocol == Protocol::SglangNative;
    let is_completions = protocol == Protocol::Completions;
    let facts = protocol.facts();
    let is_unsampled = facts.sampling == SamplingFields::None;
    let logprobs = sampling.return_logprob;
    let is_useless = match protocol {
        Protocol::SglangNative => false,
        Protocol::Completions => !logprobs,
        _ => true,
    };
    let without_effect = |is_wrong: bool, flag: &str| {
        let why = format!("`--{flag}` has no effect with the backend `{name}`; leave it out");
        (is_wrong, why)
    };
    vec![
        without_effect(sampling.disable_stream && facts.generates_text && !facts.stream_field, "disable-stream"),
        without_effect(logprobs && !is_native && !is_completions, "return-logprob"),
        (
            logprobs && is_completions && sampling.top_logprobs_num == 0,
            "`--return-logprob` has no effect on completions without `--top-logprobs-num`; give a number above 0"
                .to_owned(),
        ),
        without_effect(sampling.top_logprobs_num > 0 && is_useless, "top-logprobs-num"),
        without_effect(sampling.token_ids_logprob.is_some() && !is_native, "token-ids-logprob"),
        without_effect(sampling.logprob_start_len != -1 && !is_native, "logprob-start-len"),
        without_effect(sampling.return_routed_experts && !is_native, "return-routed-experts"),
        without_effect(sampling.temperature.is_some() && is_unsampled, "temperature"),
        without_effect(sampling.top_p.is_some() && is_unsampled, "top-p"),
        (
            args.dataset.tokenize_prompt && backend != Backend::Sglang,
            "`--tokenize-prompt` needs the backend `sglang`".to_owned(),
        ),
        (
            args.output.print_requests && backend != Backend::SglangOaiChat,
            "`--print-requests` needs the backend `sglang-oai-chat`; `--output-details` reports single requests with every backend"
                .to_owned(),
        ),
    ]
}

/// Checks settings of warm-up, cache reset and profiler.
fn execution_conflicts(args: &BenchArgs) -> Vec<Conflict> {
    let (execution, profiler) = (&args.execution, &args.profiler);
    let timeout = execution.flush_cache_timeout;
    let is_detailed = profiler.profile_start_step.is_some()
        || profiler.profile_steps.is_some()
        || profiler.profile_num_steps.is_some()
        || profiler.profile_by_stage
        || profiler.profile_stages.is_some()
        || profiler.profile_output_dir.is_some()
        || profiler.profile_prefix.is_some()
        || profiler.pd_separated
        || profiler.profile_activities != [Activity::Cpu, Activity::Gpu];
    vec![
        (
            !(timeout.is_finite() && timeout > 0.0),
            format!("`--flush-cache-timeout` must be above 0 seconds, not {timeout}"),
        ),
        (
            execution.disable_warmup && execution.warmup_requests.is_some_and(|count| count > 0),
            "`--disable-warmup` and `--warmup-requests` contradict each other; leave one out".to_owned(),
        ),
        (
            is_detailed && !profiler.profile,
            "flags of the profiler have no effect without `--profile`; add it, or leave them out".to_owned(),
        ),
    ]
}

/// Checks settings of arrivals and limits.
fn limit_conflicts(args: &BenchArgs) -> Vec<Conflict> {
    let (limits, dataset) = (&args.limits, &args.dataset);
    let is_paced = args.arrival.ramp_up_strategy.is_some() || args.arrival.stages.is_some();
    let is_at_once = args.execution.request_rate.iter().all(|rate| rate.is_infinite());
    let is_searched = args.search.search.is_some();
    let draws_gaps = is_paced || is_searched || args.execution.multi || !is_at_once;
    let no_gaps = |is_given: bool, flag: &str| {
        let why = format!(
            "`--{flag}` has no effect on requests that are all sent at once; add `--request-rate`, or leave it out"
        );
        (is_given && !draws_gaps, why)
    };
    let name = dataset.dataset_name;
    let own_flag = name.default_dataset().facts().output_flag;
    let has_lengths = own_flag.is_some() || !name.reads("output_len");
    vec![
        no_gaps(args.arrival.spacing.is_some(), "spacing"),
        // An invalid burstiness is reported elsewhere.
        no_gaps(args.arrival.burstiness.is_some_and(|shape| shape > 0.0), "burstiness"),
        (
            dataset.sharegpt_context_len.is_some() && !name.reads("context_len"),
            "`--sharegpt-context-len` has no effect on this data set, only on `sharegpt`, `custom` and `longbench_v2`; leave it out"
                .to_owned(),
        ),
        (
            dataset.sharegpt_output_len.is_some() && has_lengths,
            "`--sharegpt-output-len` has no effect on this data set, which has its own output length; leave it out".to_owned(),
        ),
        (
            limits.drain.is_some() && limits.duration.is_none() && args.search.search_seconds.is_none(),
            "`--drain` needs `--duration`, because it counts from the end of that time; add `--duration`, or limit each request with `--request-timeout`".to_owned(),
        ),
        (
            limits.duration.is_some() && is_searched,
            "a search has its own time for each point; write `--search-seconds` instead of `--duration`".to_owned(),
        ),
    ]
}

/// Checks flags that the profile `classic` does not have.
fn classic_conflicts(args: &BenchArgs) -> Vec<Conflict> {
    if args.extensions.rules != Profile::Classic {
        return Vec::new();
    }
    let (backend, dataset) = (args.server.backend, &args.dataset);
    let has_lengths = dataset.random_input_len.is_some() || dataset.random_output_len.is_some();
    vec![
        (
            !backend.facts().is_classic,
            format!("`--rules classic` (an older bench_serving) does not have the backend `{}`; use `--rules current`", backend.name()),
        ),
        (
            args.execution.warmup_requests.is_some(),
            "under the rules `classic`, the warm-up is one complete request; use `--disable-warmup`, or leave \
             `--warmup-requests` out"
                .to_owned(),
        ),
        (
            dataset.dataset_name == DatasetName::Sharegpt && has_lengths,
            "under the rules `classic`, `sharegpt` does not use `--random-input-len` and `--random-output-len`; leave them out"
                .to_owned(),
        ),
    ]
}
