//! Reads a statistics page that another process has written, which may be hostile.
//!
//! Nothing in a page is trusted: the number of slots is compared with its bound, and characters in
//! texts that control a terminal are replaced. All places are constants. There is no unsafe code here, and
//! no mapping: the bytes come through [`ReadAt`], so a file that shrinks causes an error and not a signal.
#![forbid(unsafe_code)]

use super::fields::{BLOCK_WORDS, FIELDS, Kind};
use super::layout::{MAGIC, MOST_SLOTS, VERSION, WORD, block_at, head, slot, slot_at};
use super::sequence;
use std::{error, fmt, fs::File, io, os::unix::fs::FileExt};

/// Where the bytes of a page come from.
pub trait ReadAt {
    /// Fills `bytes` with what is at `offset`.
    ///
    /// # Errors
    ///
    /// If there are fewer bytes.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
}

impl ReadAt for File {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }
}

impl ReadAt for [u8] {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let there = usize::try_from(offset)
            .ok()
            .and_then(|start| self.get(start..)?.get(..bytes.len()))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(there);
        Ok(())
    }
}

/// Why a page cannot be read.
#[derive(Debug)]
pub enum Error {
    /// It does not begin like a page.
    NotAPage,
    /// It has another version than [`VERSION`].
    Version(u64),
    /// It claims more slots than a page has.
    Slots(u64),
    /// The bytes are not there.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAPage => f.write_str("it is not a statistics page"),
            Self::Version(version) => write!(
                f,
                "it has version {version} of the statistics page, and this program reads version {VERSION}"
            ),
            Self::Slots(slots) => write!(f, "it claims to have {slots} slots"),
            Self::Io(error) => write!(f, "it cannot be read: {error}"),
        }
    }
}

impl error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A page as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The process, as it knows itself.
    pub pid: u64,
    /// When it made the page, by the monotonic clock, in nanoseconds.
    pub made: u64,
    /// Number of domains that the page had no space for.
    pub refused: u64,
    /// Number of domains that are left out, because they were being changed at each look.
    pub changing: usize,
    /// All other domains, in the order of their slots.
    pub things: Vec<Thing>,
}

/// A domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thing {
    /// Its number, which no other domain of the process has had.
    pub number: u64,
    /// Its name, which may be empty.
    pub name: String,
    /// When it was registered, by the monotonic clock, in nanoseconds.
    pub made: u64,
    /// Its values, by their names.
    pub values: Vec<(&'static str, Value)>,
}

impl Thing {
    /// Returns the value of this name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&Value> {
        let of_name = self.values.iter().find(|(other, _)| *other == name);
        of_name.map(|(_, value)| value)
    }

    /// Returns the number of this name: 0 if there is none, or it is something else.
    #[must_use]
    pub fn number_of(&self, name: &str) -> u64 {
        match self.value(name) {
            Some(
                Value::Counter(number)
                | Value::Gauge(number)
                | Value::Bytes(number)
                | Value::Moment(number),
            ) => *number,
            _ => 0,
        }
    }

    /// Returns the text of this name: empty if there is none, or it is something else.
    #[must_use]
    pub fn text_of(&self, name: &str) -> &str {
        match self.value(name) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Only grows.
    Counter(u64),
    /// Goes up and down.
    Gauge(u64),
    /// Bytes, which go up and down; all ones mean no limit.
    Bytes(u64),
    /// The sum of all durations in nanoseconds, and how many are in each bucket.
    Times(u64, Vec<u64>),
    /// A moment of the monotonic clock, in nanoseconds; 0 for none.
    Moment(u64),
    /// A text.
    Text(String),
}

/// Number of looks at a domain that is being changed.
const LOOKS: usize = 4;

/// Reads a page. Takes time and memory in proportion to the domains in it: at most about 20 MiB.
///
/// # Errors
///
/// If it is not a page, has another version, or claims too many slots.
pub fn read(page: &(impl ReadAt + ?Sized)) -> Result<Page, Error> {
    let head = words(page, 0, head::WORDS)?;
    if head[head::MAGIC] != MAGIC {
        return Err(Error::NotAPage);
    }
    if head[head::VERSION] != VERSION {
        return Err(Error::Version(head[head::VERSION]));
    }
    let slots = head[head::SLOTS];
    if slots > MOST_SLOTS as u64 {
        return Err(Error::Slots(slots));
    }
    let mut read = Page {
        pid: head[head::PID],
        made: head[head::MADE],
        refused: head[head::REFUSED],
        changing: 0,
        things: Vec::new(),
    };
    for number in 0..slots as usize {
        match thing(page, number)? {
            Look::Thing(thing) => read.things.push(thing),
            Look::Free => {}
            Look::Changing => read.changing += 1,
        }
    }
    Ok(read)
}

/// What a look at a slot finds.
enum Look {
    Thing(Thing),
    Free,
    Changing,
}

/// Returns the domain in a slot. Separate calls read the sequence count before and after it.
fn thing(page: &(impl ReadAt + ?Sized), number: usize) -> Result<Look, Error> {
    let count = || Ok::<_, Error>(words(page, slot_at(number) + slot::SEQUENCE, 1)?[0]);
    for _ in 0..LOOKS {
        if let Some(looked) = sequence::read(count, || look(page, number))? {
            return looked;
        }
    }
    Ok(Look::Changing)
}

fn look(page: &(impl ReadAt + ?Sized), number: usize) -> Result<Look, Error> {
    let slot = words(page, slot_at(number), slot::WORDS)?;
    if slot[slot::STATE] != slot::USED {
        return Ok(Look::Free);
    }
    let block = words(page, block_at(number), BLOCK_WORDS)?;
    let mut rest = &*block;
    let values = FIELDS.iter().map(|&(name, kind)| {
        let words;
        (words, rest) = rest.split_at(kind.words());
        let value = match kind {
            Kind::Counter => Value::Counter(words[0]),
            Kind::Gauge => Value::Gauge(at_least_zero(words[0])),
            Kind::Bytes if words[0] == u64::MAX => Value::Bytes(words[0]),
            Kind::Bytes => Value::Bytes(at_least_zero(words[0])),
            Kind::Times => Value::Times(words[0], words[1..].to_vec()),
            Kind::Moment => Value::Moment(words[0]),
            Kind::Text => Value::Text(text(words)),
        };
        (name, value)
    });
    Ok(Look::Thing(Thing {
        number: slot[slot::NUMBER],
        name: text(&slot[slot::NAME..][..slot::NAME_WORDS]),
        made: slot[slot::MADE],
        values: values.collect(),
    }))
}

/// Returns a gauge's value. A gauge that several threads change may be below 0 for a moment.
fn at_least_zero(word: u64) -> u64 {
    word.cast_signed().max(0).cast_unsigned()
}

/// Reads `count` words from the word `at`.
fn words(page: &(impl ReadAt + ?Sized), at: usize, count: usize) -> Result<Vec<u64>, Error> {
    let mut bytes = vec![0; count * WORD];
    page.read_at((at * WORD) as u64, &mut bytes)?;
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    Ok(bytes.chunks_exact(WORD).map(word).collect())
}

/// Returns a text, up to the first zero.
fn text(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let end = bytes.iter().position(|&byte| byte == 0);
    clean(&String::from_utf8_lossy(
        &bytes[..end.unwrap_or(bytes.len())],
    ))
}

/// Returns `text` without what a terminal would obey: control characters, and those that change the
/// direction of writing or are invisible. Each becomes a question mark.
#[must_use]
pub fn clean(text: &str) -> String {
    let is_obeyed = |c: char| {
        c.is_control()
            || matches!(c,
                '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
                | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
    };
    let seen = |c: char| if is_obeyed(c) { '?' } else { c };
    text.chars().map(seen).collect()
}
