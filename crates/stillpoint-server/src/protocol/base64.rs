//! Base64 with padding, for the keys of meta commands: at most 250 bytes, into a buffer of the caller's.

use super::MAX_KEY;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A decoded key, on the stack.
#[derive(Clone, Copy, Debug)]
pub struct Decoded {
    bytes: [u8; MAX_KEY],
    len: usize,
}

impl Decoded {
    /// Returns the decoded bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Decodes `text`, whose padding may be missing; `None` if it is empty, longer than a key, or no base64.
#[must_use]
pub fn decode(text: &[u8]) -> Option<Decoded> {
    let padding = text.iter().rev().take_while(|&&byte| byte == b'=').count();
    if padding > 2 || (padding > 0 && !text.len().is_multiple_of(4)) {
        return None;
    }
    let text = &text[..text.len() - padding];
    // One character has six bits, which are no byte.
    if text.is_empty() || text.len() > MAX_KEY * 4 / 3 + 1 || text.len() % 4 == 1 {
        return None;
    }
    let mut decoded = Decoded {
        bytes: [0; MAX_KEY],
        len: 0,
    };
    let (mut bits, mut count) = (0u32, 0);
    for &byte in text {
        bits = (bits << 6) | u32::from(value_of(byte)?);
        count += 6;
        if count >= 8 {
            count -= 8;
            *decoded.bytes.get_mut(decoded.len)? = (bits >> count) as u8;
            decoded.len += 1;
        }
    }
    Some(decoded)
}

fn value_of(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

/// Appends `bytes` in base64, with padding.
pub fn push(out: &mut Vec<u8>, bytes: &[u8]) {
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().enumerate().fold(0u32, |bits, (i, &byte)| {
            bits | (u32::from(byte) << (16 - 8 * i))
        });
        for i in 0..4 {
            out.push(if i <= chunk.len() {
                ALPHABET[(bits >> (18 - 6 * i)) as usize & 63]
            } else {
                b'='
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_survive_the_way_there_and_back(key in proptest::collection::vec(any::<u8>(), 1..=MAX_KEY)) {
            let mut text = Vec::new();
            push(&mut text, &key);
            let decoded = decode(&text).unwrap();
            prop_assert_eq!(decoded.as_bytes(), &key[..]);
            let bare: Vec<u8> = text.into_iter().filter(|&byte| byte != b'=').collect();
            let decoded = decode(&bare).unwrap();
            prop_assert_eq!(decoded.as_bytes(), &key[..]);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(text in proptest::collection::vec(any::<u8>(), 0..600)) {
            if let Some(decoded) = decode(&text) {
                prop_assert!(super::super::is_key(decoded.as_bytes()));
            }
        }
    }

    #[test]
    fn known_answers() {
        for (plain, text) in [
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut out = Vec::new();
            push(&mut out, plain.as_bytes());
            assert_eq!(out, text.as_bytes());
            assert_eq!(
                decode(text.as_bytes()).unwrap().as_bytes(),
                plain.as_bytes()
            );
        }
        for bad in [
            &b""[..],
            b"=",
            b"A",
            b"A===",
            b"Zg=",
            b"Z g",
            b"Zm9v=",
            b"Zg\xff=",
        ] {
            assert!(decode(bad).is_none(), "{bad:?}");
        }
        let mut long = Vec::new();
        push(&mut long, &[7; MAX_KEY + 1]);
        assert!(decode(&long).is_none());
    }
}
