//! Coalescing heavy barriers: of many that wait at once one leads, and the others follow.
//!
//! A membarrier takes as long as it takes to interrupt every running thread of the process, and two at a time come one after the other
//! (the kernel has a lock for that). So a waiter that finds another one's under way, too early for its own grace period, gains
//! nothing by issuing its own: it sleeps, which also makes it one less to interrupt, and one barrier more serves all that have come
//! meanwhile. Nothing waits in order to be coalesced with: the first to find no leader leads at once. liburcu's queue of waiters, whose first does the
//! work for all, is the prior art.
//!
//! ```text
//!   generation = 2k        no leader; barrier k is next
//!   generation = 2k + 1    barrier k has a leader
//!
//!   leader     generation: 2k -> 2k + 1 [F1] CAS; W2 to W4; generation = 2k + 2 [F2]; W5; wake all followers of k, and one of those of k + 1
//!   follower   g = generation; if even: lead; announce (E1, E2) for k + 1, or k if that began after the follower had come;
//!              if generation != g [F3]: again; sleep
//! ```
//!
//! The generation is a hint: what a follower believes is `fenced` and `completed` alone; the generation says whether and where it may sleep.
//! F2 and E5 against E1, E2 and F3 are the event count's pair (`stillpoint-platform/src/event.rs`): a follower sees that the generation is over, or is seen
//! asleep. The one that is woken for the next generation leads it, or, if it need not any more and there is no leader, wakes another; so no
//! sleeper is left without a leader. Proved by `loom_followers_are_not_left_asleep`. The bound is for a leader that has lost its
//! processor: past it a follower helps itself, without a generation, as those do that never wait (a poll, a deferred free).

use super::{
    engine::{Engine, Progress},
    policy::Policy,
    seq::Cookie,
};
use crate::platform::{
    clock::{self, Nanos},
    event::EventCount,
    sync::{AtomicU64, Ordering},
    thread::Token,
};

/// How long others' barriers are waited for. They take some tens of microseconds; past this the leader has lost its processor, and each
/// follower helps itself.
const LONGEST_FOLLOW: Nanos = 5_000_000;

#[derive(Debug)]
pub(super) struct BarrierQueue {
    generation: AtomicU64,
    /// The followers of an even barrier, and of an odd one.
    followers: [EventCount; 2],
}

impl BarrierQueue {
    pub(super) fn new() -> Self {
        Self { generation: AtomicU64::new(0), followers: [EventCount::new(), EventCount::new()] }
    }

    /// How many generations there have been.
    pub(super) fn generations(&self) -> u64 {
        self.generation.load(Ordering::Relaxed) / 2
    }

    /// In the child of a fork: there is neither leader nor follower. Nor is the calling thread one, because neither runs user code.
    #[cfg(not(stillpoint_loom))]
    pub(super) fn reset_in_child(&self) {
        let generation = self.generation.load(Ordering::Relaxed);
        self.generation.store(generation + generation % 2, Ordering::Relaxed);
        self.followers.iter().for_each(EventCount::reset_in_child);
    }

    /// The followers of the barrier of `generation`.
    fn on(&self, generation: u64) -> &EventCount {
        &self.followers[(generation / 2 % 2) as usize]
    }
}

fn is_led(generation: u64) -> bool {
    generation % 2 == 1
}

impl<P: Policy> Engine<P> {
    /// One attempt, coalesced with others that wait.
    pub(super) fn complete_coalesced(&self, cookie: Cookie, me: Token) -> Progress {
        // Acquire [F3]: who sees a generation over (F2) sees what its driver has fenced.
        let generation = self.shared.barriers.generation.load(Ordering::Acquire);
        if self.is_fenced(cookie) || !self.barriers_are_dear() {
            self.try_complete(cookie, me)
        } else if !is_led(generation) && self.try_lead(generation) {
            self.lead(cookie, me, generation + 1)
        } else {
            self.follow(cookie, me)
        }
    }

    /// [F1] Whether the caller now leads the barrier of `generation`, which had no leader a moment ago.
    fn try_lead(&self, generation: u64) -> bool {
        self.shared.barriers.generation.compare_exchange(generation, generation + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn lead(&self, cookie: Cookie, me: Token, generation: u64) -> Progress {
        let queue = &self.shared.barriers;
        let attempt = self.complete_once(cookie, me, || queue.generation.store(generation + 1, Ordering::Release)); // [F2]
        self.counts.note_lead(attempt.fenced, attempt.ended);
        let (mine, next) = (queue.on(generation), queue.on(generation + 1));
        // An attempt that ended a grace period has done so by a read-modify-write, W5, after F2.
        if attempt.ended {
            mine.signal_after_rmw()
        } else {
            mine.signal()
        }
        // A leader that has taken the next generation meanwhile will wake all of them.
        // Acquire, pairs with `try_lead`: a hint, by which at worst one more is woken.
        if next.has_sleepers() && !is_led(queue.generation.load(Ordering::Acquire)) {
            next.signal_one();
        }
        attempt.progress
    }

    fn follow(&self, cookie: Cookie, me: Token) -> Progress {
        let queue = &self.shared.barriers;
        // Acquire [F3]: who sees a generation over (F2) sees what its driver has fenced.
        let came_in = queue.generation.load(Ordering::Acquire);
        let until = clock::now() + LONGEST_FOLLOW;
        loop {
            // Acquire [F3]: the same, for the look at `fenced` below.
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
            let serves = if generation == came_in { generation + 1 } else { generation };
            let waiter = queue.on(serves).prepare();
            if queue.generation.load(Ordering::Acquire) == generation { waiter.sleep(Some(until)) } else { waiter.leave() } // [F3]
        }
        // Acquire, pairs with `try_lead`: a hint, by which at worst one more is woken.
        if !is_led(queue.generation.load(Ordering::Acquire)) {
            queue.followers.iter().for_each(EventCount::signal_one);
        }
        self.try_complete(cookie, me)
    }
}
