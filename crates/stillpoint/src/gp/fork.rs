//! The engine in the child of a fork: see `stillpoint-platform/src/fork.rs`.
//!
//! The three counters are atomics that only grow, and stay valid: a heavy barrier that was issued
//! before the fork counts for the thread that is left, too. Data behind locks is
//! forgotten, since the locks may be held. Only user code forks, and it runs under no lock of the
//! engine except that of the passes, which knows its owner.

use super::{
    callback::{Callbacks, Queue, Waiting},
    engine::{BarrierQueue, Engine},
    entry::Entry,
    flavour::Flavour,
    policy::Policy,
    record::Record,
    registry::{FreeList, Registry},
    server::{Server, Service, State, serves},
    stalls::{Stalls, Waiters},
    wakers::Futures,
};
use crate::platform::{
    event::EventCount,
    fork::ForkReset,
    sync::Ordering,
    thread::{self, Token},
};
use std::collections::BTreeMap;

impl<P: Policy> ForkReset for Engine<P> {
    unsafe fn reset_in_child(&self) {
        self.shared.waiters.reset_in_child();
        self.shared.reset_service_in_child();
        self.shared.service_waits.store(false, Ordering::Relaxed);
        barriers(&self.hot.barriers);
        // SAFETY: the caller's promise, for all of them.
        unsafe {
            stalls(&self.stalls);
            registry(&self.registry, thread::token());
            callbacks(&self.callbacks);
            futures(&self.futures);
            service(&self.service, serves(self.domain));
        }
    }
}

impl<P: Policy> Engine<P> {
    /// Returns, in the child of a fork, whether the only thread owns all records that have an owner, and
    /// no lost thread was taking a record or giving one back. Then the registry needs no reset: a record
    /// is counted before the registry's lock is taken, and gets its owner under that lock. Records for
    /// guards do need one, because they have the thread's old kernel id.
    pub(crate) fn has_records_of_this_thread_alone(&self) -> bool {
        let me = thread::token();
        let mut owned = self.registry.iter().filter(|record| record.has_owner());
        let mut count = 0;
        owned.all(|record| {
            count += 1;
            record.is_owned_by(me) && record.flavour() != Flavour::Owned
        }) && self.shared.owners.count() == count
    }
}

/// Forgets leaders and followers. The calling thread is neither, because neither runs user code.
fn barriers(queue: &BarrierQueue) {
    let generation = queue.generation.load(Ordering::Relaxed);
    queue
        .generation
        .store(generation + generation % 2, Ordering::Relaxed);
    queue.followers.iter().for_each(EventCount::reset_in_child);
}

/// Resets the watches: waits are timed anew, and waiters are forgotten.
///
/// # Safety
///
/// As for [`ForkReset::reset_in_child`].
unsafe fn stalls(stalls: &Stalls) {
    for watch in [&stalls.grace_period, &stalls.service] {
        watch.since.store(0, Ordering::Relaxed);
    }
    // SAFETY: the caller's promise; user code does not run under these locks.
    unsafe {
        stalls.waiters.reinit(Waiters::NONE);
        stalls.handling.reinit(());
    }
}

/// # Safety
///
/// As for [`ForkReset::reset_in_child`]; `me` is the calling thread.
unsafe fn registry(registry: &Registry, me: Token) {
    let tid = thread::tid();
    let mut free = FreeList::new();
    registry.shared.given_back.reset();
    let mut owned = 0;
    for record in registry.iter() {
        // SAFETY: the caller's promise.
        unsafe { entry(record.entry()) };
        // SAFETY: the caller's promise.
        if unsafe { frees(record, me, tid) } {
            free.push(record);
        } else {
            owned += 1;
        }
    }
    registry.shared.owners.reset(owned);
    // SAFETY: the caller's promise; user code does not run under this lock.
    unsafe { registry.free.reinit(free) };
}

/// Resets a record unless its owner is still there. Returns whether it is free; it is then in no list.
///
/// The record of the thread `me`, whose kernel id now is `tid`, keeps its sections. So does the record
/// of a guard, which a task of the child may hold. The owner of any other was lost, or had exited
/// before and left a guard behind.
///
/// # Safety
///
/// As for [`ForkReset::reset_in_child`]; `me` is the calling thread.
unsafe fn frees(record: &Record, me: Token, tid: u32) -> bool {
    if record.is_owned_by(me) {
        record.entry().set_tid(tid);
        return false;
    }
    let stays = record.is_open_guard();
    if !stays {
        // SAFETY: its owner is not the calling thread, the only one that exists, by the caller's
        // promise.
        unsafe { record.reset() };
    }
    !stays
}

/// # Safety
///
/// As for [`ForkReset::reset_in_child`].
unsafe fn entry(entry: &Entry) {
    // SAFETY: the caller's promise; user code does not run under these locks.
    unsafe {
        entry.name.0.reinit(None);
        #[cfg(feature = "stall-backtrace")]
        entry.backtrace.0.reinit(None);
    }
}

/// Forgets all callbacks that wait, without moving or dropping them.
///
/// # Safety
///
/// As for [`ForkReset::reset_in_child`].
unsafe fn callbacks(callbacks: &Callbacks) {
    callbacks.incoming.reset();
    let invoked = callbacks.invoked.load(Ordering::Relaxed);
    // SAFETY: the caller's promise; user code does not run under these locks.
    unsafe {
        callbacks.waiting.reinit(Waiting::new(invoked));
        callbacks.running.reinit(Queue::new(0));
    }
    callbacks.queued.store(invoked, Ordering::Relaxed);
    callbacks.queue_times.reset_in_child();
}

/// Forgets the tasks that wait, without dropping their wakers.
///
/// # Safety
///
/// As for [`ForkReset::reset_in_child`].
unsafe fn futures(futures: &Futures) {
    for wakers in [&futures.grace_periods, &futures.callbacks] {
        // SAFETY: the caller's promise; user code does not run under this lock.
        unsafe { wakers.0.reinit(BTreeMap::new()) };
    }
}

/// Resets the state of the service thread, which no longer exists and starts again when it is needed,
/// unless it is the calling thread (`serves`).
///
/// # Safety
///
/// As for [`ForkReset::reset_in_child`].
unsafe fn service(service: &Service, serves: bool) {
    let state = match serves {
        _ if service.stop.load(Ordering::Relaxed) => State::Stopped,
        // Also if it was down: the child tries again.
        true => State::Running {
            server: Server::Forked,
            ended: Vec::new(),
        },
        false => State::NotStarted,
    };
    // SAFETY: the caller's promise; user code does not run under this lock.
    unsafe { service.state.reinit(state) };
    service.signs.reset_in_child(serves);
    service.refusal.store(0, Ordering::Relaxed);
    // SAFETY: the caller's promise.
    unsafe { service.turn.reset_in_child() };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{gp::policy::Sound, platform::sync::lock};
    use std::mem;

    #[test]
    fn in_a_forks_child_the_records_of_vanished_threads_do_not_count() {
        let engine = Engine::<Sound>::for_test();
        let mine = engine.register(thread::token(), Flavour::Thread);
        let vanished = std::thread::scope(|scope| scope.spawn(thread::token).join().unwrap());
        engine.register(vanished, Flavour::Thread).lock();
        assert!(!engine.has_no_reader(|| true));
        // SAFETY: as in a child: the other thread is gone, and its record is not used any more.
        unsafe { registry(&engine.registry, thread::token()) };
        assert!(
            engine.has_no_reader(|| true) && !engine.has_no_reader(|| false),
            "the caller's own is left"
        );
        mine.depart();
        assert!(engine.has_no_reader(|| false));
    }

    #[test]
    fn the_lock_of_a_vanished_thread_is_replaced() {
        let queue = Callbacks::new();
        std::thread::scope(|scope| {
            scope.spawn(|| mem::forget(lock(&queue.waiting)));
        });
        assert!(queue.waiting.try_lock().is_err());
        // SAFETY: no other thread knows this one, and this thread holds no guard.
        unsafe { callbacks(&queue) };
        assert!(queue.waiting.try_lock().is_ok());
    }
}
