//! What a program that depends on the library gets: how many packages its Cargo.lock lists, and whether
//! the patch line of the drop-in package takes effect. Cargo resolves; nothing is downloaded.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A package in a separate folder, locked to the workspace's versions.
pub struct Dependent(PathBuf);

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

impl Dependent {
    pub fn new(name: &str, dependencies: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("src")).expect("a folder");
        fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).expect("the workspace's");
        let package = "[package]\nname = \"dependent\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\n";
        let dependent = Self(folder);
        dependent.write("Cargo.toml", &format!("{package}{dependencies}"));
        dependent.write("src/lib.rs", "");
        dependent
    }

    pub fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).expect("a file");
    }

    /// Returns what Cargo prints on stderr, whatever the environment says about colours, warnings and lints.
    pub fn cargo(&self, arguments: &[&str]) -> String {
        let output = Command::new(env!("CARGO"))
            .args(arguments)
            .arg("--offline")
            .current_dir(&self.0)
            .env(
                "CARGO_TARGET_DIR",
                concat!(env!("CARGO_TARGET_TMPDIR"), "/built"),
            )
            .env("CARGO_TERM_COLOR", "never")
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env_remove("CARGO_BUILD_RUSTFLAGS")
            .env_remove("CLIPPY_CONF_DIR")
            .output()
            .expect("Cargo");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said
    }

    /// The packages of its Cargo.lock that come from a registry: name and version.
    pub fn locked(&self) -> Vec<(String, String)> {
        self.cargo(&["update", "--workspace"]);
        let lock = fs::read_to_string(self.0.join("Cargo.lock")).expect("Cargo's");
        let packages = lock
            .split("[[package]]")
            .filter(|package| package.contains("\nsource = "));
        let value = |package: &str, key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key));
            line.expect(key).trim_matches(['"', ' ', '=']).to_owned()
        };
        packages
            .map(|package| (value(package, "name"), value(package, "version")))
            .collect()
    }
}

pub fn path(package: &str) -> String {
    let root = root().display();
    format!(
        "{package} = {{ path = \"{root}/{}\" }}\n",
        match package {
            "crossbeam-epoch" => format!("drop-in/{package}"),
            _ => format!("crates/{package}"),
        }
    )
}

/// Loom and shuttle alone, not optional, are 69 packages.
#[test]
fn a_dependents_lock_file_is_short() {
    for (package, most) in [
        ("stillpoint", 8),
        ("crossbeam-epoch", 8),
        ("stillpoint-map", 11),
        ("stillpoint-cache", 16),
    ] {
        let locked = Dependent::new(&format!("locks-{package}"), &path(package)).locked();
        assert!(
            locked.len() <= most,
            "{package}: more than {most}: {locked:?}"
        );
    }
}

/// Every later version of the original must be answered too, or the patch would silently do nothing.
#[test]
fn the_patch_line_takes_effect() {
    let patch = path("crossbeam-epoch");
    for asks in ["0.9", "0.9.22"] {
        let dependency = format!("crossbeam-epoch = \"{asks}\"\n[patch.crates-io]\n{patch}");
        let dependent = Dependent::new(&format!("patched-{asks}"), &dependency);
        fs::remove_file(dependent.0.join("Cargo.lock")).expect("it is there");
        let locked = dependent.locked();
        assert!(
            !locked.iter().any(|(name, _)| name == "crossbeam-epoch"),
            "{asks}: {locked:?}"
        );
    }
}
