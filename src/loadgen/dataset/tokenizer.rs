//! Converts text to token ids and back with the library behind Python's tokenizers. It never uses the
//! network.
//!
//! It follows the `tokenizer.json` alone: settings that transformers takes from elsewhere (`add_bos_token` of
//! the Llama classes) are not applied, and tokenizers without a `tokenizer.json` are not supported.

mod files;
mod transformers;

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::{fs, io};

use serde_json::Value;
use sha2::{Digest, Sha256};
use tokenizers::{ModelWrapper, PostProcessor};

pub(crate) use self::files::TokenizerError;
pub(crate) use self::files::is_missing_path;
use self::files::{find_file, read_file};
use self::transformers::{TokenizerConfig, clean_up_spaces, special_tokens};
use super::byte_level;
use super::hf_cache::Caches;
use crate::base::ids::hex;
use crate::base::threads::ThreadLimitError;
use crate::config::shipped;

/// Whether to apply `clean_up_tokenization_spaces`, which Hugging Face's decoding handled differently over
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanUp {
    /// Whenever `tokenizer_config.json` requests it, as transformers 4 does.
    AsConfigured,
    /// When it is requested, but never for BPE, as transformers 5 does.
    ExceptBpe,
}

/// A shared tokenizer; a clone refers to the same one.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    path: Option<PathBuf>,
    digest: String,
    clean_up: bool,
    /// Loaded when first needed, because loading a large tokenizer takes longer than all other preparation of
    /// a load with cached prompts.
    model: OnceLock<Result<Model, String>>,
}

enum Model {
    Hub(Box<tokenizers::Tokenizer>),
    /// One token per byte of UTF-8, optionally with a first token `<s>`.
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests create it"))]
    Bytes {
        bos: bool,
    },
}

/// The name of the tokenizer inside the binary, in a matrix and for `--tokenizer`.
pub(crate) const BUILT_IN: &str = "built-in";

fn built_in_text() -> &'static str {
    shipped::file_text("matrices/data/tokenizer.json").expect("the file is shipped")
}

/// The id of `<s>` in the byte tokenizer that has one.
const BYTES_BOS: u32 = 256;

/// Starts the threads that encode texts, once and before their first use. The library would start them
/// itself, even for a single text, and panic on failure.
fn start_threads() -> Result<(), TokenizerError> {
    static STARTED: OnceLock<Option<Arc<ThreadLimitError>>> = OnceLock::new();
    let start = || {
        let error = rayon::ThreadPoolBuilder::new().build_global().err()?;
        // An error without a cause means that the threads run already.
        error.source()?;
        Some(Arc::new(ThreadLimitError::from(io::Error::other(error))))
    };
    match STARTED.get_or_init(start) {
        None => Ok(()),
        Some(error) => Err(TokenizerError::Threads(Arc::clone(error))),
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("name", &self.inner.name)
            .field("path", &self.inner.path)
            .finish()
    }
}

impl Tokenizer {
    /// Opens a `tokenizer.json`, a folder with one (both relative to `base`), or a model's tokenizer in the
    /// caches.
    pub fn open(name: &str, base: &Path, caches: &Caches) -> Result<Self, TokenizerError> {
        let tokenizer = Self::find(name, base, caches)?;
        tokenizer.load()?;
        Ok(tokenizer)
    }

    /// Like [`Self::open`], but the content is loaded when it is needed, or by [`Self::load`].
    pub(crate) fn find(name: &str, base: &Path, caches: &Caches) -> Result<Self, TokenizerError> {
        if name == BUILT_IN {
            return Ok(Self::built_in());
        }
        let path = find_file(name, base, caches)?;
        let digest = hex(&Sha256::digest(read_file(&path)?));
        let sibling = path.with_file_name("tokenizer_config.json");
        let settings = if sibling.is_file() {
            serde_json::from_slice(&read_file(&sibling)?).map_err(|error| TokenizerError::Invalid {
                path: sibling,
                reason: error.to_string(),
            })?
        } else {
            TokenizerConfig::default()
        };
        Ok(Self::new(Inner {
            name: name.to_owned(),
            path: Some(path),
            digest,
            clean_up: settings.clean_up_tokenization_spaces.unwrap_or(false),
            model: OnceLock::new(),
        }))
    }

    /// The tokenizer inside the binary. It is no model's own: prompts have about the lengths that are asked for.
    fn built_in() -> Self {
        Self::new(Inner {
            name: BUILT_IN.to_owned(),
            path: None,
            digest: hex(&Sha256::digest(built_in_text())),
            clean_up: false,
            model: OnceLock::new(),
        })
    }

    /// Whether it is that of the binary, whose counts are not those of any model.
    pub(crate) fn is_built_in(&self) -> bool {
        self.inner.name == BUILT_IN
    }

    /// Loads the content if that was not done.
    pub(crate) fn load(&self) -> Result<(), TokenizerError> {
        self.model().map(drop)
    }

    fn model(&self) -> Result<&Model, TokenizerError> {
        let path = || self.inner.path.clone().unwrap_or_default();
        let read = || match self.is_built_in() {
            true => parse_model(built_in_text().as_bytes()),
            false => read_model(&path(), &self.inner.digest),
        };
        let model = self.inner.model.get_or_init(read).as_ref();
        let model = model.map_err(|reason| TokenizerError::Invalid {
            path: path(),
            reason: reason.clone(),
        })?;
        if let Model::Hub(_) = model {
            start_threads()?;
        }
        Ok(model)
    }

    /// Returns the model; `None` if it cannot be loaded.
    fn loaded_model(&self) -> Option<&Model> {
        self.model().ok()
    }

    /// The byte tokenizer of tests: every byte of UTF-8 is a token.
    #[cfg(test)]
    pub(crate) fn bytes() -> Self {
        Self::byte_tokenizer("bytes", false)
    }

    /// The byte tokenizer that begins every text with `<s>`, as tokenizers with a BOS token do.
    #[cfg(test)]
    pub(crate) fn bytes_with_bos() -> Self {
        Self::byte_tokenizer("bytes-with-bos", true)
    }

    #[cfg(test)]
    fn byte_tokenizer(name: &str, bos: bool) -> Self {
        Self::new(Inner {
            name: name.to_owned(),
            path: None,
            digest: hex(&Sha256::digest(name)),
            clean_up: false,
            model: OnceLock::from(Ok(Model::Bytes { bos })),
        })
    }

    fn new(inner: Inner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Returns the requested name or path.
    pub(crate) fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the path of the `tokenizer.json`; `None` for the byte tokenizers.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.inner.path.as_deref()
    }

    /// Returns the SHA-256 of the `tokenizer.json` in hex digits, by which reports name it.
    pub(crate) fn digest(&self) -> &str {
        &self.inner.digest
    }

    /// Encodes a text. `special` adds what the tokenizer puts around every text, such as a BOS token.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>, TokenizerError> {
        match self.model()? {
            Model::Hub(model) => {
                let encoding = model
                    .encode_fast(text, special)
                    .map_err(|error| self.failure(&error))?;
                Ok(encoding.get_ids().to_vec())
            }
            Model::Bytes { bos } => Ok((*bos && special)
                .then_some(BYTES_BOS)
                .into_iter()
                .chain(text.bytes().map(u32::from))
                .collect()),
        }
    }

    pub(super) fn encode_into(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TokenizerError> {
        if !text.is_empty() {
            ids.extend(self.encode(text, false)?);
        }
        Ok(())
    }

    /// Returns the library's tokenizer; `None` for the byte tokenizers and if it cannot be loaded.
    pub(super) fn library(&self) -> Option<&tokenizers::Tokenizer> {
        match self.model() {
            Ok(Model::Hub(model)) => Some(model),
            Ok(Model::Bytes { .. }) | Err(_) => None,
        }
    }

    /// Encodes several texts on all cores; must not run during a measurement.
    pub(crate) fn encode_batch(
        &self,
        texts: &[&str],
        special: bool,
    ) -> Result<Vec<Vec<u32>>, TokenizerError> {
        match self.model()? {
            Model::Hub(model) => {
                let encodings = model
                    .encode_batch_fast(texts.to_vec(), special)
                    .map_err(|error| self.failure(&error))?;
                Ok(encodings
                    .iter()
                    .map(|encoding| encoding.get_ids().to_vec())
                    .collect())
            }
            Model::Bytes { .. } => texts.iter().map(|text| self.encode(text, special)).collect(),
        }
    }

    /// Counts the tokens of a text.
    pub(crate) fn count(&self, text: &str, special: bool) -> Result<usize, TokenizerError> {
        Ok(self.encode(text, special)?.len())
    }

    /// Counts the tokens of several texts on all cores; must not run during a measurement.
    pub(crate) fn count_batch(&self, texts: &[&str], special: bool) -> Result<Vec<usize>, TokenizerError> {
        match self.model()? {
            Model::Hub(model) => {
                let encodings = model
                    .encode_batch_fast(texts.to_vec(), special)
                    .map_err(|error| self.failure(&error))?;
                Ok(encodings.iter().map(tokenizers::Encoding::len).collect())
            }
            Model::Bytes { .. } => texts.iter().map(|text| self.count(text, special)).collect(),
        }
    }

    /// Decodes ids. Special tokens are kept; ids without a token are left out.
    pub fn decode(&self, ids: &[u32], clean_up: CleanUp) -> Result<String, TokenizerError> {
        match self.model()? {
            Model::Hub(model) => {
                let text = model.decode(ids, false).map_err(|error| self.failure(&error))?;
                Ok(self.clean_up_text(text, clean_up))
            }
            Model::Bytes { .. } => Ok(bytes_text(ids)),
        }
    }

    /// Decodes several lists of ids on all cores; must not run during a measurement.
    pub(crate) fn decode_batch(
        &self,
        ids: &[&[u32]],
        clean_up: CleanUp,
    ) -> Result<Vec<String>, TokenizerError> {
        match self.model()? {
            Model::Hub(model) => {
                let texts = match byte_level::decode_batch(model, ids) {
                    Some(texts) => texts,
                    None => model
                        .decode_batch(ids, false)
                        .map_err(|error| self.failure(&error))?,
                };
                Ok(texts
                    .into_iter()
                    .map(|text| {
                        let mut text = self.clean_up_text(text, clean_up);
                        // While it grows, a string can allocate up to twice its length.
                        text.shrink_to_fit();
                        text
                    })
                    .collect())
            }
            Model::Bytes { .. } => Ok(ids.iter().map(|ids| bytes_text(ids)).collect()),
        }
    }

    /// Returns the number of special tokens that encoding adds to one text; 0 if the tokenizer cannot be
    /// loaded.
    pub(crate) fn special_token_count(&self) -> usize {
        match self.loaded_model() {
            Some(Model::Hub(model)) => model
                .get_post_processor()
                .map_or(0, |processor| processor.added_tokens(false)),
            Some(Model::Bytes { bos }) => usize::from(*bos),
            None => 0,
        }
    }

    /// Returns the size of the base vocabulary, without added tokens; 0 if the tokenizer cannot be loaded.
    pub(crate) fn vocab_size(&self) -> usize {
        match self.loaded_model() {
            Some(Model::Hub(model)) => model.get_vocab_size(false),
            Some(Model::Bytes { .. }) => 256,
            None => 0,
        }
    }

    /// Returns all ids of the vocabulary with added tokens, in order; none if the tokenizer cannot be loaded.
    pub(crate) fn vocabulary(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = match self.loaded_model() {
            Some(Model::Hub(model)) => model.get_vocab(true).into_values().collect(),
            Some(Model::Bytes { bos }) => (0..BYTES_BOS + u32::from(*bos)).collect(),
            None => Vec::new(),
        };
        ids.sort_unstable();
        ids
    }

    /// Returns the ids for random text of prompts with images: [`Self::vocabulary`] without special tokens
    /// and the image placeholder.
    pub(crate) fn ids_for_text(&self) -> Vec<u32> {
        let mut ids = self.vocabulary();
        let Some(path) = self.path() else {
            ids.retain(|id| *id != BYTES_BOS);
            return ids;
        };
        let mut left_out = self.special_ids();
        let config = read_object(path, "config.json");
        let image = ["image_token_id", "image_token_index"]
            .iter()
            .find_map(|key| config.get(*key)?.as_u64());
        left_out.extend(image.and_then(|id| u32::try_from(id).ok()));
        ids.retain(|id| !left_out.contains(id));
        ids
    }

    /// Returns the ids of the special tokens that the tokenizer's settings name.
    pub(crate) fn special_ids(&self) -> Vec<u32> {
        let (Some(path), Some(Model::Hub(model))) = (self.path(), self.loaded_model()) else {
            return Vec::new();
        };
        let settings = read_object(path, "tokenizer_config.json");
        let named = special_tokens(&settings).into_iter();
        named.filter_map(|text| model.token_to_id(&text)).collect()
    }

    /// Returns the size of the vocabulary with added tokens; 0 if the tokenizer cannot be loaded.
    #[cfg(test)]
    pub(crate) fn vocab_size_with_added(&self) -> usize {
        match self.loaded_model() {
            Some(Model::Hub(model)) => model.get_vocab_size(true),
            Some(Model::Bytes { bos }) => 256 + usize::from(*bos),
            None => 0,
        }
    }

    /// Returns everything that determines the tokenizer's results, for the key of cached prompts.
    pub(super) fn fingerprint(&self) -> (&str, bool) {
        (&self.inner.digest, self.inner.clean_up)
    }

    fn failure(&self, error: &tokenizers::Error) -> TokenizerError {
        TokenizerError::Failed {
            name: self.inner.name.clone(),
            reason: error.to_string(),
        }
    }

    fn clean_up_text(&self, text: String, clean_up: CleanUp) -> String {
        let spared = clean_up == CleanUp::ExceptBpe
            && matches!(self.loaded_model(), Some(Model::Hub(model)) if matches!(model.get_model(), ModelWrapper::BPE(_)));
        if self.inner.clean_up && !spared {
            clean_up_spaces(&text)
        } else {
            text
        }
    }
}

/// Reads a JSON object next to a tokenizer's file; empty if there is none.
fn read_object(path: &Path, name: &str) -> serde_json::Map<String, Value> {
    let text = fs::read(path.with_file_name(name)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn bytes_text(ids: &[u32]) -> String {
    let mut bytes = Vec::with_capacity(ids.len());
    for id in ids {
        match u8::try_from(*id) {
            Ok(byte) => bytes.push(byte),
            Err(_) if *id == BYTES_BOS => bytes.extend(b"<s>"),
            Err(_) => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Loads the model from a `tokenizer.json` with this digest; the error is a message.
fn read_model(path: &Path, digest: &str) -> Result<Model, String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    if hex(&Sha256::digest(&bytes)) != digest {
        return Err("the file of the tokenizer changed while it was in use".to_owned());
    }
    parse_model(&bytes)
}

fn parse_model(bytes: &[u8]) -> Result<Model, String> {
    let mut model = tokenizers::Tokenizer::from_bytes(bytes).map_err(|error| error.to_string())?;
    // Python's tokenizers disable both before they encode, whatever the file says.
    model.with_padding(None);
    model.with_truncation(None).map_err(|error| error.to_string())?;
    Ok(Model::Hub(Box::new(model)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Writes a tokenizer of whole words that begins every text with `<s>`.
    fn words(folder: &Path) -> PathBuf {
        let tokenizer = json!({
            "version": "1.0",
            "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
            "padding": null,
            "added_tokens": [{
                "id": 6, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true
            }],
            "normalizer": null,
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [6], "tokens": ["<s>"]}}
            },
            "decoder": null,
            "model": {
                "type": "WordLevel",
                "vocab": {"one": 0, "two": 1, ".": 2, "?": 3, "unknown": 4, "three": 5},
                "unk_token": "unknown"
            }
        });
        write(folder, "tokenizer.json", &tokenizer)
    }

    /// Writes a byte-pair tokenizer with three letters and one merge.
    fn pairs(folder: &Path) -> PathBuf {
        let tokenizer = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": null, "post_processor": null, "decoder": null,
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, ".": 2, "ab": 3}, "merges": [["a", "b"]]}
        });
        write(folder, "tokenizer.json", &tokenizer)
    }

    fn write(folder: &Path, file: &str, value: &Value) -> PathBuf {
        fs::create_dir_all(folder).unwrap();
        let path = folder.join(file);
        fs::write(&path, serde_json::to_vec(value).unwrap()).unwrap();
        path
    }

    fn open(name: &str, base: &Path) -> Tokenizer {
        Tokenizer::open(name, base, &Caches::default()).unwrap()
    }

    #[test]
    fn a_tokenizer_is_found_as_a_file_a_folder_and_a_model() {
        let home = tempfile::tempdir().unwrap();
        words(&home.path().join("mine"));
        words(&home.path().join("hub/models--Org--Name/snapshots/abc"));
        let caches = Caches {
            hf_home: Some(home.path().to_owned()),
            prompts: None,
        };
        for name in ["mine/tokenizer.json", "mine", "Org/Name"] {
            let tokenizer = Tokenizer::open(name, home.path(), &caches).unwrap();
            assert_eq!(tokenizer.encode("two one", false).unwrap(), [1, 0]);
            assert_eq!(tokenizer.name(), name);
            assert_eq!(tokenizer.digest().len(), 64);
        }
    }

    #[test]
    fn a_missing_tokenizer_names_every_place_and_how_to_get_it() {
        let base = Path::new("/nowhere");
        let caches = Caches {
            hf_home: Some("/nohome".into()),
            prompts: None,
        };
        let error = Tokenizer::open("Org/Name", base, &caches)
            .unwrap_err()
            .to_string();
        for part in [
            "/nowhere/Org/Name\n",
            "/nowhere/Org/Name/tokenizer.json",
            "/nohome/hub/models--Org--Name/snapshots/*/tokenizer.json",
            "matrix fetch --tokenizer Org/Name",
        ] {
            assert!(error.contains(part), "{part} is not in {error}");
        }
    }

    #[test]
    fn a_broken_file_is_called_broken() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tokenizer.json"), "{").unwrap();
        let error = Tokenizer::open(".", folder.path(), &Caches::default()).unwrap_err();
        assert!(matches!(error, TokenizerError::Invalid { .. }), "{error}");
    }

    #[test]
    fn special_tokens_are_added_on_request_and_recognised_in_the_text() {
        let folder = tempfile::tempdir().unwrap();
        words(folder.path());
        let tokenizer = open("tokenizer.json", folder.path());
        assert_eq!(tokenizer.special_token_count(), 1);
        assert_eq!(tokenizer.encode("one", true).unwrap(), [6, 0]);
        assert_eq!(tokenizer.encode("one<s>two", false).unwrap(), [0, 6, 1]);
        assert_eq!(
            tokenizer.decode(&[6, 0], CleanUp::AsConfigured).unwrap(),
            "<s> one"
        );
        assert_eq!(
            (tokenizer.vocab_size(), tokenizer.vocab_size_with_added()),
            (6, 7)
        );
    }

    #[test]
    fn a_text_is_never_truncated_whatever_the_file_says() {
        let folder = tempfile::tempdir().unwrap();
        words(folder.path());
        let tokenizer = open("tokenizer.json", folder.path());
        assert_eq!(tokenizer.count("one two one two one two", true).unwrap(), 7);
    }

    #[test]
    fn many_texts_are_counted_as_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        words(folder.path());
        let tokenizer = open("tokenizer.json", folder.path());
        let texts = ["one", "", "two three one", "four?"];
        let one_by_one: Vec<usize> = texts
            .iter()
            .map(|text| tokenizer.count(text, true).unwrap())
            .collect();
        assert_eq!(tokenizer.count_batch(&texts, true).unwrap(), one_by_one);
        assert_eq!(one_by_one, [2, 1, 4, 3]);
    }

    #[test]
    fn spaces_are_cleaned_up_where_the_configuration_asks_for_it() {
        let folder = tempfile::tempdir().unwrap();
        words(folder.path());
        assert_eq!(
            open(".", folder.path())
                .decode(&[0, 2], CleanUp::AsConfigured)
                .unwrap(),
            "one ."
        );
        write(
            folder.path(),
            "tokenizer_config.json",
            &json!({"clean_up_tokenization_spaces": true, "other": 1}),
        );
        for clean_up in [CleanUp::AsConfigured, CleanUp::ExceptBpe] {
            assert_eq!(
                open(".", folder.path()).decode(&[0, 2], clean_up).unwrap(),
                "one."
            );
        }
    }

    #[test]
    fn byte_pair_tokenizers_are_spared_the_clean_up_by_newer_transformers() {
        let folder = tempfile::tempdir().unwrap();
        pairs(folder.path());
        write(
            folder.path(),
            "tokenizer_config.json",
            &json!({"clean_up_tokenization_spaces": true}),
        );
        let tokenizer = open(".", folder.path());
        assert_eq!(tokenizer.decode(&[3, 2], CleanUp::AsConfigured).unwrap(), "ab.");
        assert_eq!(tokenizer.decode(&[3, 2], CleanUp::ExceptBpe).unwrap(), "ab .");
        assert_eq!(
            tokenizer
                .decode_batch(&[&[3, 2], &[0]], CleanUp::ExceptBpe)
                .unwrap(),
            ["ab .", "a"]
        );
    }

    #[test]
    fn contractions_are_closed_up_in_hugging_faces_order() {
        assert_eq!(
            clean_up_spaces("I 'm sure , they do n't 've it 's ' here ' !"),
            "I'm sure, they don't've it's'here '!"
        );
    }

    #[test]
    fn the_byte_tokenizer_has_a_token_for_every_byte() {
        let plain = Tokenizer::bytes();
        assert_eq!(plain.encode("aé", true).unwrap(), [97, 195, 169]);
        let bos = Tokenizer::bytes_with_bos();
        assert_eq!(bos.encode("a", true).unwrap(), [256, 97]);
        assert_eq!(bos.encode("a", false).unwrap(), [97]);
        assert_eq!(
            bos.decode(&[256, 97, 195, 169], CleanUp::AsConfigured).unwrap(),
            "<s>aé"
        );
        assert_eq!(
            (
                bos.vocab_size(),
                bos.vocab_size_with_added(),
                bos.special_token_count()
            ),
            (256, 257, 1)
        );
    }
}
