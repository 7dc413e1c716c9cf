//! Out of memory: when no page can be allocated, nothing is lost, nothing is freed twice, and a
//! caller that may not wait gets an error.
//!
//! The allocator of this program refuses what has a page's layout while it is told to, and one
//! thread everything.

mod common;

use common::{
    Bomb, Hear, Over, Reader, Tally, Tell, Tracked, apart, assert_counts, eventually, leak,
    panic_message,
    refusing::{Refusing, without_memory},
    retire, retire_inline, returns,
    tasks::waker,
    without_new_threads,
};
use std::{
    alloc::{GlobalAlloc, Layout},
    cell::Cell,
    mem::{self, offset_of},
    pin::pin,
    ptr::{self, NonNull},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::channel,
    },
    task::Context,
    thread,
};
use stillpoint::{CallbackHead, Domain, EmbedsHead, RcuOption};

struct Allocator;

/// The layout of a page of the library, which nothing else here has.
const PAGE: (usize, usize) = (4096, 64);

static REFUSING: AtomicBool = AtomicBool::new(false);
static REFUSED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is done by `Refusing`; a null pointer is always a permitted answer.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if (layout.size(), layout.align()) == PAGE && REFUSING.load(Ordering::SeqCst) {
            REFUSED.fetch_add(1, Ordering::SeqCst);
            return ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { Refusing.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; the block came from `Refusing`.
        unsafe { Refusing.dealloc(block, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// While this exists, no thread can allocate a page.
struct NoPages;

impl NoPages {
    fn begin() -> Self {
        REFUSED.store(0, Ordering::SeqCst);
        REFUSING.store(true, Ordering::SeqCst);
        Self
    }

    /// Stops failing allocations, and checks that `domain` works.
    fn end(self, domain: &Domain) {
        drop(self);
        assert_works(domain);
    }
}

impl Drop for NoPages {
    fn drop(&mut self) {
        REFUSING.store(false, Ordering::SeqCst);
    }
}

/// Locks the shared allocator for one test. Returns the lock, a domain and a tally.
fn alone() -> (MutexGuard<'static, ()>, Domain, Tally) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    (turn, Domain::new(), Tally::new())
}

fn kvfree_barrier_returns(domain: &Domain) {
    let domain = domain.clone();
    returns(move || domain.kvfree_barrier());
}

/// More than a page holds.
const SOME: usize = 700;

/// Returns whether the object was taken. If not, it is dropped here, as its owner may: no other
/// thread knows it.
fn try_retire<T: Send + 'static>(domain: &Domain, value: T) -> bool {
    let object = leak(value);
    // SAFETY: no other thread has ever known the object.
    match unsafe { domain.try_retire(object) } {
        Ok(()) => true,
        Err(back) => {
            assert_eq!(back, object);
            // SAFETY: it came from a box and is ours again.
            drop(unsafe { Box::from_raw(back.as_ptr()) });
            false
        }
    }
}

struct Node {
    value: Tracked,
    head: CallbackHead,
}

// SAFETY: that is where the head is, and nothing else touches it.
unsafe impl EmbedsHead for Node {
    const HEAD_OFFSET: usize = offset_of!(Node, head);
}

fn retire_node(domain: &Domain, value: Tracked) {
    // SAFETY: no other thread has ever known the node.
    unsafe {
        domain.retire_with_head(leak(Node {
            value,
            head: CallbackHead::new(),
        }))
    };
}

impl Drop for Node {
    fn drop(&mut self) {
        // Fails the test, by way of the count of panics, if the node were freed twice.
        self.value.get();
    }
}

/// Checks that `domain` works as ever once there is memory again.
fn assert_works(domain: &Domain) {
    let domain = domain.clone();
    returns(move || {
        let tally = Tally::new();
        let waits = domain.statistics().inline_waits;
        for number in 0..SOME {
            retire(&domain, tally.value(1));
            retire(&domain, number);
            assert!(domain.read(|_| try_retire(&domain, tally.value(2))));
        }
        domain.kvfree_barrier();
        assert!(tally.all_dropped());
        assert_counts!(domain, objects_pending: 0, inline_waits: waits, panics: 0);
    });
}

#[test]
fn outside_a_section_retire_waits_and_frees() {
    let (_alone, domain, tally) = alone();
    let no_pages = NoPages::begin();
    for number in 0..100 {
        retire(&domain, number);
        retire(&domain, tally.value(number));
        assert!(try_retire(&domain, tally.value(number)));
        retire_inline(&domain, tally.value(number));
        assert!(tally.all_dropped(), "each is freed when the call returns");
    }
    assert_counts!(domain, inline_waits: 400, objects_freed: 400, pages: 0);
    assert!(REFUSED.load(Ordering::SeqCst) >= 400);
    no_pages.end(&domain);
}

#[test]
fn retire_without_page_waits_for_readers() {
    let (_alone, domain, tally) = alone();
    let reader = Reader::enter(&domain);
    let no_pages = NoPages::begin();
    let (theirs, counted, next) = (domain.clone(), tally.clone(), domain.get_state());
    let retirer = thread::spawn(move || retire(&theirs, counted.value(1)));
    eventually(|| domain.get_state() != next);
    assert!(
        !retirer.is_finished() && tally.dropped() == 0,
        "the reader is still there"
    );
    reader.leave();
    returns(move || retirer.join().expect("no panic"));
    assert!(tally.all_dropped());
    no_pages.end(&domain);
}

#[test]
fn destructor_panic_in_retire_without_page_is_contained() {
    let (_alone, domain, tally) = alone();
    let no_pages = NoPages::begin();
    retire(&domain, Bomb(tally.value(1)));
    assert_eq!((tally.dropped(), domain.statistics().panics), (1, 1));
    drop(no_pages);
}

#[test]
fn what_a_callback_frees_counts_its_weight() {
    const WEIGHT: usize = 3 << 20;
    let (_alone, domain, tally) = alone();
    domain.set_budget(1 << 20);
    let cell = RcuOption::new_in(&domain, tally.value(0)).weighing(|_| WEIGHT);
    let guard = domain.read_lock();
    let no_pages = NoPages::begin();
    drop(cell.take());
    // SAFETY: no other thread has ever known the object.
    unsafe { domain.retire_weighed(leak(tally.value(1)), usize::MAX) };
    let bytes = domain.statistics().bytes_pending as usize;
    let most = WEIGHT + (1 << 39);
    assert!((most..most + 10_000).contains(&bytes), "{bytes} bytes");
    drop(no_pages);
    drop(guard);
    domain.barrier();
    assert!(tally.all_dropped());
    assert_counts!(domain, bytes_pending: 0, objects_leaked: 0);
    assert_works(&domain);
}

#[test]
fn inside_a_section_try_retire_gives_the_object_back() {
    let (_alone, domain, tally) = alone();
    let guard = domain.read_lock();
    let no_pages = NoPages::begin();
    for number in 0..10 {
        assert!(!try_retire(&domain, tally.value(number)) && !try_retire(&domain, number));
    }
    assert!(tally.all_dropped(), "by their owner");
    assert_eq!(domain.statistics().objects_freed, 0);
    drop(no_pages);
    assert!(try_retire(&domain, tally.value(1)));
    assert_eq!(tally.dropped(), 10, "the section is open");
    drop(guard);
    assert_works(&domain);
    assert!(tally.all_dropped());
}

#[test]
fn open_page_is_filled_before_anything_is_refused() {
    let (_alone, domain, tally) = alone();
    let guard = domain.read_lock();
    retire(&domain, tally.value(0));
    let no_pages = NoPages::begin();
    let taken = (1..SOME as u64)
        .take_while(|&number| try_retire(&domain, tally.value(number)))
        .count();
    assert!(0 < taken && taken < SOME - 1, "{taken} fitted");
    assert_eq!(tally.dropped(), 1, "the one that was given back");
    drop(guard);
    drop(no_pages);
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
    assert_works(&domain);
}

#[test]
fn inside_a_section_objects_with_a_head_become_callbacks() {
    let (_alone, domain, tally) = alone();
    let no_pages = NoPages::begin();
    let guard = domain.read_lock();
    (0..SOME as u64).for_each(|number| retire_node(&domain, tally.value(number)));
    assert_eq!(tally.dropped(), 0);
    assert_counts!(domain, callbacks_pending: SOME as u64);
    drop(guard);
    kvfree_barrier_returns(&domain);
    assert!(tally.all_dropped(), "a barrier waits for the chain, too");
    assert_eq!(domain.statistics().panics, 0);
    no_pages.end(&domain);
}

#[test]
fn objects_with_a_head_never_wait_for_readers() {
    let (_alone, domain, tally) = alone();
    let reader = Reader::enter(&domain);
    let no_pages = NoPages::begin();
    let (theirs, counted) = (domain.clone(), tally.clone());
    returns(move || {
        (0..SOME as u64).for_each(|number| retire_node(&theirs, counted.value(number)))
    });
    assert_eq!(tally.dropped(), 0);
    assert_counts!(domain, callbacks_pending: SOME as u64, inline_waits: 0);
    reader.leave();
    kvfree_barrier_returns(&domain);
    assert!(tally.all_dropped());
    no_pages.end(&domain);
}

#[test]
fn inside_a_section_retire_leaves_the_object_to_a_callback() {
    let (_alone, domain, tally) = alone();
    let guard = domain.read_lock();
    let no_pages = NoPages::begin();
    retire(&domain, tally.value(1));
    assert_eq!(domain.statistics().callbacks_pending, 1);
    assert!(!tally.all_dropped(), "the section is open");
    drop(guard);
    domain.barrier();
    assert!(tally.all_dropped());
    no_pages.end(&domain);
}

#[test]
fn retire_without_any_memory_leaks_and_counts() {
    let (_alone, domain, tally) = alone();
    let objects: Vec<_> = (0..3).map(|number| leak(tally.value(number))).collect();
    let guard = domain.read_lock();
    without_memory(|| {
        objects
            .iter()
            // SAFETY: no other thread has ever known the objects.
            .for_each(|&object| unsafe { domain.retire(object) })
    });
    assert_counts!(domain, objects_leaked: 3, objects_pending: 0, callbacks_pending: 0);
    drop(guard);
    domain.kvfree_barrier();
    domain.barrier();
    assert_eq!(tally.dropped(), 0, "never freed");
    assert_counts!(domain, objects_leaked: 3, objects_freed: 0);
    assert_works(&domain);
    assert_eq!(domain.statistics().objects_leaked, 3);
    // SAFETY: the library has let go of them, and each came from a box.
    objects
        .into_iter()
        .for_each(|object| drop(unsafe { Box::from_raw(object.as_ptr()) }));
}

#[test]
fn inside_a_callback_retire_does_not_wait() {
    let (_alone, domain, tally) = alone();
    let no_pages = NoPages::begin();
    let (tell, told) = channel();
    let (theirs, counted) = (domain.clone(), tally.clone());
    domain.call(move || {
        let taken = try_retire(&theirs, counted.value(1));
        retire_node(&theirs, counted.value(2));
        tell.tell(taken);
    });
    assert!(!told.hear("it does not wait"));
    eventually(|| tally.all_dropped());
    no_pages.end(&domain);
}

#[test]
fn barrier_returns_without_pages() {
    for _ in 0..10 {
        let (_alone, domain, tally) = alone();
        // Two open pages that were not adopted yet.
        retire(&domain, tally.value(1));
        retire(&domain, 1);
        let no_pages = NoPages::begin();
        kvfree_barrier_returns(&domain);
        assert!(tally.all_dropped());
        assert_eq!(domain.statistics().objects_pending, 0);
        no_pages.end(&domain);
    }
}

#[test]
fn barrier_covers_open_pages_without_pages() {
    let (_alone, domain, tally) = alone();
    // What has been freed once leaves a page in reserve.
    assert_works(&domain);
    let idle: Vec<_> = (0..8)
        .map(|number| {
            let (domain, tally) = (domain.clone(), tally.clone());
            Reader::inside("idle", move |stay| {
                retire(&domain, tally.value(number));
                retire(&domain, number);
                stay();
            })
        })
        .collect();
    let no_pages = NoPages::begin();
    kvfree_barrier_returns(&domain);
    assert!(tally.all_dropped());
    drop(no_pages);
    idle.into_iter().for_each(Reader::leave);
    assert_works(&domain);
}

#[test]
fn open_pages_are_adopted_once_there_is_memory() {
    let (_alone, domain, tally) = alone();
    retire(&domain, tally.value(1));
    retire(&domain, 1);
    let no_pages = NoPages::begin();
    // Fails, or finds a page in reserve: one or the other has happened once a caller was refused or
    // served.
    eventually(|| REFUSED.load(Ordering::SeqCst) > 0 || tally.all_dropped());
    drop(no_pages);
    eventually(|| tally.all_dropped() && domain.statistics().objects_pending == 0);
    assert_works(&domain);
}

#[test]
fn thread_and_domain_ends_need_no_page() {
    let (_alone, domain, tally) = alone();
    retire(&domain, tally.value(1));
    let (theirs, counted) = (domain.clone(), tally.clone());
    let thread = Reader::inside("ends", move |stay| {
        retire(&theirs, counted.value(2));
        stay();
        retire(&theirs, counted.value(3));
    });
    let no_pages = NoPages::begin();
    thread.leave();
    returns(move || drop(domain));
    assert!(tally.all_dropped());
    drop(no_pages);
}

#[test]
fn nothing_is_lost_while_memory_fluctuates() {
    let (_alone, domain, tally) = alone();
    domain.set_budget(256 << 10);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&over);
        let retirers: Vec<_> = (0..4)
            .map(|number| {
                let (domain, tally) = (&domain, &tally);
                scope.spawn(move || {
                    for _ in 0..50 * SOME {
                        retire(domain, tally.value(number));
                        retire(domain, number);
                        let guard = domain.read_lock();
                        try_retire(domain, tally.value(number));
                        try_retire(domain, number);
                        retire_node(domain, tally.value(number));
                        drop(guard);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                drop(NoPages::begin());
                thread::yield_now();
            }
        });
        retirers
            .into_iter()
            .for_each(|retirer| retirer.join().expect("no panic"));
    });
    eventually(|| domain.statistics().objects_pending == 0);
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
    assert_eq!(domain.statistics().panics, 0);
}

#[test]
fn a_barrier_does_without_a_service_thread() {
    apart!();
    let (domain, tally) = (Domain::new(), Tally::new());
    without_new_threads(|| {
        let value = tally.value(1);
        domain.call(move || drop(value));
        domain.barrier();
        assert_eq!(tally.dropped(), 1);
        retire(&domain, tally.value(2));
        domain.kvfree_barrier();
        assert_eq!(tally.dropped(), 2);
    });
    assert_works(&domain);
}

#[test]
fn a_barrier_whose_passes_leave_a_section_open_is_refused() {
    apart!();
    let domain: &'static Domain = Box::leak(Box::new(Domain::new()));
    let tally = Tally::new();
    without_new_threads(|| {
        // It is due, so it runs on the caller in the very pass that then seals the page: whose
        // grace period waits for that section.
        domain.call(|| mem::forget(domain.read_lock()));
        // Not by synchronize(), which ends no grace period without readers.
        domain.cond_synchronize(domain.start_poll());
        retire(domain, tally.value(1));
        let message = panic_message(|| domain.kvfree_barrier());
        assert!(
            message.contains("kvfree_barrier() would wait for the calling thread itself"),
            "{message}"
        );
        assert_eq!(tally.dropped(), 0);
    });
}

mod on_demand {
    //! Objects of a domain that frees on demand are freed as the service thread frees its pages
    //! there.

    use super::*;
    use std::sync::mpsc::Sender;
    use stillpoint::{
        Destructor,
        internal::epoch::{self, Fences},
    };

    thread_local! {
        static INSIDE: Cell<bool> = const { Cell::new(false) };
        static RETIRES: Cell<bool> = const { Cell::new(false) };
    }
    static IS_EXITING: AtomicBool = AtomicBool::new(false);

    fn around(free: &mut dyn FnMut()) {
        if !IS_EXITING.load(Ordering::SeqCst) {
            INSIDE.set(true);
            free();
            INSIDE.set(false);
        }
    }

    /// Tells whether it is freed inside `around`, inside a section, and by the call that retires it.
    struct Object {
        domain: Domain,
        tell: Sender<(bool, bool, bool)>,
    }

    unsafe fn free(object: *mut u8) {
        // SAFETY: from a box, and retired once.
        let object = unsafe { Box::from_raw(object.cast::<Object>()) };
        let seen = (INSIDE.get(), object.domain.is_reading(), RETIRES.get());
        object.tell.tell(seen);
    }

    /// Retires an object for which there is no page. Returns what it has told.
    fn retire_one(domain: &Domain, in_section: bool) -> Vec<(bool, bool, bool)> {
        static FREE: Destructor = Destructor::new(free, 0);
        let (tell, told) = channel();
        let domain_of_it = domain.clone();
        let object = leak(Object {
            domain: domain_of_it,
            tell,
        });
        let reader = epoch::Reader::new(domain);
        // SAFETY: this thread's reader, whose section ends before it is given up; no other thread has
        // ever known the object.
        unsafe {
            if in_section {
                reader.enter::<false>();
            }
            {
                let _no_pages = NoPages::begin();
                RETIRES.set(true);
                reader.retire(domain, object.cast().as_ptr(), &FREE, false);
                RETIRES.set(false);
            }
            if in_section {
                reader.leave();
            }
            reader.depart();
        }
        domain.barrier();
        told.try_iter().collect()
    }

    #[test]
    fn objects_without_a_page_are_freed_in_a_section_or_left_at_the_exit() {
        let (_alone, ..) = alone();
        let domain = epoch::domain("on demand", Fences::None, 1 << 20, around);
        for in_section in [true, false] {
            assert_eq!(retire_one(&domain, in_section), [(true, true, false)]);
        }
        assert_counts!(domain, objects_freed: 2, objects_leaked: 0, inline_waits: 0);
        IS_EXITING.store(true, Ordering::SeqCst);
        assert_eq!(retire_one(&domain, true), []);
        assert_counts!(domain, objects_freed: 2, objects_leaked: 1, objects_pending: 0);
    }
}

#[test]
fn a_task_asks_by_itself_while_there_is_no_service_thread() {
    apart!();
    let domain = Domain::new();
    let mut reader = Reader::enter(&domain);
    let (woken, waker) = waker();
    without_new_threads(|| {
        let mut future = pin!(domain.synchronize_async());
        let mut asks = 0;
        let mut ask = || {
            asks += 1;
            let ready = future
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_ready();
            assert!(
                ready || woken.1.load(Ordering::SeqCst) >= asks,
                "nothing would have it asked again"
            );
            ready
        };
        assert!(!ask() && !ask());
        reader.tell_to_leave();
        eventually(ask);
    });
}

#[test]
fn callbacks_from_when_no_thread_could_be_started_run_once_one_can() {
    apart!();
    let (domain, tally) = (Domain::new(), Tally::new());
    let call = |number| {
        let value = tally.value(number);
        domain.call(move || drop(value));
    };
    without_new_threads(|| (0..10).for_each(call));
    assert_eq!(tally.dropped(), 0);
    eventually(|| {
        call(10);
        tally.dropped() >= 10
    });
    eventually(|| tally.all_dropped());
}

#[test]
fn objects_from_when_no_thread_could_be_started_are_freed_once_one_can() {
    apart!();
    let (domain, tally) = (Domain::new(), Tally::new());
    without_new_threads(|| (0..10).for_each(|number| retire(&domain, tally.value(number))));
    assert_eq!(tally.dropped(), 0);
    eventually(|| {
        (0..SOME as u64).for_each(|number| retire(&domain, tally.value(number)));
        tally.dropped() >= 10
    });
    eventually(|| tally.all_dropped());
}

/// The thread is refused for lack of memory, so noting that must not allocate.
#[test]
fn work_that_found_no_memory_for_a_thread_is_done_when_there_is_some() {
    let (_alone, domain, tally) = alone();
    let other = Domain::new();
    unsafe fn free(head: NonNull<CallbackHead>) {
        // SAFETY: the node of below.
        drop(unsafe { Box::from_raw(head.as_ptr().byte_sub(Node::HEAD_OFFSET).cast::<Node>()) });
    }
    let node = leak(Node {
        value: tally.value(1),
        head: CallbackHead::new(),
    });
    // SAFETY: within the node, which `free` gets, and nothing else.
    unsafe {
        let head = node.byte_add(Node::HEAD_OFFSET).cast();
        without_memory(|| domain.call_head(head, free));
    }
    assert!(!tally.all_dropped());
    eventually(|| {
        other.synchronize();
        tally.all_dropped()
    });
}
