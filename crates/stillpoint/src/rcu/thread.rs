//! What a thread keeps: its record and its buffer of retired objects, for each domain it has used.
//!
//! A thread is bound to a domain by its first read or retire there. The bindings are a list; caches
//! stand before it, so that the fast path costs one thread-local load: the record and the buffer of
//! the global domain, and the binding used last. None of them has a destructor: the platform calls
//! [`end`].
//!
//! # Signal handlers
//!
//! A handler may read, and so look bindings up, between any two instructions of this file, in
//! domains that the thread is bound to. Each look-up therefore loads one pointer, once, to a
//! binding that stays: what a handler changes meanwhile (the binding used last) makes no difference
//! to a look-up that has loaded. Bindings are added and removed by one store each.
//!
//! # At the thread's end
//!
//! [`end`] gives everything back. Records whose guards are still alive (in other thread-local
//! objects, or leaked) are given back by the unlock that ends their section, if there ever is one.
//! Later destructors of the thread may still read and retire: a read gets a record for that one
//! section, a retire goes through a buffer that such threads share. The same holds for a thread
//! whose end could not be arranged, until that succeeds and the section that is then open has
//! ended.

use super::core::{Core, Inner, RCU, global_core, global_id};
use crate::{
    gp::{Flavour, GLOBALS, Record, RecordCache},
    kvfree::{NoPage, OnNoPage, Policy, Pushed, RetireRequest, Retirer, ThreadBuffer},
    platform::{barrier, fork::ForkReset, sync::Arc, thread},
};
use std::{
    cell::{Cell, OnceCell},
    iter,
    ptr::{self, NonNull},
    sync::atomic::{Ordering, compiler_fence},
};

/// A domain as the list sees it, whatever its policy.
trait Bound: Send + Sync {
    fn is_closed(&self) -> bool;
    fn leave(&self, buffer: &Arc<ThreadBuffer>);
    fn run_deferred_work(&self, retirer: Retirer<'_>);
}

impl<P: Policy> Bound for Inner<P> {
    fn is_closed(&self) -> bool {
        self.is_closed()
    }

    fn leave(&self, buffer: &Arc<ThreadBuffer>) {
        self.parts.heap().leave(self.parts.engine(), buffer);
    }

    fn run_deferred_work(&self, retirer: Retirer<'_>) {
        self.parts
            .heap()
            .reclaim_after_section(self.parts.engine(), retirer);
    }
}

struct Binding {
    /// Keeps `record` and everything else of the domain in place, also after its last handle is
    /// dropped.
    domain: Arc<dyn Bound>,
    id: u64,
    record: *const Record,
    /// Made by the thread's first retire.
    buffer: OnceCell<Arc<ThreadBuffer>>,
    /// Cached records for owned guards.
    spares: RecordCache,
    next: Cell<*const Binding>,
}

impl Binding {
    fn record(&self) -> &Record {
        // SAFETY: `domain` keeps its records in place.
        unsafe { &*self.record }
    }

    /// Returns the thread's buffer in `domain`, whose binding this is. `None` if there is no memory for one.
    fn buffer<P: Policy>(&self, domain: &Core<P>) -> Option<&Arc<ThreadBuffer>> {
        if self.buffer.get().is_none() {
            let new = domain.inner.parts.heap().join()?;
            let buffer = self.buffer.get_or_init(|| new);
            if self.id == global_id(RCU) {
                GLOBAL_BUFFER.set(Arc::as_ptr(buffer));
            }
        }
        self.buffer.get()
    }
}

/// The calling thread's bindings, newest first. It owns them.
struct Bindings(Cell<*const Binding>);

impl Bindings {
    fn iter(&self) -> impl Iterator<Item = &Binding> {
        self.from(self.0.get())
    }

    /// Returns the bindings from `first` on, which is one of them, or null for none.
    fn from(&self, first: *const Binding) -> impl Iterator<Item = &Binding> {
        // SAFETY: a binding in the list stays until `remove` takes it out, which is never called
        // while iterating.
        let at = |binding: *const Binding| unsafe { binding.as_ref() };
        iter::successors(at(first), move |binding| at(binding.next.get()))
    }

    fn find(&self, id: u64) -> Option<&Binding> {
        self.iter().find(|binding| binding.id == id)
    }

    fn add(&self, binding: Binding) -> &Binding {
        binding.next.set(self.0.get());
        let binding = Box::into_raw(Box::new(binding));
        // A handler that finds the binding finds it complete. Needs no partner: handlers run on
        // this thread.
        compiler_fence(Ordering::Release);
        self.0.set(binding);
        // SAFETY: made just now; it stays until `remove` takes it out.
        unsafe { &*binding }
    }

    /// Takes out all bindings that `goes` selects, and only then gives them back, because user code
    /// that then runs may bind the thread again.
    fn remove(&self, goes: impl Fn(&Binding) -> bool) {
        let mut gone: *const Binding = ptr::null();
        let mut link = &self.0;
        // SAFETY: as in `iter`.
        while let Some(binding) = unsafe { link.get().as_ref() } {
            if goes(binding) {
                // The pointer of the box, not one made from the reference, which may only read.
                gone = link.replace(binding.next.replace(gone));
            } else {
                link = &binding.next;
            }
        }
        // A handler may just have made one of them the binding used last.
        LAST.set(ptr::null());
        // Needs no partner: handlers run on this thread, before this and find it, or after and do
        // not.
        compiler_fence(Ordering::SeqCst);
        while !gone.is_null() {
            // SAFETY: `add` made it of a box, it is out of the list, and no handler that may have
            // seen it there runs any more.
            let binding = unsafe { Box::from_raw(gone.cast_mut()) };
            gone = binding.next.get();
            give_back(binding);
        }
    }
}

fn give_back(binding: Box<Binding>) {
    if let Some(buffer) = binding.buffer.get() {
        binding.domain.leave(buffer);
    }
    binding.spares.give_back(0);
    binding.record().depart();
}

/// The state of the calling thread's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// Nothing has been arranged for it.
    Unbound,
    /// [`end`] will be called.
    Bound,
    /// [`end`] has been called, perhaps just now.
    Over,
}

/// Registers [`end`] to run when the calling thread exits. Returns whether that succeeded.
fn arrange_end() -> bool {
    match LIFE.get() {
        Life::Bound => true,
        Life::Over => false,
        Life::Unbound => {
            let arranged = thread::call_at_end(end);
            if arranged {
                LIFE.set(Life::Bound);
            }
            arranged
        }
    }
}

/// Returns whether the calling thread is at its very end.
pub(super) fn is_over() -> bool {
    LIFE.get() == Life::Over
}

/// Notes that the calling thread begins a section without being bound.
pub(super) fn note_late() {
    WAS_LATE.set(true);
}

/// Runs at the calling thread's end: gives back what the thread keeps.
fn end() {
    // From here on no look-up finds the bindings, so that a signal handler does not cache again
    // what is forgotten below.
    LIFE.set(Life::Over);
    LAST.set(ptr::null());
    // Needs no partner: handlers run on this thread.
    compiler_fence(Ordering::SeqCst);
    GLOBAL_RECORDS.with(|records| records.iter().for_each(|record| record.set(&UNREGISTERED)));
    GLOBAL_BUFFER.set(ptr::null());
    if let Some(forget) = AT_THREADS_END.get() {
        forget();
    }
    BINDINGS.with(|bindings| bindings.remove(|_| true));
}

/// Returns the result of `look` in the calling thread's bindings. Neither allocates nor binds.
fn look_up<R>(look: impl FnOnce(&Bindings) -> Option<R>) -> Option<R> {
    if LIFE.get() == Life::Bound {
        BINDINGS.with(look)
    } else {
        None
    }
}

thread_local! {
    /// Clears other caches of this thread's records, before these are released. Set per thread by
    /// the cache's owner, so that no process-wide lock is needed.
    static AT_THREADS_END: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Registers `forget` to run when the calling thread exits, before its records are released.
/// Returns whether that succeeded.
pub(super) fn at_threads_end(forget: fn()) -> bool {
    AT_THREADS_END.set(Some(forget));
    arrange_end()
}

static UNREGISTERED: Record = Record::unregistered();

/// A cached pointer to a record that is never freed. `NonNull`, so the fast path has no null check;
/// a pointer and not a reference, because Rust 1.88 refuses a reference to a mutable static in the
/// constant that thread-local state begins with.
struct Remembered(Cell<NonNull<Record>>);

impl Remembered {
    const fn unregistered() -> Self {
        // SAFETY: a static's address.
        Self(Cell::new(unsafe {
            NonNull::new_unchecked((&raw const UNREGISTERED).cast_mut())
        }))
    }

    #[inline(always)]
    fn get(&self) -> &'static Record {
        // SAFETY: from a static or, by `set`, from a reference as long.
        unsafe { self.0.get().as_ref() }
    }

    #[inline(always)]
    fn set(&self, record: &'static Record) {
        self.0.set(NonNull::from(record));
    }
}

thread_local! {
    /// The thread's record in each global domain, where readers need no fence; otherwise, and
    /// before the first section, the unregistered sentinel.
    static GLOBAL_RECORDS: [Remembered; GLOBALS] = const { [const { Remembered::unregistered() }; GLOBALS] };
    /// The thread's buffer in the first of them; null before the first use.
    static GLOBAL_BUFFER: Cell<*const ThreadBuffer> = const { Cell::new(ptr::null()) };
    /// The binding used last; null for none.
    static LAST: Cell<*const Binding> = const { Cell::new(ptr::null()) };
    static BINDINGS: Bindings = const { Bindings(Cell::new(ptr::null())) };
    static LIFE: Cell<Life> = const { Cell::new(Life::Unbound) };
    /// Whether the thread has ever begun a section without being bound.
    static WAS_LATE: Cell<bool> = const { Cell::new(false) };
}

/// Begins an outermost section of a global domain through the calling thread's record: the fast path.
/// `None` if the slow path is needed.
#[inline(always)]
pub(super) fn lock_global_outermost<const GLOBAL: usize>() -> Option<&'static Record> {
    let record = GLOBAL_RECORDS.with(|records| records[GLOBAL].get());
    record.lock_global_outermost::<GLOBAL>().then_some(record)
}

/// Retires an object in `domain`, through the calling thread's buffer there: the fast path is an
/// append. Binds the thread on first use.
///
/// # Safety
///
/// As for [`Domain::retire`](super::Domain::retire), and the object may be freed on any thread.
#[inline(always)]
pub(crate) unsafe fn retire<P: Policy>(domain: &Core<P>, object: RetireRequest) {
    // SAFETY: as in `with`.
    let buffer = binding(domain).and_then(|binding| unsafe { &*binding }.buffer.get());
    match buffer.map(|buffer| buffer.append(object)) {
        Some(Pushed::Ok) => {}
        pushed => {
            // SAFETY: the caller's promise.
            let retired = unsafe { retire_slow(domain, object, pushed, OnNoPage::BlockOrCall) };
            debug_assert!(retired.is_ok(), "a callback never gives it back");
        }
    }
}

/// Like [`retire`], but `on_no_page` says what to do if there is no memory for a page.
///
/// # Safety
///
/// As for [`retire`].
#[inline(always)]
pub(super) unsafe fn try_retire<P: Policy>(
    domain: &Core<P>,
    object: RetireRequest,
    on_no_page: OnNoPage,
) -> Result<(), NoPage> {
    // SAFETY: as in `with`.
    let buffer = binding(domain).and_then(|binding| unsafe { &*binding }.buffer.get());
    match buffer.map(|buffer| buffer.append(object)) {
        Some(Pushed::Ok) => Ok(()),
        // SAFETY: the caller's promise.
        pushed => unsafe { retire_slow(domain, object, pushed, on_no_page) },
    }
}

/// [`retire`] in the global domain, with one thread-local load instead of a look-up.
///
/// # Safety
///
/// As for [`retire`].
#[inline(always)]
pub(super) unsafe fn retire_global(object: RetireRequest) {
    // SAFETY: the list holds the buffer until the thread's end, which sets this to null before; it
    // cannot come meanwhile.
    let buffer = unsafe { GLOBAL_BUFFER.get().as_ref() };
    match buffer.map(|buffer| buffer.append(object)) {
        Some(Pushed::Ok) => {}
        pushed => {
            let domain = global_core::<RCU>();
            // SAFETY: the caller's promise.
            let retired = unsafe { retire_slow(domain, object, pushed, OnNoPage::BlockOrCall) };
            debug_assert!(retired.is_ok(), "a callback never gives it back");
        }
    }
}

/// Completes a retire after the fast path. `pushed` is the result of its append; `None` if the
/// thread has no buffer yet, or no more.
///
/// # Safety
///
/// As for [`retire`].
#[cold]
#[inline(never)]
pub(super) unsafe fn retire_slow<P: Policy>(
    domain: &Core<P>,
    object: RetireRequest,
    pushed: Option<Pushed>,
    on_no_page: OnNoPage,
) -> Result<(), NoPage> {
    let (engine, heap) = (domain.engine(), domain.inner.parts.heap());
    let retire = |retirer: Retirer<'_>| {
        // SAFETY: the caller's promise.
        unsafe { heap.retire_slow(engine, retirer, object, pushed, on_no_page) }
    };
    with(domain, retire).unwrap_or_else(|| {
        let record = bound_record(domain);
        // SAFETY: the caller's promise.
        unsafe { heap.retire_unbuffered(engine, record, object, pushed, on_no_page) }
    })
}

/// Returns the calling thread's buffer in the global domain, if it has one.
pub(super) fn global_buffer() -> Option<NonNull<ThreadBuffer>> {
    NonNull::new(GLOBAL_BUFFER.get().cast_mut())
}

/// Returns the calling thread's record in a global domain; registers it on first use. `None` at the
/// thread's very end.
pub(super) fn global_record<const GLOBAL: usize>() -> Option<&'static Record> {
    let known = GLOBAL_RECORDS.with(|records| records[GLOBAL].get());
    if !ptr::eq(known, &UNREGISTERED) {
        return Some(known);
    }
    let record = record(global_core::<GLOBAL>())?;
    if !barrier::readers_fence() {
        GLOBAL_RECORDS.with(|records| records[GLOBAL].set(record));
    }
    Some(record)
}

/// Returns the calling thread's record in `domain`; registers it on first use. `None` at the
/// thread's very end, and where that cannot be arranged.
#[inline]
pub(super) fn record<P: Policy>(domain: &Core<P>) -> Option<&Record> {
    let binding = binding(domain)?;
    // SAFETY: the binding stays until the thread's end or the domain's, and its record as long as
    // the domain, which the caller's handle keeps.
    Some(unsafe { &*(*binding).record })
}

/// Returns the calling thread's record in `domain`, if it is bound there. Does not bind it.
#[inline]
pub(super) fn bound_record<P: Policy>(domain: &Core<P>) -> Option<&Record> {
    let last = LAST.get();
    // SAFETY: as in `binding`.
    let binding = match unsafe { last.as_ref() } {
        Some(binding) if binding.id == domain.id() => last,
        _ => look_up(|bindings| bindings.find(domain.id()).map(ptr::from_ref))?,
    };
    // SAFETY: as in `record`.
    Some(unsafe { &*(*binding).record })
}

/// Runs `work` with the calling thread's record and buffer in `domain`. Binds the thread and makes the buffer
/// on first use. Returns `None` at the thread's very end, and if there is no memory for the buffer.
pub(super) fn with<P: Policy, R>(
    domain: &Core<P>,
    work: impl FnOnce(Retirer<'_>) -> R,
) -> Option<R> {
    let binding = binding(domain)?;
    // SAFETY: the binding stays until the thread's end or the domain's; neither can come while
    // `work` runs.
    let binding = unsafe { &*binding };
    Some(work(Retirer {
        record: binding.record(),
        buffer: binding.buffer(domain)?,
    }))
}

/// Returns a quiescent record of the calling thread, to be given to an owned guard. `None` at the
/// thread's very end.
#[inline]
pub(crate) fn take_cached_record<P: Policy>(domain: &Core<P>) -> Option<&Record> {
    let binding = binding(domain)?;
    // SAFETY: as in `with`.
    let binding = unsafe { &*binding };
    Some(binding.spares.take(
        domain.inner.parts.atomics(),
        thread::token(),
        binding.record(),
    ))
}

/// Takes back the quiescent record of an owned guard that has ended. Keeps it for the calling
/// thread's next guard if the thread is bound to the domain; otherwise gives it back to the domain.
#[inline]
pub(crate) fn cache_record(record: &Record) {
    let last = LAST.get();
    // SAFETY: as in `binding`.
    match unsafe { last.as_ref() } {
        Some(binding) if binding.id == record.domain() => {
            binding
                .spares
                .keep(record, thread::token(), binding.record())
        }
        _ => keep_spare_elsewhere(record),
    }
}

#[cold]
#[inline(never)]
fn keep_spare_elsewhere(record: &Record) {
    let keep = |bindings: &Bindings| {
        let binding = bindings.find(record.domain())?;
        binding
            .spares
            .keep(record, thread::token(), binding.record());
        LAST.set(binding);
        Some(())
    };
    if look_up(keep).is_none() {
        record.vacate();
    }
}

/// Returns the calling thread's binding to `domain`. One load of `LAST`: see the module's head.
#[inline(always)]
fn binding<P: Policy>(domain: &Core<P>) -> Option<*const Binding> {
    let last = LAST.get();
    // SAFETY: null or a binding of this thread. `remove` clears `LAST` before it frees a binding,
    // when no handler can find that any more.
    let is_it = unsafe { last.as_ref() }.is_some_and(|last| last.id == domain.id());
    if is_it {
        Some(last)
    } else {
        find_or_bind(domain)
    }
}

#[cold]
#[inline(never)]
fn find_or_bind<P: Policy>(domain: &Core<P>) -> Option<*const Binding> {
    if !arrange_end() {
        return None;
    }
    let binding = BINDINGS.with(|bindings| {
        Some(ptr::from_ref(
            bindings
                .find(domain.id())
                .or_else(|| bind(bindings, domain))?,
        ))
    })?;
    LAST.set(binding);
    Some(binding)
}

/// Binds the calling thread. `None` inside a section that has begun without a binding.
fn bind<'a, P: Policy>(bindings: &'a Bindings, domain: &Core<P>) -> Option<&'a Binding> {
    // Lets go of domains that are no more, so that a thread which outlives many of them does not
    // collect them.
    bindings.remove(|binding| binding.domain.is_closed());
    let inner = &domain.inner;
    if WAS_LATE.get()
        && inner
            .parts
            .atomics()
            .open_record_of(thread::token())
            .is_some()
    {
        return None;
    }
    Some(
        bindings.add(Binding {
            domain: Arc::clone(inner) as Arc<dyn Bound>,
            id: inner.id(),
            record: inner
                .parts
                .atomics()
                .register(thread::token(), Flavour::Thread),
            buffer: OnceCell::new(),
            spares: RecordCache::new(),
            next: Cell::new(ptr::null()),
        }),
    )
}

/// Runs `work` with the calling thread's buffer in domain `id`, if it has one. Neither binds it nor
/// allocates.
pub(super) fn with_buffer<R>(id: u64, work: impl FnOnce(&ThreadBuffer) -> R) -> Option<R> {
    let buffer = look_up(|bindings| bindings.find(id)?.buffer.get().map(Arc::as_ptr))?;
    // SAFETY: the list holds the buffer until the thread's end or the domain's; neither can come
    // while `work` runs.
    Some(work(unsafe { &*buffer }))
}

impl<P: Policy> ForkReset for Inner<P> {
    /// Resets the domain, unless it has had only sections of the calling thread, so that nothing of
    /// it is lost with the other threads. Programs may have thousands of such domains, and each
    /// page that is written to is copied.
    unsafe fn reset_in_child(&self) {
        let is_published = self.block.get().is_some();
        if !self.parts.is_used()
            && !is_published
            && self.parts.atomics().has_records_of_this_thread_alone()
        {
            return;
        }
        let (engine, heap) = (self.parts.engine(), self.parts.heap());
        // SAFETY: the caller's promise; the buffer is that of the calling thread.
        unsafe {
            engine.reset_in_child();
            heap.reset_in_child();
            reset_in_child(self.id(), |own| {
                heap.keep_counts_of(own);
                own.reset_in_child();
            });
        }
        self.show_again();
        self.publish_all();
    }
}

/// Puts the calling thread's binding to domain `id` in order, in the child of a fork, and runs `work` with
/// the thread's buffer there, if there is one. Domains are reset in the order of the list, the newest
/// first, so the search begins behind the binding that was found last.
fn reset_in_child(id: u64, work: impl FnOnce(&ThreadBuffer)) {
    let binding = look_up(|bindings| {
        let mut behind = bindings.from(LAST.get());
        let found = behind.find(|binding| binding.id == id);
        Some(ptr::from_ref(found.or_else(|| bindings.find(id))?))
    });
    if let Some(binding) = binding {
        LAST.set(binding);
        // SAFETY: as in `with_buffer`.
        let binding = unsafe { &*binding };
        binding.spares.note_tid(binding.record());
        if let Some(buffer) = binding.buffer.get() {
            work(buffer);
        }
    }
}

/// Does the work that a section put off to its end.
#[cold]
pub(super) fn run_deferred_work(record: &Record) {
    let found = look_up(|bindings| {
        let binding = bindings
            .iter()
            .find(|binding| ptr::eq(binding.record, record))?;
        // It has put the work off through its buffer.
        let buffer = binding.buffer.get()?;
        Some((Arc::clone(&binding.domain), Arc::clone(buffer)))
    });
    if let Some((domain, buffer)) = found {
        domain.run_deferred_work(Retirer {
            record,
            buffer: &buffer,
        });
    }
}
