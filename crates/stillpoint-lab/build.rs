//! Compiles the C side of the liburcu peers where liburcu is installed, and sets
//! `cfg(have_liburcu)` there; where it is new enough to have polled grace periods,
//! `cfg(have_liburcu_poll)` as well. Without it the program is built all the same, and says at run
//! time what is missing.
//!
//! Beside that it notes for the report what the program is made of: the compiler's version, and the
//! versions of all packages.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    let padded = is_padded();
    println!("cargo::rustc-check-cfg=cfg(padded)");
    if padded {
        println!("cargo::rustc-cfg=padded");
    }
    println!("cargo::rustc-check-cfg=cfg(have_liburcu, have_liburcu_poll)");
    let liburcu = compile_liburcu_side(padded);
    note_versions(liburcu.as_deref());
    note_commit();
}

/// Returns whether branches are padded (`cargo padded-lab`, in .cargo/config.toml): the lab says
/// so, and pads the peers in C as well.
fn is_padded() -> bool {
    println!("cargo::rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    env::var("CARGO_ENCODED_RUSTFLAGS")
        .is_ok_and(|flags| flags.contains("x86-branches-within-32B-boundaries"))
}

/// Writes `versions.txt`, a line for each package of `Cargo.lock` that is there in one version, and
/// for each that is there in several and used here: its name and its version.
fn note_versions(liburcu: Option<&str>) {
    let lock =
        Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    let lock = fs::read_to_string(lock).unwrap_or_default();
    let value = |line: &str, key: &str| {
        Some(
            line.strip_prefix(key)?
                .strip_prefix(" = \"")?
                .trim_end_matches('"')
                .to_owned(),
        )
    };
    let mut packages: Vec<(String, String)> = Vec::new();
    // Of several versions the file names the one that a package depends on.
    let mut used: Vec<(String, String)> = Vec::new();
    for block in lock.split("[[package]]") {
        let find = |key| block.lines().find_map(|line| value(line, key));
        let name = find("name");
        if name.as_deref() == Some("stillpoint-lab") {
            let words = block
                .lines()
                .map(|line| line.trim_matches([' ', '"', ',']).split(' '));
            used = words
                .filter_map(|mut words| Some((words.next()?.to_owned(), words.next()?.to_owned())))
                .collect();
        }
        packages.extend(name.zip(find("version")));
    }
    packages.sort();
    packages.dedup();
    packages.extend(liburcu.map(|version| ("liburcu".to_owned(), version.to_owned())));
    let once = |name: &str| packages.iter().filter(|(other, _)| other == name).count() == 1;
    let lines = packages
        .iter()
        .filter(|package| once(&package.0) || used.contains(package))
        .map(|(name, version)| format!("{name} {version}\n"));
    let file = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("versions.txt");
    fs::write(file, lines.collect::<String>()).expect("cargo's folder can be written");

    let rustc = env::var("RUSTC").expect("cargo sets it");
    let version = Command::new(rustc)
        .arg("--version")
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!(
        "cargo::rustc-env=STILLPOINT_LAB_RUSTC={}",
        version.unwrap_or_default()
    );
}

/// Notes the commit that this is built from, with `+` behind it if what the program is made of has
/// changes: a fault is repeated with the program that found it. `STILLPOINT_COMMIT` says it where
/// there is no checkout, such as in a container's build.
fn note_commit() {
    println!("cargo::rerun-if-env-changed=STILLPOINT_COMMIT");
    let commit = env::var("STILLPOINT_COMMIT").ok();
    let commit = commit.or_else(commit_of_checkout).unwrap_or_default();
    println!("cargo::rustc-env=STILLPOINT_LAB_COMMIT={commit}");
}

fn commit_of_checkout() -> Option<String> {
    let crates = Path::new(&env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("..");
    let git = |arguments: &[&str]| {
        let run = Command::new("git")
            .args(arguments)
            .current_dir(&crates)
            .output();
        let run = run.ok().filter(|run| run.status.success())?;
        Some(String::from_utf8_lossy(&run.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    // Grows with each commit and each checkout of another one.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={}", crates.join(log).display());
    let folders = fs::read_dir(&crates).ok()?;
    for folder in folders.flatten() {
        let source = folder.path().join("src");
        if source.is_dir() {
            println!("cargo::rerun-if-changed={}", source.display());
        }
    }
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "--", "."])?;
    Some(if changed.is_empty() {
        commit
    } else {
        commit + "+"
    })
}

/// What liburcu needs, where it is; its version.
#[cfg(feature = "peers")]
fn compile_liburcu_side(padded: bool) -> Option<String> {
    println!("cargo::rerun-if-changed=c");

    // Both flavours come in one package; 0.12 gave each flavour its own function names.
    let mut found = Vec::new();
    for library in ["liburcu-memb", "liburcu-qsbr"] {
        match pkg_config::Config::new()
            .atleast_version("0.12")
            .probe(library)
        {
            Ok(library) => found.push(library),
            Err(_) => return None,
        }
    }

    let mut build = cc::Build::new();
    for library in &found {
        build.includes(&library.include_paths);
    }
    build
        // Asks liburcu for its inlined read side, the best use that its documentation names.
        .define("_LGPL_SOURCE", None)
        // As a C program would be compiled: code for an executable reaches liburcu's thread-local
        // state directly.
        .opt_level(2)
        .pic(false)
        .flag("-fPIE")
        .force_frame_pointer(false)
        .warnings(true);
    if padded {
        build.flag_if_supported("-Wa,-mbranches-within-32B-boundaries");
    }
    // Asks for the version alone: what to link is known from above.
    if pkg_config::Config::new()
        .atleast_version("0.14")
        .cargo_metadata(false)
        .probe("liburcu-memb")
        .is_ok()
    {
        build.define("LAB_HAVE_POLL", None);
        println!("cargo::rustc-cfg=have_liburcu_poll");
    }
    build
        .files(["c/urcu_memb.c", "c/urcu_qsbr.c"])
        .compile("stillpoint_lab_urcu");
    println!("cargo::rustc-cfg=have_liburcu");
    found.pop().map(|library| library.version)
}

/// Without peers it is not looked for.
#[cfg(not(feature = "peers"))]
fn compile_liburcu_side(_padded: bool) -> Option<String> {
    None
}
