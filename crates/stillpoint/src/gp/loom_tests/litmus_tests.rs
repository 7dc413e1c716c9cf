//! The Linux kernel's litmus tests of RCU, in our words: what readers and grace periods
//! order, and what they do not.
//!
//! Each shape is a few threads with plain (relaxed) accesses and an outcome. Where the outcome is
//! forbidden no schedule may show it, and with the machinery broken, or without the grace period,
//! some schedule must; where it is allowed some schedule must show it, or the model is stronger
//! than the promise, and the forbidden ones prove nothing.
//!
//! The law behind them (kernel: `tools/memory-model`): a cycle of accesses through read-side
//! critical sections and grace periods is forbidden if it has at least as many grace periods as
//! sections, and allowed if it has fewer.
//!
//! Each forbidden outcome is seen with a broken variant, each allowed one with the sound one.

use super::{NoHeavyBarrier, NoWait, model_with};
use crate::gp::{
    engine::{Engine, Progress},
    flavour::Flavour,
    policy::{Policy, Sound},
};
use crate::platform::{
    sync::{Arc, AtomicUsize, Ordering},
    thread::Token,
};
use loom::thread;
use std::sync::atomic::{AtomicBool as Flag, Ordering::SeqCst};

/// What a thread of a cycle does between its write and its read.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Role {
    /// Both are in a section.
    Section,
    /// A grace period is between them.
    GracePeriod,
}
use Role::{GracePeriod, Section};

/// Shared words, and the engine that orders the accesses to them.
struct World<P> {
    engine: Engine<P>,
    words: Vec<AtomicUsize>,
}

impl<P: Policy> World<P> {
    fn new(words: impl IntoIterator<Item = usize>) -> Arc<Self> {
        Arc::new(Self {
            engine: Engine::for_test(),
            words: words.into_iter().map(AtomicUsize::new).collect(),
        })
    }

    fn read(&self, word: usize) -> usize {
        self.words[word].load(Ordering::Relaxed)
    }

    fn write(&self, word: usize, value: usize) {
        self.words[word].store(value, Ordering::Relaxed);
    }

    fn in_section<R>(&self, number: usize, work: impl FnOnce() -> R) -> R {
        let record = self
            .engine
            .register(Token::for_model(number as u64 + 1), Flavour::Thread);
        record.lock();
        let result = work();
        record.unlock();
        result
    }

    /// Returns whether a grace period has ended between the call and its return. If not, the
    /// schedule is one that the shape is not about.
    fn grace_period(&self) -> bool {
        let cookie = self.engine.start();
        self.engine.try_complete(cookie, Token::for_model(1000)) == Progress::Ended
    }
}

/// Runs all schedules of `test`. Returns whether it returned true in one of them.
pub(super) fn observed(
    preemptions: usize,
    test: impl Fn() -> bool + Sync + Send + 'static,
) -> bool {
    let seen = std::sync::Arc::new(Flag::new(false));
    let tell = std::sync::Arc::clone(&seen);
    model_with(preemptions, move || {
        if test() {
            tell.store(true, SeqCst);
        }
    });
    seen.load(SeqCst)
}

/// Asserts that the sound variant never shows the outcome and that each broken variant does.
#[track_caller]
fn assert_forbidden(sound: bool, broken: &[bool]) {
    assert!(!sound, "the sound variant shows the outcome");
    assert!(!broken.is_empty(), "no broken variant is checked");
    assert!(
        !broken.contains(&false),
        "a broken variant does not show the outcome: {broken:?}"
    );
}

/// Runs one thread for each role, which writes its own word and reads the next thread's. Returns
/// whether all of them can read the old values.
fn cycle<P: Policy>(roles: &'static [Role], preemptions: usize) -> bool {
    observed(preemptions, move || {
        let world = World::<P>::new(roles.iter().map(|_| 0));
        let play = move |world: &World<P>, number: usize| {
            let next = (number + 1) % roles.len();
            match roles[number] {
                Section => world.in_section(number, || {
                    world.write(number, 1);
                    world.read(next) == 0
                }),
                GracePeriod => {
                    world.write(number, 1);
                    world.grace_period() && world.read(next) == 0
                }
            }
        };
        let others: Vec<_> = (1..roles.len())
            .map(|number| {
                let world = Arc::clone(&world);
                thread::spawn(move || play(&world, number))
            })
            .collect();
        let first = play(&world, 0);
        // All are joined, whatever the first ones say.
        others
            .into_iter()
            .map(|other| other.join().unwrap())
            .fold(first, |all, one| all & one)
    })
}

/// One section and one grace period: the kernel's RCU+sync+read, with a write and a read on each
/// side.
#[test]
fn loom_litmus_one_section_one_grace_period() {
    assert_forbidden(
        cycle::<Sound>(&[Section, GracePeriod], 3),
        &[
            cycle::<NoWait>(&[Section, GracePeriod], 3),
            cycle::<NoHeavyBarrier>(&[Section, GracePeriod], 3),
        ],
    );
}

/// More grace periods than sections.
#[test]
fn loom_litmus_one_section_two_grace_periods() {
    assert_forbidden(
        cycle::<Sound>(&[Section, GracePeriod, GracePeriod], 2),
        &[cycle::<NoWait>(&[Section, GracePeriod, GracePeriod], 2)],
    );
}

/// As many grace periods as sections: two of each.
#[test]
fn loom_litmus_two_sections_two_grace_periods() {
    assert_forbidden(
        cycle::<Sound>(&[Section, GracePeriod, Section, GracePeriod], 2),
        &[cycle::<NoWait>(
            &[Section, GracePeriod, Section, GracePeriod],
            2,
        )],
    );
}

/// No grace period: sections order nothing among themselves.
#[test]
fn loom_litmus_sections_alone_order_nothing() {
    assert!(cycle::<Sound>(&[Section, Section], 3));
}

/// Fewer grace periods than sections: one grace period cannot order two sections if one ends after
/// the grace period has begun, and the other begins then.
#[test]
fn loom_litmus_two_sections_one_grace_period() {
    assert!(cycle::<Sound>(&[Section, GracePeriod, Section], 3));
}

/// RCU+sync+read: a section that misses what was written before a grace period misses what was
/// written after it.
fn sync_and_read<P: Policy>() -> bool {
    observed(3, || {
        let world = World::<P>::new([0, 0]);
        let theirs = Arc::clone(&world);
        let reader =
            thread::spawn(move || theirs.in_section(0, || (theirs.read(0), theirs.read(1))));
        world.write(0, 1);
        if world.grace_period() {
            world.write(1, 1);
        }
        reader.join().unwrap() == (0, 1)
    })
}

#[test]
fn loom_litmus_sync_and_read() {
    assert_forbidden(
        sync_and_read::<Sound>(),
        &[sync_and_read::<NoWait>(), sync_and_read::<NoHeavyBarrier>()],
    );
}

/// RCU+sync+free: a section that finds an old object does not find it freed.
fn sync_and_free<P: Policy>() -> bool {
    const POINTER: usize = 0;
    const OLD: usize = 1;
    const NEW: usize = 2;
    const ALIVE: usize = 1;
    const FREED: usize = 0;
    observed(3, || {
        let world = World::<P>::new([OLD, ALIVE, ALIVE]);
        let theirs = Arc::clone(&world);
        let reader = thread::spawn(move || {
            theirs.in_section(0, || {
                let found = theirs.words[POINTER].load(Ordering::Acquire);
                (found, theirs.read(found))
            })
        });
        world.words[POINTER].store(NEW, Ordering::Release);
        if world.grace_period() {
            world.write(OLD, FREED);
        }
        reader.join().unwrap() == (OLD, FREED)
    })
}

#[test]
fn loom_litmus_sync_and_free() {
    assert_forbidden(
        sync_and_free::<Sound>(),
        &[sync_and_free::<NoWait>(), sync_and_free::<NoHeavyBarrier>()],
    );
}

/// MP+onceassign+derefonce: a section that finds a new object finds it initialised. The pair is the
/// pointer's release and acquire; there is no grace period, and a section does not stand in for
/// them.
fn assign_and_dereference(publish: Ordering) -> bool {
    const POINTER: usize = 0;
    const OBJECT: usize = 1;
    observed(3, move || {
        let world = World::<Sound>::new([0, 0]);
        let theirs = Arc::clone(&world);
        let reader = thread::spawn(move || {
            theirs.in_section(0, || {
                let found = theirs.words[POINTER].load(Ordering::Acquire);
                found == OBJECT && theirs.read(found) == 0
            })
        });
        world.write(OBJECT, 1);
        world.words[POINTER].store(OBJECT, publish);
        reader.join().unwrap()
    })
}

#[test]
fn loom_litmus_assign_and_dereference() {
    let broken = assign_and_dereference(Ordering::Relaxed);
    assert_forbidden(assign_and_dereference(Ordering::Release), &[broken]);
}
