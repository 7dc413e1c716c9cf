//! Clippy warns of each type in the chapter's list for `clippy.toml`, and of nothing that tasks may hold.

use crate::{
    book::chapters,
    dependents::{Dependent, path},
};
use std::{env, process::Command};

/// One function per type, and one that holds what tasks may hold.
const PROGRAM: &str = r#"//! Held across an await.
#![allow(missing_docs)]
use std::future::ready;
use stillpoint::{Domain, Rcu, tasks_trace};
use stillpoint_cache::Cache;
use stillpoint_map::HashMap;

pub async fn guard() {
    let _held = stillpoint::read_lock();
    ready(()).await;
}
pub async fn static_guard(domain: &Domain) {
    let _held = domain.read_lock_static();
    ready(()).await;
}
pub async fn qsbr_reader(domain: &Domain) {
    let _held = domain.qsbr_reader();
    ready(()).await;
}
pub async fn trace_guard() {
    let _held = tasks_trace::read_lock();
    ready(()).await;
}
pub async fn map_guard(map: &HashMap<u32, u32>) -> bool {
    let pinned = map.pin();
    ready(()).await;
    pinned.contains_key(&1)
}
pub async fn cache_ref(cache: &Cache<u32, u32>) -> u32 {
    let entry = cache.get_ref(&1).expect("it is there");
    ready(()).await;
    *entry
}
pub async fn owned(map: &HashMap<u32, u32>, cell: &Rcu<u32>) -> bool {
    let (guard, pinned) = (tasks_trace::read_lock_owned(), map.pin_owned());
    let snapshot = cell.load_owned(tasks_trace::read_lock_owned());
    ready(()).await;
    pinned.contains_key(&*snapshot) && cell.load(&guard) == &1
}
"#;

/// The types of [`PROGRAM`], sorted.
const TYPES: [&str; 6] = [
    "stillpoint::Guard",
    "stillpoint::QsbrReader",
    "stillpoint::StaticGuard",
    "stillpoint::tasks_trace::Guard",
    "stillpoint_cache::Ref",
    "stillpoint_map::MapGuard",
];

#[test]
fn clippy_finds_each_type_of_the_list() {
    let clippy = Command::new(env!("CARGO"))
        .args(["clippy", "--version"])
        .output();
    if env::var_os("CI").is_none() && !clippy.is_ok_and(|output| output.status.success()) {
        return eprintln!("not checked: clippy is missing (rustup component add clippy)");
    }
    let pages = chapters();
    let mut blocks = pages.iter().flat_map(|page| &page.blocks);
    let list = blocks.find(|block| block.code.starts_with("await-holding-invalid-types"));
    let packages = ["stillpoint", "stillpoint-cache", "stillpoint-map"].map(path);
    let dependent = Dependent::new("awaits", &packages.concat());
    dependent.write("clippy.toml", &list.expect("the manual has it").code);
    dependent.write("src/lib.rs", PROGRAM);
    dependent.locked();
    let said = dependent.cargo(&["clippy", "--locked"]);

    let is_of_list = |line: &&str| line.contains("across an await point");
    let warnings = said.lines().filter(is_of_list);
    let mut found: Vec<_> = warnings.filter_map(|line| line.split('`').nth(1)).collect();
    found.sort_unstable();
    assert_eq!(found, TYPES, "{said}");
}
