//! The commands in `sh` blocks name things that there are: options, examples, tests, scripts, folders.

use crate::{
    assert_none,
    book::{Chapter, chapters, repository},
};
use std::{collections::BTreeMap, path::Path, process::Command};

/// A line of an `sh` block without its comment, and where it is.
fn lines(chapters: &[Chapter]) -> impl Iterator<Item = (String, Vec<String>)> + '_ {
    chapters.iter().flat_map(|chapter| {
        let shells = chapter.blocks.iter().filter(|block| block.info == "sh");
        shells.flat_map(move |block| {
            let lines = block.code.replace("\\\n", " ");
            let lines: Vec<String> = lines.lines().map(|line| line.split(" #").next().expect("a part").to_owned()).collect();
            lines.into_iter().map(move |line| {
                let words = line.split_whitespace().map(str::to_owned).collect();
                (format!("{}:{}: {line}", chapter.file, block.line), words)
            })
        })
    })
}

/// What follows `option`.
fn after<'w>(words: &'w [String], option: &str) -> Option<&'w str> {
    words.iter().position(|word| word == option).and_then(|at| words.get(at + 1)).map(String::as_str)
}

/// What is wrong with files and folders that a command names.
fn missing_file(words: &[String], repository: &Path) -> Option<String> {
    let package =
        after(words, "-p").map(|name| if name == "stillpoint-manual" { "docs".into() } else { format!("crates/{name}") });
    let command = words.iter().find(|word| !word.contains('='))?.as_str();
    let named = match command {
        "make" => after(words, "-C").map(str::to_owned),
        "cargo" => match (&package, after(words, "--example"), after(words, "--test")) {
            (Some(folder), Some(name), _) => Some(format!("{folder}/examples/{name}.rs")),
            (Some(folder), _, Some(name)) if !repository.join(folder).join("tests").join(name).is_dir() => {
                Some(format!("{folder}/tests/{name}.rs"))
            }
            (folder, ..) => folder.clone(),
        },
        path if path.starts_with("scripts/") || path.starts_with("models/") || path.starts_with(".ci/") => Some(path.to_owned()),
        _ => None,
    }?;
    (!repository.join(&named).exists()).then(|| format!("there is no {named}"))
}

/// The lab's subcommand (`scale kfree`, say) and its options, of a `cargo run ... -- ...` line.
fn lab_call(words: &[String]) -> Option<(Vec<&str>, Vec<&str>)> {
    let at = words.iter().position(|word| word == "--")?;
    let runs_lab =
        words.iter().any(|word| word == "cargo") && words.iter().any(|word| word == "run") && after(words, "-p").is_none();
    let arguments: Vec<&str> = words[at + 1..].iter().map(String::as_str).collect();
    let end = arguments.iter().position(|word| word.starts_with('-')).unwrap_or(arguments.len());
    let options =
        arguments[end..].iter().filter(|word| word.starts_with("--")).map(|word| word.split('=').next().expect("a part"));
    runs_lab.then(|| (arguments[..end].to_vec(), options.collect()))
}

/// What the lab says of a subcommand. Asked as users ask it, and so built as for the workspace's tests.
fn help(subcommand: &[&str]) -> Result<String, String> {
    let release = if cfg!(debug_assertions) { &[][..] } else { &["--release"] };
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--locked"])
        .args(release)
        .arg("--")
        .args(subcommand)
        .arg("--help")
        .current_dir(repository())
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in the target folder"))
        .output()
        .map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Options, subcommands and flavours that the lab does not have. `help` is asked once a subcommand.
fn unknown_options(chapters: &[Chapter], help: impl Fn(&[&str]) -> Result<String, String>) -> Vec<String> {
    let mut known: BTreeMap<Vec<String>, Result<String, String>> = BTreeMap::new();
    let mut complaints = Vec::new();
    for (place, words) in lines(chapters) {
        let Some((mut subcommand, options)) = lab_call(&words) else { continue };
        // Of a torture the second word is an argument: the flavour, which the help lists.
        let flavour = if subcommand.first() == Some(&"torture") { subcommand.get(1).copied() } else { None };
        subcommand.truncate(if flavour.is_some() { 1 } else { 2 });
        let key = subcommand.iter().map(|word| (*word).to_owned()).collect();
        match known.entry(key).or_insert_with(|| help(&subcommand)) {
            Err(error) => complaints.push(format!("{place}: {error}")),
            Ok(text) => {
                let words: Vec<&str> = text.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_')).collect();
                let wanted = options.into_iter().chain(flavour.filter(|&name| name != "FLAVOUR"));
                complaints
                    .extend(wanted.filter(|word| !words.contains(word)).map(|word| format!("{place}: the lab has no {word}")));
            }
        }
    }
    complaints
}

#[test]
fn commands_name_files_that_there_are() {
    let chapters = chapters();
    let complaints: Vec<String> = lines(&chapters)
        .filter_map(|(place, words)| missing_file(&words, repository()).map(|why| format!("{place}: {why}")))
        .collect();
    assert_none(&complaints);
}

#[test]
fn the_lab_has_the_options_that_commands_name() {
    assert_none(&unknown_options(&chapters(), help));
}

#[test]
fn commands_that_cannot_work_are_found() {
    let text = "```sh\ncargo run --release -- scale kfree --loops 1 --lops 2   # --comment\ncargo run -- torture busted --calm\n\
                cargo run -- torture bust\ncargo run -p stillpoint --example routes -- --any\n```\n";
    let book = [Chapter::parse("a.md", text)];
    let help = |subcommand: &[&str]| match subcommand {
        ["scale", "kfree"] => Ok("--loops N".to_owned()),
        ["torture"] => Ok("--calm, busted".to_owned()),
        _ => Err(format!("{subcommand:?}")),
    };
    let complaints = unknown_options(&book, help);
    assert_eq!(complaints.len(), 2, "--lops and bust: {complaints:?}");
    let split = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let missing = |line| missing_file(&split(line), repository());
    assert_eq!(missing("cargo run -p stillpoint --example routes"), None);
    assert_eq!(missing("A=b make -C crates/stillpoint-c all"), None);
    assert!(missing("cargo run -p stillpoint --example rutes").is_some());
    assert!(missing("cargo test -p stillpoint --test nothing").is_some());
    assert!(missing("make -C crates/stillpoint-d all").is_some());
    assert!(missing("scripts/soke 8").is_some());
}
