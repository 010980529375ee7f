//! WAV files: what their heads say, where their samples are, and files of 16-bit samples.

use std::ops::Range;

/// Bytes of the head of a WAV file that [`wav_file`] writes.
const WAV_HEAD_BYTES: u32 = 44;
/// The format code of WAV files with integer samples.
const PCM: u16 = 1;
/// The format codes whose samples all have the same number of bytes: integers, floats, A-law and µ-law.
const UNCOMPRESSED: [u16; 4] = [PCM, 3, A_LAW, MU_LAW];
/// The format codes whose samples have 8 bits, whatever the head says.
const A_LAW: u16 = 6;
const MU_LAW: u16 = 7;
/// The format code of WAV files whose own format stands in an extension.
const EXTENSIBLE: u16 = 0xfffe;
/// Chunks that stand behind the samples of known programs. `data` and `fmt ` are among them, because a second one is refused.
const KNOWN_CHUNKS: [&[u8; 4]; 26] = [
    b"data", b"fmt ", b"LIST", b"id3 ", b"ID3 ", b"fact", b"cue ", b"smpl", b"inst", b"plst", b"acid",
    b"bext", b"iXML", b"_PMX", b"axml", b"chna", b"cart", b"PEAK", b"levl", b"DISP", b"afsp", b"umid",
    b"JUNK", b"junk", b"PAD ", b"FLLR",
];
/// The largest number of chunks that are searched behind samples of open length.
const MAX_CHUNKS_BEHIND: usize = 64;

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
    /// Reads the chunks of a WAV file.
    pub(crate) fn read(file: &[u8]) -> Result<Self, String> {
        let is_wav = file.starts_with(b"RIFF") && file.get(8..12) == Some(b"WAVE");
        if !is_wav {
            return Err("the file is not a WAV file: it does not begin with `RIFF` and `WAVE`".to_owned());
        }
        let (mut format, mut samples) = (None, None);
        let mut at = 12;
        while let Some((name, length)) = chunk_head(file, at) {
            let content = at + 8;
            let mut end = content + length as usize;
            match name {
                b"fmt " if format.is_some() => return Err(several("fmt ")),
                b"fmt " => format = file.get(content..end.min(file.len())),
                b"data" if samples.is_some() => return Err(several("data")),
                b"data" => {
                    end = samples_end(file, content, length)?;
                    samples = Some((content..end, format.ok_or_else(no_format)?));
                }
                _ => {}
            }
            // Chunks begin at even places.
            at = end + ((end - content) & 1);
        }
        let (samples, format) = samples.ok_or("the WAV file has no samples: there is no `data` chunk")?;
        Self::with_format(format, samples)
    }

    fn with_format(format: &[u8], samples: Range<usize>) -> Result<Self, String> {
        let fields = || {
            let code = u16_at(format, 0)?;
            let sub_code = u16_at(format, 24).filter(|_| code == EXTENSIBLE);
            let (channels, rate) = (u16_at(format, 2)?, u32_at(format, 4)?);
            let stated = (u16_at(format, 12)?, u32_at(format, 8)?);
            Some((
                sub_code.unwrap_or(code),
                channels,
                rate,
                stated,
                u16_at(format, 14)?,
            ))
        };
        let (code, channels, rate, stated, bits) = fields().ok_or_else(no_format)?;
        if channels == 0 || rate == 0 {
            return Err("the `fmt ` chunk of the WAV file has no channels or no sample rate".to_owned());
        }
        let bits = match code {
            A_LAW | MU_LAW => 8,
            _ => bits,
        };
        let frame = u64::from(channels) * u64::from(bits.div_ceil(8));
        let is_known = UNCOMPRESSED.contains(&code) && frame > 0;
        let bytes_per_second = is_known.then(|| u64::from(rate) * frame);
        // Decoders read different ones of these fields, so one that disagrees is ignored, and two are not.
        let (block_align, byte_rate) = stated;
        if let Some(bytes_per_second) = bytes_per_second
            && stated != (0, 0)
            && u64::from(block_align) != frame
            && u64::from(byte_rate) != bytes_per_second
        {
            return Err(format!(
                "the `fmt ` chunk of the WAV file contradicts itself; convert the file. {bits} bits, {channels} channels and {rate} Hz \
                 make {frame} bytes for all channels and {bytes_per_second} per second, but the chunk says {block_align} (block \
                 align) and {byte_rate} (byte rate)"
            ));
        }
        Ok(Self {
            channels,
            rate,
            bits,
            bytes_per_second,
            is_pcm: code == PCM,
            samples,
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

fn no_format() -> String {
    "the `fmt ` chunk of the WAV file is missing or incomplete".to_owned()
}

fn several(chunk: &str) -> String {
    format!(
        "the WAV file has several `{chunk}` chunks, and decoders do not agree which one to use; convert the file"
    )
}

/// Returns where the samples end that begin here.
fn samples_end(file: &[u8], begin: usize, length: u32) -> Result<usize, String> {
    let rest = file.len() - begin;
    match length as usize {
        // A program that writes to a pipe does not know the length.
        _ if matches!(length, 0 | u32::MAX) => Ok(open_end(file, begin)),
        length if length > rest => Err(format!(
            "the WAV file is cut off: its header says {length} bytes of samples, but only {rest} follow"
        )),
        length => Ok(begin + length),
    }
}

/// Returns where samples of unknown length end: before the known chunks that lead exactly to the end of the file.
fn open_end(file: &[u8], begin: usize) -> usize {
    let mut chunks: Vec<usize> = Vec::new();
    // From the end, so that each place is looked at once.
    for at in (begin..file.len()).step_by(2).rev() {
        let Some((name, length)) = chunk_head(file, at) else {
            continue;
        };
        let end = at + 8 + length as usize;
        let next = end + (length as usize & 1);
        let leads_to_end = end == file.len() || next == file.len() || chunks.contains(&next);
        if leads_to_end && KNOWN_CHUNKS.contains(&name) {
            chunks.push(at);
            if chunks.len() == MAX_CHUNKS_BEHIND {
                break;
            }
        }
    }
    chunks.last().copied().unwrap_or(file.len())
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

    /// A file with 32,000 bytes of samples at 16,000 Hz, and these fields in its head.
    fn with_format(code: u16, bits: u16, block_align: u16, byte_rate: u32) -> Vec<u8> {
        let mut file = wav_file(1, 16_000, &[7; 16_000]);
        file[20..22].copy_from_slice(&code.to_le_bytes());
        file[28..32].copy_from_slice(&byte_rate.to_le_bytes());
        file[32..34].copy_from_slice(&block_align.to_le_bytes());
        file[34..36].copy_from_slice(&bits.to_le_bytes());
        file
    }

    #[test]
    fn a_head_that_contradicts_itself_is_refused() {
        for (code, bits, block_align, byte_rate, seconds) in [
            (PCM, 16, 2, 32_000, 1.0),
            // One of the two fields may be wrong, and both may be missing.
            (PCM, 16, 4, 32_000, 1.0),
            (PCM, 16, 2, 1, 1.0),
            (PCM, 16, 0, 0, 1.0),
            (PCM, 12, 2, 32_000, 1.0),
            (A_LAW, 8, 1, 16_000, 2.0),
            (A_LAW, 16, 1, 16_000, 2.0),
            (MU_LAW, 0, 1, 16_000, 2.0),
        ] {
            let file = with_format(code, bits, block_align, byte_rate);
            let wav = Wav::read(&file).unwrap();
            assert_eq!(
                wav.seconds(),
                Some(seconds),
                "{code} {bits} {block_align} {byte_rate}"
            );
        }
        for (code, bits, block_align, byte_rate, says) in [
            (
                PCM,
                24,
                4,
                64_000,
                "24 bits, 1 channels and 16000 Hz make 3 bytes",
            ),
            (
                PCM,
                8,
                2,
                32_000,
                "1 bytes for all channels and 16000 per second, but the chunk says 2",
            ),
            (3, 32, 8, 128_000, "contradicts itself"),
            (A_LAW, 16, 2, 32_000, "8 bits, 1 channels"),
        ] {
            let error = Wav::read(&with_format(code, bits, block_align, byte_rate)).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        // Compressed samples have no such sizes.
        assert_eq!(Wav::read(&with_format(2, 4, 256, 8110)).unwrap().seconds(), None);
    }

    fn chunk(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
        let length = u32::try_from(content.len()).unwrap().to_le_bytes();
        let pad = &[0][..content.len() & 1];
        [&name[..], &length, content, pad].concat()
    }

    #[test]
    fn chunks_behind_samples_of_open_length_are_no_samples() {
        let plain = wav_file(1, 16_000, &[7; 1600]);
        let list = chunk(b"LIST", b"INFOISFT\x04\0\0\0abc\0");
        let tag = chunk(b"id3 ", b"odd");
        let unpadded = &tag[..tag.len() - 1];
        for (behind, samples) in [
            (vec![], 3200),
            (list.clone(), 3200),
            ([&list[..], &tag].concat(), 3200),
            ([&list[..], unpadded].concat(), 3200),
            // These do not lead to the end, or are not known: they may be samples.
            ([&list[..], b"ab"].concat(), 3200 + list.len() + 2),
            (list[..list.len() - 2].to_vec(), 3200 + list.len() - 2),
            (chunk(b"\x01\0\x02\0", b"ab"), 3210),
        ] {
            for open in [0, u32::MAX] {
                let mut file = plain.clone();
                file[40..44].copy_from_slice(&open.to_le_bytes());
                file.extend_from_slice(&behind);
                assert_eq!(Wav::read(&file).unwrap().samples, 44..44 + samples, "{behind:?}");
            }
        }
        // No samples at all.
        let empty = [&wav_file(1, 16_000, &[])[..], &list].concat();
        assert_eq!(Wav::read(&empty).unwrap().seconds(), Some(0.0));
        // Many chunks end the search.
        let many = [&wav_file(1, 16_000, &[])[..], &chunk(b"JUNK", b"").repeat(1000)].concat();
        let found = Wav::read(&many).unwrap().samples;
        assert_eq!(found.len(), 8 * (1000 - MAX_CHUNKS_BEHIND));
    }

    #[test]
    fn several_chunks_of_samples_or_of_the_format_are_refused() {
        let plain = wav_file(1, 16_000, &[7; 1600]);
        let samples = chunk(b"data", &[7; 3200]);
        let format = chunk(b"fmt ", &plain[20..36]);
        let mut empty = plain[..44].to_vec();
        empty[40..44].fill(0);
        for (file, says) in [
            ([&plain[..], &samples].concat(), "several `data` chunks"),
            ([&plain[..], &format].concat(), "several `fmt ` chunks"),
            (
                [&plain[..12], &format, &plain[12..]].concat(),
                "several `fmt ` chunks",
            ),
            // An empty one that a real one follows.
            ([&empty[..], &samples].concat(), "several `data` chunks"),
            (
                [&plain[..12], &samples, &format].concat(),
                "missing or incomplete",
            ),
        ] {
            let error = Wav::read(&file).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        // One within another chunk is not one of the file.
        let list = chunk(b"LIST", &samples);
        let file = [&plain[..36], &list, &plain[36..]].concat();
        assert_eq!(Wav::read(&file).unwrap().seconds(), Some(0.1));
    }

    #[test]
    fn what_is_no_wav_file_or_cut_is_refused_with_the_reason() {
        let file = wav_file(1, 16_000, &[7; 1600]);
        for (bytes, reason) in [
            (&b"ID3"[..], "does not begin with `RIFF`"),
            (&file[..20], "no `data` chunk"),
            (
                &file[..file.len() - 2],
                "says 3200 bytes of samples, but only 3198 follow",
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
