//! Tests of arenas alone.

use super::{
    Arena, DELETED, OwnedArena, STEPS, TURNED_AWAY, UsedSlot,
    list::{KEPT, List},
    region::{Owned, RUN, RUNS},
};
use std::{alloc::Layout, collections::HashSet, ptr::NonNull, sync::Barrier, thread};
use stillpoint_platform::sync::Ordering;

/// An arena, which the test closes with this.
struct Ours(OwnedArena);

/// A slot that is another thread's from now on.
struct Sent(NonNull<u8>);

// SAFETY: slots are no thread's own.
unsafe impl Send for Sent {}

impl Sent {
    fn free(self) {
        free(self.0);
    }
}

const LAYOUT: Layout = Layout::new::<[u64; 3]>();

impl Ours {
    fn new() -> Self {
        Self(Arena::for_entries(LAYOUT, 0).expect("memory"))
    }

    fn arena(&self) -> &Arena {
        // SAFETY: it is closed with this.
        unsafe { self.0.0.as_ref() }
    }

    /// A slot, all of which is written.
    fn allocate(&self) -> NonNull<u8> {
        let slot = self.arena().allocate().expect("memory");
        // SAFETY: the slot is this thread's, and so large.
        unsafe { slot.write_bytes(0xa5, LAYOUT.size()) };
        slot
    }

    /// All runs, those without entries, and those of these that have memory.
    fn runs(&self) -> (usize, usize, usize) {
        let look = |list: &mut List| list.runs();
        // SAFETY: it is closed after this.
        unsafe { Arena::with_list(self.0.0, look) }.expect("no fork")
    }
}

fn free(slot: NonNull<u8>) {
    // SAFETY: allocated by the test, which does not use it any more.
    unsafe { UsedSlot::of(slot) }.free();
}

const SLOTS_OF_A_RUN: usize = RUN / LAYOUT.size();
/// More than three regions.
const MANY: usize = SLOTS_OF_A_RUN * RUNS * 7 / 2;

#[test]
fn slots_are_apart_and_are_used_again() {
    let ours = Ours::new();
    let mut slots: Vec<_> = (0..MANY).map(|_| ours.allocate()).collect();
    let runs = ours.runs().0;
    assert_eq!(runs, 4 * RUNS);
    for round in 0..3 {
        let mut all: Vec<_> = slots.iter().map(|slot| slot.addr().get()).collect();
        all.sort_unstable();
        assert!(all.windows(2).all(|two| two[0] + LAYOUT.size() <= two[1]));
        // Each third goes, and comes again.
        slots.iter().skip(round).step_by(3).copied().for_each(free);
        for slot in slots.iter_mut().skip(round).step_by(3) {
            *slot = ours.allocate();
        }
        assert_eq!(ours.runs().0, runs, "freed slots are used first");
    }
    slots.into_iter().for_each(free);
}

#[test]
fn what_few_slots_leave_is_given_back() {
    let ours = Ours::new();
    let mut slots: Vec<_> = (0..MANY).map(|_| ours.allocate()).collect();
    // Far apart.
    let staying: Vec<_> = (0..4).map(|which| slots[which * MANY / 4]).collect();
    slots.retain(|slot| !staying.contains(slot));
    slots.into_iter().for_each(free);
    let (runs, empty, unused) = ours.runs();
    assert!(runs - empty <= staying.len(), "{runs} {empty}");
    assert!(unused <= KEPT, "{unused}");
    staying.into_iter().for_each(free);
    let (runs, empty, unused) = ours.runs();
    assert!(runs <= KEPT * RUNS && runs == empty && unused <= KEPT);
    // What was given back is as good as new.
    (0..MANY)
        .map(|_| ours.allocate())
        .collect::<Vec<_>>()
        .into_iter()
        .for_each(free);
}

/// Runs that stripes have are given up with their last slots, whichever thread frees those.
#[test]
fn stripes_hold_no_empty_runs() {
    let ours = &Ours::new();
    // Other threads may have the stripes.
    let allocate_one = || loop {
        match ours.arena().allocate() {
            Some(slot) => break Sent(slot),
            None => thread::yield_now(),
        }
    };
    for few in [1, 2, SLOTS_OF_A_RUN / 2, 2 * SLOTS_OF_A_RUN] {
        for _ in 0..if cfg!(miri) { 2 } else { 8 } {
            let allocate = || (0..few).map(|_| allocate_one()).collect::<Vec<_>>();
            let slots: Vec<_> = thread::scope(|scope| {
                let threads = [(); if cfg!(miri) { 2 } else { 8 }].map(|()| scope.spawn(allocate));
                threads
                    .into_iter()
                    .flat_map(|thread| thread.join().unwrap())
                    .collect()
            });
            slots.into_iter().for_each(Sent::free);
            let (runs, empty, unused) = ours.runs();
            assert!(runs == empty && unused <= KEPT, "{runs} {empty} {unused}");
        }
    }
}

/// However many regions there are, a request finds one that has a run.
#[test]
fn requests_take_few_steps() {
    let layout = Layout::new::<[u64; 64]>();
    let ours = Ours(Arena::for_entries(layout, 0).expect("memory"));
    let (of_a_run, regions) = (RUN / layout.size(), 30);
    let mut slots: Vec<_> = (0..regions * RUNS * of_a_run)
        .map(|_| ours.allocate())
        .collect();
    STEPS.set(0);
    // A run's slots, more or less, in each third region.
    for which in 0..regions / 3 {
        let first = which * 3 * RUNS * of_a_run + of_a_run;
        slots[first..][..of_a_run].iter().copied().for_each(free);
        for slot in &mut slots[first..][..of_a_run] {
            *slot = ours.allocate();
        }
    }
    assert!(STEPS.get() <= 2 * regions, "{}", STEPS.get());
    slots.into_iter().for_each(free);
}

/// One thread at a time makes a region. The others share what there is.
#[test]
fn one_thread_makes_a_region() {
    let ours = Ours::new();
    let arena = ours.arena();
    let slot = ours.allocate();
    let shared = arena.take_from_any().expect("the run has more slots");
    let mut slots = vec![slot, shared];
    let mut made = 0;
    while made == 0 {
        let mut others = Vec::new();
        let make = |_| {
            others.extend(arena.claim_or(1, |_| panic!("there is one under way")));
            made += 1;
            None
        };
        let claimed = arena.claim_or(0, make);
        for run in claimed.into_iter().chain(others) {
            // No stripe has it.
            let mut run = Some(run);
            slots.extend(std::iter::from_fn(|| Owned::pop_or_give_up(&mut run)));
            assert!(run.is_none());
        }
    }
    assert_eq!(made, 1);
    slots.into_iter().for_each(free);
}

#[test]
fn empty_arena_goes_with_the_map() {
    DELETED.set((0, 0));
    let ours = Ours::new();
    let slots: Vec<_> = (0..2 * SLOTS_OF_A_RUN).map(|_| ours.allocate()).collect();
    slots.into_iter().for_each(free);
    assert_eq!(DELETED.get(), (0, 0));
    drop(ours);
    assert_eq!(DELETED.get(), (1, 1));
}

#[test]
fn slots_may_outlive_the_map() {
    DELETED.set((0, 0));
    let ours = Ours::new();
    let mut slots: Vec<_> = (0..2 * SLOTS_OF_A_RUN).map(|_| ours.allocate()).collect();
    slots.drain(..SLOTS_OF_A_RUN).for_each(free);
    drop(ours);
    let last = slots.pop().expect("one run of two");
    slots.into_iter().for_each(free);
    assert_eq!(DELETED.get(), (0, 0), "the last slot is in use");
    free(last);
    assert_eq!(DELETED.get(), (1, 1));
}

/// As in the child of a fork, while another thread of the parent had the lock: what is there can be
/// used and freed, and nothing waits for that thread.
#[test]
fn lock_of_a_vanished_thread_is_not_waited_for() {
    let ours = Ours::new();
    let mut slots = vec![ours.allocate()];
    ours.arena().lock.store(u64::MAX, Ordering::Relaxed);
    slots.extend(std::iter::from_fn(|| ours.arena().allocate()));
    assert!(slots.len() <= SLOTS_OF_A_RUN);
    slots.drain(1..).for_each(free);
    assert_eq!(ours.arena().allocate(), None, "entries are boxes then");
    ours.arena().lock.store(0, Ordering::Relaxed);
    slots.push(ours.allocate());
    slots.into_iter().for_each(free);
}

/// A system without memory is not asked for each entry.
#[test]
fn refusal_is_remembered_for_a_while() {
    let ours = Ours::new();
    let mut asked = 0;
    for _ in 0..2 * (TURNED_AWAY + 1) {
        let refuse = |_| {
            asked += 1;
            None
        };
        assert!(ours.arena().claim_or(0, refuse).is_none());
    }
    assert_eq!(asked, 2);
    let tries = (0..=TURNED_AWAY).find_map(|_| ours.arena().allocate());
    free(tries.expect("it is asked again"));
}

#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn run_is_whole_pages() {
    assert!(RUN.is_multiple_of(stillpoint_platform::mmap::page_size()));
}

#[test]
fn entries_that_are_too_large_get_none() {
    assert!(Arena::for_entries(Layout::new::<[u64; 65]>(), 0).is_none());
    assert!(Arena::for_entries(Layout::from_size_align(128, 128).unwrap(), 0).is_none());
    for size in [8, 24, 40, 512] {
        let layout = Layout::from_size_align(size, 8).unwrap();
        let ours = Ours(Arena::for_entries(layout, 0).expect("memory"));
        let slots: HashSet<_> = (0..100).map(|_| ours.arena().allocate()).collect();
        assert_eq!(slots.len(), 100);
        slots.into_iter().flatten().for_each(free);
    }
}

/// The thread that frees the last slot but one, and the one that closes the arena, may still be on
/// their way out of it while another deletes it. Miri sees what they hold meanwhile.
#[test]
fn last_slots_and_the_end_race() {
    for _ in 0..if cfg!(miri) { 40 } else { 2000 } {
        let ours = Ours::new();
        let [one, other] = [(); 2].map(|()| Sent(ours.allocate()));
        let begin = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                begin.wait();
                other.free();
            });
            drop(ours);
            begin.wait();
            one.free();
        });
    }
}

/// Slots that other threads free than those that allocate them.
#[test]
fn threads_free_each_others_slots() {
    let (threads, rounds) = if cfg!(miri) { (2, 3) } else { (4, 200) };
    let ours = &Ours::new();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..threads)
        .map(|_| std::sync::mpsc::channel::<Vec<Sent>>())
        .unzip();
    thread::scope(|scope| {
        for (number, receiver) in receivers.into_iter().enumerate() {
            let next = senders[(number + 1) % threads].clone();
            scope.spawn(move || {
                for _ in 0..rounds {
                    let slots = (0..SLOTS_OF_A_RUN).filter_map(|_| ours.arena().allocate());
                    let mark = |slot: NonNull<u8>| {
                        let number = number as u64 + 1;
                        // SAFETY: the slot is this thread's.
                        unsafe { slot.cast::<[u64; 3]>().write([number; 3]) };
                        Sent(slot)
                    };
                    let _ = next.send(slots.map(mark).collect());
                    for Sent(slot) in receiver.recv().into_iter().flatten() {
                        // SAFETY: the sender's, given up.
                        let number = unsafe { slot.cast::<[u64; 3]>().read() };
                        assert!(number[0] > 0 && number.iter().all(|one| *one == number[0]));
                        free(slot);
                    }
                }
            });
        }
    });
}
