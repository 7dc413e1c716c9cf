//! The rules. Each returns the faults that it finds.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Source, words};

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
/// semicolon or a full stop that a space follows.
fn partners(comment: &str) -> Option<Vec<String>> {
    let comment = comment.replace('\n', " ").to_lowercase().replace("  ", " ");
    let (_, partners) = comment.split_once("pairs with ")?;
    let ends = [": ", "; ", ". "];
    let sentence = ends
        .iter()
        .try_fold(partners, |rest, end| rest.split(end).next())?;
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
pub fn unexplained(sources: &[Source]) -> Vec<String> {
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
pub fn undefined(sources: &[Source]) -> Vec<String> {
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
pub fn ambiguous(sources: &[Source]) -> Vec<String> {
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
pub fn mistold(sources: &[Source], manual: &str) -> Vec<String> {
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
pub fn wordless(sources: &[Source]) -> Vec<String> {
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
pub fn superfluous(sources: &[Source]) -> Vec<String> {
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
