//! Links lead to files and headings that exist, commands name files that exist, and every chapter is in
//! the summary and in `lib.rs`.

use crate::{
    assert_none,
    book::{Page, chapters, pages, repository, root},
};
use std::{
    collections::HashMap,
    fs,
    path::{Component, Path, PathBuf},
};

/// Returns the links of `pages` to files or headings that do not exist. Paths are relative to
/// `folder`. Links to other sites are not followed.
fn broken(pages: &[Page], folder: &Path) -> Vec<String> {
    let by_path: HashMap<&Path, &Page> = pages.iter().map(|page| (&*page.path, page)).collect();
    let mut complaints = Vec::new();
    for page in pages {
        for link in &page.links {
            if link.target.contains("://") {
                continue;
            }
            let (file, anchor) = link.target.split_once('#').unwrap_or((&link.target, ""));
            let path = if file.is_empty() {
                page.path.clone()
            } else {
                resolve(&page.path.with_file_name(file))
            };
            let has_heading = || {
                by_path
                    .get(&*path)
                    .is_some_and(|target| target.anchors.iter().any(|known| known == anchor))
            };
            let why = if !folder.join(&path).exists() && !by_path.contains_key(&*path) {
                "there is no such file"
            } else if !anchor.is_empty() && !has_heading() {
                "there is no such heading"
            } else {
                continue;
            };
            complaints.push(format!("{}: {}: {why}", page.place(link.line), link.target));
        }
    }
    complaints
}

/// Removes `..` from a path.
fn resolve(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            resolved.pop();
        } else if part != Component::CurDir {
            resolved.push(part);
        }
    }
    resolved
}

/// Returns the commands, in `sh` blocks and in the text, whose script, folder, example or test does not exist
/// in the repository.
fn missing(pages: &[Page]) -> Vec<String> {
    let mut complaints = Vec::new();
    for page in pages {
        let shells = page.blocks.iter().filter(|block| block.info == "sh");
        let of_blocks = shells.flat_map(|block| block.code.lines().map(|line| (block.line, line)));
        let of_text = page.spans.iter().map(|(line, span)| (*line, span.as_str()));
        for (at, command) in of_blocks.chain(of_text) {
            let command = command.split(" #").next().unwrap_or_default();
            let words: Vec<&str> = command.split_whitespace().collect();
            let after = |option| {
                words
                    .windows(2)
                    .find(|pair| pair[0] == option)
                    .map(|pair| pair[1])
            };
            let is_cargo = words.contains(&"cargo");
            let mut named: Vec<String> = Vec::new();
            named.extend(
                after("-C")
                    .filter(|_| words.contains(&"make"))
                    .map(str::to_owned),
            );
            let scripts = |word: &&&str| {
                ["scripts/", "models/", ".ci/"]
                    .iter()
                    .any(|folder| word.starts_with(folder))
            };
            named.extend(words.first().filter(scripts).map(|word| (*word).to_owned()));
            named.extend(
                after("example")
                    .filter(|_| is_cargo)
                    .map(|name| format!("examples/src/bin/{name}.rs")),
            );
            if let Some(package) =
                after("-p").filter(|package| is_cargo && package.starts_with("stillpoint"))
            {
                let folder = match package {
                    "stillpoint-manual" => "docs".to_owned(),
                    "stillpoint-examples" => "examples".to_owned(),
                    package => format!("crates/{package}"),
                };
                named.extend(after("--example").map(|name| format!("{folder}/examples/{name}.rs")));
                named.extend(after("--test").map(|name| {
                    let file = format!("{folder}/tests/{name}");
                    if repository().join(&file).is_dir() {
                        file
                    } else {
                        file + ".rs"
                    }
                }));
                named.push(folder);
            }
            let gone = named
                .iter()
                .filter(|named| !repository().join(named).exists());
            complaints.extend(gone.map(|named| format!("{}: there is no {named}", page.place(at))));
        }
    }
    complaints
}

/// Returns the chapters that are not in the summary, or whose code `lib.rs` does not run.
fn unlisted(chapters: &[Page], lib: &str) -> Vec<String> {
    let (summary, chapters): (Vec<_>, Vec<_>) = chapters
        .iter()
        .partition(|chapter| chapter.path.ends_with("SUMMARY.md"));
    let mut complaints = Vec::new();
    for path in chapters.iter().map(|chapter| &chapter.path) {
        let name = path.file_name().expect("a file").to_string_lossy();
        let mut links = summary.iter().flat_map(|summary| &summary.links);
        if !links.any(|link| link.target == name) {
            complaints.push(format!("{name} is not in SUMMARY.md"));
        }
        if !lib.contains(&format!("\"src/{name}\"")) {
            complaints.push(format!("{name} is not in lib.rs: its code is not tested"));
        }
    }
    complaints
}

#[test]
fn links_lead_somewhere() {
    let pages = pages();
    assert!(pages.len() > 50, "the documents are no longer found");
    assert_none(&broken(&pages, repository()));
    assert_none(&missing(&pages));
}

#[test]
fn commands_that_name_nothing_are_found() {
    let text = "```sh\ncargo example routes -- --any  # cargo example rutes\nmake -C crates/stillpoint-d all\n\
                scripts/soak 8\ncargo test -p stillpoint --test fork\n```\n\
                `cargo example rutes`, `scripts/soke 8` and\n`cargo test -p stillpoint --test nothing`, `make -C docs/examples c`\n";
    let complaints = missing(&[Page::parse("a.md", text)]);
    let places: Vec<_> = complaints
        .iter()
        .filter_map(|complaint| complaint.split(": ").next())
        .collect();
    assert_eq!(
        places,
        ["a.md:1", "a.md:7", "a.md:7", "a.md:8"],
        "{complaints:?}"
    );
}

#[test]
fn every_chapter_is_listed() {
    let lib = fs::read_to_string(root().join("lib.rs")).expect("it is there");
    assert_none(&unlisted(&chapters(), &lib));
}

#[test]
fn broken_links_and_stray_chapters_are_found() {
    let text = "# Here\n[1](#here) [2](b.md#there) [3](https://example.org/x) [4](../lib.rs)\n\
                [a](#nowhere) [b](c.md) [c](b.md#nowhere) [d](../no.rs) [e](../lib.rs#x)";
    let book = [
        Page::parse("docs/src/a.md", text),
        Page::parse("docs/src/b.md", "## There\n"),
    ];
    let complaints = broken(&book, repository());
    assert_eq!(complaints.len(), 5, "{complaints:?}");
    let second_line = |complaint: &String| complaint.starts_with("docs/src/a.md:3: ");
    assert!(complaints.iter().all(second_line), "{complaints:?}");

    let stray = [
        Page::parse("SUMMARY.md", "[a](a.md)"),
        Page::parse("a.md", ""),
        Page::parse("b.md", ""),
    ];
    assert_eq!(unlisted(&stray, "\"src/a.md\"").len(), 2, "b.md, twice");
}
