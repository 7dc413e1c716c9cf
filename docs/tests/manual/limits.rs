//! The figures in the chapter on limits are those in the code: whoever changes one of these constants is led to the chapter.

use crate::{assert_none, book};
use std::fs;

/// What the chapter says, and where the code says so.
const LIMITS: [(&str, &str, &str); 26] = [
    ("65,535 levels", "gp/seq.rs", "const STEP: u64 = 1 << 16;"),
    ("2^40", "gp/seq.rs", "const MAX_LEAD: u64 = 1 << 40;"),
    ("each 31 more", "gp/registry.rs", "const RECORDS_PER_CHUNK: usize = 31;"),
    ("32 a domain", "gp/spares.rs", "const BATCH: usize = if cfg!(stillpoint_loom) { 1 } else { 16 };"),
    ("spins for 2 us", "gp/wait.rs", "const SPIN: Nanos = if cfg!(stillpoint_loom) { 0 } else { 2_000 };"),
    ("spins for 50 us", "gp/wait.rs", "const EXPEDITED_SPIN: Nanos = if cfg!(stillpoint_loom) { 0 } else { 50_000 };"),
    ("20 ms, doubling", "gp/wait.rs", "const FIRST_SLEEP: Nanos = 20_000_000;"),
    ("to 256 ms", "gp/wait.rs", "const LONGEST_SLEEP: Nanos = 256_000_000;"),
    ("10 s by default", "gp/stall.rs", "const DEFAULT_STALL_TIMEOUT: Duration = Duration::from_secs(10);"),
    ("16, those that began first", "gp/stall.rs", "const LISTED_HOLDOUTS: usize = 16;"),
    ("8 MiB by default", "kvfree/heap.rs", "const DEFAULT_BUDGET: usize = 8 << 20;"),
    ("64 KiB at least", "kvfree/heap.rs", "const SMALLEST_SHARE: usize = 64 << 10;"),
    ("1 MiB at most", "kvfree/heap.rs", "const LARGEST_SHARE: usize = 1 << 20;"),
    ("10 ms for each 64 KiB", "kvfree/heap.rs", "const LONGEST_WAIT: Nanos = 10_000_000;"),
    ("one second a call", "kvfree/heap.rs", "const LONGEST_WAIT_PAGES: usize = 100;"),
    ("64 KiB", "kvfree/local.rs", "const OPEN_BYTES: usize = 64 << 10;"),
    ("1,024", "list_lru/ledger.rs", "const MOST_SHRINKERS: usize = UNIT * UNITS;"),
    ("room for 16 at first", "list_lru/hierarchy.rs", "const FIRST_ROOM: usize = 16;"),
    ("2^48 bytes", "list_lru/counter.rs", "const MOST_BYTES: u64 = 1 << 48;"),
    ("2^62 bytes", "list_lru/counter.rs", "const MOST_USAGE: u64 = 1 << 62;"),
    ("charged 16 KiB at a time", "list_lru/stock.rs", "const BATCH: u64 = 16 << 10;"),
    ("a tenth of a second in all", "list_lru/charge.rs", "const PATIENCE: Duration = Duration::from_millis(100);"),
    ("5 attempts", "list_lru/charge.rs", "const ATTEMPTS: u32 = 5;"),
    ("500 us", "list_lru/reclaim.rs", "const SLICE: Duration = Duration::from_micros(500);"),
    ("4 TiB at most", "vmap/builder.rs", "const MOST_BYTES: usize = 1 << 42;"),
    ("256 pages (1 MiB)", "vmap/node.rs", "const CLASSES: u32 = 256;"),
];

fn astray(chapter: &str, code: impl Fn(&str) -> String) -> Vec<String> {
    let wrong = |&(said, file, line): &(&str, &str, &str)| {
        let complaint = match (chapter.contains(said), code(file).contains(line)) {
            (true, true) => return None,
            (false, _) => "limits.md does not say it any more",
            (_, false) => "the code does not say it any more: see to limits.md, and then to this list",
        };
        Some(format!("{said:?} ({file}, `{line}`): {complaint}"))
    };
    LIMITS.iter().filter_map(wrong).collect()
}

#[test]
fn limits_are_those_of_the_code() {
    let chapter = fs::read_to_string(book::root().join("src/limits.md")).expect("it is there");
    let sources = book::repository().join("crates/stillpoint/src");
    assert_none(&astray(&chapter, |file| fs::read_to_string(sources.join(file)).unwrap_or_default()));
}

#[test]
fn a_limit_that_has_changed_is_found() {
    let chapter: String = LIMITS.iter().map(|(said, ..)| format!("{said}\n")).collect();
    let code = |_: &str| LIMITS.iter().map(|(.., line)| format!("{line}\n")).collect::<String>();
    assert_eq!(astray(&chapter, code), [""; 0]);
    assert_eq!(astray(&chapter.replace("2^40", "2^41"), code).len(), 1);
    assert_eq!(astray(&chapter, |file| code(file).replace("from_micros(500)", "from_micros(400)")).len(), 1);
}
