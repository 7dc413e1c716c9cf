//! The names that chapters call the library's things by are names in the library.

use crate::{
    assert_none,
    book::{Chapter, chapters, repository},
};
use std::{collections::HashSet, fs, path::Path};

/// Types whose methods, fields and variants chapters name as `Type::name`.
const TYPES: [&str; 26] = [
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
    "Error",
    "Tenant",
    "ListLru",
    "Entry",
    "Shrink",
    "Registration",
    "Hierarchy",
    "PressureWatch",
];

/// All words of the library's sources and headers.
fn words() -> HashSet<String> {
    fn add(folder: &Path, words: &mut HashSet<String>) {
        for entry in fs::read_dir(folder).expect("it can be read") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                add(&path, words);
            } else if let Ok(text) = fs::read_to_string(&path) {
                words.extend(text.split(|c: char| !(c.is_alphanumeric() || c == '_')).map(str::to_owned));
            }
        }
    }
    let mut words = HashSet::new();
    for folder in ["stillpoint/src", "stillpoint-c/src", "stillpoint-c/include"] {
        add(&repository().join("crates").join(folder), &mut words);
    }
    words
}

/// The word that has to be there for `span` to name something: what follows a type of ours, or a name in C.
fn word_of(span: &str) -> Option<&str> {
    let bare = span.split(['(', '<']).next().expect("there is a first part");
    let is_word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_');
    if let Some((kind, name)) = bare.rsplit_once("::") {
        let kind = kind.rsplit("::").next().expect("there is a last part");
        return (TYPES.contains(&kind) && is_word(name)).then_some(name);
    }
    (bare.starts_with("stillpoint_") && is_word(bare)).then_some(bare)
}

fn unknown_names(chapters: &[Chapter], words: &HashSet<String>) -> Vec<String> {
    let spans = chapters.iter().flat_map(|chapter| chapter.spans.iter().map(move |(line, span)| (chapter, line, span)));
    spans
        .filter(|(_, _, span)| word_of(span).is_some_and(|word| !words.contains(word)))
        .map(|(chapter, line, span)| format!("{}:{line}: `{span}` is no name in the library", chapter.file))
        .collect()
}

#[test]
fn names_are_names_of_the_library() {
    let chapters = chapters();
    let named = chapters.iter().flat_map(|chapter| &chapter.spans).filter(|(_, span)| word_of(span).is_some()).count();
    assert!(named > 20, "the manual names things: {named}");
    assert_none(&unknown_names(&chapters, &words()));
}

#[test]
fn names_that_are_none_are_found() {
    let text =
        "`Domain::synchronize` `Domain::synchronise()` `list_lru::Tenant::set_max(1)` `stillpoint_frob` `Vec::new` `plain`";
    let complaints = unknown_names(&[Chapter::parse("a.md", text)], &words());
    assert_eq!(complaints.len(), 2, "{complaints:?}");
}
