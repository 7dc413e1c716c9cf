//! Links lead somewhere: to files of the repository, to headings of chapters.

use crate::{
    assert_none,
    book::{Chapter, chapters, root},
};
use std::path::Path;

/// Links that lead nowhere, of chapters that lie in `folder`. Those to other sites are not
/// followed.
fn broken(chapters: &[Chapter], folder: &Path) -> Vec<String> {
    let links = chapters
        .iter()
        .flat_map(|chapter| chapter.links.iter().map(move |link| (chapter, link)));
    links
        .filter(|(_, link)| !link.target.starts_with("https://"))
        .filter_map(|(chapter, link)| {
            let (file, anchor) = link
                .target
                .split_once('#')
                .map_or((link.target.as_str(), None), |(file, anchor)| {
                    (file, Some(anchor))
                });
            let file = if file.is_empty() { &chapter.file } else { file };
            let target = chapters.iter().find(|chapter| chapter.file == file);
            let why = match (target, anchor) {
                (None, _) if !folder.join(file).exists() => "there is no such file",
                (None, Some(_)) => {
                    "headings of files outside the book are not known here: leave them out"
                }
                (Some(target), Some(anchor))
                    if !target.anchors.iter().any(|known| known == anchor) =>
                {
                    "there is no such heading"
                }
                _ => return None,
            };
            Some(format!(
                "{}:{}: {}: {why}",
                chapter.file, link.line, link.target
            ))
        })
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let chapters = chapters();
    assert!(
        chapters
            .iter()
            .map(|chapter| chapter.links.len())
            .sum::<usize>()
            > 20,
        "the summary alone has so many"
    );
    assert_none(&broken(&chapters, &root().join("src")));
}

#[test]
fn broken_links_are_found() {
    let text = "# Here\n[1](#here) [2](b.md#there) [3](https://example.org/x) [4](../lib.rs)\n\
                [a](#nowhere) [b](c.md) [c](b.md#nowhere) [d](../no.rs) [e](../lib.rs#x)";
    let book = [
        Chapter::parse("a.md", text),
        Chapter::parse("b.md", "## There\n"),
    ];
    let complaints = broken(&book, &root().join("src"));
    assert_eq!(complaints.len(), 5, "{complaints:?}");
    assert!(
        complaints
            .iter()
            .all(|complaint| complaint.starts_with("a.md:3: ")),
        "{complaints:?}"
    );
}
