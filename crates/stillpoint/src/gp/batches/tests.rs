use super::{
    super::{barrier_mode::BarrierMode, flavour::Flavour, record::Record, seq::Sequence},
    *,
};
use crate::platform::thread;
use std::rc::Rc;

fn batches<T>() -> Batches<T> {
    Batches::new(Engine::new(
        1,
        BarrierMode::Membarrier,
        Sequence::new(Cookie::from_raw(0).seq()),
    ))
}

fn reader<T>(batches: &Batches<T>) -> &Record {
    batches.engine.register(thread::token(), Flavour::Thread)
}

fn due<T>(batches: &Batches<T>, pushed: bool) -> Vec<T> {
    let due = batches.sweep(pushed, false, thread::token());
    assert!(!due.again);
    due.batches.collect()
}

#[test]
fn a_batch_is_given_out_when_the_sections_before_it_are_over() {
    let batches = batches();
    let (first, second) = (reader(&batches), reader(&batches));
    first.lock();
    batches.push("one");
    assert!(batches.is_any_pending());
    second.lock();
    batches.push("two");
    assert!(due(&batches, true).is_empty());
    first.unlock();
    assert_eq!(due(&batches, false), ["one"], "the second came after it");
    second.unlock();
    assert_eq!(due(&batches, false), ["two"]);
    assert!(!batches.is_any_pending());
}

#[test]
fn a_reader_that_leaves_does_not_sweep_while_an_older_section_is_known() {
    let batches = batches();
    let (old, young) = (reader(&batches), reader(&batches));
    old.lock();
    batches.push(1);
    assert!(due(&batches, true).is_empty());
    let barriers = batches.engine.heavy_barriers();
    young.lock();
    batches.push(2);
    young.unlock();
    assert!(due(&batches, false).is_empty());
    assert_eq!(batches.engine.heavy_barriers(), barriers, "no attempt");
    old.unlock();
    let mut all = due(&batches, false);
    all.sort_unstable();
    assert_eq!(all, [1, 2]);
}

#[test]
fn many_that_wait_are_given_out_in_order_and_leave_no_room_behind() {
    let batches = batches();
    let old = reader(&batches);
    old.lock();
    let count = if cfg!(miri) { ROOM as i32 + 6 } else { 5000 };
    for n in 0..count {
        batches.push(n);
        assert!(due(&batches, n % 3 == 0).is_empty());
    }
    old.unlock();
    let mut all = due(&batches, true);
    all.reverse();
    assert_eq!(all, (0..count).collect::<Vec<_>>());
    // SAFETY: no other thread knows it.
    batches
        .list
        .seen
        .with_mut(|seen| assert!(unsafe { &*seen }.capacity() <= ROOM));
}

#[test]
fn all_are_given_out_or_dropped_whatever_is_open() {
    let batches = batches();
    let object = Rc::new(());
    reader(&batches).lock();
    batches.push(Rc::clone(&object));
    assert!(due(&batches, true).is_empty());
    batches.push(Rc::clone(&object));
    // SAFETY: no other thread knows it, and the section uses nothing.
    assert_eq!(unsafe { batches.take_all() }.count(), 2);
    assert!(!batches.is_any_pending());
    batches.push(Rc::clone(&object));
    drop(batches);
    assert_eq!(Rc::strong_count(&object), 1);
}

#[test]
fn in_a_forks_child_what_was_pushed_stays_and_what_was_being_sorted_is_forgotten() {
    let batches = batches();
    let old = reader(&batches);
    old.lock();
    batches.push(1);
    assert!(due(&batches, true).is_empty());
    batches.push(2);
    // SAFETY: as in a child.
    unsafe { batches.reset_in_child() };
    old.unlock();
    assert_eq!(due(&batches, true).len(), 2, "no sweep was under way");

    old.lock();
    batches.push(3);
    assert!(due(&batches, true).is_empty());
    batches.push(4);
    batches.push(5);
    batches.list.requests.store(7, Ordering::Relaxed);
    // SAFETY: as in a child, where the sweeper has vanished.
    unsafe { batches.reset_in_child() };
    old.unlock();
    let mut all = due(&batches, false);
    all.sort_unstable();
    assert_eq!(all, [4, 5]);
    assert!(!batches.is_any_pending());
}
