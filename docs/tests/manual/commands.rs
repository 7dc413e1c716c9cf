//! The commands in `sh` blocks, and those in the text, name things that there are: options,
//! examples, tests, scripts, folders, make's goals.

use crate::{
    assert_none,
    book::{Page, pages, repository},
    programs::{PROFILE, target},
};
use std::{collections::BTreeMap, path::Path, process::Command};

/// The words of each command, and where it is: the lines of `sh` blocks, and code spans that begin
/// as one.
fn lines(pages: &[Page]) -> impl Iterator<Item = (String, Vec<String>)> + '_ {
    pages.iter().flat_map(|page| {
        let shells = page.blocks.iter().filter(|block| block.info == "sh");
        let of_blocks = shells.flat_map(|block| {
            let lines: Vec<String> = block
                .code
                .replace("\\\n", " ")
                .lines()
                .map(str::to_owned)
                .collect();
            lines.into_iter().map(move |line| (block.line, line))
        });
        let begins = |span: &str| {
            ["make ", "cargo ", "scripts/", "models/"]
                .iter()
                .any(|command| span.starts_with(command))
        };
        let of_text = page
            .spans
            .iter()
            .filter(move |(_, span)| begins(span))
            .cloned();
        of_blocks
            .chain(of_text)
            .map(move |(at, line)| (format!("{}: {line}", page.place(at)), words(&line)))
    })
}

/// The words of a line as a shell has them, up to a comment. What is quoted, by either kind of
/// quotes, is of one word.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// What follows `option`.
fn after<'w>(words: &'w [String], option: &str) -> Option<&'w str> {
    words
        .iter()
        .position(|word| word == option)
        .and_then(|at| words.get(at + 1))
        .map(String::as_str)
}

/// What a line runs: its first word but for variables.
fn command(words: &[String]) -> Option<&str> {
    let is_variable = |word: &str| {
        word.split_once('=')
            .is_some_and(|(name, _)| name.chars().all(|c| c.is_alphanumeric() || c == '_'))
    };
    words
        .iter()
        .map(String::as_str)
        .find(|word| !is_variable(word))
}

/// What make says of goals that it cannot make, or of whose parts. It runs nothing.
fn missing_goal(words: &[String], repository: &Path) -> Option<String> {
    if command(words) != Some("make") || !words.iter().any(|word| word == "-C") {
        return None;
    }
    let at = words
        .iter()
        .position(|word| word == "make")
        .expect("it is the command");
    let tried = Command::new("make")
        .args(["-n", "-s"])
        .args(&words[at + 1..])
        .current_dir(repository)
        .output();
    let tried = tried.expect("`make` is needed: install build-essential");
    (!tried.status.success()).then(|| String::from_utf8_lossy(&tried.stderr).trim().to_owned())
}

/// The folder of a package of the workspace.
fn folder_of(package: &str) -> String {
    match package {
        "stillpoint-manual" => "docs".to_owned(),
        "stillpoint-examples" => "examples".to_owned(),
        "config-reload" => "examples/tokio".to_owned(),
        "config-extractor" => "examples/axum".to_owned(),
        name => format!("crates/{name}"),
    }
}

/// What is wrong with files and folders that a command names.
fn missing_file(words: &[String], repository: &Path) -> Option<String> {
    let package = after(words, "-p").map(folder_of);
    let named = match command(words)? {
        "make" => after(words, "-C").map(str::to_owned),
        // The alias of .cargo/config.toml.
        "cargo" if after(words, "cargo") == Some("example") => {
            after(words, "example").map(|name| format!("examples/src/bin/{name}.rs"))
        }
        // A dependency of a user's program.
        "cargo" if after(words, "cargo") == Some("update") => None,
        "cargo" => match (&package, after(words, "--example"), after(words, "--test")) {
            (Some(folder), Some(name), _) => Some(format!("{folder}/examples/{name}.rs")),
            (Some(folder), _, Some(name))
                if !repository.join(folder).join("tests").join(name).is_dir() =>
            {
                Some(format!("{folder}/tests/{name}.rs"))
            }
            (folder, ..) => folder.clone(),
        },
        path if path.starts_with("scripts/")
            || path.starts_with("models/")
            || path.starts_with(".ci/") =>
        {
            Some(path.to_owned())
        }
        _ => None,
    }?;
    (!repository.join(&named).exists()).then(|| format!("there is no {named}"))
}

/// Returns what bash says of `sh` blocks that it cannot parse. It runs nothing.
fn unparsable(pages: &[Page]) -> Vec<String> {
    let shells = pages.iter().flat_map(|page| {
        let shells = page.blocks.iter().filter(|block| block.info == "sh");
        shells.map(move |block| (page.place(block.line), &block.code))
    });
    let said = shells.filter_map(|(place, code)| {
        let parsed = Command::new("bash").args(["-n", "-c", code]).output();
        let parsed = parsed.expect("`bash` is needed");
        let why = String::from_utf8_lossy(&parsed.stderr).trim().to_owned();
        (!parsed.status.success()).then(|| format!("{place}: {why}"))
    });
    said.collect()
}

/// The lab's subcommand (`scale kfree`, say) and its options, of a `cargo lab ...` line (an alias
/// of .cargo/config.toml).
fn lab_call(words: &[String]) -> Option<(Vec<&str>, Vec<&str>)> {
    let at = words.iter().position(|word| word == "cargo")?;
    let runs_lab = words
        .get(at + 1)
        .is_some_and(|word| word == "lab" || word == "padded-lab");
    let arguments: Vec<&str> = words.iter().skip(at + 2).map(String::as_str).collect();
    let end = arguments
        .iter()
        .position(|word| word.starts_with('-'))
        .unwrap_or(arguments.len());
    let options = arguments[end..]
        .iter()
        .filter(|word| word.starts_with("--"))
        .map(|word| word.split('=').next().expect("a part"));
    runs_lab.then(|| (arguments[..end].to_vec(), options.collect()))
}

/// Returns what the lab says of a subcommand. It is built with the features that tests of the workspace are built with, as the gate has done before.
fn help(subcommand: &[&str]) -> Result<String, String> {
    let build = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--locked",
            "--workspace",
            "--bin",
            "stillpoint",
            "--test",
            "manual",
        ])
        .args((PROFILE == "release").then_some("--release"))
        .current_dir(repository())
        .env("CARGO_TARGET_DIR", target())
        .output()
        .map_err(|error| error.to_string())?;
    if !build.status.success() {
        return Err(String::from_utf8_lossy(&build.stderr).into_owned());
    }
    let output = Command::new(target().join(PROFILE).join("stillpoint"))
        .args(subcommand)
        .arg("--help")
        .output()
        .map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}

/// Options, subcommands and flavours that the lab does not have. `help` is asked once a subcommand.
fn unknown_options(
    pages: &[Page],
    help: impl Fn(&[&str]) -> Result<String, String>,
) -> Vec<String> {
    let mut known: BTreeMap<Vec<String>, Result<String, String>> = BTreeMap::new();
    let mut complaints = Vec::new();
    for (place, words) in lines(pages) {
        let Some((mut subcommand, options)) = lab_call(&words) else {
            continue;
        };
        // Of a torture the second word is an argument: the flavour, which the help lists.
        let flavour = if subcommand.first() == Some(&"torture") {
            subcommand.get(1).copied()
        } else {
            None
        };
        subcommand.truncate(if flavour.is_some() { 1 } else { 2 });
        let key = subcommand.iter().map(|word| (*word).to_owned()).collect();
        match known.entry(key).or_insert_with(|| help(&subcommand)) {
            Err(error) => complaints.push(format!("{place}: {error}")),
            Ok(text) => {
                let words: Vec<&str> = text
                    .split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_'))
                    .collect();
                let wanted = options
                    .into_iter()
                    .chain(flavour.filter(|&name| name != "FLAVOUR"));
                complaints.extend(
                    wanted
                        .filter(|word| !words.contains(word))
                        .map(|word| format!("{place}: the lab has no {word}")),
                );
            }
        }
    }
    complaints
}

#[test]
fn commands_name_files_that_there_are() {
    let complaints: Vec<String> = lines(&pages())
        .filter_map(|(place, words)| {
            let why = missing_file(&words, repository())
                .or_else(|| missing_goal(&words, repository()))?;
            Some(format!("{place}: {why}"))
        })
        .collect();
    assert_none(&complaints);
}

#[test]
fn shells_can_parse_the_blocks() {
    assert_none(&unparsable(&pages()));
    let broken = "```sh\nexec a \"b\n```\n\n```sh\nexec a \"b\"\n```\n";
    let complaints = unparsable(&[Page::parse("a.md", broken)]);
    assert_eq!(complaints.len(), 1, "{complaints:?}");
}

#[test]
#[ignore = "compiles the lab: .ci/run lab"]
fn the_lab_has_the_options_that_commands_name() {
    assert_none(&unknown_options(&pages(), help));
}

#[test]
fn commands_that_cannot_work_are_found() {
    let text = "```sh\ncargo lab scale kfree --loops 1 --lops 2   # --comment\ncargo lab torture busted --calm\n\
                cargo lab torture bust\ncargo example routes -- --any\n```\n";
    let book = [Page::parse("a.md", text)];
    let help = |subcommand: &[&str]| match subcommand {
        ["scale", "kfree"] => Ok("--loops N".to_owned()),
        ["torture"] => Ok("--calm, busted".to_owned()),
        _ => Err(format!("{subcommand:?}")),
    };
    let complaints = unknown_options(&book, help);
    assert_eq!(complaints.len(), 2, "--lops and bust: {complaints:?}");
    let missing = |line| missing_file(&words(line), repository());
    assert_eq!(missing("cargo example routes"), None);
    assert_eq!(missing("A=b make -C crates/stillpoint-c all"), None);
    assert!(missing("cargo example rutes").is_some());
    assert!(missing("cargo test -p stillpoint --test nothing").is_some());
    assert!(missing("make -C crates/stillpoint-d all").is_some());
    assert!(missing("scripts/soke 8").is_some());
    assert_eq!(
        missing("A=\"-b --c\" cargo test -p stillpoint --test fork # --test nothing"),
        None
    );
    assert!(
        missing("A=\"-b --c\" D='e f' cargo test -p stillpoint --test nothing").is_some(),
        "behind variables with quotes"
    );
    let goal = |line| missing_goal(&words(line), repository());
    assert_eq!(
        goal("make -C crates/stillpoint-c install PREFIX=/usr/local"),
        None
    );
    assert_eq!(goal("A=b make -C docs/examples c"), None);
    assert!(goal("make -C docs/examples nothing").is_some());
    let text = "So `make -C docs/examples nothing` and\n`cargo example\nrutes` and `maker`.\n";
    let of_text: Vec<_> = lines(&[Page::parse("a.md", text)]).collect();
    assert_eq!(of_text.len(), 2, "{of_text:?}");
    assert!(
        goal(&of_text[0].1.join(" ")).is_some()
            && missing_file(&of_text[1].1, repository()).is_some()
    );
}

#[test]
fn lines_have_the_words_of_a_shell() {
    assert_eq!(
        words("A=\"b c\" d 'e # f' g#h # i"),
        ["A=b c", "d", "e # f", "g#h"]
    );
    assert_eq!(words(" # nothing "), [""; 0]);
}
