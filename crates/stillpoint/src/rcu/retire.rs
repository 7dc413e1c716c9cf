//! A domain's deferred frees, as a user sees them.

use super::{core::Core, domain::Domain, thread};
use crate::{
    Destructor,
    gp::CallbackHead,
    kvfree::{NoPage, OnNoPage, Policy, RetireRequest},
    platform::user_code,
};
use std::{alloc::Layout, ptr::NonNull};

/// [`Domain::retire`] of the global domain, with one thread-local load instead of a look-up.
///
/// ```
/// use std::ptr::NonNull;
///
/// let object = NonNull::from(Box::leak(Box::new(7)));
/// // ... readers find it through an `AtomicPtr`, from which it is then unlinked ...
/// // SAFETY: it comes from a Box, no new reader can find it, and nothing else frees it.
/// unsafe { stillpoint::retire(object) };
/// ```
///
/// # Safety
///
/// As for [`Domain::retire`].
#[inline]
pub unsafe fn retire<T: Send + 'static>(object: NonNull<T>) {
    // SAFETY: the caller's promise; T is Send, so it may be freed on any thread.
    unsafe { thread::retire_global(RetireRequest::boxed(object)) };
}

impl Domain {
    /// Frees the boxed `object` after a grace period. The kernel's `kvfree_rcu()` with one
    /// argument.
    ///
    /// Costs a few nanoseconds. Once per page of some 250 objects it also seals the page, and may end
    /// a grace period. Then, and while more is due also in between, it frees up to 85 older objects;
    /// past twice the thread's share of the budget, or the budget, as many bytes as the page adds. If
    /// readers hold up twice the thread's share of the budget, or all of the budget, it waits,
    /// outside sections: 10 ms at most for each 64 KiB, or part of it, that a page and its objects
    /// weigh, and never more than a second. The end of a section waits for what was retired in it, in
    /// proportion: 40 us for a small object, 160 for one that counts for 1 KiB.
    ///
    /// An object counts for its block. One with a destructor may own more, and counts for 1 KiB at
    /// least; [`Domain::retire_weighed`] counts what it owns. Objects with a destructor, and those
    /// larger than a quarter of the budget, or than 128 KiB if that is more, are freed on the service thread, and count towards no
    /// thread's quota; others are freed by the retiring thread. Past the budget, a thread that
    /// retires objects with destructors waits for those before it to run, so hold no lock that they
    /// take. May be called inside sections, callbacks and thread-local destructors; not in signal
    /// handlers.
    ///
    /// If there is no memory for a page the caller waits for a grace period and frees the object
    /// itself; inside a section or a callback, where that is impossible, a callback
    /// frees it, and if there is no memory for that either, the object is never freed
    /// ([`Statistics::objects_leaked`](crate::Statistics::objects_leaked)): see
    /// [`Domain::try_retire`].
    ///
    /// # Safety
    ///
    /// `object` came from [`Box::into_raw`] (or [`Box::leak`]); readers that begin from now on
    /// cannot find it; no other thread frees or retires it, and it is used only by readers whose
    /// sections in this domain have begun already.
    ///
    /// ```
    /// # use std::ptr::NonNull;
    /// let domain = stillpoint::Domain::new();
    /// let object = NonNull::from(Box::leak(Box::new([0_u64; 4])));
    /// // SAFETY: no other thread has ever known the object.
    /// unsafe { domain.retire(object) };
    /// domain.kvfree_barrier();
    /// assert_eq!(domain.statistics().objects_pending, 0);
    /// ```
    #[inline]
    pub unsafe fn retire<T: Send + 'static>(&self, object: NonNull<T>) {
        // SAFETY: the caller's promise; T is Send, so it may be freed on any thread.
        unsafe { thread::retire(self.core(), RetireRequest::boxed(object)) };
    }

    /// Like [`Domain::retire`], but gives the object back if there is no memory for a page and no
    /// way to wait.
    ///
    /// # Errors
    ///
    /// The object, which is the caller's again.
    ///
    /// # Safety
    ///
    /// As for [`Domain::retire`].
    #[inline]
    pub unsafe fn try_retire<T: Send + 'static>(
        &self,
        object: NonNull<T>,
    ) -> Result<(), NonNull<T>> {
        // SAFETY: the caller's promise; T is Send, so it may be freed on any thread.
        unsafe { thread::try_retire(self.core(), RetireRequest::boxed(object), OnNoPage::Block) }
            .map_err(|NoPage| object)
    }

    /// Like [`Domain::retire`], for an object that owns `heap_bytes` bytes beside its own block:
    /// the buffers, tables and nodes that its destructor frees.
    ///
    /// They count as the block does: for the budget, for waits, and in
    /// [`Statistics::bytes_pending`](crate::Statistics::bytes_pending). Other retires do not know
    /// what an object owns, and count one with a destructor for 1 KiB at least; this one counts the
    /// block and `heap_bytes`, even if that is less. [`Weigh`](crate::Weigh) computes the bytes for
    /// types of `std`. An estimate is enough; an object counts for 512 GiB at most.
    ///
    /// An object of any weight waits only for what was unreclaimed before it: 10 ms for each 64 KiB,
    /// but never more than a second.
    ///
    /// # Safety
    ///
    /// As for [`Domain::retire`].
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use stillpoint::{Domain, Weigh};
    ///
    /// let domain = Domain::new();
    /// let list = Box::new(vec![0_u64; 1000]);
    /// let heap_bytes = list.heap_bytes();
    /// let guard = domain.read_lock();
    /// // SAFETY: from a box just now, and no other thread has ever known it.
    /// unsafe { domain.retire_weighed(NonNull::from(Box::leak(list)), heap_bytes) };
    /// assert!(domain.statistics().bytes_pending >= 8000);
    /// # drop(guard);
    /// ```
    pub unsafe fn retire_weighed<T: Send + 'static>(&self, object: NonNull<T>, heap_bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { thread::retire(self.core(), RetireRequest::weighed(object, heap_bytes)) };
    }

    /// Like [`Domain::retire`], for a type whose destructor may run on the retiring thread, in the
    /// middle of any later retire, and at the end of any section in which one was made: one that
    /// only frees memory, such as that of `Vec<u8>` or `String`.
    ///
    /// Freeing an object on the thread that allocated it is cheaper than on the service thread. A
    /// destructor that takes a lock may deadlock with a thread that calls `retire`, or drops a
    /// guard, while holding it.
    ///
    /// # Safety
    ///
    /// As for [`Domain::retire`].
    #[inline]
    pub unsafe fn retire_inline<T: Send + 'static>(&self, object: NonNull<T>) {
        // SAFETY: the caller's promise.
        unsafe { thread::retire(self.core(), RetireRequest::boxed(object).plain()) };
    }

    /// Frees a block of the global allocator after a grace period, without dropping what is in it.
    ///
    /// Otherwise like [`Domain::retire`].
    ///
    /// # Safety
    ///
    /// `block` came from the global allocator with `layout`, whose size is not 0; the rest as for
    /// [`Domain::retire`].
    ///
    /// ```
    /// use std::{alloc::{Layout, alloc}, ptr::NonNull};
    /// let layout = Layout::from_size_align(100, 8).unwrap();
    /// // SAFETY: the size is not 0.
    /// let block = NonNull::new(unsafe { alloc(layout) }).expect("memory");
    /// // SAFETY: allocated with that layout, and no other thread has ever known it.
    /// unsafe { stillpoint::global().retire_sized(block, layout) };
    /// ```
    #[inline]
    pub unsafe fn retire_sized(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { thread::retire(self.core(), RetireRequest::memory(block, layout)) };
    }

    /// Calls `how` with `object` after a grace period: for objects that a structure has allocated itself, whose
    /// type is not known or not `Send + 'static`, and which no box owns.
    ///
    /// It runs where destructors do, on the service thread. `object` need not be an address.
    /// Otherwise like [`Domain::retire`].
    ///
    /// # Safety
    ///
    /// `how` may be called with `object` once, on any thread and at any time from the end of the
    /// present sections on; no new reader finds what that frees.
    ///
    /// ```
    /// use stillpoint::Destructor;
    ///
    /// struct Node<'a>(&'a str, Option<Box<Node<'a>>>);
    ///
    /// /// # Safety
    /// ///
    /// /// `node` is a box, and not used any more.
    /// unsafe fn free(node: *mut u8) {
    ///     // SAFETY: the caller's promise; what it borrows is not used.
    ///     drop(unsafe { Box::from_raw(node.cast::<Node<'_>>()) });
    /// }
    ///
    /// static NODE: Destructor = Destructor::new(free, size_of::<Node<'_>>());
    /// let node = Box::into_raw(Box::new(Node("name", None)));
    /// // SAFETY: no other thread has ever known the node.
    /// unsafe { stillpoint::global().retire_with(node.cast(), &NODE) };
    /// ```
    #[inline]
    pub unsafe fn retire_with(&self, object: *mut u8, how: &'static Destructor) {
        // SAFETY: the caller's promise.
        unsafe { thread::retire(self.core(), RetireRequest::with(object, how)) };
    }

    /// Frees all that the calling thread has retired and that needs no wait: tries to end the grace
    /// period, frees on this thread what is due, and hands objects with a destructor to the service
    /// thread. While the budget is used up the thread keeps these until they fill a page (253 objects,
    /// or 64 KiB) or it falls idle; then, and at twice its share of the budget, also what readers may
    /// use.
    ///
    /// Nothing needs it: what an idle thread leaves is freed within 50 ms. It is for a thread that
    /// has just retired much, or something large, and for tests. It leaves alone what other threads
    /// have retired: see [`kvfree_barrier`](Domain::kvfree_barrier), which waits. Costs a heavy
    /// barrier if the grace period needs one, one or two looks at all records, and the frees; destructors of
    /// [`Domain::retire_inline`] run here. Called from one of these on the thread that retired it,
    /// it frees nothing. Inside a section it frees only pages sealed before the section began, because
    /// they were full or by an earlier flush. Not async-signal-safe.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// let domain = stillpoint::Domain::new();
    /// let buffer = NonNull::from(Box::leak(Box::new([0_u8; 1 << 20])));
    /// // SAFETY: from a box just now, and no other thread has ever known it.
    /// unsafe { domain.retire(buffer) };
    /// // No reader is in the way: the buffer is freed here, if the service thread has not done so.
    /// domain.flush();
    /// ```
    pub fn flush(&self) {
        let inner = &self.core().inner;
        // At its very end the thread has no buffer.
        thread::with(self.core(), |own| {
            inner
                .parts
                .heap()
                .flush_own(inner.parts.engine(), own.buffer);
        });
    }

    /// Frees a boxed object that embeds a [`CallbackHead`](crate::CallbackHead). The kernel's
    /// `kvfree_rcu()` with two arguments.
    ///
    /// Like [`Domain::retire`], but it neither fails nor blocks when memory runs out: if there is
    /// none for a page, the object is chained through its head.
    ///
    /// # Safety
    ///
    /// As for [`Domain::retire`].
    pub unsafe fn retire_with_head<T: EmbedsHead>(&self, object: NonNull<T>) {
        // SAFETY: the caller's promise.
        unsafe { self.core().retire_with_head(object) };
    }
}

/// What tortures and cells use, whatever the policy.
impl<P: Policy> Core<P> {
    /// See [`Domain::retire`].
    ///
    /// # Safety
    ///
    /// As there.
    #[inline]
    pub unsafe fn retire<T: Send + 'static>(&self, object: NonNull<T>) {
        // SAFETY: the caller's promise.
        unsafe { thread::retire(self, RetireRequest::boxed(object)) };
    }

    /// See [`Domain::retire_inline`].
    ///
    /// # Safety
    ///
    /// As there.
    #[inline]
    pub unsafe fn retire_inline<T: Send + 'static>(&self, object: NonNull<T>) {
        // SAFETY: the caller's promise.
        unsafe { thread::retire(self, RetireRequest::boxed(object).plain()) };
    }

    /// See [`Domain::retire_with_head`].
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn retire_with_head<T: EmbedsHead>(&self, object: NonNull<T>) {
        unsafe fn free<T: EmbedsHead>(head: NonNull<CallbackHead>) {
            // SAFETY: the head lies at this offset in a boxed T, by `EmbedsHead` and
            // `retire_with_head`'s contract.
            drop(unsafe { Box::from_raw(head.as_ptr().byte_sub(T::HEAD_OFFSET).cast::<T>()) });
        }
        let request = RetireRequest::boxed(object);
        // SAFETY: the caller's promise; T is Send, so it may be freed on any thread.
        if unsafe { thread::try_retire(self, request, OnNoPage::Fail) }.is_err() {
            // SAFETY: in bounds, by `EmbedsHead`'s contract.
            let head = unsafe { object.byte_add(T::HEAD_OFFSET) }.cast();
            // SAFETY: the object is given up to the callback, and is Send.
            unsafe { self.call_head(head, free::<T>) };
        }
    }

    /// Returns the bytes that a value owns, by `weigh`, which is user code. Returns 0 if it panics,
    /// and inside another such call, because a weigher that replaces a cell's value would call itself
    /// for ever.
    pub(crate) fn weigh(&self, weigh: impl FnOnce() -> usize) -> usize {
        if user_code::is_weighing() {
            return 0;
        }
        user_code::weighs(self.id(), weigh).unwrap_or_else(|| {
            self.inner.parts.heap().note_weigher_panicked();
            0
        })
    }
}

/// Frees all pending objects of `domain` together if `whole`: after one more grace period, by the
/// service thread, as `kvfree_rcu()` did before it polled one grace period per page. There is no
/// budget then. For the lab, which compares the two.
pub fn free_whole_batches(domain: &Domain, whole: bool) {
    domain.core().inner.parts.heap().set_whole_batches(whole);
}

/// A type with a [`CallbackHead`](crate::CallbackHead) in it, through which a callback can free it
/// when there is no memory for a page.
///
/// # Safety
///
/// A `CallbackHead` lies at `HEAD_OFFSET` bytes from the start of the type, and nothing else
/// touches it.
///
/// ```
/// use std::{mem::offset_of, ptr::NonNull};
/// use stillpoint::{CallbackHead, EmbedsHead};
/// struct Node { value: u64, head: CallbackHead }
/// // SAFETY: that is where the head is, and it is private.
/// unsafe impl EmbedsHead for Node { const HEAD_OFFSET: usize = offset_of!(Node, head); }
/// let node = NonNull::from(Box::leak(Box::new(Node { value: 1, head: CallbackHead::new() })));
/// // SAFETY: no other thread has ever known the node.
/// unsafe { stillpoint::global().retire_with_head(node) };
/// ```
pub unsafe trait EmbedsHead: Send + 'static {
    /// The offset of the head, in bytes.
    const HEAD_OFFSET: usize;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{kvfree::SLOTS, platform::sync::Ordering};
    use std::{sync::mpsc::channel, thread, time::Duration};

    fn retire_some(domain: &Domain, objects: usize) {
        // SAFETY: from a box just now; no other thread has ever known the object.
        (0..objects).for_each(|number| unsafe {
            domain.retire(NonNull::from(Box::leak(Box::new(number))))
        });
    }

    /// Returns how often retiring threads were throttled, and for how long at most, in nanoseconds.
    fn waits(domain: &Domain) -> (u64, u64) {
        (
            domain.statistics().waits,
            domain
                .core()
                .inner
                .parts
                .heap()
                .waits_granted
                .load(Ordering::Relaxed),
        )
    }

    fn is_throttled(domain: &Domain) -> bool {
        crate::rcu::thread::with(domain.core(), |retirer| retirer.buffer.is_throttled())
            .expect("it has retired")
    }

    /// Runs `work` while a reader on another thread holds up a page, in a domain without a budget.
    fn held_up(work: impl FnOnce(&Domain)) {
        let domain = Domain::new();
        domain.set_budget(0);
        domain.set_stall_timeout(Duration::MAX);
        let (entered, has_entered) = channel();
        let (end, may_end) = channel::<()>();
        thread::scope(|scope| {
            let domain = &domain;
            scope.spawn(move || {
                let _guard = domain.read_lock();
                entered.send(()).expect("the receiver is there");
                may_end.recv().expect_err("nothing is sent");
            });
            has_entered.recv().expect("a reader never waits");
            let _end = end;
            retire_some(domain, SLOTS);
            assert_eq!(waits(domain), (0, 0), "no page waits for itself");
            work(domain);
        });
        // Nothing is held up any more: the thread is no longer throttled.
        retire_some(&domain, 4 * SLOTS);
        domain.synchronize();
        retire_some(&domain, SLOTS);
        assert!(!is_throttled(&domain));
        domain.kvfree_barrier();
    }

    const BUDGET: usize = 8 << 20;

    const A_SECOND: u64 = 1_000_000_000;

    /// A block without a destructor. Its pages are never touched, so it costs little.
    fn retire_block(domain: &Domain, bytes: usize) {
        let layout = Layout::array::<u8>(bytes).expect("it fits");
        // SAFETY: the layout is not of size 0.
        let block = NonNull::new(unsafe { std::alloc::alloc(layout) }).expect("memory");
        // SAFETY: from the allocator just now; no other thread has ever known the block.
        unsafe { domain.retire_sized(block, layout) };
    }

    #[test]
    #[cfg_attr(miri, ignore = "it is about waits, and fills many pages for them")]
    fn an_object_of_any_size_waits_only_for_what_came_before_it() {
        held_up(|domain| {
            domain.set_budget(BUDGET);
            let retire = |domain| retire_block(domain, 3 * BUDGET);
            retire(domain);
            assert_eq!(waits(domain), (0, 0), "the budget was not used up before");
            retire(domain);
            assert_eq!(waits(domain), (1, A_SECOND));
            let guard = domain.read_lock();
            retire(domain);
            assert_eq!(waits(domain).0, 1, "inside a section nothing waits");
            drop(guard);
            assert_eq!(waits(domain), (2, 2 * A_SECOND), "but at its end");
            // Another section is another matter: it pays for its own.
            domain.read(|_| retire_some(domain, 1));
            let small = waits(domain).1 - 2 * A_SECOND;
            assert!(small <= FOR_A_PAGE / SLOTS as u64, "{small} ns");
        });
    }

    /// Past the budget such a thread waits for the one that frees the block, whatever its own queue has.
    #[test]
    fn large_blocks_wait_for_the_service_thread_also_where_light_pages_are_due() {
        let domain = Domain::new();
        domain.set_budget(BUDGET);
        let ((begun, has_begun), (end, may_end)) = (channel(), channel::<()>());
        domain.call(move || {
            begun.send(()).expect("the receiver is there");
            let _ = may_end.recv();
        });
        has_begun.recv().expect("the service thread comes to it");
        retire_some(&domain, SLOTS);
        retire_block(&domain, 3 * BUDGET);
        assert_eq!(waits(&domain).0, 0, "the budget was not used up before");
        retire_some(&domain, SLOTS);
        assert_eq!(waits(&domain).0, 0, "this page can be freed");
        retire_block(&domain, 3 * BUDGET);
        let (count, granted) = waits(&domain);
        assert_eq!(count, 1, "for the one before");
        assert!((1..=A_SECOND).contains(&granted), "less what freeing takes");
        drop(end);
        domain.kvfree_barrier();
    }

    /// If the machine leaves the thread idle for so long that the service thread adopts its queue, it
    /// begins again; not six times.
    #[test]
    #[cfg_attr(
        miri,
        ignore = "a page takes so long that the service thread adopts it"
    )]
    fn a_thread_ends_its_first_grace_period_at_the_smallest_quota() {
        let domain = Domain::new();
        let pages = (1..1_000)
            .find(|_| {
                retire_some(&domain, SLOTS);
                domain.statistics().assists > 0
            })
            .expect("it ends one");
        assert!((5..40).contains(&pages), "{pages}");
    }

    /// A page of small objects may be waited for for 10 ms.
    const FOR_A_PAGE: u64 = 10_000_000;

    #[test]
    fn section_waits_for_its_own_objects_only() {
        held_up(|domain| {
            retire_some(domain, SLOTS - 1);
            assert_eq!(waits(domain), (0, 0), "no page is full");
            // The first pays for its own, not for the page; so do those that come after, unless the
            // machine leaves the thread idle for so long that it is parked.
            let sections = (1..)
                .take_while(|_| waits(domain).0 < 10)
                .take(100 * SLOTS)
                .map(|_| {
                    let before = waits(domain);
                    let guard = domain.read_lock();
                    retire_some(domain, 1);
                    drop(guard);
                    let after = waits(domain);
                    assert!(
                        after.0 <= before.0 + 1 && after.1 <= before.1 + FOR_A_PAGE / SLOTS as u64,
                        "{before:?}, {after:?}"
                    );
                });
            sections.for_each(drop);
            assert_eq!(waits(domain).0, 10);
            // One that retires nothing waits for nothing.
            drop(domain.read_lock());
            assert_eq!(waits(domain).0, 10);
        });
    }

    /// The thread may exit before it fills the page.
    #[test]
    fn past_the_budget_a_threads_first_object_waits_as_long_as_a_page() {
        for is_in_section in [false, true] {
            held_up(|domain| {
                thread::scope(|scope| {
                    scope.spawn(|| {
                        let guard = is_in_section.then(|| domain.read_lock());
                        retire_some(domain, 1);
                        drop(guard);
                        assert_eq!(waits(domain), (1, FOR_A_PAGE));
                    });
                });
            });
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it is about waits, and fills many pages for them")]
    fn pages_filled_in_sections_are_waited_for_as_long() {
        held_up(|domain| {
            retire_some(domain, SLOTS);
            assert_eq!(waits(domain), (1, FOR_A_PAGE), "outside sections");
            // In percent of the wait for one page. No page is paid for twice; less is paid if the
            // machine leaves the thread idle for so long that it is parked.
            let paid_for = |section: &dyn Fn()| {
                let before = waits(domain).1;
                section();
                let percent = (waits(domain).1 - before) * 100 / FOR_A_PAGE;
                assert!(percent <= 200, "{percent} %");
                percent
            };
            let in_a_section = |objects| {
                let _guard = domain.read_lock();
                retire_some(domain, objects);
            };
            let each = || (0..2 * SLOTS).for_each(|_| in_a_section(1));
            let together = || in_a_section(2 * SLOTS);
            assert!(
                (0..20).any(|_| paid_for(&each) > 190),
                "one object at a time"
            );
            assert!(
                (0..20).any(|_| paid_for(&together) > 190),
                "two pages in a section"
            );
        });
    }
}
