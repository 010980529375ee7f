//! Flags that cannot stand together, and flags that would have no effect.

use super::course;
use crate::cli::bench::{Backend, BenchArgs, DatasetName, Rules};
use crate::matrix::plan::Protocol;

/// Flags that cannot stand together, and flags that would have no effect.
pub(super) fn contradictions(args: &BenchArgs) -> Vec<String> {
    let mut found = Vec::new();
    let backend = args.server.backend;
    let (name, protocol) = (backend.name(), backend.protocol());
    let (sampling, course) = (&args.sampling, &args.course);
    let mut no = |is_wrong: bool, why: String| {
        if is_wrong {
            found.push(why);
        }
    };
    let is_native = protocol == Protocol::SglangNative;
    let without_effect =
        |flag: &str| format!("`--{flag}` has no effect with the backend `{name}`; leave it out");
    if backend == Backend::Gserver {
        no(
            true,
            "the backend `gserver` is not implemented; it is not in the Python tool either".to_owned(),
        );
        return found;
    }
    let is_nameless = matches!(backend, Backend::Trt | Backend::Truss) && args.server.model.is_none();
    no(
        is_nameless,
        format!("the backend `{name}` cannot be asked for its model; give `--model`"),
    );
    no(
        sampling.disable_stream && protocol == Protocol::Trt,
        without_effect("disable-stream"),
    );
    let logprobs = sampling.return_logprob;
    no(
        logprobs && !is_native && protocol != Protocol::Completions,
        without_effect("return-logprob"),
    );
    no(
        logprobs && protocol == Protocol::Completions && sampling.top_logprobs_num == 0,
        "`--return-logprob` has no effect on completions without `--top-logprobs-num`; give a number above 0"
            .to_owned(),
    );
    let is_useless = match protocol {
        Protocol::SglangNative => false,
        Protocol::Completions => !logprobs,
        _ => true,
    };
    no(
        sampling.top_logprobs_num > 0 && is_useless,
        without_effect("top-logprobs-num"),
    );
    no(
        sampling.token_ids_logprob.is_some() && !is_native,
        without_effect("token-ids-logprob"),
    );
    no(
        sampling.logprob_start_len != -1 && !is_native,
        without_effect("logprob-start-len"),
    );
    no(
        sampling.return_routed_experts && !is_native,
        without_effect("return-routed-experts"),
    );
    let is_vector = protocol == Protocol::Embeddings;
    no(
        sampling.temperature.is_some() && is_vector,
        without_effect("temperature"),
    );
    no(sampling.top_p.is_some() && is_vector, without_effect("top-p"));
    let is_ids = args.dataset.tokenize_prompt;
    no(
        is_ids && backend != Backend::Sglang,
        "`--tokenize-prompt` needs the backend `sglang`".to_owned(),
    );
    no(
        args.output.print_requests && backend != Backend::SglangOaiChat,
        "`--print-requests` needs the backend `sglang-oai-chat`; `--output-details` tells of single requests with every backend"
            .to_owned(),
    );
    let timeout = course.flush_cache_timeout;
    no(
        !(timeout.is_finite() && timeout > 0.0),
        format!("`--flush-cache-timeout` must be above 0 seconds, not {timeout}"),
    );
    no(
        course.disable_warmup && course.warmup_requests.is_some_and(|count| count > 0),
        "`--disable-warmup` and `--warmup-requests` contradict each other; leave one out".to_owned(),
    );
    let profiler = &args.profiler;
    let is_detailed = profiler.profile_start_step.is_some()
        || profiler.profile_steps.is_some()
        || profiler.profile_num_steps.is_some()
        || profiler.profile_by_stage
        || profiler.profile_stages.is_some()
        || profiler.profile_output_dir.is_some()
        || profiler.profile_prefix.is_some()
        || profiler.pd_separated;
    no(
        is_detailed && !profiler.profile,
        "flags of the profiler have no effect without `--profile`; add it, or leave them out".to_owned(),
    );
    if args.ours.rules == Rules::Classic {
        no(
            !backend.is_classic(),
            format!("the rules `classic` know no backend `{name}`; use `--rules current`"),
        );
        no(
            course.warmup_requests.is_some(),
            "under the rules `classic` the warm-up is one whole request; use `--disable-warmup`, or leave \
             `--warmup-requests` out"
                .to_owned(),
        );
        let has_lengths = args.dataset.random_input_len.is_some() || args.dataset.random_output_len.is_some();
        no(
            args.dataset.dataset_name == DatasetName::Sharegpt && has_lengths,
            "under the rules `classic` `sharegpt` takes no `--random-input-len` and `--random-output-len`; leave them out"
                .to_owned(),
        );
    }
    found.extend(course::without_effect(args));
    found
}
