//! A line of the text protocol: what it asks for, or the error that answers it.

use super::{
    MAX_ANNOUNCED, is_key, meta,
    number::{parse_i32, parse_u32, parse_u64},
};

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
    const fn new(line: &'static str) -> Self {
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

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Whatever is there.
    Set,
    /// Only if there is no such item.
    Add,
    /// Only if there is such an item.
    Replace,
    /// Behind the value that is there.
    Append,
    /// Before the value that is there.
    Prepend,
    /// Only if the item has this CAS value.
    Cas(u64),
}

impl Mode {
    /// The command's name, as logs have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Append => "append",
            Self::Prepend => "prepend",
            Self::Cas(_) => "cas",
        }
    }
}

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
    /// Whether the answer is left out.
    pub noreply: bool,
}

/// The command of a line.
#[derive(Clone, Copy, Debug)]
// It is executed where it was read, and never kept.
#[allow(clippy::large_enum_variant)]
pub enum Command<'a> {
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Store(Storage<'a>),
    /// `delete`.
    Delete {
        /// Whose item.
        key: &'a [u8],
        /// Whether the answer is left out.
        noreply: bool,
    },
    /// `incr` and `decr`.
    Arithmetic {
        /// Whose item.
        key: &'a [u8],
        /// By how much.
        delta: u64,
        /// Whether it is subtracted.
        down: bool,
        /// Whether the answer is left out.
        noreply: bool,
    },
    /// `touch`.
    Touch {
        /// Whose item.
        key: &'a [u8],
        /// When it expires from now on.
        exptime: i32,
        /// Whether the answer is left out.
        noreply: bool,
    },
    /// `flush_all`.
    FlushAll {
        /// When, if not at once.
        exptime: i32,
        /// Whether the answer is left out.
        noreply: bool,
    },
    /// `verbosity`.
    Verbosity {
        /// The new level.
        level: u32,
        /// Whether the answer is left out.
        noreply: bool,
    },
    /// `cache_memlimit`.
    Limit {
        /// The new limit.
        mib: u64,
        /// Whether the answer is left out.
        noreply: bool,
    },
    /// `mg`, `ms`, `md`, `ma`, `me`.
    Meta(meta::Request<'a>),
    /// `mn`.
    MetaNoop,
    /// `refresh_certs`.
    RefreshCertificates,
    /// `version`.
    Version,
    /// `quit`.
    Quit,
    /// `shutdown`; true for `shutdown graceful`.
    Shutdown(bool),
    /// A command for operators, which has its words read when it is executed: `stats`, `watch`, `lru_crawler`, `lru`, `slabs`, `tenant`, `debugtime`.
    Operator(Operator, Words<'a>),
    /// A request of HTTP, which a browser may have been made to send: the connection is closed.
    Http,
}

/// Commands for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `stats`.
    Stats,
    /// `watch`.
    Watch,
    /// `lru_crawler`.
    Crawler,
    /// `lru`.
    Lru,
    /// `slabs`.
    Slabs,
    /// `tenant`, of this server alone.
    Tenant,
    /// `debugtime`, for tests.
    DebugTime,
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

    /// The words, up to the first 24.
    #[must_use]
    pub fn as_slice(&self) -> &[&'a [u8]] {
        &self.words[..self.len]
    }

    /// The word at `index`; empty if there is none.
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

    /// Whether there are from `least` to `most` words.
    fn count(&self, least: usize, most: usize) -> Result<(), Refusal> {
        if self.more || !(least..=most).contains(&self.len) {
            return Err(ERROR);
        }
        Ok(())
    }

    fn key(&self, noreply: bool) -> Result<&'a [u8], Refusal> {
        let key = self.at(1);
        if is_key(key) {
            Ok(key)
        } else {
            Err(BAD_FORMAT.silent(noreply))
        }
    }
}

/// Reads a line, without its end. The retrieval commands are not read here but key by key, as [`keys`] says.
///
/// # Errors
///
/// The answer to a line that is no command, or none that can be executed.
pub fn parse(line: &[u8]) -> Result<Command<'_>, Refusal> {
    let words = Words::of(line);
    let name = words.at(0);
    if let [b'm', letter] = name {
        return meta::parse(*letter, &words);
    }
    match name {
        b"set" => storage(&words, Mode::Set),
        b"add" => storage(&words, Mode::Add),
        b"replace" => storage(&words, Mode::Replace),
        b"append" => storage(&words, Mode::Append),
        b"prepend" => storage(&words, Mode::Prepend),
        b"cas" => storage(&words, Mode::Cas(0)),
        b"delete" => delete(&words),
        b"incr" => arithmetic(&words, false),
        b"decr" => arithmetic(&words, true),
        b"touch" => touch(&words),
        b"flush_all" => flush(&words),
        b"verbosity" => verbosity(&words),
        b"cache_memlimit" => limit(&words),
        b"refresh_certs" => Ok(Command::RefreshCertificates),
        b"version" => Ok(Command::Version),
        b"quit" => Ok(Command::Quit),
        b"shutdown" => match (words.len, words.at(1)) {
            (1, _) => Ok(Command::Shutdown(false)),
            (2, b"graceful") => Ok(Command::Shutdown(true)),
            _ => Err(Refusal::new("CLIENT_ERROR invalid shutdown mode")),
        },
        b"stats" => Ok(Command::Operator(Operator::Stats, words)),
        b"watch" => Ok(Command::Operator(Operator::Watch, words)),
        b"lru_crawler" => Ok(Command::Operator(Operator::Crawler, words)),
        b"lru" => Ok(Command::Operator(Operator::Lru, words)),
        b"slabs" => Ok(Command::Operator(Operator::Slabs, words)),
        b"tenant" => Ok(Command::Operator(Operator::Tenant, words)),
        b"debugtime" => Ok(Command::Operator(Operator::DebugTime, words)),
        _ if words.len > 1 && words.at(words.len - 1).starts_with(b"HTTP/") => Ok(Command::Http),
        _ => Err(ERROR),
    }
}

fn storage<'a>(words: &Words<'a>, mode: Mode) -> Result<Command<'a>, Refusal> {
    let cas = matches!(mode, Mode::Cas(_));
    let words_needed = if cas { 6 } else { 5 };
    words.count(words_needed, words_needed + 1)?;
    let noreply = words.noreply(2);
    let bad = BAD_FORMAT.silent(noreply);
    // A length that can be read says what to skip, whatever is wrong with the rest: or else the value would be taken for commands.
    let len = match parse_i32(words.at(4)).and_then(|len| usize::try_from(len).ok()) {
        Some(len) if len <= MAX_ANNOUNCED => len,
        _ => return Err(bad),
    };
    let bad = Refusal {
        skip: len as u64 + 2,
        ..bad
    };
    let (Some(flags), Some(exptime)) = (parse_u32(words.at(2)), parse_i32(words.at(3))) else {
        return Err(bad);
    };
    let mode = match mode {
        Mode::Cas(_) => Mode::Cas(parse_u64(words.at(5)).ok_or(bad)?),
        other => other,
    };
    Ok(Command::Store(Storage {
        key: words.key(noreply).map_err(|_| bad)?,
        flags,
        exptime,
        len,
        mode,
        noreply,
    }))
}

fn delete<'a>(words: &Words<'a>) -> Result<Command<'a>, Refusal> {
    words.count(2, 4)?;
    let noreply = words.noreply(2);
    // Old clients send a time, which was never more than 0 in the end.
    let fine = match words.len {
        2 => true,
        3 => noreply || words.at(2) == b"0",
        _ => noreply && words.at(2) == b"0",
    };
    if !fine {
        return Err(BAD_DELETE.silent(noreply));
    }
    let key = words.key(noreply)?;
    Ok(Command::Delete { key, noreply })
}

fn arithmetic<'a>(words: &Words<'a>, down: bool) -> Result<Command<'a>, Refusal> {
    words.count(3, 4)?;
    let noreply = words.noreply(2);
    let key = words.key(noreply)?;
    let delta = parse_u64(words.at(2)).ok_or(BAD_DELTA.silent(noreply))?;
    Ok(Command::Arithmetic {
        key,
        delta,
        down,
        noreply,
    })
}

fn touch<'a>(words: &Words<'a>) -> Result<Command<'a>, Refusal> {
    words.count(3, 4)?;
    let noreply = words.noreply(2);
    let key = words.key(noreply)?;
    let exptime = parse_i32(words.at(2)).ok_or(BAD_EXPTIME.silent(noreply))?;
    Ok(Command::Touch {
        key,
        exptime,
        noreply,
    })
}

fn flush<'a>(words: &Words<'a>) -> Result<Command<'a>, Refusal> {
    words.count(1, 3)?;
    let noreply = words.noreply(1);
    let exptime = if words.len == 1 + usize::from(noreply) {
        0
    } else {
        parse_i32(words.at(1)).ok_or(BAD_EXPTIME.silent(noreply))?
    };
    Ok(Command::FlushAll { exptime, noreply })
}

fn verbosity<'a>(words: &Words<'a>) -> Result<Command<'a>, Refusal> {
    words.count(2, 3)?;
    let noreply = words.noreply(2);
    let level = parse_u32(words.at(1)).ok_or(BAD_FORMAT.silent(noreply))?;
    Ok(Command::Verbosity { level, noreply })
}

fn limit<'a>(words: &Words<'a>) -> Result<Command<'a>, Refusal> {
    words.count(2, 3)?;
    let noreply = words.noreply(2);
    let mib = parse_u64(words.at(1)).ok_or(BAD_FORMAT.silent(noreply))?;
    Ok(Command::Limit { mib, noreply })
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

/// Whether a line begins as `get`, `gets`, `gat` or `gats` do. What follows the head is read by [`keys`].
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
