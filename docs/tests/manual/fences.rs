//! Each block says what it is, and so whether it is compiled; each chapter is where readers and
//! tests look for it.

use crate::{
    assert_none,
    book::{Chapter, chapters, root},
};
use std::fs;

/// What may follow a fence. The first are doc tests; `c` and `cpp` are compiled (`programs.rs`),
/// `c,liburcu` against liburcu as well; commands in `sh` are looked at (`commands.rs`); the rest is
/// for the eye.
const KINDS: [&str; 9] = [
    "rust",
    "rust,no_run",
    "rust,should_panic",
    "c",
    "c,liburcu",
    "cpp",
    "sh",
    "text",
    "toml",
];

fn known(info: &str) -> bool {
    KINDS.contains(&info)
        || info
            .strip_prefix("rust,compile_fail,E")
            .is_some_and(|code| code.parse::<u32>().is_ok())
}

fn unknown_fences(chapters: &[Chapter]) -> Vec<String> {
    let blocks = chapters
        .iter()
        .flat_map(|chapter| chapter.blocks.iter().map(move |block| (chapter, block)));
    blocks
        .filter(|(_, block)| !known(&block.info))
        .map(|(chapter, block)| {
            format!(
                "{}:{}: a block of unknown kind, {:?}: say one of {KINDS:?}",
                chapter.file, block.line, block.info
            )
        })
        .collect()
}

/// Chapters that are not in the summary, or whose code `lib.rs` does not run.
fn unlisted(chapters: &[Chapter], lib: &str) -> Vec<String> {
    let summary = chapters
        .iter()
        .find(|chapter| chapter.file == "SUMMARY.md")
        .expect("there is a summary");
    let mut complaints = Vec::new();
    for chapter in chapters
        .iter()
        .filter(|chapter| chapter.file != summary.file)
    {
        if !summary.links.iter().any(|link| link.target == chapter.file) {
            complaints.push(format!("{} is not in SUMMARY.md", chapter.file));
        }
        if !lib.contains(&format!("\"src/{}\"", chapter.file)) {
            complaints.push(format!(
                "{} is not in lib.rs: its code is not tested",
                chapter.file
            ));
        }
    }
    complaints
}

#[test]
fn each_block_says_what_it_is() {
    assert_none(&unknown_fences(&chapters()));
}

#[test]
fn each_chapter_is_listed() {
    assert_none(&unlisted(
        &chapters(),
        &fs::read_to_string(root().join("lib.rs")).expect("it is there"),
    ));
}

#[test]
fn strange_fences_and_stray_chapters_are_found() {
    let text = "```\nx\n```\n\n```rust,ignore\nx\n```\n\n```rust\nx\n```\n\n    indented\n";
    let stray = [
        Chapter::parse("SUMMARY.md", "[a](a.md)"),
        Chapter::parse("a.md", text),
        Chapter::parse("b.md", ""),
    ];
    assert_eq!(
        unknown_fences(&stray).len(),
        3,
        "no kind, ignored, indented"
    );
    assert_eq!(unlisted(&stray, "\"src/a.md\"").len(), 2, "b.md, twice");
}
