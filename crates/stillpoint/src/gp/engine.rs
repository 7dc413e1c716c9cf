//! The grace-period engine: starting, fencing, scanning, publishing.
//!
//! It decides; it never waits (`engine/wait.rs` does). Any thread may take any step for all others,
//! and no lock is held between steps, so a preempted thread delays no other.
//!
//! ```text
//!   updater    unlink the object; cookie = started + 1             [W1] release RMW
//!   driver     see started >= cookie, or start it                  [W2] acquire
//!              heavy barrier; fenced = that                        [W3]
//!              scan every record for sections older than fenced    [W4] acquire
//!              completed = the oldest of them, or fenced           [W5] acquire-release CAS
//!   reclaimer  see completed >= cookie; free the object            [W6] acquire
//!
//!   waiter     announce; set the flag of the oldest holdout        [S1] acquire-release RMW
//!              heavy barrier; read that record again; sleep        [S2]
//! ```
//!
//! `README.md` in this folder has the protocol of both sides, the proof of each pair (R1 with
//! W1/W2, R2+R3 with W3+W4, R4 with W4, W5 with W6, R4+R5+R6 with S1+S2), and why the cached
//! holdout is only a hint. Each pair has a loom test in `loom_tests.rs`; `models/` checks the
//! asymmetric form with store buffers.

use super::{
    barrier_mode::BarrierMode,
    callback::Callbacks,
    flavour::Flavour,
    policy::Policy,
    record::Record,
    registry::Registry,
    report::{Holdout, Title},
    seq::{self, Cookie, Seq, Sequence},
    server::Service,
    shared::Shared,
    stalls::Stalls,
    wakers::Futures,
};
use crate::{
    histogram::Histogram,
    platform::{
        barrier, clock,
        event::EventCount,
        stats::{
            Tap, Words,
            fields::{
                CALLBACK_TIMES, CALLBACKS_INVOKED, CALLBACKS_PENDING, GRACE_PERIOD_TIMES,
                GRACE_PERIODS, HEAVY_BARRIERS, READER_RECORDS, SERVICE_FAILURES,
            },
        },
        sync::{Arc, AtomicPtr, AtomicU64, Ordering},
        thread::Token,
    },
    trace,
};
use std::{marker::PhantomData, mem, ptr};

mod callbacks;
mod coalesce;
pub(super) mod service;
mod stall;
pub(super) mod wait;

/// The result of one attempt to advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The grace period has ended.
    Ended,
    /// A reader holds it up.
    HeldUp,
    /// A section of the calling thread holds it up: waiting would never end.
    HeldUpBySelf,
}

#[derive(Debug)]
pub(crate) struct Engine<P> {
    pub(crate) domain: u64,
    name: Option<Box<str>>,
    readers: BarrierMode,
    pub(super) shared: Arc<Shared>,
    pub(super) hot: Hot,
    pub(super) registry: Registry,
    pub(super) stalls: Stalls,
    pub(super) callbacks: Callbacks,
    pub(crate) futures: Futures,
    pub(super) service: Service,
    /// The engine's words in the statistics page.
    pub(super) tap: Tap,
    policy: PhantomData<P>,
}

/// The fields that a thread writes to end a grace period or to ask for one: on one cache line, apart from
/// those that are only read.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Hot {
    pub(super) barriers: BarrierQueue,
    /// The oldest holdout of the last scan; null for none. While it stays in its section, no scan
    /// can end a grace period that the last one could not.
    cached_holdout: AtomicPtr<Record>,
    /// The newest grace period requested by `start_poll`. The service thread must complete it even
    /// if it is never polled.
    promised: AtomicU64,
}

/// The heavy barriers of waiters, and who waits for them: see `engine/coalesce.rs`.
#[derive(Debug)]
pub(super) struct BarrierQueue {
    pub(super) generation: AtomicU64,
    /// The followers of an even barrier, and of an odd one.
    pub(super) followers: [EventCount; 2],
}

impl BarrierQueue {
    fn new() -> Self {
        Self {
            generation: AtomicU64::new(0),
            followers: [EventCount::new(), EventCount::new()],
        }
    }

    /// Returns the followers of the barrier of `generation`.
    fn on(&self, generation: u64) -> &EventCount {
        &self.followers[(generation / 2 % 2) as usize]
    }
}

impl<P: Policy> Engine<P> {
    /// Makes an engine for the domain numbered `domain`.
    pub(crate) fn new(domain: u64, readers: BarrierMode, seq: Sequence) -> Self {
        let shared = Arc::new(Shared::new(seq));
        Self {
            domain,
            name: None,
            readers,
            registry: Registry::new(domain, readers, Arc::clone(&shared)),
            hot: Hot {
                barriers: BarrierQueue::new(),
                cached_holdout: AtomicPtr::new(ptr::null_mut()),
                promised: AtomicU64::new(shared.seq.completed().bits()),
            },
            shared,
            stalls: Stalls::new(domain),
            callbacks: Callbacks::new(),
            futures: Futures::new(),
            service: Service::new(),
            tap: Tap::new(),
            policy: PhantomData,
        }
    }

    /// Gives the engine a name, or none.
    pub(crate) fn named(self, name: Option<Box<str>>) -> Self {
        Self { name, ..self }
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the domain, as reports and messages call it.
    pub(crate) fn title(&self) -> Title<'_> {
        Title {
            number: self.domain,
            name: self.name(),
        }
    }

    /// Returns a record for the calling thread. It lives as long as the engine.
    pub(crate) fn register(&self, token: Token, flavour: Flavour) -> &Record {
        self.registry.claim(token, flavour)
    }

    /// Names the next grace period without starting it.
    pub(crate) fn get_state(&self) -> Cookie {
        Self::cookie(self.shared.seq.snapshot())
    }

    /// Starts a grace period and names it. Sections that begin from now on do not hold it up.
    pub(crate) fn start(&self) -> Cookie {
        let seq = self.shared.seq.start();
        trace::rcu_grace_period_start(self.domain, seq.number());
        Self::cookie(seq)
    }

    /// Starts the grace period of a cookie that was only named: sections that begin from now on do
    /// not hold it up. No barrier; one load if it has started.
    pub(crate) fn begin(&self, cookie: Cookie) {
        self.ensure_started(cookie.seq());
    }

    fn ensure_started(&self, goal: Seq) -> Seq {
        self.shared.seq.ensure_started(goal, |started| {
            trace::rcu_grace_period_start(self.domain, started.number())
        })
    }

    /// Returns a cookie for `seq`; for the number before it if the policy leaves a grace period
    /// out.
    fn cookie(seq: Seq) -> Cookie {
        let cookie = Cookie::new(seq);
        if P::WHOLE_GRACE_PERIODS {
            cookie
        } else {
            cookie.previous()
        }
    }

    /// Like [`Engine::start`], but guarantees that the grace period completes without further
    /// calls.
    pub(crate) fn start_polled(&self) -> Cookie {
        let cookie = self.start();
        if P::COMPLETES_POLLED {
            seq::raise(&self.hot.promised, cookie.seq());
            self.kick();
        }
        cookie
    }

    /// Returns the grace period that the service thread has to wait for: the older of the one that
    /// its work waits for and the one that was promised.
    fn due(&self, work: Option<Cookie>) -> Option<Cookie> {
        // Acquire, pairs with `raise` in `start_polled`: the thread that made the promise kicks
        // after it, and the pass after that kick sees the promise.
        let promised = Cookie::new(Seq::from_bits(self.hot.promised.load(Ordering::Acquire)));
        if self.has_ended(promised) {
            work
        } else {
            Cookie::oldest(work, Some(promised))
        }
    }

    /// Returns whether the grace period is known to have ended. One load (W6); decides nothing. If
    /// so, the accesses in the sections that it waited for happen before the caller's next actions.
    #[inline]
    pub(crate) fn has_ended(&self, cookie: Cookie) -> bool {
        self.shared.seq.completed().at_least(cookie.seq())
    }

    /// Makes one attempt to end the grace period: at most one heavy barrier and one scan. A retry soon
    /// after costs the scan only.
    pub(crate) fn try_complete(&self, cookie: Cookie, me: Token) -> Progress {
        if self.has_ended(cookie) {
            return Progress::Ended;
        }
        self.complete_once(cookie, me, Role::Alone, || ()).progress
    }

    /// Like `try_complete`, for a caller that will retry: if the grace period has been fenced and
    /// the reader that the last scan found is still a holdout, this is a few loads. It does not
    /// detect that the caller's own section is a holdout too.
    pub(crate) fn recheck(&self, cookie: Cookie, me: Token) -> Progress {
        if !self.has_ended(cookie)
            && self.is_fenced(cookie)
            && self.cached_holdout(cookie.seq()).is_some()
        {
            return Progress::HeldUp;
        }
        self.try_complete(cookie, me)
    }

    /// Makes an attempt at a grace period that is not known to have ended. Calls `decided` before the outcome
    /// is published: a leader leads until then.
    #[inline]
    fn complete_once(
        &self,
        cookie: Cookie,
        me: Token,
        role: Role,
        decided: impl FnOnce(),
    ) -> Attempt {
        let seq = &self.shared.seq;
        let goal = cookie.seq();
        if !seq.fenced().at_least(goal) {
            // Acquire [W2]: what was unlinked before the cookies up to this one were taken happens before the barrier.
            let started = self.ensure_started(goal);
            // Heavy [W3]: a section that the scan does not see sees those objects unlinked.
            self.heavy_barrier(P::HEAVY_BARRIER, role, BarrierMode::heavy);
            seq.publish_fenced(started);
        }
        // Acquire [W4]: the accesses of a section that we find ended happen before what we publish.
        let scan = self.scan(seq.fenced(), goal, me);
        decided();
        // AcqRel [W5]: they happen before the free by a thread that sees it completed.
        let ends = seq.publish_completed(scan.oldest);
        if ends {
            let counts = seq.counts();
            counts.grace_periods.fetch_add(1, Ordering::Relaxed);
            let held_up_since = self.stalls.grace_period.stop();
            trace::rcu_grace_period_end(self.domain, scan.oldest.number(), held_up_since);
            match held_up_since {
                0 if scan.oldest.is_timed() => {
                    seq.timing().note_ended(scan.oldest.number(), clock::now());
                }
                0 => {}
                since => {
                    seq.timing().note_held_up(since);
                    self.publish_stalls();
                }
            }
            if self.tap.is_open() {
                self.publish_counts();
            }
            self.shared.wake_all();
        }
        let progress = if seq.completed().at_least(goal) {
            Progress::Ended
        } else if scan.own {
            Progress::HeldUpBySelf
        } else {
            Progress::HeldUp
        };
        Attempt {
            progress,
            ended: ends,
        }
    }

    /// Returns true if a heavy barrier has been issued since the grace period started.
    fn is_fenced(&self, cookie: Cookie) -> bool {
        self.shared.seq.fenced().at_least(cookie.seq())
    }

    /// Returns true if a heavy barrier is a system call.
    fn barriers_are_dear(&self) -> bool {
        self.readers == BarrierMode::Membarrier
    }

    /// Returns the oldest section that is older than `fenced`, or `fenced`; and whether a section
    /// of the caller holds `goal` up.
    fn scan(&self, fenced: Seq, goal: Seq, me: Token) -> Scan {
        let mut scan = Scan {
            oldest: fenced,
            own: false,
        };
        let mut cached_holdout = ptr::null();
        let mut one_passed_over = P::EVERY_HOLDOUT;
        // Not a `for` loop, which would step through three nested iterators for each record.
        self.holdouts(fenced).for_each(|(record, section)| {
            if !mem::replace(&mut one_passed_over, true) {
                return;
            }
            scan.own |= record.is_owned_by(me) && !section.entered_after(goal);
            // An implausible number (`Seq::entered_after`) says nothing about how old the section
            // is.
            let section = if section.at_least(fenced) {
                self.shared.seq.completed()
            } else {
                section
            };
            if !section.at_least(scan.oldest) {
                cached_holdout = record;
            }
            scan.oldest = scan.oldest.older(section);
        });
        if !cached_holdout.is_null() {
            // Release, pairs with `cached_holdout`: the record is complete for the thread that
            // loads it, whichever made it.
            self.hot
                .cached_holdout
                .store(cached_holdout.cast_mut(), Ordering::Release);
        }
        scan
    }

    /// Returns the oldest section that the thread `me` has open, through any of its records.
    pub(crate) fn section_of(&self, me: Token) -> Option<Seq> {
        self.registry
            .iter()
            .filter(|record| record.is_owned_by(me))
            .filter_map(Record::section)
            .reduce(Seq::older)
    }

    /// Returns a section by which the thread `me` holds grace periods up, if it has one.
    pub(crate) fn own_holdout(&self, me: Token) -> Option<Holdout> {
        let own = |record: &&Record| record.is_owned_by(me) && record.is_reading();
        self.registry
            .iter()
            .find(own)
            .map(|record| Holdout::of(record, &[]))
    }

    /// Returns the record through which the thread `me` has a section of [`Flavour::Thread`] open.
    pub(crate) fn open_record_of(&self, me: Token) -> Option<&Record> {
        self.registry.iter().find(|record| record.is_section_of(me))
    }

    /// Returns true if any thread is, or was a moment ago, inside a section.
    pub(crate) fn has_readers(&self) -> bool {
        self.registry.iter().any(Record::is_reading)
    }

    /// Returns the address that readers load from in R1. It is valid as long as the engine.
    pub(crate) fn started(&self) -> &AtomicU64 {
        self.shared.seq.started()
    }

    /// Returns true if readers have to fence.
    pub(crate) fn readers_fence(&self) -> bool {
        self.readers.readers_fence()
    }

    fn holdouts(&self, goal: Seq) -> impl Iterator<Item = (&Record, Seq)> {
        self.registry
            .iter()
            .filter(|_| P::WAITS_FOR_READERS)
            .filter_map(move |record| record.holds_out(goal).map(|section| (record, section)))
    }

    /// Issues the partner of the readers' light barriers, unless the policy leaves it out.
    fn heavy_barrier(&self, present: bool, role: Role, barrier: impl FnOnce(BarrierMode)) {
        if present {
            // Heavy [W3, S2]: a reader's light barrier, R3 or R5, is wholly before or wholly after
            // it; by the mode, a fence on both sides.
            barrier(self.readers);
        }
        let counts = self.shared.seq.counts();
        match role {
            Role::Leader => {
                let before = counts.led_barriers.load(Ordering::Relaxed);
                counts.led_barriers.store(before + 1, Ordering::Relaxed);
            }
            Role::Alone => {
                counts.heavy_barriers.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Issues the partner of `light`, whatever the domain's barrier mode, if `present`.
    pub(crate) fn process_barrier(&self, present: bool) {
        if present {
            // Heavy, pairs with `light`: that of any thread is wholly before or wholly after this.
            barrier::heavy();
        }
        let counts = self.shared.seq.counts();
        counts.heavy_barriers.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the cached holdout of the last scan, if it holds `goal` up.
    fn cached_holdout(&self, goal: Seq) -> Option<(&Record, Seq)> {
        // Acquire, pairs with the store in `scan`: the record is complete.
        // SAFETY: null, or a record of this engine, which lives as long.
        let cached_holdout = unsafe { self.hot.cached_holdout.load(Ordering::Acquire).as_ref() }?;
        Some((cached_holdout, cached_holdout.holds_out(goal)?))
    }

    /// Returns the cached holdout if it holds `goal` up and is one of the oldest: no further grace
    /// period can complete until it leaves.
    fn decisive_holdout(&self, goal: Seq) -> Option<&Record> {
        let (cached_holdout, section) = self.cached_holdout(goal)?;
        self.shared
            .seq
            .completed()
            .at_least(section)
            .then_some(cached_holdout)
    }

    fn oldest_holdout(&self, goal: Seq) -> Option<&Record> {
        let older = |a: (_, Seq), b: (_, Seq)| if a.1.at_least(b.1) { b } else { a };
        Some(self.holdouts(goal).reduce(older)?.0)
    }

    /// Flags the oldest of the readers that hold up `cookie`, so that its unlock signals. The
    /// caller has announced itself in the event that the signal reaches. If the answer is to look
    /// again, it must advance once more before it sleeps.
    pub(crate) fn flag_holdout(&self, cookie: Cookie) -> LookAgain {
        let goal = cookie.seq();
        let Some(cached_holdout) = self
            .decisive_holdout(goal)
            .or_else(|| self.oldest_holdout(goal))
        else {
            return LookAgain(true);
        };
        // Release [S1]: the unlock that takes the flag sees our announcement in the event.
        cached_holdout.request_wake();
        let tid = cached_holdout.tid();
        trace::rcu_grace_period_flag(self.domain, goal.number(), u64::from(tid));
        // Heavy [S2]: the unlock sees the flag, or the look below sees the section's end.
        self.heavy_barrier(P::FLAG_BARRIER, Role::Alone, BarrierMode::heavy_for_flag);
        LookAgain(cached_holdout.holds_out(goal).is_none())
    }

    /// Ends the sections of all guards that belong to no thread.
    ///
    /// # Safety
    ///
    /// None of them is ever used again, and no other thread makes one meanwhile.
    pub(crate) unsafe fn abandon_guards(&self) {
        // SAFETY: the caller's promise.
        self.registry
            .iter()
            .for_each(|record| unsafe { record.abandon() });
    }

    /// Returns the number of records, with an owner or without.
    pub(crate) fn records(&self) -> u64 {
        self.registry.iter().count() as u64
    }

    /// Returns the number of grace periods that this engine has ended; several numbers that end at once
    /// count as one.
    pub(crate) fn grace_periods(&self) -> u64 {
        let counts = self.shared.seq.counts();
        counts.grace_periods.load(Ordering::Relaxed)
    }

    /// Returns how long they took.
    pub(crate) fn grace_period_times(&self) -> Histogram {
        self.shared.seq.timing().times.load()
    }

    /// Returns the number of panics of user code that the engine has called.
    pub(crate) fn panics(&self) -> u64 {
        let counts = [
            &self.callbacks.panicked,
            &self.futures.panicked,
            &self.stalls.panicked,
        ];
        counts
            .map(|count| count.load(Ordering::Relaxed))
            .iter()
            .sum()
    }

    /// Copies into the statistics page what an ended grace period has changed.
    #[cold]
    pub(super) fn publish_counts(&self) {
        self.tap.raise(GRACE_PERIODS, self.grace_periods());
        self.tap.raise(HEAVY_BARRIERS, self.heavy_barriers());
    }

    /// Copies the counters that no other function copies. For a pass of the service thread.
    pub(crate) fn publish_work(&self) {
        if !self.tap.is_open() {
            return;
        }
        self.publish_counts();
        self.tap
            .follow(CALLBACKS_PENDING, || self.callbacks_pending());
        self.tap.raise(CALLBACKS_INVOKED, self.callbacks_invoked());
        self.tap.raise(SERVICE_FAILURES, self.service_failures());
        self.tap.follow(READER_RECORDS, || self.records());
    }

    /// Copies the engine's counters into `words` of the statistics page from now on.
    pub(crate) fn open_tap(&self, words: Words) {
        self.tap.open(words);
        let times = &self.shared.seq.timing().times;
        times.publish(words, GRACE_PERIOD_TIMES);
        let times = &self.callbacks.queue_times.times;
        times.publish(words, CALLBACK_TIMES);
    }

    /// Copies the stalls and times counted so far into the statistics page, which has zeros there.
    pub(crate) fn publish_all(&self) {
        self.publish_stalls();
        self.shared.seq.timing().times.copy_all();
        self.callbacks.queue_times.times.copy_all();
    }

    /// Returns the number of heavy barriers that this engine has issued.
    pub(crate) fn heavy_barriers(&self) -> u64 {
        let counts = self.shared.seq.counts();
        counts.heavy_barriers.load(Ordering::Relaxed) + counts.led_barriers.load(Ordering::Relaxed)
    }

    /// Returns true if no other thread or guard is registered, so that all sections that began
    /// before this call are over; see `owners.rs`. `own` says whether the caller has a record here
    /// and is in no section of it.
    #[inline]
    pub(crate) fn has_no_reader(&self, own: impl Fn() -> bool) -> bool {
        self.shared.owners.no_other_reads(own)
    }

    /// Returns the same as [`Engine::get_state`], for a caller that may poll the cookie: from now on a
    /// wait that begins later ends that grace period even if no reader is registered.
    pub(crate) fn get_state_to_ask(&self) -> Cookie {
        self.shared.owners.note_named();
        self.get_state()
    }
}

#[cfg(test)]
impl<P: Policy> Engine<P> {
    /// Returns an engine whose numbers wrap at the first grace period.
    pub(super) fn for_test() -> Self {
        let first = Seq::from_bits(0).previous();
        Self::new(1, BarrierMode::Membarrier, Sequence::new(first))
    }
}

/// The result of one attempt.
struct Attempt {
    progress: Progress,
    /// It ended a grace period.
    ended: bool,
}

/// Whether the waiter must look at the records once more instead of sleeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) struct LookAgain(pub(crate) bool);

/// Whether the thread that makes an attempt leads a barrier (`coalesce.rs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Leader,
    Alone,
}

struct Scan {
    oldest: Seq,
    own: bool,
}
