//! The metrics of `bench` under every definition that is shown.

use crate::analysis::metrics::{Basis, Set, sets_of};
use crate::config::workload::Profile;
use crate::results::record::cell::Figures;
use crate::results::record::request::Request;

/// The metrics of `bench` under every definition that is shown.
pub(crate) struct MetricSets {
    /// Metrics of the block and of the result line.
    pub(crate) block: Figures,
    /// bench_serving's metrics as published.
    pub(crate) copied: Figures,
    pub(crate) matrix: Figures,
}

impl MetricSets {
    /// Computes the metrics of these requests. `is_copied`: the block shows bench_serving's metrics as
    /// published.
    pub(crate) fn of(
        requests: &[Request],
        basis: &Basis,
        profile: Profile,
        is_copied: bool,
        are_conversations: bool,
    ) -> Self {
        let of_block = match is_copied {
            true => Set::Copied(profile),
            false => Set::Mended(profile),
        };
        let definitions = [Set::Matrix, Set::Copied(profile), of_block];
        let [matrix, mut copied, mut block] = sets_of(requests, basis, definitions);
        if are_conversations {
            // docs/bench-serving.md T29: the Python tool does not count the prompts of conversations.
            let mut promptless = requests.to_vec();
            for request in &mut promptless {
                (request.prompt_tokens, request.vision_tokens) = (0, 0);
            }
            [copied] = sets_of(&promptless, basis, [Set::Copied(profile)]);
            if is_copied {
                block = copied.clone();
            }
        }
        Self {
            block,
            copied,
            matrix,
        }
    }
}
