//! What a client knows of a key.

use super::world::Moment;
use std::collections::VecDeque;

/// A value that was stored.
#[derive(Debug, Clone)]
pub struct Entry {
    pub value: Vec<u8>,
    pub flags: u32,
    /// In how many seconds from `since` it expires.
    pub expires: Option<u32>,
    pub since: Moment,
    /// Its CAS value, once that is known.
    pub cas: Option<u64>,
}

/// A key of one client.
#[derive(Debug)]
pub struct Key {
    pub name: String,
    pub generation: u32,
    pub version: u64,
    pub entry: Option<Entry>,
    /// A CAS value that it had before.
    pub old_cas: Option<u64>,
    /// What was asked and answered last.
    pub history: VecDeque<String>,
}

/// How much of that is kept.
pub const HISTORY: usize = 6;

impl Key {
    pub fn new(name: String, generation: u32) -> Self {
        Self {
            name,
            generation,
            version: 0,
            entry: None,
            old_cas: None,
            history: VecDeque::new(),
        }
    }
}

/// The beginning of a text.
pub fn clipped(text: &str) -> String {
    text.chars().take(90).collect()
}
