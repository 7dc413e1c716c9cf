//! The names that chapters call the library's things by are names in the library.

use crate::{
    assert_none,
    book::{Chapter, chapters, repository},
};
use std::{
    collections::{HashMap, HashSet},
    fs,
    path::Path,
};

/// Types whose methods, fields and variants chapters name as `Type::name`, beside those that have
/// any in the sources under other names.
const TYPES: [&str; 30] = [
    "Domain",
    "Rcu",
    "RcuOption",
    "Snapshot",
    "Retired",
    "Guard",
    "QsbrReader",
    "Offline",
    "OwnedGuard",
    "TraceDomain",
    "Cookie",
    "Statistics",
    "StallReport",
    "Holdout",
    "Stalled",
    "Arena",
    "Area",
    "Builder",
    "Checked",
    "Found",
    "Error",
    "Tenant",
    "ListLru",
    "Entry",
    "Isolate",
    "Shrink",
    "Registration",
    "Hierarchy",
    "PressureWatch",
    "Charge",
];

/// The crates that programs use.
const CRATES: [&str; 6] = [
    "stillpoint",
    "stillpoint-cache",
    "stillpoint-lru",
    "stillpoint-map",
    "stillpoint-metrics",
    "stillpoint-vmap",
];

/// The paths of their public modules, and the files.
const MODULES: [(&str, &str); 8] = [
    ("stillpoint", "stillpoint/src/lib.rs"),
    ("tasks_trace", "stillpoint/src/tasks_trace/mod.rs"),
    (
        "stillpoint::tasks_trace",
        "stillpoint/src/tasks_trace/mod.rs",
    ),
    ("stillpoint_cache", "stillpoint-cache/src/lib.rs"),
    ("stillpoint_lru", "stillpoint-lru/src/lib.rs"),
    ("stillpoint_map", "stillpoint-map/src/lib.rs"),
    ("stillpoint_metrics", "stillpoint-metrics/src/lib.rs"),
    ("stillpoint_vmap", "stillpoint-vmap/src/lib.rs"),
];

/// What there is to be named.
#[derive(Default)]
struct Names {
    /// By type.
    members: HashMap<String, HashSet<String>>,
    /// What each crate and each of its public modules have, by the path that programs call it by.
    exports: HashMap<&'static str, HashSet<String>>,
    /// In C.
    c: HashSet<String>,
}

impl Names {
    fn of_the_library() -> Self {
        let mut names = Self::default();
        let crates = repository().join("crates");
        for library in CRATES {
            each_file(&crates.join(library).join("src"), &mut |text| {
                names.add_rust(text)
            });
        }
        for (path, file) in MODULES {
            let text = fs::read_to_string(crates.join(file)).expect("the module is there");
            names.exports.insert(path, exported(&text));
        }
        each_file(&crates.join("stillpoint-c/include"), &mut |text| {
            names.c.extend(
                text.split(|c: char| !is_word_part(c))
                    .filter(|word| word.starts_with("stillpoint_"))
                    .map(str::to_owned),
            );
        });
        let inherited = names.members["Domain"].clone();
        names
            .members
            .entry("TraceDomain".to_owned())
            .or_default()
            .extend(inherited);
        names
    }

    /// Reads what is declared in the blocks of a formatted file: they begin and end at the margin.
    fn add_rust(&mut self, text: &str) {
        let mut current: Option<(&str, bool)> = None;
        let mut hidden = false;
        for line in text.lines() {
            if line == "}" {
                current = None;
            } else if line.ends_with('{') && !line.starts_with(' ') {
                // What a trait has is as public as the trait.
                let of_trait = line.contains(" for ") || line.contains("trait ");
                current = TYPES
                    .into_iter()
                    .find(|name| is_block_of(line, name))
                    .map(|name| (name, of_trait));
            } else if let Some((kind, of_trait)) = current {
                hidden = !line.is_empty() && (hidden || line.trim() == "#[doc(hidden)]");
                if let Some(member) = declared(line, of_trait)
                    && !std::mem::take(&mut hidden)
                {
                    self.members
                        .entry(kind.to_owned())
                        .or_default()
                        .insert(member.to_owned());
                }
            }
        }
    }

    /// Returns whether `span` names something, or does not claim to.
    fn has(&self, span: &str) -> bool {
        let bare = span
            .split(['(', '<'])
            .next()
            .expect("there is a first part");
        let is_word = |text: &str| !text.is_empty() && text.chars().all(is_word_part);
        match bare.rsplit_once("::") {
            Some((path, _)) if path.starts_with("std::") => true,
            Some((path, name)) if self.exports.contains_key(path) => {
                !is_word(name) || self.exports[path].contains(name)
            }
            Some((path, name)) => {
                let kind = path.rsplit("::").next().expect("there is a last part");
                !TYPES.contains(&kind)
                    || !is_word(name)
                    || self
                        .members
                        .get(kind)
                        .is_some_and(|members| members.contains(name))
            }
            None => !bare.starts_with("stillpoint_") || !is_word(bare) || self.c.contains(bare),
        }
    }
}

fn is_word_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn each_file(folder: &Path, work: &mut impl FnMut(&str)) {
    for entry in fs::read_dir(folder).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            each_file(&path, work);
        } else if let Ok(text) = fs::read_to_string(&path) {
            work(&text);
        }
    }
}

/// Returns whether a line at the margin begins a declaration of a type, or what it has:
/// `pub struct Name`, `impl<T> Name<T>`, `impl Trait for Name`.
fn is_block_of(line: &str, name: &str) -> bool {
    let mut words = line
        .split(|c: char| !is_word_part(c))
        .filter(|word| !word.is_empty());
    let kinds = ["struct", "enum", "trait", "impl"];
    words.any(|word| kinds.contains(&word)) && words.any(|word| word == name)
}

/// What a module's file gives to programs: its public functions, types and modules, and what it has
/// from others.
fn exported(text: &str) -> HashSet<String> {
    let mut names = HashSet::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(rest) = line.strip_prefix("pub ") else {
            continue;
        };
        let mut words: Vec<&str> = rest
            .split(|c: char| !is_word_part(c))
            .filter(|word| !word.is_empty())
            .collect();
        if words[0] == "use" {
            let more = if line.contains(';') {
                Vec::new()
            } else {
                lines
                    .by_ref()
                    .take_while(|line| !line.contains(';'))
                    .collect()
            };
            words.extend(
                more.into_iter()
                    .flat_map(|line| line.split(|c: char| !is_word_part(c))),
            );
            names.extend(words[1..].iter().map(|word| (*word).to_owned()));
        } else if let Some(at) = words
            .iter()
            .position(|word| ["fn", "mod", "struct", "enum", "trait", "type"].contains(word))
        {
            names.extend(words.get(at + 1).map(|word| (*word).to_owned()));
        }
    }
    names
}

/// The function, the field or the variant that a line in a block declares, if it is public: what a
/// trait has needs no `pub`.
fn declared(line: &str, of_trait: bool) -> Option<&str> {
    let inside = line
        .strip_prefix("    ")
        .filter(|rest| !rest.starts_with(' '))?;
    let is_public = inside.starts_with("pub ");
    let mut rest = inside;
    for word in ["pub ", "const ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    if let Some(function) = rest.strip_prefix("fn ") {
        return function
            .split(|c: char| !is_word_part(c))
            .next()
            .filter(|_| is_public || of_trait);
    }
    let end = rest.find(|c: char| !is_word_part(c))?;
    let is_variant = rest.starts_with(|c: char| c.is_uppercase())
        && [",", " {", "(", " ="]
            .iter()
            .any(|then| rest[end..].starts_with(then));
    (is_variant || (is_public && rest[end..].starts_with(':'))).then(|| &rest[..end])
}

fn unknown_names(chapters: &[Chapter], names: &Names) -> Vec<String> {
    let spans = chapters.iter().flat_map(|chapter| {
        chapter
            .spans
            .iter()
            .map(move |(line, span)| (chapter, line, span))
    });
    spans
        .filter(|(_, _, span)| !names.has(span))
        .map(|(chapter, line, span)| {
            format!(
                "{}:{line}: `{span}` is no name in the library",
                chapter.file
            )
        })
        .collect()
}

#[test]
fn names_are_names_of_the_library() {
    assert_none(&unknown_names(&chapters(), &Names::of_the_library()));
}

#[test]
fn names_that_are_none_are_found() {
    let names = Names::of_the_library();
    let there = "`Domain::synchronize` `stillpoint_lru::Tenant::set_max(1)` `TraceDomain::read_lock_owned` `TraceDomain::poll` `Error::Forked` \
                 `Statistics::waits` `Shrink::seeks` `Rcu::store` `stillpoint_read_lock` `Vec::new` `std::thread::Builder::name` `plain` \
                 `stillpoint::retire(p)` `tasks_trace::read_lock()` `stillpoint_vmap::Arena` `stillpoint::Rcu` \
                 `stillpoint_lru::Tenant`";
    assert_none(&unknown_names(&[Chapter::parse("a.md", there)], &names));
    let absent = "`Domain::synchronise()` `Domain::set_limit` `Domain::set_max` `Rcu::read_lock_owned` `Error::Fork` `stillpoint_frob`";
    assert_eq!(
        unknown_names(&[Chapter::parse("a.md", absent)], &names).len(),
        6
    );
    let private = "`Domain::engine` `Domain::retire_object` `Domain::has_ended` `Tenant::live`";
    assert_eq!(
        unknown_names(&[Chapter::parse("a.md", private)], &names).len(),
        4,
        "private, of the crate, hidden"
    );
    let nowhere = "`stillpoint::retyre(p)` `tasks_trace::retire()` `stillpoint::lru` `stillpoint_vmap::Tenant` `stillpoint::tasks_trace::Domain`";
    assert_eq!(
        unknown_names(&[Chapter::parse("a.md", nowhere)], &names).len(),
        5
    );
}
