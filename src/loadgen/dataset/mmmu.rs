//! The `mmmu` data set: exam questions about an image.

use super::images::{RgbImage, data_uris, token_breakdown};
use super::template::ChatTemplate;
use super::{Content, DatasetError, MakeRows, Prompt, RngState, RowInputs, Rows, row_files, token_count};
use crate::config::dataset::DatasetName;
use crate::config::dataset::image::PictureFormat;
use crate::config::dataset::mmmu::Mmmu;

/// Output tokens if the scenario does not set a number.
const DEFAULT_OUTPUT_TOKENS: u32 = 1024;
const IMAGE_FIELD: &str = "image_1";

impl MakeRows for Mmmu {
    /// Samples the questions that have an image. An invalid question is left out and reported in
    /// `printed_lines`.
    fn rows(&self, inputs: &RowInputs<'_>, rng: &mut RngState) -> Result<Rows, DatasetError> {
        let (tokenizer, path) = (inputs.tokenizer, inputs.path()?);
        let template = ChatTemplate::open(tokenizer)?;
        let records = row_files::read(DatasetName::Mmmu, path)?;
        let indices: Vec<usize> = (0..records.len()).collect();
        let requested = inputs.prompts;
        let chosen = match indices.len() > requested {
            true => rng.python.sample(&indices, requested),
            false => indices,
        };
        let (mut texts, mut pictures, mut complaints) = (Vec::new(), Vec::new(), Vec::new());
        for at in chosen {
            let Some(file) = records[at].file(IMAGE_FIELD, path) else {
                continue;
            };
            let question = records[at]
                .text("question")
                .ok_or("it has no `question`".to_owned());
            match question.and_then(|question| Ok((question, RgbImage::decode(&file?)?))) {
                Ok((question, picture)) => {
                    texts.push(format!("Question: {question}\n\nAnswer: "));
                    pictures.push(picture);
                }
                Err(reason) => complaints.push(format!("Error processing example {at}: {reason}")),
            }
        }
        let output_tokens = self.output_len.unwrap_or(DEFAULT_OUTPUT_TOKENS);
        let (mut prompts, mut raw) = (Vec::new(), Vec::new());
        for (text, image) in texts.into_iter().zip(data_uris(&pictures, PictureFormat::Png)) {
            raw.push(tokenizer.count(&text, true)? as u64);
            let length = tokenizer.count(&template.render_user(&text)?, true)?;
            let content = Content::Images {
                text,
                images: vec![image],
            };
            prompts.push(Prompt::new(content, token_count(length), output_tokens));
        }
        let mut rows = Rows::new(prompts);
        rows.printed_lines.splice(0..0, complaints);
        rows.printed_lines
            .extend(token_breakdown(&raw, &rows.prompts).into_iter().skip(1));
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::workload::{Profile, Workload};
    use crate::loadgen::dataset::prepare;
    use crate::loadgen::dataset::tokenizer::Tokenizer;

    #[test]
    fn questions_with_a_picture_are_sampled_and_the_others_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let picture = RgbImage {
            width: 1,
            height: 2,
            pixels: vec![1, 2, 3, 4, 5, 6],
        };
        let uri = picture.data_uri(PictureFormat::Png);
        let rows = [
            json!({"question": "q0", "image_1": &*uri}),
            json!({"question": "q1", "image_1": null}),
            json!({"question": "q2", "image_1": "absent.png"}),
            json!({"question": "q3", "image_1": "there.png"}),
        ];
        use base64::Engine;
        let file = base64::engine::general_purpose::STANDARD
            .decode(uri.split_once(',').unwrap().1)
            .unwrap();
        std::fs::write(folder.path().join("there.png"), file).unwrap();
        let path = folder.path().join("rows.jsonl");
        std::fs::write(&path, rows.map(|row| row.to_string()).join("\n")).unwrap();
        let prepared = |prompts: u32| {
            let workload = Workload {
                prompts,
                ..Workload::new(DatasetName::Mmmu)
            };
            prepare(&workload, Profile::Current, 1, &Tokenizer::bytes(), Some(&path)).unwrap()
        };
        let texts = |prompts: u32| -> Vec<String> {
            let all = prepared(prompts).prompts;
            let text = |prompt: Prompt| match prompt.content {
                Content::Images { text, images } => {
                    assert_eq!(images, std::slice::from_ref(&uri));
                    assert_eq!(
                        (prompt.prompt_tokens as usize, prompt.output_tokens),
                        (text.len() + 31, 1024)
                    );
                    text
                }
                _ => panic!("these rows have pictures"),
            };
            all.into_iter().map(text).collect()
        };
        assert_eq!(texts(4), ["Question: q0\n\nAnswer: ", "Question: q3\n\nAnswer: "]);
        // `random.seed(1); random.sample(range(4), 3)` of CPython 3.11 gives 1, 2, 0 (also in the vectors of speed-bench).
        assert_eq!(texts(3), ["Question: q0\n\nAnswer: "]);
        let printed = prepared(4).printed_lines;
        assert!(
            printed[0].starts_with("Error processing example 2: cannot read"),
            "{printed:?}"
        );
    }
}
