//! Compares the options of a client that are written at several places of a text.

use crate::import::args::ClientOptions;
use crate::import::block::Block;
use crate::import::result_block::{ResultBlock, WarningSubject};

/// Compares the client's printed arguments with those of the script around it.
pub(super) fn compare_script(
    result: &mut ResultBlock,
    line: u32,
    script_options: &ClientOptions,
    options: &ClientOptions,
) {
    let pairs = [
        (
            "prompts",
            to_text(script_options.prompts),
            to_text(options.prompts),
        ),
        (
            "data set",
            script_options.dataset.clone(),
            options.dataset.clone(),
        ),
        (
            "input length",
            to_text(script_options.input_len),
            to_text(options.input_len),
        ),
        (
            "output length",
            to_text(script_options.output_len),
            to_text(options.output_len),
        ),
        ("backend", script_options.backend.clone(), options.backend.clone()),
    ];
    for (what, script, client) in pairs {
        if let (Some(script), Some(client)) = (script, client)
            && script != client
        {
            result.warn(
                line,
                WarningSubject::Identity,
                format!("{what}: the script says `{script}`, but the client's arguments say `{client}`"),
            );
        }
    }
}

/// Compares the client's printed arguments with the block.
pub(super) fn compare_block(result: &mut ResultBlock, block: &Block, options: &ClientOptions) {
    if let (Some(printed), Some(requested)) = (block.rate, options.rate)
        && printed != requested
    {
        result.warn(
            block.line,
            WarningSubject::Identity,
            format!("the result block says {printed} req/s, but the client's arguments say {requested}"),
        );
    }
    let limit = |limit: Option<u32>, is_unlimited: bool| match limit {
        Some(limit) => Some(format!("at most {limit} requests at a time")),
        None => is_unlimited.then(|| "any number of requests at a time".to_owned()),
    };
    if let (Some(printed), Some(requested)) = (
        limit(block.concurrency_limit, block.is_unlimited),
        limit(options.concurrency, options.is_unlimited),
    ) && printed != requested
    {
        result.warn(
            block.line,
            WarningSubject::Identity,
            format!(
                "the limit of concurrent requests is unclear: the result block says {printed}, but the client's arguments say {requested}"
            ),
        );
    }
    if let (Some(printed), Some(requested)) = (&block.backend, &options.backend)
        && printed != requested
    {
        result.warn(
            block.line,
            WarningSubject::Identity,
            format!(
                "the result block says backend `{printed}`, but the client's arguments say `{requested}`"
            ),
        );
    }
}

/// Compares options quoted in the text with those of a block with the same data set.
pub(super) fn compare_quoted(result: &mut ResultBlock, line: u32, quoted: &ClientOptions) {
    let is_meant = quoted.dataset.is_none() || quoted.dataset == result.options.dataset;
    if !is_meant {
        return;
    }
    if let (Some(quoted_value), Some(sent)) = (quoted.prompts, result.options.prompts)
        && quoted_value != sent
    {
        result.warn(
            line,
            WarningSubject::Identity,
            format!("the text around the result states {quoted_value} prompts, but {sent} were requested"),
        );
    }
    if let (Some(quoted_value), Some(sent)) = (quoted.seed, result.options.seed)
        && quoted_value != sent
    {
        result.warn(
            line,
            WarningSubject::Identity,
            format!("the text around the result states seed {quoted_value}, but the client used seed {sent}"),
        );
    }
}

fn to_text<T: ToString>(value: Option<T>) -> Option<String> {
    value.map(|value| value.to_string())
}
