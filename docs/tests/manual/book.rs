//! The chapters, taken apart.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A file of the book.
pub struct Chapter {
    /// Its name in `src/`.
    pub file: String,
    pub blocks: Vec<Block>,
    pub links: Vec<Link>,
    /// The ids that its headings get.
    pub anchors: Vec<String>,
    /// What is in code spans.
    pub spans: Vec<(usize, String)>,
}

/// A fenced block.
pub struct Block {
    pub line: usize,
    /// What follows the fence.
    pub info: String,
    pub code: String,
}

/// A link, to wherever.
pub struct Link {
    pub line: usize,
    pub target: String,
}

/// The folder of the crate.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of the repository.
pub fn repository() -> &'static Path {
    root().parent().expect("the crate is in the repository")
}

/// All files of the book, the summary among them.
pub fn chapters() -> Vec<Chapter> {
    let mut files: Vec<PathBuf> = fs::read_dir(root().join("src"))
        .expect("there are chapters")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    files.sort();
    let read = |path: &PathBuf| {
        let file = path
            .file_name()
            .expect("it has a name")
            .to_string_lossy()
            .into_owned();
        Chapter::parse(&file, &fs::read_to_string(path).expect("it can be read"))
    };
    files.iter().map(read).collect()
}

impl Chapter {
    pub fn parse(file: &str, text: &str) -> Self {
        let mut chapter = Self {
            file: file.to_owned(),
            blocks: Vec::new(),
            links: Vec::new(),
            anchors: Vec::new(),
            spans: Vec::new(),
        };
        let line = |at: usize| 1 + text[..at].matches('\n').count();
        let mut heading: Option<String> = None;
        let mut in_block = false;
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::CodeBlock(kind)) => {
                    let info = match kind {
                        CodeBlockKind::Fenced(info) => info.to_string(),
                        CodeBlockKind::Indented => "(indented)".to_owned(),
                    };
                    chapter.blocks.push(Block {
                        line: line(range.start),
                        info,
                        code: String::new(),
                    });
                    in_block = true;
                }
                Event::End(TagEnd::CodeBlock) => in_block = false,
                Event::Text(piece) if in_block => {
                    chapter
                        .blocks
                        .last_mut()
                        .expect("one has begun")
                        .code
                        .push_str(&piece);
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    chapter.links.push(Link {
                        line: line(range.start),
                        target: dest_url.to_string(),
                    });
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let text = heading.take().expect("it has begun");
                    chapter.anchors.push(anchor(&text));
                }
                Event::Text(piece) | Event::Code(piece) if heading.is_some() => {
                    heading.as_mut().expect("just looked").push_str(&piece);
                }
                Event::Code(code) => chapter.spans.push((line(range.start), code.to_string())),
                _ => {}
            }
        }
        chapter
    }
}

/// The id of a heading, as mdBook and the usual code hosts make it.
fn anchor(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    heading.trim().chars().filter_map(kept).collect()
}

#[test]
fn a_chapter_is_taken_apart() {
    let chapter = Chapter::parse(
        "x.md",
        "# One `two`, three\n\n[a](b.md#c) `d`\n\n```rust,no_run\nlet [x](y);\n```\n",
    );
    assert_eq!(chapter.anchors, ["one-two-three"]);
    assert_eq!(
        chapter
            .links
            .iter()
            .map(|link| (link.line, link.target.as_str()))
            .collect::<Vec<_>>(),
        [(3, "b.md#c")]
    );
    assert_eq!(chapter.spans, [(3, "d".to_owned())]);
    let [block] = &chapter.blocks[..] else {
        panic!("one block")
    };
    assert_eq!(
        (block.line, block.info.as_str(), block.code.as_str()),
        (5, "rust,no_run", "let [x](y);\n")
    );
}
