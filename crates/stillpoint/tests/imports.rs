//! No circle of imports inside a layer, and none between the layers: see `docs/design/001-layers.md`.
//! The files of `memcg` in stillpoint-lru import in the order of the table in `memcg.rs`.
//!
//! The sources are read as text, without items that only tests have. A file imports another where it
//! names that by `use` or by a path from `crate` or `super`. A parent that declares its children, or
//! re-exports their items, does not import them.
#![cfg(not(miri))]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The path of a module from the crate's root.
type Module = Vec<String>;

fn module(path: &str) -> Module {
    path.split("::").map(str::to_owned).collect()
}

/// The text without comments and without what only tests have: that ends with a bracket, or as a
/// statement or a field, where it is indented as its attribute.
fn code(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or("").trim_end());
    let mut code = String::new();
    let mut skips = None;
    for line in lines {
        let indent = line.len() - line.trim_start().len();
        if line[indent..].starts_with("#[cfg(test)") || line[indent..].starts_with("#[cfg(all(test")
        {
            skips = Some(indent);
        } else if skips.is_none() {
            code.push_str(line);
            code.push('\n');
        } else if skips == Some(indent) && line.ends_with(['}', ';', ',']) {
            skips = None;
        }
    }
    code
}

/// Returns the paths of a tree in a `use` item: `a::{b, c::d}`.
fn paths(tree: &str) -> Vec<String> {
    let Some((before, inside)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap_or("").trim().to_owned()];
    };
    let inside = inside.rsplit_once('}').map_or("", |(inside, _)| inside);
    let (mut depth, mut branch, mut branches) = (0, String::new(), Vec::new());
    for letter in inside.chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        if letter == ',' && depth == 0 {
            branches.push(std::mem::take(&mut branch));
        } else {
            branch.push(letter);
        }
    }
    branches.push(branch);
    let branches = branches.iter().filter(|branch| !branch.trim().is_empty());
    branches
        .flat_map(|branch| paths(branch.trim()))
        .map(|path| before.trim().to_owned() + &path)
        .collect()
}

/// Returns what a file names, by `use` and by paths in its code, without what it re-exports from
/// its children.
fn named(code: &str) -> Vec<String> {
    let mut named = Vec::new();
    let mut rest = String::new();
    for statement in code.split_inclusive(';') {
        // `use` begins a line, or comes behind its visibility.
        let with_line = |(at, _)| (at, statement[..at].rsplit('\n').next().unwrap_or("").trim());
        let mut places = statement.match_indices("use ").map(with_line);
        let found = places.find(|(_, line)| matches!(*line, "" | "pub") || line.ends_with(')'));
        let Some((at, visibility)) = found else {
            rest.push_str(statement);
            continue;
        };
        rest.push_str(&statement[..at]);
        let paths = paths(statement[at + "use ".len()..].trim_end_matches(';'));
        let is_import = |path: &String| {
            visibility.is_empty() || path.starts_with("crate::") || path.starts_with("super::")
        };
        named.extend(paths.into_iter().filter(is_import));
    }
    for part in
        rest.split(|letter: char| !(letter.is_alphanumeric() || letter == '_' || letter == ':'))
    {
        if part.starts_with("crate::") || part.starts_with("super::") {
            named.push(part.to_owned());
        }
    }
    named
}

/// The module of which `path`, in the file of `at`, names something.
fn resolve(at: &Module, path: &str, known: &BTreeSet<Module>) -> Option<Module> {
    let mut parts = path.split("::").peekable();
    let mut found = match *parts.peek()? {
        "crate" => {
            parts.next();
            Module::new()
        }
        "self" | "super" => at.clone(),
        child => {
            let child = [at.clone(), module(child)].concat();
            known.contains(&child).then(|| at.clone())?
        }
    };
    while let Some(part) = parts.next_if(|part| matches!(*part, "self" | "super")) {
        if part == "super" {
            found.pop();
        }
    }
    for part in parts {
        let child = [found.clone(), module(part)].concat();
        if !known.contains(&child) {
            break;
        }
        found = child;
    }
    known.contains(&found).then_some(found)
}

/// Returns for each module those that it imports.
fn imports(sources: &[(Module, String)]) -> BTreeMap<Module, BTreeSet<Module>> {
    let known: BTreeSet<_> = sources.iter().map(|(module, _)| module.clone()).collect();
    let imports = |at: &Module, text: &str| {
        let found = named(&code(text))
            .into_iter()
            .filter_map(|path| resolve(at, &path, &known));
        found.filter(|found| found != at).collect()
    };
    sources
        .iter()
        .map(|(at, text)| (at.clone(), imports(at, text)))
        .collect()
}

/// Returns the modules that import themselves, directly or through others.
fn circular(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<String> {
    let reaches_itself = |start: &Module| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![start]);
        while let Some(at) = left.pop() {
            for next in &imports[at] {
                if next == start {
                    return true;
                }
                if seen.insert(next) {
                    left.push(next);
                }
            }
        }
        false
    };
    imports
        .keys()
        .filter(|module| reaches_itself(module))
        .map(|module| module.join("::"))
        .collect()
}

/// Returns the paths that name an item of `layer` through its facade, which re-exports the items of
/// its files: these would hide a circle.
fn by_the_facade(layer: &str, sources: &[(Module, String)]) -> Vec<String> {
    let known: BTreeSet<_> = sources.iter().map(|(module, _)| module.clone()).collect();
    let mut faults = Vec::new();
    for (at, text) in sources.iter().filter(|(at, _)| *at != module(layer)) {
        let paths = named(&code(text));
        let paths = paths.iter().filter(|path| {
            resolve(at, path, &known) == Some(module(layer))
                && !path.ends_with("IN_MODEL")
                && !path.ends_with(layer)
        });
        faults.extend(paths.map(|path| format!("{}: {path}", at.join("::"))));
    }
    faults
}

fn read(folder: &Path, at: &Module, sources: &mut Vec<(Module, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let inside = [at.clone(), module(name)].concat();
        if path.is_dir() {
            read(&path, &inside, sources);
        } else if !name.ends_with("_tests") {
            let inside = if name == "mod" { at.clone() } else { inside };
            sources.push((inside, fs::read_to_string(&path).unwrap()));
        }
    }
}

/// The crate's layers: each imports from itself and from those before it.
const LAYERS: [&str; 4] = ["gp", "kvfree", "rcu", "tasks_trace"];

/// Returns the files of `layers`.
fn sources(layers: &[&str]) -> Vec<(Module, String)> {
    let mut sources = Vec::new();
    for layer in layers {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src")
            .join(layer);
        read(&folder, &module(layer), &mut sources);
    }
    sources
}

#[test]
fn no_layer_has_a_circle() {
    for (layer, fewest) in LAYERS.into_iter().zip([50, 40, 30, 3]) {
        let sources = sources(&[layer]);
        let imports = imports(&sources);
        assert!(
            imports.values().map(BTreeSet::len).sum::<usize>() >= fewest,
            "imports are no longer found: {imports:#?}"
        );
        assert_eq!(circular(&imports), Vec::<String>::new());
        assert_eq!(by_the_facade(layer, &sources), Vec::<String>::new());
    }
}

/// Imports of a layer above, as "importer: imported".
fn upward(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<String> {
    let layer = |module: &Module| LAYERS.iter().position(|layer| *layer == module[0]);
    let mut faults = Vec::new();
    for (at, imported) in imports {
        let Some(own) = layer(at) else { continue };
        let above = imported.iter().filter(|module| layer(module) > Some(own));
        faults.extend(above.map(|module| format!("{}: {}", at.join("::"), module.join("::"))));
    }
    faults
}

#[test]
fn layers_import_downwards() {
    assert_eq!(upward(&imports(&sources(&LAYERS))), Vec::<String>::new());
}

/// Returns the files that the table in `memcg.rs` names, with their rows' numbers.
fn rows(memcg: &str) -> BTreeMap<String, usize> {
    let table = memcg
        .lines()
        .filter(|line| line.starts_with("//! | `"))
        .enumerate();
    let files = table.flat_map(|(row, line)| {
        let names = line.split('|').nth(1).unwrap_or("").split(',');
        names.map(move |name| (name.trim().trim_matches('`').replace(".rs", ""), row))
    });
    files.collect()
}

/// Imports between the files of `memcg` that are not upward in its table, as "importer: imported".
/// `memcg.rs` itself has a row, but what it re-exports belongs to the row of the file that has it.
fn out_of_order(memcg: &str, sources: &[(Module, String)]) -> Vec<String> {
    let rows = rows(memcg);
    let known: BTreeSet<_> = sources.iter().map(|(module, _)| module.clone()).collect();
    let top = module("memcg");
    let exported = memcg.split("pub use ").skip(1);
    let exports: BTreeMap<_, _> = exported
        .flat_map(|text| paths(text.split(';').next().unwrap_or("")))
        .filter_map(|path| {
            let (file, name) = path.split_once("::")?;
            Some((name.to_owned(), file.to_owned()))
        })
        .collect();
    let mut faults = Vec::new();
    for (at, text) in sources {
        // A folder belongs to its file.
        let own = at.get(1).map_or("memcg", String::as_str);
        for path in named(&code(text)) {
            let Some(found) = resolve(at, &path, &known).filter(|found| found.starts_with(&top))
            else {
                continue;
            };
            let other = match found.get(1) {
                Some(file) => file,
                None => {
                    let name = path.rsplit("::").next().unwrap_or("");
                    exports.get(name).map_or("memcg", String::as_str)
                }
            };
            if own != other
                && (own != "memcg" || !path.starts_with(other))
                && rows[other] >= rows[own]
            {
                faults.push(format!("{own}: {other}"));
            }
        }
    }
    faults
}

#[test]
fn files_of_memcg_import_upwards() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stillpoint-lru/src");
    let memcg = fs::read_to_string(folder.join("memcg.rs")).unwrap();
    let mut sources = vec![(module("memcg"), memcg.clone())];
    read(&folder.join("memcg"), &module("memcg"), &mut sources);
    assert_eq!(out_of_order(&memcg, &sources), Vec::<String>::new());

    for (file, line, fault) in [
        ("stock", "use super::Memcg;", "stock: memcg"),
        ("lists", "use super::{Memcg, Tenant};", "lists: tenant"),
        ("charge", "use super::tree::Tree;", "charge: tree"),
    ] {
        let mut sources = sources.clone();
        let at = module(&format!("memcg::{file}"));
        sources.push((at, line.to_owned()));
        assert_eq!(out_of_order(&memcg, &sources), [fault]);
    }
}

#[track_caller]
fn assert_upwards(sources: &[(Module, String)], place: impl Fn(&Module) -> Option<usize>) {
    for (at, imported) in imports(sources) {
        let below = imported.iter().filter(|file| place(file) > place(&at));
        assert_eq!(below.collect::<Vec<_>>(), Vec::<&Module>::new(), "{at:?}");
    }
}

/// The order is that of the table in `mod.rs`. That file itself is the last.
#[test]
fn files_of_the_store_import_upwards() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stillpoint-server/src/store");
    let head = fs::read_to_string(folder.join("mod.rs")).unwrap();
    let table = head.lines().filter(|line| line.starts_with("//! | `"));
    let cells = table.filter_map(|line| line.split('|').nth(1));
    let files: Vec<_> = cells
        .flat_map(|cell| {
            cell.split(&[' ', ',', '`', '/'])
                .filter(|name| !name.is_empty())
        })
        .collect();
    let place = |of: &Module| {
        let place_of = |name: &String| files.iter().rposition(|file| file == name);
        of.iter().rev().find_map(place_of)
    };
    let mut sources = Vec::new();
    read(&folder, &module("store"), &mut sources);
    let of_tests = |part: &String| part.contains("tests") || part.starts_with("model_");
    sources.retain(|(at, _)| !at.iter().any(of_tests));
    assert_upwards(&sources, place);
}

/// The order is that of the comment in `lib.rs`. A folder belongs to its file.
#[test]
fn files_of_the_cache_import_upwards() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stillpoint-cache/src");
    let head = fs::read_to_string(folder.join("lib.rs")).unwrap();
    let lines = head.lines().filter(|line| line.starts_with("// - `"));
    let names = lines.filter_map(|line| line.split(':').next());
    let files: Vec<_> = names
        .flat_map(|names| names.split('`').skip(1).step_by(2))
        .collect();
    let place = |of: &Module| files.iter().position(|file| *file == of[0]);
    let mut sources = Vec::new();
    read(&folder, &Module::new(), &mut sources);
    sources.retain(|(at, _)| *at != module("lib"));
    for (at, _) in &sources {
        assert!(place(at).is_some(), "{at:?} is not in the list");
    }
    assert_upwards(&sources, place);
}

#[test]
fn an_upward_import_is_found() {
    let texts = [
        ("gp::engine", ""),
        (
            "rcu::cell",
            "use crate::{gp::engine, tasks_trace::OwnedGuard};\n",
        ),
        ("tasks_trace", "use crate::rcu::cell;\n"),
    ];
    let sources = texts.map(|(at, text)| (module(at), text.to_owned()));
    assert_eq!(upward(&imports(&sources)), ["rcu::cell: tasks_trace"]);
}

#[test]
fn a_circle_is_found() {
    let sources = |back: &str| {
        let engine = "use super::{record::{self, Record}, seq};\nmod wait;\n";
        let texts = [
            ("gp", "mod engine;"),
            ("gp::engine", engine),
            ("gp::engine::wait", "use super::Engine;"),
            ("gp::seq", ""),
        ];
        let record = ("gp::record", back);
        texts
            .into_iter()
            .chain([record])
            .map(|(at, text)| (module(at), text.to_owned()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        circular(&imports(&sources("use super::seq::Seq;\n"))),
        Vec::<String>::new()
    );
    for back in [
        "use super::engine::Engine;\n",
        "use crate::{\n    gp::{\n        engine::Engine,\n    },\n};\n",
        "fn at(engine: &crate::gp::engine::Engine) {}\n",
        "#[cfg(x)]\npub use super::{engine::Engine};\n",
        "fn seq() {}\nuse super::{engine::Engine};\n",
    ] {
        assert_eq!(
            circular(&imports(&sources(back))),
            ["gp::engine", "gp::record"],
            "{back}"
        );
    }
    assert_eq!(
        by_the_facade("gp", &sources("use super::{IN_MODEL, seq::Seq};\n")),
        Vec::<String>::new()
    );
    assert_eq!(
        by_the_facade("gp", &sources("use super::{Engine, seq::Seq};\n")),
        ["gp::record: super::Engine"]
    );
    let by_a_child = "use crate::gp::engine::wait::Haste;\n";
    assert_eq!(
        circular(&imports(&sources(by_a_child))),
        ["gp::engine", "gp::engine::wait", "gp::record"],
        "the child imports its parent"
    );
    let of_tests = "#[cfg(test)]\nmod tests {\n    use super::super::engine::Engine;\n}\n";
    assert_eq!(circular(&imports(&sources(of_tests))), Vec::<String>::new());
}
