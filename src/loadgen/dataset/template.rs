//! Chat templates: convert messages to the text that a model reads, as transformers does.
//!
//! The template is searched next to the tokenizer's file. Not supported: processor templates that consist of
//! several files, and default special tokens that some tokenizer classes define in Python code.

mod python;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value as Jinja};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use self::python::{tojson, write_as_python};
use super::hf_cache::path_lines;
use super::tokenizer::Tokenizer;
use crate::base::clock;
use crate::base::ids::hex;

/// The name of the default template.
const DEFAULT_TEMPLATE: &str = "default";
/// The name of the template for messages with tools, if the model has one.
const TOOL_USE_TEMPLATE: &str = "tool_use";

/// Why a chat template could not be opened or rendered.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The tokenizer has no chat template.
    #[error(
        "the tokenizer `{name}` has no chat template; searched{}\nfetch its files with `matrix fetch \
         --tokenizer {name}`, or use the tokenizer of a chat model",
        path_lines(searched)
    )]
    Missing {
        /// The name of the tokenizer.
        name: String,
        /// Every place that was searched.
        searched: Vec<String>,
    },
    /// A file exists and cannot be read.
    #[error("cannot read the chat template's file `{}`: {error}", path.display())]
    Unreadable {
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// A file exists and holds no valid template.
    #[error("`{}` has no valid chat template: {reason}; fetch it again", path.display())]
    Invalid {
        path: PathBuf,
        /// What is wrong with it, and where.
        reason: String,
    },
    /// The template rejected the messages, or failed.
    #[error("the chat template of `{name}` cannot be applied: {reason}")]
    Failed {
        name: String,
        /// The template's message, and where it failed.
        reason: String,
    },
}

/// A tokenizer's chat template.
pub(crate) struct ChatTemplate {
    name: String,
    environment: Environment<'static>,
    /// `bos_token`, `eos_token` and the like, which templates may write.
    special_tokens: BTreeMap<String, String>,
    digest: String,
    uses_date: bool,
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate")
            .field("name", &self.name)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

impl ChatTemplate {
    /// Opens the chat template next to a tokenizer's file; the byte tokenizers have a built-in template.
    ///
    /// # Errors
    /// There is no template, or it is invalid.
    pub(crate) fn open(tokenizer: &Tokenizer) -> Result<Self, TemplateError> {
        let Some(path) = tokenizer.path() else {
            return Ok(Self::byte_template(tokenizer));
        };
        let config = path.with_file_name("tokenizer_config.json");
        let settings = read_object(&config)?.unwrap_or_default();
        let map = read_object(&path.with_file_name("special_tokens_map.json"))?.unwrap_or_default();
        let special_tokens = special_tokens(&settings, &map);
        let alone = path.with_file_name("chat_template.jinja");
        if alone.is_file() {
            let sources = [(DEFAULT_TEMPLATE.to_owned(), read_text(&alone)?)];
            return Self::build(tokenizer, &alone, sources.into(), special_tokens);
        }
        let processor = path.with_file_name("chat_template.json");
        for (file, object) in [(&config, Some(settings)), (&processor, read_object(&processor)?)] {
            let template = object.and_then(|mut object| object.remove("chat_template"));
            if let Some(template) = template.filter(|template| !template.is_null()) {
                let sources = named_templates(template).map_err(|reason| TemplateError::Invalid {
                    path: file.clone(),
                    reason,
                })?;
                return Self::build(tokenizer, file, sources, special_tokens);
            }
        }
        Err(TemplateError::Missing {
            name: tokenizer.name().to_owned(),
            searched: [&alone, &config, &processor]
                .map(|path| path.display().to_string())
                .into(),
        })
    }

    /// Creates the template of the byte tokenizers, for tests and the simulated engine.
    fn byte_template(tokenizer: &Tokenizer) -> Self {
        const BYTES: &str = "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>\n{{ message.content }}<|end|>\n\
                             {% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}";
        let bos = (tokenizer.special_token_count() > 0).then(|| ("bos_token".to_owned(), "<s>".to_owned()));
        let sources = [(DEFAULT_TEMPLATE.to_owned(), BYTES.to_owned())].into();
        Self::build(tokenizer, Path::new("bytes"), sources, bos.into_iter().collect())
            .expect("our own template is one")
    }

    fn build(
        tokenizer: &Tokenizer,
        path: &Path,
        sources: BTreeMap<String, String>,
        special_tokens: BTreeMap<String, String>,
    ) -> Result<Self, TemplateError> {
        let mut environment = jinja_environment();
        let mut digest = Sha256::new();
        let tells_time = sources.values().any(|source| source.contains("strftime_now"));
        for (key, value) in sources.iter().chain(&special_tokens) {
            for part in [key, value] {
                digest.update((part.len() as u64).to_le_bytes());
                digest.update(part);
            }
        }
        for (name, source) in sources {
            environment
                .add_template_owned(name, strip_generation_tags(&source))
                .map_err(|error| TemplateError::Invalid {
                    path: path.to_owned(),
                    reason: error.to_string(),
                })?;
        }
        if environment.get_template(DEFAULT_TEMPLATE).is_err() {
            return Err(TemplateError::Invalid {
                path: path.to_owned(),
                reason: "the file has no template with the name `default`".to_owned(),
            });
        }
        Ok(Self {
            name: tokenizer.name().to_owned(),
            environment,
            special_tokens,
            digest: hex(&digest.finalize()),
            uses_date: tells_time,
        })
    }

    /// Renders messages. `add_generation_prompt` appends the start of the assistant's answer.
    ///
    /// # Errors
    /// The template rejects the messages, or fails.
    pub(crate) fn render(
        &self,
        messages: &[Value],
        tools: Option<&Value>,
        add_generation_prompt: bool,
    ) -> Result<String, TemplateError> {
        self.render_with(messages, tools, add_generation_prompt, &Map::new())
    }

    /// Like [`Self::render`], with further variables of the template.
    pub(crate) fn render_with(
        &self,
        messages: &[Value],
        tools: Option<&Value>,
        add_generation_prompt: bool,
        variables: &Map<String, Value>,
    ) -> Result<String, TemplateError> {
        let failed = |error: &Error| TemplateError::Failed {
            name: self.name.clone(),
            reason: error.to_string(),
        };
        let with_tools = tools.and_then(|_| self.environment.get_template(TOOL_USE_TEMPLATE).ok());
        let template = with_tools.map_or_else(|| self.environment.get_template(DEFAULT_TEMPLATE), Ok);
        let render_context = [
            ("messages".to_owned(), Jinja::from(Serde(messages))),
            ("tools".to_owned(), Jinja::from(Serde(tools))),
            ("documents".to_owned(), Jinja::from(())),
            ("add_generation_prompt".to_owned(), add_generation_prompt.into()),
        ];
        let special_tokens = self
            .special_tokens
            .iter()
            .map(|(key, text)| (key.clone(), text.into()));
        let variables = variables
            .iter()
            .map(|(key, value)| (key.clone(), Jinja::from(Serde(value))));
        let context: BTreeMap<String, Jinja> =
            special_tokens.chain(render_context).chain(variables).collect();
        template
            .and_then(|template| template.render(context))
            .map_err(|error| failed(&error))
    }

    /// Renders one message of the user, followed by the start of the answer.
    pub(crate) fn render_user(&self, content: &str) -> Result<String, TemplateError> {
        self.render(
            &[serde_json::json!({"role": "user", "content": content})],
            None,
            true,
        )
    }

    /// Returns the token that begins every text according to the tokenizer's settings, if any.
    pub(crate) fn bos_token(&self) -> Option<&str> {
        self.special_tokens
            .get("bos_token")
            .map(String::as_str)
            .filter(|bos| !bos.is_empty())
    }

    /// Returns a digest of the template and its special tokens, in hex digits.
    pub(crate) fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns true if the text may also depend on the current date.
    pub(crate) const fn uses_date(&self) -> bool {
        self.uses_date
    }
}

/// Sets up Jinja as transformers does.
fn jinja_environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build();
    environment.set_syntax(syntax.expect("jinja's own delimiters are sound"));
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(write_as_python);
    environment.add_filter("tojson", tojson);
    environment.add_function("raise_exception", |message: String| -> Result<Jinja, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", |format: String| {
        clock::format_local(&format).map_err(|reason| Error::new(ErrorKind::InvalidOperation, reason))
    });
    environment
}

/// Removes the `generation` marks, which transformers knows and Jinja does not. They do not affect the text.
fn strip_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, block) = rest.split_at(at);
        out.push_str(before);
        let Some(end) = block.find("%}") else {
            rest = block;
            break;
        };
        let (inside, after) = (&block[2..end], &block[end + 2..]);
        let word = inside.trim_matches(|char: char| char.is_whitespace() || char == '-' || char == '+');
        let stands_in = match word {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        out.push_str("{%");
        match stands_in {
            Some(other) => out.push_str(&inside.replacen(word, other, 1)),
            None => out.push_str(inside),
        }
        out.push_str("%}");
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Reads the templates of a `chat_template` field: one, or several with names.
fn named_templates(template: Value) -> Result<BTreeMap<String, String>, String> {
    let wrong_type = || "`chat_template` must be a string or a list of objects `{name, template}`".to_owned();
    match template {
        Value::String(source) => Ok([(DEFAULT_TEMPLATE.to_owned(), source)].into()),
        Value::Array(items) => items
            .iter()
            .map(|item| {
                let field = |key: &str| item.get(key).and_then(Value::as_str).map(str::to_owned);
                field("name").zip(field("template")).ok_or_else(wrong_type)
            })
            .collect(),
        _ => Err(wrong_type()),
    }
}

/// Returns the special tokens that a template may write, by their names in templates.
fn special_tokens(settings: &Map<String, Value>, map: &Map<String, Value>) -> BTreeMap<String, String> {
    let names = [
        "bos_token",
        "eos_token",
        "unk_token",
        "sep_token",
        "pad_token",
        "cls_token",
        "mask_token",
    ];
    let text = |value: &Value| {
        value
            .as_str()
            .or_else(|| value.get("content")?.as_str())
            .map(str::to_owned)
    };
    names
        .iter()
        .filter_map(|name| {
            // A `null` in the settings means that the tokenizer has no such token.
            let value = settings.get(*name).or_else(|| map.get(*name))?;
            Some(((*name).to_owned(), text(value)?))
        })
        .collect()
}

fn read_text(path: &Path) -> Result<String, TemplateError> {
    fs::read_to_string(path).map_err(|error| TemplateError::Unreadable {
        path: path.to_owned(),
        error,
    })
}

/// Reads the fields of a JSON file; `None` if the file does not exist.
fn read_object(path: &Path) -> Result<Option<Map<String, Value>>, TemplateError> {
    if !path.is_file() {
        return Ok(None);
    }
    serde_json::from_str(&read_text(path)?)
        .map(Some)
        .map_err(|error| TemplateError::Invalid {
            path: path.to_owned(),
            reason: error.to_string(),
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::loadgen::dataset::Caches;

    /// A template like Qwen's: tools as JSON, namespaces, Python's methods.
    const QWEN: &str = r#"{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "<|im_end|>\n" }}
{%- endif %}
{%- set ns = namespace(last=-1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.last < 0 and message.role == "user" and not(message.content.startswith('<tool>')) %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == "assistant" and '</think>' in content %}
        {%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
        {%- set content = (thought if loop.index0 > ns.last else '') + content.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}"#;

    /// A template like Llama's: indented blocks, BOS, dates, rejections.
    const LLAMA: &str = r#"{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%Y") %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "Year: " ~ (date_string | length) ~ "\n" }}
{{- system_message }}
{% for message in messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('roles must alternate') }}
    {% endif %}
    {% generation %}
[{{ message.role.title() }}] {{ message.content | trim }}{{ eos_token }}
    {%- endgeneration %}
{% endfor %}
"#;

    fn folder(files: &[(&str, Value)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let model = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": null, "post_processor": null, "decoder": null,
            "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}
        });
        fs::write(folder.path().join("tokenizer.json"), model.to_string()).unwrap();
        for (name, content) in files {
            let text = content
                .as_str()
                .map_or_else(|| content.to_string(), str::to_owned);
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn open(files: &[(&str, Value)]) -> Result<ChatTemplate, TemplateError> {
        let folder = folder(files);
        let tokenizer = Tokenizer::open("tokenizer.json", folder.path(), &Caches::default()).unwrap();
        ChatTemplate::open(&tokenizer)
    }

    fn of(source: &str) -> ChatTemplate {
        open(&[("chat_template.jinja", json!(source))]).unwrap()
    }

    fn user(text: &str) -> Value {
        json!({"role": "user", "content": text})
    }

    #[test]
    fn a_template_in_the_manner_of_qwen_is_rendered() {
        let template = of(QWEN);
        assert_eq!(
            template.render(&[user("hi")], None, true).unwrap(),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
        );
        let answer = json!({"role": "assistant", "content": "<think>\nhm\n</think>\n\nyes"});
        assert_eq!(
            template
                .render(&[user("a"), answer.clone(), user("b")], None, false)
                .unwrap(),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n<|im_start|>user\nb<|im_end|>\n"
        );
        assert!(
            template
                .render(&[user("a"), answer], None, false)
                .unwrap()
                .contains("hmyes")
        );
        let tools = json!([{"type": "function", "function": {"name": "f", "says": "<é> & 'so'", "n": [1, 1.5, true, null]}}]);
        assert_eq!(
            template.render(&[user("hi")], Some(&tools), false).unwrap(),
            "<|im_start|>system\n\n{\"type\": \"function\", \"function\": {\"name\": \"f\", \"says\": \"<é> & 'so'\", \
             \"n\": [1, 1.5, true, null]}}<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
        );
    }

    #[test]
    fn a_template_in_the_manner_of_llama_is_rendered_and_may_refuse() {
        let template = open(&[(
            "tokenizer_config.json",
            json!({"chat_template": LLAMA, "bos_token": {"content": "<s>"}, "eos_token": "</s>"}),
        )])
        .unwrap();
        let system = json!({"role": "system", "content": " Be brief. "});
        assert_eq!(
            template.render(&[system, user(" hi ")], None, false).unwrap(),
            "<s>Year: 4\nBe brief.\n[User] hi</s>"
        );
        assert_eq!((template.bos_token(), template.uses_date()), (Some("<s>"), true));
        let error = template
            .render(&[user("a"), user("b")], None, false)
            .unwrap_err()
            .to_string();
        assert!(error.contains("roles must alternate"), "{error}");
    }

    #[test]
    fn tojson_takes_the_options_of_python() {
        let rendered = |source: &str| of(source).render(&[user("é\"\n<")], None, false).unwrap();
        assert_eq!(
            rendered("{{ messages | tojson }}"),
            r#"[{"role": "user", "content": "é\"\n<"}]"#
        );
        assert_eq!(
            rendered("{{ messages[0] | tojson(ensure_ascii=true, sort_keys=true, separators=(',', ':')) }}"),
            r#"{"content":"\u00e9\"\n<","role":"user"}"#
        );
        assert_eq!(
            rendered("{{ [[], [1, {'a': 2}]] | tojson(indent=2) }}"),
            "[\n  [],\n  [\n    1,\n    {\n      \"a\": 2\n    }\n  ]\n]"
        );
    }

    #[test]
    fn values_are_written_as_python_writes_them() {
        let rendered = of(
            "{{ true }} {{ none }} {{ 1.0 }} {{ 1e16 }} {{ 0.00001 }} {{ ['a\\'', 'b', {'c': false}] }}{{ nothing }}",
        );
        assert_eq!(
            rendered.render(&[], None, false).unwrap(),
            "True None 1.0 1e+16 1e-05 [\"a'\", 'b', {'c': False}]"
        );
    }

    #[test]
    fn a_file_of_its_own_comes_first_and_one_of_several_is_chosen_by_the_tools() {
        let several = json!({"chat_template": [
            {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}
        ]});
        let template = open(&[("tokenizer_config.json", several.clone())]).unwrap();
        assert_eq!(template.render(&[], None, true).unwrap(), "plain");
        assert_eq!(template.render(&[], Some(&json!([])), true).unwrap(), "tools");
        let alone = open(&[
            ("tokenizer_config.json", several),
            ("chat_template.jinja", json!("alone")),
        ])
        .unwrap();
        assert_eq!(alone.render(&[], None, true).unwrap(), "alone");
        let processor = open(&[
            ("tokenizer_config.json", json!({"bos_token": null})),
            (
                "special_tokens_map.json",
                json!({"bos_token": "<s>", "eos_token": "</s>"}),
            ),
            (
                "chat_template.json",
                json!({"chat_template": "{{ bos_token }}{{ eos_token }}"}),
            ),
        ])
        .unwrap();
        assert_eq!(processor.render(&[], None, true).unwrap(), "</s>");
        assert_eq!(processor.bos_token(), None);
    }

    #[test]
    fn what_is_no_template_is_named_with_its_file() {
        let missing = open(&[]).unwrap_err().to_string();
        assert!(
            missing.contains("has no chat template") && missing.contains("matrix fetch"),
            "{missing}"
        );
        let broken = open(&[("chat_template.jinja", json!("{% if %}"))])
            .unwrap_err()
            .to_string();
        assert!(broken.contains("chat_template.jinja"), "{broken}");
        let unnamed = json!({"chat_template": [{"name": "rag", "template": "x"}]});
        let unnamed = open(&[("tokenizer_config.json", unnamed)])
            .unwrap_err()
            .to_string();
        assert!(unnamed.contains("`default`"), "{unnamed}");
        let number = open(&[("tokenizer_config.json", json!({"chat_template": 3}))])
            .unwrap_err()
            .to_string();
        assert!(number.contains("must be a string or a list"), "{number}");
    }

    #[test]
    fn the_byte_tokenizers_bring_the_template_of_the_golden_vectors() {
        let bos = ChatTemplate::open(&Tokenizer::bytes_with_bos()).unwrap();
        assert_eq!(
            bos.render_user("hi").unwrap(),
            "<s><|user|>\nhi<|end|>\n<|assistant|>\n"
        );
        assert_eq!(bos.bos_token(), Some("<s>"));
        let plain = ChatTemplate::open(&Tokenizer::bytes()).unwrap();
        assert_eq!(plain.render_user("hi").unwrap().len(), 33);
        assert_eq!(
            plain
                .render(&[json!({"role": "system", "content": "s"})], None, false)
                .unwrap(),
            "<|system|>\ns<|end|>\n"
        );
        assert_ne!(plain.digest(), bos.digest());
    }
}
