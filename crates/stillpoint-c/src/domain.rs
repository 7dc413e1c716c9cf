//! Domains, as C sees them.

use crate::{
    ffi::{Errno, catch_panic_or, check, done},
    handle::{get, write_sized},
    static_domain,
};
use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr,
    sync::atomic::AtomicPtr,
    time::Duration,
};
use stillpoint::{Histogram, StallReport, Stalled, Statistics, raw, tasks_trace};

/// A domain: `struct stillpoint_domain`. A pointer to a domain points to a handle that never moves.
#[derive(Debug)]
#[repr(transparent)]
pub struct Domain(pub(crate) stillpoint::Domain);

/// The number of a cookie: `stillpoint_cookie`.
pub type Cookie = u64;

pub(crate) fn pointer(domain: &stillpoint::Domain) -> *mut Domain {
    ptr::from_ref(domain).cast_mut().cast()
}

/// Returns the domain that C refers to; null is the global one.
///
/// # Safety
///
/// The pointer is null, or came from this file, and the domain is not destroyed while the reference
/// is used.
#[inline]
pub(crate) unsafe fn resolve<'a>(domain: *const Domain) -> &'a stillpoint::Domain {
    // SAFETY: the caller's promise.
    match unsafe { domain.as_ref() } {
        Some(domain) => &domain.0,
        None => stillpoint::global(),
    }
}

/// Returns the result of `ask` for the domain that C refers to; `panicked` if it panics.
///
/// # Safety
///
/// The caller keeps the promise of [`resolve`].
pub(crate) unsafe fn with<T>(
    domain: *const Domain,
    panicked: T,
    ask: impl FnOnce(&stillpoint::Domain) -> T,
) -> T {
    // SAFETY: the caller's promise.
    catch_panic_or(panicked, || ask(unsafe { resolve(domain) }))
}

/// Runs `wait` with the domain that C refers to.
///
/// # Safety
///
/// The caller keeps the promise of [`resolve`].
unsafe fn wait(
    domain: *const Domain,
    wait: impl FnOnce(&stillpoint::Domain) -> Result<(), raw::Deadlock>,
) -> c_int {
    // SAFETY: the caller's promise.
    done(|| Ok(wait(unsafe { resolve(domain) })?))
}

/// Returns the global domain, which NULL also stands for. Never destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_global() -> *mut Domain {
    catch_panic_or(ptr::null_mut(), || pointer(stillpoint::global()))
}

/// Returns the global domain of readers that sleep: see stillpoint_trace_read_lock(). Never
/// destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_trace_global() -> *mut Domain {
    catch_panic_or(ptr::null_mut(), || pointer(tasks_trace::global()))
}

/// Creates a separate domain (like the kernel's SRCU), with a budget of 8 MiB.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_domain_new() -> *mut Domain {
    new_domain(stillpoint::Domain::new)
}

fn new_domain(make: impl FnOnce() -> stillpoint::Domain) -> *mut Domain {
    catch_panic_or(ptr::null_mut(), || Box::into_raw(Box::new(Domain(make()))))
}

/// Like stillpoint_domain_new(), but readers fence, so grace periods make no system call and
/// interrupt no thread.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_domain_new_fencing() -> *mut Domain {
    new_domain(stillpoint::Domain::with_fences)
}

/// Like stillpoint_domain_new(), with a name for stall reports and for the service thread, which is
/// named "rcu/" plus the start of the name, 15 bytes in all. Copies the name; replaces bytes that
/// are not UTF-8. NULL means no name. Names need not differ.
///
/// # Safety
///
/// The name is NULL or ends in a null byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_new_named(name: *const c_char) -> *mut Domain {
    let make = || {
        let builder = stillpoint::Domain::builder();
        if name.is_null() {
            return builder.build();
        }
        // SAFETY: the caller's promise.
        let name = unsafe { CStr::from_ptr(name) };
        builder.name(name.to_string_lossy()).build()
    };
    new_domain(make)
}

/// Returns the domain at `place`; if there is none, creates one as stillpoint_domain_new() does.
/// For static domains.
///
/// # Safety
///
/// `*place` is NULL or a domain, and only this function writes to it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_get_or_make(place: *mut *mut Domain) -> *mut Domain {
    catch_panic_or(ptr::null_mut(), || {
        // SAFETY: the caller's promise; it has the alignment of a pointer. A `Domain` is nothing
        // but the library's, by `repr(transparent)`.
        let place = unsafe { AtomicPtr::from_ptr(place.cast()) };
        static_domain::get_or_make(place, stillpoint::Domain::new).cast()
    })
}

/// Destroys a separate domain: calls its pending callbacks and frees its objects, which may block
/// for as long as callbacks take. A domain that arenas use ends with the last of them instead.
///
/// -EDEADLK inside a section or a callback of it, -EBUSY if another thread is detected inside a
/// section, -EINVAL for a global domain; the domain then still exists. No other thread may use it,
/// and it must not be used afterwards. NULL does nothing.
///
/// # Safety
///
/// The domain came from stillpoint_domain_new() or its like, no other thread uses it, and it is not
/// used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_destroy(domain: *mut Domain) -> c_int {
    done(|| {
        // SAFETY: the caller's promise.
        let Some(used) = (unsafe { domain.as_ref() }) else {
            return Ok(());
        };
        check(
            !is_global(&used.0),
            libc::EINVAL,
            "a global domain cannot be destroyed",
        )?;
        check_unused(&used.0)?;
        // SAFETY: `stillpoint_domain_new` took it out of a box, and the caller gives it up.
        drop(unsafe { Box::from_raw(domain) });
        Ok(())
    })
}

/// Returns whether programs must not destroy `domain`.
fn is_global(domain: &stillpoint::Domain) -> bool {
    let globals: [&stillpoint::Domain; 2] = [stillpoint::global(), tasks_trace::global()];
    globals.iter().any(|global| ptr::eq(*global, domain)) || static_domain::is_static(domain)
}

/// Returns whether a domain may be destroyed at this moment, as far as can be detected: no thread
/// is in it.
pub(crate) fn check_unused(domain: &stillpoint::Domain) -> Result<(), Errno> {
    check(
        !raw::is_reading(domain) && !raw::in_callback(domain),
        libc::EDEADLK,
        "destruction of a domain (or of an arena with its own) inside a section or a callback of it",
    )?;
    check(
        !raw::has_readers(domain),
        libc::EBUSY,
        "destruction of a domain (or of an arena with its own) while a thread is inside a section of it",
    )
}

/// Waits until every section that began before the call has ended: synchronize_rcu(). -EDEADLK
/// inside a section of this domain.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_synchronize(domain: *mut Domain) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { wait(domain, |domain| raw::synchronize(domain, false)) }
}

/// Waits like stillpoint_domain_synchronize(), but spins for up to 50 microseconds before it
/// sleeps: synchronize_rcu_expedited().
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_synchronize_expedited(domain: *mut Domain) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { wait(domain, |domain| raw::synchronize(domain, true)) }
}

/// Names the next grace period without starting it: get_state_synchronize_rcu().
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_get_state(domain: *mut Domain) -> Cookie {
    // SAFETY: the caller's promise.
    unsafe { resolve(domain) }.get_state().into_raw()
}

/// Starts a grace period and names it; it ends without a further call:
/// start_poll_synchronize_rcu(). Does not block.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_start_poll(domain: *mut Domain) -> Cookie {
    // SAFETY: the caller's promise.
    let domain = unsafe { resolve(domain) };
    // Panics only if the library has a bug. The cookie then names a grace period that ends later
    // than the requested one, never earlier.
    catch_panic_or(None, || Some(domain.start_poll()))
        .unwrap_or_else(|| domain.get_state())
        .into_raw()
}

/// Returns whether the grace period has ended: poll_state_synchronize_rcu(). Never waits. The
/// caller's own section counts, too.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_poll(domain: *mut Domain, cookie: Cookie) -> bool {
    let cookie = stillpoint::Cookie::from_raw(cookie);
    // SAFETY: the caller's promise.
    unsafe { with(domain, false, |domain| domain.poll(cookie)) }
}

/// Waits until the grace period has ended: cond_synchronize_rcu(). -EDEADLK if it waits for a
/// section of the calling thread.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_cond_synchronize(
    domain: *mut Domain,
    cookie: Cookie,
) -> c_int {
    let cookie = stillpoint::Cookie::from_raw(cookie);
    // SAFETY: the caller's promise.
    unsafe {
        wait(domain, |domain| {
            raw::cond_synchronize(domain, cookie, false)
        })
    }
}

/// Waits like stillpoint_domain_cond_synchronize(), but expedited:
/// cond_synchronize_rcu_expedited().
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_cond_synchronize_expedited(
    domain: *mut Domain,
    cookie: Cookie,
) -> c_int {
    let cookie = stillpoint::Cookie::from_raw(cookie);
    // SAFETY: the caller's promise.
    unsafe { wait(domain, |domain| raw::cond_synchronize(domain, cookie, true)) }
}

/// Waits until every callback queued before the call has run: rcu_barrier(). -EDEADLK if it would
/// wait for itself: inside a callback, or inside a section that began before one of them was
/// queued.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_barrier(domain: *mut Domain) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { wait(domain, raw::barrier) }
}

/// Waits until everything given to kvfree before the call has been freed: kvfree_rcu_barrier().
/// -EDEADLK as for stillpoint_domain_barrier().
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_kvfree_barrier(domain: *mut Domain) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { wait(domain, raw::kvfree_barrier) }
}

/// Waits like stillpoint_domain_kvfree_barrier(), and also until the objects that destructors have
/// retired on their own threads have been freed, those that they retired, and so on. Blocks of
/// malloc() have no destructors: this is for processes whose Rust or C++ parts retire in the same
/// domain, before their code is unloaded. Takes one grace period per link of the chain, and does
/// not return while other threads go on retiring objects whose destructors retire. Not
/// async-signal-safe. -EDEADLK as for stillpoint_domain_barrier().
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_kvfree_barrier_nested(domain: *mut Domain) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { wait(domain, raw::kvfree_barrier_nested) }
}

/// Delays callbacks of the domain by at least `milliseconds`: those of stillpoint_call() and of its
/// liburcu flavour, including those already queued. Whole batches are delayed, so a callback may
/// wait up to twice as long. The default for all domains is STILLPOINT_CALLBACK_DELAY_MS in the
/// environment, or 0. For programs that use an object outside of sections for a while after
/// queueing its callback. Deferred frees are not delayed; stillpoint_domain_barrier() cuts the
/// delay short for the callbacks that it waits for. Not async-signal-safe.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_set_callback_delay(
    domain: *mut Domain,
    milliseconds: u64,
) {
    let time = Duration::from_millis(milliseconds);
    // SAFETY: the caller's promise.
    unsafe { with(domain, (), |domain| domain.set_callback_delay(time)) };
}

/// Returns the callback delay in milliseconds. Async-signal-safe.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_callback_delay(domain: *mut Domain) -> u64 {
    // SAFETY: the caller's promise.
    let delay = unsafe { with(domain, Duration::ZERO, stillpoint::Domain::callback_delay) };
    u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)
}

/// Sets how long a grace period may be held up before it counts as a stall, in milliseconds. The
/// default is 10 seconds, or STILLPOINT_STALL in the environment, in seconds; this call overrides
/// both. 0 means that nothing counts as a stall.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_set_stall_timeout(
    domain: *mut Domain,
    milliseconds: u64,
) {
    let time = Duration::from_millis(milliseconds);
    // SAFETY: the caller's promise.
    unsafe { with(domain, (), |domain| domain.set_stall_timeout(time)) };
}

/// The stall handler: `stillpoint_stall_function`.
pub type StallFunction = Option<unsafe extern "C" fn(report: *const Stall, data: *mut c_void)>;

/// A report on a grace period that does not end, or a service thread that makes no progress. It is
/// valid until the function returns.
#[derive(Debug)]
#[repr(C)]
pub struct Stall {
    /// The report: the holdouts and the waiters, with names, thread ids, and where owned guards
    /// were made.
    pub text: *const c_char,
    /// How long the stall has lasted, in nanoseconds.
    pub lasted_ns: u64,
    /// The number of readers that block the grace period.
    pub holdouts: usize,
    /// The kernel's thread id of the oldest of them; 0 for none.
    pub tid: u32,
    /// Whether the service thread has stalled.
    pub service: bool,
}

struct StallHandler {
    function: unsafe extern "C" fn(*const Stall, *mut c_void),
    data: *mut c_void,
}

// SAFETY: the caller of stillpoint_domain_on_stall() promises that it may be called on any thread
// with its data.
unsafe impl Send for StallHandler {}
// SAFETY: as for Send.
unsafe impl Sync for StallHandler {}

impl StallHandler {
    fn report(&self, report: &StallReport) {
        let text = CString::new(report.to_string().replace('\0', "?")).unwrap_or_default();
        let stall = Stall {
            text: text.as_ptr(),
            lasted_ns: u64::try_from(report.lasted.as_nanos()).unwrap_or(u64::MAX),
            holdouts: report.holdouts.len() + report.more_holdouts,
            tid: report.holdouts.first().map_or(0, |first| first.thread.tid),
            service: report.stalled == Stalled::Service,
        };
        // SAFETY: the promise of its caller.
        unsafe { (self.function)(&raw const stall, self.data) };
    }
}

/// Starts the domain's service thread, which then runs for as long as the domain exists; otherwise
/// it starts with the first work and ends after a second without any. For programs that are about
/// to lose what starting a thread needs, or whose first work may come from a thread of low
/// priority: the service thread gets the main thread's policy and nice value if the kernel permits
/// that.
///
/// Does not block. -EAGAIN if the system refuses a thread, -ENOMEM.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_start_service(domain: *mut Domain) -> c_int {
    // SAFETY: the caller's promise.
    done(|| Ok(unsafe { resolve(domain) }.start_service()?))
}

/// Sets the function to call once per stall, like the kernel's "rcu detected stalls"; NULL removes
/// it. Without a function, one line per stall is written to stderr; it is dropped if stderr is
/// closed, or is a full pipe. STILLPOINT_STALL=off in the environment writes nothing;
/// STILLPOINT_STALL=stderr writes the line even if there is a function. The function runs on the
/// thread that detects the stall: it may read and log; it must not wait for callbacks or deferred
/// frees, nor take locks that are held around calls of this library. A replaced function may still
/// be running.
///
/// # Safety
///
/// The domain is NULL or alive. The function may be called with the data on any thread until the
/// domain is destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_on_stall(
    domain: *mut Domain,
    function: StallFunction,
    data: *mut c_void,
) {
    let set = |domain: &stillpoint::Domain| match function {
        Some(function) => {
            let handler = StallHandler { function, data };
            domain.on_stall(move |report| handler.report(report));
        }
        None => domain.reset_on_stall(),
    };
    // SAFETY: the caller's promise.
    unsafe { with(domain, (), set) };
}

/// Writes the first `size` bytes of the statistics (sizeof); bytes that this library does not know
/// are 0. Takes one lock per thread that has used the domain. -EINVAL for null.
///
/// # Safety
///
/// The domain is NULL or alive; `statistics` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_statistics(
    domain: *mut Domain,
    statistics: *mut Statistics,
    size: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    done(|| unsafe { write_sized(&resolve(domain).statistics(), statistics, size) })
}

/// Publishes the statistics of all present and future domains of the process to `stillpoint-top`
/// and other programs of the same user. They are in a memory file of 8 MiB, mostly unallocated,
/// which others can neither change nor shorten. The process must not close its descriptor, whose
/// link in /proc/PID/fd is /memfd:stillpoint-stats. STILLPOINT_STATS=on in the environment does the
/// same. A second call does nothing. The child of a fork gets its own page. Not async-signal-safe.
///
/// Returns a negative errno if the system refuses the file or its memory (-EMFILE, -ENOMEM, -EPERM
/// by a seccomp filter, and others). The next call tries again, except in a forked child in which
/// the system has refused it.
#[unsafe(no_mangle)]
pub extern "C" fn stillpoint_publish_statistics() -> c_int {
    done(|| Ok(stillpoint::publish_statistics()?))
}

/// Returns the number of durations in a histogram; 0 for NULL.
///
/// # Safety
///
/// The histogram is NULL, or one of the statistics.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_histogram_count(histogram: *const Histogram) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { get(histogram, 0, Histogram::count) }
}

/// Returns the quantile `q` of a histogram's durations in nanoseconds: 0.5 for the median, 0.99 for
/// the 99th percentile. At most a quarter too high; never too low, except that durations over 18
/// minutes count as 18. 0 if there are no durations, and for NULL. Clamps `q` to 0 to 1.
///
/// # Safety
///
/// The histogram is NULL, or one of the statistics.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_histogram_quantile(histogram: *const Histogram, q: f64) -> u64 {
    let nanos = |histogram: &Histogram| histogram.quantile(q).as_nanos() as u64;
    // SAFETY: the caller's promise.
    unsafe { get(histogram, 0, nanos) }
}

/// Sets how many bytes may be unreclaimed before threads that add more are throttled. 8 MiB by
/// default. Counts blocks given to kvfree, by their malloc_usable_size(), and the pages that track
/// them; not blocks that call_rcu()'s functions will free.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_set_budget(domain: *mut Domain, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { with(domain, (), |domain| domain.set_budget(bytes)) };
}

/// Returns the budget, in bytes.
///
/// # Safety
///
/// The domain is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stillpoint_domain_budget(domain: *mut Domain) -> usize {
    // SAFETY: the caller's promise.
    unsafe { with(domain, 0, stillpoint::Domain::budget) }
}
