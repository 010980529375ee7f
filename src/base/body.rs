//! Reads the bodies of untimed answers with a size limit, so that polling cannot exhaust the host's memory.

use reqwest::Response;
use thiserror::Error;

/// Maximum length of an answer, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = 16 << 20;

#[derive(Debug, Error)]
pub(crate) enum BodyError {
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    #[error("the response is longer than {} MiB", MAX_BODY_BYTES >> 20)]
    TooLong,
}

/// Reads the body of an answer as text. Invalid UTF-8 becomes `U+FFFD`.
pub(crate) async fn read_text(mut answer: Response) -> Result<String, BodyError> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if body.len() + chunk.len() > MAX_BODY_BYTES {
            return Err(BodyError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(
        String::from_utf8(body)
            .unwrap_or_else(|wrong| String::from_utf8_lossy(wrong.as_bytes()).into_owned()),
    )
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn an_answer_without_end_is_given_up_at_the_bound() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            let mut sent = 0_usize;
            while stream.write_all(&[b'['; 1 << 16]).is_ok() {
                sent += 1 << 16;
            }
            sent
        });
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
        let answer = client.get(url).send().await.unwrap();
        assert!(matches!(read_text(answer).await, Err(BodyError::TooLong)));
        assert!(server.join().unwrap() < 4 * MAX_BODY_BYTES);
    }
}
