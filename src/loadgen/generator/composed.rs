//! Encodes the bytes of a request.

use super::load::Item;
use super::shared::Shared;
use crate::loadgen::dataset::Content;
use crate::loadgen::protocol::{self, Ask, EncodeError};
use crate::loadgen::target::Target;

pub(super) struct Composed {
    pub(super) bytes: Vec<u8>,
    /// The maximum of output tokens that the bytes allow, if it differs from the requested number.
    pub(super) limit_tokens: Option<u32>,
    /// The model that the bytes name, if it differs from the load's model.
    pub(super) model: Option<String>,
}

pub(super) fn composed(item: &Item, content: &Content, shared: &Shared) -> Result<Composed, EncodeError> {
    let ask = Ask {
        model: &shared.target.model,
        tokens: item.asked_tokens,
        stop_at_eos: shared.stop_at_eos,
        body: &shared.body,
        lora: item.lora.as_deref(),
        extras: item.extras.as_deref(),
    };
    let body = protocol::encode(&shared.target.dialect, content, &ask)?;
    let limit_tokens =
        protocol::limit(&shared.target.dialect, &ask).filter(|limit| *limit != item.asked_tokens);
    let model = protocol::other_model(&shared.target.dialect, &ask);
    let bytes = compose(&shared.target, ask.routing_key(), &body);
    Ok(Composed {
        bytes,
        limit_tokens,
        model,
    })
}

fn compose(target: &Target, routing_key: Option<&str>, body: &[u8]) -> Vec<u8> {
    let address = &target.address;
    let mut head = format!(
        "POST {}{} HTTP/1.1\r\n",
        address.prefix,
        protocol::path(&target.dialect)
    );
    let length = body.len().to_string();
    let ours = [
        ("Host", address.authority()),
        (
            "User-Agent",
            concat!("matrix/", env!("CARGO_PKG_VERSION")).to_owned(),
        ),
        ("Accept", "*/*".to_owned()),
        // A compressed stream would arrive in the blocks of the compressor instead of the events of the
        // engine.
        ("Accept-Encoding", "identity".to_owned()),
        ("Content-Type", "application/json".to_owned()),
    ];
    let kept = ours.iter().filter(|(name, _)| !target.headers.has(name));
    let headers = kept
        .map(|(name, value)| (*name, value.as_str()))
        .chain([("Content-Length", length.as_str()), ("Connection", "close")])
        .chain(target.headers.iter())
        .chain(routing_key.map(|key| (protocol::ROUTING_KEY, key)));
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head.push_str("\r\n");
    let mut request = head.into_bytes();
    request.extend_from_slice(body);
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loadgen::target::{Address, Headers};
    use crate::plan::{Dialect, Protocol, Usage};

    /// Source: docs/bench-serving.md 1.3. The Python tool offers compression, whose blocks would hide when an
    /// event was sent.
    #[test]
    fn no_compression_is_offered() {
        let target = Target {
            address: Address::local(1),
            headers: Headers::default(),
            dialect: Dialect {
                protocol: Protocol::Chat,
                path: None,
                usage: Usage::Unasked,
                body: serde_json::Map::new(),
            },
            model: "m".to_owned(),
        };
        let request = String::from_utf8(compose(&target, None, b"{}")).unwrap();
        let encodings: Vec<&str> = request
            .lines()
            .filter(|line| line.to_lowercase().starts_with("accept-encoding"))
            .collect();
        assert_eq!(encodings, ["Accept-Encoding: identity"]);
    }
}
