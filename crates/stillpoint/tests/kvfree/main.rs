//! Deferred frees: everything that is retired is freed once, in bounded memory, while threads start
//! and exit.

mod barrier;
mod churn;
#[path = "../common/mod.rs"]
mod common;
mod destructors;
mod flood;
mod pressure;

use std::{
    alloc::{self, Layout},
    mem::offset_of,
    ptr::NonNull,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use stillpoint::{CallbackHead, Domain, EmbedsHead, lab::free_whole_batches};

use common::{
    Over, Reader, Tally, Tracked, apart, assert_counts, elsewhere, eventually, leak, retire,
    retire_inline, returns,
};

/// A page of the library holds about 250 objects; this is several pages, and no whole number of
/// them.
const SOME: usize = if cfg!(miri) { 300 } else { 3_001 };

fn retire_some(domain: &Domain, tally: &Tally) {
    (0..SOME).for_each(|number| retire(domain, tally.value(number as u64)));
}

/// Threads that have done `work` and stay, without another call, until they are dropped.
struct Idle(Vec<Reader>);

impl Idle {
    fn after(threads: usize, work: impl Fn(usize) + Clone + Send + 'static) -> Self {
        let start = |number| {
            let work = work.clone();
            let works = move |stay: &dyn Fn()| {
                work(number);
                stay();
            };
            // Each starts on its own thread, so that they work at the same time.
            thread::spawn(|| Reader::inside("idle", works))
        };
        let starts: Vec<_> = (0..threads).map(start).collect();
        let idle = starts
            .into_iter()
            .map(|start| start.join().expect("no panic"));
        Self(idle.collect())
    }

    fn end(self) {
        self.0.into_iter().for_each(Reader::leave);
    }
}

#[test]
fn idle_threads_objects_are_freed() {
    for some in [1, SOME] {
        let (domain, tally) = (Domain::new(), Tally::new());
        let (theirs, counted) = (domain.clone(), tally.clone());
        let idle = Idle::after(4, move |_| {
            for number in 0..some {
                retire(&theirs, number);
                retire(&theirs, counted.value(number as u64));
            }
        });
        eventually(|| tally.all_dropped());
        eventually(|| domain.statistics().objects_pending == 0);
        assert_eq!(domain.statistics().objects_freed, 8 * some as u64);
        idle.end();
    }
}

#[test]
fn idle_threads_objects_are_freed_each_time() {
    let domain = Domain::new();
    for round in 1..=20 {
        retire(&domain, round);
        eventually(|| domain.statistics().objects_freed == round);
    }
}

#[test]
fn exited_threads_objects_are_freed() {
    let (domain, tally) = (Domain::new(), Tally::new());
    for _ in 0..20 {
        elsewhere(|| {
            retire(&domain, 1);
            retire(&domain, tally.value(1));
        });
    }
    eventually(|| tally.all_dropped() && domain.statistics().objects_freed == 40);
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn domain_end_covers_exiting_threads() {
    // A thread that fails at its very end takes the process with it.
    apart!();
    for round in 0..2_000 {
        let (tally, domain) = (Tally::new(), Domain::new());
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| retire(&domain, tally.value(1)));
            }
        });
        drop(domain);
        assert_eq!(
            tally.dropped(),
            2,
            "round {round}: the domain is gone and its objects are not"
        );
    }
}

#[test]
fn whole_batches_free_everything() {
    let domain = Domain::new();
    free_whole_batches(&domain, true);
    let tally = Tally::new();
    for _ in 0..5 {
        let (theirs, counted) = (domain.clone(), tally.clone());
        let idle = Idle::after(4, move |_| {
            retire_some(&theirs, &counted);
            (0..SOME).for_each(|number| retire(&theirs, number));
        });
        eventually(|| tally.all_dropped() && domain.statistics().objects_pending == 0);
        idle.end();
    }
    retire_some(&domain, &tally);
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
}

/// A first batch waits for a reader; what is retired meanwhile becomes the second; then there are
/// no more calls.
#[test]
fn batch_behind_a_held_up_one_is_freed() {
    for _ in 0..5 {
        let domain = Domain::new();
        free_whole_batches(&domain, true);
        let tally = Tally::new();
        let retire_elsewhere = || elsewhere(|| retire_some(&domain, &tally));
        let guard = domain.read_lock();
        let before = domain.statistics().heavy_barriers;
        retire_elsewhere();
        // The service thread looks at what holds the first batch up.
        eventually(|| domain.statistics().heavy_barriers > before + 2);
        retire_elsewhere();
        // Not instead of an event: keeps the service thread from its next look at idle threads
        // until that is overdue. There are none by then, so nothing but the second batch itself is
        // a reason to go on.
        domain.call(|| thread::sleep(Duration::from_millis(50)));
        assert!(!domain.poll(domain.start_poll()) && tally.dropped() == 0);
        drop(guard);
        eventually(|| tally.all_dropped());
    }
}

#[test]
fn blocks_of_any_layout_are_freed() {
    let domain = Domain::new();
    let mut blocks = 0;
    for size in [1, 7, 8, 24, 100, 4_096, 70_000] {
        for align in [1, 8, 64, 4_096] {
            let layout = Layout::from_size_align(size, align).expect("a layout");
            for _ in 0..20 {
                // SAFETY: the size is not 0.
                let block = NonNull::new(unsafe { alloc::alloc(layout) }).expect("memory");
                // SAFETY: allocated with that layout, and no other thread has ever known it.
                unsafe { domain.retire_sized(block, layout) };
                blocks += 1;
            }
        }
    }
    domain.kvfree_barrier();
    assert_counts!(domain, objects_freed: blocks, bytes_pending: 0);
}

#[test]
fn objects_with_a_head_are_freed() {
    struct Node {
        value: Tracked,
        head: CallbackHead,
    }
    // SAFETY: that is where the head is, and nothing else touches it.
    unsafe impl EmbedsHead for Node {
        const HEAD_OFFSET: usize = offset_of!(Node, head);
    }
    let (domain, tally) = (Domain::new(), Tally::new());
    let reader = Reader::enter(&domain);
    for number in 0..SOME {
        let node = leak(Node {
            value: tally.value(number as u64),
            head: CallbackHead::new(),
        });
        // SAFETY: only we retire it.
        assert_eq!(unsafe { node.as_ref() }.value.get(), number as u64);
        // SAFETY: no other thread has ever known the node.
        unsafe { domain.retire_with_head(node) };
    }
    assert_eq!(tally.dropped(), 0);
    reader.leave();
    domain.kvfree_barrier();
    assert!(tally.all_dropped());
}

#[test]
fn objects_without_a_size_are_freed() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    struct Nothing;
    impl Drop for Nothing {
        fn drop(&mut self) {
            DROPS.fetch_add(1, Ordering::Relaxed);
        }
    }
    let domain = Domain::new();
    for _ in 0..SOME {
        retire(&domain, Nothing);
        retire(&domain, ());
        retire_inline(&domain, Nothing);
    }
    domain.kvfree_barrier();
    assert_eq!(DROPS.load(Ordering::Relaxed), 2 * SOME);
    assert_eq!(domain.statistics().objects_freed, 3 * SOME as u64);
}

#[test]
fn large_objects_seal_pages_early() {
    const MIB: usize = 1 << 20;
    struct Big(Vec<u8>);
    let domain = Domain::new();
    let layout = Layout::from_size_align(MIB, 8).expect("a layout");
    let retire_big = || {
        // SAFETY: the size is not 0.
        let block = NonNull::new(unsafe { alloc::alloc(layout) }).expect("memory");
        // SAFETY: allocated with that layout, and no other thread has ever known it.
        unsafe { domain.retire_sized(block, layout) };
    };
    let reader = Reader::enter(&domain);
    (0..6).for_each(|_| retire_big());
    let statistics = domain.statistics();
    assert!(
        statistics.bytes_pending >= 6 * MIB as u64 && statistics.pages >= 6,
        "each seals a page: {statistics:?}"
    );
    assert_eq!(statistics.objects_freed, 0);
    reader.leave();
    // Far fewer than a page holds, so only pages that are sealed early keep this from waiting all
    // at once.
    for _ in 0..64 {
        retire_big();
        let waiting = domain.statistics().bytes_pending;
        assert!(waiting <= 16 * MIB as u64, "{waiting} bytes wait");
    }
    retire(&domain, Big(vec![1; MIB]).0);
    domain.kvfree_barrier();
    assert_counts!(domain, objects_freed: 71, bytes_pending: 0);
}

#[test]
fn domain_end_frees_pending_objects() {
    for whole_batches in [false, true] {
        let (tally, domain) = (Tally::new(), Domain::new());
        free_whole_batches(&domain, whole_batches);
        retire_some(&domain, &tally);
        let (theirs, counted) = (domain.clone(), tally.clone());
        let start = Arc::new(Barrier::new(2));
        let started = Arc::clone(&start);
        let other = thread::spawn(move || {
            retire_some(&theirs, &counted);
            drop(theirs);
            started.wait();
        });
        start.wait();
        returns(move || drop(domain));
        assert!(tally.all_dropped(), "in whole batches: {whole_batches}");
        other.join().expect("no panic");
    }
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn two_thousand_domains_leave_nothing_behind() {
    // In a process where no other test starts threads.
    apart!();
    let threads = || std::fs::read_dir("/proc/self/task").expect("Linux").count();
    let tally = Tally::new();
    let before = threads();
    for number in 0..2_000 {
        let domain = Domain::new();
        let cell = stillpoint::Rcu::new_in(&domain, tally.value(number));
        assert_eq!(cell.load(&domain.read_lock()).get(), number);
        cell.store(tally.value(number));
        retire(&domain, number);
        if number % 16 == 0 {
            let count = tally.value(number);
            domain.call(move || drop(count));
            domain.synchronize();
        }
    }
    assert!(tally.all_dropped());
    eventually(|| threads() == before);
}

/// Each thread counts for itself: the sum is that of one moment, whichever thread frees meanwhile,
/// also while threads come and go.
#[test]
fn statistics_of_a_flood_are_exact() {
    const THREADS: usize = 4;
    const LOOKS: usize = if cfg!(miri) { 3 } else { 300 };
    const EACH: usize = if cfg!(miri) { SOME } else { 10 * SOME };
    /// Objects of pages that are being freed, or copied from an idle thread's.
    const ON_THE_WAY: usize = 16 * 256;
    let (domain, tally) = (Domain::new(), Tally::new());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _over = Over(&over);
        for number in 0..THREADS {
            let (domain, tally, over) = (&domain, &tally, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let work = || {
                        (0..EACH).for_each(|_| {
                            if number % 2 == 0 {
                                retire(domain, tally.value(0));
                            } else {
                                retire_inline(domain, tally.value(0));
                            }
                        })
                    };
                    thread::scope(|scope| drop(scope.spawn(work)));
                }
            });
        }
        for _ in 0..LOOKS {
            let (made, dropped) = (tally.made(), tally.dropped());
            let seen = domain.statistics();
            let (dropped_since, made_since) = (tally.dropped(), tally.made());
            let pending = seen.objects_pending as usize;
            let freed = seen.objects_freed as usize;
            let shown = format!("{made}..{made_since} - {dropped}..{dropped_since}: {seen:?}");
            assert!(pending + THREADS + dropped_since >= made, "{shown}");
            assert!(pending + dropped <= made_since + ON_THE_WAY, "{shown}");
            assert!(freed <= dropped_since, "{shown}");
            assert!(freed + ON_THE_WAY >= dropped, "{shown}");
            thread::sleep(Duration::from_millis(1));
        }
    });
    domain.kvfree_barrier();
    let seen = domain.statistics();
    assert_eq!((seen.objects_pending, seen.bytes_pending), (0, 0));
    assert_eq!(seen.objects_freed as usize, tally.made());
}
