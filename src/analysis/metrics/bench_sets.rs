//! The metrics of a bench by every definition that is shown.

use crate::analysis::metrics::{Basis, Set, sets_of};
use crate::config::workload::Profile;
use crate::results::record::cell::Figures;
use crate::results::record::request::Request;

/// The metrics of a bench by every definition that is shown.
pub(crate) struct MetricSets {
    /// Those of the block and of the line.
    pub(crate) block: Figures,
    /// As bench_serving of this profile would compute them.
    pub(crate) copied: Figures,
    pub(crate) matrix: Figures,
}

impl MetricSets {
    /// Those of these requests. `is_copied`: the block is that of bench_serving with its known bugs.
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
            // docs/bench-serving.md T29: the Python tool sums no prompts of conversations.
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
