//! A line of the text protocol: what it asks for, or the error that answers it.

use super::{
    MAX_ANNOUNCED, is_key, meta,
    number::{parse_i32, parse_u32, parse_u64},
};
use crate::store::Mode;

/// How many words of a line are looked at. A line of more is one that no command has.
const MAX_WORDS: usize = 24;

/// The answer to a line that asks for nothing which could be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The line that answers it, without its end.
    pub line: &'static str,
    /// Whether the line ended in `noreply`: then the answer is left out.
    pub silent: bool,
    /// How many bytes after the line belong to it and are skipped: a value, with its end.
    pub skip: u64,
}

impl Refusal {
    pub(super) const fn new(line: &'static str) -> Self {
        Self {
            line,
            silent: false,
            skip: 0,
        }
    }

    const fn silent(self, silent: bool) -> Self {
        Self { silent, ..self }
    }
}

/// The answer to a line that is no command.
pub const ERROR: Refusal = Refusal::new("ERROR");
/// The answer to a command with wrong words.
pub const BAD_FORMAT: Refusal = Refusal::new("CLIENT_ERROR bad command line format");
const BAD_EXPTIME: Refusal = Refusal::new("CLIENT_ERROR invalid exptime argument");
const BAD_DELTA: Refusal = Refusal::new("CLIENT_ERROR invalid numeric delta argument");
const BAD_DELETE: Refusal =
    Refusal::new("CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]");

/// A command to store `len` bytes, which follow the line with an end of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storage<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// What the client keeps beside the value.
    pub flags: u32,
    /// When it expires, as the client says it.
    pub exptime: i32,
    /// The value's length.
    pub len: usize,
    /// How it is stored.
    pub mode: Mode,
    /// The CAS value that the item must have, of `cas`.
    pub compare: Option<u64>,
}

/// The command of a line. The key is that of the item; a time is the client's.
#[derive(Clone, Copy, Debug)]
// It is executed where it was read, and never kept.
#[allow(clippy::large_enum_variant)]
#[allow(missing_docs)]
pub enum Command<'a> {
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Store(Storage<'a>),
    Delete {
        key: &'a [u8],
    },
    /// `incr` and `decr`.
    Arithmetic {
        key: &'a [u8],
        delta: u64,
        down: bool,
    },
    Touch {
        key: &'a [u8],
        exptime: i32,
    },
    FlushAll {
        exptime: i32,
    },
    Verbosity {
        level: u32,
    },
    /// `cache_memlimit`.
    Limit {
        mib: u64,
    },
    /// `mg`, `ms`, `md`, `ma`, `me`.
    Meta(meta::Request<'a>),
    /// `mn`.
    MetaNoop,
    RefreshCertificates,
    Version,
    Quit,
    /// True for `shutdown graceful`.
    Shutdown(bool),
    /// A command for operators, which has its words read when it is executed: `stats`, `watch`, `lru_crawler`, `lru`, `slabs`, `tenant`, `debugtime`.
    Operator(Words<'a>),
    /// A request of HTTP, which a browser may have been made to send: the connection is closed.
    Http,
}

/// The words of a line, which spaces divide.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    words: [&'a [u8]; MAX_WORDS],
    len: usize,
    /// Whether there are more.
    more: bool,
}

impl<'a> Words<'a> {
    /// Divides `line`, which has no end of a line.
    #[must_use]
    pub fn of(line: &'a [u8]) -> Self {
        let mut all = Self {
            words: [b""; MAX_WORDS],
            len: 0,
            more: false,
        };
        for word in line
            .split(|&byte| byte == b' ')
            .filter(|word| !word.is_empty())
        {
            if all.len == MAX_WORDS {
                all.more = true;
                break;
            }
            all.words[all.len] = word;
            all.len += 1;
        }
        all
    }

    /// Returns the words, up to the first 24.
    #[must_use]
    pub fn as_slice(&self) -> &[&'a [u8]] {
        &self.words[..self.len]
    }

    /// Returns the word at `index`; an empty one if there is none.
    #[must_use]
    pub fn at(&self, index: usize) -> &'a [u8] {
        self.as_slice().get(index).copied().unwrap_or(b"")
    }

    /// Returns whether the last word is `noreply`, behind the first `before` words: a key may be
    /// called so too.
    #[must_use]
    pub fn noreply(&self, before: usize) -> bool {
        self.len > before && self.at(self.len - 1) == b"noreply"
    }

    /// Checks that there are from `least` to `most` words, with `noreply`. Returns whether that is there.
    fn count(&self, least: usize, most: usize) -> Result<bool, Refusal> {
        if self.more || !(least..=most).contains(&self.len) {
            return Err(ERROR);
        }
        Ok(self.noreply(least.min(2)))
    }

    fn key(&self) -> Result<&'a [u8], Refusal> {
        let key = self.at(1);
        is_key(key).then_some(key).ok_or(BAD_FORMAT)
    }
}

/// Reads a line, without its end. Returns its command, and whether that is not answered. The retrieval
/// commands are not read here but key by key, as [`keys`] says.
///
/// # Errors
///
/// The answer to a line that is no command, or none that can be executed.
pub fn parse(line: &[u8]) -> Result<(Command<'_>, bool), Refusal> {
    let words = Words::of(line);
    let name = words.at(0);
    if let [b'm', letter] = name {
        return Ok((meta::parse(*letter, &words)?, false));
    }
    let mode = match name {
        b"set" | b"cas" => Some(Mode::Set),
        b"add" => Some(Mode::Add),
        b"replace" => Some(Mode::Replace),
        b"append" => Some(Mode::Append),
        b"prepend" => Some(Mode::Prepend),
        _ => None,
    };
    if let Some(mode) = mode {
        let is_cas = name == b"cas";
        let needed = 5 + usize::from(is_cas);
        let noreply = words.count(needed, needed + 1)?;
        let storage = storage(mode, is_cas, &words);
        let storage = storage.map_err(|refusal| refusal.silent(noreply))?;
        return Ok((Command::Store(storage), noreply));
    }
    let noreply = match name {
        b"delete" => words.count(2, 4)?,
        b"incr" | b"decr" | b"touch" => words.count(3, 4)?,
        b"flush_all" => words.count(1, 3)?,
        b"verbosity" | b"cache_memlimit" => words.count(2, 3)?,
        _ => return Ok((without_noreply(name, words)?, false)),
    };
    let command = with_noreply(name, &words, noreply);
    let command = command.map_err(|refusal| refusal.silent(noreply))?;
    Ok((command, noreply))
}

fn without_noreply<'a>(name: &[u8], words: Words<'a>) -> Result<Command<'a>, Refusal> {
    Ok(match name {
        b"refresh_certs" => Command::RefreshCertificates,
        b"version" => Command::Version,
        b"quit" => Command::Quit,
        b"shutdown" => match (words.len, words.at(1)) {
            (1, _) => Command::Shutdown(false),
            (2, b"graceful") => Command::Shutdown(true),
            _ => return Err(Refusal::new("CLIENT_ERROR invalid shutdown mode")),
        },
        b"stats" | b"watch" | b"lru_crawler" | b"lru" | b"slabs" | b"tenant" | b"debugtime" => {
            Command::Operator(words)
        }
        _ if words.len > 1 && words.at(words.len - 1).starts_with(b"HTTP/") => Command::Http,
        _ => return Err(ERROR),
    })
}

fn with_noreply<'a>(name: &[u8], words: &Words<'a>, noreply: bool) -> Result<Command<'a>, Refusal> {
    let exptime = |at| parse_i32(words.at(at)).ok_or(BAD_EXPTIME);
    Ok(match name {
        b"delete" => {
            // Old clients send a time, which was never more than 0 in the end.
            let has_time = words.len == 3 + usize::from(noreply);
            if words.len == 4 && !noreply || has_time && words.at(2) != b"0" {
                return Err(BAD_DELETE);
            }
            Command::Delete { key: words.key()? }
        }
        b"incr" | b"decr" => Command::Arithmetic {
            key: words.key()?,
            delta: parse_u64(words.at(2)).ok_or(BAD_DELTA)?,
            down: name == b"decr",
        },
        b"touch" => Command::Touch {
            key: words.key()?,
            exptime: exptime(2)?,
        },
        b"flush_all" if words.len == 1 + usize::from(noreply) => Command::FlushAll { exptime: 0 },
        b"flush_all" => Command::FlushAll {
            exptime: exptime(1)?,
        },
        b"verbosity" => Command::Verbosity {
            level: parse_u32(words.at(1)).ok_or(BAD_FORMAT)?,
        },
        // `cache_memlimit`.
        _ => Command::Limit {
            mib: parse_u64(words.at(1)).ok_or(BAD_FORMAT)?,
        },
    })
}

fn storage<'a>(mode: Mode, is_cas: bool, words: &Words<'a>) -> Result<Storage<'a>, Refusal> {
    let len = parse_i32(words.at(4)).and_then(|len| usize::try_from(len).ok());
    let len = len.filter(|len| *len <= MAX_ANNOUNCED).ok_or(BAD_FORMAT)?;
    // A length that can be read says what to skip, whatever is wrong with the rest: or else the value would be taken for commands.
    let bad = Refusal {
        skip: len as u64 + 2,
        ..BAD_FORMAT
    };
    Ok(Storage {
        key: words.key().map_err(|_| bad)?,
        flags: parse_u32(words.at(2)).ok_or(bad)?,
        exptime: parse_i32(words.at(3)).ok_or(bad)?,
        len,
        mode,
        compare: match is_cas {
            true => Some(parse_u64(words.at(5)).ok_or(bad)?),
            false => None,
        },
    })
}

/// The head of a retrieval command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retrieval {
    /// Whether the answer has CAS values.
    pub cas: bool,
    /// Whether a time comes before the keys, which the items expire at from now on.
    pub touch: bool,
    /// How long the head is, with its space.
    pub len: usize,
}

/// Returns the head of a line that begins as `get`, `gets`, `gat` or `gats` do. [`keys`] reads what follows.
#[inline]
#[must_use]
pub fn retrieval(input: &[u8]) -> Option<Retrieval> {
    let (touch, rest) = match input {
        [b'g', b'e', b't', rest @ ..] => (false, rest),
        [b'g', b'a', b't', rest @ ..] => (true, rest),
        _ => return None,
    };
    match rest {
        [b' ', ..] => Some(Retrieval {
            cas: false,
            touch,
            len: 4,
        }),
        [b's', b' ', ..] => Some(Retrieval {
            cas: true,
            touch,
            len: 5,
        }),
        _ => None,
    }
}

/// The next part of a line of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// A word; `rest` begins behind it.
    Word {
        /// The word.
        word: &'a [u8],
        /// How many bytes it took, with the spaces before it.
        len: usize,
    },
    /// The end of the line.
    End {
        /// How many bytes it took.
        len: usize,
    },
    /// More bytes are needed; the spaces before them need not be kept.
    Partial {
        /// How many spaces there are.
        spaces: usize,
    },
    /// A word that is too long for a key, complete or not.
    TooLong,
}

/// Reads the next word of a line that may not have arrived completely.
#[inline]
#[must_use]
pub fn keys(input: &[u8]) -> Token<'_> {
    let spaces = input.iter().take_while(|&&byte| byte == b' ').count();
    let rest = &input[spaces..];
    // One more than a key, and the end of a line.
    let window = &rest[..rest.len().min(super::MAX_KEY + 2)];
    let Some(len) = memchr::memchr2(b' ', b'\n', window) else {
        return if window.len() == super::MAX_KEY + 2 {
            Token::TooLong
        } else {
            Token::Partial { spaces }
        };
    };
    let mut word = &rest[..len];
    let ends = rest[len] == b'\n';
    if ends && word.last() == Some(&b'\r') {
        word = &word[..len - 1];
    }
    match word.len() {
        0 if ends => Token::End {
            len: spaces + len + 1,
        },
        0..=super::MAX_KEY => Token::Word {
            word,
            len: spaces + word.len(),
        },
        _ => Token::TooLong,
    }
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
