//! Names of files and folders. Pure.

use std::collections::BTreeMap;

use crate::base::ids::{ContentHash, LaunchId};
use crate::base::secrets::Redactor;
use crate::plan::Measurement;

pub(crate) const RUN: &str = "run.json";
pub(crate) const MATRIX: &str = "matrix.yaml";
pub(crate) const RECIPES: &str = "recipes";
pub(crate) const PLAN: &str = "plan.json";
pub(crate) const MACHINE: &str = "machine.json";
pub(crate) const CALIBRATION: &str = "calibration.json";
pub(crate) const STORED_ANSWERS: &str = "stored-answers.json";
pub(crate) const JOURNAL: &str = "journal.jsonl";
pub(crate) const TUNE: &str = "tune.json";
pub(crate) const LOG: &str = "matrix.log";
pub(crate) const RESULTS: &str = "results.jsonl";
pub(crate) const LOCK: &str = "lock";
pub(crate) const LAUNCHES: &str = "launches";
pub(crate) const CELLS: &str = "cells";
pub(crate) const ENGINE_LOG: &str = "engine.log";
pub(crate) const INSTALL_LOG: &str = "install.log";
pub(crate) const SUMMARY: &str = "summary.json";
pub(crate) const POST_MORTEM: &str = "post-mortem.md";
pub(crate) const REQUESTS: &str = "requests.jsonl.zst";
pub(crate) const PARTIAL: &str = "requests.partial.jsonl.zst";
pub(crate) const GRADED: &str = "graded.jsonl.zst";
pub(crate) const HISTOGRAMS: &str = "histograms.jsonl.zst";
pub(crate) const NIGHTLY: &str = "nightly";
pub(crate) const NOISE: &str = "noise.json";
pub(crate) const TELEMETRY: &str = "telemetry.jsonl.zst";

/// Names in a run's folder that a report may not use.
pub(crate) const RESERVED_NAMES: [&str; 14] = [
    RUN,
    MATRIX,
    RECIPES,
    PLAN,
    MACHINE,
    CALIBRATION,
    STORED_ANSWERS,
    TUNE,
    JOURNAL,
    LOG,
    RESULTS,
    LOCK,
    LAUNCHES,
    CELLS,
];

/// Longest readable part of a name in bytes. With suffixes it stays far below the limit of 255 of file
/// systems.
const MAX_SLUG_BYTES: usize = 100;

/// Paths of the files, for readers that do not know the layout.
pub(crate) fn file_descriptions() -> BTreeMap<String, String> {
    [
        ("matrix", MATRIX.to_owned()),
        ("recipes", format!("{RECIPES}/<recipe>.yaml")),
        ("plan", PLAN.to_owned()),
        ("machine", MACHINE.to_owned()),
        ("calibration", CALIBRATION.to_owned()),
        ("stored-answers", STORED_ANSWERS.to_owned()),
        ("journal", JOURNAL.to_owned()),
        ("log", LOG.to_owned()),
        ("results", RESULTS.to_owned()),
        ("launch", format!("{LAUNCHES}/<launch>-s<start>/{ENGINE_LOG}")),
        ("summary", format!("{CELLS}/<cell>-s<start>-r<repeat>/{SUMMARY}")),
        (
            "requests",
            format!("{CELLS}/<cell>-s<start>-r<repeat>/{REQUESTS}"),
        ),
        (
            "histograms",
            format!("{CELLS}/<cell>-s<start>-r<repeat>/{HISTOGRAMS}"),
        ),
        (
            "telemetry",
            format!("{CELLS}/<cell>-s<start>-r<repeat>/{TELEMETRY}"),
        ),
        ("graded", format!("{CELLS}/<cell>-s<start>-r<repeat>/{GRADED}")),
        (
            "post-mortem",
            format!("{CELLS}/<cell>-s<start>-r<repeat>/{POST_MORTEM}"),
        ),
    ]
    .into_iter()
    .map(|(name, place)| (name.to_owned(), place))
    .collect()
}

/// The folder of a measurement, below [`CELLS`].
pub(crate) fn cell_folder(measurement: &Measurement, redactor: &Redactor) -> String {
    let Measurement { cell, start, repeat } = measurement;
    format!("{}-s{start}-r{repeat}", slug(cell.as_str(), redactor))
}

/// The folder of a start, below [`LAUNCHES`].
pub(crate) fn launch_folder(launch: &LaunchId, start: u32, redactor: &Redactor) -> String {
    format!("{}-s{start}", slug(launch.as_str(), redactor))
}

/// Converts a name to a file name of lower-case letters, digits, `.`, `-`, `_`. If that changes or shortens
/// the name, a digest of the whole name is appended, so that different names stay different, also on a
/// case-insensitive file system.
pub(crate) fn slug(name: &str, redactor: &Redactor) -> String {
    let clean = redactor.redact(name);
    let mut readable = String::with_capacity(clean.len());
    for letter in clean.chars().map(|letter| letter.to_ascii_lowercase()) {
        // A leading dot would hide the folder.
        let may_stand = letter == '.' && !readable.is_empty() || letter == '_';
        if letter.is_ascii_alphanumeric() || may_stand {
            readable.push(letter);
        } else if !readable.is_empty() && !readable.ends_with('-') {
            readable.push('-');
        }
        if readable.len() == MAX_SLUG_BYTES {
            break;
        }
    }
    let readable = readable.trim_end_matches('-');
    if readable == name && !readable.is_empty() && !ends_in_digest(readable) {
        return readable.to_owned();
    }
    let digest = ContentHash::from_bytes(name.as_bytes());
    let digest = &digest.as_str()[..DIGEST_DIGITS];
    if readable.is_empty() {
        format!("x-{digest}")
    } else {
        format!("{readable}-{digest}")
    }
}

/// Number of hex digits of the digest in a slug.
const DIGEST_DIGITS: usize = 8;

fn ends_in_digest(text: &str) -> bool {
    text.rsplit_once('-').is_some_and(|(_, end)| {
        end.len() == DIGEST_DIGITS && end.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// The name of the `n`th earlier version of a file.
pub(crate) fn backup_name(name: &str, n: u32) -> String {
    format!("{name}.old-{n}")
}

/// The name and the number of an earlier version.
pub(crate) fn split_backup_name(name: &str) -> Option<(&str, u32)> {
    let (name, number) = name.rsplit_once(".old-")?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    is_number
        .then(|| number.parse().ok())
        .flatten()
        .map(|number| (name, number))
}

/// Whether the name is that of an earlier version.
pub(crate) fn is_backup_name(name: &str) -> bool {
    split_backup_name(name).is_some()
}

/// Whether the name is that of raw data: records, histograms, samples, logs with their tails, or an earlier
/// version of these.
pub(crate) fn is_raw_data(name: &str) -> bool {
    let name = match is_backup_name(name) {
        true => name.rsplit_once(".old-").map_or(name, |(name, _)| name),
        false => name,
    };
    let is_log = [ENGINE_LOG, INSTALL_LOG].iter().any(|log| {
        name.strip_prefix(log)
            .is_some_and(|rest| ["", ".tail", ".tail-before"].contains(&rest))
    });
    is_log || [REQUESTS, PARTIAL, HISTOGRAMS, TELEMETRY].contains(&name)
}

/// Whether the text is a plain name of one folder entry.
pub(crate) fn is_plain_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && name
            .chars()
            .all(|letter| letter.is_alphanumeric() || matches!(letter, '.' | '-' | '_' | ' ' | '+'))
}

/// Longest name of a run, in bytes: file systems allow 255, and files that belong to a run have longer names.
const MAX_RUN_NAME: usize = 200;

/// Whether the text can name a run's folder: a plain name of at most 200 bytes that differs from the folder of
/// nightly runs, ignoring case.
pub(crate) fn is_run_name(name: &str) -> bool {
    is_plain_name(name) && name.len() <= MAX_RUN_NAME && !name.eq_ignore_ascii_case(NIGHTLY)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::base::ids::CellKey;

    fn plain(name: &str) -> String {
        slug(name, &Redactor::default())
    }

    #[test]
    fn a_plain_name_stays_and_others_stay_readable() {
        assert_eq!(plain("sglang-v0.5_x"), "sglang-v0.5_x");
        assert_eq!(
            plain("sglang/Qwen/Qwen3-8B · rate ∞"),
            "sglang-qwen-qwen3-8b-rate-71d7f898"
        );
        assert_eq!(
            plain("../.."),
            format!("x-{}", &ContentHash::from_bytes(b"../..").as_str()[..8])
        );
        let long = plain(&"a".repeat(300));
        assert_eq!(long.len(), MAX_SLUG_BYTES + 1 + DIGEST_DIGITS);
    }

    #[test]
    fn a_folder_tells_start_and_repeat_apart() {
        let measurement = |start, repeat| Measurement {
            cell: CellKey::new("a"),
            start,
            repeat,
        };
        let redactor = Redactor::default();
        assert_eq!(cell_folder(&measurement(1, 2), &redactor), "a-s1-r2");
        assert_ne!(
            cell_folder(&measurement(1, 2), &redactor),
            cell_folder(&measurement(2, 1), &redactor)
        );
        assert!(!is_backup_name(&cell_folder(&measurement(1, 1), &redactor)));
        assert!(is_backup_name(&backup_name(
            &cell_folder(&measurement(1, 1), &redactor),
            3
        )));
    }

    #[test]
    fn a_secret_in_a_name_does_not_reach_the_file_name() {
        let redactor = Redactor::new(["hunter2"]);
        assert!(!slug("engine-hunter2", &redactor).contains("hunter2"));
        assert_ne!(slug("a-hunter2", &redactor), slug("a-***", &redactor));
    }

    proptest! {
        #[test]
        fn slugs_are_safe_and_unique(names in prop::collection::btree_set("([aA/._ -]{0,6}|\\PC{0,200}|[a-z]-[0-9a-f]{8})", 1..40)) {
            let slugs: BTreeSet<String> = names.iter().map(|name| plain(name).to_lowercase()).collect();
            prop_assert_eq!(slugs.len(), names.len());
            for slug in &slugs {
                prop_assert!(is_plain_name(slug) && slug.len() < 128 && !slug.starts_with('-'), "{}", slug);
            }
        }

        #[test]
        fn the_slug_of_a_slug_never_meets_another_name(name in "\\PC{0,20}") {
            let first = plain(&name);
            prop_assert!(first == name || plain(&first) != first);
        }
    }
}
