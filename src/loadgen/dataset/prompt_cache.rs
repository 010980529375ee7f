//! Caches prepared prompts on disk, so that a load that was prepared before starts at once.
//!
//! The key covers everything that determines the prompts, and a digest is checked on reading. Broken and
//! unknown files are replaced. Images, recordings and sessions are not cached, because they would fill the disk; nor are prompts that
//! differ between preparations.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::template::ChatTemplate;
use super::tokenizer::Tokenizer;
use super::{Content, PreparedPrompts, Prompt, RngState, prompt};
use crate::base::ids::{ContentHash, Digest};
use crate::base::{private_files, unfinished};
use crate::config::dataset::{PromptForm, TemplateUse};
use crate::config::workload::{Profile, Workload};

/// The version of the code that makes the prompts. Raise the number whenever draws, counts or the file format
/// change.
const FORMAT_VERSION: (u32, &str) = (2, env!("CARGO_PKG_VERSION"));
/// The first word of every file.
const MAGIC: &str = "matrix-prompts";
/// Prefix of the names of incomplete files.
const TEMP_PREFIX: &str = ".new-";
/// Maximum bytes of one preparation, and of the whole cache.
const MAX_BYTES: (u64, u64) = (512 << 20, 4 << 30);

/// The cache folder with its size limits.
#[derive(Debug)]
pub(super) struct PromptCache<'a> {
    folder: &'a Path,
    max_bytes: (u64, u64),
}

/// The cache key of a workload's prompts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CacheKey(ContentHash);

/// What is stored besides the rows.
#[derive(Serialize, Deserialize)]
struct Head {
    /// Words drawn from Python's generator and from numpy's.
    drawn: (u64, u64),
    input_tokens: u64,
    output_tokens: u64,
    said: Vec<String>,
    /// Whether the last row is the warm-up request and not a prompt.
    has_warmup: bool,
    rows: ContentHash,
}

/// Metadata that changes whenever the file does, so that the file need not be read.
#[derive(Serialize)]
struct FileIdentity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileIdentity {
    fn read(file: &Path) -> Option<Self> {
        let about = fs::metadata(file).ok().filter(fs::Metadata::is_file)?;
        Some(Self {
            device: about.dev(),
            inode: about.ino(),
            size: about.size(),
            modified: (about.mtime(), about.mtime_nsec()),
            changed: (about.ctime(), about.ctime_nsec()),
        })
    }
}

impl CacheKey {
    /// Computes the key of a workload's prompts; `None` if they must not be cached.
    pub(super) fn new(
        workload: &Workload,
        profile: Profile,
        seed: u64,
        tokenizer: &Tokenizer,
        file: Option<&Path>,
    ) -> Option<Self> {
        let facts = workload.facts();
        let has_no_key = matches!(
            facts.prompts,
            PromptForm::Pictures | PromptForm::Sessions | PromptForm::Audio
        );
        // The file of lengths is no part of the key.
        if has_no_key || facts.lengths_file().is_some() {
            return None;
        }
        let templated = facts.template != TemplateUse::None;
        let template = match templated.then(|| ChatTemplate::open(tokenizer).ok()) {
            Some(Some(template)) if template.uses_date() => return None,
            Some(template) => template.map(|template| template.digest().to_owned()),
            None => None,
        };
        let identity = match file {
            Some(file) => Some(FileIdentity::read(file)?),
            None => None,
        };
        // The file matters, not its path.
        let workload = Workload {
            path: None,
            ..workload.clone()
        };
        let everything = (
            FORMAT_VERSION,
            workload,
            profile,
            seed,
            tokenizer.fingerprint(),
            template,
            identity,
        );
        Some(Self(ContentHash::from_value(&everything)))
    }
}

impl<'a> PromptCache<'a> {
    pub(super) const fn new(folder: &'a Path) -> Self {
        Self {
            folder,
            max_bytes: MAX_BYTES,
        }
    }

    fn path(&self, key: &CacheKey) -> PathBuf {
        self.folder.join(format!("{}.prompts", key.0))
    }

    /// Returns the prompts that are stored under a key. `seed` is the seed of the generators.
    pub(super) fn get(&self, key: &CacheKey, seed: u32) -> Option<PreparedPrompts> {
        if !self.folder.exists() {
            return None;
        }
        if let Err(error) = private_files::create_cache_folder(self.folder) {
            tracing::warn!(
                "the prompt cache in {} is not used: {error}",
                self.folder.display()
            );
            return None;
        }
        let path = self.path(key);
        let mut file = BufReader::new(File::open(&path).ok()?);
        let prepared = decode_file(&mut file, key, seed);
        match &prepared {
            // The files that were not used for the longest time are removed first.
            Some(_) => drop(File::open(&path).map(|file| {
                rustix::fs::futimens(
                    &file,
                    &rustix::fs::Timestamps {
                        last_access: NOW,
                        last_modification: NOW,
                    },
                )
            })),
            None => {
                tracing::warn!(
                    "the cached prompts in {} are corrupt and are generated again",
                    path.display()
                );
                let _ = fs::remove_file(&path);
            }
        }
        prepared
    }

    pub(super) fn put(&self, key: &CacheKey, prepared: &PreparedPrompts) {
        if !is_repeatable(&prepared.prompts) {
            return;
        }
        let Some(head) = encode_head(prepared) else {
            return;
        };
        let (mut size, mut digest) = (0, Digest::default());
        for bytes in file_parts(&head, prepared) {
            size += bytes.len() as u64;
            digest.update(&bytes);
        }
        let first = first_line(key, &digest.finish());
        if size + first.len() as u64 > self.max_bytes.0 {
            return;
        }
        let parts = std::iter::once(first.into_bytes()).chain(file_parts(&head, prepared));
        if let Err(error) = self.write(&self.path(key), parts) {
            tracing::warn!(
                "cannot write the prompt cache in {}: {error}",
                self.folder.display()
            );
        }
        self.evict();
    }

    fn write(&self, path: &Path, parts: impl Iterator<Item = Vec<u8>>) -> std::io::Result<()> {
        private_files::create_cache_folder(self.folder)?;
        unfinished::sweep(self.folder, TEMP_PREFIX);
        let mut file = tempfile::Builder::new()
            .prefix(TEMP_PREFIX)
            .tempfile_in(self.folder)?;
        unfinished::lock(file.as_file());
        let mut buffered = BufWriter::new(file.as_file_mut());
        for part in parts {
            buffered.write_all(&part)?;
        }
        buffered.flush()?;
        drop(buffered);
        file.persist(path)?;
        Ok(())
    }

    /// Removes the files that were not used for the longest time, until the rest is small enough.
    fn evict(&self) {
        let Ok(entries) = fs::read_dir(self.folder) else {
            return;
        };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
            .flatten()
            .filter_map(|entry| {
                let about = entry.metadata().ok()?;
                Some((about.modified().ok()?, about.len(), entry.path()))
            })
            .collect();
        files.sort();
        let mut size: u64 = files.iter().map(|(_, size, _)| size).sum();
        for (_, bytes, path) in files {
            if size <= self.max_bytes.1 {
                return;
            }
            if fs::remove_file(path).is_ok() {
                size -= bytes;
            }
        }
    }
}

const NOW: rustix::fs::Timespec = rustix::fs::Timespec {
    tv_sec: 0,
    tv_nsec: rustix::fs::UTIME_NOW as _,
};

/// Returns true if another preparation would give the same prompts. Routing keys contain random letters and
/// the date.
fn is_repeatable(prompts: &[Prompt]) -> bool {
    prompts.iter().all(|prompt| {
        let is_keyed = prompt
            .extras
            .as_ref()
            .is_some_and(|extras| extras.routing_key.is_some());
        !is_keyed && !matches!(prompt.content, Content::Images { .. } | Content::Audio(_))
    })
}

fn encode_head(prepared: &PreparedPrompts) -> Option<Vec<u8>> {
    let head = Head {
        drawn: (prepared.rng.python.draw_count(), prepared.rng.numpy.draw_count()?),
        input_tokens: prepared.input_tokens,
        output_tokens: prepared.output_tokens,
        said: prepared.printed_lines.clone(),
        has_warmup: prepared.warmup.is_some(),
        rows: prepared.hash.clone(),
    };
    let mut rest = serde_json::to_vec(&head).ok()?;
    rest.push(b'\n');
    Some(rest)
}

/// Returns the parts of a file after its first line: the head, then the rows one at a time.
fn file_parts(head: &[u8], prepared: &PreparedPrompts) -> impl Iterator<Item = Vec<u8>> {
    let rows = prepared.prompts.iter().chain(&prepared.warmup);
    std::iter::once(head.to_vec()).chain(rows.map(prompt::encode))
}

/// Returns the first line of a file: magic word, key, and digest of the rest.
fn first_line(key: &CacheKey, rest: &ContentHash) -> String {
    format!("{MAGIC} {} {rest}\n", key.0)
}

/// Reads a file twice, for its digest and for its content, so that the content is in memory only once.
fn decode_file(file: &mut (impl BufRead + Seek), key: &CacheKey, seed: u32) -> Option<PreparedPrompts> {
    let mut first = Vec::new();
    file.by_ref().take(1024).read_until(b'\n', &mut first).ok()?;
    let mut digest = Digest::default();
    loop {
        let bytes = file.fill_buf().ok()?;
        if bytes.is_empty() {
            break;
        }
        let length = bytes.len();
        digest.update(bytes);
        file.consume(length);
    }
    if first != first_line(key, &digest.finish()).as_bytes() {
        return None;
    }
    file.seek(SeekFrom::Start(first.len() as u64)).ok()?;
    let mut head = Vec::new();
    file.read_until(b'\n', &mut head).ok()?;
    let head: Head = serde_json::from_slice(&head).ok()?;
    let mut rng = RngState::new(seed);
    rng.python.skip(head.drawn.0);
    rng.numpy.skip(head.drawn.1);
    let mut prompts = prompt::decode(file)?;
    let warmup = match head.has_warmup {
        true => Some(prompts.pop()?),
        false => None,
    };
    Some(PreparedPrompts {
        prompts,
        hash: head.rows,
        rng,
        input_tokens: head.input_tokens,
        output_tokens: head.output_tokens,
        printed_lines: head.said,
        warmup,
        // Prompts of sessions, which have some, are not cached.
        priming: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Caches, load_or_prepare};
    use super::*;
    use crate::config::dataset::DatasetName;
    use crate::config::dataset::generated_shared_prefix::{GeneratedSharedPrefix, SharedPrefix};
    use crate::config::dataset::random_ids::RandomIds;
    use crate::config::dataset::sharegpt::Sharegpt;

    fn random() -> Workload {
        Workload {
            prompts: 4,
            ..Workload::with(RandomIds {
                input_len: Some(6),
                output_len: Some(4),
                range_ratio: 0.5,
                tokenize_prompt: false,
                lengths: None,
                common_prefix: None,
            })
        }
    }

    /// Returns the prompts of a workload and the number of cached files afterwards.
    fn prepare(
        workload: &Workload,
        seed: u64,
        file: Option<&Path>,
        folder: &Path,
    ) -> (PreparedPrompts, usize) {
        let caches = Caches {
            hf_home: None,
            prompts: Some(folder.to_owned()),
        };
        let prepared = load_or_prepare(
            workload,
            Profile::Current,
            seed,
            &Tokenizer::bytes(),
            file,
            &caches,
        )
        .unwrap();
        (prepared, fs::read_dir(folder).map_or(0, Iterator::count))
    }

    fn only_file(folder: &Path) -> PathBuf {
        fs::read_dir(folder).unwrap().next().unwrap().unwrap().path()
    }

    #[test]
    fn what_is_kept_is_what_was_prepared_generators_included() {
        let folder = tempfile::tempdir().unwrap();
        let (generated, count) = prepare(&random(), 1, None, folder.path());
        assert_eq!(count, 1);
        let (cached, count) = prepare(&random(), 1, None, folder.path());
        assert_eq!((cached.clone(), count), (generated.clone(), 1));
        let next = |prepared: &PreparedPrompts| {
            (
                prepared.rng.python.clone().random(),
                prepared.rng.numpy.clone().random(),
            )
        };
        assert_eq!(next(&cached), next(&generated));
        // Source: docs/bench-serving.md 14.1, random-ids.
        assert_eq!(next(&cached).1, 0.66974603680348);
    }

    #[test]
    fn it_is_taken_from_the_file_and_not_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let (mut generated, _) = prepare(&random(), 1, None, folder.path());
        generated.prompts.truncate(1);
        let key = CacheKey::new(&random(), Profile::Current, 1, &Tokenizer::bytes(), None).unwrap();
        PromptCache::new(folder.path()).put(&key, &generated);
        assert_eq!(prepare(&random(), 1, None, folder.path()).0.prompts.len(), 1);
    }

    #[test]
    fn a_file_that_is_broken_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let (generated, _) = prepare(&random(), 1, None, folder.path());
        let whole = fs::read(only_file(folder.path())).unwrap();
        for at in [0, 30, whole.len() / 2, whole.len() - 1] {
            let mut broken = whole.clone();
            broken[at] ^= 1;
            fs::write(only_file(folder.path()), &broken).unwrap();
            assert_eq!(
                prepare(&random(), 1, None, folder.path()),
                (generated.clone(), 1),
                "byte {at}"
            );
            assert_eq!(fs::read(only_file(folder.path())).unwrap(), whole);
        }
        fs::write(only_file(folder.path()), &whole[..whole.len() / 3]).unwrap();
        assert_eq!(prepare(&random(), 1, None, folder.path()).0, generated);
    }

    #[test]
    fn everything_that_decides_the_prompts_is_in_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("data.json");
        fs::write(&file, "[1]").unwrap();
        let (bytes, bos) = (Tokenizer::bytes(), Tokenizer::bytes_with_bos());
        let key = |workload: &Workload, profile, seed, tokenizer: &Tokenizer, file| {
            CacheKey::new(workload, profile, seed, tokenizer, file)
                .unwrap()
                .0
                .to_string()
        };
        let base = Workload::new(DatasetName::Sharegpt);
        let templated = Workload::with(Sharegpt {
            apply_chat_template: true,
            ..Sharegpt::default()
        });
        let mut keys = vec![
            key(&base, Profile::Current, 1, &bytes, Some(&file)),
            key(&base, Profile::Classic, 1, &bytes, Some(&file)),
            key(&base, Profile::Current, 2, &bytes, Some(&file)),
            key(&base, Profile::Current, 1, &bos, Some(&file)),
            key(&templated, Profile::Current, 1, &bytes, Some(&file)),
            key(&random(), Profile::Current, 1, &bytes, None),
        ];
        // Source: docs/bench-serving.md T30: the settings that the Python tool's own cache omits from its
        // key.
        let grouped = |ordered, uncounted| {
            let prefix = SharedPrefix {
                ordered,
                uncounted,
                ..SharedPrefix::default()
            };
            let workload = Workload::with(GeneratedSharedPrefix {
                shared_prefix: Some(prefix),
                ..GeneratedSharedPrefix::default()
            });
            key(&workload, Profile::Current, 1, &bytes, None)
        };
        keys.extend([grouped(false, false), grouped(true, false), grouped(false, true)]);
        fs::write(&file, "[12]").unwrap();
        keys.push(key(&base, Profile::Current, 1, &bytes, Some(&file)));
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count);
        let elsewhere = Workload {
            path: Some("data.json".to_owned()),
            ..base.clone()
        };
        assert_eq!(
            key(&elsewhere, Profile::Current, 1, &bytes, Some(&file)),
            key(&base, Profile::Current, 1, &bytes, Some(&file))
        );
        assert_eq!(
            CacheKey::new(
                &Workload::new(DatasetName::Image),
                Profile::Current,
                1,
                &bytes,
                None
            ),
            None
        );
    }

    #[test]
    fn what_was_used_longest_ago_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let (generated, _) = prepare(&random(), 1, None, folder.path());
        let size = fs::metadata(only_file(folder.path())).unwrap().len();
        let cache = PromptCache {
            folder: folder.path(),
            max_bytes: (size, 2 * size),
        };
        let tokenizer = Tokenizer::bytes();
        let key = |seed| CacheKey::new(&random(), Profile::Current, seed, &tokenizer, None).unwrap();
        let old = |key: &CacheKey, age: u64| {
            let file = File::options().write(true).open(cache.path(key)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000 - age))
                .unwrap();
        };
        old(&key(1), 2);
        cache.put(&key(2), &generated);
        old(&key(2), 1);
        assert!(cache.get(&key(1), 1).is_some());
        cache.put(&key(3), &generated);
        let is_kept: Vec<bool> = [1, 2, 3].map(|seed| cache.path(&key(seed)).exists()).into();
        assert_eq!(is_kept, [true, false, true]);
        let small = PromptCache {
            folder: folder.path(),
            max_bytes: (size - 1, 2 * size),
        };
        small.put(&key(4), &generated);
        assert!(!small.path(&key(4)).exists());
    }
}
