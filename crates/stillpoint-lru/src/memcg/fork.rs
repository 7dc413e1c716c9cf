//! What a child of a fork resets: all state of this crate that does not reset itself on its next
//! use.
//!
//! Two things are reset by the handler of [`stillpoint_platform::fork`], each with what belongs to
//! it: the lists of an lru, and what the tenants of a hierarchy share. Fields that are visible for
//! this file alone say so. The head of `link.rs` describes the state in which a lost thread leaves
//! a list.

use super::{
    background::{Background, State},
    lists::Lists,
    shrinker::Registered,
    stock::{
        Stocks,
        per_cpu::{EMPTY, ENTRIES},
    },
    tree::{Numbers, Tree, set},
};
use crate::{
    calls::{Calls, GONE},
    link::{DEAD, List, marker},
    shrinker_map::MAX_SHRINKERS,
};
use std::{mem, ptr, sync::atomic::Ordering};
use stillpoint_platform::{fork::ForkReset, sync::lock};

impl ForkReset for Tree {
    unsafe fn reset_in_child(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            self.stocks.reset_in_child();
            self.background.reset_in_child();
        }
        // SAFETY: no user code runs under this lock. If a lost thread held it, free numbers may be
        // lost, and nothing else: `room` is above all numbers in use.
        unsafe {
            if self.numbers.try_lock().is_err() {
                let next = self.room.load(Ordering::Relaxed) as u32;
                self.numbers.reinit(Numbers {
                    free: Vec::new(),
                    next,
                    shrinkers: [0; MAX_SHRINKERS / 64],
                });
                let numbers = &mut *lock(&self.numbers);
                self.each_shrinker(|shrinker| set(&mut numbers.shrinkers, shrinker.number));
            }
        }
        let mut registered = [0; MAX_SHRINKERS / 64];
        // SAFETY: the only thread.
        unsafe {
            self.each_shrinker(|shrinker| {
                shrinker.reset_in_child();
                set(&mut registered, shrinker.number);
            });
            // A lost thread may have been ending a registration, before its lists forgot it.
            for lists in self.lists.peek() {
                lists.keep_shrinker_if(|number| registered[number / 64] & 1 << (number % 64) != 0);
            }
        }
        // SAFETY: the only thread.
        for index in 0..unsafe { self.tenants.peek_len() } {
            // SAFETY: the only thread.
            if let Some(tenant) = unsafe { self.tenants.peek(index) } {
                tenant.queued.store(false, Ordering::Relaxed);
            }
        }
    }
}

impl ForkReset for Lists {
    unsafe fn reset_in_child(&self) {
        // SAFETY: the caller's promise; no user code runs under this lock.
        unsafe { self.change.reinit(()) };
        // SAFETY: the only thread.
        for index in 0..unsafe { self.slots.peek_len() } {
            // SAFETY: the only thread.
            if let Some(one) = unsafe { self.slots.peek(index) } {
                // SAFETY: the caller's promise; no user code runs under a list's lock.
                if unsafe { one.list.reset_in_child() } {
                    // SAFETY: the only thread.
                    mem::forget(unsafe { self.slots.share(index) });
                }
                // A lost thread may have queued something without signalling it.
                if one.list.count() > 0 {
                    one.tell_if_present(self.shrinker.load(Ordering::Relaxed));
                }
            }
        }
    }
}

impl Stocks {
    /// Empties per-CPU stocks that a lost thread was using. Their bytes stay charged, or keep their
    /// tenant alive.
    ///
    /// # Safety
    ///
    /// The calling thread is the only one, and does not hold these: no user code runs at a per-CPU
    /// stock or under these locks.
    unsafe fn reset_in_child(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            self.all.reinit(());
            self.exact.reinit(());
        }
        for stock in &self.per_cpu {
            stock.waiting.store(0, Ordering::Relaxed);
            if stock.taken.load(Ordering::Relaxed) {
                // SAFETY: the caller's promise.
                unsafe { *stock.entries.get() = [EMPTY; ENTRIES] };
                stock.taken.store(false, Ordering::Relaxed);
            }
        }
    }
}

impl Background {
    /// The thread is gone, and starts again on demand.
    ///
    /// # Safety
    ///
    /// See [`ForkReset::reset_in_child`].
    unsafe fn reset_in_child(&self) {
        let state = if self.stop.load(Ordering::Relaxed) {
            State::Stopped
        } else {
            State::NotStarted
        };
        // SAFETY: the caller's promise; no user code runs under these locks. What was queued is
        // leaked.
        unsafe {
            self.state.reinit(state);
            self.queue.reinit(Vec::new());
        }
        self.wake.reset_in_child();
    }
}

impl Registered {
    /// Forgets the calls of lost threads.
    fn reset_in_child(&self) {
        self.calls.reset_in_child(self.is_calling());
    }
}

impl Calls {
    /// Forgets the calls of lost threads.
    fn reset_in_child(&self, inside: bool) {
        self.state.store(
            self.state.load(Ordering::Relaxed) & GONE | Self::own(inside),
            Ordering::Relaxed,
        );
        self.left.reset_in_child();
    }
}

impl List {
    /// Releases the lock and repairs the list, if a lost thread held it.
    ///
    /// # Safety
    ///
    /// The calling thread is the only one of the process, and does not hold the lock. If a lost
    /// thread did, an orphaned link may name this list for ever; the list must then never be freed,
    /// as the result says.
    #[must_use = "a list whose lock was held is not freed"]
    unsafe fn reset_in_child(&self) -> bool {
        if self.changing.lock.try_lock().is_ok() {
            return false;
        }
        // SAFETY: the caller's promise.
        unsafe { self.changing.lock.reinit(()) };
        let mut count = 0;
        let (mut before, mut at) = (self.head(), self.changing.head.next());
        while at != self.head() {
            // SAFETY: on the list, so it is alive; see the head of `link.rs`.
            let link = unsafe { &*at };
            link.prev.store(before.cast_mut(), Ordering::Relaxed);
            if link.owner.load(Ordering::Relaxed) != marker() {
                link.owner
                    .store(ptr::from_ref(self).cast_mut(), Ordering::Relaxed);
                count += 1;
            }
            (before, at) = (at, link.next());
        }
        self.changing
            .head
            .prev
            .store(before.cast_mut(), Ordering::Relaxed);
        if self.changing.len.load(Ordering::Relaxed) != DEAD {
            self.changing.len.store(count, Ordering::Relaxed);
            self.count.store(count, Ordering::Relaxed);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hierarchy;

    #[test]
    fn child_of_fork_has_free_stocks() {
        let hierarchy = Hierarchy::new();
        let stocks = hierarchy.root().memcg().tree.stocks();
        mem::forget(
            stocks.per_cpu[0]
                .try_take()
                .expect("no other thread has it"),
        );
        stocks.per_cpu[0].waiting.fetch_add(1, Ordering::Relaxed);
        // SAFETY: no other thread has the hierarchy, and this one is not in there.
        unsafe { stocks.reset_in_child() };
        assert!(stocks.per_cpu[0].try_take().is_some());
    }
}
