//! The memory of a map that was large, and has a few entries, goes back to the system; the garbage of
//! an ordered map counts against the budget.
//!
//! Detects leaves that do not count against the budget, and slabs that stay when their map ends.
#![cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::Reader;
use std::{
    fs,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};
use stillpoint::{Domain, Weigh, kvfree_barrier};
use stillpoint_map::{BTreeMap, HashMap};

/// Resident memory is the process's.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const MANY: u64 = 500_000;
const FEW: u64 = 10;

/// Resident memory, in bytes, without what the allocator keeps.
fn resident() -> usize {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time.
    unsafe {
        libc::malloc_trim(0)
    };
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn is_staying(key: u64) -> bool {
    key.is_multiple_of(MANY / FEW)
}

/// Waits until that much or less is resident. Returns how long it took.
fn until_resident(most: usize) -> Duration {
    let begun = Instant::now();
    while resident() > most {
        let now = resident() >> 10;
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{now} KiB of {}",
            most >> 10
        );
        thread::sleep(Duration::from_millis(10));
    }
    begun.elapsed()
}

/// What was large.
trait Map<V>: Default + Sync {
    fn insert(&self, key: u64, value: V);
    fn remove(&self, key: u64) -> bool;
    fn has(&self, key: u64) -> bool;
}

macro_rules! map {
    ($($map:ident),*) => {$(
        impl<V: Send + Sync + 'static> Map<V> for $map<u64, V> {
            fn insert(&self, key: u64, value: V) {
                self.pin().insert(key, value);
            }
            fn remove(&self, key: u64) -> bool {
                self.pin().remove(&key).is_some()
            }
            fn has(&self, key: u64) -> bool {
                self.pin().contains_key(&key)
            }
        }
    )*};
}
map!(HashMap, BTreeMap);

/// Nothing uses the map after the last removal. The machine may be busy, so the second that is
/// promised for a quiet one is thirty here.
fn few_of_many_take_little<M: Map<V>, V>(writers: u64, value: fn(u64) -> V) {
    let map = M::default();
    let insert = &|key| map.insert(key, value(key));
    (0..2000).for_each(insert);
    let before = resident();
    thread::scope(|scope| {
        for writer in 0..writers {
            let keys = (writer..MANY).step_by(writers as usize);
            scope.spawn(move || keys.for_each(insert));
        }
    });
    let full = resident();
    assert!(full - before > MANY as usize * 32, "{}", full - before);
    for key in (0..MANY).filter(|key| !is_staying(*key)) {
        assert!(map.remove(key));
    }
    // Survivors far apart keep a run of 32 KiB each; there are pages of the library's lists, and what
    // the allocator has for each thread.
    let most = before + ((5 + writers as usize) << 20);
    let took = until_resident(most);
    println!("{} MiB, {took:?}", full >> 20);
    assert!(
        (0..MANY)
            .filter(|key| is_staying(*key))
            .all(|key| map.has(key))
    );
    // What is dropped full is given back, too.
    (0..MANY).for_each(insert);
    assert!(resident() - before > MANY as usize * 32);
    drop(map);
    until_resident(most);
}

#[test]
fn map_that_was_large_gives_its_memory_back() {
    let _one = ONE_AT_A_TIME.lock().unwrap();
    few_of_many_take_little::<HashMap<_, _>, _>(1, |key| key);
    few_of_many_take_little::<HashMap<_, _>, _>(1, |key| [key; 8]);
    few_of_many_take_little::<HashMap<_, _>, _>(9, |key| key);
}

#[test]
fn ordered_map_that_was_large_gives_its_memory_back() {
    let _one = ONE_AT_A_TIME.lock().unwrap();
    few_of_many_take_little::<BTreeMap<_, _>, _>(1, |key| key);
    few_of_many_take_little::<BTreeMap<_, _>, _>(9, |key| key);
}

/// The address space that the process has taken, in bytes.
fn reserved() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').next().unwrap().parse().unwrap();
    pages * 4096
}

/// A large ordered map has regions of 2 MiB for entries, for leaves and for inner nodes. They go with
/// it, or with what is retired when it ends.
#[test]
fn ordered_maps_that_have_ended_keep_no_regions() {
    const ROUNDS: usize = 30;
    let _one = ONE_AT_A_TIME.lock().unwrap();
    let round = || {
        let map = BTreeMap::new();
        (0..20_000_u64).for_each(|key| _ = map.pin().insert(key, key));
        let taken = reserved();
        drop(map);
        taken
    };
    round();
    kvfree_barrier();
    let before = reserved();
    let most = (0..ROUNDS).map(|_| round()).max().unwrap();
    assert!(most > before, "it has regions");
    kvfree_barrier();
    let taken = reserved().saturating_sub(before);
    assert!(taken < ROUNDS << 20, "{taken} bytes");
}

/// Entries and nodes that an ordered map has given up count against the budget of its domain: beside a
/// reader that stays, the thread that changes the map waits once so much is unreclaimed, and not before.
#[test]
fn garbage_of_an_ordered_map_counts_against_the_budget() {
    const BUDGET: u64 = 256 << 10;
    let domain = Domain::new();
    domain.set_budget(BUDGET as usize);
    domain.set_stall_timeout(Duration::MAX);
    // Else an entry with a destructor would count for a kibibyte, and leaves for little beside it.
    let map = BTreeMap::new_in(&domain).weighing(|_, value| Weigh::heap_bytes(value));
    let reader = Reader::enter(&domain);
    let mut entries = 0;
    while domain.statistics().waits == 0 {
        for _ in 0..100 {
            // Keys of a type that hints tell nothing of, so that they are kept as fences; and entries with
            // destructors, which count towards no quota of the thread.
            map.pin().insert((entries, entries), Box::new(entries));
            map.pin().remove(&(entries, entries));
            entries += 1;
        }
        let pending = domain.statistics().bytes_pending;
        assert!(pending < 2 * BUDGET, "{pending} bytes, and no wait");
    }
    let now = domain.statistics();
    assert!(now.bytes_pending > BUDGET / 2, "{now:?}");
    // Each fourteenth entry has used a leaf up.
    assert!(now.objects_pending > entries + entries / 20, "{now:?}");
    reader.leave();
    domain.kvfree_barrier();
    assert!(domain.statistics().objects_freed >= now.objects_pending);
    assert!(map.pin().iter().next().is_none());
}
