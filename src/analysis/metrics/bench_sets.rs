//! The metrics of `bench` under every definition that is shown.

use crate::analysis::metrics::{DefinitionSet, MetricInputs, compute_sets};
use crate::config::workload::Profile;
use crate::results::record::cell::MetricValues;
use crate::results::record::request::Request;

/// The metrics of `bench` under every definition that is shown.
pub(crate) struct MetricSets {
    /// Metrics of the block and of the result line.
    pub(crate) block: MetricValues,
    /// bench_serving's metrics as published.
    pub(crate) as_published: MetricValues,
    pub(crate) matrix: MetricValues,
}

impl MetricSets {
    /// Computes the metrics of these requests. `is_copied`: the block shows bench_serving's metrics as
    /// published.
    pub(crate) fn from_requests(
        requests: &[Request],
        inputs: &MetricInputs,
        profile: Profile,
        is_as_published: bool,
        are_conversations: bool,
    ) -> Self {
        let of_block = match is_as_published {
            true => DefinitionSet::AsPublished(profile),
            false => DefinitionSet::Fixed(profile),
        };
        let definitions = [
            DefinitionSet::Matrix,
            DefinitionSet::AsPublished(profile),
            of_block,
        ];
        let [matrix, mut copied, mut block] = compute_sets(requests, inputs, definitions);
        if are_conversations {
            // docs/bench-serving.md T29: the Python tool does not count the prompts of conversations.
            let mut promptless = requests.to_vec();
            for request in &mut promptless {
                (request.prompt_tokens, request.vision_tokens) = (0, 0);
            }
            [copied] = compute_sets(&promptless, inputs, [DefinitionSet::AsPublished(profile)]);
            if is_as_published {
                block = copied.clone();
            }
        }
        Self {
            block,
            as_published: copied,
            matrix,
        }
    }
}
