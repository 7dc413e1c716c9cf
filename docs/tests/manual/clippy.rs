//! What the manual says to put into `clippy.toml` finds a guard that is held across an `.await`,
//! and nothing else.

use crate::book::{chapters, repository};
use std::{fs, path::Path, process::Command};

/// The one block of the manual that is for `clippy.toml`.
fn advice() -> String {
    let chapters = chapters();
    let blocks = chapters.iter().flat_map(|chapter| &chapter.blocks);
    let found: Vec<_> = blocks
        .filter(|block| block.code.contains("await-holding-invalid-types"))
        .map(|block| block.code.clone())
        .collect();
    assert_eq!(found.len(), 1);
    found.into_iter().next().expect("one")
}

/// What the first three functions hold across an `.await` must be found, and nothing else.
const PROGRAM: &str = r"
use stillpoint::{QsbrReader, tasks_trace};
async fn later() {}
pub async fn guard() {
    let held = stillpoint::read_lock();
    later().await;
    drop(held);
}
pub async fn trace_guard() {
    let held = tasks_trace::read_lock();
    later().await;
    drop(held);
}
pub async fn reader(held: QsbrReader<'_>) {
    later().await;
    drop(held);
}
pub async fn owned() {
    let held = tasks_trace::read_lock_owned();
    later().await;
    drop(held);
}
pub async fn before() {
    drop(stillpoint::read_lock());
    later().await;
}
";

#[test]
#[ignore = "compiles a program with clippy: .ci/run builds"]
fn the_advice_finds_guards_across_await() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clippy");
    fs::create_dir_all(folder.join("src")).expect("a folder");
    let manifest = format!(
        "[package]\nname = \"held\"\nedition = \"2024\"\n[workspace]\n[dependencies]\nstillpoint = {{ path = {:?} }}\n",
        repository().join("crates/stillpoint")
    );
    for (file, text) in [
        ("Cargo.toml", manifest.as_str()),
        ("clippy.toml", &advice()),
        ("src/lib.rs", PROGRAM),
    ] {
        fs::write(folder.join(file), text).expect("it is written");
    }
    fs::copy(repository().join("Cargo.lock"), folder.join("Cargo.lock")).expect("it is copied");
    let output = Command::new(env!("CARGO"))
        .args(["clippy", "--offline", "--target-dir"])
        .arg(folder.join("target"))
        .current_dir(&folder)
        .output()
        .expect("cargo");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let found = said.lines().filter_map(|line| {
        line.strip_prefix("warning: holding a disallowed type across an await point ")
    });
    let found: Vec<_> = found.collect();
    assert_eq!(
        found,
        [
            "`stillpoint::Guard`",
            "`stillpoint::tasks_trace::Guard`",
            "`stillpoint::QsbrReader`"
        ],
        "{said}"
    );
}
