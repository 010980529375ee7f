//! Ranks of an engine over several nodes: one process for each node, of which rank 0, the head, serves requests.
//!
//! The other ranks connect to the head and stay connected: a connection that ends is a lost rank, or for the others
//! a head that has ended. They exchange lines of text:
//!
//! ```text
//! rank → head   matrix-sim rank 1 of 2
//! head → rank   welcome                      or: refused: <reason>
//! rank → head   loaded                       once it has loaded its part of the model
//! ```

use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt};

mod follower;
mod head;

pub(crate) use follower::{JoinError, follow_head};
pub(crate) use head::Head;

/// Where a process stands among the ranks of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ranks {
    /// Number of nodes, each with one rank; at least 2.
    pub(crate) nodes: u32,
    /// The rank of this process, below `nodes`. Rank 0 is the head.
    pub(crate) node_rank: u32,
    /// Name or address of the head's host.
    pub(crate) head_host: String,
    /// The port at which the head listens for the other ranks.
    pub(crate) head_port: u16,
    /// For how long a rank tries to reach the head.
    pub(crate) join_timeout: Duration,
    /// What the head does once another rank is lost.
    pub(crate) rank_loss: RankLoss,
}

impl Ranks {
    /// How many other ranks the head waits for.
    fn others(&self) -> usize {
        self.nodes as usize - 1
    }
}

/// What the head does once another rank is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RankLoss {
    /// It exits with status 1 and resets all connections.
    #[default]
    Exit,
    /// It answers no generation request any more, as in a collective operation that never ends. The health check
    /// succeeds.
    Hang,
}

const WELCOME: &str = "welcome";
const REFUSED: &str = "refused: ";
const LOADED: &str = "loaded";

/// Maximum length of a line between ranks.
const MAX_LINE: usize = 512;

/// The first line of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hello {
    rank: u32,
    nodes: u32,
}

impl Hello {
    fn to_line(self) -> String {
        format!("matrix-sim rank {} of {}", self.rank, self.nodes)
    }

    /// `None` if the line is not the hello of a rank other than the head.
    fn parse(line: &str) -> Option<Self> {
        let (rank, nodes) = line.strip_prefix("matrix-sim rank ")?.split_once(" of ")?;
        let hello = Self {
            rank: rank.parse().ok()?,
            nodes: nodes.parse().ok()?,
        };
        (0 < hello.rank && hello.rank < hello.nodes).then_some(hello)
    }
}

/// Reads one line without its end; `None` if the connection ends first, or the line is too long or not text. What
/// follows the line stays unread.
async fn read_line(reader: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    // Byte by byte: there are three lines in the life of a connection.
    while line.len() < MAX_LINE {
        match reader.read_u8().await.ok()? {
            b'\n' => return String::from_utf8(line).ok(),
            byte => line.push(byte),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_read_as_it_was_written() {
        let hello = Hello { rank: 1, nodes: 2 };
        assert_eq!(Hello::parse(&hello.to_line()), Some(hello));
        for stranger in [
            "",
            "GET / HTTP/1.1",
            "matrix-sim rank 0 of 2",
            "matrix-sim rank 2 of 2",
            "matrix-sim rank -1 of 2",
            "matrix-sim rank 1 of 2 nodes",
        ] {
            assert_eq!(Hello::parse(stranger), None, "{stranger}");
        }
    }

    #[tokio::test]
    async fn a_line_ends_at_its_line_feed_and_is_of_limited_length() {
        let mut bytes: &[u8] = b"one\ntwo\nthree";
        assert_eq!(read_line(&mut bytes).await.as_deref(), Some("one"));
        assert_eq!(read_line(&mut bytes).await.as_deref(), Some("two"));
        assert_eq!(read_line(&mut bytes).await, None);
        let long = [b'x'; MAX_LINE + 1];
        assert_eq!(read_line(&mut long.as_slice()).await, None);
    }
}
