//! Items of public tasks, whose files `matrix fetch` downloads.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::item_text::ItemText;
use super::rows::read_row;
use crate::analysis::graded::graders::ifeval::RowError;
use crate::base::ids::ContentHash;
use crate::config::quality::{Grader, PublicTask};
use crate::loadgen::dataset::{Caches, locate_published, read_json_rows};

/// The text after a question of GSM8K, so that both of its graders find the answer.
const GSM8K: &str = "\nThink step by step, then write the answer as a number after `####`.";

/// The file of a task.
///
/// # Errors
/// It was not downloaded.
pub(in crate::runner) fn locate(task: PublicTask, caches: &Caches) -> Result<PathBuf, String> {
    locate_published(&task.file(), caches).map_err(|searched| {
        let terms = match task {
            PublicTask::Gpqa => " (to download this file, first accept the terms of Idavidrein/gpqa on the Hugging Face hub, and set HF_TOKEN)",
            _ => "",
        };
        format!(
            "the file with the items of the task `{}` is missing{terms}; searched:{searched}\nfetch it with `matrix fetch`",
            task.name()
        )
    })
}

/// So many items, evenly spaced over the rows that can be graded.
///
/// # Errors
/// The file is missing or has other rows, or fewer.
pub(super) fn read_items(
    task: PublicTask,
    grader: Grader,
    count: u32,
    caches: &Caches,
) -> Result<Vec<ItemText>, String> {
    let path = locate(task, caches)?;
    let mut items = Vec::new();
    for (number, row) in (1..).zip(read_json_rows(&path)?) {
        match read_row(&row_of(task, row), grader) {
            Ok(item) => items.push(item),
            Err(RowError::Ungradable(_)) => {}
            Err(RowError::Malformed(why)) => {
                return Err(format!("`{}`, row {number}: {why}", path.display()));
            }
        }
    }
    let (all, count) = (items.len(), count as usize);
    if all < count {
        return Err(format!(
            "`{}` has {all} items, but the task needs {count}; set `items: {all}`",
            path.display()
        ));
    }
    // The item at `place` is the one with number `place * all / count`.
    let is_chosen = |number: usize| ((number * count).div_ceil(all)) * all / count == number;
    let chosen = items
        .into_iter()
        .enumerate()
        .filter(|(number, _)| is_chosen(*number));
    Ok(chosen.map(|(_, item)| item).take(count).collect())
}

/// A row with the keys of our own files.
fn row_of(task: PublicTask, mut row: Value) -> Value {
    match task {
        PublicTask::Ifeval | PublicTask::Mmlu => row,
        PublicTask::Gsm8k => {
            if let Some(Value::String(question)) = row.get_mut("question") {
                question.push_str(GSM8K);
            }
            row
        }
        PublicTask::Gpqa => {
            let text = |key: &str| row[key].as_str().unwrap_or_default().trim().to_owned();
            let question = text("Question");
            let wrong = ["Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"];
            let mut choices: Vec<String> = wrong.map(text).to_vec();
            // The right answer stands at a place that its question decides.
            let digest = ContentHash::from_value(&question).to_string();
            let place = digest.bytes().map(usize::from).sum::<usize>() % (choices.len() + 1);
            choices.insert(place, text("Correct Answer"));
            json!({"question": question, "choices": choices, "answer": place})
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::loadgen::Content;

    fn caches_with(task: PublicTask, content: &[u8]) -> (tempfile::TempDir, Caches) {
        let home = tempfile::tempdir().unwrap();
        let crate::config::dataset::PublishedFile::Hub { repository, file } = task.file() else {
            panic!("of the hub");
        };
        let folder = format!("hub/datasets--{}/snapshots/abc", repository.replace('/', "--"));
        let path = home.path().join(folder).join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        let caches = Caches {
            hf_home: Some(home.path().to_owned()),
            prompts: None,
        };
        (home, caches)
    }

    fn text(item: &ItemText) -> String {
        match &item.content {
            Content::Text(text) => text.as_str().to_owned(),
            _ => panic!("a text"),
        }
    }

    #[test]
    fn items_are_evenly_spaced_over_the_file() {
        let rows: String = (0..10)
            .map(|number| {
                let row = json!({"prompt": format!("p{number}"), "instruction_id_list": ["startend:quotation"], "kwargs": [{}]});
                format!("{row}\n")
            })
            .collect();
        let (_home, caches) = caches_with(PublicTask::Ifeval, rows.as_bytes());
        let read = |count: u32| -> Vec<String> {
            let items = read_items(PublicTask::Ifeval, Grader::Ifeval, count, &caches)
                .ok()
                .unwrap();
            items.iter().map(text).collect()
        };
        assert_eq!(read(1), ["p0"]);
        assert_eq!(read(3), ["p0", "p3", "p6"]);
        assert_eq!(read(7), ["p0", "p1", "p2", "p4", "p5", "p7", "p8"]);
        assert_eq!(read(10).len(), 10);
        let error = read_items(PublicTask::Ifeval, Grader::Ifeval, 11, &caches)
            .err()
            .unwrap();
        assert!(error.contains("has 10 items, but the task needs 11"), "{error}");
    }

    #[test]
    fn choices_of_gpqa_and_mmlu_have_their_right_letter() {
        let csv = "Question,Correct Answer,Incorrect Answer 1,Incorrect Answer 2,Incorrect Answer 3\n\
                   \"Why, so?\",right,a,b,c\nWho?,right,a,b,c\n";
        let (_home, caches) = caches_with(PublicTask::Gpqa, csv.as_bytes());
        let items = read_items(PublicTask::Gpqa, Grader::ChoiceFlexible, 2, &caches)
            .ok()
            .unwrap();
        for item in &items {
            let letter = item.expected["letter"].as_str().unwrap();
            assert!(
                text(item).contains(&format!("\n({letter}) right\n")),
                "{}",
                text(item)
            );
        }
        assert!(text(&items[0]).starts_with("Why, so?\n(A) "));
        let parquet = fs::read(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/fixtures/tasks/choices.parquet"
        ));
        let (_home, caches) = caches_with(PublicTask::Mmlu, &parquet.unwrap());
        let items = read_items(PublicTask::Mmlu, Grader::Choice, 2, &caches)
            .ok()
            .unwrap();
        assert_eq!(items[0].expected, json!("B"));
        assert_eq!(
            text(&items[0]),
            "Which?\nA. x\nB. y\nAnswer with the letter alone."
        );
    }

    #[test]
    fn a_missing_file_is_named_with_the_command_that_fetches_it() {
        let home = tempfile::tempdir().unwrap();
        let caches = Caches {
            hf_home: Some(home.path().to_owned()),
            prompts: None,
        };
        let error = locate(PublicTask::Gpqa, &caches).unwrap_err();
        assert!(error.contains("datasets--Idavidrein--gpqa"), "{error}");
        assert!(error.contains("accept the terms"), "{error}");
    }
}
