//! Requests that the client cancels.

use crate::cli::bench::BenchArgs;
use crate::config::cancel::Cancel;

use super::request;

/// Returns which requests the client cancels, if any, or all errors in its flags.
pub(super) fn cancel(args: &BenchArgs) -> Result<Option<Cancel>, Vec<String>> {
    let flags = &args.cancel;
    let Some(share) = flags.cancel_share else {
        return match flags.cancel_after_tokens.is_some() || flags.cancel_after.is_some() {
            true => Err(vec![
                "`--cancel-after-tokens` and `--cancel-after` have no effect without `--cancel-share`; give the share of requests to \
                 cancel, such as 0.2"
                    .to_owned(),
            ]),
            false => Ok(None),
        };
    };
    let cancel = Cancel {
        share,
        after_tokens: flags.cancel_after_tokens,
        after: flags.cancel_after,
    };
    let mut errors: Vec<String> = Vec::new();
    errors.extend(
        cancel
            .find_error()
            .map(|why| format!("`--cancel-share`: {why} (`--cancel-after-tokens`, `--cancel-after`)")),
    );
    // Errors in the body are reported elsewhere.
    let extra = request::extra_body(args).unwrap_or_default();
    let dialect = request::protocol_spec(args, args.extensions.rules);
    let backend = format!("the backend `{}`", args.server.backend.name());
    if let Some((why, help)) =
        cancel.unsupported_reason(dialect.protocol, &backend, dialect.is_streamed(&extra))
    {
        errors.push(format!("`--cancel-share`: {why}; {help}"));
    }
    match errors.is_empty() {
        true => Ok(Some(cancel)),
        false => Err(errors),
    }
}
