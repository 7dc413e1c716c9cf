//! Tables of settings. For each setting, one entry says what the file and the command line call it, its
//! default and what it means. The parsers of both, `--help` and the manual's reference read it there.

use super::{Mode, parse_bytes};
use crate::protocol::number::parse_u64;
use std::{path::PathBuf, time::Duration};

/// A value, as the file and the command line write it.
pub(crate) trait Value {
    /// Reads `text`. Fails with what is wrong with it.
    fn read(&mut self, text: &str) -> Result<(), String>;
    /// Returns the text of the value; empty if there is none.
    fn show(&self) -> String;
    /// Returns what kind of value it is.
    fn kind(&self) -> String;
    /// Forgets the values that were read before, if there can be several. Returns whether that is so.
    fn clear(&mut self) -> bool {
        false
    }
}

/// A setting of a section `T`.
pub(crate) struct Setting<T: 'static> {
    /// The key in the file; empty if only the command line has it.
    pub key: &'static str,
    /// The flag; empty if only the file has it.
    pub flag: Flag,
    /// Whether SIGHUP applies it.
    pub live: bool,
    /// What it is.
    pub meaning: &'static str,
    pub value: fn(&mut T) -> &mut dyn Value,
}

/// A section of settings.
pub(crate) trait Section: Default + 'static {
    const SETTINGS: &'static [Setting<Self>];
}

impl<T: Section> Setting<T> {
    /// Returns the text of the default; empty if there is none.
    pub fn default(&self) -> String {
        let shown = (self.value)(&mut T::default()).show();
        match self.key {
            "threads" => "one for each processor".into(),
            _ if self.counts() => parse_bytes(&shown).map_or(shown, |number| number.to_string()),
            _ => shown,
        }
    }

    /// Returns whether it is a number of things, for which the units of sizes make no sense.
    fn counts(&self) -> bool {
        self.flag.value() == Some("NUMBER")
    }

    /// Returns what kind of value it has, for the manual and for what is wrong in the file.
    pub fn kind(&self) -> String {
        match self.counts() {
            true => "number".into(),
            false => (self.value)(&mut T::default()).kind(),
        }
    }

    /// Returns whether it has several values.
    pub fn is_list(&self) -> bool {
        (self.value)(&mut T::default()).clear()
    }

    /// Sets what the command line gives. A flag without a value counts, or turns a switch to what it is
    /// not by default.
    pub fn set(&self, section: &mut T, texts: &[String]) -> Result<(), String> {
        (self.value)(section).clear();
        match (self.flag.value(), &*self.default()) {
            (None, "true") => self.read(section, "false"),
            (None, "false") => self.read(section, "true"),
            (None, _) => self.read(section, &texts.len().to_string()),
            _ => texts.iter().try_for_each(|text| self.read(section, text)),
        }
    }

    /// Reads a value of the command line.
    pub fn read(&self, section: &mut T, text: &str) -> Result<(), String> {
        let text = self.flag.with_unit(text);
        let allowed = match self.counts() {
            true => count(&text).map(drop),
            false => Ok(()),
        };
        let read = allowed.and_then(|()| (self.value)(section).read(&text));
        read.map_err(|error| format!("{}: {error}", self.flag.name()))
    }
}

/// How the command line writes a setting: `-t --threads NUMBER`, `--metrics ADDRESS`, or
/// `-o idle_timeout SECONDS`. Without the last word it has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flag(pub &'static str);

impl Flag {
    fn word(self, is: impl Fn(&str) -> bool) -> Option<&'static str> {
        self.0.split(' ').find(|word| is(word))
    }

    pub fn letter(self) -> Option<char> {
        let letter = self.word(|word| word.len() == 2)?.chars().nth(1);
        letter.filter(|_| self.option().is_none())
    }

    pub fn long(self) -> Option<&'static str> {
        self.word(|word| word.len() > 2)?.strip_prefix("--")
    }

    /// The name behind `-o`.
    pub fn option(self) -> Option<&'static str> {
        let name = self.0.strip_prefix("-o ")?.split(' ').next()?;
        (!name.starts_with("--")).then_some(name)
    }

    /// The name of its value.
    pub fn value(self) -> Option<&'static str> {
        self.word(|word| word.starts_with(char::is_uppercase))
    }

    /// What messages call it.
    pub fn name(self) -> String {
        match self.option() {
            Some(name) => format!("-o {name}"),
            None => self.0.split(' ').next().unwrap_or_default().into(),
        }
    }

    /// Adds the unit in which the command line counts, where `text` has none.
    fn with_unit(self, text: &str) -> String {
        let unit = match self.value() {
            Some("MIB") => "m",
            Some("KIB") => "k",
            _ => "",
        };
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        format!("{text}{}", if is_number { unit } else { "" })
    }
}

/// Declares a section with its defaults. A field that has a key or a flag is an entry of its table:
/// `/// meaning`, `field: type = default, "key", "flag", live;`.
macro_rules! section {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                #[doc = $doc:literal]
                $field:ident: $type:ty = $default:expr $(, $key:literal, $flag:literal $(, $live:ident)?)?;
            )*
        }
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $(#[doc = $doc] pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $crate::config::table::Section for $name {
            const SETTINGS: &'static [$crate::config::table::Setting<Self>] = &[
                $($(
                    $crate::config::table::Setting {
                        key: $key,
                        flag: $crate::config::table::Flag($flag),
                        live: $crate::config::section!(@ $($live)?),
                        meaning: $doc.trim_ascii(),
                        value: |section| &mut section.$field,
                    },
                )?)*
            ];
        }
    };
    (@ live) => { true };
    (@) => { false };
}
pub(crate) use section;

/// A value that is one of some words.
pub(crate) trait Choice: Copy + PartialEq + 'static {
    /// The words; the first one of a value is the manual's, others are memcached's.
    const WORDS: &'static [(&'static str, Self)];
}

impl<T: Choice> Value for T {
    fn read(&mut self, text: &str) -> Result<(), String> {
        let found = T::WORDS.iter().find(|(word, _)| *word == text);
        *self = found
            .ok_or_else(|| format!("{text:?} is none of {}", self.kind()))?
            .1;
        Ok(())
    }

    fn show(&self) -> String {
        let found = T::WORDS.iter().find(|(_, value)| value == self);
        found.map_or("", |(word, _)| word).into()
    }

    fn kind(&self) -> String {
        let words = T::WORDS
            .iter()
            .filter(|(word, value)| value.show() == *word);
        words.map(|(word, _)| *word).collect::<Vec<_>>().join(", ")
    }
}

impl Choice for bool {
    const WORDS: &'static [(&'static str, Self)] = &[("true", true), ("false", false)];
}

fn count(text: &str) -> Result<u32, String> {
    let number = parse_u64(text.as_bytes()).and_then(|number| number.try_into().ok());
    number.ok_or_else(|| format!("{text:?} is not a number from 0 to {}", u32::MAX))
}

/// Reads a number, which may have a unit.
fn number<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number = parse_bytes(text)?.try_into();
    number.map_err(|_| format!("{text:?} is too large"))
}

fn show_number(number: u64) -> String {
    match number {
        u64::MAX => "none".into(),
        bytes if bytes > 0 && bytes % (1 << 20) == 0 => format!("{}m", bytes >> 20),
        bytes if bytes > 0 && bytes % (1 << 10) == 0 => format!("{}k", bytes >> 10),
        number => number.to_string(),
    }
}

fn mode(text: &str) -> Result<Mode, String> {
    let mode = u32::from_str_radix(text, 8).ok();
    let mode = mode.filter(|mode| *mode <= 0o777).map(Mode);
    mode.ok_or_else(|| format!("{text:?}: permissions are octal, as 0700"))
}

macro_rules! values {
    ($($type:ty, $kind:literal, $read:expr, $show:expr;)*) => {
        $(impl Value for $type {
            fn read(&mut self, text: &str) -> Result<(), String> {
                *self = $read(text)?;
                Ok(())
            }

            fn show(&self) -> String {
                $show(self)
            }

            fn kind(&self) -> String {
                $kind.into()
            }
        })*
    };
}
values! {
    u32, "number", count, |number: &u32| number.to_string();
    u64, "size", number, |number: &u64| show_number(*number);
    usize, "size", number, |number: &usize| show_number(*number as u64);
    Duration, "number", |text| count(text).map(|micros| Self::from_micros(micros.into())), |time: &Self| time.as_micros().to_string();
    Mode, "octal", mode, |mode: &Self| format!("{:04o}", mode.0);
    String, "text", |text: &str| Ok::<_, String>(text.into()), Self::clone;
    PathBuf, "file", |text: &str| Ok::<_, String>(text.into()), |path: &Self| path.display().to_string();
}

impl<T: Value + Default> Value for Option<T> {
    fn read(&mut self, text: &str) -> Result<(), String> {
        let mut value = T::default();
        value.read(text)?;
        *self = Some(value);
        Ok(())
    }

    fn show(&self) -> String {
        self.as_ref().map(Value::show).unwrap_or_default()
    }

    fn kind(&self) -> String {
        T::default().kind()
    }
}

impl Value for Vec<String> {
    fn read(&mut self, text: &str) -> Result<(), String> {
        self.push(text.into());
        Ok(())
    }

    fn show(&self) -> String {
        self.join(", ")
    }

    fn kind(&self) -> String {
        "list".into()
    }

    fn clear(&mut self) -> bool {
        self.clear();
        true
    }
}
