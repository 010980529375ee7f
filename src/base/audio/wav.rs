//! WAV files: what their heads say, where their samples are, and files of 16-bit samples.

use std::ops::Range;

/// Bytes of the head of a WAV file that [`wav_file`] writes.
const WAV_HEAD_BYTES: u32 = 44;
/// The format code of WAV files with integer samples.
const PCM: u16 = 1;
/// The format codes whose samples all have the same number of bytes: integers, floats, A-law and µ-law.
const UNCOMPRESSED: [u16; 4] = [PCM, 3, 6, 7];
/// The format code of WAV files whose own format stands in an extension.
const EXTENSIBLE: u16 = 0xfffe;

/// The facts of a WAV file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wav {
    pub(crate) channels: u16,
    /// Samples per second of one channel.
    pub(crate) rate: u32,
    pub(crate) bits: u16,
    /// The bytes of one second; `None` if samples are compressed.
    bytes_per_second: Option<u64>,
    is_pcm: bool,
    /// Where the samples are in the file.
    pub(crate) samples: Range<usize>,
}

impl Wav {
    /// Reads the chunks of a WAV file up to its samples.
    pub(crate) fn read(file: &[u8]) -> Result<Self, String> {
        let is_wav = file.starts_with(b"RIFF") && file.get(8..12) == Some(b"WAVE");
        if !is_wav {
            return Err("it is not a WAV file: it does not begin with `RIFF` and `WAVE`".to_owned());
        }
        let mut format = None;
        let mut at = 12;
        while let Some((name, length)) = chunk_head(file, at) {
            let content = at + 8;
            match name {
                b"fmt " => format = file.get(content..),
                b"data" => return Self::with_samples(file, format, content, length),
                _ => {}
            }
            // Chunks begin at even places.
            at = content + length as usize + (length as usize & 1);
        }
        Err("it has no samples: there is no `data` chunk".to_owned())
    }

    fn with_samples(file: &[u8], format: Option<&[u8]>, begin: usize, length: u32) -> Result<Self, String> {
        let fields = format.and_then(|format| {
            let code = u16_at(format, 0)?;
            let sub_code = u16_at(format, 24).filter(|_| code == EXTENSIBLE);
            Some((
                sub_code.unwrap_or(code),
                u16_at(format, 2)?,
                u32_at(format, 4)?,
                u16_at(format, 14)?,
            ))
        });
        let Some((code, channels, rate, bits)) = fields else {
            return Err("its `fmt ` chunk is missing or cut".to_owned());
        };
        if channels == 0 || rate == 0 {
            return Err("its `fmt ` chunk has no channels or no sample rate".to_owned());
        }
        // The head's own bytes per second follow from the other fields, and decoders do not read them.
        let frame = u64::from(channels) * u64::from(bits.div_ceil(8));
        let bytes_per_second = (UNCOMPRESSED.contains(&code) && frame > 0).then(|| u64::from(rate) * frame);
        let rest = file.len() - begin;
        // A program that writes to a pipe does not know the length.
        let is_open = matches!(length, 0 | u32::MAX);
        let length = if is_open { rest } else { length as usize };
        if length > rest {
            return Err(format!(
                "it is cut: its head says {length} bytes of samples, and {rest} follow"
            ));
        }
        Ok(Self {
            channels,
            rate,
            bits,
            bytes_per_second,
            is_pcm: code == PCM,
            samples: begin..begin + length,
        })
    }

    /// Returns the length in seconds; `None` if it depends on compressed samples.
    pub(crate) fn seconds(&self) -> Option<f64> {
        Some(self.samples.len() as f64 / self.bytes_per_second? as f64)
    }

    /// Returns the samples of a file with 16-bit samples, channels in turn; `None` for other files.
    pub(crate) fn samples_16(&self, file: &[u8]) -> Option<Vec<i16>> {
        let bytes = file.get(self.samples.clone())?;
        let is_16_bit = self.is_pcm && self.bits == 16;
        is_16_bit.then(|| {
            bytes
                .as_chunks::<2>()
                .0
                .iter()
                .map(|pair| i16::from_le_bytes(*pair))
                .collect()
        })
    }
}

/// Writes a WAV file with 16-bit samples, channels in turn.
pub(crate) fn wav_file(channels: u16, rate: u32, samples: &[i16]) -> Vec<u8> {
    let block = channels * 2;
    let length = u32::try_from(samples.len() * 2).expect("a recording has less than 4 GB of samples");
    let mut file = Vec::with_capacity(WAV_HEAD_BYTES as usize + length as usize);
    file.extend_from_slice(b"RIFF");
    file.extend((WAV_HEAD_BYTES - 8 + length).to_le_bytes());
    file.extend_from_slice(b"WAVEfmt ");
    file.extend(16_u32.to_le_bytes());
    file.extend(PCM.to_le_bytes());
    file.extend(channels.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend((rate * u32::from(block)).to_le_bytes());
    file.extend(block.to_le_bytes());
    file.extend(16_u16.to_le_bytes());
    file.extend_from_slice(b"data");
    file.extend(length.to_le_bytes());
    file.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    file
}

fn chunk_head(file: &[u8], at: usize) -> Option<(&[u8; 4], u32)> {
    let name = file.get(at..)?.first_chunk()?;
    Some((name, u32_at(file, at + 4)?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::audio::AudioFormat;

    #[test]
    fn a_wav_file_is_read_as_it_was_written() {
        let samples: Vec<i16> = (0..8000).map(|at| (at % 100) as i16 - 50).collect();
        let file = wav_file(2, 8000, &samples);
        let wav = Wav::read(&file).unwrap();
        assert_eq!(
            (wav.channels, wav.rate, wav.bits, wav.seconds()),
            (2, 8000, 16, Some(0.5))
        );
        assert_eq!(wav.samples_16(&file), Some(samples));
        assert_eq!(AudioFormat::Wav.seconds(&file), Ok(Some(0.5)));
    }

    #[test]
    fn chunks_before_the_samples_are_skipped_and_an_open_length_is_the_rest() {
        let plain = wav_file(1, 16_000, &[7; 1600]);
        let mut file = plain[..12].to_vec();
        file.extend_from_slice(b"LIST\x03\0\0\0abc\0");
        file.extend_from_slice(&plain[12..]);
        assert_eq!(Wav::read(&file).unwrap().seconds(), Some(0.1));
        for open in [0, u32::MAX] {
            let mut file = plain.clone();
            file[40..44].copy_from_slice(&open.to_le_bytes());
            assert_eq!(Wav::read(&file).unwrap().seconds(), Some(0.1));
        }
    }

    #[test]
    fn the_length_is_that_of_the_samples_and_unknown_if_they_are_compressed() {
        let mut file = wav_file(1, 16_000, &[7; 1600]);
        for own_rate in [0, 16_000, 1_920_000_u32] {
            file[28..32].copy_from_slice(&own_rate.to_le_bytes());
            assert_eq!(Wav::read(&file).unwrap().seconds(), Some(0.1));
        }
        // ADPCM.
        file[20..22].copy_from_slice(&2_u16.to_le_bytes());
        assert_eq!(Wav::read(&file).unwrap().seconds(), None);
    }

    #[test]
    fn what_is_no_wav_file_or_cut_is_refused_with_the_reason() {
        let file = wav_file(1, 16_000, &[7; 1600]);
        for (bytes, reason) in [
            (&b"ID3"[..], "does not begin with `RIFF`"),
            (&file[..20], "no `data` chunk"),
            (
                &file[..file.len() - 2],
                "says 3200 bytes of samples, and 3198 follow",
            ),
        ] {
            let error = Wav::read(bytes).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        let mut silent = file.clone();
        silent[24..28].fill(0);
        assert!(Wav::read(&silent).unwrap_err().contains("no sample rate"));
        // No prefix of a file makes it panic.
        (0..file.len()).for_each(|end| drop(Wav::read(&file[..end])));
    }
}
