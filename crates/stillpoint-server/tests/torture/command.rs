//! Commands as bytes, and what their answers may be for a client that is the only one that changes its keys: what it has stored last, or nothing, as any item may
//! be evicted at any time. What was gone once never comes back.

use super::{
    connection::Connection,
    key::{Entry, HISTORY, Key, clipped},
    world::{Before, World},
};
use std::io;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
}

#[derive(Debug, Clone)]
pub enum Command {
    Store {
        mode: Mode,
        value: Vec<u8>,
        flags: u32,
        /// -1: at once; 0: never.
        expires: i32,
        noreply: bool,
    },
    /// With the CAS value that the item has, or one that it had.
    Compare {
        value: Vec<u8>,
        cas: u64,
        stale: bool,
    },
    Get {
        cas: bool,
    },
    Touch {
        expires: u32,
        get: bool,
    },
    Delete {
        noreply: bool,
    },
    Number {
        delta: u64,
        down: bool,
    },
}

impl Mode {
    fn text(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Append => "append",
            Self::Prepend => "prepend",
        }
    }

    fn meta(self) -> &'static str {
        match self {
            Self::Set => "S",
            Self::Add => "E",
            Self::Replace => "R",
            Self::Append => "A",
            Self::Prepend => "P",
        }
    }
}

fn with_value(line: String, value: &[u8]) -> Vec<u8> {
    [line.as_bytes(), b"\r\n", value, b"\r\n"].concat()
}

/// What digits and spaces say, as the server reads them.
fn as_number(value: &[u8]) -> Option<u64> {
    // As in memcached, up to this length, with spaces before it, and a space and anything else behind it.
    let mut words = value.split(u8::is_ascii_whitespace);
    let word = words.find(|word| !word.is_empty() && value.len() <= 32)?;
    let is_plain = word.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(word)
        .ok()?
        .parse()
        .ok()
        .filter(|_| is_plain)
}

impl Command {
    /// As bytes: of the text protocol, or as a meta command with that opaque token.
    pub fn bytes(&self, key: &str, meta: Option<u64>) -> Vec<u8> {
        let plain = |line: String| [line.as_bytes(), b"\r\n"].concat();
        match (self, meta) {
            (
                Self::Store {
                    mode,
                    value,
                    flags,
                    expires,
                    noreply,
                },
                None,
            ) => {
                let (word, len) = (mode.text(), value.len());
                let end = if *noreply { " noreply" } else { "" };
                with_value(format!("{word} {key} {flags} {expires} {len}{end}"), value)
            }
            (
                Self::Store {
                    mode,
                    value,
                    flags,
                    expires,
                    ..
                },
                Some(token),
            ) => {
                let (word, len) = (mode.meta(), value.len());
                with_value(
                    format!("ms {key} {len} F{flags} T{expires} M{word} O{token}"),
                    value,
                )
            }
            (Self::Compare { value, cas, .. }, None) => {
                with_value(format!("cas {key} 7 0 {} {cas}", value.len()), value)
            }
            (Self::Compare { value, cas, .. }, Some(token)) => with_value(
                format!("ms {key} {} F7 C{cas} O{token}", value.len()),
                value,
            ),
            (Self::Get { cas }, None) => {
                plain(format!("{} {key}", if *cas { "gets" } else { "get" }))
            }
            (Self::Get { cas }, Some(token)) => plain(format!(
                "mg {key} f{} O{token} v",
                if *cas { " c" } else { "" }
            )),
            (Self::Touch { expires, get }, None) if *get => plain(format!("gat {expires} {key}")),
            (Self::Touch { expires, .. }, None) => plain(format!("touch {key} {expires}")),
            (Self::Touch { expires, get }, Some(token)) => {
                let value = if *get { " f v" } else { "" };
                plain(format!("mg {key} T{expires}{value} O{token}"))
            }
            (Self::Delete { noreply }, None) => plain(format!(
                "delete {key}{}",
                if *noreply { " noreply" } else { "" }
            )),
            (Self::Delete { .. }, Some(token)) => plain(format!("md {key} O{token}")),
            (Self::Number { delta, down }, None) => plain(format!(
                "{} {key} {delta}",
                if *down { "decr" } else { "incr" }
            )),
            (Self::Number { delta, down }, Some(token)) => {
                let mode = if *down { "D" } else { "I" };
                plain(format!("ma {key} D{delta} M{mode} v O{token}"))
            }
        }
    }

    /// The beginning of it.
    fn shown(&self) -> String {
        clipped(&format!("{self:?}"))
    }

    /// Whether it is not answered.
    pub fn is_silent(&self, meta: bool) -> bool {
        match self {
            Self::Store { noreply, .. } | Self::Delete { noreply } => *noreply && !meta,
            _ => false,
        }
    }
}

/// What a server said.
#[derive(Debug)]
enum Answer {
    Silent,
    /// Flags, CAS value, value.
    Item(Option<u32>, Option<u64>, Vec<u8>),
    /// It was done.
    Done,
    /// There is no item.
    Missing,
    NotStored,
    Exists,
    NotANumber,
    /// Limits or memory are in the way.
    Refused,
}

fn flag(words: &[&str], letter: char) -> Option<u64> {
    let word = words.iter().find(|word| word.starts_with(letter))?;
    word[1..].parse().ok()
}

impl Command {
    fn read(&self, meta: Option<u64>, key: &str, from: &mut Connection) -> io::Result<Answer> {
        if self.is_silent(meta.is_some()) {
            return Ok(Answer::Silent);
        }
        let line = from.line()?;
        if line.starts_with("SERVER_ERROR") {
            return Ok(Answer::Refused);
        }
        let words: Vec<&str> = line.split(' ').collect();
        if let Some(token) = meta {
            // (An error has no flags.)
            let told = flag(&words[1..], 'O');
            assert!(
                told == Some(token) || words[0] == "EN" || words[0] == "CLIENT_ERROR",
                "{} of {key}: the answer of another command: {line}",
                self.shown()
            );
        }
        Ok(match (words[0], self) {
            ("VALUE", _) => {
                assert_eq!(words[1], key, "the item of another key");
                let value = from.value(words[3].parse().unwrap())?;
                let end = from.line()?;
                assert_eq!(end, "END", "after the item of {key}");
                let cas = words.get(4).map(|cas| cas.parse().unwrap());
                Answer::Item(words[2].parse().ok(), cas, value)
            }
            ("VA", _) => {
                let value = from.value(words[1].parse().unwrap())?;
                let flags = flag(&words[2..], 'f').map(|flags| flags as u32);
                Answer::Item(flags, flag(&words[2..], 'c'), value)
            }
            ("STORED" | "TOUCHED" | "DELETED" | "HD", _) => Answer::Done,
            ("END" | "EN" | "NOT_FOUND" | "NF", _) => Answer::Missing,
            ("NOT_STORED" | "NS", _) => Answer::NotStored,
            ("EXISTS" | "EX", _) => Answer::Exists,
            ("CLIENT_ERROR", Self::Number { .. }) => Answer::NotANumber,
            (word, Self::Number { .. }) if word.parse::<u64>().is_ok() => {
                Answer::Item(None, None, word.into())
            }
            _ => panic!("{} of {key}: {line}", self.shown()),
        })
    }

    /// Reads the answer, and has the key follow it. Returns whether an item was found.
    pub fn settle(
        self,
        meta: Option<u64>,
        key: &mut Key,
        tenant: usize,
        before: Before,
        world: &World,
        from: &mut Connection,
    ) -> io::Result<bool> {
        let is_over = |entry: &mut Entry| world.is_over(entry.since, entry.expires, before);
        let was_over = key.entry.take_if(is_over).is_some();
        let answer = self.read(meta, &key.name, from)?;
        let since = world.moment(tenant);
        let name = key.name.clone();
        let (old, old_cas) = (key.entry.take(), key.old_cas);
        let found = matches!(answer, Answer::Item(..));
        if key.history.len() == HISTORY {
            key.history.pop_front();
        }
        let told = format!("{} -> {}", self.shown(), clipped(&format!("{answer:?}")));
        key.history.push_back(format!(
            "{told}{}",
            if was_over { ", it was over" } else { "" }
        ));
        let wrong = |what: &str| -> ! {
            let tenant = super::world::TENANTS[tenant];
            let old = clipped(&format!("{old:?}"));
            panic!(
                "{what}: {name} of tenant '{tenant}' should have {old} before the last of {:#?}",
                key.history
            )
        };
        let stored = |value: Vec<u8>, flags, expires: i32| {
            let entry = Entry {
                value,
                flags,
                expires: (expires != 0).then_some(expires.max(0) as u32),
                since,
                cas: None,
            };
            // What has expired at once is not there.
            (expires >= 0).then_some(entry)
        };
        let entry = match (&self, &answer) {
            (_, Answer::Refused) => match &self {
                // It replaces nothing, but what was there before is out of date.
                Self::Store {
                    mode: Mode::Set, ..
                } => None,
                _ => old.clone(),
            },
            (
                Self::Store {
                    mode,
                    value,
                    flags,
                    expires,
                    ..
                },
                Answer::Done | Answer::Silent,
            ) => match (mode, &old) {
                (Mode::Set | Mode::Add, _) => stored(value.clone(), *flags, *expires),
                (Mode::Replace, Some(_)) => stored(value.clone(), *flags, *expires),
                (Mode::Append, Some(old)) => Some(Entry {
                    value: [&old.value[..], value].concat(),
                    cas: None,
                    ..old.clone()
                }),
                (Mode::Prepend, Some(old)) => Some(Entry {
                    value: [value, &old.value[..]].concat(),
                    cas: None,
                    ..old.clone()
                }),
                (_, None) => wrong("there was no item"),
            },
            (
                Self::Store {
                    mode: Mode::Add, ..
                },
                Answer::NotStored,
            ) => match &old {
                Some(_) => old.clone(),
                None => wrong("there was no item that is in the way"),
            },
            (Self::Store { .. }, Answer::NotStored) => None,
            (Self::Compare { value, stale, .. }, Answer::Done) => match (&old, stale) {
                (Some(_), false) => stored(value.clone(), 7, 0),
                (Some(_), true) => wrong("a CAS value of the past was taken"),
                (None, _) => wrong("there was no item"),
            },
            (Self::Compare { stale, .. }, Answer::Exists) => match (&old, stale) {
                (Some(_), true) => old.clone(),
                (Some(_), false) => wrong("the CAS value was the right one"),
                (None, _) => wrong("there was no item"),
            },
            (Self::Get { .. } | Self::Touch { get: true, .. }, Answer::Item(flags, cas, value)) => {
                let Some(mut entry) = old.clone() else {
                    wrong("there was no item");
                };
                if entry.value != *value || *flags != Some(entry.flags) {
                    wrong("it is another item");
                }
                if cas.is_some() && entry.cas.is_some() && entry.cas != *cas {
                    wrong("its CAS value has changed");
                }
                if cas.is_some() {
                    if old_cas == *cas {
                        wrong("its CAS value is one of the past");
                    }
                    entry.cas = *cas;
                }
                if let Self::Touch { expires, .. } = &self {
                    (entry.expires, entry.since) = ((*expires != 0).then_some(*expires), since);
                }
                Some(entry)
            }
            (
                Self::Touch {
                    expires,
                    get: false,
                },
                Answer::Done,
            ) => match &old {
                Some(old) => Some(Entry {
                    expires: (*expires != 0).then_some(*expires),
                    since,
                    ..old.clone()
                }),
                None => wrong("there was no item"),
            },
            (Self::Delete { .. }, Answer::Done) if old.is_none() => wrong("there was no item"),
            (Self::Delete { .. }, Answer::Done | Answer::Silent) => None,
            (Self::Number { delta, down }, Answer::Item(_, _, told)) => {
                let Some(mut entry) = old.clone() else {
                    wrong("there was no item");
                };
                let Some(number) = as_number(&entry.value) else {
                    wrong("it is no number");
                };
                let number = match down {
                    true => number.saturating_sub(*delta),
                    false => number.wrapping_add(*delta),
                };
                if as_number(told) != Some(number) {
                    wrong("it is another number");
                }
                entry.value = format!("{number:<0$}", entry.value.len()).into_bytes();
                entry.cas = None;
                Some(entry)
            }
            (Self::Number { .. }, Answer::NotANumber) => match &old {
                Some(old) if as_number(&old.value).is_none() => Some(old.clone()),
                _ => wrong("it is a number, or is not there"),
            },
            (_, Answer::Missing) => None,
            _ => wrong("that answers something else"),
        };
        key.entry = entry;
        // What it had when it had another value is of the past.
        let now = key.entry.as_ref().and_then(|entry| entry.cas);
        if let Some(cas) = old.and_then(|old| old.cas)
            && now != Some(cas)
        {
            key.old_cas = Some(cas);
        }
        Ok(found)
    }
}
