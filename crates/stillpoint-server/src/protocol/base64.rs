//! Keys of meta commands in base64.

use super::MAX_KEY;
use base64ct::{Base64, Encoding};

/// The longest text of a key in bytes: four for each three of the key, the last three with padding.
const MAX_TEXT: usize = MAX_KEY.div_ceil(3) * 4;

/// A decoded key, on the stack.
#[derive(Clone, Copy, Debug)]
pub struct Decoded {
    bytes: [u8; MAX_TEXT / 4 * 3],
    len: usize,
}

impl Decoded {
    /// Returns the decoded bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Decodes `text`, which has its padding. Returns `None` if it is empty, longer than a key, or no
/// base64.
#[must_use]
pub fn decode(text: &[u8]) -> Option<Decoded> {
    let mut bytes = [0; MAX_TEXT / 4 * 3];
    let len = Base64::decode(text, &mut bytes).ok()?.len();
    (1..=MAX_KEY)
        .contains(&len)
        .then_some(Decoded { bytes, len })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode<'a>(key: &[u8], buffer: &'a mut [u8]) -> &'a str {
        Base64::encode(key, buffer).unwrap()
    }

    proptest! {
        #[test]
        fn keys_survive_the_way_there_and_back(key in proptest::collection::vec(any::<u8>(), 1..=MAX_KEY)) {
            let mut buffer = [0; MAX_TEXT];
            let decoded = decode(encode(&key, &mut buffer).as_bytes()).unwrap();
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
        for (plain, text) in [("f", "Zg=="), ("fo", "Zm8="), ("foobar", "Zm9vYmFy")] {
            let decoded = decode(text.as_bytes()).unwrap();
            assert_eq!(decoded.as_bytes(), plain.as_bytes());
        }
        // memcached wants the padding, too.
        for bad in [
            &b""[..],
            b"=",
            b"A",
            b"A===",
            b"Zg",
            b"Zg=",
            b"Z g=",
            // Bits behind the last byte, which memcached ignores.
            b"Zh==",
            b"Zm9=",
            b"Zm9v=",
            b"Zg\xff=",
        ] {
            assert!(decode(bad).is_none(), "{bad:?}");
        }
        let mut buffer = [0; 2 * MAX_TEXT];
        for len in [MAX_KEY + 1, MAX_KEY + 3] {
            let long = encode(&vec![7; len], &mut buffer);
            assert!(decode(long.as_bytes()).is_none());
        }
    }
}
