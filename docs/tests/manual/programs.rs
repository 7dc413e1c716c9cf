//! C and C++: the chapters' blocks compile; the programs in `examples/` compile and run, by the commands
//! that the chapters name; and the one for liburcu prints the same when it is compiled against liburcu.

use crate::book::{Page, chapters, repository, root};
use std::{
    env, fs,
    path::Path,
    process::{Command, Output},
};

const PROFILE: &str = if cfg!(debug_assertions) {
    "debug"
} else {
    "release"
};

fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("it is in the target folder")
}

fn output(command: &mut Command) -> Output {
    let output = command
        .current_dir(repository())
        .env("CARGO_TARGET_DIR", target())
        .output();
    output.unwrap_or_else(|error| panic!("{command:?}: {error}: install build-essential"))
}

/// Runs a command, which must succeed, and returns what it prints.
fn run(command: &mut Command) -> String {
    let output = output(command);
    let [printed, said] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(
        output.status.success(),
        "{command:?}: {}\n{printed}{said}",
        output.status
    );
    printed
}

/// Makes a goal of the examples.
fn make(goal: &str) -> String {
    let variables = [
        format!("PROFILE={PROFILE}"),
        format!("CARGO={}", env!("CARGO")),
    ];
    run(Command::new("make")
        .args(["-s", "-C", "docs/examples", goal])
        .args(variables))
}

/// Returns the number of blocks of C, and the places of those that do not compile.
fn try_blocks(pages: &[Page]) -> (usize, Vec<String>) {
    let blocks = pages
        .iter()
        .flat_map(|page| page.blocks.iter().map(move |block| (page, block)));
    let blocks: Vec<_> = blocks.filter(|(_, block)| block.info == "c").collect();
    let complaints = blocks.iter().filter_map(|(page, block)| {
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("block.c");
        fs::write(&source, &block.code).expect("a file");
        let flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"];
        let include = ["-I", "crates/stillpoint-c/include"];
        let compiled = output(Command::new("cc").args(flags).args(include).arg(source));
        let said = String::from_utf8_lossy(&compiled.stderr).into_owned();
        (!compiled.status.success()).then(|| format!("{}: {said}", page.place(block.line)))
    });
    (blocks.len(), complaints.collect())
}

#[test]
#[ignore = "compiles C: .ci/run c"]
fn blocks_compile() {
    let (count, complaints) = try_blocks(&chapters());
    assert!(count > 0, "the manual has C in it");
    crate::assert_none(&complaints);

    let text = "```c\nint f(void) { return 0; }\n```\n```c\nint g(int unused) { return 0; }\n```\n\
                ```c\n#include <stillpoint/stillpoint.h>\nint h(void) { return stillpoint_no_such(); }\n```\n";
    let (count, complaints) = try_blocks(&[Page::parse("broken.md", text)]);
    assert_eq!((count, complaints.len()), (3, 2), "{complaints:?}");
}

#[test]
#[ignore = "compiles the C library and every program of the manual: .ci/run c"]
fn examples_run() {
    make("all");
    for example in ["from_crossbeam_epoch", "linked_nodes"] {
        let arguments = [
            "run",
            "--locked",
            "-p",
            "stillpoint-manual",
            "--example",
            example,
        ];
        run(Command::new(env!("CARGO")).args(arguments));
    }
    let (source, program) = (
        root().join("examples/from_liburcu.c"),
        target().join("tmp/from_liburcu"),
    );
    let mut compiler = Command::new("cc");
    compiler
        .args(["-std=gnu11", "-D_LGPL_SOURCE", "-o"])
        .args([&program, &source]);
    compiler.args(["-lurcu-memb", "-lpthread"]);
    if env::var_os("CI").is_none() && !output(&mut compiler).status.success() {
        return eprintln!("not compared with liburcu, which is not here: install liburcu-dev");
    }
    run(&mut compiler);
    assert_eq!(make("liburcu"), run(&mut Command::new(program)));
}
