//! Reads facts from names: engine and version from a title, model and precision from a checkpoint, both from
//! a command.

use std::collections::BTreeMap;

use serde_json::Value;

use super::args::{parse_flags, parse_number, without_quotes};
use super::result_block::{EngineTitle, LaunchInfo};

/// Parts of checkpoint names that name the precision of the weights.
const PRECISIONS: [&str; 17] = [
    "fp8", "fp4", "nvfp4", "mxfp4", "mxfp8", "bf16", "fp16", "int8", "int4", "awq", "gptq", "w8a8", "w4a16",
    "w4a8", "w4afp8", "w8a16", "4bit",
];

/// Engine and version from a heading. The last word is the version if it looks like one.
pub(super) fn engine_title(heading: &str) -> EngineTitle {
    let (name, version) = match heading.trim().rsplit_once(' ') {
        Some((name, last)) if is_version(last) => (name, Some(last.to_owned())),
        _ => (heading.trim(), None),
    };
    EngineTitle {
        name: name.trim().to_owned(),
        version,
    }
}

fn is_version(word: &str) -> bool {
    let digits = word.strip_prefix(['v', 'V']).unwrap_or(word);
    digits.starts_with(|first: char| first.is_ascii_digit()) && digits.contains('.')
}

pub(super) fn without_v(version: &str) -> &str {
    version.strip_prefix(['v', 'V']).unwrap_or(version)
}

/// Model and precision from a checkpoint. The name has no folders of a local path and no precision.
pub(super) fn model_and_precision(checkpoint: &str) -> (String, Option<String>) {
    let checkpoint = checkpoint.trim_end_matches('/');
    let (owner, name) = match checkpoint.rsplit_once('/') {
        Some((owner, name)) if !is_path(checkpoint) => (format!("{owner}/"), name),
        Some((_, name)) => (String::new(), name),
        None => (String::new(), checkpoint),
    };
    let parts: Vec<&str> = name.split('-').collect();
    let is_precision = |part: &&str| PRECISIONS.contains(&part.to_lowercase().as_str());
    match parts.iter().skip(1).position(is_precision) {
        Some(at) => {
            let (name, precision) = parts.split_at(at + 1);
            (
                format!("{owner}{}", name.join("-")),
                Some(precision.join("-").to_lowercase()),
            )
        }
        None => (format!("{owner}{name}"), None),
    }
}

/// The usual name of a precision, in lower case.
pub(super) fn normalize_precision(word: &str) -> String {
    match word.to_lowercase().as_str() {
        "bfloat16" => "bf16".to_owned(),
        "float16" | "half" => "fp16".to_owned(),
        other => other.to_owned(),
    }
}

pub(super) fn is_precision(word: &str) -> bool {
    PRECISIONS.contains(&word.to_lowercase().as_str())
}

/// Whether a checkpoint is a local path, not a name on a model hub.
pub(super) fn is_path(checkpoint: &str) -> bool {
    checkpoint.starts_with(['/', '.', '~']) || checkpoint.matches('/').count() > 1
}

pub(super) fn file_name(checkpoint: &str) -> String {
    let checkpoint = checkpoint.trim_end_matches('/');
    checkpoint.rsplit('/').next().unwrap_or(checkpoint).to_owned()
}

/// The last part of a checkpoint's name in lower case.
pub(super) fn short_name(checkpoint: &str) -> String {
    file_name(checkpoint).to_lowercase()
}

/// Whether the first words of two names are equal. A heading of another family is no model name.
pub(super) fn are_same_family(a: &str, b: &str) -> bool {
    let family = |name: &str| {
        let first = name.split(['-', ' ', '.']).next().unwrap_or(name);
        first.to_lowercase()
    };
    family(a) == family(b)
}

/// A name for paths and keys: lower case, digits, `.` and `-`.
pub(super) fn to_slug(name: &str) -> String {
    let allowed_char = |letter: char| match letter {
        letter if letter.is_ascii_alphanumeric() || letter == '.' => letter.to_ascii_lowercase(),
        _ => '-',
    };
    let slug: String = name.trim().chars().map(allowed_char).collect();
    slug.trim_matches('-').to_owned()
}

/// Parts of commands that start a server.
const SERVERS: [&str; 9] = [
    "vllm serve",
    "sglang serve",
    "launch_server",
    "api_server",
    "trtllm-serve",
    "llama-server",
    "text-generation-launcher",
    "docker run",
    "podman run",
];

/// Parts of commands that run a benchmark client.
const CLIENTS: [&str; 4] = [
    "bench_serving",
    "benchmark_serving",
    "bench serve",
    "--num-prompts",
];

pub(super) fn is_client(command: &str) -> bool {
    CLIENTS.iter().any(|client| command.contains(client))
}

/// The server command in a line, without the shell prompt before it; `None` for other commands and text.
pub(super) fn server_command(line: &str) -> Option<&str> {
    let line = line.trim();
    let prompt = ["$ ", "# ", "+ "].iter().filter_map(|end| {
        let (prompt, command) = line.split_once(end)?;
        // A prompt has at most one word: user, host and folder.
        let is_prompt = prompt.split_whitespace().count() <= 1;
        is_prompt.then_some(command.trim_start())
    });
    let command = prompt.into_iter().next();
    let is_prompted = command.is_some();
    let command = command.unwrap_or(line);
    // The command may begin with variables, as in `CUDA_VISIBLE_DEVICES=0 vllm serve`.
    let mut words = command
        .split_whitespace()
        .skip_while(|word| word.contains('=') && !word.starts_with('-'));
    let program = words
        .find(|word| !["nohup", "exec", "env", "sudo"].contains(word))
        .map(|word| word.rsplit('/').next().unwrap_or(word))?;
    let is_program = program.starts_with("python")
        || SERVERS
            .iter()
            .any(|server| server.split(' ').next() == Some(program))
        || ["lmdeploy", "sglang"].contains(&program);
    let is_server =
        is_program && !is_client(command) && SERVERS.iter().any(|server| command.contains(server));
    // A sentence may begin with the name of a program.
    let is_command = is_prompted || command.contains(" -") || command.ends_with('\\');
    (is_server && is_command).then_some(command)
}

/// Whether the lines of a command start a server. A container command must also name a server or a model.
pub(super) fn starts_server(lines: &[String]) -> bool {
    let text = lines.join(" ");
    let is_named = SERVERS
        .iter()
        .any(|server| !server.ends_with(" run") && text.contains(server));
    !is_client(&text) && (is_named || ["--model", "--hf-repo"].iter().any(|flag| text.contains(flag)))
}

/// Facts of a server from the lines of commands; commands of benchmark clients are skipped.
pub(super) fn launch_info_from_command(line: u32, lines: &[String]) -> LaunchInfo {
    let mut commands: Vec<Vec<&String>> = vec![Vec::new()];
    for line in lines {
        commands.last_mut().expect("one is there").push(line);
        if !line.trim_end().ends_with('\\') {
            commands.push(Vec::new());
        }
    }
    let text = |command: &[&String]| {
        let lines: Vec<&str> = command
            .iter()
            .map(|line| line.trim().trim_end_matches('\\').trim())
            .collect();
        lines.join(" ")
    };
    commands.retain(|command| !is_client(&text(command)));
    let lines: Vec<&String> = commands.into_iter().flatten().collect();
    let joined = text(&lines);
    let long = joined.split_whitespace().map(|word| match word {
        "-tp" | "-pp" | "-dp" | "-ep" => format!("-{word}"),
        "-q" => "--quantization".to_owned(),
        word => word.to_owned(),
    });
    let options = parse_flags(&long.collect::<Vec<_>>().join(" "));
    let mut started = launch_info_from_options(line, &options);
    started.model = started.model.or_else(|| served_model(&joined));
    started.model = started.model.filter(|model| !model.starts_with('$'));
    started.command = lines.iter().map(|line| line.trim_end().to_owned()).collect();
    started
}

/// Facts of a server from its options, which are keyed by name with underscores.
pub(super) fn launch_info_from_options(line: u32, options: &BTreeMap<String, Value>) -> LaunchInfo {
    let text = |names: &[&str]| {
        names.iter().find_map(|name| match options.get(*name)? {
            Value::String(text) => Some(text.clone()),
            _ => None,
        })
    };
    let size = |names: &[&str]| {
        let size = names.iter().find_map(|name| parse_number(options.get(*name)?))?;
        (size >= 1.0 && size.fract() == 0.0).then_some(size as u32)
    };
    // Engines use one GPU by default. With a placeholder such as `$TP` the number is unknown.
    let is_told = ["tp", "tp_size", "tensor_parallel_size"]
        .iter()
        .any(|name| options.contains_key(*name));
    let tp = size(&["tp", "tp_size", "tensor_parallel_size"]).or((!is_told).then_some(1));
    let precision = text(&["quantization"])
        .or_else(|| text(&["dtype"]))
        .filter(|precision| precision != "auto")
        .map(|precision| match precision.as_str() {
            "bfloat16" | "float16" | "half" => normalize_precision(&precision),
            _ => precision,
        });
    LaunchInfo {
        gpus: None,
        gpu: None,
        image: None,
        package: None,
        command: Vec::new(),
        line,
        model: text(&["model_path", "model_tag", "model", "hf_repo"]),
        served_model_name: text(&["served_model_name"]),
        tp,
        pp: size(&["pp", "pp_size", "pipeline_parallel_size"]),
        dp: size(&["dp", "dp_size", "data_parallel_size"]),
        ep: size(&["ep", "ep_size", "expert_parallel_size"]),
        precision,
    }
}

/// The model after `serve` or `api_server`, as in `vllm serve MODEL`.
fn served_model(command: &str) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let at = words
        .iter()
        .rposition(|word| ["serve", "api_server", "trtllm-serve"].contains(word))?;
    let model = words.get(at + 1).filter(|word| !word.starts_with('-'))?;
    Some(without_quotes(model).to_owned())
}

/// The image of a `docker pull`.
pub(super) fn docker_image(text: &str) -> Option<String> {
    let rest = text.split("docker pull").nth(1)?;
    let image = rest.split_whitespace().next()?;
    Some(without_quotes(image).to_owned())
}

/// The first package of a `pip install`.
pub(super) fn pip_package(text: &str) -> Option<String> {
    let rest = text.split("pip install").nth(1)?;
    let package = rest
        .lines()
        .next()?
        .split_whitespace()
        .find(|word| !word.starts_with('-'))?;
    Some(without_quotes(package).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_names_engine_and_version() {
        let title_parts = |heading: &str| {
            let EngineTitle { name, version } = engine_title(heading);
            (name, version.unwrap_or_default())
        };
        assert_eq!(
            title_parts("SGLang v0.5.1"),
            ("SGLang".to_owned(), "v0.5.1".to_owned())
        );
        assert_eq!(
            title_parts("LMDeploy 0.10.0"),
            ("LMDeploy".to_owned(), "0.10.0".to_owned())
        );
        assert_eq!(
            title_parts("Our server"),
            ("Our server".to_owned(), String::new())
        );
    }

    #[test]
    fn a_checkpoint_tells_model_and_precision() {
        let model_parts = |checkpoint: &str| {
            let (name, precision) = model_and_precision(checkpoint);
            (name, precision.unwrap_or_default())
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(model_parts("Qwen/Qwen3-8B-FP8"), pair("Qwen/Qwen3-8B", "fp8"));
        assert_eq!(model_parts("openai/gpt-oss-20b"), pair("openai/gpt-oss-20b", ""));
        assert_eq!(
            model_parts("/root/models/Qwen3-Coder-480B-A35B-Instruct-w8a8-QuaRot"),
            pair("Qwen3-Coder-480B-A35B-Instruct", "w8a8-quarot")
        );
    }

    #[test]
    fn commands_of_servers_are_told_from_others_and_from_text() {
        for (line, command) in [
            ("$ vllm serve a/b --tp 8", "vllm serve a/b --tp 8"),
            ("vllm serve a/b --tp 8", "vllm serve a/b --tp 8"),
            ("user@box:~/x$ sglang serve a/b", "sglang serve a/b"),
            ("+ docker run x/y:z --model a/b", "docker run x/y:z --model a/b"),
            (
                "CUDA_VISIBLE_DEVICES=0 python3 -m sglang.launch_server --model-path a/b",
                "CUDA_VISIBLE_DEVICES=0 python3 -m sglang.launch_server --model-path a/b",
            ),
        ] {
            assert_eq!(server_command(line), Some(command), "{line}");
        }
        for line in [
            "vllm serve is ready",
            "Waiting for vllm serve -- please wait",
            "$ vllm bench serve --model a/b",
            "$ python3 -m sglang.bench_serving --model a/b",
            "$ ls -l",
            "",
        ] {
            assert_eq!(server_command(line), None, "{line}");
        }
    }

    #[test]
    fn commands_tell_model_and_size() {
        let info_of = |command: &str| {
            let lines: Vec<String> = command.lines().map(str::to_owned).collect();
            let started = launch_info_from_command(1, &lines);
            (started.model.unwrap_or_default(), started.tp)
        };
        let pair = |a: &str, tp| (a.to_owned(), tp);
        assert_eq!(
            info_of("python3 -m sglang.launch_server --model-path a/b --tp 2 --host 0.0.0.0"),
            pair("a/b", Some(2))
        );
        assert_eq!(
            info_of("docker run x \\\n  --model a/b --tensor-parallel-size 8 \\\n  --host 0.0.0.0"),
            pair("a/b", Some(8))
        );
        assert_eq!(
            info_of("vllm serve a/b -tp 8 &\npython3 -m sglang.bench_serving \\\n --model c/d --tp 1"),
            pair("a/b", Some(8))
        );
        assert_eq!(
            info_of("lmdeploy serve api_server a/b --enable-metrics"),
            pair("a/b", Some(1))
        );
        assert_eq!(info_of("vllm serve 'a/b' --tp=4"), pair("a/b", Some(4)));
        assert_eq!(
            info_of("lmdeploy serve api_server $MODEL --tp $TP"),
            pair("", None)
        );
    }
}
