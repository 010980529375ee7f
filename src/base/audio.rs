//! Audio files: which formats there are, and how long a recording is.

mod wav;

pub(crate) use wav::{Wav, wav_file};

/// The longest recording in seconds: 7 days. A head or a data set that says more is wrong.
pub(crate) const MAX_SECONDS: f64 = 7.0 * 86_400.0;
/// The smallest frame of a FLAC file in bytes: its head, one constant for all samples, and its checksum.
const MIN_FLAC_FRAME: u64 = 10;

/// The format of an audio file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AudioFormat {
    Wav,
    Flac,
    Mp3,
    Mp4,
    Ogg,
    Webm,
}

/// Endings of file names with their formats.
const ENDINGS: [(&str, AudioFormat); 9] = [
    ("wav", AudioFormat::Wav),
    ("flac", AudioFormat::Flac),
    ("mp3", AudioFormat::Mp3),
    ("mpga", AudioFormat::Mp3),
    ("m4a", AudioFormat::Mp4),
    ("mp4", AudioFormat::Mp4),
    ("ogg", AudioFormat::Ogg),
    ("opus", AudioFormat::Ogg),
    ("webm", AudioFormat::Webm),
];

impl AudioFormat {
    /// Returns the format of a file by the ending of its name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let (_, ending) = name.rsplit_once('.')?;
        let known = ENDINGS
            .iter()
            .find(|(known, _)| ending.eq_ignore_ascii_case(known));
        known.map(|(_, format)| *format)
    }

    /// Returns the endings of file names that are recognised, for messages.
    pub(crate) fn endings() -> String {
        ENDINGS.map(|(ending, _)| format!("`.{ending}`")).join(", ")
    }

    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Wav => "audio/wav",
            Self::Flac => "audio/flac",
            Self::Mp3 => "audio/mpeg",
            Self::Mp4 => "audio/mp4",
            Self::Ogg => "audio/ogg",
            Self::Webm => "audio/webm",
        }
    }

    /// Returns the length of a recording in seconds; `None` if the head of the file does not tell it. Fails with a reason
    /// if the file has another format, or says a length that cannot be.
    pub(crate) fn seconds(self, file: &[u8]) -> Result<Option<f64>, String> {
        let seconds = match self {
            Self::Wav => Wav::read(file)?.seconds(),
            Self::Flac => flac_seconds(file)?,
            Self::Mp3 | Self::Mp4 | Self::Ogg | Self::Webm => None,
        };
        match seconds {
            Some(seconds) if seconds > MAX_SECONDS => Err(format!(
                "the header of the file says that the audio takes {seconds:.0} s, but at most {MAX_SECONDS} s (7 days) are allowed; the sample rate in the header may be wrong"
            )),
            seconds => Ok(seconds),
        }
    }
}

/// Reads the length from the first block of a FLAC file; `None` if the encoder did not know it, or the file is too small for it.
fn flac_seconds(file: &[u8]) -> Result<Option<f64>, String> {
    // Behind the mark and the head of the block: four bytes of block sizes and six of frame sizes.
    const LARGEST_BLOCK: usize = 4 + 4 + 2;
    const RATE: usize = 4 + 4 + 10;
    let facts = file
        .get(RATE..RATE + 8)
        .filter(|_| file.starts_with(b"fLaC") && file[4] & 0x7f == 0);
    let Some(facts) = facts else {
        return Err(
            "the file is not a FLAC file: it does not begin with `fLaC` and its stream information"
                .to_owned(),
        );
    };
    let bits = u64::from_be_bytes(facts.try_into().expect("eight bytes"));
    // 20 bits of rate, 3 of channels, 5 of sample size, 36 of the number of samples.
    let (rate, samples) = (bits >> 44, bits & ((1 << 36) - 1));
    if rate == 0 {
        return Err("the stream information of the FLAC file has no sample rate".to_owned());
    }
    // Samples of a frame.
    let block = match u16::from_be_bytes([file[LARGEST_BLOCK], file[LARGEST_BLOCK + 1]]) {
        0 => u16::MAX,
        block => block,
    };
    let least_bytes = samples.div_ceil(u64::from(block)) * MIN_FLAC_FRAME;
    let is_plausible = samples > 0 && least_bytes <= file.len() as u64;
    Ok(is_plausible.then(|| samples as f64 / rate as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_flac_file_is_that_of_its_stream_information() {
        let flac = |rate: u64, samples: u64| {
            let facts = rate << 44 | 15 << 36 | samples;
            [&b"fLaC\0\0\0\x22"[..], &[0; 10], &facts.to_be_bytes(), &[0; 16]].concat()
        };
        assert_eq!(AudioFormat::Flac.seconds(&flac(16_000, 40_000)), Ok(Some(2.5)));
        assert_eq!(AudioFormat::Flac.seconds(&flac(16_000, 0)), Ok(None));
        assert!(AudioFormat::Flac.seconds(&flac(0, 1)).is_err());
        // More samples than any encoder can put into so few bytes.
        let frames = [flac(16_000, (1 << 36) - 1), vec![0; 10_000]].concat();
        assert_eq!(AudioFormat::Flac.seconds(&frames), Ok(None));
        // 2000 frames of 4096 samples need 20 kB.
        let mut blocks = flac(16_000, 2000 * 4096);
        blocks[10..12].copy_from_slice(&4096_u16.to_be_bytes());
        blocks.resize(19_999, 0);
        assert_eq!(AudioFormat::Flac.seconds(&blocks), Ok(None));
        blocks.push(0);
        assert_eq!(AudioFormat::Flac.seconds(&blocks), Ok(Some(512.0)));
        assert!(AudioFormat::Flac.seconds(b"RIFF").is_err());
    }

    #[test]
    fn a_head_that_says_more_than_a_week_is_refused() {
        let file = |seconds| wav_file(1, 1, &vec![0; seconds]);
        assert_eq!(AudioFormat::Wav.seconds(&file(604_800)), Ok(Some(MAX_SECONDS)));
        let error = AudioFormat::Wav.seconds(&file(604_801)).unwrap_err();
        assert!(
            error.contains("audio takes 604801 s, but at most 604800 s (7 days)"),
            "{error}"
        );
    }

    #[test]
    fn formats_are_recognised_by_their_names() {
        for (name, format) in [
            ("a.WAV", Some(AudioFormat::Wav)),
            ("b.c.flac", Some(AudioFormat::Flac)),
            ("c.mp3", Some(AudioFormat::Mp3)),
            ("d.txt", None),
            ("wav", None),
        ] {
            assert_eq!(AudioFormat::from_name(name), format, "{name}");
        }
        assert_eq!(AudioFormat::Mp3.seconds(b"anything"), Ok(None));
    }
}
