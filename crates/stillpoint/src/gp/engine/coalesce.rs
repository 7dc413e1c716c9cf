//! Coalescing heavy barriers: of the threads that wait at the same time, one leads and the others
//! follow.
//!
//! A membarrier interrupts every running thread of the process, and the kernel runs one at a time.
//! So a waiter that finds another thread's barrier under way, too early for its own grace period,
//! gains nothing by issuing a second one. It sleeps, which also leaves one thread less to
//! interrupt, and the next barrier serves all waiters that have come meanwhile. No waiter waits in
//! order to be coalesced: the first that finds no leader leads at once. liburcu's queue of waiters,
//! whose first does the work for all, is the prior art.
//!
//! ```text
//!   generation = 2k        no leader; barrier k is next
//!   generation = 2k + 1    barrier k has a leader
//!
//!   leader     generation: 2k -> 2k + 1; W2 to W4; generation = 2k + 2; W5; wake all followers of k, and one of those of k + 1
//!   follower   g = generation; if even: lead; announce (E1, E2) for k + 1, or k if that began after the follower had come;
//!              if generation != g: again; sleep
//! ```
//!
//! The generation is a hint: a follower relies on `fenced` and `completed` alone; the generation
//! tells it whether and where it may sleep. The leader's last store to it and its signal (E5)
//! against the follower's announcement (E1, E2) and last load are the event count's pair
//! (`stillpoint-platform/src/event.rs`): a follower sees that the generation is over, or is seen
//! asleep. The follower that is woken for the next generation leads it. If it no longer needs a
//! barrier and there is no leader, it wakes another follower, so no sleeper is left without a
//! leader. Proved by `loom_followers_are_not_left_asleep`. A follower waits for a bounded time,
//! because the leader may have lost its processor. After that it issues its own barrier, outside of
//! the generations, as a poll does, which never waits. A thread that retires never follows: it
//! leads, or goes on ([`Engine::assist`]).

use super::{Engine, Progress, Role};
use crate::{
    gp::{policy::Policy, seq::Cookie},
    platform::{
        clock::{self, Nanos},
        event::EventCount,
        sync::Ordering,
        thread::Token,
    },
};

/// How long a follower waits for other threads' barriers, in nanoseconds. A barrier takes some tens
/// of microseconds; after this time the leader must have lost its processor, and each follower
/// issues its own.
const LONGEST_FOLLOW: Nanos = 5_000_000;

fn is_led(generation: u64) -> bool {
    generation % 2 == 1
}

impl<P: Policy> Engine<P> {
    /// Makes one attempt to end the grace period, coalesced with those of other waiters.
    pub(super) fn complete_coalesced(&self, cookie: Cookie, me: Token) -> Progress {
        // Acquire, pairs with `lead`: a thread that sees a generation over sees what its leader has
        // fenced.
        let generation = self.hot.barriers.generation.load(Ordering::Acquire);
        if self.is_fenced(cookie) || !self.barriers_are_dear() {
            self.try_complete(cookie, me)
        } else if !is_led(generation) && self.try_lead(generation) {
            self.lead(cookie, me, generation + 1)
        } else {
            self.follow(cookie, me)
        }
    }

    /// Makes one attempt to end `oldest`, for a thread that does not wait. If that takes a barrier, it
    /// covers all cookies up to `youngest`. If another thread's barrier is under way, this issues none
    /// unless the caller `insists`, because the kernel runs one barrier at a time.
    pub(crate) fn assist(
        &self,
        oldest: Cookie,
        youngest: Cookie,
        me: Token,
        insists: bool,
    ) -> Progress {
        if self.has_ended(oldest) || self.is_fenced(oldest) {
            return self.recheck(oldest, me);
        }
        // Acquire, pairs with `lead`: a thread that sees a generation over sees what its leader has
        // fenced.
        let generation = self.hot.barriers.generation.load(Ordering::Acquire);
        if self.barriers_are_dear() && !is_led(generation) && self.try_lead(generation) {
            self.begin(youngest);
            self.lead(oldest, me, generation + 1)
        } else if insists || !self.barriers_are_dear() {
            self.begin(youngest);
            self.try_complete(oldest, me)
        } else {
            Progress::HeldUp
        }
    }

    /// Returns true if the caller now leads the barrier of `generation`, which had no leader a
    /// moment ago.
    fn try_lead(&self, generation: u64) -> bool {
        // Acquire and release, pairs with `lead`: one leader's work happens before the next one's.
        self.hot
            .barriers
            .generation
            .compare_exchange(
                generation,
                generation + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Pretends that the first barrier is under way, and that its leader has lost its processor for good.
    #[cfg(all(test, not(stillpoint_loom)))]
    pub(crate) fn lose_first_leader(&self) {
        assert!(self.try_lead(0));
    }

    fn lead(&self, cookie: Cookie, me: Token, generation: u64) -> Progress {
        let queue = &self.hot.barriers;
        let attempt = self.complete_once(cookie, me, Role::Leader, || {
            // Release, pairs with `follow`: what we have fenced is seen by a follower that sees the
            // generation over.
            queue.generation.store(generation + 1, Ordering::Release)
        });
        let (mine, next) = (queue.on(generation), queue.on(generation + 1));
        // An attempt that ended a grace period has done so by a read-modify-write, W5, after that
        // store.
        if attempt.ended {
            mine.signal_after_rmw()
        } else {
            mine.signal()
        }
        // A leader that has taken the next generation meanwhile will wake all of them.
        // Acquire, pairs with `try_lead`: a hint; at worst it wakes one follower too many.
        if next.has_sleepers() && !is_led(queue.generation.load(Ordering::Acquire)) {
            next.signal_one();
        }
        attempt.progress
    }

    fn follow(&self, cookie: Cookie, me: Token) -> Progress {
        let queue = &self.hot.barriers;
        // Acquire, pairs with `lead`: a thread that sees a generation over sees what its leader has
        // fenced.
        let came_in = queue.generation.load(Ordering::Acquire);
        let until = clock::now() + LONGEST_FOLLOW;
        loop {
            // Acquire, pairs with `lead`: the look at `fenced` below sees what the leader of an
            // earlier generation has fenced.
            let generation = queue.generation.load(Ordering::Acquire);
            if self.is_fenced(cookie) || clock::now() >= until {
                break;
            }
            if !is_led(generation) {
                if self.try_lead(generation) {
                    return self.lead(cookie, me, generation + 1);
                }
                continue;
            }
            // A generation that began after we came covers us; the one that we came in does not.
            let serves = if generation == came_in {
                generation + 1
            } else {
                generation
            };
            let waiter = queue.on(serves).prepare();
            // Acquire, pairs with `lead`: we see the generation over, or its leader's signal sees
            // us announced.
            if queue.generation.load(Ordering::Acquire) == generation {
                waiter.sleep(Some(until))
            } else {
                waiter.leave()
            }
        }
        // Acquire, pairs with `try_lead`: a hint; at worst it wakes one follower too many.
        if !is_led(queue.generation.load(Ordering::Acquire)) {
            queue.followers.iter().for_each(EventCount::signal_one);
        }
        self.try_complete(cookie, me)
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use crate::{
        gp::{Flavour, Record, barrier_mode::BarrierMode, policy::Sound, seq::Sequence},
        platform::thread,
    };

    #[test]
    fn an_assist_leaves_a_barrier_under_way_alone_unless_it_insists() {
        let engine = Engine::<Sound>::for_test();
        let cookie = engine.get_state();
        let assist = |insists| engine.assist(cookie, cookie, thread::token(), insists);
        assert!(engine.try_lead(0), "another thread's barrier");
        assert_eq!(assist(false), Progress::HeldUp);
        assert_eq!(engine.heavy_barriers(), 0);
        assert_eq!(assist(true), Progress::Ended);
        assert_eq!(engine.heavy_barriers(), 1);
    }

    #[test]
    fn an_assist_covers_all_that_its_thread_has_named() {
        let engine = Engine::<Sound>::for_test();
        let oldest = engine.start();
        let youngest = engine.get_state();
        assert!(!engine.has_ended(youngest) && youngest.at_least(oldest));
        assert_eq!(
            engine.assist(oldest, youngest, thread::token(), false),
            Progress::Ended
        );
        assert!(engine.has_ended(youngest));
        assert_eq!(engine.heavy_barriers(), 1);
        let generation = engine.hot.barriers.generation.load(Ordering::Relaxed);
        assert!(!is_led(generation), "the next may lead");
    }

    /// An assist that does not lead also starts them: sections that begin later do not hold up what
    /// its thread had named before.
    #[test]
    fn an_assist_starts_all_that_its_thread_has_named() {
        for readers in [BarrierMode::Membarrier, BarrierMode::Fence] {
            let engine = Engine::<Sound>::new(1, readers, Sequence::new(Cookie::from_raw(0).seq()));
            // In membarrier mode another thread leads, so the assist has to insist.
            assert!(engine.try_lead(0));
            let oldest = engine.start();
            let earlier = engine.register(thread::token(), Flavour::Thread);
            earlier.lock();
            let youngest = engine.get_state();
            let _ = engine.assist(oldest, youngest, thread::token(), true);
            assert!(!engine.has_ended(youngest));
            let later = engine.register(thread::token(), Flavour::Thread);
            later.lock();
            earlier.unlock();
            let _ = engine.recheck(youngest, thread::token());
            assert!(engine.has_ended(youngest));
            later.unlock();
            [earlier, later].into_iter().for_each(Record::depart);
        }
    }
}
