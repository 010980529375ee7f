//! The `random-audio` data set: recordings of drawn tones or noise, of drawn lengths.
//!
//! Only integers are computed with, so that a seed makes the same bytes on every machine.

use std::sync::Arc;

use super::audio::{audio_lines, audio_prompt};
use super::audio_clip::AudioClip;
use super::random::draw_lengths;
use super::{DatasetError, MakeRows, RngState, RowInputs, Rows};
use crate::config::dataset::random_audio::{AudioContent, RandomAudio, Recordings};
use crate::loadgen::dataset::rng::Numpy;

/// Length of a tone in milliseconds.
const TONE_MILLIS: u32 = 200;
/// The lowest and the highest pitch in hertz: those of voices.
const PITCHES: (u64, u64) = (80, 400);
/// The smallest and the largest amplitude of a tone.
const AMPLITUDES: (u64, u64) = (2_000, 16_000);
/// The largest amplitude of noise.
const NOISE_AMPLITUDE: i32 = 8_000;

impl MakeRows for RandomAudio {
    /// Draws all lengths, then the samples of one recording after another.
    fn rows(&self, inputs: &RowInputs<'_>, rng: &mut RngState) -> Result<Rows, DatasetError> {
        let recordings = self.recordings();
        let numpy = &mut rng.numpy;
        let lengths = draw_lengths(
            recordings.max_millis(),
            recordings.range_ratio,
            1,
            inputs.prompts,
            numpy,
        );
        let prompts = lengths.iter().enumerate().map(|(row, millis)| {
            let samples = draw_samples(&recordings, *millis, numpy);
            let clip = AudioClip::from_samples(&format!("{row}.wav"), recordings.sample_rate, &samples);
            audio_prompt(Arc::new(clip), self.output_len)
        });
        let mut rows = Rows::new(prompts.collect());
        rows.printed_lines = audio_lines(&rows.prompts);
        rows.printed_lines.push(format!(
            "Created {} of {}",
            rows.prompts.len(),
            recordings.content.name()
        ));
        Ok(rows)
    }
}

fn draw_samples(recordings: &Recordings, millis: u32, numpy: &mut Numpy) -> Vec<i16> {
    let rate = u64::from(recordings.sample_rate);
    let count = (rate * u64::from(millis) / 1000).max(1) as usize;
    match recordings.content {
        AudioContent::Noise => (0..count)
            .map(|_| scaled(numpy.word() as u16, NOISE_AMPLITUDE))
            .collect(),
        AudioContent::Tones => {
            let tone = (rate * u64::from(TONE_MILLIS) / 1000).max(1) as usize;
            let mut samples = Vec::with_capacity(count);
            while samples.len() < count {
                let pitch = numpy.randint(PITCHES.0, PITCHES.1 + 1);
                let amplitude = numpy.randint(AMPLITUDES.0, AMPLITUDES.1 + 1) as i32;
                let length = tone.min(count - samples.len()) as u64;
                samples.extend((0..length).map(|at| scaled(triangle(at * pitch, rate), amplitude)));
            }
            samples
        }
    }
}

/// Returns the height of a triangular wave after `cycles / rate` cycles, as a 16-bit number.
fn triangle(cycles: u64, rate: u64) -> u16 {
    let place = (cycles % rate) * 0x1_0000 / rate;
    let height = match place < 0x8000 {
        true => place * 2,
        false => 0x1_ffff - place * 2,
    };
    height as u16
}

/// Scales a number between 0 and its maximum to a sample between minus and plus the amplitude.
fn scaled(height: u16, amplitude: i32) -> i16 {
    let sample = (i32::from(height) - 0x8000) * amplitude / 0x8000;
    sample as i16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::audio::Wav;
    use crate::config::workload::{Profile, Workload};
    use crate::loadgen::dataset::tokenizer::Tokenizer;
    use crate::loadgen::dataset::{Content, PreparedPrompts, prepare};

    fn prepared(recordings: Recordings, seed: u64) -> PreparedPrompts {
        let mut workload = Workload::with(RandomAudio {
            output_len: Some(7),
            audio: Some(recordings),
        });
        workload.prompts = 20;
        prepare(&workload, Profile::Current, seed, &Tokenizer::bytes(), None).unwrap()
    }

    #[test]
    fn lengths_and_samples_come_from_the_seed() {
        for content in [AudioContent::Tones, AudioContent::Noise] {
            let recordings = Recordings {
                seconds: 0.5,
                range_ratio: 0.5,
                sample_rate: 8000,
                content,
            };
            let rows = |seed| prepared(recordings.clone(), seed);
            let (first, again, other) = (rows(1), rows(1), rows(2));
            assert_eq!((&first.prompts, &first.hash), (&again.prompts, &again.hash));
            assert_ne!(first.hash, other.hash);
            let mut lengths = Vec::new();
            for prompt in &first.prompts {
                let Content::Audio(clip) = &prompt.content else {
                    panic!("a recording");
                };
                let bytes = clip.bytes();
                let wav = Wav::read(&bytes).unwrap();
                assert_eq!((wav.channels, wav.rate, wav.bits), (1, 8000, 16));
                assert_eq!(wav.seconds(), clip.seconds());
                assert!(
                    wav.seconds()
                        .is_some_and(|seconds| (0.25..=0.5).contains(&seconds)),
                    "{:?}",
                    wav.seconds()
                );
                let samples = wav.samples_16(&bytes).unwrap();
                let loudest = samples.iter().map(|sample| sample.unsigned_abs()).max();
                assert!(loudest > Some(1500), "{content:?}: {loudest:?}");
                assert_eq!((prompt.prompt_tokens, prompt.output_tokens), (0, 7));
                lengths.push(samples.len());
            }
            lengths.sort_unstable();
            lengths.dedup();
            assert!(lengths.len() > 10, "{lengths:?}");
        }
    }

    #[test]
    fn a_tone_rises_and_falls_without_a_jump() {
        let rate = 16_000;
        let heights: Vec<i32> = (0..rate).map(|at| triangle(at * 100, rate).into()).collect();
        let steps = heights.windows(2).map(|pair| pair[0].abs_diff(pair[1]));
        assert!(steps.max() < Some(0x1_0000 * 2 * 101 / 16_000));
        assert!(heights.iter().max() > Some(&0xff00) && heights.iter().min() < Some(&0x100));
    }
}
