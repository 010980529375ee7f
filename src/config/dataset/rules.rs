//! What code outside of a data set's own files knows of it.

use std::path::PathBuf;

use super::common_prefix::CommonPrefix;
use super::error::ReportError;
use super::length_distribution::Lengths;
use super::lengths::Drawn;
use crate::config::api::ClientStyle;
use crate::config::profile::Profile;

/// A data set's own code.
pub(crate) trait Rules {
    /// What it does differently from others.
    fn facts(&self) -> Facts<'_>;

    /// How many requests are asked for, each conversation counted once; `None` for all that there are.
    fn requests(&self, prompts: u32) -> Option<u64> {
        Some(u64::from(prompts))
    }

    /// Tokens of the prompt of one request, at most, where the data set draws them.
    fn prompt_tokens(&self) -> u64 {
        self.facts().input_len().unwrap_or(0).into()
    }

    /// Bytes of the images of one request, at most.
    fn image_bytes(&self) -> u64 {
        0
    }

    /// Bytes of the recording of one request, at most, where the data set draws it.
    fn audio_bytes(&self) -> u64 {
        0
    }

    /// Lengths of prompts and answers in words, with the mean where they are drawn.
    fn lengths(&self, profile: Profile) -> String {
        let facts = self.facts();
        let drawn = facts.drawn.and_then(|drawn| drawn.in_words(profile));
        drawn.unwrap_or_else(|| match facts.output_len {
            Some(output) => format!("prompts of the data set / {output} tokens out"),
            None => "lengths of the data set".to_owned(),
        })
    }

    /// Takes down what the profile's rules do not allow, beyond what holds for all data sets.
    fn find_errors(&self, _profile: Profile, _report: &mut ReportError<'_>) {}
}

/// What a data set does differently from others.
#[derive(Default)]
pub(crate) struct Facts<'a> {
    /// The file that the prompts come from.
    pub(crate) file: Option<DataFile>,
    /// What the prompts consist of.
    pub(crate) prompts: PromptForm,
    /// What the tokenizer's chat template is for.
    pub(crate) template: TemplateUse,
    /// The lengths, where the data set draws them.
    pub(crate) drawn: Option<Drawn>,
    /// The distributions that lengths are drawn from, or the file with pairs of lengths.
    pub(crate) lengths: Option<&'a Lengths>,
    /// Tokens that prompts have in common by design.
    pub(crate) common_prefix: Option<CommonPrefix>,
    /// Tokens to ask for, at most, where that is chosen.
    pub(crate) output_len: Option<u32>,
    /// The Python tool's flag for the output length, where it is not `--sharegpt-output-len`.
    pub(crate) output_flag: Option<&'static str>,
    /// Whether token ids are sent instead of text.
    pub(crate) sends_ids: bool,
    /// Whether requests tell a router their group.
    pub(crate) has_routing_key: bool,
    /// Text put behind each prompt.
    pub(crate) prompt_suffix: Option<&'a str>,
    /// By how much the moments of the rows are stretched, where rows are sent at moments of their own.
    pub(crate) slowdown: Option<f64>,
    /// Whether requests demand answers that can be checked, which then end where the model ends them.
    pub(crate) has_checks: bool,
    /// Whether the rules of `classic` know the data set.
    pub(crate) is_classic: bool,
    /// The client whose warm-up and order of draws belong to the data set.
    pub(crate) style: ClientStyle,
}

impl Facts<'_> {
    /// Those of a data set that draws lengths.
    pub(super) fn of_drawn(input_len: Option<u32>, output_len: Option<u32>, range_ratio: f64) -> Self {
        Self {
            drawn: Some(Drawn {
                input_len,
                output_len,
                range_ratio,
            }),
            output_len,
            output_flag: Some("random-output-len"),
            ..Self::default()
        }
    }

    /// Whether several requests belong together, as the turns of a conversation or the requests of a session.
    pub(crate) fn has_turns(&self) -> bool {
        match self.prompts {
            PromptForm::Sessions | PromptForm::Conversations { turns: None } => true,
            PromptForm::Conversations { turns: Some(turns) } => turns > 1,
            _ => false,
        }
    }

    /// Whether a folder of files may stand for the data set's file.
    pub(crate) const fn may_be_folder(&self) -> bool {
        matches!(self.prompts, PromptForm::Sessions | PromptForm::Audio)
    }

    /// File with pairs of lengths.
    pub(crate) fn lengths_file(&self) -> Option<&str> {
        self.lengths?.file.as_deref()
    }

    /// Tokens in each prompt, at most, where that is chosen.
    pub(crate) fn input_len(&self) -> Option<u32> {
        self.drawn?.input_len
    }
}

/// What prompts consist of, which not every protocol carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PromptForm {
    /// Text, or the ids of its tokens.
    #[default]
    Text,
    /// Text to which a chat template was applied.
    Templated,
    /// Lists of chat messages.
    Messages,
    /// Conversations whose turns are sent one after another.
    Conversations {
        /// How many turns were asked for; `None` where the file decides.
        turns: Option<u32>,
    },
    Pictures,
    /// Requests that wait for one another, with token ids or messages as the file has them.
    Sessions,
    /// A query each, with documents to rank.
    Documents,
    /// A recording each.
    Audio,
    /// Text with fields that demand a structure of the answer.
    Structured,
}

/// What the tokenizer's chat template is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TemplateUse {
    #[default]
    None,
    /// Prompts are put through it where the tokenizer has one.
    Optional,
    /// The data set cannot be prepared without it.
    Required,
    /// The scenario asks for it.
    Requested,
}

impl TemplateUse {
    /// For data sets that go through the template where a scenario asks for it.
    pub(super) const fn requested(is_requested: bool) -> Self {
        match is_requested {
            true => Self::Requested,
            false => Self::None,
        }
    }

    /// Whether nothing can be prepared without a template.
    pub(crate) const fn is_needed(self) -> bool {
        matches!(self, Self::Required | Self::Requested)
    }
}

/// The file of a data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DataFile {
    /// The name under which a matrix gives it among its `datasets`.
    pub(crate) key: &'static str,
    /// The file that is used where none is named; `None`: one must be named.
    pub(crate) default: Option<PublishedFile>,
    /// What `matrix fetch` gets for it.
    pub(crate) published: Vec<PublishedFile>,
    /// What that is, in words.
    pub(crate) about: &'static str,
}

impl DataFile {
    /// A file that somebody must name.
    pub(crate) const fn named(key: &'static str) -> Self {
        Self {
            key,
            default: None,
            published: Vec::new(),
            about: "",
        }
    }

    /// A file of Hugging Face's hub.
    pub(super) fn of_hub(
        key: &'static str,
        repository: &'static str,
        file: &'static str,
        about: &'static str,
    ) -> Self {
        let published = PublishedFile::Hub { repository, file };
        Self {
            key,
            default: Some(published.clone()),
            published: vec![published],
            about,
        }
    }
}

/// A file that the authors of a data set published.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PublishedFile {
    /// In a repository of data sets of Hugging Face's hub.
    Hub {
        repository: &'static str,
        file: &'static str,
    },
    /// At an address of its own.
    Web(WebFile),
}

/// A file at an address of its own, kept at a path that the Python tool uses, too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WebFile {
    pub(crate) url: String,
    pub(crate) path: PathBuf,
}

impl WebFile {
    pub(crate) fn name(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or(&self.url)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
pub(crate) const fn is_false(flag: &bool) -> bool {
    !*flag
}
