//! C and C++: each block, and each program in `examples/`, is compiled with all warnings as errors,
//! and run if it is a program. Those of the kind `c,liburcu` are compiled and run twice, against
//! liburcu and against Stillpoint's headers for its users, and must print the same. Then the
//! examples, by the commands that the chapters name.

use crate::book::{Block, Page, chapters, repository, root};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

pub(crate) const PROFILE: &str = if cfg!(debug_assertions) {
    "debug"
} else {
    "release"
};

pub(crate) fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("it is in the target folder")
}

fn text(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn make(folder: &Path, goal: &str) -> Output {
    let arguments = [
        "-s",
        goal,
        &format!("PROFILE={PROFILE}"),
        &format!("CARGO={}", env!("CARGO")),
    ];
    let output = Command::new("make")
        .args(arguments)
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", target())
        .output();
    output.expect("`make` is needed to compile C: install build-essential")
}

/// Each `make` links the library anew, so no other test may use it meanwhile.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where libstillpoint is, made once.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let made = make(&repository().join("crates/stillpoint-c"), "all");
        assert!(made.status.success(), "libstillpoint: {}", text(&made));
        target().join(PROFILE).join("stillpoint-c")
    })
}

/// What a block is compiled against.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Against {
    Stillpoint,
    /// liburcu's headers as Stillpoint has them.
    Compat,
    Liburcu,
}

impl Block {
    /// What it prints, if it is a program; what is wrong otherwise.
    fn compile_and_run(&self, name: &str, against: Against) -> Result<String, String> {
        let is_cpp = self.info == "cpp";
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("blocks");
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        let program = folder.join(format!("{name}-{}-{against:?}", self.line));
        let source = program.with_extension(if is_cpp { "cpp" } else { "c" });
        fs::write(&source, &self.code).map_err(|error| error.to_string())?;
        let include = repository().join("crates/stillpoint-c/include");
        let mut compiler = Command::new(if is_cpp { "c++" } else { "cc" });
        compiler
            .args([
                if is_cpp { "-std=c++17" } else { "-std=gnu11" },
                "-O2",
                "-g",
                "-Wall",
                "-Wextra",
                "-Werror",
            ])
            .arg(&source);
        if against == Against::Compat {
            compiler.arg("-I").arg(include.join("stillpoint/compat"));
        }
        if against != Against::Liburcu {
            compiler.arg("-I").arg(include);
        }
        let is_program = self.code.contains("int main(");
        if is_program {
            compiler.arg("-o").arg(&program);
            if against == Against::Liburcu {
                compiler.args(["-D_LGPL_SOURCE", "-lurcu-memb"]);
            } else {
                let library = library();
                compiler
                    .arg(format!("-L{}", library.display()))
                    .arg(format!("-Wl,-rpath,{}", library.display()))
                    .arg("-lstillpoint");
            }
            compiler.arg("-lpthread");
        } else {
            compiler.arg("-fsyntax-only");
        }
        let compiled = compiler
            .output()
            .map_err(|error| format!("no compiler ({error}): install build-essential"))?;
        if !compiled.status.success() {
            return Err(format!(
                "does not compile against {against:?}: {}",
                text(&compiled)
            ));
        }
        if !is_program {
            return Ok(String::new());
        }
        let ran = Command::new("timeout")
            .arg("120")
            .arg(&program)
            .output()
            .map_err(|error| error.to_string())?;
        if ran.status.success() {
            Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
        } else {
            Err(format!("fails, against {against:?}: {}", text(&ran)))
        }
    }

    fn try_all(&self, name: &str, liburcu: bool) -> Result<(), String> {
        if self.info != "c,liburcu" {
            return self.compile_and_run(name, Against::Stillpoint).map(drop);
        }
        let ours = self.compile_and_run(name, Against::Compat)?;
        if liburcu {
            let theirs = self.compile_and_run(name, Against::Liburcu)?;
            if ours != theirs {
                return Err(format!("prints {ours:?}, and with liburcu {theirs:?}"));
            }
        }
        Ok(())
    }
}

/// Returns the programs in `examples/` as if a chapter showed them.
fn examples() -> Page {
    let mut examples = Page::parse("examples", "");
    for entry in fs::read_dir(root().join("examples")).expect("there are examples") {
        let path = entry.expect("it can be read").path();
        let kind = path.extension().and_then(|kind| kind.to_str());
        let info = match kind {
            Some("c") if path.ends_with("from_liburcu.c") => "c,liburcu",
            Some(kind @ ("c" | "cpp")) => kind,
            _ => continue,
        };
        examples.blocks.push(Block {
            line: examples.blocks.len(),
            info: info.to_owned(),
            code: fs::read_to_string(&path).expect("it can be read"),
        });
    }
    examples
}

/// Returns the number of blocks, and what is wrong with some.
fn try_blocks(pages: &[Page], liburcu: bool) -> (usize, Vec<String>) {
    let blocks = pages
        .iter()
        .flat_map(|page| page.blocks.iter().map(move |block| (page, block)));
    let blocks: Vec<_> = blocks
        .filter(|(_, block)| ["c", "cpp", "c,liburcu"].contains(&block.info.as_str()))
        .collect();
    let complaints = blocks.iter().filter_map(|(page, block)| {
        let name = page.path.file_stem().expect("a file").to_string_lossy();
        let outcome = block.try_all(&name, liburcu);
        outcome
            .err()
            .map(|why| format!("{}: {why}", page.place(block.line)))
    });
    (blocks.len(), complaints.collect())
}

fn has_liburcu() -> bool {
    let probe = Block {
        line: 0,
        info: "c".to_owned(),
        code: "#include <urcu/urcu-memb.h>\nint probe;\n".to_owned(),
    };
    let found = probe.compile_and_run("probe", Against::Liburcu).is_ok();
    if !found {
        assert!(
            env::var_os("CI").is_none(),
            "liburcu is not here, and CI must try the blocks that need it: install liburcu-dev"
        );
        eprintln!(
            "liburcu-dev is not installed: blocks for it are tried with Stillpoint's headers alone"
        );
    }
    found
}

#[test]
#[ignore = "compiles the C library and every C program of the manual: .ci/run c"]
fn c_and_cpp_compile_and_run() {
    let _alone = alone();
    let mut chapters = chapters();
    chapters.push(examples());
    let (count, complaints) = try_blocks(&chapters, has_liburcu());
    assert!(count > 5, "the manual has C and C++ in it: {count} blocks");
    crate::assert_none(&complaints);
}

#[test]
#[ignore = "compiles the C library and every C program of the manual: .ci/run c"]
fn c_that_does_not_work_is_found() {
    let _alone = alone();
    let text = "```c\nint f(void) { return 0; }\n```\n```c\nint g(int unused) { return 0; }\n```\n```cpp\nint main() { return 1; }\n```\n\
                ```c\n#include <stillpoint/stillpoint.h>\nint h(void) { return stillpoint_no_such(); }\n```\n";
    let (count, complaints) = try_blocks(&[Page::parse("broken.md", text)], false);
    assert_eq!((count, complaints.len()), (4, 3), "{complaints:?}");
}

#[test]
#[ignore = "compiles the C library and every C program of the manual: .ci/run c"]
fn examples_run() {
    let _alone = alone();
    library();
    let made = make(&root().join("examples"), "all");
    assert!(
        made.status.success(),
        "make -C docs/examples: {}",
        text(&made)
    );
    for example in ["from_crossbeam_epoch", "linked_nodes"] {
        let ran = Command::new(env!("CARGO"))
            .args(["run", "--locked", "-p", "stillpoint-manual", "--example"])
            .arg(example)
            .current_dir(repository())
            .env("CARGO_TARGET_DIR", target())
            .output();
        let ran = ran.expect("cargo runs this");
        assert!(ran.status.success(), "{example}: {}", text(&ran));
    }
}
