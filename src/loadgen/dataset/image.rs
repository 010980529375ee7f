//! The `image` data set: text of random tokens with images of random pixels.

use super::images::{RgbImage, data_uris, token_breakdown};
use super::random::draw_lengths;
use super::template::ChatTemplate;
use super::tokenizer::CleanUp;
use super::{Content, DatasetError, MakeRows, Prompt, RngState, RowInputs, Rows, token_count};
use crate::config::dataset::image::{Image, PictureContent, Pictures, Resolution, Size};

/// Maximum bytes of pixels in memory before the images are encoded.
const MAX_BUFFERED_BYTES: usize = 256 << 20;

/// The values that are drawn for all rows before the first row.
struct ImagePlan {
    counts: Vec<u32>,
    input: Vec<u32>,
    output: Vec<u32>,
}

impl ImagePlan {
    fn draw(image: &Image, rows: usize, spec: &Pictures, rng: &mut RngState) -> Self {
        let numpy = &mut rng.numpy;
        let counts = match spec.is_count_drawn {
            true => draw_lengths(spec.count, 0.0, 1, rows, numpy),
            false => vec![spec.count; rows],
        };
        let mut drawn = |max: Option<u32>| {
            let max = max.expect("a valid workload has both lengths");
            draw_lengths(max, image.range_ratio, 1, rows, numpy)
        };
        Self {
            input: drawn(image.input_len),
            output: drawn(image.output_len),
            counts,
        }
    }
}

/// Draws an image of a drawn or fixed size.
fn draw_image(spec: &Pictures, rng: &mut RngState) -> RgbImage {
    let Size { width, height } = match spec.resolution {
        Resolution::Fixed(size) => size,
        Resolution::Drawn {
            least: min,
            most: max,
        } => {
            let mut side = |min: u32, max: u32| {
                let drawn = rng.numpy.randint(min.into(), u64::from(max) + 1);
                u32::try_from(drawn).expect("a drawn side is at most the longest")
            };
            // The order of the draws matters.
            let width = side(min.width, max.width);
            let height = side(min.height, max.height);
            Size { width, height }
        }
    };
    let bytes = width as usize * height as usize * 3;
    let pixels = match spec.content {
        PictureContent::Blank => vec![255; bytes],
        PictureContent::Random => (0..bytes).map(|_| (rng.numpy.random() * 255.0) as u8).collect(),
    };
    RgbImage {
        width,
        height,
        pixels,
    }
}

impl MakeRows for Image {
    /// Draws text and images row by row.
    fn rows(&self, inputs: &RowInputs<'_>, rng: &mut RngState) -> Result<Rows, DatasetError> {
        let tokenizer = inputs.tokenizer;
        let template = ChatTemplate::open(tokenizer)?;
        let spec = self.pictures.clone().unwrap_or_default();
        let ids = tokenizer.ids_for_text();
        let plan = ImagePlan::draw(self, inputs.prompts, &spec, rng);
        let mut prompts: Vec<Prompt> = Vec::new();
        let mut sizes: Vec<Size> = Vec::new();
        let mut bytes = 0;
        let mut waiting: Vec<(String, Vec<RgbImage>)> = Vec::new();
        let mut buffered = 0;
        for row in 0..plan.counts.len() {
            let drawn = rng.python.choices(&ids, plan.input[row] as usize);
            let text = tokenizer.decode(&drawn, CleanUp::ExceptBpe)?;
            let pictures: Vec<RgbImage> = (0..plan.counts[row]).map(|_| draw_image(&spec, rng)).collect();
            sizes.extend(pictures.iter().map(|picture| Size {
                width: picture.width,
                height: picture.height,
            }));
            buffered += pictures.iter().map(|picture| picture.pixels.len()).sum::<usize>();
            waiting.push((text, pictures));
            if buffered >= MAX_BUFFERED_BYTES || row + 1 == plan.counts.len() {
                buffered = 0;
                let flat: Vec<RgbImage> = waiting
                    .iter_mut()
                    .flat_map(|(_, pictures)| std::mem::take(pictures))
                    .collect();
                let mut encoded = data_uris(&flat, spec.format).into_iter();
                for (text, _) in waiting.drain(..) {
                    let at = prompts.len();
                    let length = tokenizer.count(&template.render_user(&text)?, true)?;
                    let images: Vec<_> = encoded.by_ref().take(plan.counts[at] as usize).collect();
                    bytes += images.iter().map(|image| image.len()).sum::<usize>();
                    let content = Content::Images { text, images };
                    prompts.push(Prompt::new(content, token_count(length), plan.output[at]));
                }
            }
        }
        let mut rows = Rows::new(prompts);
        rows.printed_lines.extend(printed_lines(&spec, &plan, &sizes));
        let raw: Vec<u64> = plan.input.iter().copied().map(u64::from).collect();
        rows.printed_lines.extend(token_breakdown(&raw, &rows.prompts));
        rows.printed_lines.push(String::new());
        rows.printed_lines.push(format!(
            "Created {} {} {} images with average {} bytes per request",
            rows.prompts.len(),
            spec.content.name(),
            spec.format.name(),
            bytes / rows.prompts.len().max(1)
        ));
        Ok(rows)
    }
}

/// The lines that the Python tool prints about number and size of the images.
fn printed_lines(spec: &Pictures, plan: &ImagePlan, sizes: &[Size]) -> Vec<String> {
    let counts = &plan.counts;
    let mean = |sum: u64, count: usize| sum as f64 / count.max(1) as f64;
    let (min, max) = (
        counts.iter().min().unwrap_or(&0),
        counts.iter().max().unwrap_or(&0),
    );
    let mut lines = vec![
        format!("#Total images: {}", sizes.len()),
        match spec.is_count_drawn {
            false => format!("#Images per request: {} (fixed)", spec.count),
            true => format!(
                "#Images per request: min={min}, max={max}, mean={:.2}",
                mean(counts.iter().copied().map(u64::from).sum(), counts.len())
            ),
        },
    ];
    if matches!(spec.resolution, Resolution::Drawn { .. }) {
        let sides = |read: fn(&Size) -> u32| {
            let all = || sizes.iter().map(read);
            (
                all().min().unwrap_or(0),
                all().max().unwrap_or(0),
                mean(all().map(u64::from).sum(), sizes.len()),
            )
        };
        let (width, height) = (sides(|size| size.width), sides(|size| size.height));
        lines.push(format!(
            "#Image resolution: min={}x{}, max={}x{}, mean={:.1}x{:.1}",
            width.0, height.0, width.1, height.1, width.2, height.2
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::dataset::DatasetName;
    use crate::config::dataset::image::PictureFormat;
    use crate::config::workload::Profile;
    use crate::loadgen::dataset::tokenizer::Tokenizer;

    fn image(pictures: Pictures) -> Image {
        Image {
            input_len: Some(4),
            output_len: Some(4),
            range_ratio: 0.5,
            pictures: Some(pictures),
        }
    }

    /// The ids of the golden vectors: all bytes except the image placeholder.
    fn ids() -> Vec<u32> {
        (0..256).filter(|id| *id != 7).collect()
    }

    /// Returns ids, output length and images of each row.
    fn draw_rows(pictures: &Pictures) -> Vec<(Vec<u32>, u32, Vec<RgbImage>)> {
        let image = image(pictures.clone());
        let mut rng = RngState::new(1);
        let plan = ImagePlan::draw(&image, 2, pictures, &mut rng);
        (0..2)
            .map(|row| {
                let text = rng.python.choices(&ids(), plan.input[row] as usize);
                let pictures = (0..plan.counts[row]).map(|_| draw_image(pictures, &mut rng));
                (text, plan.output[row], pictures.collect())
            })
            .collect()
    }

    fn pixels(rows: &[(Vec<u32>, u32, Vec<RgbImage>)]) -> Vec<(u32, u32, &[u8])> {
        let pictures = rows.iter().flat_map(|(_, _, pictures)| pictures);
        pictures
            .map(|picture| (picture.height, picture.width, &picture.pixels[..6]))
            .collect()
    }

    #[test]
    fn pictures_of_one_size_are_those_of_the_tool() {
        let rows = draw_rows(&Pictures {
            count: 2,
            resolution: "2x3".parse().unwrap(),
            ..Pictures::default()
        });
        assert_eq!((&rows[0].0[..], rows[0].1), (&[35, 217, 195][..], 2));
        assert_eq!((&rows[1].0[..], rows[1].1), (&[66, 127][..], 3));
        let expected: [(u32, u32, &[u8]); 4] = [
            (2, 3, &[77, 37, 23, 47, 88, 101]),
            (2, 3, &[246, 79, 176, 223, 228, 21]),
            (2, 3, &[191, 252, 190, 71, 201, 26]),
            (2, 3, &[37, 150, 178, 26, 105, 177]),
        ];
        assert_eq!(pixels(&rows), expected);
    }

    #[test]
    fn pictures_of_drawn_number_and_size_are_those_of_the_tool() {
        let rows = draw_rows(&Pictures {
            count: 3,
            is_count_drawn: true,
            resolution: "random:2x3-5x7".parse().unwrap(),
            ..Pictures::default()
        });
        assert_eq!((&rows[0].0[..], rows[0].1), (&[35, 217][..], 3));
        assert_eq!((&rows[1].0[..], rows[1].1), (&[195, 66, 127][..], 2));
        let expected: [(u32, u32, &[u8]); 3] = [
            (3, 3, &[47, 88, 101, 137, 106, 174]),
            (5, 4, &[176, 80, 175, 212, 4, 191]),
            (4, 5, &[60, 230, 146, 0, 157, 83]),
        ];
        assert_eq!(pixels(&rows), expected);
    }

    #[test]
    fn what_is_said_is_what_is_sent() {
        let spec = Pictures {
            count: 2,
            resolution: "2x3".parse().unwrap(),
            format: PictureFormat::Png,
            content: PictureContent::Blank,
            ..Pictures::default()
        };
        let inputs = RowInputs {
            prompts: 2,
            profile: Profile::Current,
            seed: 1,
            tokenizer: &Tokenizer::bytes(),
            file: None,
            dataset: DatasetName::Image,
        };
        let rows = image(spec).rows(&inputs, &mut RngState::new(1)).unwrap();
        assert_eq!(rows.prompts.len(), 2);
        let mut bytes = 0;
        for prompt in &rows.prompts {
            let Content::Images { images, .. } = &prompt.content else {
                panic!("these rows have pictures");
            };
            assert_eq!(images.len(), 2);
            bytes += images.iter().map(|image| image.len()).sum::<usize>();
        }
        // Three and two bytes, some of which decode to the three of a replacement, in a template of 31.
        let templated: u32 = rows.prompts.iter().map(|prompt| prompt.prompt_tokens).sum();
        assert_eq!(
            rows.printed_lines[2..4],
            ["#Total images: 4", "#Images per request: 2 (fixed)"]
        );
        assert_eq!(
            rows.printed_lines[6],
            "  Raw text prompt tokens (without overhead): avg=2.5, total=5"
        );
        assert!(
            rows.printed_lines[7].ends_with(&format!("total={templated}")),
            "{:?}",
            rows.printed_lines
        );
        assert_eq!(
            rows.printed_lines.last().unwrap(),
            &format!(
                "Created 2 blank png images with average {} bytes per request",
                bytes / 2
            )
        );
    }
}
