//! A domain's statistics.

use crate::{
    gp::Engine,
    histogram::Histogram,
    kvfree::{Heap, Policy, Waiting},
};

/// A domain's statistics: what is pending now, and counts since it was created.
// C's `struct stillpoint_statistics` is this struct, and its comments are these. C programs pass
// the size that they know: a new field is a u64, or a Histogram, at the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
#[repr(C)]
pub struct Statistics {
    /// Retired objects that have not been freed.
    pub objects_pending: u64,
    /// Their size in bytes: their own blocks, by the allocator's size classes, and the weights that
    /// Rust code gives (Rcu::weighed). An object with a destructor but no weight counts as at least
    /// 1 KiB. Objects that the program's callbacks will free are not counted.
    pub bytes_pending: u64,
    /// Pages of 4 KiB in use to track them.
    pub pages: u64,
    /// Callbacks that have not been invoked.
    pub callbacks_pending: u64,
    /// Waiting tasks of Rust code: futures that have been polled, and neither woken nor dropped
    /// since.
    pub futures_pending: u64,
    /// Objects freed.
    pub objects_freed: u64,
    /// Callbacks invoked.
    pub callbacks_invoked: u64,
    /// Grace periods that have ended; several numbers that end at once count as one. A wait that
    /// returned at once, because no other thread was registered as a reader, is not counted.
    pub grace_periods: u64,
    /// Records of readers: one for each thread that has read or retired here, each QSBR reader and
    /// each owned guard, at the highest number so far, and some spare ones. About 110 bytes each.
    pub records: u64,
    /// Heavy barriers (membarrier calls, or fences) issued.
    pub heavy_barriers: u64,
    /// Grace periods that a retiring thread ended by itself because its queue had reached its
    /// quota.
    pub assists: u64,
    /// Bounded waits of retiring threads, past the budget.
    pub waits: u64,
    /// Objects freed by the thread that retired them after a separate grace period, because there
    /// was no memory for a page.
    pub inline_waits: u64,
    /// Objects that are never freed: there was no memory to track them when they were retired,
    /// inside a section or a callback, where waiting is impossible. C's functions return such an
    /// object to the caller (-ENOMEM), so these are objects that Rust code retired. Also counts
    /// objects that a domain of the crossbeam-epoch package leaves behind when the process exits.
    pub objects_leaked: u64,
    /// Grace periods held up for longer than the stall time-out.
    pub stalls: u64,
    /// Times that the service thread was held up for longer than the stall time-out.
    pub service_stalls: u64,
    /// Callbacks, destructors, weighers, wakers and stall handlers that panicked, and subscribers
    /// of `tracing` that panicked at a stall. C code does not panic.
    pub panics: u64,
    /// Times that the service thread panicked in the library's own code, and was restarted. After
    /// three within a minute it stays down: barriers then do its work, and tasks that wait ask
    /// again by themselves.
    pub service_failures: u64,
    /// How long grace periods have taken. Each one that readers hold up is timed, from when a
    /// waiting thread first notices that, which is later than the start. Of the others, one in 128
    /// is timed, from start to end, and counts as 128. So the count estimates grace_periods.
    pub grace_period_times: Histogram,
    /// How long callbacks have taken, from being queued to the end of the pass that invoked them.
    /// Callbacks that arrived together count as queued when the first one was.
    pub callback_times: Histogram,
    /// How long the bounded waits of retiring threads took; the count equals waits.
    pub wait_times: Histogram,
    /// How long those passes of the service thread took that freed objects.
    pub reclaim_times: Histogram,
}

impl Statistics {
    /// Returns the statistics. Takes one lock per thread.
    pub(crate) fn of<P: Policy>(engine: &Engine<P>, heap: &Heap) -> Self {
        Self::with(heap.waiting(), engine, heap)
    }

    /// Returns a racy snapshot that waits for no lock and leaves out the objects in pages that are not full.
    pub(crate) fn snapshot<P: Policy>(engine: &Engine<P>, heap: &Heap) -> Self {
        Self::with(heap.waiting_sealed(), engine, heap)
    }

    fn with<P: Policy>(waiting: Waiting, engine: &Engine<P>, heap: &Heap) -> Self {
        let counts = heap.counts();
        Self {
            objects_pending: waiting.objects,
            bytes_pending: waiting.bytes,
            pages: waiting.pages,
            callbacks_pending: engine.callbacks_pending(),
            futures_pending: engine.futures.len(),
            objects_freed: counts.freed + waiting.freed,
            callbacks_invoked: engine.callbacks_invoked(),
            grace_periods: engine.grace_periods(),
            records: engine.records(),
            heavy_barriers: engine.heavy_barriers(),
            assists: counts.assists,
            waits: counts.waits,
            inline_waits: counts.inline_waits,
            objects_leaked: counts.leaked,
            stalls: engine.stalls(),
            service_stalls: engine.service_stalls(),
            panics: counts.panicked + engine.panics(),
            service_failures: engine.service_failures(),
            grace_period_times: engine.grace_period_times(),
            callback_times: engine.callback_times(),
            wait_times: heap.wait_times(),
            reclaim_times: heap.reclaim_times(),
        }
    }
}
