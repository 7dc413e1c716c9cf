//! What the types must refuse. Each file under `ui/` is a program that must not compile, with the compiler's messages.
//!
//! The compiler's words change from release to release, so they are compared with one release's alone; elsewhere the doc tests marked
//! `compile_fail` check the codes. `TRYBUILD=overwrite` writes the words anew, to be looked at.
#![cfg(not(miri))]

use std::process::Command;

const RELEASE: &str = "rustc 1.95.";

#[test]
#[ignore = "builds the library once more, in a folder of its own: .ci/run builds"]
fn what_would_be_unsound_does_not_compile() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = Command::new(rustc)
        .arg("--version")
        .output()
        .expect("a compiler")
        .stdout;
    if !String::from_utf8_lossy(&version).starts_with(RELEASE) {
        return eprintln!("skipped: the expected messages are those of {RELEASE}x");
    }
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
