//! `image`: images of random pixels with random text.

use std::fmt;
use std::str::FromStr;

#[cfg(test)]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::error::ReportError;
use super::lengths;
use super::rules::{Facts, PromptForm, Rules, TemplateUse};
use crate::config::profile::Profile;

/// The options of `image`, as `with_dataset_options!` describes them.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Image {
    /// Tokens in each prompt, at most; `None` only of imported results.
    pub(crate) input_len: Option<u32>,
    /// Tokens to ask for, at most; `None` only of imported results.
    pub(crate) output_len: Option<u32>,
    #[serde(default = "lengths::exact")]
    pub(crate) range_ratio: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pictures: Option<Pictures>,
}

impl Rules for Image {
    fn facts(&self) -> Facts<'_> {
        Facts {
            prompts: PromptForm::Pictures,
            template: TemplateUse::Required,
            ..Facts::of_drawn(self.input_len, self.output_len, self.range_ratio)
        }
    }

    fn image_bytes(&self) -> u64 {
        self.pictures.clone().unwrap_or_default().max_bytes()
    }

    fn find_errors(&self, _profile: Profile, report: &mut ReportError<'_>) {
        if let Some(why) = self.pictures.as_ref().and_then(Pictures::find_error) {
            report("pictures", why);
        }
    }
}

/// The images of `image`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Pictures {
    /// Number of images per request, the maximum if `is_count_drawn` is set; default 1.
    pub(crate) count: u32,
    /// Whether the number of images of each request is drawn between 1 and `count`; default `false`.
    pub(crate) is_count_drawn: bool,
    /// Size of the images; default `1080p`.
    pub(crate) resolution: Resolution,
    /// File format of the images; default `jpeg`.
    pub(crate) format: PictureFormat,
    /// Content of the images; default `random`.
    pub(crate) content: PictureContent,
}

impl Default for Pictures {
    fn default() -> Self {
        Self {
            count: 1,
            is_count_drawn: false,
            resolution: Resolution::HD,
            format: PictureFormat::default(),
            content: PictureContent::default(),
        }
    }
}

impl Pictures {
    /// Bytes of the encoded images of one request, at most: noise takes about 2 bytes of Base64 for each pixel as
    /// JPEG, and 4 as PNG.
    fn max_bytes(&self) -> u64 {
        const HEADERS: u64 = 1024;
        let pixels = u64::from(self.resolution.largest().width) * u64::from(self.resolution.largest().height);
        let bytes_per_pixel = match self.format {
            PictureFormat::Jpeg => 2,
            PictureFormat::Png => 4,
        };
        u64::from(self.count) * (HEADERS + pixels * bytes_per_pixel)
    }

    /// What is wrong with it, and how to fix it.
    pub(crate) fn find_error(&self) -> Option<String> {
        (self.count == 0).then(|| "`count` is 0 and must be at least 1".to_owned())
    }
}

/// File format of images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PictureFormat {
    /// JPEG with quality 85.
    #[default]
    Jpeg,
    /// PNG, compressed without loss.
    Png,
}

impl PictureFormat {
    /// Its name in a data URI and in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Jpeg => "jpeg",
            Self::Png => "png",
        }
    }
}

/// What the images show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PictureContent {
    /// Noise: each channel of each pixel is drawn.
    #[default]
    Random,
    /// Every pixel is white.
    Blank,
}

impl PictureContent {
    /// Its name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Blank => "blank",
        }
    }
}

/// Width and height in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// Pixels in a line.
    pub(crate) width: u32,
    pub(crate) height: u32,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.height, self.width)
    }
}

impl FromStr for Size {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (height, width) = text.split_once('x').ok_or(())?;
        let pixels = |text: &str| {
            text.parse()
                .ok()
                .filter(|pixels| (1..=16_384).contains(pixels))
                .ok_or(())
        };
        Ok(Self {
            width: pixels(width)?,
            height: pixels(height)?,
        })
    }
}

/// How large pictures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) enum Resolution {
    Fixed(Size),
    /// Width and height of each are drawn.
    Drawn {
        least: Size,
        most: Size,
    },
}

/// The sizes that have names.
const NAMED: [(&str, Size); 4] = [
    (
        "4k",
        Size {
            width: 3840,
            height: 2160,
        },
    ),
    (
        "1080p",
        Size {
            width: 1920,
            height: 1080,
        },
    ),
    (
        "720p",
        Size {
            width: 1280,
            height: 720,
        },
    ),
    (
        "360p",
        Size {
            width: 640,
            height: 360,
        },
    ),
];

impl Resolution {
    const HD: Self = Self::Fixed(NAMED[1].1);

    const fn largest(self) -> Size {
        match self {
            Self::Fixed(size) => size,
            Self::Drawn { most, .. } => most,
        }
    }
}

impl FromStr for Resolution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, size)) = NAMED.iter().find(|(name, _)| *name == text) {
            return Ok(Self::Fixed(*size));
        }
        let wrong = || {
            format!(
                "`{text}` is not a resolution; write `4k`, `1080p`, `720p`, `360p`, or height x width such as `480x640`, each from 1 to \
                 16384; `random:240x320-480x640` draws sizes between two resolutions"
            )
        };
        let Some(bounds) = text.strip_prefix("random:") else {
            return text.parse().map(Self::Fixed).map_err(|()| wrong());
        };
        let (least, most) = bounds.split_once('-').ok_or_else(wrong)?;
        let (least, most): (Size, Size) = least
            .parse()
            .and_then(|least| Ok((least, most.parse()?)))
            .map_err(|()| wrong())?;
        if least.width > most.width || least.height > most.height {
            return Err(format!(
                "the first size in `{text}` is larger than the second; write the smaller one first"
            ));
        }
        Ok(Self::Drawn { least, most })
    }
}

impl TryFrom<String> for Resolution {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Resolution> for String {
    fn from(resolution: Resolution) -> Self {
        match resolution {
            Resolution::Fixed(size) => match NAMED.iter().find(|(_, named)| *named == size) {
                Some((name, _)) => (*name).to_owned(),
                None => size.to_string(),
            },
            Resolution::Drawn { least, most } => format!("random:{least}-{most}"),
        }
    }
}

#[cfg(test)]
impl JsonSchema for Resolution {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Resolution".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Size of the images: `1080p`, `480x640` (height x width), or `random:240x320-480x640` to draw between two sizes.",
            "type": "string",
            "pattern": "^(4k|1080p|720p|360p|[0-9]+x[0-9]+|random:[0-9]+x[0-9]+-[0-9]+x[0-9]+)$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolutions_are_named_given_or_drawn() {
        let size = |height, width| Size { width, height };
        for (text, resolution) in [
            ("4k", Resolution::Fixed(size(2160, 3840))),
            ("360p", Resolution::Fixed(size(360, 640))),
            ("2x3", Resolution::Fixed(size(2, 3))),
            (
                "random:2x3-5x7",
                Resolution::Drawn {
                    least: size(2, 3),
                    most: size(5, 7),
                },
            ),
        ] {
            assert_eq!(text.parse(), Ok(resolution));
            assert_eq!(String::from(resolution), text);
        }
        for wrong in [
            "",
            "5k",
            "0x3",
            "2x",
            "2x3x4",
            "random:2x3",
            "20000x3",
            "random:5x7-2x3",
        ] {
            assert!(wrong.parse::<Resolution>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn pictures_have_the_usual_settings_unless_others_are_given() {
        let given: Pictures = serde_json::from_str(r#"{"count": 2, "format": "png"}"#).unwrap();
        assert_eq!(
            given,
            Pictures {
                count: 2,
                format: PictureFormat::Png,
                ..Pictures::default()
            }
        );
        assert!(serde_json::from_str::<Pictures>(r#"{"size": 2}"#).is_err());
    }
}
