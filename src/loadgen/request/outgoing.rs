//! The bytes of a request that goes out.

use std::sync::Arc;

/// The bytes of a request. A file in it is shared by all requests that send it, and copied for none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outgoing {
    /// All bytes but those of the file.
    own: Vec<u8>,
    file: Option<SharedFile>,
}

/// A file inside a request.
#[derive(Clone, Debug)]
pub(crate) struct SharedFile {
    /// The place in the other bytes before which it stands.
    pub(crate) at: usize,
    pub(crate) bytes: Arc<Vec<u8>>,
}

impl From<Vec<u8>> for Outgoing {
    fn from(own: Vec<u8>) -> Self {
        Self { own, file: None }
    }
}

impl Outgoing {
    pub(crate) fn with_file(own: Vec<u8>, file: Option<SharedFile>) -> Self {
        Self { own, file }
    }

    pub(crate) fn len(&self) -> usize {
        self.own.len() + self.file.as_ref().map_or(0, |file| file.bytes.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// Returns how much memory it takes by itself, without a shared file.
    pub(crate) fn own_len(&self) -> usize {
        self.own.len()
    }

    /// Returns bytes from the one at `place` on that lie together in memory: all that are left, unless a file stands among
    /// them.
    pub(crate) fn rest(&self, place: usize) -> &[u8] {
        let Some(SharedFile { at, bytes }) = &self.file else {
            return &self.own[place..];
        };
        let after = at + bytes.len();
        match place {
            place if place < *at => &self.own[place..*at],
            place if place < after => &bytes[place - at..],
            place => &self.own[place - bytes.len()..],
        }
    }

    /// Replaces the first `length` bytes, which lie before the file.
    pub(crate) fn replace_beginning(&mut self, length: usize, with: &[u8]) {
        self.own.splice(..length, with.iter().copied());
        if let Some(file) = &mut self.file {
            file.at = file.at - length + with.len();
        }
    }

    /// Returns all bytes in one piece.
    #[cfg(test)]
    pub(crate) fn concat(&self) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < self.len() {
            all.extend_from_slice(self.rest(all.len()));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stands_inside_the_other_bytes_wherever_writing_stopped() {
        for at in 0..=4 {
            let file = SharedFile {
                at,
                bytes: b"FILE".to_vec().into(),
            };
            let request = Outgoing::with_file(b"abcd".to_vec(), Some(file));
            let whole = [&b"abcd"[..at], b"FILE", &b"abcd"[at..]].concat();
            assert_eq!((request.len(), request.own_len()), (8, 4));
            for place in 0..8 {
                let rest = request.rest(place);
                assert!(
                    !rest.is_empty() && whole[place..].starts_with(rest),
                    "{at} {place}"
                );
            }
            assert_eq!(request.rest(8), b"");
            assert_eq!(request.concat(), whole);
        }
    }

    #[test]
    fn another_beginning_moves_the_file() {
        let file = SharedFile {
            at: 3,
            bytes: b"FILE".to_vec().into(),
        };
        let mut request = Outgoing::with_file(b"abcd".to_vec(), Some(file));
        request.replace_beginning(2, b"12345");
        assert_eq!(request.concat(), b"12345cFILEd");
    }

    #[test]
    fn requests_share_the_bytes_of_their_file() {
        let bytes = Arc::new(vec![0; 1 << 20]);
        let file = SharedFile {
            at: 0,
            bytes: Arc::clone(&bytes),
        };
        let request = Outgoing::with_file(Vec::new(), Some(file));
        let copy = request.clone();
        assert_eq!(copy.rest(0).as_ptr(), bytes.as_ptr());
        assert_eq!(request.rest(0).as_ptr(), bytes.as_ptr());
    }
}
