//! The documents, taken apart: the book's chapters, and every other Markdown file of the repository.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A Markdown file.
pub struct Page {
    /// Relative to the repository.
    pub path: PathBuf,
    pub blocks: Vec<Block>,
    pub links: Vec<Link>,
    /// The ids of its headings.
    pub anchors: Vec<String>,
    /// Code spans, with their lines.
    pub spans: Vec<(usize, String)>,
}

/// A fenced block.
pub struct Block {
    pub line: usize,
    /// The words behind the fence.
    pub info: String,
    pub code: String,
}

/// A link to a file, a heading or another site.
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

/// Reads all files of the book, the summary among them.
pub fn chapters() -> Vec<Page> {
    let mut chapters = pages();
    chapters.retain(|page| page.path.starts_with("docs/src"));
    chapters
}

/// Reads all Markdown files of the repository.
pub fn pages() -> Vec<Page> {
    let mut files = Vec::new();
    find(repository(), &mut files);
    files.sort();
    let read = |file: &PathBuf| {
        let path = file.strip_prefix(repository()).expect("it is below");
        Page::parse(path, &fs::read_to_string(file).expect("it can be read"))
    };
    files.iter().map(read).collect()
}

/// Adds the Markdown files below `folder`, without those in hidden folders and build folders.
fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        let name = path.file_name().expect("it has a name").to_string_lossy();
        let skipped = name.starts_with('.') || name == "target";
        if path.is_dir() && !path.is_symlink() && !skipped {
            find(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            files.push(path);
        }
    }
}

impl Page {
    /// Returns `path:line`, for messages.
    pub fn place(&self, line: usize) -> String {
        format!("{}:{line}", self.path.display())
    }

    pub fn parse(path: impl Into<PathBuf>, text: &str) -> Self {
        let mut page = Self {
            path: path.into(),
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
                    page.blocks.push(Block {
                        line: line(range.start),
                        info,
                        code: String::new(),
                    });
                    in_block = true;
                }
                Event::End(TagEnd::CodeBlock) => in_block = false,
                Event::Text(piece) if in_block => {
                    page.blocks
                        .last_mut()
                        .expect("one has begun")
                        .code
                        .push_str(&piece);
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(Link {
                        line: line(range.start),
                        target: dest_url.to_string(),
                    });
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let text = heading.take().expect("it has begun");
                    page.anchors.push(anchor(&text));
                }
                Event::Text(piece) | Event::Code(piece) if heading.is_some() => {
                    heading.as_mut().expect("just looked").push_str(&piece);
                }
                Event::Code(code) => page.spans.push((line(range.start), code.to_string())),
                _ => {}
            }
        }
        page
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
