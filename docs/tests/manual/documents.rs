//! The documents beside the book: README, ARCHITECTURE, CONTRIBUTING, the crates' READMEs, the
//! protocol page, decisions. Their links and paths lead somewhere, their commands name things that
//! there are, and the protocol page has the names of the code.

use crate::{
    assert_none,
    book::{Chapter, repository},
};
use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

/// Below which folders the paths in code spans lie, beside the document's own.
const BASES: [&str; 9] = [
    "",
    "crates",
    "crates/stillpoint",
    "crates/stillpoint/src",
    "crates/stillpoint/src/gp",
    "crates/stillpoint-c",
    "crates/stillpoint-lab",
    "crates/stillpoint-lab/src",
    "crates/stillpoint-lab/src/torture",
];

/// What code spans end in that are paths.
const ENDINGS: [&str; 7] = [".rs", ".md", ".pml", ".c", ".h", ".hpp", ".js"];

/// The page whose names are looked for in the sources.
const PROTOCOL: &str = "crates/stillpoint/src/gp/README.md";

/// A document, with the folder that it is in.
struct Document {
    text: Chapter,
    folder: PathBuf,
}

fn documents() -> Vec<Document> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for folder in ["", "docs", "docs/design", "models"] {
        let entries = fs::read_dir(repository().join(folder)).expect("the folder is there");
        paths.extend(entries.map(|entry| entry.expect("it can be read").path()));
    }
    for entry in fs::read_dir(repository().join("crates")).expect("the folder is there") {
        let folder = entry.expect("it can be read").path();
        paths.extend([folder.join("README.md"), folder.join("src/README.md")]);
    }
    paths.push(repository().join(PROTOCOL));
    paths.retain(|path| path.is_file() && path.extension().is_some_and(|ending| ending == "md"));
    paths.sort();
    paths.into_iter().map(read).collect()
}

fn read(path: PathBuf) -> Document {
    let file = path
        .strip_prefix(repository())
        .expect("it is below")
        .to_string_lossy();
    let text = fs::read_to_string(&path).expect("it can be read");
    Document {
        text: Chapter::parse(&file, &text),
        folder: path.parent().expect("it is in a folder").to_owned(),
    }
}

/// The documents as chapters, for the checks of those.
pub fn as_chapters() -> Vec<Chapter> {
    documents()
        .into_iter()
        .map(|document| document.text)
        .collect()
}

fn each_file(folder: &Path, give: &mut impl FnMut(&Path)) {
    for entry in fs::read_dir(folder).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            each_file(&path, give);
        } else {
            give(&path);
        }
    }
}

/// Links and paths that lead nowhere. A path is a code span with an ending that files have here; it
/// may be the end of a path in `sources`.
fn astray(document: &Document, sources: &HashSet<String>) -> Vec<String> {
    let Document { text, folder } = document;
    let links = text
        .links
        .iter()
        .filter(|link| !link.target.contains("://"))
        .map(|link| {
            let file = link.target.split('#').next().expect("a part");
            (
                link.line,
                &link.target,
                file.is_empty() || folder.join(file).exists(),
            )
        });
    let is_path = |span: &str| {
        ENDINGS.iter().any(|ending| span.ends_with(ending)) && !span.contains([' ', '*', '<'])
    };
    let exists = |span: &str| {
        folder.join(span).exists()
            || folder.join("src").join(span).exists()
            || BASES
                .iter()
                .any(|base| repository().join(base).join(span).exists())
            || sources
                .iter()
                .any(|path| path.ends_with(&format!("/{span}")))
    };
    let paths = text.spans.iter().filter(|(_, span)| is_path(span));
    links
        .chain(paths.map(|(line, span)| (*line, span, exists(span))))
        .filter(|(.., exists)| !exists)
        .map(|(line, target, _)| format!("{}:{line}: {target}: there is no such file", text.file))
        .collect()
}

/// Words in a document's code spans that are no words of `code`.
fn nameless(text: &Chapter, code: &HashSet<String>) -> Vec<String> {
    let spans = text
        .spans
        .iter()
        .filter(|(_, span)| !span.contains(['/', '.']));
    let words = spans.flat_map(|(line, span)| {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        span.split(move |c| !is_part(c))
            .map(move |word| (line, word))
    });
    words
        .filter(|(_, word)| word.len() > 1 && word.contains(|c: char| c.is_alphabetic()))
        .filter(|(_, word)| !code.contains(*word))
        .map(|(line, word)| format!("{}:{line}: `{word}` is no name in the code", text.file))
        .collect()
}

#[test]
fn documents_name_files_that_there_are() {
    let documents = documents();
    assert!(documents.len() > 20, "the documents are no longer found");
    let mut sources = HashSet::new();
    each_file(&repository().join("crates"), &mut |path| {
        sources.insert(path.to_string_lossy().into_owned());
    });
    let complaints = documents
        .iter()
        .flat_map(|document| astray(document, &sources));
    assert_none(&complaints.collect::<Vec<_>>());
}

#[test]
fn the_protocol_page_has_the_names_of_the_code() {
    let mut code = HashSet::new();
    for folder in ["crates/stillpoint/src", "crates/stillpoint-platform/src"] {
        each_file(&repository().join(folder), &mut |path| {
            if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(path).expect("it can be read");
                let lines = text.lines().filter_map(|line| line.split("//").next());
                let words =
                    lines.flat_map(|line| line.split(|c: char| !(c.is_alphanumeric() || c == '_')));
                code.extend(words.map(str::to_owned));
            }
        });
    }
    let page = read(repository().join(PROTOCOL)).text;
    assert!(page.spans.len() > 80, "the page has many names");
    assert_none(&nameless(&page, &code));
}

#[test]
fn strange_paths_and_names_are_found() {
    let text = "[a](README.md) [b](no.md) [c](https://example.org/no.md) `gp/seq.rs` `gp/no.rs` `seq.rs`\n\
                `no_such.rs` `*.rs` `a b.rs` `crates/stillpoint-platform/src/lib.rs` `no/lib.rs`";
    let document = Document {
        text: Chapter::parse("a.md", text),
        folder: repository().to_owned(),
    };
    let sources = HashSet::from(["/x/crates/stillpoint/src/gp/seq.rs".to_owned()]);
    let complaints = astray(&document, &sources);
    assert_eq!(complaints.len(), 4, "{complaints:?}");
    let code = HashSet::from(["Engine", "scan", "fenced"].map(str::to_owned));
    let page = |text| nameless(&Chapter::parse("a.md", text), &code).len();
    assert_eq!(page("`Engine::scan` `fenced >= 1` `a.rs`, scans"), 0);
    assert_eq!(page("`Engine::scam` `fence`"), 2);
}
