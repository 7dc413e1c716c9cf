//! Memory of the lists: what many tenants cost, and what happens if there is none.
//!
//! The allocator of this program counts bytes, and can refuse blocks of one size.

mod setup;

use setup::common::{
    eventually,
    refusing::{Refusing, with_memory, without_memory},
    returns,
};
use std::{
    alloc::{GlobalAlloc, Layout},
    ptr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicIsize, AtomicUsize, Ordering},
        mpsc::channel,
    },
    thread,
};
use stillpoint_lru::{CreateError, Entry, Hierarchy, ListLru, Node, Scope, Shrink, Tenant};

struct Allocator;

static LIVE: AtomicIsize = AtomicIsize::new(0);
/// The size that is refused (0: none), and the number of blocks of that size that are allocated first.
static REFUSED: AtomicUsize = AtomicUsize::new(0);
static BEFORE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: all is done by `Refusing`; a null pointer is always a permitted answer.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() == REFUSED.load(Ordering::SeqCst)
            && BEFORE.fetch_sub(1, Ordering::SeqCst) <= 0
        {
            return ptr::null_mut();
        }
        LIVE.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { Refusing.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's promise; the block came from `Refusing`.
        unsafe { Refusing.dealloc(block, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Lets one test run at a time: they share the allocator.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the allocated bytes once all that waits for a grace period has been freed.
fn live() -> isize {
    stillpoint::barrier();
    stillpoint::kvfree_barrier();
    LIVE.load(Ordering::SeqCst)
}

fn tenants(hierarchy: &Hierarchy, count: usize) -> Vec<Tenant> {
    (0..count)
        .map(|_| hierarchy.root().create().unwrap())
        .collect()
}

/// Runs `make`, and returns by how many bytes the allocated memory has grown.
fn cost<T>(make: impl FnOnce() -> T) -> (T, isize) {
    let before = live();
    let made = make();
    (made, live() - before)
}

#[test]
#[cfg_attr(miri, ignore = "thousands of tenants")]
fn memory_of_many_tenants() {
    const TENANTS: usize = 10_000;
    const LRUS: usize = 4;
    let _alone = alone();
    let nodes = Node::all().count() as isize;
    drop(tenants(&Hierarchy::new(), 1));
    let (hierarchy, _) = cost(Hierarchy::new);
    let (tenants, bytes) = cost(|| tenants(&hierarchy, TENANTS));
    println!("{} bytes a tenant", bytes / TENANTS as isize);
    assert!(bytes / TENANTS as isize <= 1024 + 256 * (nodes - 1));
    let (lrus, bytes) = cost(|| [(); LRUS].map(|()| ListLru::<u32>::for_tenants(&hierarchy)));
    // The arrays have room for the next power of two.
    assert!(
        bytes <= (LRUS * TENANTS.next_power_of_two()) as isize * 8 * nodes + 16_384,
        "a slot for each list, and nothing else: {bytes}"
    );
    let touch = |lru: &ListLru<u32>| {
        for tenant in &tenants {
            let item = Arc::new(Entry::new(1));
            assert!(lru.add(tenant, Arc::clone(&item)));
            assert!(lru.del(&item).is_some());
        }
    };
    let ((), bytes) = cost(|| lrus.iter().for_each(touch));
    println!("{} bytes a list", bytes / (LRUS * TENANTS) as isize);
    // A list on one node each, or on several if the thread has moved.
    assert!(bytes <= 1024 * (LRUS * TENANTS) as isize * nodes);
    let ((), bytes) = cost(|| drop((tenants, lrus)));
    assert!(bytes < 0);
}

#[test]
fn arrays_that_cannot_grow() {
    let _alone = alone();
    let nodes = Node::all().count();
    if nodes > 1 {
        // The array of tenants has another size then.
        return;
    }
    let hierarchy = Hierarchy::new();
    let lrus = [(); 3].map(|()| ListLru::<u32>::for_tenants(&hierarchy));
    // With the root: the number that there is room for at first.
    let first = tenants(&hierarchy, 15);
    let fill = |tenant: &Tenant| {
        lrus.iter()
            .for_each(|lru| assert!(lru.add(tenant, Arc::new(Entry::new(1)))))
    };
    first.iter().for_each(fill);
    for grown in 0..4 {
        BEFORE.store(grown, Ordering::SeqCst);
        REFUSED.store(8 + 8 * 32 * nodes, Ordering::SeqCst);
        let refused = hierarchy.root().create();
        REFUSED.store(0, Ordering::SeqCst);
        if grown == 3 {
            // Three of the four arrays had grown in the attempts before, and the fourth has now.
            assert!(refused.is_ok());
            break;
        }
        // The arrays that have grown stay as they are, so the next attempt is refused at the next
        // one.
        BEFORE.store(0, Ordering::SeqCst);
        let error = refused.unwrap_err();
        assert_eq!(error, CreateError::OutOfMemory);
        assert!(error.to_string().contains("no memory"));
        assert_eq!(hierarchy.tenants(), 16);
        lrus.iter().for_each(|lru| assert_eq!(lru.count(), 15));
    }
    let more = tenants(&hierarchy, 100);
    more.iter().for_each(fill);
    lrus.iter().for_each(|lru| assert_eq!(lru.count(), 115));
    drop((first, more));
    lrus.iter().for_each(|lru| assert_eq!(lru.count(), 115));
    assert_eq!(hierarchy.tenants(), 1);
}

/// Creates tenants, each of which leaves an item behind, and deletes them.
fn churn(hierarchy: &Hierarchy, lru: &ListLru<u32>, times: u32) {
    for number in 0..times {
        let tenant = hierarchy.root().create().unwrap();
        let item = Arc::new(Entry::new(number));
        assert!(lru.add(&tenant, Arc::clone(&item)));
        tenant.delete().unwrap();
        assert!(lru.del(&item).is_some());
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of tenants")]
fn deleted_tenants_count_as_unreclaimed() {
    const TENANTS: u32 = 1_000;
    let _alone = alone();
    let hierarchy = Hierarchy::new();
    let lru = ListLru::for_tenants(&hierarchy);
    // What is freed may itself leave something to be freed.
    let settled = || {
        while stillpoint::global().statistics().objects_pending > 0 {
            live();
        }
        live()
    };
    let before = settled();
    let guard = stillpoint::read_lock();
    churn(&hierarchy, &lru, TENANTS);
    let waiting = stillpoint::global().statistics();
    let (lists_and_tenants, bytes) = (u64::from(2 * TENANTS), u64::from(TENANTS * (190 + 300)));
    assert!(waiting.objects_pending >= lists_and_tenants, "{waiting:?}");
    assert!(waiting.bytes_pending >= bytes, "{waiting:?}");
    drop(guard);
    let left = settled() - before;
    assert!(left < TENANTS as isize * 190, "{left} bytes stay");
}

/// Bytes of a page of retired objects.
const PAGE: usize = 4096;

/// A thread makes a tenant for which arrays have to grow, and retires the old ones, which waits for
/// readers here. Such a reader may make a tenant, too.
#[test]
fn growing_arrays_holds_no_lock_of_readers() {
    let _alone = alone();
    let hierarchy = Hierarchy::new();
    let lru = ListLru::<u32>::for_tenants(&hierarchy);
    // The number that there is room for at first, the root included.
    let tenants = tenants(&hierarchy, 15);
    let (entered, inside) = channel();
    let root = hierarchy.root().clone();
    let reader = thread::spawn(move || {
        returns(move || {
            let _guard = stillpoint::read_lock();
            entered.send(()).unwrap();
            eventually(|| BEFORE.load(Ordering::SeqCst) < 0);
            root.create().unwrap()
        })
    });
    inside.recv().unwrap();
    BEFORE.store(0, Ordering::SeqCst);
    REFUSED.store(PAGE, Ordering::SeqCst);
    // In another thread, which has no page yet.
    let maker = thread::spawn({
        let root = hierarchy.root().clone();
        move || root.create().unwrap()
    });
    let made = [reader.join().unwrap(), maker.join().unwrap()];
    REFUSED.store(0, Ordering::SeqCst);
    assert_eq!(hierarchy.tenants(), 1 + tenants.len() + made.len());
    drop(lru);
}

#[test]
fn create_and_charge_report_that_there_is_no_memory() {
    let _alone = alone();
    // The thread's first section allocates.
    drop(stillpoint::read_lock());
    let hierarchy = Hierarchy::new();
    let tenant = hierarchy.root().create().unwrap();
    let parent = hierarchy.root().create().unwrap();
    let child = parent.create().unwrap();
    tenant.set_max(1_000);
    parent.set_max(1_000);
    let charges = [&tenant, &child].map(|full| full.charge(900).unwrap());
    let created = without_memory(|| hierarchy.root().create());
    assert!(
        matches!(created, Err(CreateError::OutOfMemory)),
        "{created:?}"
    );
    for full in [&tenant, &child] {
        assert!(without_memory(|| full.charge(200)).is_err());
        assert!(without_memory(|| full.charge(100)).is_ok());
    }
    drop(charges);
    assert!(hierarchy.root().create().is_ok());
}

/// A shrinker that finds work, and does none: it is deferred.
struct Deferring;

impl Shrink for Deferring {
    fn count(&self, _: &Scope<'_>) -> usize {
        100
    }

    fn scan(&self, _: &Scope<'_>, _: usize) -> Option<usize> {
        None
    }
}

/// A refused allocation that cannot report failure would end the process.
#[test]
#[cfg_attr(miri, ignore = "thousands of tenants")]
fn create_and_charge_end_well_with_any_amount_of_memory() {
    let _alone = alone();
    drop(stillpoint::read_lock());
    let mut created = [0; 2];
    for bytes in (0..12_000 * Node::all().count()).step_by(100) {
        let hierarchy = Hierarchy::new();
        let _lists = [(); 4].map(|()| ListLru::<u32>::for_tenants(&hierarchy));
        // The next one makes the arrays grow.
        let before = tenants(&hierarchy, 15);
        let root = hierarchy.root();
        let tenant = with_memory(bytes, || root.create());
        created[usize::from(tenant.is_ok())] += 1;
        assert_eq!(
            hierarchy.tenants(),
            1 + before.len() + usize::from(tenant.is_ok())
        );
        assert!(root.create().is_ok());
    }
    assert!(created.iter().all(|&times| times > 0), "{created:?}");
    for bytes in (0..80_000).step_by(2_000) {
        let hierarchy = Hierarchy::new();
        let parent = hierarchy.root().create().unwrap();
        let children: Vec<_> = (0..100).map(|_| parent.create().unwrap()).collect();
        let _charges: Vec<_> = children
            .iter()
            .map(|child| child.charge(4096).unwrap())
            .collect();
        let _registration = hierarchy.register(Arc::new(Deferring)).unwrap();
        parent.set_max(1 << 20);
        assert!(with_memory(bytes, || children[0].charge(1 << 20)).is_err());
        // Starts the background reclaimer, or reclaims without it.
        parent.set_high(410_000);
        assert!(with_memory(bytes / 8, || children[0].charge(1 << 16)).is_ok());
    }
}
