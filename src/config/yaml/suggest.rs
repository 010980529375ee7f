//! Suggests names, and formats lists of them.

/// The nearest known name, if it is near enough to be a typo.
pub(crate) fn nearest_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    known
        .into_iter()
        .map(|candidate| {
            (
                strsim::damerau_levenshtein(&name, &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(distance, candidate)| {
            *distance <= 1 + name.chars().count() / 4 && *distance < candidate.chars().count()
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Keys of other tools, and ours. `-` equals `_`.
const SYNONYMS: [(&str, &str); 41] = [
    ("request_rate", "rate"),
    ("num_prompts", "prompts"),
    ("num_requests", "prompts"),
    ("max_concurrency", "concurrency"),
    ("dataset_name", "dataset"),
    ("dataset_path", "path"),
    ("random_input_len", "input_len"),
    ("random_output_len", "output_len"),
    ("random_range_ratio", "range_ratio"),
    ("tensor_parallel_size", "tp"),
    ("pipeline_parallel_size", "pp"),
    ("data_parallel_size", "dp"),
    ("expert_parallel_size", "ep"),
    ("name", "as"),
    ("extra_args", "args"),
    ("server_args", "args"),
    ("engine_args", "args"),
    ("arguments", "args"),
    ("volumes", "mounts"),
    ("volume", "mounts"),
    ("binds", "mounts"),
    ("environment", "env"),
    ("envs", "env"),
    ("docker_image", "image"),
    ("tag", "version"),
    ("input", "input_len"),
    ("input_tokens", "input_len"),
    ("isl", "input_len"),
    ("prompt_len", "input_len"),
    ("output", "output_len"),
    ("output_tokens", "output_len"),
    ("osl", "output_len"),
    ("max_tokens", "output_len"),
    ("qps", "rate"),
    ("rps", "rate"),
    ("users", "concurrency"),
    ("requests", "prompts"),
    ("dtype", "precision"),
    ("quantization", "precision"),
    ("base_url", "url"),
    ("workloads", "scenarios"),
];

/// Keys of earlier versions, and their current names. An earlier name is accepted where the current one is
/// known.
const RENAMED_KEYS: [(&str, &str); 10] = [
    ("blame", "fault"),
    ("contact", "api"),
    ("dead", "fatal"),
    ("dealt", "distribution"),
    ("most", "max_starts"),
    ("patience", "timeouts"),
    ("served", "served_model_name"),
    ("signs", "log_patterns"),
    ("until", "target_ci"),
    ("warm", "max_cache_hits"),
];

/// The known key that was called `name` in earlier versions.
pub(super) fn new_name(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let (_, today) = RENAMED_KEYS.iter().find(|(earlier, _)| *earlier == name)?;
    known.iter().copied().find(|key| key == today)
}

/// The current names of a key: its own, and that of a key which was called so in earlier versions.
pub(super) fn current_names(name: &str) -> impl Iterator<Item = &str> {
    let renamed = RENAMED_KEYS.iter().filter(move |(earlier, _)| *earlier == name);
    std::iter::once(name).chain(renamed.map(|(_, today)| *today))
}

/// The known key whose earlier name is nearest to `name`.
pub(super) fn nearest_renamed(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let is_here = |(_, today): &&(&str, &str)| known.contains(today);
    let earlier = RENAMED_KEYS.iter().filter(is_here).map(|(earlier, _)| *earlier);
    new_name(nearest_name(name, earlier)?, known)
}

/// Sizes of the model that users often write at the engine.
const MODEL_SIZES: [&str; 4] = ["tp", "pp", "dp", "ep"];

/// The known key that other tools call `name`.
pub(super) fn synonym<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let name = name.to_lowercase().replace('-', "_");
    let (_, own_name) = SYNONYMS.iter().find(|(foreign, _)| *foreign == name)?;
    known.iter().copied().find(|key| key == own_name)
}

/// Whether `name` is a size of the model that was written at an engine or the matrix; `known` are the allowed keys.
pub(super) fn is_model_size(name: &str, known: &[&str]) -> bool {
    let is_engine = known.contains(&"as") && known.contains(&"executor");
    let is_matrix = known.contains(&"engines") && known.contains(&"models");
    (is_engine || is_matrix) && MODEL_SIZES.contains(&name)
}

/// Formats names with backticks: `` `a`, `b` and `c` ``.
pub(crate) fn backtick_list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match (quoted.pop(), quoted.is_empty()) {
        (None, _) => String::new(),
        (Some(last), true) => last,
        (Some(last), false) => format!("{} and {last}", quoted.join(", ")),
    }
}

/// Describes a type of serde or std in words for users of YAML.
pub(super) fn describe_expected(expected: &str) -> String {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" | "u64" | "u128" | "usize" => "a whole number, 0 or above",
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a string" | "string" | "str" | "a borrowed string" => "a text",
        "a boolean" => "`true` or `false`",
        "a sequence" | "a set" => "a list",
        "a character" => "a single character",
        "a map" => "a map of keys to values",
        "unit" => "nothing",
        "path string" => "a path",
        _ if expected.starts_with("a nonzero u") => "a whole number above 0",
        _ if expected.starts_with("a nonzero i") => "a whole number other than 0",
        _ if expected.starts_with("struct ") => "a map of keys to values",
        _ => return expected.to_owned(),
    }
    .to_owned()
}

/// Describes a number type whose value is out of range.
pub(super) fn describe_bounds(expected: &str) -> String {
    match expected {
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "u64" | "usize" => format!("a whole number from 0 to {}", u64::MAX),
        "i8" => "a whole number from -128 to 127".to_owned(),
        "i16" => "a whole number from -32768 to 32767".to_owned(),
        "i32" => format!("a whole number from {} to {}", i32::MIN, i32::MAX),
        _ => describe_expected(expected),
    }
}

/// What is expected in place of a map with these keys.
pub(super) fn expected_map(known: &[&'static str]) -> String {
    let current = known.iter().copied().filter(|key| new_name(key, known).is_none());
    match &current.collect::<Vec<_>>()[..] {
        [] => "an empty map".to_owned(),
        [one] => format!("a map with the key `{one}`"),
        many if many.len() <= 8 => format!("a map with the keys {}", backtick_list(many.iter().copied())),
        many => format!(
            "a map with keys such as {}",
            backtick_list(many[..5].iter().copied())
        ),
    }
}
