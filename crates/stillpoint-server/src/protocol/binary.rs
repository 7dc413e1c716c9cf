//! The binary protocol: a header of 24 bytes, then extras, key and value. Old clients speak it.

use crate::store::Mode;

/// The first byte of a request.
pub const REQUEST: u8 = 0x80;
/// The first byte of a response.
pub const RESPONSE: u8 = 0x81;
/// A header's length.
pub const HEADER: usize = 24;

/// The operation of a request, whether it is quiet or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operation {
    Get { key: bool },
    Store(Mode),
    Delete,
    Arithmetic { down: bool },
    Quit,
    Flush,
    Noop,
    Version,
    Stat,
    Touch,
    GetAndTouch { key: bool },
    Verbosity,
}

impl Operation {
    /// The operation of an opcode, and whether it is quiet.
    #[must_use]
    pub const fn of(opcode: u8) -> Option<(Self, bool)> {
        let (loud, quiet) = match opcode {
            0x09 => (0x00, true),
            0x0d => (0x0c, true),
            0x11..=0x18 => (opcode - 0x10, true),
            0x19 | 0x1a => (opcode - 0x0b, true),
            0x1e | 0x24 => (opcode - 1, true),
            _ => (opcode, false),
        };
        let operation = match loud {
            0x00 => Self::Get { key: false },
            0x01 => Self::Store(Mode::Set),
            0x02 => Self::Store(Mode::Add),
            0x03 => Self::Store(Mode::Replace),
            0x04 => Self::Delete,
            0x05 => Self::Arithmetic { down: false },
            0x06 => Self::Arithmetic { down: true },
            0x07 => Self::Quit,
            0x08 => Self::Flush,
            0x0a => Self::Noop,
            0x0b => Self::Version,
            0x0c => Self::Get { key: true },
            0x0e => Self::Store(Mode::Append),
            0x0f => Self::Store(Mode::Prepend),
            0x10 => Self::Stat,
            0x1b => Self::Verbosity,
            0x1c => Self::Touch,
            0x1d => Self::GetAndTouch { key: false },
            // From 0x20 to 0x22 SASL: a client logs in by the text protocol only.
            0x23 => Self::GetAndTouch { key: true },
            _ => return None,
        };
        Some((operation, quiet))
    }

    /// Whether extras, key and body of these lengths are what the operation has.
    #[must_use]
    pub const fn fits(self, extras: usize, key: usize, body: usize) -> bool {
        let value = match body.checked_sub(extras + key) {
            Some(value) => value,
            None => return false,
        };
        match self {
            Self::Get { .. } | Self::Delete => extras == 0 && key > 0 && value == 0,
            Self::Store(Mode::Append | Mode::Prepend) => extras == 0 && key > 0,
            Self::Store(_) => extras == 8 && key > 0,
            Self::Arithmetic { .. } => extras == 20 && key > 0 && value == 0,
            Self::Touch | Self::GetAndTouch { .. } => extras == 4 && key > 0 && value == 0,
            Self::Flush => (extras == 0 || extras == 4) && key == 0 && value == 0,
            Self::Verbosity => extras == 4 && key == 0 && value == 0,
            Self::Stat => extras == 0 && value == 0,
            Self::Quit | Self::Noop | Self::Version => extras == 0 && key == 0 && value == 0,
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(u16)]
pub enum Status {
    Ok = 0x00,
    NotFound = 0x01,
    Exists = 0x02,
    TooLarge = 0x03,
    Invalid = 0x04,
    NotStored = 0x05,
    NotANumber = 0x06,
    AuthError = 0x20,
    UnknownCommand = 0x81,
    OutOfMemory = 0x82,
}

impl Status {
    /// Returns the body of an error.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Ok => "",
            Self::NotFound => "Not found",
            Self::Exists => "Data exists for key.",
            Self::TooLarge => "Too large.",
            Self::Invalid => "Invalid arguments",
            Self::NotStored => "Not stored.",
            Self::NotANumber => "Non-numeric server-side value for incr or decr",
            Self::AuthError => "Auth failure.",
            Self::UnknownCommand => "Unknown command",
            Self::OutOfMemory => "Out of memory",
        }
    }
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which operation.
    pub opcode: u8,
    /// The key's length.
    pub key: u16,
    /// The extras' length.
    pub extras: u8,
    /// The length of extras, key and value together.
    pub body: u32,
    /// The opaque number, which the response returns.
    pub opaque: [u8; 4],
    /// The CAS value that the item must have, or 0.
    pub cas: u64,
}

impl Header {
    /// Reads a header; `None` if `input` does not begin with the byte of a request, or has fewer than 24 bytes.
    #[must_use]
    pub fn parse(input: &[u8]) -> Option<Self> {
        let (bytes, _) = input.split_first_chunk::<HEADER>()?;
        if bytes[0] != REQUEST {
            return None;
        }
        Some(Self {
            opcode: bytes[1],
            key: u16::from_be_bytes([bytes[2], bytes[3]]),
            extras: bytes[4],
            body: u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            opaque: [bytes[12], bytes[13], bytes[14], bytes[15]],
            cas: u64_at(bytes, 16),
        })
    }

    /// Appends the header of a response whose extras, key and value have `lengths`, in bytes.
    pub fn push_response(&self, out: &mut Vec<u8>, status: Status, lengths: [usize; 3], cas: u64) {
        let [extras, key, value] = lengths;
        let body = extras + key + value;
        let mut bytes = [0; HEADER];
        bytes[0] = RESPONSE;
        bytes[1] = self.opcode;
        bytes[2..4].copy_from_slice(&(key as u16).to_be_bytes());
        bytes[4] = extras as u8;
        bytes[6..8].copy_from_slice(&(status as u16).to_be_bytes());
        bytes[8..12].copy_from_slice(&(body as u32).to_be_bytes());
        bytes[12..16].copy_from_slice(&self.opaque);
        bytes[16..24].copy_from_slice(&cas.to_be_bytes());
        out.extend_from_slice(&bytes);
    }
}

/// Reads four bytes at `at`; 0 where there are fewer.
#[must_use]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let found = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<4>());
    found.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Reads eight bytes at `at`; 0 where there are fewer.
#[must_use]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<8>());
    found.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arbitrary_headers_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), opcode: u8) {
            let mut bytes = bytes;
            if bytes.len() > 1 {
                bytes[0] = REQUEST;
                bytes[1] = opcode;
            }
            if let Some(header) = Header::parse(&bytes)
                && let Some((operation, _)) = Operation::of(header.opcode)
            {
                let (extras, key, body) = (header.extras.into(), header.key.into(), header.body as usize);
                prop_assert!(!operation.fits(extras, key, body) || extras + key <= body);
            }
        }
    }

    #[test]
    fn lengths_that_contradict_each_other_are_refused() {
        // A negative value, as the sum of the others: what crashed memcached once.
        let bytes = *b"\x80\x12\x00\x01\x08\x00\x00\x00\xff\xff\xff\xe8\0\0\0\0\0\0\0\0\0\0\0\0";
        let header = Header::parse(&bytes).unwrap();
        assert_eq!(
            (header.key, header.extras, header.body),
            (1, 8, 0xffff_ffe8)
        );
        assert!(!Operation::Store(Mode::Add).fits(8, 1, 8));
        assert!(Operation::Store(Mode::Add).fits(8, 1, 9));
        assert!(!Operation::Get { key: false }.fits(0, 1, 2));
        assert!(!Operation::Get { key: false }.fits(0, 0, 0));
        assert!(Header::parse(&bytes[..23]).is_none());
        assert!(Header::parse(&[RESPONSE; 24]).is_none());
    }

    #[test]
    fn a_response_has_the_request_s_opaque() {
        let header =
            Header::parse(b"\x80\x00\x00\x01\0\0\0\0\0\0\0\x01abcd\0\0\0\0\0\0\0\x07k").unwrap();
        assert_eq!((header.key, header.cas, header.body), (1, 7, 1));
        let mut out = Vec::new();
        header.push_response(&mut out, Status::Ok, [4, 0, 3], 9);
        assert_eq!(
            out,
            b"\x81\x00\0\0\x04\0\0\0\0\0\0\x07abcd\0\0\0\0\0\0\0\x09"
        );
    }
}
