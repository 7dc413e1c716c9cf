//! Each access that orders says what it orders: see "Orderings have a label and a partner" in
//! CONTRIBUTING.md.
//!
//! Read are the sources as text. An *access* is a line of code that names an ordering other than
//! Relaxed, or calls a barrier; an *explanation*, in the comment on its line or directly above, is
//! a label in brackets, "pairs with" a function, or "needs no partner:" and why. A label is
//! *defined* where the head of a file (`//!`) has it in brackets; heads of other files write it
//! without.
#![cfg(not(miri))]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// What orders, as words of code.
const ORDERINGS: [&str; 4] = ["Acquire", "Release", "AcqRel", "SeqCst"];
const BARRIERS: [&str; 7] = [
    "light",
    "light_asymmetric",
    "heavy",
    "heavy_barrier",
    "process_barrier",
    "full_fence",
    "fence_after_rmw",
];
/// Where the barriers are made, of each other.
const MAKES_BARRIERS: &str = "/barrier.rs";

/// Where the protocol is.
const CORE: [&str; 3] = [
    "stillpoint/src/gp/",
    "stillpoint/src/rcu/",
    "stillpoint/src/tasks_trace/",
];
/// The labels' letters there: reader, updater, sleeper, registered readers; parking and draining,
/// of kvfree; the event count.
const FAMILIES: [&str; 7] = ["R", "W", "S", "O", "P", "D", "E"];
/// What a sentence about an access begins with.
const MNEMONICS: [&str; 8] = [
    "Acquire", "Release", "AcqRel", "SeqCst", "Relaxed", "Light", "Heavy", "Fence",
];

struct Source {
    /// Below the repository's `crates`.
    name: String,
    lines: Vec<Line>,
    /// The text of its `//!`.
    head: Vec<String>,
    /// The lines on which code orders, each with the line of its function's `fn`.
    accesses: Vec<(usize, Option<usize>)>,
}

#[derive(Default)]
struct Line {
    code: String,
    comment: String,
    /// In an item that only tests have.
    test: bool,
    /// The bracket that a statement on this line stands in, and the line that opens it.
    inside: Option<(char, usize)>,
}

impl Source {
    fn new(name: &str, text: &str) -> Self {
        let mut lines = split(text);
        let head = lines
            .iter()
            .filter_map(|line| line.comment.strip_prefix('!'))
            .map(str::to_owned)
            .collect();
        let mut open = Vec::new();
        for (number, line) in lines.iter_mut().enumerate() {
            line.inside = open.last().copied();
            for letter in line.code.chars() {
                match letter {
                    '(' | '[' | '{' => open.push((letter, number)),
                    ')' | ']' | '}' => drop(open.pop()),
                    _ => {}
                }
            }
        }
        let mut at = 0;
        while at < lines.len() {
            let code = lines[at].code.trim();
            let only_tests = code.starts_with("#[cfg(test)") || code.starts_with("#[cfg(all(test");
            at = if only_tests {
                skip_item(&mut lines, at)
            } else {
                at + 1
            };
        }
        let mut source = Self {
            name: name.to_owned(),
            lines,
            head,
            accesses: Vec::new(),
        };
        let orders = |number: &usize| {
            !source.lines[*number].test && source.orders(&source.lines[*number].code)
        };
        let accesses = (0..source.lines.len())
            .filter(orders)
            .map(|number| (number, source.function_around(number)));
        source.accesses = accesses.collect();
        source
    }

    /// Returns whether code names an ordering, or calls a barrier.
    fn orders(&self, code: &str) -> bool {
        let named = ORDERINGS
            .iter()
            .chain(&BARRIERS)
            .any(|name| code.contains(name));
        let item = code
            .trim_start()
            .trim_start_matches("pub")
            .trim_start_matches("(crate)")
            .trim_start();
        if !named || item.starts_with("use ") {
            return false;
        }
        let calls = |(before, word, after): &(&str, &str, char)| {
            *after == '(' && *before != "fn" && BARRIERS.contains(word)
        };
        let makes = self.name.ends_with(MAKES_BARRIERS);
        words(code)
            .iter()
            .any(|word| ORDERINGS.contains(&word.1) || !makes && calls(word))
    }

    /// The comment that belongs to a line of code: on the line, above it, above its statement, or
    /// above the function that has no other access.
    fn comment_of(&self, access: usize) -> String {
        let mut comment = self.lines[access].comment.clone();
        if self.lines[access].code.trim_start().starts_with('}') {
            // An `else if` has its comment inside.
            let inside = self.lines[access + 1..]
                .iter()
                .take_while(|line| line.is_comment());
            return inside.fold(comment, |all, line| all + &line.comment + "\n");
        }
        let mut at = access;
        while at > 0 {
            let above = &self.lines[at - 1];
            if above.is_comment() {
                return self.block_above(at) + &comment;
            }
            let goes_on = match above.code.trim_end().chars().last() {
                None | Some(';' | '}' | '{') => false,
                Some(',' | '(' | '[') => self.lines[at]
                    .inside
                    .is_some_and(|(bracket, _)| bracket != '{'),
                _ => true,
            };
            if !goes_on {
                break;
            }
            at -= 1;
            comment.push_str(&self.lines[at].comment);
        }
        let function = self
            .accesses
            .iter()
            .find(|(line, _)| *line == access)
            .and_then(|(_, function)| *function);
        if let Some(function) = function
            && self
                .accesses
                .iter()
                .filter(|(_, other)| *other == Some(function))
                .count()
                == 1
        {
            let attributes = self.lines[..function]
                .iter()
                .rev()
                .take_while(|line| line.code.trim().starts_with("#["))
                .count();
            comment.push_str(&self.block_above(function - attributes));
        }
        comment
    }

    fn block_above(&self, line: usize) -> String {
        let above = self.lines[..line]
            .iter()
            .rev()
            .take_while(|line| line.is_comment());
        above
            .map(|line| line.comment.as_str())
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .fold(String::new(), |all, line| all + line + "\n")
    }

    /// The line with the `fn` of the innermost function around a line.
    fn function_around(&self, line: usize) -> Option<usize> {
        let mut at = line;
        loop {
            if words(&self.lines[at].code)
                .iter()
                .any(|(before, ..)| *before == "fn")
            {
                return Some(at);
            }
            let goes_on = |above: &Line| {
                !above.is_comment() && !above.code.trim_end().ends_with([';', '{', '}'])
            };
            let blank = |above: &Line| above.code.trim().is_empty();
            at = match at.checked_sub(1).map(|above| &self.lines[above]) {
                Some(above) if goes_on(above) && !blank(above) => at - 1,
                _ => self.lines[at].inside?.1,
            };
        }
    }

    fn folder(&self) -> &str {
        self.name.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

impl Line {
    fn is_comment(&self) -> bool {
        self.code.trim().is_empty() && !self.comment.is_empty()
    }
}

/// The words of a line of code, each with the word before and the character after it.
fn words(code: &str) -> Vec<(&str, &str, char)> {
    let part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut before = "";
    let found = code
        .split(|letter| !part(letter))
        .filter(|word| !word.is_empty());
    found
        .map(|word| {
            let end = word.as_ptr() as usize + word.len() - code.as_ptr() as usize;
            (
                std::mem::replace(&mut before, word),
                word,
                code[end..].chars().next().unwrap_or(' '),
            )
        })
        .collect()
}

/// Code and comments apart, the contents of strings left out.
fn split(text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    // What ends the string that a line begins in, for strings of several lines.
    let mut string: Option<String> = None;
    for text in text.lines() {
        let mut line = Line::default();
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            if let Some(end) = &string {
                let escape = end == "\"" && letter == '\\';
                let ends = !escape && rest.starts_with(end.as_str());
                let skip = if escape {
                    rest.len().min(2)
                } else if ends {
                    end.len()
                } else {
                    letter.len_utf8()
                };
                rest = rest.get(skip..).unwrap_or("");
                if ends {
                    string = None;
                }
                continue;
            }
            if let Some(comment) = rest.strip_prefix("//") {
                line.comment = comment.to_owned();
                break;
            }
            let hashes = rest
                .strip_prefix('r')
                .map_or(0, |raw| raw.len() - raw.trim_start_matches('#').len());
            let raw = hashes > 0 && rest[1 + hashes..].starts_with('"');
            let character = ["'\"'", "'\\\"'", "'{'", "'}'", "'('", "')'", "'['", "']'"]
                .iter()
                .find(|quoted| rest.starts_with(**quoted));
            let skip = match character {
                _ if raw => {
                    string = Some(format!("\"{}", "#".repeat(hashes)));
                    2 + hashes
                }
                Some(character) => character.len(),
                None if letter == '"' => {
                    string = Some("\"".to_owned());
                    1
                }
                None => {
                    line.code.push(letter);
                    letter.len_utf8()
                }
            };
            rest = &rest[skip..];
        }
        lines.push(line);
    }
    lines
}

/// Marks the item behind the attribute on line `at` as a test's. The line behind it.
fn skip_item(lines: &mut [Line], at: usize) -> usize {
    let mut depth = 0i32;
    for (number, line) in lines.iter_mut().enumerate().skip(at) {
        line.test = true;
        let code = line.code.trim();
        let attribute = depth == 0 && (code.starts_with("#[") || code.is_empty());
        depth += code
            .chars()
            .map(|letter| i32::from("([{".contains(letter)) - i32::from(")]}".contains(letter)))
            .sum::<i32>();
        if depth < 0 || depth == 0 && !attribute && code.ends_with([';', '}', ',', ')']) {
            return number + 1;
        }
    }
    lines.len()
}

/// The labels in brackets: `[R4]`, `[R4, R2]`.
fn labels(text: &str) -> BTreeSet<String> {
    let brackets = text
        .split('[')
        .skip(1)
        .filter_map(|rest| rest.split_once(']'))
        .map(|(inside, _)| inside);
    brackets
        .filter(|inside| inside.split(", ").all(is_label))
        .flat_map(|inside| inside.split(", "))
        .map(str::to_owned)
        .collect()
}

fn is_label(word: &str) -> bool {
    let mut letters = word.chars();
    letters
        .next()
        .is_some_and(|letter| letter.is_ascii_uppercase())
        && word.len() > 1
        && letters.all(|letter| letter.is_ascii_digit())
}

fn family(label: &str) -> &str {
    &label[..1]
}

/// The functions that a comment says an access pairs with: the names in quotes up to a colon, a
/// semicolon or a full stop.
fn partners(comment: &str) -> Option<Vec<String>> {
    let comment = comment.replace('\n', " ").to_lowercase().replace("  ", " ");
    let (_, partners) = comment.split_once("pairs with ")?;
    let sentence = partners.split([':', ';']).next()?.split(". ").next()?;
    let names = sentence.split('`').skip(1).step_by(2);
    Some(
        names
            .map(|name| {
                name.trim_end_matches("()")
                    .rsplit([':', '.'])
                    .next()
                    .unwrap_or(name)
                    .to_owned()
            })
            .collect(),
    )
}

/// (a) Each access is explained, and functions that comments name are there.
fn unexplained(sources: &[Source]) -> Vec<String> {
    let functions = sources
        .iter()
        .flat_map(|source| &source.lines)
        .flat_map(|line| words(&line.code));
    let functions: BTreeSet<_> = functions
        .filter(|(before, ..)| *before == "fn")
        .map(|(_, name, _)| name.to_lowercase())
        .collect();
    let mut faults = Vec::new();
    for (source, access) in sources.iter().flat_map(|source| {
        source
            .accesses
            .iter()
            .map(move |(access, _)| (source, *access))
    }) {
        let comment = source.comment_of(access);
        let place = format!(
            "{}:{}: {}",
            source.name,
            access + 1,
            source.lines[access].code.trim()
        );
        match partners(&comment) {
            Some(names) if names.is_empty() => faults.push(format!(
                "{place}\n    pairs with what? Name the function in quotes"
            )),
            Some(names) => {
                let missing = names.iter().filter(|name| !functions.contains(*name));
                faults.extend(missing.map(|name| {
                    format!("{place}\n    pairs with `{name}`, which is no function here")
                }));
            }
            None if labels(&comment).is_empty()
                && !comment.to_lowercase().contains("needs no partner:") =>
            {
                faults.push(format!(
                    "{place}\n    has no label, no partner, and no word on why it needs none"
                ));
            }
            None => {}
        }
    }
    faults
}

/// Where each label is defined, with the line.
fn definitions(sources: &[Source]) -> BTreeMap<String, Vec<(&Source, &str)>> {
    let mut defined = BTreeMap::<_, Vec<_>>::new();
    for source in sources {
        for label in source
            .head
            .iter()
            .flat_map(|line| labels(line))
            .collect::<BTreeSet<_>>()
        {
            let line = source
                .head
                .iter()
                .find(|line| labels(line).contains(&label))
                .unwrap();
            defined
                .entry(label)
                .or_default()
                .push((source, line.as_str()));
        }
    }
    defined
}

/// (b) Each label that is used is defined, in one file, with some words.
fn undefined(sources: &[Source]) -> Vec<String> {
    let defined = definitions(sources);
    let mut faults = Vec::new();
    for source in sources {
        let comments = source
            .lines
            .iter()
            .filter(|line| !line.comment.starts_with('!'));
        let used: BTreeSet<_> = comments.flat_map(|line| labels(&line.comment)).collect();
        let unknown = used.iter().filter(|label| !defined.contains_key(*label));
        faults.extend(unknown.map(|label| {
            format!(
                "{}: [{label}] is defined in the head of no file",
                source.name
            )
        }));
    }
    for (label, places) in &defined {
        let plain = |line: &str| {
            line.split_whitespace()
                .filter(|word| word.chars().any(char::is_alphabetic) && !word.starts_with('['))
                .count()
        };
        let names: Vec<_> = places
            .iter()
            .map(|(source, _)| source.name.as_str())
            .collect();
        if names.len() > 1 {
            faults.push(format!("[{label}] stands in the heads of {names:?}: without brackets where it is not defined"));
        }
        if places.iter().any(|(_, line)| plain(line) < 2) {
            faults.push(format!("[{label}] is defined in {names:?} without a word"));
        }
    }
    faults
}

/// (c) A letter belongs to one file, and is used in that file's folder, and below it, alone.
fn ambiguous(sources: &[Source]) -> Vec<String> {
    let mut homes = BTreeMap::<String, BTreeMap<&str, &Source>>::new();
    for (label, places) in definitions(sources) {
        let home = homes.entry(family(&label).to_owned()).or_default();
        home.extend(
            places
                .iter()
                .map(|(source, _)| (source.name.as_str(), *source)),
        );
    }
    let mut faults: Vec<_> = homes
        .iter()
        .filter(|(_, files)| files.len() > 1)
        .map(|(family, files)| format!("the labels {family} belong to {:?}", files.keys()))
        .collect();
    for source in sources {
        let used: BTreeSet<_> = source
            .lines
            .iter()
            .flat_map(|line| labels(&line.comment))
            .collect();
        let away = |label: &&String| {
            homes.get(family(label)).is_some_and(|files| {
                !files
                    .values()
                    .any(|home| source.folder().starts_with(home.folder()))
            })
        };
        faults.extend(used.iter().filter(away).map(|label| {
            format!(
                "{}: [{label}] is a label of {:?}, in another folder",
                source.name,
                homes[family(label)].keys()
            )
        }));
    }
    faults
}

/// (d) The manual's table has the labels that are defined, each with its file.
fn mistold(sources: &[Source], manual: &str) -> Vec<String> {
    let defined = definitions(sources);
    let rows = manual
        .lines()
        .skip_while(|line| *line != "## Labels")
        .skip(1)
        .take_while(|line| !line.starts_with("## "));
    let rows = rows
        .filter_map(|row| row.strip_prefix("| ")?.strip_suffix(" |"))
        .map(|row| row.split(" | ").collect::<Vec<_>>());
    let mut told = BTreeMap::new();
    for row in rows.filter(|row| row.len() == 3 && row[0] != "labels") {
        for label in row[0].split(", ").flat_map(range) {
            told.insert(
                label,
                row[2].split('`').skip(1).step_by(2).collect::<Vec<_>>(),
            );
        }
    }
    let mut faults: Vec<_> = told
        .keys()
        .filter(|label| !defined.contains_key(*label))
        .map(|label| format!("the manual has a label {label}, the sources have none"))
        .collect();
    for (label, places) in &defined {
        match told.get(label) {
            None => faults.push(format!("the manual's table lacks {label}")),
            Some(files)
                if !places
                    .iter()
                    .all(|(source, _)| files.iter().any(|file| source.name.ends_with(file))) =>
            {
                faults.push(format!(
                    "the manual says that {label} is in {files:?}, which is defined in {}",
                    places[0].0.name
                ));
            }
            Some(_) => {}
        }
    }
    faults
}

/// The labels of "R1 to R6" or "S1".
fn range(words: &str) -> Vec<String> {
    let (first, last) = words.split_once(" to ").unwrap_or((words, words));
    let number = |label: &str| {
        label[1..]
            .parse::<u32>()
            .unwrap_or_else(|_| panic!("{words:?} are no labels"))
    };
    (number(first)..=number(last))
        .map(|number| format!("{}{number}", family(first)))
        .collect()
}

/// (e) Where the protocol is, an access with a label says what it orders, by a sentence: "Release
/// [R4]: our accesses happen before ...".
fn wordless(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for source in sources.iter().filter(|source| is_core(source)) {
        for &(access, _) in &source.accesses {
            let comment = source.comment_of(access);
            if !labels(&comment).is_empty() && !has_sentence(&comment) {
                faults.push(format!(
                    "{}:{}: {}\n    has a label, and no sentence as in \"Release [R4]: our accesses happen before ...\"",
                    source.name,
                    access + 1,
                    source.lines[access].code.trim()
                ));
            }
        }
    }
    faults
}

/// Returns whether a comment names an ordering, a label, and in four words or more what is ordered.
fn has_sentence(comment: &str) -> bool {
    comment
        .split_inclusive(']')
        .zip(comment.split(']').skip(1))
        .any(|(before, after)| {
            let named = before.rsplit_once('[').is_some_and(|(ordering, label)| {
                !labels(&format!("[{label}")).is_empty()
                    && MNEMONICS
                        .iter()
                        .any(|name| ordering.trim_end().ends_with(name))
            });
            named
                && after.strip_prefix(':').is_some_and(|words| {
                    words.split('.').next().unwrap().split_whitespace().count() >= 4
                })
        })
}

/// (f) There are no more families of labels than these where the protocol is.
fn superfluous(sources: &[Source]) -> Vec<String> {
    let used = |source: &Source| -> BTreeSet<String> {
        source
            .lines
            .iter()
            .flat_map(|line| labels(&line.comment))
            .collect()
    };
    let core = sources.iter().filter(|source| is_core(source));
    core.flat_map(|source| {
        used(source)
            .into_iter()
            .map(|label| (source.name.clone(), label))
    })
    .filter(|(_, label)| !FAMILIES.contains(&family(label)))
    .map(|(name, label)| {
        format!(
            "{name}: [{label}]: the families are {FAMILIES:?}; name the functions that pair instead"
        )
    })
    .collect()
}

fn is_core(source: &Source) -> bool {
    CORE.iter().any(|folder| source.name.starts_with(folder))
}

fn read(folder: &Path, crates: &Path, sources: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path
            .strip_prefix(crates)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        if path.is_dir() {
            read(&path, crates, sources);
        } else if name.ends_with(".rs")
            && !name.ends_with("_tests.rs")
            && !name.ends_with("/tests.rs")
        {
            sources.push(Source::new(&name, &fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn orderings_are_explained_by_labels_that_are_defined_once() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let manual = crates.join("../docs/src/proofs.md");
    if !manual.exists() {
        // A package has its own sources alone.
        return;
    }
    let mut sources = Vec::new();
    for library in [
        "stillpoint/src",
        "stillpoint-platform/src",
        "stillpoint-lru/src",
        "stillpoint-cache/src",
        "stillpoint-server/src/store",
        "stillpoint-vmap/src",
        "stillpoint-c/src",
    ] {
        read(&crates.join(library), crates, &mut sources);
    }
    assert!(
        sources
            .iter()
            .map(|source| source.accesses.len())
            .sum::<usize>()
            > 150,
        "the accesses are no longer found"
    );
    let manual = fs::read_to_string(manual).unwrap();
    let faults = [
        undefined(&sources),
        ambiguous(&sources),
        mistold(&sources, &manual),
        unexplained(&sources),
        wordless(&sources),
        superfluous(&sources),
    ]
    .concat();
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

/// A source that is as it should be, with a label, a pair and a word why there is none.
const SOUND: &str = r#"//! [Y1] the store (release) pairs with [Y2] the load (acquire): what is found is complete.
use std::sync::atomic::{AtomicPtr, Ordering::{self, Acquire}};
impl Cell {
    fn publish(&self) {
        // Release [Y1]: the value is complete before it is found.
        self.value.store(1, Ordering::Release);
    }

    /// Acquire [Y2]: the value that is found is complete.
    #[inline]
    fn find<T>(&self, what: &str, more: &str) -> u32
    where
        T: Sized,
    {
        let text = "a brace { and \" and // no comment";
        self.value.load(Acquire)
    }

    fn stop(&self) {
        // Release, pairs with `run`: what was queued is seen by the last look.
        self.stop.store(true, Ordering::Release);
        // AcqRel, pairs with `run`:
        // the same.
        self.kicked.compare_exchange(
            false,
            true,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }

    fn run(&self) {
        let stopped = self.stop.load(Ordering::Acquire); // Acquire, pairs with `stop`.
        // Needs no partner: the lock orders it.
        barrier::heavy();
        light(); // [Y1], [Y2]
    }
}
#[cfg(all(test, not(loom)))]
mod tests {
    fn broken() {
        stop.load(Ordering::Acquire);
    }
}
"#;
const MANUAL: &str = "# Proofs\n\n## Labels\n\n| labels | what | where |\n|---|---|---|\n| Y1, Y2 | a cell | `gp/cell.rs` |\n\n## More\n";

/// What is found fault with, by each of the four checks, where `old` is replaced by `new` in the
/// sound source, beside another one.
fn faults(old: &str, new: &str, beside: Source) -> [Vec<String>; 4] {
    assert!(SOUND.contains(old), "{old}");
    let sources = [
        Source::new("stillpoint/src/gp/cell.rs", &SOUND.replacen(old, new, 1)),
        beside,
    ];
    [
        unexplained(&sources),
        undefined(&sources),
        ambiguous(&sources),
        mistold(&sources, MANUAL),
    ]
}

fn nothing() -> Source {
    Source::new("stillpoint/src/gp/nothing.rs", "")
}

#[test]
fn what_is_explained_passes() {
    assert_eq!(
        faults("", "", nothing()),
        [const { Vec::<String>::new() }; 4]
    );
}

#[test]
fn an_access_without_an_explanation_is_found() {
    for (old, new) in [
        // No comment, one that says nothing, one that is another line's, one that is another
        // function's.
        (
            "        // Release [Y1]: the value is complete before it is found.\n",
            "",
        ),
        ("Release [Y1]: the value", "The value"),
        (
            "        self.value.store",
            "        self.value.touch();\n        self.value.store",
        ),
        (
            "        // Release, pairs with `run`: what was queued",
            "        // What was queued",
        ),
        (
            "        // AcqRel, pairs with `run`:\n        // the same.\n",
            "",
        ),
        (" // Acquire, pairs with `stop`.", ""),
        ("        // Needs no partner: the lock orders it.\n", ""),
        (" // [Y1], [Y2]", ""),
        (
            "    /// Acquire [Y2]: the value that is found is complete.\n",
            "",
        ),
        (
            "self.value.load(Acquire)",
            "self.value.load(Acquire); fence(SeqCst);\n        self.value.load(Acquire)",
        ),
        // A partner that is not there, or has no name.
        ("pairs with `run`", "pairs with `walk`"),
        ("pairs with `stop`", "pairs with the other"),
        // The same in code that is not a test's.
        ("#[cfg(all(test, not(loom)))]\n", "#[cfg(not(loom))]\n"),
    ] {
        let [unexplained, ..] = faults(old, new, nothing());
        assert_eq!(
            unexplained.len(),
            if new.contains("SeqCst") { 2 } else { 1 },
            "{old:?}: {unexplained:?}"
        );
    }
}

#[test]
fn a_label_without_a_definition_or_with_two_is_found() {
    let [_, undefined, ..] = faults(
        "Release [Y1]: the value",
        "Release [Y3]: the value",
        nothing(),
    );
    assert!(
        undefined.len() == 1 && undefined[0].contains("[Y3] is defined in the head of no file"),
        "{undefined:?}"
    );
    let [_, undefined, ..] = faults("//! [Y1] the store", "// [Y1] the store", nothing());
    assert_eq!(undefined.len(), 2, "{undefined:?}");
    let [_, undefined, ..] = faults(
        "//! [Y1] the store (release)",
        "//! [Y1]\n//! the store",
        nothing(),
    );
    assert!(
        undefined
            .iter()
            .any(|fault| fault.contains("without a word")),
        "{undefined:?}"
    );
    let beside = Source::new(
        "stillpoint/src/gp/other.rs",
        "//! It comes after the store [Y1] of the cell.\n",
    );
    let [_, undefined, ..] = faults("", "", beside);
    assert!(
        undefined.len() == 1 && undefined[0].contains("stands in the heads of"),
        "{undefined:?}"
    );
}

#[test]
fn a_label_that_means_two_things_is_found() {
    // Its own meaning for the letter, in a head; and, as K1 once had, in a comment far away.
    let head = Source::new(
        "stillpoint/src/gp/other.rs",
        "//! [Y3] the kick comes before [Y4] the look.\n",
    );
    let [.., ambiguous, _] = faults("", "", head);
    assert!(
        ambiguous.len() == 1 && ambiguous[0].contains("the labels Y belong to"),
        "{ambiguous:?}"
    );
    let far = Source::new(
        "stillpoint-platform/src/other.rs",
        "/// [Y1] is the publication of the key.\nstatic KEY: u32 = 0;\n",
    );
    let [.., ambiguous, _] = faults("", "", far);
    assert!(
        ambiguous.len() == 1 && ambiguous[0].contains("in another folder"),
        "{ambiguous:?}"
    );
    let below = Source::new(
        "stillpoint/src/gp/cell/other.rs",
        "/// Relaxed [Y1]: under the lock.\nstatic KEY: u32 = 0;\n",
    );
    let [.., ambiguous, _] = faults("", "", below);
    assert!(ambiguous.is_empty(), "{ambiguous:?}");
}

#[test]
fn a_label_without_a_sentence_is_found() {
    let core = |text: String| [Source::new("stillpoint/src/gp/cell.rs", &text)];
    // In the sound source a call has two labels and no more.
    let whole = SOUND.replace(
        " // [Y1], [Y2]",
        " // Light [Y1, Y2]: the store is seen, or the load sees",
    );
    assert_eq!(wordless(&core(whole.clone())), Vec::<String>::new());
    for (old, new) in [
        (
            "Light [Y1, Y2]: the store is seen, or the load sees",
            "[Y1], [Y2]",
        ),
        (
            "Light [Y1, Y2]: the store is seen, or the load sees",
            "Light [Y1, Y2]: as above.",
        ),
        (
            "Release [Y1]: the value is complete before it is found.",
            "[Y1]: the value is complete before it is found.",
        ),
        (
            "Release [Y1]: the value is complete before it is found.",
            "Release [Y1], the value is complete before it is found.",
        ),
    ] {
        assert!(whole.contains(old), "{old}");
        let faults = wordless(&core(whole.replacen(old, new, 1)));
        assert_eq!(faults.len(), 1, "{new:?}: {faults:?}");
        assert_eq!(
            wordless(&[Source::new(
                "stillpoint/src/kvfree/cell.rs",
                &whole.replacen(old, new, 1)
            )]),
            Vec::<String>::new()
        );
    }
}

#[test]
fn a_family_too_many_is_found() {
    let faults = superfluous(&[Source::new("stillpoint/src/rcu/cell.rs", SOUND)]);
    assert!(
        !faults.is_empty()
            && faults
                .iter()
                .all(|fault| fault.contains("[Y1]") || fault.contains("[Y2]")),
        "{faults:?}"
    );
    assert_eq!(
        superfluous(&[Source::new(
            "stillpoint/src/rcu/cell.rs",
            &SOUND.replace("[Y", "[R")
        )]),
        Vec::<String>::new()
    );
}

#[test]
fn a_table_that_does_not_have_just_these_labels_is_found() {
    let sources = [Source::new("stillpoint/src/gp/cell.rs", SOUND)];
    for (old, new, expected) in [
        ("| Y1, Y2 |", "| Y1 |", "lacks Y2"),
        ("| Y1, Y2 | a cell | `gp/cell.rs` |\n", "", "lacks Y1"),
        ("| Y1, Y2 |", "| Y1 to Y3 |", "has a label Y3"),
        (
            "\n\n## More",
            "\n| Z1 | more | `gp/cell.rs` |\n\n## More",
            "has a label Z1",
        ),
        ("`gp/cell.rs`", "`gp/other.rs`", "is in [\"gp/other.rs\"]"),
    ] {
        let faults = mistold(&sources, &MANUAL.replace(old, new));
        assert!(
            faults.first().is_some_and(|fault| fault.contains(expected)),
            "{new:?}: {faults:?}"
        );
    }
}
