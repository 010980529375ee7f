//! Packs events: each is stored as its difference from the previous one.

use crate::results::record::chunk::{Chunk, ChunkKind};

/// Kinds by code. The first byte of an event holds the kind in two bits, the encoding of tokens in two,
/// whether a text length follows, and whether the time lies before the previous one.
pub(super) const KINDS: [ChunkKind; 4] = [
    ChunkKind::Answer,
    ChunkKind::Reasoning,
    ChunkKind::Thought,
    ChunkKind::Tool,
];
const UNCOUNTED: u8 = 0;
const ONE_MORE: u8 = 1 << 2;
const COUNTED: u8 = 2 << 2;
const OTHER_BYTES: u8 = 1 << 4;
const EARLIER: u8 = 1 << 5;

pub(super) fn pack(bytes: &mut Vec<u8>, chunk: Chunk, before: Option<Chunk>) {
    let (at_ns, tokens, length) =
        before.map_or((0, None, 0), |before| (before.at_ns, before.tokens, before.bytes));
    let kind = match chunk.kind {
        ChunkKind::Answer => 0,
        ChunkKind::Reasoning => 1,
        ChunkKind::Thought => 2,
        ChunkKind::Tool => 3,
    };
    let counted = match chunk.tokens {
        None => UNCOUNTED,
        actual if actual == tokens.unwrap_or(0).checked_add(1) => ONE_MORE,
        Some(_) => COUNTED,
    };
    let is_other = if chunk.bytes == length { 0 } else { OTHER_BYTES };
    let is_earlier = if chunk.at_ns < at_ns { EARLIER } else { 0 };
    bytes.push(kind | counted | is_other | is_earlier);
    put_varint(bytes, chunk.at_ns.abs_diff(at_ns));
    if let (COUNTED, Some(tokens)) = (counted, chunk.tokens) {
        put_varint(bytes, tokens.into());
    }
    if is_other > 0 {
        put_varint(bytes, chunk.bytes.into());
    }
}

/// Takes one event off the front. Returns `None` and takes nothing if the event is incomplete.
#[inline]
pub(super) fn unpack(bytes: &mut &[u8], before: Option<Chunk>) -> Option<Chunk> {
    let (at_ns, tokens, length) =
        before.map_or((0, None, 0), |before| (before.at_ns, before.tokens, before.bytes));
    let (first, mut rest) = bytes.split_first()?;
    let apart = take_varint(&mut rest)?;
    let at_ns = match first & EARLIER {
        0 => at_ns.wrapping_add(apart),
        _ => at_ns.wrapping_sub(apart),
    };
    let tokens = match first & (ONE_MORE | COUNTED) {
        UNCOUNTED => None,
        ONE_MORE => Some(tokens.unwrap_or(0).wrapping_add(1)),
        _ => Some(u32::try_from(take_varint(&mut rest)?).ok()?),
    };
    let length = match first & OTHER_BYTES {
        0 => length,
        _ => u32::try_from(take_varint(&mut rest)?).ok()?,
    };
    *bytes = rest;
    Some(Chunk {
        at_ns,
        kind: KINDS[usize::from(first & 3)],
        tokens,
        bytes: length,
    })
}

/// Writes a number in groups of seven bits, low groups first (LEB128).
fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

#[inline]
fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    // Most numbers end within eight bytes; their groups are combined without a loop.
    let Some(next) = bytes.first_chunk() else {
        return take_long_varint(bytes);
    };
    let next = u64::from_le_bytes(*next);
    let ends = !next & 0x8080_8080_8080_8080;
    if ends == 0 {
        return take_long_varint(bytes);
    }
    *bytes = &bytes[ends.trailing_zeros() as usize / 8 + 1..];
    // Keep only the bytes up to the first end.
    let groups = next & (ends ^ (ends - 1)) & 0x7f7f_7f7f_7f7f_7f7f;
    let pairs = groups & 0x007f_007f_007f_007f | (groups & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    Some(fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4)
}

/// Reads a number of any length, one group at a time.
#[cold]
fn take_long_varint(bytes: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0u64, 0);
    loop {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_length_are_read_with_and_without_others_after_them() {
        for bits in 0..64 {
            for number in [
                (1u64 << bits) - 1,
                1 << bits,
                0xa5a5_a5a5_a5a5_a5a5 >> bits,
                u64::MAX >> bits,
            ] {
                for after in [0, 1, 7, 20] {
                    let mut bytes = Vec::new();
                    put_varint(&mut bytes, number);
                    bytes.extend(vec![0xff; after]);
                    let mut rest = &bytes[..];
                    assert_eq!((take_varint(&mut rest), rest.len()), (Some(number), after));
                }
            }
        }
        assert_eq!(take_varint(&mut &[0x80; 9][..]), None, "it does not end");
    }
}
