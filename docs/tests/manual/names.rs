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

/// Types whose methods, fields and variants chapters name as `Type::name`, beside those that have any in the sources under other names.
const TYPES: [&str; 29] = [
    "Domain",
    "Rcu",
    "Retired",
    "Guard",
    "QsbrReader",
    "Offline",
    "OwnedGuard",
    "TraceDomain",
    "Cookie",
    "Statistics",
    "DrainPolicy",
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

/// What there is to be named.
#[derive(Default)]
struct Names {
    /// By type.
    members: HashMap<String, HashSet<String>>,
    /// In C.
    c: HashSet<String>,
}

impl Names {
    fn of_the_library() -> Self {
        let mut names = Self::default();
        let crates = repository().join("crates");
        each_file(&crates.join("stillpoint/src"), &mut |text| names.add_rust(text));
        each_file(&crates.join("stillpoint-c/include"), &mut |text| {
            names
                .c
                .extend(text.split(|c: char| !is_word_part(c)).filter(|word| word.starts_with("stillpoint_")).map(str::to_owned));
        });
        let inherited = names.members["Domain"].clone();
        names.members.entry("TraceDomain".to_owned()).or_default().extend(inherited);
        names
    }

    /// Reads what is declared in the blocks of a formatted file: they begin and end at the margin.
    fn add_rust(&mut self, text: &str) {
        let mut current: Option<&str> = None;
        for line in text.lines() {
            if line == "}" {
                current = None;
            } else if line.ends_with('{') && !line.starts_with(' ') {
                current = TYPES.into_iter().find(|name| is_block_of(line, name));
            } else if let (Some(kind), Some(member)) = (current, declared(line)) {
                self.members.entry(kind.to_owned()).or_default().insert(member.to_owned());
            }
        }
    }

    /// Whether `span` names something, or does not claim to.
    fn has(&self, span: &str) -> bool {
        let bare = span.split(['(', '<']).next().expect("there is a first part");
        let is_word = |text: &str| !text.is_empty() && text.chars().all(is_word_part);
        match bare.rsplit_once("::") {
            Some((path, _)) if path.starts_with("std::") => true,
            Some((path, name)) => {
                let kind = path.rsplit("::").next().expect("there is a last part");
                !TYPES.contains(&kind) || !is_word(name) || self.members.get(kind).is_some_and(|members| members.contains(name))
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

/// Whether a line at the margin begins a declaration of a type, or what it has: `pub struct Name`, `impl<T> Name<T>`, `impl Trait for Name`.
fn is_block_of(line: &str, name: &str) -> bool {
    let mut words = line.split(|c: char| !is_word_part(c)).filter(|word| !word.is_empty());
    let kinds = ["struct", "enum", "trait", "impl"];
    words.any(|word| kinds.contains(&word)) && words.any(|word| word == name)
}

/// The function, the public field or the variant that a line in a block declares.
fn declared(line: &str) -> Option<&str> {
    let inside = line.strip_prefix("    ").filter(|rest| !rest.starts_with(' '))?;
    let is_public = inside.starts_with("pub ");
    let mut rest = inside;
    for word in ["pub ", "const ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    if let Some(function) = rest.strip_prefix("fn ") {
        return function.split(|c: char| !is_word_part(c)).next();
    }
    let end = rest.find(|c: char| !is_word_part(c))?;
    let is_variant =
        rest.starts_with(|c: char| c.is_uppercase()) && [",", " {", "(", " ="].iter().any(|then| rest[end..].starts_with(then));
    (is_variant || (is_public && rest[end..].starts_with(':'))).then(|| &rest[..end])
}

fn unknown_names(chapters: &[Chapter], names: &Names) -> Vec<String> {
    let spans = chapters.iter().flat_map(|chapter| chapter.spans.iter().map(move |(line, span)| (chapter, line, span)));
    spans
        .filter(|(_, _, span)| !names.has(span))
        .map(|(chapter, line, span)| format!("{}:{line}: `{span}` is no name in the library", chapter.file))
        .collect()
}

#[test]
fn names_are_names_of_the_library() {
    assert_none(&unknown_names(&chapters(), &Names::of_the_library()));
}

#[test]
fn names_that_are_none_are_found() {
    let names = Names::of_the_library();
    let there = "`Domain::synchronize` `list_lru::Tenant::set_max(1)` `TraceDomain::read_lock_owned` `TraceDomain::poll` `Error::Forked` \
                 `Statistics::waits` `Shrink::seeks` `Rcu::store` `stillpoint_read_lock` `Vec::new` `std::thread::Builder::name` `plain`";
    assert_none(&unknown_names(&[Chapter::parse("a.md", there)], &names));
    let absent =
        "`Domain::synchronise()` `Domain::set_limit` `Domain::set_max` `Rcu::read_lock_owned` `Error::Fork` `stillpoint_frob`";
    assert_eq!(unknown_names(&[Chapter::parse("a.md", absent)], &names).len(), 6);
}
