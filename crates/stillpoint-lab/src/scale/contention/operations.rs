//! Stillpoint's own operations, as [`turns`](super::turns) counts them.
//!
//! What is retired goes through a domain of its own, whose policy is the shipped one but for the
//! service thread, which is held while operations are counted: one instruction at a time every
//! thread looks idle, and it would take their pages from them.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use stillpoint::lab::{Domain, GracePeriodPolicy, Policy};
use stillpoint::tasks_trace;
use stillpoint_lru::{Entry, Hierarchy, ListLru, Tenant};
use stillpoint_vmap::Arena;

use super::turns::{Operation, Plan, count};
use super::{Work, parallel};
use crate::run::Sample;
use crate::subject::{Object, Participant, ReadSide, Reader, Reclaimer, Updater};

/// The shipped policy, and the service thread can be held.
pub enum Counted {}

/// The service thread of [`Counted`] domains makes no pass.
static HELD: AtomicBool = AtomicBool::new(false);

// SAFETY: every constant keeps its default; the hook only waits.
unsafe impl GracePeriodPolicy for Counted {
    fn service_comes() {
        while HELD.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

// SAFETY: as above.
unsafe impl Policy for Counted {}

fn domain() -> &'static Domain<Counted> {
    static DOMAIN: OnceLock<Domain<Counted>> = OnceLock::new();
    DOMAIN.get_or_init(|| {
        let domain = Domain::new();
        // A held thread is late.
        domain.set_stall_timeout(Duration::from_secs(86_400));
        domain
    })
}

/// Holds the service thread.
fn hold_service() {
    HELD.store(true, Ordering::Relaxed);
}

/// Lets it go on.
fn release_service() {
    HELD.store(false, Ordering::Relaxed);
}

/// Counts or times runs of so many operations each.
fn measure<O: Operation>(
    work: &Work,
    plan: Plan,
    per_run: usize,
    make: impl Fn(usize) -> O + Sync,
) -> Result<Sample> {
    if let Some(threads) = work.timed {
        return parallel::time(threads as usize, per_run, make);
    }
    // From the first run on, so that where other work delays the threads nothing is different.
    hold_service();
    let totals = count(plan, work.taking_part(), make);
    release_service();
    Ok(super::sample(&totals?, per_run))
}

/// Deferred frees in a [`Counted`] domain.
pub struct Kvfree;

/// The same by callbacks.
pub struct Call;

impl Participant for Kvfree {
    fn register_thread() -> Self {
        drop(domain().read_lock());
        Self
    }
}

impl Reader for Kvfree {
    fn read(&mut self, section: impl FnOnce()) {
        let _guard = domain().read_lock();
        section();
    }
}

impl Reclaimer for Kvfree {
    fn allocate_and_retire<const N: usize>(&mut self) {
        let object = NonNull::from(Box::leak(Object::<N>::allocate()));
        // SAFETY: it was never published, and is retired once.
        unsafe { domain().retire(object) };
    }
}

impl Updater for Kvfree {
    fn synchronize(&mut self) {
        domain().synchronize();
    }
}

impl Participant for Call {
    fn register_thread() -> Self {
        drop(domain().read_lock());
        Self
    }
}

impl Reader for Call {
    fn read(&mut self, section: impl FnOnce()) {
        let _guard = domain().read_lock();
        section();
    }
}

impl Reclaimer for Call {
    fn allocate_and_retire<const N: usize>(&mut self) {
        let object = Object::<N>::allocate();
        domain().call(move || drop(object));
    }
}

/// Objects of a run of [`retire`]: about a page's.
const OBJECTS: usize = 256;

/// A thread's runs for the frees of all that it had retired before.
const RETIRES: Plan = Plan {
    warm_up: 64,
    calls: 17,
};

const OFTEN: Plan = Plan {
    warm_up: 100,
    calls: 100,
};

/// Objects that are allocated and retired, many for each run.
pub fn retire<R: Reclaimer>(work: &Work) -> Result<Sample> {
    measure(work, RETIRES, OBJECTS, |_| {
        let mut part = R::register_thread();
        move || {
            (0..OBJECTS).for_each(|_| part.allocate_and_retire::<32>());
            part.end_loop::<32>();
        }
    })
}

/// The retire that fills a page.
pub struct Seal(Kvfree);

/// Objects of a page.
pub const SLOTS: usize = 253;

impl Operation for Seal {
    fn before(&mut self) {
        (1..SLOTS).for_each(|_| self.0.allocate_and_retire::<32>());
    }

    fn run(&mut self) {
        self.0.allocate_and_retire::<32>();
    }
}

/// Pages that are sealed, and others freed.
pub fn seal(work: &Work) -> Result<Sample> {
    measure(work, RETIRES, 1, |_| Seal(Kvfree::register_thread()))
}

/// An empty section.
pub fn read<R: ReadSide>(work: &Work) -> Result<Sample> {
    measure(work, OFTEN, 1, |_| {
        let mut part = R::register_thread();
        move || part.pairs(1)
    })
}

/// A wait, beside registered threads that are in no section.
pub fn synchronize<S: Updater>(work: &Work) -> Result<Sample> {
    measure(work, OFTEN, 1, |_| {
        let mut part = S::register_thread();
        part.read(|| ());
        move || part.synchronize()
    })
}

/// A cookie.
pub fn get_state(work: &Work) -> Result<Sample> {
    measure(work, OFTEN, 1, |_| {
        || {
            let _ = domain().get_state();
        }
    })
}

/// A grace period that is started, and asked about once.
pub fn start_poll(work: &Work) -> Result<Sample> {
    measure(work, OFTEN, 1, |_| {
        || {
            let cookie = domain().start_poll();
            let _ = domain().poll(cookie);
        }
    })
}

/// An owned section of a task, made and ended on the same thread.
pub fn owned_guard(work: &Work) -> Result<Sample> {
    measure(work, OFTEN, 1, |_| || drop(tasks_trace::read_lock_owned()))
}

static HIERARCHY: LazyLock<Hierarchy> = LazyLock::new(Hierarchy::new);
static TENANT: LazyLock<Tenant> =
    LazyLock::new(|| HIERARCHY.root().create().expect("there is memory"));
static LRU: LazyLock<ListLru<usize>> = LazyLock::new(|| ListLru::for_tenants(&HIERARCHY));
static ARENA: LazyLock<Arena> = LazyLock::new(|| {
    let arena = Arena::builder().domain(stillpoint::global()).build();
    arena.expect("there is address space")
});

/// A charge of an object, given back.
pub fn charge(work: &Work) -> Result<Sample> {
    measure(work, OFTEN, 1, |_| {
        || {
            drop(TENANT.charge(256).expect("there is no limit"));
        }
    })
}

/// Charges that are kept, each in place of one that another run has made: stocks do not cover
/// them.
pub fn charge_kept(work: &Work) -> Result<Sample> {
    measure(work, OFTEN, 1, |_| {
        let mut kept = Vec::with_capacity(1 << 10);
        move || kept.push(TENANT.charge(4096).expect("there is no limit"))
    })
}

/// An item added to a tenant's list, and taken off it.
pub fn lru_add(work: &Work) -> Result<Sample> {
    measure(work, OFTEN, 1, |thread| {
        let item = Arc::new(Entry::new(thread));
        move || {
            LRU.add(&*TENANT, Arc::clone(&item));
            drop(LRU.del(&item));
        }
    })
}

/// A page of the address space, allocated and freed.
pub fn vmap_alloc(work: &Work) -> Result<Sample> {
    measure(work, OFTEN, 1, |_| {
        || {
            drop(ARENA.alloc(4096, 1).expect("there is address space"));
        }
    })
}

/// An area found by an address in it.
pub fn vmap_find(work: &Work) -> Result<Sample> {
    measure(work, OFTEN, 1, |_| {
        let area = ARENA.alloc(4096, 1).expect("there is address space");
        move || {
            let guard = stillpoint::read_lock();
            assert!(ARENA.find(area.addr() + 100, &guard).is_some());
        }
    })
}
