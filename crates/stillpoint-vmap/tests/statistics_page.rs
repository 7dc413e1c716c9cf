//! Arenas in the statistics page, as another process sees them.
//!
//! Every test that publishes is in a process of its own.
#![cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::{
    forking::{fork, is_apart},
    page::{seen, thing},
};
use std::{sync::mpsc, thread};
use stillpoint::publish_statistics;
use stillpoint_platform::stats::read::Thing;
use stillpoint_vmap::{Area, Arena};

fn shown(name: &str) -> Thing {
    thing(&seen(), "arena", name).expect("it is in the page")
}

/// That the page has the arena's statistics.
#[track_caller]
fn assert_same(name: &str, arena: &Arena) {
    let (thing, statistics) = (shown(name), arena.statistics());
    for (field, expected) in [
        ("live_bytes", statistics.live_bytes),
        ("areas", statistics.areas),
        ("allocations", statistics.allocated),
        ("lazy_bytes", statistics.lazy_bytes),
        ("capacity_bytes", statistics.capacity_bytes),
        ("purges", statistics.drains),
        ("purged_bytes", statistics.drained_bytes),
        ("failed_purges", statistics.failed_drains),
    ] {
        assert_eq!(thing.number_of(field), expected, "{field} of {name}");
    }
}

/// Areas of pools and without, each freed on another thread than it was allocated on; some stay.
fn work(arena: &Arena) -> Vec<Area> {
    let (give, take) = mpsc::channel::<Area>();
    let freer = thread::spawn(move || take.into_iter().for_each(drop));
    let theirs = arena.clone();
    let allocator = thread::spawn(move || {
        let mut kept = Vec::new();
        for round in 0..3000_usize {
            let size = if round % 500 == 0 {
                3 << 20
            } else {
                1 + (round % 7) * 5000
            };
            let area = theirs.alloc(size, 1).expect("there is memory");
            match round % 100 {
                0 => kept.push(area),
                _ => give.send(area).expect("the other thread is there"),
            }
        }
        kept
    });
    let kept = allocator.join().expect("it does not panic");
    freer.join().expect("it does not panic");
    kept
}

#[test]
fn arenas_are_in_the_page_while_they_exist() {
    if !is_apart("arenas_are_in_the_page_while_they_exist") {
        return;
    }
    let build = |name: &str| {
        let builder = Arena::builder().capacity(1 << 30).lazy_limit(8 << 20);
        builder.name(name).build().expect("there are addresses")
    };
    let early = build("early");
    let kept = work(&early);
    publish_statistics().expect("the system has memory files");
    assert_same("early", &early);
    let more = work(&early);
    assert_same("early", &early);
    let thing = shown("early");
    assert!(
        thing.number_of("purges") > 0 && thing.number_of("areas") == 60,
        "{thing:?}"
    );
    // Batches that a reader holds up.
    let guard = early.read_lock();
    let areas: Vec<_> = (0..8).map(|_| early.alloc(1 << 20, 1)).collect();
    assert!(areas.iter().all(Result::is_ok));
    drop(areas);
    assert!(shown("early").number_of("lazy_bytes") >= 8 << 20);
    assert_same("early", &early);
    drop(guard);
    drop(kept);
    early.drain().expect("there is no section");
    assert_same("early", &early);
    assert_eq!(shown("early").number_of("lazy_bytes"), 0);

    let late = build("late");
    drop(work(&late));
    assert_same("late", &late);
    let nameless = Arena::builder().capacity(1 << 30).build();
    let is_arena = |thing: &&Thing| thing.kind == "arena";
    let names = || {
        let page = seen();
        let arenas = page.things.iter().filter(is_arena);
        arenas.map(|thing| thing.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(), ["early", "late", "arena 3"]);
    drop(nameless);
    // Its areas keep it.
    drop(early);
    assert_eq!(shown("early").number_of("areas"), 30);
    drop(more);
    assert_eq!(names(), ["late"]);
}

#[test]
fn the_child_of_a_fork_shows_its_own() {
    if !is_apart("the_child_of_a_fork_shows_its_own") {
        return;
    }
    publish_statistics().expect("the system has memory files");
    let builder = Arena::builder().capacity(1 << 30).name("both");
    let arena = builder.build().expect("there are addresses");
    let kept = work(&arena);
    fork(|| {
        assert_same("both", &arena);
        let more = work(&arena);
        assert_same("both", &arena);
        drop(more);
        assert_same("both", &arena);
    })
    .well();
    assert_same("both", &arena);
    drop(kept);
    assert_same("both", &arena);
}
