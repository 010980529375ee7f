//! `random-audio`: recordings of drawn tones or noise, of drawn lengths.

use serde::{Deserialize, Serialize};

use super::error::ReportError;
use super::lengths;
use super::rules::{Facts, PromptForm, Rules};
use crate::config::profile::Profile;

/// Bytes of a sample.
const SAMPLE_BYTES: u64 = 2;
/// The longest recording in seconds: a day.
const MAX_SECONDS: f64 = 86_400.0;
/// Sample rates that are common: from telephones to studios.
const SAMPLE_RATES: std::ops::RangeInclusive<u32> = 4_000..=192_000;

/// The options of `random-audio`, as `with_dataset_options!` describes them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct RandomAudio {
    /// Limit of output tokens; without it the recording decides.
    pub(crate) output_len: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) audio: Option<Recordings>,
}

impl RandomAudio {
    pub(crate) fn recordings(&self) -> Recordings {
        self.audio.clone().unwrap_or_default()
    }
}

/// The recordings of `random-audio`: WAV files of one channel with 16-bit samples.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Recordings {
    /// Length in seconds, the maximum if `range_ratio` is below 1; default 10.
    pub(crate) seconds: f64,
    /// Lengths are drawn between this share of `seconds` and `seconds`; default 1: all have the maximum.
    pub(crate) range_ratio: f64,
    /// Samples per second; default 16000.
    pub(crate) sample_rate: u32,
    /// What the recordings consist of; default `tones`.
    pub(crate) content: AudioContent,
}

/// What recordings consist of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AudioContent {
    /// Tones of drawn pitch and loudness, each a fifth of a second long, about as fast as syllables.
    #[default]
    Tones,
    /// Noise: each sample is drawn.
    Noise,
}

impl AudioContent {
    /// Its name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tones => "tones",
            Self::Noise => "noise",
        }
    }
}

impl Default for Recordings {
    fn default() -> Self {
        Self {
            seconds: 10.0,
            range_ratio: 1.0,
            sample_rate: 16_000,
            content: AudioContent::default(),
        }
    }
}

impl Recordings {
    /// Length in milliseconds, at most.
    pub(crate) fn max_millis(&self) -> u32 {
        (self.seconds * 1e3).round() as u32
    }
}

impl Rules for RandomAudio {
    fn facts(&self) -> Facts<'_> {
        Facts {
            prompts: PromptForm::Audio,
            output_len: self.output_len,
            output_flag: Some("audio-output-len"),
            ..Facts::default()
        }
    }

    fn audio_bytes(&self) -> u64 {
        let audio = self.recordings();
        (audio.seconds * f64::from(audio.sample_rate)) as u64 * SAMPLE_BYTES
    }

    fn lengths(&self, _profile: Profile) -> String {
        let audio = self.recordings();
        let low = audio.seconds * audio.range_ratio;
        match audio.range_ratio < 1.0 {
            true => format!("recordings of {low} to {} s as input", audio.seconds),
            false => format!("recordings of {} s as input", audio.seconds),
        }
    }

    fn find_errors(&self, _profile: Profile, report: &mut ReportError<'_>) {
        lengths::no_answer(self.output_len, report);
        let audio = self.recordings();
        // A millisecond is the unit in which lengths are drawn.
        if !(0.001..=MAX_SECONDS).contains(&audio.seconds) {
            let seconds = audio.seconds;
            report(
                "audio",
                format!("`seconds` is {seconds}; write a number from 0.001 to {MAX_SECONDS}"),
            );
        }
        if !(0.0..=1.0).contains(&audio.range_ratio) {
            let ratio = audio.range_ratio;
            report(
                "audio",
                format!("`range_ratio` is {ratio}; write a number from 0 to 1"),
            );
        }
        if !SAMPLE_RATES.contains(&audio.sample_rate) {
            let (rate, low, high) = (audio.sample_rate, SAMPLE_RATES.start(), SAMPLE_RATES.end());
            report(
                "audio",
                format!("`sample_rate` is {rate}; write a number of samples per second from {low} to {high}"),
            );
        }
    }
}
