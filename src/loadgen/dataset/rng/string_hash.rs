//! Python's hash of a text with `PYTHONHASHSEED=0`: SipHash-1-3 with a key of zeros.

/// `hash(text)` of a text of ASCII characters, as an unsigned number.
pub(crate) fn string_hash(text: &str) -> u64 {
    if text.is_empty() {
        return 0;
    }
    let bytes = text.as_bytes();
    let mut state = [
        0x736f_6d65_7073_6575_u64,
        0x646f_7261_6e64_6f6d,
        0x6c79_6765_6e65_7261,
        0x7465_6462_7974_6573,
    ];
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        compress(&mut state, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = bytes.len() as u8;
    compress(&mut state, u64::from_le_bytes(last));
    state[2] ^= 0xff;
    (0..3).for_each(|_| round(&mut state));
    match state[0] ^ state[1] ^ state[2] ^ state[3] {
        // CPython reserves -1 for errors.
        u64::MAX => u64::MAX - 1,
        hash => hash,
    }
}

fn compress(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    state[0] ^= word;
}

fn round([v0, v1, v2, v3]: &mut [u64; 4]) {
    *v0 = v0.wrapping_add(*v1);
    *v2 = v2.wrapping_add(*v3);
    *v1 = v1.rotate_left(13) ^ *v0;
    *v3 = v3.rotate_left(16) ^ *v2;
    *v0 = v0.rotate_left(32);
    *v2 = v2.wrapping_add(*v1);
    *v0 = v0.wrapping_add(*v3);
    *v1 = v1.rotate_left(17) ^ *v2;
    *v3 = v3.rotate_left(21) ^ *v0;
    *v2 = v2.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_pythons() {
        for (text, hash) in [
            ("", 0),
            ("1:16", 0xb972_e97d_fee9_ec60),
            ("46:512", 0xd99c_bedc_1eba_a871),
            ("12345678", 0x3489_9824_3056_0a87),
            ("a longer text than one word", 0x4512_5d20_97d7_e331),
        ] {
            assert_eq!(string_hash(text), hash, "{text}");
        }
    }
}
