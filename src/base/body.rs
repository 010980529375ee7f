//! Answers to untimed questions, read with a bound: what asks once a second must not take all memory of the host.

use reqwest::Response;
use thiserror::Error;

/// The longest answer that is read, in bytes.
pub(crate) const LONGEST: usize = 16 << 20;

/// Why an answer cannot be read.
#[derive(Debug, Error)]
pub(crate) enum BodyError {
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    /// It is too long.
    #[error("the answer is longer than {} MiB", LONGEST >> 20)]
    Long,
}

/// The body of an answer as text; what is no UTF-8 becomes `U+FFFD`.
///
/// # Errors
/// It breaks off, or is too long.
pub(crate) async fn text(mut answer: Response) -> Result<String, BodyError> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        if body.len() + chunk.len() > LONGEST {
            return Err(BodyError::Long);
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
        assert!(matches!(text(answer).await, Err(BodyError::Long)));
        assert!(server.join().unwrap() < 4 * LONGEST);
    }
}
