//! Recordings, as they are sent.

use std::path::Path;
use std::sync::Arc;

use crate::base::audio::{AudioFormat, wav_file};
use crate::base::ids::ContentHash;

/// A recording. Requests that send it share its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct AudioClip {
    name: String,
    format: AudioFormat,
    /// As they were read: an `Arc<[u8]>` would need a copy of them.
    bytes: Arc<Vec<u8>>,
    seconds: Option<f64>,
    digest: ContentHash,
}

// The only number in it is never NaN.
impl Eq for AudioClip {}

impl AudioClip {
    /// Takes the content of a file. `stated_seconds` is its length if the file itself does not tell it. Fails with a reason
    /// if the file cannot be what its name says.
    pub(crate) fn from_file(
        path: &Path,
        bytes: Vec<u8>,
        stated_seconds: Option<f64>,
    ) -> Result<Self, String> {
        let name = path
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let format = AudioFormat::from_name(&name)
            .ok_or_else(|| format!("the file name has none of the endings {}", AudioFormat::endings()))?;
        if bytes.is_empty() {
            return Err("it is empty".to_owned());
        }
        let seconds = format.seconds(&bytes)?.or(stated_seconds);
        if seconds == Some(0.0) {
            return Err("it has no samples".to_owned());
        }
        Ok(Self {
            digest: ContentHash::from_bytes(&bytes),
            name,
            format,
            bytes: Arc::new(bytes),
            seconds,
        })
    }

    /// Makes a WAV file of one channel.
    pub(crate) fn from_samples(name: &str, rate: u32, samples: &[i16]) -> Self {
        Self::from_wav(
            name,
            wav_file(1, rate, samples),
            samples.len() as f64 / f64::from(rate),
        )
    }

    /// Takes the bytes of a WAV file of this length.
    pub(crate) fn from_wav(name: &str, bytes: Vec<u8>, seconds: f64) -> Self {
        Self {
            name: name.to_owned(),
            format: AudioFormat::Wav,
            digest: ContentHash::from_bytes(&bytes),
            bytes: Arc::new(bytes),
            seconds: Some(seconds),
        }
    }

    /// The name of the file, without its folder.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn media_type(&self) -> &'static str {
        self.format.media_type()
    }

    /// Its length in seconds, if that is known.
    pub(crate) const fn seconds(&self) -> Option<f64> {
        self.seconds
    }

    pub(crate) fn bytes(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.bytes)
    }

    pub(crate) fn digest(&self) -> &ContentHash {
        &self.digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_file_are_not_copied() {
        let bytes = b"ID3".to_vec();
        let place = bytes.as_ptr();
        let clip = AudioClip::from_file(Path::new("a.mp3"), bytes, None).unwrap();
        assert_eq!(clip.bytes().as_ptr(), place);
    }
}
