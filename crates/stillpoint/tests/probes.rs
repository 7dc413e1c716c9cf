//! The probes, as tracing tools find them: names and numbers of arguments are those of
//! `scripts/trace/README.md`, and each is a `nop`. The tests look at this program itself, which
//! calls all functions that have a probe.
//!
//! Detects a probe that is missing, has other arguments than the table, or is more than a `nop`.
#![cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    ptr::NonNull,
};
use stillpoint::Domain;

/// Whether this build has probes.
const HAS_PROBES: bool = cfg!(feature = "usdt");

/// A probe of this program.
#[derive(Debug)]
struct Place {
    name: String,
    /// The address of its instruction.
    at: u64,
    arguments: usize,
}

/// Returns the output of a tool. Returns `None` if the tool is missing, unless `CI` is set.
fn tool(program: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => {
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => panic!("{program}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            assert!(env::var_os("CI").is_none(), "{program} is needed: {error}");
            None
        }
    }
}

fn this_program() -> String {
    let path = env::current_exe().expect("it runs");
    path.to_str().expect("UTF-8").to_owned()
}

/// The probes of the provider `stillpoint`, as `readelf` lists them.
fn places() -> Option<Vec<Place>> {
    let text = tool("readelf", &["--notes", "--wide", &this_program()])?;
    let mut places = Vec::new();
    let (mut is_ours, mut name, mut at) = (false, String::new(), 0);
    for line in text.lines() {
        if let Some((_, provider)) = line.split_once("Provider: ") {
            is_ours = provider == "stillpoint";
        }
        let Some((key, value)) = line.trim().split_once(": ") else {
            continue;
        };
        match key {
            "Name" => name = value.to_owned(),
            "Location" => {
                let number = value.split(',').next().expect("a part");
                at = u64::from_str_radix(number.trim_start_matches("0x"), 16).expect("a number");
            }
            "Arguments" if is_ours => places.push(Place {
                name: name.clone(),
                at,
                arguments: value.split_whitespace().count(),
            }),
            _ => {}
        }
    }
    Some(places)
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/trace")
}

/// The probes and their numbers of arguments, as the table says.
fn documented() -> BTreeMap<String, usize> {
    let text = fs::read_to_string(scripts().join("README.md")).expect("the table");
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let name = cells.next()?.strip_suffix('`')?;
        let arguments = cells.next()?.split(", ").count();
        name.contains('_').then(|| (name.to_owned(), arguments))
    });
    rows.collect()
}

/// So that the linker leaves nothing out.
fn call_all() {
    let domain = Domain::new();
    domain.call(|| ());
    for _ in 0..2_000 {
        // SAFETY: no other thread has ever known the object.
        unsafe { domain.retire(NonNull::from(Box::leak(Box::new(1_u64)))) };
    }
    domain.barrier();
    domain.kvfree_barrier();
    domain.synchronize();
}

#[test]
fn the_probes_are_those_of_the_table() {
    call_all();
    let Some(places) = places() else { return };
    if !HAS_PROBES {
        assert!(places.is_empty(), "without the feature there is nothing");
        return;
    }
    let documented = documented();
    assert!(documented.len() >= 10);
    for place in &places {
        let arguments = documented.get(&place.name).copied();
        assert_eq!(arguments, Some(place.arguments), "{}", place.name);
    }
    for name in documented.keys() {
        assert!(places.iter().any(|place| place.name == *name), "{name}");
    }
}

/// While no tool looks.
#[test]
fn each_probe_is_a_nop() {
    let Some(places) = places() else { return };
    for Place { name, at, .. } in places {
        let range = [
            format!("--start-address={at:#x}"),
            format!("--stop-address={:#x}", at + 4),
        ];
        let arguments = ["-d", &range[0], &range[1], &this_program()];
        let Some(text) = tool("objdump", &arguments) else {
            return;
        };
        let line = text
            .lines()
            .find(|line| line.trim().starts_with(&format!("{at:x}:")))
            .unwrap_or_else(|| panic!("{name}: {text}"));
        assert_eq!(
            line.split('\t').next_back().map(str::trim),
            Some("nop"),
            "{name}: {line}"
        );
    }
}

/// bpftrace compiles each script for this process, in which it finds the probes; it loads nothing.
#[test]
fn bpftrace_takes_the_scripts() {
    if !HAS_PROBES {
        return;
    }
    let scripts = fs::read_dir(scripts()).expect("the folder");
    let scripts = scripts.map(|entry| entry.expect("it is read").path());
    let scripts: Vec<_> = scripts
        .filter(|path| path.extension().is_some_and(|end| end == "bt"))
        .collect();
    assert_eq!(scripts.len(), 3);
    let me = std::process::id().to_string();
    for script in scripts {
        let script = script.to_str().expect("UTF-8");
        // Some of its versions need root for that, too.
        match Command::new("bpftrace")
            .args(["-d", "-p", &me, script])
            .output()
        {
            Ok(output) => {
                let said = [output.stdout, output.stderr].concat();
                let said = String::from_utf8_lossy(&said);
                // Last comes the load, for which the process may lack the right.
                let is_compiled = said.contains("ret i64");
                let needs_root = said.contains("run as root");
                assert!(needs_root || is_compiled, "{script}: {said}");
            }
            Err(error) => {
                assert!(env::var_os("CI").is_none(), "bpftrace is needed: {error}");
                eprintln!("bpftrace is not there, {script} is not compiled: {error}");
            }
        }
    }
}
