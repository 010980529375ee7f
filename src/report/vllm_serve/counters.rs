//! Counters of vLLM's metrics page: speculative decoding and diffusion.

use std::collections::BTreeMap;

/// How much the counters grew during a load; `None` if the server does not have them, or if nothing happened.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CounterGrowth {
    pub(crate) speculation: Option<Speculation>,
    pub(crate) diffusion: Option<Diffusion>,
}

/// Growth of the counters of speculative decoding.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Speculation {
    pub(crate) drafts: f64,
    pub(crate) draft_tokens: f64,
    pub(crate) accepted: f64,
    /// Accepted tokens by their position in the draft.
    by_position: BTreeMap<u64, f64>,
}

impl Speculation {
    pub(crate) fn acceptance_percent(&self) -> f64 {
        self.accepted / self.draft_tokens * 100.0
    }

    pub(crate) fn acceptance_length(&self) -> f64 {
        match self.drafts > 0.0 {
            true => 1.0 + self.accepted / self.drafts,
            false => 0.0,
        }
    }

    /// The share of drafts whose token at a position was accepted.
    pub(crate) fn rates_by_position(&self) -> Vec<f64> {
        match self.drafts > 0.0 {
            true => self
                .by_position
                .values()
                .map(|accepted| accepted / self.drafts)
                .collect(),
            false => Vec::new(),
        }
    }
}

/// Growth of the counters of diffusion decoding.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Diffusion {
    steps: f64,
    pub(crate) positions: f64,
    pub(crate) committed: f64,
}

impl Diffusion {
    /// The number of canvases; each is committed in one step.
    fn canvases(&self) -> f64 {
        self.committed / (self.positions / self.steps)
    }

    /// Steps without those that commit.
    pub(crate) fn denoising_steps(&self) -> f64 {
        self.steps - self.canvases()
    }

    pub(crate) fn steps_per_canvas(&self) -> f64 {
        self.denoising_steps() / self.canvases()
    }

    pub(crate) fn committed_per_step(&self) -> f64 {
        self.committed / self.denoising_steps()
    }
}

/// The sums of all counters of a page whose names begin with a prefix, by name and by the label `position`.
type Totals = BTreeMap<(String, Option<u64>), f64>;

/// Computes how much the counters grew between two pages.
pub(crate) fn growth(before: &str, after: &str) -> CounterGrowth {
    CounterGrowth {
        speculation: speculation(
            &totals(before, "vllm:spec_decode"),
            &totals(after, "vllm:spec_decode"),
        ),
        diffusion: diffusion(
            &totals(before, "vllm:diffusion"),
            &totals(after, "vllm:diffusion"),
        ),
    }
}

fn totals(page: &str, prefix: &str) -> Totals {
    let mut totals = Totals::new();
    for line in page
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with(prefix))
    {
        let (Some(name), Some(value)) = (line.split(['{', ' ']).next(), line.split_whitespace().next_back())
        else {
            continue;
        };
        let (true, Ok(value)) = (name.ends_with("_total"), value.parse::<f64>()) else {
            continue;
        };
        let position = line
            .split_once("position=\"")
            .and_then(|(_, rest)| rest.split('"').next()?.parse().ok());
        *totals.entry((name.to_owned(), position)).or_default() += value.trunc();
    }
    totals
}

/// The growth of all counters whose name contains a text, by position.
fn grown(before: &Totals, after: &Totals, part: &str) -> BTreeMap<Option<u64>, f64> {
    let mut grown = BTreeMap::new();
    for (key, value) in after.iter().filter(|((name, _), _)| name.contains(part)) {
        *grown.entry(key.1).or_default() += value - before.get(key).copied().unwrap_or(0.0);
    }
    grown
}

fn speculation(before: &Totals, after: &Totals) -> Option<Speculation> {
    if before.is_empty() || after.is_empty() {
        return None;
    }
    let sum = |part: &str| grown(before, after, part).into_values().sum();
    let speculation = Speculation {
        drafts: sum("num_drafts"),
        draft_tokens: sum("num_draft_tokens"),
        accepted: sum("num_accepted_tokens_total"),
        by_position: grown(before, after, "num_accepted_tokens_per_pos")
            .into_iter()
            .filter_map(|(position, accepted)| Some((position?, accepted)))
            .collect(),
    };
    (speculation.draft_tokens > 0.0).then_some(speculation)
}

fn diffusion(before: &Totals, after: &Totals) -> Option<Diffusion> {
    if before.is_empty() || after.is_empty() {
        return None;
    }
    let sum = |part: &str| grown(before, after, part).into_values().sum();
    let diffusion = Diffusion {
        steps: sum("num_denoising_steps"),
        positions: sum("num_canvas_positions"),
        committed: sum("num_committed_tokens"),
    };
    (diffusion.steps > 0.0 && diffusion.committed > 0.0).then_some(diffusion)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(drafts: u32, tokens: u32, accepted: [u32; 2]) -> String {
        format!(
            "# TYPE vllm:spec_decode_num_drafts counter\n\
             vllm:spec_decode_num_drafts_total{{engine=\"0\"}} {drafts}.0\n\
             vllm:spec_decode_num_drafts_created{{engine=\"0\"}} 1.7e9\n\
             vllm:spec_decode_num_draft_tokens_total{{engine=\"0\"}} {tokens}.0\n\
             vllm:spec_decode_num_accepted_tokens_total{{engine=\"0\"}} {}.0\n\
             vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine=\"0\",position=\"0\"}} {}.0\n\
             vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine=\"0\",position=\"1\"}} {}.0\n",
            accepted[0] + accepted[1],
            accepted[0],
            accepted[1]
        )
    }

    #[test]
    fn speculation_is_what_the_counters_grew_by() {
        let grown = growth(&page(10, 20, [5, 1]), &page(20, 40, [13, 3]))
            .speculation
            .unwrap();
        assert_eq!(
            (grown.drafts, grown.draft_tokens, grown.accepted),
            (10.0, 20.0, 10.0)
        );
        assert_eq!(
            (grown.acceptance_percent(), grown.acceptance_length()),
            (50.0, 2.0)
        );
        assert_eq!(grown.rates_by_position(), [0.8, 0.2]);
    }

    #[test]
    fn without_drafts_there_is_no_speculation() {
        let same = page(10, 20, [5, 1]);
        assert_eq!(growth(&same, &same), CounterGrowth::default());
        assert_eq!(growth("", &same), CounterGrowth::default());
    }

    #[test]
    fn diffusion_is_told_in_canvases() {
        let page = |steps: u32, positions: u32, committed: u32| {
            format!(
                "vllm:diffusion_num_denoising_steps_total {steps}\nvllm:diffusion_num_canvas_positions_total {positions}\n\
                 vllm:diffusion_num_committed_tokens_total {committed}\n"
            )
        };
        let grown = growth(&page(1, 32, 32), &page(11, 352, 96)).diffusion.unwrap();
        // 320 positions in 10 steps are canvases of 32 tokens; 64 committed tokens are two of them.
        assert_eq!((grown.denoising_steps(), grown.steps_per_canvas()), (8.0, 4.0));
        assert_eq!(grown.committed_per_step(), 8.0);
    }
}
