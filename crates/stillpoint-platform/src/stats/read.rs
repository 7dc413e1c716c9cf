//! Reads a statistics page that another process has written, which may be hostile.
//!
//! Nothing in a page is trusted: each number is compared with its bound before it is used, characters
//! in texts that control a terminal are replaced, and what does not fit together is an error or is
//! left out. There is no unsafe code here, and no mapping: the bytes come through [`ReadAt`], so a
//! file that shrinks causes an error and not a signal.
#![forbid(unsafe_code)]

use super::layout::{
    self, BLOCKS_AT, FIELDS_AT, FieldKind, MAGIC, MOST_BLOCK_WORDS, MOST_FIELDS, MOST_SLOTS,
    MOST_VALUES, SLOTS_AT, Unit, VERSION, WORD, WORDS, field, head, slot,
};
use super::sequence;
use std::{error, fmt, fs::File, io, os::unix::fs::FileExt, sync::Arc};

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
    /// It contradicts itself. The text names what is wrong.
    Inconsistent(&'static str),
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
            Self::Inconsistent(what) => write!(f, "it contradicts itself: {what}"),
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
    /// Number of words of their values.
    pub words: usize,
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
    pub values: Vec<(Arc<str>, Unit, Value)>,
}

impl Thing {
    /// Returns the value of this name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&Value> {
        let of_name = |(other, _, _): &&(Arc<str>, Unit, Value)| **other == *name;
        self.values.iter().find(of_name).map(|(_, _, value)| value)
    }

    /// Returns the number of this name: 0 if there is none, or it is something else.
    #[must_use]
    pub fn number_of(&self, name: &str) -> u64 {
        match self.value(name) {
            Some(Value::Counter(number) | Value::Gauge(number) | Value::Time(number)) => *number,
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
    /// The sum of all durations in nanoseconds, and how many are in each bucket.
    Histogram(u64, Vec<u64>),
    /// A moment of the monotonic clock, in nanoseconds; 0 for none.
    Time(u64),
    /// A text.
    Text(String),
}

/// A field, as the page describes it.
struct Field {
    name: Arc<str>,
    kind: FieldKind,
    unit: Unit,
    at: usize,
    len: usize,
}

/// The blocks, as the page describes them.
struct Blocks {
    /// Number of words of each.
    words: usize,
    fields: Vec<Field>,
}

/// Number of looks at a domain that is being changed.
const LOOKS: usize = 4;

/// Reads a page. Takes time and memory in proportion to what is in it: at most about 20 MiB for an
/// honest page, and twice that for a hostile one.
///
/// # Errors
///
/// If it is not a page, has another version, or contradicts itself.
pub fn read(page: &(impl ReadAt + ?Sized)) -> Result<Page, Error> {
    let head = words(page, 0, head::WORDS)?;
    if head[head::MAGIC] != MAGIC {
        return Err(Error::NotAPage);
    }
    if head[head::VERSION] != VERSION {
        return Err(Error::Version(head[head::VERSION]));
    }
    if head[head::BYTES] != layout::BYTES as u64 {
        return Err(Error::Inconsistent("its length"));
    }
    // If there are slots, the fields have been described before.
    let slots = count(page, head::SLOTS, MOST_SLOTS, "the number of its slots")?;
    let blocks = blocks(page)?;
    let mut read = Page {
        pid: head[head::PID],
        made: head[head::MADE],
        refused: head[head::REFUSED],
        changing: 0,
        things: Vec::new(),
        words: 0,
    };
    let mut values = 0;
    for number in 0..slots {
        match thing(page, number, &blocks)? {
            Look::Thing(thing) => {
                values += thing.values.len();
                read.words += blocks.words;
                if values > MOST_VALUES || read.words > WORDS - BLOCKS_AT {
                    return Err(Error::Inconsistent("the number of its values"));
                }
                read.things.push(thing);
            }
            Look::Free => {}
            Look::Changing => read.changing += 1,
        }
    }
    Ok(read)
}

/// Reads a count in the head; what it counts is read after it.
fn count(
    page: &(impl ReadAt + ?Sized),
    at: usize,
    most: usize,
    what: &'static str,
) -> Result<usize, Error> {
    let count = bounded(words(page, at, 1)?[0], most, what);
    sequence::in_order();
    count
}

/// What a look at a slot finds.
enum Look {
    Thing(Thing),
    Free,
    Changing,
}

/// Returns the domain in a slot. Separate calls read the sequence count before and after it.
fn thing(page: &(impl ReadAt + ?Sized), number: usize, blocks: &Blocks) -> Result<Look, Error> {
    let at = SLOTS_AT + number * slot::WORDS;
    let count = || Ok::<_, Error>(words(page, at + slot::SEQUENCE, 1)?[0]);
    for _ in 0..LOOKS {
        // If it is inconsistent because it is being changed, there is another look.
        let looked = sequence::read(count, || look(page, &words(page, at, slot::WORDS)?, blocks))?;
        if let Some(looked) = looked {
            return looked;
        }
    }
    Ok(Look::Changing)
}

fn look(page: &(impl ReadAt + ?Sized), found: &[u64], blocks: &Blocks) -> Result<Look, Error> {
    if found[slot::STATE] != slot::USED {
        return Ok(Look::Free);
    }
    let block = bounded(found[slot::BLOCK], WORDS - blocks.words, "where a block is")?;
    if block < BLOCKS_AT {
        return Err(Error::Inconsistent("where a block is"));
    }
    let block = words(page, block, blocks.words)?;
    let value = |field: &Field| {
        let words = &block[field.at..field.at + field.len];
        let value = match field.kind {
            FieldKind::Counter => Value::Counter(words[0]),
            FieldKind::Gauge => Value::Gauge(at_least_zero(words[0], field.unit)),
            FieldKind::Histogram => Value::Histogram(words[0], words[1..].to_vec()),
            FieldKind::Time => Value::Time(words[0]),
            FieldKind::Text => Value::Text(text(words)),
        };
        (Arc::clone(&field.name), field.unit, value)
    };
    let thing = Thing {
        number: found[slot::NUMBER],
        name: text(&found[slot::NAME..][..slot::NAME_WORDS]),
        made: found[slot::MADE],
        values: blocks.fields.iter().map(value).collect(),
    };
    Ok(Look::Thing(thing))
}

/// Returns a gauge's value. A gauge that several threads change may be below 0 for a moment. All ones mean
/// no limit.
fn at_least_zero(word: u64, unit: Unit) -> u64 {
    if word == u64::MAX && unit == Unit::Bytes {
        return word;
    }
    word.cast_signed().max(0).cast_unsigned()
}

fn blocks(page: &(impl ReadAt + ?Sized)) -> Result<Blocks, Error> {
    let fields = count(page, head::FIELDS, MOST_FIELDS, "the number of its fields")?;
    let block = words(page, head::BLOCK, 1)?[0];
    let block = bounded(block, MOST_BLOCK_WORDS, "the length of a block")?;
    // Each field begins behind the one before, so together they have no more words than the block.
    let mut end = 0;
    let described = words(page, FIELDS_AT, fields * field::WORDS)?;
    let fields = described.chunks_exact(field::WORDS).map(|words| {
        let field = field(words, block)?;
        if field.at < end {
            return Err(Error::Inconsistent("the place of a field"));
        }
        end = field.at + field.len;
        Ok(field)
    });
    Ok(Blocks {
        fields: fields.collect::<Result<_, _>>()?,
        words: block,
    })
}

fn field(words: &[u64], block: usize) -> Result<Field, Error> {
    let kinds = [
        FieldKind::Counter,
        FieldKind::Gauge,
        FieldKind::Histogram,
        FieldKind::Time,
        FieldKind::Text,
    ];
    let units = [Unit::Count, Unit::Bytes, Unit::Nanoseconds, Unit::Text];
    let kind = kinds
        .into_iter()
        .find(|&kind| kind as u64 == words[field::KIND]);
    let unit = units
        .into_iter()
        .find(|&unit| unit as u64 == words[field::UNIT]);
    let at = bounded(words[field::AT], block, "the place of a field")?;
    let len = bounded(words[field::LEN], block - at, "the length of a field")?;
    if len == 0 {
        return Err(Error::Inconsistent("the length of a field"));
    }
    Ok(Field {
        name: text(&words[field::NAME..][..field::NAME_WORDS]).into(),
        kind: kind.ok_or(Error::Inconsistent("the kind of a field"))?,
        unit: unit.ok_or(Error::Inconsistent("the unit of a field"))?,
        at,
        len,
    })
}

/// Reads `count` words from the word `at`.
fn words(page: &(impl ReadAt + ?Sized), at: usize, count: usize) -> Result<Vec<u64>, Error> {
    let mut bytes = vec![0; count * WORD];
    page.read_at((at * WORD) as u64, &mut bytes)?;
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
    Ok(bytes.chunks_exact(WORD).map(word).collect())
}

/// Returns a number that is at most `most`.
fn bounded(number: u64, most: usize, what: &'static str) -> Result<usize, Error> {
    usize::try_from(number)
        .ok()
        .filter(|&number| number <= most)
        .ok_or(Error::Inconsistent(what))
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
