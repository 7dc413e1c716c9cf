//! Maps with names in the statistics page, as another process sees them.
//!
//! Every test that publishes is in a process of its own.
#![cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::{
    eventually,
    forking::{fork, is_apart},
    page::{seen, thing},
};
use std::thread;
use stillpoint::{Domain, publish_statistics};
use stillpoint_map::{BTreeMap, CopyMap, HashMap, HashSet};
use stillpoint_platform::stats::{is_published, read::Thing};

const THREADS: u64 = 4;
/// Enough for slabs of several runs, and for counters in many places without a name, too.
const MANY: u64 = 20_000;

fn shown(kind: &str, name: &str) -> Thing {
    thing(&seen(), kind, name).expect("it is in the page")
}

fn entries(kind: &str, name: &str) -> u64 {
    shown(kind, name).number_of("entries")
}

/// The names of all maps in the page.
fn names() -> Vec<String> {
    let is_map = |thing: &&Thing| thing.kind.ends_with("map");
    let page = seen();
    let maps = page.things.iter().filter(is_map);
    maps.map(|thing| thing.name.clone()).collect()
}

/// What the tests do to each map.
trait Map: Sync {
    const KIND: &'static str;
    fn put(&self, key: u64);
    fn remove(&self, key: u64);
    fn len(&self) -> usize;
    /// 0 for a map that has none.
    fn capacity(&self) -> usize;
}

macro_rules! map {
    ($kind:literal, $map:ty, $value:expr, $capacity:expr) => {
        impl Map for $map {
            const KIND: &'static str = $kind;

            fn put(&self, key: u64) {
                self.pin().insert(key, $value);
            }

            fn remove(&self, key: u64) {
                self.pin().remove(&key);
            }

            fn len(&self) -> usize {
                self.len()
            }

            fn capacity(&self) -> usize {
                $capacity(self)
            }
        }
    };
}

map!("map", HashMap<u64, String>, String::new(), |map: &Self| map.pin().capacity());
map!("map", CopyMap<u64, u64>, 1, |map: &Self| map.pin().capacity());
map!("ordered_map", BTreeMap<u64, String>, String::new(), |_| 0);

/// Threads that put keys in at a time, take some out, and put them in again.
fn work(map: &impl Map) {
    thread::scope(|scope| {
        for first in 0..THREADS {
            scope.spawn(move || {
                let keys = || (first..MANY).step_by(THREADS as usize);
                keys().for_each(|key| map.put(key));
                keys().step_by(3).for_each(|key| map.remove(key));
                keys().step_by(9).for_each(|key| map.put(key));
            });
        }
    });
}

#[track_caller]
fn assert_same<M: Map>(name: &str, map: &M) {
    let thing = shown(M::KIND, name);
    assert_eq!(thing.number_of("entries"), map.len() as u64, "{name}");
    if M::KIND == "map" {
        assert_eq!(thing.number_of("capacity"), map.capacity() as u64, "{name}");
    }
}

/// A map that was named before it had entries, one that had some, and one of before the page.
fn is_shown<M: Map>(make: impl Fn() -> M, named: impl Fn(M, &'static str) -> M) {
    let early = named(make(), "early");
    work(&early);
    publish_statistics().expect("the system has memory files");
    assert_same("early", &early);
    work(&early);
    assert_same("early", &early);
    let late = named(make(), "late");
    assert_eq!(entries(M::KIND, "late"), 0);
    (0..5).for_each(|key| late.put(key));
    assert_eq!(entries(M::KIND, "late"), 5, "of a small map, too");
    work(&late);
    assert_same("late", &late);
    let filled = make();
    // In the middle of a move, of those that move.
    (0..MANY).for_each(|key| filled.put(key));
    let filled = named(named(filled, "filled"), "another name");
    assert_same("filled", &filled);
    work(&filled);
    assert_same("filled", &filled);
    let nameless = make();
    work(&nameless);
    assert_eq!(names(), ["early", "late", "filled"]);
    fork(|| {
        assert_same("filled", &filled);
        filled.put(MANY);
        filled.remove(0);
        assert_same("filled", &filled);
    })
    .well();
    assert_same("filled", &filled);
    drop(early);
    assert_eq!(names(), ["late", "filled"]);
    drop((late, filled));
    assert_eq!(names(), [""; 0]);
}

#[test]
fn hash_maps_are_in_the_page_by_name() {
    if is_apart("hash_maps_are_in_the_page_by_name") {
        is_shown(HashMap::new, HashMap::named);
    }
}

#[test]
fn copy_maps_are_in_the_page_by_name() {
    if is_apart("copy_maps_are_in_the_page_by_name") {
        is_shown(CopyMap::new, CopyMap::named);
    }
}

#[test]
fn ordered_maps_are_in_the_page_by_name() {
    if is_apart("ordered_maps_are_in_the_page_by_name") {
        is_shown(BTreeMap::new, BTreeMap::named);
    }
}

#[test]
fn tables_and_slabs_are_shown_as_they_come_and_go() {
    if !is_apart("tables_and_slabs_are_shown_as_they_come_and_go") {
        return;
    }
    publish_statistics().expect("the system has memory files");
    let domain = Domain::new();
    let map = HashMap::new_in(&domain).named("sessions");
    let figure = |name: &str| shown("map", "sessions").number_of(name);
    let table = |capacity: usize| capacity / 4 * 64;
    let small = figure("table_bytes");
    assert_eq!((figure("resizes"), figure("resizing")), (0, 0));
    assert_eq!(figure("slab_bytes"), 0);
    {
        // The service thread's slices wait for the section, so the table is about to move or moves.
        let guard = domain.read_lock();
        let pinned = map.with_guard(&guard);
        let mut moving = 0;
        for key in 0..MANY {
            pinned.insert(key, [key; 4]);
            moving = moving.max(figure("resizing"));
            if moving == 1 && figure("resizing") == 1 && key > 1_000 {
                let both = table(pinned.capacity()) * 3;
                assert!(figure("table_bytes") as usize >= both);
                break;
            }
        }
        assert_eq!(moving, 1);
        for key in 0..MANY {
            pinned.insert(key, [key; 4]);
        }
    }
    eventually(|| figure("resizing") == 0);
    let (large, slabs) = (figure("table_bytes"), figure("slab_bytes"));
    assert!(large > 100 * small && figure("resizes") >= 8);
    let bytes = MANY * 40;
    assert!((bytes / 2..4 * bytes).contains(&slabs), "{slabs}");
    let headers = 4096;
    assert!((table(map.pin().capacity())..).contains(&(large as usize)));
    assert!(large as usize <= table(map.pin().capacity()) + headers);
    let resizes = figure("resizes");
    for key in 0..MANY {
        map.pin().remove(&key);
    }
    eventually(|| {
        domain.kvfree_barrier();
        figure("table_bytes") == small && figure("slab_bytes") < slabs / 2
    });
    assert!(figure("resizes") > resizes && figure("resizing") == 0);
}

/// A callback that is yet to move the table, and entries that are yet to be freed, keep parts of a
/// map, which are not the map.
fn are_dropped(and_then: impl FnOnce()) {
    let domain = Domain::new();
    let guard = domain.read_lock();
    let hashed = HashMap::new_in(&domain).named("hashed");
    let copies = CopyMap::new_in(&domain).named("copies");
    let ordered = BTreeMap::new_in(&domain).named("ordered");
    for key in 0..MANY {
        hashed.with_guard(&guard).insert(key, key);
        copies.with_guard(&guard).insert(key, key);
        ordered.with_guard(&guard).insert(key, key);
    }
    for key in 0..MANY - 10 {
        hashed.with_guard(&guard).remove(&key);
        copies.with_guard(&guard).remove(&key);
        ordered.with_guard(&guard).remove(&key);
    }
    if is_published() {
        assert_eq!(names(), ["hashed", "copies", "ordered"]);
    }
    drop((hashed, copies, ordered));
    and_then();
    assert_eq!(names(), [""; 0]);
    drop(guard);
    domain.kvfree_barrier();
    assert_eq!(names(), [""; 0]);
}

#[test]
fn maps_that_have_been_dropped_are_not_shown() {
    if is_apart("maps_that_have_been_dropped_are_not_shown") {
        publish_statistics().expect("the system has memory files");
        are_dropped(|| ());
    }
}

#[test]
fn maps_that_were_dropped_before_the_page_was_made_are_not_shown() {
    if is_apart("maps_that_were_dropped_before_the_page_was_made_are_not_shown") {
        are_dropped(|| publish_statistics().expect("the system has memory files"));
    }
}

#[test]
fn a_hundred_maps_are_shown() {
    if !is_apart("a_hundred_maps_are_shown") {
        return;
    }
    publish_statistics().expect("the system has memory files");
    let named = |number: u32| HashSet::<u32>::new().named(format!("set {number}"));
    let mut sets: Vec<_> = (0..150).map(named).collect();
    assert_eq!(names().len(), 100);
    assert_eq!(seen().refused, 50);
    assert!(sets.iter().all(|set| set.pin().insert(1)));
    assert_eq!(entries("map", "set 99"), 1);
    assert_eq!(sets[149].len(), 1);
    // What is free is the next one's.
    sets.truncate(99);
    let next = named(150);
    next.pin().insert(7);
    assert_eq!(entries("map", "set 150"), 1);
    assert_eq!(names().len(), 100);
}

/// The page has what fits of a name, whole characters, and a reader shows none that a terminal
/// would obey.
#[test]
fn any_text_may_be_a_name() {
    if !is_apart("any_text_may_be_a_name") {
        return;
    }
    publish_statistics().expect("the system has memory files");
    let named = |name: &str| HashMap::<u32, u32>::new().named(name);
    let _maps = [
        named(""),
        named("\x1b[2J\u{202e}\n\"\\"),
        named(&"é".repeat(200)),
        named(&format!("a{}", "é".repeat(200))),
    ];
    let names = names();
    assert_eq!(names[0], "");
    assert!(names[1].ends_with("\"\\"), "{:?}", names[1]);
    let is_obeyed = |c: char| c.is_control() || c == '\u{202e}';
    assert!(!names[1].contains(is_obeyed), "{:?}", names[1]);
    assert_eq!(names[2], "é".repeat(40));
    assert_eq!(names[3], format!("a{}", "é".repeat(39)));
}

#[test]
fn a_map_may_end_with_its_thread() {
    thread_local! {
        static MAP: HashMap<u64, u64> = HashMap::new().named("of a thread");
    }
    if !is_apart("a_map_may_end_with_its_thread") {
        return;
    }
    publish_statistics().expect("the system has memory files");
    let thread = thread::spawn(|| {
        MAP.with(|map| {
            for key in 0..MANY {
                map.pin().insert(key, key);
            }
            for key in 0..MANY / 2 {
                map.pin().remove(&key);
            }
        });
        names()
    });
    assert_eq!(thread.join().expect("it is well"), ["of a thread"]);
    assert_eq!(names(), [""; 0]);
}
