//! Flags of `matrix bench` for images and SPEED-Bench. Absent flags mean the data set's own default.

use clap::Args;

use crate::cli::named::variant_parser;
use crate::config::dataset::image::{PictureContent, PictureFormat, Resolution};
use crate::config::dataset::speed_bench::Category;

#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Data set image")]
pub(crate) struct ImageArgs {
    /// The number of images per request; 1 by default.
    #[arg(long, value_name = "COUNT")]
    pub(crate) image_count: Option<u32>,
    /// The size of images: 4k, 1080p, 720p, 360p, HEIGHTxWIDTH or random:HEIGHTxWIDTH-HEIGHTxWIDTH; 1080p by default.
    #[arg(long, value_name = "SIZE")]
    pub(crate) image_resolution: Option<Resolution>,
    /// Draw the number of images of each request at random, from 1 to `--image-count`.
    #[arg(long)]
    pub(crate) random_image_count: bool,
    /// The encoding of images; `jpeg` by default.
    #[arg(long, value_parser = variant_parser::<PictureFormat>())]
    pub(crate) image_format: Option<PictureFormat>,
    /// The content of images: noise (`random`) or white (`blank`); `random` by default.
    #[arg(long, value_parser = variant_parser::<PictureContent>())]
    pub(crate) image_content: Option<PictureContent>,
}

#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Data set speed-bench")]
pub(crate) struct SpeedBenchArgs {
    /// Use only rows of this category; all by default.
    #[arg(long, value_parser = variant_parser::<Category>())]
    pub(crate) speed_bench_category: Option<Category>,
    /// The number of output tokens to request; 512 by default.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) speed_bench_output_len: Option<u32>,
}
