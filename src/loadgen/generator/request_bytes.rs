//! Encodes the bytes of a request.

use super::load_spec::PlannedRequest;
use super::shared::Shared;
use crate::config::connections::ConnectionLifetime;
use crate::loadgen::dataset::Content;
use crate::loadgen::protocol::{self, EncodeError, EncodedBody, ExpectedResults, RequestParams};
use crate::loadgen::request::{Outgoing, SharedFile};
use crate::loadgen::target::{Address, Target};

pub(super) struct EncodedRequest {
    pub(super) bytes: Outgoing,
    /// The maximum of output tokens that the bytes allow, if it differs from the requested number.
    pub(super) limit_tokens: Option<u32>,
    /// The model that the bytes name, if it differs from the load's model.
    pub(super) model: Option<String>,
    /// What a complete answer without text has.
    pub(super) expected_results: Option<ExpectedResults>,
}

pub(super) fn encode_request(
    planned: &PlannedRequest,
    content: &Content,
    shared: &Shared,
) -> Result<EncodedRequest, EncodeError> {
    let params = RequestParams {
        model: &shared.target.model,
        tokens: planned.requested_tokens,
        stop_at_eos: shared.stop_at_eos,
        body: &shared.body,
        lora: planned.lora_adapter.as_deref(),
        extras: planned.extras.as_deref(),
    };
    let body = protocol::encode_body(&shared.target.dialect, content, &params)?;
    let limit_tokens = protocol::output_limit(&shared.target.dialect, &params)
        .filter(|limit| *limit != planned.requested_tokens);
    let model = protocol::other_model(&shared.target.dialect, &params);
    let expected_results = protocol::expected_results(&shared.target.dialect, &params);
    let bytes = http_request(&shared.target, shared.connections.lifetime, &params, body);
    Ok(EncodedRequest {
        bytes,
        limit_tokens,
        model,
        expected_results,
    })
}

/// The beginning of a request that depends on its address.
pub(super) fn request_lead(target: &Target, address: &Address) -> String {
    let path = protocol::path(&target.dialect);
    let mut lead = format!("POST {}{path} HTTP/1.1\r\n", address.prefix);
    if !target.headers.has("Host") {
        lead.extend(["Host: ", &address.authority(), "\r\n"]);
    }
    lead
}

fn http_request(
    target: &Target,
    lifetime: ConnectionLifetime,
    params: &RequestParams<'_>,
    body: EncodedBody,
) -> Outgoing {
    let mut head = request_lead(target, &target.address);
    let file_length = body.file.as_ref().map_or(0, |file| file.bytes.len());
    let length = (body.own.len() + file_length).to_string();
    let ours = [
        (
            "User-Agent",
            concat!("matrix/", env!("CARGO_PKG_VERSION")).to_owned(),
        ),
        ("Accept", "*/*".to_owned()),
        // A compressed stream would arrive in the blocks of the compressor instead of the events of the
        // engine.
        ("Accept-Encoding", "identity".to_owned()),
        ("Content-Type", body.media_type.into_owned()),
    ];
    let of_protocol = target.dialect.protocol.facts().headers.iter().copied();
    let request_id = params.request_id();
    let given = target
        .headers
        .iter()
        .filter(|(name, _)| request_id.is_none() || !name.eq_ignore_ascii_case(protocol::REQUEST_ID_HEADER));
    let routing_key_header = target.dialect.routing_key_header.as_deref();
    let routing_key_header = routing_key_header.unwrap_or(protocol::ROUTING_KEY_HEADER);
    // Without this header a connection of HTTP/1.1 stays open.
    let is_closed = lifetime == ConnectionLifetime::Request;
    let own_headers = ours
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .chain(of_protocol)
        .filter(|(name, _)| !target.headers.has(name));
    let headers = own_headers
        .chain([("Content-Length", length.as_str())])
        .chain(is_closed.then_some(("Connection", "close")))
        .chain(given)
        .chain(params.routing_key().map(|key| (routing_key_header, key)))
        .chain(request_id.map(|id| (protocol::REQUEST_ID_HEADER, id)));
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head.push_str("\r\n");
    let mut request = head.into_bytes();
    let file = body.file.map(|file| SharedFile {
        at: request.len() + file.at,
        ..file
    });
    request.extend_from_slice(&body.own);
    Outgoing::with_file(request, file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loadgen::target::Headers;
    use crate::plan::{ClientStyle, Protocol, ProtocolSpec, UsageRequest};

    fn request(protocol: Protocol, headers: &[(&str, &str)]) -> String {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let target = Target {
            address: Address::local(1),
            headers: Headers::new(headers.collect()).unwrap(),
            dialect: ProtocolSpec {
                protocol,
                path: None,
                usage: UsageRequest::Unasked,
                body: serde_json::Map::new(),
                routing_key_header: None,
                embeddings: Default::default(),
                style: ClientStyle::BenchServing,
            },
            model: "m".to_owned(),
            connections: Default::default(),
        };
        let fields = serde_json::Map::new();
        let params = RequestParams::without_extras("m", 1, false, &fields);
        let body = EncodedBody {
            media_type: "application/json".into(),
            own: b"{}".to_vec(),
            file: None,
        };
        String::from_utf8(http_request(&target, ConnectionLifetime::Request, &params, body).concat()).unwrap()
    }

    fn lines_of(request: &str, header: &str) -> Vec<String> {
        let lines = request.lines().map(str::to_lowercase);
        lines.filter(|line| line.starts_with(header)).collect()
    }

    /// Source: docs/bench-serving.md 1.3. The Python tool offers compression, whose blocks would hide when an
    /// event was sent.
    #[test]
    fn no_compression_is_offered() {
        let encodings = lines_of(&request(Protocol::Chat, &[]), "accept-encoding");
        assert_eq!(encodings, ["accept-encoding: identity"]);
    }

    #[test]
    fn a_header_that_a_protocol_needs_is_sent_once_and_the_users_own_wins() {
        let versions =
            |headers: &[(&str, &str)]| lines_of(&request(Protocol::Messages, headers), "anthropic-version");
        assert_eq!(versions(&[]), ["anthropic-version: 2023-06-01"]);
        assert_eq!(
            versions(&[("Anthropic-Version", "2099-01-01")]),
            ["anthropic-version: 2099-01-01"]
        );
    }
}
