//! Links lead to files and headings that exist, and every chapter is in the summary and in `lib.rs`.

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
