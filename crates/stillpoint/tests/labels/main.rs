//! Each access that orders says what it orders: see rule 3 of CONTRIBUTING.md.
//!
//! The sources are read as text. An *access* is a line of code that names an ordering other than
//! Relaxed, or calls a barrier; an *explanation*, in the comment on its line or directly above, is
//! a label in brackets, "pairs with" a function, or "needs no partner:" and why. A label is
//! *defined* where the head of a file (`//!`) has it in brackets; heads of other files write it
//! without.

#![cfg(not(miri))]

mod broken;
mod rules;
mod source;

use std::{fs, path::Path};

use rules::{ambiguous, mistold, superfluous, undefined, unexplained, wordless};
use source::Source;

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
        "stillpoint-map/src",
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
