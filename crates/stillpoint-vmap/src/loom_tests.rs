//! Model-checked tests of the page map with grace periods under it.
//!
//! Detects areas published too early or cleared too late, and the page map's orderings weakened.

use super::{
    map::{Map, SLOT_PAGES},
    span::PAGE_BITS,
};
use stillpoint::internal::{GracePeriods, Policy, Sound};
use stillpoint_platform::{
    model::{self as loom, thread},
    sync::{Arc, UnsafeCell},
};

enum NoWait {}
// SAFETY: broken on purpose; the model's memory outlives its readers.
unsafe impl Policy for NoWait {
    const WAITS_FOR_READERS: bool = false;
}

enum NoBarrier {}
// SAFETY: as for `NoWait`.
unsafe impl Policy for NoBarrier {
    const HEAVY_BARRIER: bool = false;
}

/// How the writer publishes an area, or frees it.
#[derive(Clone, Copy, PartialEq)]
enum Broken {
    Nothing,
    /// The area is published first, and its memory made ready afterwards.
    PublishesTooEarly,
    /// It stays in the map until after its cookie.
    ClearsTooLate,
}

struct World<P: Policy> {
    grace_periods: GracePeriods<P>,
    map: Map,
    /// The memory of the one area: loom checks that no thread accesses it while another writes it.
    memory: UnsafeCell<u32>,
}

// SAFETY: loom checks each access to the cell.
unsafe impl<P: Policy> Sync for World<P> {}
// SAFETY: the same.
unsafe impl<P: Policy> Send for World<P> {}

const UNPURGED: u32 = 1;
const PURGED: u32 = 2;

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

/// A reader looks an area of `pages` up, by its last one, and touches its memory, while a writer
/// frees it, drains, and hands the same memory out again.
fn find_while_draining<P: Policy>(pages: u32, broken: Broken) {
    find_page_while_draining::<P>(pages, pages - 1, broken);
}

/// Like the function above, by page `looked_at`.
fn find_page_while_draining<P: Policy>(pages: u32, looked_at: u32, broken: Broken) {
    model(move || {
        let world = Arc::new(World::<P> {
            grace_periods: GracePeriods::new(),
            map: Map::new(2 * SLOT_PAGES).unwrap(),
            memory: UnsafeCell::new(UNPURGED),
        });
        world.map.publish(0, pages, 7);
        let theirs = Arc::clone(&world);
        let reader = thread::spawn(move || {
            let section = theirs.grace_periods.enter(1);
            if let Some(extent) = theirs.map.find((looked_at as usize) << PAGE_BITS) {
                assert_eq!(
                    (extent.start, extent.len),
                    (0, ((pages as usize) << PAGE_BITS) - 7)
                );
                // SAFETY: found in this section.
                theirs
                    .memory
                    .with(|memory| assert_ne!(unsafe { *memory }, 0));
            }
            drop(section);
        });
        let writer = &*world;
        if broken != Broken::ClearsTooLate {
            writer.map.clear(0, pages);
        }
        let cookie = writer.grace_periods.get_state();
        if writer.grace_periods.try_complete(cookie, 2) {
            writer.reuse(pages, broken);
        }
        reader.join().unwrap();
    });
}

impl<P: Policy> World<P> {
    /// The memory is purged and handed out again: the grace period has ended, or the model says so.
    fn reuse(&self, pages: u32, broken: Broken) {
        if broken == Broken::ClearsTooLate {
            self.map.clear(0, pages);
        }
        if broken == Broken::PublishesTooEarly {
            self.map.publish(0, pages, 7);
        }
        // SAFETY: whether it is ours is what loom checks.
        self.memory.with_mut(|memory| unsafe { *memory = PURGED });
        if broken != Broken::PublishesTooEarly {
            self.map.publish(0, pages, 7);
        }
    }
}

/// `publish` with `find`, `find` with `clear` and the purge, for words of pages.
#[test]
fn loom_find_while_draining() {
    find_while_draining::<Sound>(1, Broken::Nothing);
}

/// The same for an area that has words on both levels.
#[test]
fn loom_find_while_draining_large() {
    find_while_draining::<Sound>(SLOT_PAGES + 1, Broken::Nothing);
}

/// The same where the word is a slot's.
#[test]
fn loom_find_while_draining_by_a_slot() {
    find_page_while_draining::<Sound>(SLOT_PAGES + 1, 0, Broken::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_purge_that_does_not_wait_is_caught() {
    find_while_draining::<NoWait>(1, Broken::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_a_purge_without_barrier_is_caught() {
    find_while_draining::<NoBarrier>(1, Broken::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_an_area_published_too_early_is_caught() {
    find_while_draining::<Sound>(1, Broken::PublishesTooEarly);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_an_area_cleared_too_late_is_caught() {
    find_while_draining::<Sound>(1, Broken::ClearsTooLate);
}

/// The count of a slot's words covers what it counts: a walker that knows of an area meets it.
#[test]
fn loom_a_walk_meets_what_it_knows_of() {
    model(|| {
        let map = Arc::new(Map::new(2 * SLOT_PAGES).unwrap());
        let theirs = Arc::clone(&map);
        let other = thread::spawn(move || {
            theirs.publish(1, 1, 0);
            theirs.clear(1, 1);
        });
        map.publish(0, 1, 0);
        assert_eq!(
            map.find_or_next(0, 2 * SLOT_PAGES)
                .map(|extent| extent.start),
            Some(0)
        );
        map.clear(0, 1);
        let _ = map.find_or_next(0, 2 * SLOT_PAGES);
        other.join().unwrap();
        assert!(map.find_or_next(0, 2 * SLOT_PAGES).is_none());
    });
}
