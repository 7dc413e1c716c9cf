//! The words of the field, and not of the dialect that this project once had: the marks in
//! CONTRIBUTING.md's table are in no text file.

use crate::{assert_none, book::repository};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where the table is, and its marks are meant.
const TABLE: (&str, &str) = ("CONTRIBUTING.md", "### Words");

/// What text files end in. Scripts without an ending begin with `#!`.
const TEXTS: [&str; 14] = [
    "rs", "md", "h", "c", "hpp", "cpp", "sh", "toml", "pml", "mk", "in", "js", "css", "yml",
];

/// Files that are rewritten, and stay so until the whole tree is.
const CLEAN: [&str; 10] = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "crates/stillpoint/src/gp/README.md",
    "crates/stillpoint-lab/README.md",
    "docs/checks.md",
    "docs/design",
    "docs/examples",
    "docs/tests/manual/figures",
    "docs/tests/manual/words.rs",
    "scripts/figures",
];

/// A row of the table.
struct Mark {
    /// Its forms, each as its words.
    forms: Vec<Vec<String>>,
    write: String,
    allowed: Vec<Vec<String>>,
}

/// A word, or a character that stands between words and is no space.
struct Token {
    text: String,
    line: usize,
}

/// A text as words and what keeps them apart. What a line of a comment or a list begins with does
/// not: a phrase may go on in the next line.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start_matches(|c: char| c.is_whitespace() || "/!*#>".contains(c));
        let mut rest = line.replace('\u{2019}', "'");
        while let Some(first) = rest.chars().next() {
            let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '\'';
            let end = if is_part(first) && first != '\'' {
                rest.find(|c| !is_part(c)).unwrap_or(rest.len())
            } else {
                first.len_utf8()
            };
            let text: String = rest.drain(..end).collect();
            if !first.is_whitespace() {
                let text = text.trim_end_matches('\'');
                let text = if text.is_empty() { "'" } else { text }.to_lowercase();
                tokens.push(Token {
                    text,
                    line: number + 1,
                });
            }
        }
    }
    tokens
}

fn phrase(text: &str) -> Vec<String> {
    tokens(text).into_iter().map(|token| token.text).collect()
}

/// Whether `words` stand at `at`.
fn stands(tokens: &[Token], at: usize, words: &[String]) -> bool {
    let there = tokens
        .get(at..)
        .unwrap_or_default()
        .iter()
        .map(|token| &token.text);
    there.take(words.len()).eq(words)
}

/// The rows of the table below its heading.
fn table(text: &str) -> Vec<Mark> {
    let section = text.lines().skip_while(|line| *line != TABLE.1).skip(1);
    let rows = section
        .take_while(|line| !line.starts_with('#'))
        .filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'))
        .skip(2);
    let phrases = |cell: &str, between| -> Vec<Vec<String>> {
        cell.split(between)
            .map(phrase)
            .filter(|words| !words.is_empty())
            .collect()
    };
    rows.map(|row| {
        let [forms, write, allowed] = row.split('|').collect::<Vec<_>>()[..] else {
            panic!("a row has three columns: {row:?}")
        };
        Mark {
            forms: phrases(forms, ','),
            write: write.trim().to_owned(),
            allowed: phrases(allowed, ';'),
        }
    })
    .collect()
}

/// The marks in a text, by line, and what to write instead.
fn found(file: &str, text: &str, marks: &[Mark]) -> Vec<String> {
    let tokens = tokens(text);
    let is_allowed = |at: usize, mark: &Mark| {
        mark.allowed.iter().any(|words| {
            (0..words.len()).any(|before| at >= before && stands(&tokens, at - before, words))
        })
    };
    let mut complaints = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        for mark in marks {
            let forms = mark.forms.iter().filter(|form| stands(&tokens, at, form));
            for form in forms.filter(|_| !is_allowed(at, mark)) {
                complaints.push(format!(
                    "{file}:{}: \"{}\": write {}",
                    token.line,
                    form.join(" "),
                    mark.write
                ));
            }
        }
    }
    complaints
}

/// A file's text without the section of the table, the lines of which stay as empty ones.
fn without_table(file: &str, text: String) -> String {
    if file != TABLE.0 {
        return text;
    }
    let mut inside = false;
    let kept = text.lines().map(|line| {
        inside = line == TABLE.1 || inside && !line.starts_with('#');
        if inside {
            "\n".to_owned()
        } else {
            format!("{line}\n")
        }
    });
    kept.collect()
}

/// The text files at or below `path`, but for what is built or hidden.
fn texts(path: &Path, give: &mut impl FnMut(&Path, String)) {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    if path.is_dir() {
        if ["target", ".git", "corpus", "artifacts"].contains(&name.as_str()) {
            return;
        }
        let entries = fs::read_dir(path).expect("it can be read");
        let mut paths: Vec<PathBuf> = entries
            .map(|entry| entry.expect("it can be read").path())
            .collect();
        paths.sort();
        return paths.iter().for_each(|path| texts(path, give));
    }
    let ending = path
        .extension()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let may_be_text = TEXTS.contains(&ending.as_str()) || ending.is_empty();
    if let Some(text) = may_be_text.then(|| fs::read_to_string(path).ok()).flatten()
        && (!ending.is_empty() || name == "Makefile" || text.starts_with("#!"))
    {
        give(path, text);
    }
}

fn found_below(paths: &[&str]) -> Vec<String> {
    let contributing = fs::read_to_string(repository().join(TABLE.0)).expect("it is there");
    let marks = table(&contributing);
    assert!(marks.len() > 15, "the table is no longer found");
    let (mut complaints, mut files) = (Vec::new(), 0);
    for path in paths {
        texts(&repository().join(path), &mut |path, text| {
            let file = path
                .strip_prefix(repository())
                .expect("it is below")
                .to_string_lossy();
            complaints.extend(found(&file, &without_table(&file, text), &marks));
            files += 1;
        });
    }
    assert!(
        files >= paths.len(),
        "some of {paths:?} are no longer there"
    );
    complaints
}

#[test]
fn rewritten_documents_stay_free_of_the_dialect() {
    assert_none(&found_below(&CLEAN));
}

#[test]
#[ignore = "the tree still has the dialect; to be run always, without CLEAN, once it is taken off"]
fn no_text_file_has_the_dialect() {
    assert_none(&found_below(&[""]));
}

#[test]
fn marks_are_found_where_they_are() {
    let marks = table(
        "### Words\n\n| mark | write | allowed in |\n|---|---|---|\n| frob, frobs | turn | user frob |\n\
         | by one's zeal | alone | |\n\n## More\n| blub | x | |\n",
    );
    assert_eq!(
        (marks.len(), marks[0].forms.len(), marks[0].allowed.len()),
        (2, 2, 1)
    );
    let lines = |text: &str| -> Vec<String> {
        found("a", text, &marks)
            .iter()
            .map(|complaint| complaint.split('"').next().expect("a place").to_owned())
            .collect()
    };
    assert_eq!(lines("x\n/// Frob, it\n//! FROBS"), ["a:2: ", "a:3: "]);
    assert_eq!(lines("frobbed unfrob frob_it blub"), [""; 0]);
    assert_eq!(
        lines("// of the user frob here,\n# and the user\n# frob"),
        [""; 0]
    );
    assert_eq!(lines("the user; frob"), ["a:1: "]);
    assert_eq!(
        lines(" * found by\n * one's zeal, or\n by one\u{2019}s zeal"),
        ["a:1: ", "a:3: "]
    );
    assert_eq!(lines("by. One's zeal"), [""; 0]);
    assert_eq!(
        found("a", "a 'frob' b", &marks),
        ["a:1: \"frob\": write turn"],
        "it says what to write"
    );
    let text = "one\n### Words\nfrob\n### More\nfrob\n".to_owned();
    let kept = without_table(TABLE.0, text.clone());
    assert_eq!(
        lines(&kept),
        ["a:5: "],
        "the table's own section is passed over"
    );
    assert_eq!(without_table("a", text.clone()), text);
}
