//! What `vllm bench serve` has and `matrix bench --like vllm` refuses, each with what to use instead.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

/// Reasons that several entries share.
const HUB: &str = "data sets of Hugging Face's hub are not supported; convert the rows to JSON lines with `prompt`, and use \
                   `--dataset-name custom`";
const MEDIA: &str = "vLLM's prompts with images or video are not supported; use `--dataset-name image` of `matrix bench` \
                     without `--like`";
const PLOTS: &str =
    "`matrix bench` draws no plots; `--save-result --save-detailed` writes the values of every request";

/// A flag: its name, whether it has a value, and what to use instead.
type RefusedFlag = (&'static str, bool, &'static str);

/// The flags that are refused.
pub(crate) const REFUSED_FLAGS: &[RefusedFlag] = &[
    ("hf-subset", true, HUB),
    ("hf-split", true, HUB),
    ("hf-name", true, HUB),
    ("hf-output-len", true, HUB),
    ("blazedit-min-distance", true, HUB),
    ("blazedit-max-distance", true, HUB),
    ("asr-max-audio-len-sec", true, HUB),
    ("asr-min-audio-len-sec", true, HUB),
    ("bfcl-categories", true, HUB),
    ("custom-ensure-client-side-data", false, MEDIA),
    ("random-mm-base-items-per-request", true, MEDIA),
    ("random-mm-num-mm-items-range-ratio", true, MEDIA),
    ("random-mm-limit-mm-per-prompt", true, MEDIA),
    ("random-mm-bucket-config", true, MEDIA),
    (
        "use-beam-search",
        false,
        "this flag does not change the requests in vLLM's tool either; request beam search with `--extra-body '{\"use_beam_search\": true}'`",
    ),
    (
        "skip-tokenizer-init",
        false,
        "tokens are always counted; name a tokenizer with `--tokenizer`",
    ),
    (
        "probe-request-rate",
        true,
        "probes are not sent during the load; run a second `matrix bench --like vllm --output-len 1` at the same time",
    ),
    ("plot-timeline", false, PLOTS),
    ("timeline-itl-thresholds", true, PLOTS),
    ("plot-dataset-stats", false, PLOTS),
];

/// The data sets that are refused.
pub(crate) const REFUSED_DATASETS: &[(&str, &str)] =
    &[("hf", HUB), ("random-mm", MEDIA), ("custom_image", MEDIA)];

/// The backends that are refused.
pub(crate) const REFUSED_BACKENDS: &[(&str, &str)] = &[
    ("openai-embeddings-clip", MEDIA),
    ("openai-embeddings-vlm2vec", MEDIA),
    ("infinity-embeddings-clip", MEDIA),
];

/// The refused flags that were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct RefusedArgs {
    given: Vec<&'static str>,
}

impl RefusedArgs {
    /// An error with the reason for each flag that was given.
    pub(crate) fn errors(&self) -> impl Iterator<Item = String> + '_ {
        let given = REFUSED_FLAGS
            .iter()
            .filter(|(name, ..)| self.given.contains(name));
        given.map(|(name, _, why)| format!("`--{name}` is not supported: {why}"))
    }
}

impl FromArgMatches for RefusedArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut refused = Self::default();
        refused.update_from_arg_matches(matches)?;
        Ok(refused)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        let is_given = |(name, has_value, _): &&RefusedFlag| match has_value {
            true => matches.contains_id(name),
            false => matches.get_flag(name),
        };
        self.given = REFUSED_FLAGS
            .iter()
            .filter(is_given)
            .map(|(name, ..)| *name)
            .collect();
        Ok(())
    }
}

impl Args for RefusedArgs {
    fn augment_args(command: Command) -> Command {
        REFUSED_FLAGS
            .iter()
            .fold(command, |command, (name, has_value, why)| {
                let action = match has_value {
                    true => ArgAction::Set,
                    false => ArgAction::SetTrue,
                };
                let arg = Arg::new(*name).long(*name).action(action);
                command.arg(arg.help(*why).help_heading("Refused flags of vllm bench serve"))
            })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
