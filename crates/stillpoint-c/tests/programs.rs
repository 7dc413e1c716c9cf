//! The C programs in `tests/c`, compiled against the shared library and the static one, and run: what `make check` does.

use std::{env, path::Path, process::Command};

#[test]
fn the_c_programs_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    for tool in ["make", "cc"] {
        let found = Command::new(tool).arg("--version").output().is_ok();
        assert!(found, "`{tool}` is needed to compile the C programs: install build-essential");
    }
    let made = Command::new("make")
        .args(["check", &format!("PROFILE={profile}"), &format!("CARGO={}", env!("CARGO"))])
        .current_dir(root)
        .output()
        .expect("make runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(made.status.success(), "make check failed:\n{}\n{}", text(&made.stdout), text(&made.stderr));
}
