//! Meta commands: `mg`, `ms`, `md`, `ma`, `me`, whose flags say what is done and what is answered.

use super::{
    MAX_ANNOUNCED, MAX_KEY,
    base64::{self, Decoded},
    number::{parse_i32, parse_u32, parse_u64},
    text::{BAD_FORMAT, Command, ERROR, Refusal, Words},
};
use crate::store::Mode;

/// The longest opaque token, with its letter.
const MAX_OPAQUE: usize = 32;
/// The most words of a meta command.
const MAX_META_WORDS: usize = 20;

/// Which command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `mg`.
    Get,
    /// `ms`, and the value's length.
    Set(usize),
    /// `md`.
    Delete,
    /// `ma`; true to subtract.
    Arithmetic(bool),
    /// `me`.
    Debug,
}

/// A meta command.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Which command.
    pub kind: Kind,
    /// The key as the client wrote it, which is how it is written back.
    pub written_key: &'a [u8],
    decoded: Option<Decoded>,
    words: Words<'a>,
    /// How many words there are before the flags.
    skip: usize,
    /// `q`: no answer if nothing remarkable happens.
    pub quiet: bool,
    /// `v`: with the value.
    pub value: bool,
    /// `u`: not counted as a use.
    pub untouched: bool,
    /// `I`: mark as stale instead of deleting; store a value of an older CAS as stale.
    pub stale: bool,
    /// `N`: create an item that is missing, which expires then.
    pub vivify: Option<i32>,
    /// `T`: expires then, from now on.
    pub exptime: Option<i32>,
    /// `R`: win if less time than this is left.
    pub recache: Option<i32>,
    /// `C`: only if the item has this CAS value.
    pub cas: Option<u64>,
    /// `F`: the client's flags.
    pub flags: u32,
    /// `M` of `ms`: how the value is stored.
    pub mode: Mode,
    /// `J` of `ma`: what an item that is missing begins with.
    pub initial: u64,
    /// `D` of `ma`.
    pub delta: u64,
}

impl<'a> Request<'a> {
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        match &self.decoded {
            Some(decoded) => decoded.as_bytes(),
            None => self.written_key,
        }
    }

    /// Returns whether the key came in base64.
    #[must_use]
    pub fn is_base64(&self) -> bool {
        self.decoded.is_some()
    }

    /// Returns the flags, each a letter and its token, in the order of the request.
    pub fn tokens(&self) -> impl Iterator<Item = (u8, &'a [u8])> + '_ {
        self.words.as_slice()[self.skip..]
            .iter()
            .map(|word| (word[0], &word[1..]))
    }

    /// Appends `O` and `k` if the request has them, in its order: what any answer returns.
    pub fn push_reflected(&self, out: &mut Vec<u8>) {
        for (letter, token) in self.tokens() {
            self.push_if_reflected(out, letter, token);
        }
    }

    /// Appends the flag if it is `O`, `k`, or the `b` of a key that is written back.
    pub fn push_if_reflected(&self, out: &mut Vec<u8>, letter: u8, token: &[u8]) {
        match letter {
            b'O' => {
                out.extend_from_slice(b" O");
                out.extend_from_slice(token);
            }
            b'k' => {
                out.extend_from_slice(b" k");
                out.extend_from_slice(self.written_key);
                if self.is_base64() {
                    out.extend_from_slice(b" b");
                }
            }
            _ => {}
        }
    }
}

const BAD_TOKEN: Refusal = Refusal::new("CLIENT_ERROR bad token in command line format");

/// Reads a meta command of that second letter.
pub(super) fn parse<'a>(letter: u8, words: &Words<'a>) -> Result<Command<'a>, Refusal> {
    let kind = match letter {
        b'n' => return Ok(Command::MetaNoop),
        b'g' => Kind::Get,
        b's' => Kind::Set(0),
        b'd' => Kind::Delete,
        b'a' => Kind::Arithmetic(false),
        b'e' => Kind::Debug,
        _ => return Err(ERROR),
    };
    let key = words.at(1);
    if key.is_empty() {
        return Err(if letter == b'e' { BAD_FORMAT } else { ERROR });
    }
    let (kind, skip) = match kind {
        Kind::Set(_) => match parse_i32(words.at(2)).and_then(|len| usize::try_from(len).ok()) {
            Some(len) if len <= MAX_ANNOUNCED => (Kind::Set(len), 3),
            _ => return Err(BAD_FORMAT),
        },
        other => (other, 2),
    };
    let request = Request {
        kind,
        written_key: key,
        decoded: None,
        words: *words,
        skip,
        quiet: false,
        value: false,
        untouched: false,
        stale: false,
        vivify: None,
        exptime: None,
        recache: None,
        cas: None,
        flags: 0,
        mode: Mode::Set,
        initial: 0,
        delta: 1,
    };
    flags(request)
        .map(Command::Meta)
        .map_err(|refusal| match kind {
            // The value is skipped, or it would be taken for commands.
            Kind::Set(len) => Refusal {
                skip: len as u64 + 2,
                ..refusal
            },
            _ => refusal,
        })
}

fn flags(mut request: Request<'_>) -> Result<Request<'_>, Refusal> {
    let words = request.words;
    // (In base64 a key is longer, but memcached refuses that one too.)
    if request.written_key.len() > MAX_KEY {
        return Err(BAD_FORMAT);
    }
    if words.as_slice().len() > MAX_META_WORDS {
        return Err(Refusal::new("CLIENT_ERROR options flags are too long"));
    }
    let mut seen = 0u128;
    for &word in &words.as_slice()[request.skip..] {
        let (letter, token) = (word[0], &word[1..]);
        if letter >= 127 || seen & (1 << letter) != 0 {
            return Err(Refusal::new("CLIENT_ERROR duplicate flag"));
        }
        seen |= 1 << letter;
        let time = || parse_i32(token).ok_or(BAD_TOKEN).map(Some);
        match letter {
            b'b' => {
                let key = base64::decode(request.written_key);
                request.decoded = Some(key.ok_or(Refusal::new("CLIENT_ERROR error decoding key"))?);
            }
            b'N' => request.vivify = time()?,
            b'T' => {
                request.exptime = time()?;
                // Of the two, the last one counts for an item that is created.
                request.vivify = request.vivify.and(request.exptime);
            }
            b'R' => request.recache = time()?,
            b'O' if word.len() > MAX_OPAQUE => {
                return Err(Refusal::new("CLIENT_ERROR opaque token too long"));
            }
            b'O' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'l' | b'h' => {}
            b'v' => request.value = true,
            b'u' => request.untouched = true,
            b'q' => request.quiet = true,
            b'F' => request.flags = parse_u32(token).ok_or(BAD_FORMAT)?,
            b'C' => request.cas = Some(parse_u64(token).ok_or(BAD_TOKEN)?),
            b'M' => mode(&mut request, token)?,
            b'J' => {
                let line = "CLIENT_ERROR invalid numeric initial value";
                request.initial = parse_u64(token).ok_or(Refusal::new(line))?;
            }
            b'D' => {
                let line = "CLIENT_ERROR invalid numeric delta value";
                request.delta = parse_u64(token).ok_or(Refusal::new(line))?;
            }
            b'I' => request.stale = true,
            _ => return Err(Refusal::new("CLIENT_ERROR invalid flag")),
        }
    }
    Ok(request)
}

fn mode(request: &mut Request<'_>, token: &[u8]) -> Result<(), Refusal> {
    let &[letter] = token else {
        return Err(Refusal::new("CLIENT_ERROR incorrect length for M token"));
    };
    match &mut request.kind {
        Kind::Set(_) => {
            request.mode = match letter {
                b'E' => Mode::Add,
                b'A' => Mode::Append,
                b'P' => Mode::Prepend,
                b'R' => Mode::Replace,
                b'S' => Mode::Set,
                _ => return Err(Refusal::new("CLIENT_ERROR invalid mode for ms M token")),
            };
        }
        Kind::Arithmetic(down) => {
            *down = match letter {
                b'I' | b'+' => false,
                b'D' | b'-' => true,
                _ => return Err(Refusal::new("CLIENT_ERROR invalid mode for ma M token")),
            };
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::text;

    fn request(line: &[u8]) -> Request<'_> {
        match text::parse(line) {
            Ok((Command::Meta(request), false)) => request,
            other => panic!("{}: {other:?}", String::from_utf8_lossy(line)),
        }
    }

    fn refused(line: &[u8]) -> (&'static str, u64) {
        let refusal = text::parse(line).expect_err(&String::from_utf8_lossy(line));
        assert!(
            !refusal.silent,
            "errors of meta commands are always answered"
        );
        (refusal.line, refusal.skip)
    }

    #[test]
    fn flags_are_read_and_reflected_in_their_order() {
        let get = request(b"mg key s v Oabc k T30 N-1 R5 q u");
        assert_eq!((get.kind, get.key()), (Kind::Get, &b"key"[..]));
        assert_eq!(
            (get.exptime, get.vivify, get.recache),
            (Some(30), Some(-1), Some(5))
        );
        assert!(get.quiet && get.value && get.untouched && !get.stale);
        assert_eq!(
            get.tokens().map(|(letter, _)| letter).collect::<Vec<_>>(),
            b"svOkTNRqu"
        );
        let mut out = Vec::new();
        get.push_reflected(&mut out);
        assert_eq!(out, b" Oabc kkey");
    }

    #[test]
    fn keys_in_base64_are_decoded_and_written_back_as_they_came() {
        let get = request(b"mg 44OG44K544OI k b");
        assert!(get.is_base64());
        assert_eq!(get.key(), "\u{30c6}\u{30b9}\u{30c8}".as_bytes());
        let mut out = Vec::new();
        get.push_reflected(&mut out);
        assert_eq!(out, b" k44OG44K544OI b");
        assert_eq!(refused(b"mg !!! b").0, "CLIENT_ERROR error decoding key");
    }

    #[test]
    fn modes() {
        for (letter, mode) in [
            ("E", Mode::Add),
            ("A", Mode::Append),
            ("P", Mode::Prepend),
            ("R", Mode::Replace),
            ("S", Mode::Set),
        ] {
            let line = format!("ms k 2 M{letter} C7 F9 I");
            let set = request(line.as_bytes());
            assert_eq!(
                (set.kind, set.mode, set.cas, set.flags, set.stale),
                (Kind::Set(2), mode, Some(7), 9, true)
            );
        }
        assert_eq!(request(b"ma n M- D3 J8").kind, Kind::Arithmetic(true));
        let up = request(b"ma n MI D3 J8");
        assert_eq!(
            (up.kind, up.delta, up.initial),
            (Kind::Arithmetic(false), 3, 8)
        );
        assert_eq!(request(b"ma n").delta, 1);
    }

    #[test]
    fn errors_skip_the_value() {
        let duplicate = "CLIENT_ERROR duplicate flag";
        let invalid = "CLIENT_ERROR invalid flag";
        for (line, answer, skip) in [
            (
                &b"ms k 2 MZ"[..],
                "CLIENT_ERROR invalid mode for ms M token",
                4,
            ),
            (b"ms k 2 M", "CLIENT_ERROR incorrect length for M token", 4),
            (b"ms k 2 ?", invalid, 4),
            (b"ms k 2 Cx", BAD_TOKEN.line, 4),
            (b"ms k 2 Fx", BAD_FORMAT.line, 4),
            (b"ma n MX", "CLIENT_ERROR invalid mode for ma M token", 0),
            (b"ma n D-1", "CLIENT_ERROR invalid numeric delta value", 0),
            (b"ma n J", "CLIENT_ERROR invalid numeric initial value", 0),
            (b"mg k s s", duplicate, 0),
            (b"mg k \xff", duplicate, 0),
            (b"mg foo m o o o o o o o o o", invalid, 0),
            (b"mg k T2147483648", BAD_TOKEN.line, 0),
            (b"mg", "ERROR", 0),
        ] {
            let shown = String::from_utf8_lossy(line);
            assert_eq!(refused(line), (answer, skip), "{shown}");
        }
        let long = [&b"ms "[..], &[b'k'; 251], b" 2"].concat();
        assert_eq!(refused(&long), (BAD_FORMAT.line, 4));
        for len in ["", "-1", "S2", "2147483646", "99999999999999999999"] {
            let line = format!("ms k {len}");
            assert_eq!(refused(line.as_bytes()), (BAD_FORMAT.line, 0), "{len}");
        }
        let opaque = [&b"mg k O"[..], &[b'o'; 32]].concat();
        assert_eq!(refused(&opaque).0, "CLIENT_ERROR opaque token too long");
        request(&opaque[..opaque.len() - 1]);
        let many: Vec<u8> = [&b"mg k"[..], &b" s".repeat(30)].concat();
        assert_eq!(refused(&many).0, "CLIENT_ERROR options flags are too long");
    }
}
