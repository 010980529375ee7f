//! Shared code of the data sets with images: encoding, placeholders in the chat template, and the token
//! breakdown.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};
use serde_json::{Value, json};

use super::template::{ChatTemplate, TemplateError};
use super::{Content, Prompt};
use crate::config::dataset::image::PictureFormat;

/// The quality of all JPEG files.
const JPEG_QUALITY: u8 = 85;

/// An image with three bytes per pixel, line by line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RgbImage {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) pixels: Vec<u8>,
}

impl RgbImage {
    /// Decodes an image file without its transparency.
    pub(super) fn decode(file: &[u8]) -> Result<Self, String> {
        let picture = image::load_from_memory(file)
            .map_err(|error| error.to_string())?
            .into_rgb8();
        Ok(Self {
            width: picture.width(),
            height: picture.height(),
            pixels: picture.into_raw(),
        })
    }

    /// Encodes the image as a data URI. The pixels equal the Python tool's; the bytes differ, because the
    /// encoder does.
    pub(super) fn data_uri(&self, format: PictureFormat) -> Arc<str> {
        let mut file = Vec::new();
        let color = ExtendedColorType::Rgb8;
        let written = match format {
            PictureFormat::Jpeg => {
                let encoder = JpegEncoder::new_with_quality(&mut file, JPEG_QUALITY);
                encoder.write_image(&self.pixels, self.width, self.height, color)
            }
            PictureFormat::Png => {
                PngEncoder::new(&mut file).write_image(&self.pixels, self.width, self.height, color)
            }
        };
        written.expect("memory takes a picture of at most 16384 lines");
        let mut uri = format!("data:image/{};base64,", format.name());
        STANDARD.encode_string(&file, &mut uri);
        uri.into()
    }
}

/// Encodes several images as data URIs, on all cores.
pub(super) fn data_uris(pictures: &[RgbImage], format: PictureFormat) -> Vec<Arc<str>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let share = pictures.len().div_ceil(cores).max(1);
    std::thread::scope(|scope| {
        let encode = |pictures: &[RgbImage]| {
            pictures
                .iter()
                .map(|picture| picture.data_uri(format))
                .collect::<Vec<_>>()
        };
        let workers: Vec<_> = pictures
            .chunks(share)
            .map(|share| {
                (
                    share,
                    std::thread::Builder::new().spawn_scoped(scope, move || encode(share)),
                )
            })
            .collect();
        let encoded = workers.into_iter().map(|(share, worker)| match worker {
            Ok(worker) => worker.join().expect("encoding does not panic"),
            // No thread could be started.
            Err(_) => encode(share),
        });
        encoded.flatten().collect()
    })
}

/// Returns the lines that the Python tool prints after its sums: the tokens of the text, the template and the
/// images.
///
/// Only the server knows the tokens of an image, so that line has no numbers.
pub(super) fn token_breakdown(raw: &[u64], prompts: &[Prompt]) -> Vec<String> {
    let templated: u64 = prompts.iter().map(|prompt| u64::from(prompt.prompt_tokens)).sum();
    let raw: u64 = raw.iter().sum();
    let count = prompts.len().max(1) as f64;
    let overhead = i128::from(templated) - i128::from(raw);
    vec![
        String::new(),
        "=== Token Breakdown (per request avg / total) ===".to_owned(),
        format!(
            "  Raw text prompt tokens (without overhead): avg={:.1}, total={raw}",
            raw as f64 / count
        ),
        format!(
            "  Text prompt tokens (with chat template): avg={:.1}, total={templated}",
            templated as f64 / count
        ),
        format!(
            "  Text prompt overhead: avg={:.1}, total={overhead}",
            overhead as f64 / count
        ),
        "  Vision tokens: avg=–, total=–".to_owned(),
    ]
}

/// Converts a prompt with images for servers that insert images into a text: the chat template writes a
/// placeholder for each image. Other prompts stay unchanged.
///
/// # Errors
/// The template rejects images.
pub(crate) fn with_placeholders(
    content: &Content,
    template: &ChatTemplate,
) -> Result<Content, TemplateError> {
    let Content::Images { text, images } = content else {
        return Ok(content.clone());
    };
    let pictures = images.iter().map(|_| json!({"type": "image"}));
    let parts: Vec<Value> = pictures.chain([json!({"type": "text", "text": text})]).collect();
    Ok(Content::Images {
        text: template.render(&[json!({"role": "user", "content": parts})], None, true)?,
        images: images.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_survive_their_encoding() {
        let picture = RgbImage {
            width: 3,
            height: 2,
            pixels: (0..18).map(|at| at * 13).collect(),
        };
        let uris = data_uris(
            &[picture.clone(), picture.clone(), picture.clone()],
            PictureFormat::Png,
        );
        assert_eq!(uris.len(), 3);
        let file = STANDARD
            .decode(uris[2].strip_prefix("data:image/png;base64,").unwrap())
            .unwrap();
        assert_eq!(RgbImage::decode(&file), Ok(picture.clone()));
        let jpeg = picture.data_uri(PictureFormat::Jpeg);
        let file = STANDARD
            .decode(jpeg.strip_prefix("data:image/jpeg;base64,").unwrap())
            .unwrap();
        let decoded = RgbImage::decode(&file).unwrap();
        assert_eq!((decoded.width, decoded.height, decoded.pixels.len()), (3, 2, 18));
        assert!(RgbImage::decode(b"no picture").is_err());
    }
}
