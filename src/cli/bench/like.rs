//! `matrix bench --like TOOL`: the command line of another tool.

use std::ffi::OsString;

use clap::ValueEnum;

/// The hidden command that has the flags of `vllm bench serve`.
pub(crate) const VLLM_COMMAND: &str = "__bench-like-vllm";

/// The tool whose flags and output `matrix bench` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LikeTool {
    /// `sglang.bench_serving`.
    Sglang,
    /// `vllm bench serve`.
    Vllm,
}

/// Replaces `bench --like vllm` by [`VLLM_COMMAND`], and underscores in the names of flags after it by hyphens,
/// as vLLM's parser does. Other command lines stay as they are.
pub(in crate::cli) fn expand_like(args: Vec<OsString>) -> Vec<OsString> {
    let Some((place, like, length)) = find_like(&args) else {
        return args;
    };
    let is_left_out = |at: &usize| (like..like + length).contains(at);
    let kept = (0..args.len()).filter(|at| !is_left_out(at));
    kept.map(|at| match at {
        _ if at == place => VLLM_COMMAND.into(),
        _ if at > place => with_hyphens(&args[at]),
        _ => args[at].clone(),
    })
    .collect()
}

/// Returns the index of `bench`, that of `--like vllm`, and of how many arguments that consists.
fn find_like(args: &[OsString]) -> Option<(usize, usize, usize)> {
    let is_global = |at: &usize| {
        let is_value = args[at - 1] == "--log" || args[at - 1] == "--color";
        is_value || args[*at].to_string_lossy().starts_with('-')
    };
    let place = (1..args.len()).find(|at| !is_global(at))?;
    if args[place] != "bench" {
        return None;
    }
    (place + 1..args.len()).find_map(|at| {
        let length = match args[at].to_str()? {
            "--like=vllm" => 1,
            "--like" if args.get(at + 1)? == "vllm" => 2,
            _ => return None,
        };
        Some((place, at, length))
    })
}

fn with_hyphens(arg: &OsString) -> OsString {
    match arg.to_str() {
        Some(text) if text.starts_with("--") => {
            let (name, value) = text.split_at(text.find(['=', '.']).unwrap_or(text.len()));
            format!("{}{value}", name.replace('_', "-")).into()
        }
        _ => arg.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(line: &str) -> String {
        let args = line.split(' ').map(OsString::from).collect();
        let args = expand_like(args).into_iter();
        args.map(|arg| arg.into_string().unwrap())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn the_flags_after_like_vllm_belong_to_vllm() {
        for (line, expected) in [
            (
                "matrix bench --like vllm --num_prompts 5 --extra_body={\"a_b\":1}",
                "matrix __bench-like-vllm --num-prompts 5 --extra-body={\"a_b\":1}",
            ),
            (
                "matrix --log bench bench --save_result --like=vllm a_b",
                "matrix --log bench __bench-like-vllm --save-result a_b",
            ),
            (
                "matrix bench --like sglang --a_b",
                "matrix bench --like sglang --a_b",
            ),
            ("matrix bench --num_prompts 5", "matrix bench --num_prompts 5"),
            ("matrix run bench --like vllm", "matrix run bench --like vllm"),
        ] {
            assert_eq!(expanded(line), expected);
        }
    }
}
