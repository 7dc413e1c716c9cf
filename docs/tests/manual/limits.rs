//! The figures in the chapter on limits are those in the code: a change of one of these
//! constants fails here, which names the chapter.

use crate::{assert_none, book};
use std::fs;

/// What the chapter says in which row, and where the code says so.
const LIMITS: [(&str, &str, &str, &str); 40] = [
    (
        "key spaces that were flushed and that readers may still be in",
        "1 MiB beside what is charged for them",
        "stillpoint-server/src/store/shared.rs",
        "const FLUSHED_MAX: u64 = if cfg!(miri) { 16 << 10 } else { 1 << 20 };",
    ),
    (
        "service thread",
        "for a second",
        "stillpoint/src/gp/policy.rs",
        "const IDLE: u64 = 1_000_000_000;",
    ),
    (
        "nesting of sections of one thread in one domain",
        "65,535 levels",
        "stillpoint/src/gp/seq.rs",
        "const STEP: u64 = 1 << 16;",
    ),
    (
        "grace periods that have started and not ended",
        "2^40",
        "stillpoint/src/gp/seq.rs",
        "const MAX_LEAD: u64 = 1 << 40;",
    ),
    (
        "memory for new records",
        "each 31 more",
        "stillpoint/src/gp/registry.rs",
        "const RECORDS_PER_CHUNK: usize = if IN_MODEL { 2 } else { 31 };",
    ),
    (
        "spare records that a thread keeps for owned guards",
        "32 per domain",
        "stillpoint/src/gp/record_cache.rs",
        "const BATCH: usize = if IN_MODEL { 1 } else { 16 };",
    ),
    (
        "`synchronize`",
        "spins for 2 us",
        "stillpoint/src/gp/engine/wait.rs",
        "const SPIN: Nanos = if IN_MODEL { 0 } else { 2_000 };",
    ),
    (
        "`synchronize_expedited`",
        "spins for 50 us",
        "stillpoint/src/gp/engine/wait.rs",
        "const EXPEDITED_SPIN: Nanos = if IN_MODEL { 0 } else { 50_000 };",
    ),
    (
        "a sleep before the waiter looks by itself",
        "20 ms, doubling",
        "stillpoint/src/gp/engine/wait.rs",
        "const FIRST_SLEEP: Nanos = 20_000_000;",
    ),
    (
        "a sleep before the waiter looks by itself",
        "to 256 ms",
        "stillpoint/src/gp/engine/wait.rs",
        "const LONGEST_SLEEP: Nanos = 256_000_000;",
    ),
    (
        "length of a section",
        "10 s by default",
        "stillpoint/src/gp/engine/stall.rs",
        "const DEFAULT_STALL_TIMEOUT: Duration = Duration::from_secs(10);",
    ),
    (
        "readers listed",
        "16, those that began first",
        "stillpoint/src/gp/engine/stall.rs",
        "const LISTED_HOLDOUTS: usize = 16;",
    ),
    (
        "a report on stderr",
        "4,096 bytes",
        "stillpoint-platform/src/stderr.rs",
        "const LONGEST: usize = 4096;",
    ),
    (
        "budget of a domain",
        "8 MiB by default",
        "stillpoint/src/kvfree/heap.rs",
        "const DEFAULT_BUDGET: usize = 8 << 20;",
    ),
    (
        "quota of a thread",
        "more of its time than the quota is of 768 KiB",
        "stillpoint/src/kvfree/quota.rs",
        "const ALL_TIME: usize = 768 << 10;",
    ),
    (
        "share of a thread",
        "64 KiB at least",
        "stillpoint/src/kvfree/quota.rs",
        "const SMALLEST_QUOTA: usize = 64 << 10;",
    ),
    (
        "share of a thread",
        "1 MiB at most",
        "stillpoint/src/kvfree/throttle.rs",
        "const LARGEST_SHARE: usize = 1 << 20;",
    ),
    (
        "quota of a thread",
        "less than 864 KiB",
        "stillpoint/src/kvfree/quota.rs",
        "const LARGEST_QUOTA: usize = 864 << 10;",
    ),
    (
        "wait of a retire at twice its share, or past the budget",
        "10 ms for each 64 KiB, or part of it",
        "stillpoint/src/kvfree/throttle.rs",
        "const LONGEST_WAIT: Nanos = 10_000_000;",
    ),
    (
        "wait of a retire at twice its share, or past the budget",
        "one second per call",
        "stillpoint/src/kvfree/throttle.rs",
        "const LONGEST_WAIT_PAGES: usize = 100;",
    ),
    (
        "bytes of objects in an open page",
        "64 KiB",
        "stillpoint/src/kvfree/buffer.rs",
        "const OPEN_BYTES: usize = 64 << 10;",
    ),
    (
        "shrinkers of a hierarchy",
        "1,024",
        "stillpoint-lru/src/shrinker_map.rs",
        "const MAX_SHRINKERS: usize = UNIT * UNITS;",
    ),
    (
        "tenants",
        "room for 16 at first",
        "stillpoint-lru/src/memcg/tree.rs",
        "const FIRST_ROOM: usize = 16;",
    ),
    (
        "one charge",
        "2^48 bytes",
        "stillpoint-lru/src/memcg/counter.rs",
        "const MAX_CHARGE: u64 = 1 << 48;",
    ),
    (
        "usage of a subtree",
        "2^62 bytes",
        "stillpoint-lru/src/levels.rs",
        "const MAX_USAGE: u64 = 1 << 62;",
    ),
    (
        "stock of a processor",
        "charged 16 KiB at a time",
        "stillpoint-lru/src/memcg/stock.rs",
        "const BATCH: u64 = 16 << 10;",
    ),
    (
        "time that a charge waits at a max",
        "a tenth of a second in all",
        "stillpoint-lru/src/memcg/charge.rs",
        "const PATIENCE: Duration = Duration::from_millis(100);",
    ),
    (
        "time that a charge waits at a max",
        "5 attempts",
        "stillpoint-lru/src/memcg/charge.rs",
        "const ATTEMPTS: u32 = 5;",
    ),
    (
        "a pass without a break",
        "500 us",
        "stillpoint-lru/src/memcg/resched.rs",
        "const SLICE: Duration = Duration::from_micros(500);",
    ),
    (
        "entries of a table before it grows",
        "4 for each bucket",
        "stillpoint-map/src/load.rs",
        "(1 << bits) * 4",
    ),
    (
        "entries of a table before it grows",
        "of a `CopyMap` 5",
        "stillpoint-map/src/load.rs",
        "(1 << bits) * 5",
    ),
    (
        "entries of a table before it grows",
        "bucket of 7",
        "stillpoint-map/src/word.rs",
        "pub const SLOTS: usize = 7;",
    ),
    (
        "buckets that an insert or a removal moves",
        "16 of the smaller table",
        "stillpoint-map/src/resize.rs",
        "const CHUNK: usize = if cfg!(stillpoint_loom) { 1 } else { 16 };",
    ),
    (
        "inserts and removals of a `HashMap` that move nothing",
        "16,384 for each 2 MiB",
        "stillpoint-map/src/pages.rs",
        "const LET_OFF: u64 = PAGE as u64 / 2;",
    ),
    (
        "inserts and removals of a `HashMap` that move nothing",
        "four times as many",
        "stillpoint-map/src/pages.rs",
        "const LET_OFF_MEANWHILE: u64 = 4 * LET_OFF;",
    ),
    (
        "buckets that the service thread moves at a time",
        "1,024 times",
        "stillpoint-map/src/core.rs",
        "const SLICE: usize = 1024;",
    ),
    (
        "addresses of entries",
        "48 bits",
        "stillpoint-map/src/slot.rs",
        "const ADDRESS_BITS: u32 = 48;",
    ),
    (
        "forks, each in the child of the last",
        "62",
        "stillpoint-map/src/word.rs",
        "generation % 63",
    ),
    (
        "addresses of an arena",
        "4 TiB at most",
        "stillpoint-vmap/src/arena/builder.rs",
        "const MAX_BYTES: usize = 1 << 42;",
    ),
    (
        "sizes that come from pools",
        "256 pages (1 MiB)",
        "stillpoint-vmap/src/node.rs",
        "const CLASSES: u32 = 256;",
    ),
];

fn astray(chapter: &str, code: impl Fn(&str) -> String) -> Vec<String> {
    let says = |row: &str, said: &str| {
        let cells = |line: &'_ str| {
            line.strip_prefix("| ")
                .and_then(|line| line.split_once(" | "))
                .map(|(row, rest)| (row.to_owned(), rest.to_owned()))
        };
        chapter
            .lines()
            .filter_map(cells)
            .any(|(first, rest)| first == row && rest.contains(said))
    };
    let wrong = |&(row, said, file, line): &(&str, &str, &str, &str)| {
        let complaint = match (says(row, said), code(file).contains(line)) {
            (true, true) => return None,
            (false, _) => "limits.md does not say it any more in that row",
            (_, false) => {
                "the code does not say it any more: see to limits.md, and then to this list"
            }
        };
        Some(format!("{row:?}: {said:?} ({file}, `{line}`): {complaint}"))
    };
    LIMITS.iter().filter_map(wrong).collect()
}

#[test]
fn limits_are_those_of_the_code() {
    let chapter = fs::read_to_string(book::root().join("src/limits.md")).expect("it is there");
    let sources = book::repository().join("crates");
    assert_none(&astray(&chapter, |file| {
        fs::read_to_string(sources.join(file)).unwrap_or_default()
    }));
}

#[test]
fn a_limit_that_has_changed_is_found() {
    let chapter: String = LIMITS
        .iter()
        .map(|(row, said, ..)| format!("| {row} | {said} | |\n"))
        .collect();
    let code = |_: &str| {
        LIMITS
            .iter()
            .map(|(.., line)| format!("{line}\n"))
            .collect::<String>()
    };
    assert_eq!(astray(&chapter, code), [""; 0]);
    assert_eq!(astray(&chapter.replace("2^40", "2^41"), code).len(), 1);
    // Said elsewhere is not said: two figures that have changed places.
    let swapped = chapter
        .replace("2^48 bytes", "?")
        .replace("2^62 bytes", "2^48 bytes")
        .replace('?', "2^62 bytes");
    assert_eq!(astray(&swapped, code).len(), 2);
    assert_eq!(
        astray(&chapter, |file| code(file)
            .replace("from_micros(500)", "from_micros(400)"))
        .len(),
        1
    );
}
